//! Parts that the threads of a gateway share.

use crate::distribution::Distribution;
use crossbeam_channel::Sender;
use driftless_batch::{BatchSystem, DataSlot};
use driftless_lock::Mutex;
use driftless_state::jobs::JobTable;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// Directory of the gateways. Gateways on several hosts share it.
    pub dir: PathBuf,
    /// Path of the socket for clients.
    pub socket: PathBuf,
    /// Directory with the deposits of users. Gateways can share it.
    pub deposits: PathBuf,
    /// Name of this gateway, for the lease and messages.
    pub name: String,
    /// Whether the gateway may change nodes in the batch system. Without this right, it excludes
    /// nodes from each job.
    pub has_slots: bool,
    /// Number of data sets that can be offered at the same time.
    pub slots_max: u32,
    /// Casts at the same time.
    pub casts_max: usize,
    /// Collections of results at the same time.
    pub collections_max: usize,
    /// Pause between two questions to the batch system, at least.
    pub poll: Duration,
    /// Pause after a failure, at first. Each further pause is twice as long.
    pub retry: Duration,
    /// Time without a sign of the gateway that acts, after which another one takes over.
    pub lease_max: Duration,
}

impl GatewaySettings {
    /// Returns the defaults of a gateway with the directory `dir` and the socket `socket`.
    pub fn new(dir: PathBuf, socket: PathBuf, name: String) -> Self {
        GatewaySettings {
            // Users pass its parents, and no user may pass the directory of the gateways.
            deposits: dir.with_file_name("deposits"),
            dir,
            socket,
            name,
            has_slots: true,
            slots_max: 64,
            casts_max: 4,
            collections_max: 4,
            poll: Duration::from_secs(2),
            retry: Duration::from_secs(5),
            lease_max: Duration::from_secs(15),
        }
    }
}

/// Parts that the threads of a gateway share.
pub(crate) struct GatewayParts {
    pub settings: GatewaySettings,
    pub batch: Arc<dyn BatchSystem>,
    pub distribution: Arc<dyn Distribution>,
    pub table: Mutex<JobTable>,
    /// Cause that the batch system did not answer the last question.
    pub batch_fault: Mutex<Option<String>>,
    /// Name of all gateways of this directory.
    pub group: String,
    /// Wakes the leader: a client told something.
    pub nudge: Sender<()>,
}

impl GatewayParts {
    /// Returns the name of a job on the nodes.
    pub fn job_name(&self, mark: &str) -> String {
        format!("{}{mark}", self.prefix())
    }

    /// Returns the name of a slot in the batch system.
    pub fn slot(&self, number: u32) -> DataSlot {
        DataSlot::of_group(&self.group, number)
    }

    /// Returns the begin of the names of all jobs of these gateways.
    pub fn prefix(&self) -> String {
        format!("gateway-{}-", self.group)
    }
}

/// Returns the time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}
