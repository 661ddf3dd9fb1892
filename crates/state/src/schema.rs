//! The layout of the record of a run, and how older layouts become this one.
//!
//! A file says what it is in its header (sqlite.org/fileformat2.html, "application ID" and "user
//! version"): that driftless made it, and which layout it has. `docs/internals/state.md` draws the
//! newest one, and a test compares the two. Whoever changes the layout adds the way from the one
//! before it to [`UPGRADES`]; nobody changes a way that is there.

use crate::{StateError, StoreError};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::Path;
use std::time::Duration;

/// "drft", in the header of each file of ours.
pub(crate) const APPLICATION_ID: i32 = i32::from_be_bytes(*b"drft");
/// How long another process that reads the file is waited for.
const BUSY: Duration = Duration::from_secs(10);
/// Statements that are kept prepared: more than there are.
const STATEMENTS: usize = 64;

/// What is set whenever the file is opened. What is committed is durable (sqlite.org/pragma.html,
/// "synchronous").
const SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = ON;
    PRAGMA cache_size = -16384;";

/// The newest layout.
pub(crate) const SCHEMA: &str = "
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

/// What a way from one layout to the next keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Everything: the run goes on.
    #[allow(dead_code, reason = "for the next layout; the tests have one")]
    All,
    /// Nothing: the run begins anew, and says so where there was any.
    Nothing {
        /// Whether there was a run.
        was_run: bool,
    },
}

/// A way from a layout to the next.
pub(crate) type Upgrade = fn(&Transaction<'_>) -> Result<Kept, StoreError>;

/// The way from each layout to the next, from layout 0 on.
pub(crate) const UPGRADES: [Upgrade; 1] = [from_0];

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

/// Opens the file at `path` with the newest layout; one that is not there, or empty, is made. Says
/// what was kept of an older layout.
pub(crate) fn open(path: &Path, upgrades: &[Upgrade]) -> Result<(Connection, Kept), StateError> {
    let failed = |cause| StateError::of(path, cause);
    let mut file = Connection::open(path).map_err(failed)?;
    file.busy_timeout(BUSY).map_err(failed)?;
    file.set_prepared_statement_cache_capacity(STATEMENTS);
    let known = upgrades.len() as i32;
    // Nothing is written before it is known whose file it is.
    let header = Header::of(&file).map_err(failed)?;
    let is_new = header.tables.is_empty() && (header.application, header.layout) == (0, 0);
    let layout = if is_new {
        known
    } else {
        header.layout(path, known)?
    };
    if !is_new {
        check(path, &file)?;
    }
    file.execute_batch(SETTINGS).map_err(failed)?;
    let kept = if is_new {
        make(&mut file, known)
    } else {
        upgrade(&mut file, layout, upgrades)
    };
    Ok((file, kept.map_err(failed)?))
}

/// What a file says of itself.
struct Header {
    application: i32,
    layout: i32,
    tables: Vec<String>,
}

impl Header {
    fn of(file: &Connection) -> Result<Header, StoreError> {
        let pragma = |name: &str| file.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        Ok(Header {
            application: pragma("application_id")?,
            layout: pragma("user_version")?,
            tables: tables(file)?,
        })
    }

    /// The layout, if it is one of ours.
    fn layout(&self, path: &Path, known: i32) -> Result<i32, StateError> {
        let path = path.to_owned();
        let is_old = (self.application, self.layout) == (0, 0)
            && self
                .tables
                .iter()
                .all(|table| TABLES_OF_0.contains(&&**table));
        match self.layout {
            _ if self.application != APPLICATION_ID && !is_old => Err(StateError::Foreign {
                path,
                what: format!("its application id is {:#010x}", self.application),
            }),
            found if found > known => Err(StateError::Newer { path, found, known }),
            found if found < 0 || found == 0 && !is_old => Err(StateError::Damaged {
                path,
                what: format!("there is no layout {found}"),
            }),
            found => Ok(found),
        }
    }
}

/// Reads all pages once (sqlite.org/pragma.html, "quick_check"). It is done at each opening,
/// whatever the size: a run opens its record once, a record has some hundred bytes for each
/// directory or link that is open, and each entry that it speaks of costs the run many times the
/// time in which its row is read.
fn check(path: &Path, file: &Connection) -> Result<(), StateError> {
    let said = file.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match said.map_err(|cause| StateError::of(path, cause))? {
        ok if ok == "ok" => Ok(()),
        what => Err(StateError::Damaged {
            path: path.to_owned(),
            what: what.replace('\n', " "),
        }),
    }
}

fn tables(file: &Connection) -> Result<Vec<String>, StoreError> {
    let mut find = file.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")?;
    find.query_map([], |row| row.get(0))?.collect()
}

fn make(file: &mut Connection, layout: i32) -> Result<Kept, StoreError> {
    let transaction = file.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", layout)?;
    transaction.commit()?;
    Ok(Kept::Nothing { was_run: false })
}

/// Goes the way from `layout` to the newest, or stays where it was.
fn upgrade(file: &mut Connection, layout: i32, upgrades: &[Upgrade]) -> Result<Kept, StoreError> {
    let mut kept = Kept::All;
    let transaction = file.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in &upgrades[layout as usize..] {
        match step(&transaction)? {
            Kept::All => {}
            nothing => kept = nothing,
        }
    }
    transaction.pragma_update(None, "user_version", upgrades.len() as i32)?;
    transaction.commit()?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a file of the newest layout, with a run in it, when there is one more.
    fn upgraded(next: Upgrade) -> (tempfile::TempDir, Result<Kept, StateError>, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        let (file, _) = open(&path, &UPGRADES).unwrap();
        file.execute_batch("INSERT INTO run (id, number, about) VALUES (0, 7, 'one')")
            .unwrap();
        drop(file);
        let mut all = UPGRADES.to_vec();
        all.push(next);
        let kept = open(&path, &all).map(|(_, kept)| kept);
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
