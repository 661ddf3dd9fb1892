//! What a mirror has changed on its replica is told others, such as the mirror of the next site.
//!
//! It is told when it is durable, and of each entry what it is by then. Nothing waits for whoever
//! is told but a barrier: what cannot be told for long becomes one word that all may differ.

mod ages;
mod crier;
mod waiting;

pub(crate) use crier::{Crier, Desk};
pub use waiting::{New, News};

use driftless_sarracenia::Announced;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Tells others what has become of entries; the binary has the broker.
pub trait Herald: Send {
    /// Where they are told, and under which name of the replica: who tells others there of the same
    /// replica has the same.
    fn place(&self) -> String;

    /// Waits up to `limit` until somebody can be told.
    ///
    /// # Errors
    /// Why not, for a person.
    fn connect(&mut self, limit: Duration) -> Result<(), String>;

    /// Tells one; waits up to `limit` for room. What was taken is told sooner or later.
    ///
    /// # Errors
    /// It was not taken.
    fn tell(&mut self, announced: &Announced, limit: Duration) -> Result<(), Untold>;

    /// Waits up to `limit` until all that was taken is known to have arrived.
    ///
    /// # Errors
    /// Why it is not, for a person.
    fn settle(&mut self, limit: Duration) -> Result<(), String>;

    /// How many are known to have arrived.
    fn confirmed(&self) -> u64;

    /// How many of these nobody wanted to hear.
    fn unheard(&self) -> u64;
}

/// Why something was not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Untold {
    /// Nobody can be told at the moment.
    Away(String),
    /// It cannot be told at all.
    Never(String),
}

/// How far others were told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldNow {
    /// Announcements that have arrived since the mirror began.
    pub announced: u64,
    /// Changes that wait to be announced, or to be known to have arrived.
    pub waiting: u64,
    /// When the oldest of these was left to be announced.
    #[serde(default)]
    pub oldest: Option<Duration>,
    /// Announcements that nobody wanted to hear.
    pub unheard: u64,
    /// Why nothing can be announced.
    pub away: Option<String>,
}
