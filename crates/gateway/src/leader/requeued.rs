//! Jobs that a user or administrator requeues after their end. A closed job comes back into the plan,
//! and gets its data again before its tasks start: no node offers its slot until then.

use super::acts::ActError;
use super::state::GatewayLeader;
use super::work::WorkKind;
use crate::parts::now;
use crate::plan::{NumberHolder, PlannedJob, number_holder};
use driftless_batch::{FoundJob, JobId};
use driftless_state::jobs::{BatchJobRow, ChangeError, JobChange, JobStage};
use std::collections::HashMap;

/// Fault of a job that was requeued, and whose slot another data set has.
const SLOT_TAKEN: &str = "the job was requeued after its end, and another data set has its place: cancel it, and submit it again";

impl GatewayLeader<'_> {
    /// Returns the closed jobs, by their numbers.
    pub(super) fn closed_jobs(&mut self) -> Result<&HashMap<JobId, BatchJobRow>, ChangeError> {
        if self.closed.is_none() {
            let rows = self.parts.table.lock().closed_jobs()?;
            let numbered = |row: BatchJobRow| {
                let number = row.number.as_deref().and_then(JobId::new)?;
                Some((number, row))
            };
            self.closed = Some(rows.into_iter().filter_map(numbered).collect());
        }
        Ok(self.closed.get_or_insert_default())
    }

    /// Notes that a job is closed.
    pub(super) fn add_closed(&mut self, row: BatchJobRow) {
        let number = row.number.as_deref().and_then(JobId::new);
        if let (Some(closed), Some(number)) = (&mut self.closed, number) {
            let request = Vec::new();
            let row = BatchJobRow { request, ..row };
            closed.insert(number, row);
        }
    }

    /// Takes closed jobs that live again back into the plan. Returns whether there were any.
    pub(super) fn reopen_requeued(&mut self) -> Result<bool, ChangeError> {
        self.closed_jobs()?;
        let (Some(closed), Some(alive)) = (&self.closed, &self.sight.alive) else {
            return Ok(false);
        };
        let known = |number: &JobId| {
            let mut numbers = self.jobs.iter().map(|job| job.row.number.as_deref());
            numbers.any(|own| own == Some(number.as_str()))
        };
        let again = alive.keys().filter(|number| closed.contains_key(*number));
        let again: Vec<JobId> = again.filter(|number| !known(number)).cloned().collect();
        let mut is_any = false;
        for number in again {
            let Some(row) = self.closed.as_mut().and_then(|all| all.remove(&number)) else {
                continue;
            };
            match self.parts.batch.find(&number) {
                Ok(Some(found)) if !is_of(&row, &found) => continue,
                Ok(Some(found)) if found.is_alive => {}
                _ => {
                    self.add_closed(row);
                    continue;
                }
            }
            tracing::info!("job {number}: requeued after its end");
            let (mark, stage) = (row.mark, JobStage::Ended);
            let now = now();
            self.note(JobChange::Stage { mark, stage, now });
            is_any = true;
        }
        if is_any {
            self.flush()?;
            self.reread();
        }
        Ok(is_any)
    }

    /// Lets a job that was requeued after its end get its data again.
    pub(super) fn resume(&mut self, at: usize) -> Result<(), ChangeError> {
        let Some(job) = self.jobs.get(at) else {
            return Ok(());
        };
        let (mark, slot, hash) = (job.row.mark.clone(), job.row.slot, job.row.hash.clone());
        if self.works.is_purging(&mark) || self.works.is_paused(&mark, WorkKind::Batch) {
            return Ok(());
        }
        if let Err(error) = self.own_number(at) {
            return self.postpone(&mark, WorkKind::Batch, error);
        }
        let has_slot = |other: &PlannedJob| {
            let is_open = other.row.stage != JobStage::Closed;
            is_open && slot.is_some() && other.row.slot == slot
        };
        let mut others = self.jobs.iter().filter(|other| has_slot(other));
        if others.any(|other| other.row.hash != hash) {
            let taken = ActError::Other(SLOT_TAKEN.to_owned());
            return self.postpone(&mark, WorkKind::Batch, taken);
        }
        self.works.succeed(&mark, WorkKind::Batch);
        self.outboxes.look_again(&mark);
        self.note_fault(&mark, None);
        self.put_stage(at, JobStage::Released);
        Ok(())
    }
}

fn is_of(row: &BatchJobRow, found: &FoundJob) -> bool {
    number_holder(row, found) == NumberHolder::Job
}
