//! What a process must know that helps another one to keep a replica equal: a plain value that
//! travels.
//!
//! The replica is lent to it. It sees by the mark that it is this replica, and that the other
//! process holds it still; by a sample, that it reads the same source; by views of some entries,
//! that it sees both trees as the other process does.

use crate::sample::Sample;
use crate::view::{Further, View, Views};
use driftless_model::{Keep, Meta, RelPath, Side, Stamp};
use driftless_tree::{DirRef, Names, Rights};
use serde::{Deserialize, Serialize};
use std::ffi::CString;

/// Entries of which views are told: each takes about 800 bytes of a word.
const TOLD_MAX: usize = 16;
/// Entries of a directory among which those are chosen, and directories below the root.
const NAMES_MAX: usize = 64;
const DIRS_MAX: usize = 16;
/// Bytes of the names of the root that are told.
const ROOT_BYTES_MAX: usize = 4096;

/// A replica that another process holds and lends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lent {
    /// Which replica it is, by its mark.
    pub identity: u128,
    /// Whom it is lent to, as its mark says.
    pub members: u128,
    /// Who may not use the attributes `trusted.*` cannot see the mark (xattr(7)).
    pub is_hidden: bool,
    /// What shows which directory the source is.
    pub source: Sample,
    /// What the process may do that lends it.
    pub rights: Rights,
    /// What was changed on the replica since then may not be durable.
    pub suspect_since: Option<Stamp>,
    /// Views of some entries.
    #[serde(default)]
    pub shown: Shown,
}

/// Views of some entries at the first two levels, as one host has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Second from which on a change may have come after the views.
    second: i64,
    /// Paths with the view of the source, and that of the replica.
    entries: Vec<(RelPath, View, Option<View>)>,
    /// Names of the source's root, each of which a member has to see.
    #[serde(default)]
    root: Vec<RelPath>,
}

impl Shown {
    /// Takes the views of some random entries of the source that this host has in this second.
    pub fn of((source, replica): (&DirRef, &DirRef), keep: &Keep, second: i64) -> Shown {
        let mut paths = names_of(source, &RelPath::root());
        fastrand::shuffle(&mut paths);
        let tops = paths.clone();
        let mut bytes = 0_usize;
        let fits = |path: &&RelPath| {
            bytes = bytes.saturating_add(path.as_bytes().len());
            bytes <= ROOT_BYTES_MAX
        };
        let root = tops.iter().take_while(fits).cloned().collect();
        let dirs = tops.iter().take(DIRS_MAX).filter_map(|path| {
            let (_, name) = path.split_last()?;
            let dir = source.enter(&CString::new(name).ok()?).ok()?;
            Some(names_of(&dir, path))
        });
        paths.extend(dirs.flatten());
        paths.retain(|path| !crosses_mount(source, path));
        fastrand::shuffle(&mut paths);
        paths.truncate(TOLD_MAX);
        paths.sort_unstable();
        let (mut source, mut replica) = (Views::of(source, keep), Views::of(replica, keep));
        let mut views = |path: RelPath| {
            let of_source = source.read(&path, Further::default()).ok()?;
            let of_replica = replica.read(&path, Further::default()).ok();
            Some((path, of_source, of_replica))
        };
        Shown {
            second,
            entries: paths.into_iter().filter_map(&mut views).collect(),
            root,
        }
    }

