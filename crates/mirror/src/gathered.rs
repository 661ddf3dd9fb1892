//! What the engine tells of a piece of work, within bounds.

use crate::comparing::Comparing;
use crate::dirty::{Dirty, Taken};
use crate::link_names::{Linked, files_of};
use crate::sought::Sought;
use driftless_detect::snapshot::btrfs::changed_ranges;
use driftless_engine::{Differing, DirectoryPlace, Monitor, Progress};
use driftless_lock::Mutex;
use driftless_model::{
    Act, Action, Class, DirectoryId, Kind, Meta, Problem, Receipt, RelPath, Scope, Side, Stamp,
    Work,
};
use driftless_state::DirectoryIndex;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Problems of one piece of work that are told apart; with more, all of it is looked at again.
pub(crate) const PROBLEMS_MAX: usize = 10_000;
/// Paths that one walk has changed and that are compared with what was heard of.
const CHANGED_PATHS_MAX: usize = 100_000;
/// Bytes of these paths: those of a deep tree are long.
const CHANGED_BYTES_MAX: usize = 32 << 20;
/// Unreported renames that one piece of work logs.
const RELOCATED_LOGGED_MAX: usize = 20;
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
    /// Not everything that changed the source since then was heard of.
    pub(crate) unheard_since: Option<Stamp>,
    /// The snapshot that the replica was equal to, and the one that is read.
    pub(crate) between: Option<(PathBuf, PathBuf)>,
    pub(crate) problems: Mutex<Vec<Problem>>,
    pub(crate) changed: Mutex<Vec<Made>>,
    pub(crate) changed_bytes: AtomicUsize,
    /// Entries that the replica lacked before.
    pub(crate) created: AtomicU64,
    /// More was changed than that.
    pub(crate) changed_more: AtomicBool,
    pub(crate) linked: Mutex<Vec<Linked>>,
    /// Files of which each name is told.
    pub(crate) sought: Arc<Sought>,
    /// Index of the source's directories, if there is one.
    pub(crate) directories: Option<Arc<Mutex<DirectoryIndex>>>,
    /// Directories that were renamed on the replica because the index knew them: the old path and
    /// the new one.
    pub(crate) relocated: Mutex<Vec<(RelPath, RelPath)>>,
    /// Receives the progress, if all is compared.
    pub(crate) comparing: Option<Arc<Comparing>>,
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
            unheard_since: self.unheard_since,
            between: self.between.clone(),
            sought: self.sought.clone(),
            directories: self.directories.clone(),
            ..Gathered::default()
        }
    }

    /// Adds what a further look has told. The bounds hold for all looks together.
    pub(crate) fn take_in(&self, other: &Gathered) {
        self.add_problems(other.problems.lock().drain(..));
        let mut linked = self.linked.lock();
        let room = LINKED_MAX.saturating_sub(linked.len());
        linked.extend(other.linked.lock().drain(..).take(room));
        drop(linked);
        let more = std::mem::take(&mut *other.changed.lock());
        more.into_iter().for_each(|made| self.add_changed(made));
        self.created.fetch_add(other.created.load(Relaxed), Relaxed);
        self.changed_more
            .fetch_or(other.has_lost_changes(), Relaxed);
    }

    /// Adds problems. Where there are too many, all that was asked for counts as failed.
    pub(crate) fn add_problems(&self, more: impl Iterator<Item = Problem>) {
        let mut problems = self.problems.lock();
        let room = PROBLEMS_MAX.saturating_sub(problems.len());
        problems.extend(more.take(room));
    }

    fn add_changed(&self, made: Made) {
        let mut changed = self.changed.lock();
        let bytes = made.path.as_bytes().len();
        let before = self.changed_bytes.fetch_add(bytes, Relaxed);
        if changed.len() < CHANGED_PATHS_MAX && before + bytes <= CHANGED_BYTES_MAX {
            changed.push(made);
        } else {
            self.changed_more.store(true, Relaxed);
        }
    }

    /// Whether more was changed than is told apart.
    pub(crate) fn has_lost_changes(&self) -> bool {
        self.changed_more.load(Relaxed)
    }

    /// All of what was taken is a problem: why, in words.
    pub(crate) fn refuse(&self, taken: &Taken, why: &str) {
        let problem = |(path, dirty): (&RelPath, &Dirty)| Problem {
            path: path.clone(),
            side: Side::Replica,
            act: match dirty.scope {
                Scope::Entry => Act::Remove,
                Scope::Names | Scope::Subtree => Act::RemoveExtras,
            },
            cause: why.to_owned(),
            class: Class::Skip,
        };
        self.add_problems(taken.paths.iter().map(problem));
    }
}

