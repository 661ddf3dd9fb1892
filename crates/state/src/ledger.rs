//! What a run that takes long has done already: a set of keys in a file, so that the next run need not do it again.
//!
//! A key is a hash of everything that must still hold for the note to be worth something. A ledger is a help, not a record:
//! when its file cannot be written or read, all that is lost is work, so it stops noting. Whoever named the file removes it.

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The hash of what was done: the first 128 bits of BLAKE3.
pub type LedgerKey = [u8; 16];

/// A set of keys. Not shared: whoever uses it from many threads puts a lock around it.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: Option<Connection>,
    /// Whether an earlier run left keys.
    holds_earlier: bool,
    new: Vec<LedgerKey>,
    flushed: Instant,
    failed: bool,
}

/// Keys that are held in memory before they are written.
const NEW_MAX: usize = 8192;
/// How long keys are held before they are written: what a killed run loses.
const FLUSH: Duration = Duration::from_secs(2);
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA cache_size = -16384;
    CREATE TABLE IF NOT EXISTS done (key BLOB PRIMARY KEY) WITHOUT ROWID;";

impl Ledger {
    /// Opens the ledger at `path`, if an earlier run left one; a new one is made when there is something to note.
    pub fn open(path: &Path) -> Ledger {
        let there = OpenFlags::default().difference(OpenFlags::SQLITE_OPEN_CREATE);
        let file = connect(path, there).ok();
        Ledger { path: path.into(), holds_earlier: file.is_some(), file, new: Vec::new(), flushed: Instant::now(), failed: false }
    }

    /// The key of what was done.
    pub fn key(what: &[u8]) -> LedgerKey {
        let mut key = LedgerKey::default();
        key.copy_from_slice(&blake3::hash(what).as_bytes()[..16]);
        key
    }

    /// Whether an earlier run noted the key.
    pub fn knows(&mut self, key: &LedgerKey) -> bool {
        if !self.holds_earlier {
            return false;
        }
        let found = self.file.as_ref().map(|file| find(file, key));
        found.is_some_and(|found| self.noted(found).unwrap_or(false))
    }

    /// Notes a key.
    pub fn add(&mut self, key: LedgerKey) {
        self.new.push(key);
        if self.new.len() >= NEW_MAX || self.flushed.elapsed() >= FLUSH {
            self.flush();
        }
    }

    /// Writes what was noted.
    pub fn flush(&mut self) {
        let mut new = std::mem::take(&mut self.new);
        self.flushed = Instant::now();
        if self.failed || new.is_empty() {
            return;
        }
        // In order of the keys each page of the table is touched once.
        new.sort_unstable();
        let done = self.write(&new);
        self.noted(done);
    }

    fn write(&mut self, keys: &[LedgerKey]) -> rusqlite::Result<()> {
        if self.file.is_none() {
            self.file = Some(connect(&self.path, OpenFlags::default())?);
        }
        let file = self.file.as_mut().expect("it was opened above");
        let transaction = file.transaction()?;
        {
            let mut insert = transaction.prepare_cached("INSERT OR IGNORE INTO done VALUES (?)")?;
            keys.iter().try_for_each(|key| insert.execute(params![key]).map(|_| ()))?;
        }
        transaction.commit()
    }

    fn noted<T>(&mut self, done: rusqlite::Result<T>) -> Option<T> {
        self.failed |= done.is_err();
        done.ok()
    }
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let file = Connection::open_with_flags(path, flags)?;
    file.execute_batch(SCHEMA)?;
    Ok(file)
}

fn find(file: &Connection, key: &LedgerKey) -> rusqlite::Result<bool> {
    let mut select = file.prepare_cached("SELECT 1 FROM done WHERE key = ?")?;
    Ok(select.query_row(params![key], |_| Ok(())).optional()?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_noted_the_next_one_knows() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("ledger");
        let keys: Vec<LedgerKey> = (0..20_000u32).map(|n| Ledger::key(&n.to_le_bytes())).collect();
        let mut ledger = Ledger::open(&path);
        keys.iter().take(15_000).for_each(|key| ledger.add(*key));
        ledger.flush();
        let mut again = Ledger::open(&path);
        assert!(keys[..15_000].iter().all(|key| again.knows(key)));
        assert!(!keys[15_000..].iter().any(|key| again.knows(key)));
    }
}
