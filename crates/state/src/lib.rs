//! What a run must remember, kept in bounded memory.
//!
//! So far this is the bookkeeping of hard links. It stands in SQLite beyond a bound, as the state of jobs will.

mod ledger;
mod links;

pub use ledger::{Ledger, LedgerKey};
pub use links::{InodeId, Leader, LinkTable};

/// The store on disk failed (it is full, say).
pub type StoreError = rusqlite::Error;
