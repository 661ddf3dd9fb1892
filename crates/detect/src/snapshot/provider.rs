//! Who makes snapshots of a tree.

use super::btrfs::StreamError;
use driftless_model::{Change, escape};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Makes read-only snapshots of a tree, and tells what differs between two. Snapshots are told by
/// their names: letters, digits and `-_.`.
pub trait Provider: Send {
    /// Whether it can be done at all; nothing is made.
    ///
    /// # Errors
    /// Why not.
    fn check(&self) -> Result<(), SnapshotError>;

    /// Makes the place for snapshots, which may be in the tree's root, so that no snapshot changes
    /// the tree's times.
    ///
    /// # Errors
    /// There is none.
    fn prepare(&self) -> Result<(), SnapshotError>;

    /// Makes a snapshot of the tree as it is.
    ///
    /// # Errors
    /// There is none of that name.
    fn create(&self, name: &str) -> Result<(), SnapshotError>;

    /// The names of all snapshots, those that somebody else has made too.
    ///
    /// # Errors
    /// They cannot be listed.
    fn list(&self) -> Result<BTreeSet<String>, SnapshotError>;

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// It is still there, or part of it.
    fn delete(&self, name: &str) -> Result<(), SnapshotError>;

    /// What makes one of an older snapshot: moves first, in an order in which they can be followed
    /// one after another.
    ///
    /// # Errors
    /// It is not known.
    fn diff(&self, older: &str, newer: &str) -> Result<Vec<Change>, SnapshotError>;

    /// Where a snapshot is read.
    fn path(&self, name: &str) -> PathBuf;
}

/// Why something could not be done with snapshots.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The tree is not one that this kind of snapshots is made of.
    #[error("{path}: {why}")]
    NotFit {
        /// The tree.
        path: String,
        /// Why not, and what else to do.
        why: &'static str,
    },
    /// A program failed.
    #[error("{program}: {what}")]
    Program {
        /// Its name.
        program: String,
        /// What it says, or why it does not run.
        what: String,
    },
    /// What btrfs sends is not understood.
    #[error("btrfs send: {0}")]
    Stream(#[from] StreamError),
    /// The system refuses something.
    #[error("{path}: {what}: {}", driftless_model::cause(&(*cause).into()))]
    System {
        /// Where.
        path: String,
        /// What was tried.
        what: &'static str,
        /// Why not.
        cause: Errno,
    },
}

impl SnapshotError {
    pub(super) fn system(path: &Path, what: &'static str, cause: Errno) -> SnapshotError {
        SnapshotError::System {
            path: shown(path),
            what,
            cause,
        }
    }
}

pub(super) fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}
