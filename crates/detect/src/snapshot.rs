//! What file systems tell of the difference between two of their snapshots.
//!
//! The parsers read from what is handed to them; they start and open nothing.

pub mod btrfs;
pub mod gpfs;
pub mod zfs;
