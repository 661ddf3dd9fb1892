//! The record of a job that many work on: which items are open, and what came of the others. It survives whoever keeps it.
//!
//! An item is what is handed out; a fact is whatever must not be forgotten, found by its kind and key. A batch of changes is made
//! whole or not at all, and is durable when [`Record::batch`] returns (SQLite, WAL with `synchronous=FULL`: sqlite.org/pragma.html).

use crate::StoreError;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::path::Path;
use std::time::Duration;

/// How long another process that reads the record is waited for.
const BUSY: Duration = Duration::from_secs(10);
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA cache_size = -16384;
    CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY CHECK (id = 0), run INTEGER NOT NULL, about BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS facts (kind INTEGER, key BLOB, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;";

/// The record of one job.
#[derive(Debug)]
pub struct Record {
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
}

/// An item that was handed out and is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its number; never used twice in a run.
    pub id: u64,
    /// What it is.
    pub body: Vec<u8>,
}

/// A fact: its key and its value.
pub type Fact = (Vec<u8>, Vec<u8>);

/// Changes that are made together.
#[derive(Debug)]
pub struct Batch<'a>(Transaction<'a>);

impl Record {
    /// Opens the record at `path`, or makes it. One of a run about something else is emptied.
    ///
    /// # Errors
    /// It cannot be opened or written, or is no such record.
    pub fn open(path: &Path, about: &[u8]) -> Result<Record, StoreError> {
        let mut file = Connection::open(path)?;
        file.busy_timeout(BUSY)?;
        file.execute_batch(SCHEMA)?;
        let held: Option<(i64, Vec<u8>)> =
            file.query_row("SELECT run, about FROM job", [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let has_facts = file.prepare("SELECT 1 FROM facts")?.exists([])?;
        match held {
            Some((run, held)) if held == about => Ok(Record { file, run: run.cast_unsigned(), found: Found::Same }),
            _ => Ok(Record { run: empty(&mut file, about)?, file, found: if has_facts { Found::Other } else { Found::Nothing } }),
        }
    }

    /// Drops all that stands in it: from now on it is that of a new run, with a number of its own, about the same.
    ///
    /// # Errors
    /// It is as it was.
    pub fn begin_anew(&mut self) -> Result<(), StoreError> {
        let about: Vec<u8> = self.file.query_row("SELECT about FROM job", [], |row| row.get(0))?;
        self.run = empty(&mut self.file, &about)?;
        self.found = Found::Nothing;
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
    pub fn batch<T>(&mut self, change: impl FnOnce(&Batch<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let batch = Batch(self.file.transaction_with_behavior(TransactionBehavior::Immediate)?);
        let done = change(&batch)?;
        batch.0.commit()?;
        Ok(done)
    }

    /// How many items are open.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn open_items(&self) -> Result<u64, StoreError> {
        self.file.query_row("SELECT count(*) FROM items", [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
    }

    /// Open items with a number above `after`, at most `max`, in order.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn items(&self, after: u64, max: usize) -> Result<Vec<Item>, StoreError> {
        let mut find = self.file.prepare_cached("SELECT id, body FROM items WHERE id > ? ORDER BY id LIMIT ?")?;
        let items = find.query_map(params![after.cast_signed(), max as i64], |row| {
            Ok(Item { id: row.get::<_, i64>(0)?.cast_unsigned(), body: row.get(1)? })
        })?;
        items.collect()
    }

    /// Facts of a kind whose keys come after `after`, at most `max`, in the order of their keys.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn facts(&self, kind: u8, after: &[u8], max: usize) -> Result<Vec<Fact>, StoreError> {
        let mut find = self.file.prepare_cached("SELECT key, value FROM facts WHERE kind = ? AND key > ? ORDER BY key LIMIT ?")?;
        let facts = find.query_map(params![kind, after, max as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        facts.collect()
    }

    /// Looks a fact up.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn fact(&self, kind: u8, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        fact(&self.file, kind, key)
    }
}

fn fact(file: &Connection, kind: u8, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let mut find = file.prepare_cached("SELECT value FROM facts WHERE kind = ? AND key = ?")?;
    find.query_row(params![kind, key], |row| row.get(0)).optional()
}

/// Drops everything, for a new run about `about`; returns its number.
fn empty(file: &mut Connection, about: &[u8]) -> Result<u64, StoreError> {
    let batch = file.transaction_with_behavior(TransactionBehavior::Immediate)?;
    batch.execute_batch("DELETE FROM job; DELETE FROM items; DELETE FROM facts;")?;
    let run: i64 = batch.query_row("SELECT random()", [], |row| row.get(0))?;
    batch.execute("INSERT INTO job VALUES (0, ?, ?)", params![run, about])?;
    batch.commit()?;
    Ok(run.cast_unsigned())
}

impl Batch<'_> {
    /// Adds an item; returns its number.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn add_item(&self, body: &[u8]) -> Result<u64, StoreError> {
        self.0.prepare_cached("INSERT INTO items (body) VALUES (?)")?.execute(params![body])?;
        Ok(self.0.last_insert_rowid().cast_unsigned())
    }

    /// Settles an item; returns what it was, if it was open.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn settle(&self, id: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let mut settle = self.0.prepare_cached("DELETE FROM items WHERE id = ? RETURNING body")?;
        settle.query_row(params![id.cast_signed()], |row| row.get(0)).optional()
    }

    /// Whether an item is open.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn is_open(&self, id: u64) -> Result<bool, StoreError> {
        self.0.prepare_cached("SELECT 1 FROM items WHERE id = ?")?.exists(params![id.cast_signed()])
    }

