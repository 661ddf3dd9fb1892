//! State of the gateway that acts, and how the table follows it.

use super::candidates::CandidateNodes;
use super::health::NodeSigns;
use super::outboxes::Outboxes;
use super::references::References;
use super::sight::BatchSight;
use super::told::ToldReadiness;
use super::work::Works;
use crate::JobRequest;
use crate::lease::GatewayLease;
use crate::parts::{GatewayParts, now};
use crate::plan::PlannedJob;
use driftless_batch::JobId;
use driftless_state::jobs::{BatchJobRow, ChangeError, JobChange, JobNodeRow, JobStage, ResultRow};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval at which the table is read, even if no other process changed it.
const REREAD: Duration = Duration::from_secs(60);

/// The gateway that acts.
pub(crate) struct GatewayLeader<'a> {
    pub parts: &'a Arc<GatewayParts>,
    pub lease: &'a GatewayLease,
    pub jobs: Vec<PlannedJob>,
    /// Version of the table that was read last, and when.
    read: Option<((i64, u64), Instant)>,
    /// Changes of jobs that the table lacks yet.
    changes: Vec<JobChange>,
    pub sight: BatchSight,
    pub candidates: CandidateNodes,
    pub health: NodeSigns,
    pub works: Works,
    pub told: ToldReadiness,
    pub outboxes: Outboxes,
    pub references: References,
    pub forgotten: Option<Instant>,
    /// Closed jobs, by their numbers. `None` until they are read.
    pub closed: Option<HashMap<JobId, BatchJobRow>>,
    /// Failure of the table that the log has already.
    pub table_fault: Option<String>,
}

impl<'a> GatewayLeader<'a> {
    pub fn new(parts: &'a Arc<GatewayParts>, lease: &'a GatewayLease) -> Self {
        GatewayLeader {
            parts,
            lease,
            jobs: Vec::new(),
            read: None,
            changes: Vec::new(),
            sight: BatchSight::default(),
            candidates: CandidateNodes::default(),
            health: NodeSigns::new(parts.settings.retry),
            works: Works::new(parts.settings.retry),
            told: ToldReadiness::default(),
            outboxes: Outboxes::default(),
            references: References::default(),
            forgotten: None,
            closed: None,
            table_fault: None,
        }
    }

    pub fn renew(&mut self) -> Result<(), ChangeError> {
        let now = Instant::now();
        self.lease.note_step(now);
        self.lease.keep(&self.parts.table, now)
    }

    /// Reads the table if a client or another process changed it. The leader follows its own changes.
    pub fn reload(&mut self) -> Result<(), ChangeError> {
        self.flush()?;
        let table = self.parts.table.lock();
        let version = table.version_of_others()?;
        let is_same = |(read, at): (_, Instant)| read == version && at.elapsed() < REREAD;
        if self.read.is_some_and(is_same) {
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
        self.read = Some((version, Instant::now()));
        Ok(())
    }

    /// Reads the table in the next turn.
    pub fn reread(&mut self) {
        self.read = None;
    }

    /// Notes changes of a job. The table gets them with [`flush`](Self::flush).
    pub fn note(&mut self, change: JobChange) {
        let of_mark = |job: &&mut PlannedJob| job.row.mark == change.mark();
        if let Some(job) = self.jobs.iter_mut().find(of_mark) {
            job.follow(&change);
        }
        self.changes.push(change);
    }

    /// Writes all changes that were noted, in one transaction.
    pub fn flush(&mut self) -> Result<(), ChangeError> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut table = self.parts.table.lock();
        table.change_jobs(self.lease.epoch, &self.changes)?;
        self.changes.clear();
        Ok(())
    }

    /// Returns the last results of a job from a node that were noted, and that the table lacks yet.
    pub fn noted_results(&self, mark: &str, node: &str) -> Option<&ResultRow> {
        self.changes.iter().rev().find_map(|change| match change {
            JobChange::Results { mark: of, row } if of == mark && row.node == node => Some(row),
            _ => None,
        })
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
    pub fn note_fault(&mut self, mark: &str, fault: Option<&str>) {
        let known = self.jobs.iter().find(|job| job.row.mark == mark);
        let is_known = known.is_some_and(|job| job.row.fault.as_deref() == fault);
        if is_known {
            return;
        }
        if let Some(fault) = fault {
            tracing::warn!("job {}: {fault}", self.shown(mark));
        }
        self.note(JobChange::Fault {
            mark: mark.to_owned(),
            fault: fault.map(str::to_owned),
        });
    }

    /// Notes nodes of a job.
    pub fn note_nodes(&mut self, mark: &str, rows: Vec<JobNodeRow>) {
        if !rows.is_empty() {
            let mark = mark.to_owned();
            self.note(JobChange::Nodes { mark, rows });
        }
    }

    /// Returns the number of a job for messages, or its mark.
    pub fn shown(&self, mark: &str) -> String {
        let known = self.jobs.iter().find(|job| job.row.mark == mark);
        let number = known.and_then(|job| job.row.number.clone());
        number.unwrap_or_else(|| mark.to_owned())
    }

    /// Notes the stage of a job. Later acts of the same turn see it.
    pub fn put_stage(&mut self, at: usize, stage: JobStage) {
        if let Some(job) = self.jobs.get(at) {
            let mark = job.row.mark.clone();
            let now = now();
            self.note(JobChange::Stage { mark, stage, now });
        }
    }

    /// Notes the slot of a job. Later acts of the same turn choose no slot that is taken.
    pub fn put_slot(&mut self, at: usize, slot: Option<u32>, is_required: bool) {
        if let Some(job) = self.jobs.get(at) {
            self.note(JobChange::Slot {
                mark: job.row.mark.clone(),
                slot,
                is_required,
            });
        }
    }
}
