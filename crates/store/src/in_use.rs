//! Marks of copies that running casts feed from or reuse: nothing removes such a copy.
//!
//! A mark is a lock of this host, so it ends with its process. Locks are exclusive, and several
//! processes may use one copy, so each copy has some places for locks. A purge takes all of them.

use crate::error::{Error, Result, own_file};
use crate::node::{NodeFiles, UsedCopy, path_of};
use driftless_state::holdings::{CopyRow, CopyState};
use driftless_tree::{Hold, Lock, Reach};
use std::ffi::CString;
use std::sync::Arc;

/// Processes that may use a copy at the same time.
const USERS_MAX: u32 = 8;

/// A use of a copy by this process, until it is dropped.
pub struct CopyUse {
    files: Arc<NodeFiles>,
    copy: u64,
}

impl CopyUse {
    /// Returns the number of the copy.
    pub fn copy(&self) -> u64 {
        self.copy
    }
}

impl Drop for CopyUse {
    fn drop(&mut self) {
        let mut used = self.files.used.lock();
        if let Some(entry) = used.get_mut(&self.copy) {
            entry.count = entry.count.saturating_sub(1);
            if entry.count == 0 {
                used.remove(&self.copy);
            }
        }
    }
}

/// Marks a copy as used.
///
/// # Errors
/// [`Error::Unusable`] if the copy is unfinished or is being removed; [`Error::UnknownCopy`].
pub(crate) fn use_copy(files: &Arc<NodeFiles>, copy: u64) -> Result<CopyUse> {
    let held = hold_copy(files, copy)?;
    // A purge that was first has changed the row.
    match files.row(copy)?.state {
        CopyState::Held | CopyState::Damaged => Ok(held),
        _ => Err(Error::Unusable { copy }),
    }
}

/// Marks a copy as used, whatever its state.
pub(crate) fn hold_copy(files: &Arc<NodeFiles>, copy: u64) -> Result<CopyUse> {
    let mut used = files.used.lock();
    match used.get_mut(&copy) {
        Some(entry) => entry.count = entry.count.saturating_add(1),
        None => {
            let entry = UsedCopy {
                count: 1,
                _lock: free_lock(files, copy)?,
            };
            used.insert(copy, entry);
        }
    }
    drop(used);
    Ok(CopyUse {
        files: files.clone(),
        copy,
    })
}

/// Takes the first lock of a copy that no other process has. Returns `None` if the host has no
/// locks.
fn free_lock(files: &NodeFiles, copy: u64) -> Result<Option<Hold>> {
    for place in 0..USERS_MAX {
        match lock(files, copy, place)? {
            Lock::Held(hold) => return Ok(Some(hold)),
            Lock::Taken(_) => {}
            Lock::Left(_) | Lock::Missing(_) => return Ok(None),
        }
    }
    Err(busy(&files.row(copy)?))
}

/// Calls `leave` for a copy that nothing uses, while no use can begin.
///
/// # Errors
/// [`Error::Busy`] if the copy is used.
pub(crate) fn while_unused(
    files: &NodeFiles,
    row: &CopyRow,
    leave: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let used = files.used.lock();
    if used.contains_key(&row.id) {
        return Err(busy(row));
    }
    let mut locks = Vec::new();
    for place in 0..USERS_MAX {
        match lock(files, row.id, place)? {
            Lock::Held(hold) => locks.push(hold),
            Lock::Taken(_) => return Err(busy(row)),
            Lock::Left(_) | Lock::Missing(_) => {}
        }
    }
    leave()
}

/// Returns whether a process receives or uses a copy.
pub(crate) fn is_used(files: &NodeFiles, row: &CopyRow) -> Result<bool> {
    if files.used.lock().contains_key(&row.id) {
        return Ok(true);
    }
    for place in 0..USERS_MAX {
        // One at a time, so that a use that begins meanwhile finds a free one.
        if let Lock::Taken(_) = lock(files, row.id, place)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn lock(files: &NodeFiles, copy: u64, place: u32) -> Result<Lock> {
    let name = CString::new(format!("use-{copy}-{place}")).unwrap_or_default();
    let locked = files.ids.lock(Some(&name), Reach::Host);
    locked.map_err(own_file(name.to_bytes()))
}

/// Returns the error for a copy that a process is at work on.
pub(crate) fn busy(row: &CopyRow) -> Error {
    Error::Busy {
        hash: NodeFiles::hash_of(row).unwrap_or(crate::format::SetHash([0; 32])),
        place: path_of(&row.place),
    }
}
