//! The words of a batch system that all products share.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;

/// Bytes of the longest number of a job.
const JOB_BYTES_MAX: usize = 128;
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
    /// Tasks that run, or end.
    pub running: Vec<LiveTask>,
    /// Reason of the batch system for the wait, as it prints it.
    pub reason: Option<String>,
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
    fn marks_are_sixteen_digits() {
        assert_eq!(JobMark::new(JobMark::of(7).as_str()), Some(JobMark::of(7)));
        for wrong in ["", "00", "000000000000000G", "000000000000000A"] {
            assert_eq!(JobMark::new(wrong), None, "{wrong}");
        }
    }
}
