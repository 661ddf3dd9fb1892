//! The acts for one job: cast, release, end, purge, close. Each can be repeated.

use super::signs::silent_row;
use super::state::GatewayLeader;
use super::work::WorkKind;
use crate::distribution::LoadOrder;
use crate::plan::{NumberHolder, PlannedJob, SlotNodes, number_holder, slot_for, slot_nodes};
use driftless_batch::{BatchError, DataSlot, JobId};
use driftless_cast::parse_hostlist;
use driftless_state::jobs::{ChangeError, JobNodeRow, JobNodeState, JobStage};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval at which nodes that came up are looked for.
const REFRESH: Duration = Duration::from_secs(30);
/// Pause of a job without a node on which it may run, as a multiple of the first pause after a failure:
/// it costs no command.
const WITHOUT_NODES: u32 = 3;
/// Nodes that a message names.
const SHOWN_MAX: usize = 3;

/// Fault of a job whose mark is gone.
const UNMARKED: &str = "the job carries its mark no more, because its comment or variables were changed: cancel it, and submit it again";

/// Cause that an act for a job did not succeed.
pub(super) enum ActError {
    /// The table failed, or another gateway acts.
    Change(ChangeError),
    /// The batch system failed.
    Batch(Arc<BatchError>),
    /// The batch system does not have the job any more: its next answers say so.
    Absent,
    /// No node can get the data set now. Cause and remedy.
    NoNode(String),
    /// Cause and remedy.
    Other(String),
}

impl From<ChangeError> for ActError {
    fn from(error: ChangeError) -> Self {
        ActError::Change(error)
    }
}

impl From<BatchError> for ActError {
    fn from(error: BatchError) -> Self {
        ActError::Batch(Arc::new(error))
    }
}

