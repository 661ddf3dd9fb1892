//! A random sample of the entries of which a mover says that they are equal now, with its view of
//! them, so that the coordinator can compare it with its own: a mover that sees another tree makes
//! everything equal there, and no other host sees any of it.
//!
//! Each view is what the mover saw when it worked on the entry, through the handles of that work. A
//! second reading would cost requests, and would show the right tree if a wrong mount went away
//! before the batch ended.

use crate::view::{NAMES_MAX, NameDigest, View};
use driftless_lock::Mutex;
use driftless_model::RelPath;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Entries of a batch that are told if it has no more.
const ENTRIES_MAX: usize = 256;
/// Directories of a batch that are told.
const DIRS_MAX: usize = 512;
/// Entries that a mover tells of its trees as if each batch were its first. A mover with other trees
/// is known by then: later samples are small, because each entry costs the coordinator requests
/// that the movers wait for.
const KNOWN_BY: usize = 1024;
/// Directories of a later batch that are told.
const DIRS_LATER: usize = 64;
/// Entries of a larger or later batch that are told: so many, and more if this share is more.
const ENTRIES_MIN: usize = 32;
const SHARE: usize = 200;
/// Directories of a batch whose names are told, with `NAMES_MAX` names in all.
const LISTED_MAX: usize = 64;
/// Directories of a batch on which a file system is mounted, and that are told.
const MOUNTS_MAX: usize = 512;
/// Entries that are told of trees on another host: each costs the coordinator round trips, and one
/// agent has the same view for all movers.
const FAR_MAX: usize = 8;
/// Bytes of a path that is told.
const PATH_BYTES_MAX: usize = 1024;

/// Entry of which a mover says that it is equal now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Path of the entry.
    pub path: RelPath,
    /// Source's entry as the mover saw it when it worked on it; `None` if it could not be read.
    pub source: Option<View>,
    /// Replica's entry as the mover saw it then.
    pub replica: ReplicaView,
    /// Whether the mover takes the replica's entry to be equal to the source's.
    pub is_equal: bool,
    /// Whether a file system is mounted there in the source on the mover's host.
    pub is_mounted: bool,
}

/// View of a mover of the replica's entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaView {
    /// Attributes of an entry that the mover looked at and left as it was.
    Seen(Box<View>),
    /// Entry that the mover made or changed, with the hash of the inode numbers of the directories
    /// above it.
    Made(u64),
    /// Entry that the mover left to the coordinator.
    Left,
}

/// Random sample of the settled entries of a batch, while it is carried out.
#[derive(Debug)]
pub struct SettledSample {
    entries: Reservoir,
    /// Directories, with the names that their listings showed.
    dirs: Reservoir,
    /// Directories and files on which a file system is mounted, in the source or in the replica
    /// alone: all of them are told.
    mounts: Mutex<Vec<Settled>>,
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
    /// Adds an entry, no directory, on which the work is over. Calls `entry` only if the entry is in
    /// the sample.
    pub fn add(&self, entry: impl FnOnce() -> Settled) {
        self.entries.add(entry);
    }

    /// Adds a directory of which nothing is left here, with the names that its listing showed.
    pub fn add_dir(&self, entry: impl FnOnce() -> Settled) {
        self.dirs.add(entry);
    }

    /// Adds an entry on which a file system is mounted, unless it was added for the same tree.
    pub fn add_mount(&self, entry: Settled) {
        let mut mounts = self.mounts.lock();
        let is_same =
            |known: &Settled| known.path == entry.path && known.is_mounted == entry.is_mounted;
        let is_known = mounts.iter().any(is_same);
        let fits = mounts.len() < MOUNTS_MAX && entry.path.as_bytes().len() <= PATH_BYTES_MAX;
        if fits && !is_known {
            mounts.push(entry);
        }
    }

    /// Takes the sample in the order of the paths, so that neighbours share handles. `is_far` says
    /// that one of the trees is on another host, and `before` the number of entries that the mover
    /// has told of these trees.
    pub fn take(&self, is_far: bool, before: usize) -> Vec<Settled> {
        let is_known = before >= KNOWN_BY;
        let dirs_max = if is_known { DIRS_LATER } else { DIRS_MAX };
        let entries_max = if is_known { ENTRIES_MIN } else { ENTRIES_MAX };
        let dirs = self.dirs.take(|count| count.min(dirs_max));
        let entries = self.entries.take(|count| told(count, entries_max));
        let mut sample = told_names(dirs);
        sample.extend(entries);
        if is_far {
            fastrand::shuffle(&mut sample);
            sample.truncate(FAR_MAX);
        } else {
            sample.append(&mut self.mounts.lock());
        }
        sample.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        sample
    }
}

