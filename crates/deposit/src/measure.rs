//! Sizes of deposits, by handles.

use crate::DepositError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;

/// Levels of directories that are measured: each needs a handle. Entries below are not counted.
const LEVELS_MAX: usize = 200;

/// Size of a tree.
#[derive(Debug, Default)]
pub(crate) struct TreeSize {
    /// Entries below the root.
    pub entries: u64,
    /// Bytes of files.
    pub bytes: u64,
}

/// Measures the entry `name` of a directory. Entries named in `skipped` are left out at its top.
/// Directories that this user cannot read or search, and entries that are removed meanwhile, count as empty.
///
/// # Errors
/// A directory cannot be listed.
pub(crate) fn measure(
    above: BorrowedFd<'_>,
    (name, path): (&OsStr, &Path),
    meta: &Stat,
    skipped: &[&str],
) -> Result<TreeSize, DepositError> {
    let mut size = TreeSize::default();
    size.add(meta);
    if !is_directory(meta) {
        return Ok(size);
    }
    let failed = || DepositError::call(path, "list it");
    let mut levels: Vec<(OwnedFd, Dir)> =
        open(above, name).map_err(failed())?.into_iter().collect();
    while let Some((_, list)) = levels.last_mut() {
        let Some(entry) = list.next() else {
            levels.pop();
            continue;
        };
        let entry = entry.map_err(failed())?;
        let name = entry.file_name();
        let is_skipped = |skipped: &&str| skipped.as_bytes() == name.to_bytes();
        let is_top = levels.len() == 1;
        if matches!(name.to_bytes(), b"." | b"..") || is_top && skipped.iter().any(is_skipped) {
            continue;
        }
        let (directory, depth) = match levels.last() {
            Some((directory, _)) => (directory, levels.len()),
            None => break,
        };
        let meta = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(meta) => meta,
            // The permissions of the directory may change meanwhile.
            Err(Errno::NOENT | Errno::ACCESS) => continue,
            Err(errno) => return Err(failed()(errno)),
        };
        size.entries += 1;
        size.add(&meta);
        if is_directory(&meta) && depth < LEVELS_MAX {
            let below = open(directory.as_fd(), name).map_err(failed())?;
            levels.extend(below);
        }
    }
    Ok(size)
}

impl TreeSize {
    fn add(&mut self, meta: &Stat) {
        if FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile {
            self.bytes += u64::try_from(meta.st_size).unwrap_or(0);
        }
    }
}

fn is_directory(meta: &Stat) -> bool {
    FileType::from_raw_mode(meta.st_mode) == FileType::Directory
}

/// Opens a directory and its list. Returns `None` if it is gone, or closed to this user.
fn open(
    above: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<Option<(OwnedFd, Dir)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(above, name, flags, Mode::empty()).and_then(|directory| {
        // Opens it again, which needs the permission to search it.
        let list = Dir::read_from(&directory)?;
        Ok((directory, list))
    });
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}
