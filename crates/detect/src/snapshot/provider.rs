//! Who makes snapshots of a tree.

use super::btrfs::StreamError;
use super::gpfs::{BadSnapshot, ListError, SummaryError, TableError};
use super::in_sequence;
use super::zfs::ZfsError;
use crate::list::BadLine;
use driftless_model::{Change, Hint, RelPath, Scope, escape};
use rustix::fs::{AtFlags, CWD, FileType, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Makes read-only snapshots of a tree, and tells what differs between two. Snapshots are told by
/// their names: letters, digits and `-_.`.
pub trait Provider: Send {
    /// Whether it can be done at all; nothing is made.
    ///
    /// # Errors
    /// Why not.
    fn check(&self) -> Result<(), SnapshotError>;

    /// Whether a snapshot of the tree can be made as it is now; nothing is made. One that is closed to
    /// changes may be open later.
    ///
    /// # Errors
    /// Why not.
    fn check_open(&self) -> Result<(), SnapshotError> {
        Ok(())
    }

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

    /// All snapshots by their names, and where each is read; those that somebody else has made too.
    ///
    /// # Errors
    /// They cannot be listed.
    fn list(&self) -> Result<BTreeMap<String, PathBuf>, SnapshotError>;

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

    /// What tells a snapshot from every other one that had its name, and from itself before it was
    /// changed; `None` where nobody can tell.
    ///
    /// # Errors
    /// It is not there, or cannot be looked at.
    fn identity(&self, name: &str) -> Result<Option<String>, SnapshotError> {
        let _nobody_can_tell = name;
        Ok(None)
    }

    /// Whether the tree itself is closed to all changes; false where its file system cannot do
    /// that.
    ///
    /// # Errors
    /// It is not known.
    fn is_read_only(&self) -> Result<bool, SnapshotError> {
        Ok(false)
    }

    /// Closes the tree to all changes, or opens it; nothing is done where its file system cannot.
    ///
    /// # Errors
    /// It is as it was.
    fn set_read_only(&self, is_read_only: bool) -> Result<(), SnapshotError> {
        let _it_cannot_be_done_here = is_read_only;
        Ok(())
    }
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
    /// What ZFS tells is not understood.
    #[error(transparent)]
    Zfs(#[from] ZfsError),
    /// What GPFS lists is not understood.
    #[error("mmlssnapshot: {0}")]
    Table(#[from] TableError),
    /// So is what its policy engine says of a scan.
    #[error("mmapplypolicy: {0}")]
    Summary(#[from] SummaryError),
    /// So is the list of the scan.
    #[error("mmapplypolicy: {0}")]
    Objects(#[from] ListError),
    /// A snapshot of GPFS cannot be named.
    #[error(transparent)]
    Name(#[from] BadSnapshot),
    /// More differs than memory is planned for.
    #[error("more than {0} names were added or removed")]
    TooMany(usize),
    /// What the site's own command tells is not understood.
    #[error("command.diff: {0}")]
    Diff(#[from] BadLine),
    /// So is what it lists.
    #[error("command.list: \"{0}\" is not a name, a tab and an absolute path")]
    List(String),
    /// A snapshot was made, and is not listed.
    #[error(
        "snapshot {0}: cannot find it after its creation; check whether another program deletes snapshots"
    )]
    Absent(String),
    /// The system refuses something.
    #[error("{path}: cannot {what}: {}", driftless_model::cause(&(*cause).into()))]
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

/// Changes that can be followed one after another. Of what was only moved it may not be told what
/// it is; the newer snapshot shows it.
pub(super) fn followable(mut changes: Vec<Change>, newer: &Path) -> Vec<Change> {
    for change in &mut changes {
        let is_moved = matches!(change.hint, Some(Hint::MovedFrom(_)));
        if is_moved && is_directory(newer, &change.path) == Some(false) {
            change.scope = Scope::Entry;
        }
    }
    in_sequence(changes)
}

/// Whether a path of a snapshot is a directory, if that can be seen.
fn is_directory(snapshot: &Path, path: &RelPath) -> Option<bool> {
    let full = snapshot.join(OsStr::from_bytes(path.as_bytes()));
    let stat = statat(CWD, &full, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

pub(super) fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}
