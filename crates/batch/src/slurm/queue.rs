//! Jobs as `squeue` lists them.
//!
//! A user chooses the comment of a job, with line ends and separators. Each call therefore has a
//! random word before each record, so that no comment can be taken for a record. The comment is the
//! last field.

use super::answer::unknown;
use super::sbatch::MARK_WORD;
use super::{Slurm, hostlist};
use crate::{JobId, JobMark, LiveTask, Result};
use std::hash::{BuildHasher, Hasher};

/// Separator of fields; no name in Slurm has it.
const SEPARATOR: char = '\u{1f}';
/// Fields of a record: number of the job or array, index, state, reason, priority, partitions, nodes
/// that are demanded, nodes that are excluded, constraint, number of nodes, nodes, reservation,
/// owner, comment (squeue(1)).
const FIELDS: [&str; 14] = [
    "%F", "%K", "%T", "%r", "%Q", "%P", "%n", "%x", "%f", "%D", "%N", "%v", "%u", "%k",
];
const HELD_BY_USER: &str = "JobHeldUser";
/// Reason of Slurm's own hold: no node has the features that a job demands.
const BAD_CONSTRAINTS: &str = "BadConstraints";

/// JobPhase of a job or task.
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
    /// Expression of the indices. `None` for a job without tasks.
    indices: Option<String>,
    /// Index of a single task.
    index: Option<u64>,
    /// Number of tasks.
    count: u64,
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
    pub fn is_held_by_user(&self) -> bool {
        self.is_held_for(HELD_BY_USER)
    }

    /// Returns whether Slurm holds the job because no node has the features that it demands.
    pub fn is_held_by_slurm(&self) -> bool {
        self.is_held_for(BAD_CONSTRAINTS)
    }

    fn is_held_for(&self, reason: &str) -> bool {
        self.phase == JobPhase::Pending && self.priority == "0" && self.reason == reason
    }

    /// Returns the tasks of the record as `scontrol` takes them.
    pub fn tasks(&self) -> String {
        match (&self.indices, self.index) {
            (None, _) => self.job.to_string(),
            (_, Some(index)) => format!("{}_{index}", self.job),
            (Some(indices), None) => format!("{}_[{indices}]", self.job),
        }
    }

    pub fn pending(&self) -> u64 {
        match self.phase {
            JobPhase::Pending => self.count,
            _ => 0,
        }
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

    /// Returns the rest of the word of the comment that begins so.
    pub fn word(&self, begin: &str) -> Option<&str> {
        let mut words = self.comment.split_whitespace();
        words.find_map(|word| word.strip_prefix(begin))
    }
}

impl Slurm {
    /// Returns the records of one job, or of all jobs.
    pub(super) fn records(&self, job: Option<&JobId>) -> Result<Vec<SqueueJob>> {
        let hasher = std::hash::RandomState::new().build_hasher();
        let begin = format!("{:016x}", hasher.finish());
        let separator = SEPARATOR.to_string();
        let format = format!("{begin}{separator}{}", FIELDS.join(&separator));
        // Otherwise squeue joins tasks that wait, with several reasons in one field.
        let mut args = vec!["--noheader", "--all", "--local", "--states=all"];
        args.extend(["--array-unique", "--format", &format]);
        args.extend(job.iter().flat_map(|job| ["--jobs", job.as_str()]));
        let output = super::answer::stdout(self.settings.run("squeue", &args)?)?;
        parse(&output, &begin)
    }
}

/// Parses the output of `squeue`.
fn parse(output: &str, begin: &str) -> Result<Vec<SqueueJob>> {
    let wrong = |text: &str| unknown("squeue", text.lines().next().unwrap_or_default());
    let begin = format!("{begin}{SEPARATOR}");
    let mut parts = output.split(begin.as_str());
    let before = parts.next().unwrap_or_default();
    if !before.is_empty() {
        return Err(wrong(before));
    }
    let record = |text: &str| {
        let line = text.strip_suffix('\n')?;
        let fields: Vec<&str> = line.splitn(FIELDS.len(), SEPARATOR).collect();
        read(&fields.try_into().ok()?)
    };
    parts
        .map(|text| record(text).ok_or_else(|| wrong(text)))
        .collect()
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
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // The throttle of an array follows a percent sign.
    let indices = index.split('%').next().filter(|text| *text != "N/A");
    let (index, count) = match indices {
        None => (None, 1),
        Some(one) if digits(one) => (Some(one.parse().ok()?), 1),
        Some(many) => (None, task_count(many)?),
    };
    Some(SqueueJob {
        job: JobId::new(job).filter(|_| digits(job))?,
        indices: indices.map(str::to_owned),
        index,
        count,
        phase: phase(state)?,
        reason: (*reason).to_owned(),
        priority: Some(*priority).filter(|text| digits(text))?.to_owned(),
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

/// Returns the number of tasks of an expression of indices such as `1,5-9,20-30:2`.
fn task_count(expression: &str) -> Option<u64> {
    let count = |range: &str| -> Option<u64> {
        let (range, step) = range.split_once(':').unwrap_or((range, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last, step): (u64, u64, u64) =
            (first.parse().ok()?, last.parse().ok()?, step.parse().ok()?);
        last.checked_sub(first)?.checked_div(step)?.checked_add(1)
    };
    expression
        .split(',')
        .map(count)
        .try_fold(0, |sum: u64, count| sum.checked_add(count?))
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
