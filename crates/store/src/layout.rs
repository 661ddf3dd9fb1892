//! The order of content: which bytes of which files make up a unit.
//!
//! Units of large files come first, in the order of the entries. Each is cut at multiples of a
//! unit, so that a file has the same units in every set. Files with fewer bytes than a unit are
//! packed: 100,000 of them are few units. The layout follows from the catalogue, whose rules are
//! checked here; nothing else may rely on a catalogue before.

use crate::format::{
    CatalogueEntry, CatalogueHead, DataExtent, EXTENTS_MAX, EntryBody, SmallFile, TARGET_BYTES_MAX,
    UNIT_BYTES,
};
use driftless_model::{Kind, is_reserved_name};
use std::ops::Range;

const UNIT: u64 = UNIT_BYTES as u64;

/// A broken rule, in words.
type RuleCheck<T = ()> = Result<T, &'static str>;

/// The order of the content of a set.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    large: Vec<LargeContent>,
    /// Entries and bytes of small files, in the order of the content.
    small: Vec<(u32, u32)>,
    /// The first small file of each packed unit.
    packs: Vec<usize>,
    /// Units of large files.
    large_units: u64,
    /// Entries at the top.
    pub(crate) tops: Vec<u32>,
}

/// A file with at least one full unit of data.
#[derive(Debug, Clone, Copy)]
struct LargeContent {
    entry: u32,
    bytes: u64,
    first_unit: u64,
}

/// A range of the data of one file within a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitPiece {
    pub(crate) entry: u32,
    /// Offset in the data of the file: holes do not count.
    pub(crate) at: u64,
    pub(crate) bytes: u32,
    /// Its number among the small files.
    pub(crate) small: Option<usize>,
}

/// Returns the number of units that a large file has.
pub(crate) fn units_of_large(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT)
}

/// Returns whether data of so many bytes has units of its own.
pub(crate) fn is_large(bytes: u64) -> bool {
    bytes >= UNIT
}

/// Divides small files into units.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    bytes: u32,
    is_begun: bool,
}

impl Packer {
    /// Adds a file; returns whether a new unit begins with it.
    pub(crate) fn add(&mut self, bytes: u32) -> bool {
        let together = self.bytes.saturating_add(bytes);
        let begins = !self.is_begun || together > UNIT_BYTES;
        self.is_begun = true;
        self.bytes = if begins { bytes } else { together };
        begins
    }
}

impl Layout {
    /// Returns the number of units.
    pub(crate) fn units(&self) -> u64 {
        self.large_units.saturating_add(self.packs.len() as u64)
    }

    /// Returns the bytes of a unit; 0 if there is no such unit.
    pub(crate) fn unit_bytes(&self, unit: u64) -> u32 {
        let pieces = self.pieces(unit);
        pieces
            .iter()
            .fold(0, |sum: u32, piece| sum.saturating_add(piece.bytes))
    }

    /// Returns the pieces of a unit, in order; none if there is no such unit.
    pub(crate) fn pieces(&self, unit: u64) -> Vec<UnitPiece> {
        match unit.checked_sub(self.large_units) {
            None => self.large_piece(unit).into_iter().collect(),
            Some(pack) => self.packed_pieces(pack),
        }
    }

    fn large_piece(&self, unit: u64) -> Option<UnitPiece> {
        let behind = self.large.partition_point(|file| file.first_unit <= unit);
        let file = self.large.get(behind.checked_sub(1)?)?;
        let at = unit.checked_sub(file.first_unit)?.checked_mul(UNIT)?;
        let bytes = file.bytes.checked_sub(at)?.min(UNIT);
        Some(UnitPiece {
            entry: file.entry,
            at,
            bytes: u32::try_from(bytes).ok()?,
            small: None,
        })
    }

