//! Attributes of an entry as one host sees them, so that a coordinator can compare the view of a
//! mover with its own.
//!
//! A clone or a snapshot of a file system has the inode numbers and the times of birth of the
//! original. Only an entry that was changed since tells them apart: its `ctime`, which nobody can
//! set. Inode numbers are not compared: some file systems show another one on each host.

use driftless_model::{Kind, Meta, RelPath, Side, Stamp};
use driftless_tree::{DirRef, Done, Names};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use xxhash_rust::xxh3::xxh3_64;

/// Largest directory whose names are compared.
const NAMES_MAX: usize = 10_000;
/// Names that are read at once.
const NAMES_AT_ONCE: usize = 1024;

/// Number of the names in a directory, and the sum of their hashes.
type NameDigest = (u64, u64);

/// Attributes of an entry as one host sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    kind: Kind,
    size: u64,
    mode: u32,
    owner: (u32, u32),
    mtime: Stamp,
    ctime: Stamp,
    /// Names of a directory that was listed.
    pub names: Option<NameDigest>,
}

impl View {
    /// Takes the attributes that are compared.
    pub fn of(meta: &Meta) -> View {
        View {
            kind: meta.kind,
            size: meta.size,
            mode: meta.mode,
            owner: (meta.uid, meta.gid),
            mtime: meta.mtime,
            ctime: meta.ctime,
            names: None,
        }
    }

    /// Returns whether the entry was changed after this second.
    pub fn is_changed_after(&self, second: i64) -> bool {
        self.ctime.sec > second
    }

    /// Returns the first attribute that differs from the coordinator's `own` view, with both
    /// values, or `None` if the views agree. Directories of a replica get their attributes when
    /// all below them is done, and its change times are of no tree: neither is compared.
    pub fn difference(&self, own: &View, side: Side) -> Option<String> {
        let (is_source, is_dir) = (side == Side::Source, own.kind == Kind::Dir);
        let times = |stamp: Stamp| format!("{}.{:09}", stamp.sec, stamp.nsec);
        let owner = |(uid, gid): (u32, u32)| format!("{uid}:{gid}");
        let names = |names: Option<NameDigest>| names.map_or(0, |(count, _)| count);
        let word = |what: &str, theirs: String, own: String| {
            format!("{what} {theirs}, and the coordinator {what} {own}")
        };
        let attributes = is_source || !is_dir;
        match () {
            () if self.kind != own.kind => Some(word(
                "kind",
                self.kind.word().to_owned(),
                own.kind.word().to_owned(),
            )),
            () if !is_dir && self.size != own.size => {
                Some(word("size", self.size.to_string(), own.size.to_string()))
            }
            () if attributes && self.mtime != own.mtime => {
                Some(word("mtime", times(self.mtime), times(own.mtime)))
            }
            () if is_source && self.ctime != own.ctime => {
                Some(word("ctime", times(self.ctime), times(own.ctime)))
            }
            () if attributes && self.owner != own.owner => {
                Some(word("owner", owner(self.owner), owner(own.owner)))
            }
            () if attributes && self.mode != own.mode => Some(word(
                "mode",
                format!("{:04o}", self.mode),
                format!("{:04o}", own.mode),
            )),
            () if self.names.is_some() && own.names.is_some() && self.names != own.names => {
                let (theirs, own) = (names(self.names), names(own.names));
                Some(format!(
                    "{theirs} names, and the coordinator {own}, or others"
                ))
            }
            () => None,
        }
    }
}

/// Reader of views of one tree. Handles are opened anew; entries of one directory that are read one
/// after the other share its handle.
pub struct Views {
    root: DirRef,
    last: Option<(RelPath, DirRef)>,
}

impl Views {
    /// Reads views below `root`.
    pub fn of(root: &DirRef) -> Views {
        Views {
            root: root.clone(),
            last: None,
        }
    }

