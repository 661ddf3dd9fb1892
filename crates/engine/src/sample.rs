//! What shows which tree it is that a coordinator sees.
//!
//! The root of a file system has the same inode number on all of its kind, so a number says little. When an entry was changed last
//! (`ctime`, inode(7)) nobody can set, and no two trees agree in that by accident, not even a tree and its copy. Of some entries at the top
//! the oldest say it best, because the source may change while it is copied: one that agrees is enough.

use driftless_model::{EntryName, Kind, Stamp};
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
    changed: Stamp,
    entries: Vec<(EntryName, Kind, Stamp)>,
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
        let entries = entries.iter().take(NAMED).map(|(name, meta)| ((&**name).into(), meta.kind, meta.ctime)).collect();
        Ok(Sample { ino: meta.ino, changed: meta.ctime, entries })
    }

    /// Whether a directory is the one that it was taken of.
    pub fn is_of(&self, dir: &DirRef) -> bool {
        let meta = dir.first_meta();
        let agrees = |(name, kind, changed): &(EntryName, Kind, Stamp)| {
            dir.look(&CString::from(name)).is_ok_and(|meta| meta.kind == *kind && meta.ctime == *changed)
        };
        meta.ino == self.ino && (meta.ctime == self.changed || self.entries.is_empty() || self.entries.iter().any(agrees))
    }
}