    /// Notes a fact, in the place of an earlier one.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn put(&self, kind: u8, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.0.prepare_cached("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)")?.execute(params![kind, key, value]).map(drop)
    }

    /// Looks a fact up.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn get(&self, kind: u8, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        fact(&self.0, kind, key)
    }

    /// Takes away all facts.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn forget_facts(&self) -> Result<(), StoreError> {
        self.0.execute("DELETE FROM facts", []).map(drop)
    }

    /// Takes away the facts of a kind whose keys begin with `prefix`, and returns their values in the order of their keys.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn take(&self, kind: u8, prefix: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
        let whose = "kind = ?1 AND key >= ?2 AND substr(key, 1, length(?2)) = ?2";
        let mut find = self.0.prepare_cached(&format!("SELECT value FROM facts WHERE {whose} ORDER BY key"))?;
        let values: Result<Vec<Vec<u8>>, StoreError> = find.query_map(params![kind, prefix], |row| row.get(0))?.collect();
        self.0.prepare_cached(&format!("DELETE FROM facts WHERE {whose}"))?.execute(params![kind, prefix])?;
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_belongs_to_one_matter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        let mut record = Record::open(&path, b"one").unwrap();
        assert_eq!(record.found(), Found::Nothing);
        let id = record.batch(|batch| batch.add_item(b"first").and_then(|_| batch.add_item(b"second"))).unwrap();
        record.batch(|batch| batch.put(3, b"key", b"value")).unwrap();
        let run = record.run();
        drop(record);
        let mut record = Record::open(&path, b"one").unwrap();
        assert_eq!((record.found(), record.run()), (Found::Same, run));
        assert_eq!(record.batch(|batch| batch.settle(id)).unwrap().as_deref(), Some(&b"second"[..]));
        assert_eq!(record.batch(|batch| batch.settle(id)).unwrap(), None);
        assert_eq!(record.items(0, 9).unwrap(), [Item { id: id - 1, body: b"first".to_vec() }]);
        assert_eq!(record.facts(3, b"", 9).unwrap(), [(b"key".to_vec(), b"value".to_vec())]);
        drop(record);
        let mut record = Record::open(&path, b"two").unwrap();
        assert!(record.found() == Found::Other && record.run() != run);
        assert_eq!((record.open_items().unwrap(), record.facts(3, b"", 9).unwrap().len()), (0, 0));
        let (run, later) = (record.run(), record.batch(|batch| batch.put(3, b"key", b"").and_then(|()| batch.add_item(b"third"))).unwrap());
        record.begin_anew().unwrap();
        assert!(record.run() != run && later > id);
        assert_eq!((record.open_items().unwrap(), record.facts(3, b"", 9).unwrap().len()), (0, 0));
        drop(record);
        assert_eq!(Record::open(&path, b"three").unwrap().found(), Found::Nothing, "it was about nothing yet");
    }

    #[test]
    fn a_batch_that_fails_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::open(&folder.path().join("job"), b"").unwrap();
        let failed = record.batch(|batch| batch.add_item(b"lost").and(Err::<(), _>(rusqlite::Error::InvalidQuery)));
        assert!(failed.is_err());
        assert_eq!(record.open_items().unwrap(), 0);
    }

    #[test]
    fn facts_are_taken_by_the_beginning_of_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::open(&folder.path().join("job"), b"").unwrap();
        let taken = record.batch(|batch| {
            for key in [&b"a"[..], b"ab", b"b", b"a\xff", b"B"] {
                batch.put(1, key, key)?;
            }
            batch.put(2, b"a", b"other")?;
            batch.take(1, b"a")
        });
        assert_eq!(taken.unwrap(), [&b"a"[..], b"ab", b"a\xff"]);
        assert_eq!(record.facts(1, b"", 9).unwrap().len(), 2);
        assert_eq!(record.facts(2, b"", 9).unwrap().len(), 1);
    }
}
