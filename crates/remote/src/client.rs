//! The side that asks: the connection to an agent, and the directories and files of its host as
//! this side sees them.

pub mod connection;
pub mod dir;
pub mod ending;
mod file;
mod replies;

use connection::Connection;
use driftless_model::Keep;
use driftless_tree::{Completion, Gate, Rights};

/// A client of an agent: its connection, and what was agreed over it.
pub struct Client {
    /// Requests and replies.
    pub connection: Connection<Completion>,
    /// What the user there may do.
    pub rights: Rights,
    /// Which attributes listings tell.
    pub keep: Keep,
    /// What the replica's first change waits for.
    pub gate: Gate,
    /// Name of the host.
    pub host: String,
    /// The run has worked on this host before, over a connection that was lost.
    pub is_again: bool,
}
