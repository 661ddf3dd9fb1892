//! The layout of the state of a mirror.
//!
//! `docs/internals/state.md` draws the newest one, and a test compares the two. Whoever changes the
//! layout adds the way from the one before it to [`UPGRADES`]; nobody changes a way that is there.

use crate::file::{Kept, Kind, Upgrade};
use crate::{StateError, StateFile};
use rusqlite::Connection;
use std::path::Path;

/// "drfm", in the header of each state of a mirror.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"drfm");

/// What is set whenever the file is opened. What is committed is durable (sqlite.org/pragma.html,
/// "synchronous").
const SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = ON;
    PRAGMA cache_size = -16384;";

/// The newest layout.
const SCHEMA: &str = "
CREATE TABLE job (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    replica TEXT NOT NULL,
    mark TEXT,
    since_ms INTEGER NOT NULL,
    paused_ms INTEGER,
    equal_until_ms INTEGER,
    role TEXT NOT NULL DEFAULT 'following'
        CHECK (role IN ('following', 'failing over', 'failed over', 'failing back')),
    role_since_ms INTEGER,
    role_to TEXT,
    has_told_all INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE dirty (
    path BLOB PRIMARY KEY,
    scope TEXT NOT NULL CHECK (scope IN ('entry', 'names', 'subtree')),
    since_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    is_long INTEGER NOT NULL,
    is_doubtful INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE problems (
    path BLOB NOT NULL,
    side TEXT NOT NULL,
    act TEXT NOT NULL,
    cause TEXT NOT NULL,
    class TEXT NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    quarantined INTEGER NOT NULL,
    PRIMARY KEY (path, side, act)
) WITHOUT ROWID;
CREATE TABLE cursors (
    detector TEXT PRIMARY KEY,
    position BLOB NOT NULL,
    at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE gaps (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    detector TEXT NOT NULL,
    path BLOB NOT NULL,
    since_ms INTEGER,
    until_ms INTEGER NOT NULL
);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL CHECK (kind IN ('walk', 'cycle', 'live')),
    begun_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    seen INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    missed INTEGER NOT NULL DEFAULT 0,
    others INTEGER NOT NULL DEFAULT 0,
    end TEXT
);
CREATE TABLE hours (
    hour INTEGER PRIMARY KEY,
    files INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    max_ms INTEGER NOT NULL,
    over_300 INTEGER NOT NULL,
    over_600 INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    problems INTEGER NOT NULL
);
CREATE TABLE lag (
    hour INTEGER NOT NULL REFERENCES hours ON DELETE CASCADE,
    bucket INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (hour, bucket)
) WITHOUT ROWID;
CREATE TABLE backlog (
    stretch INTEGER PRIMARY KEY,
    left_max INTEGER NOT NULL,
    quarantined_max INTEGER NOT NULL,
    behind_max_ms INTEGER NOT NULL
);
CREATE TABLE common (
    name TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    replica TEXT NOT NULL,
    made_ms INTEGER NOT NULL,
    is_newest INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX newest_common ON common (is_newest) WHERE is_newest = 1;
";

/// The way from each layout to the next, from layout 1 on.
const UPGRADES: [Upgrade; 2] = [
    |transaction| {
        let add = "ALTER TABLE dirty ADD COLUMN is_doubtful INTEGER NOT NULL DEFAULT 0";
        transaction.execute_batch(add)?;
        Ok(Kept::All)
    },
    |transaction| {
        let add = "ALTER TABLE job ADD COLUMN has_told_all INTEGER NOT NULL DEFAULT 0";
        transaction.execute_batch(add)?;
        Ok(Kept::All)
    },
];

const KIND: Kind<'_> = Kind {
    file: StateFile::Mirror,
    application: APPLICATION_ID,
    settings: SETTINGS,
    schema: SCHEMA,
    first: 1,
    nameless: &[],
    upgrades: &UPGRADES,
};

/// Opens the file at `path`; one that is not there, or empty, is made.
///
/// # Errors
/// It cannot be opened or written; it is damaged, of a newer version or no such file, and is as it
/// was.
pub(super) fn open(path: &Path) -> Result<(Connection, Kept), StateError> {
    KIND.open(path)
}

/// Opens the file at `path` to read it, whether or not a mirror writes to it.
///
/// # Errors
/// It is not there, cannot be read, or is of another layout or of another program.
pub(super) fn look(path: &Path) -> Result<Connection, StateError> {
    KIND.look(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_layout_is_brought_up_to_date_by_the_keeper_and_by_nobody_else() {
        let [first, second] = UPGRADES;
        let next: [Upgrade; 3] = [first, second, |transaction| {
            transaction.execute_batch("ALTER TABLE dirty ADD COLUMN remark TEXT")?;
            Ok(Kept::All)
        }];
        let later = Kind {
            upgrades: &next,
            ..KIND
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (file, _) = open(&path).unwrap();
        file.execute_batch("INSERT INTO dirty VALUES (x'', 'entry', 1, 2, 3, 0, 1)")
            .unwrap();
        drop(file);
        let told = later.look(&path).unwrap_err();
        assert!(matches!(told, StateError::Unready { .. }), "{told}");
        let (file, kept) = later.open(&path).unwrap();
        assert_eq!(kept, Kept::All);
        let ask = "SELECT attempts FROM dirty WHERE remark IS NULL";
        let attempts = file.query_row(ask, [], |row| row.get::<_, i64>(0));
        assert_eq!(attempts, Ok(3));
        assert!(later.look(&path).is_ok());
        for refused in [open(&path).err(), look(&path).err()] {
            let newer = |told: &StateError| {
                matches!(
                    told,
                    StateError::Newer {
                        found: 4,
                        known: 3,
                        ..
                    }
                )
            };
            assert!(refused.as_ref().is_some_and(newer), "{refused:?}");
        }
    }

    #[test]
    fn each_layout_becomes_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (file, _) = open(&path).unwrap();
        file.execute_batch(
            "ALTER TABLE dirty DROP COLUMN is_doubtful;
            ALTER TABLE job DROP COLUMN has_told_all;
            INSERT INTO job (id, name, source, replica, since_ms) VALUES (0, 'a', 'b', 'c', 1);
            INSERT INTO dirty VALUES (x'61', 'entry', 1, 2, 3, 0);
            PRAGMA user_version = 1",
        )
        .unwrap();
        drop(file);
        let (file, kept) = open(&path).unwrap();
        assert_eq!(kept, Kept::All);
        let ask = "SELECT attempts, is_doubtful FROM dirty";
        let told = file.query_row(ask, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(told, Ok((3_i64, false)));
        let ask = "SELECT since_ms, has_told_all FROM job";
        let told = file.query_row(ask, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(told, Ok((1_i64, false)));
    }
}
