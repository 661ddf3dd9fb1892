//! Giving an entry the name at which a directory stands.
//!
//! Nothing is moved aside: what lies in the directory is removed where it is, if all of it may go,
//! and then the empty directory and the entry change places. So a run that is killed in between
//! leaves no tree under a name that nobody knows; and where the kernel and the file system can
//! exchange two names, something always stands at the name.

use crate::DirMut;
use crate::Done;
use crate::leftover::below;
use crate::local::LocalDir;
use crate::local::look::fault;
use crate::local::remove::{Removed, clear, count_in, enter_same};
use driftless_model::{Act, RelPath};
use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;
use std::ffi::CStr;

/// Renames `temp` to `name`, at which a directory stands that may go with at most `below_max`
/// entries in it. A user who may rename here can put another directory there meanwhile: so entries
/// are removed only in the directory that was counted, and what is removed by its name must be
/// empty.
///
/// Returns the entries below the directory that were removed, and what stays. Where a look can tell
/// that something would stay, it is told before anything is removed.
pub fn displace(dir: &LocalDir, temp: &CStr, name: &CStr, below_max: u64) -> Removed {
    let cleared = match enter_same(dir, name) {
        Ok(there) => below(name, clear_all(&there, below_max)),
        Err(fault) => return Removed::failed(name, fault),
    };
    if cleared.stays() {
        return cleared;
    }
    match change_places(dir, temp, name) {
        Ok(()) => cleared,
        Err(fault) => Removed {
            stuck: Removed::failed(name, fault).stuck,
            ..cleared
        },
    }
}

/// Removes all that is in a directory, if there are at most `max` entries in it and nothing is
/// known to keep any of them.
fn clear_all(there: &LocalDir, max: u64) -> Removed {
    let counted = count_in(there, max);
    if counted.stays() {
        return Removed {
            entries: 0,
            ..counted
        };
    }
    if counted.entries > max {
        let fault = fault(there.side(), Act::ReplaceDirectory, Errno::NOTEMPTY);
        return Removed {
            stuck: vec![(RelPath::root(), fault)],
            ..Removed::default()
        };
    }
    if counted.entries == 0 {
        return Removed::default();
    }
    there.make_writable();
    clear(there)
}

fn change_places(dir: &LocalDir, temp: &CStr, name: &CStr) -> Done {
    let fd = dir.changing()?;
    let exchange = || renameat_with(&*fd, temp, &*fd, name, RenameFlags::EXCHANGE);
    match exchange() {
        Ok(()) => {}
        // Not every kernel and file system can exchange names, and what comes from a lower layer
        // cannot be renamed (overlayfs).
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP | Errno::XDEV) => {
            dir.remove_dir(name)?;
            return dir.rename(temp, name);
        }
        Err(errno) => return Err(fault(dir.side(), Act::Rename, errno)),
    }
    let removed = dir.remove_dir(temp);
    if removed.is_err() {
        // Somebody has put something into it.
        let _as_it_was = exchange();
    }
    removed
}
