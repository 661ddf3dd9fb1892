//! Measurements before a cast: links, disks and processors of nodes.

use crate::coordinator::asked::{ANSWER_MAX, AskedNode, OTHER_ANSWER};
use crate::coordinator::endpoint_with;
use crate::coordinator::launch::Launcher;
use crate::message::{ExaminedNode, NodeMessage, NodeOrder, kind, shown};
use crate::node::probe::{FILL_BYTES, median_round_trip, rate};
use crate::{CastNode, Error, SshStart, TlsIdentity, TransferSettings};
use driftless_lock::Mutex;
use driftless_planner::NodeId;
use serde::Serialize;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time for the measurement of a disk.
const DISK_MAX: Duration = Duration::from_secs(600);

/// Settings of an examination.
#[derive(Clone)]
pub struct DoctorSettings {
    /// Nodes, in the order of the chain. Each is measured with the one before.
    pub nodes: Vec<CastNode>,
    /// Start of nodes through ssh.
    pub ssh: Option<SshStart>,
    /// Key pair for daemons, as in [`CastSettings`](crate::CastSettings).
    pub identity: Option<TlsIdentity>,
    /// Certificates in PEM of the site's authority.
    pub authority_pem: Option<Vec<u8>>,
    /// Directory on the nodes whose disk is measured.
    pub place: Option<PathBuf>,
    /// Duration of each measurement of a link.
    pub link_time: Duration,
    /// Bytes that the measurement of a disk writes, makes durable, reads and removes.
    pub disk_bytes: u64,
    /// Limits of the data plane.
    pub transfer: TransferSettings,
}

/// Measurements of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NodeHealth {
    /// Node.
    pub node: String,
    /// Version of driftless there.
    pub version: Option<String>,
    /// Connection from this host.
    pub from_here: Option<LinkHealth>,
    /// Connection from the node before it in the list.
    pub from_predecessor: Option<LinkHealth>,
    /// Bytes a second that the disk wrote and made durable.
    pub disk_write_bytes_per_second: Option<u64>,
    /// Free bytes at the place.
    pub free_bytes: Option<u64>,
    /// Bytes a second that one processor hashes with BLAKE3.
    pub hash_bytes_per_second: Option<u64>,
    /// Processors.
    pub processors: Option<u32>,
    /// Whether the processor has the instructions for fast AES-GCM.
    pub has_aes: Option<bool>,
    /// Causes of measurements that failed, each with a remedy.
    pub faults: Vec<String>,
}

/// Measurement of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LinkHealth {
    /// Bytes a second with encryption.
    pub bytes_per_second: u64,
    /// Median round trip in microseconds.
    pub round_trip_microseconds: u64,
}

/// Measures the nodes, one link at a time. Calls `report` for each node when it is done.
///
/// # Errors
/// Fails if the settings contradict each other, or `stop` is set. A node that cannot be reached is
/// no error: its faults say so.
pub fn examine(
    settings: &DoctorSettings,
    report: &mut dyn FnMut(&NodeHealth),
    stop: &AtomicBool,
) -> Result<Vec<NodeHealth>, Error> {
    if settings.nodes.is_empty() {
        return Err(Error::Settings("no node is given: name one with --nodes"));
    }
    let authority = settings.authority_pem.as_deref();
    let (endpoint, trust) =
        endpoint_with(settings.identity.as_ref(), authority, &settings.transfer)?;
    let programs = Mutex::new(HashMap::new());
    let is_stopped = || stop.load(Relaxed);
    let launcher = Launcher {
        endpoint: &endpoint,
        trust: &trust,
        has_authority: authority.is_some(),
        ssh: settings.ssh.as_ref(),
        programs: &programs,
        is_stopped: &is_stopped,
    };
    let mut all = Vec::new();
    let mut before: Option<AskedNode<'_>> = None;
    for (number, node) in (1..).zip(&settings.nodes) {
        if is_stopped() {
            return Err(Error::Stopped);
        }
        let mut health = NodeHealth {
            node: node.name.clone(),
            ..NodeHealth::default()
        };
        let mut reached = match launcher.reach(node) {
            Ok(reached) => Some(AskedNode::new(NodeId(number), reached, &is_stopped)),
            Err(fault) => {
                health.faults.push(fault.cause);
                None
            }
        };
        if let Some(link) = &mut reached {
            health.version = Some(link.version.clone());
            measure(settings, link, before.as_mut(), &mut health);
        }
        report(&health);
        all.push(health);
        before = reached;
    }
    Ok(all)
}

