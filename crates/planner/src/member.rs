//! Knowledge about one node.

use crate::messages::{NodeId, NodeOutcome, StreamId};
use crate::meter::Meter;
use crate::units::UnitSet;
use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

/// Connection of a node to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The node has never connected.
    Pending,
    Connected,
    /// The coordinator lost the node.
    Lost {
        since_ms: u64,
    },
}

/// Part of a node in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanRole {
    /// The node feeds its successor.
    Chain,
    /// The node feeds no other node, unless no other node can.
    Leaf,
}

/// A node.
#[derive(Debug)]
pub(crate) struct PlanMember {
    pub name: String,
    pub phase: Phase,
    /// Whether the node is connected and verifies what it holds, before it joins.
    pub is_preparing: bool,
    /// Moment at which the coordinator last lost the node while it prepared.
    pub unprepared_ms: Option<u64>,
    /// Times that the node began to prepare.
    pub preparations: u32,
    pub outcome: Option<NodeOutcome>,
    pub role: PlanRole,
    /// Position in the chain.
    pub seat: Option<u64>,
    pub held: UnitSet,
    pub incoming: BTreeSet<StreamId>,
    pub outgoing: BTreeSet<StreamId>,
    pub meter: Meter,
    /// Units in a whole window when the node last received at full rate.
    pub typical: Option<u64>,
    pub demotions: u32,
    pub was_promoted: bool,
    /// Whether another first node was tried in place of this one.
    pub was_tried: bool,
    pub is_quarantined: bool,
    /// Receivers that were slow with this feeder, one after another.
    pub slow_receivers: BTreeSet<NodeId>,
    /// Feeders with which this receiver was slow.
    pub slow_feeders: BTreeSet<NodeId>,
    /// Receivers and feeders whose streams failed one after another.
    pub send_troubles: BTreeSet<NodeId>,
    pub receive_troubles: BTreeSet<NodeId>,
    /// Moment at which the node last moved within the chain for want of a feeder.
    pub moved_ms: Option<u64>,
    /// Moment since which no stream serves the node.
    pub waiting_since_ms: Option<u64>,
    /// Streams to the node that stalled one after another.
    pub stalls: u32,
    /// Moment since which every stream to the node failed.
    pub failing_since_ms: Option<u64>,
    /// Moment since which units that the node lacks are on no reachable node.
    pub unavailable_since_ms: Option<u64>,
    /// Moment since which the node holds all units.
    pub full_since_ms: Option<u64>,
    /// Moment since which the node holds up a hypercube.
    pub slow_since_ms: Option<u64>,
}

impl PlanMember {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            phase: Phase::Pending,
            is_preparing: false,
            unprepared_ms: None,
            preparations: 0,
            outcome: None,
            role: PlanRole::Chain,
            seat: None,
            held: UnitSet::new(),
            incoming: BTreeSet::new(),
            outgoing: BTreeSet::new(),
            meter: Meter::default(),
            typical: None,
            demotions: 0,
            was_promoted: false,
            was_tried: false,
            is_quarantined: false,
            slow_receivers: BTreeSet::new(),
            slow_feeders: BTreeSet::new(),
            send_troubles: BTreeSet::new(),
            receive_troubles: BTreeSet::new(),
            moved_ms: None,
            waiting_since_ms: None,
            stalls: 0,
            failing_since_ms: None,
            unavailable_since_ms: None,
            full_since_ms: None,
            slow_since_ms: None,
        }
    }

    pub fn is_connected(&self) -> bool {
        self.phase == Phase::Connected
    }

    /// Tells whether the node may send what it holds.
    pub fn may_feed(&self) -> bool {
        let is_sound = matches!(self.outcome, None | Some(NodeOutcome::Complete));
        self.is_connected() && is_sound && !self.is_quarantined
    }
}

/// Nodes of a plan. The planner checks the numbers in events; it made all other numbers itself.
#[derive(Debug, Default)]
pub(crate) struct PlanMembers(Vec<PlanMember>);

impl PlanMembers {
    pub fn push(&mut self, member: PlanMember) {
        self.0.push(member);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn has(&self, id: NodeId) -> bool {
        at(id) < self.0.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        (0..count).map(NodeId)
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &PlanMember)> {
        self.ids().zip(&self.0)
    }
}

fn at(id: NodeId) -> usize {
    usize::try_from(id.0).unwrap_or(usize::MAX)
}

impl Index<NodeId> for PlanMembers {
    type Output = PlanMember;

    fn index(&self, id: NodeId) -> &PlanMember {
        &self.0[at(id)]
    }
}

impl IndexMut<NodeId> for PlanMembers {
    fn index_mut(&mut self, id: NodeId) -> &mut PlanMember {
        &mut self.0[at(id)]
    }
}