/// Has the names of the first directories told, as far as there are not too many.
fn told_names(mut dirs: Vec<Settled>) -> Vec<Settled> {
    let (mut listed, mut left) = (0, NAMES_MAX as u64);
    for view in dirs.iter_mut().filter_map(|dir| dir.source.as_mut()) {
        let is_told = |(count, _): &NameDigest| listed < LISTED_MAX && *count <= left;
        view.names = view.names.filter(is_told);
        if let Some((count, _)) = view.names {
            (listed, left) = (listed + 1, left.saturating_sub(count));
        }
    }
    dirs
}

/// Returns how many entries of a batch with so many are told, of which `all` are told if it has no
/// more.
fn told(count: usize, all: usize) -> usize {
    if count <= all {
        count
    } else {
        (count / SHARE).clamp(ENTRIES_MIN, ENTRIES_MAX)
    }
}

/// Uniform random sample of a stream of entries (Vitter's algorithm R).
#[derive(Debug)]
struct Reservoir {
    max: usize,
    count: AtomicUsize,
    kept: Mutex<Vec<Settled>>,
}

impl Reservoir {
    fn new(max: usize) -> Reservoir {
        Reservoir {
            max,
            count: AtomicUsize::new(0),
            kept: Mutex::default(),
        }
    }

    fn add(&self, entry: impl FnOnce() -> Settled) {
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
        if entry.path.as_bytes().len() > PATH_BYTES_MAX {
            return;
        }
        let mut kept = self.kept.lock();
        match kept.get_mut(place) {
            Some(earlier) if number >= self.max => *earlier = entry,
            _ => kept.push(entry),
        }
    }

    /// Takes as many of the sample, in random order, as `told` says for the number of all.
    fn take(&self, told: impl Fn(usize) -> usize) -> Vec<Settled> {
        let mut kept = std::mem::take(&mut *self.kept.lock());
        fastrand::shuffle(&mut kept);
        kept.truncate(told(self.count.load(Relaxed)));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::Kind;

    fn path(number: usize) -> RelPath {
        RelPath::parse(number.to_string().as_bytes()).expect("a path")
    }

    fn left(path: RelPath) -> Settled {
        Settled {
            path,
            source: None,
            replica: ReplicaView::Left,
            is_equal: false,
            is_mounted: false,
        }
    }

    fn sample(count: usize) -> Vec<RelPath> {
        let told = told_of((0, count), 0).into_iter();
        told.map(|told| told.path).collect()
    }

    /// Returns what is told of a batch with so many directories and other entries.
    fn told_of((dirs, entries): (usize, usize), before: usize) -> Vec<Settled> {
        let sample = SettledSample::default();
        (0..entries).for_each(|number| sample.add(|| left(path(number))));
        (0..dirs).for_each(|number| sample.add_dir(|| left(path(entries + number))));
        sample.take(false, before)
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
    fn known_mover_tells_less_of_a_batch() {
        // Directories and other entries of a batch, and what is told of it at first and later.
        let cases = [
            ((0, 0), 0, 0),
            ((3, 20), 23, 23),
            ((100, 32), 132, 96),
            ((600, 200), 712, 96),
            ((600, 20_000), 612, 164),
        ];
        for (batch, first, later) in cases {
            let found = [0, KNOWN_BY - 1, KNOWN_BY].map(|before| told_of(batch, before).len());
            assert_eq!(found, [first, first, later], "{batch:?}");
        }
    }

    #[test]
    fn names_are_told_as_far_as_there_are_few() {
        let dir = |count: &u64| {
            let mut view = View::of_kind(Kind::Dir);
            view.names = Some((*count, 1));
            Settled {
                source: Some(view),
                ..left(path(0))
            }
        };
        let told = |counts: &[u64]| {
            let dirs = counts.iter().map(dir);
            let is_told = |told: &Settled| {
                told.source
                    .as_ref()
                    .is_some_and(|view| view.names.is_some())
            };
            told_names(dirs.collect())
                .iter()
                .map(is_told)
                .collect::<Vec<bool>>()
        };
        assert_eq!(told(&[9_000, 2_000, 1_000, 1]), [true, false, true, false]);
        let many = told(&[1; 100]);
        assert_eq!(many.iter().filter(|is_told| **is_told).count(), LISTED_MAX);
    }

    #[test]
    fn mount_is_told_as_first_seen() {
        let sample = SettledSample::default();
        for (is_mounted, is_equal) in [(true, true), (true, false), (false, false)] {
            sample.add_mount(Settled {
                is_mounted,
                is_equal,
                ..left(path(1))
            });
        }
        let told = sample.take(false, 0);
        assert!(matches!(&told[..], [first, second] if first.is_equal && !second.is_mounted));
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
