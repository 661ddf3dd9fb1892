//! Values in which a node reports about its copies, to local users and to coordinators.

use driftless_store::StayingCopy;
use serde::{Deserialize, Serialize};

/// A copy that a removal left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StayingCopyInfo {
    /// Number of the copy.
    pub copy: u64,
    /// Cause and remedy.
    pub reason: String,
    /// Whether another process is at work on the copy.
    pub is_busy: bool,
}

impl From<StayingCopy> for StayingCopyInfo {
    fn from(stays: StayingCopy) -> Self {
        StayingCopyInfo {
            copy: stays.copy,
            reason: stays.cause,
            is_busy: stays.is_busy,
        }
    }
}
