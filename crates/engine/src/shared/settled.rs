//! A random sample of the entries of which a mover says that they are equal now, with its view of
//! them, so that the coordinator can compare it with its own: a mover that sees another tree makes
//! everything equal there, and no other host sees any of it.

use crate::view::{Further, NAMES_MAX, NameDigest, View, ViewThreads, Views};
use driftless_lock::Mutex;
use driftless_model::{Keep, RelPath};
use driftless_tree::DirRef;
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Entries of a batch that are told if it has no more.
const ENTRIES_MAX: usize = 256;
/// Directories of a batch that are told.
const DIRS_MAX: usize = 512;
/// Entries of a larger batch that are told: so many, and more if this share is more.
const ENTRIES_MIN: usize = 32;
const SHARE: usize = 200;
/// Directories of a batch whose names are told, with `NAMES_MAX` names in all.
const LISTED_MAX: usize = 64;
/// Directories of a batch on which a file system is mounted, and that are told.
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
    /// Whether a file system is mounted there in the source on the mover's host.
    pub is_mounted: bool,
}

/// Random sample of the settled entries of a batch, while it is carried out.
#[derive(Debug)]
pub struct SettledSample {
    entries: Reservoir<()>,
    /// Directories, with the names that their listings showed.
    dirs: Reservoir<Option<NameDigest>>,
    /// Directories on which a file system is mounted, in the source (`true`) or in the replica
    /// alone: all of them are told.
    mounts: Mutex<Vec<(RelPath, bool)>>,
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
    /// Adds an entry, no directory, that is equal now. Calls `path` only if the entry is in the
    /// sample.
    pub fn add(&self, path: impl FnOnce() -> RelPath) {
        self.entries.add(|| (path(), ()));
    }

    /// Adds a directory of which nothing is left here, with the names that its listing showed.
    pub fn add_dir(&self, path: impl FnOnce() -> RelPath, names: Option<NameDigest>) {
        self.dirs.add(|| (path(), names));
    }

    /// Adds a directory on which a file system is mounted, in the source or in the replica alone.
    pub fn add_mount(&self, path: RelPath, is_source: bool) {
        let mut mounts = self.mounts.lock();
        if mounts.len() < MOUNTS_MAX && path.as_bytes().len() <= PATH_BYTES_MAX {
            mounts.push((path, is_source));
        }
    }

    /// Takes the sample, with the views of a mover that sees these trees. A single file may have
    /// another name, `renamed`, on the replica.
    pub fn take(
        &self,
        (source, replica): (&DirRef, Option<&DirRef>),
        (keep, renamed): (&Keep, Option<&CStr>),
        threads: &ViewThreads<'_>,
    ) -> Vec<Settled> {
        let is_far =
            source.as_local().is_none() || replica.is_some_and(|dir| dir.as_local().is_none());
        let (paths, read) = (self.take_paths(is_far), Mutex::new(Vec::new()));
        let (told, settled) = (&paths, &read);
        threads.read_each(paths.len(), &|| {
            let mut of_source = Views::of(source, keep);
            let mut of_replica =
                replica.map(|replica| Views::of(replica, keep).under_name(renamed));
            move |number: usize| {
                let one = told[number].read(&mut of_source, of_replica.as_mut());
                settled.lock().push((number, one));
            }
        });
        let mut settled = read.into_inner();
        settled.sort_unstable_by_key(|(number, _)| *number);
        settled.into_iter().map(|(_, settled)| settled).collect()
    }

    /// Takes the entries of the sample in the order of their paths, so that neighbours share
    /// handles.
    fn take_paths(&self, is_far: bool) -> Vec<ToldEntry> {
        let all = |count: usize| count;
        let (dirs, entries) = (self.dirs.take(all), self.entries.take(told));
        let mut paths = told_names(dirs);
        paths.extend(entries.into_iter().map(|(path, ())| ToldEntry::of(path)));
        if is_far {
            fastrand::shuffle(&mut paths);
            paths.truncate(FAR_MAX);
        } else {
            let mounts = std::mem::take(&mut *self.mounts.lock());
            let mounted = |(path, is_mounted)| ToldEntry {
                birth: true,
                is_mounted,
                ..ToldEntry::of(path)
            };
            paths.extend(mounts.into_iter().map(mounted));
        }
        paths.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        paths
    }
}

