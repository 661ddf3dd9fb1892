//! The kinds of task, and large files in the course of being copied or compared.

use crate::sync::entry::{Intent, Pair};
use crate::sync::links::Whole;
use crate::sync::visit::Visit;
use crate::underway::Begun;
use driftless_model::{Meta, RelPath, What};
use driftless_mover::{Comparison, Large};
use driftless_reconcile::Fingerprint;
use driftless_tree::{DirRef, NameStream, Names};
use std::ffi::CString;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What a large file is copied for.
#[derive(Debug, Clone)]
pub struct CopyContext {
    /// What is reported when it is done.
    pub intent: Intent,
    /// Its metadata if it leads a hard-link group.
    pub leads: Option<Meta>,
    /// How often it was begun again because its source changed.
    pub attempt: u8,
    /// Its share of the walk.
    pub weight: u64,
}

/// A large file in the course of being copied, and where it belongs.
pub struct LargeCopy {
    /// The copy.
    pub large: Large,
    /// Its directory.
    pub visit: Arc<Visit>,
    /// Its name on the source.
    pub name: CString,
    /// What it is copied for.
    pub context: CopyContext,
    /// How much of it is under way.
    pub begun: Begun,
    /// Ranges that are being copied or wait for it.
    pub pending: AtomicUsize,
    /// Where it is, and these bytes of it, if only they are copied here and another mover finishes
    /// it.
    pub bytes_of: Option<(RelPath, Range<u64>)>,
}

/// A large file in the course of being compared, and where it belongs.
pub struct LargeCompare {
    /// The comparison.
    pub comparison: Comparison,
    /// Its directory.
    pub visit: Arc<Visit>,
    /// Its name on the source.
    pub name: CString,
    /// The entry on both sides; that of the earlier copy if there is a `basis`.
    pub pair: Pair,
    /// The directory of the earlier copy whose file is compared in place of the replica's.
    pub basis: Option<DirRef>,
    /// Threads that work on it mostly wait for another host.
    pub waits: bool,
    /// What differs besides.
    pub what: What,
    /// It is the first name of a hard-link group.
    pub leads: bool,
    /// See [`Met`](crate::sync::entry::Met).
    pub whole: Option<Whole>,
    /// Its share of the walk.
    pub weight: u64,
    /// How much of it is under way.
    pub begun: Begun,
    /// Ranges that are being compared or wait for it.
    pub pending: AtomicUsize,
    /// Some of it is not compared, because the file is left to others.
    pub incomplete: AtomicBool,
}

impl LargeCompare {
    /// Says that `range` is not compared here, if there is anything in it.
    pub fn leaves(&self, range: &Range<u64>) -> bool {
        self.incomplete
            .fetch_or(!range.is_empty(), Ordering::Relaxed);
        !range.is_empty()
    }
}

/// An item of the queue: a piece of work with its handles warm.
pub enum Task {
    /// Make the directory `name` of `visit` equal.
    Dir(Arc<Visit>, CString, u64),
    /// Make a range of names equal; each name is worth the last number of the walk.
    Names(Arc<Visit>, Arc<Names>, Range<u64>, u64),
    /// Read more names.
    List(Arc<Visit>, Box<dyn NameStream>, u64),
    /// Look at the directory again.
    Again(Arc<Visit>),
    /// A name whose hard-link group is settled now.
    Waiter(Arc<Visit>, CString),
    /// Take part in the copying of a large file.
    Bytes(RelPath, Fingerprint, Range<u64>),
    /// Copy a range of a large file.
    Chunk(Arc<LargeCopy>, Range<u64>),
    /// Compare a range of a large file.
    Compare(Arc<LargeCompare>, Range<u64>),
    /// Remove these names of the directory at the path, if the source still lacks them.
    Delete(RelPath, Vec<CString>),
}
