//! Orders without a cast: measurements of a node for `driftless doctor`, ends of jobs, and their results.

use crate::intake::PeerLink;
use crate::message::{
    CastPeer, ExaminedNode, NodeMessage, NodeOrder, PROTOCOL, PeerOpening, decode, encode, kind,
};
use crate::node::host::NodeHost;
use crate::node::inputs::{ControlInput, FillMeter, next_input};
use crate::node::jobs::{end_job, list_jobs};
use crate::node::outbox::{discard, list_results, list_sealed, seal};
use crate::node::relay::{OrderLink, relay};
use crossbeam_channel::Receiver;
use driftless_dataplane::{BundleEvent, ExpectedPeer, LinkEvent, PeerKey};
use driftless_store::NodeStore;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of one message of filler.
pub(crate) const FILL_BYTES: usize = 256 << 10;
/// Round trips of which the median counts.
pub(crate) const ROUND_TRIPS: usize = 9;
/// Longest wait for an answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest measurement that a coordinator can order.
const PROBE_MAX: Duration = Duration::from_secs(60);
/// Bytes of the largest file of a measurement.
const DISK_BYTES_MAX: u64 = 16 << 30;
/// Bytes that the measurement of the processor hashes.
const HASH_BYTES: usize = 64 << 20;

/// Carries out orders without a cast.
pub(crate) fn examine_node(host: &Arc<NodeHost>, link: &OrderLink<'_>, first: NodeOrder) {
    let mut met = Vec::new();
    answer_orders(host, link, (first, &mut met));
    host.forget_peers(met);
}

fn answer_orders(
    host: &Arc<NodeHost>,
    link: &OrderLink<'_>,
    (first, met): (NodeOrder, &mut Vec<PeerKey>),
) {
    let mut input = ControlInput::Order(first);
    let mut meet = |peer: &CastPeer| {
        met.push(peer.key());
        host.trust_peer(peer.key());
    };
    loop {
        let answer = match input {
            ControlInput::Order(NodeOrder::Ping) => NodeMessage::Pong,
            ControlInput::Order(NodeOrder::Examine { place, disk_bytes }) => {
                NodeMessage::Examined(examine_here(host, place, disk_bytes))
            }
            ControlInput::Order(NodeOrder::ProbePeer { peer, milliseconds }) => {
                meet(&peer);
                probe(host, &peer, Duration::from_millis(milliseconds))
            }
            ControlInput::Order(NodeOrder::Peers(peers)) => {
                peers.iter().for_each(&mut meet);
                NodeMessage::Pong
            }
            ControlInput::Order(NodeOrder::RelayOutbox { job }) => relay(host, link, &job),
            ControlInput::Order(order) => match answer_job_order(&host.store, order) {
                Some(answer) => answer,
                None => return,
            },
            ControlInput::Filled(bytes, nanoseconds) => NodeMessage::Filled { bytes, nanoseconds },
            ControlInput::Part(..) | ControlInput::Relay(_) | ControlInput::RelayEnd => return,
        };
        if !link.send(&answer) {
            return;
        }
        input = match next_order(host, link.control) {
            Some(input) => input,
            None => return,
        };
    }
}

/// Waits for the next order. Bytes of a relay that has ended may come before it.
fn next_order(host: &NodeHost, control: &Receiver<ControlInput>) -> Option<ControlInput> {
    loop {
        match next_input(control, || host.is_stopped())? {
            ControlInput::Relay(_) | ControlInput::RelayEnd => {}
            input => return Some(input),
        }
    }
}

/// Carries out an order about jobs and their results. Returns `None` for another order.
fn answer_job_order(store: &NodeStore, order: NodeOrder) -> Option<NodeMessage> {
    Some(match order {
        NodeOrder::EndJob { job } => end_job(store, &job),
        NodeOrder::ListJobs { prefix, after } => list_jobs(store, &prefix, &after),
        NodeOrder::ListOutbox { job, after } => {
            list_results(&job, || store.outbox_names(&job, &after))
        }
        NodeOrder::ListSealed { job, below, after } => list_sealed(store, &job, (&below, &after)),
        NodeOrder::Seal { job, moves } => seal(store, &job, &moves),
        NodeOrder::DiscardSealed { job, paths } => discard(store, &job, &paths),
        _ => return None,
    })
}

/// Measures the disk below a place, and the processor.
fn examine_here(host: &NodeHost, place: Option<Vec<u8>>, disk_bytes: u64) -> ExaminedNode {
    let mut examined = ExaminedNode {
        hash_bytes_per_second: measure_hash(),
        processors: std::thread::available_parallelism()
            .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
        has_aes: driftless_dataplane::has_aes(),
        ..ExaminedNode::default()
    };
    let Some(place) = place else {
        return examined;
    };
    let path = PathBuf::from(OsString::from_vec(place));
    let (_open, held) = match host.open_measured(path.clone()) {
        Ok(opened) => opened,
        Err(fault) => {
            examined.faults.push(fault);
            return examined;
        }
    };
    examined.free_bytes = free_bytes(&held);
    match measure_disk(&held, disk_bytes.min(DISK_BYTES_MAX)) {
        Ok(rate) => examined.disk_write_bytes_per_second = Some(rate),
        Err(error) => examined.faults.push(format!(
            "{}: cannot measure the disk: {}; check path and owner",
            driftless_model::quote(&path),
            driftless_model::cause(&error)
        )),
    }
    examined
}

fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Writes a file without a name, and makes it durable.
fn measure_disk(place: &Path, bytes: u64) -> std::io::Result<u64> {
    let mut file = tempfile_in(place)?;
    let block = vec![0x5a; FILL_BYTES];
    let begin = Instant::now();
    let mut written = 0_u64;
    while written < bytes {
        std::io::Write::write_all(&mut file, &block)?;
        written = written.saturating_add(FILL_BYTES as u64);
    }
    file.sync_all()?;
    Ok(rate(written, begin.elapsed()))
}

/// Opens a file that has no name, and goes with its descriptor (open(2), `O_TMPFILE`).
fn tempfile_in(place: &Path) -> std::io::Result<std::fs::File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(place, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(fd.into())
}

fn measure_hash() -> u64 {
    let block = vec![0x5a; 64 << 10];
    let begin = Instant::now();
    let mut sum = 0_u8;
    for _ in 0..HASH_BYTES / block.len() {
        sum ^= blake3::hash(&block).as_bytes()[0];
    }
    std::hint::black_box(sum);
    rate(HASH_BYTES as u64, begin.elapsed())
}

/// Returns bytes a second.
pub(crate) fn rate(bytes: u64, elapsed: Duration) -> u64 {
    let nanoseconds = elapsed.as_nanos().max(1);
    u64::try_from(u128::from(bytes).saturating_mul(1_000_000_000) / nanoseconds).unwrap_or(u64::MAX)
}

/// Measures the connection to another node.
fn probe(host: &Arc<NodeHost>, peer: &CastPeer, limit: Duration) -> NodeMessage {
    let measured = probe_link(host, peer, limit.min(PROBE_MAX));
    let (rates, fault) = match measured {
        Ok(rates) => (rates, None),
        Err(fault) => ((0, 0), Some(fault)),
    };
    NodeMessage::Probed {
        bytes_per_second: rates.0,
        round_trip_microseconds: rates.1,
        fault,
    }
}

fn probe_link(
    host: &Arc<NodeHost>,
    peer: &CastPeer,
    limit: Duration,
) -> Result<(u64, u64), String> {
    let text = |error: driftless_dataplane::Error| error.to_string();
    let expected = ExpectedPeer::Key(peer.key());
    let link = host.endpoint.connect(&peer.addresses, &expected);
    let (sender, mut receiver) = link.map_err(text)?.split();
    let opening = PeerOpening::Probe { protocol: PROTOCOL };
    sender
        .send(kind::OPENING, &[&encode(&opening)])
        .map_err(text)?;
    let mut answer = |order: &NodeOrder| -> Result<NodeMessage, String> {
        sender.send(kind::ORDER, &[&encode(order)]).map_err(text)?;
        match receiver.recv_within(ANSWER_MAX).map_err(text)? {
            LinkEvent::Message(message) => decode(&message.bytes),
            _ => Err("the peer did not answer".into()),
        }
    };
    let round_trip = median_round_trip(|| answer(&NodeOrder::Ping).map(drop))?;
    let (begin, block) = (Instant::now(), vec![0; FILL_BYTES]);
    while begin.elapsed() < limit {
        sender.send(kind::FILL, &[&block]).map_err(text)?;
    }
    match answer(&NodeOrder::Fill)? {
        NodeMessage::Filled { bytes, nanoseconds } => {
            Ok((rate(bytes, Duration::from_nanos(nanoseconds)), round_trip))
        }
        _ => Err("the peer sent another answer".into()),
    }
}

/// Returns the median of a few round trips in microseconds.
pub(crate) fn median_round_trip(
    mut once: impl FnMut() -> Result<(), String>,
) -> Result<u64, String> {
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let begin = Instant::now();
        once()?;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(u64::try_from(median.as_micros()).unwrap_or(u64::MAX))
}

/// Answers the measurement of another node.
pub(crate) fn answer_probe(mut link: PeerLink) {
    let mut fill = FillMeter::default();
    while let Ok(Some(BundleEvent::Control(message))) = link.receiver.recv() {
        if message.kind == kind::FILL {
            fill.add(message.bytes.len());
            continue;
        }
        let answer = match decode(&message.bytes) {
            Ok(NodeOrder::Ping) => NodeMessage::Pong,
            Ok(NodeOrder::Fill) => match fill.take() {
                ControlInput::Filled(bytes, nanoseconds) => {
                    NodeMessage::Filled { bytes, nanoseconds }
                }
                _ => return,
            },
            _ => return,
        };
        let sent = link.sender.send_control(kind::NODE, &[&encode(&answer)]);
        if sent.is_err() {
            return;
        }
    }
}
