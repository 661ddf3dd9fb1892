//! Directories that movers leave to the coordinator.

use driftless_model::Meta;
use serde::{Deserialize, Serialize};

/// What was known of a source's directory when it was left to be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listed {
    /// It was like this when all its names were read.
    As(Meta),
    /// It has changed since, and must be listed again.
    Changed,
    /// Only some paths in it are looked at, so it need not be listed.
    InPart,
}

/// A directory that several movers share, or that waits for hard links: the coordinator
/// finishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// What was known of the source's.
    pub listed: Listed,
    /// The run made the replica's.
    pub made: bool,
    /// It took the place of something else.
    pub replaced: bool,
    /// The source could not be listed to its end.
    pub unlisted: bool,
}
