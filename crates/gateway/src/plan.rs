//! Decisions of the gateway, as pure functions of what the table and the batch system state.

use crate::JobRequest;
use driftless_batch::{FoundJob, LiveJob};
use driftless_state::jobs::{BatchJobRow, JobChange, JobNodeRow, JobNodeState, JobStage};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A job with its request and nodes.
#[derive(Debug, Clone)]
pub(crate) struct PlannedJob {
    pub row: BatchJobRow,
    pub request: JobRequest,
    pub nodes: Vec<JobNodeRow>,
}

/// State of a job in the batch system.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sight<'a> {
    /// The batch system was not asked since the job is known.
    Unknown,
    /// The job has tasks that wait or run.
    Alive(&'a LiveJob),
    /// The job ended, or was removed.
    Gone,
}

/// Next act for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextAct {
    /// No act is due.
    Wait,
    /// The job ended: the gateway notes it.
    End,
    /// Nodes lack the data set: the gateway casts it, if it may.
    Load,
    /// No node lacks the data set: the gateway looks for nodes that came up.
    Refresh,
    /// Enough nodes are ready: the gateway releases the job.
    Release,
    /// The gateway was about to release the job, and may have done so.
    ReleaseAgain,
    /// The job ended and was requeued: it gets its data again.
    Resume,
    /// Copies are to be removed.
    Purge,
    /// The copies are removed, and the job can be closed.
    Close,
}

/// Returns the next act for a job.
pub(crate) fn next_act(job: &PlannedJob, sight: Sight<'_>, now: Duration) -> NextAct {
    let is_gone = matches!(sight, Sight::Gone);
    match job.row.stage {
        // The client stated a number, and the job was removed before the gateway saw it.
        JobStage::Prepared if is_gone => NextAct::Close,
        JobStage::Prepared | JobStage::Closed => NextAct::Wait,
        JobStage::Loading | JobStage::Releasing | JobStage::Released if is_gone => NextAct::End,
        JobStage::Loading if is_released_by_user(sight) && job.row.is_required => {
            NextAct::ReleaseAgain
        }
        JobStage::Loading if job.may_run(now) => NextAct::Release,
        JobStage::Releasing => NextAct::ReleaseAgain,
        JobStage::Loading | JobStage::Released => match (needs_more(sight), job.lacks_nodes()) {
            (true, true) => NextAct::Load,
            (true, false) => NextAct::Refresh,
            (false, _) => NextAct::Wait,
        },
        JobStage::Ended if matches!(sight, Sight::Alive(_)) => NextAct::Resume,
        JobStage::Ended if job.is_purged() => NextAct::Close,
        JobStage::Ended => NextAct::Purge,
    }
}

/// Holder of the number of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberHolder {
    /// The job itself.
    Job,
    /// A job of the same user without a mark: the user may have changed the comment.
    Unmarked,
    /// Another job: the batch system lost its state, and its numbers began again.
    Stranger,
}

/// Returns to whom the number of a job belongs now.
pub(crate) fn number_holder(row: &BatchJobRow, found: &FoundJob) -> NumberHolder {
    match &found.mark {
        _ if found.owner != row.owner => NumberHolder::Stranger,
        Some(mark) if mark.as_str() != row.mark => NumberHolder::Stranger,
        Some(_) => NumberHolder::Job,
        None => NumberHolder::Unmarked,
    }
}

/// Returns whether a user ended the hold.
fn is_released_by_user(sight: Sight<'_>) -> bool {
    matches!(sight, Sight::Alive(live) if !live.is_held)
}

/// Returns whether further nodes are of use: tasks wait, or the batch system did not answer.
fn needs_more(sight: Sight<'_>) -> bool {
    match sight {
        Sight::Alive(live) => live.pending > 0 || live.is_held,
        Sight::Unknown => true,
        Sight::Gone => false,
    }
}

