//! A process that serves casts: its store, its endpoint, and the connections that arrive.
//!
//! A connection begins with an opening, which names its purpose. The key of the peer was verified
//! before. A coordinator needs a key that may command; a feeder needs a cast that expects it.

use crate::intake::{PeerLink, refuse};
use crate::message::{
    CastId, LinkOpening, MESSAGE_BYTES_MAX, NodeMessage, NodeOrder, PROTOCOL, decode, encode, kind,
};
use crate::node::probe::{answer_probe, examine_node};
use crate::node::session::{CastSession, ControlInput, SessionInputs};
use crate::settings::{NodeSettings, TransferSettings};
use crate::stream::start_thread;
use crate::{Error, PeerKey};
use crossbeam_channel::{Receiver, Sender, bounded};
use driftless_dataplane::{
    ArrivedLink, BundleEvent, BundleReceiver, DataEndpoint, LinkBundle, LinkHandle, LinkListener,
    LinkPeer, LinkSettings,
};
use driftless_lock::Mutex;
use driftless_planner::StreamId;
use driftless_store::NodeStore;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

/// Longest wait for a connection before the end of the process is looked at.
const TICK: Duration = Duration::from_millis(100);
/// Time in which a peer has to send its opening.
const OPENING_MAX: Duration = Duration::from_secs(10);
/// Messages of a coordinator that wait, of at most 1 MiB each.
const CONTROL_QUEUE_MAX: usize = 16;
/// Connections of feeders that wait for the loop of a cast.
const TRUNK_QUEUE_MAX: usize = 64;
/// Longest attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Peers that may command a node.
#[derive(Clone)]
pub(crate) enum CommandRule {
    /// Owners of these keys.
    Keys(Vec<PeerKey>),
    /// Owners of certificates with one of these names.
    Names(Vec<String>),
}

/// Directories that a coordinator may name.
#[derive(Clone)]
pub(crate) enum PlaceRule {
    /// Any that the user of the process can write.
    Any,
    /// These, and those below.
    Below(Vec<PathBuf>),
}

/// Process that serves casts.
pub(crate) struct NodeHost {
    pub store: NodeStore,
    pub endpoint: DataEndpoint,
    pub settings: NodeSettings,
    commanders: CommandRule,
    places: PlaceRule,
    casts: Mutex<HashMap<CastId, Sender<CastTrunk>>>,
    /// Casts that trust a key.
    peers: Mutex<HashMap<PeerKey, u32>>,
    openings: Mutex<Vec<OpeningWait>>,
    is_stopped: AtomicBool,
    served: Mutex<u32>,
}

/// Connection of a feeder of a cast.
pub(crate) struct CastTrunk {
    pub stream: StreamId,
    pub link: PeerLink,
}

/// A connection whose opening has not arrived yet.
struct OpeningWait {
    since: Instant,
    is_open: Arc<AtomicBool>,
    handles: Vec<LinkHandle>,
}

/// Returns the time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Returns the settings of connections.
pub(crate) fn link_settings(transfer: &TransferSettings) -> LinkSettings {
    LinkSettings {
        message_bytes_max: MESSAGE_BYTES_MAX,
        heartbeat: transfer.heartbeat,
        silence_max: transfer.silence_max,
        connect_max: CONNECT_MAX,
        cipher: transfer.cipher,
        ..LinkSettings::default()
    }
}

impl NodeHost {
    /// Returns a host whose store is open.
    pub fn new(
        store: NodeStore,
        endpoint: DataEndpoint,
        settings: NodeSettings,
        (commanders, places): (CommandRule, PlaceRule),
    ) -> Arc<Self> {
        Arc::new(NodeHost {
            store,
            endpoint,
            settings,
            commanders,
            places,
            casts: Mutex::new(HashMap::new()),
            peers: Mutex::new(HashMap::new()),
            openings: Mutex::new(Vec::new()),
            is_stopped: AtomicBool::new(false),
            served: Mutex::new(0),
        })
    }

    /// Takes connections until `is_over` says so, and then waits for the casts at work.
    pub fn serve(self: &Arc<Self>, listener: &LinkListener, is_over: &dyn Fn(&NodeHost) -> bool) {
        while !is_over(self) {
            if let Some(arrived) = listener.accept(TICK) {
                self.arrive(arrived);
            }
            self.end_late_openings();
        }
        self.is_stopped.store(true, Relaxed);
        while self.casts_at_work() > 0 {
            std::thread::sleep(TICK);
        }
    }

    /// Whether the process is to end.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    /// Returns the number of casts and examinations at work.
    pub fn casts_at_work(&self) -> u32 {
        *self.served.lock()
    }

