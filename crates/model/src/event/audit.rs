//! What an audit tells: one value for each line of `driftless audit --json`. The fields are those
//! of `docs/audit.md`.

use super::{DifferenceFound, Roots};
use crate::Level;
use serde::Serialize;

/// Something that happened in an audit. Its problems are told as those of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AuditEvent {
    /// It begins.
    Start {
        /// Both roots.
        #[serde(flatten)]
        roots: Roots,
        /// What is compared of an entry.
        level: Level,
        /// How many entries are drawn at most.
        samples: u64,
        /// What the draw follows from.
        seed: u64,
        /// With what probability the proof shall hold.
        confidence: f64,
        /// How much of all entries may differ, if that was given in place of the samples.
        fraction: Option<f64>,
        /// What changed so long before the audit is recent.
        grace_seconds: u64,
    },
    /// A drawn entry is not the same on both sides.
    Difference {
        /// How it differs.
        #[serde(flatten)]
        found: DifferenceFound,
        /// Whether it changed so lately that it proves no drift.
        recent: bool,
        /// When, in seconds since 1970.
        changed: i64,
    },
    /// How far it is.
    Progress {
        /// What is done now.
        stage: &'static str,
        /// Entries so far.
        entries: u64,
        /// Of so many, if that is known.
        of: Option<u64>,
        /// Since the audit began.
        seconds: f64,
    },
    /// It is over.
    Summary(AuditSummary),
}

/// What an audit found and proves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditSummary {
    /// The exit code of the process.
    pub exit_code: u8,
    /// How long it took.
    pub seconds: f64,
    /// `complete`, `stopped` or `cut_off`.
    pub end: &'static str,
    /// Why it was cut off.
    pub reason: Option<String>,
    /// Entries of both trees together.
    pub entries: u64,
    /// Entries that were drawn.
    pub sampled: u64,
    /// Drawn entries that agree.
    pub same: u64,
    /// Drawn entries that differ.
    pub drift: u64,
    /// Drawn entries that differ and changed lately.
    pub recent: u64,
    /// Drawn entries that are gone.
    pub vanished: u64,
    /// Drawn entries that could not be compared.
    pub failed: u64,
    /// Paths that have problems.
    pub problems: u64,
    /// With what probability the proof holds.
    pub confidence: f64,
    /// The largest fraction of all entries that may differ.
    pub bound: Option<f64>,
    /// Whether all entries were drawn.
    pub exact: bool,
    /// The proof as a sentence.
    pub proof: String,
}
