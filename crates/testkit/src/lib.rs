//! What driftless' own tests need: hostile trees, random mutations, an independent comparison,
//! scratch file systems, a runner for the real binary, and hosts, an ssh server, a bad network and
//! a message broker for what is remote.
//!
//! This crate is an oracle, so it must not import any other crate of the workspace: a mistake that
//! the engine and its judge share would never be seen. It is a dev-dependency only and works on
//! paths and names freely, because nobody attacks the trees while it looks at them.
#![allow(clippy::disallowed_methods)]

pub mod accounts;
pub mod attrs;
pub mod build;
pub mod bytes;
mod catalogue;
pub mod compare;
pub mod content;
pub mod deep;
pub mod disk;
pub mod fuse;
pub mod grid_engine;
mod hash;
pub mod hosts;
pub mod machines;
pub mod mutate;
pub mod names;
pub mod oracle;
pub mod pbs;
mod processes;
mod program;
pub mod rabbit;
pub mod relay;
pub mod run;
pub mod scan;
pub mod scratch;
pub mod slurm;
pub mod sshd;
mod terminal;
pub mod wait;

pub use build::{Profile, build_tree};
pub use bytes::escape;
pub use compare::{
    Difference, Options, Snapshot, assert_equal, compare, snapshot, snapshot_hash, touched,
};
pub use deep::{deep_path, remove_deep};
pub use disk::{Disk, Recording};
pub use fuse::{Fuse, Mood, Rule};
pub use grid_engine::GridEngine;
pub use hosts::{Host, Lab};
pub use machines::{Machine, Machines};
pub use mutate::mutate;
pub use oracle::{rsync_opinion, rsync_oracle};
pub use pbs::Pbs;
pub use program::write_program;
pub use rabbit::Rabbit;
pub use relay::{Passed, Relay, Weather};
pub use run::{Driftless, Outcome, Running};
pub use scratch::{FsKind, Scratch};
pub use slurm::Slurm;
pub use sshd::{SshClient, Sshd};
pub use terminal::on_terminal;
pub use wait::{EVENT_MAX, wait_slowly_until, wait_until};