impl PlannedJob {
    /// Follows a change of the table.
    pub fn follow(&mut self, change: &JobChange) {
        match change {
            JobChange::Data { hash, bytes, .. } => {
                (self.row.hash, self.row.bytes) = (Some(hash.clone()), Some(*bytes));
            }
            JobChange::Fault { fault, .. } => self.row.fault.clone_from(fault),
            JobChange::Nodes { rows, .. } => rows.iter().for_each(|row| self.follow_node(row)),
            JobChange::Stage { stage, now, .. } => {
                (self.row.stage, self.row.changed) = (*stage, *now);
            }
            JobChange::Slot {
                slot, is_required, ..
            } => (self.row.slot, self.row.is_required) = (*slot, *is_required),
            // The plan has no results.
            JobChange::Results { .. } => {}
        }
    }

    fn follow_node(&mut self, row: &JobNodeRow) {
        // In the order of their names, as the table has them.
        let at = self.nodes.binary_search_by(|one| one.node.cmp(&row.node));
        match at.map(|at| self.nodes.get_mut(at)) {
            Ok(Some(known)) => known.clone_from(row),
            Ok(None) => {}
            Err(at) => self.nodes.insert(at, row.clone()),
        }
    }

    /// Returns whether a node was chosen for the job.
    pub fn has_node(&self, node: &str) -> bool {
        self.nodes.iter().any(|row| row.node == node)
    }

    /// Returns the nodes in a state.
    pub fn nodes_in(&self, state: JobNodeState) -> Vec<String> {
        let is_in = |row: &&JobNodeRow| row.state == state;
        let named = |row: &JobNodeRow| row.node.clone();
        self.nodes.iter().filter(is_in).map(named).collect()
    }

    /// Returns the data set that nodes of the job have already, or that tasks may have read on nodes
    /// which lost it since.
    pub fn first_set(&self) -> Option<String> {
        let has_some = !self.nodes_in(JobNodeState::Ready).is_empty();
        let is_fixed = has_some || self.is_joined();
        self.row.hash.clone().filter(|_| is_fixed)
    }

    /// Returns whether the job runs, or may run soon.
    pub fn is_joined(&self) -> bool {
        let is_at_work = matches!(self.row.stage, JobStage::Releasing | JobStage::Released);
        self.row.is_required || is_at_work
    }

    /// Returns whether the job was released before it demanded its data.
    pub fn is_released_early(&self, sight: Sight<'_>) -> bool {
        let is_loading = self.row.stage == JobStage::Loading && !self.row.is_required;
        is_loading && is_released_by_user(sight)
    }

    /// Returns whether the policy of the job is met.
    fn may_run(&self, now: Duration) -> bool {
        let is_ready = |row: &&JobNodeRow| row.state == JobNodeState::Ready;
        let ready = self.nodes.iter().filter(is_ready).count();
        let held = now.saturating_sub(self.row.made);
        self.row.hash.is_some() && self.request.policy.is_met(ready, self.nodes.len(), held)
    }

    /// Returns whether nodes lack the data set, or no node was chosen yet.
    pub fn lacks_nodes(&self) -> bool {
        let lacks = |row: &JobNodeRow| row.state != JobNodeState::Ready;
        self.nodes.is_empty() || self.nodes.iter().any(lacks)
    }

    fn is_purged(&self) -> bool {
        let is_purged = |row: &JobNodeRow| row.state == JobNodeState::Purged;
        self.nodes.iter().all(is_purged)
    }
}

/// Nodes of the jobs that share a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SlotNodes {
    pub ready: BTreeSet<String>,
    pub all: BTreeSet<String>,
}

/// Returns the nodes of a slot. A node is ready if each job of the slot that may run there refers to
/// its copy: the end of one job then takes the data from no other one.
pub(crate) fn slot_nodes<'a>(jobs: impl Iterator<Item = &'a PlannedJob>) -> SlotNodes {
    let mut is_ready: BTreeMap<&str, bool> = BTreeMap::new();
    for row in jobs.flat_map(|job| &job.nodes) {
        let so_far = is_ready.entry(&row.node).or_insert(true);
        *so_far &= row.state == JobNodeState::Ready;
    }
    let named = |(node, _): (&&str, &bool)| (*node).to_owned();
    SlotNodes {
        ready: is_ready
            .iter()
            .filter(|(_, ready)| **ready)
            .map(named)
            .collect(),
        all: is_ready.iter().map(named).collect(),
    }
}

