//! What differs between two snapshots of one subvolume, by the transactions that their inodes were
//! changed in. What has gone, come and moved shows in the names of the directories that were.

use super::search::{ROOT_INODE, Snapshot, Tree};
use crate::snapshot::between::{Listed, between};
use crate::snapshot::provider::SnapshotError;
use driftless_model::{Change, Hint, RelPath};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// With more inodes that have changed it is not told which: about 100 bytes are kept of each.
const CHANGED_MAX: usize = 4 << 20;
/// Bytes of paths at most: those of a deep tree are long.
const PATH_BYTES_MAX: usize = 512 << 20;

/// What makes `newer` of `older`, moves from where things stood in `older`; none where transactions
/// do not tell.
///
/// # Errors
/// The snapshots cannot be read.
pub fn changed_between(older: &Path, newer: &Path) -> Result<Option<Vec<Change>>, SnapshotError> {
    let found = match find(older, newer) {
        Ok(found) => found,
        Err(Errno::TOOBIG) => return Err(SnapshotError::TooMany(CHANGED_MAX)),
        Err(cause) => {
            tracing::debug!("btrfs does not tell which inodes have changed: {cause}");
            None
        }
    };
    let Some(found) = found else {
        return Ok(None);
    };
    let guide = Listed::of(found.directories);
    let mut changes = between(older, newer, &guide, found.entries)?;
    for change in changes.iter_mut().filter(|change| change.hint.is_none()) {
        let is_written = found.written.contains(&change.path);
        change.hint = is_written.then(|| Hint::Ranges(std::iter::once(0..u64::MAX).collect()));
    }
    Ok(Some(changes))
}

/// Paths of inodes that have changed.
#[derive(Default)]
struct Found {
    directories: Vec<RelPath>,
    entries: Vec<RelPath>,
    /// Of these, those whose content was written and whose size and time do not show it: what is
    /// written while a snapshot is made may be in the next one, and its time in this one.
    written: HashSet<RelPath>,
}

fn find(older: &Path, newer: &Path) -> Result<Option<Found>, Errno> {
    let (older, newer) = (open(older)?, open(newer)?);
    let (was, is) = (Snapshot::at(older.as_fd())?, Snapshot::at(newer.as_fd())?);
    if !is_sequel(&was, &is) {
        return Ok(None);
    }
    let mut tree = Tree::of(newer.as_fd());
    let changed = tree.changed_after(was.made_in, CHANGED_MAX)?;
    let (mut before, mut places) = (Tree::of(older.as_fd()), Places::of(tree));
    let mut found = Found::default();
    for one in changed {
        if one.is_dir {
            found.directories.extend(places.directory(one.inode)?);
            continue;
        }
        let paths = places.all(one.inode)?;
        if before.size_and_time(one.inode)? == Some(one.size_and_time)
            && places.tree.has_content_after(one.inode, was.made_in)?
        {
            found.written.extend(paths.iter().cloned());
        }
        found.entries.extend(paths);
    }
    Ok(Some(found))
}

/// Where inodes stand. The directories above them are looked up once.
struct Places<'a> {
    tree: Tree<'a>,
    known: HashMap<u64, Option<RelPath>>,
    /// Of the paths that were told, and of those that are known.
    bytes: usize,
}

impl Places<'_> {
    fn of(tree: Tree<'_>) -> Places<'_> {
        let known = HashMap::from([(ROOT_INODE, Some(RelPath::root()))]);
        let bytes = 0;
        Places { tree, known, bytes }
    }

    /// All paths of an inode.
    fn all(&mut self, inode: u64) -> Result<Vec<RelPath>, Errno> {
        let mut paths = Vec::new();
        for (dir, name) in self.tree.names(inode)? {
            let path = self.directory(dir)?.map(|dir| dir.join(&name));
            self.count(path.as_ref())?;
            paths.extend(path);
        }
        Ok(paths)
    }

    /// Counts a path that is kept; `E2BIG` if that is too much.
    fn count(&mut self, path: Option<&RelPath>) -> Result<(), Errno> {
        self.bytes += path.map_or(0, |path| path.as_bytes().len());
        if self.bytes > PATH_BYTES_MAX {
            return Err(Errno::TOOBIG);
        }
        Ok(())
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
            self.count(path.as_ref())?;
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
