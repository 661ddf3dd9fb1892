//! CephFS as far as a mirror asks it: a name that is made in `.snap` of the root is a snapshot, and
//! a directory says what is the newest change below it and how much there is.
//!
//! The backing directory has to be a subvolume of btrfs, and the snapshots are subvolumes of it in a
//! folder beside it: entries then have the same numbers in all of them, as on CephFS. Sums are
//! always those of the moment, where those of CephFS come some time after the change.

use super::nodes::{Node, lock, reach};
use super::tree::{Done, Tree, sized};
use super::wire::{Call, Op};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of the root (`FUSE_ROOT_ID`).
const ROOT: u64 = 1;
/// So much later than it was a snapshot says that it was made: all in it is as old as what on
/// CephFS the sums are believed about.
const AGE: Duration = Duration::from_secs(3600);
/// A snapshot's own mark of when it was made, in its folder.
const MADE: &str = "made-";

impl Tree {
    /// What CephFS answers in its own way; none if it is as any file system here.
    pub(super) fn on_ceph(&self, op: Op, node: &Node, call: &Call<'_>) -> Option<Done> {
        let folder = lock(&self.orders).mood.ceph.clone()?;
        let mut fields = call.fields();
        match op {
            Op::Lookup if node.id == ROOT && fields.name() == b".snap" => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = rustix::fs::openat(CWD, &folder, flags, Mode::empty());
                Some(opened.and_then(|fd| self.entry_of(fd, b".snap")))
            }
            Op::Mkdir if is_at(node, &folder) => {
                fields.bytes(8);
                let name = fields.name();
                Some(self.snapshot(&folder, name).and_then(|()| {
                    let fd = reach(node, name)?;
                    self.entry_of(fd, name)
                }))
            }
            Op::Rmdir if is_at(node, &folder) => Some(self.drop_snapshot(&folder, fields.name())),
            Op::Getxattr => {
                let (size, _) = (fields.u32() as usize, fields.u32());
                let name = fields.name();
                let value = attribute(node, &folder, name)?;
                Some(value.and_then(|value| sized(value, size)))
            }
            _ => None,
        }
    }

    fn snapshot(&self, folder: &Path, name: &[u8]) -> Result<(), Errno> {
        let path = folder.join(OsStr::from_bytes(name));
        let source = self.root_path()?;
        btrfs(&["snapshot", "-r"], &[&source, &path])?;
        let made = SystemTime::now().duration_since(UNIX_EPOCH);
        let made = made.map_err(|_| Errno::IO)?;
        let text = format!("{}.{:09}", (made + AGE).as_secs(), made.subsec_nanos());
        fs::write(made_of(&path)?, text).map_err(|_| Errno::IO)
    }

    fn drop_snapshot(&self, folder: &Path, name: &[u8]) -> Done {
        let path = folder.join(OsStr::from_bytes(name));
        let device = fs::metadata(&path).map_err(|_| Errno::NOENT)?.dev();
        btrfs(&["delete"], &[&path])?;
        self.nodes.lose_device(device);
        fs::remove_file(made_of(&path)?).map_err(|_| Errno::IO)?;
        Ok(Vec::new())
    }
}

/// Where it stands when a snapshot was made: beside the folder.
fn made_of(path: &Path) -> Result<PathBuf, Errno> {
    let (folder, name) = (path.parent().ok_or(Errno::INVAL)?, path.file_name());
    let mut own = std::ffi::OsString::from(MADE);
    own.push(name.ok_or(Errno::INVAL)?);
    Ok(folder.parent().ok_or(Errno::INVAL)?.join(own))
}

fn btrfs(words: &[&str], paths: &[&Path]) -> Result<(), Errno> {
    let mut command = Command::new("btrfs");
    command.arg("subvolume").args(words).args(paths);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Errno::IO),
    }
}

fn is_at(node: &Node, folder: &Path) -> bool {
    let (Ok(stat), Ok(meta)) = (node.stat(), fs::metadata(folder)) else {
        return false;
    };
    (stat.st_dev, stat.st_ino) == (meta.dev(), meta.ino())
}

/// An attribute of CephFS; none if it is an ordinary one.
fn attribute(node: &Node, folder: &Path, name: &[u8]) -> Option<Done> {
    let name = std::str::from_utf8(name).ok()?;
    let path = fs::read_link(node.path()).ok()?;
    if name == "ceph.snap.btime" {
        let is_snapshot = path.parent() == Some(folder);
        let read = made_of(&path).and_then(|made| fs::read(made).map_err(|_| Errno::NODATA));
        return Some(read.and_then(|text| is_snapshot.then_some(text).ok_or(Errno::NODATA)));
    }
    let name = name.strip_prefix("ceph.dir.")?;
    if !path.is_dir() {
        return Some(Err(Errno::NODATA));
    }
    let sums = Sums::of(&path);
    let text = match name {
        "rctime" => format!("{}.{:09}", sums.newest.0, sums.newest.1),
        "rbytes" => sums.bytes.to_string(),
        "rfiles" => sums.files.to_string(),
        "rsubdirs" => sums.directories.to_string(),
        _ => return Some(Err(Errno::NODATA)),
    };
    Some(Ok(text.into_bytes()))
}

#[derive(Default)]
struct Sums {
    newest: (i64, i64),
    bytes: u64,
    files: u64,
    directories: u64,
}

impl Sums {
    fn of(path: &Path) -> Sums {
        let (mut sums, mut left) = (Sums::default(), vec![path.to_owned()]);
        while let Some(path) = left.pop() {
            let Ok(meta) = fs::symlink_metadata(&path) else {
                continue;
            };
            sums.newest = sums.newest.max((meta.ctime(), meta.ctime_nsec()));
            if meta.is_dir() {
                sums.directories += 1;
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                left.extend(entries.map(|entry| entry.path()));
            } else {
                (sums.files, sums.bytes) = (sums.files + 1, sums.bytes + meta.len());
            }
        }
        sums
    }
}
