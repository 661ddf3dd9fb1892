//! Work and receipts: plain values that can be queued, sent and stored.

use crate::{Kind, RelPath};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How far below a path something reaches; each reaches further than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// The entry alone (of a directory: its own metadata).
    Entry,
    /// Of a directory its own metadata, its names, and the entries in it; a directory in it only
    /// where one side lacks it, and then with all below. What is no directory is compared alone.
    Names,
    /// The entry and all below it.
    Subtree,
}

/// A piece of work: make this path equal. Safe to repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Where.
    pub path: RelPath,
    /// How far below.
    pub scope: Scope,
}

/// What was done (or, in a dry run, would be done) to one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It was missing on the replica.
    Create,
    /// Its content was copied again.
    Content,
    /// Only metadata was set; no data moved.
    Meta,
    /// It was made a hard link of its group.
    Link,
    /// It was of another kind and was replaced.
    Replace,
    /// It was removed because the source lacks it.
    Delete,
}

impl Action {
    /// The word used in output.
    pub fn word(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Content => "content",
            Action::Meta => "meta",
            Action::Link => "link",
            Action::Replace => "replace",
            Action::Delete => "delete",
        }
    }
}

/// A set of properties that differ between source and replica.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct What(u16);

impl What {
    /// Size.
    pub const SIZE: What = What(1);
    /// Modification time.
    pub const MTIME: What = What(1 << 1);
    /// Access time.
    pub const ATIME: What = What(1 << 2);
    /// Permission bits.
    pub const MODE: What = What(1 << 3);
    /// Owner.
    pub const OWNER: What = What(1 << 4);
    /// Group.
    pub const GROUP: What = What(1 << 5);
    /// Extended attributes and ACLs.
    pub const XATTRS: What = What(1 << 6);
    /// Content.
    pub const CONTENT: What = What(1 << 7);
    /// Hard-link group.
    pub const LINKS: What = What(1 << 8);
    /// Target of a symbolic link.
    pub const TARGET: What = What(1 << 9);
    /// Device number.
    pub const DEVICE: What = What(1 << 10);
    /// Kind of the entry.
    pub const KIND: What = What(1 << 11);

    /// Spelling of the name, on a file system that takes no heed of case or Unicode form.
    pub const NAME: What = What(1 << 12);

    const WORDS: [&'static str; 13] = [
        "size", "mtime", "atime", "mode", "owner", "group", "xattrs", "content", "links", "target",
        "device", "kind", "name",
    ];

    /// Nothing differs.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether any of `other` is in this set.
    pub fn has(self, other: What) -> bool {
        self.0 & other.0 != 0
    }

    /// Adds `other` when `yes`.
    pub fn add_if(&mut self, yes: bool, other: What) {
        if yes {
            self.0 |= other.0;
        }
    }

    /// The words of the properties in this set, in a fixed order.
    pub fn words(self) -> Vec<&'static str> {
        Self::WORDS
            .iter()
            .enumerate()
            .filter(|(bit, _)| self.0 & (1 << bit) != 0)
            .map(|(_, word)| *word)
            .collect()
    }
}

/// How closely two entries are compared; each level includes those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Metadata; equal size and time vouch for the content.
    #[default]
    Meta,
    /// Content, too, as it is read through the page cache.
    Content,
    /// Content, the replica's read from the medium.
    Media,
}

impl Level {
    /// The word used in output.
    pub fn word(self) -> &'static str {
        match self {
            Level::Meta => "meta",
            Level::Content => "content",
            Level::Media => "media",
        }
    }
}

/// A property in which two entries differ, with both values in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which property; one of the words of [`What`].
    pub property: &'static str,
    /// Its value on the source.
    pub source: String,
    /// Its value on the replica.
    pub replica: String,
}

/// What a mover did for one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// The path below the root.
    pub path: RelPath,
    /// Kind of the entry.
    pub kind: Kind,
    /// What was done.
    pub action: Action,
    /// What had differed.
    pub what: What,
    /// Size of the entry in bytes.
    pub size: u64,
    /// Both values of what had differed, if the monitor wants them.
    pub values: Vec<Difference>,
    /// Where the content had differed, in bytes, as far as it was compared; the first thousand
    /// ranges.
    pub ranges: Vec<Range<u64>>,
}
