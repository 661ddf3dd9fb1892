//! The words of a batch system that all products share.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;

/// Bytes of the longest number of a job.
const JOB_BYTES_MAX: usize = 128;
/// Digits of the longest number: no batch system counts further than 32 bits.
const NUMBER_DIGITS_MAX: usize = 10;
/// Hexadecimal digits of a mark.
const MARK_DIGITS: usize = 16;

/// Product that schedules jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchKind {
    /// Slurm.
    Slurm,
    /// Grid Engine and its descendants.
    GridEngine,
    /// OpenPBS and PBS Professional.
    Pbs,
}

impl BatchKind {
    /// Products, in the order of their words.
    pub const ALL: [BatchKind; 3] = [BatchKind::Slurm, BatchKind::GridEngine, BatchKind::Pbs];

    /// Returns the word on the command line and in tables.
    pub fn word(self) -> &'static str {
        match self {
            BatchKind::Slurm => "slurm",
            BatchKind::GridEngine => "grid-engine",
            BatchKind::Pbs => "pbs",
        }
    }

    /// Returns the number of a job if the text has the form of one of this product: digits, and for PBS
    /// the server behind them.
    pub fn job_id(self, text: &str) -> Option<JobId> {
        let rest = text.trim_start_matches(|char: char| char.is_ascii_digit());
        let is_own = match self {
            BatchKind::Slurm | BatchKind::GridEngine => rest.is_empty(),
            BatchKind::Pbs => {
                let server = rest.strip_prefix("[]").unwrap_or(rest).strip_prefix('.');
                server.is_some_and(|server| !server.is_empty() && !server.contains(['[', ']']))
            }
        };
        let fits = text.len() - rest.len() <= NUMBER_DIGITS_MAX;
        JobId::new(text).filter(|_| is_own && fits)
    }

    /// Returns the product of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        BatchKind::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl fmt::Display for BatchKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            BatchKind::Slurm => "Slurm",
            BatchKind::GridEngine => "Grid Engine",
            BatchKind::Pbs => "PBS",
        })
    }
}

/// Number of a job in its batch system, without the index of a task. `123` for Slurm and Grid Engine;
/// `123.server` or `123[].server` for PBS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(String);

