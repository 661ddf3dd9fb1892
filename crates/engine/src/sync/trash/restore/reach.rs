//! Refuses a restore to a directory on another file system, before an entry gets its name there: a
//! rename does not lead from one file system to another (rename(2), `EXDEV`).

use super::{RestoreError, failed};
use driftless_model::{RelPath, errno};
use driftless_tree::{DirMutRef, temp_name};

/// Checks that entries of `staging` can be renamed into the directory `to`, which has `path` in it.
///
/// # Errors
/// The directory is on another file system, or nothing can be renamed there.
pub fn require_reach(
    staging: &DirMutRef,
    to: &DirMutRef,
    path: &RelPath,
) -> Result<(), RestoreError> {
    let other = || RestoreError::OtherFileSystem(path.clone());
    if staging.first_meta().dev != to.first_meta().dev {
        return Err(other());
    }
    // A file system can be mounted twice. The kernel compares the mounts before it looks for the
    // name, which does not exist (renameat2(2)).
    match to.take_new(&**staging, &temp_name(), &temp_name()) {
        Err(fault) if fault.errno == errno::EXDEV => Err(other()),
        Err(fault) if !fault.is_missing() => Err(failed(path, fault)),
        _ => Ok(()),
    }
}

/// Checks a directory of the tree below one that is within reach. Only a directory on which
/// something is mounted, or a subvolume, can be out of reach.
///
/// # Errors
/// The directory is on another file system, or nothing can be renamed there.
pub fn require_reach_below(
    staging: &DirMutRef,
    to: &DirMutRef,
    path: &RelPath,
) -> Result<(), RestoreError> {
    let is_same = staging.first_meta().dev == to.first_meta().dev;
    if is_same && to.is_mount_root() == Some(false) {
        return Ok(());
    }
    require_reach(staging, to, path)
}
