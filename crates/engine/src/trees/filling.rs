//! Which source a replica was filled from.
//!
//! Trees that share no name at the top look like a mistake. A source whose names have all changed
//! looks the same, but its root directory is still that from which the replica was filled: the mark
//! of the replica keeps its birthmark (file system, inode, time of birth). An empty mount point has
//! another one.

use crate::options::Options;
use crate::trees::changes::scope;
use crate::trees::marks::Marks;
use crate::trees::rings::Origin;
use driftless_model::is_set_aside;
use driftless_reconcile::Mark;
use driftless_tree::{Dir, DirMutRef, DirRef, Done, is_temp_name, windows};
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::sync::Arc;

/// A directory that file systems make in their own roots (mke2fs(8)): it says nothing about a tree.
const OF_FILE_SYSTEM: &CStr = c"lost+found";

/// Names that file systems, and programs that serve a whole file system, make in its root: records
/// of quotas (quotacheck(8)), folders of snapshots, trash of desktops, folders of other systems.
const OF_ROOTS: [&CStr; 12] = [
    c"aquota.group",
    c"aquota.user",
    c"quota.group",
    c"quota.user",
    c".snap",
    c".snapshot",
    c".snapshots",
    c".zfs",
    c".Trashes",
    c".fseventsd",
    c"$RECYCLE.BIN",
    c"System Volume Information",
];
/// The trash of one user in the root of a file system (FreeDesktop.org trash specification); the
/// user's number follows.
const TRASH_OF_USER: &[u8] = b".Trash-";

/// Whether a name at the top of a replica tells what filled it.
pub fn says_something(name: &CStr) -> bool {
    name != OF_FILE_SYSTEM && !is_temp_name(name) && !is_set_aside(name)
}

/// Whether a name is one that roots of file systems have, whatever is copied there.
pub fn is_of_file_system(name: &CStr) -> bool {
    OF_ROOTS.contains(&name) || name.to_bytes().starts_with(TRASH_OF_USER)
}

/// Returns the birthmark of the source, if a run that has looked at all of it may write it to the
/// mark: where that says so already, or the replica has no other name at the top. Returns `None`
/// for trees with so many names at the top that they are not held at a time.
pub fn filled_by(
    options: &Options,
    (source, replica): &(DirRef, Option<DirMutRef>),
    known: Option<u128>,
) -> Option<u128> {
    let selection = options.selection.as_ref();
    let is_whole = selection.is_none_or(|selection| selection.whole);
    let replica = replica.as_ref().filter(|_| is_whole)?;
    let mark = birthmark(options, source)?;
    let is_known = known == Some(mark);
    (is_known || has_no_other_names(source, replica).unwrap_or(false)).then_some(mark)
}

fn has_no_other_names(source: &DirRef, replica: &DirMutRef) -> Done<bool> {
    let (Some(ours), Some(theirs)) = (names_of(source)?, names_of(replica)?) else {
        return Ok(false);
    };
    Ok(theirs.is_subset(&ours))
}

/// The names at the top of a tree; `None` if they are more than a window of names.
fn names_of<D: Dir + ?Sized>(dir: &Arc<D>) -> Done<Option<HashSet<CString>>> {
    let mut all = HashSet::new();
    for (number, names) in windows(dir)?.enumerate() {
        let names = names?;
        if number > 0 && !names.is_empty() {
            return Ok(None);
        }
        let told = (0..names.len()).map(|at| names.get(at).0);
        all.extend(told.filter(|name| says_something(name)).map(CStr::to_owned));
    }
    Ok(Some(all))
}

/// Whether the mark of the replica says that it was filled from this source.
pub fn was_filled_from(options: &Options, source: &DirRef, replica: &DirMutRef) -> bool {
    let mark = own_mark(options, replica);
    let filled = mark.and_then(|mark| mark.filled);
    filled.is_some() && filled == birthmark(options, source)
}

/// Whether the mark of the replica says that runs of this source have filled it, or begun to. A
/// mark that some run has made will do for a source of which no birthmark can be had.
pub fn was_begun_from(options: &Options, source: &DirRef, replica: &DirMutRef) -> bool {
    let mark = own_mark(options, replica);
    mark.filter(|mark| mark.run != 0).is_some_and(|mark| {
        let own = scope(options).source;
        mark.unsettled.iter().any(|line| line.source == own)
            || mark.filled == birthmark(options, source)
    })
}

/// Whether a run has filled the directory as a replica of its own.
pub fn is_replica(options: &Options, dir: &DirMutRef) -> bool {
    own_mark(options, dir).is_some_and(|mark| mark.run != 0)
}

fn own_mark(options: &Options, dir: &DirMutRef) -> Option<Mark> {
    Marks::read_own(dir, scope(options)).ok().flatten()
}

/// The birthmark of the source, or of the tree whose snapshot is read.
fn birthmark(options: &Options, source: &DirRef) -> Option<u128> {
    let mark = match options.comes_from {
        Some(_) => Origin::of(options, source)?.birthmark(),
        None => source.birthmark(),
    };
    mark.ok().flatten()
}
