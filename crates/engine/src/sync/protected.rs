//! Names at which the replica has something that the filters protect, spelt otherwise.

use driftless_lock::Mutex;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Names of the source at which the replica has something, spelt otherwise, that is protected, or
/// that may have something protected in it.
#[derive(Default)]
pub struct Protected {
    /// Whether there are any.
    pub any: AtomicBool,
    /// Each, and what the replica has there.
    pub names: Mutex<HashMap<CString, Spelt>>,
}

/// What the replica has at a name.
pub struct Spelt {
    /// How it spells it.
    pub theirs: CString,
    /// The rules leave it out. Otherwise it is a directory.
    pub spared: bool,
}

impl Protected {
    /// What is told of the name, if it is one of them.
    pub fn at<T>(&self, name: &CStr, told: impl Fn(&Spelt) -> Option<T>) -> Option<T> {
        if self.any.load(Relaxed) {
            self.names.lock().get(name).and_then(told)
        } else {
            None
        }
    }

    /// How the replica spells a directory, if the rules may say something of what is in it, and
    /// that is not the source's spelling.
    pub fn spelling(&self, name: &CStr) -> Option<CString> {
        self.at(name, |spelt| Some(spelt.theirs.clone()))
    }
}
