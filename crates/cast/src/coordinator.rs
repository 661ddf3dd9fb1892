//! The coordinator of a cast: builds the catalogue, keeps the nodes connected, and carries out the
//! orders of the planner.
//!
//! One thread owns the planner. Two threads for each node carry messages. The source feeds from this
//! process, as node 0. Data of the other nodes never pass through here.

mod conductor;
pub(crate) mod launch;
mod source;

use crate::event::{NodeProgress, reason_of};
use crate::message::{CastBrief, CastId, CastPeer, NodeMessage, NodeOrder, PEERS_PER_MESSAGE};
use crate::message::{WirePlace, shown};
use crate::node::host::{link_settings, open_store};
use crate::stream::StreamReport;
use crate::{
    CastEvent, CastMonitor, CastPlace, CastReport, CastSettings, Error, NodeReport, PeerTrust,
    TlsIdentity,
};
use conductor::{ConductorContext, NodeInput, ToNode, conduct};
use crossbeam_channel::{Receiver, Sender, select, unbounded};
use driftless_dataplane::DataEndpoint;
use driftless_lock::Mutex;
use driftless_planner::{
    DataSet, LinkModel, NodeId, NodeOutcome, OrderAction, PlanEvent, PlanOrder, Planner, SOURCE,
    StreamCause, StreamId,
};
use driftless_store::{BuildOptions, BuiltSet, Catalogue, UNIT_BYTES};
use launch::Launcher;
use ring::rand::{SecureRandom, SystemRandom};
use source::{SourceFeeders, SourceParts};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time in which nodes close their connections at the end.
const CLOSE_MAX: Duration = Duration::from_secs(2);
/// Longest wait for an event before the caller's wish to stop is looked at.
const TICK: Duration = Duration::from_millis(100);
/// Stack of the thread of a node, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// Distributes the sources to the nodes, and returns the outcome of each node.
///
/// Returns once each node has an outcome, or `stop` is set. A node that fails is no error.
///
/// # Errors
/// Fails before the distribution begins: sources are unreadable, the store cannot be opened, or the
/// settings contradict each other.
pub fn cast(
    settings: &CastSettings,
    monitor: &dyn CastMonitor,
    stop: &AtomicBool,
) -> Result<CastReport, Error> {
    let began = Instant::now();
    check(settings)?;
    let built = build(settings, monitor, stop)?;
    let catalogue = Arc::clone(&built.catalogue);
    monitor.event(CastEvent::Catalogued {
        set: catalogue.hash().to_string(),
        entries: catalogue.entries(),
        bytes: catalogue.bytes(),
        units: catalogue.units(),
    });
    let (endpoint, trust) = endpoint_of(settings)?;
    let cast = random_id()?;
    let (inputs, arriving) = unbounded();
    let (reports, reported) = unbounded();
    let parts = SourceParts {
        cast,
        endpoint: endpoint.clone(),
        reports,
    };
    let source = SourceFeeders::new(built, parts, &settings.transfer);
    let is_over = AtomicBool::new(false);
    let done: Vec<AtomicBool> = settings
        .nodes
        .iter()
        .map(|_| AtomicBool::new(false))
        .collect();
    let programs = Mutex::new(HashMap::new());
    let is_stopped = || stop.load(Relaxed) || is_over.load(Relaxed);
    let context = ConductorContext {
        launcher: Launcher {
            endpoint: &endpoint,
            trust: &trust,
            has_authority: settings.authority_pem.is_some(),
            ssh: settings.ssh.as_ref(),
            programs: &programs,
            is_stopped: &is_stopped,
        },
        catalogue: Arc::clone(&catalogue),
        inputs,
        is_over: &is_over,
    };
    let mut run = CastRun::new(settings, monitor, (cast, catalogue, source), &done)?;
    run.began = began;
    std::thread::scope(|scope| {
        let started = run.start_conductors(scope, &context);
        if started.is_ok() {
            run.serve(&arriving, &reported, stop);
        }
        run.close(&arriving);
        is_over.store(true, Relaxed);
        started
    })?;
    Ok(run.report(stop.load(Relaxed)))
}

fn check(settings: &CastSettings) -> Result<(), Error> {
    if settings.sources.is_empty() {
        return Err(Error::Settings(
            "no source is given: name a file or directory",
        ));
    }
    if settings.nodes.is_empty() {
        return Err(Error::Settings("no node is given: name one with --nodes"));
    }
    if let CastPlace::Directory(path) = &settings.place
        && !path.is_absolute()
    {
        return Err(Error::Settings(
            "the directory on the nodes is not absolute: write the whole path",
        ));
    }
    Ok(())
}

fn build(
    settings: &CastSettings,
    monitor: &dyn CastMonitor,
    stop: &AtomicBool,
) -> Result<BuiltSet, Error> {
    let store = open_store(&settings.dir)?;
    for source in &settings.sources {
        if store.overlaps(source)? {
            return Err(Error::Overlap {
                source_path: source.clone(),
                dir: settings.dir.clone(),
            });
        }
    }
    let mut pace = |bytes| {
        monitor.event(CastEvent::Hashed { bytes });
        !stop.load(Relaxed)
    };
    let mut options = BuildOptions {
        keep: settings.keep,
        pace: &mut pace,
    };
    Ok(store.build(&settings.sources, &mut options)?)
}

