//! What the engine tells of a piece of work, within bounds.

use crate::dirty::Taken;
use crate::link_names::{Linked, files_of};
use driftless_detect::snapshot::btrfs::changed_ranges;
use driftless_engine::{Differing, Monitor, Progress};
use driftless_lock::Mutex;
use driftless_model::{Act, Action, Class, Kind, Meta, Problem, Receipt, RelPath, Side, Work};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Problems of one piece of work that are told apart; with more, all of it is looked at again.
pub(crate) const PROBLEMS_MAX: usize = 10_000;
/// Paths that one walk has changed and that are compared with what was heard of.
const CHANGED_PATHS_MAX: usize = 100_000;
/// Bytes of these paths: those of a deep tree are long.
const CHANGED_BYTES_MAX: usize = 32 << 20;
/// Names of files with several that one piece of work tells of.
const LINKED_MAX: usize = 500_000;

/// An entry of the replica that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Where.
    pub path: RelPath,
    /// What was done to it.
    pub action: Action,
    /// It is, or was, a directory.
    pub is_dir: bool,
}

/// What the engine tells of one piece of work.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) is_of_snapshot: bool,
    /// The snapshot that the replica was equal to, and the one that is read.
    pub(crate) between: Option<(PathBuf, PathBuf)>,
    pub(crate) problems: Mutex<Vec<Problem>>,
    pub(crate) changed: Mutex<Vec<Made>>,
    pub(crate) changed_bytes: AtomicUsize,
    /// More was changed than that.
    pub(crate) changed_more: AtomicBool,
    pub(crate) linked: Mutex<Vec<Linked>>,
}

impl Gathered {
    /// Names that could not be made links, since the content under another name of the file is not
    /// the source's. They are no problems any more: whoever asks compares the content of all names.
    pub(crate) fn take_unlike(&self) -> BTreeSet<RelPath> {
        let mut problems = self.problems.lock();
        let unlike = problems.extract_if(.., |problem| problem.act == Act::LinkSame);
        unlike.map(|problem| problem.path).collect()
    }

    /// All names that were met of the files that have one of those that `is_meant`: what is wrong
    /// under one name is wrong under each that was made a link to it.
    pub(crate) fn names_of_files(&self, is_meant: impl Fn(&RelPath) -> bool) -> Vec<RelPath> {
        let linked = self.linked.lock();
        let files = files_of(&linked, is_meant);
        let names = linked.iter().filter(|one| files.contains(&one.inode));
        names.map(|one| one.path.clone()).collect()
    }

    /// Of this work, where content was found equal: what was made there is as the source has it,
    /// with all below it.
    pub(crate) fn found_equal(&self, works: impl Iterator<Item = Work>) -> Vec<Work> {
        let changed = self.changed.lock();
        // A link leads to what may have been found equal.
        let is_made = |action: &Action| !matches!(action, Action::Meta | Action::Link);
        let made = changed.iter().filter(|made| is_made(&made.action));
        let made: BTreeSet<&RelPath> = made.map(|made| &made.path).collect();
        works.filter(|work| !made.contains(&work.path)).collect()
    }

    /// What a further look at the same trees tells.
    pub(crate) fn of_another_look(&self) -> Gathered {
        Gathered {
            is_of_snapshot: self.is_of_snapshot,
            between: self.between.clone(),
            ..Gathered::default()
        }
    }

    /// Adds what a further look has told.
    pub(crate) fn take_in(&self, other: &Gathered) {
        self.problems.lock().append(&mut other.problems.lock());
        self.linked.lock().append(&mut other.linked.lock());
        let mut changed = self.changed.lock();
        let room = CHANGED_PATHS_MAX.saturating_sub(changed.len());
        let mut more = other.changed.lock();
        let has_lost = more.len() > room || other.has_lost_changes();
        changed.extend(more.drain(..).take(room));
        self.changed_more.fetch_or(has_lost, Relaxed);
    }

    /// Whether more was changed than is told apart.
    pub(crate) fn has_lost_changes(&self) -> bool {
        self.changed_more.load(Relaxed)
    }

    /// All of what was taken is a problem: why, in words.
    pub(crate) fn refuse(&self, taken: &Taken, why: &str) {
        let problem = |path: &RelPath| Problem {
            path: path.clone(),
            side: Side::Replica,
            act: Act::Remove,
            cause: why.to_owned(),
            class: Class::Skip,
        };
        self.problems.lock().extend(taken.paths.keys().map(problem));
    }
}

impl Monitor for Gathered {
    fn wants_receipts(&self) -> bool {
        true
    }

    fn receipt(&self, receipt: &Receipt) {
        let mut changed = self.changed.lock();
        let bytes = receipt.path.as_bytes().len();
        let before = self.changed_bytes.fetch_add(bytes, Relaxed);
        if changed.len() < CHANGED_PATHS_MAX && before + bytes <= CHANGED_BYTES_MAX {
            changed.push(Made {
                path: receipt.path.clone(),
                action: receipt.action,
                is_dir: receipt.kind == Kind::Dir,
            });
        } else {
            self.changed_more.store(true, Relaxed);
        }
    }

    fn problem(&self, problem: &Problem) {
        let mut problems = self.problems.lock();
        if problems.len() < PROBLEMS_MAX {
            problems.push(problem.clone());
        }
    }

    fn linked(&self, path: &dyn Fn() -> RelPath, inode: (u64, u64), names: u64) {
        // Each snapshot is a device of its own, on which a file keeps its number.
        let device = if self.is_of_snapshot { 0 } else { inode.0 };
        let inode = (device, inode.1);
        let mut linked = self.linked.lock();
        if linked.len() < LINKED_MAX {
            linked.push(Linked {
                path: path(),
                inode,
                names,
            });
        }
    }

    // What a mirror meets was written to since it was copied, as a rule.
    fn differing(
        &self,
        path: &dyn Fn() -> RelPath,
        source: &Meta,
        replica: &dyn Fn() -> Option<Meta>,
    ) -> Differing {
        let known = self.between.as_ref().and_then(|(older, newer)| {
            let replica = replica()?;
            let was = (replica.size, replica.mtime);
            changed_ranges((older, newer), (&path(), source.ino), was)
        });
        known.map_or(Differing::InPlaces, Differing::In)
    }

    fn progress(&self, _progress: &Progress) {}
}

/// Hears nothing.
pub(crate) struct Silent;

impl Monitor for Silent {
    fn wants_receipts(&self) -> bool {
        false
    }

    fn receipt(&self, _receipt: &Receipt) {}

    fn problem(&self, _problem: &Problem) {}

    fn progress(&self, _progress: &Progress) {}
}
