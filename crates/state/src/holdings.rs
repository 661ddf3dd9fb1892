//! The index of a node of a distribution: which copies of data sets the node holds, where each
//! stands, and which jobs use it. It outlives the process that keeps it.
//!
//! A copy has a row before its directory is made, and loses the row after its last entry was
//! removed: so whatever a crash leaves has a row. Decisions are those of the caller.

mod rows;
mod schema;

use crate::columns::{capped, millis};
use crate::{StateError, StateFile, StoreError, file};
use rows::id_values;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use rows::{CopyRow, CopyState, InodeIdentity, TopRow, UnkeptCounts};

/// The index of a node, for the processes that keep it.
#[derive(Debug)]
pub struct Holdings {
    path: PathBuf,
    file: Connection,
}

/// A copy that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCopy<'a> {
    /// The hash of its catalogue, in hexadecimal digits.
    pub hash: &'a str,
    /// The absolute path of the directory that holds it.
    pub place: &'a [u8],
    /// The identity of that directory.
    pub place_id: InodeIdentity,
    /// A random number for the name of its private directory.
    pub token: u64,
    /// Whether it may be evicted.
    pub is_cached: bool,
    /// Bytes of its content.
    pub bytes: u64,
    /// Time since 1970.
    pub now: Duration,
}

/// A job that uses a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobReference<'a> {
    /// Its name.
    pub job: &'a str,
    /// UID of its user, who alone may open the copy.
    pub reader: Option<u32>,
}

impl Holdings {
    /// Opens the index at `path`, or makes it.
    ///
    /// # Errors
    /// The file cannot be opened or written, is damaged, of a newer version or of another program.
    pub fn open(path: &Path) -> Result<Holdings, StateError> {
        Ok(Holdings {
            path: path.to_owned(),
            file: schema::open(path)?,
        })
    }

