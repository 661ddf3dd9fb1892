//! What driftless' own tests need: hostile trees, random mutations, an independent comparison, scratch file systems, a
//! runner for the real binary and a message broker.
//!
//! This crate is an oracle, so it must not import any other crate of the workspace: a mistake that the engine and its
//! judge share would never be seen. It is a dev-dependency only and works on paths and names freely, because nobody
//! attacks the trees while it looks at them.
#![allow(clippy::disallowed_methods)]

pub mod attrs;
pub mod build;
pub mod bytes;
mod catalogue;
pub mod compare;
pub mod deep;
mod hash;
pub mod mutate;
pub mod names;
pub mod oracle;
pub mod rabbit;
pub mod run;
pub mod scan;
pub mod scratch;

pub use build::{Profile, build_tree};
pub use bytes::escape;
pub use compare::{Difference, Options, assert_equal, compare, snapshot_hash};
pub use deep::{deep_path, remove_deep};
pub use mutate::mutate;
pub use oracle::rsync_oracle;
pub use rabbit::Rabbit;
pub use run::{Driftless, Outcome, Running};
pub use scratch::{FsKind, Scratch};