impl GatewayLeader<'_> {
    /// Starts a cast for a job, if one may start.
    pub(super) fn load(&mut self, at: usize) -> Result<(), ChangeError> {
        let Some(job) = self.jobs.get(at) else {
            return Ok(());
        };
        let mark = job.row.mark.clone();
        if self.works.is_paused(&mark, WorkKind::Load) || self.works.is_full_of(&mark) {
            return Ok(());
        }
        let is_loading = self.works.is_loading(&mark);
        if is_loading && !self.lacks_others(job) {
            return Ok(());
        }
        if self.lacks_silent_alone(job) {
            // Their first answer ends the wait. Other nodes may come up meanwhile.
            self.refresh(at);
            return Ok(());
        }
        if self.works.is_full(self.parts.settings.casts_max) {
            return Ok(());
        }
        match self.order(at) {
            Ok(Some(order)) => {
                // The table states the nodes before they get anything.
                self.flush()?;
                let (now, distribution) = (Instant::now(), &self.parts.distribution);
                let nodes = order.nodes.iter().cloned();
                let proven = nodes.filter(|node| self.health.is_proven(node, now));
                let proven = proven.collect();
                self.works.load(&mark, order, proven, distribution);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => self.postpone(&mark, WorkKind::Load, error),
        }
    }

    /// Returns the order of a cast to the nodes that lack the data set, and notes these nodes. Silent
    /// nodes get no cast. `None` if all are silent, or the batch system has to be asked later.
    fn order(&mut self, at: usize) -> Result<Option<LoadOrder>, ActError> {
        let Some(nodes) = self.candidates(at)? else {
            return Ok(None);
        };
        let job = self.job(at)?;
        let is_ready = |node: &String| {
            let row = job.nodes.iter().find(|row| row.node == *node);
            let is_ready = row.is_some_and(|row| row.state == JobNodeState::Ready);
            is_ready || self.works.is_loading_to(&job.row.mark, node)
        };
        let lacking: Vec<String> = nodes.into_iter().filter(|node| !is_ready(node)).collect();
        if lacking.is_empty() && self.works.is_loading(&job.row.mark) {
            return Ok(None);
        }
        if lacking.is_empty() {
            let why = "the nodes that lack the data are down; the gateway tries again".to_owned();
            return Err(ActError::NoNode(why));
        }
        // A node that failed keeps its cause until the next outcome.
        let rows = self.rows_of(lacking.iter().filter(|node| !job.has_node(node)));
        let is_silent = |node: &String| self.health.silence(node).is_some();
        let nodes: Vec<String> = lacking
            .into_iter()
            .filter(|node| !is_silent(node))
            .collect();
        let order = (!nodes.is_empty()).then(|| LoadOrder {
            job: self.parts.job_name(&job.row.mark),
            uid: job.row.uid,
            sources: job.request.source_paths(),
            nodes,
            set: job.first_set(),
            has_results: job.request.results.is_some(),
            keeping: job.request.keeping,
        });
        let mark = job.row.mark.clone();
        self.note_nodes(&mark, rows);
        Ok(order)
    }

    /// Adds nodes that came up since the first cast of a job.
    pub(super) fn refresh(&mut self, at: usize) {
        let Some(job) = self.jobs.get(at) else {
            return;
        };
        let mark = job.row.mark.clone();
        if self.works.is_paused(&mark, WorkKind::Refresh) {
            return;
        }
        // After an error, the next refresh asks again.
        let nodes = match self.candidates(at) {
            Ok(None) => return,
            Ok(Some(nodes)) => nodes,
            Err(_) => Vec::new(),
        };
        self.works.pause_for(&mark, WorkKind::Refresh, REFRESH);
        let known = self.jobs.get(at);
        let is_new = |node: &&String| known.is_some_and(|job| !job.has_node(node));
        let rows = self.rows_of(nodes.iter().filter(is_new));
        self.note_nodes(&mark, rows);
    }

    /// Returns the rows of nodes that are to get a data set.
    fn rows_of<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> Vec<JobNodeRow> {
        let row = |node: &String| match self.health.silence(node) {
            Some(cause) => silent_row(node.clone(), cause),
            None => JobNodeRow {
                node: node.clone(),
                state: JobNodeState::Wanted,
                fault: None,
            },
        };
        nodes.map(row).collect()
    }

    /// Returns the nodes that may get the data set of a job now. `None` if the batch system has to be
    /// asked, and it is too early for that.
    fn candidates(&mut self, at: usize) -> Result<Option<Vec<String>>, ActError> {
        let number = number_of(self.job(at)?)?;
        let mut now = Instant::now();
        let all = || jobs_to_ask(&self.jobs);
        if let Some(asked) = self.candidates.question_for(&number, all, now) {
            let answer = self.parts.batch.candidates(&asked);
            let end = Instant::now();
            self.candidates.note(answer, (now, end));
            now = end;
        }
        match self.candidates.of(&number, now) {
            None => Ok(None),
            Some(Err(error)) => Err(ActError::Batch(error)),
            Some(Ok(nodes)) => self.reached(self.job(at)?, nodes).map(Some),
        }
    }

    /// Returns the nodes on which a job may run, which its user wants, and which the gateway reaches.
    fn reached(&self, job: &PlannedJob, candidates: Vec<String>) -> Result<Vec<String>, ActError> {
        let wanted = wanted_nodes(job).map_err(ActError::Other)?;
        let is_wanted = |node: &String| {
            wanted
                .as_ref()
                .is_none_or(|wanted| wanted.contains(node.as_str()))
        };
        let all: Vec<String> = candidates.into_iter().filter(is_wanted).collect();
        let (reached, others): (Vec<String>, Vec<String>) = all
            .into_iter()
            .partition(|node| self.parts.distribution.reaches(node));
        if !reached.is_empty() {
            return Ok(reached);
        }
        Err(ActError::NoNode(match others.is_empty() {
            true => {
                "no node is up on which the job may run; check its partition or queue, and --nodes"
                    .into()
            }
            false => format!(
                "the gateway does not know {}; add it to --nodes of the gateway",
                some_of(&others)
            ),
        }))
    }

    /// Makes a job demand the nodes that are ready, and releases it.
    pub(super) fn release(&mut self, at: usize) -> Result<(), ChangeError> {
        let Some(job) = self.jobs.get(at) else {
            return Ok(());
        };
        let mark = job.row.mark.clone();
        if self.works.is_paused(&mark, WorkKind::Batch) {
            return Ok(());
        }
        match self.try_release(at) {
            Ok(()) => {
                self.works.succeed(&mark, WorkKind::Batch);
                self.note_fault(&mark, None);
                Ok(())
            }
            Err(error) => self.postpone(&mark, WorkKind::Batch, error),
        }
    }

    fn try_release(&mut self, at: usize) -> Result<(), ActError> {
        let slot = self.slot_of(at)?;
        let number = self.own_number(at)?;
        let nodes = self.nodes_with(at);
        let readiness = nodes.readiness(slot.as_ref());
        let slot_number = self.chosen_slot(at);
        // The table states the slot before the batch system knows it: it is never lost.
        self.put_slot(at, slot_number, false);
        self.flush()?;
        if let Some(slot) = &slot {
            self.parts.batch.offer(slot, &readiness)?;
        }
        self.parts.batch.require(&number, &readiness)?;
        self.put_slot(at, slot_number, true);
        self.put_stage(at, JobStage::Releasing);
        self.flush()?;
        self.finish_release(at, &number, nodes.ready.len())
    }

    /// Returns the number of a job, if the batch system still knows the job by it.
    pub(super) fn own_number(&mut self, at: usize) -> Result<JobId, ActError> {
        let job = self.job(at)?;
        let (mark, number) = (job.row.mark.clone(), number_of(job)?);
        let Some(found) = self.parts.batch.find(&number)? else {
            return Err(ActError::Absent);
        };
        match number_holder(&self.job(at)?.row, &found) {
            NumberHolder::Stranger => {
                self.note_replaced(&mark);
                Err(ActError::Absent)
            }
            NumberHolder::Unmarked => Err(ActError::Other(UNMARKED.to_owned())),
            NumberHolder::Job if !found.is_alive => Err(ActError::Absent),
            NumberHolder::Job => Ok(number),
        }
    }

    fn finish_release(&mut self, at: usize, number: &JobId, ready: usize) -> Result<(), ActError> {
        self.parts.batch.release(number)?;
        self.put_stage(at, JobStage::Released);
        tracing::info!("job {number}: released; nodes with its data: {ready}");
        Ok(())
    }

    /// Releases a job whose release was begun, if it is still held.
    pub(super) fn release_again(&mut self, at: usize) -> Result<(), ChangeError> {
        let Some(job) = self.jobs.get(at) else {
            return Ok(());
        };
        let mark = job.row.mark.clone();
        if self.works.is_paused(&mark, WorkKind::Batch) {
            return Ok(());
        }
        let ready = job.nodes_in(JobNodeState::Ready).len();
        let number = self.own_number(at);
        let released = number.and_then(|number| self.finish_release(at, &number, ready));
        match released {
            Ok(()) => Ok(()),
            Err(error) => self.postpone(&mark, WorkKind::Batch, error),
        }
    }

    /// Notes that all tasks of a job ended.
    pub(super) fn end(&mut self, at: usize) {
        let Some(job) = self.jobs.get(at) else {
            return;
        };
        let mark = job.row.mark.clone();
        tracing::info!("job {}: ended; its copies are removed", self.shown(&mark));
        self.works.stop_load(&mark);
        self.put_stage(at, JobStage::Ended);
    }

    /// Removes the copies of a job that ended.
    pub(super) fn purge(&mut self, at: usize) {
        let Some(job) = self.jobs.get(at) else {
            return;
        };
        let mark = job.row.mark.clone();
        self.works.stop_load(&mark);
        let is_busy = self.works.is_loading(&mark) || self.works.is_purging(&mark);
        if is_busy || self.works.is_paused(&mark, WorkKind::Purge) {
            return;
        }
        let has_results = job.request.results.is_some();
        if has_results && !self.outboxes.is_empty(&mark) {
            // The results come first: a node does not end a job with an outbox that has entries.
            return;
        }
        self.outboxes.look_again(&mark);
        let left = job
            .nodes
            .iter()
            .filter(|row| row.state != JobNodeState::Purged);
        let (nodes, unknown): (Vec<String>, Vec<String>) = left
            .map(|row| row.node.clone())
            .partition(|node| self.parts.distribution.reaches(node));
        if !unknown.is_empty() {
            let shown = some_of(&unknown);
            let name = self.parts.job_name(&mark);
            tracing::warn!(
                "{shown}: not in --nodes any more; run \"driftless node purge --job {name}\" there"
            );
            self.note_purged(&mark, unknown);
        }
        if !nodes.is_empty() {
            let name = self.parts.job_name(&mark);
            self.works
                .purge(&mark, name, nodes, &self.parts.distribution);
        }
    }

    fn note_purged(&mut self, mark: &str, nodes: Vec<String>) {
        let purged = |node| JobNodeRow {
            node,
            state: JobNodeState::Purged,
            fault: None,
        };
        self.note_nodes(mark, nodes.into_iter().map(purged).collect());
    }

    /// Removes the slot of a job if no other job uses it, and closes the job.
    pub(super) fn close(&mut self, at: usize) -> Result<(), ChangeError> {
        let Some(job) = self.jobs.get(at) else {
            return Ok(());
        };
        let (mark, slot) = (job.row.mark.clone(), job.row.slot);
        if self.works.is_paused(&mark, WorkKind::Batch) || self.works.is_loading(&mark) {
            return Ok(());
        }
        if let Some(slot) = slot.filter(|slot| !self.is_used(*slot, &mark)) {
            if let Err(error) = self.parts.batch.undeclare(&self.parts.slot(slot)) {
                return self.postpone(&mark, WorkKind::Batch, error.into());
            }
            self.told.forget(slot);
        }
        // The row keeps its slot: a job that is requeued demands it still.
        self.put_stage(at, JobStage::Closed);
        if let Some(row) = self.jobs.get(at).map(|job| job.row.clone()) {
            self.add_closed(row);
        }
        self.reread();
        tracing::info!("job {}: closed", self.shown(&mark));
        Ok(())
    }

    /// Returns whether another job has a slot.
    fn is_used(&self, slot: u32, mark: &str) -> bool {
        let is_other = |job: &PlannedJob| {
            let is_open = job.row.stage != JobStage::Closed;
            is_open && job.row.slot == Some(slot) && job.row.mark != mark
        };
        self.jobs.iter().any(is_other)
    }

    /// Notes that an act failed, and lets the next attempt wait.
    pub(super) fn postpone(
        &mut self,
        mark: &str,
        kind: WorkKind,
        error: ActError,
    ) -> Result<(), ChangeError> {
        let fault = match error {
            ActError::Change(error) => return Err(error),
            // A job that its user removed: the next answer of the batch system says so.
            ActError::Batch(error) if error.is_no_job() => {
                self.works.pause(mark, kind);
                return Ok(());
            }
            ActError::Absent => {
                self.works.pause(mark, kind);
                return Ok(());
            }
            ActError::NoNode(why) => {
                let pause = self.parts.settings.retry.saturating_mul(WITHOUT_NODES);
                self.works.pause_for(mark, kind, pause);
                self.note_fault(mark, Some(&why));
                return Ok(());
            }
            ActError::Batch(error) => error.to_string(),
            ActError::Other(why) => why,
        };
        self.works.pause(mark, kind);
        self.note_fault(mark, Some(&fault));
        Ok(())
    }

    fn job(&self, at: usize) -> Result<&PlannedJob, ActError> {
        let gone = || ActError::Other("internal error: the job is not in the table".into());
        self.jobs.get(at).ok_or_else(gone)
    }

    /// Returns the slot for a job; `None` without the right to change nodes.
    fn slot_of(&self, at: usize) -> Result<Option<DataSlot>, ActError> {
        if !self.parts.settings.has_slots {
            return Ok(None);
        }
        let slots_max = self.parts.settings.slots_max;
        let full = || {
            ActError::Other(format!(
                "the gateway offers {slots_max} data sets already; the job waits until one ends; an administrator can raise --slots"
            ))
        };
        let slot = self.chosen_slot(at).ok_or_else(full)?;
        Ok(Some(self.parts.slot(slot)))
    }

    /// Returns the number of that slot.
    fn chosen_slot(&self, at: usize) -> Option<u32> {
        let job = self
            .jobs
            .get(at)
            .filter(|_| self.parts.settings.has_slots)?;
        let hash = job.row.hash.as_deref()?;
        let slots_max = self.parts.settings.slots_max;
        job.row
            .slot
            .or_else(|| slot_for(&self.jobs, hash, slots_max))
    }

    /// Returns the nodes of a slot once a job has joined it, or those of the job alone.
    fn nodes_with(&self, at: usize) -> SlotNodes {
        let Some(own) = self.jobs.get(at) else {
            return SlotNodes::default();
        };
        let number = self.chosen_slot(at);
        let shares = |job: &&PlannedJob| {
            let is_other = job.row.mark != own.row.mark;
            is_other && number.is_some() && job.row.slot == number && job.may_use_slot()
        };
        let others = self.jobs.iter().filter(shares);
        slot_nodes(others.chain([own]))
    }
}

