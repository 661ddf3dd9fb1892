//! What a run tells while it works: one value for each event, read alike by a terminal, by `--json`
//! and by a log.
//!
//! The fields that are serialised are the fields of `docs/json.md`; a test compares them. Values
//! keep their types, so that a reader for people can choose its own words.

use crate::{
    Act, Action, Class, Difference as Values, Kind, Level, Problem, Receipt, Side, Unkept, What,
};
use serde::{Serialize, Serializer};

mod audit;
mod sum;

pub use audit::{AuditEvent, AuditSummary};
pub use sum::{Checked, SumEvent, SumSummary};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run begins.
    Start(Start),
    /// An entry was made equal, or would be in a dry run.
    Change(ChangeMade),
    /// A verification found that an entry is not the same on both sides.
    Difference(DifferenceFound),
    /// A path could not be made equal.
    Problem(ProblemMet),
    /// How far the run is.
    Progress(ProgressMade),
    /// The run is over.
    Summary(RunSummary),
    /// The connection to another host was lost.
    ConnectionLost {
        /// Which host, and why.
        reason: String,
        /// Since the run began.
        seconds: f64,
    },
    /// The connection was made again.
    ConnectedAgain {
        /// The host.
        host: String,
        /// Since the connection was lost.
        seconds: f64,
    },
    /// An entry has something that its copy does not get, and that no entry before it had.
    Unkept {
        /// The entry.
        #[serde(flatten)]
        path: PathText,
        /// What it has.
        #[serde(serialize_with = "unkept_words")]
        what: Unkept,
    },
    /// Something about the run as a whole.
    Note {
        /// What there is to know.
        message: String,
    },
    /// The run did not begin.
    Error {
        /// Why.
        message: String,
        /// The exit code of the process.
        exit_code: u8,
    },
}

/// A path as text that is safe to print, and its bytes where the text does not say all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathText {
    /// Escaped text; `.` is the root.
    pub path: String,
    /// The bytes in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
}

/// Both roots, as they were given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Roots {
    /// The source, escaped.
    pub source: String,
    /// Its bytes in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_base64: Option<String>,
    /// The replica, escaped.
    pub replica: String,
    /// Its bytes in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_base64: Option<String>,
}

/// What a run begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Start {
    /// The trees.
    #[serde(flatten)]
    pub roots: Roots,
    /// Nothing will be changed.
    pub dry_run: bool,
    /// How closely entries are compared.
    pub level: Level,
}

/// What was done to an entry, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeMade {
    /// The entry.
    #[serde(flatten)]
    pub path: PathText,
    /// Its kind.
    pub kind: Kind,
    /// What was done.
    pub action: Action,
    /// What had differed.
    #[serde(serialize_with = "what_words")]
    pub what: What,
    /// Bytes of a regular file.
    pub size: u64,
}

impl ChangeMade {
    /// What a receipt says was done at a path.
    pub fn new(receipt: &Receipt, path: PathText) -> Self {
        ChangeMade {
            path,
            kind: receipt.kind,
            action: receipt.action,
            what: receipt.what,
            size: receipt.size,
        }
    }
}

/// How an entry differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DifferenceFound {
    /// The entry.
    #[serde(flatten)]
    pub path: PathText,
    /// Its kind.
    pub kind: Kind,
    /// What was found, in a word: `missing`, `extra` or `differs`.
    pub found: &'static str,
    /// What differs.
    #[serde(serialize_with = "what_words")]
    pub what: What,
    /// Bytes of a regular file on the source.
    pub size: u64,
    /// Both values of each property that differs, in words.
    pub values: Vec<Values>,
    /// Where the content differs: first byte, and the one after the last.
    pub ranges: Vec<[u64; 2]>,
}

impl DifferenceFound {
    /// What a receipt says differs at a path.
    pub fn new(receipt: &Receipt, path: PathText) -> Self {
        let found = match receipt.action {
            Action::Create => "missing",
            Action::Delete => "extra",
            _ => "differs",
        };
        let ranges = receipt
            .ranges
            .iter()
            .map(|range| [range.start, range.end])
            .collect();
        let (kind, what, size) = (receipt.kind, receipt.what, receipt.size);
        DifferenceFound {
            path,
            kind,
            found,
            what,
            size,
            values: receipt.values.clone(),
            ranges,
        }
    }
}

/// A path that is not equal, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProblemMet {
    /// The path.
    #[serde(flatten)]
    pub path: PathText,
    /// The tree it happened on.
    pub side: Side,
    /// What was tried.
    #[serde(serialize_with = "act_words")]
    pub act: Act,
    /// Why it failed, in words.
    pub cause: String,
    /// What follows.
    pub class: Class,
    /// The same in words.
    pub follows: &'static str,
}

impl ProblemMet {
    /// A problem as it is told.
    pub fn new(problem: &Problem, path: PathText) -> Self {
        let (side, act, class) = (problem.side, problem.act, problem.class);
        ProblemMet {
            path,
            side,
            act,
            cause: problem.cause.clone(),
            class,
            follows: class.follows(),
        }
    }
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgressMade {
    /// Since the run began.
    pub seconds: f64,
    /// Estimated share of the walk that is over, 0 to 1.
    pub share: f64,
    /// Estimated seconds to the end, where that can be said.
    pub eta_seconds: Option<f64>,
    /// What was counted so far.
    #[serde(flatten)]
    pub counters: Counters,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// The exit code of the process.
    pub exit_code: u8,
    /// How long the run took.
    pub seconds: f64,
    /// How it ended, in a word.
    pub end: &'static str,
    /// Why, where it did not come to its end.
    pub reason: Option<String>,
    /// How often a connection was lost and the run went on.
    pub connections_lost: u64,
    /// Entries that were made equal before that, or by an interrupted run.
    pub changed_before: u64,
    /// What was counted.
    #[serde(flatten)]
    pub counters: Counters,
}

/// What a run counts. `docs/json.md` has the meaning of each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(
    missing_docs,
    reason = "docs/json.md has the meaning of each, and a test compares the names"
)]
pub struct Counters {
    pub seen: u64,
    pub same: u64,
    pub changed: u64,
    pub skipped: u64,
    pub skipped_filtered: u64,
    pub skipped_kind: u64,
    pub skipped_other_file_system: u64,
    pub skipped_vanished: u64,
    pub failed: u64,
    pub problems: u64,
    pub deleted: u64,
    pub respelt: u64,
    pub only_on_replica: u64,
    pub bytes_copied: u64,
    pub bytes_resumed: u64,
    pub bytes_compared: u64,
    pub unkept_owners: u64,
    pub unkept_privileges: u64,
    pub unkept_links: u64,
    pub unkept_flags: u64,
    pub unkept_acls: u64,
    pub known_equal: u64,
    pub oldest_note_seconds: u64,
    pub times_cut: u64,
    pub times_cut_to_seconds: u64,
    pub mismatched: u64,
}

fn what_words<S: Serializer>(what: &What, to: S) -> Result<S::Ok, S::Error> {
    what.words().serialize(to)
}

fn act_words<S: Serializer>(act: &Act, to: S) -> Result<S::Ok, S::Error> {
    act.words().serialize(to)
}

fn unkept_words<S: Serializer>(what: &Unkept, to: S) -> Result<S::Ok, S::Error> {
    what.words().serialize(to)
}
