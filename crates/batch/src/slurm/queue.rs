//! Jobs as `squeue` lists them.
//!
//! A user chooses the comment of a job, with line ends and separators. Each call therefore has a
//! random word before each record, so that no comment can be taken for a record. The comment is the
//! last field.
//!
//! The first record has the titles of the fields. An output without it was cut off: it does not state
//! that no job is there.

use super::answer::{self, unknown};
use super::sbatch::MARK_WORD;
use super::{Slurm, hostlist};
use crate::{BatchResult, JobId, JobMark, LiveTask, TaskRanges};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};

/// Separator of fields; no name in Slurm has it.
const SEPARATOR: char = '\u{1f}';
/// Fields of a record: number of the job or array, index, state, reason, priority, partitions, nodes
/// that are demanded, nodes that are excluded, constraint, number of nodes, nodes, reservation,
/// owner, comment (squeue(1)).
const FIELDS: [&str; 14] = [
    "%F", "%K", "%T", "%r", "%Q", "%P", "%n", "%x", "%f", "%D", "%N", "%v", "%u", "%k",
];
/// Ranges of indices that one command names.
const RANGES_PER_COMMAND: usize = 1000;

/// Reasons that Slurm states in place of a hold.
const HIDING_REASONS: [&str; 2] = ["Dependency", "DependencyNeverSatisfied"];

/// Hold of a job, by the reason that Slurm states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobHold {
    User,
    Administrator,
    /// Slurm holds a job if no node has the features that it demands.
    Slurm,
}

impl JobHold {
    const ALL: [JobHold; 3] = [JobHold::User, JobHold::Administrator, JobHold::Slurm];

    fn reason(self) -> &'static str {
        match self {
            JobHold::User => "JobHeldUser",
            JobHold::Administrator => "JobHeldAdmin",
            JobHold::Slurm => "BadConstraints",
        }
    }
}

/// Phase of a job or task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobPhase {
    Pending,
    Running,
    Ended,
}

/// A line of `squeue`: a job, a task that has begun, or all tasks of an array that wait.
#[derive(Debug, Clone)]
pub(super) struct SqueueJob {
    pub job: JobId,
    /// Index of a task, or `None`.
    index: Option<u64>,
    /// Indices of the tasks of an array.
    tasks: Option<TaskRanges>,
    pub phase: JobPhase,
    pub reason: String,
    priority: String,
    pub partitions: String,
    pub demanded: Vec<String>,
    pub excluded: Vec<String>,
    pub constraint: String,
    pub node_count: String,
    nodes: Vec<String>,
    pub reservation: Option<String>,
    pub owner: String,
    pub comment: String,
}

impl SqueueJob {
    /// Returns whether tasks of the record are held so. A record of several tasks may have several
    /// reasons with commas between, and then the priority of one of them.
    pub fn is_held(&self, hold: JobHold) -> bool {
        let is_one = self.reason == hold.reason();
        let is_among = self.reason.split(',').any(|one| one == hold.reason());
        self.phase == JobPhase::Pending && is_among && (!is_one || self.priority == "0")
    }

    /// Returns whether a user may hold tasks of the record. The reason of a job whose dependency failed
    /// does not state its hold.
    pub fn seems_held(&self) -> bool {
        let is_hidden = HIDING_REASONS.contains(&self.reason.as_str());
        let is_waiting = self.phase == JobPhase::Pending;
        self.is_held(JobHold::User) || is_waiting && is_hidden && self.priority == "0"
    }

    fn has_other_hold(&self, hold: JobHold) -> bool {
        let mut others = JobHold::ALL.into_iter().filter(|other| *other != hold);
        others.any(|other| self.is_held(other))
    }

    pub fn pending(&self) -> u64 {
        match self.phase {
            JobPhase::Pending => self.tasks.as_ref().map_or(1, TaskRanges::count),
            _ => 0,
        }
    }

    /// Returns the tasks of an array that wait.
    pub fn waiting(&self) -> Option<TaskRanges> {
        let tasks = self.tasks.as_ref();
        tasks.filter(|_| self.phase == JobPhase::Pending).cloned()
    }

    pub fn running(&self) -> Option<LiveTask> {
        (self.phase == JobPhase::Running).then(|| LiveTask {
            index: self.index,
            nodes: self.nodes.clone(),
        })
    }

    /// Returns the mark in the comment.
    pub fn mark(&self) -> Option<JobMark> {
        self.word(MARK_WORD).and_then(JobMark::new)
    }

    /// Returns the rest of the last word of the comment that begins so. The user's comment stands before
    /// the words of driftless, and may be the copy of a comment with such words.
    pub fn word(&self, begin: &str) -> Option<&str> {
        let mut words = self.comment.split_whitespace().rev();
        let found = words.find(|word| word.starts_with(begin) || word.starts_with(MARK_WORD));
        found.and_then(|word| word.strip_prefix(begin))
    }
}

impl Slurm {
    /// Returns the records of one job, or of all jobs.
    pub(super) fn records(&self, job: Option<&JobId>) -> BatchResult<Vec<SqueueJob>> {
        let args = job.iter().flat_map(|job| ["--jobs", job.as_str()]);
        self.squeue(&args.collect::<Vec<_>>())
    }

