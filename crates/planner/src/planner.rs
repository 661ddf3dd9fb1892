//! The planner of one distribution: setup, events, and the state of each node for reports.

use crate::assign::assign;
use crate::estimate::PlanShape;
use crate::failure::{enter_cube, leave_cube, stream_failed};
use crate::hostlist::NODES_MAX;
use crate::limits::PlanLimits;
use crate::member::{Phase, PlanRole};
use crate::messages::{
    FailReason, NodeId, NodeOutcome, OrderAction, PlanEvent, PlanOrder, RootHash, SOURCE, StreamId,
};
use crate::pace;
use crate::state::{PlanMode, PlanState};
use crate::topology::RackTopology;
use crate::units::UnitSet;
use std::collections::{BTreeMap, BTreeSet};

/// The data set of a distribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// Number of units.
    pub units: u64,
    /// Hash of the manifest. A node that reports another one fails.
    pub root: RootHash,
}

/// Errors in the setup of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanSetupError {
    /// A node has the name of another one, or that of the source.
    #[error("{0}: listed twice; list each node once, and not the source")]
    Twice(String),
    /// The plan has the maximum number of nodes.
    #[error("{0}: the distribution has {NODES_MAX} nodes already; start another one")]
    TooMany(String),
}

/// State of a node, for progress reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Name.
    pub name: String,
    /// Whether the node is connected.
    pub is_connected: bool,
    /// Whether the node is a leaf: it is slow, or links to it failed.
    pub is_leaf: bool,
    /// Number of times that the node became a leaf because it was slow.
    pub demotions: u32,
    /// Whether several nodes reported bad units from the node.
    pub is_quarantined: bool,
    /// Units that the node has reported as verified.
    pub units: u64,
    /// Nodes that feed the node.
    pub feeders: Vec<NodeId>,
    /// Outcome, once there is one.
    pub outcome: Option<NodeOutcome>,
}

/// State machine of a distribution.
#[derive(Debug)]
pub struct Planner {
    state: PlanState,
}

impl Planner {
    /// Makes a plan for a source and the nodes of `names`, which get the numbers 1, 2, 3 and so on in
    /// this order. The chain follows the rack order of `topology`.
    pub fn new(
        data: DataSet,
        source: &str,
        names: &[String],
        topology: RackTopology,
        limits: PlanLimits,
    ) -> Result<Self, PlanSetupError> {
        let mut state = PlanState::new(data.units, data.root, topology, limits);
        state.add_member(source);
        state.members[SOURCE].phase = Phase::Connected;
        state.members[SOURCE].held = state.full.clone();
        state.append(SOURCE);
        state.needy.clear();
        let mut known = BTreeSet::from([source]);
        for name in names {
            if !known.insert(name) {
                return Err(PlanSetupError::Twice(name.clone()));
            }
            check_room(&state, name)?;
            state.add_member(name);
        }
        Ok(Self { state })
    }

    /// Applies an event and returns the orders that follow. `now_ms` counts from any fixed moment; a
    /// time before that of an earlier event counts as that time. Events that name an unknown node or
    /// stream, or come from a node that is not connected, have no effect.
    pub fn handle(&mut self, now_ms: u64, event: PlanEvent) -> Vec<PlanOrder> {
        let state = &mut self.state;
        state.now_ms = state.now_ms.max(now_ms);
        let is_tick = event == PlanEvent::Tick;
        apply(state, event);
        if state.is_cube_broken && matches!(state.mode, PlanMode::Cube { .. }) {
            leave_cube(state, None);
        }
        // Time alone ends the wait of a pair, so every tick tries again.
        if state.is_dirty || (is_tick && !state.needy.is_empty()) {
            assign(state);
        }
        // A node that moves within the chain leaves its successor without a feeder.
        for _ in 0..state.members.len() {
            if !state.is_dirty {
                break;
            }
            assign(state);
        }
        std::mem::take(&mut state.orders)
    }

    /// Returns the number of the node with this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let mut members = self.state.members.iter();
        members
            .find(|(_, member)| member.name == name)
            .map(|(id, _)| id)
    }

    /// Returns the outcome of a node. Returns `None` while it has none, or if the node is unknown.
    pub fn outcome(&self, node: NodeId) -> Option<&NodeOutcome> {
        let members = &self.state.members;
        members
            .has(node)
            .then(|| members[node].outcome.as_ref())
            .flatten()
    }

    /// Tells whether every node has its outcome.
    pub fn is_ended(&self) -> bool {
        let mut nodes = self.state.members.iter().skip(1);
        nodes.all(|(_, member)| member.outcome.is_some())
    }

    /// Returns the state of a node. Returns `None` if the node is unknown.
    pub fn status(&self, node: NodeId) -> Option<NodeStatus> {
        let state = &self.state;
        if !state.members.has(node) {
            return None;
        }
        let member = &state.members[node];
        Some(NodeStatus {
            name: member.name.clone(),
            is_connected: member.is_connected(),
            is_leaf: member.role == PlanRole::Leaf,
            demotions: member.demotions,
            is_quarantined: member.is_quarantined,
            units: member.held.len(),
            feeders: state.feeders(node).into_iter().collect(),
            outcome: member.outcome.clone(),
        })
    }
}

/// Returns the number of the next node.
fn check_room(state: &PlanState, name: &str) -> Result<NodeId, PlanSetupError> {
    let full = || PlanSetupError::TooMany(name.to_owned());
    if state.members.len() > NODES_MAX {
        return Err(full());
    }
    u32::try_from(state.members.len())
        .map(NodeId)
        .map_err(|_| full())
}

