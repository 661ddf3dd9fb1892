//! Operations that were submitted to another host and are not complete yet.

use crate::sync::entry::{Intent, Met};
use crate::sync::visit::Visit;
use driftless_lock::Mutex;
use driftless_model::Meta;
use driftless_mover::Moved;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// What was submitted.
pub enum PendingOp {
    /// An entry is being made: what for, and what is known of it before the answer.
    Make(PendingEntry, Intent, Moved),
    /// A file is on its way. With an intent it is made as that says; without, it was not looked at
    /// before.
    Fetch(PendingEntry, Option<(Meta, Intent)>),
    /// A directory is looked at again.
    LookAgain(Arc<Visit>),
    /// A directory gets its attributes: what for.
    SetOwn(Arc<Visit>, Intent),
}

/// An entry whose fate is not known yet.
pub struct PendingEntry {
    /// Its directory.
    pub visit: Arc<Visit>,
    /// Its name on the source.
    pub name: CString,
    /// Its share of the walk.
    pub weight: u64,
}

/// All operations of a run that are not complete.
#[derive(Default)]
pub struct Pending {
    /// The number of the next.
    pub next: AtomicU64,
    /// Those that are not complete, by their numbers.
    pub open: Mutex<HashMap<u64, PendingOp>>,
    /// Threads that are submitting one: they wait where too much is under way.
    pub submitting: AtomicUsize,
}

impl PendingEntry {
    /// The one that was met.
    pub fn of(met: &Met<'_>) -> PendingEntry {
        PendingEntry {
            visit: met.visit.clone(),
            name: met.name.into(),
            weight: met.weight,
        }
    }
}
