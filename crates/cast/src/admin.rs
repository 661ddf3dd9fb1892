//! Questions about a node on this host: its copies, their removal and their verification.
//!
//! A daemon answers over a Unix socket. Without a daemon, the caller's process opens the store.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Error of a question to a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The store failed.
    #[error(transparent)]
    Node(#[from] Error),
    /// The daemon answers this user no questions.
    #[error(
        "{}: the daemon belongs to another user; ask as that user or as root",
        driftless_model::quote(.0)
    )]
    Denied(PathBuf),
    /// The daemon cannot be asked.
    #[error(
        "{}: cannot ask the daemon: {}; check that it runs",
        driftless_model::quote(path),
        driftless_model::cause(cause)
    )]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Cause.
        cause: io::Error,
    },
    /// The daemon answered with an error.
    #[error("{0}")]
    Refused(String),
}

/// State of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Whether a daemon runs.
    pub has_daemon: bool,
    /// Key of the daemon, 64 hexadecimal digits.
    pub key: Option<String>,
    /// Address and port for coordinators.
    pub address: Option<String>,
    /// Casts at work.
    pub casts: u32,
    /// Bytes of cached copies.
    pub cached_bytes: u64,
    /// Bytes of cached copies at most.
    pub cache_bytes_max: Option<u64>,
    /// Copies, finished or not.
    pub copies: Vec<HeldCopyInfo>,
}

/// A copy that a node holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCopyInfo {
    /// Number.
    pub copy: u64,
    /// Root hash of the data set, 64 hexadecimal digits.
    pub set: String,
    /// Directory that holds the copy.
    pub place: PathBuf,
    /// Names at the place.
    pub names: Vec<String>,
    /// Bytes of content.
    pub bytes: u64,
    /// State: "complete", "unfinished" or "damaged".
    pub state: String,
    /// Whether the copy is in the cache.
    pub is_cached: bool,
    /// Jobs that refer to the copy.
    pub jobs: Vec<String>,
    /// Whether the copy stays until it is purged.
    pub is_pinned: bool,
    /// Seconds since 1970 after which it may go.
    pub expires: Option<u64>,
    /// Seconds since 1970 of the last use.
    pub used: u64,
}

/// Copies to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PurgeSelection {
    /// A copy by its number.
    Copy(u64),
    /// Each copy of a data set, by its root hash.
    Set(String),
    /// Copies that only this job needs. The job's references end.
    Job(String),
    /// Each copy.
    All,
}

/// Result of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeSummary {
    /// Copies that were removed.
    pub copies: u64,
    /// Bytes of content that were removed.
    pub bytes: u64,
    /// Entries that stay because driftless did not place them, or they cannot be removed.
    pub kept: Vec<String>,
}

/// Result of a verification of one copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckSummary {
    /// Number of the copy.
    pub copy: u64,
    /// Root hash of the data set.
    pub set: String,
    /// Bytes that were hashed.
    pub bytes: u64,
    /// Entries with other content or metadata.
    pub changed: Vec<String>,
    /// Entries that are missing.
    pub missing: Vec<String>,
    /// Entries that the data set lacks.
    pub extra: Vec<String>,
}

impl CheckSummary {
    /// Whether the copy has each entry as it was placed.
    pub fn is_sound(&self) -> bool {
        self.changed.is_empty() && self.missing.is_empty()
    }
}

/// Returns the state of the node with this directory.
///
/// # Errors
/// Fails if the store or the daemon cannot be read.
pub fn node_info(_dir: &Path) -> Result<NodeInfo, AdminError> {
    Err(Error::Stopped.into())
}

/// Removes copies from the node with this directory.
///
/// # Errors
/// Fails if the store or the daemon cannot be read, or the selection names no copy.
pub fn purge_node(_dir: &Path, _what: &PurgeSelection) -> Result<PurgeSummary, AdminError> {
    Err(Error::Stopped.into())
}

/// Hashes copies of the node with this directory again: one, or each finished copy if `None`.
/// A damaged copy is not served any more.
///
/// # Errors
/// Fails if the store or the daemon cannot be read, or the number names no copy.
pub fn verify_node(_dir: &Path, _copy: Option<u64>) -> Result<Vec<CheckSummary>, AdminError> {
    Err(Error::Stopped.into())
}
