//! Two snapshots of one subvolume, of which one was made after the other.

use super::search::Tree;
use super::sys;
use driftless_model::RelPath;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use std::path::Path;

/// `BTRFS_ROOT_SUBVOL_RDONLY`.
const READ_ONLY: u64 = 1;

pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// What a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Snapshot {
    /// The subvolume that it was made of; all zero if it is none.
    of: [u8; 16],
    /// The transaction that it was made in: it has all that was written in it or before.
    made_in: u64,
    /// The last transaction that has changed an inode of it.
    changed_in: u64,
    is_read_only: bool,
}

impl Snapshot {
    /// The subvolume whose root directory is open.
    fn at(root: BorrowedFd<'_>) -> Result<Snapshot, Errno> {
        let info = sys::subvolume(root)?;
        Ok(Snapshot {
            of: info.parent_uuid,
            made_in: info.made_in,
            changed_in: info.changed_in,
            is_read_only: info.flags & READ_ONLY != 0,
        })
    }

    /// Whether another was made of the same subvolume later, and both are what they were then.
    fn is_followed_by(&self, later: &Snapshot) -> bool {
        let is_later = self.of == later.of && self.made_in <= later.made_in;
        is_later && self.is_as_made() && later.is_as_made()
    }

    /// Whether it still is what it was when it was made.
    fn is_as_made(&self) -> bool {
        self.is_read_only && self.of != [0; 16] && self.changed_in <= self.made_in
    }
}

/// Two snapshots of one subvolume, both as they were made.
pub(super) struct Sequel {
    older: OwnedFd,
    newer: OwnedFd,
    /// The last transaction of the older one.
    pub(super) since: u64,
}

impl Sequel {
    /// Opens both; none if the second does not follow the first.
    pub(super) fn open(older: &Path, newer: &Path) -> Result<Option<Sequel>, Errno> {
        let (older, newer) = (open(older)?, open(newer)?);
        let (was, is) = (Snapshot::at(older.as_fd())?, Snapshot::at(newer.as_fd())?);
        let sequel = Sequel {
            older,
            newer,
            since: was.made_in,
        };
        Ok(was.is_followed_by(&is).then_some(sequel))
    }

    /// The trees of both.
    pub(super) fn trees(&self) -> (Tree<'_>, Tree<'_>) {
        (Tree::of(self.older.as_fd()), Tree::of(self.newer.as_fd()))
    }

    /// The number of what was at a path in the first, without links on the way.
    pub(super) fn inode_before(&self, path: &RelPath) -> Result<u64, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let confined = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let found = openat2(&self.older, path.as_bytes(), flags, Mode::empty(), confined)?;
        Ok(fstat(found)?.st_ino)
    }
}

/// Opens a directory, and no link to one.
pub(super) fn open(dir: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, dir, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_tell_of_two_snapshots_of_one_subvolume_that_nobody_has_written_to() {
        let snapshot = |made_in, changed_in| Snapshot {
            of: [7; 16],
            made_in,
            changed_in,
            is_read_only: true,
        };
        let was = snapshot(10, 9);
        let writable = Snapshot {
            is_read_only: false,
            ..snapshot(12, 11)
        };
        let other = Snapshot {
            of: [8; 16],
            ..snapshot(12, 11)
        };
        let none = Snapshot {
            of: [0; 16],
            ..snapshot(10, 10)
        };
        for (was, is, tells) in [
            (was, snapshot(12, 11), true),
            (was, snapshot(10, 10), true),
            (snapshot(12, 11), was, false),
            (was, writable, false),
            (writable, snapshot(13, 11), false),
            (was, other, false),
            (none, none, false),
            // It was open to changes meanwhile.
            (snapshot(10, 11), snapshot(12, 11), false),
        ] {
            assert_eq!(was.is_followed_by(&is), tells, "{was:?} {is:?}");
        }
    }
}
