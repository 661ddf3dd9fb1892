//! Removing what the store placed, and nothing else.
//!
//! Each entry is looked at before it goes: its inode, its time of birth and its owner must be those
//! that were noted when it was placed. A directory goes if it is empty then. So what a user moved or
//! saved into a copy stays, with the directories that lead to it.

use crate::error::{Error, Result};
use crate::placed::{LookOutcome, LookedAt, PlacedWalk};
use crate::staging::names_in;
use driftless_model::{Fault, Kind, errno, escape};
use driftless_tree::Done;
use std::ffi::CString;
use std::ops::Range;

/// Paths that a report names.
const NAMED_PATHS_MAX: usize = 64;

/// The outcome of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgeReport {
    /// Copies that were removed.
    pub copies: u64,
    /// Entries that were removed.
    pub entries: u64,
    /// Entries that stay because the store did not place them, or that could not be removed.
    pub kept: u64,
    /// The first of them.
    pub first_kept: Vec<KeptEntry>,
    /// Bytes of content of the copies.
    pub bytes: u64,
    /// Copies that could not be removed.
    pub staying: Vec<StayingCopy>,
}

/// An entry that a removal left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEntry {
    /// The path.
    pub path: Vec<u8>,
    /// Cause.
    pub cause: String,
}

/// A copy that a removal left, as a whole or in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StayingCopy {
    /// The number of the copy.
    pub copy: u64,
    /// Cause and remedy.
    pub cause: String,
    /// Whether another process is at work on the copy.
    pub is_busy: bool,
}

impl KeptEntry {
    /// Returns the directory that stands at the path of the place of a copy.
    pub(crate) fn of_other_place(path: Vec<u8>) -> KeptEntry {
        let cause = "it is another directory than the one in which the copy was placed".into();
        KeptEntry { path, cause }
    }
}

impl StayingCopy {
    /// Returns the copy that an error left.
    pub(crate) fn of(copy: u64, error: &Error) -> StayingCopy {
        let (cause, own) = (error.to_string(), format!("copy {copy}: "));
        StayingCopy {
            copy,
            cause: cause.strip_prefix(&own).unwrap_or(&cause).to_owned(),
            is_busy: error.is_busy(),
        }
    }
}

impl PurgeReport {
    /// Adds another report.
    pub(crate) fn add(&mut self, other: PurgeReport) {
        self.copies = self.copies.saturating_add(other.copies);
        self.entries = self.entries.saturating_add(other.entries);
        self.kept = self.kept.saturating_add(other.kept);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.staying.extend(other.staying);
        let room = NAMED_PATHS_MAX.saturating_sub(self.first_kept.len());
        self.first_kept
            .extend(other.first_kept.into_iter().take(room));
    }

    /// Counts an entry that stays.
    pub(crate) fn keep(&mut self, entry: KeptEntry) {
        self.kept = self.kept.saturating_add(1);
        if self.first_kept.len() < NAMED_PATHS_MAX {
            self.first_kept.push(entry);
        }
    }
}

/// Entries that a removal of one top leaves.
#[derive(Default)]
struct LeftEntries {
    count: u64,
    first: Vec<LeftEntry>,
}

struct LeftEntry {
    number: u32,
    parent: Option<u32>,
    name: CString,
    cause: String,
}

impl LeftEntries {
    fn add(&mut self, at: &LookedAt<'_>, cause: impl FnOnce(&Self) -> String) {
        self.count = self.count.saturating_add(1);
        if self.first.len() < NAMED_PATHS_MAX {
            let cause = cause(self);
            self.first.push(LeftEntry {
                number: at.number,
                parent: at.entry.parent,
                name: at.name.to_owned(),
                cause,
            });
        }
    }

    /// Returns the cause for which an entry cannot be removed.
    fn cause(&self, at: &LookedAt<'_>, fault: &Fault) -> String {
        if ![errno::ENOTEMPTY, errno::EEXIST].contains(&fault.errno) {
            return fault.alone();
        }
        let names = at.holder.enter(at.name).and_then(|dir| names_in(&*dir));
        let is_ours = |name: &CString| {
            let mut first = self.first.iter();
            first.any(|left| left.parent == Some(at.number) && left.name == *name)
        };
        let names = names.unwrap_or_default().into_iter();
        match names.filter(|name| !is_ours(name)).min() {
            Some(name) => format!(
                "it holds entries that driftless did not place, such as \"{}\"",
                escape(name.to_bytes())
            ),
            None => "it holds entries that stay".into(),
        }
    }
}

/// Removes the entries of a range that are still those that were placed.
pub(crate) fn remove_placed(walk: &mut PlacedWalk<'_>, range: Range<u32>) -> Result<PurgeReport> {
    walk.is_removing = true;
    let mut report = PurgeReport::default();
    let mut left = LeftEntries::default();
    walk.visit(range, &mut |at: LookedAt<'_>| {
        let done = match at.outcome {
            LookOutcome::Missing => return Ok(()),
            LookOutcome::Placed(meta) if meta.kind == Kind::Dir => return Ok(()),
            LookOutcome::Placed(_) => at.holder.remove(at.name),
            LookOutcome::Left => at.holder.remove_dir(at.name),
            LookOutcome::Failed(fault) => Err(fault),
            // The directory that holds it is found to be not empty.
            LookOutcome::Extra(_) => return Ok(()),
            LookOutcome::Other => {
                left.add(&at, |_| "driftless did not place it".into());
                return Ok(());
            }
            LookOutcome::OtherOwner => {
                left.add(&at, |_| {
                    "its owner was changed after driftless placed it".into()
                });
                return Ok(());
            }
        };
        match gone(done) {
            Ok(count) => report.entries = report.entries.saturating_add(count),
            Err(fault) if fault.errno == errno::EIO || fault.errno == errno::EROFS => {
                return Err(Error::Entry {
                    path: at.name.to_bytes().to_vec(),
                    fault,
                });
            }
            Err(fault) => left.add(&at, |left| left.cause(&at, &fault)),
        }
        Ok(())
    })?;
    report.kept = left.count;
    let first = left.first.into_iter().map(|left| KeptEntry {
        path: walk.path(left.number),
        cause: left.cause,
    });
    report.first_kept = first.collect();
    Ok(report)
}

/// Returns how many entries went.
fn gone(done: Done) -> std::result::Result<u64, Fault> {
    match done {
        Ok(()) => Ok(1),
        Err(fault) if fault.is_missing() => Ok(0),
        Err(fault) => Err(fault),
    }
}
