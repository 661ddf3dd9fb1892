//! Which paths of a source may differ from its replica: what snapshots, changelogs and lists tell.
//!
//! A detector says [`Change`](driftless_model::Change) and nothing else, and says where it may have
//! missed something ([`Gap`](driftless_model::Gap)). What is done about it is decided elsewhere.
#![deny(missing_docs)]

pub mod agents;
mod base;
pub mod changelog;
mod connections;
mod detector;
pub mod fanotify;
pub mod gap;
mod lines;
pub mod list;
pub mod place;
pub mod post;
pub mod snapshot;

pub use base::Base;
pub use connections::take_each;
pub use detector::{Deaf, Detector, Heard, Queue, Seen, Sharing, Unnamed, Waker};
pub use lines::LineFault;
