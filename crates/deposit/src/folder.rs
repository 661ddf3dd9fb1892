//! Open directory of a home, which the home and its drafts share.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, statat};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Open directory of a home.
#[derive(Debug, Clone)]
pub(crate) struct HomeFolder {
    handle: Arc<OwnedFd>,
    path: PathBuf,
}

impl HomeFolder {
    pub fn new(handle: OwnedFd, path: &Path) -> Self {
        HomeFolder {
            handle: Arc::new(handle),
            path: path.to_owned(),
        }
    }

    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn has(&self, name: &OsStr) -> bool {
        statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}
