//! The encoded form of a catalogue: a head, and parts with bounded sizes that the head names by
//! their hashes.
//!
//! Heads and parts are in postcard (postcard.jamesmunns.com/wire-format). Whatever is decoded here
//! may come from another host: the types check their bounds when they are decoded, and
//! [`layout`](crate::layout) checks the catalogue as a whole.

use driftless_model::{EntryName, Keep, Kind, Meta, Stamp, Unkept, Xattrs, bounds};
use driftless_tree::Attributes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bytes of a unit of content; the last unit of a file, and a unit of small files, may have fewer.
pub const UNIT_BYTES: u32 = 64 * 1024;
/// Bytes of the largest part of a catalogue, and of its head.
pub const PART_BYTES_MAX: u32 = 1024 * 1024;
/// Hashes of units in one part: 256 KiB, for 512 MiB of content.
pub(crate) const HASHES_PER_PART: usize = 8192;
/// Entries of one part at most: a bound on the memory of a decoded part.
pub(crate) const ENTRIES_PER_PART: usize = 4096;
/// Small files of one part at most, of some 40 bytes each.
pub(crate) const SMALL_FILES_PER_PART: usize = 8192;
/// Bytes at which a part of entries is closed. One more entry of the largest size has room.
pub(crate) const PART_BYTES_FULL: usize = 256 * 1024;
/// Parts of a catalogue at most, so that the head stays within [`PART_BYTES_MAX`]: content of 8 TiB.
pub(crate) const PARTS_MAX: usize = 16 * 1024;
/// Entries of a catalogue at most: the tables in memory have some 24 bytes for each.
pub const ENTRIES_MAX: u32 = 1 << 24;
/// Ranges of data of one file at most. In a file with more, the rest counts as data.
pub(crate) const EXTENTS_MAX: usize = 8192;
/// Bytes of the extended attributes of one entry at most.
pub(crate) const XATTR_BYTES_MAX: u64 = 256 * 1024;
/// Bytes of the longest target of a symbolic link (limits.h, `PATH_MAX`).
pub(crate) const TARGET_BYTES_MAX: usize = 4096;
/// The number of this form.
pub(crate) const FORMAT: u32 = 1;

/// A hash of BLAKE3.
pub type Hash = [u8; 32];

/// The name of a data set: the BLAKE3 hash of the head of its catalogue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetHash(pub [u8; 32]);

impl fmt::Display for SetHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for SetHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

impl FromStr for SetHash {
    type Err = blake3::HexError;

    fn from_str(text: &str) -> Result<SetHash, blake3::HexError> {
        blake3::Hash::from_hex(text).map(|hash| SetHash(hash.into()))
    }
}

/// The head of a catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CatalogueHead {
    pub(crate) format: u32,
    pub(crate) entries: u32,
    pub(crate) units: u64,
    /// Bytes of all units.
    pub(crate) bytes: u64,
    pub(crate) parts: Vec<PartRef>,
}

/// A part, as the head names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartRef {
    pub(crate) kind: PartKind,
    pub(crate) hash: Hash,
    pub(crate) bytes: u32,
    /// Entries, small files or hashes in it.
    pub(crate) items: u32,
}

/// The content of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PartKind {
    /// [`CatalogueEntry`], each directory before its entries, in the order of their names.
    Entries,
    /// [`SmallFile`], in the order of the content.
    SmallFiles,
    /// Hashes of units, of 32 bytes each.
    Hashes,
}

/// An entry of a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueEntry {
    /// The number of its directory; `None` at the top.
    pub parent: Option<u32>,
    /// Its name there.
    pub name: EntryName,
    /// The kind, and all that belongs to the kind.
    pub body: EntryBody,
}

/// The kind of an entry, and all that belongs to the kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryBody {
    /// A directory.
    Dir(EntryFacts),
    /// A regular file.
    File {
        /// Metadata.
        facts: EntryFacts,
        /// Size in bytes.
        #[serde(deserialize_with = "bounds::size")]
        size: u64,
        /// Ranges of data, ascending; `None` if the file has no holes.
        extents: Option<Vec<DataExtent>>,
    },
    /// A symbolic link.
    Symlink {
        /// Metadata.
        facts: EntryFacts,
        /// Target, without a NUL.
        target: Vec<u8>,
    },
    /// A named pipe, a socket or a device.
    Node {
        /// Metadata.
        facts: EntryFacts,
        /// The kind.
        kind: Kind,
        /// Number of the device.
        rdev: u64,
    },
    /// A further name of an entry that is no directory (a hard link).
    HardLink {
        /// The number of the entry that has the first name.
        first: u32,
    },
}

/// Metadata of an entry (inode(7), xattr(7)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryFacts {
    /// Permission bits, 07777.
    #[serde(deserialize_with = "bounds::mode")]
    pub mode: u32,
    /// Owner.
    #[serde(deserialize_with = "bounds::owner")]
    pub uid: u32,
    /// Group.
    #[serde(deserialize_with = "bounds::owner")]
    pub gid: u32,
    /// Modification time.
    pub mtime: Stamp,
    /// Extended attributes and ACLs.
    pub xattrs: Xattrs,
}

/// A range of data in a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataExtent {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes, not 0.
    pub bytes: u64,
}