/// Returns the numbers of the jobs that get data.
fn jobs_to_ask(jobs: &[PlannedJob]) -> Vec<JobId> {
    let is_asked =
        |job: &&PlannedJob| matches!(job.row.stage, JobStage::Loading | JobStage::Released);
    let asked = jobs.iter().filter(is_asked);
    asked.filter_map(|job| number_of(job).ok()).collect()
}

/// Returns the number of a job in the batch system.
fn number_of(job: &PlannedJob) -> Result<JobId, ActError> {
    let number = job.row.number.as_deref().and_then(JobId::new);
    number.ok_or_else(|| ActError::Other("the job has no number in the batch system".into()))
}

/// Returns the nodes that the user named.
fn wanted_nodes(job: &PlannedJob) -> Result<Option<BTreeSet<String>>, String> {
    let Some(list) = &job.request.nodes else {
        return Ok(None);
    };
    let no_file = &mut |_: &str| Err("name the nodes in place of a file".to_owned());
    let names = parse_hostlist(list, no_file);
    let names = names.map_err(|error| format!("--nodes: {error}"))?;
    Ok(Some(names.into_iter().collect()))
}

/// Returns the first nodes of a list, and the number of the others.
fn some_of(nodes: &[String]) -> String {
    let first = nodes.get(..SHOWN_MAX).unwrap_or(nodes).join(", ");
    match nodes.len().saturating_sub(SHOWN_MAX) {
        0 => first,
        rest => format!("{first} and {rest} more"),
    }
}
