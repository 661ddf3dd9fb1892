//! What stands at a name: its kind, its metadata and its extended attributes.

use crate::acl::acl_for_other_group;
use crate::{
    ACL_ACCESS, Act, Fault, PERMISSIONS, Side, Unkept, bounds, mode_for_other_group, mode_of_acl,
    mode_within, mode_without_acl,
};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::ops::Deref;

/// The kind of an entry (inode(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix domain socket.
    Socket,
    /// Character device.
    Char,
    /// Block device.
    Block,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] = [
        Kind::File,
        Kind::Dir,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::Char,
        Kind::Block,
    ];

    /// The word used in output.
    pub fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Dir => "dir",
            Kind::Symlink => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::Char => "char",
            Kind::Block => "block",
        }
    }

    /// The kind in a sentence.
    pub fn phrase(self) -> &'static str {
        match self {
            Kind::File => "a file",
            Kind::Dir => "a directory",
            Kind::Symlink => "a symbolic link",
            Kind::Fifo => "a named pipe",
            Kind::Socket => "a socket",
            Kind::Char => "a character device",
            Kind::Block => "a block device",
        }
    }

    /// Whether entries of this kind carry a device number.
    pub fn is_device(self) -> bool {
        matches!(self, Kind::Char | Kind::Block)
    }
}

/// The first seconds that file systems keep (`s_time_min` of their super blocks): NTFS, 32 bits
/// with and without a sign.
const FIRST_SECONDS: [i64; 3] = [-11_644_473_600, i32::MIN as i64, 0];
/// The last ones: 32 bits with and without a sign, ext4, XFS.
const LAST_SECONDS: [i64; 4] = [
    i32::MAX as i64,
    u32::MAX as i64,
    15_032_385_535,
    16_299_260_424,
];

/// A point in time: seconds since 1970 (may be negative) and nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    /// Seconds since 1970-01-01 UTC.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    #[serde(deserialize_with = "bounds::nsec")]
    pub nsec: u32,
}

impl Stamp {
    /// Whether every file system in use can keep it, but for parts of a second: FAT begins in 1980
    /// (in local time, so a day later everywhere), ext4 with small inodes ends in 2038.
    pub fn is_kept_everywhere(&self) -> bool {
        const EVERYWHERE_SEC: std::ops::RangeInclusive<i64> = 315_619_200..=i32::MAX as i64;
        EVERYWHERE_SEC.contains(&self.sec)
    }

    /// Whether `kept` is the first or the last second of some file system, and this time lies beyond
    /// it: the kernel sets such an end in its place.
    pub fn is_beyond(&self, kept: Stamp) -> bool {
        let before = || self.sec < kept.sec && FIRST_SECONDS.contains(&kept.sec);
        let after = || self.sec > kept.sec && LAST_SECONDS.contains(&kept.sec);
        kept.nsec == 0 && (before() || after())
    }
}

/// Identity of a directory for as long as it exists: inode numbers are used again, but not with the
/// same time of birth (`stx_btime` of statx(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryId {
    /// Inode number.
    pub inode: u64,
    /// Time of birth.
    pub made: Stamp,
}

/// What stat(2) says of an entry, as far as it is replicated or needed to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Kind of the entry.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky (07777).
    #[serde(deserialize_with = "bounds::mode")]
    pub mode: u32,
    /// Numeric owner.
    #[serde(deserialize_with = "bounds::owner")]
    pub uid: u32,
    /// Numeric group.
    #[serde(deserialize_with = "bounds::owner")]
    pub gid: u32,
    /// Size in bytes.
    #[serde(deserialize_with = "bounds::size")]
    pub size: u64,
    /// Allocated blocks of 512 bytes.
    #[serde(deserialize_with = "bounds::blocks")]
    pub blocks: u64,
    /// Last modification.
    pub mtime: Stamp,
    /// Last access.
    pub atime: Stamp,
    /// Last change of the inode; never copied, only compared with itself.
    pub ctime: Stamp,
    /// Number of hard links.
    pub nlink: u64,
    /// Device that holds the entry.
    pub dev: u64,
    /// Inode number on that device.
    pub ino: u64,
    /// Device number of a device node.
    pub rdev: u64,
    /// Flags of the inode that no copy gets, as far as the file system tells them with all this.
    pub unkept: Unkept,
}

impl Meta {
    /// Which inode this is.
    pub fn id(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// Whether `later`, a second look at the same handle or name, shows that nothing was written in
    /// between.
    pub fn unchanged(&self, later: &Meta) -> bool {
        self.id() == later.id()
            && self.size == later.size
            && self.mtime == later.mtime
            && self.ctime == later.ctime
    }
}

/// An extended attribute: name and value.
pub type Xattr = (Box<[u8]>, Box<[u8]>);

/// Attributes of one entry at most: so many names have room in a list (`XATTR_LIST_MAX` of
/// linux/limits.h), of which each is at least one letter behind the name of a namespace (xattr(7)),
/// and ends with a zero.
const XATTRS_MAX: usize = (64 << 10) / b"user.x\0".len();

/// Extended attributes that are kept, sorted by name. POSIX ACLs are among them
/// (`system.posix_acl_*`).
#[derive(Debug, Clone, Default, Eq, Serialize, Deserialize)]
pub struct Xattrs {
    #[serde(deserialize_with = "bounds::at_most::<XATTRS_MAX, _, _>")]
    kept: Vec<Xattr>,
    /// What the entry has besides that no copy gets. It makes no difference.
    pub unkept: Unkept,
    /// Permission bits that the entry has without its ACL, if it has one that is not kept.
    #[serde(deserialize_with = "bounds::maybe_mode")]
    pub without_acl: Option<u32>,
    /// Whether the reader may not see attributes `trusted.*`: which of them the entry has is not
    /// known.
    pub hides_trusted: bool,
}

impl Xattrs {
    /// Attributes in any order, and what there is besides.
    pub fn new(mut kept: Vec<Xattr>, unkept: Unkept) -> Self {
        kept.sort_unstable();
        Xattrs {
            kept,
            unkept,
            without_acl: None,
            hides_trusted: false,
        }
    }