/// Returns the endpoint of a coordinator, and the keys that it trusts.
pub(crate) fn endpoint_with(
    identity: Option<&TlsIdentity>,
    authority_pem: Option<&[u8]>,
    transfer: &crate::TransferSettings,
) -> Result<(DataEndpoint, PeerTrust), Error> {
    let identity = match identity {
        Some(identity) => identity.clone(),
        None => TlsIdentity::generate()?,
    };
    let trust = match authority_pem {
        Some(pem) => PeerTrust::authority(pem)?,
        None => PeerTrust::keys([]),
    };
    let endpoint = DataEndpoint::new(identity, trust.clone(), link_settings(transfer))?;
    Ok((endpoint, trust))
}

fn endpoint_of(settings: &CastSettings) -> Result<(DataEndpoint, PeerTrust), Error> {
    let authority = settings.authority_pem.as_deref();
    endpoint_with(settings.identity.as_ref(), authority, &settings.transfer)
}

fn random_id() -> Result<CastId, Error> {
    let mut id = [0; 16];
    let filled = SystemRandom::new().fill(&mut id);
    filled
        .map_err(|_| Error::Settings("the system gives no random numbers: check /dev/urandom"))?;
    Ok(CastId(id))
}

/// A node with a connection.
struct ConnectedNode {
    generation: u64,
    orders: Sender<ToNode>,
    peer: CastPeer,
    is_ready: bool,
}

/// What the coordinator knows of a node for its report.
#[derive(Default)]
struct NodeRecord {
    held_bytes: u64,
    received_bytes: u64,
    owners_not_kept: u64,
    set: Option<String>,
    seconds: Option<f64>,
    demotions: u32,
    is_quarantined: bool,
    last_fault: Option<String>,
}

/// A cast at work.
struct CastRun<'a> {
    settings: &'a CastSettings,
    monitor: &'a dyn CastMonitor,
    cast: CastId,
    catalogue: Arc<Catalogue>,
    planner: Planner,
    source: SourceFeeders,
    nodes: BTreeMap<NodeId, ConnectedNode>,
    records: BTreeMap<NodeId, NodeRecord>,
    /// Ends of streams, for messages.
    streams: HashMap<StreamId, (NodeId, NodeId)>,
    done: &'a [AtomicBool],
    began: Instant,
    connecting: Instant,
    first_ready: Option<Instant>,
    is_started: bool,
    has_failed_source: bool,
}

