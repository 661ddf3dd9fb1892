//! Directories that are open in two snapshots at the same time, and their names.

use crate::snapshot::provider::SnapshotError;
use driftless_model::RelPath;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Of a directory with more names than this all below it is looked at: each takes some 100 bytes.
const NAMES_MAX: usize = 4 << 20;
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What a listing shows of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) inode: u64,
    pub(super) is_dir: bool,
}

/// The entries of a directory by their names.
pub(super) type Named = BTreeMap<Vec<u8>, Shown>;

/// Where a directory stands in both snapshots.
#[derive(Debug, Clone, Default)]
pub(super) struct Pair {
    pub(super) older: RelPath,
    pub(super) newer: RelPath,
}

impl Pair {
    /// The entry of this name in it.
    pub(super) fn join(&self, name: &[u8]) -> Pair {
        Pair {
            older: self.older.join(name),
            newer: self.newer.join(name),
        }
    }
}

/// The roots of both snapshots.
pub(super) struct Roots {
    older: Root,
    newer: Root,
}

impl Roots {
    pub(super) fn open(older: &Path, newer: &Path) -> Result<Roots, SnapshotError> {
        Ok(Roots {
            older: Root::open(older)?,
            newer: Root::open(newer)?,
        })
    }

    /// Opens a directory in both; none if it is another one in each.
    pub(super) fn enter(&self, pair: &Pair) -> Result<Option<Dirs>, SnapshotError> {
        let older = self.older.enter(&pair.older)?;
        let newer = self.newer.enter(&pair.newer)?;
        let Some((older, newer)) = older.zip(newer) else {
            return Ok(None);
        };
        let was = self.older.failing(fstat(&older))?;
        let is = self.newer.failing(fstat(&newer))?;
        // Roots have numbers of their own.
        let is_same = pair.newer.is_root() || was.st_ino == is.st_ino;
        Ok(is_same.then_some(Dirs { older, newer }))
    }

    /// The names of a directory in both; none if there are too many.
    pub(super) fn names(&self, dirs: &Dirs) -> Result<Option<[Named; 2]>, SnapshotError> {
        let older = self.older.names(&dirs.older)?;
        let newer = self.newer.names(&dirs.newer)?;
        Ok(older.zip(newer).map(|(older, newer)| [older, newer]))
    }

    /// The names of a directory of the newer snapshot; none if there are too many.
    pub(super) fn names_of_new(&self, path: &RelPath) -> Result<Option<Named>, SnapshotError> {
        match self.newer.enter(path)? {
            Some(dir) => self.newer.names(&dir),
            None => Ok(None),
        }
    }
}

/// A directory of both.
pub(super) struct Dirs {
    older: OwnedFd,
    newer: OwnedFd,
}

impl Dirs {
    pub(super) fn both(&self) -> [BorrowedFd<'_>; 2] {
        [self.older.as_fd(), self.newer.as_fd()]
    }
}

/// The root of a snapshot.
struct Root {
    path: PathBuf,
    fd: OwnedFd,
}

impl Root {
    fn open(path: &Path) -> Result<Root, SnapshotError> {
        let opened = openat(CWD, path, FLAGS, Mode::empty());
        let fd = opened.map_err(|cause| SnapshotError::system(path, "open the snapshot", cause))?;
        Ok(Root {
            path: path.to_owned(),
            fd,
        })
    }

    fn failing<T>(&self, done: Result<T, Errno>) -> Result<T, SnapshotError> {
        done.map_err(|cause| SnapshotError::system(&self.path, "read the snapshot", cause))
    }

    /// Opens the directory at a path; none if there is none.
    fn enter(&self, path: &RelPath) -> Result<Option<OwnedFd>, SnapshotError> {
        // A handle of its own: one that was listed stands at the end.
        let mut dir = self.failing(openat(&self.fd, c".", FLAGS, Mode::empty()))?;
        for name in path.names() {
            match openat(&dir, name, FLAGS, Mode::empty()) {
                Ok(below) => dir = below,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(cause) => return self.failing(Err(cause)),
            }
        }
        Ok(Some(dir))
    }

    fn names(&self, dir: &OwnedFd) -> Result<Option<Named>, SnapshotError> {
        let mut named = Named::new();
        for entry in self.failing(Dir::read_from(dir))? {
            let entry = self.failing(entry)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if named.len() == NAMES_MAX {
                return Ok(None);
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = self.failing(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW))?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            let shown = Shown {
                inode: entry.ino(),
                is_dir: kind == FileType::Directory,
            };
            named.insert(name.to_bytes().to_vec(), shown);
        }
        Ok(Some(named))
    }
}
