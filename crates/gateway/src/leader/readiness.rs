//! Readiness of nodes, told to the batch system: at once if it changed, and again at intervals,
//! because a restart of some batch systems forgets it.

use super::state::GatewayLeader;
use super::told::ReadinessKey;
use crate::plan::{PlannedJob, SlotNodes, slot_nodes};
use driftless_batch::{DataSlot, JobId, Readiness};
use driftless_state::jobs::ChangeError;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Pause after a failure.
const PAUSE: Duration = Duration::from_secs(5);

impl SlotNodes {
    /// Returns the form for the batch system.
    pub(super) fn readiness<'a>(&'a self, slot: Option<&'a DataSlot>) -> Readiness<'a> {
        Readiness {
            slot,
            ready: &self.ready,
            all: &self.all,
        }
    }
}

impl PlannedJob {
    /// Returns whether tasks of the job may start by its slot, now or soon.
    pub(super) fn may_use_slot(&self) -> bool {
        self.is_joined() && self.row.stage < driftless_state::jobs::JobStage::Ended
    }
}

impl GatewayLeader<'_> {
    /// Tells the batch system which nodes are ready, for each slot and job that needs it.
    pub(super) fn tell_ready(&mut self) -> Result<(), ChangeError> {
        let mut by_key: BTreeMap<ReadinessKey, Vec<&PlannedJob>> = BTreeMap::new();
        for job in self.jobs.iter().filter(|job| job.may_use_slot()) {
            let key = match job.row.slot {
                Some(slot) => ReadinessKey::DataSlot(slot),
                None => ReadinessKey::Job(job.row.mark.clone()),
            };
            by_key.entry(key).or_default().push(job);
        }
        self.told.told.retain(|key, _| by_key.contains_key(key));
        let now = Instant::now();
        for (key, jobs) in by_key {
            if !self.lease.is_sure(Instant::now()) {
                break;
            }
            let nodes = slot_nodes(jobs.iter().copied());
            if !self.told.is_due(&key, &nodes, now) {
                continue;
            }
            let slot = match key {
                ReadinessKey::DataSlot(number) => Some(self.parts.slot(number)),
                ReadinessKey::Job(_) => None,
            };
            let number = |job: &&PlannedJob| job.row.number.as_deref().and_then(JobId::new);
            let numbers: Vec<JobId> = jobs.iter().filter_map(number).collect();
            let readiness = nodes.readiness(slot.as_ref());
            match self.parts.batch.tell_ready(&readiness, &numbers) {
                Ok(()) => {
                    self.told.paused.remove(&key);
                    self.told.told.insert(key, (nodes, now));
                }
                Err(error) if error.is_no_job() => {}
                Err(error) => {
                    tracing::warn!("{error}; the gateway tries again");
                    self.told.paused.insert(key, now + PAUSE);
                }
            }
        }
        Ok(())
    }
}