    /// Checks a directory that a coordinator names.
    ///
    /// # Errors
    /// The configuration of the node does not allow the directory.
    pub fn check_place(&self, path: &Path) -> Result<(), String> {
        let PlaceRule::Below(allowed) = &self.places else {
            return Ok(());
        };
        let is_plain = path.components().all(|part| part != Component::ParentDir);
        if is_plain && allowed.iter().any(|root| path.starts_with(root)) {
            return Ok(());
        }
        let shown = driftless_model::quote(path);
        Err(format!(
            "{shown}: cannot place a data set: the node's configuration allows no copies there; add it to the places of the daemon"
        ))
    }

    /// Trusts the key of a peer of a cast.
    pub fn trust_peer(&self, key: PeerKey) {
        let CommandRule::Keys(_) = self.commanders else {
            // The authority vouches for every node, and a revocation stays.
            return;
        };
        let mut peers = self.peers.lock();
        let count = peers.entry(key).or_default();
        *count = count.saturating_add(1);
        self.endpoint.trust().trust(key);
    }

    /// Ends the trust in keys of a cast that no other cast trusts.
    pub fn forget_peers(&self, keys: impl IntoIterator<Item = PeerKey>) {
        let CommandRule::Keys(commanders) = &self.commanders else {
            return;
        };
        let mut peers = self.peers.lock();
        for key in keys {
            let Some(count) = peers.get_mut(&key) else {
                continue;
            };
            *count = count.saturating_sub(1);
            if *count == 0 {
                peers.remove(&key);
                if !commanders.contains(&key) {
                    self.endpoint.trust().revoke(key);
                }
            }
        }
    }

    fn arrive(self: &Arc<Self>, arrived: ArrivedLink) {
        let bundle = match arrived {
            ArrivedLink::Link(link) => LinkBundle::from(link),
            ArrivedLink::Bundle(bundle) => bundle,
        };
        let is_open = Arc::new(AtomicBool::new(false));
        self.openings.lock().push(OpeningWait {
            since: Instant::now(),
            is_open: Arc::clone(&is_open),
            handles: bundle.handles(),
        });
        let host = Arc::clone(self);
        let started = start_thread("peer", move || host.open(bundle, &is_open));
        if let Err(error) = started {
            tracing::warn!("a connection was refused: {error}");
        }
    }

    fn end_late_openings(&self) {
        self.openings.lock().retain(|waiting| {
            let is_late = waiting.since.elapsed() >= OPENING_MAX;
            if is_late && !waiting.is_open.load(Relaxed) {
                for handle in &waiting.handles {
                    handle.abort("the peer did not open in time");
                }
            }
            !is_late && !waiting.is_open.load(Relaxed)
        });
    }

    /// Reads the opening of a connection, and serves it.
    fn open(self: &Arc<Self>, bundle: LinkBundle, is_open: &AtomicBool) {
        let Ok(mut link) = PeerLink::new(bundle) else {
            return;
        };
        let opening = match link.receiver.recv() {
            Ok(Some(BundleEvent::Control(message))) if message.kind == kind::OPENING => {
                decode::<LinkOpening>(&message.bytes)
            }
            _ => Err("no opening".into()),
        };
        is_open.store(true, Relaxed);
        match opening {
            Ok(LinkOpening::Control { protocol }) => self.control(link, protocol),
            Ok(LinkOpening::Trunk {
                protocol: PROTOCOL,
                cast,
                stream,
            }) => self.admit(cast, stream, link),
            Ok(LinkOpening::Probe { .. }) => answer_probe(link),
            Ok(LinkOpening::Trunk { .. }) => refuse(link),
            Err(cause) => tracing::warn!("{}: {cause}", link.peer.address),
        }
    }

    fn admit(&self, cast: CastId, stream: StreamId, link: PeerLink) {
        let inbox = self.casts.lock().get(&cast).cloned();
        match inbox {
            None => refuse(link),
            Some(inbox) => {
                if let Err(back) = inbox.send(CastTrunk { stream, link }) {
                    refuse(back.0.link);
                }
            }
        }
    }

    fn may_command(&self, peer: &LinkPeer) -> bool {
        match &self.commanders {
            CommandRule::Keys(keys) => keys.contains(&peer.key),
            CommandRule::Names(names) => names.iter().any(|name| peer.is_named(name)),
        }
    }

