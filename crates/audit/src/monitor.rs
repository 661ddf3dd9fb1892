//! Who watches an audit.

use driftless_model::Problem;

/// Told how an audit goes. Called from many threads.
pub trait AuditMonitor: Sync {
    /// A path could not be counted or compared.
    fn problem(&self, problem: &Problem);
    /// So many entries of this stage are done, of so many, where that is known, by so many threads.
    fn progress(&self, stage: AuditStage, entries: u64, of: Option<u64>, jobs: usize);
}

/// The stages of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditStage {
    /// Entries are counted and drawn.
    Counting,
    /// What was drawn is compared.
    Comparing,
    /// What differs is looked at once more.
    Looking,
}