/// Entry of the sample, and attributes that are told besides those of its views.
#[derive(Debug)]
struct ToldEntry {
    path: RelPath,
    /// Names that the listing of the source's directory showed.
    names: Option<NameDigest>,
    /// Whether the time of birth of the replica's entry is told.
    birth: bool,
    /// Whether a file system is mounted there in the source.
    is_mounted: bool,
}

impl ToldEntry {
    /// Tells the views of an entry alone.
    fn of(path: RelPath) -> ToldEntry {
        ToldEntry {
            path,
            names: None,
            birth: false,
            is_mounted: false,
        }
    }

    /// Reads the views of the entry.
    fn read(&self, source: &mut Views, replica: Option<&mut Views>) -> Settled {
        let further = Further {
            birth: self.birth,
            ..Further::default()
        };
        let seen = source.read(&self.path, Further::default()).ok();
        Settled {
            source: seen.map(|mut view| {
                view.names = self.names;
                view
            }),
            replica: replica.and_then(|replica| replica.read(&self.path, further).ok()),
            is_mounted: self.is_mounted,
            path: self.path.clone(),
        }
    }
}

/// Has the names of the first directories told, as far as there are not too many.
fn told_names(dirs: Vec<(RelPath, Option<NameDigest>)>) -> Vec<ToldEntry> {
    let (mut listed, mut left) = (0, NAMES_MAX as u64);
    let mut with_names = |(path, names): (RelPath, Option<NameDigest>)| {
        let names = names.filter(|(count, _)| listed < LISTED_MAX && *count <= left);
        if let Some((count, _)) = names {
            (listed, left) = (listed + 1, left - count);
        }
        ToldEntry {
            names,
            ..ToldEntry::of(path)
        }
    };
    dirs.into_iter().map(&mut with_names).collect()
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
struct Reservoir<T> {
    max: usize,
    count: AtomicUsize,
    kept: Mutex<Vec<(RelPath, T)>>,
}

impl<T> Reservoir<T> {
    fn new(max: usize) -> Reservoir<T> {
        Reservoir {
            max,
            count: AtomicUsize::new(0),
            kept: Mutex::default(),
        }
    }

    fn add(&self, entry: impl FnOnce() -> (RelPath, T)) {
        let number = self.count.fetch_add(1, Relaxed);
        let place = if number < self.max {
            number
        } else {
            fastrand::usize(..=number)
        };
        if place >= self.max {
            return;
        }
        let entry = entry();
        if entry.0.as_bytes().len() > PATH_BYTES_MAX {
            return;
        }
        let mut kept = self.kept.lock();
        match kept.get_mut(place) {
            Some(earlier) if number >= self.max => *earlier = entry,
            _ => kept.push(entry),
        }
    }

    /// Takes as many of the sample, in random order, as `told` says for the number of all.
    fn take(&self, told: impl Fn(usize) -> usize) -> Vec<(RelPath, T)> {
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
        (0..count).for_each(|number| all.add(|| (path(number), ())));
        all.take(told).into_iter().map(|(path, ())| path).collect()
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
    fn names_are_told_as_far_as_there_are_few() {
        let dir = |count| (path(0), Some((count, 1)));
        let told = |dirs: Vec<(RelPath, Option<NameDigest>)>| {
            let told = told_names(dirs).into_iter();
            told.map(|told| told.names.is_some()).collect::<Vec<bool>>()
        };
        assert_eq!(
            told(vec![
                dir(9_000),
                dir(2_000),
                (path(1), None),
                dir(1_000),
                dir(1)
            ]),
            [true, false, false, true, false]
        );
        let many = told((0..100).map(|_| dir(1)).collect());
        assert_eq!(many.iter().filter(|is_told| **is_told).count(), LISTED_MAX);
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
