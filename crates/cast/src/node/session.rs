//! A cast at a node: the loop that carries out the orders of the coordinator.
//!
//! The loop owns the state. Threads that receive, feed, write and open send it reports. It never
//! waits for a disk, so it notices a dead coordinator within the silence limit, and then ends the
//! cast: the copy stays unfinished for the next cast, and its lock is free.

mod orders;

use crate::bits::UnitBitmap;
use crate::board::UnitBoard;
use crate::error::at_node;
use crate::feed::{FeedContext, FeedGate};
use crate::intake::{IntakeContext, VerifiedLog};
use crate::message::{CastBrief, CastPeer, FinishedCopy, NodeMessage, NodeOrder, encode, kind};
use crate::node::catalogue::{CatalogueFetch, CatalogueStage, FetchRequest, FetchedParts};
use crate::node::copy::{CopyRequest, NodeCopy, OpenedCopy, WrittenCopy, keep_copy};
use crate::node::held::{
    WINDOW_BYTES_MIN, bounded_set, bytes_of, present_units, queued_units, ranges_of,
};
use crate::node::host::{NodeHost, OfferedCatalogue};
use crate::node::inputs::{ControlInput, SessionInputs};
use crate::node::log::CastEnd;
use crate::node::opening::{OpeningSteps, OpeningWatch, STUCK_AFTER};
use crate::node::streams::NodeStreams;
use crate::stream::{StreamEnd, StreamReport, start_thread};
use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};
use driftless_dataplane::{BundleSender, PeerKey};
use driftless_planner::{NodeId, UnitSet};
use driftless_pool::Pace;
use driftless_store::{
    Catalogue, CatalogueReceiver, Error as StoreError, Placing, ReplacedVersions, VerifiedUnit,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// Interval of signs of life of a node that is not ready.
const PREPARING_INTERVAL: Duration = Duration::from_secs(10);
/// Parts of a catalogue whose head is unknown: all of them.
const ALL_PARTS: (u32, u32) = (0, u32::MAX);

/// Result of a thread of a cast.
enum CastResult {
    Fetched(FetchedParts),
    Catalogued(Result<Arc<Catalogue>, StoreError>),
    Opened(Result<OpenedCopy, StoreError>),
    Written(Result<Option<WrittenCopy>, StoreError>),
}

/// State of a cast whose copy is open.
struct OpenCast {
    catalogue: Arc<Catalogue>,
    board: Arc<UnitBoard>,
    copy: Arc<NodeCopy>,
    intake: Arc<IntakeContext>,
    feeding: Arc<FeedContext>,
    written: Option<JoinHandle<()>>,
}

/// A cast at a node.
pub(crate) struct CastSession<'a> {
    host: &'a Arc<NodeHost>,
    brief: CastBrief,
    coordinator: PeerKey,
    link: &'a BundleSender,
    results: (Sender<CastResult>, Receiver<CastResult>),
    reports: (Sender<StreamReport>, Receiver<StreamReport>),
    peers: BTreeMap<NodeId, CastPeer>,
    catalogue: CatalogueStage,
    /// The thread that opens the copy, until its result is here.
    opening: Option<OpeningWatch>,
    open: Option<OpenCast>,
    streams: NodeStreams,
    received_bytes: u64,
    /// Outcome of the node in words, for the log.
    outcome: Option<String>,
    is_over: bool,
    stop: Arc<AtomicBool>,
}

/// End of a session: the coordinator cannot be reached any more.
pub(crate) struct CoordinatorLost;

type SessionStep = Result<(), CoordinatorLost>;

