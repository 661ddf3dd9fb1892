//! Measurements before a cast: links, disks and processors of nodes.

use crate::{CastNode, Error, SshStart, TlsIdentity, TransferSettings};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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
    /// Whether the processor has instructions for AES.
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
    _settings: &DoctorSettings,
    _report: &mut dyn FnMut(&NodeHealth),
    _stop: &AtomicBool,
) -> Result<Vec<NodeHealth>, Error> {
    Err(Error::Stopped)
}
