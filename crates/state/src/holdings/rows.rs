//! The rows of the index of a node.

use crate::StoreError;
use crate::columns::{bad, count, number, opt_time, time};
use driftless_model::Stamp;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, ToSql};
use std::time::Duration;

/// A copy of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRow {
    /// Its number. No number is used twice.
    pub id: u64,
    /// The hash of its catalogue, in hexadecimal digits.
    pub hash: String,
    /// The absolute path of the directory that holds it.
    pub place: Vec<u8>,
    /// Whether it may be evicted.
    pub is_cached: bool,
    /// Bytes of its content.
    pub bytes: u64,
    /// Its state.
    pub state: CopyState,
    /// Whether it is protected from eviction.
    pub is_pinned: bool,
    /// Time since 1970 at which it may go.
    pub expires: Option<Duration>,
    /// Time since 1970 of its last use.
    pub used: Duration,
    /// Time since 1970 at which it was begun.
    pub made: Duration,
    /// Metadata that the node could not keep.
    pub unkept: UnkeptCounts,
    /// Identity of the directory at `place`. Absent in rows of older versions.
    pub place_id: Option<InodeIdentity>,
    /// Random number in the name of its private directory.
    pub token: u64,
    /// Identity of its private directory. Absent before that is made.
    pub private_id: Option<InodeIdentity>,
    /// Names of the jobs that use it.
    pub jobs: Vec<String>,
    /// UIDs of the users of these jobs, ascending, each once. A job that names no user has none.
    pub readers: Vec<u32>,
    /// Entries at its top.
    pub tops: Vec<TopRow>,
}

/// Identity of an inode. A number alone can be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeIdentity {
    /// Inode number.
    pub inode: u64,
    /// Time of birth, if the file system states one (statx(2), `STATX_BTIME`).
    pub birth: Option<Stamp>,
}

/// Metadata that a node could not keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnkeptCounts {
    /// Entries whose owner or group the user of the node cannot set.
    pub owners: u64,
    /// Modes, ACLs, extended attributes and times that the node could not set.
    pub attributes: u64,
}

/// An entry at the top of a copy, and the inode that was placed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopRow {
    /// The name.
    pub name: Vec<u8>,
    /// Identity of its inode.
    pub id: InodeIdentity,
}

/// State of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// Units are missing.
    Unfinished,
    /// Complete and durable; some of its names may be final.
    Publishing,
    /// Complete, under its final names.
    Held,
    /// Known to have lost or changed content.
    Damaged,
    /// About to be removed.
    Leaving,
}

impl CopyState {
    const ALL: [CopyState; 5] = [
        CopyState::Unfinished,
        CopyState::Publishing,
        CopyState::Held,
        CopyState::Damaged,
        CopyState::Leaving,
    ];

    /// Returns the word in the table and in output.
    pub fn word(self) -> &'static str {
        match self {
            CopyState::Unfinished => "unfinished",
            CopyState::Publishing => "publishing",
            CopyState::Held => "held",
            CopyState::Damaged => "damaged",
            CopyState::Leaving => "leaving",
        }
    }
}

/// Reads copies with their jobs and names.
pub(super) fn copies(
    file: &Connection,
    which: &str,
    values: &[&dyn ToSql],
) -> Result<Vec<CopyRow>, StoreError> {
    const COLUMNS: &str =
        "id, hash, place, is_cached, bytes, state, is_pinned, expires_ms, used_ms, made_ms,
         owners_unkept, attributes_unkept, place_inode, place_birth_s, place_birth_ns,
         token, private_inode, private_birth_s, private_birth_ns";
    let mut find = file.prepare_cached(&format!("SELECT {COLUMNS} FROM copies {which}"))?;
    let mut copies: Vec<CopyRow> = find.query_map(values, copy)?.collect::<Result<_, _>>()?;
    for row in &mut copies {
        let id = row.id.cast_signed();
        let mut find = file.prepare_cached("SELECT job FROM jobs WHERE copy = ? ORDER BY job")?;
        row.jobs = find
            .query_map([id], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        const READERS: &str = "SELECT DISTINCT reader FROM jobs
            WHERE copy = ? AND reader IS NOT NULL ORDER BY reader";
        let mut find = file.prepare_cached(READERS)?;
        row.readers = find
            .query_map([id], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        const TOPS: &str =
            "SELECT name, inode, birth_s, birth_ns FROM tops WHERE copy = ? ORDER BY name";
        let mut find = file.prepare_cached(TOPS)?;
        row.tops = find.query_map([id], top)?.collect::<Result<_, _>>()?;
    }
    Ok(copies)
}

fn copy(row: &Row<'_>) -> Result<CopyRow, StoreError> {
    let word: String = row.get(5)?;
    let state = CopyState::ALL.into_iter().find(|one| one.word() == word);
    Ok(CopyRow {
        id: count(row, 0)?,
        hash: row.get(1)?,
        place: row.get(2)?,
        is_cached: row.get(3)?,
        bytes: count(row, 4)?,
        state: state.ok_or_else(|| bad(5, Type::Text, "no state"))?,
        is_pinned: row.get(6)?,
        expires: opt_time(row, 7)?,
        used: time(row, 8)?,
        made: time(row, 9)?,
        unkept: UnkeptCounts {
            owners: count(row, 10)?,
            attributes: count(row, 11)?,
        },
        place_id: opt_id(row, 12)?,
        token: number(row, 15)?,
        private_id: opt_id(row, 16)?,
        jobs: Vec::new(),
        readers: Vec::new(),
        tops: Vec::new(),
    })
}

fn top(row: &Row<'_>) -> Result<TopRow, StoreError> {
    let id = opt_id(row, 1)?;
    Ok(TopRow {
        name: row.get(0)?,
        id: id.ok_or_else(|| bad(1, Type::Null, "no inode"))?,
    })
}

/// Reads an identity from three columns.
fn opt_id(row: &Row<'_>, at: usize) -> Result<Option<InodeIdentity>, StoreError> {
    if row.get::<_, Option<i64>>(at)?.is_none() {
        return Ok(None);
    }
    let [sec, nsec] = [at.saturating_add(1), at.saturating_add(2)];
    let (sec, nsec): (Option<i64>, Option<u32>) = (row.get(sec)?, row.get(nsec)?);
    Ok(Some(InodeIdentity {
        inode: number(row, at)?,
        birth: sec.zip(nsec).map(|(sec, nsec)| Stamp { sec, nsec }),
    }))
}

/// Returns the values of three columns.
pub(super) fn id_values(id: InodeIdentity) -> (i64, Option<i64>, Option<u32>) {
    let birth = id.birth;
    let (sec, nsec) = (birth.map(|at| at.sec), birth.map(|at| at.nsec));
    (id.inode.cast_signed(), sec, nsec)
}
