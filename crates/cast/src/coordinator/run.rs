//! The loop of a cast: events of nodes and of the source go into the planner, and its orders go to them.

use crate::coordinator::conductor::{ConductorContext, NodeInput, ToNode, conduct};
use crate::coordinator::record::NodeRecord;
use crate::coordinator::source::SourceFeeders;
use crate::message::{
    CastBrief, CastId, CastPeer, FinishedCopy, NodeMessage, NodeOrder, PEERS_PER_MESSAGE,
    WirePlace, shown,
};
use crate::stream::StreamReport;
use crate::{CastEvent, CastMonitor, CastSettings, Error};
use crossbeam_channel::{Receiver, Sender, select};
use driftless_planner::{
    CatalogueFeed, CatalogueSpread, DataSet, LinkModel, NodeId, OrderAction, PlanEvent, PlanOrder,
    Planner, SOURCE, StreamCause, StreamId,
};
use driftless_store::{Catalogue, UNIT_BYTES};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time in which nodes close their connections at the end.
const CLOSE_MAX: Duration = Duration::from_secs(2);
/// Longest wait for an event before the caller's wish to stop is looked at.
const TICK: Duration = Duration::from_millis(100);
/// Longest wait at the end for nodes that hold all units and commit the data set.
const COMMIT_MAX: Duration = Duration::from_secs(10);
/// Units of each stream for which a limited node has time before a stream has stalled.
const STALL_UNITS: u64 = 3;
/// Stack of the thread of a node, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// A node with a connection.
pub(crate) struct ConnectedNode {
    generation: u64,
    orders: Sender<ToNode>,
    peer: CastPeer,
    pub(super) is_ready: bool,
    /// Time of the last message.
    pub(super) heard: Instant,
}

/// A cast at work.
pub(crate) struct CastRun<'a> {
    pub(crate) settings: &'a CastSettings,
    pub(crate) monitor: &'a dyn CastMonitor,
    pub(crate) cast: CastId,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) planner: Planner,
    pub(crate) spread: CatalogueSpread,
    pub(crate) source: SourceFeeders,
    pub(crate) nodes: BTreeMap<NodeId, ConnectedNode>,
    pub(crate) records: BTreeMap<NodeId, NodeRecord>,
    /// Ends of streams, for messages.
    pub(crate) streams: HashMap<StreamId, (NodeId, NodeId)>,
    pub(crate) done: &'a [AtomicBool],
    pub(crate) began: Instant,
    pub(crate) connecting: Instant,
    pub(crate) first_ready: Option<Instant>,
    pub(crate) is_started: bool,
    pub(crate) is_over: bool,
    /// Cause for which content of the source cannot be read any more.
    pub(crate) source_fault: Option<String>,
}

/// Returns the spread of a catalogue to nodes in rack order.
fn spread_of(settings: &CastSettings, catalogue: &Catalogue, names: &[String]) -> CatalogueSpread {
    let numbers: HashMap<&String, u32> = names.iter().zip(1..).collect();
    let mut order = names.to_vec();
    settings
        .topology
        .rack_order(&settings.source_name, &mut order);
    let nodes = order.iter().filter_map(|name| numbers.get(name));
    CatalogueSpread::new(
        catalogue.file_bytes(),
        nodes.copied().map(NodeId),
        settings.transfer.bytes_per_second_max,
    )
}

/// Returns the time in ms after which a stream without a unit has stalled, at a limit of bytes a second: a
/// node feeds two streams at most, and the limit delays each unit.
fn stall_ms(bytes_per_second: u64) -> u64 {
    let bytes = u64::from(UNIT_BYTES).saturating_mul(2 * STALL_UNITS);
    bytes.saturating_mul(1000) / bytes_per_second.max(1)
}

