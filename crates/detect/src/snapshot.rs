//! What file systems tell of the difference between two of their snapshots.
//!
//! The parsers read from what is handed to them; they start and open nothing. A [`Provider`] does:
//! it makes, lists and deletes snapshots, and has a parser read what differs between two.

mod between;
pub mod btrfs;
pub mod cephfs;
pub mod command;
pub mod gpfs;
mod program;
mod provider;
mod sequence;
mod told;
pub mod zfs;

pub use provider::{Provider, SnapshotError};
pub use sequence::in_sequence;
