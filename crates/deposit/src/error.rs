//! Errors of deposits. Each message names the path, the cause and the remedy.

use driftless_model::{cause, quote};
use rustix::io::Errno;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A call of this crate that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DepositError {
    /// The name of the user cannot name a directory.
    #[error("user {}: the name cannot name a directory of deposits; it is empty or too long, begins with \".\" or contains \"/\"", quote(Path::new(.0)))]
    UserName(String),
    /// This process cannot create directories for this user.
    #[error("user {}: only root can create the directory of another user; use a gateway of root", quote(Path::new(.0)))]
    OtherUser(String),
    /// A symbolic link or file has the name of a directory.
    #[error("{}: it is no directory (a symbolic link is not followed); remove it, or name another directory", quote(.0))]
    NoDirectory(PathBuf),
    /// A directory belongs to another user.
    #[error(
        "{}: it belongs to UID {found}, not to UID {wanted}; change its owner, or remove it",
        quote(path)
    )]
    Owner {
        /// Path of the directory.
        path: PathBuf,
        /// UID of the owner.
        found: u32,
        /// UID that must be the owner.
        wanted: u32,
    },
    /// The permissions of a directory let other users in.
    #[error(
        "{}: its permissions are open to other users (mode {mode:04o}); set mode {wanted:04o}",
        quote(path)
    )]
    OpenToOthers {
        /// Path of the directory.
        path: PathBuf,
        /// Mode that was found.
        mode: u32,
        /// Mode that is safe.
        wanted: u32,
    },
    /// The name cannot name a deposit.
    #[error("{}: this name cannot name a deposit; it is empty or longer than 250 bytes, begins with \".\" or contains \"/\"", quote(Path::new(.0)))]
    Name(OsString),
    /// A deposit has the name already.
    #[error("{}: this deposit exists; choose another name, replace it, or remove it first", quote(.0))]
    Exists(PathBuf),
    /// No deposit has the name.
    #[error("{}: no such deposit; list the deposits for their names", quote(.0))]
    Missing(PathBuf),
    /// Another process makes or removes a deposit of this name.
    #[error("{}: another process makes or removes this deposit; wait for its end, or choose another name", quote(.0))]
    Busy(PathBuf),
    /// The file system cannot exchange two names at once.
    #[error("{}: cannot replace it: this file system cannot exchange two names; remove the deposit first", quote(.0))]
    NoExchange(PathBuf),
    /// Another file system is mounted in a deposit.
    #[error("{}: cannot remove it: another file system is mounted in it; unmount that first", quote(.0))]
    Mounted(PathBuf),
    /// A system call failed.
    #[error("{}: cannot {act}: {}; check its directory and file system", quote(path), cause(&std::io::Error::from(*errno)))]
    Call {
        /// Path.
        path: PathBuf,
        /// Action that failed, as a verb with its object.
        act: &'static str,
        /// Cause.
        errno: Errno,
    },
}

impl DepositError {
    /// Returns whether a call failed because the file system or the quota is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self,
            DepositError::Call {
                errno: Errno::NOSPC | Errno::DQUOT,
                ..
            }
        )
    }

    /// Returns the conversion of an errno for a path.
    pub(crate) fn call(path: &Path, act: &'static str) -> impl FnOnce(Errno) -> Self + use<> {
        let path = path.to_owned();
        move |errno| match errno {
            // open(2): O_DIRECTORY or O_NOFOLLOW met another type of entry.
            Errno::NOTDIR | Errno::LOOP => DepositError::NoDirectory(path),
            errno => DepositError::Call { path, act, errno },
        }
    }
}