    fn squeue(&self, words: &[&str]) -> BatchResult<Vec<SqueueJob>> {
        let hasher = std::hash::RandomState::new().build_hasher();
        let begin = format!("{:016x}", hasher.finish());
        let separator = SEPARATOR.to_string();
        let format = format!("{begin}{separator}{}", FIELDS.join(&separator));
        let mut args = vec!["--all", "--local", "--states=all"];
        args.extend(["--format", &format]);
        args.extend(words);
        let output = answer::stdout(self.settings.run_replacing("squeue", &args)?)?;
        parse(&output, &begin)
    }

    /// Releases the tasks of a job that are held so, and no others.
    pub(super) fn release_held(
        &self,
        job: &JobId,
        records: &[SqueueJob],
        hold: JobHold,
    ) -> BatchResult<()> {
        let ours = || records.iter().filter(|record| record.job == *job);
        if !ours().any(|record| record.is_held(hold)) {
            return Ok(());
        }
        if !ours().any(|record| record.has_other_hold(hold)) {
            return self.release_tasks(job.as_str());
        }
        // One line for each task tells which of them is held by whom.
        let mut tasks = self.squeue(&["--array", "--jobs", job.as_str()])?;
        tasks.retain(|task| task.job == *job && task.is_held(hold));
        let indices: BTreeSet<u64> = tasks.iter().filter_map(|task| task.index).collect();
        for ranges in hostlist::ranges(&indices).chunks(RANGES_PER_COMMAND) {
            self.release_tasks(&format!("{job}_[{}]", hostlist::shown(ranges, 0)))?;
        }
        Ok(())
    }

    fn release_tasks(&self, tasks: &str) -> BatchResult<()> {
        answer::changed(self.settings.run("scontrol", &["release", tasks])?).map(drop)
    }
}

/// Parses the output of `squeue`.
fn parse(output: &str, begin: &str) -> BatchResult<Vec<SqueueJob>> {
    let wrong = |text: &str| unknown("squeue", text.lines().next().unwrap_or_default());
    let begin = format!("{begin}{SEPARATOR}");
    let mut parts = output.split(begin.as_str());
    let before = parts.next().unwrap_or_default();
    if !before.is_empty() {
        return Err(wrong(before));
    }
    let titles = parts.next().unwrap_or_default();
    if fields(titles).is_none_or(|titles| is_number(titles[0])) {
        return Err(wrong(titles));
    }
    let record = |text: &str| read(&fields(text)?);
    parts
        .map(|text| record(text).ok_or_else(|| wrong(text)))
        .collect()
}

/// Returns the fields of a complete line.
fn fields(text: &str) -> Option<[&str; FIELDS.len()]> {
    let line = text.strip_suffix('\n')?;
    let fields: Vec<&str> = line.splitn(FIELDS.len(), SEPARATOR).collect();
    fields.try_into().ok()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn read(fields: &[&str; FIELDS.len()]) -> Option<SqueueJob> {
    let [
        job,
        index,
        state,
        reason,
        priority,
        partitions,
        demanded,
        excluded,
        rest @ ..,
    ] = fields;
    let [constraint, node_count, nodes, reservation, owner, comment] = rest;
    // The throttle of an array follows a percent sign.
    let index = index.split('%').next()?;
    let tasks = match index {
        "N/A" => None,
        tasks => Some(TaskRanges::parse(tasks)?),
    };
    let index = match is_number(index) {
        true => Some(index.parse().ok()?),
        false => None,
    };
    Some(SqueueJob {
        job: JobId::new(job).filter(|_| is_number(job))?,
        index,
        tasks,
        phase: phase(state)?,
        reason: (*reason).to_owned(),
        priority: Some(*priority).filter(|text| is_number(text))?.to_owned(),
        partitions: (*partitions).to_owned(),
        demanded: hostlist::names(demanded)?,
        excluded: hostlist::names(excluded)?,
        constraint: (*constraint).to_owned(),
        node_count: (*node_count).to_owned(),
        nodes: hostlist::names(nodes)?,
        reservation: Some((*reservation).to_owned())
            .filter(|name| !name.is_empty() && name != "(null)"),
        owner: (*owner).to_owned(),
        comment: comment.strip_prefix("(null)").unwrap_or(comment).to_owned(),
    })
}

/// Returns the phase of a state in its long form. The flags of a job take the place of its state:
/// `job_state_string` in slurm_protocol_defs.c of 22.05 to 24.11.
fn phase(state: &str) -> Option<JobPhase> {
    Some(match state {
        "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD"
        | "SPECIAL_EXIT" => JobPhase::Pending,
        "RUNNING" | "SUSPENDED" | "COMPLETING" | "CONFIGURING" | "EXPEDITING" | "POWER_UP_NODE"
        | "RESIZING" | "SIGNALING" | "STAGE_OUT" | "STOPPED" => JobPhase::Running,
        "BOOT_FAIL" | "CANCELLED" | "COMPLETED" | "DEADLINE" | "FAILED" | "LAUNCH_FAILED"
        | "NODE_FAIL" | "OUT_OF_MEMORY" | "PREEMPTED" | "RECONFIG_FAIL" | "REVOKED" | "TIMEOUT" => {
            JobPhase::Ended
        }
        _ => return None,
    })
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
