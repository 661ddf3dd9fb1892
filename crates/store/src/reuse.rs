//! Content that the node has already, in other copies: it is copied on this host instead of
//! fetched.
//!
//! Candidates are found by the first 64 bits of their hashes. What was copied is hashed in the
//! private directory, where no other user can change it, and counts only then. Nothing is shared by
//! a hard link: a user may write to the other copy.

use crate::catalogue::Catalogue;
use crate::error::Result;
use crate::format::{Hash, UNIT_BYTES};
use crate::in_use::{CopyUse, hold_copy, use_copy};
use crate::layout::UnitPiece;
use crate::node::NodeFiles;
use crate::present::PresentUnits;
use crate::reader::UnitReader;
use crate::receiver::SetReceiver;
use crate::writer::UnitWriter;
use driftless_model::Cache;
use driftless_state::holdings::{CopyRow, CopyState};
use driftless_tree::{Copier, DirRef, Ladder};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Hashes of other copies that are held in memory at most, of some 32 bytes each.
const KNOWN_HASHES_MAX: usize = 4 * 1024 * 1024;

/// Content that was found on the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReusedContent {
    /// Units that are there now.
    pub units: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Places of content in other copies, by the first 64 bits of its hash.
#[derive(Default)]
struct KnownContent {
    /// Copy and unit, of large files.
    units: HashMap<u64, (u32, u64)>,
    /// Copy and number of a small file.
    small: HashMap<u64, (u32, usize)>,
}

impl KnownContent {
    fn is_full(&self) -> bool {
        self.units.len().saturating_add(self.small.len()) >= KNOWN_HASHES_MAX
    }

    /// Adds the content of a copy that `wanted` has, too.
    fn add(&mut self, copy: u32, catalogue: &Catalogue, wanted: &WantedContent) -> Result<()> {
        for unit in 0..catalogue.layout().large_units() {
            let key = key_of(&catalogue.unit_hash(unit)?);
            if wanted.units.contains(&key) && !self.is_full() {
                self.units.entry(key).or_insert((copy, unit));
            }
        }
        for number in 0..catalogue.layout().small_files().len() {
            let key = key_of(&catalogue.small_file(number)?.hash);
            if wanted.small.contains(&key) && !self.is_full() {
                self.small.entry(key).or_insert((copy, number));
            }
        }
        Ok(())
    }
}

/// Keys of the content that a set lacks.
#[derive(Default)]
struct WantedContent {
    units: HashSet<u64>,
    small: HashSet<u64>,
}

impl WantedContent {
    fn of(catalogue: &Catalogue, present: &PresentUnits) -> Result<WantedContent> {
        let (mut wanted, layout) = (WantedContent::default(), catalogue.layout());
        let room = |wanted: &WantedContent| {
            wanted.units.len().saturating_add(wanted.small.len()) < KNOWN_HASHES_MAX
        };
        for range in present.lacking(usize::MAX) {
            for unit in range {
                if !room(&wanted) {
                    return Ok(wanted);
                }
                match unit.checked_sub(layout.large_units()) {
                    None => _ = wanted.units.insert(key_of(&catalogue.unit_hash(unit)?)),
                    Some(pack) => {
                        for number in layout.small_files_of(pack) {
                            let hash = catalogue.small_file(number)?.hash;
                            wanted.small.insert(key_of(&hash));
                        }
                    }
                }
            }
        }
        Ok(wanted)
    }
}

fn key_of(hash: &Hash) -> u64 {
    let (first, _) = hash.split_first_chunk().unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*first)
}

/// Another copy that content is taken from.
struct OtherCopy {
    reader: UnitReader,
    _use: CopyUse,
}

/// Copies content from other copies.
struct ContentReuse<'a> {
    catalogue: &'a Arc<Catalogue>,
    writer: &'a mut UnitWriter,
    present: &'a PresentUnits,
    others: Vec<OtherCopy>,
    known: KnownContent,
    copier: Copier,
    own: UnitReader,
    buffer: Vec<u8>,
    reused: ReusedContent,
}

impl SetReceiver {
    /// Copies what other copies of this node have already. `pace` receives the bytes before they
    /// are copied, may wait, and stops the reuse with `false`.
    ///
    /// # Errors
    /// The disk is full, or an unfinished file cannot be written. A copy that cannot be read is no
    /// error.
    pub fn reuse(&mut self, pace: &mut dyn FnMut(u64) -> bool) -> Result<ReusedContent> {
        let own = self.reader()?;
        let copy = self.copy();
        let (files, catalogue, writer, present) = self.parts_for_reuse();
        if present.is_complete() {
            return Ok(ReusedContent::default());
        }
        let wanted = WantedContent::of(catalogue, present)?;
        let mut reuse = ContentReuse {
            catalogue,
            writer,
            present,
            others: Vec::new(),
            known: KnownContent::default(),
            copier: Copier::new(Cache::Keep, Arc::new(Ladder::default())),
            own,
            buffer: Vec::new(),
            reused: ReusedContent::default(),
        };
        reuse.find(files, copy, &wanted)?;
        reuse.large(pace)?;
        reuse.small(pace)?;
        Ok(reuse.reused)
    }
}

