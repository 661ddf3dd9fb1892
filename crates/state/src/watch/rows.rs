//! The rows of the state of an agent.

use super::Saved;
use crate::StoreError;
use crate::columns::{bad, capped, count, millis, opt_time, path, time};
use driftless_model::RelPath;
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Row, Transaction, params};
use std::time::Duration;

/// A tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeRow {
    /// Its number.
    pub id: u64,
    /// Its absolute path.
    pub path: Vec<u8>,
    /// When the agent began to hear of it, since 1970.
    pub since: Duration,
    /// How often something may have been missed in it.
    pub gaps: u64,
    /// When that was first and last, if it was.
    pub first_gap: Option<Duration>,
    /// When that was last.
    pub last_gap: Option<Duration>,
}

impl TreeRow {
    pub(super) fn new(id: u64, path: Vec<u8>, since: Duration) -> TreeRow {
        TreeRow {
            id,
            path,
            since,
            gaps: 0,
            first_gap: None,
            last_gap: None,
        }
    }
}

/// What was told of a path, and no mirror has taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRow {
    /// Its number: what was told later has a larger one.
    pub id: u64,
    /// The number of its tree.
    pub tree: u64,
    /// The path below the tree.
    pub path: RelPath,
    /// What was told, in a word.
    pub word: String,
    /// Where it stood before, of what was moved.
    pub from: Option<RelPath>,
    /// When it was told, since 1970.
    pub since: Duration,
}

pub(super) const SELECT_TREES: &str =
    "SELECT id, path, since_ms, gaps, first_gap_ms, last_gap_ms FROM trees ORDER BY id";

pub(super) fn tree(row: &Row<'_>) -> Result<TreeRow, StoreError> {
    Ok(TreeRow {
        id: count(row, 0)?,
        path: row.get(1)?,
        since: time(row, 2)?,
        gaps: count(row, 3)?,
        first_gap: opt_time(row, 4)?,
        last_gap: opt_time(row, 5)?,
    })
}

pub(super) const SELECT_WAITING: &str =
    "SELECT id, tree, path, word, moved_from, since_ms FROM waiting ORDER BY id";

pub(super) fn waiting(row: &Row<'_>) -> Result<WaitingRow, StoreError> {
    let from = match row.get_ref(4)? {
        ValueRef::Null => None,
        ValueRef::Blob(_) => Some(path(row, 4)?),
        _ => return Err(bad(4, Type::Blob, "no path")),
    };
    Ok(WaitingRow {
        id: count(row, 0)?,
        tree: count(row, 1)?,
        path: path(row, 2)?,
        word: row.get(3)?,
        from,
        since: time(row, 5)?,
    })
}

pub(super) fn counts(row: &Row<'_>) -> Result<(u64, u64), StoreError> {
    Ok((count(row, 0)?, count(row, 1)?))
}

/// Writes all of it.
pub(super) fn write(into: &Transaction<'_>, saved: &Saved) -> Result<(), StoreError> {
    let mut empty = into.prepare_cached("DELETE FROM waiting WHERE tree = ?")?;
    for tree in &saved.emptied {
        empty.execute([capped(*tree)])?;
    }
    let mut remove = into.prepare_cached("DELETE FROM waiting WHERE id = ?")?;
    for id in &saved.gone {
        remove.execute([capped(*id)])?;
    }
    const PUT: &str = "INSERT OR REPLACE INTO waiting VALUES (?, ?, ?, ?, ?, ?)";
    let mut put = into.prepare_cached(PUT)?;
    for row in &saved.waiting {
        put.execute(params![
            capped(row.id),
            capped(row.tree),
            row.path.as_bytes(),
            row.word,
            row.from.as_ref().map(RelPath::as_bytes),
            millis(row.since)
        ])?;
    }
    const TREE: &str = "UPDATE trees SET gaps = ?, first_gap_ms = ?, last_gap_ms = ? WHERE id = ?";
    for row in &saved.trees {
        let (first, last) = (row.first_gap.map(millis), row.last_gap.map(millis));
        let values = params![capped(row.gaps), first, last, capped(row.id)];
        into.prepare_cached(TREE)?.execute(values)?;
    }
    Ok(())
}
