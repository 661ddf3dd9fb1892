//! What the record holds, as values, and how rows become such values. Numbers keep their 64 bits:
//! SQLite's integers are signed.

use crate::columns::bad;
pub(super) use crate::columns::{number, path};
use crate::{StateError, StoreError};
use driftless_model::{EntryName, Kind, Meta, RelPath, Stamp, Unkept};
use rusqlite::types::Type;
use rusqlite::{Row, ToSql};
use std::collections::VecDeque;
use std::ops::Range;

/// Rows that are read at a time.
const ROWS: usize = 1000;

/// An open batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Which class of work it belongs to.
    pub class: u8,
    /// It makes files with several names, one name of each.
    pub is_alone: bool,
    /// What its first piece is: `tree`, `entries`, `bytes` or `rest`.
    pub what: &'static str,
    /// What its first piece is about.
    pub path: RelPath,
    /// How many pieces it has.
    pub pieces: usize,
    /// How many entries its pieces name.
    pub entries: usize,
    /// How many bytes of large files its pieces name, if any do.
    pub bytes: Option<u64>,
    /// All of it, as movers get it.
    pub body: Vec<u8>,
}

/// A name of a file that has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkName {
    /// Device and inode of the source.
    pub id: (u64, u64),
    /// Where.
    pub path: RelPath,
    /// Its size in bytes.
    pub size: u64,
    /// The replica has something of this name.
    pub there: bool,
}

/// A large file whose bytes are copied by several movers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeFile {
    /// Where.
    pub path: RelPath,
    /// What the source was like, as the note of an unfinished file has it.
    pub source: String,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// Which class of work it belongs to.
    pub class: u8,
    /// It is a file with several names, of which this one is made.
    pub is_alone: bool,
}

/// What was known of a source's directory when it was left to be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// It was like this when all its names were read.
    Whole(Meta),
    /// It has changed since, and must be listed again.
    Changed,
    /// Only some paths in it are looked at.
    InPart,
}

/// A directory that is to be finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDir {
    /// Where.
    pub path: RelPath,
    /// What was known of the source's.
    pub listing: Listing,
    /// The run made the replica's.
    pub made: bool,
    /// It took the place of something else.
    pub replaced: bool,
    /// The source could not be listed to its end.
    pub unlisted: bool,
}

/// A name that the replica may take for one with others of its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alike {
    /// Its directory.
    pub dir: RelPath,
    /// The name.
    pub name: EntryName,
    /// Those before it.
    pub earlier: Vec<EntryName>,
}

/// What stands on the replica under another spelling than the source's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misspelling {
    /// Its directory.
    pub dir: RelPath,
    /// How the replica spells it.
    pub found: EntryName,
    /// How the source does.
    pub wanted: EntryName,
}

/// Rows of a table in the order of their keys, read as they are wanted.
pub struct Rows<'a, T> {
    page: Box<Page<'a, T>>,
    read: VecDeque<T>,
    last: Option<T>,
}

/// At most so many rows after this one.
type Page<'a, T> = dyn Fn(Option<&T>, usize) -> Result<Vec<T>, StateError> + 'a;

impl<T: Clone> Rows<'_, T> {
    pub(super) fn of<'a>(
        page: impl Fn(Option<&T>, usize) -> Result<Vec<T>, StateError> + 'a,
    ) -> Rows<'a, T> {
        Rows {
            page: Box::new(page),
            read: VecDeque::new(),
            last: None,
        }
    }

    /// The next one.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn next_row(&mut self) -> Result<Option<T>, StateError> {
        self.peek()?;
        Ok(self.read.pop_front())
    }

    /// The one that comes next.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn peek(&mut self) -> Result<Option<&T>, StateError> {
        if self.read.is_empty() {
            self.read = (self.page)(self.last.as_ref(), ROWS)?.into();
            self.last = self.read.back().cloned().or(self.last.take());
        }
        Ok(self.read.front())
    }
}

pub(super) fn name(row: &Row<'_>, at: usize) -> Result<EntryName, StoreError> {
    EntryName::try_from(row.get::<_, Vec<u8>>(at)?).map_err(|error| bad(at, Type::Blob, error))
}

/// Seconds, and nanoseconds in the next column; nothing where both are `NULL`.
pub(super) fn opt_stamp(row: &Row<'_>, at: usize) -> Result<Option<Stamp>, StoreError> {
    let parts = row
        .get::<_, Option<i64>>(at)?
        .zip(row.get::<_, Option<u32>>(at + 1)?);
    Ok(parts.map(|(sec, nsec)| Stamp { sec, nsec }))
}

