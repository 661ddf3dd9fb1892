//! Questions to the batch system.

use super::state::GatewayLeader;
use crate::parts::now;
use crate::plan::PlannedJob;
use driftless_batch::{BatchError, JobId, LiveJob, MarkedJob};
use driftless_state::jobs::{ChangeError, JobStage};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Longest pause, and how much longer than a question it is, while jobs run.
const RUNNING: (Duration, u32) = (Duration::from_secs(10), 20);
/// The same while jobs only wait for data: nothing but their removal is to be seen.
const WAITING: (Duration, u32) = (Duration::from_secs(30), 100);

impl GatewayLeader<'_> {
    /// Asks the batch system if it is time. Returns whether jobs were adopted.
    pub(super) fn ask_batch(&mut self) -> Result<bool, ChangeError> {
        let begin = Instant::now();
        if self.jobs.is_empty() || self.sight.next.is_some_and(|next| begin < next) {
            return Ok(false);
        }
        let asked = self.ask();
        let waits = |job: &PlannedJob| job.row.stage == JobStage::Loading;
        let (pause_max, times) = match self.jobs.iter().all(waits) {
            true => WAITING,
            false => RUNNING,
        };
        let pause = begin.elapsed().saturating_mul(times).min(pause_max);
        let pause = pause.max(self.parts.settings.poll);
        self.sight.next = Some(Instant::now() + pause);
        match asked {
            Ok((marked, alive)) => {
                self.note_batch_fault(None);
                self.sight.answered = Some(begin);
                self.sight.alive = Some(alive);
                self.sight.count_absent(&self.jobs);
                self.adopt(marked)
            }
            Err(error) => {
                self.sight.alive = None;
                self.note_batch_fault(Some(error.to_string()));
                Ok(false)
            }
        }
    }

    /// Shows users why the batch system did not answer, and writes a new cause to the log.
    fn note_batch_fault(&self, fault: Option<String>) {
        let mut known = self.parts.batch_fault.lock();
        match &fault {
            Some(cause) if *known != fault => tracing::warn!("{cause}; the gateway tries again"),
            None if known.is_some() => tracing::info!("the batch system answers again"),
            _ => {}
        }
        *known = fault;
    }

    /// Returns the jobs with a mark, if a job waits for its number, and the jobs that live. A job that
    /// is adopted lives in the second answer, because that is younger.
    fn ask(&self) -> Result<(Vec<MarkedJob>, HashMap<JobId, LiveJob>), BatchError> {
        let is_prepared = |job: &PlannedJob| job.row.stage == JobStage::Prepared;
        let batch = &self.parts.batch;
        let marked = match self.jobs.iter().any(is_prepared) {
            true => batch.marked()?,
            false => Vec::new(),
        };
        Ok((marked, batch.alive()?))
    }

    /// Notes the numbers of jobs that clients submitted. The batch system states the owner: no user
    /// can make a job of another user one of the gateway.
    fn adopt(&mut self, marked: Vec<MarkedJob>) -> Result<bool, ChangeError> {
        let mut is_any = false;
        for found in marked {
            let of_mark = |job: &&PlannedJob| job.row.mark == found.mark.as_str();
            let Some(job) = self.jobs.iter().find(of_mark) else {
                continue;
            };
            if job.row.stage != JobStage::Prepared {
                continue;
            }
            if job.row.owner != found.owner {
                let (number, owner, user) = (&found.job, &found.owner, &job.row.owner);
                tracing::warn!(
                    "job {number} of {owner} carries a mark of {user}; it is left alone"
                );
                continue;
            }
            let number = found.job.as_str();
            let mut table = self.parts.table.lock();
            table.note_held(self.lease.epoch, found.mark.as_str(), number, now())?;
            tracing::info!(
                "job {number} of {}: held until its data has arrived",
                found.owner
            );
            is_any = true;
        }
        if is_any {
            self.reread();
        }
        Ok(is_any)
    }
}
