//! The layout of the table of jobs of gateways.
//!
//! `docs/internals/state.md` draws it, and a test compares the two. A change of the layout adds the
//! way from the one before it to [`UPGRADES`]; ways that are there stay as they are.

use crate::file::{Kind, Upgrade};
use crate::{StateError, StateFile};
use rusqlite::Connection;
use std::path::Path;

/// "drfg", in the header of each table of jobs.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"drfg");

/// Settings of each connection. Gateways of several hosts share the file, and a write-ahead log needs
/// memory that they share (sqlite.org/wal.html).
const SETTINGS: &str = "
    PRAGMA journal_mode = DELETE;
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = ON;";

/// The newest layout.
const SCHEMA: &str = "
CREATE TABLE gateways (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    name TEXT NOT NULL
);
INSERT INTO gateways (one, name) VALUES (1, lower(hex(randomblob(4))));
CREATE TABLE lease (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL,
    beat INTEGER NOT NULL,
    holder TEXT NOT NULL
);
CREATE TABLE jobs (
    mark TEXT PRIMARY KEY,
    uid INTEGER NOT NULL,
    owner TEXT NOT NULL,
    system TEXT NOT NULL,
    request BLOB NOT NULL,
    stage TEXT NOT NULL DEFAULT 'prepared'
        CHECK (stage IN ('prepared', 'loading', 'releasing', 'released', 'ended', 'closed')),
    number TEXT,
    hash TEXT,
    bytes INTEGER,
    slot INTEGER,
    is_required INTEGER NOT NULL DEFAULT 0,
    fault TEXT,
    made_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE job_nodes (
    mark TEXT NOT NULL REFERENCES jobs ON DELETE CASCADE,
    node TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('wanted', 'ready', 'failed', 'purged')),
    fault TEXT,
    PRIMARY KEY (mark, node)
) WITHOUT ROWID;
CREATE TABLE results (
    mark TEXT NOT NULL REFERENCES jobs ON DELETE CASCADE,
    node TEXT NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    fault TEXT,
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (mark, node)
) WITHOUT ROWID;
CREATE TABLE task_results (
    mark TEXT NOT NULL REFERENCES jobs ON DELETE CASCADE,
    task INTEGER NOT NULL,
    node TEXT NOT NULL,
    is_earlier INTEGER NOT NULL,
    PRIMARY KEY (mark, task, node)
) WITHOUT ROWID;
";

/// The way from each layout to the next, from layout 1 on.
const UPGRADES: [Upgrade; 0] = [];

const KIND: Kind<'_> = Kind {
    file: StateFile::Jobs,
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
