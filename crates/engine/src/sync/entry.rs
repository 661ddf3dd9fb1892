//! An entry in the course of being made equal: plain values.

use crate::sync::links::Whole;
use crate::sync::visit::Visit;
use crate::tally::Reason;
use driftless_model::{Action, Difference, Entry, Kind, Meta, Stamp, What};
use driftless_mover::{Moved, Trouble};
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::sync::Arc;

/// What is about to be done to an entry, and why.
#[derive(Debug, Clone)]
pub struct Intent {
    /// What is done.
    pub action: Action,
    /// What differs.
    pub what: What,
    /// Of what kind the entry is.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// Its modification time.
    pub mtime: Stamp,
    /// Both values of what differs, if the monitor wants them.
    pub values: Vec<Difference>,
    /// Where the content differs.
    pub ranges: Vec<Range<u64>>,
    /// It takes the place of a directory: how many entries in that are removed.
    pub room: u64,
    /// The mode of the entry of the same kind that it takes the place of.
    pub stood: Option<u32>,
}

impl Intent {
    /// Without values.
    pub fn new(action: Action, what: What, meta: &Meta) -> Self {
        let size = if meta.kind == Kind::File {
            meta.size
        } else {
            0
        };
        Intent {
            action,
            what,
            kind: meta.kind,
            size,
            mtime: meta.mtime,
            values: Vec::new(),
            ranges: Vec::new(),
            room: 0,
            stood: None,
        }
    }
}

/// An entry that is on both sides.
pub struct Pair {
    /// On the source.
    pub source: Entry,
    /// On the replica.
    pub replica: Entry,
    /// Their targets, if both are symbolic links.
    pub targets: Option<(CString, CString)>,
}

impl Pair {
    /// Whether both have the same target, if they are symbolic links.
    pub fn has_same_target(&self) -> bool {
        let targets = self.targets.as_ref();
        targets.is_none_or(|(source, replica)| source == replica)
    }
}

/// An entry of the source that was looked at.
#[derive(Clone, Copy)]
pub struct Met<'a> {
    /// Its directory.
    pub visit: &'a Arc<Visit>,
    /// Its name.
    pub name: &'a CStr,
    /// What it is like.
    pub meta: &'a Meta,
    /// It is the first name of a hard-link group.
    pub leads: bool,
    /// All names of this inode of the replica are names of the group.
    pub whole: Option<Whole>,
    /// Its share of the walk.
    pub weight: u64,
}

impl Met<'_> {
    /// The inode that has to be copied or compared, and none that took its place: others become
    /// links to the copy.
    pub fn only(&self) -> Option<(u64, u64)> {
        self.leads.then(|| self.meta.id())
    }
}

/// What came of an entry.
pub enum Verdict {
    /// It was equal.
    Same,
    /// It was made equal.
    Changed(Intent, Moved),
    /// It was left out.
    Skipped(Reason),
    /// It waits for the first name of its group; it is accounted for then.
    Waits,
    /// It is a large file, which is accounted for, its share of the walk too, when all of it is
    /// copied.
    Large,
    /// It is being made on another host; it is accounted for, its share of the walk too, when that
    /// is answered.
    Submitted,
    /// It failed, and that was reported.
    Reported,
    /// It is left to another mover or to the coordinator, which accounts for it.
    GivenBack,
    /// It is a directory, which is accounted for, its share of the walk too, when all below it is
    /// done.
    Below,
}

/// What came of an entry, unless that cannot be told.
pub type Reconciled = Result<Verdict, Trouble>;
