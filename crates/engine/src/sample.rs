//! What shows which tree it is that a coordinator sees.
//!
//! The root of a file system has the same inode number on all of its kind, so a number says little.
//! When an entry was changed last (`ctime`, inode(7)) and when it was made (`btime`, statx(2))
//! nobody can set, and no two trees agree in that by accident, not even a tree and its copy. The
//! source may change while it is copied, and everything at its top with it, but it is made once;
//! where the file system does not tell when, the oldest entries say it best. One that agrees is
//! enough.

use driftless_model::{EntryName, Kind, Meta, Stamp};
use driftless_tree::{DirRef, Done, Names};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};

/// Entries that are looked at, and of these, those that are named.
const LOOKED_AT: usize = 64;
const NAMED: usize = 16;

/// A directory and a few entries of it, or a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    ino: u64,
    times: Times,
    entries: Vec<(EntryName, Kind, Times)>,
}

/// By what an inode is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Times {
    changed: Stamp,
    made: Option<Stamp>,
}

impl Times {
    /// Times of birth in whole seconds prove nothing: file systems that cut them, or whose roots
    /// have no other, may be made in one second.
    fn of(changed: Stamp, made: Option<Stamp>) -> Times {
        Times {
            changed,
            made: made.filter(|made| made.nsec != 0),
        }
    }

    fn agree(&self, other: &Times) -> bool {
        self.changed == other.changed || self.made.is_some() && self.made == other.made
    }
}

impl Sample {
    /// Takes one of a root as it is now.
    pub fn of(dir: &DirRef) -> Done<Sample> {
        Sample::of_dir(dir, NAMED)
    }

    /// Takes one of a directory as it is now, with so many entries.
    pub fn of_dir(dir: &DirRef, named: usize) -> Done<Sample> {
        let meta = dir.meta()?;
        let (mut listing, mut names) = (dir.list()?, Names::default());
        listing.fill(&mut names, LOOKED_AT)?;
        let names = (0..names.len().min(LOOKED_AT)).map(|index| names.get(index).0.to_owned());
        let mut entries: Vec<_> = names
            .filter_map(|name: CString| dir.look(&name).ok().map(|meta| (name, meta)))
            .collect();
        entries.sort_by_key(|(_, meta)| meta.ctime);
        let times = |name: &CString, meta: &Meta| Times::of(meta.ctime, dir.made_at_of(name));
        let entries = entries
            .iter()
            .take(named)
            .map(|(name, meta)| ((&**name).into(), meta.kind, times(name, meta)))
            .collect();
        Ok(Sample {
            ino: meta.ino,
            times: Times::of(meta.ctime, dir.made_at()),
            entries,
        })
    }

    /// Takes one of a file as it is now.
    pub fn of_file(dir: &DirRef, name: &CStr) -> Done<Sample> {
        let meta = dir.look(name)?;
        Ok(Sample {
            ino: meta.ino,
            times: Times::of(meta.ctime, dir.made_at_of(name)),
            entries: Vec::new(),
        })
    }

    /// Whether a root is the one that it was taken of. Of one that was empty the number has to do.
    pub fn is_of(&self, dir: &DirRef) -> bool {
        dir.first_meta().ino == self.ino && (self.entries.is_empty() || self.is_dir(dir))
    }

    /// Whether it was taken of this directory.
    pub fn is_dir(&self, dir: &DirRef) -> bool {
        let agrees = |(name, kind, times): &(EntryName, Kind, Times)| {
            let name = CString::from(name);
            let found = dir.look(&name).ok().filter(|meta| meta.kind == *kind);
            found.is_some_and(|meta| times.agree(&Times::of(meta.ctime, dir.made_at_of(&name))))
        };
        let meta = dir.first_meta();
        let is_itself = || self.times.agree(&Times::of(meta.ctime, dir.made_at()));
        meta.ino == self.ino && (is_itself() || self.entries.iter().any(agrees))
    }

    /// Whether it was taken of the file of this name.
    pub fn is_file(&self, dir: &DirRef, name: &CStr) -> bool {
        let is_same = |meta: Meta| {
            meta.ino == self.ino
                && self
                    .times
                    .agree(&Times::of(meta.ctime, dir.made_at_of(name)))
        };
        dir.look(name).is_ok_and(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_birth_in_whole_seconds_prove_nothing() {
        let times = |changed, nsec| {
            Times::of(
                Stamp {
                    sec: changed,
                    nsec: 0,
                },
                Some(Stamp { sec: 5, nsec }),
            )
        };
        assert!(times(7, 1).agree(&times(8, 1)), "made at one moment");
        assert!(!times(7, 0).agree(&times(8, 0)), "made in one second");
        assert!(!times(7, 1).agree(&times(8, 2)) && times(7, 0).agree(&times(7, 0)));
    }
}
