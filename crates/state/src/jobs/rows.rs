//! The rows of the table of jobs.

use super::JobChange;
use crate::StoreError;
use crate::columns::{bad, capped, count, millis, number, time};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, ToSql, params};
use std::time::Duration;

/// Columns of a job, in the order of [`job`].
const COLUMNS: &str = "mark, uid, owner, system, request, stage, number, hash, bytes, slot,
    is_required, fault, made_ms, changed_ms";

/// Stage in the life of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobStage {
    /// A client has the mark, and submits.
    Prepared,
    /// The batch system holds the job, and nodes get its data.
    Loading,
    /// The gateway is about to release the job.
    Releasing,
    /// The batch system schedules the job.
    Released,
    /// The tasks ended; copies and slot are being removed.
    Ended,
    /// The gateway has nothing left to do.
    Closed,
}

impl JobStage {
    const ALL: [JobStage; 6] = [
        JobStage::Prepared,
        JobStage::Loading,
        JobStage::Releasing,
        JobStage::Released,
        JobStage::Ended,
        JobStage::Closed,
    ];

    /// Returns the word in the table and in output.
    pub fn word(self) -> &'static str {
        match self {
            JobStage::Prepared => "prepared",
            JobStage::Loading => "loading",
            JobStage::Releasing => "releasing",
            JobStage::Released => "released",
            JobStage::Ended => "ended",
            JobStage::Closed => "closed",
        }
    }
}

/// A job of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchJobRow {
    /// Mark, 16 hexadecimal digits.
    pub mark: String,
    /// UID of the user.
    pub uid: u32,
    /// Name of the user.
    pub owner: String,
    /// Batch system, as the gateway calls it.
    pub system: String,
    /// Request of the user, in the form of the gateway.
    pub request: Vec<u8>,
    /// Stage.
    pub stage: JobStage,
    /// Number in the batch system.
    pub number: Option<String>,
    /// Root hash of the data set, in hexadecimal digits.
    pub hash: Option<String>,
    /// Bytes of the data set.
    pub bytes: Option<u64>,
    /// Number of the slot of the data set.
    pub slot: Option<u32>,
    /// Whether the job demands its slot, or excludes nodes.
    pub is_required: bool,
    /// Last problem, and its remedy.
    pub fault: Option<String>,
    /// Time since 1970 at which the job was made.
    pub made: Duration,
    /// Time since 1970 at which the stage was reached.
    pub changed: Duration,
}

/// State of a node for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobNodeState {
    /// The node is to have the data set.
    Wanted,
    /// The node has the data set, verified, and a reference of the job.
    Ready,
    /// The last cast to the node failed.
    Failed,
    /// The node has no reference of the job any more.
    Purged,
}

impl JobNodeState {
    const ALL: [JobNodeState; 4] = [
        JobNodeState::Wanted,
        JobNodeState::Ready,
        JobNodeState::Failed,
        JobNodeState::Purged,
    ];

    /// Returns the word in the table and in output.
    pub fn word(self) -> &'static str {
        match self {
            JobNodeState::Wanted => "wanted",
            JobNodeState::Ready => "ready",
            JobNodeState::Failed => "failed",
            JobNodeState::Purged => "purged",
        }
    }
}

/// A node of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobNodeRow {
    /// Name of the node in the batch system.
    pub node: String,
    /// State.
    pub state: JobNodeState,
    /// Last problem, and its remedy.
    pub fault: Option<String>,
}

/// Results of a job that were collected from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRow {
    /// Name of the node in the batch system.
    pub node: String,
    /// Entries that arrived.
    pub entries: u64,
    /// Bytes of content that arrived.
    pub bytes: u64,
    /// Cause and remedy, if the last attempt failed.
    pub fault: Option<String>,
    /// Time since 1970 of the last attempt.
    pub changed: Duration,
}

/// The lease of the gateway that acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// Grows with each new holder.
    pub epoch: u64,
    /// Grows with each renewal.
    pub beat: u64,
    /// Name of the holder.
    pub holder: String,
}

/// Makes a change of a job. Changes nothing if the table lacks the job.
pub(super) fn change(file: &Connection, change: &JobChange) -> Result<(), StoreError> {
    match change {
        JobChange::Data { mark, hash, bytes } => {
            const SET: &str = "UPDATE jobs SET hash = ?, bytes = ? WHERE mark = ?";
            let mut set = file.prepare_cached(SET)?;
            set.execute(params![hash, capped(*bytes), mark]).map(drop)
        }
        JobChange::Nodes { mark, rows } => set_nodes(file, mark, rows),
        JobChange::Stage { mark, stage, now } => {
            const SET: &str = "UPDATE jobs SET stage = ?, changed_ms = ? WHERE mark = ?";
            let mut set = file.prepare_cached(SET)?;
            let values = params![stage.word(), millis(*now), mark];
            set.execute(values).map(drop)
        }
        JobChange::Slot {
            mark,
            slot,
            is_required,
        } => {
            const SET: &str = "UPDATE jobs SET slot = ?, is_required = ? WHERE mark = ?";
            let mut set = file.prepare_cached(SET)?;
            set.execute(params![slot, is_required, mark]).map(drop)
        }
        JobChange::Fault { mark, fault } => {
            const SET: &str = "UPDATE jobs SET fault = ? WHERE mark = ? AND fault IS NOT ?";
            let mut set = file.prepare_cached(SET)?;
            set.execute(params![fault, mark, fault]).map(drop)
        }
        JobChange::Results { mark, row } => add_results(file, mark, row),
    }
}

