//! Paths for a program that this process starts. They lead through this process's open handles
//! (`/proc/PID/fd/N`, proc_pid_fd(5)), so whatever is put in the way meanwhile is not followed.
//!
//! The process is named by its number, not as `self`: the program inherits no descriptor, so none
//! has to be kept open across exec(2), where every other program that is started at the same moment
//! would get it, too. A program that closes what it has inherited before it starts another one does
//! no harm either. Whoever may act as this process's user may use such a path, nobody else.

use crate::{Done, LocalDir, LocalFile};
use rustix::fd::{AsRawFd, OwnedFd};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A path that can be used as long as this value lives.
#[derive(Debug)]
pub struct Lent {
    /// The path.
    pub path: PathBuf,
    _open: Arc<OwnedFd>,
}

fn through(fd: &OwnedFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()).into()
}

impl LocalFile {
    /// A path to this very file, as long as the file is open. It is a link of the kernel's
    /// (proc_pid_fd(5)), so the program has to follow it.
    pub fn lend(&self) -> PathBuf {
        through(&self.fd)
    }
}

impl LocalDir {
    /// A path to the entry `name` of this very directory.
    pub fn lend(&self, name: &CStr) -> Done<Lent> {
        let open = self.fd()?;
        Ok(Lent {
            path: through(&open).join(OsStr::from_bytes(name.to_bytes())),
            _open: open,
        })
    }
}