/// A file with fewer bytes of data than a unit, at its place in the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SmallFile {
    pub(crate) entry: u32,
    /// Bytes of data, not 0.
    pub(crate) bytes: u32,
    /// BLAKE3 of its data.
    pub(crate) hash: Hash,
}

impl DataExtent {
    /// Returns the first offset behind the range.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

impl EntryFacts {
    /// Takes the metadata and attributes of an entry.
    pub(crate) fn of(meta: &Meta, xattrs: Xattrs) -> EntryFacts {
        EntryFacts {
            mode: meta.mode,
            uid: meta.uid,
            gid: meta.gid,
            mtime: meta.mtime,
            xattrs,
        }
    }

    /// Returns the metadata of an entry that all users may read and no user may write. Of the attributes,
    /// those of users stay. Nothing else that the source says has an effect, apart from the
    /// modification time.
    pub(crate) fn read_only(self, kind: Kind, (uid, gid): (u32, u32)) -> EntryFacts {
        const EXECUTE: u32 = 0o111;
        let mode = match kind {
            Kind::Dir => 0o555,
            Kind::Symlink => 0o777,
            _ if self.mode & EXECUTE != 0 => 0o555,
            _ => 0o444,
        };
        let is_kept = |name: &[u8]| name.starts_with(b"user.") && Keep::default().wants_xattr(name);
        let has_attributes = matches!(kind, Kind::File | Kind::Dir);
        let kept = self.xattrs.iter().filter(|(name, _)| is_kept(name));
        let kept = kept.filter(|_| has_attributes).cloned();
        EntryFacts {
            mode,
            uid,
            gid,
            mtime: self.mtime,
            xattrs: kept.collect(),
        }
    }

    /// Returns the attributes that a copy gets.
    pub(crate) fn attributes(&self, kind: Kind, keep: &Keep) -> Attributes {
        let meta = Meta {
            kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size: 0,
            blocks: 0,
            mtime: self.mtime,
            atime: self.mtime,
            ctime: self.mtime,
            nlink: 1,
            dev: 0,
            ino: 0,
            rdev: 0,
            unkept: Unkept::NONE,
        };
        Attributes::of(&meta, self.xattrs.clone(), keep)
    }
}

impl EntryBody {
    /// Returns the kind; `None` for a hard link.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            EntryBody::Dir(_) => Some(Kind::Dir),
            EntryBody::File { .. } => Some(Kind::File),
            EntryBody::Symlink { .. } => Some(Kind::Symlink),
            EntryBody::Node { kind, .. } => Some(*kind),
            EntryBody::HardLink { .. } => None,
        }
    }

    /// Returns the metadata; `None` for a hard link.
    pub fn facts(&self) -> Option<&EntryFacts> {
        match self {
            EntryBody::Dir(facts)
            | EntryBody::File { facts, .. }
            | EntryBody::Symlink { facts, .. }
            | EntryBody::Node { facts, .. } => Some(facts),
            EntryBody::HardLink { .. } => None,
        }
    }

    /// Returns the ranges of data of a file; none of another entry.
    pub fn extents(&self) -> Vec<DataExtent> {
        match self {
            EntryBody::File {
                extents: Some(extents),
                ..
            } => extents.clone(),
            EntryBody::File { size, .. } if *size > 0 => vec![DataExtent {
                offset: 0,
                bytes: *size,
            }],
            _ => Vec::new(),
        }
    }

    /// Returns the bytes of data of a file; 0 of another entry.
    pub fn data_bytes(&self) -> u64 {
        match self {
            EntryBody::File {
                extents: Some(extents),
                ..
            } => extents
                .iter()
                .fold(0, |sum: u64, one| sum.saturating_add(one.bytes)),
            EntryBody::File { size, .. } => *size,
            _ => 0,
        }
    }
}

/// Encodes a value. Values in memory always have an encoded form.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap_or_default()
}

/// Decodes a value that takes all of `bytes`; `None` if it does not.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_entries_have_no_other_rights() {
        let facts = |mode: u32| EntryFacts {
            mode,
            uid: 7,
            gid: 8,
            mtime: Stamp { sec: 5, nsec: 6 },
            xattrs: ["user.a", "user.driftless.x", "security.capability"]
                .into_iter()
                .chain(["system.posix_acl_access", "trusted.b"])
                .map(|name| (name.as_bytes().into(), b"value"[..].into()))
                .collect(),
        };
        for (kind, mode, expected) in [
            (Kind::File, 0o6000, 0o444),
            (Kind::File, 0o4710, 0o555),
            (Kind::File, 0o601, 0o555),
            (Kind::Dir, 0o1000, 0o555),
            (Kind::Symlink, 0o777, 0o777),
        ] {
            let copy = facts(mode).read_only(kind, (1, 2));
            assert_eq!(
                (copy.mode, copy.uid, copy.gid),
                (expected, 1, 2),
                "{mode:o}"
            );
            let names: Vec<&[u8]> = copy.xattrs.iter().map(|(name, _)| &**name).collect();
            let is_link = kind == Kind::Symlink;
            assert_eq!(
                names,
                if is_link {
                    vec![]
                } else {
                    vec![&b"user.a"[..]]
                }
            );
            let attributes = copy.attributes(kind, &Keep::default());
            assert_eq!(attributes.mode, Some(expected));
        }
    }
}
