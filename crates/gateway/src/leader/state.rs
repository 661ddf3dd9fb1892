//! State of the gateway that acts, and how the table follows it.

use super::outboxes::Outboxes;
use super::references::References;
use super::sight::BatchSight;
use super::told::ToldReadiness;
use super::work::Works;
use crate::JobRequest;
use crate::lease::GatewayLease;
use crate::parts::{GatewayParts, now};
use crate::plan::PlannedJob;
use driftless_state::jobs::{ChangeError, JobNodeRow, JobStage};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The gateway that acts.
pub(crate) struct GatewayLeader<'a> {
    pub parts: &'a Arc<GatewayParts>,
    pub lease: GatewayLease,
    pub jobs: Vec<PlannedJob>,
    pub version: Option<(i64, i64)>,
    pub sight: BatchSight,
    pub works: Works,
    pub told: ToldReadiness,
    pub outboxes: Outboxes,
    pub references: References,
    pub forgotten: Option<Instant>,
}

impl<'a> GatewayLeader<'a> {
    pub fn new(parts: &'a Arc<GatewayParts>, lease: GatewayLease) -> Self {
        GatewayLeader {
            parts,
            lease,
            jobs: Vec::new(),
            version: None,
            sight: BatchSight::default(),
            works: Works::new(parts.settings.retry),
            told: ToldReadiness::default(),
            outboxes: Outboxes::default(),
            references: References::default(),
            forgotten: None,
        }
    }

    pub fn renew(&mut self) -> Result<(), ChangeError> {
        let mut table = self.parts.table.lock();
        self.lease.keep(&mut table, Instant::now())
    }

    /// Reads the table if it changed.
    pub fn reload(&mut self) -> Result<(), ChangeError> {
        let table = self.parts.table.lock();
        let version = table.version()?;
        if self.version == Some(version) {
            return Ok(());
        }
        let (rows, nodes) = (table.open_jobs()?, table.open_nodes()?);
        drop(table);
        let mut of_job: HashMap<String, Vec<JobNodeRow>> = HashMap::new();
        for (mark, node) in nodes {
            of_job.entry(mark).or_default().push(node);
        }
        let planned = |row: driftless_state::jobs::BatchJobRow| PlannedJob {
            request: JobRequest::decode(&row.request).unwrap_or_default(),
            nodes: of_job.remove(&row.mark).unwrap_or_default(),
            row,
        };
        self.jobs = rows.into_iter().map(planned).collect();
        self.version = Some(version);
        Ok(())
    }

    /// Writes new causes of nodes to the log.
    pub fn log_failed(&self, mark: &str, rows: &[JobNodeRow]) {
        let known = self.jobs.iter().find(|job| job.row.mark == mark);
        for row in rows {
            let is_known = known.is_some_and(|job| job.nodes.contains(row));
            if let Some(fault) = row.fault.as_ref().filter(|_| !is_known) {
                tracing::warn!("job {}: {}: {fault}", self.shown(mark), row.node);
            }
        }
    }

    /// Notes the last problem of a job, and writes it to the log if it is new.
    pub fn note_fault(&mut self, mark: &str, fault: Option<&str>) -> Result<(), ChangeError> {
        let known = self.jobs.iter().find(|job| job.row.mark == mark);
        let is_known = known.is_some_and(|job| job.row.fault.as_deref() == fault);
        if is_known {
            return Ok(());
        }
        if let Some(fault) = fault {
            tracing::warn!("job {}: {fault}", self.shown(mark));
        }
        let mut table = self.parts.table.lock();
        table.set_fault(self.lease.epoch, mark, fault)
    }

    /// Returns the number of a job for messages, or its mark.
    pub fn shown(&self, mark: &str) -> String {
        let known = self.jobs.iter().find(|job| job.row.mark == mark);
        let number = known.and_then(|job| job.row.number.clone());
        number.unwrap_or_else(|| mark.to_owned())
    }

    /// Notes the stage of a job. Later acts of the same turn see it.
    pub fn put_stage(&mut self, at: usize, stage: JobStage) -> Result<(), ChangeError> {
        let Some(job) = self.jobs.get_mut(at) else {
            return Ok(());
        };
        let (now, mut table) = (now(), self.parts.table.lock());
        table.set_stage(self.lease.epoch, &job.row.mark, stage, now)?;
        (job.row.stage, job.row.changed) = (stage, now);
        Ok(())
    }

    /// Notes the slot of a job. Later acts of the same turn choose no slot that is taken.
    pub fn put_slot(
        &mut self,
        at: usize,
        slot: Option<u32>,
        is_required: bool,
    ) -> Result<(), ChangeError> {
        let Some(job) = self.jobs.get_mut(at) else {
            return Ok(());
        };
        let mut table = self.parts.table.lock();
        table.set_slot(self.lease.epoch, &job.row.mark, slot, is_required)?;
        (job.row.slot, job.row.is_required) = (slot, is_required);
        Ok(())
    }
}