    /// Returns the numbers of the small files in a packed unit.
    pub(crate) fn small_files_of(&self, pack: u64) -> Range<usize> {
        let begin = |pack: u64| {
            let first = usize::try_from(pack).ok().and_then(|at| self.packs.get(at));
            first.copied().unwrap_or(self.small.len())
        };
        begin(pack)..begin(pack.saturating_add(1))
    }

    fn packed_pieces(&self, pack: u64) -> Vec<UnitPiece> {
        let range = self.small_files_of(pack);
        let files = self.small.get(range.clone()).unwrap_or_default();
        let pieces = range.zip(files).map(|(number, (entry, bytes))| UnitPiece {
            entry: *entry,
            at: 0,
            bytes: *bytes,
            small: Some(number),
        });
        pieces.collect()
    }

    /// Returns the first unit behind those of large files.
    pub(crate) fn large_units(&self) -> u64 {
        self.large_units
    }

    /// Returns the small files in the order of the content: entry and bytes.
    pub(crate) fn small_files(&self) -> &[(u32, u32)] {
        &self.small
    }
}

/// A directory above the entry that is checked.
#[derive(Debug)]
struct OpenLevel {
    entry: u32,
    last_name: Option<Vec<u8>>,
}

/// Checks a catalogue entry by entry, and makes its layout.
#[derive(Debug, Default)]
pub(crate) struct LayoutBuilder {
    layout: Layout,
    entries: u32,
    bytes: u64,
    levels: Vec<OpenLevel>,
    last_top: Option<Vec<u8>>,
    /// Entries that a hard link may name.
    linkable: Vec<bool>,
    /// Entries and bytes of the small files, in the order of the entries.
    expected: Vec<(u32, u32)>,
    packer: Packer,
}

impl LayoutBuilder {
    /// Adds the next entry.
    pub(crate) fn entry(&mut self, entry: &CatalogueEntry) -> RuleCheck {
        let number = self.entries;
        self.entries = number.checked_add(1).ok_or("too many entries")?;
        self.place(number, entry)?;
        check_body(&entry.body)?;
        if let EntryBody::HardLink { first } = entry.body {
            let is_linkable = self.linkable.get(first as usize).copied();
            if is_linkable != Some(true) {
                return Err("a hard link to no earlier entry");
            }
        }
        let is_linkable = !matches!(entry.body, EntryBody::Dir(_) | EntryBody::HardLink { .. });
        self.linkable.push(is_linkable);
        if matches!(entry.body, EntryBody::Dir(_)) {
            let last_name = None;
            self.levels.push(OpenLevel {
                entry: number,
                last_name,
            });
        }
        self.content(number, entry.body.data_bytes())
    }

    /// Checks that a directory comes before its entries, and that their names ascend: so no name
    /// comes twice.
    fn place(&mut self, number: u32, entry: &CatalogueEntry) -> RuleCheck {
        let name = entry.name.as_bytes();
        let last = match entry.parent {
            None => {
                self.levels.clear();
                self.layout.tops.push(number);
                if is_reserved_name(name) {
                    return Err("a reserved name");
                }
                &mut self.last_top
            }
            Some(parent) => {
                while self
                    .levels
                    .last()
                    .is_some_and(|level| level.entry != parent)
                {
                    self.levels.pop();
                }
                let level = self.levels.last_mut().ok_or("an entry in no directory")?;
                &mut level.last_name
            }
        };
        if last.as_ref().is_some_and(|last| last.as_slice() >= name) {
            return Err("names out of order");
        }
        *last = Some(name.to_vec());
        Ok(())
    }

    fn content(&mut self, entry: u32, bytes: u64) -> RuleCheck {
        self.bytes = self.bytes.checked_add(bytes).ok_or("too many bytes")?;
        if is_large(bytes) {
            let first_unit = self.layout.large_units;
            self.layout.large.push(LargeContent {
                entry,
                bytes,
                first_unit,
            });
            let units = first_unit.checked_add(units_of_large(bytes));
            self.layout.large_units = units.ok_or("too many units")?;
        } else if bytes > 0 {
            let bytes = u32::try_from(bytes).map_err(|_| "a small file is large")?;
            self.expected.push((entry, bytes));
        }
        Ok(())
    }

