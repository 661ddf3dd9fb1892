//! A cluster in memory: nodes with link rates, messages with delays, faults at given times.
//!
//! Time is a number of microseconds. A node sends one unit at a time and serves its streams in turn. A
//! unit occupies the uplink of the feeder and the downlink of the receiver. Messages between a node and the
//! coordinator keep their order. The world judges by what the nodes truly hold.

use driftless_planner::{
    DataSet, NodeId, NodeOutcome, OrderAction, PlanEvent, PlanLimits, PlanOrder, Planner,
    RackTopology, SOURCE, SPARE_UNITS, StreamCause, StreamId, UnitSet,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

pub const ROOT: [u8; 32] = [7; 32];
/// Microseconds of a second.
pub const SECOND: u64 = 1_000_000;
const MILLISECOND: u64 = 1_000;
/// Latency of the network between nodes.
const HOP: u64 = 100;
/// Units of a stream on their way.
const IN_FLIGHT_MAX: usize = 4;
/// Interval of reports.
const REPORT: u64 = 250 * MILLISECOND;
/// Silence after which a peer or the coordinator counts a node as gone.
const SILENCE: u64 = 750 * MILLISECOND;
/// Time that a node waits for a feeder at most: for spare capacity, or for the retry of a pair.
const WAIT_MAX: u64 = 45 * SECOND;
/// Orders for each node at most.
const ORDERS_MAX: u64 = 200;
/// Time that a node takes to commit.
const COMMIT: u64 = 20 * MILLISECOND;

/// Behaviour of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    Honest,
    /// Sends bad units.
    Corrupter,
    /// Reports bad units that were good.
    Accuser,
    /// Reports that its receivers are unreachable.
    Complainer,
    /// Opens streams and sends nothing.
    Mute,
}

/// Events that happen to a cluster.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The process is killed: connections close at once.
    Kill(NodeId),
    /// The host loses power: peers notice by silence.
    PowerOff(NodeId),
    /// The host starts again with what was on its disk.
    Boot(NodeId),
    /// The node takes and sends no data, while its control connection stays.
    Hang(NodeId),
    Resume(NodeId),
    /// Both links of the node get slower by this factor.
    Slow(NodeId, u64),
    /// No data passes between two nodes.
    CutLink(NodeId, NodeId),
    MendLink(NodeId, NodeId),
    DiskFull(NodeId),
    Leave(NodeId),
    /// A node that was not there at the start connects.
    Join(NodeId),
}

#[derive(Debug)]
enum Happening {
    Fault(Fault),
    Tick,
    Report(NodeId),
    /// A message reaches the coordinator. The number is the session of the sender.
    Event(NodeId, u64, PlanEvent),
    Order(NodeId, u64, OrderAction),
    Want(NodeId, StreamId, NodeId, UnitSet),
    Idle(NodeId),
    Arrive {
        to: NodeId,
        stream: StreamId,
        unit: u64,
        is_bad: bool,
    },
    Credit(NodeId, StreamId),
    /// A peer reset or refused the stream.
    Broken(NodeId, StreamId, StreamCause),
}

struct Feed {
    to: NodeId,
    /// Units that the receiver wants and the node lacks.
    wanted: UnitSet,
    ready: VecDeque<u64>,
    in_flight: usize,
    is_spare: bool,
}

struct Expect {
    from: NodeId,
    fresh: UnitSet,
    has_reported: bool,
}

pub struct SimNode {
    pub nature: Nature,
    pub up: u64,
    pub down: u64,
    pub held: UnitSet,
    pub is_up: bool,
    pub is_hung: bool,
    is_joined: bool,
    has_finished: bool,
    session: u64,
    down_free: u64,
    is_sending: bool,
    feeds: BTreeMap<StreamId, Feed>,
    expects: BTreeMap<StreamId, Expect>,
    /// Wants whose order is still on its way.
    early: BTreeMap<StreamId, (NodeId, UnitSet)>,
    last_served: Option<StreamId>,
    /// Units of the chain sent since the last one of a leaf.
    since_spare: u64,
    silent_since: BTreeMap<StreamId, u64>,
    to_coordinator: u64,
    from_coordinator: u64,
    /// Moment since which no node feeds this one.
    waiting_since: Option<u64>,
    /// Moment at which the node held everything.
    pub full_at: Option<u64>,
}