impl<'a> CastRun<'a> {
    pub(crate) fn new(
        settings: &'a CastSettings,
        monitor: &'a dyn CastMonitor,
        (cast, catalogue, source): (CastId, Arc<Catalogue>, SourceFeeders),
        done: &'a [AtomicBool],
    ) -> Result<Self, Error> {
        let names: Vec<String> = settings
            .nodes
            .iter()
            .map(|node| node.name.clone())
            .collect();
        let mut limits = settings.limits.clone();
        if let Some(rate) = settings.transfer.bytes_per_second_max {
            limits.link = LinkModel {
                bytes_per_second: rate,
                is_measured: true,
                ..limits.link
            };
            limits.stall_ms = limits.stall_ms.max(stall_ms(rate));
        }
        let data = DataSet {
            units: catalogue.units(),
            root: catalogue.hash().0,
        };
        let spread = spread_of(settings, &catalogue, &names);
        let topology = settings.topology.clone();
        let planner = Planner::new(data, &settings.source_name, &names, topology, limits)?;
        let records = (1..)
            .map(NodeId)
            .zip(&names)
            .map(|(node, _)| (node, NodeRecord::default()));
        Ok(CastRun {
            settings,
            monitor,
            cast,
            catalogue,
            planner,
            spread,
            source,
            nodes: BTreeMap::new(),
            records: records.collect(),
            streams: HashMap::new(),
            done,
            began: Instant::now(),
            connecting: Instant::now(),
            first_ready: None,
            is_started: false,
            is_over: false,
            source_fault: None,
        })
    }

