//! The layout of the index of a node.
//!
//! `docs/internals/state.md` draws it, and a test compares the two. A change of the layout adds the
//! way from the one before it to [`UPGRADES`]; ways that are there stay as they are.

use crate::file::{Kept, Kind, Upgrade};
use crate::{StateError, StateFile, StoreError};
use rusqlite::{Connection, Transaction};
use std::path::Path;

/// "drfn", in the header of each index of a node.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"drfn");

/// Settings of each connection: a commit is durable (sqlite.org/pragma.html, "synchronous").
const SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = ON;";

/// The newest layout.
const SCHEMA: &str = "
CREATE TABLE copies (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash TEXT NOT NULL,
    place BLOB NOT NULL,
    is_cached INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'unfinished'
        CHECK (state IN ('unfinished', 'publishing', 'held', 'damaged', 'leaving')),
    is_pinned INTEGER NOT NULL DEFAULT 0,
    expires_ms INTEGER,
    used_ms INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    owners_unkept INTEGER NOT NULL DEFAULT 0,
    attributes_unkept INTEGER NOT NULL DEFAULT 0,
    place_inode INTEGER,
    place_birth_s INTEGER,
    place_birth_ns INTEGER,
    token INTEGER NOT NULL DEFAULT 0,
    private_inode INTEGER,
    private_birth_s INTEGER,
    private_birth_ns INTEGER
);
CREATE TABLE tops (
    copy INTEGER NOT NULL REFERENCES copies ON DELETE CASCADE,
    name BLOB NOT NULL,
    inode INTEGER NOT NULL,
    birth_s INTEGER,
    birth_ns INTEGER,
    PRIMARY KEY (copy, name)
) WITHOUT ROWID;
CREATE TABLE jobs (
    copy INTEGER NOT NULL REFERENCES copies ON DELETE CASCADE,
    job TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    reader INTEGER,
    PRIMARY KEY (copy, job)
) WITHOUT ROWID;
";

/// The way from each layout to the next, from layout 1 on.
const UPGRADES: [Upgrade; 2] = [add_identities, add_readers];

fn add_identities(transaction: &Transaction<'_>) -> Result<Kept, StoreError> {
    let add = "ALTER TABLE copies ADD COLUMN owners_unkept INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE copies ADD COLUMN attributes_unkept INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE copies ADD COLUMN place_inode INTEGER;
        ALTER TABLE copies ADD COLUMN place_birth_s INTEGER;
        ALTER TABLE copies ADD COLUMN place_birth_ns INTEGER;
        ALTER TABLE copies ADD COLUMN token INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE copies ADD COLUMN private_inode INTEGER;
        ALTER TABLE copies ADD COLUMN private_birth_s INTEGER;
        ALTER TABLE copies ADD COLUMN private_birth_ns INTEGER;
        DROP TABLE node;";
    transaction.execute_batch(add)?;
    Ok(Kept::All)
}

fn add_readers(transaction: &Transaction<'_>) -> Result<Kept, StoreError> {
    transaction.execute_batch("ALTER TABLE jobs ADD COLUMN reader INTEGER")?;
    Ok(Kept::All)
}

const KIND: Kind<'_> = Kind {
    file: StateFile::Holdings,
    application: APPLICATION_ID,
    settings: SETTINGS,
    schema: SCHEMA,
    first: 1,
    nameless: &[],
    upgrades: &UPGRADES,
};

/// Opens the file at `path`; makes it if it is missing or empty.
///
/// # Errors
/// The file cannot be opened or written, is damaged, of a newer version or of another program.
pub(super) fn open(path: &Path) -> Result<Connection, StateError> {
    KIND.open(path).map(|(file, _)| file)
}
