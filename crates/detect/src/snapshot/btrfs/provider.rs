//! Read-only snapshots of a subvolume, in a folder in its root.
//!
//! A snapshot holds no other subvolume, so none of the snapshots: it has the empty folder alone.

use super::changes;
use super::search::ROOT_INODE;
use super::sequel::{DIRECTORY, open};
use super::since::changed_between;
use super::sys;
use crate::snapshot::program::Program;
use crate::snapshot::provider::{Provider, SnapshotError, followable, shown};
use crate::snapshot::sequence::in_sequence;
use driftless_model::{Change, RelPath, SNAPSHOTS};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, StatVfsMountFlags, mkdirat, openat, statat, statfs, statvfs,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `BTRFS_SUPER_MAGIC` (linux/magic.h).
const MAGIC: u32 = 0x9123_683e;

/// A subvolume of btrfs that this host has mounted.
#[derive(Debug, Clone)]
pub struct Subvolumes {
    root: PathBuf,
}

impl Subvolumes {
    /// Of the subvolume at `root`.
    pub fn of(root: &Path) -> Subvolumes {
        Subvolumes {
            root: root.to_owned(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.root.join(OsStr::from_bytes(SNAPSHOTS.to_bytes()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Whether the folder is there; refuses what stands in its place.
    fn has_folder(&self) -> Result<bool, SnapshotError> {
        let folder = self.folder();
        match statat(CWD, &folder, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => Ok(true),
            Ok(_) => Err(SnapshotError::NotFit {
                path: shown(&folder),
                why: "is a symbolic link or a file, where the folder for snapshots has to be: remove or rename it, and the folder is made",
            }),
            Err(Errno::NOENT) => Ok(false),
            Err(cause) => Err(SnapshotError::system(&folder, "look at the folder", cause)),
        }
    }

    /// Opens the root, to which a link may lead.
    fn open_root(&self) -> Result<OwnedFd, Errno> {
        openat(CWD, &self.root, DIRECTORY, Mode::empty())
    }
}

impl Provider for Subvolumes {
    fn check(&self) -> Result<(), SnapshotError> {
        let not_fit = |why| SnapshotError::NotFit {
            path: shown(&self.root),
            why,
        };
        let system = |cause| SnapshotError::system(&self.root, "look at the tree", cause);
        let file_system = statfs(&self.root).map_err(system)?;
        if file_system.f_type as u32 != MAGIC {
            return Err(not_fit(
                "is not on btrfs, which alone has such snapshots; \"fanotify\" and \"walk\" need none",
            ));
        }
        let stat = statat(CWD, &self.root, AtFlags::empty()).map_err(system)?;
        if stat.st_ino != ROOT_INODE {
            return Err(not_fit(
                "is a directory within a subvolume of btrfs; snapshots are made of whole subvolumes (btrfs subvolume create)",
            ));
        }
        Program::new("btrfs", ["version"]).run()
    }

    fn check_open(&self) -> Result<(), SnapshotError> {
        let not_fit = |why| SnapshotError::NotFit {
            path: shown(&self.root),
            why,
        };
        let _made_later = self.has_folder()?;
        let system = |cause| SnapshotError::system(&self.root, "look at the tree", cause);
        let mounted = statvfs(&self.root).map_err(system)?;
        if mounted.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(not_fit(
                "is mounted read-only, so no snapshot can be made in it (mount -o remount,rw)",
            ));
        }
        if self.is_read_only()? {
            return Err(not_fit(
                "is closed to all changes by its property ro=true, so no snapshot can be made in it (btrfs property set -ts SOURCE ro false)",
            ));
        }
        Ok(())
    }

    // Others have no business in the folder: a snapshot shows what its owner may have taken away
    // since.
    fn prepare(&self) -> Result<(), SnapshotError> {
        // A tree that is closed to changes may have one.
        if self.has_folder()? {
            return Ok(());
        }
        let folder = self.folder();
        match mkdirat(CWD, &folder, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(cause) => Err(SnapshotError::system(&folder, "make the folder", cause)),
        }
    }

    fn create(&self, name: &str) -> Result<(), SnapshotError> {
        let path = self.path(name);
        let done = c_string(name).and_then(|name| {
            let (root, folder) = (self.open_root()?, open(&self.folder())?);
            sys::snapshot(root.as_fd(), folder.as_fd(), &name)
        });
        done.map_err(|cause| SnapshotError::system(&path, "make the snapshot", cause))
    }

    fn list(&self) -> Result<BTreeMap<String, PathBuf>, SnapshotError> {
        let folder = self.folder();
        let failed = |cause| SnapshotError::system(&folder, "list the snapshots", cause);
        if !self.has_folder()? {
            return Ok(BTreeMap::new());
        }
        let fd = open(&folder).map_err(failed)?;
        let mut found = BTreeMap::new();
        for entry in Dir::new(fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().ok();
            let Some(name) = name.filter(|name| !matches!(*name, "." | "..")) else {
                continue;
            };
            let path = folder.join(name);
            // What is no subvolume is no snapshot, whatever its name.
            match statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat)
                    if stat.st_ino == ROOT_INODE
                        && FileType::from_raw_mode(stat.st_mode).is_dir() =>
                {
                    found.insert(name.to_owned(), path);
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(cause) => return Err(failed(cause)),
            }
        }
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<(), SnapshotError> {
        let path = self.path(name);
        let done =
            c_string(name).and_then(|name| sys::delete(open(&self.folder())?.as_fd(), &name));
        done.map_err(|cause| SnapshotError::system(&path, "delete the snapshot", cause))
    }

    /// A subvolume is drawn a number when it is made, and notes the transaction in which an inode of
    /// it was changed last (`ctransid` of `BTRFS_IOC_GET_SUBVOL_INFO`). A snapshot that somebody makes
    /// of it changes the generation of its tree, and nothing in it.
    fn identity(&self, name: &str) -> Result<Option<String>, SnapshotError> {
        let path = self.path(name);
        let info = open(&path).and_then(|root| sys::subvolume(root.as_fd()));
        let info =
            info.map_err(|cause| SnapshotError::system(&path, "look at the snapshot", cause))?;
        let number = u128::from_be_bytes(info.uuid);
        Ok(Some(format!("{number:032x}:{}", info.changed_in)))
    }

    fn is_read_only(&self) -> Result<bool, SnapshotError> {
        let told = self
            .open_root()
            .and_then(|root| sys::is_read_only(root.as_fd()));
        told.map_err(|cause| {
            SnapshotError::system(&self.root, "read whether it is read-only", cause)
        })
    }

    fn set_read_only(&self, is_read_only: bool) -> Result<(), SnapshotError> {
        if self.is_read_only()? == is_read_only {
            return Ok(());
        }
        let act = if is_read_only {
            "close the tree to changes"
        } else {
            "open the tree to changes"
        };
        let done = self
            .open_root()
            .and_then(|root| sys::set_read_only(root.as_fd(), is_read_only));
        done.map_err(|cause| SnapshotError::system(&self.root, act, cause))
    }

    fn diff(&self, older: &str, newer: &str) -> Result<Vec<Change>, SnapshotError> {
        let [older, newer] = [older, newer].map(|name| self.path(name));
        let folder = RelPath::parse(SNAPSHOTS.to_bytes()).expect("a name");
        let found = match changed_between(&older, &newer)? {
            Some(found) => in_sequence(found),
            None => followable(sent(&older, &newer)?, &newer),
        };
        let is_told = |change: &Change| !change.path.is_within(&folder);
        Ok(found.into_iter().filter(is_told).collect())
    }
}

fn c_string(name: &str) -> Result<CString, Errno> {
    CString::new(name).map_err(|_nul| Errno::INVAL)
}

/// The same, as the program says when it sends it to somebody who has `older`.
fn sent(older: &Path, newer: &Path) -> Result<Vec<Change>, SnapshotError> {
    let words = ["send", "-q", "--no-data", "-p"].map(OsStr::new);
    let paths = [older.as_os_str(), newer.as_os_str()];
    Program::new("btrfs", words.into_iter().chain(paths))
        .print(|printed| Ok(changes(BufReader::new(printed))?))
}
