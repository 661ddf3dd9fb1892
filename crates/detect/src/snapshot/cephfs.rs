//! Snapshots of a directory of CephFS: a name that is made in its `.snap` is one, and is read there.
//!
//! CephFS keeps with each directory the newest change time of all below it, and how much there is.
//! Where these are in the newer snapshot what they were in the older one, nothing below differs,
//! and nothing below is opened. Elsewhere names and entries are compared. Source: the pages "CephFS
//! Snapshots" and "Extended attributes" of the Ceph documentation, fs/ceph/xattr.c of Linux.
//!
//! These sums come to a directory some time after the change, and to a snapshot maybe never
//! (`mds_snap_rstat`). So what has changed shortly before the older snapshot was made is looked at
//! once more, by the times of the entries themselves. A client whose clock is behind by more than
//! that can make a change that no sum shows: a comparison of all finds it.

use super::between::{Guide, Visit, between};
use super::provider::{Provider, SnapshotError, followable, shown};
use driftless_model::{Change, RelPath};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, Stat, fgetxattr, mkdirat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The newest change time of all below a directory, and how much there is.
const SUMS: [&str; 4] = [
    "ceph.dir.rctime",
    "ceph.dir.rbytes",
    "ceph.dir.rfiles",
    "ceph.dir.rsubdirs",
];
/// When a snapshot was made: seconds, a dot, nanoseconds.
const MADE: &str = "ceph.snap.btime";
/// No sum has as many bytes.
const SUM_BYTES_MAX: usize = 64;
/// Sums come up the tree within seconds, and clocks of clients differ by less than this.
const SLACK_SECONDS: i64 = 600;
/// Snapshots of directories above are shown with a name that begins so.
const OF_ABOVE: char = '_';

