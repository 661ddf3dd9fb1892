//! Who watches an audit.

use driftless_model::Problem;
use std::sync::atomic::AtomicBool;

/// Told how an audit goes. Called from many threads.
pub trait AuditMonitor: Sync {
    /// A path could not be counted or compared.
    fn problem(&self, problem: &Problem);
    /// So many entries of this stage are done, of so many, where that is known, by so many threads.
    fn progress(&self, stage: AuditStage, entries: u64, of: Option<u64>, jobs: usize);
}

/// Who is told how an audit goes, and what asks it to stop.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Told.
    pub monitor: &'a dyn AuditMonitor,
    /// Set from outside.
    pub stop: &'a AtomicBool,
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
