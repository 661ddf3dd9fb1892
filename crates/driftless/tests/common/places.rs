//! The file systems that users have, each with what it can hold, and trees cut to that.

use driftless_testkit::scan::{Depth, Node, Scan};
use driftless_testkit::{FsKind, Fuse, Mood, Options, Scratch, attrs, mutate::remove_any};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const SIZE_MIB: u64 = 300;
const SECOND_NS: u64 = 1_000_000_000;
/// What 128-byte inodes of ext4 store: 32 bits with a sign.
const OLD_SECONDS: RangeInclusive<i64> = -(1 << 31)..=(1 << 31) - 1;
/// A time that every file system holds.
const MODERN: i64 = 1_000_000_000;

/// A file system that a source or a replica may be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tmpfs,
    Ext4,
    Ext4Old,
    Ext2Untyped,
    Xfs,
    Btrfs,
    Overlay,
    /// Whole seconds, as Lustre.
    Seconds,
    /// Every second second, and names without case, as vfat.
    Folded,
    /// Neither extended attributes nor ACLs.
    Bare,
    /// Listings without kinds.
    Untyped,
}

impl Kind {
    /// In an order in which neighbours differ.
    pub const ALL: [Kind; 11] = [
        Kind::Tmpfs,
        Kind::Folded,
        Kind::Ext4,
        Kind::Bare,
        Kind::Xfs,
        Kind::Seconds,
        Kind::Btrfs,
        Kind::Overlay,
        Kind::Ext4Old,
        Kind::Untyped,
        Kind::Ext2Untyped,
    ];

    fn mood(self) -> Result<Mood, FsKind> {
        Err(match self {
            Kind::Tmpfs => FsKind::Tmpfs,
            Kind::Ext4 => FsKind::Ext4,
            Kind::Ext4Old => FsKind::Ext4Old,
            Kind::Ext2Untyped => FsKind::Ext2Untyped,
            Kind::Xfs => FsKind::Xfs,
            Kind::Btrfs => FsKind::Btrfs,
            Kind::Overlay => FsKind::Overlay,
            Kind::Seconds => return Ok(Mood::whole_seconds()),
            Kind::Folded => return Ok(Mood::folded()),
            Kind::Bare => return Ok(Mood::bare()),
            Kind::Untyped => return Ok(Mood::untyped()),
        })
    }

    /// What it can keep.
    pub fn holds(self) -> Holds {
        let all = Holds::default();
        match self {
            Kind::Ext4Old => Holds {
                grain_ns: SECOND_NS,
                seconds: OLD_SECONDS,
                ..all
            },
            Kind::Ext4 | Kind::Ext2Untyped => Holds {
                seconds: *OLD_SECONDS.start()..=i64::MAX,
                ..all
            },
            Kind::Xfs => Holds {
                link_bytes_max: 1024,
                ..all
            },
            // Copying up fills holes.
            Kind::Overlay => Holds {
                whiteouts: false,
                holes: false,
                ..all
            },
            Kind::Seconds => Holds {
                grain_ns: SECOND_NS,
                ..all
            },
            Kind::Folded => Holds {
                grain_ns: 2 * SECOND_NS,
                folds: true,
                ..all
            },
            Kind::Bare => Holds {
                attributes: false,
                ..all
            },
            Kind::Tmpfs | Kind::Btrfs | Kind::Untyped => all,
        }
    }
}

/// A mounted file system of some kind.
pub struct Place {
    held: Held,
}

enum Held {
    Disk(FsKind, Scratch),
    Fuse(Fuse),
}

impl Place {
    /// Mounts one.
    pub fn new(kind: Kind) -> Place {
        let held = match kind.mood() {
            Ok(mood) => Held::Fuse(Fuse::mount(mood)),
            Err(disk) => Held::Disk(disk, Scratch::new(disk, SIZE_MIB)),
        };
        Place { held }
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        match &self.held {
            Held::Disk(_, scratch) => scratch.path().join(name),
            Held::Fuse(fuse) => fuse.path().join(name),
        }
    }

    /// The same path where nothing is hidden: what misbehaves is built and watched from behind.
    pub fn truth(&self, name: &str) -> PathBuf {
        match &self.held {
            Held::Disk(..) => self.join(name),
            Held::Fuse(fuse) => fuse.backing().join(name),
        }
    }