impl<'a> CastRun<'a> {
    fn new(
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
        }
        let data = DataSet {
            units: catalogue.units(),
            root: catalogue.hash().0,
        };
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
            source,
            nodes: BTreeMap::new(),
            records: records.collect(),
            streams: HashMap::new(),
            done,
            began: Instant::now(),
            connecting: Instant::now(),
            first_ready: None,
            is_started: false,
            has_failed_source: false,
        })
    }

    fn start_conductors<'s>(
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

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn name(&self, node: NodeId) -> String {
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
    fn serve(
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
                self.start_if_ready();
                self.plan(PlanEvent::Tick);
                self.show_progress();
            }
            self.note_outcomes();
        }
    }

    /// Passes an event to the planner, and carries out its orders.
    fn plan(&mut self, event: PlanEvent) {
        let now = self.now_ms();
        let orders = self.planner.handle(now, event);
        for order in orders {
            self.carry_out(order);
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
                };
                self.connect(node, connected);
            }
            NodeInput::Unreachable { node, cause } => {
                self.record(node).last_fault = Some(cause.clone());
                self.monitor.event(CastEvent::Unreachable {
                    node: self.name(node),
                    cause,
                });
            }
            NodeInput::Message {
                node,
                generation,
                message,
            } => {
                if self.is_current(node, generation) {
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

    fn record(&mut self, node: NodeId) -> &mut NodeRecord {
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
            is_pinned: content.is_pinned,
            seconds_max: content.seconds_max,
            bytes_per_second_max: self.settings.transfer.bytes_per_second_max,
            connections: self.settings.transfer.connections.max(1),
        });
        let peer = connected.peer.clone();
        self.nodes.insert(node, connected);
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
            NodeMessage::Lacks { parts } => {
                if let Some(connected) = self.nodes.get(&node) {
                    let _its_end_is_reported = connected.orders.send(ToNode::Parts(parts));
                }
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
            NodeMessage::Failed { reason } => {
                let reason = shown(&reason);
                if !self.nodes.get(&node).is_some_and(|node| node.is_ready) {
                    // The planner hears of nodes that have joined.
                    let holds = Default::default();
                    self.plan(PlanEvent::Joined { node, holds });
                }
                self.plan(PlanEvent::NodeFailed { node, reason });
            }
            NodeMessage::Finished {
                root,
                received_bytes,
                owners_not_kept,
            } => {
                let record = self.record(node);
                record.set = Some(root.to_string());
                record.received_bytes = received_bytes;
                record.owners_not_kept = owners_not_kept;
                self.plan(PlanEvent::Finished { node, root: root.0 });
            }
            // Answers of measurements, which no cast orders.
            _ => {}
        }
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
                if !self.has_failed_source {
                    self.has_failed_source = true;
                    let cause = detail;
                    self.monitor.event(CastEvent::SourceFailed { cause });
                }
            }
            StreamReport::Verified { .. } | StreamReport::Complete { .. } => {}
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
        // The planner counts the time of nodes that do not come from the start on.
        let waits_since = match self.first_ready {
            None if !self.nodes.is_empty() => return,
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

    fn show_progress(&mut self) {
        let nodes: Vec<NodeId> = self.records.keys().copied().collect();
        let mut progress = Vec::new();
        for node in nodes {
            let Some(status) = self.planner.status(node) else {
                continue;
            };
            let name = self.name(node);
            let record = self.record(node);
            if status.demotions > record.demotions {
                record.demotions = status.demotions;
                let node = name.clone();
                self.monitor.event(CastEvent::Demoted { node });
            }
            let record = self.record(node);
            if status.is_quarantined && !record.is_quarantined {
                record.is_quarantined = true;
                let node = name.clone();
                self.monitor.event(CastEvent::Quarantined { node });
            }
            let bytes = status.units.saturating_mul(u64::from(UNIT_BYTES));
            progress.push(NodeProgress {
                node: name,
                units: status.units,
                bytes: bytes.min(self.catalogue.bytes()),
                is_connected: status.is_connected,
                is_leaf: status.is_leaf,
                feeders: status.feeders.iter().map(|node| self.name(*node)).collect(),
                is_complete: status.outcome == Some(NodeOutcome::Complete),
            });
        }
        let nodes = progress;
        self.monitor.event(CastEvent::Progress { nodes });
    }

    /// Reports outcomes that are new.
    fn note_outcomes(&mut self) {
        let is_new = |(node, record): &(&NodeId, &NodeRecord)| {
            record.seconds.is_none() && self.planner.outcome(**node).is_some()
        };
        let new: Vec<NodeId> = self
            .records
            .iter()
            .filter(is_new)
            .map(|(node, _)| *node)
            .collect();
        for node in new {
            let seconds = self.began.elapsed().as_secs_f64();
            self.record(node).seconds = Some(seconds);
            let at = usize::try_from(node.0)
                .ok()
                .and_then(|at| at.checked_sub(1));
            if let Some(done) = at.and_then(|at| self.done.get(at)) {
                done.store(true, Relaxed);
            }
            self.monitor.event(CastEvent::Ended(self.node_report(node)));
        }
    }

    fn node_report(&self, node: NodeId) -> NodeReport {
        let outcome = self.planner.outcome(node);
        let is_complete = outcome == Some(&NodeOutcome::Complete);
        let record = self.records.get(&node);
        let reason = match outcome {
            Some(outcome) => reason_of(outcome),
            None => Some("the cast was stopped before the node had its outcome".into()),
        };
        let fault = record.and_then(|record| record.last_fault.clone());
        let reason = match (reason, fault) {
            (Some(reason), Some(fault)) => Some(format!("{reason} (last: {fault})")),
            (reason, _) => reason,
        };
        NodeReport {
            node: self.name(node),
            is_complete,
            set: record.and_then(|record| record.set.clone()),
            received_bytes: record.map_or(0, |record| record.received_bytes),
            held_bytes: record.map_or(0, |record| record.held_bytes),
            seconds: record
                .and_then(|record| record.seconds)
                .unwrap_or_else(|| self.began.elapsed().as_secs_f64()),
            demotions: record.map_or(0, |record| record.demotions),
            owners_not_kept: record.map_or(0, |record| record.owners_not_kept),
            reason,
        }
    }

    /// Tells the nodes that the cast is over, and waits until they have closed.
    fn close(&mut self, arriving: &Receiver<NodeInput>) {
        self.source.stop_all();
        for done in self.done {
            done.store(true, Relaxed);
        }
        for node in self.nodes.values() {
            let _its_end_is_reported = node.orders.send(ToNode::Order(NodeOrder::End));
        }
        let begin = Instant::now();
        while !self.nodes.is_empty() && begin.elapsed() < CLOSE_MAX {
            if let Ok(NodeInput::Lost {
                node, generation, ..
            }) = arriving.recv_timeout(TICK)
                && self.is_current(node, generation)
            {
                self.nodes.remove(&node);
            }
        }
        // Ends the threads that send, and with them the connections that are left.
        self.nodes.clear();
    }

    fn report(&self, is_stopped: bool) -> CastReport {
        CastReport {
            set: self.catalogue.hash().to_string(),
            entries: self.catalogue.entries(),
            bytes: self.catalogue.bytes(),
            seconds: self.began.elapsed().as_secs_f64(),
            nodes: self
                .records
                .keys()
                .map(|node| self.node_report(*node))
                .collect(),
            is_stopped: is_stopped && !self.planner.is_ended(),
        }
    }
}
