//! The layout of the record of a run, and how older layouts become this one.
//!
//! `docs/internals/state.md` draws the newest one, and a test compares the two. Whoever changes the
//! layout adds the way from the one before it to [`UPGRADES`]; nobody changes a way that is there.

use crate::file::{Kept, Kind, Upgrade, tables};
use crate::{StateError, StateFile, StoreError};
use rusqlite::{Connection, Transaction};
use std::path::Path;

/// "drft", in the header of each record.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"drft");

/// What is set whenever the file is opened. What is committed is durable (sqlite.org/pragma.html,
/// "synchronous").
const SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = ON;
    PRAGMA cache_size = -16384;";

/// The newest layout.
const SCHEMA: &str = "
CREATE TABLE run (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    number INTEGER NOT NULL,
    about TEXT NOT NULL,
    source TEXT,
    replica TEXT,
    begun INTEGER,
    stage TEXT CHECK (stage IN ('walk', 'links', 'end'))
);
CREATE TABLE life (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    process TEXT NOT NULL,
    heard INTEGER NOT NULL,
    second_hand INTEGER NOT NULL,
    doubtful INTEGER NOT NULL,
    source_boot INTEGER NOT NULL,
    source_dev INTEGER NOT NULL,
    source_ino INTEGER NOT NULL,
    source_made INTEGER,
    source_made_nsec INTEGER,
    replica_boot INTEGER NOT NULL,
    replica_dev INTEGER NOT NULL,
    replica_ino INTEGER NOT NULL,
    replica_made INTEGER,
    replica_made_nsec INTEGER,
    mark_replica TEXT,
    mark_run TEXT
);
CREATE TABLE counts (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    class INTEGER NOT NULL,
    alone INTEGER NOT NULL,
    what TEXT NOT NULL CHECK (what IN ('tree', 'entries', 'bytes', 'rest')),
    path BLOB NOT NULL,
    pieces INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER,
    body BLOB NOT NULL
);
CREATE TABLE parts (
    batch INTEGER NOT NULL REFERENCES batches ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    number INTEGER NOT NULL,
    mover TEXT NOT NULL,
    outcome BLOB NOT NULL,
    PRIMARY KEY (batch, attempt, number)
);
CREATE TABLE problems (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL,
    side TEXT NOT NULL,
    act TEXT NOT NULL,
    cause TEXT NOT NULL,
    class TEXT NOT NULL
);
CREATE TABLE large_files (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL,
    source TEXT NOT NULL,
    size INTEGER,
    class INTEGER NOT NULL,
    alone INTEGER NOT NULL,
    pieces INTEGER NOT NULL,
    UNIQUE (path, source)
);
CREATE TABLE copied (
    file INTEGER NOT NULL REFERENCES large_files ON DELETE CASCADE,
    first INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (file, first)
) WITHOUT ROWID;
CREATE TABLE links (
    dev INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    path BLOB NOT NULL,
    size INTEGER NOT NULL,
    there INTEGER NOT NULL,
    PRIMARY KEY (dev, ino, path)
) WITHOUT ROWID;
CREATE TABLE directories (
    path BLOB PRIMARY KEY,
    listed TEXT NOT NULL CHECK (listed IN ('whole', 'changed', 'in part')),
    made INTEGER NOT NULL,
    replaced INTEGER NOT NULL,
    unlisted INTEGER NOT NULL,
    kind TEXT,
    mode INTEGER,
    uid INTEGER,
    gid INTEGER,
    size INTEGER,
    blocks INTEGER,
    mtime INTEGER,
    mtime_nsec INTEGER,
    atime INTEGER,
    atime_nsec INTEGER,
    ctime INTEGER,
    ctime_nsec INTEGER,
    nlink INTEGER,
    dev INTEGER,
    ino INTEGER,
    rdev INTEGER,
    unkept INTEGER
) WITHOUT ROWID;
CREATE TABLE extras (
    dir BLOB NOT NULL,
    name BLOB NOT NULL,
    PRIMARY KEY (dir, name)
) WITHOUT ROWID;
CREATE TABLE no_room (
    path BLOB PRIMARY KEY
) WITHOUT ROWID;
CREATE TABLE mounts (
    path BLOB PRIMARY KEY
) WITHOUT ROWID;
CREATE TABLE alike (
    dir BLOB NOT NULL,
    name BLOB NOT NULL,
    earlier BLOB NOT NULL,
    PRIMARY KEY (dir, name)
) WITHOUT ROWID;
CREATE TABLE misspelt (
    dir BLOB NOT NULL,
    found BLOB NOT NULL,
    wanted BLOB NOT NULL,
    PRIMARY KEY (dir, found, wanted)
) WITHOUT ROWID;
";