    /// Time goes by: what an overlay holds now is in its lower layers, as in an image that is
    /// updated.
    pub fn settle(&self) {
        if let Held::Disk(FsKind::Overlay, scratch) = &self.held {
            scratch.sink();
        }
    }
}

/// What can be kept.
#[derive(Clone, Debug)]
pub struct Holds {
    pub grain_ns: u64,
    pub seconds: RangeInclusive<i64>,
    pub link_bytes_max: usize,
    pub whiteouts: bool,
    pub folds: bool,
    pub attributes: bool,
    pub holes: bool,
}

impl Default for Holds {
    fn default() -> Holds {
        Holds {
            grain_ns: 1,
            seconds: i64::MIN..=i64::MAX,
            link_bytes_max: usize::MAX,
            whiteouts: true,
            folds: false,
            attributes: true,
            holes: true,
        }
    }
}

impl Holds {
    /// What both can keep.
    pub fn and(&self, other: &Holds) -> Holds {
        let (a, b) = (&self.seconds, &other.seconds);
        Holds {
            grain_ns: self.grain_ns.max(other.grain_ns),
            seconds: *a.start().max(b.start())..=*a.end().min(b.end()),
            link_bytes_max: self.link_bytes_max.min(other.link_bytes_max),
            whiteouts: self.whiteouts && other.whiteouts,
            folds: self.folds || other.folds,
            attributes: self.attributes && other.attributes,
            holes: self.holes && other.holes,
        }
    }

    /// How the judges compare: times as coarse as they can be kept.
    pub fn options(&self) -> Options {
        let kept = self.attributes;
        Options {
            mtime_grain_ns: self.grain_ns,
            xattrs: kept,
            acls: kept,
            holes: self.holes,
            ..Options::default()
        }
    }

    /// Takes all from a tree that cannot be kept, but for fine times: those a replica has to live
    /// with.
    pub fn cut(&self, root: &Path) {
        let scan = Scan::of(
            root,
            Depth {
                content: false,
                holes: false,
            },
        )
        .expect("scan");
        let mut names = BTreeSet::new();
        for (index, node) in scan.nodes.iter().enumerate().skip(1) {
            let path = root.join(OsStr::from_bytes(&scan.path(index)));
            // Gone with a directory above it.
            if path.symlink_metadata().is_err() {
                continue;
            }
            let collides = self.folds && !names.insert((node.parent, fold(&node.name)));
            if collides || !self.takes(node) {
                remove_any(&path).expect("remove");
            } else {
                self.trim(&path, node);
            }
        }
        // Removing has changed times, and what was trimmed is not changed by this.
        scan.nodes
            .iter()
            .take(1)
            .for_each(|node| self.trim(root, node));
    }

    fn takes(&self, node: &Node) -> bool {
        let is_long = node
            .target
            .as_ref()
            .is_some_and(|target| target.len() > self.link_bytes_max);
        let is_whiteout = node.kind() == FileType::CharacterDevice && node.stat.st_rdev == 0;
        !is_long && (self.whiteouts || !is_whiteout)
    }

    fn trim(&self, path: &Path, node: &Node) {
        if !self.attributes {
            for (name, _) in &node.xattrs {
                let removed = attrs::remove_xattr(path, name);
                // Another name of the same inode may have lost it before.
                let is_gone = removed
                    .as_ref()
                    .is_err_and(|error| error.raw_os_error() == Some(Errno::NODATA.raw_os_error()));
                assert!(
                    is_gone || removed.is_ok(),
                    "cannot remove an attribute: {removed:?}"
                );
            }
        }
        if !self.seconds.contains(&node.mtime().0) {
            attrs::set_mtime(path, MODERN, node.mtime().1 as u32).expect("utimensat");
        }
    }
}

/// Names that differ in form alone are cut as well, though the folded kind keeps them apart: where
/// nothing is there yet, a replica that takes no heed of case is taken to be one that takes no heed
/// of form either. This waits for a probe of each by itself.
fn fold(name: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(name) else {
        return name.to_ascii_lowercase();
    };
    text.to_lowercase()
        .replace("e\u{301}", "\u{e9}")
        .into_bytes()
}