    pub(crate) fn start_conductors<'s>(
        &self,
        scope: &'s std::thread::Scope<'s, '_>,
        context: &'s ConductorContext<'s>,
    ) -> Result<(), Error>
    where
        'a: 's,
    {
        for ((node, settings), done) in (1..).zip(&self.settings.nodes).zip(self.done) {
            let thread = std::thread::Builder::new().name("node".into());
            let thread = thread.stack_size(STACK_BYTES);
            let run = move || conduct(context, NodeId(node), settings, done);
            thread.spawn_scoped(scope, run).map_err(Error::Thread)?;
        }
        Ok(())
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn name(&self, node: NodeId) -> String {
        let at = usize::try_from(node.0)
            .ok()
            .and_then(|at| at.checked_sub(1));
        let named = at.and_then(|at| self.settings.nodes.get(at));
        named.map_or_else(
            || self.settings.source_name.clone(),
            |node| node.name.clone(),
        )
    }

    /// Runs until each node has its outcome.
    pub(crate) fn serve(
        &mut self,
        arriving: &Receiver<NodeInput>,
        reported: &Receiver<StreamReport>,
        stop: &AtomicBool,
    ) {
        let interval = Duration::from_millis(self.settings.limits.tick_ms.max(1));
        let mut ticked = Instant::now();
        while !self.planner.is_ended() && !stop.load(Relaxed) {
            let left = interval.saturating_sub(ticked.elapsed()).min(TICK);
            let timer = crossbeam_channel::after(left);
            select! {
                recv(arriving) -> input => if let Ok(input) = input { self.take(input); },
                recv(reported) -> report => if let Ok(report) = report { self.report_of_source(report); },
                recv(timer) -> _ => {}
            }
            if ticked.elapsed() >= interval {
                ticked = Instant::now();
                self.fail_silent();
                self.start_if_ready();
                self.plan(PlanEvent::Tick);
                let feeds = self.spread.tick(self.now_ms());
                self.spread_catalogue(feeds);
                self.show_progress();
            }
            self.note_outcomes();
        }
    }

    /// Passes an event to the planner, and carries out its orders.
    pub(super) fn plan(&mut self, event: PlanEvent) {
        let now = self.now_ms();
        let orders = self.planner.handle(now, event);
        for order in orders {
            // A cast that is over carries out none.
            if !self.is_over {
                self.carry_out(order);
            }
        }
    }

    fn carry_out(&mut self, PlanOrder { node, action }: PlanOrder) {
        match &action {
            OrderAction::Expect { stream, from, .. } => {
                self.streams.insert(*stream, (*from, node));
            }
            OrderAction::Feed { stream, to, .. } => {
                self.streams.insert(*stream, (node, *to));
            }
            OrderAction::Stop { .. } | OrderAction::GiveUp { .. } => {}
        }
        if node != SOURCE {
            self.send(node, NodeOrder::Plan(action));
            return;
        }
        match action {
            OrderAction::Feed {
                stream,
                to,
                units,
                is_spare,
            } => {
                if let Some(receiver) = self.nodes.get(&to) {
                    let peer = receiver.peer.clone();
                    self.source.feed(stream, peer, units, is_spare);
                }
            }
            OrderAction::Stop { stream } => self.source.stop(stream),
            OrderAction::Expect { .. } | OrderAction::GiveUp { .. } => {}
        }
    }

    fn send(&self, node: NodeId, order: NodeOrder) {
        if let Some(connected) = self.nodes.get(&node) {
            let _its_end_is_reported = connected.orders.send(ToNode::Order(order));
        }
    }

    fn take(&mut self, input: NodeInput) {
        match input {
            NodeInput::Connected {
                node,
                generation,
                key,
                addresses,
                orders,
            } => {
                let peer = CastPeer {
                    node,
                    key: *key.as_bytes(),
                    addresses,
                };
                let connected = ConnectedNode {
                    generation,
                    orders,
                    peer,
                    is_ready: false,
                    heard: Instant::now(),
                };
                self.connect(node, connected);
            }
            NodeInput::Unreachable {
                node,
                cause,
                is_final,
            } => match is_final {
                true => self.plan(PlanEvent::NodeFailed {
                    node,
                    reason: cause,
                }),
                false => self.note_attempt(node, cause),
            },
            NodeInput::Message {
                node,
                generation,
                message,
            } => {
                let connected = self.nodes.get_mut(&node);
                if let Some(connected) = connected.filter(|one| one.generation == generation) {
                    connected.heard = Instant::now();
                    self.hear(node, message);
                }
            }
            NodeInput::Lost {
                node,
                generation,
                cause,
            } => {
                if self.is_current(node, generation) {
                    self.lose(node, cause);
                }
            }
        }
    }

    fn is_current(&self, node: NodeId, generation: u64) -> bool {
        let connected = self.nodes.get(&node);
        connected.is_some_and(|connected| connected.generation == generation)
    }

    pub(crate) fn record(&mut self, node: NodeId) -> &mut NodeRecord {
        self.records.entry(node).or_default()
    }

    fn connect(&mut self, node: NodeId, connected: ConnectedNode) {
        let content = &self.settings.content;
        self.connecting = Instant::now();
        let begin = NodeOrder::Begin(CastBrief {
            cast: self.cast,
            set: self.catalogue.hash(),
            place: WirePlace::of(&self.settings.place),
            job: content.job.clone(),
            reader: content.reader,
            has_outbox: content.has_outbox,
            is_pinned: content.is_pinned,
            seconds_max: content.seconds_max,
            bytes_per_second_max: self.settings.transfer.bytes_per_second_max,
            connections: self.settings.transfer.connections.max(1),
        });
        let peer = connected.peer.clone();
        self.record(node).has_connected = true;
        self.nodes.insert(node, connected);
        self.plan(PlanEvent::Connected { node });
        self.send(node, begin);
        // The new node meets all others, and the others meet it, before an order names one.
        let all: Vec<CastPeer> = self.nodes.values().map(|node| node.peer.clone()).collect();
        for peers in all.chunks(PEERS_PER_MESSAGE) {
            self.send(node, NodeOrder::Peers(peers.to_vec()));
        }
        let others: Vec<NodeId> = self.nodes.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != node) {
            self.send(other, NodeOrder::Peers(vec![peer.clone()]));
        }
        self.monitor.event(CastEvent::Connected {
            node: self.name(node),
        });
    }

    fn lose(&mut self, node: NodeId, cause: String) {
        self.nodes.remove(&node);
        let feeds = self.spread.lose(self.now_ms(), node);
        self.spread_catalogue(feeds);
        self.plan(PlanEvent::Lost { node });
        if self.planner.outcome(node).is_none() {
            self.record(node).last_fault = Some(cause.clone());
            self.monitor.event(CastEvent::Lost {
                node: self.name(node),
                cause,
            });
        }
    }

    fn hear(&mut self, node: NodeId, message: NodeMessage) {
        match message {
            NodeMessage::LacksCatalogue => {
                let feeds = self.spread.lack(self.now_ms(), node);
                self.spread_catalogue(feeds);
            }
            NodeMessage::HasCatalogue => {
                let feeds = self.spread.hold(self.now_ms(), node);
                self.spread_catalogue(feeds);
            }
            NodeMessage::CatalogueFailed { parts, detail } => {
                let (giver, feeds) = self.spread.fail(self.now_ms(), node);
                self.send_parts(node, parts);
                self.spread_catalogue(feeds);
                self.monitor.event(CastEvent::StreamFailed {
                    node: self.name(node),
                    peer: giver.map(|giver| self.name(giver)).unwrap_or_default(),
                    cause: shown(&detail),
                });
            }
            NodeMessage::Ready { holds, held_bytes } => {
                if let Some(connected) = self.nodes.get_mut(&node) {
                    connected.is_ready = true;
                }
                self.first_ready.get_or_insert_with(Instant::now);
                self.record(node).held_bytes = held_bytes;
                self.monitor.event(CastEvent::Ready {
                    node: self.name(node),
                    held_bytes,
                });
                self.plan(PlanEvent::Joined { node, holds });
                self.start_if_ready();
            }
            NodeMessage::Progress { stream, verified } => self.plan(PlanEvent::Progress {
                node,
                stream,
                verified,
            }),
            NodeMessage::StreamFailed {
                stream,
                cause,
                detail,
            } => self.stream_failed(node, stream, cause, &detail),
            NodeMessage::Failed { reason } => self.fail(node, shown(&reason)),
            NodeMessage::Finished(copy) => self.finished(node, &copy),
            // Answers of measurements, which no cast orders.
            _ => {}
        }
    }

    /// Sends catalogues, and names nodes that give them.
    pub(super) fn spread_catalogue(&self, feeds: Vec<CatalogueFeed>) {
        for CatalogueFeed { to, from } in feeds {
            match from {
                SOURCE => self.send_parts(to, vec![(0, self.catalogue.parts())]),
                giver => self.send(
                    to,
                    NodeOrder::FetchCatalogue {
                        from: giver,
                        milliseconds: self.spread.limit_ms(),
                    },
                ),
            }
        }
    }

    fn send_parts(&self, node: NodeId, parts: Vec<(u32, u32)>) {
        if let Some(connected) = self.nodes.get(&node) {
            let _its_end_is_reported = connected.orders.send(ToNode::Parts(parts));
        }
    }

    fn finished(&mut self, node: NodeId, copy: &FinishedCopy) {
        let record = self.record(node);
        record.set = Some(copy.root.to_string());
        record.received_bytes = copy.received_bytes;
        record.owners_not_kept = copy.owners_not_kept;
        record.attributes_not_kept = copy.attributes_not_kept;
        record.first_not_kept = copy.first_not_kept.as_deref().map(shown);
        let root = copy.root.0;
        self.plan(PlanEvent::Finished { node, root });
    }

    fn stream_failed(&mut self, node: NodeId, stream: StreamId, cause: StreamCause, detail: &str) {
        let ends = self.streams.get(&stream).copied();
        let peer = ends.map(|(from, to)| if node == from { to } else { from });
        // A report of a stream that is not of the node has no effect.
        if ends.is_some_and(|(from, to)| node == from || node == to) {
            self.monitor.event(CastEvent::StreamFailed {
                node: self.name(node),
                peer: peer.map(|peer| self.name(peer)).unwrap_or_default(),
                cause: shown(detail),
            });
        }
        self.plan(PlanEvent::StreamFailed {
            node,
            stream,
            cause,
        });
    }

    fn report_of_source(&mut self, report: StreamReport) {
        match report {
            StreamReport::Failed {
                stream,
                cause,
                detail,
            } => {
                self.source.stop(stream);
                self.stream_failed(SOURCE, stream, cause, &detail);
            }
            StreamReport::Unreadable { detail, .. } => {
                if self.source_fault.is_none() {
                    let cause = detail;
                    self.source_fault = Some(cause.clone());
                    self.monitor.event(CastEvent::SourceFailed { cause });
                }
            }
            StreamReport::Complete { .. } => {}
        }
    }

    /// Starts the distribution when all nodes are ready or failed, or the wait for them is over.
    fn start_if_ready(&mut self) {
        if self.is_started {
            return;
        }
        let is_settled = |node: &NodeId| {
            self.nodes.get(node).is_some_and(|node| node.is_ready)
                || self.planner.outcome(*node).is_some()
        };
        let is_all = self.records.keys().all(is_settled);
        let is_preparing = |node: &NodeId| self.planner.outcome(*node).is_none();
        // The planner counts the time of nodes that do not come from the start on. A node that failed
        // before it was ready never becomes ready.
        let waits_since = match self.first_ready {
            None if self.nodes.keys().any(is_preparing) => return,
            None => self.connecting,
            Some(ready) => ready,
        };
        if is_all || waits_since.elapsed() >= self.settings.start_wait {
            self.is_started = true;
            let nodes = self.nodes.values().filter(|node| node.is_ready).count();
            self.monitor.event(CastEvent::Started { nodes });
            self.plan(PlanEvent::Start);
        }
    }

    /// Returns the time for the end: longer while a node may commit the data set.
    fn close_max(&self) -> Duration {
        let is_committing = |node: &NodeId| {
            let status = self.planner.status(*node);
            status.is_some_and(|status| {
                status.outcome.is_none() && status.units >= self.catalogue.units()
            })
        };
        match self.nodes.keys().any(is_committing) {
            true => COMMIT_MAX,
            false => CLOSE_MAX,
        }
    }

    /// Tells the nodes that the cast is over, and waits until they have closed.
    pub(crate) fn close(&mut self, arriving: &Receiver<NodeInput>) {
        self.is_over = true;
        self.source.stop_all();
        for done in self.done {
            done.store(true, Relaxed);
        }
        for node in self.nodes.values() {
            let _its_end_is_reported = node.orders.send(ToNode::Order(NodeOrder::End));
        }
        let begin = Instant::now();
        while !self.nodes.is_empty() && begin.elapsed() < self.close_max() {
            match arriving.recv_timeout(TICK) {
                Ok(NodeInput::Lost {
                    node, generation, ..
                }) if self.is_current(node, generation) => {
                    self.nodes.remove(&node);
                }
                // The node had begun its commit before the cast was stopped.
                Ok(NodeInput::Message {
                    node,
                    generation,
                    message: message @ NodeMessage::Finished { .. },
                }) if self.is_current(node, generation) => self.hear(node, message),
                _ => {}
            }
        }
        self.note_outcomes();
        // Ends the threads that send, and with them the connections that are left.
        self.nodes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::stall_ms;

    #[test]
    fn stream_at_a_low_limit_has_time() {
        // Six units of 64 KiB at 5 and 40 KiB/s.
        assert_eq!(stall_ms(5 << 10), 76_800);
        assert_eq!(stall_ms(40 << 10), 9_600);
        assert_eq!(stall_ms(100 << 20), 3);
        assert!(stall_ms(0) > 0);
    }
}
