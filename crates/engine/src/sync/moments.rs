//! When an entry was changed last, as both file systems say: by it, what somebody else has changed
//! is told from what a run did, or should have done.
//!
//! Times of status changes (stat(2), `st_ctime`) cannot be set, so they are later than every change
//! that they speak of. Of an entry that is not there, the directory knows in which it was.

use crate::sync::open::Trees;
use driftless_model::{RelPath, Stamp};
use driftless_tree::{Dir, Done, descend};
use std::ffi::CString;
use std::sync::Arc;

/// When an entry was changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// By the clock of the file system.
    pub at: Stamp,
    /// It is there; otherwise this is of the nearest directory above that is.
    pub is_there: bool,
}

impl Trees {
    /// When the source's entry was changed last; nothing where that cannot be seen.
    pub fn changed_on_source(&self, path: &RelPath) -> Option<Changed> {
        changed(&self.ground().roots.0, path)
    }

    /// When the replica's entry was changed last; nothing where that cannot be seen.
    pub fn changed_on_replica(&self, path: &RelPath) -> Option<Changed> {
        let root = self.ground().roots.1.clone()?;
        changed(&(root as Arc<dyn Dir>), path)
    }
}

fn changed(root: &Arc<dyn Dir>, path: &RelPath) -> Option<Changed> {
    let (mut at, mut is_there) = (path.clone(), true);
    loop {
        match look(root, &at) {
            Ok(at) => return Some(Changed { at, is_there }),
            Err(fault) if fault.is_absent() => {
                is_there = false;
                at = at.split_last()?.0;
            }
            Err(_) => return None,
        }
    }
}

fn look(root: &Arc<dyn Dir>, path: &RelPath) -> Done<Stamp> {
    let Some((dir, name)) = path.split_last() else {
        return Ok(root.meta_again()?.ctime);
    };
    let name = CString::new(name).expect("names hold no NUL");
    Ok(descend(root, &dir)?.look(&name)?.ctime)
}
