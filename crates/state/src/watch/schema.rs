//! The layout of the state of an agent.
//!
//! `docs/internals/state.md` draws it, and a test compares the two. Whoever changes the layout adds
//! the way from the one before it to [`UPGRADES`]; nobody changes a way that is there.

use crate::file::{Kind, Upgrade};
use crate::{StateError, StateFile};
use rusqlite::Connection;
use std::path::Path;

/// "drfw", in the header of each state of an agent.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"drfw");

/// What is set whenever the file is opened. What is committed is durable (sqlite.org/pragma.html,
/// "synchronous").
const SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = ON;";

/// The newest layout.
const SCHEMA: &str = "
CREATE TABLE trees (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL UNIQUE,
    since_ms INTEGER NOT NULL,
    gaps INTEGER NOT NULL DEFAULT 0,
    first_gap_ms INTEGER,
    last_gap_ms INTEGER
);
CREATE TABLE waiting (
    id INTEGER PRIMARY KEY,
    tree INTEGER NOT NULL REFERENCES trees ON DELETE CASCADE,
    path BLOB NOT NULL,
    word TEXT NOT NULL CHECK (word IN ('entry', 'written', 'open', 'subtree', 'gone', 'replaced', 'moved', 'moved file')),
    moved_from BLOB,
    since_ms INTEGER NOT NULL
);
CREATE INDEX waiting_of_tree ON waiting (tree);
";

/// The way from each layout to the next, from layout 1 on.
const UPGRADES: [Upgrade; 0] = [];

const KIND: Kind<'_> = Kind {
    file: StateFile::Watch,
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
pub(super) fn open(path: &Path) -> Result<Connection, StateError> {
    KIND.open(path).map(|(file, _)| file)
}

/// Opens the file at `path` to read it, whether or not an agent writes to it.
///
/// # Errors
/// It is not there, cannot be read, or is of another layout or of another program.
pub(super) fn look(path: &Path) -> Result<Connection, StateError> {
    KIND.look(path)
}