fn stamp(row: &Row<'_>, at: usize) -> Result<Stamp, StoreError> {
    opt_stamp(row, at)?.ok_or_else(|| bad(at, Type::Null, "no time"))
}

/// The columns of a directory's metadata, in their order; `NULL` where nothing is known.
pub(super) const META_COLUMNS: usize = 17;

pub(super) fn meta_values(meta: Option<&Meta>) -> [Box<dyn ToSql>; META_COLUMNS] {
    let bits = |value: fn(&Meta) -> u64| {
        Box::new(meta.map(|meta| value(meta).cast_signed())) as Box<dyn ToSql>
    };
    let sec =
        |time: fn(&Meta) -> Stamp| Box::new(meta.map(|meta| time(meta).sec)) as Box<dyn ToSql>;
    let nsec =
        |time: fn(&Meta) -> Stamp| Box::new(meta.map(|meta| time(meta).nsec)) as Box<dyn ToSql>;
    [
        Box::new(meta.map(|meta| meta.kind.word())),
        bits(|meta| meta.mode.into()),
        bits(|meta| meta.uid.into()),
        bits(|meta| meta.gid.into()),
        bits(|meta| meta.size),
        bits(|meta| meta.blocks),
        sec(|meta| meta.mtime),
        nsec(|meta| meta.mtime),
        sec(|meta| meta.atime),
        nsec(|meta| meta.atime),
        sec(|meta| meta.ctime),
        nsec(|meta| meta.ctime),
        bits(|meta| meta.nlink),
        bits(|meta| meta.dev),
        bits(|meta| meta.ino),
        bits(|meta| meta.rdev),
        bits(|meta| meta.unkept.bits().into()),
    ]
}

pub(super) fn meta(row: &Row<'_>, at: usize) -> Result<Meta, StoreError> {
    let word: String = row.get(at)?;
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| kind.word() == word)
        .ok_or_else(|| bad(at, Type::Text, "no kind of entry"))?;
    Ok(Meta {
        kind,
        mode: row.get(at + 1)?,
        uid: row.get(at + 2)?,
        gid: row.get(at + 3)?,
        size: number(row, at + 4)?,
        blocks: number(row, at + 5)?,
        mtime: stamp(row, at + 6)?,
        atime: stamp(row, at + 8)?,
        ctime: stamp(row, at + 10)?,
        nlink: number(row, at + 12)?,
        dev: number(row, at + 13)?,
        ino: number(row, at + 14)?,
        rdev: number(row, at + 15)?,
        unkept: Unkept::from_bits(row.get(at + 16)?),
    })
}

pub(super) fn open_dir(row: &Row<'_>) -> Result<OpenDir, StoreError> {
    let listing = match &*row.get::<_, String>(1)? {
        "whole" => Listing::Whole(meta(row, 5)?),
        "changed" => Listing::Changed,
        _ => Listing::InPart,
    };
    Ok(OpenDir {
        path: path(row, 0)?,
        listing,
        made: row.get(2)?,
        replaced: row.get(3)?,
        unlisted: row.get(4)?,
    })
}

pub(super) fn link(row: &Row<'_>) -> Result<LinkName, StoreError> {
    Ok(LinkName {
        id: (number(row, 0)?, number(row, 1)?),
        path: path(row, 2)?,
        size: number(row, 3)?,
        there: row.get(4)?,
    })
}

pub(super) fn alike(row: &Row<'_>) -> Result<Alike, StoreError> {
    let bytes: Vec<u8> = row.get(2)?;
    let names = bytes
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    let earlier: Result<Vec<EntryName>, _> = names
        .map(|name| EntryName::try_from(name.to_vec()))
        .collect();
    Ok(Alike {
        dir: path(row, 0)?,
        name: name(row, 1)?,
        earlier: earlier.map_err(|error| bad(2, Type::Blob, error))?,
    })
}

/// Names in one value: none of them has a "/".
pub(super) fn joined(names: &[EntryName]) -> Vec<u8> {
    names
        .iter()
        .map(EntryName::as_bytes)
        .collect::<Vec<_>>()
        .join(&b'/')
}

pub(super) fn misspelling(row: &Row<'_>) -> Result<Misspelling, StoreError> {
    Ok(Misspelling {
        dir: path(row, 0)?,
        found: name(row, 1)?,
        wanted: name(row, 2)?,
    })
}

pub(super) fn range(row: &Row<'_>) -> Result<Range<u64>, StoreError> {
    Ok(number(row, 0)?..number(row, 1)?)
}

/// The smallest key after this one, in the order of bytes (memcmp(3), as SQLite compares blobs).
pub(super) fn after(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}
