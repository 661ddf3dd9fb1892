//! What a run must remember, kept in bounded memory.
//!
//! So far this is the bookkeeping of hard links. It stands in SQLite beyond a bound, as the state of jobs will.

mod ledger;
mod links;
mod record;

pub use ledger::{Ledger, LedgerKey};
pub use links::{InodeId, Leader, LinkTable};
pub use record::{Batch, Fact, Found, Item, Record};

/// The store on disk failed (it is full, say).
pub type StoreError = rusqlite::Error;
