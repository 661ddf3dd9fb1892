//! What the shim in users' programs says, as the agent of a node hears it: datagrams, files that
//! are written to when the agent does not take them, and counters of what was lost.
//!
//! Whatever a program says is a hint: that a path may differ. Nothing of it is trusted, each user's
//! words are kept apart from those of the others, and what makes no sense is dropped and counted.
#![deny(missing_docs)]

mod budget;
mod ear;
mod folder;
mod gaps;
mod left;
mod map;
mod message;
mod mounts;
mod spooled;

pub use ear::{Shims, Told};
pub use folder::{Depth, Folder, SpoolError};
pub use message::{Kind, Message, Now, changes};
