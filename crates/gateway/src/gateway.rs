//! A gateway: its socket, its turn as the one that acts, and its end.

use crate::Error;
use crate::distribution::Distribution;
use crate::leader::{GatewayLeader, LeaderEnd};
use crate::lease::{GatewayLease, LeaseCandidate};
use crate::parts::{GatewayParts, GatewaySettings};
use crate::server::{ClientServer, bind};
use crossbeam_channel::{Receiver, bounded};
use driftless_batch::BatchSystem;
use driftless_lock::Mutex;
use driftless_state::jobs::JobTable;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// File of the table of jobs in the directory of the gateways.
const TABLE: &str = "jobs.db";
/// Pause of a gateway that waits for the lease.
const WAITING: Duration = Duration::from_millis(500);

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
            batch_fault: Mutex::new(None),
            group,
            nudge,
        };
        Ok(Gateway {
            parts: Arc::new(parts),
            socket,
            nudges,
        })
    }

    /// Serves clients, and acts while this gateway has the lease, until `stop` is set. Clients get answers
    /// until the last act is over.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub fn run(self, stop: &AtomicBool) -> Result<(), Error> {
        let server = ClientServer::new(Arc::clone(&self.parts));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("clients".into())
                .spawn_scoped(scope, || server.run(&self.socket, &is_over))
                .map_err(Error::Thread)?;
            let lease_max = self.parts.settings.lease_max;
            let mut candidate = LeaseCandidate::new(lease_max);
            while !stop.load(Relaxed) {
                match self.try_take(&mut candidate) {
                    Some(lease) => {
                        self.lead(lease, stop);
                        candidate = LeaseCandidate::new(lease_max);
                    }
                    None => std::thread::sleep(WAITING.min(lease_max / 10)),
                }
            }
            is_over.store(true, Relaxed);
            Ok(())
        })
    }

    fn try_take(&self, candidate: &mut LeaseCandidate) -> Option<GatewayLease> {
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

    fn lead(&self, lease: GatewayLease, stop: &AtomicBool) {
        tracing::info!("this gateway acts, lease epoch {}", lease.epoch);
        let (lease, table) = (&lease, &self.parts.table);
        let end = std::thread::scope(|scope| {
            let (leading, ended) = bounded::<()>(0);
            let keep = move || lease.keep_until(table, &ended);
            let thread = std::thread::Builder::new().name("lease".into());
            // Without a thread, the leader alone renews the lease, between its steps.
            let _kept = thread.spawn_scoped(scope, keep);
            let end = GatewayLeader::new(&self.parts, lease).run(&self.nudges, stop);
            drop(leading);
            end
        });
        *self.parts.batch_fault.lock() = None;
        match end {
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
