//! What times of a file system are worth: whether a tree is where it was, on a file system that was
//! mounted all the time, and whether the clock was set back.
//!
//! Whoever has looked at a tree before keeps both, and compares. In doubt they differ.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{
    AtFlags, Mode, OFlags, Statx, StatxFlags, fstat, fstatfs, major, open, readlinkat, statx,
};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): a number that no other mount gets until the next boot.
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Set back by so many seconds it is taken for the same clock: for a leap second, and since whole
/// seconds are compared. A gap's slack is larger.
const SET_BACK_SECONDS_MAX: i64 = 2;

/// Which directory of which mounted file system a tree begins in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    device: u64,
    inode: u64,
    mount: u64,
    /// What is mounted below, in one number.
    below: u64,
}

/// What the clock says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Which boot of which machine.
    boot: String,
    /// The time of day when the machine began, in seconds since 1970.
    began: i64,
}

impl Place {
    /// Of an open directory.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn of(dir: BorrowedFd<'_>) -> Result<Place, Errno> {
        let meta = fstat(dir)?;
        let path = path_of(dir)?;
        Ok(Place {
            device: meta.st_dev,
            inode: meta.st_ino,
            mount: number(dir, path.as_bytes(), (meta.st_dev, meta.st_ino))?,
            below: mounts_below(path.as_bytes())?,
        })
    }
}

impl Clock {
    /// Now.
    ///
    /// # Errors
    /// The kernel does not tell which boot this is.
    pub fn now() -> Result<Clock, Errno> {
        let boot = content("/proc/sys/kernel/random/boot_id")?;
        let (day, up) = (
            clock_gettime(ClockId::Realtime),
            clock_gettime(ClockId::Boottime),
        );
        Ok(Clock {
            boot: String::from_utf8_lossy(boot.trim_ascii()).into_owned(),
            began: day.tv_sec - up.tv_sec,
        })
    }

    /// Whether what has happened since `earlier` has times no earlier than that, as far as two looks
    /// at the clock can tell.
    pub fn follows(&self, earlier: &Clock) -> bool {
        self.boot == earlier.boot && self.began >= earlier.began - SET_BACK_SECONDS_MAX
    }
}

/// Returns the number of the mount that the directory at a path is on. `None` on a file system that
/// other hosts may change while it is mounted: there the number says nothing.
///
/// A file system of this host that was mounted anew may be another one, with the same device and the
/// same inodes, or may have been changed elsewhere.
pub fn local_mount(path: &Path) -> Option<u64> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = open(path, flags, Mode::empty()).ok()?;
    let meta = fstat(&dir).ok()?;
    if !is_of_this_host(dir.as_fd(), meta.st_dev) {
        return None;
    }
    let path = path_of(dir.as_fd()).ok()?;
    number(dir.as_fd(), path.as_bytes(), (meta.st_dev, meta.st_ino)).ok()
}

/// Returns whether a directory is on a block device, or on a file system that has devices of its own
/// and numbers itself anew (linux/magic.h, and the file systems' own headers).
fn is_of_this_host(dir: BorrowedFd<'_>, device: u64) -> bool {
    const BTRFS: u64 = 0x9123_683e;
    const ZFS: u64 = 0x2fc1_2fc1;
    const BCACHEFS: u64 = 0xca45_1a4e;
    let magic = || fstatfs(dir).map(|of| of.f_type as u64);
    major(device) != 0 || magic().is_ok_and(|magic| [BTRFS, ZFS, BCACHEFS].contains(&magic))
}

/// Returns the path of an open directory.
fn path_of(dir: BorrowedFd<'_>) -> Result<CString, Errno> {
    let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
    readlinkat(rustix::fs::CWD, link, Vec::new())
}

/// Returns the number of the mount that a directory is on, which has this path, device and inode.
fn number(dir: BorrowedFd<'_>, path: &[u8], id: (u64, u64)) -> Result<u64, Errno> {
    first_mount(path, id).map_or_else(|| mount(dir, c""), Ok)
}

/// The mount in the view of the first process, if it sees the same directory there: a service that
/// has a view of its own gets new mounts at each start.
fn first_mount(path: &[u8], (device, inode): (u64, u64)) -> Option<u64> {
    let there = [b"/proc/1/root", path].concat();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = open(there, flags, Mode::empty()).ok()?;
    let meta = fstat(&dir).ok()?;
    let is_same = (meta.st_dev, meta.st_ino) == (device, inode);
    is_same.then(|| mount(dir.as_fd(), c"").ok()).flatten()
}

/// The number of the mount (statx(2), `stx_mnt_id`). An older kernel's may come again.
fn mount(dir: BorrowedFd<'_>, name: &CStr) -> Result<u64, Errno> {
    let mask = UNIQUE_MOUNT | StatxFlags::MNT_ID;
    let told: Statx = statx(dir, name, AtFlags::EMPTY_PATH, mask)?;
    Ok(told.stx_mnt_id)
}

/// What is mounted below a path, and where (proc(5), `/proc/pid/mountinfo`: the third field is the
/// device, the fifth the place).
fn mounts_below(path: &[u8]) -> Result<u64, Errno> {
    let told = content("/proc/self/mountinfo")?;
    let mut below = escaped(path);
    if !below.ends_with(b"/") {
        below.push(b'/');
    }
    let mut found: Vec<(&[u8], &[u8])> = told
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let device = fields.next()?;
            let at = fields.nth(1)?;
            at.starts_with(&below).then_some((at, device))
        })
        .collect();
    found.sort_unstable();
    let mut hasher = DefaultHasher::new();
    found.hash(&mut hasher);
    Ok(hasher.finish())
}

/// As the kernel writes paths there: space, tab, newline and backslash in octal.
fn escaped(path: &[u8]) -> Vec<u8> {
    path.iter()
        .flat_map(|byte| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            byte => vec![*byte],
        })
        .collect()
}

/// The content of a file of the kernel's.
fn content(path: &str) -> Result<Vec<u8>, Errno> {
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut content = Vec::new();
    let mut buffer = [0; 1 << 14];
    loop {
        match rustix::io::read(&file, &mut buffer)? {
            0 => return Ok(content),
            length => content.extend_from_slice(&buffer[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_or_began_anew_is_not_followed() {
        let clock = |boot: &str, began| Clock {
            boot: boot.into(),
            began,
        };
        let earlier = clock("a", 1000);
        for (later, follows) in [
            (clock("a", 1000), true),
            (clock("a", 1000 - SET_BACK_SECONDS_MAX), true),
            (clock("a", 1000 - SET_BACK_SECONDS_MAX - 1), false),
            (clock("a", 999_999), true),
            (clock("b", 1000), false),
        ] {
            assert_eq!(later.follows(&earlier), follows, "{later:?}");
        }
        let now = Clock::now().unwrap();
        assert!(now.follows(&now) && !now.boot.is_empty());
    }
}
