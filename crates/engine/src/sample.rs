//! What shows which tree it is that a coordinator sees.
//!
//! The root of a file system has the same inode number on all of its kind, so a number says little. When an entry was changed last
//! (`ctime`, inode(7)) and when it was made (`btime`, statx(2)) nobody can set, and no two trees agree in that by accident, not even a tree
//! and its copy. The source may change while it is copied, and everything at its top with it, but it is made once; where the file system
//! does not tell when, the oldest entries say it best. One that agrees is enough.

use driftless_model::{EntryName, Kind, Meta, Stamp};
use driftless_tree::{DirRef, Done, Names};
use serde::{Deserialize, Serialize};
use std::ffi::CString;

/// Entries that are looked at, and of these, those that are named.
const LOOKED_AT: usize = 64;
const NAMED: usize = 16;

/// A few entries of a directory, and the directory itself.
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
    /// Times of birth in whole seconds prove nothing: file systems that cut them, or whose roots have no other, may be made in one second.
    fn of(changed: Stamp, made: Option<Stamp>) -> Times {
        Times { changed, made: made.filter(|made| made.nsec != 0) }
    }

    fn agree(&self, other: &Times) -> bool {
        self.changed == other.changed || self.made.is_some() && self.made == other.made
    }
}

impl Sample {
    /// Takes one of a directory as it is now.
    pub fn of(dir: &DirRef) -> Done<Sample> {
        let meta = dir.meta()?;
        let (mut listing, mut names) = (dir.list()?, Names::default());
        listing.fill(&mut names, LOOKED_AT)?;
        let names = (0..names.len().min(LOOKED_AT)).map(|index| names.get(index).0.to_owned());
        let mut entries: Vec<_> = names.filter_map(|name: CString| dir.look(&name).ok().map(|meta| (name, meta))).collect();
        entries.sort_by_key(|(_, meta)| meta.ctime);
        let times = |name: &CString, meta: &Meta| Times::of(meta.ctime, dir.made_at_of(name));
        let entries = entries.iter().take(NAMED).map(|(name, meta)| ((&**name).into(), meta.kind, times(name, meta))).collect();
        Ok(Sample { ino: meta.ino, times: Times::of(meta.ctime, dir.made_at()), entries })
    }

    /// Whether a directory is the one that it was taken of.
    pub fn is_of(&self, dir: &DirRef) -> bool {
        let meta = dir.first_meta();
        let agrees = |(name, kind, times): &(EntryName, Kind, Times)| {
            let name = CString::from(name);
            let found = dir.look(&name).ok().filter(|meta| meta.kind == *kind);
            found.is_some_and(|meta| times.agree(&Times::of(meta.ctime, dir.made_at_of(&name))))
        };
        let is_root = || self.times.agree(&Times::of(meta.ctime, dir.made_at()));
        meta.ino == self.ino && (is_root() || self.entries.is_empty() || self.entries.iter().any(agrees))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_birth_in_whole_seconds_prove_nothing() {
        let times = |changed, nsec| Times::of(Stamp { sec: changed, nsec: 0 }, Some(Stamp { sec: 5, nsec }));
        assert!(times(7, 1).agree(&times(8, 1)), "made at one moment");
        assert!(!times(7, 0).agree(&times(8, 0)), "made in one second");
        assert!(!times(7, 1).agree(&times(8, 2)) && times(7, 0).agree(&times(7, 0)));
    }
}
