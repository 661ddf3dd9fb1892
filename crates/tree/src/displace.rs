//! Giving an entry the name at which a directory stands.
//!
//! Nothing is moved aside: what lies in the directory goes where it is, if all of it may, and then the empty directory and the entry
//! change places. So whoever is killed in between leaves no tree under a name that nobody knows, and something always stands at the name.

use crate::Dir;
use crate::Done;
use crate::local::{LocalDir, fault};
use crate::remove::{clear, count_in, enter_same};
use driftless_model::Act;
use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;
use std::ffi::CStr;

/// Renames `temp` to `name`, at which a directory stands that may go with at most `below_max` entries in it. Whoever may rename here
/// can put another directory there meanwhile: what is removed is in the one that was counted, and an empty one is all that goes by name.
pub fn displace(dir: &LocalDir, temp: &CStr, name: &CStr, below_max: u64) -> Done {
    let there = enter_same(dir, name)?;
    let counted = count_in(&there, below_max);
    let below = counted.entries;
    counted.done()?;
    if below > below_max {
        return Err(fault(dir.side(), Act::ReplaceDirectory, Errno::NOTEMPTY));
    }
    if below > 0 {
        there.make_writable();
        clear(&there).done()?;
    }
    change_places(dir, temp, name)
}

fn change_places(dir: &LocalDir, temp: &CStr, name: &CStr) -> Done {
    let fd = dir.changing()?;
    let exchange = || renameat_with(&*fd, temp, &*fd, name, RenameFlags::EXCHANGE);
    match exchange() {
        Ok(()) => {}
        // Not every kernel and file system can, and what comes from a lower layer cannot be renamed (overlayfs).
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
