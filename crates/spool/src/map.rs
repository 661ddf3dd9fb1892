//! The file that tells shims what matters: they map it, and look at nothing else unless a call may
//! concern one of its trees.
//!
//! ```text
//! 0     8 bytes   "DRFTSHM1"
//! 8     u32       1: announce; 2: another file has taken the place of this one
//! 12    u32       how many trees
//! 16    112 bytes where the agent listens: the path of a socket of datagrams, and NUL
//! 128   512 bytes where is written what the agent does not take: the path of a folder, and NUL
//! 640   512 bytes where gaps are counted: the path of a file, and NUL; a u64 for each tree
//! 1152            of each tree: u64 its device, u32 bytes of its path, its path, filled up to 8
//! ```
//!
//! Numbers are in the order of this machine. A file is made anew for each change and put in the
//! place of the old one, which is marked; nothing of a file is ever cut off. Only devices change in
//! place, when something is mounted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(crate) const MAGIC: &[u8; 8] = b"DRFTSHM1";
/// Changes are to be announced.
pub const ANNOUNCE: u32 = 1;
/// Another file has taken the place of this one.
pub const REPLACED: u32 = 2;
/// Where the flags stand, in bytes.
pub const FLAGS_AT: u64 = 8;
const COUNT_AT: usize = 12;
const SOCKET: (usize, usize) = (16, 112);
const SPOOL: (usize, usize) = (128, 512);
const GAPS: (usize, usize) = (640, 512);
const TREES_AT: usize = 1152;
/// Files are no longer, in bytes.
pub const BYTES_MAX: usize = 1 << 20;

/// A tree whose changes are announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Its device (`st_dev` of stat(2)); 0 where a part of it may be on another one.
    pub device: u64,
    /// Its absolute path, without links.
    pub path: PathBuf,
}

/// What is written for shims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Where the agent listens.
    pub socket: PathBuf,
    /// The folder in which each user has a file of what the agent did not take.
    pub spool: PathBuf,
    /// The file of counters of gaps.
    pub gaps: PathBuf,
    /// The trees.
    pub trees: Vec<Tree>,
}

impl Map {
    /// The file; `None` if a path does not fit, or there are too many trees.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; TREES_AT];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        let flags_at = FLAGS_AT as usize;
        bytes[flags_at..flags_at + 4].copy_from_slice(&ANNOUNCE.to_ne_bytes());
        let count = u32::try_from(self.trees.len()).ok()?;
        bytes[COUNT_AT..COUNT_AT + 4].copy_from_slice(&count.to_ne_bytes());
        for (path, (at, room)) in [
            (&self.socket, SOCKET),
            (&self.spool, SPOOL),
            (&self.gaps, GAPS),
        ] {
            let text = path.as_os_str().as_bytes();
            // A NUL stands behind it.
            bytes[at..at + room]
                .get_mut(..text.len() + 1)?
                .split_at_mut(text.len())
                .0
                .copy_from_slice(text);
        }
        for tree in &self.trees {
            let path = tree.path.as_os_str().as_bytes();
            bytes.extend(tree.device.to_ne_bytes());
            bytes.extend(u32::try_from(path.len()).ok()?.to_ne_bytes());
            bytes.extend(path);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        (bytes.len() <= BYTES_MAX).then_some(bytes)
    }

    /// Where the device of a tree stands, in bytes.
    pub fn device_at(&self, number: usize) -> u64 {
        let before = self.trees.iter().take(number);
        let bytes = |tree: &Tree| (12 + tree.path.as_os_str().len()).next_multiple_of(8);
        (TREES_AT + before.map(bytes).sum::<usize>()) as u64
    }

    /// What a file says; `None` if it is none.
    pub fn read(bytes: &[u8]) -> Option<(u32, Map)> {
        if !bytes.starts_with(MAGIC) {
            return None;
        }
        let flags = number(bytes, FLAGS_AT as usize)?;
        let mut trees = Vec::new();
        let mut at = TREES_AT;
        for _ in 0..number(bytes, COUNT_AT)? {
            let device = u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?);
            let length = number(bytes, at + 8)? as usize;
            let path = text(bytes.get(at + 12..at.checked_add(12 + length)?)?);
            trees.push(Tree { device, path });
            at += (12 + length).next_multiple_of(8);
        }
        let field = |(at, room): (usize, usize)| {
            let field = bytes.get(at..at + room)?;
            let end = field.iter().position(|byte| *byte == 0)?;
            Some(text(&field[..end]))
        };
        let map = Map {
            socket: field(SOCKET)?,
            spool: field(SPOOL)?,
            gaps: field(GAPS)?,
            trees,
        };
        Some((flags, map))
    }
}

fn text(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(trees: &[&str]) -> Map {
        let tree = |path: &&str| Tree {
            device: 7,
            path: path.into(),
        };
        Map {
            socket: "/run/driftless/shim.socket".into(),
            spool: "/var/spool/driftless".into(),
            gaps: "/run/driftless/shim.gaps".into(),
            trees: trees.iter().map(tree).collect(),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        for trees in [&[][..], &["/data"], &["/a", "/data/of all", "/b/c"]] {
            let map = map(trees);
            let bytes = map.bytes().unwrap();
            assert_eq!(bytes.len() % 8, 0);
            for number in 0..trees.len() {
                let at = map.device_at(number) as usize;
                assert_eq!(bytes[at..at + 8], 7u64.to_ne_bytes());
            }
            assert_eq!(Map::read(&bytes), Some((ANNOUNCE, map)));
        }
    }

    #[test]
    fn what_does_not_fit_is_not_written_and_what_is_cut_off_not_read() {
        let mut long = map(&["/data"]);
        long.socket = "/".repeat(112).into();
        assert_eq!(long.bytes(), None);
        let bytes = map(&["/data"]).bytes().unwrap();
        for length in 0..bytes.len() - 8 {
            assert_eq!(Map::read(&bytes[..length]), None, "{length}");
        }
        let mut many = bytes;
        many[COUNT_AT..COUNT_AT + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(Map::read(&many), None);
    }
}
