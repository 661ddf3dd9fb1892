//! A gateway: its socket, its turn as the one that acts, and its end.

use crate::Error;
use crate::distribution::Distribution;
use crate::leader::{Leader, LeaderEnd};
use crate::lease::{Candidate, Lease};
use crate::server::{Server, bind};
use crossbeam_channel::{Receiver, Sender, bounded};
use driftless_batch::{BatchSystem, Slot};
use driftless_lock::Mutex;
use driftless_state::jobs::JobTable;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// File of the table of jobs in the directory of the gateways.
const TABLE: &str = "jobs.db";
/// Pause of a gateway that waits for the lease.
const WAITING: Duration = Duration::from_millis(500);

/// Settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// Directory of the gateways. Gateways on several hosts share it.
    pub dir: PathBuf,
    /// Path of the socket for clients.
    pub socket: PathBuf,
    /// Name of this gateway, for the lease and messages.
    pub name: String,
    /// Whether the gateway may change nodes in the batch system. Without this right, it excludes
    /// nodes from each job.
    pub has_slots: bool,
    /// Number of data sets that can be offered at the same time.
    pub slots_max: u32,
    /// Casts at the same time.
    pub casts_max: usize,
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
            dir,
            socket,
            name,
            has_slots: true,
            slots_max: 64,
            casts_max: 4,
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
    pub fn slot(&self, number: u32) -> Slot {
        Slot::of_group(&self.group, number)
    }

    /// Returns the begin of the names of all jobs of these gateways.
    pub fn prefix(&self) -> String {
        format!("gateway-{}-", self.group)
    }
}

/// A gateway that listens for clients.
pub struct Gateway {
    parts: Arc<GatewayParts>,
    socket: UnixListener,
    nudges: Receiver<()>,
}

impl Gateway {
    /// Opens the table of jobs, and listens for clients.
    ///
    /// # Errors
    /// The table cannot be opened, or another gateway serves the socket.
    pub fn start(
        settings: GatewaySettings,
        batch: Arc<dyn BatchSystem>,
        distribution: Arc<dyn Distribution>,
    ) -> Result<Self, Error> {
        let table = JobTable::open(&settings.dir.join(TABLE))?;
        let group = table.gateways()?;
        let socket = bind(&settings.socket)?;
        let (nudge, nudges) = bounded(1);
        let parts = GatewayParts {
            settings,
            batch,
            distribution,
            table: Mutex::new(table),
            group,
            nudge,
        };
        Ok(Gateway {
            parts: Arc::new(parts),
            socket,
            nudges,
        })
    }

    /// Serves clients, and acts while this gateway has the lease, until `stop` is set.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub fn run(self, stop: &AtomicBool) -> Result<(), Error> {
        let server = Server::new(Arc::clone(&self.parts));
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("clients".into())
                .spawn_scoped(scope, || server.run(&self.socket, stop))
                .map_err(Error::Thread)?;
            let lease_max = self.parts.settings.lease_max;
            let mut candidate = Candidate::new(lease_max);
            while !stop.load(Relaxed) {
                match self.try_take(&mut candidate) {
                    Some(lease) => {
                        self.lead(lease, stop);
                        candidate = Candidate::new(lease_max);
                    }
                    None => std::thread::sleep(WAITING.min(lease_max / 10)),
                }
            }
            Ok(())
        })
    }

    fn try_take(&self, candidate: &mut Candidate) -> Option<Lease> {
        let before = candidate.holder().map(str::to_owned);
        let mut table = self.parts.table.lock();
        let taken = candidate.try_take(&mut table, &self.parts.settings.name, Instant::now());
        if candidate.holder() != before.as_deref()
            && let Some(holder) = candidate.holder()
        {
            tracing::info!("the gateway {holder} acts; this one waits");
        }
        taken.unwrap_or_else(|error| {
            tracing::warn!("{error}");
            None
        })
    }

    fn lead(&self, lease: Lease, stop: &AtomicBool) {
        tracing::info!("this gateway acts, lease epoch {}", lease.epoch);
        let mut leader = Leader::new(&self.parts, lease);
        match leader.run(&self.nudges, stop) {
            LeaderEnd::Stopped => {}
            LeaderEnd::LeaseLost => tracing::warn!("another gateway took over; this one waits"),
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the socket of the gateway itself"
)]
impl Drop for Gateway {
    fn drop(&mut self) {
        let _the_next_gateway_removes_it = std::fs::remove_file(&self.parts.settings.socket);
    }
}
