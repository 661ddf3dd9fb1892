//! What `zfs diff -FHt OLDER NEWER` tells.
//!
//! ```text
//! [seconds.nanoseconds TAB] change TAB [type TAB] path [TAB new path | TAB (+n)]
//! ```
//!
//! A change is `+`, `-`, `M` or `R`. Every byte of a path but `!` to `~` without the backslash is a
//! backslash and four octal digits. Times stand there with `-t`, types with `-F`, and both may be
//! left away. Source: zfs-diff(8), lib/libzfs/libzfs_diff.c of OpenZFS.
//!
//! A path of an entry that is gone is that of the older snapshot, and one of an entry that has
//! moved is told with its own name alone, so [`changes`] finds where both are in the newer one.

mod moves;
mod provider;

pub use provider::Dataset;

use crate::base::Base;
use crate::lines::{LineFault, Lines};
use driftless_model::{Change, RelPath, Stamp, escape};
use std::io::BufRead;

/// More lines than this are not read: each takes some 300 bytes, and a source of which more differs
/// is compared as a whole in the same time.
const RECORDS_MAX: usize = 16 << 20;

/// A directory below an entry that stands for its extended attributes (zfs_znode.c,
/// `zfs_obj_to_path_impl`).
const XATTR_DIRECTORY: &[u8] = b"<xattrdir>";
/// Devices, directories, doors, pipes, symbolic links, event ports, sockets, files.
const KINDS: &[u8; 9] = b"BC/>|@P=F";
/// A name that ZFS has not found, with the number of the object behind it.
const UNKNOWN_NAME: &[u8] = b"???<object#";

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When the inode was last changed; with `-t`.
    pub time: Option<Stamp>,
    /// What was done.
    pub done: Done,
    /// The letter of its type; with `-F`.
    pub kind: Option<u8>,
    /// Its path in the older snapshot if it is gone or has moved, else in the newer.
    pub path: RelPath,
    /// It is an attribute of the entry at the path that the line is about.
    pub is_attribute: bool,
}

/// What was done to an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// It is new.
    Created,
    /// It is gone.
    Removed,
    /// It is another. With so many more names, or less; which, is not told.
    Modified(i64),
    /// It has this path now, in the newer snapshot.
    Renamed(RelPath),
}

/// What differs between two snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Moves first, each part in the order of the paths; scopes are those of btrfs.
    pub changes: Vec<Change>,
    /// Directories whose names are to be compared on both sides: a file has got or lost a name that
    /// ZFS does not tell, and these are where it may stand. Without `-F`, some may be files.
    pub directories: Vec<RelPath>,
}

