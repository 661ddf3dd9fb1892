//! Which subdirectories of a directory were entered in this run, so that a second look at it tells
//! those that are others now.
//!
//! A name alone says nothing: a directory that is removed and made anew, or renamed to where
//! another was, has the name of one that is done. So what is kept is a hash of name and inode, of a
//! bounded number.

use driftless_lock::Mutex;
use driftless_model::Meta;
use std::collections::HashSet;
use std::ffi::CStr;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Subdirectories of one directory that are remembered, at 16 bytes each; further ones are entered
/// once more in a second look.
const ENTERED_MAX: usize = 1 << 16;

/// The subdirectories that were entered.
#[derive(Debug, Default)]
pub struct Entered(Mutex<HashSet<u64>>);

impl Entered {
    /// Notes that the subdirectory `name`, which is `meta`, was entered.
    pub fn note(&self, name: &CStr, meta: &Meta) {
        let mut marks = self.0.lock();
        if marks.len() < ENTERED_MAX {
            marks.insert(mark(name, meta));
        }
    }

    /// Notes that it has to be entered once more, if it is there.
    pub fn forget(&self, name: &CStr, meta: &Meta) {
        self.0.lock().remove(&mark(name, meta));
    }

    /// Whether the subdirectory that is at `name` now, `meta`, was entered.
    pub fn has(&self, name: &CStr, meta: &Meta) -> bool {
        self.0.lock().contains(&mark(name, meta))
    }
}

fn mark(name: &CStr, meta: &Meta) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((name, meta.id()))
}
