//! Trees on other hosts: the agent that serves them, the connection to it, and the tree that this
//! side sees.
//!
//! The agent is started by the system's `ssh` and speaks over its standard input and output
//! ([`wire`]). To the rest of Driftless a directory there is a [`Dir`](driftless_tree::Dir) like
//! any other. What makes a run fast over a long connection is that hardly anything waits:
//! directories are asked for before they are entered, entries are told with their directory, small
//! files go whole, and their fate is heard of later.
#![deny(missing_docs)]

mod agent;
mod budget;
mod client;
mod ssh;
pub mod wire;

pub use agent::streams::join;
pub use agent::takeover::end_earlier;
pub use agent::{Service, serve};
pub use ssh::deploy::{bring, check_deploy};
pub use ssh::spawn::{check_program, spawn_there};
pub use ssh::target::{Target, TargetError, check_syntax};
pub use ssh::{
    Deploy, NOT_FOUND, Reach, ReachError, SSH_FAILED, SilenceLimit, SshHost, in_place_of, unstarted,
};
pub use wire::handshake::{Heard, Silence, find, greeted};
pub use wire::{Limits, May, ROOTS_MAX, Root};
