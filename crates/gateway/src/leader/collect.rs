//! Collection of results: first the nodes list the outboxes of a job, then the batch system states
//! which tasks run, and then the entries of the other tasks are collected. A task that began after
//! the list cannot look as if it had ended.

use super::outboxes::OutboxList;
use super::state::GatewayLeader;
use super::work::WorkKind;
use crate::distribution::{CollectOrder, CollectedResults, NodeAnswer, OutboxState};
use crate::parts::now;
use crate::plan::{PlannedJob, Sight};
use crate::results::{ResultJob, order_of};
use driftless_state::jobs::{ChangeError, JobNodeState, JobStage, ResultRow};
use driftless_taskfile::ResultPattern;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Interval between two lists of the outboxes of a job that runs.
const INTERVAL: Duration = Duration::from_secs(5);

impl GatewayLeader<'_> {
    /// Lists outboxes and collects what is complete, for each job with results.
    pub(super) fn collect(&mut self) -> Result<(), ChangeError> {
        let known: HashSet<String> = self.jobs.iter().map(|job| job.row.mark.clone()).collect();
        self.outboxes.asked.retain(|mark, _| known.contains(mark));
        self.outboxes.listed.retain(|mark, _| known.contains(mark));
        self.outboxes.empty.retain(|mark| known.contains(mark));
        for at in 0..self.jobs.len() {
            let Some(job) = self.jobs.get(at).filter(|job| has_results(job)) else {
                continue;
            };
            let mark = job.row.mark.clone();
            if self.works.is_collecting(&mark) {
                continue;
            }
            match self.outboxes.listed.remove(&mark) {
                Some(list) if list.is_final || self.sight.is_younger(list.ended) => {
                    self.collect_listed(at, list);
                }
                Some(waiting) => {
                    self.outboxes.listed.insert(mark, waiting);
                }
                None => self.list(at),
            }
        }
        Ok(())
    }

    /// Asks the nodes of a job for its outboxes if it is time.
    fn list(&mut self, at: usize) {
        let Some(job) = self.jobs.get(at) else {
            return;
        };
        let mark = job.row.mark.clone();
        let is_ended = job.row.stage == JobStage::Ended;
        let pause = self
            .parts
            .settings
            .poll
            .max(INTERVAL.min(self.parts.settings.retry));
        let is_early = self
            .outboxes
            .asked
            .get(&mark)
            .is_some_and(|at| at.elapsed() < pause);
        let is_done = is_ended && self.outboxes.is_empty(&mark);
        if is_early || is_done || self.works.is_paused(&mark, WorkKind::Collect) {
            return;
        }
        let reached = |node: &String| self.parts.distribution.reaches(node);
        let nodes = job
            .nodes
            .iter()
            .filter(|row| row.state != JobNodeState::Purged);
        let nodes: Vec<String> = nodes.map(|row| row.node.clone()).filter(reached).collect();
        self.outboxes.asked.insert(mark.clone(), Instant::now());
        match nodes.is_empty() {
            true if is_ended => {
                self.outboxes.empty.insert(mark);
            }
            true => {}
            false => {
                let name = self.parts.job_name(&mark);
                let distribution = &self.parts.distribution;
                self.works
                    .list_outboxes(&mark, (name, nodes), is_ended, distribution);
            }
        }
    }

    /// Starts the collection of the entries of tasks that ended.
    fn collect_listed(&mut self, at: usize, list: OutboxList) {
        let Some(job) = self.jobs.get(at) else {
            return;
        };
        let mark = job.row.mark.clone();
        let OutboxList {
            is_final, answers, ..
        } = list;
        let silent = answers
            .iter()
            .find_map(|answer| answer.answer.as_ref().err());
        if let Some(cause) = silent {
            tracing::debug!("job {}: {cause}", self.shown(&mark));
        }
        let is_whole = silent.is_none();
        let orders = self.orders(job, answers);
        if !orders.is_empty() {
            self.works.collect(&mark, orders, &self.parts.distribution);
        } else if !is_whole {
            self.works.pause(&mark, WorkKind::Collect);
        } else if is_final {
            self.outboxes.empty.insert(mark);
        }
    }

    fn orders(&self, job: &PlannedJob, answers: Vec<NodeAnswer<OutboxState>>) -> Vec<CollectOrder> {
        let (Some(number), Some(pattern)) = (&job.row.number, pattern_of(job)) else {
            return Vec::new();
        };
        let name = self.parts.job_name(&job.row.mark);
        let job_of_results = ResultJob {
            name: &name,
            uid: job.row.uid,
            number,
            pattern: &pattern,
        };
        let sight = self.sight.of(job);
        let is_ended = |task| job.row.stage == JobStage::Ended || is_task_ended(sight, task);
        let order = |answer: NodeAnswer<OutboxState>| {
            let state = answer.answer.ok()?;
            let order = order_of(&job_of_results, &answer.node, &state.names, &is_ended);
            (!order.moves.is_empty() || state.has_sealed).then_some(order)
        };
        answers.into_iter().filter_map(order).collect()
    }

    /// Writes the cause of a failed collection to the log if it is new.
    fn log_uncollected(&self, mark: &str, node: &str, cause: &str) {
        let known = self.parts.table.lock().results(mark).unwrap_or_default();
        let is_known = |row: &ResultRow| row.node == node && row.fault.as_deref() == Some(cause);
        if !known.iter().any(is_known) {
            tracing::warn!("job {}: results of {node}: {cause}", self.shown(mark));
        }
    }

    /// Notes what a collection brought.
    pub(super) fn note_collected(
        &mut self,
        mark: &str,
        node: String,
        outcome: Result<CollectedResults, String>,
    ) -> Result<(), ChangeError> {
        let (collected, fault) = match outcome {
            Ok(collected) => (collected, None),
            Err(cause) => {
                self.log_uncollected(mark, &node, &cause);
                (CollectedResults::default(), Some(cause))
            }
        };
        let row = ResultRow {
            node,
            entries: collected.entries,
            bytes: collected.bytes,
            fault,
            changed: now(),
        };
        let mut table = self.parts.table.lock();
        table.add_results(self.lease.epoch, mark, &row)
    }
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
