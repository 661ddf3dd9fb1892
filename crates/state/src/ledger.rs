//! What a run that takes long has done already: a set of keys in a file, so that the next run need
//! not do it again.
//!
//! A key is a hash of everything that must still hold for the note to be worth something, and is
//! noted with the time. A medium loses what it holds without any sign, so a note is worth nothing
//! when it is old. A ledger is a help, not a record: when its file cannot be written or read, all
//! that is lost is work, so it stops noting. The caller, which named the file, removes it.

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The hash of what was done: the first 128 bits of BLAKE3.
pub type LedgerKey = [u8; 16];

/// Seconds since 1970 (time(2)); a test brings its own.
pub type Clock = fn() -> u64;

/// A set of keys. Not shared: a caller with many threads puts a lock around it.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: Option<Connection>,
    clock: Clock,
    /// Seconds after which a note is not used any more.
    age_seconds_max: u64,
    /// Age in seconds of the oldest note that was used.
    oldest_seconds: u64,
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
    CREATE TABLE IF NOT EXISTS done_at (key BLOB PRIMARY KEY, seconds INTEGER NOT NULL) WITHOUT ROWID;";

impl Ledger {
    /// Opens the ledger at `path`, if an earlier run left one; a new one is made when there is
    /// something to note. Notes older than `age_seconds_max` are not used.
    pub fn open(path: &Path, clock: Clock, age_seconds_max: u64) -> Ledger {
        let there = OpenFlags::default().difference(OpenFlags::SQLITE_OPEN_CREATE);
        let file = connect(path, there).ok();
        Ledger {
            path: path.into(),
            holds_earlier: file.is_some(),
            file,
            clock,
            age_seconds_max,
            oldest_seconds: 0,
            new: Vec::new(),
            flushed: Instant::now(),
            failed: false,
        }
    }

    /// The key of what was done.
    pub fn key(what: &[u8]) -> LedgerKey {
        let mut key = LedgerKey::default();
        key.copy_from_slice(&blake3::hash(what).as_bytes()[..16]);
        key
    }

    /// Whether an earlier run noted the key, not too long ago. A note from the future tells of a
    /// clock that was set: it proves nothing.
    pub fn knows(&mut self, key: &LedgerKey) -> bool {
        if !self.holds_earlier {
            return false;
        }
        let found = self.file.as_ref().map(|file| find(file, key));
        let noted = found.and_then(|found| self.noted(found).flatten());
        let age = noted
            .and_then(|seconds| (self.clock)().checked_sub(seconds))
            .filter(|age| *age <= self.age_seconds_max);
        self.oldest_seconds = self.oldest_seconds.max(age.unwrap_or(0));
        age.is_some()
    }

    /// Age in seconds of the oldest note that was used.
    pub fn oldest_seconds(&self) -> u64 {
        self.oldest_seconds
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
        let now = (self.clock)().cast_signed();
        {
            let mut insert =
                transaction.prepare_cached("INSERT OR REPLACE INTO done_at VALUES (?, ?)")?;
            keys.iter()
                .try_for_each(|key| insert.execute(params![key, now]).map(|_| ()))?;
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

/// When the key was noted, in seconds since 1970.
fn find(file: &Connection, key: &LedgerKey) -> rusqlite::Result<Option<u64>> {
    let mut select = file.prepare_cached("SELECT seconds FROM done_at WHERE key = ?")?;
    let found = select
        .query_row(params![key], |row| row.get::<_, i64>(0))
        .optional()?;
    Ok(found.and_then(|seconds| u64::try_from(seconds).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_noted_the_next_one_knows() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("ledger");
        let keys: Vec<LedgerKey> = (0..20_000u32)
            .map(|n| Ledger::key(&n.to_le_bytes()))
            .collect();
        let mut ledger = Ledger::open(&path, || 1000, 60);
        keys.iter().take(15_000).for_each(|key| ledger.add(*key));
        ledger.flush();
        let mut again = Ledger::open(&path, || 1060, 60);
        assert!(keys[..15_000].iter().all(|key| again.knows(key)));
        assert!(!keys[15_000..].iter().any(|key| again.knows(key)));
        assert_eq!(again.oldest_seconds(), 60);
    }

    #[test]
    fn a_note_that_is_old_or_from_the_future_is_worth_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("ledger");
        let key = Ledger::key(b"a");
        let mut ledger = Ledger::open(&path, || 1000, 60);
        ledger.add(key);
        ledger.flush();
        let clocks: [(Clock, bool); 4] = [
            (|| 1000, true),
            (|| 1060, true),
            (|| 1061, false),
            (|| 999, false),
        ];
        for (clock, known) in clocks {
            assert_eq!(
                Ledger::open(&path, clock, 60).knows(&key),
                known,
                "at {}",
                clock()
            );
        }
    }
}