/// The way from each layout to the next, from layout 0 on.
const UPGRADES: [Upgrade; 1] = [from_0];

/// Layout 0, of before files said what they are: a list of batches and one of facts, both opaque.
/// What is in it only its own version can read, so such a run begins anew, which copies nothing
/// that is equal.
const TABLES_OF_0: [&str; 3] = ["facts", "items", "job"];

fn from_0(transaction: &Transaction<'_>) -> Result<Kept, StoreError> {
    // A process that was killed while it made the file has left a part of them.
    let was_run = tables(transaction)?.iter().any(|table| table == "facts")
        && transaction.prepare("SELECT 1 FROM facts")?.exists([])?;
    transaction.execute_batch(
        "DROP TABLE IF EXISTS job; DROP TABLE IF EXISTS items; DROP TABLE IF EXISTS facts;",
    )?;
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    Ok(Kept::Nothing { was_run })
}

/// Opens the record at `path` with the newest layout; one that is not there, or empty, is made. Says
/// what was kept of an older layout.
///
/// # Errors
/// It cannot be opened or written; it is damaged, of a newer version or no such record, and is as
/// it was.
pub(super) fn open(path: &Path) -> Result<(Connection, Kept), StateError> {
    kind(&UPGRADES).open(path)
}

fn kind(upgrades: &[Upgrade]) -> Kind<'_> {
    Kind {
        file: StateFile::Record,
        application: APPLICATION_ID,
        settings: SETTINGS,
        schema: SCHEMA,
        first: 0,
        nameless: &TABLES_OF_0,
        upgrades,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a file of the newest layout, with a run in it, when there is one more.
    fn upgraded(next: Upgrade) -> (tempfile::TempDir, Result<Kept, StateError>, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        let (file, _) = open(&path).unwrap();
        file.execute_batch("INSERT INTO run (id, number, about) VALUES (0, 7, 'one')")
            .unwrap();
        drop(file);
        let mut all = UPGRADES.to_vec();
        all.push(next);
        let kept = kind(&all).open(&path).map(|(_, kept)| kept);
        let file = Connection::open(&path).unwrap();
        (folder, kept, file)
    }

    fn layout_of(file: &Connection) -> i32 {
        file.pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn a_run_goes_on_over_an_upgrade_that_keeps_it() {
        let (_folder, kept, file) = upgraded(|transaction| {
            transaction.execute_batch("ALTER TABLE run ADD COLUMN remark TEXT")?;
            Ok(Kept::All)
        });
        assert_eq!(
            (kept.unwrap(), layout_of(&file)),
            (Kept::All, UPGRADES.len() as i32 + 1)
        );
        assert_eq!(
            file.query_row("SELECT number FROM run WHERE remark IS NULL", [], |row| row
                .get::<_, i64>(0)),
            Ok(7)
        );
    }

    #[test]
    fn an_upgrade_that_fails_leaves_the_file_as_it_was() {
        let (_folder, kept, file) = upgraded(|transaction| {
            transaction.execute_batch("DROP TABLE run; DROP TABLE no_such")?;
            Ok(Kept::All)
        });
        assert!(matches!(kept, Err(StateError::Failed { .. })), "{kept:?}");
        assert_eq!(layout_of(&file), UPGRADES.len() as i32);
        assert_eq!(
            file.query_row("SELECT number FROM run", [], |row| row.get::<_, i64>(0)),
            Ok(7)
        );
    }
}