    /// Adds a copy that is unfinished; returns its row. Returns the row that is there if the same
    /// set is unfinished at the same place.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn begin(&mut self, new: &NewCopy<'_>) -> Result<CopyRow, StateError> {
        let id = self.change(|transaction| {
            const FIND: &str = "SELECT id FROM copies WHERE hash = ? AND place = ?
                AND state = 'unfinished' AND place_inode IS ? AND place_birth_s IS ?
                AND place_birth_ns IS ?";
            let mut find = transaction.prepare_cached(FIND)?;
            let (inode, sec, nsec) = id_values(new.place_id);
            let values = params![new.hash, new.place, inode, sec, nsec];
            let found = find.query_row(values, |row| row.get::<_, i64>(0));
            if let Some(id) = found.optional()? {
                return Ok(id);
            }
            const ADD: &str = "INSERT INTO copies (hash, place, is_cached, bytes, made_ms, used_ms,
                place_inode, place_birth_s, place_birth_ns, token)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
            let (bytes, now, token) = (capped(new.bytes), millis(new.now), new.token.cast_signed());
            let values = params![
                new.hash,
                new.place,
                new.is_cached,
                bytes,
                now,
                now,
                inode,
                sec,
                nsec,
                token
            ];
            transaction.execute(ADD, values)?;
            Ok(transaction.last_insert_rowid())
        })?;
        let found = self.find(id.cast_unsigned())?;
        found.ok_or_else(|| self.failed(StoreError::QueryReturnedNoRows))
    }

    /// Returns all copies, the one that was used longest ago first.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn copies(&self) -> Result<Vec<CopyRow>, StateError> {
        self.list("ORDER BY used_ms, id", params![])
    }

    /// Returns a copy; `None` if there is none of this number.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn find(&self, id: u64) -> Result<Option<CopyRow>, StateError> {
        self.list("WHERE id = ?", params![capped(id)])
            .map(|mut rows| rows.pop())
    }

    /// Notes the identity of the private directory of a copy.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn note_private(&mut self, id: u64, private: InodeIdentity) -> Result<(), StateError> {
        const SET: &str = "UPDATE copies
            SET private_inode = ?, private_birth_s = ?, private_birth_ns = ? WHERE id = ?";
        let (inode, sec, nsec) = id_values(private);
        self.execute(SET, params![inode, sec, nsec, capped(id)])
    }

    /// Gives the private directory of a copy another name, because another entry has the first one.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn renew_private(&mut self, id: u64, token: u64) -> Result<(), StateError> {
        const SET: &str = "UPDATE copies SET token = ?, private_inode = NULL,
            private_birth_s = NULL, private_birth_ns = NULL WHERE id = ?";
        self.execute(SET, params![token.cast_signed(), capped(id)])
    }

    /// Sets the state of a copy.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn set_state(&mut self, id: u64, state: CopyState) -> Result<(), StateError> {
        const SET: &str = "UPDATE copies SET state = ? WHERE id = ?";
        self.execute(SET, params![state.word(), capped(id)])
    }

    /// Notes that the content of a copy is complete and durable, and that the entries `tops` are
    /// about to get their final names. `unkept` counts the metadata that the node could not keep.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn complete(
        &mut self,
        id: u64,
        tops: &[TopRow],
        unkept: UnkeptCounts,
    ) -> Result<(), StateError> {
        self.change(|transaction| {
            transaction.execute("DELETE FROM tops WHERE copy = ?", [capped(id)])?;
            const ADD: &str =
                "INSERT INTO tops (copy, name, inode, birth_s, birth_ns) VALUES (?, ?, ?, ?, ?)";
            for top in tops {
                let (inode, sec, nsec) = id_values(top.id);
                let values = params![capped(id), top.name, inode, sec, nsec];
                transaction.execute(ADD, values)?;
            }
            const SET: &str = "UPDATE copies
                SET state = 'publishing', owners_unkept = ?, attributes_unkept = ? WHERE id = ?";
            let (owners, attributes) = (capped(unkept.owners), capped(unkept.attributes));
            let values = params![owners, attributes, capped(id)];
            transaction.execute(SET, values).map(drop)
        })
    }

    /// Takes the name of an entry at the top from a copy, because another entry replaced it or it
    /// was removed. A copy without names has no row any more; one that lacks a name is damaged.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn take_top(&mut self, id: u64, name: &[u8]) -> Result<(), StateError> {
        self.change(|transaction| {
            const TAKE: &str = "DELETE FROM tops WHERE copy = ? AND name = ?";
            transaction.execute(TAKE, params![capped(id), name])?;
            const MARK: &str =
                "UPDATE copies SET state = 'damaged' WHERE id = ? AND state <> 'leaving'";
            transaction.execute(MARK, [capped(id)])?;
            const DROP: &str = "DELETE FROM copies WHERE id = ?1
                AND NOT EXISTS (SELECT 1 FROM tops WHERE copy = ?1)";
            transaction.execute(DROP, [capped(id)]).map(drop)
        })
    }

    /// Removes the row of a copy, and all that refers to it.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn remove(&mut self, id: u64) -> Result<(), StateError> {
        self.execute("DELETE FROM copies WHERE id = ?", params![capped(id)])
    }

    /// Notes that a job uses a copy. It is the newest copy of the job then. A job that is noted again
    /// without a user keeps the user that it has.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn add_job(
        &mut self,
        id: u64,
        reference: &JobReference<'_>,
        now: Duration,
    ) -> Result<(), StateError> {
        const ADD: &str = "INSERT INTO jobs (copy, job, reader, since_ms) VALUES (?1, ?2, ?3,
                max(?4, (SELECT coalesce(max(since_ms), -1) + 1 FROM jobs WHERE job = ?2)))
            ON CONFLICT (copy, job) DO UPDATE SET
                reader = coalesce(excluded.reader, reader), since_ms = excluded.since_ms";
        let JobReference { job, reader } = reference;
        self.execute(ADD, params![capped(id), job, reader, millis(now)])?;
        self.touch(id, now)
    }

    /// Notes that a job has ended. Returns the copies that it used.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn end_job(&mut self, job: &str) -> Result<Vec<u64>, StateError> {
        self.change(|transaction| {
            let mut take = transaction.prepare("DELETE FROM jobs WHERE job = ? RETURNING copy")?;
            let copies = take.query_map([job], |row| row.get::<_, i64>(0))?;
            copies.map(|id| id.map(i64::cast_unsigned)).collect()
        })
    }

    /// Notes that a job does not use a copy any more.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn end_reference(&mut self, id: u64, job: &str) -> Result<(), StateError> {
        const END: &str = "DELETE FROM jobs WHERE copy = ? AND job = ?";
        self.execute(END, params![capped(id), job])
    }

    /// Gives the jobs of a copy to another copy of the same set, and its protection from eviction.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn move_jobs(&mut self, from: u64, to: u64) -> Result<(), StateError> {
        self.change(|transaction| {
            const MOVE: &str = "UPDATE OR IGNORE jobs SET copy = ?2 WHERE copy = ?1";
            let values = params![capped(from), capped(to)];
            transaction.execute(MOVE, values)?;
            const PIN: &str = "UPDATE copies SET is_pinned = 1 WHERE id = ?2
                AND (SELECT is_pinned FROM copies WHERE id = ?1)";
            transaction.execute(PIN, values).map(drop)
        })
    }

    /// Returns names of jobs that begin with `prefix`, in the order of their bytes, each once: at most
    /// `max` names behind the name `after`.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn jobs(&self, prefix: &str, after: &str, max: usize) -> Result<Vec<String>, StateError> {
        let read = || -> Result<Vec<String>, StoreError> {
            // A name with the prefix comes before each name without it that is greater.
            const FIND: &str = "SELECT DISTINCT job FROM jobs WHERE job >= ? AND job > ?
                ORDER BY job LIMIT ?";
            let mut find = self.file.prepare_cached(FIND)?;
            let values = params![prefix, after, capped(max as u64)];
            let names = find.query_map(values, |row| row.get(0))?;
            let has_prefix = |name: &Result<String, StoreError>| {
                name.as_ref().map_or(true, |name| name.starts_with(prefix))
            };
            names.take_while(has_prefix).collect()
        };
        read().map_err(|cause| self.failed(cause))
    }

    /// Returns the cached and complete copy that a job began to use last.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn newest_of_job(&self, job: &str) -> Result<Option<CopyRow>, StateError> {
        const WHICH: &str = "JOIN (SELECT copy, since_ms FROM jobs WHERE job = ?) ON copy = id
            WHERE is_cached AND state IN ('held', 'damaged') ORDER BY since_ms DESC LIMIT 1";
        self.list(WHICH, params![job]).map(|mut rows| rows.pop())
    }

    /// Protects a copy from eviction, or ends that.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn pin(&mut self, id: u64, is_pinned: bool) -> Result<(), StateError> {
        const SET: &str = "UPDATE copies SET is_pinned = ? WHERE id = ?";
        self.execute(SET, params![is_pinned, capped(id)])
    }

    /// Sets the time since 1970 at which a copy may go; `None` if never.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn expire(&mut self, id: u64, at: Option<Duration>) -> Result<(), StateError> {
        const SET: &str = "UPDATE copies SET expires_ms = ? WHERE id = ?";
        self.execute(SET, params![at.map(millis), capped(id)])
    }

    /// Notes the use of a copy at the time `now` since 1970.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn touch(&mut self, id: u64, now: Duration) -> Result<(), StateError> {
        const SET: &str = "UPDATE copies SET used_ms = ? WHERE id = ?";
        self.execute(SET, params![millis(now), capped(id)])
    }

    fn list(
        &self,
        which: &str,
        values: &[&dyn rusqlite::ToSql],
    ) -> Result<Vec<CopyRow>, StateError> {
        rows::copies(&self.file, which, values).map_err(|cause| self.failed(cause))
    }

    fn execute(
        &mut self,
        command: &str,
        values: &[&dyn rusqlite::ToSql],
    ) -> Result<(), StateError> {
        self.change(|transaction| transaction.execute(command, values).map(drop))
    }

    fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StateError> {
        let done = file::change(&mut self.file, change);
        done.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: StoreError) -> StateError {
        StateError::of(StateFile::Holdings, &self.path, cause)
    }
}
