//! The protocol: requests and replies, as they go over a connection. Frames carry them.
//!
//! ```text
//! frame   = head length (u32, little endian) | data length (u32, little endian) | head | data
//! head    = number of the request (u64, little endian) | request or reply (postcard, https://postcard.jamesmunns.com/wire-format)
//! data    = content of a file, as it is; compressed (see `compress.rs`) where the highest bit of the number is set
//! ```
//!
//! Lengths are bounded before anything is allocated, names are checked to be names, and whatever
//! does not decode ends the connection: a peer is not trusted. Objects (directories, files, locks)
//! are called by numbers that the client chooses, so that a request about a directory can follow at
//! once the request that makes it.

pub mod alive;
mod bounds;
pub mod compress;
mod fault;
mod frame;
pub mod handshake;
mod hello;
mod identity;
mod limits;
mod name;
mod new_entry;
mod reply;
mod request;
pub mod send;
mod sparing;

pub use bounds::{
    DATA_BYTES_MAX, DIGESTS_MAX, ENTRIES_MAX, EXTENTS_MAX, FAULTS_MAX, FETCHED_HEAD_BYTES_MAX,
    HEAD_BYTES_MAX, PIECE_BYTES_MAX, ROOTS_MAX, SHORT_XATTRS_BYTES_MAX, SMALL_BYTES, bad,
};
pub use fault::WireFault;
pub use frame::{Announced, Frame};
pub use hello::{Hello, PROTOCOL};
pub use identity::{Identity, Met};
pub use limits::{Apart, Limits, May};
pub use name::{Handle, Name};
pub use new_entry::{NewEntryHead, whole};
pub use reply::{Listing, Located, Locked, Own, Reply, Told, xattrs_memory};
pub use request::{Opening, ReplyMax, Request, Root, Survey};
pub use sparing::{Sparing, WireRemoved, WireSpared};
