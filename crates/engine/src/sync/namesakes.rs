//! What is known of a directory's names that are several to the source and may be one to the
//! replica.

use crate::trees::folding::Folding;
use driftless_lock::Mutex;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// What is known of such names in a directory. Names are compared within one window of a listing.
#[derive(Default)]
pub struct Namesakes {
    /// Whether there are any.
    pub any: AtomicBool,
    /// Each later name, with those before it that it may be one with: the first of all, the first
    /// that differs in case alone, and the first that differs in form alone.
    pub later: Mutex<HashMap<CString, Vec<CString>>>,
    /// What is known of what the replica's directory takes for one.
    pub folding: Mutex<Folding>,
    /// What stands on the replica under another spelling: that, and the source's.
    pub misspelt: Mutex<Vec<(CString, CString)>>,
    /// Chosen names that the replica finds, with the other spellings under which it lists them.
    pub shown: Mutex<HashMap<CString, CString>>,
    /// Names of the source that are others to it and one to the replica: the later, and the first,
    /// which is kept.
    pub taken_for_one: Mutex<Vec<(CString, CString)>>,
}

impl Namesakes {
    /// Each later name, with those before it that it may be one with.
    pub fn alike(&self) -> Vec<(CString, Vec<CString>)> {
        self.later
            .lock()
            .iter()
            .map(|(later, earlier)| (later.clone(), earlier.clone()))
            .collect()
    }

    /// What stands on the replica under another spelling: that, and the source's.
    pub fn misspelt(&self) -> Vec<(CString, CString)> {
        self.misspelt.lock().clone()
    }

    /// Adds a name, and one before it that it may be one with.
    pub fn add(&self, later: CString, earlier: CString) {
        let (mut all, mut any) = (self.later.lock(), false);
        let known = all.entry(later).or_default();
        if !known.contains(&earlier) {
            known.push(earlier);
            any = true;
        }
        self.any.fetch_or(any, Relaxed);
    }
}