fn apply(state: &mut PlanState, event: PlanEvent) {
    let is_live = |id: NodeId| {
        let members = &state.members;
        members.has(id) && members[id].is_connected() && members[id].outcome.is_none()
    };
    match event {
        PlanEvent::Start => start(state),
        PlanEvent::Tick => pace::tick(state),
        PlanEvent::Connected { node } if state.members.has(node) && node != SOURCE => {
            let member = &mut state.members[node];
            member.is_preparing = true;
            member.preparations = member.preparations.saturating_add(1);
        }
        PlanEvent::Joined { node, holds } if state.members.has(node) => join(state, node, &holds),
        PlanEvent::Lost { node } if state.members.has(node) => lose(state, node),
        PlanEvent::Left { node } if state.members.has(node) && node != SOURCE => {
            state.end(node, NodeOutcome::Left);
            lose(state, node);
        }
        PlanEvent::Progress {
            node,
            stream,
            verified,
        } if is_live(node) => progress(state, node, stream, &verified),
        // A complete node still feeds.
        PlanEvent::StreamFailed {
            node,
            stream,
            cause,
        } if state.members.has(node) => stream_failed(state, node, stream, &cause),
        // A node that never connected can fail, too.
        PlanEvent::NodeFailed { node, reason } if state.members.has(node) => {
            state.fail(node, FailReason::Reported(reason));
        }
        PlanEvent::Finished { node, root } if is_live(node) => finish(state, node, root),
        _ => {}
    }
}

fn start(state: &mut PlanState) {
    if state.mode != PlanMode::Waiting {
        return;
    }
    state.started_ms = state.now_ms;
    state.mode = PlanMode::Chain;
    pace::sample(state);
    let members = state.members.iter().skip(1);
    let joined = members.filter(|(_, member)| member.is_connected() && member.outcome.is_none());
    let mut names: Vec<String> = joined.map(|(_, member)| member.name.clone()).collect();
    let source = state.members[SOURCE].name.clone();
    state.topology.rack_order(&source, &mut names);
    let ids: BTreeMap<String, NodeId> = state
        .members
        .iter()
        .map(|(id, member)| (member.name.clone(), id))
        .collect();
    for id in names.iter().filter_map(|name| ids.get(name)) {
        state.append(*id);
    }
    let has_data = state
        .members
        .iter()
        .skip(1)
        .any(|(_, member)| !member.held.is_empty());
    let nodes = names.len();
    let shape = state.limits.link.shape(nodes, state.full.len());
    if shape == PlanShape::Hypercube && !has_data && state.members[SOURCE].may_feed() {
        enter_cube(state);
    }
}

fn join(state: &mut PlanState, id: NodeId, holds: &UnitSet) {
    state.members[id].is_preparing = false;
    if let Some(outcome) = state.members[id].outcome.clone() {
        return rejoin_ended(state, id, holds, outcome);
    }
    if state.members[id].is_connected() {
        lose(state, id);
    }
    let member = &mut state.members[id];
    member.phase = Phase::Connected;
    member.held = UnitSet::new();
    member.full_since_ms = None;
    member.send_troubles.clear();
    member.receive_troubles.clear();
    state.add_held(id, holds);
    let (now_ms, keep_ms) = (state.now_ms, state.limits.window_ms);
    state.members[id].meter.sample(now_ms, keep_ms);
    if state.mode == PlanMode::Waiting && id != SOURCE {
        return;
    }
    let member = &state.members[id];
    if member.is_quarantined || member.demotions > 1 {
        return state.set_aside(id);
    }
    state.append(id);
}

/// Handles a node that connects again after its outcome. A complete node may still feed.
fn rejoin_ended(state: &mut PlanState, id: NodeId, holds: &UnitSet, outcome: NodeOutcome) {
    if state.members[id].is_connected() {
        lose(state, id);
    }
    state.members[id].phase = Phase::Connected;
    match outcome {
        NodeOutcome::Complete => {
            state.members[id].held = UnitSet::new();
            state.add_held(id, holds);
            state.append(id);
            state.needy.remove(&id);
        }
        NodeOutcome::Failed(reason) => state.order(id, OrderAction::GiveUp { reason }),
        NodeOutcome::Left => {}
    }
}

fn lose(state: &mut PlanState, id: NodeId) {
    if std::mem::take(&mut state.members[id].is_preparing) {
        state.members[id].unprepared_ms = Some(state.now_ms);
    }
    if !state.members[id].is_connected() {
        return;
    }
    state.disconnect(id);
}

fn progress(state: &mut PlanState, id: NodeId, stream: StreamId, verified: &UnitSet) {
    let now_ms = state.now_ms;
    // The report of an ended stream may come from before a reboot, so it says nothing for sure.
    let Some(known) = state
        .streams
        .get_mut(&stream)
        .filter(|known| known.to == id)
    else {
        return;
    };
    let from = known.from;
    let verified = verified.intersect(&known.units);
    let new = state.add_held(id, &verified);
    if new == 0 {
        state.finish_streams(id);
        return;
    }
    if let Some(known) = state.streams.get_mut(&stream) {
        known.moved_ms = now_ms;
        known.moved = known.moved.saturating_add(new);
    }
    state.trust.succeed(from, id, false);
    state.members[from].send_troubles.clear();
    let member = &mut state.members[id];
    member.meter.add(new);
    member.failing_since_ms = None;
    member.stalls = 0;
    member.receive_troubles.clear();
    state.finish_streams(id);
}

fn finish(state: &mut PlanState, id: NodeId, root: RootHash) {
    if root != state.root {
        return state.fail(id, FailReason::RootDiffers);
    }
    let full = state.full.clone();
    state.add_held(id, &full);
    state.finish_streams(id);
    state.end(id, NodeOutcome::Complete);
}
