//! Counts the problems of a restore and passes them on, each with its path in the tree. A restore that
//! had a problem has not brought everything back, so it never ends as a success.

use super::{RestoreError, failed};
use crate::monitor::{Monitor, Progress};
use driftless_model::{Class, Fault, Problem, Receipt, RelPath};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Problems of a restore.
pub struct RestoreProblems<'a> {
    monitor: &'a dyn Monitor,
    count: AtomicU64,
    /// Problems of entries that do not come back.
    missing: AtomicU64,
}

impl<'a> RestoreProblems<'a> {
    /// Passes problems on to a monitor.
    pub fn new(monitor: &'a dyn Monitor) -> RestoreProblems<'a> {
        RestoreProblems {
            monitor,
            count: AtomicU64::new(0),
            missing: AtomicU64::new(0),
        }
    }

    /// Returns the number of problems so far.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Returns the number of problems of entries that do not come back. An entry that only lacks a
    /// property comes back.
    pub fn missing(&self) -> u64 {
        self.missing.load(Relaxed)
    }

    /// Reports that a call failed at a path.
    ///
    /// # Errors
    /// The connection to a host is lost, so no further call can succeed.
    pub fn report(&self, path: &RelPath, fault: Fault) -> Result<(), RestoreError> {
        if fault.is_cut_off() {
            return Err(failed(path, fault));
        }
        self.pass_on(&Problem::new(path.clone(), fault, Class::Skip));
        Ok(())
    }

    fn pass_on(&self, problem: &Problem) {
        self.count.fetch_add(1, Relaxed);
        let is_missing = problem.class != Class::Partly;
        self.missing.fetch_add(u64::from(is_missing), Relaxed);
        self.monitor.problem(problem);
    }
}

/// A monitor that names the problems of one directory by their paths in the tree.
pub struct DirectoryMonitor<'a> {
    /// Problems of the restore.
    pub problems: &'a RestoreProblems<'a>,
    /// Path of the directory.
    pub path: &'a RelPath,
}

impl Monitor for DirectoryMonitor<'_> {
    fn wants_receipts(&self) -> bool {
        false
    }

    fn receipt(&self, _receipt: &Receipt) {}

    fn problem(&self, problem: &Problem) {
        let path = RelPath::from_names(self.path.names().chain(problem.path.names()));
        self.problems.pass_on(&Problem {
            path,
            ..problem.clone()
        });
    }

    fn note(&self, text: &str) {
        self.problems.monitor.note(text);
    }

    fn progress(&self, progress: &Progress) {
        self.problems.monitor.progress(progress);
    }
}
