//! The record of a run that movers share: which batches are open, what came of the others, and what
//! is left for the end. It survives the process that keeps it, and an operator may read it with
//! `sqlite3` while it is written.
//!
//! Changes that belong together are one [`Transaction`]: all of them are made or none, and they are
//! durable when [`Record::transaction`] returns. A row that cannot be read is an error and no gap:
//! what it spoke of would be lost.

mod change;
pub(crate) mod life;
pub(crate) mod rows;
mod schema;

use crate::file::Kept;
use crate::{StateError, StateFile, StoreError};
pub use change::Transaction;
use driftless_model::{EntryName, RelPath};
use life::Life;
use rows::{Alike, LinkName, Misspelling, OpenDir, Rows, after};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use std::path::{Path, PathBuf};

/// The record of one run.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    file: Connection,
    run: u64,
    found: Found,
}

/// What stood in a record when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing, or nothing that any run could go on with.
    Nothing,
    /// A run about the same.
    Same,
    /// A run about something else, of which nothing is left now.
    Other,
    /// A run in a layout of an earlier version, which could not be carried over and of which
    /// nothing is left now.
    Older,
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The first batches were made.
    Walk,
    /// Those of files with several names were made.
    Links,
    /// What is left for the coordinator alone was begun.
    End,
}

impl Stage {
    const ALL: [Stage; 3] = [Stage::Walk, Stage::Links, Stage::End];

    fn word(self) -> &'static str {
        match self {
            Stage::Walk => "walk",
            Stage::Links => "links",
            Stage::End => "end",
        }
    }
}

impl Record {
    /// Opens the record at `path`, or makes it. One of a run about something else is emptied.
    ///
    /// # Errors
    /// It cannot be opened or written; it is damaged, of a newer version or no such record, and is
    /// as it was.
    pub fn open(path: &Path, about: &str) -> Result<Record, StateError> {
        let (file, kept) = schema::open(path)?;
        let mut record = Record {
            path: path.to_owned(),
            file,
            run: 0,
            found: Found::Nothing,
        };
        if kept == (Kept::Nothing { was_run: true }) {
            record.found = Found::Older;
        }
        let held = record.held();
        match record.told(held)? {
            Some((run, held)) if held == about => (record.run, record.found) = (run, Found::Same),
            held => {
                if held.is_some() && record.stage()?.is_some() {
                    record.found = Found::Other;
                }
                record.empty(about)?;
            }
        }
        Ok(record)
    }

    /// The run that it holds, and what that is about.
    fn held(&self) -> Result<Option<(u64, String)>, StoreError> {
        let read = |row: &Row<'_>| Ok((rows::number(row, 0)?, row.get(1)?));
        self.file
            .query_row("SELECT number, about FROM run", [], read)
            .optional()
    }

    /// Drops all that stands in it: from now on it is that of a new run, with a number of its own,
    /// about the same.
    ///
    /// # Errors
    /// It is as it was.
    pub fn begin_anew(&mut self) -> Result<(), StateError> {
        let about = self
            .file
            .query_row("SELECT about FROM run", [], |row| row.get::<_, String>(0));
        let about = self.told(about)?;
        self.empty(&about)?;
        self.found = Found::Nothing;
        Ok(())
    }

    /// Drops everything, for a new run about `about`.
    fn empty(&mut self, about: &str) -> Result<(), StateError> {
        self.run = self.transaction(|transaction| transaction.empty(about))?;
        Ok(())
    }