    /// Reads the view of the entry at `path`; with `lists`, with the names of a directory.
    ///
    /// # Errors
    /// The entry, or a directory above it, cannot be read.
    pub fn read(&mut self, path: &RelPath, lists: bool) -> Done<View> {
        let Some((above, name)) = path.split_last() else {
            return view_of(&self.root.meta()?, lists.then_some(&self.root));
        };
        let dir = self.dir(&above)?;
        let name = CString::new(name).unwrap_or_default();
        let meta = dir.look(&name)?;
        let listed = if lists && meta.kind == Kind::Dir {
            Some(dir.enter(&name)?)
        } else {
            None
        };
        view_of(&meta, listed.as_ref())
    }

    fn dir(&mut self, path: &RelPath) -> Done<DirRef> {
        if let Some((_, dir)) = self.last.as_ref().filter(|(last, _)| last == path) {
            return Ok(dir.clone());
        }
        let enter = |dir: DirRef, name: &[u8]| dir.enter(&CString::new(name).unwrap_or_default());
        let dir = path.names().try_fold(self.root.clone(), enter)?;
        self.last = Some((path.clone(), dir.clone()));
        Ok(dir)
    }
}

fn view_of(meta: &Meta, listed: Option<&DirRef>) -> Done<View> {
    Ok(View {
        names: listed.map_or(Ok(None), names_of)?,
        ..View::of(meta)
    })
}

/// Returns the digest of the names in a directory, or `None` if there are too many.
fn names_of(dir: &DirRef) -> Done<Option<NameDigest>> {
    let (mut listing, mut digest) = (dir.list()?, (0_u64, 0_u64));
    loop {
        let mut names = Names::default();
        let goes_on = listing.fill(&mut names, NAMES_AT_ONCE)?;
        for index in 0..names.len() {
            let hash = xxh3_64(names.get(index).0.to_bytes());
            digest = (digest.0 + 1, digest.1.wrapping_add(hash));
        }
        if digest.0 > NAMES_MAX as u64 {
            return Ok(None);
        }
        if !goes_on {
            return Ok(Some(digest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(kind: Kind) -> View {
        let stamp = Stamp { sec: 5, nsec: 7 };
        View {
            kind,
            size: 3,
            mode: 0o644,
            owner: (1, 2),
            mtime: stamp,
            ctime: stamp,
            names: Some((2, 9)),
        }
    }

    #[test]
    fn views_differ_in_all_that_is_replicated() {
        let (file, dir) = (view(Kind::File), view(Kind::Dir));
        let later = Stamp { sec: 5, nsec: 8 };
        // The view of a mover, and whether it differs on the source and on the replica.
        let cases = [
            (file.clone(), &file, [false, false]),
            (
                View {
                    size: 4,
                    ..file.clone()
                },
                &file,
                [true, true],
            ),
            (
                View {
                    mode: 0o600,
                    ..file.clone()
                },
                &file,
                [true, true],
            ),
            (
                View {
                    owner: (1, 3),
                    ..file.clone()
                },
                &file,
                [true, true],
            ),
            (
                View {
                    mtime: later,
                    ..file.clone()
                },
                &file,
                [true, true],
            ),
            (
                View {
                    ctime: later,
                    ..file.clone()
                },
                &file,
                [true, false],
            ),
            (dir.clone(), &file, [true, true]),
            (
                View {
                    size: 4,
                    ..dir.clone()
                },
                &dir,
                [false, false],
            ),
            (
                View {
                    mtime: later,
                    ..dir.clone()
                },
                &dir,
                [true, false],
            ),
            (
                View {
                    names: Some((2, 8)),
                    ..dir.clone()
                },
                &dir,
                [true, true],
            ),
            (
                View {
                    names: None,
                    ..dir.clone()
                },
                &dir,
                [false, false],
            ),
        ];
        for (number, (theirs, own, differs)) in cases.into_iter().enumerate() {
            let found =
                [Side::Source, Side::Replica].map(|side| theirs.difference(own, side).is_some());
            assert_eq!(found, differs, "case {number}");
        }
    }
}