pub struct World {
    pub planner: Planner,
    pub nodes: Vec<SimNode>,
    pub now: u64,
    pub units: u64,
    rng: fastrand::Rng,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    next: u64,
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Whether a node refuses a stream whose order has not arrived, and does not wait for it.
    pub refuses_early: bool,
    /// Units that reached a node which held them.
    pub wasted: u64,
    pub received: u64,
    pub orders: u64,
    pub streams: u64,
    outcomes: Vec<Option<NodeOutcome>>,
    /// Feeders and times of the streams that each node was to expect.
    pub expected: BTreeMap<NodeId, Vec<(u64, NodeId)>>,
    fanout_max: usize,
    has_started: bool,
    pub trace: bool,
}

/// Setup of a world.
pub struct Setup {
    pub nodes: u32,
    pub units: u64,
    /// Microseconds in which a link carries a unit.
    pub unit: u64,
    pub seed: u64,
    pub limits: PlanLimits,
}

impl Setup {
    pub fn new(nodes: u32, units: u64, unit: u64) -> Self {
        let mut limits = PlanLimits::default();
        limits.link.bytes_per_second = 65_536 * SECOND / unit;
        Self {
            nodes,
            units,
            unit,
            seed: 1,
            limits,
        }
    }

    pub fn world(self) -> World {
        let names: Vec<String> = (1..=self.nodes).map(|at| format!("n{at}")).collect();
        let data = DataSet {
            units: self.units,
            root: ROOT,
        };
        let fanout_max = 1 + self.limits.leaf_fanout;
        let planner = Planner::new(data, "head", &names, RackTopology::default(), self.limits);
        let mut world = World {
            planner: planner.expect("a plan"),
            nodes: (0..=self.nodes).map(|_| SimNode::new(self.unit)).collect(),
            now: 0,
            units: self.units,
            rng: fastrand::Rng::with_seed(self.seed),
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next: 0,
            cut: BTreeSet::new(),
            refuses_early: false,
            wasted: 0,
            received: 0,
            orders: 0,
            streams: 0,
            outcomes: vec![None; 1 + usize::try_from(self.nodes).expect("small")],
            expected: BTreeMap::new(),
            fanout_max,
            has_started: false,
            trace: false,
        };
        let source = &mut world.nodes[0];
        source.held = UnitSet::first(self.units);
        source.is_joined = true;
        world.at(0, Happening::Report(SOURCE));
        world
    }
}

impl SimNode {
    fn new(unit: u64) -> Self {
        Self {
            nature: Nature::Honest,
            up: unit,
            down: unit,
            held: UnitSet::new(),
            is_up: true,
            is_hung: false,
            is_joined: false,
            has_finished: false,
            session: 0,
            down_free: 0,
            is_sending: false,
            feeds: BTreeMap::new(),
            expects: BTreeMap::new(),
            early: BTreeMap::new(),
            last_served: None,
            since_spare: 0,
            silent_since: BTreeMap::new(),
            to_coordinator: 0,
            from_coordinator: 0,
            waiting_since: None,
            full_at: None,
        }
    }

    /// Chooses the stream of the next unit: those of a class in turn, the chain before leaves.
    fn next_stream(&mut self) -> Option<StreamId> {
        let can_send = |feed: &Feed| !feed.ready.is_empty() && feed.in_flight < IN_FLIGHT_MAX;
        let able = self.feeds.iter().filter(|(_, feed)| can_send(feed));
        let (spare, chain): (Vec<_>, Vec<_>) = able.partition(|(_, feed)| feed.is_spare);
        let is_turn_of_spare = chain.is_empty() || self.since_spare >= SPARE_UNITS;
        let takes_spare = !spare.is_empty() && is_turn_of_spare;
        let able = if takes_spare { spare } else { chain };
        let able: Vec<StreamId> = able.into_iter().map(|(stream, _)| *stream).collect();
        let after = able.iter().find(|stream| Some(**stream) > self.last_served);
        let stream = after.or(able.first()).copied()?;
        self.since_spare = if takes_spare { 0 } else { self.since_spare + 1 };
        Some(stream)
    }

    fn drop_streams(&mut self) {
        self.feeds.clear();
        self.expects.clear();
        self.early.clear();
        self.silent_since.clear();
    }
}

pub fn index(id: NodeId) -> usize {
    usize::try_from(id.0).expect("small")
}

