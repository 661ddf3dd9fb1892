//! Collection of results: the nodes list the outboxes of a job, and the entries of tasks that ended are
//! collected. The last answer of the batch system chooses them. Right before they are sealed, the
//! batch system is asked once more (`CollectGuard`): a task may have begun again meanwhile.
//!
//! Each node of a job is collected on its own: one that is slow or does not answer holds up no other.
//! Credits limit the collections at the same time, over all jobs.

use super::claims::TaskClaims;
use super::credits::OutboxKey;
use super::guard::LeaderGuard;
use super::outboxes::{OutboxList, WaitingOutbox};
use super::state::GatewayLeader;
use super::tasks::LastRun;
use super::work::{CollectWork, WorkKind};
use crate::distribution::{CollectGuard, CollectOrder, CollectOutcome, OutboxState};
use crate::parts::now;
use crate::plan::{PlannedJob, Sight};
use crate::results::{EntryFate, ResultJob, is_shared_by_nodes, order_of, task_of};
use driftless_batch::JobId;
use driftless_state::jobs::{ChangeError, JobChange, JobNodeState, JobStage, ResultRow};
use driftless_taskfile::ResultPattern;
use std::collections::HashMap;
use std::sync::Arc;
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
        self.see_tasks();
        for at in 0..self.jobs.len() {
            if self.jobs.get(at).is_some_and(has_results) {
                self.list(at)?;
            }
        }
        self.start_collections()
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
                self.add_results(&mark, node, CollectOutcome::failed(UNKNOWN.to_owned()));
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
            self.outboxes.note_listing(mark);
        }
        Ok(())
    }

    /// Follows the last answer of the batch system.
    fn see_tasks(&mut self) {
        if self.sight.answered == self.outboxes.seen {
            return;
        }
        self.outboxes.seen = self.sight.answered;
        for job in self.jobs.iter().filter(|job| job.request.results.is_some()) {
            if let Sight::Alive(live) = self.sight.of(job) {
                let tasks = self.outboxes.tasks.entry(job.row.mark.clone());
                tasks.or_default().see(live);
            }
        }
    }

    /// Returns whether the next list of a job has to wait. The first one after its end has not, and one
    /// after the end of a task waits for less long.
    fn is_early(&self, mark: &str, is_final: bool) -> bool {
        let settings = &self.parts.settings;
        let pause = match is_final || self.outboxes.has_ended_task(mark) {
            true => settings.poll,
            false => settings.poll.max(INTERVAL.min(settings.retry)),
        };
        let asked = self.outboxes.asked.get(mark);
        asked.is_some_and(|(at, was_final)| *was_final == is_final && at.elapsed() < pause)
    }

    /// Notes what nodes answered.
    pub(super) fn note_list(&mut self, mark: &str, list: OutboxList) {
        self.outboxes.listing.remove(mark);
        let job = self.jobs.iter().find(|job| job.row.mark == mark);
        let Some(uid) = job.map(|job| job.row.uid) else {
            return;
        };
        for answer in list.answers {
            let node = answer.node;
            match answer.answer {
                Ok(state) if state.has_sealed || !state.names.is_empty() => {
                    let mark = mark.to_owned();
                    self.outboxes.push(WaitingOutbox {
                        key: OutboxKey { mark, node, uid },
                        state,
                    });
                }
                Ok(_) => self.note_empty(mark, node, list.is_final),
                Err(cause) => self.note_silent(mark, node, (cause, list.is_final)),
            }
        }
    }

    fn note_empty(&mut self, mark: &str, node: String, is_final: bool) {
        let key = pause_key(mark, &node);
        self.works.succeed(&key, WorkKind::Collect);
        if !is_final {
            return;
        }
        self.outboxes.set_node_empty(mark, &node);
        if self.fault_of_results(mark, &node).is_some() {
            self.add_results(mark, node, CollectOutcome::default());
        }
    }

    /// Notes that a node did not list its outbox. While tasks run, this is no problem of the results.
    fn note_silent(&mut self, mark: &str, node: String, (cause, is_final): (String, bool)) {
        let key = pause_key(mark, &node);
        self.works.pause(&key, WorkKind::Collect);
        match is_final {
            true => self.add_results(mark, node, CollectOutcome::failed(cause)),
            false => tracing::debug!("job {}: {cause}", self.shown(mark)),
        }
    }

    /// Starts collections while there are credits.
    fn start_collections(&mut self) -> Result<(), ChangeError> {
        while self.lease.is_sure(Instant::now()) {
            let credits = self.parts.settings.collections_max;
            let Some(WaitingOutbox { key, state }) = self.outboxes.next(credits) else {
                return Ok(());
            };
            let order = self.order_of_results(&key, &state);
            if order.is_err() {
                // The next list finds these results again.
                self.outboxes.end(&key.mark, &key.node);
            }
            let order = order?;
            let order = order.filter(|order| !order.moves.is_empty() || order.has_sealed);
            let guard = self.guard(&key.mark);
            let (Some(order), Some(guard)) = (order, guard) else {
                self.outboxes.end(&key.mark, &key.node);
                continue;
            };
            let (mark, node) = (key.mark.clone(), key.node.clone());
            let stop = self.outboxes.begin(key);
            let distribution = &self.parts.distribution;
            let work = CollectWork { order, guard, stop };
            if !self.works.collect(&mark, work, distribution) {
                self.outboxes.end(&mark, &node);
                let key = pause_key(&mark, &node);
                self.works.pause(&key, WorkKind::Collect);
            }
        }
        Ok(())
    }

    fn guard(&self, mark: &str) -> Option<Box<dyn CollectGuard>> {
        let job = self.jobs.iter().find(|job| job.row.mark == mark)?;
        Some(Box::new(LeaderGuard {
            parts: Arc::clone(self.parts),
            answers: Arc::clone(&self.outboxes.answers),
            epoch: self.lease.epoch,
            number: JobId::new(job.row.number.as_deref()?)?,
            is_over: job.row.stage == JobStage::Ended,
        }))
    }

    /// Returns the order for the entries of a node whose tasks ended, by the last answer of the batch
    /// system. The table notes before whose results go to the path of a task.
    fn order_of_results(
        &self,
        key: &OutboxKey,
        state: &OutboxState,
    ) -> Result<Option<CollectOrder>, ChangeError> {
        let found = self.jobs.iter().find(|job| job.row.mark == key.mark);
        let Some((job, pattern)) = found.and_then(|job| Some((job, pattern_of(job)?))) else {
            return Ok(None);
        };
        let Some(number) = job.row.number.as_deref() else {
            return Ok(None);
        };
        let name = self.parts.job_name(&job.row.mark);
        let of_results = ResultJob {
            name: &name,
            uid: job.row.uid,
            number,
            pattern: &pattern,
        };
        let claims = self.claims(job, &pattern, (key.node.as_str(), state))?;
        let is_over = job.row.stage == JobStage::Ended;
        let fate = |task: Option<u64>| match task {
            _ if !is_over && !self.has_task_ended(job, task) => EntryFate::Stay,
            Some(task) if claims.is_earlier(task) => EntryFate::SetAside,
            _ => EntryFate::Collect,
        };
        let order = order_of(&of_results, &key.node, &state.names, &fate);
        Ok(Some(CollectOrder {
            has_sealed: state.has_sealed,
            ..order
        }))
    }

    /// Decides which results of a node go to the path of their task, and notes it.
    fn claims(
        &self,
        job: &PlannedJob,
        pattern: &ResultPattern,
        (node, state): (&str, &OutboxState),
    ) -> Result<TaskClaims, ChangeError> {
        if !is_shared_by_nodes(pattern) {
            return Ok(TaskClaims::default());
        }
        let mut table = self.parts.table.lock();
        let mut claims = TaskClaims::new(node, table.task_results(&job.row.mark)?);
        let tasks = self.outboxes.tasks.get(&job.row.mark);
        let is_node = |name: &String| job.has_node(name);
        for task in state.names.iter().filter_map(|name| task_of(name)) {
            if job.row.stage == JobStage::Ended || self.has_task_ended(job, Some(task)) {
                let last = tasks.map(|tasks| tasks.last_run(task, &is_node));
                claims.decide(task, last.unwrap_or(LastRun::Unknown));
            }
        }
        let changed = claims.changed();
        if !changed.is_empty() {
            table.set_task_results(self.lease.epoch, &job.row.mark, &changed)?;
        }
        Ok(claims)
    }

    /// Returns whether a task ended, by what the batch system stated last. Entries of no task wait for
    /// the end of the job, and so do those whose names are no indices of the job.
    fn has_task_ended(&self, job: &PlannedJob, task: Option<u64>) -> bool {
        let tasks = self.outboxes.tasks.get(&job.row.mark);
        match (self.sight.of(job), task, tasks) {
            (Sight::Alive(live), Some(task), Some(tasks)) => {
                tasks.has(task) && !live.has_task(task)
            }
            _ => false,
        }
    }

    /// Notes the end of a collection.
    pub(super) fn note_collected(&mut self, mark: &str, node: String, outcome: CollectOutcome) {
        self.outboxes.end(mark, &node);
        let key = pause_key(mark, &node);
        match outcome.fault {
            None => self.works.succeed(&key, WorkKind::Collect),
            Some(_) => self.works.pause(&key, WorkKind::Collect),
        }
        self.add_results(mark, node, outcome);
    }

    /// Adds to the table what a node brought, and why it brought not all. Writes a new cause to the log.
    fn add_results(&mut self, mark: &str, node: String, outcome: CollectOutcome) {
        let CollectOutcome { collected, fault } = outcome;
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