    /// The number of the run.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// What stood in it when it was opened.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Makes changes together.
    ///
    /// # Errors
    /// None of them was made.
    pub fn transaction<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StateError> {
        let done = self
            .file
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                let transaction = Transaction::of(transaction);
                let done = change(&transaction)?;
                transaction.commit()?;
                Ok(done)
            });
        self.told(done)
    }

    /// What SQLite answers; an error names the file.
    fn told<T>(&self, answer: Result<T, StoreError>) -> Result<T, StateError> {
        answer.map_err(|cause| StateError::of(StateFile::Record, &self.path, cause))
    }

    /// What stands in it cannot be understood by a coordinator that has to go on with it.
    pub fn damaged(&self, what: &str) -> StateError {
        StateError::Damaged {
            file: StateFile::Record,
            path: self.path.clone(),
            what: what.to_owned(),
        }
    }

    /// How far the run has come; nothing if it has not begun.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn stage(&self) -> Result<Option<Stage>, StateError> {
        let word = self.file.query_row("SELECT stage FROM run", [], |row| {
            row.get::<_, Option<String>>(0)
        });
        let word = self.told(word.optional())?.flatten();
        Ok(word.and_then(|word| Stage::ALL.into_iter().find(|stage| stage.word() == word)))
    }

    /// The life in which the rest was noted.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn life(&self) -> Result<Option<Life>, StateError> {
        self.told(life::read(&self.file))
    }

    /// What was counted, by name.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn counts(&self) -> Result<Vec<(String, u64)>, StateError> {
        self.list("SELECT name, value FROM counts", [], |row| {
            Ok((row.get(0)?, rows::number(row, 1)?))
        })
    }

    /// How many batches are open.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn open_batches(&self) -> Result<u64, StateError> {
        let mut count = self.told(self.file.prepare_cached("SELECT count(*) FROM batches"))?;
        self.told(count.query_row([], |row| rows::number(row, 0)))
    }

    /// Numbers and bodies of the open batches with a number above `after`, at most `max`, in order.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn batches(&self, after: u64, max: usize) -> Result<Vec<(u64, Vec<u8>)>, StateError> {
        let read = |row: &Row<'_>| Ok((rows::number(row, 0)?, row.get(1)?));
        self.list(
            "SELECT id, body FROM batches WHERE id > ? ORDER BY id LIMIT ?",
            params![after.cast_signed(), max as i64],
            read,
        )
    }

    /// The body of a batch, if it is open.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn batch(&self, id: u64) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self
            .list(
                "SELECT body FROM batches WHERE id = ?",
                [id.cast_signed()],
                |row| row.get(0),
            )?
            .pop())
    }

    /// Names of files that have several; those of one file follow each other.
    pub fn links(&self) -> Rows<'_, LinkName> {
        const SELECT: &str =
            "SELECT dev, ino, path, size, there FROM links WHERE (dev, ino, path) >= (?, ?, ?)
            ORDER BY dev, ino, path LIMIT ?";
        Rows::of(|last: Option<&LinkName>, max| {
            let (dev, ino) = last.map_or((i64::MIN, i64::MIN), |last| {
                (last.id.0.cast_signed(), last.id.1.cast_signed())
            });
            let from = last.map_or_else(Vec::new, |last| after(last.path.as_bytes()));
            self.list(SELECT, params![dev, ino, from, max as i64], rows::link)
        })
    }

    /// Directories that are to be finished.
    pub fn directories(&self) -> Rows<'_, OpenDir> {
        let select = format!(
            "{} WHERE path >= ? ORDER BY path LIMIT ?",
            change::SELECT_DIR
        );
        Rows::of(move |last: Option<&OpenDir>, max| {
            let from = last.map_or_else(Vec::new, |last| after(last.path.as_bytes()));
            self.list(&select, params![from, max as i64], rows::open_dir)
        })
    }

    /// Names that the source lacks, each with its directory.
    pub fn extras(&self) -> Rows<'_, (RelPath, EntryName)> {
        const SELECT: &str =
            "SELECT dir, name FROM extras WHERE (dir, name) >= (?, ?) ORDER BY dir, name LIMIT ?";
        Rows::of(|last: Option<&(RelPath, EntryName)>, max| {
            let dir = last.map_or(&b""[..], |(dir, _)| dir.as_bytes());
            let name = last.map_or_else(Vec::new, |(_, name)| after(name.as_bytes()));
            self.list(SELECT, params![dir, name, max as i64], |row| {
                Ok((rows::path(row, 0)?, rows::name(row, 1)?))
            })
        })
    }

    /// Entries for which there was no room.
    pub fn no_room(&self) -> Rows<'_, RelPath> {
        self.paths("SELECT path FROM no_room WHERE path >= ? ORDER BY path LIMIT ?")
    }

    /// Paths below the source on which file systems are mounted.
    pub fn mounts(&self) -> Rows<'_, RelPath> {
        self.paths("SELECT path FROM mounts WHERE path >= ? ORDER BY path LIMIT ?")
    }

    fn paths(&self, select: &'static str) -> Rows<'_, RelPath> {
        Rows::of(move |last: Option<&RelPath>, max| {
            let from = last.map_or_else(Vec::new, |last| after(last.as_bytes()));
            self.list(select, params![from, max as i64], |row| rows::path(row, 0))
        })
    }

    /// Whether any name is known that the replica may take for one with others.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn has_alike(&self) -> Result<bool, StateError> {
        Ok(!self
            .list("SELECT 1 FROM alike LIMIT 1", [], |_| Ok(()))?
            .is_empty())
    }

    /// Which others this name is like, if any.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn alike(&self, dir: &RelPath, name: &[u8]) -> Result<Option<Alike>, StateError> {
        const SELECT: &str = "SELECT dir, name, earlier FROM alike WHERE dir = ? AND name = ?";
        Ok(self
            .list(SELECT, params![dir.as_bytes(), name], rows::alike)?
            .pop())
    }

    /// Names that the replica may take for one with others.
    pub fn all_alike(&self) -> Rows<'_, Alike> {
        const SELECT: &str = "SELECT dir, name, earlier FROM alike WHERE (dir, name) >= (?, ?) ORDER BY dir, name LIMIT ?";
        Rows::of(|last: Option<&Alike>, max| {
            let dir = last.map_or(&b""[..], |last| last.dir.as_bytes());
            let name = last.map_or_else(Vec::new, |last| after(last.name.as_bytes()));
            self.list(SELECT, params![dir, name, max as i64], rows::alike)
        })
    }

    /// What is to be respelt.
    pub fn misspelt(&self) -> Rows<'_, Misspelling> {
        const SELECT: &str =
            "SELECT dir, found, wanted FROM misspelt WHERE (dir, found, wanted) >= (?, ?, ?)
            ORDER BY dir, found, wanted LIMIT ?";
        Rows::of(|last: Option<&Misspelling>, max| {
            let dir = last.map_or(&b""[..], |last| last.dir.as_bytes());
            let found = last.map_or(&b""[..], |last| last.found.as_bytes());
            let wanted = last.map_or_else(Vec::new, |last| after(last.wanted.as_bytes()));
            self.list(
                SELECT,
                params![dir, found, wanted, max as i64],
                rows::misspelling,
            )
        })
    }

    fn list<T>(
        &self,
        select: &str,
        values: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StateError> {
        let mut find = self.told(self.file.prepare_cached(select))?;
        let found = find.query_map(values, read).and_then(Iterator::collect);
        self.told(found)
    }
}
