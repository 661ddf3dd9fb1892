//! Removing copies: what the store placed, the private directory, and the row.

use crate::catalogue::Catalogue;
use crate::claim::claim;
use crate::error::{Error, Result};
use crate::format::SetHash;
use crate::in_use::{busy, while_unused};
use crate::node::{CopyPlace, NameStanding, NodeFiles};
use crate::remove::PurgeReport;
use driftless_model::escape;
use driftless_state::holdings::{CopyRow, CopyState};
use std::sync::Arc;

/// A selection of copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeWhat {
    /// A copy.
    Copy(u64),
    /// The copies of a set.
    Set(SetHash),
    /// The copies that this job alone uses.
    Job(String),
    /// The copies that no job uses and that are not pinned.
    Unused,
    /// Every copy.
    All,
}

/// Returns whether a selection has a copy.
pub(crate) fn is_meant(what: &PurgeWhat, row: &CopyRow) -> bool {
    match what {
        PurgeWhat::Copy(copy) => row.id == *copy,
        PurgeWhat::Set(hash) => NodeFiles::hash_of(row) == Some(*hash),
        PurgeWhat::Job(job) => row.jobs.as_slice() == std::slice::from_ref(job),
        PurgeWhat::Unused => row.jobs.is_empty() && !row.is_pinned,
        PurgeWhat::All => true,
    }
}

/// Returns the unfinished copies with the names of a copy that has just been placed.
pub(crate) fn superseded(
    files: &NodeFiles,
    catalogue: &Catalogue,
    place: &CopyPlace,
    copy: u64,
) -> Result<Vec<CopyRow>> {
    let (tops, mut found) = (catalogue.tops()?, Vec::new());
    for row in files.rows_at(place)? {
        if row.state != CopyState::Unfinished || row.id == copy {
            continue;
        }
        let older = files.catalogue_of(&row)?;
        let names = older.map_or(Ok(Vec::new()), |older| older.tops())?;
        if names.iter().all(|name| tops.contains(name)) {
            found.push(row);
        }
    }
    Ok(found)
}

/// Removes a copy. Returns `None` if it is used.
pub(crate) fn purge_unused(files: &Arc<NodeFiles>, row: &CopyRow) -> Result<Option<PurgeReport>> {
    match purge_copy(files, row) {
        Err(Error::Busy { .. }) => Ok(None),
        done => done.map(Some),
    }
}

/// Removes a copy.
///
/// # Errors
/// [`Error::Busy`] if a process receives or uses it; an entry cannot be removed.
pub(crate) fn purge_copy(files: &Arc<NodeFiles>, row: &CopyRow) -> Result<PurgeReport> {
    let mut report = PurgeReport::default();
    let place = files.place_of(row)?;
    let private = match &place {
        Some(place) => files.find_private(row, place)?,
        None => None,
    };
    let private = private.map(|private| private.dir);
    let Some(_claim) = claim(files, row, private.as_ref())? else {
        return Err(busy(row));
    };
    while_unused(files, row, || leave(files, row))?;
    // A job is not led to a copy that goes.
    files.settle(row, row.jobs.iter().map(String::as_str))?;
    if let Some(place) = place {
        let rows = [row.clone()];
        for top in &row.tops {
            if files.standing(&rows, &*place.dir, &top.name)? == NameStanding::Placed(row.id) {
                report.add(files.remove_top(row, top, &place.dir, &place.path)?);
            }
        }
        let entries = files.remove_private(row, &place)?;
        report.entries = report.entries.saturating_add(entries);
    }
    files.index.lock().remove(row.id)?;
    files.forget_files(row)?;
    // Another copy of the set may stand in the directory.
    files.settle(row, [])?;
    (report.copies, report.bytes) = (1, row.bytes);
    log_removal(row);
    Ok(report)
}

/// Notes that a copy is about to go.
///
/// # Errors
/// [`Error::Busy`] if a job began to use it, or it was pinned, since `row` was read.
fn leave(files: &NodeFiles, row: &CopyRow) -> Result<()> {
    let now = files.row(row.id)?;
    let is_new = |job: &String| !row.jobs.contains(job);
    if now.jobs.iter().any(is_new) || now.is_pinned && !row.is_pinned {
        return Err(busy(row));
    }
    files.set_state(row.id, CopyState::Leaving)
}

/// Notes the end of a copy in the log of the process.
pub(crate) fn log_removal(row: &CopyRow) {
    let names = row.tops.iter().map(|top| escape(&top.name));
    let names: Vec<String> = names.collect();
    tracing::info!(
        "copy {} is removed: set {}, place \"{}\", names {}, {} bytes",
        row.id,
        row.hash,
        escape(&row.place),
        names.join(", "),
        row.bytes
    );
}
