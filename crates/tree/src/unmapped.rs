//! Owners that a user namespace (user_namespaces(7)) or an id-mapped mount (mount_setattr(2)) does
//! not map: the kernel shows all of them as one number, so two different owners look equal.

use crate::mounts::is_id_mapped;
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Numbers that a namespace can map: all but -1, which is no user.
const ALL: u64 = u32::MAX as u64;

/// The numbers in whose place owners and groups without a number are shown; none where all have
/// one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unmapped {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Unmapped {
    /// Reads the maps of this process; where they cannot be read, all counts as mapped.
    pub fn here() -> Unmapped {
        let is_whole = |map: &str| read(map).is_none_or(|map| maps_all(&map));
        let all = Unmapped::overflow();
        Unmapped {
            uid: all.uid.filter(|_| !is_whole("/proc/self/uid_map")),
            gid: all.gid.filter(|_| !is_whole("/proc/self/gid_map")),
        }
    }

    /// Returns those of trees of this host, too: the kernel does not tell which numbers an id-mapped
    /// mount maps, so one of them may hide any.
    #[must_use]
    pub fn or_of_mounts(self, trees: &[PathBuf]) -> Unmapped {
        if trees.iter().any(|tree| is_id_mapped(tree)) {
            Unmapped::overflow()
        } else {
            self
        }
    }

    fn overflow() -> Unmapped {
        let number = |file: &str| read(file)?.trim().parse().ok();
        Unmapped {
            uid: number("/proc/sys/kernel/overflowuid"),
            gid: number("/proc/sys/kernel/overflowgid"),
        }
    }

    /// Whether an owner may be any that is not mapped.
    pub fn hides_owner(self, uid: u32) -> bool {
        self.uid == Some(uid)
    }

    /// Whether a group may be any that is not mapped.
    pub fn hides_group(self, gid: u32) -> bool {
        self.gid == Some(gid)
    }
}

fn read(path: &str) -> Option<String> {
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Whether a map has a line for each number: three numbers a line, of which the last one says how
/// many are mapped.
fn maps_all(map: &str) -> bool {
    let counts = map.lines().map(|line| {
        let count = line.split_whitespace().nth(2);
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    });
    counts.sum::<u64>() >= ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_with_all_numbers_is_whole() {
        for (map, expected) in [
            ("         0          0 4294967295\n", true),
            ("0 1000 1\n", false),
            ("0 1000 1\n1 100000 65536\n", false),
            ("0 0 1000\n1000 1000 4294966295\n", true),
            ("", false),
        ] {
            assert_eq!(maps_all(map), expected, "{map}");
        }
    }
}
