//! State of a distribution, and the changes from which every rule is built.
//!
//! Each change keeps three things together: the tables of streams, the orders to both ends, and the
//! set of nodes that need a feeder.

use crate::limits::PlanLimits;
use crate::member::{Phase, PlanMember, PlanMembers, PlanRole};
use crate::messages::{
    FailReason, NodeId, NodeOutcome, OrderAction, PlanOrder, RootHash, SOURCE, StreamId,
};
use crate::stream::{FeedSlot, PlannedStream, StreamKind};
use crate::topology::RackTopology;
use crate::trust::PairTrust;
use crate::units::UnitSet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Streams that ended early, of which a report of bad units may still come.
const ENDED_MAX: usize = 1_024;

/// Form of the plan at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanMode {
    /// Before the start.
    Waiting,
    Chain,
    /// Binomial pipeline, and the moment at which it began.
    Cube {
        since_ms: u64,
    },
}

/// State of a distribution.
#[derive(Debug)]
pub(crate) struct PlanState {
    pub limits: PlanLimits,
    pub topology: RackTopology,
    pub root: RootHash,
    /// Units of the data set.
    pub full: UnitSet,
    pub now_ms: u64,
    pub started_ms: u64,
    pub mode: PlanMode,
    pub members: PlanMembers,
    /// Nodes of the chain by their position.
    pub chain: BTreeMap<u64, NodeId>,
    next_seat: u64,
    pub streams: BTreeMap<StreamId, PlannedStream>,
    next_stream: u64,
    pub trust: PairTrust,
    /// Nodes that may lack units which no stream carries.
    pub needy: BTreeSet<NodeId>,
    /// Whether the needy nodes may find a feeder that they did not find before.
    pub is_dirty: bool,
    /// Streams that ended early, with feeder and receiver, the oldest first.
    pub ended: VecDeque<(StreamId, NodeId, NodeId)>,
    /// Whether a node of the hypercube has left it.
    pub is_cube_broken: bool,
    /// Units in a window of the first nodes that were moved to see whether the next one is faster.
    pub head_trials: Vec<u64>,
    pub orders: Vec<PlanOrder>,
}

impl PlanState {
    pub fn new(units: u64, root: RootHash, topology: RackTopology, limits: PlanLimits) -> Self {
        Self {
            limits,
            topology,
            root,
            full: UnitSet::first(units),
            now_ms: 0,
            started_ms: 0,
            mode: PlanMode::Waiting,
            members: PlanMembers::default(),
            chain: BTreeMap::new(),
            next_seat: 1,
            streams: BTreeMap::new(),
            next_stream: 1,
            trust: PairTrust::default(),
            needy: BTreeSet::new(),
            is_dirty: false,
            ended: VecDeque::new(),
            is_cube_broken: false,
            head_trials: Vec::new(),
            orders: Vec::new(),
        }
    }

    pub fn order(&mut self, node: NodeId, action: OrderAction) {
        if self.members[node].is_connected() {
            self.orders.push(PlanOrder { node, action });
        }
    }

    /// Returns the units that a node lacks.
    pub fn missing(&self, id: NodeId) -> UnitSet {
        self.full.subtract(&self.members[id].held)
    }

    /// Returns the units that a node holds or is going to receive.
    pub fn supply(&self, id: NodeId) -> UnitSet {
        let member = &self.members[id];
        let mut units = member.held.clone();
        for stream in self.streams_of(&member.incoming) {
            units.insert(&stream.units);
        }
        units
    }

    /// Returns the units that a node lacks and that no stream carries to it.
    pub fn unassigned(&self, id: NodeId) -> UnitSet {
        self.full.subtract(&self.supply(id))
    }

    /// Returns the units that the feeder of a stream could send at once.
    pub fn backlog(&self, stream: &PlannedStream) -> UnitSet {
        let held = self.members[stream.from].held.intersect(&stream.units);
        held.subtract(&self.members[stream.to].held)
    }

