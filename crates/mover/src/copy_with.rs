//! A program of the user's that moves the content of files (`--copy-with`), as the mover sees it.

use crate::spot::Trouble;
use std::fmt::Debug;
use std::path::Path;

/// Moves the content of files by means of its own.
pub trait Carrier: Debug + Send + Sync {
    /// Asked before anything is touched.
    ///
    /// # Errors
    /// It cannot be used at all.
    fn check(&self) -> Result<(), Unusable>;
    /// Makes the file `replica`, which is not there, with the content of the file `source`. Nothing
    /// that it started goes on when this returns, which it does soon after `stopped` says so.
    fn carry(
        &self,
        source: &Path,
        replica: &Path,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), Undone>;
}

/// A carrier cannot be used: what it is, and why not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; nothing was touched")]
pub struct Unusable(pub String);

/// Why a carrier did not do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// It was asked to stop.
    Stopped,
    /// It failed: how, in words.
    Failed(String),
}

impl From<Undone> for Trouble {
    fn from(undone: Undone) -> Self {
        match undone {
            Undone::Stopped => Trouble::Stopped,
            Undone::Failed(cause) => Trouble::Undone(cause),
        }
    }
}