    /// Serves a coordinator.
    fn control(self: &Arc<Self>, link: PeerLink, protocol: u32) {
        if !self.may_command(&link.peer) {
            tracing::warn!("{}: no coordinator of this node", link.peer.address);
            return;
        }
        let welcome = NodeMessage::Welcome {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
        };
        let welcomed = link.sender.send_control(kind::NODE, &[&encode(&welcome)]);
        if protocol != PROTOCOL || welcomed.is_err() {
            let _the_coordinator_reads_the_version = link.sender.finish();
            return;
        }
        *self.served.lock() += 1;
        self.serve_control(link);
        let mut served = self.served.lock();
        *served = served.saturating_sub(1);
    }

    fn serve_control(self: &Arc<Self>, link: PeerLink) {
        let PeerLink {
            sender,
            receiver,
            handles,
            peer,
        } = link;
        let (inbox, control) = bounded(CONTROL_QUEUE_MAX);
        if start_thread("control", move || receive_control(receiver, &inbox)).is_err() {
            return;
        }
        match control.recv() {
            Ok(ControlInput::Order(NodeOrder::Begin(brief))) => {
                let (trunk_inbox, trunks) = bounded(TRUNK_QUEUE_MAX);
                let cast = brief.cast;
                let is_new = {
                    let mut casts = self.casts.lock();
                    let is_new = !casts.contains_key(&cast);
                    casts.entry(cast).or_insert(trunk_inbox);
                    is_new
                };
                if is_new {
                    let inputs = SessionInputs { control, trunks };
                    CastSession::new(self, brief, peer.key, &sender).run(&inputs);
                    self.casts.lock().remove(&cast);
                }
            }
            Ok(ControlInput::Order(first)) => examine_node(self, &sender, &control, first),
            _ => {}
        }
        let _the_coordinator_may_be_gone = sender.finish();
        for handle in handles {
            // The thread that receives ends with the connection.
            end_softly(&handle);
        }
    }
}

/// Gives the peer a moment to close, and ends the connection.
fn end_softly(handle: &LinkHandle) {
    let begin = Instant::now();
    while !handle.has_failed() && begin.elapsed() < TICK * 5 {
        std::thread::sleep(TICK / 5);
    }
    handle.abort("the cast is over");
}

/// Receives the messages of a coordinator until the connection ends.
fn receive_control(mut receiver: BundleReceiver, inbox: &Sender<ControlInput>) {
    let mut fill = FillMeter::default();
    while let Ok(Some(event)) = receiver.recv() {
        let BundleEvent::Control(message) = event else {
            return;
        };
        let input = match message.kind {
            kind::FILL => {
                fill.add(message.bytes.len());
                continue;
            }
            kind::PART => part_of(&message.bytes),
            kind::ORDER => decode(&message.bytes).ok().map(ControlInput::Order),
            _ => None,
        };
        let Some(mut input) = input else {
            tracing::warn!("the coordinator sent a message that this version cannot read");
            return;
        };
        if let ControlInput::Order(NodeOrder::Fill) = input {
            input = fill.take();
        }
        if inbox.send(input).is_err() {
            // The session is over. The connection is read until the coordinator closes it.
            while let Ok(Some(_)) = receiver.recv() {}
            return;
        }
    }
}

fn part_of(bytes: &[u8]) -> Option<ControlInput> {
    let (number, part) = bytes.split_first_chunk::<4>()?;
    Some(ControlInput::Part(
        u32::from_le_bytes(*number),
        part.to_vec(),
    ))
}

/// Bytes of a measurement that arrived, and the time of the first and the last.
#[derive(Default)]
pub(crate) struct FillMeter {
    bytes: u64,
    times: Option<(Instant, Instant)>,
}

impl FillMeter {
    /// Counts bytes. Those that arrive first only start the clock.
    pub fn add(&mut self, bytes: usize) {
        let now = Instant::now();
        match &mut self.times {
            None => self.times = Some((now, now)),
            Some((_, last)) => {
                *last = now;
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                self.bytes = self.bytes.saturating_add(bytes);
            }
        }
    }

    /// Returns the result, and begins again.
    pub fn take(&mut self) -> ControlInput {
        let nanoseconds = self.times.map_or(0, |(first, last)| {
            u64::try_from(last.duration_since(first).as_nanos()).unwrap_or(u64::MAX)
        });
        let bytes = self.bytes;
        *self = FillMeter::default();
        ControlInput::Filled(bytes, nanoseconds)
    }
}

/// Opens the store of a node.
///
/// # Errors
/// The directory is unusable or of another user.
pub(crate) fn open_store(dir: &Path) -> Result<NodeStore, Error> {
    Ok(NodeStore::open(dir, Arc::new(now))?)
}

/// Receiver of a channel, named for the session.
pub(crate) type ControlReceiver = Receiver<ControlInput>;