    pub fn streams_of<'a>(
        &'a self,
        ids: &'a BTreeSet<StreamId>,
    ) -> impl Iterator<Item = &'a PlannedStream> {
        ids.iter().filter_map(|id| self.streams.get(id))
    }

    /// Tells whether a connected node still lacks units.
    pub fn is_needing(&self, id: NodeId) -> bool {
        let member = &self.members[id];
        id != SOURCE
            && member.is_connected()
            && member.outcome.is_none()
            && !self.full.is_subset(&member.held)
    }

    /// Returns a stream in the place of a successor of a node.
    pub fn chain_stream(&self, id: NodeId) -> Option<&PlannedStream> {
        let mut streams = self.streams_of(&self.members[id].outgoing);
        streams.find(|stream| stream.slot == FeedSlot::Chain)
    }

    /// Returns the successor that a node feeds in the chain. A leaf may hold the place until there is one.
    pub fn chain_receiver(&self, id: NodeId) -> Option<NodeId> {
        let to = self.chain_stream(id)?.to;
        (self.members[to].role == PlanRole::Chain).then_some(to)
    }

    /// Ends the streams to leaves in the place of a successor.
    pub fn free_place(&mut self, id: NodeId) {
        let is_leaf = |id: &StreamId| {
            let stream = self.streams.get(id);
            stream.is_some_and(|stream| {
                stream.slot == FeedSlot::Chain && self.members[stream.to].role == PlanRole::Leaf
            })
        };
        let outgoing = self.members[id].outgoing.iter().copied();
        let leaves: Vec<StreamId> = outgoing.filter(is_leaf).collect();
        self.cut_all(leaves);
    }

    /// Returns the other receivers of a node.
    pub fn leaf_receivers(&self, id: NodeId) -> BTreeSet<NodeId> {
        let streams = self.streams_of(&self.members[id].outgoing);
        let leaves = streams.filter(|stream| stream.slot == FeedSlot::Leaf);
        leaves.map(|stream| stream.to).collect()
    }

    /// Returns the receivers of a node.
    pub fn receivers(&self, id: NodeId) -> BTreeSet<NodeId> {
        let streams = self.streams_of(&self.members[id].outgoing);
        streams.map(|stream| stream.to).collect()
    }

    /// Returns the feeders of a node.
    pub fn feeders(&self, id: NodeId) -> BTreeSet<NodeId> {
        let streams = self.streams_of(&self.members[id].incoming);
        streams.map(|stream| stream.from).collect()
    }

    /// Begins a stream and orders both ends to take part.
    pub fn open(&mut self, stream: PlannedStream) {
        let id = StreamId(self.next_stream);
        self.next_stream = self.next_stream.saturating_add(1);
        let (from, to, units) = (stream.from, stream.to, stream.units.clone());
        let is_spare = stream.slot == FeedSlot::Leaf || self.members[to].role == PlanRole::Leaf;
        self.members[from].outgoing.insert(id);
        self.members[to].incoming.insert(id);
        self.members[to].waiting_since_ms = None;
        self.streams.insert(id, stream);
        let feed = OrderAction::Feed {
            stream: id,
            to,
            units: units.clone(),
            is_spare,
        };
        self.order(from, feed);
        let expect = OrderAction::Expect {
            stream: id,
            from,
            units,
        };
        self.order(to, expect);
    }

    /// Forgets a stream. Returns `None` if it is unknown.
    pub fn forget(&mut self, id: StreamId) -> Option<PlannedStream> {
        let stream = self.streams.remove(&id)?;
        self.members[stream.from].outgoing.remove(&id);
        self.members[stream.to].incoming.remove(&id);
        self.needy.insert(stream.to);
        self.is_dirty = true;
        Some(stream)
    }

    /// Ends a stream before the receiver holds its units.
    pub fn cut(&mut self, id: StreamId) -> Option<PlannedStream> {
        let stream = self.forget(id)?;
        self.ended.push_back((id, stream.from, stream.to));
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
        self.order(stream.to, OrderAction::Stop { stream: id });
        self.order(stream.from, OrderAction::Stop { stream: id });
        Some(stream)
    }

    pub fn cut_all(&mut self, ids: impl IntoIterator<Item = StreamId>) {
        for id in ids {
            self.cut(id);
        }
    }

    /// Ends every stream to and from a node.
    pub fn isolate(&mut self, id: NodeId) {
        self.is_cube_broken |= matches!(self.mode, PlanMode::Cube { .. });
        let member = &self.members[id];
        let streams: Vec<StreamId> = member.incoming.union(&member.outgoing).copied().collect();
        self.cut_all(streams);
    }

    /// Appends a node to the chain.
    pub fn append(&mut self, id: NodeId) {
        self.leave_chain(id);
        // The source stays the first one when it comes back.
        let seat = if id == SOURCE { 0 } else { self.next_seat };
        self.next_seat = self.next_seat.saturating_add(1);
        self.chain.insert(seat, id);
        let member = &mut self.members[id];
        (member.seat, member.role) = (Some(seat), PlanRole::Chain);
        self.needy.insert(id);
        self.is_dirty = true;
    }

    pub fn leave_chain(&mut self, id: NodeId) {
        if let Some(seat) = self.members[id].seat.take() {
            self.chain.remove(&seat);
        }
    }

    /// Moves a node to the end of the chain. Its feeder feeds its successor.
    pub fn move_to_tail(&mut self, id: NodeId) {
        let is_last = self
            .chain
            .last_key_value()
            .is_some_and(|(_, last)| *last == id);
        if !is_last {
            self.isolate(id);
            self.append(id);
        }
    }

    /// Makes a node a leaf. Its feeder feeds its successor.
    pub fn set_aside(&mut self, id: NodeId) {
        if id == SOURCE {
            return;
        }
        self.isolate(id);
        self.leave_chain(id);
        let member = &mut self.members[id];
        member.role = PlanRole::Leaf;
        member.slow_receivers.clear();
        self.needy.insert(id);
        self.is_dirty = true;
    }

    /// Gives a node its outcome, unless it has one.
    pub fn end(&mut self, id: NodeId, outcome: NodeOutcome) {
        if id == SOURCE || self.members[id].outcome.is_some() {
            return;
        }
        if outcome != NodeOutcome::Complete {
            self.isolate(id);
            self.leave_chain(id);
        }
        if let NodeOutcome::Failed(reason) = &outcome {
            let reason = reason.clone();
            self.order(id, OrderAction::GiveUp { reason });
        }
        self.members[id].outcome = Some(outcome);
        self.needy.remove(&id);
    }

    pub fn fail(&mut self, id: NodeId, reason: FailReason) {
        self.end(id, NodeOutcome::Failed(reason));
    }

    /// Marks a node as not connected, and ends its streams.
    pub fn disconnect(&mut self, id: NodeId) {
        let since_ms = self.now_ms;
        // The node itself can no longer receive an order.
        self.members[id].phase = Phase::Lost { since_ms };
        self.isolate(id);
        self.leave_chain(id);
        self.needy.remove(&id);
    }

    /// Adds verified units to a node. Returns the number of new ones.
    pub fn add_held(&mut self, id: NodeId, units: &UnitSet) -> u64 {
        let units = units.intersect(&self.full);
        let member = &mut self.members[id];
        let before = member.held.len();
        member.held.insert(&units);
        member.held.truncate();
        let new = member.held.len().saturating_sub(before);
        if self.full.is_subset(&self.members[id].held) {
            let now_ms = self.now_ms;
            self.members[id].full_since_ms.get_or_insert(now_ms);
        }
        new
    }

    /// Forgets the streams to a node that carry nothing any more.
    pub fn finish_streams(&mut self, id: NodeId) {
        let held = &self.members[id].held;
        let incoming = self.members[id].incoming.iter();
        let is_done = |id: &&StreamId| {
            let stream = self.streams.get(id);
            stream.is_some_and(|stream| stream.units.is_subset(held))
        };
        let done: Vec<StreamId> = incoming.filter(is_done).copied().collect();
        for id in done {
            if let Some(stream) = self.forget(id) {
                self.record_rate(&stream);
            }
        }
    }

    /// Records the rate of a stream that carried all of its units, perhaps before any window was over.
    fn record_rate(&mut self, stream: &PlannedStream) {
        let age = u128::from(stream.age_ms(self.now_ms).max(self.limits.tick_ms).max(1));
        let scaled = u128::from(stream.moved) * u128::from(self.limits.window_ms) / age;
        let rate = u64::try_from(scaled).unwrap_or(u64::MAX);
        let typical = self.members[stream.to].typical;
        self.members[stream.to].typical = typical.max((rate > 0).then_some(rate));
    }

    pub fn add_member(&mut self, name: &str) {
        self.members.push(PlanMember::new(name));
    }

    /// Returns the streams of a kind.
    pub fn streams_of_kind(&self, kind: StreamKind) -> Vec<StreamId> {
        let streams = self.streams.iter();
        let found = streams.filter(|(_, stream)| stream.kind == kind);
        found.map(|(id, _)| *id).collect()
    }
}
