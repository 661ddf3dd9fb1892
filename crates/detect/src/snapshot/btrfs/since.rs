//! What differs between two snapshots of one subvolume, by the transactions that their inodes were
//! changed in. What has gone, come and moved shows in the names of the directories that were.

use super::changed::ranges_of;
use super::search::{Changed, Entry, Known, Name, ROOT_INODE, Tree};
use super::sequel::Sequel;
use crate::snapshot::provider::SnapshotError;
use crate::snapshot::told::{Told, change};
use driftless_model::{Change, Hint, RelPath};
use rustix::io::Errno;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::mem::replace;
use std::path::Path;

/// With more inodes that have changed it is not told which: about 200 bytes are kept of each.
const CHANGED_MAX: usize = 2 << 20;
/// Bytes of paths at most: those of a deep tree are long.
const PATH_BYTES_MAX: usize = 512 << 20;

/// What makes `newer` of `older`, moves from where things stood in `older`; none where transactions
/// do not tell.
///
/// # Errors
/// Too much differs.
pub fn changed_between(older: &Path, newer: &Path) -> Result<Option<Vec<Change>>, SnapshotError> {
    match find(older, newer) {
        Ok(found) => Ok(found),
        Err(Errno::TOOBIG) => Err(SnapshotError::TooMany(CHANGED_MAX)),
        Err(cause) => {
            tracing::debug!("btrfs cannot report the changed inodes: {cause}");
            Ok(None)
        }
    }
}

fn find(older: &Path, newer: &Path) -> Result<Option<Vec<Change>>, Errno> {
    let Some(sequel) = Sequel::open(older, newer)? else {
        return Ok(None);
    };
    let (older, mut newer) = sequel.trees();
    let changed = newer.changed_after(sequel.since, CHANGED_MAX)?;
    let new_dirs = changed.iter().filter(|one| one.is_dir && one.is_new);
    let mut differences = Differences {
        new_dirs: new_dirs.map(|one| one.inode).collect(),
        older: Places::of(older),
        newer: Places::of(newer),
        told: Told::default(),
    };
    for one in &changed {
        differences.look_at(one)?;
    }
    Ok(Some(differences.told.into_changes()))
}

/// What differs between two trees.
struct Differences<'a> {
    /// Directories that the older one has not.
    new_dirs: HashSet<u64>,
    older: Places<'a>,
    newer: Places<'a>,
    told: Told,
}

impl Differences<'_> {
    /// Tells of an inode that has changed, by all names that it has now.
    fn look_at(&mut self, one: &Changed) -> Result<(), Errno> {
        let was = match one.is_new {
            true => Known::default(),
            false => self.older.tree.known(one.inode)?,
        };
        if one.is_dir && !one.is_new {
            self.compare_names(one.inode)?;
            if was.owner != Some(one.owner) {
                self.tell_subvolumes(one.inode)?;
            }
        }
        if one.inode == ROOT_INODE {
            self.told.tell(Change::entry(RelPath::root()));
            return Ok(());
        }
        let is = self.newer.tree.names_of(one)?;
        let [had, has] = [&was.names, &is].map(|names| names.iter().collect::<HashSet<_>>());
        let left = was.names.iter().find(|name| !has.contains(name));
        let moved_from = match left.filter(|_| has.iter().any(|name| !had.contains(name))) {
            Some(name) => self.older.path(name)?,
            None => None,
        };
        let is_written = self.is_written(one, &was)?;
        for name in &is {
            let hint = match &moved_from {
                // With a move its content would stay as it was.
                _ if is_written => Some(Hint::content()),
                Some(from) if !had.contains(name) => Some(Hint::MovedFrom(from.clone())),
                _ => None,
            };
            let is_covered = hint.is_none() && self.new_dirs.contains(&name.dir);
            let Some(path) = self.newer.path(name)?.filter(|_| !is_covered) else {
                continue;
            };
            let told = change(path, one.is_dir && !had.contains(name));
            self.told.tell(Change { hint, ..told });
        }
        Ok(())
    }

    /// Whether the content of a file differs and its size and time do not show it: what is written
    /// while a snapshot is made may be in the next one, and its time in this one; and times can be
    /// set.
    fn is_written(&mut self, one: &Changed, was: &Known) -> Result<bool, Errno> {
        if one.is_dir || was.size_and_time != Some(one.size_and_time) {
            return Ok(false);
        }
        let trees = (&mut self.older.tree, &mut self.newer.tree);
        let ranges = ranges_of(trees, one.inode, one.size())?;
        Ok(ranges.is_none_or(|ranges| !ranges.is_empty()))
    }

    /// Tells of the subvolumes in a directory: what a snapshot shows in their places has the owner and
    /// the group of the directory (`new_simple_dir`, fs/btrfs/inode.c).
    fn tell_subvolumes(&mut self, dir: u64) -> Result<(), Errno> {
        let is_one = |found: &Result<Entry, Errno>| found.as_ref().is_ok_and(Entry::is_subvolume);
        let all = self.newer.tree.entries(dir);
        let found = all.filter(|found| found.is_err() || is_one(found));
        for Entry { name, .. } in found.collect::<Result<Vec<_>, _>>()? {
            if let Some(path) = self.newer.path(&Name { dir, name })? {
                self.told.tell(Change::entry(path));
            }
        }
        Ok(())
    }

    /// Tells of the names of a directory that only one of both trees has, or for something else.
    fn compare_names(&mut self, dir: u64) -> Result<(), Errno> {
        let (was, is) = (self.older.tree.entries(dir), self.newer.tree.entries(dir));
        let found = in_one_of(was, is)?;
        let mut names = HashSet::new();
        for Entry { is_dir, name, .. } in found {
            let is_replaced = !names.insert(name.clone());
            if let Some(path) = self.newer.path(&Name { dir, name })? {
                // Size and times may be those of what stood there.
                let hint = is_replaced.then(Hint::content);
                self.told.tell(Change {
                    hint,
                    ..change(path, is_dir)
                });
            }
        }
        Ok(())
    }
}

/// What only one of two directories has, each in the order of its indices.
fn in_one_of(
    mut was: impl Iterator<Item = Result<Entry, Errno>>,
    mut is: impl Iterator<Item = Result<Entry, Errno>>,
) -> Result<Vec<Entry>, Errno> {
    let mut found = Vec::new();
    let (mut old, mut new) = (was.next().transpose()?, is.next().transpose()?);
    loop {
        let order = match (&old, &new) {
            (Some(old), Some(new)) => old.index.cmp(&new.index),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Ok(found),
        };
        let is_same = old == new;
        if order.is_le() {
            let passed = replace(&mut old, was.next().transpose()?);
            found.extend(passed.filter(|_| !is_same));
        }
        if order.is_ge() {
            let passed = replace(&mut new, is.next().transpose()?);
            found.extend(passed.filter(|_| !is_same));
        }
    }
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

    /// The path that a name has; none below a directory that had been removed.
    fn path(&mut self, name: &Name) -> Result<Option<RelPath>, Errno> {
        let path = self.directory(name.dir)?.map(|dir| dir.join(&name.name));
        self.count(path.as_ref())?;
        Ok(path)
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
            let Some(Name { dir, name }) = self.tree.names(at)?.pop() else {
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