    /// Returns the first entry, and the tree, that this host lacks or sees otherwise, though it was
    /// not changed since.
    pub fn differs(
        &self,
        (source, replica): (&DirRef, &DirRef),
        keep: &Keep,
    ) -> Option<(&RelPath, Side)> {
        if let Some(path) = self.lacking(source) {
            return Some((path, Side::Source));
        }
        let (mut own_of_source, mut own_of_replica) =
            (Views::of(source, keep), Views::of(replica, keep));
        let during = self.second..=i64::MAX;
        // Members look at nothing that is mounted on one host alone.
        let is_common = |(path, ..): &&(RelPath, View, Option<View>)| !crosses_mount(source, path);
        let mut entries = self.entries.iter().filter(is_common);
        entries.find_map(|(path, theirs, of_replica)| {
            let own = own_of_source.read(path, Further::default()).ok()?;
            let is_other = theirs.difference(&own, (Side::Source, keep)).is_some();
            if is_other && !theirs.may_be_outdated(&own, &during) {
                return Some((path, Side::Source));
            }
            let theirs = of_replica.as_ref()?;
            let own = own_of_replica.read(path, Further::default()).ok()?;
            // Other members change the replica.
            let is_other = theirs.is_of_one_change(&own)
                && theirs.difference(&own, (Side::Replica, keep)).is_some();
            is_other.then_some((path, Side::Replica))
        })
    }

    /// Returns an entry of the source's root that this host lacks, though no name of the root came
    /// or went since the views were taken.
    fn lacking(&self, source: &DirRef) -> Option<&RelPath> {
        let is_missing = |path: &&RelPath| {
            let name = path.split_last().map(|(_, name)| CString::new(name));
            let found = name.and_then(Result::ok).map(|name| source.look(&name));
            found.is_some_and(|found| found.is_err_and(|fault| fault.is_missing()))
        };
        let lacking = self.root.iter().find(is_missing)?;
        let is_old = |meta: Meta| meta.ctime.sec < self.second;
        source.meta_again().is_ok_and(is_old).then_some(lacking)
    }
}

/// Returns whether something is mounted on a directory at a path, or above it below the root.
fn crosses_mount(root: &DirRef, path: &RelPath) -> bool {
    let mut at = root.clone();
    for name in path.names() {
        let Ok(below) = at.enter(&CString::new(name).unwrap_or_default()) else {
            return false;
        };
        if below.is_mount_root() == Some(true) {
            return true;
        }
        at = below;
    }
    false
}

/// Returns the paths of the first names that a directory lists.
fn names_of(dir: &DirRef, at: &RelPath) -> Vec<RelPath> {
    let mut names = Names::default();
    let listed = dir
        .list()
        .and_then(|mut listing| listing.fill(&mut names, NAMES_MAX));
    let count = listed.map_or(0, |_| names.len().min(NAMES_MAX));
    (0..count)
        .map(|index| at.join(names.get(index).0.to_bytes()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_tree::fake::FakeTree;
    use driftless_tree::{HandlePool, Place};

    fn root(tree: &FakeTree, side: Side) -> DirRef {
        match tree.endpoint().locate(side, &HandlePool::new(8)) {
            Ok(Place::Dir(root)) => root,
            _ => panic!("the root is a directory"),
        }
    }

    #[test]
    fn member_that_lacks_a_root_entry_differs() {
        let (leader, member, replica) = (
            FakeTree::new("leader"),
            FakeTree::new("member"),
            FakeTree::new("replica"),
        );
        for name in ["data/file", "disk/file"] {
            leader.put(name, b"content");
        }
        member.put("data/file", b"content");
        let trees = [
            root(&leader, Side::Source),
            root(&member, Side::Source),
            root(&replica, Side::Replica),
        ];
        let [of_leader, of_member, of_replica] = &trees;
        let keep = Keep::default();
        // Seconds before and after all changes of the trees.
        for (second, is_told) in [(i64::MAX, true), (i64::MIN, false)] {
            let mut shown = Shown::of((of_leader, of_replica), &keep, second);
            shown.entries.clear();
            let found = shown.differs((of_member, of_replica), &keep);
            let lacks = found.map(|(path, side)| (path.as_bytes().to_vec(), side));
            assert_eq!(lacks, is_told.then(|| (b"disk".to_vec(), Side::Source)));
            assert_eq!(shown.differs((of_leader, of_replica), &keep), None);
        }
    }
}
