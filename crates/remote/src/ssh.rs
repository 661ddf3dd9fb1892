//! Reaching another host: the system's own `ssh` starts the agent there, so that the user's
//! configuration, keys and jump hosts just work.

mod child;
mod complaint;
pub mod deploy;
mod host;
mod reach;
pub mod spawn;
mod stream;
mod streams;
pub mod target;

pub use complaint::SSH_FAILED;
pub use host::{CONNECTING, SshHost};
pub use reach::{Deploy, Reach, ReachError, in_place_of};