impl JobId {
    /// Returns the number if it has the form of one: it begins with a digit, and no shell or command
    /// can take it for anything else.
    pub fn new(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".[]_-".contains(&byte);
        let begins = text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_digit());
        let fits = text.len() <= JOB_BYTES_MAX;
        (begins && fits && text.bytes().all(is_plain)).then(|| JobId(text.to_owned()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Mark of a job that driftless submitted: 16 hexadecimal digits. The gateway finds the job by it if
/// the client died before it told the number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobMark(String);

impl JobMark {
    /// Returns the mark of 64 random bits.
    pub fn of(bits: u64) -> Self {
        JobMark(format!("{bits:016x}"))
    }

    /// Returns the mark if the text has the form of one.
    pub fn new(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_mark = text.len() == MARK_DIGITS && text.bytes().all(is_digit);
        is_mark.then(|| JobMark(text.to_owned()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobMark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Name of one data set in the batch system: a feature of Slurm, a complex value of Grid Engine, a
/// boolean resource of PBS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataSlot(String);

impl DataSlot {
    /// Begin of the names.
    pub const PREFIX: &'static str = "driftless_";

    /// Returns the name of a slot of the pool.
    pub fn numbered(number: u32) -> Self {
        DataSlot(format!("{}{number}", DataSlot::PREFIX))
    }

    /// Returns the name of a slot of one group of gateways, whose name has letters and digits alone.
    /// Groups that share nodes do not take each other's slots.
    pub fn of_group(group: &str, number: u32) -> Self {
        DataSlot(format!("{}{group}_{number}", DataSlot::PREFIX))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DataSlot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A job that is to be submitted held.
#[derive(Debug, Clone, Copy)]
pub struct HeldRequest<'a> {
    /// The user's command: the program and its arguments.
    pub command: &'a [OsString],
    /// The mark that the job gets.
    pub mark: &'a JobMark,
    /// Variables for the environment of each task.
    pub variables: &'a [(String, String)],
    /// Source of the script of a command that names none.
    pub input: JobInput<'a>,
}

/// Standard input of the user's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobInput<'a> {
    /// Standard input of this process, read to its end.
    Standard,
    /// Bytes in memory.
    Bytes(&'a [u8]),
}

/// A command that submits a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Submission {
    /// Program.
    pub program: OsString,
    /// Arguments.
    pub args: Vec<OsString>,
    /// Variables that the command gets beside the user's environment.
    pub env: Vec<(OsString, OsString)>,
    /// Script for the standard input of the command. The command inherits the standard input if `None`.
    pub input: Option<Vec<u8>>,
}

/// A job that carries a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedJob {
    /// Number.
    pub job: JobId,
    /// Mark.
    pub mark: JobMark,
    /// Name of the owner.
    pub owner: String,
    /// Whether a user holds the job.
    pub is_held: bool,
}

/// A job that was looked for by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundJob {
    /// Mark. `None` if the job carries none.
    pub mark: Option<JobMark>,
    /// Name of the owner.
    pub owner: String,
    /// Whether tasks wait or run.
    pub is_alive: bool,
}

/// A job that has not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveJob {
    /// Whether a user holds the job.
    pub is_held: bool,
    /// Tasks that wait.
    pub pending: u64,
    /// Indices of the tasks that wait. `None` if the batch system does not state them.
    pub waiting: Option<TaskRanges>,
    /// Tasks that run, or end.
    pub running: Vec<LiveTask>,
    /// Reason of the batch system for the wait, as it prints it.
    pub reason: Option<String>,
}

impl LiveJob {
    /// Returns whether the task of an array waits or runs, or may do so.
    pub fn has_task(&self, task: u64) -> bool {
        let is_it = |running: &LiveTask| running.index.is_none_or(|index| index == task);
        let waits = |waiting: &TaskRanges| waiting.contains(task);
        let may_wait = self.pending > 0 && self.waiting.as_ref().is_none_or(waits);
        may_wait || self.running.iter().any(is_it)
    }

    /// Adds tasks that wait.
    pub(crate) fn add_waiting(&mut self, tasks: TaskRanges) {
        self.waiting.get_or_insert_default().add(tasks);
    }
}

/// Indices of tasks, in ranges: `1,5-9,20-30:2`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskRanges(Vec<TaskRange>);

/// Indices from `first` to `last`, with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TaskRange {
    first: u64,
    last: u64,
    step: u64,
}

impl TaskRange {
    fn contains(self, task: u64) -> bool {
        (self.first..=self.last).contains(&task) && (task - self.first).is_multiple_of(self.step)
    }

    /// Whether each index of the other range is in this one.
    fn covers(self, other: TaskRange) -> bool {
        let is_in_step = other.first == other.last || other.step.is_multiple_of(self.step);
        self.contains(other.first) && other.last <= self.last && is_in_step
    }
}

impl TaskRanges {
    /// Reads ranges as Slurm and Grid Engine print them. Returns `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let range = |range: &str| {
            let (range, step) = range.trim().split_once(':').unwrap_or((range.trim(), "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            let step: u64 = step.parse().ok().filter(|step| *step > 0)?;
            (first <= last).then_some(TaskRange { first, last, step })
        };
        text.split(',')
            .map(range)
            .collect::<Option<_>>()
            .map(TaskRanges)
    }

    /// Returns one index.
    pub fn one(task: u64) -> Self {
        TaskRanges(vec![TaskRange {
            first: task,
            last: task,
            step: 1,
        }])
    }

    /// Adds ranges. Those that are there already add nothing.
    pub fn add(&mut self, other: TaskRanges) {
        for new in other.0 {
            if !self.0.iter().any(|known| known.covers(new)) {
                self.0.retain(|known| !new.covers(*known));
                self.0.push(new);
            }
        }
    }

    /// Returns whether an index is in a range.
    pub fn contains(&self, task: u64) -> bool {
        self.0.iter().any(|range| range.contains(task))
    }

    /// Returns the number of indices.
    pub(crate) fn count(&self) -> u64 {
        let count = |range: &TaskRange| ((range.last - range.first) / range.step).saturating_add(1);
        self.0
            .iter()
            .fold(0, |sum, range| sum.saturating_add(count(range)))
    }
}

/// A task that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveTask {
    /// Index in the array. `None` for a job without tasks.
    pub index: Option<u64>,
    /// Nodes of the task.
    pub nodes: Vec<String>,
}

/// Nodes of a data set.
#[derive(Debug, Clone, Copy)]
pub struct Readiness<'a> {
    /// DataSlot of the data set. `None` without rights to change nodes.
    pub slot: Option<&'a DataSlot>,
    /// Nodes that have the data set.
    pub ready: &'a BTreeSet<String>,
    /// Nodes that get the data set, those that are ready included.
    pub all: &'a BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_numbers_are_plain() {
        for right in ["1", "123.head-1.example.org", "7[].pbs_1"] {
            assert_eq!(JobId::new(right).unwrap().as_str(), right);
        }
        let long = "1".repeat(129);
        for wrong in ["", "-1", "a1", "1 2", "1;2", "1\n", long.as_str()] {
            assert_eq!(JobId::new(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_product_has_its_form_of_numbers() {
        use BatchKind::{GridEngine, Pbs, Slurm};
        for (kind, text, is_number) in [
            (Slurm, "123", true),
            (GridEngine, "1", true),
            (Pbs, "12.head-1.example.org", true),
            (Pbs, "12[].pbs", true),
            (Slurm, "0abc", false),
            (Slurm, "1_2", false),
            (Slurm, "12345678901", false),
            (GridEngine, "1.2", false),
            (Pbs, "12", false),
            (Pbs, "12[3].pbs", false),
            (Pbs, "12abc.pbs", false),
        ] {
            assert_eq!(kind.job_id(text).is_some(), is_number, "{kind} {text}");
        }
    }

    #[test]
    fn ranges_of_tasks_are_read() {
        let mut ranges = TaskRanges::parse("1,5-9,20-30:5").unwrap();
        assert_eq!(ranges.count(), 9);
        let found: Vec<u64> = (0..40).filter(|task| ranges.contains(*task)).collect();
        assert_eq!(found, [1, 5, 6, 7, 8, 9, 20, 25, 30]);
        let before = ranges.clone();
        ranges.add(TaskRanges::parse("6-8,25").unwrap());
        assert_eq!(ranges, before);
        ranges.add(TaskRanges::parse("4-40").unwrap());
        assert_eq!(ranges, TaskRanges::parse("1,4-40").unwrap());
        for wrong in ["", "a", "2-1", "1-5:0", "1-", "..."] {
            assert_eq!(TaskRanges::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tasks_that_wait_again_are_alive() {
        let running = |index| LiveJob {
            running: vec![LiveTask {
                index,
                nodes: Vec::new(),
            }],
            ..LiveJob::default()
        };
        assert!(running(Some(5)).has_task(5) && !running(Some(5)).has_task(6));
        assert!(running(None).has_task(2024), "a job without an array");
        let mut waiting = running(Some(5));
        waiting.pending = 1;
        assert!(waiting.has_task(6), "any task may wait");
        waiting.add_waiting(TaskRanges::one(7));
        assert!(waiting.has_task(7) && !waiting.has_task(6));
    }

    #[test]
    fn marks_are_sixteen_digits() {
        assert_eq!(JobMark::new(JobMark::of(7).as_str()), Some(JobMark::of(7)));
        for wrong in ["", "00", "000000000000000G", "000000000000000A"] {
            assert_eq!(JobMark::new(wrong), None, "{wrong}");
        }
    }
}
