//! What differs between two snapshots of one subvolume, by the transactions that their inodes were
//! changed in. What has gone, come and moved shows in the names of the directories that were.

use super::search::{ROOT_INODE, Snapshot, Tree};
use crate::snapshot::between::{Listed, between};
use crate::snapshot::provider::SnapshotError;
use driftless_model::{Change, RelPath};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;

/// With more inodes that have changed it is not told which: about 100 bytes are kept of each.
const CHANGED_MAX: usize = 4 << 20;

/// What makes `newer` of `older`, moves from where things stood in `older`; none where transactions
/// do not tell.
///
/// # Errors
/// The snapshots cannot be read.
pub fn changed_between(older: &Path, newer: &Path) -> Result<Option<Vec<Change>>, SnapshotError> {
    let found = match find(older, newer) {
        Ok(found) => found,
        Err(cause) => {
            tracing::debug!("btrfs does not tell which inodes have changed: {cause}");
            None
        }
    };
    let Some(found) = found else {
        return Ok(None);
    };
    let guide = Listed::of(found.directories);
    between(older, newer, &guide, found.entries).map(Some)
}

/// Paths of inodes that have changed.
#[derive(Default)]
struct Found {
    directories: Vec<RelPath>,
    entries: Vec<RelPath>,
}

fn find(older: &Path, newer: &Path) -> Result<Option<Found>, Errno> {
    let (older, newer) = (open(older)?, open(newer)?);
    let (was, is) = (Snapshot::at(older.as_fd())?, Snapshot::at(newer.as_fd())?);
    if !is_sequel(&was, &is) {
        return Ok(None);
    }
    let mut tree = Tree::of(newer.as_fd());
    let Some(changed) = tree.changed_after(was.made_in, CHANGED_MAX)? else {
        return Ok(None);
    };
    let mut places = Places::of(tree);
    let mut found = Found::default();
    for one in changed {
        match one.is_dir {
            true => found.directories.extend(places.directory(one.inode)?),
            false => found.entries.extend(places.all(one.inode)?),
        }
    }
    Ok(Some(found))
}

/// Where inodes stand. The directories above them are looked up once.
struct Places<'a> {
    tree: Tree<'a>,
    known: HashMap<u64, Option<RelPath>>,
}

impl Places<'_> {
    fn of(tree: Tree<'_>) -> Places<'_> {
        let known = HashMap::from([(ROOT_INODE, Some(RelPath::root()))]);
        Places { tree, known }
    }

    /// All paths of an inode.
    fn all(&mut self, inode: u64) -> Result<Vec<RelPath>, Errno> {
        let mut paths = Vec::new();
        for (dir, name) in self.tree.names(inode)? {
            paths.extend(self.directory(dir)?.map(|dir| dir.join(&name)));
        }
        Ok(paths)
    }

    /// The path of a directory; none of one that had been removed.
    fn directory(&mut self, inode: u64) -> Result<Option<RelPath>, Errno> {
        let (mut below, mut at) = (Vec::new(), inode);
        let top = loop {
            if let Some(known) = self.known.get(&at) {
                break known.clone();
            }
            let Some((dir, name)) = self.tree.names(at)?.pop() else {
                break None;
            };
            below.push((at, name));
            at = dir;
        };
        let mut path = top;
        for (inode, name) in below.into_iter().rev() {
            path = path.map(|above| above.join(&name));
            self.known.insert(inode, path.clone());
        }
        Ok(path)
    }
}

/// Whether one was made of the same subvolume after the other, and both are what they were then.
fn is_sequel(was: &Snapshot, is: &Snapshot) -> bool {
    was.is_as_made() && is.is_as_made() && was.of == is.of && was.made_in <= is.made_in
}

fn open(snapshot: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, snapshot, flags, Mode::empty())
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
            assert_eq!(is_sequel(&was, &is), tells, "{was:?} {is:?}");
        }
    }
}
