//! Connections that arrive at a node.
//!
//! A connection begins with an opening, which names its purpose. The key of the peer was verified
//! before. A coordinator needs a key that may command; a feeder needs a cast that expects it.

use crate::intake::{PeerLink, refuse};
use crate::message::{CastId, NodeMessage, NodeOrder, PROTOCOL, PeerOpening, decode, encode, kind};
use crate::node::catalogue::give;
use crate::node::host::{CastCommander, NodeHost};
use crate::node::inputs::{CastTrunk, ControlInput, SessionInputs, next_input, receive_control};
use crate::node::log::CastLog;
use crate::node::probe::{answer_probe, examine_node};
use crate::node::relay::OrderLink;
use crate::node::session::CastSession;
use crate::stream::start_thread;
use crossbeam_channel::{Sender, bounded};
use driftless_dataplane::{ArrivedLink, BundleEvent, LinkBundle, LinkHandle, LinkListener};
use driftless_lock::Mutex;
use driftless_planner::StreamId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longest wait for a connection before the end of the process is looked at.
const TICK: Duration = Duration::from_millis(100);
/// Time in which a peer has to send its opening.
const OPENING_MAX: Duration = Duration::from_secs(10);
/// Messages of a coordinator that wait, of at most 1 MiB each.
const CONTROL_QUEUE_MAX: usize = 16;
/// Connections of feeders that wait for the loop of a cast.
const TRUNK_QUEUE_MAX: usize = 64;
/// Answer to a coordinator that lists this node twice.
const ALIAS: &str =
    "this node takes part already under another name; list it once in --daemons and --nodes";

/// Server of the connections that arrive.
pub(crate) struct NodeServer {
    host: Arc<NodeHost>,
    openings: Mutex<Vec<OpeningWait>>,
}

/// A connection whose opening has not arrived yet.
struct OpeningWait {
    since: Instant,
    is_open: Arc<AtomicBool>,
    handles: Vec<LinkHandle>,
}

impl NodeServer {
    /// Returns the server of a host.
    pub fn new(host: &Arc<NodeHost>) -> Self {
        NodeServer {
            host: Arc::clone(host),
            openings: Mutex::new(Vec::new()),
        }
    }

    /// Takes connections until `is_over` says so, and then waits for the casts at work.
    pub fn run(&self, listener: &LinkListener, is_over: &dyn Fn(&NodeHost) -> bool) {
        let mut refused = 0;
        while !is_over(&self.host) {
            self.log_refused(listener, &mut refused);
            if let Some(arrived) = listener.accept(TICK) {
                self.arrive(arrived);
            }
            self.end_late_openings();
        }
        self.host.stop();
        while self.host.casts_at_work() > 0 {
            std::thread::sleep(TICK);
        }
    }

    /// Logs the last connection that the listener refused, if it is a new one.
    fn log_refused(&self, listener: &LinkListener, known: &mut u64) {
        let refused = listener.refused();
        if refused.count > std::mem::replace(known, refused.count)
            && let Some((address, cause)) = refused.last
        {
            self.host.refusals.warn(address.ip(), &cause);
        }
    }

    fn arrive(&self, arrived: ArrivedLink) {
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
        let host = Arc::clone(&self.host);
        let started = start_thread("peer", move || open(&host, bundle, &is_open));
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
}

/// Reads the opening of a connection, and serves it.
fn open(host: &Arc<NodeHost>, bundle: LinkBundle, is_open: &AtomicBool) {
    let Ok(mut link) = PeerLink::new(bundle) else {
        return;
    };
    let opening = match link.receiver.recv() {
        Ok(Some(BundleEvent::Control(message))) if message.kind == kind::OPENING => {
            decode::<PeerOpening>(&message.bytes)
        }
        _ => Err("no opening".into()),
    };
    is_open.store(true, Relaxed);
    match opening {
        Ok(PeerOpening::Control { protocol }) => control(host, link, protocol),
        Ok(PeerOpening::Trunk {
            protocol: PROTOCOL,
            cast,
            stream,
        }) => admit(host, cast, stream, link),
        Ok(PeerOpening::Probe { .. }) => answer_probe(link),
        Ok(PeerOpening::Catalogue {
            protocol: PROTOCOL,
            cast,
            set,
        }) => {
            if let Some(offered) = host.offered(cast, set, &link.handles) {
                give(&offered.catalogue, offered.pace.as_deref(), link);
            }
        }
        Ok(PeerOpening::Trunk { .. } | PeerOpening::Catalogue { .. }) => refuse(link),
        Err(cause) => tracing::warn!("{}: {cause}", link.peer.address),
    }
}

fn admit(host: &NodeHost, cast: CastId, stream: StreamId, link: PeerLink) {
    let inbox = host.inbox(cast);
    match inbox {
        None => refuse(link),
        Some(inbox) => {
            if let Err(back) = inbox.send(CastTrunk { stream, link }) {
                refuse(back.0.link);
            }
        }
    }
}

/// Serves a coordinator.
fn control(host: &Arc<NodeHost>, link: PeerLink, protocol: u32) {
    if !host.may_command(&link.peer) {
        let address = link.peer.address.ip();
        host.refusals.warn(address, host.command_refusal());
        // An end without a welcome is the answer.
        let _the_peer_may_be_gone = link.sender.finish();
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
    host.count_served(1);
    serve_control(host, link);
    host.count_served(-1);
}

fn serve_control(host: &Arc<NodeHost>, link: PeerLink) {
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
    match next_input(&control, || host.is_stopped()) {
        Some(ControlInput::Order(NodeOrder::Begin(brief))) => {
            let (trunk_inbox, trunks) = bounded(TRUNK_QUEUE_MAX);
            let cast = brief.cast;
            let key = peer.key;
            let handles = handles.clone();
            let commander = CastCommander { key, handles };
            if begin_cast(host, cast, &trunk_inbox, &commander) {
                let inputs = SessionInputs { control, trunks };
                let log = CastLog::begin(&peer, &brief);
                let end = CastSession::new(host, brief, peer.key, &sender).run(&inputs);
                host.end_cast(cast);
                log.end(&end);
            } else if host.commands(cast, peer.key) {
                let reason = ALIAS.to_owned();
                let failed = encode(&NodeMessage::Failed { reason });
                let _the_coordinator_may_be_gone = sender.send_control(kind::NODE, &[&failed]);
            }
        }
        Some(ControlInput::Order(first)) => {
            let link = OrderLink {
                sender: &sender,
                handles: &handles,
                control: &control,
            };
            examine_node(host, &link, first);
        }
        _ => {}
    }
    let _the_coordinator_may_be_gone = sender.finish();
    for handle in handles {
        // The thread that receives ends with the connection.
        end_softly(&handle);
    }
}

/// Notes a cast that begins. Returns `false` if it is at work over another connection.
///
/// A coordinator that lost its connection can be back before this node has noticed the loss. So an
/// earlier connection has the time in which its silence is noticed.
fn begin_cast(
    host: &NodeHost,
    cast: CastId,
    inbox: &Sender<CastTrunk>,
    commander: &CastCommander,
) -> bool {
    let (begin, limit) = (Instant::now(), host.settings.transfer.silence_max * 2);
    loop {
        if host.begin_cast(cast, inbox.clone(), commander.clone()) {
            return true;
        }
        if begin.elapsed() >= limit || host.is_stopped() {
            return false;
        }
        std::thread::sleep(TICK);
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
