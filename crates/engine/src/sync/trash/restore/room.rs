//! The directory in which a restore gathers pieces. It lies in the trash of the tree that gets them,
//! which no listing shows and no other user can enter.
//!
//! A restore that has the lock of that trash gathers in a directory with a fixed name. So the next
//! one with the lock knows that a killed restore left the directory, and removes it. A restore
//! without the lock, while another process has it or where there are no locks, takes a random name.

use crate::clock::now;
use crate::sync::trash::{make, open};
use driftless_model::{Kind, Meta, TRASH};
use driftless_tree::{
    DirMutRef, Done, Hold, Lock, Reach, Spared, is_root_name, is_temp_name, stable_temp_name,
    temp_name, windows,
};
use std::ffi::{CStr, CString};

/// Seconds after which a directory with a random name was left by a killed restore, if nothing
/// changed in it since: a week.
const LEFT_SEC: i64 = 7 * 86_400;

/// The directory in which a restore gathers pieces.
pub struct RestoreRoom {
    trash: DirMutRef,
    name: CString,
    staging: DirMutRef,
    /// Lock of the trash, if this restore has it.
    lock: Option<Hold>,
}

impl RestoreRoom {
    /// Makes the directory, after it removed those that killed restores have left.
    ///
    /// # Errors
    /// The trash cannot be opened, or the directory cannot be made.
    pub fn open(root: &DirMutRef) -> Done<RestoreRoom> {
        let trash = match open(root) {
            Err(fault) if fault.is_missing() => make(root)?,
            opened => opened?,
        };
        let lock = match trash.lock(None, Reach::Everywhere) {
            Ok(Lock::Held(lock)) => Some(lock),
            _ => None,
        };
        remove_left(&trash, lock.is_some());
        match make_room(&trash, lock.is_some()) {
            Ok((name, staging)) => Ok(RestoreRoom {
                trash,
                name,
                staging,
                lock,
            }),
            Err(fault) => {
                drop(lock);
                remove_empty_trash(root);
                Err(fault)
            }
        }
    }

    /// Returns the directory.
    pub fn staging(&self) -> &DirMutRef {
        &self.staging
    }

    /// Removes the directory with everything in it, and the trash if that is empty then. Returns
    /// whether an entry was still in the directory.
    pub fn close(self, root: &DirMutRef) -> bool {
        let has_left = self.trash.remove_dir(&self.name).is_err();
        if has_left {
            let _the_next_restore_removes_it = self.trash.remove_tree(&self.name, Spared::NOTHING);
        }
        drop(self.lock);
        remove_empty_trash(root);
        has_left
    }
}

fn make_room(trash: &DirMutRef, is_locked: bool) -> Done<(CString, DirMutRef)> {
    let fixed = fixed_name();
    if is_locked && let Ok(staging) = trash.make_dir(&fixed) {
        return Ok((fixed, staging));
    }
    let name = temp_name();
    let staging = trash.make_dir(&name)?;
    Ok((name, staging))
}

/// Returns the name of the directory of a restore that has the lock.
fn fixed_name() -> CString {
    stable_temp_name(c"restore")
}

/// Removes the directories that killed restores have left.
fn remove_left(trash: &DirMutRef, is_locked: bool) {
    let (fixed, now_sec) = (fixed_name(), now().sec);
    let Ok(windows) = windows(trash) else { return };
    let mut left = Vec::new();
    for names in windows.map_while(Result::ok) {
        let all = (0..names.len()).map(|index| names.get(index).0);
        let rooms = all.filter(|name| is_temp_name(name) && !is_root_name(name));
        left.extend(rooms.map(CString::from));
    }
    let is_left = |name: &CStr| match trash.look(name) {
        Ok(meta) if meta.kind != Kind::Dir => false,
        Ok(_) if *name == *fixed => is_locked,
        Ok(meta) => is_old(&meta, now_sec),
        Err(_) => false,
    };
    for name in left.iter().filter(|name| is_left(name)) {
        let _the_next_restore_tries_again = trash.remove_tree(name, Spared::NOTHING);
    }
}

fn is_old(meta: &Meta, now_sec: i64) -> bool {
    let changed_sec = meta.mtime.sec.max(meta.ctime.sec);
    now_sec.saturating_sub(changed_sec) > LEFT_SEC
}

fn remove_empty_trash(root: &DirMutRef) {
    let _the_trash_of_a_replica_is_not_empty = root.remove_dir(TRASH);
}
