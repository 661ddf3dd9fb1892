//! Removing what the store placed, and nothing else.
//!
//! Each entry is looked at before it goes: its inode, its time of birth and its owner must be those
//! that were noted when it was placed. A directory goes if it is empty then. So what a user moved or
//! saved into a copy stays, with the directories that lead to it.

use crate::error::{Error, Result};
use crate::placed::{LookOutcome, LookedAt, PlacedWalk};
use driftless_model::{Fault, Kind, errno};
use driftless_tree::Done;
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
    /// The paths of the first of them.
    pub first_kept: Vec<Vec<u8>>,
    /// Bytes of content of the copies.
    pub bytes: u64,
    /// Copies that could not be removed.
    pub staying: Vec<StayingCopy>,
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
    pub(crate) fn keep(&mut self, path: impl FnOnce() -> Vec<u8>) {
        self.kept = self.kept.saturating_add(1);
        if self.first_kept.len() < NAMED_PATHS_MAX {
            self.first_kept.push(path());
        }
    }
}

/// Removes the entries of a range that are still those that were placed.
pub(crate) fn remove_placed(walk: &mut PlacedWalk<'_>, range: Range<u32>) -> Result<PurgeReport> {
    walk.is_removing = true;
    let mut report = PurgeReport::default();
    let mut kept = Vec::new();
    walk.visit(range, &mut |at: LookedAt<'_>| {
        let done = match at.outcome {
            LookOutcome::Missing => return Ok(()),
            LookOutcome::Placed(meta) if meta.kind == Kind::Dir => return Ok(()),
            LookOutcome::Placed(_) => at.holder.remove(at.name),
            LookOutcome::Left => at.holder.remove_dir(at.name),
            LookOutcome::Failed(fault) => Err(fault),
            // The directory that holds it is found to be not empty.
            LookOutcome::Extra(_) => return Ok(()),
            LookOutcome::Other | LookOutcome::OtherOwner => {
                kept.push(at.number);
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
            Err(_) => kept.push(at.number),
        }
        Ok(())
    })?;
    for number in kept {
        report.keep(|| walk.path(number));
    }
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
