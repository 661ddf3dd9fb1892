//! The agent of a node: it hears what changes in trees, from shims and from the kernel, keeps what
//! it was told, and hands it on to the mirrors of this host and to a broker.
//!
//! It says that paths may differ, and never looks at a replica. What it was told is durable before
//! it is handed on, and is kept until the mirrors have taken it; where something may have been
//! missed, all of the tree is told in its place.
#![deny(missing_docs)]

mod agent;
mod book;
mod clock;
pub mod config;
mod coverage;
mod hand;
mod hear;
mod heard;
mod look;
pub mod metrics;
mod own;
mod pace;
mod posts;
mod publish;
mod queue;
mod rounds;
mod scout;
pub mod status;
mod tell;

pub use agent::{Agent, BeginError, Pulse, Setup};
pub use publish::Announcing;
pub use rounds::Deliverer;