/// Returns the slot of a data set: that of a job with the same data set, or the first free one. `None`
/// if all slots are taken.
pub(crate) fn slot_for(jobs: &[PlannedJob], hash: &str, slots_max: u32) -> Option<u32> {
    let of_set = |job: &&PlannedJob| {
        // An ended job without copies may be about to remove its slot. One that waits for a silent node
        // keeps no other job from it.
        let keeps_slot = match job.row.stage {
            JobStage::Ended => !job.is_purged(),
            stage => stage < JobStage::Ended,
        };
        job.row.hash.as_deref() == Some(hash) && keeps_slot
    };
    let shared = jobs.iter().filter(of_set).find_map(|job| job.row.slot);
    let open = jobs.iter().filter(|job| job.row.stage < JobStage::Closed);
    let taken: BTreeSet<u32> = open.filter_map(|job| job.row.slot).collect();
    shared.or_else(|| (1..=slots_max).find(|slot| !taken.contains(slot)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a job with a mark, a stage and nodes.
    pub fn job(mark: &str, stage: JobStage, nodes: &[(&str, JobNodeState)]) -> PlannedJob {
        let row = |(node, state): &(&str, JobNodeState)| JobNodeRow {
            node: (*node).into(),
            state: *state,
            fault: None,
        };
        PlannedJob {
            row: BatchJobRow {
                mark: mark.into(),
                uid: 1000,
                owner: "alice".into(),
                system: "slurm".into(),
                request: Vec::new(),
                stage,
                number: Some("1".into()),
                hash: Some("aa".into()),
                bytes: Some(1),
                slot: None,
                is_required: false,
                fault: None,
                made: Duration::ZERO,
                changed: Duration::ZERO,
            },
            request: JobRequest::default(),
            nodes: nodes.iter().map(row).collect(),
        }
    }

    const READY: JobNodeState = JobNodeState::Ready;
    const WANTED: JobNodeState = JobNodeState::Wanted;
    const NOW: Duration = Duration::from_secs(10);

    fn live(is_held: bool, pending: u64) -> LiveJob {
        LiveJob {
            is_held,
            pending,
            ..LiveJob::default()
        }
    }

    #[test]
    fn job_is_released_once_a_node_is_ready() {
        let held = live(true, 4);
        let early = job("a", JobStage::Loading, &[("n1", WANTED), ("n2", WANTED)]);
        let act = next_act(&early, Sight::Alive(&held), NOW);
        assert_eq!(act, NextAct::Load);
        let ready = job("a", JobStage::Loading, &[("n1", READY), ("n2", WANTED)]);
        let act = next_act(&ready, Sight::Alive(&held), NOW);
        assert_eq!(act, NextAct::Release);
    }

    #[test]
    fn job_follows_changes_of_its_nodes() {
        let mut followed = job("a", JobStage::Loading, &[("n1", WANTED), ("n3", WANTED)]);
        let rows = [("n2", WANTED), ("n3", READY), ("n4", READY)];
        let rows = job("a", JobStage::Loading, &rows).nodes;
        followed.follow(&JobChange::Nodes {
            mark: "a".into(),
            rows,
        });
        let all = [("n1", WANTED), ("n2", WANTED), ("n3", READY), ("n4", READY)];
        assert_eq!(followed.nodes, job("a", JobStage::Loading, &all).nodes);
    }

    #[test]
    fn cancelled_job_ends_in_each_stage() {
        for stage in [JobStage::Loading, JobStage::Releasing, JobStage::Released] {
            let cancelled = job("a", stage, &[("n1", READY)]);
            assert_eq!(next_act(&cancelled, Sight::Gone, NOW), NextAct::End);
        }
    }

    #[test]
    fn job_without_an_answer_is_not_ended() {
        let loading = job("a", JobStage::Released, &[("n1", READY)]);
        assert_eq!(next_act(&loading, Sight::Unknown, NOW), NextAct::Refresh);
    }

    #[test]
    fn release_that_was_begun_is_repeated() {
        let begun = job("a", JobStage::Releasing, &[("n1", READY)]);
        let running = live(false, 0);
        let act = next_act(&begun, Sight::Alive(&running), NOW);
        assert_eq!(act, NextAct::ReleaseAgain);
    }

    #[test]
    fn job_without_waiting_tasks_loads_no_more() {
        let running = job("a", JobStage::Released, &[("n1", READY), ("n2", WANTED)]);
        let last = live(false, 0);
        let act = next_act(&running, Sight::Alive(&last), NOW);
        assert_eq!(act, NextAct::Wait);
        let waiting = live(false, 3);
        let act = next_act(&running, Sight::Alive(&waiting), NOW);
        assert_eq!(act, NextAct::Load);
    }

    #[test]
    fn hold_after_the_release_stays() {
        let all = job("a", JobStage::Released, &[("n1", READY)]);
        let held = live(true, 3);
        assert_eq!(next_act(&all, Sight::Alive(&held), NOW), NextAct::Refresh);
    }

    #[test]
    fn job_that_was_requeued_is_resumed() {
        let purged = job("a", JobStage::Ended, &[("n1", JobNodeState::Purged)]);
        let waiting = live(false, 1);
        let act = next_act(&purged, Sight::Alive(&waiting), NOW);
        assert_eq!(act, NextAct::Resume);
    }

    #[test]
    fn ended_job_closes_after_the_purge() {
        let purged = JobNodeState::Purged;
        let half = job("a", JobStage::Ended, &[("n1", purged), ("n2", READY)]);
        assert_eq!(next_act(&half, Sight::Gone, NOW), NextAct::Purge);
        let whole = job("a", JobStage::Ended, &[("n1", purged), ("n2", purged)]);
        assert_eq!(next_act(&whole, Sight::Gone, NOW), NextAct::Close);
    }

    #[test]
    fn released_job_keeps_its_data_set() {
        let first = Some("aa".to_owned());
        let loading = job("a", JobStage::Loading, &[("n1", WANTED)]);
        assert_eq!(loading.first_set(), None);
        let ready = job("a", JobStage::Loading, &[("n1", READY), ("n2", WANTED)]);
        assert_eq!(ready.first_set(), first);
        for stage in [JobStage::Releasing, JobStage::Released] {
            // Each node lost its copy, and tasks ran before.
            let lost = job("a", stage, &[("n1", WANTED)]);
            assert_eq!(lost.first_set(), first);
        }
    }

    #[test]
    fn node_is_ready_for_each_job() {
        let first = job("a", JobStage::Released, &[("n1", READY), ("n2", READY)]);
        let second = job("b", JobStage::Released, &[("n2", WANTED), ("n3", READY)]);
        let nodes = slot_nodes([&first, &second].into_iter());
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
        assert_eq!(names(&nodes.ready), ["n1", "n3"]);
        assert_eq!(names(&nodes.all), ["n1", "n2", "n3"]);
    }

    #[test]
    fn jobs_of_one_data_set_share_a_slot() {
        let mut first = job("a", JobStage::Released, &[]);
        first.row.slot = Some(1);
        let mut other = job("b", JobStage::Ended, &[]);
        (other.row.slot, other.row.hash) = (Some(2), Some("bb".into()));
        let jobs = [first, other];
        assert_eq!(slot_for(&jobs, "aa", 3), Some(1));
        assert_eq!(slot_for(&jobs, "bb", 3), Some(3), "an ended job");
        let mut waiting = job("c", JobStage::Ended, &[("n1", READY)]);
        (waiting.row.slot, waiting.row.hash) = (Some(2), Some("dd".into()));
        assert_eq!(slot_for(&[waiting], "dd", 3), Some(2), "a silent node");
        assert_eq!(slot_for(&jobs, "cc", 3), Some(3));
        assert_eq!(slot_for(&jobs, "cc", 2), None);
    }
}