    /// Adds the next small file.
    pub(crate) fn small(&mut self, file: &SmallFile) -> RuleCheck {
        if self.layout.small.len() >= self.expected.len() {
            return Err("too many small files");
        }
        if self.packer.add(file.bytes) {
            self.layout.packs.push(self.layout.small.len());
        }
        self.layout.small.push((file.entry, file.bytes));
        Ok(())
    }

    /// Returns the layout, if it is the one that the head states.
    pub(crate) fn finish(self, head: &CatalogueHead) -> RuleCheck<Layout> {
        let mut found = self.layout.small.clone();
        found.sort_unstable();
        match () {
            () if self.entries != head.entries => Err("a wrong number of entries"),
            () if found != self.expected => Err("small files that are no entries"),
            () if self.layout.units() != head.units => Err("a wrong number of units"),
            () if self.bytes != head.bytes => Err("a wrong number of bytes"),
            () => Ok(self.layout),
        }
    }
}

fn check_body(body: &EntryBody) -> RuleCheck {
    match body {
        EntryBody::File {
            size,
            extents: Some(extents),
            ..
        } => check_extents(*size, extents),
        EntryBody::Symlink { target, .. } => {
            let fits = (1..=TARGET_BYTES_MAX).contains(&target.len()) && !target.contains(&0);
            fits.then_some(()).ok_or("a bad target of a symbolic link")
        }
        EntryBody::Node { kind, .. } => {
            let is_node = !matches!(kind, Kind::File | Kind::Dir | Kind::Symlink);
            is_node.then_some(()).ok_or("a bad kind of a special file")
        }
        _ => Ok(()),
    }
}

fn check_extents(size: u64, extents: &[DataExtent]) -> RuleCheck {
    let mut free = 0;
    for extent in extents {
        let end = extent.offset.checked_add(extent.bytes);
        let fits = extent.bytes > 0 && extent.offset >= free && end.is_some_and(|end| end <= size);
        if !fits {
            return Err("ranges of data out of order");
        }
        free = extent.end();
    }
    (extents.len() <= EXTENTS_MAX)
        .then_some(())
        .ok_or("too many ranges of data")
}

/// Returns the ranges of a file at which `bytes` of its data lie, from `at` in the data on.
pub(crate) fn file_ranges(extents: &[DataExtent], at: u64, bytes: u64) -> Vec<DataExtent> {
    let (mut skip, mut left, mut found) = (at, bytes, Vec::new());
    for extent in extents {
        if left == 0 {
            break;
        }
        if skip >= extent.bytes {
            skip = skip.saturating_sub(extent.bytes);
            continue;
        }
        let take = extent.bytes.saturating_sub(skip).min(left);
        found.push(DataExtent {
            offset: extent.offset.saturating_add(skip),
            bytes: take,
        });
        (skip, left) = (0, left.saturating_sub(take));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_behind_holes_has_file_offsets() {
        let extent = |offset, bytes| DataExtent { offset, bytes };
        let extents = [extent(10, 5), extent(100, 20)];
        for (at, bytes, expected) in [
            (0, 5, vec![extent(10, 5)]),
            (3, 10, vec![extent(13, 2), extent(100, 8)]),
            (5, 1, vec![extent(100, 1)]),
            (25, 1, vec![]),
            (0, 0, vec![]),
        ] {
            assert_eq!(file_ranges(&extents, at, bytes), expected, "{at} {bytes}");
        }
    }

    #[test]
    fn small_files_fill_units() {
        let mut packer = Packer::default();
        let begins: Vec<bool> = [60_000, 5_536, 1, 65_535, 1, 1]
            .into_iter()
            .map(|bytes| packer.add(bytes))
            .collect();
        assert_eq!(begins, [true, false, true, false, true, false]);
    }
}
