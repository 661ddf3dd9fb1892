//! A random sample of the entries of which a mover says that they are equal now, with its view of
//! them, so that the coordinator can compare it with its own: a mover that sees another tree makes
//! everything equal there, and no other host sees any of it.

use crate::shared::view::{Further, View, Views};
use driftless_lock::Mutex;
use driftless_model::RelPath;
use driftless_tree::DirRef;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Entries of a batch that are told if it has no more.
const ENTRIES_MAX: usize = 256;
/// Directories of a batch that are told.
const DIRS_MAX: usize = 512;
/// Entries of a larger batch that are told: so many, and more if this share is more.
const ENTRIES_MIN: usize = 32;
const SHARE: usize = 200;
/// Directories of a batch whose names are told.
const LISTED_MAX: usize = 8;
/// Directories of a batch's replica on which a file system is mounted, and that are told.
const MOUNTS_MAX: usize = 512;
/// Entries that are told of trees on another host: each costs round trips, and one agent has the
/// same view for all movers.
const FAR_MAX: usize = 8;
/// Bytes of a path that is told.
const PATH_BYTES_MAX: usize = 1024;

/// Entry of which a mover says that it is equal now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Path of the entry.
    pub path: RelPath,
    /// Source's entry as the mover sees it when the batch is over.
    pub source: Option<View>,
    /// Replica's entry as the mover sees it then.
    pub replica: Option<View>,
}

/// Random sample of the settled entries of a batch, while it is carried out.
#[derive(Debug)]
pub struct SettledSample {
    entries: Reservoir,
    dirs: Reservoir,
    /// Directories of the replica on which a file system is mounted: all of them are told.
    mounts: Mutex<Vec<RelPath>>,
}

impl Default for SettledSample {
    fn default() -> Self {
        SettledSample {
            entries: Reservoir::new(ENTRIES_MAX),
            dirs: Reservoir::new(DIRS_MAX),
            mounts: Mutex::default(),
        }
    }
}

impl SettledSample {
    /// Adds an entry that is equal now. Calls `path` only if the entry is in the sample.
    pub fn add(&self, path: impl FnOnce() -> RelPath, is_dir: bool) {
        if is_dir {
            self.dirs.add(path);
        } else {
            self.entries.add(path);
        }
    }

    /// Adds a directory of the replica on which a file system is mounted.
    pub fn add_mount(&self, path: RelPath) {
        let mut mounts = self.mounts.lock();
        if mounts.len() < MOUNTS_MAX && path.as_bytes().len() <= PATH_BYTES_MAX {
            mounts.push(path);
        }
    }

    /// Takes the sample, with the views of a mover that sees these trees.
    pub fn take(&self, source: &DirRef, replica: Option<&DirRef>) -> Vec<Settled> {
        let all = |count: usize| count;
        let further = |names, birth| Further { names, birth };
        let (dirs, entries) = (self.dirs.take(all), self.entries.take(told));
        let lists = |(index, path)| (path, further(index < LISTED_MAX, false));
        let mut paths: Vec<(RelPath, Further)> = dirs.into_iter().enumerate().map(lists).collect();
        paths.extend(
            entries
                .into_iter()
                .map(|path| (path, further(false, false))),
        );
        if source.as_local().is_none() || replica.is_some_and(|dir| dir.as_local().is_none()) {
            fastrand::shuffle(&mut paths);
            paths.truncate(FAR_MAX);
        } else {
            let mounts = std::mem::take(&mut *self.mounts.lock());
            paths.extend(mounts.into_iter().map(|path| (path, further(false, true))));
        }
        // Neighbours share a handle.
        paths.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let (mut source, mut replica) = (Views::of(source), replica.map(Views::of));
        let mut view = |(path, Further { names, birth }): (RelPath, Further)| Settled {
            source: source.read(&path, further(names, false)).ok(),
            replica: replica
                .as_mut()
                .and_then(|replica| replica.read(&path, further(false, birth)).ok()),
            path,
        };
        paths.into_iter().map(&mut view).collect()
    }
}

/// Returns how many entries of a batch with so many are told.
fn told(count: usize) -> usize {
    if count <= ENTRIES_MAX {
        count
    } else {
        (count / SHARE).clamp(ENTRIES_MIN, ENTRIES_MAX)
    }
}

/// Uniform random sample of a stream of paths (Vitter's algorithm R).
#[derive(Debug)]
struct Reservoir {
    max: usize,
    count: AtomicUsize,
    kept: Mutex<Vec<RelPath>>,
}

impl Reservoir {
    fn new(max: usize) -> Reservoir {
        Reservoir {
            max,
            count: AtomicUsize::new(0),
            kept: Mutex::default(),
        }
    }

    fn add(&self, path: impl FnOnce() -> RelPath) {
        let number = self.count.fetch_add(1, Relaxed);
        let place = if number < self.max {
            number
        } else {
            fastrand::usize(..=number)
        };
        if place >= self.max {
            return;
        }
        let path = path();
        if path.as_bytes().len() > PATH_BYTES_MAX {
            return;
        }
        let mut kept = self.kept.lock();
        match kept.get_mut(place) {
            Some(earlier) if number >= self.max => *earlier = path,
            _ => kept.push(path),
        }
    }

    /// Takes as many of the sample, in random order, as `told` says for the number of all.
    fn take(&self, told: impl Fn(usize) -> usize) -> Vec<RelPath> {
        let mut kept = std::mem::take(&mut *self.kept.lock());
        fastrand::shuffle(&mut kept);
        kept.truncate(told(self.count.load(Relaxed)));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: usize) -> RelPath {
        RelPath::parse(number.to_string().as_bytes()).expect("a path")
    }

    fn sample(count: usize) -> Vec<RelPath> {
        let all = Reservoir::new(ENTRIES_MAX);
        (0..count).for_each(|number| all.add(|| path(number)));
        all.take(told)
    }

    #[test]
    fn a_small_batch_is_told_whole_and_a_large_one_in_part() {
        for (count, expected) in [(0, 0), (1, 1), (256, 256), (257, 32), (20_000, 100)] {
            let mut told = sample(count);
            told.sort_unstable();
            told.dedup();
            assert_eq!(told.len(), expected, "of {count}");
        }
    }

    #[test]
    fn each_entry_of_a_batch_is_as_likely_told() {
        const ROUNDS: usize = 2000;
        let early: Vec<RelPath> = (0..300).map(path).collect();
        let hits = |sample: Vec<RelPath>| sample.iter().filter(|told| early.contains(told)).count();
        let found: usize = (0..ROUNDS).map(|_| hits(sample(600))).sum();
        // Half of the entries are early: 32,000 of 64,000 are expected, with a deviation of 126.
        let expected = ROUNDS * ENTRIES_MIN / 2;
        assert!(found.abs_diff(expected) < 1000, "{found} of {expected}");
    }
}