/// A directory of CephFS that this host has mounted, with all below it.
#[derive(Debug, Clone)]
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// That at `root`.
    pub fn of(root: &Path) -> Directory {
        Directory {
            root: root.to_owned(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.root.join(".snap")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }
}

impl Provider for Directory {
    fn check(&self) -> Result<(), SnapshotError> {
        let not_fit = |why| SnapshotError::NotFit {
            path: shown(&self.root),
            why,
        };
        let dir = opened(&self.root)?;
        if sum(&self.root, dir.as_fd(), SUMS[0])?.is_none() {
            return Err(not_fit("is not on CephFS, which alone has such snapshots"));
        }
        match opened(&self.folder()) {
            Ok(_) => Ok(()),
            Err(_) => Err(not_fit(
                "has no \".snap\": CephFS makes no snapshots here (ceph fs set NAME allow_new_snaps true)",
            )),
        }
    }

    fn prepare(&self) -> Result<(), SnapshotError> {
        Ok(())
    }

    fn create(&self, name: &str) -> Result<(), SnapshotError> {
        let path = self.path(name);
        mkdirat(CWD, &path, Mode::RWXU)
            .map_err(|cause| SnapshotError::system(&path, "make the snapshot", cause))
    }

    fn list(&self) -> Result<BTreeMap<String, PathBuf>, SnapshotError> {
        let folder = self.folder();
        let failed = |cause| SnapshotError::system(&folder, "list the snapshots", cause);
        let mut found = BTreeMap::new();
        for entry in Dir::new(opened(&folder)?).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().ok();
            let name = name.filter(|name| !name.starts_with(['.', OF_ABOVE]));
            found.extend(name.map(|name| (name.to_owned(), self.path(name))));
        }
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<(), SnapshotError> {
        let path = self.path(name);
        unlinkat(CWD, &path, AtFlags::REMOVEDIR)
            .map_err(|cause| SnapshotError::system(&path, "delete the snapshot", cause))
    }

    fn diff(&self, older: &str, newer: &str) -> Result<Vec<Change>, SnapshotError> {
        let (older, newer) = (self.path(older), self.path(newer));
        let made = sum(&older, opened(&older)?.as_fd(), MADE)?;
        let made = made.and_then(|made| seconds(&made));
        let guide = Sums {
            root: newer.clone(),
            since: made.map(|made| made - SLACK_SECONDS),
        };
        Ok(followable(
            between(&older, &newer, &guide, Vec::new())?,
            &newer,
        ))
    }
}

/// Compares the sums of directories, and the entries of those whose sums differ.
struct Sums {
    root: PathBuf,
    /// What has changed since then may not be in the sums; all may, where that is not known.
    since: Option<i64>,
}

impl Sums {
    fn is_late(&self, seconds: Option<i64>) -> bool {
        self.since
            .zip(seconds)
            .is_none_or(|(since, seconds)| seconds >= since)
    }
}

impl Guide for Sums {
    fn visit(
        &self,
        _: &RelPath,
        [older, newer]: [BorrowedFd<'_>; 2],
    ) -> Result<Visit, SnapshotError> {
        for name in SUMS {
            let [was, is] = [older, newer].map(|dir| sum(&self.root, dir, name));
            let (was, is) = (was?, is?);
            // A sum that is not there says nothing.
            if was.is_none() || was != is {
                return Ok(Visit::Names);
            }
            if name == SUMS[0] && self.is_late(is.as_deref().and_then(seconds)) {
                return Ok(Visit::Names);
            }
        }
        Ok(Visit::Nothing)
    }

    fn enters(&self, _: &RelPath) -> bool {
        true
    }

    fn differs(&self, name: &[u8], dirs: [BorrowedFd<'_>; 2]) -> Result<bool, SnapshotError> {
        let [was, is] = dirs.map(|dir| statat(dir, name, AtFlags::SYMLINK_NOFOLLOW));
        let failed = |cause| SnapshotError::system(&self.root, "look at an entry", cause);
        let (was, is) = (was.map_err(failed)?, is.map_err(failed)?);
        Ok(state(&was) != state(&is) || self.is_late(Some(is.st_ctime)))
    }
}

/// What tells an entry from what it was.
fn state(stat: &Stat) -> [i128; 9] {
    [
        stat.st_mode.into(),
        stat.st_nlink.into(),
        stat.st_uid.into(),
        stat.st_gid.into(),
        stat.st_size.into(),
        stat.st_mtime.into(),
        stat.st_mtime_nsec.into(),
        stat.st_ctime.into(),
        stat.st_ctime_nsec.into(),
    ]
}

/// The whole seconds of a time. Some kernels put `09` before the nanoseconds, so what follows the
/// dot is not looked at.
fn seconds(time: &[u8]) -> Option<i64> {
    let end = time.iter().position(|byte| *byte == b'.');
    let whole = &time[..end.unwrap_or(time.len())];
    std::str::from_utf8(whole).ok()?.trim().parse().ok()
}

fn opened(path: &Path) -> Result<rustix::fd::OwnedFd, SnapshotError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
        .map_err(|cause| SnapshotError::system(path, "open the directory", cause))
}

/// What CephFS says of a directory; none if it does not.
fn sum(root: &Path, dir: BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, SnapshotError> {
    let mut value = vec![0; SUM_BYTES_MAX];
    match fgetxattr(dir, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::NOTSUP | Errno::RANGE) => Ok(None),
        Err(cause) => Err(SnapshotError::system(
            root,
            "read what CephFS sums up",
            cause,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_time_the_whole_seconds_are_read() {
        for (text, read) in [
            ("1767225600.000000000", Some(1_767_225_600)),
            ("1767225600.091234", Some(1_767_225_600)),
            ("1767225600", Some(1_767_225_600)),
            ("", None),
            ("never", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), read, "{text}");
        }
    }

    #[test]
    fn what_may_not_be_in_the_sums_is_looked_at() {
        let sums = |since| Sums {
            root: PathBuf::new(),
            since,
        };
        assert!(sums(Some(100)).is_late(Some(100)) && !sums(Some(100)).is_late(Some(99)));
        assert!(sums(None).is_late(Some(1)) && sums(Some(100)).is_late(None));
    }
}