impl Monitor for Gathered {
    fn wants_receipts(&self) -> bool {
        true
    }

    fn receipt(&self, receipt: &Receipt) {
        if receipt.action == Action::Create {
            self.created.fetch_add(1, Relaxed);
        }
        self.add_changed(Made {
            path: receipt.path.clone(),
            action: receipt.action,
            is_dir: receipt.kind == Kind::Dir,
        });
    }

    fn problem(&self, problem: &Problem) {
        self.add_problems(std::iter::once(problem).cloned());
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

    fn seeks(&self, inode: (u64, u64)) -> bool {
        self.sought.seeks(inode)
    }

    fn is_unheard(&self, source: &Meta, _replica: &Meta) -> bool {
        self.unheard_since
            .is_some_and(|since| source.ctime >= since)
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

    fn indexes_directories(&self) -> bool {
        self.directories.is_some()
    }

    fn directory(&self, id: DirectoryId, place: DirectoryPlace<'_>) {
        if let Some(index) = &self.directories {
            let above = (place.parent, place.name.to_bytes());
            index.lock().note(id, above, place.replica);
        }
    }

    fn stood_at(&self, id: DirectoryId, root: u64) -> Option<(RelPath, u64)> {
        let (path, copy) = self.directories.as_ref()?.lock().find(id, root)?;
        Some((RelPath::parse(&path).ok()?, copy))
    }

    fn relocated(&self, from: &RelPath, to: &RelPath) {
        let mut relocated = self.relocated.lock();
        if relocated.len() < RELOCATED_LOGGED_MAX {
            tracing::info!("\"{from}\" is \"{to}\" now: renamed on the replica");
        }
        if relocated.len() < CHANGED_PATHS_MAX {
            relocated.push((from.clone(), to.clone()));
        } else {
            self.changed_more.store(true, Relaxed);
        }
    }

    fn progress(&self, progress: &Progress) {
        if let Some(comparing) = &self.comparing {
            comparing.see(progress);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_looks_together_are_bounded() {
        let path = |number: usize| RelPath::parse(number.to_string().as_bytes()).unwrap();
        let problem = |number| Problem {
            path: path(number),
            side: Side::Source,
            act: Act::Remove,
            cause: String::new(),
            class: Class::Skip,
        };
        let linked = |number| Linked {
            path: path(number),
            inode: (1, number as u64),
            names: 2,
        };
        let made = |name: String| Made {
            path: RelPath::parse(name.as_bytes()).unwrap(),
            action: Action::Create,
            is_dir: false,
        };
        let all = Gathered::default();
        for look in 0..3 {
            let found = all.of_another_look();
            found.add_problems((0..PROBLEMS_MAX / 2).map(problem));
            found.linked.lock().extend((0..LINKED_MAX / 2).map(linked));
            // Long names are too many before they are too many by their number.
            let name = "n".repeat(CHANGED_BYTES_MAX / 2000);
            for number in 0..700 {
                found.add_changed(made(format!("{name}{number}")));
            }
            assert!(!found.has_lost_changes());
            all.take_in(&found);
            assert_eq!(all.has_lost_changes(), look == 2);
            assert!(found.problems.lock().is_empty() && found.linked.lock().is_empty());
        }
        assert_eq!(all.problems.lock().len(), PROBLEMS_MAX);
        assert_eq!(all.linked.lock().len(), LINKED_MAX);
        let changed = all.changed.lock();
        let bytes: usize = changed.iter().map(|made| made.path.as_bytes().len()).sum();
        assert!(
            (CHANGED_BYTES_MAX / 2..=CHANGED_BYTES_MAX).contains(&bytes),
            "{bytes}"
        );
    }
}
