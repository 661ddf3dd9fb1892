//! The difference of two read-only snapshots of btrfs: by the transactions that inodes were changed
//! in, which costs no more than what has changed, or, where these do not tell, as
//! `btrfs send --no-data -p OLDER NEWER` tells it.
//!
//! [`Stream`] decodes the bytes, [`Diff`] replays the commands on the names that they touch, and
//! says at the end which paths of the newer snapshot differ. Both work on memory and on a reader
//! that is handed in. [`Subvolumes`] makes the snapshots, and has the program send.

mod attributes;
mod changed;
mod command;
mod crc;
mod diff;
mod extents;
mod fault;
mod provider;
mod ranges;
mod search;
mod sequel;
mod since;
mod stream;
mod sys;
mod tree;

pub use changed::changed_ranges;
pub use command::{Command, Made, Subvolume};
pub use diff::{Diff, changes};
pub use fault::{StreamError, StreamFault};
pub use provider::Subvolumes;
pub(crate) use search::ROOT_INODE;
pub use since::changed_between;
pub use stream::Stream;

#[cfg(test)]
mod encode;
