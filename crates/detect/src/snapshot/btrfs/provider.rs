//! Read-only snapshots of a subvolume, in a folder in its root.
//!
//! A snapshot holds no other subvolume, so none of the snapshots: it has the empty folder alone.

use super::changes;
use super::search::ROOT_INODE;
use super::since::changed_between;
use crate::snapshot::program::Program;
use crate::snapshot::provider::{Provider, SnapshotError, followable, shown};
use driftless_model::{Change, RelPath, SNAPSHOTS};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, mkdirat, openat, statat, statfs};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufReader, Read};
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

    // Others have no business in the folder: a snapshot shows what its owner may have taken away
    // since.
    fn prepare(&self) -> Result<(), SnapshotError> {
        let folder = self.folder();
        // A tree that is closed to changes may have one.
        if statat(CWD, &folder, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        match mkdirat(CWD, &folder, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(cause) => Err(SnapshotError::system(&folder, "make the folder", cause)),
        }
    }

    fn create(&self, name: &str) -> Result<(), SnapshotError> {
        let words = ["subvolume", "snapshot", "-r"].map(OsStr::new);
        let path = self.path(name);
        let paths = [self.root.as_os_str(), path.as_os_str()];
        Program::new("btrfs", words.into_iter().chain(paths)).run()
    }

    fn list(&self) -> Result<BTreeMap<String, PathBuf>, SnapshotError> {
        let folder = self.folder();
        let failed = |cause| SnapshotError::system(&folder, "list the snapshots", cause);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(CWD, &folder, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(BTreeMap::new()),
            Err(cause) => return Err(failed(cause)),
        };
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
        let words = ["subvolume", "delete"].map(OsStr::new);
        let path = self.path(name);
        Program::new("btrfs", words.into_iter().chain([path.as_os_str()])).run()
    }

    fn is_read_only(&self) -> Result<bool, SnapshotError> {
        let words = ["property", "get", "-ts"].map(OsStr::new);
        let words = words
            .into_iter()
            .chain([self.root.as_os_str(), OsStr::new("ro")]);
        Program::new("btrfs", words).print(|printed| {
            let mut said = String::new();
            let _what_is_no_text_says_nothing = printed.read_to_string(&mut said);
            Ok(said.trim() == "ro=true")
        })
    }

    fn set_read_only(&self, is_read_only: bool) -> Result<(), SnapshotError> {
        if self.is_read_only()? == is_read_only {
            return Ok(());
        }
        let words = ["property", "set", "-ts"].map(OsStr::new);
        let value = OsStr::new(if is_read_only { "true" } else { "false" });
        let rest = [self.root.as_os_str(), OsStr::new("ro"), value];
        Program::new("btrfs", words.into_iter().chain(rest)).run()
    }

    fn diff(&self, older: &str, newer: &str) -> Result<Vec<Change>, SnapshotError> {
        let [older, newer] = [older, newer].map(|name| self.path(name));
        let folder = RelPath::parse(SNAPSHOTS.to_bytes()).expect("a name");
        let mut found = match changed_between(&older, &newer)? {
            Some(found) => found,
            None => sent(&older, &newer)?,
        };
        found.retain(|change| !change.path.is_within(&folder));
        Ok(followable(found, &newer))
    }
}

/// The same, as the program says when it sends it to somebody who has `older`.
fn sent(older: &Path, newer: &Path) -> Result<Vec<Change>, SnapshotError> {
    let words = ["send", "-q", "--no-data", "-p"].map(OsStr::new);
    let paths = [older.as_os_str(), newer.as_os_str()];
    Program::new("btrfs", words.into_iter().chain(paths))
        .print(|printed| Ok(changes(BufReader::new(printed))?))
}
