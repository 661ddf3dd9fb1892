//! What must be remembered, in SQLite: the record of a run that movers share ([`Record`]), the state
//! of a mirror ([`mirror`]), that of the agent of a node ([`watch`]), the index of a node ([`holdings`]) and the jobs of gateways ([`jobs`]), which outlive the process
//! that keeps them and have layouts with versions; what an interrupted verification has done
//! ([`Ledger`]); places of directories, as a hint ([`DirectoryIndex`]); and, for as long as a run lasts and beyond a bound on memory, which inodes of the
//! source have which names ([`LinkTable`]).

mod columns;
mod directories;
mod error;
mod file;
pub mod holdings;
pub mod jobs;
mod ledger;
mod links;
pub mod mirror;
mod record;
pub mod watch;

pub use directories::{DirectoryIndex, INDEXED_MAX};
pub use error::{StateError, StateFile};
pub use ledger::{Ledger, LedgerKey};
pub use links::{InodeId, Leader, LinkTable};
pub use record::life::{Ground, Life, Root};
pub use record::rows::{Alike, Batch, LargeFile, LinkName, Listing, Misspelling, OpenDir, Rows};
pub use record::{Found, Record, Stage, Transaction};

/// The store on disk failed (it is full, say).
pub type StoreError = rusqlite::Error;
