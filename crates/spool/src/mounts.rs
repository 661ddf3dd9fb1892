//! On which device all of a tree is, so that programs need not ask where other files are.
//!
//! That is known of file systems whose files have one device each, and only as long as nothing else
//! is mounted below the tree: the kernel tells when mounts change (proc_pid_mountinfo(5)).

use driftless_model::unescape_mountinfo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open, stat, statfs};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// File systems on which each file has the device of the mount (linux/magic.h, and the headers of
/// Lustre, Spectrum Scale and BeeGFS); btrfs has one for each subvolume, an overlay those of its
/// layers, and on NFS others are mounted without being asked for.
const PLAIN: [u64; 7] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x0102_1994, // tmpfs
    0xF2F5_2010, // F2FS
    0x0BD0_0BD0, // Lustre
    0x4750_4653, // Spectrum Scale
    0x1983_0326, // BeeGFS
];
/// Which field of a line is where something is mounted.
const MOUNT_POINT: usize = 4;

/// What is mounted.
#[derive(Debug)]
pub struct Mounts {
    table: File,
}

impl Mounts {
    /// As this process sees it; `None` where it is not told.
    pub fn open() -> Option<Mounts> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let table = open("/proc/self/mountinfo", flags, Mode::empty()).ok()?;
        let mut mounts = Mounts {
            table: table.into(),
        };
        // What was mounted before is no change.
        mounts.have_changed();
        Some(mounts)
    }

    /// Whether something was mounted or unmounted since this was last asked.
    pub fn have_changed(&mut self) -> bool {
        let mut fds = [PollFd::new(&self.table, PollFlags::PRI)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// The device of all of a tree (`st_dev` of stat(2)); 0 where a part of it may be on another
    /// one.
    pub fn device(&mut self, tree: &Path) -> u64 {
        let is_plain = statfs(tree).is_ok_and(|found| PLAIN.contains(&magic(found.f_type)));
        if !is_plain || !self.has_none_below(tree) {
            return 0;
        }
        stat(tree).map_or(0, |found| found.st_dev)
    }

    /// Whether nothing is mounted below a directory; false where that cannot be told.
    fn has_none_below(&mut self, tree: &Path) -> bool {
        let mut text = Vec::new();
        let read = self
            .table
            .rewind()
            .and_then(|()| self.table.read_to_end(&mut text));
        if read.is_err() || text.is_empty() {
            return false;
        }
        let tree = tree.as_os_str().as_bytes();
        let tree = tree.strip_suffix(b"/").unwrap_or(tree);
        let mut lines = text.split(|byte| *byte == b'\n');
        !lines.any(|line| {
            let place = line.split(|byte| *byte == b' ').nth(MOUNT_POINT);
            place.is_some_and(|place| is_below(&unescape_mountinfo(place), tree))
        })
    }
}

fn is_below(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.len() > 1 && rest[0] == b'/')
}

#[allow(
    clippy::cast_sign_loss,
    clippy::unnecessary_cast,
    reason = "its type differs between machines; the numbers have 32 bits"
)]
fn magic(number: impl Into<i64>) -> u64 {
    u64::from(number.into() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_they_are() {
        assert_eq!(unescape_mountinfo(br"/a\040b\134c\0"), br"/a b\c\0");
        for (path, above, is_so) in [
            ("/a/b", "/a", true),
            ("/a", "/a", false),
            ("/ab", "/a", false),
            ("/a", "", true),
            ("/", "", false),
        ] {
            assert_eq!(is_below(path.as_bytes(), above.as_bytes()), is_so, "{path}");
        }
    }

    #[test]
    fn a_tree_with_something_mounted_below_it_is_on_no_device() {
        let mut mounts = Mounts::open().unwrap();
        assert_eq!(mounts.device(Path::new("/")), 0, "/proc is below it");
        assert!(!mounts.has_none_below(Path::new("/")));
        assert_eq!(mounts.device(Path::new("/proc")), 0);
        assert_eq!(mounts.device(Path::new("/not/there")), 0);
        assert!(mounts.has_none_below(Path::new("/proc/self/task")));
    }
}