impl<'a> CastSession<'a> {
    /// Returns a session that has not begun.
    pub fn new(
        host: &'a Arc<NodeHost>,
        brief: CastBrief,
        coordinator: PeerKey,
        link: &'a BundleSender,
    ) -> Self {
        CastSession {
            host,
            brief,
            coordinator,
            link,
            results: unbounded(),
            reports: unbounded(),
            peers: BTreeMap::new(),
            catalogue: CatalogueStage::Failed,
            opening: None,
            open: None,
            streams: NodeStreams::default(),
            received_bytes: 0,
            outcome: None,
            is_over: false,
            stop: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Runs the cast until the coordinator ends it or is gone, or the node stops.
    pub fn run(mut self, inputs: &SessionInputs) -> CastEnd {
        let _the_coordinator_is_gone = self.serve(inputs);
        self.end();
        CastEnd {
            catalogue: match self.catalogue {
                CatalogueStage::Complete(catalogue) => Some(catalogue),
                _ => None,
            },
            outcome: self.outcome,
        }
    }

    fn serve(&mut self, inputs: &SessionInputs) -> SessionStep {
        if let Err(reason) = self.begin() {
            self.fail(reason)?;
        }
        let (mut reported, mut shown) = (Instant::now(), Instant::now());
        while !self.is_over && !self.host.is_stopped() {
            let limit = REPORT_INTERVAL.saturating_sub(reported.elapsed());
            let timer = crossbeam_channel::after(limit);
            select! {
                recv(inputs.control) -> input => match input {
                    Ok(input) => self.take(input)?,
                    Err(_) => return Err(CoordinatorLost),
                },
                recv(inputs.trunks) -> trunk => match trunk {
                    Ok(trunk) => self.admit(trunk),
                    Err(_) => return Err(CoordinatorLost),
                },
                recv(self.results.1) -> result => if let Ok(result) = result {
                    self.finish_step(result)?;
                },
                recv(self.reports.1) -> report => if let Ok(report) = report {
                    self.report(report)?;
                },
                recv(timer) -> _ => {}
            }
            if reported.elapsed() >= REPORT_INTERVAL {
                self.flush_all()?;
                self.streams.refuse_late();
                if let CatalogueStage::Fetching(fetch) = &self.catalogue {
                    fetch.end_late();
                }
                self.give_up_opening()?;
                if self.open.is_none() && shown.elapsed() >= PREPARING_INTERVAL {
                    self.send(&NodeMessage::Preparing)?;
                    shown = Instant::now();
                }
                reported = Instant::now();
            }
        }
        Ok(())
    }

    /// Ends everything of the cast. The copy keeps what it has.
    fn end(&mut self) {
        self.stop.store(true, Relaxed);
        self.streams.stop_all();
        if let CatalogueStage::Fetching(fetch) = &self.catalogue {
            fetch.end.stop();
        }
        if let Some(open) = self.open.take() {
            open.board.close();
            let written = open.written;
            drop((open.intake, open.feeding));
            // A commit that has begun goes on: it takes as long as the disk does.
            if let Some(thread) = written {
                let _panic_was_printed = thread.join();
            }
            // The coordinator waits for the outcome of a commit.
            while let Ok(result) = self.results.1.try_recv() {
                if let CastResult::Written(Ok(Some(written))) = result {
                    let _the_coordinator_may_be_gone = self.written(written);
                }
            }
        }
        let keys = self.peers.values().map(CastPeer::key);
        self.host.forget_peers(keys);
    }

    fn send(&self, message: &NodeMessage) -> SessionStep {
        let sent = self.link.send_control(kind::NODE, &[&encode(message)]);
        sent.map_err(|_| CoordinatorLost)
    }

    fn fail(&mut self, reason: String) -> SessionStep {
        self.stop.store(true, Relaxed);
        self.streams.stop_all();
        if let Some(open) = &self.open {
            open.board.close();
        }
        self.outcome.get_or_insert(format!("failed: {reason}"));
        self.send(&NodeMessage::Failed { reason })
    }

    /// Checks the brief, and looks for the catalogue.
    fn begin(&mut self) -> Result<(), String> {
        self.placing()?;
        self.brief.content()?;
        let store = &self.host.store;
        let text = |error: StoreError| error.to_string();
        let sent = match store.catalogue(self.brief.set).map_err(text)? {
            Some(catalogue) => self.catalogued(catalogue),
            None => {
                let receiver = store.receive_catalogue(self.brief.set).map_err(text)?;
                self.catalogue = CatalogueStage::Arriving(receiver);
                self.send(&NodeMessage::LacksCatalogue)
            }
        };
        sent.map_err(|_| "the coordinator is gone".into())
    }

    fn placing(&self) -> Result<Placing, String> {
        let Some(path) = self.brief.place.directory()? else {
            let reader = self.brief.reader;
            return Ok(reader.map_or(Placing::Cached, Placing::CachedFor));
        };
        self.host.placing(path)
    }

    fn take(&mut self, input: ControlInput) -> SessionStep {
        match input {
            ControlInput::Part(number, bytes) => self.take_part(number, &bytes),
            ControlInput::Order(NodeOrder::Peers(peers)) => {
                self.meet(peers);
                Ok(())
            }
            ControlInput::Order(NodeOrder::Plan(action)) => self.carry_out(action),
            ControlInput::Order(NodeOrder::End) => {
                self.is_over = true;
                Ok(())
            }
            ControlInput::Order(NodeOrder::FetchCatalogue { from, milliseconds }) => {
                self.fetch_catalogue(from, Duration::from_millis(milliseconds))
            }
            // Measurements and relays have sessions of their own.
            ControlInput::Order(_)
            | ControlInput::Filled(..)
            | ControlInput::Relay(_)
            | ControlInput::RelayEnd => Ok(()),
        }
    }

    fn meet(&mut self, peers: Vec<CastPeer>) {
        for peer in peers {
            let key = peer.key();
            let known = self.peers.insert(peer.node, peer);
            self.host.trust_peer(key);
            if let Some(known) = known {
                self.host.forget_peers([known.key()]);
            }
        }
    }

    fn take_part(&mut self, number: u32, bytes: &[u8]) -> SessionStep {
        let CatalogueStage::Arriving(receiver) = &mut self.catalogue else {
            return Ok(());
        };
        if let Err(error) = receiver.put(number, bytes) {
            self.catalogue = CatalogueStage::Failed;
            return self.fail(at_node(&error));
        }
        if !receiver.lacking().is_empty() {
            return Ok(());
        }
        match std::mem::replace(&mut self.catalogue, CatalogueStage::Checking) {
            CatalogueStage::Arriving(receiver) => self.check_catalogue(receiver),
            _ => Ok(()),
        }
    }

    /// Fetches the catalogue from another node in a thread.
    fn fetch_catalogue(&mut self, from: NodeId, limit: Duration) -> SessionStep {
        let stage = std::mem::replace(&mut self.catalogue, CatalogueStage::Failed);
        let CatalogueStage::Arriving(receiver) = stage else {
            self.catalogue = stage;
            return Ok(());
        };
        let Some(peer) = self.peers.get(&from).cloned() else {
            let fault = Some("the giver is unknown here".into());
            return self.fetched(FetchedParts { receiver, fault });
        };
        let end = StreamEnd::default();
        self.catalogue = CatalogueStage::Fetching(CatalogueFetch {
            end: end.clone(),
            began: Instant::now(),
            limit,
        });
        let request = FetchRequest {
            endpoint: self.host.endpoint.clone(),
            cast: self.brief.cast,
            set: self.brief.set,
            peer,
            receiver,
            end,
        };
        self.start("fetch", move || CastResult::Fetched(request.fetch()))
    }

    fn fetched(&mut self, parts: FetchedParts) -> SessionStep {
        let FetchedParts { receiver, fault } = parts;
        let Some(detail) = fault else {
            self.catalogue = CatalogueStage::Checking;
            return self.check_catalogue(receiver);
        };
        let mut parts = ranges_of(&receiver.lacking());
        if parts == [(0, 1)] {
            parts = vec![ALL_PARTS];
        }
        self.catalogue = CatalogueStage::Arriving(receiver);
        self.send(&NodeMessage::CatalogueFailed { parts, detail })
    }

    /// Checks a catalogue whose parts are all there, in a thread.
    fn check_catalogue(&mut self, receiver: CatalogueReceiver) -> SessionStep {
        self.start("catalogue", move || {
            CastResult::Catalogued(receiver.finish())
        })
    }

    /// Offers the catalogue to other nodes, and opens the copy.
    fn catalogued(&mut self, catalogue: Arc<Catalogue>) -> SessionStep {
        let offered = OfferedCatalogue {
            catalogue: Arc::clone(&catalogue),
            pace: Pace::new(self.bytes_per_second_max()).map(Arc::new),
        };
        self.host.offer(self.brief.cast, offered);
        self.catalogue = CatalogueStage::Complete(catalogue);
        self.send(&NodeMessage::HasCatalogue)?;
        self.open_copy()
    }

    fn bytes_per_second_max(&self) -> Option<u64> {
        let own = self.host.settings.transfer.bytes_per_second_max;
        own.into_iter().chain(self.brief.bytes_per_second_max).min()
    }

    /// Runs a thread whose result comes to the loop.
    fn start(
        &mut self,
        name: &str,
        run: impl FnOnce() -> CastResult + Send + 'static,
    ) -> SessionStep {
        let results = self.results.0.clone();
        let run = move || {
            let _the_cast_is_over = results.send(run());
        };
        match start_thread(name, run) {
            Ok(()) => Ok(()),
            Err(error) => self.fail(crate::Error::Thread(error).to_string()),
        }
    }

    /// Opens the copy in a thread, which may hash for long.
    fn open_copy(&mut self) -> SessionStep {
        let (CatalogueStage::Complete(catalogue), Ok(placing)) = (&self.catalogue, self.placing())
        else {
            return Ok(());
        };
        let request = CopyRequest {
            store: self.host.store.clone(),
            catalogue: Arc::clone(catalogue),
            placing,
            cache_bytes_max: self.host.settings.cache_bytes_max,
        };
        let (stop, steps) = (Arc::clone(&self.stop), OpeningSteps::default());
        self.opening = Some(OpeningWatch::new(steps.clone(), Instant::now()));
        let open = move || CastResult::Opened(request.open(&stop, &steps));
        self.start("open copy", open)
    }

    /// Fails if the copy is stuck while it opens: its disk may hang.
    fn give_up_opening(&mut self) -> SessionStep {
        let stuck = self
            .opening
            .take_if(|opening| opening.is_stuck(Instant::now()));
        if stuck.is_none() {
            return Ok(());
        }
        let seconds = STUCK_AFTER.as_secs();
        self.fail(format!(
            "the disk of the copy has not answered for {seconds} s; look for processes in state D there"
        ))
    }

    fn finish_step(&mut self, result: CastResult) -> SessionStep {
        if matches!(result, CastResult::Opened(_)) {
            self.opening = None;
        }
        match result {
            CastResult::Fetched(parts) => self.fetched(parts),
            CastResult::Catalogued(Ok(catalogue)) => self.catalogued(catalogue),
            CastResult::Opened(Ok(opened)) => self.opened(opened),
            CastResult::Catalogued(Err(error))
            | CastResult::Opened(Err(error))
            | CastResult::Written(Err(error)) => self.fail(at_node(&error)),
            // The units ended before the set was complete.
            CastResult::Written(Ok(None)) => Ok(()),
            CastResult::Written(Ok(Some(written))) => self.written(written),
        }
    }

    /// Reports the copy, and removes older versions.
    fn written(&mut self, written: WrittenCopy) -> SessionStep {
        let WrittenCopy { placed, replaced } = written;
        let sent = self.complete(placed.copy, placed.metadata.first_text());
        if let Some(replaced) = replaced {
            self.remove(replaced);
        }
        sent
    }

    /// Removes older versions in a thread, which the process waits for. The cast does not.
    fn remove(&self, replaced: ReplacedVersions) {
        let host = Arc::clone(self.host);
        host.count_served(1);
        let remove = move || {
            if let Err(error) = replaced.remove() {
                tracing::warn!("{error}");
            }
            host.count_served(-1);
        };
        if start_thread("remove", remove).is_err() {
            self.host.count_served(-1);
        }
    }

    fn complete(&mut self, copy: u64, first_not_kept: Option<String>) -> SessionStep {
        self.flush_all()?;
        let store = &self.host.store;
        let kept = self.brief.content().and_then(|limits| {
            let kept = keep_copy(store, copy, &limits).and_then(|()| store.unkept(copy));
            kept.map_err(|error| error.to_string())
        });
        match kept {
            Ok(unkept) => {
                self.outcome = Some("complete".into());
                self.send(&NodeMessage::Finished(FinishedCopy {
                    root: self.brief.set,
                    received_bytes: self.received_bytes,
                    owners_not_kept: unkept.owners,
                    attributes_not_kept: unkept.attributes,
                    first_not_kept,
                }))
            }
            Err(reason) => self.fail(reason),
        }
    }

    fn opened(&mut self, opened: OpenedCopy) -> SessionStep {
        let CatalogueStage::Complete(catalogue) = &self.catalogue else {
            return Ok(());
        };
        let catalogue = Arc::clone(catalogue);
        let (held, held_copy) = match &opened {
            OpenedCopy::Held(in_use) => (UnitSet::first(catalogue.units()), Some(in_use.copy())),
            OpenedCopy::Open(receiver) => (present_units(receiver), None),
        };
        let bits = UnitBitmap::of(&held, catalogue.units());
        let window = self
            .host
            .settings
            .transfer
            .window_bytes_max
            .max(WINDOW_BYTES_MIN);
        let board = Arc::new(UnitBoard::new(bits, window));
        let copy = Arc::new(NodeCopy::new(self.host.store.clone(), opened));
        let (writer, units) = bounded(queued_units(window));
        let intake = IntakeContext {
            catalogue: Arc::clone(&catalogue),
            board: Arc::clone(&board),
            writer,
            reports: self.reports.0.clone(),
            log: VerifiedLog::default(),
        };
        let feeding = self.feed_context(&catalogue, &board, &copy);
        self.open = Some(OpenCast {
            catalogue: Arc::clone(&catalogue),
            board,
            copy,
            intake: Arc::new(intake),
            feeding: Arc::new(feeding),
            written: None,
        });
        let held_bytes = bytes_of(&held, &catalogue);
        let holds = bounded_set(held);
        self.send(&NodeMessage::Ready { holds, held_bytes })?;
        match held_copy {
            Some(copy) => self.complete(copy, None),
            None => self.start_writer(units),
        }
    }

    fn feed_context(
        &self,
        catalogue: &Arc<Catalogue>,
        board: &Arc<UnitBoard>,
        copy: &Arc<NodeCopy>,
    ) -> FeedContext {
        FeedContext {
            endpoint: self.host.endpoint.clone(),
            cast: self.brief.cast,
            units: catalogue.units(),
            board: Arc::clone(board),
            content: Arc::clone(copy) as _,
            gate: FeedGate::default(),
            pace: Pace::new(self.bytes_per_second_max()),
            connections: self.brief.connections.max(1),
            reports: self.reports.0.clone(),
        }
    }

    fn start_writer(&mut self, units: Receiver<VerifiedUnit>) -> SessionStep {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let (copy, results) = (Arc::clone(&open.copy), self.results.0.clone());
        let write = move || {
            let _the_cast_is_over = results.send(CastResult::Written(copy.write_all(&units)));
        };
        match std::thread::Builder::new()
            .name("write".into())
            .spawn(write)
        {
            Ok(thread) => {
                open.written = Some(thread);
                Ok(())
            }
            Err(error) => self.fail(crate::Error::Thread(error).to_string()),
        }
    }
}
