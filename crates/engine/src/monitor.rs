//! Who watches a run: the terminal, a log, a program.

use crate::tally::Counts;
use crate::underway::LargeFiles;
use driftless_model::{DirectoryId, Meta, Problem, Receipt, RelPath, Unkept};
use std::ffi::CStr;
use std::ops::Range;
use std::time::Duration;

/// A look at a run in progress.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Counters.
    pub counts: Counts,
    /// Since the run began.
    pub elapsed: Duration,
    /// Large files that were begun.
    pub large: LargeFiles,
    /// Threads at work.
    pub jobs: usize,
}

/// Where two files differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Differing {
    /// Nobody knows.
    Anywhere,
    /// In some places, probably: it is worth looking for them.
    InPlaces,
    /// In no others than these ranges of bytes, which are in order.
    In(Vec<Range<u64>>),
}

/// Place of a directory of the source, and its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryPlace<'n> {
    /// Inode of the parent on the source.
    pub parent: u64,
    /// Name in the parent.
    pub name: &'n CStr,
    /// Inode of the replica's directory.
    pub replica: u64,
}

/// Told what happens. Called from many threads.
pub trait Monitor: Sync {
    /// Whether receipts are wanted; making them costs a path each.
    fn wants_receipts(&self) -> bool;
    /// Whether receipts shall hold both values of what differs.
    fn wants_values(&self) -> bool {
        false
    }
    /// An entry was made equal (or would be, in a dry run).
    fn receipt(&self, receipt: &Receipt);
    /// A path has a problem.
    fn problem(&self, problem: &Problem);
    /// Something about the run as a whole that the monitor should know.
    fn note(&self, _text: &str) {}
    /// An entry has something that its copy does not get, and that none before it had.
    fn unkept(&self, _what: Unkept, _path: &RelPath) {}
    /// A name of a file that has several, or is sought, was met: the file, by device and inode, and
    /// how many names it has.
    fn linked(&self, _path: &dyn Fn() -> RelPath, _inode: (u64, u64), _names: u64) {}
    /// Whether the names of a file, by device and inode, are to be told although it has but one.
    fn seeks(&self, _inode: (u64, u64)) -> bool {
        false
    }
    /// Returns whether the content of a file, as both trees have it, may differ although sizes and
    /// times agree: it was changed at a time of which the caller has not heard everything.
    fn is_unheard(&self, _source: &Meta, _replica: &Meta) -> bool {
        false
    }
    /// Everything is looked at once more: what was told of entries so far is found again, or over.
    fn look_again(&self) {}
    /// What is known of where a file, the source's, differs from the one that its replica has; to
    /// look at that costs a request or two.
    fn differing(
        &self,
        _path: &dyn Fn() -> RelPath,
        _source: &Meta,
        _replica: &dyn Fn() -> Option<Meta>,
    ) -> Differing {
        Differing::Anywhere
    }
    /// Returns whether the monitor keeps an index of the source's directories.
    fn indexes_directories(&self) -> bool {
        false
    }
    /// Takes the place of a directory of the source.
    fn directory(&self, _id: DirectoryId, _place: DirectoryPlace<'_>) {}
    /// Returns the path at which this directory of the source stood before, and the inode of its
    /// copy, if the index has it. `root` is the inode of the source's root.
    fn stood_at(&self, _id: DirectoryId, _root: u64) -> Option<(RelPath, u64)> {
        None
    }
    /// Receives that a directory of the replica was renamed, because the source's was.
    fn relocated(&self, _from: &RelPath, _to: &RelPath) {}
    /// A few times a second.
    fn progress(&self, progress: &Progress);
}