impl World {
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..u32::try_from(self.nodes.len()).expect("small")).map(NodeId)
    }

    pub fn node(&mut self, id: NodeId) -> &mut SimNode {
        &mut self.nodes[index(id)]
    }

    fn at(&mut self, time: u64, happening: Happening) {
        self.queue.push(Reverse((time, self.next)));
        self.happenings.insert(self.next, happening);
        self.next += 1;
    }

    pub fn fault(&mut self, time: u64, fault: Fault) {
        self.at(time, Happening::Fault(fault));
    }

    /// Connects all nodes but those of `late`, and starts the distribution.
    pub fn start(&mut self, late: &[NodeId]) {
        for id in self
            .ids()
            .filter(|id| !late.contains(id))
            .collect::<Vec<_>>()
        {
            self.connect(id, 0);
        }
        self.has_started = true;
        self.handle(PlanEvent::Start);
        self.at(REPORT, Happening::Tick);
    }

    /// Connects a node to the coordinator. Messages of its earlier sessions are dropped.
    fn connect(&mut self, id: NodeId, delay: u64) {
        let now = self.now;
        let node = self.node(id);
        node.session += 1;
        node.is_joined = true;
        node.has_finished = false;
        let holds = node.held.clone();
        self.at(now + REPORT, Happening::Report(id));
        if delay == 0 {
            self.handle(PlanEvent::Joined { node: id, holds });
        } else {
            self.tell(id, PlanEvent::Joined { node: id, holds });
        }
        self.check_full(id);
    }

    /// Sends a message to the coordinator.
    fn tell(&mut self, id: NodeId, event: PlanEvent) {
        let delay = self.rng.u64(MILLISECOND..5 * MILLISECOND);
        let now = self.now;
        let node = self.node(id);
        let time = node.to_coordinator.max(now + delay);
        node.to_coordinator = time;
        let session = node.session;
        self.at(time, Happening::Event(id, session, event));
    }

    fn handle(&mut self, event: PlanEvent) {
        if self.trace && !matches!(event, PlanEvent::Tick | PlanEvent::Progress { .. }) {
            self.note(&format!("{event:?}"));
        }
        // Units alone change no outcome, and there are very many of these reports.
        let is_progress = matches!(event, PlanEvent::Progress { .. });
        let orders = self.planner.handle(self.now / MILLISECOND, event);
        for PlanOrder { node: id, action } in orders {
            if self.trace {
                self.note(&format!("    {id}: {action:?}"));
            }
            self.orders += 1;
            let nodes = u64::try_from(self.nodes.len()).expect("small");
            assert!(self.orders <= nodes * ORDERS_MAX, "{} orders", self.orders);
            if let OrderAction::Expect { from, .. } = &action {
                self.streams += 1;
                let now = self.now;
                self.expected.entry(id).or_default().push((now, *from));
            }
            let delay = self.rng.u64(MILLISECOND..5 * MILLISECOND);
            let now = self.now;
            let node = self.node(id);
            let time = node.from_coordinator.max(now + delay);
            node.from_coordinator = time;
            let session = node.session;
            self.at(time, Happening::Order(id, session, action));
        }
        if !is_progress {
            self.check_outcomes();
        }
    }

    fn note(&self, text: &str) {
        let seed = self.now / MILLISECOND;
        eprintln!("seed {seed} {text}");
    }

    fn check_outcomes(&mut self) {
        for id in self.ids() {
            let outcome = self.planner.outcome(id).cloned();
            let known = &mut self.outcomes[index(id)];
            assert!(
                known.is_none() || *known == outcome,
                "{id} has two outcomes"
            );
            *known = outcome;
        }
    }

    /// Runs until every node has an outcome. Returns the time of the last event.
    pub fn run(&mut self, limit: u64) -> u64 {
        while !self.planner.is_ended() {
            let Reverse((time, number)) = self.queue.pop().expect("an event");
            assert!(time < limit, "no end after {} s", time / SECOND);
            self.now = time;
            if let Some(happening) = self.happenings.remove(&number) {
                self.happen(happening);
            }
        }
        self.now
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Fault(fault) => self.strike(fault),
            Happening::Tick => {
                self.handle(PlanEvent::Tick);
                self.check_fanout();
                self.check_waits();
                self.at(self.now + REPORT, Happening::Tick);
            }
            Happening::Report(id) => self.report(id),
            Happening::Event(id, session, event) => {
                if self.node(id).session == session {
                    self.handle(event);
                }
            }
            Happening::Order(id, session, action) => {
                let node = self.node(id);
                if node.session == session && node.is_up {
                    self.obey(id, action);
                }
            }
            Happening::Want(id, stream, to, units) => self.want(id, stream, to, units),
            Happening::Idle(id) => {
                self.node(id).is_sending = false;
                self.send(id);
            }
            Happening::Arrive {
                to,
                stream,
                unit,
                is_bad,
            } => self.arrive(to, stream, unit, is_bad),
            Happening::Credit(id, stream) => {
                if let Some(feed) = self.node(id).feeds.get_mut(&stream) {
                    feed.in_flight -= 1;
                }
                self.send(id);
            }
            Happening::Broken(id, stream, cause) => self.broken(id, stream, cause),
        }
    }

    fn can_pass(&self, one: NodeId, other: NodeId) -> bool {
        let is_up = |id: NodeId| {
            let node = &self.nodes[index(id)];
            node.is_up && !node.is_hung
        };
        is_up(one) && is_up(other) && !self.cut.contains(&(one.min(other), one.max(other)))
    }

    fn obey(&mut self, id: NodeId, action: OrderAction) {
        let now = self.now;
        match action {
            OrderAction::Expect {
                stream,
                from,
                units,
            } => {
                let node = self.node(id);
                let has = units.intersect(&node.held);
                let lacks = units.subtract(&node.held);
                let expect = Expect {
                    from,
                    fresh: UnitSet::new(),
                    has_reported: true,
                };
                node.expects.insert(stream, expect);
                let verified = has;
                self.tell(
                    id,
                    PlanEvent::Progress {
                        node: id,
                        stream,
                        verified,
                    },
                );
                if self.can_pass(id, from) {
                    self.at(self.now + HOP, Happening::Want(from, stream, id, lacks));
                } else if !self.nodes[index(from)].is_up {
                    let cause = StreamCause::Unreachable;
                    self.at(self.now + HOP, Happening::Broken(id, stream, cause));
                }
            }
            OrderAction::Feed {
                stream,
                to,
                is_spare,
                ..
            } => {
                let feed = Feed {
                    to,
                    wanted: UnitSet::new(),
                    ready: VecDeque::new(),
                    in_flight: 0,
                    is_spare,
                };
                let node = self.node(id);
                node.feeds.insert(stream, feed);
                if node.nature == Nature::Complainer {
                    let cause = StreamCause::Unreachable;
                    self.at(self.now + HOP, Happening::Broken(id, stream, cause));
                } else if let Some((to, units)) = self.node(id).early.remove(&stream) {
                    self.want(id, stream, to, units);
                }
            }
            OrderAction::Stop { stream } => {
                let node = self.node(id);
                node.feeds.remove(&stream);
                if node.expects.remove(&stream).is_some() {
                    node.down_free = node.down_free.min(now + node.down);
                }
                node.silent_since.remove(&stream);
            }
            OrderAction::GiveUp { .. } => self.node(id).drop_streams(),
        }
    }

    /// A receiver names the units that it lacks.
    fn want(&mut self, id: NodeId, stream: StreamId, to: NodeId, units: UnitSet) {
        if !self.can_pass(id, to) {
            return;
        }
        let refuses = self.refuses_early;
        let node = self.node(id);
        let Some(feed) = node.feeds.get_mut(&stream) else {
            if refuses {
                let cause = StreamCause::Refused;
                self.at(self.now + HOP, Happening::Broken(to, stream, cause));
            } else {
                node.early.insert(stream, (to, units));
            }
            return;
        };
        feed.wanted = units.subtract(&node.held);
        let ready = units.intersect(&node.held);
        feed.ready = ready
            .ranges()
            .flat_map(|range| range.start..range.end)
            .collect();
        self.send(id);
    }

    /// Sends the next unit, if the uplink is free.
    fn send(&mut self, id: NodeId) {
        let now = self.now;
        let node = self.node(id);
        if node.is_sending || !node.is_up || node.is_hung || node.nature == Nature::Mute {
            return;
        }
        let Some(stream) = node.next_stream() else {
            return;
        };
        let (up, nature) = (node.up, node.nature);
        let feed = node.feeds.get_mut(&stream).expect("it was found");
        let unit = feed.ready.pop_front().expect("it is ready");
        let to = feed.to;
        feed.in_flight += 1;
        (node.is_sending, node.last_served) = (true, Some(stream));
        self.at(now + up, Happening::Idle(id));
        let receiver = self.node(to);
        let arrival = (now + up).max(receiver.down_free + receiver.down);
        receiver.down_free = arrival;
        let is_bad = nature == Nature::Corrupter;
        self.at(
            arrival + HOP,
            Happening::Arrive {
                to,
                stream,
                unit,
                is_bad,
            },
        );
    }

    fn arrive(&mut self, to: NodeId, stream: StreamId, unit: u64, is_bad: bool) {
        let Some(from) = self.node(to).expects.get(&stream).map(|expect| expect.from) else {
            return;
        };
        if !self.can_pass(from, to) {
            return;
        }
        let lies = self.node(to).nature == Nature::Accuser && self.rng.u32(0..50) == 0;
        if is_bad || lies {
            self.node(to).expects.remove(&stream);
            let cause = StreamCause::BadUnits;
            self.tell(to, failed(to, stream, cause));
            self.at(
                self.now + HOP,
                Happening::Broken(from, stream, StreamCause::Closed),
            );
            return;
        }
        self.received += 1;
        let one = UnitSet::range(unit, unit + 1);
        let node = self.node(to);
        let is_known = node.held.contains(unit);
        node.held.insert(&one);
        if let Some(expect) = node.expects.get_mut(&stream) {
            expect.fresh.insert(&one);
            expect.has_reported = false;
        }
        for feed in node.feeds.values_mut() {
            if feed.wanted.contains(unit) {
                feed.wanted = feed.wanted.subtract(&one);
                feed.ready.push_back(unit);
            }
        }
        self.wasted += u64::from(is_known);
        self.at(self.now + HOP, Happening::Credit(from, stream));
        self.send(to);
        self.check_full(to);
    }

    fn check_full(&mut self, id: NodeId) {
        let (now, units) = (self.now, self.units);
        let node = self.node(id);
        if id == SOURCE || node.has_finished || node.held.len() < units {
            return;
        }
        node.has_finished = true;
        node.full_at.get_or_insert(now);
        self.report_progress(id);
        let session = self.node(id).session;
        let event = PlanEvent::Finished {
            node: id,
            root: ROOT,
        };
        let node = self.node(id);
        node.to_coordinator = node.to_coordinator.max(now + COMMIT);
        let time = node.to_coordinator;
        self.at(time, Happening::Event(id, session, event));
    }

    /// A node sends its reports, and looks for silent peers.
    fn report(&mut self, id: NodeId) {
        let node = self.node(id);
        if !node.is_up || !node.is_joined {
            return;
        }
        self.at(self.now + REPORT, Happening::Report(id));
        if self.node(id).is_hung {
            return;
        }
        self.report_progress(id);
        let node = &self.nodes[index(id)];
        let expects = node
            .expects
            .iter()
            .map(|(stream, expect)| (*stream, expect.from));
        let feeds = node.feeds.iter().map(|(stream, feed)| (*stream, feed.to));
        let peers: Vec<(StreamId, NodeId)> = expects.chain(feeds).collect();
        for (stream, peer) in peers {
            // A hung process still answers heartbeats from another thread.
            let is_silent =
                !self.nodes[index(peer)].is_up || self.cut.contains(&(id.min(peer), id.max(peer)));
            let now = self.now;
            let node = self.node(id);
            if !is_silent {
                node.silent_since.remove(&stream);
                continue;
            }
            let since = *node.silent_since.entry(stream).or_insert(now);
            if now - since >= SILENCE {
                self.broken(id, stream, StreamCause::Stalled);
            }
        }
    }

    fn report_progress(&mut self, id: NodeId) {
        let node = self.node(id);
        let mut fresh = Vec::new();
        for (stream, expect) in &mut node.expects {
            if !expect.has_reported {
                expect.has_reported = true;
                fresh.push((*stream, std::mem::take(&mut expect.fresh)));
            }
        }
        for (stream, verified) in fresh {
            let event = PlanEvent::Progress {
                node: id,
                stream,
                verified,
            };
            self.tell(id, event);
        }
    }

    /// A node gives a stream up and reports it.
    fn broken(&mut self, id: NodeId, stream: StreamId, cause: StreamCause) {
        self.report_progress(id);
        let node = self.node(id);
        let was_known =
            node.feeds.remove(&stream).is_some() | node.expects.remove(&stream).is_some();
        node.silent_since.remove(&stream);
        if was_known && node.is_up {
            self.tell(id, failed(id, stream, cause));
        }
    }

    fn strike(&mut self, fault: Fault) {
        if self.trace {
            self.note(&format!("{fault:?}"));
        }
        let pair = |one: NodeId, other: NodeId| (one.min(other), one.max(other));
        match fault {
            Fault::Kill(id) => self.die(id, true),
            Fault::PowerOff(id) => self.die(id, false),
            Fault::Boot(id) if !self.node(id).is_up => {
                self.node(id).is_up = true;
                self.connect(id, 1);
            }
            Fault::Boot(_) => {}
            Fault::Hang(id) => self.node(id).is_hung = true,
            Fault::Resume(id) => self.resume(id),
            Fault::Slow(id, factor) => {
                let node = self.node(id);
                (node.up, node.down) = (node.up * factor, node.down * factor);
            }
            Fault::CutLink(one, other) => {
                self.cut.insert(pair(one, other));
            }
            Fault::MendLink(one, other) => {
                self.cut.remove(&pair(one, other));
            }
            Fault::DiskFull(id) => {
                self.node(id).drop_streams();
                let reason = "/scratch: no space left on device".to_owned();
                self.tell(id, PlanEvent::NodeFailed { node: id, reason });
            }
            Fault::Leave(id) => self.handle(PlanEvent::Left { node: id }),
            Fault::Join(id) => self.connect(id, 1),
        }
    }

    fn die(&mut self, id: NodeId, closes: bool) {
        let node = self.node(id);
        if !node.is_up {
            return;
        }
        node.is_up = false;
        node.is_hung = false;
        node.session += 1;
        let (feeds, expects) = (&node.feeds, &node.expects);
        let to = feeds.iter().map(|(stream, feed)| (*stream, feed.to));
        let from = expects
            .iter()
            .map(|(stream, expect)| (*stream, expect.from));
        let peers: Vec<(StreamId, NodeId)> = to.chain(from).collect();
        node.drop_streams();
        let (now, session) = (self.now, self.node(id).session);
        let delay = if closes { 2 * MILLISECOND } else { SILENCE };
        self.at(
            now + delay,
            Happening::Event(id, session, PlanEvent::Lost { node: id }),
        );
        for (stream, peer) in peers.into_iter().filter(|_| closes) {
            self.at(
                now + HOP,
                Happening::Broken(peer, stream, StreamCause::Closed),
            );
        }
    }

    fn resume(&mut self, id: NodeId) {
        let node = self.node(id);
        if !std::mem::take(&mut node.is_hung) {
            return;
        }
        let streams: Vec<StreamId> = node
            .feeds
            .keys()
            .chain(node.expects.keys())
            .copied()
            .collect();
        for stream in streams {
            self.broken(id, stream, StreamCause::Closed);
        }
    }

    /// Checks that no node feeds more receivers than it may.
    fn check_fanout(&mut self) {
        let mut receivers: BTreeMap<NodeId, usize> = BTreeMap::new();
        for id in self.ids() {
            let status = self.planner.status(id).expect("a node");
            for feeder in status.feeders {
                *receivers.entry(feeder).or_default() += 1;
            }
        }
        let max = receivers.values().max().copied().unwrap_or(0);
        // Neighbours in a hypercube, and the partner of a vertex.
        let cube = usize::try_from(self.nodes.len().ilog2()).expect("small") + 1;
        assert!(
            max <= self.fanout_max.max(cube),
            "a node feeds {max} others"
        );
    }

    /// Checks that a node that lacks units is served, or waits no longer than the limits say, while the
    /// source is there.
    fn check_waits(&mut self) {
        let now = self.now;
        let has_source = self.nodes[0].is_up;
        for id in self.ids() {
            let status = self.planner.status(id).expect("a node");
            let lacks = status.units < self.units && status.is_connected;
            let waits = lacks && status.outcome.is_none() && status.feeders.is_empty();
            let since = &mut self.node(id).waiting_since;
            if !waits || !has_source {
                *since = None;
                continue;
            }
            let waited = now - *since.get_or_insert(now);
            assert!(
                waited <= WAIT_MAX,
                "{id} waits for {} s: {status:?}",
                waited / SECOND
            );
        }
    }

    pub fn is_complete(&self, id: NodeId) -> bool {
        self.planner.outcome(id) == Some(&NodeOutcome::Complete)
    }

    /// Returns the moment at which the last of some nodes held everything.
    pub fn full_at(&self, ids: impl Iterator<Item = NodeId>) -> u64 {
        let moment = |id: NodeId| {
            let full = self.nodes[index(id)].full_at;
            full.unwrap_or_else(|| panic!("{id} is not full: {:?}", self.planner.status(id)))
        };
        ids.map(moment).max().expect("a node")
    }
}

fn failed(node: NodeId, stream: StreamId, cause: StreamCause) -> PlanEvent {
    PlanEvent::StreamFailed {
        node,
        stream,
        cause,
    }
}
