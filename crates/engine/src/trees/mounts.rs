//! File systems that are mounted below the source: those that earlier runs of the same pair of
//! trees met, and those that this one does.
//!
//! One that was there and is not there now is doubt, not absence: what an empty mount point shows
//! is not what the source has. Nothing at or below its path is touched on the replica, and that is
//! a problem of the path. A subvolume, which has a device number of its own and cannot be
//! unmounted, is no mounted file system; a directory that is mounted at a second place is one.

use crate::options::Options;
use crate::sample::Sample;
use crate::trees::overlap::leaves_out;
use driftless_lock::Mutex;
use driftless_model::{Kind, RelPath, Side};
use driftless_tree::{
    DirRef, Endpoint, HandlePool, MountTable, Place, descend, has_common_inodes, mounts_below,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fmt::Debug;
use std::path::Path;

/// Mounted file systems that are remembered of a pair of trees; of more, nothing is known.
pub const MOUNTS_MAX: usize = 1000;

/// Of so many it is told what they show, and so many entries of each, with every batch.
const SHOWN_MAX: usize = 100;

const SHOWN_ENTRIES: usize = 4;

/// Directories that are held open while it is found out which are there.
const HANDLES: usize = 64;

/// Why a directory of the source is not entered, and what stands there on the replica stays.
pub const UNMOUNTED: &str = "a file system that was mounted there in an earlier run, or is on the coordinator's host, is not there now; \
    mount it, or say of one of an earlier run that it is gone for good with --forget-mounts";

/// What a run finds out about them.
#[derive(Debug, Default)]
pub struct Mounts {
    pub met: Mutex<BTreeSet<RelPath>>,
    pub told: Mutex<BTreeSet<RelPath>>,
}

impl Mounts {
    /// Those that were met.
    pub fn take(&self) -> BTreeSet<RelPath> {
        std::mem::take(&mut *self.met.lock())
    }

    /// Adds those that others met.
    pub fn add(&self, paths: impl IntoIterator<Item = RelPath>) {
        self.met.lock().extend(paths);
    }
}

/// File systems that are mounted below the source on this host.
#[derive(Debug, Default)]
pub struct MountedHere {
    /// Those that a run enters.
    pub entered: BTreeSet<RelPath>,
    /// Those that a run comes to, with what they show if it enters them: a mover that looks at the
    /// same source must have them, too.
    pub met: BTreeMap<RelPath, Option<Sample>>,
}

/// Returns what is mounted below the source on this host.
pub fn mounted_here(options: &Options, source: &DirRef) -> MountedHere {
    let mut here = MountedHere::default();
    if options.source.host.is_some() {
        return here;
    }
    let found = mounts_below(&options.source.plain_path()).into_iter();
    let met = found.filter_map(|at| {
        let is_met = !leaves_out(options, &at.path.names().collect::<Vec<_>>());
        let is_entered = is_met.then(|| is_entered(options, source, &at.path))??;
        Some((at, is_entered))
    });
    for (number, (at, is_entered)) in met.take(MOUNTS_MAX).enumerate() {
        let is_shown = is_entered && number < SHOWN_MAX && !at.is_autofs;
        let shown = is_shown.then(|| shown(source, &at.path)).flatten();
        if is_entered {
            here.entered.insert(at.path.clone());
        }
        here.met.insert(at.path, shown);
    }
    here
}

/// Returns whether something is mounted at a path of the source on this host, or may be.
pub fn may_be_mounted(options: &Options, source: &DirRef, path: &RelPath) -> bool {
    options.source.host.is_some()
        || match descend(source, path) {
            Ok(at) => at.is_mount_root() != Some(false),
            Err(fault) => !fault.is_absent(),
        }
}

/// What is mounted below a tree of this host: where, and the device of it.
pub fn mounted_below(tree: &Path) -> BTreeSet<(RelPath, Vec<u8>)> {
    let all = mounts_below(tree).into_iter();
    all.map(|at| (at.path, at.device)).collect()
}

/// Returns whether a run enters what is mounted at a path of the source, or `None` if it finds
/// nothing mounted there.
fn is_entered(options: &Options, source: &DirRef, path: &RelPath) -> Option<bool> {
    let is_foreign = |at: &DirRef| options.is_foreign(at.first_meta().dev, source.first_meta().dev);
    match descend(source, path) {
        Ok(at) => (at.is_mount_root() == Some(true)).then(|| !is_foreign(&at)),
        Err(_) => is_file(source, path).then_some(true),
    }
}

/// Returns whether what lies at a path of a tree is there and is no directory.
fn is_file(tree: &DirRef, path: &RelPath) -> bool {
    let meta = around(tree, path).and_then(|(dir, name)| dir.look(&name).ok());
    meta.is_some_and(|meta| meta.kind != Kind::Dir)
}

/// Returns the paths of a tree at which a file is mounted on this host, as far as a run comes to
/// them.
pub fn files_mounted(
    options: &Options,
    mounts: &MountTable,
    (root, tree): (&Endpoint, &DirRef),
) -> Vec<RelPath> {
    let mut paths = places_met(options, mounts, root);
    paths.retain(|path| is_file(tree, path));
    paths
}

/// Returns the places of a tree on which something is mounted for good on this host, as far as a run
/// comes to them.
fn places_met(options: &Options, mounts: &MountTable, root: &Endpoint) -> Vec<RelPath> {
    if root.host.is_some() {
        return Vec::new();
    }
    let found = mounts.below(&root.plain_path()).into_iter();
    let paths = found.filter(|at| !at.is_autofs).map(|at| at.path);
    let is_met = |path: &RelPath| !leaves_out(options, &path.names().collect::<Vec<_>>());
    paths.filter(is_met).collect()
}

/// Returns what is mounted on this host below the replica where the source has something, with
/// inode numbers: a mover that lacks one of these file systems would write beneath it.
pub fn mounted_in_replica(
    options: &Options,
    (source, replica): (&DirRef, &DirRef),
) -> Vec<(RelPath, u64)> {
    let is_there = |path: &RelPath| descend(source, path).is_ok() || is_file(source, path);
    places_met(options, &MountTable::default(), &options.replica)
        .into_iter()
        .filter(is_there)
        .filter_map(|path| common_inode(replica, &path).map(|number| (path, number)))
        .take(SHOWN_MAX)
        .collect()
}

/// Returns the inode number of what lies at a path of a tree if all hosts see the same one.
pub fn common_inode(tree: &DirRef, path: &RelPath) -> Option<u64> {
    let is_common = |dir: &DirRef| dir.as_local().is_some_and(has_common_inodes);
    match descend(tree, path) {
        Ok(at) => is_common(&at).then(|| at.first_meta().ino),
        Err(_) => {
            let (dir, name) = around(tree, path)?;
            is_common(&dir).then(|| dir.look(&name).ok().map(|meta| meta.ino))?
        }
    }
}

/// What a path of the source shows now.
fn shown(source: &DirRef, path: &RelPath) -> Option<Sample> {
    let file = || around(source, path).and_then(|(dir, name)| Sample::of_file(&dir, &name).ok());
    descend(source, path).map_or_else(|_| file(), |at| Sample::of_dir(&at, SHOWN_ENTRIES).ok())
}

/// The directory that holds what lies at a path of the source, and the name there.
fn around(source: &DirRef, path: &RelPath) -> Option<(DirRef, CString)> {
    let names: Vec<&[u8]> = path.names().collect();
    let (name, above) = names.split_last()?;
    let dir = descend(source, &RelPath::from_names(above.iter().copied())).ok()?;
    Some((dir, CString::new(*name).expect("names hold no NUL")))
}

/// Which of the known ones a run that forgets what is gone still has to know: those that it does
/// not look at, those that are there, and those of which nobody can tell.
pub fn not_gone(options: &Options) -> BTreeSet<RelPath> {
    let known = &options.known_mounts;
    let Ok(Place::Dir(source)) = options
        .source
        .locate(Side::Source, &HandlePool::new(HANDLES))
    else {
        return (**known).clone();
    };
    let is_left_out = |path: &RelPath| leaves_out(options, &path.names().collect::<Vec<_>>());
    known
        .iter()
        .filter(|path| is_left_out(path) || !is_gone(options, &source, path))
        .cloned()
        .collect()
}

/// Whether nothing is mounted at a path of the source, as far as a run comes on the way there.
fn is_gone(options: &Options, source: &DirRef, path: &RelPath) -> bool {
    let mut at = source.clone();
    for name in path.names() {
        if options.is_foreign(at.first_meta().dev, source.first_meta().dev) {
            return false;
        }
        let name = CString::new(name).expect("names hold no NUL");
        match at.enter(&name) {
            Ok(below) => at = below,
            // Nothing, or something else, is there.
            Err(fault) => return fault.is_absent(),
        }
    }
    at.is_mount_root() == Some(false)
}

/// Whether one of the paths is this one, or lies below it.
pub fn at_or_below(paths: &BTreeSet<RelPath>, path: &RelPath) -> bool {
    if paths.contains(path) {
        return true;
    }
    // What begins with the path and a slash stands together in the order of bytes; no name comes
    // before that of the byte 1.
    let next = paths.range(path.join(b"\x01")..).next();
    next.is_some_and(|next| {
        next.as_bytes()
            .strip_prefix(path.as_bytes())
            .is_some_and(|rest| rest.starts_with(b"/"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_at_or_below_a_path_is_found() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let paths: BTreeSet<RelPath> = ["a/b", "a-b/c", "d", "e/f/g", "e!"].map(path).into();
        for (text, found) in [
            ("a", true),
            ("a/b", true),
            ("a/b/c", false),
            ("a-b", true),
            ("a-", false),
            ("d", true),
            ("d/d", false),
            ("e", true),
            ("e/f", true),
            ("e/f/g/h", false),
            ("f", false),
        ] {
            assert_eq!(at_or_below(&paths, &path(text)), found, "{text}");
        }
    }
}
