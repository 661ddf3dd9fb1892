//! Collection of results: first the nodes list the outboxes of a job, then the batch system states
//! which tasks run, and then the entries of the other tasks are collected. A task that began after
//! the list cannot look as if it had ended.
//!
//! Each node of a job is collected on its own: one that is slow or does not answer holds up no other.
//! Credits limit the collections at the same time, over all jobs.

use super::credits::OutboxKey;
use super::outboxes::{OutboxList, WaitingOutbox};
use super::state::GatewayLeader;
use super::work::WorkKind;
use crate::distribution::{CollectOrder, CollectedResults};
use crate::parts::now;
use crate::plan::{PlannedJob, Sight};
use crate::results::{ResultJob, order_of};
use driftless_state::jobs::{ChangeError, JobChange, JobNodeState, JobStage, ResultRow};
use driftless_taskfile::ResultPattern;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Interval between two lists of the outboxes of a job that runs.
const INTERVAL: Duration = Duration::from_secs(5);
/// Fault of a node that the gateway has no way to any more.
const UNKNOWN: &str = "the node is not in --nodes of the gateway any more; what was not collected stays in its outbox";

impl GatewayLeader<'_> {
    /// Lists outboxes and collects what is complete, for each job with results.
    pub(super) fn collect(&mut self) -> Result<(), ChangeError> {
        let row = |job: &'_ PlannedJob| (job.row.mark.clone(), job.row.uid);
        let open: HashMap<String, u32> = self.jobs.iter().map(row).collect();
        self.outboxes.retain(&open);
        for at in 0..self.jobs.len() {
            if self.jobs.get(at).is_some_and(has_results) {
                self.list(at)?;
            }
        }
        self.start_collections();
        Ok(())
    }

    /// Asks the nodes of a job for its outboxes if it is time. Nodes whose results wait or are being
    /// collected are left out, and so are those that failed a moment ago.
    fn list(&mut self, at: usize) -> Result<(), ChangeError> {
        let Some(job) = self.jobs.get(at) else {
            return Ok(());
        };
        let (mark, is_final) = (&job.row.mark, job.row.stage == JobStage::Ended);
        let is_listing = self.outboxes.listing.contains(mark);
        if is_listing || is_final && self.outboxes.is_empty(mark) {
            return Ok(());
        }
        let mark = mark.clone();
        let rows = job.nodes.iter();
        let rows = rows.filter(|row| row.state != JobNodeState::Purged);
        let (reached, unknown): (Vec<String>, Vec<String>) = rows
            .map(|row| row.node.clone())
            .partition(|node| self.parts.distribution.reaches(node));
        let is_empty = |node: &String| is_final && self.outboxes.is_node_empty(&mark, node);
        let left: Vec<String> = reached.into_iter().filter(|node| !is_empty(node)).collect();
        if left.is_empty() && is_final {
            self.outboxes.set_empty(&mark);
            for node in unknown {
                self.add_results(&mark, node, Err(UNKNOWN.to_owned()))?;
            }
            return Ok(());
        }
        let may_ask = |node: &String| {
            let is_paused = self
                .works
                .is_paused(&pause_key(&mark, node), WorkKind::Collect);
            !is_paused && !self.outboxes.is_busy(&mark, node)
        };
        let nodes: Vec<String> = left.into_iter().filter(may_ask).collect();
        if nodes.is_empty() || self.is_early(&mark, is_final) {
            return Ok(());
        }
        let asked = (Instant::now(), is_final);
        self.outboxes.asked.insert(mark.clone(), asked);
        let asked = (self.parts.job_name(&mark), nodes);
        let distribution = &self.parts.distribution;
        if self
            .works
            .list_outboxes(&mark, asked, is_final, distribution)
        {
            self.outboxes.listing.insert(mark);
        }
        Ok(())
    }

    /// Returns whether the next list of a job has to wait. The first one after its end has not.
    fn is_early(&self, mark: &str, is_final: bool) -> bool {
        let settings = &self.parts.settings;
        let pause = match is_final {
            true => settings.poll,
            false => settings.poll.max(INTERVAL.min(settings.retry)),
        };
        let asked = self.outboxes.asked.get(mark);
        asked.is_some_and(|(at, was_final)| *was_final == is_final && at.elapsed() < pause)
    }

    /// Notes what nodes answered.
    pub(super) fn note_list(&mut self, mark: &str, list: OutboxList) -> Result<(), ChangeError> {
        self.outboxes.listing.remove(mark);
        let job = self.jobs.iter().find(|job| job.row.mark == mark);
        let Some(uid) = job.map(|job| job.row.uid) else {
            return Ok(());
        };
        for answer in list.answers {
            let node = answer.node;
            match answer.answer {
                Ok(state) if state.has_sealed || !state.names.is_empty() => {
                    let mark = mark.to_owned();
                    self.outboxes.push(WaitingOutbox {
                        key: OutboxKey { mark, node, uid },
                        listed: list.ended,
                        is_final: list.is_final,
                        state,
                    });
                }
                Ok(_) => self.note_empty(mark, node, list.is_final)?,
                Err(cause) => self.note_silent(mark, node, (cause, list.is_final))?,
            }
        }
        Ok(())
    }

    fn note_empty(&mut self, mark: &str, node: String, is_final: bool) -> Result<(), ChangeError> {
        let key = pause_key(mark, &node);
        self.works.succeed(&key, WorkKind::Collect);
        if !is_final {
            return Ok(());
        }
        self.outboxes.set_node_empty(mark, &node);
        match self.fault_of_results(mark, &node) {
            Some(_) => self.add_results(mark, node, Ok(CollectedResults::default())),
            None => Ok(()),
        }
    }

    /// Notes that a node did not list its outbox. While tasks run, this is no problem of the results.
    fn note_silent(
        &mut self,
        mark: &str,
        node: String,
        (cause, is_final): (String, bool),
    ) -> Result<(), ChangeError> {
        let key = pause_key(mark, &node);
        self.works.pause(&key, WorkKind::Collect);
        match is_final {
            true => self.add_results(mark, node, Err(cause)),
            false => {
                tracing::debug!("job {}: {cause}", self.shown(mark));
                Ok(())
            }
        }
    }

    /// Starts collections while there are credits.
    fn start_collections(&mut self) {
        while self.lease.is_sure(Instant::now()) {
            let sight = &self.sight;
            let is_due = |one: &WaitingOutbox| one.is_final || sight.is_younger(one.listed);
            let credits = self.parts.settings.collections_max;
            let Some(WaitingOutbox { key, state, .. }) = self.outboxes.next(credits, &is_due)
            else {
                return;
            };
            let order = self.order_of_results(&key, &state.names);
            let order = order.filter(|order| !order.moves.is_empty() || state.has_sealed);
            let Some(order) = order else {
                self.outboxes.end(&key.mark, &key.node);
                continue;
            };
            let (mark, node) = (key.mark.clone(), key.node.clone());
            let stop = self.outboxes.begin(key);
            let distribution = &self.parts.distribution;
            if !self.works.collect(&mark, order, stop, distribution) {
                self.outboxes.end(&mark, &node);
                let key = pause_key(&mark, &node);
                self.works.pause(&key, WorkKind::Collect);
            }
        }
    }

    /// Returns the order for the entries of a node whose tasks ended, by the last answer of the batch
    /// system: a task may have begun again while its results waited for a credit.
    fn order_of_results(&self, key: &OutboxKey, names: &[Vec<u8>]) -> Option<CollectOrder> {
        let job = self.jobs.iter().find(|job| job.row.mark == key.mark)?;
        let name = self.parts.job_name(&job.row.mark);
        let pattern = pattern_of(job)?;
        let of_results = ResultJob {
            name: &name,
            uid: job.row.uid,
            number: job.row.number.as_deref()?,
            pattern: &pattern,
        };
        let sight = self.sight.of(job);
        let is_ended = |task| job.row.stage == JobStage::Ended || is_task_ended(sight, task);
        Some(order_of(&of_results, &key.node, names, &is_ended))
    }

    /// Notes the end of a collection.
    pub(super) fn note_collected(
        &mut self,
        mark: &str,
        node: String,
        outcome: Result<CollectedResults, String>,
    ) -> Result<(), ChangeError> {
        self.outboxes.end(mark, &node);
        let key = pause_key(mark, &node);
        match outcome.is_ok() {
            true => self.works.succeed(&key, WorkKind::Collect),
            false => self.works.pause(&key, WorkKind::Collect),
        }
        self.add_results(mark, node, outcome)
    }

    /// Adds to the table what a node brought, or why it brought nothing. Writes a new cause to the log.
    fn add_results(
        &mut self,
        mark: &str,
        node: String,
        outcome: Result<CollectedResults, String>,
    ) -> Result<(), ChangeError> {
        let (collected, fault) = match outcome {
            Ok(collected) => (collected, None),
            Err(cause) => (CollectedResults::default(), Some(cause)),
        };
        if let Some(cause) = &fault
            && self.fault_of_results(mark, &node).as_ref() != Some(cause)
        {
            tracing::warn!("job {}: results of {node}: {cause}", self.shown(mark));
        }
        let row = ResultRow {
            node,
            entries: collected.entries,
            bytes: collected.bytes,
            fault,
            changed: now(),
        };
        let mark = mark.to_owned();
        self.note(JobChange::Results { mark, row });
        Ok(())
    }

    /// Returns the cause of the last failure with the results of a node, by the table and the changes
    /// that it lacks yet.
    fn fault_of_results(&self, mark: &str, node: &str) -> Option<String> {
        if let Some(row) = self.noted_results(mark, node) {
            return row.fault.clone();
        }
        let known = self.parts.table.lock().results(mark).unwrap_or_default();
        known.into_iter().find(|row| row.node == node)?.fault
    }
}

/// Returns the name under which attempts for the results of a job on a node wait.
fn pause_key(mark: &str, node: &str) -> String {
    format!("{mark} {node}")
}

/// Returns whether results of a job may lie on nodes.
fn has_results(job: &PlannedJob) -> bool {
    let has_begun = matches!(
        job.row.stage,
        JobStage::Releasing | JobStage::Released | JobStage::Ended
    );
    has_begun && job.request.results.is_some()
}

fn pattern_of(job: &PlannedJob) -> Option<ResultPattern> {
    ResultPattern::parse(job.request.results.as_deref()?).ok()
}

/// Returns whether a task ended, by what the batch system states. Entries of no task wait for the end
/// of the job.
fn is_task_ended(sight: Sight<'_>, task: Option<u64>) -> bool {
    match (sight, task) {
        (Sight::Alive(live), Some(task)) => live
            .running
            .iter()
            .all(|running| running.index != Some(task)),
        _ => false,
    }
}