/// A line that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of zfs diff: {fault}")]
pub struct ZfsError {
    /// Its number; the first is 1.
    pub line: u64,
    /// What is wrong with it.
    pub fault: ZfsFault,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum ZfsFault {
    /// There is no line.
    #[error(transparent)]
    Line(#[from] LineFault),
    /// The text ends within the line.
    #[error("truncated")]
    CutOff,
    /// It lacks something.
    #[error("no {0}")]
    Missing(&'static str),
    /// It is not one of those that there are.
    #[error("invalid {wanted} \"{}\"", escape(found))]
    Unknown {
        /// What stands there.
        found: Vec<u8>,
        /// What should.
        wanted: &'static str,
    },
    /// There is more than there should be.
    #[error("unexpected text after the path: \"{}\"", escape(.0))]
    More(Vec<u8>),
    /// Another file system's, or a name that ZFS could not find.
    #[error("\"{}\" is not a path below \"{}\"", escape(.0), escape(.1))]
    Elsewhere(Vec<u8>, Vec<u8>),
    /// More differs than memory is planned for.
    #[error("more than {0} entries differ")]
    TooMany(usize),
}

/// Reads all lines; paths are told from `mount`, where the file system is mounted.
///
/// Fails at the first line that cannot be used: what it says is not known, so both sides have to be
/// compared.
pub fn changes(reader: impl BufRead, mount: &Base) -> Result<Found, ZfsError> {
    let mut lines = Lines::new(reader, b'\n');
    let mut records = Vec::new();
    while let Some(line) = lines.next() {
        let record = line
            .map_err(ZfsFault::Line)
            .and_then(|line| match line.has_end {
                false => Err(ZfsFault::CutOff),
                true if records.len() == RECORDS_MAX => Err(ZfsFault::TooMany(RECORDS_MAX)),
                true => parse(&line.bytes, mount),
            });
        records.push(record.map_err(|fault| ZfsError {
            line: lines.number(),
            fault,
        })?);
    }
    Ok(moves::found(&records))
}

/// Reads a line.
pub fn parse(line: &[u8], mount: &Base) -> Result<Record, ZfsFault> {
    let mut fields = line.split(|byte| *byte == b'\t').peekable();
    let time = fields.peek().and_then(|first| stamp(first));
    if time.is_some() {
        fields.next();
    }
    let change = fields.next().filter(|field| !field.is_empty());
    let change = change.ok_or(ZfsFault::Missing("change"))?;
    // The path of the root of all is a slash, too, and no path follows it.
    let is_path = |field: &[u8]| field.starts_with(b"/");
    let has_kind = fields.clone().nth(1).is_some_and(is_path);
    let kind = fields.next_if(|field| has_kind && KINDS.iter().any(|kind| **field == [*kind]));
    let first = fields.next().ok_or(ZfsFault::Missing("path"))?;
    let (path, is_attribute) = place(first, mount)?;
    let second = fields.next();
    if let Some(more) = fields.next() {
        return Err(ZfsFault::More(more.to_vec()));
    }
    let done = match (change, second) {
        (b"+", None) => Done::Created,
        (b"-", None) => Done::Removed,
        (b"M", None) => Done::Modified(0),
        (b"M", Some(delta)) => Done::Modified(links(delta)?),
        (b"R", Some(to)) => Done::Renamed(place(to, mount)?.0),
        (b"R", None) => return Err(ZfsFault::Missing("new path")),
        (b"+" | b"-", Some(more)) => return Err(ZfsFault::More(more.to_vec())),
        (other, _) => return Err(unknown(other, "change")),
    };
    Ok(Record {
        time,
        done,
        kind: kind.map(|field| field[0]),
        path,
        is_attribute,
    })
}

/// The path of an entry, or of the one that an attribute belongs to.
fn place(escaped: &[u8], mount: &Base) -> Result<(RelPath, bool), ZfsFault> {
    let bytes = unescape(escaped)?;
    let elsewhere = || ZfsFault::Elsewhere(bytes.clone(), mount.as_bytes().to_vec());
    let whole = mount.below(&bytes).ok_or_else(elsewhere)?;
    if whole.names().any(|name| name.starts_with(UNKNOWN_NAME)) {
        return Err(elsewhere());
    }
    let is_attribute = whole.names().any(|name| name == XATTR_DIRECTORY);
    let owner = whole.names().take_while(|name| *name != XATTR_DIRECTORY);
    Ok((RelPath::from_names(owner), is_attribute))
}

fn unknown(found: &[u8], wanted: &'static str) -> ZfsFault {
    let found = found.to_vec();
    ZfsFault::Unknown { found, wanted }
}

/// Takes `\0040` back to the byte that it stands for.
fn unescape(escaped: &[u8]) -> Result<Vec<u8>, ZfsFault> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let digits = behind
            .get(..4)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.ok_or_else(|| unknown(escaped, "escaped path"))?);
        rest = &behind[4..];
    }
    Ok(bytes)
}

/// `(+2)` or `(-1)`.
fn links(delta: &[u8]) -> Result<i64, ZfsFault> {
    let inner = delta
        .strip_prefix(b"(")
        .and_then(|rest| rest.strip_suffix(b")"));
    let text = inner.and_then(|inner| std::str::from_utf8(inner).ok());
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| unknown(delta, "number of links"))
}

/// `%10lld.%09lld`.
fn stamp(field: &[u8]) -> Option<Stamp> {
    let (sec, nsec) = std::str::from_utf8(field)
        .ok()?
        .trim_start()
        .split_once('.')?;
    let is_whole = nsec.len() == 9 && nsec.bytes().all(|digit| digit.is_ascii_digit());
    Some(Stamp {
        sec: sec.parse().ok()?,
        nsec: is_whole.then(|| nsec.parse().ok()).flatten()?,
    })
}

#[cfg(test)]
mod tests;
