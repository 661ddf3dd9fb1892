//! Removal of all content of a draft's folder, by handles and without recursion.
//!
//! Each directory moves to the top of the folder before it is emptied. So the depth of a tree needs
//! neither memory nor handles. Directories without permissions are opened first: users may remove
//! their own deposits, whatever modes they copied. Nothing below a mount point is removed.

use crate::DepositError;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, chmodat, fstat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::CString;
use std::path::Path;

/// Names that are held of one directory at a time.
const NAMES_MAX: usize = 4096;
/// Permissions that a directory needs to be emptied and moved.
const OWNER_ALL: u32 = 0o700;
/// Begin of the name of a directory that was moved to the top.
const MOVED: &str = ".removed-";

/// Removes all entries of `folder` but `kept`.
///
/// # Errors
/// An entry cannot be removed, or another file system is mounted on it.
pub(crate) fn sweep(folder: BorrowedFd<'_>, path: &Path, kept: &str) -> Result<(), DepositError> {
    let device = fstat(folder).map_err(DepositError::call(path, "read its attributes"))?;
    let mut sweeper = Sweeper {
        folder,
        path,
        device: device.st_dev,
        moved: 0,
    };
    loop {
        let names = sweeper.names(folder, kept)?;
        if names.is_empty() {
            return Ok(());
        }
        names.iter().try_for_each(|name| sweeper.remove(name))?;
    }
}

struct Sweeper<'a> {
    folder: BorrowedFd<'a>,
    path: &'a Path,
    device: u64,
    /// Number of directories that were moved to the top.
    moved: u64,
}

impl Sweeper<'_> {
    /// Removes an entry at the top. Directories in it move to the top.
    fn remove(&mut self, name: &CString) -> Result<(), DepositError> {
        let unlinked = unlinkat(self.folder, name, AtFlags::empty());
        match unlinked {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // unlink(2): Linux says so of a directory, POSIX `EPERM`.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(self.failed("remove an entry")(errno)),
        }
        let meta = statat(self.folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(self.failed("read its attributes"))?;
        if FileType::from_raw_mode(meta.st_mode) != FileType::Directory {
            return Err(self.failed("remove an entry")(Errno::PERM));
        }
        if meta.st_dev != self.device {
            return Err(DepositError::Mounted(self.path.to_owned()));
        }
        let mode = Mode::from_raw_mode(OWNER_ALL);
        if meta.st_mode & OWNER_ALL != OWNER_ALL {
            chmodat(self.folder, name, mode, AtFlags::empty())
                .map_err(self.failed("open a directory to its owner"))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(self.folder, name, flags, Mode::empty())
            .map_err(self.failed("open a directory"))?;
        loop {
            let names = self.names(directory.as_fd(), "")?;
            if names.is_empty() {
                break;
            }
            for name in &names {
                self.clear(directory.as_fd(), name)?;
            }
        }
        unlinkat(self.folder, name, AtFlags::REMOVEDIR).map_err(self.failed("remove a directory"))
    }

    /// Removes a file of a directory, or moves a directory of it to the top.
    fn clear(&mut self, directory: BorrowedFd<'_>, name: &CString) -> Result<(), DepositError> {
        match unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(self.failed("remove an entry")(errno)),
        }
        self.moved += 1;
        let moved = format!("{MOVED}{}", self.moved);
        let mut done = renameat(directory, name, self.folder, &*moved);
        if done == Err(Errno::ACCESS) {
            // A directory that moves needs the permission to write to it (rename(2)).
            let mode = Mode::from_raw_mode(OWNER_ALL);
            chmodat(directory, name, mode, AtFlags::empty())
                .map_err(self.failed("open a directory to its owner"))?;
            done = renameat(directory, name, self.folder, &*moved);
        }
        match done {
            // The name is taken by the leftover of a removal that was killed: the next one is tried
            // when the directory is listed again.
            Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(Errno::BUSY | Errno::XDEV) => Err(DepositError::Mounted(self.path.to_owned())),
            Err(errno) => Err(self.failed("move a directory")(errno)),
        }
    }

    /// Returns some names of a directory.
    fn names(&self, directory: BorrowedFd<'_>, kept: &str) -> Result<Vec<CString>, DepositError> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory).map_err(self.failed("list a directory"))? {
            let entry = entry.map_err(self.failed("list a directory"))?;
            let name = entry.file_name();
            let bytes = name.to_bytes();
            if bytes != b"." && bytes != b".." && bytes != kept.as_bytes() {
                names.push(name.to_owned());
            }
            if names.len() == NAMES_MAX {
                break;
            }
        }
        Ok(names)
    }

    fn failed(&self, act: &'static str) -> impl FnOnce(Errno) -> DepositError + use<> {
        DepositError::call(self.path, act)
    }
}