/// Takes all measurements of a node. A fault of one does not prevent the others.
fn measure(
    settings: &DoctorSettings,
    link: &mut AskedNode<'_>,
    before: Option<&mut AskedNode<'_>>,
    health: &mut NodeHealth,
) {
    match measure_link(link, settings.link_time) {
        Ok(measured) => health.from_here = Some(measured),
        Err(cause) => health.faults.push(format!("connection from here: {cause}")),
    }
    match measure_between(settings, link, before) {
        Ok(measured) => health.from_predecessor = measured,
        Err(cause) => health
            .faults
            .push(format!("connection from the node before: {cause}")),
    }
    let place = settings.place.as_ref();
    let order = NodeOrder::Examine {
        place: place.map(|place| place.as_os_str().as_bytes().to_vec()),
        disk_bytes: settings.disk_bytes,
    };
    match link.ask(&order, DISK_MAX) {
        Ok(NodeMessage::Examined(examined)) => take_examined(examined, health),
        Ok(_) => health.faults.push(OTHER_ANSWER.into()),
        Err(cause) => health.faults.push(cause),
    }
}

fn take_examined(examined: ExaminedNode, health: &mut NodeHealth) {
    health.disk_write_bytes_per_second = examined.disk_write_bytes_per_second;
    health.free_bytes = examined.free_bytes;
    health.hash_bytes_per_second = Some(examined.hash_bytes_per_second);
    health.processors = Some(examined.processors);
    health.has_aes = Some(examined.has_aes);
    let faults = examined.faults.iter().map(|fault| shown(fault));
    health.faults.extend(faults);
}

fn measure_link(link: &mut AskedNode<'_>, limit: Duration) -> Result<LinkHealth, String> {
    let round_trip = median_round_trip(|| link.ask(&NodeOrder::Ping, ANSWER_MAX).map(drop))?;
    let (begin, block) = (Instant::now(), vec![0; FILL_BYTES]);
    while begin.elapsed() < limit {
        let sent = link.sender.send_control(kind::FILL, &[&block]);
        sent.map_err(|error| error.to_string())?;
    }
    match link.ask(&NodeOrder::Fill, ANSWER_MAX)? {
        NodeMessage::Filled { bytes, nanoseconds } => Ok(LinkHealth {
            bytes_per_second: rate(bytes, Duration::from_nanos(nanoseconds)),
            round_trip_microseconds: round_trip,
        }),
        _ => Err(OTHER_ANSWER.into()),
    }
}

/// Has the node before measure its connection to a node.
fn measure_between(
    settings: &DoctorSettings,
    link: &mut AskedNode<'_>,
    before: Option<&mut AskedNode<'_>>,
) -> Result<Option<LinkHealth>, String> {
    let Some(before) = before else {
        return Ok(None);
    };
    link.ask(&NodeOrder::Peers(vec![before.peer.clone()]), ANSWER_MAX)?;
    let order = NodeOrder::ProbePeer {
        peer: link.peer.clone(),
        milliseconds: u64::try_from(settings.link_time.as_millis()).unwrap_or(u64::MAX),
    };
    match before.ask(&order, settings.link_time.saturating_add(ANSWER_MAX))? {
        NodeMessage::Probed {
            fault: Some(fault), ..
        } => Err(shown(&fault)),
        NodeMessage::Probed {
            bytes_per_second,
            round_trip_microseconds,
            fault: None,
        } => Ok(Some(LinkHealth {
            bytes_per_second,
            round_trip_microseconds,
        })),
        _ => Err(OTHER_ANSWER.into()),
    }
}
