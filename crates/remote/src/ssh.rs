//! Reaching another host: the system's own `ssh` starts the agent there, so that the user's
//! configuration, keys and jump hosts just work.

mod child;
mod complaint;
pub mod deploy;
mod host;
mod reach;
mod silence;
pub mod spawn;
mod stream;
mod streams;
pub mod target;
mod unstarted;

pub use complaint::{NOT_FOUND, SSH_FAILED};
pub use host::SshHost;
pub use reach::{Deploy, Reach, ReachError, in_place_of};
pub use silence::SilenceLimit;
pub use unstarted::unstarted;