    /// Returns these attributes as those that a reader has told who sees no `trusted.*`, or sees
    /// all.
    pub fn hiding_trusted(self, hides_trusted: bool) -> Self {
        Xattrs {
            hides_trusted,
            ..self
        }
    }

    /// Returns whether the reader would see an attribute of this name.
    pub fn is_known(&self, name: &[u8]) -> bool {
        !self.hides_trusted || !name.starts_with(b"trusted.")
    }

    /// Returns these attributes of an entry that has so many permission bits without its ACL, if it
    /// has one that is not kept.
    pub fn lacking_acl(self, without_acl: Option<u32>) -> Self {
        Xattrs {
            without_acl,
            ..self
        }
    }

    /// Returns the mode that a copy of an entry with the mode `mode` is to have. Without an ACL it
    /// gives nobody more than the source does with it.
    pub fn mode_of_copy(&self, mode: u32) -> u32 {
        match self.without_acl {
            Some(without) => mode_within(mode, without),
            None => mode,
        }
    }

    /// Returns the mode and the attributes of an entry that belongs to another group than the one
    /// whose rights `mode` and the ACL tell.
    pub fn for_other_group(&self, mode: u32) -> (u32, Xattrs) {
        let mut other = self.clone();
        let acl = other
            .kept
            .iter_mut()
            .find(|(name, _)| **name == *ACL_ACCESS);
        let mode = match acl {
            Some((_, acl)) => match acl_for_other_group(acl) {
                Some(changed) => {
                    let bits = mode_of_acl(&changed).unwrap_or_default();
                    *acl = changed.into();
                    mode & !PERMISSIONS | bits
                }
                None => mode_within(mode, 0),
            },
            None => mode_for_other_group(mode),
        };
        (mode, other)
    }

    /// Returns the mode of this very entry without an ACL, kept or not.
    pub fn mode_without_any_acl(&self, mode: u32) -> u32 {
        let acl = self.kept.iter().find(|(name, _)| **name == *ACL_ACCESS);
        let without = acl.map_or(PERMISSIONS, |(_, acl)| mode_without_acl(acl));
        mode_within(self.mode_of_copy(mode), without)
    }

    /// Whether all attributes that are kept could be read.
    pub fn is_whole(&self) -> bool {
        (self.unkept - Unkept::UNREAD) == self.unkept
    }

    /// Returns the attributes, or the fault with which some of them could not be read.
    pub fn all_read(self, side: Side) -> Result<Xattrs, Fault> {
        match self.unkept.unread_errnos().next() {
            None => Ok(self),
            Some(errno) => Err(Fault {
                side,
                act: Act::ReadXattrs,
                errno,
            }),
        }
    }

    /// Whether a copy has the same attributes, as far as those of the source (`self`) could be
    /// read: of the others, what the copy has is left alone, but for rights.
    pub fn agrees_with(&self, copy: &Xattrs) -> bool {
        if self.is_whole() {
            let is_known = |xattr: &&Xattr| self.is_known(&xattr.0);
            let is_same = self.iter().eq(copy.iter().filter(is_known));
            return is_same && !copy.unkept.has(Unkept::TOO_LONG);
        }
        let gives_rights = |xattr: &&Xattr| gives_rights(&xattr.0);
        self.iter().all(|xattr| copy.contains(xattr))
            && copy
                .iter()
                .filter(gives_rights)
                .all(|xattr| self.contains(xattr))
    }

    /// What one attribute takes of memory, in bytes: two allocations besides what it says.
    pub fn memory_of_one(name: &[u8], value: &[u8]) -> u64 {
        const EACH_BYTES: usize = 64;
        (EACH_BYTES + name.len() + value.len()) as u64
    }
}

/// Whether an attribute decides who may do what: an ACL, a capability. Such an attribute is read by
/// its name where the names cannot be listed.
pub fn gives_rights(name: &[u8]) -> bool {
    RIGHTS.iter().any(|right| right.to_bytes() == name)
}

/// Names of attributes that decide who may do what.
pub const RIGHTS: [&CStr; 3] = [
    c"system.posix_acl_access",
    c"system.posix_acl_default",
    c"security.capability",
];

impl Deref for Xattrs {
    type Target = [Xattr];

    fn deref(&self) -> &[Xattr] {
        &self.kept
    }
}

impl PartialEq for Xattrs {
    fn eq(&self, other: &Xattrs) -> bool {
        self.kept == other.kept
    }
}

impl From<Vec<Xattr>> for Xattrs {
    fn from(kept: Vec<Xattr>) -> Self {
        Xattrs::new(kept, Unkept::NONE)
    }
}

impl FromIterator<Xattr> for Xattrs {
    fn from_iter<I: IntoIterator<Item = Xattr>>(kept: I) -> Self {
        Xattrs::from(Vec::from_iter(kept))
    }
}

/// An entry: metadata and extended attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Metadata.
    pub meta: Meta,
    /// Extended attributes that are to be kept; empty when none are asked for.
    pub xattrs: Xattrs,
}