impl ContentReuse<'_> {
    /// Opens the other copies, the one that was used last first.
    fn find(&mut self, files: &Arc<NodeFiles>, copy: u64, wanted: &WantedContent) -> Result<()> {
        let rows = files.index.lock().copies()?;
        let is_other = |row: &&CopyRow| {
            let has_content = matches!(
                row.state,
                CopyState::Held | CopyState::Damaged | CopyState::Unfinished
            );
            row.id != copy && has_content
        };
        for row in rows.iter().rev().filter(is_other) {
            if self.known.is_full() {
                break;
            }
            // A copy that is being removed is not worth a wait.
            let in_use = match row.state {
                CopyState::Unfinished => hold_copy(files, row.id),
                _ => use_copy(files, row.id),
            };
            let Ok(in_use) = in_use else {
                continue;
            };
            let (Ok(Some(catalogue)), Ok(Some(place))) =
                (files.catalogue_of(row), files.place_of(row))
            else {
                continue;
            };
            let dir: DirRef = match row.state {
                CopyState::Unfinished => match files.find_private(row, &place) {
                    Ok(Some(private)) => private.dir,
                    _ => continue,
                },
                _ => place.dir,
            };
            let number = u32::try_from(self.others.len()).unwrap_or(u32::MAX);
            self.known.add(number, &catalogue, wanted)?;
            let reader = UnitReader::of_copy(&catalogue, &dir, &place.path)?;
            self.others.push(OtherCopy {
                reader,
                _use: in_use,
            });
        }
        Ok(())
    }

    fn large(&mut self, pace: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        for unit in 0..self.catalogue.layout().large_units() {
            if self.present.has(unit) {
                continue;
            }
            let key = key_of(&self.catalogue.unit_hash(unit)?);
            let Some((copy, other)) = self.known.units.get(&key).copied() else {
                continue;
            };
            let bytes = self.catalogue.unit_bytes(unit);
            if !pace(bytes.into()) {
                return Ok(());
            }
            if self.copy_unit(unit, copy, other)? {
                self.count(bytes);
            }
        }
        Ok(())
    }

    /// Copies a unit of a large file: by the kernel if it lies at the same offset, and otherwise
    /// through memory. Returns whether it is there now.
    fn copy_unit(&mut self, unit: u64, copy: u32, other: u64) -> Result<bool> {
        let Some(from) = self.others.get_mut(copy as usize) else {
            return Ok(false);
        };
        let (Some(to), Some(source)) = (
            self.catalogue.pieces(unit)?.first().copied(),
            from.reader.catalogue().pieces(other)?.first().copied(),
        ) else {
            return Ok(false);
        };
        if let Some((file, range)) = from.reader.whole_range(&source)? {
            let extents = self.catalogue.entry(to.entry)?.body.extents();
            let places = crate::layout::file_ranges(&extents, to.at, to.bytes.into());
            if places.as_slice() == [range] {
                let target = self.writer.large_file(to.entry)?;
                let whole = range.offset..range.end();
                let files = (&*file, target);
                let copied = self.copier.copy(files, whole, false, &mut |_| Ok(()));
                if copied == Ok(range.bytes) && self.own.read(unit, &mut self.buffer).is_ok() {
                    self.present.add(unit);
                    return Ok(true);
                }
            }
        }
        self.copy_through_memory(unit, copy, other)
    }

    fn copy_through_memory(&mut self, unit: u64, copy: u32, other: u64) -> Result<bool> {
        let Some(from) = self.others.get_mut(copy as usize) else {
            return Ok(false);
        };
        let read = from.reader.read(other, &mut self.buffer);
        let hash: Hash = blake3::hash(&self.buffer).into();
        if read.is_err() || hash != self.catalogue.unit_hash(unit)? {
            return Ok(false);
        }
        self.writer.write(unit, &self.buffer)?;
        self.present.add(unit);
        Ok(true)
    }

    /// Copies small files, each on its own: a unit of them is there once all of its files are.
    fn small(&mut self, pace: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let layout = self.catalogue.layout();
        for unit in layout.large_units()..layout.units() {
            if self.present.has(unit) {
                continue;
            }
            let pack = unit.saturating_sub(layout.large_units());
            let bytes = self.catalogue.unit_bytes(unit);
            if !pace(bytes.into()) {
                return Ok(());
            }
            if self.copy_pack(pack)? {
                self.present.add(unit);
                self.count(bytes);
            }
        }
        Ok(())
    }

    /// Copies the small files of a unit if the node has all of them.
    fn copy_pack(&mut self, pack: u64) -> Result<bool> {
        let range = self.catalogue.layout().small_files_of(pack);
        let mut places = Vec::new();
        for number in range {
            let file = self.catalogue.small_file(number)?;
            let Some(place) = self.known.small.get(&key_of(&file.hash)).copied() else {
                return Ok(false);
            };
            places.push((number, file, place));
        }
        let mut content = Vec::with_capacity(UNIT_BYTES as usize);
        let mut pieces = Vec::new();
        for (number, file, (copy, other)) in places {
            let Some(from) = self.others.get_mut(copy as usize) else {
                return Ok(false);
            };
            let read = from.reader.read_small(other, &mut self.buffer);
            if read.is_err() || *blake3::hash(&self.buffer).as_bytes() != file.hash {
                return Ok(false);
            }
            content.extend_from_slice(&self.buffer);
            pieces.push(UnitPiece {
                entry: file.entry,
                at: 0,
                bytes: file.bytes,
                small: Some(number),
            });
        }
        let mut rest = content.as_slice();
        for piece in &pieces {
            let (own, behind) = rest.split_at(rest.len().min(piece.bytes as usize));
            rest = behind;
            self.writer.write_piece(piece, own)?;
        }
        Ok(true)
    }

    fn count(&mut self, bytes: u32) {
        self.reused.units = self.reused.units.saturating_add(1);
        self.reused.bytes = self.reused.bytes.saturating_add(bytes.into());
    }
}