fn add_results(file: &Connection, mark: &str, row: &ResultRow) -> Result<(), StoreError> {
    const ADD: &str = "INSERT INTO results (mark, node, entries, bytes, fault, changed_ms)
        SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM jobs WHERE mark = ?1)
        ON CONFLICT (mark, node) DO UPDATE SET entries = entries + excluded.entries,
        bytes = bytes + excluded.bytes, fault = excluded.fault,
        changed_ms = excluded.changed_ms";
    let (entries, bytes) = (capped(row.entries), capped(row.bytes));
    let changed = millis(row.changed);
    let mut add = file.prepare_cached(ADD)?;
    let values = params![mark, row.node, entries, bytes, row.fault, changed];
    add.execute(values).map(drop)
}

fn set_nodes(file: &Connection, mark: &str, nodes: &[JobNodeRow]) -> Result<(), StoreError> {
    const SET: &str = "INSERT INTO job_nodes (mark, node, state, fault)
        SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM jobs WHERE mark = ?1)
        ON CONFLICT (mark, node) DO UPDATE SET state = excluded.state, fault = excluded.fault";
    let mut set = file.prepare_cached(SET)?;
    for row in nodes {
        set.execute(params![mark, row.node, row.state.word(), row.fault])?;
    }
    Ok(())
}

/// Reads jobs.
pub(super) fn jobs(
    file: &Connection,
    which: &str,
    values: &[&dyn ToSql],
) -> Result<Vec<BatchJobRow>, StoreError> {
    let mut find = file.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs {which}"))?;
    find.query_map(values, job)?.collect()
}

fn job(row: &Row<'_>) -> Result<BatchJobRow, StoreError> {
    let word: String = row.get(5)?;
    let stage = JobStage::ALL.into_iter().find(|one| one.word() == word);
    let bytes = row.get::<_, Option<i64>>(8)?;
    Ok(BatchJobRow {
        mark: row.get(0)?,
        uid: row.get(1)?,
        owner: row.get(2)?,
        system: row.get(3)?,
        request: row.get(4)?,
        stage: stage.ok_or_else(|| bad(5, Type::Text, "no stage"))?,
        number: row.get(6)?,
        hash: row.get(7)?,
        bytes: bytes.map(|_| count(row, 8)).transpose()?,
        slot: row.get(9)?,
        is_required: row.get(10)?,
        fault: row.get(11)?,
        made: time(row, 12)?,
        changed: time(row, 13)?,
    })
}

/// Reads the nodes of a job, in the order of their names.
pub(super) fn nodes(file: &Connection, mark: &str) -> Result<Vec<JobNodeRow>, StoreError> {
    const FIND: &str = "SELECT node, state, fault FROM job_nodes WHERE mark = ? ORDER BY node";
    let mut find = file.prepare_cached(FIND)?;
    find.query_map([mark], node)?.collect()
}

/// Reads the nodes of all jobs that are not closed.
pub(super) fn open_nodes(file: &Connection) -> Result<Vec<(String, JobNodeRow)>, StoreError> {
    const FIND: &str = "SELECT node, state, job_nodes.fault, mark FROM job_nodes
        JOIN jobs USING (mark) WHERE stage <> 'closed' ORDER BY mark, node";
    let mut find = file.prepare_cached(FIND)?;
    find.query_map([], |row| Ok((row.get(3)?, node(row)?)))?
        .collect()
}

fn node(row: &Row<'_>) -> Result<JobNodeRow, StoreError> {
    let word: String = row.get(1)?;
    let state = JobNodeState::ALL.into_iter().find(|one| one.word() == word);
    Ok(JobNodeRow {
        node: row.get(0)?,
        state: state.ok_or_else(|| bad(1, Type::Text, "no state"))?,
        fault: row.get(2)?,
    })
}

/// Reads the results of a job, in the order of the nodes.
pub(super) fn results(file: &Connection, mark: &str) -> Result<Vec<ResultRow>, StoreError> {
    const FIND: &str = "SELECT node, entries, bytes, fault, changed_ms FROM results
        WHERE mark = ? ORDER BY node";
    let mut find = file.prepare_cached(FIND)?;
    find.query_map([mark], |row| {
        Ok(ResultRow {
            node: row.get(0)?,
            entries: count(row, 1)?,
            bytes: count(row, 2)?,
            fault: row.get(3)?,
            changed: time(row, 4)?,
        })
    })?
    .collect()
}

pub(super) fn lease(row: &Row<'_>) -> Result<LeaseRow, StoreError> {
    Ok(LeaseRow {
        epoch: number(row, 0)?,
        beat: number(row, 1)?,
        holder: row.get(2)?,
    })
}
