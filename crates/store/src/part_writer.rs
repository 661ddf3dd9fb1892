//! Writes the parts of a catalogue, each when it is full.

use crate::catalogue::Catalogue;
use crate::error::{Error, Result};
use crate::format::{
    CatalogueEntry, CatalogueHead, ENTRIES_MAX, ENTRIES_PER_PART, FORMAT, HASHES_PER_PART, Hash,
    PART_BYTES_FULL, PARTS_MAX, PartKind, PartRef, SMALL_FILES_PER_PART, SmallFile, encode,
};
use crate::parts::PartFile;
use driftless_tree::ReadFile;

/// Writes the parts of a catalogue.
pub(crate) struct PartWriter {
    file: PartFile,
    at: u64,
    parts: Vec<PartRef>,
    entries: Vec<CatalogueEntry>,
    entry_bytes: usize,
    entry_count: u32,
    small: Vec<SmallFile>,
    hashes: Vec<Hash>,
    units: u64,
    bytes: u64,
}

impl PartWriter {
    pub(crate) fn new(file: PartFile) -> PartWriter {
        PartWriter {
            file,
            at: 0,
            parts: Vec::new(),
            entries: Vec::new(),
            entry_bytes: 0,
            entry_count: 0,
            small: Vec::new(),
            hashes: Vec::new(),
            units: 0,
            bytes: 0,
        }
    }

    /// Adds an entry; returns its number.
    pub(crate) fn entry(&mut self, entry: CatalogueEntry) -> Result<u32> {
        let number = self.entry_count;
        if number >= ENTRIES_MAX {
            return Err(too_large("entries", ENTRIES_MAX.into()));
        }
        self.entry_count = number.saturating_add(1);
        self.entry_bytes = self.entry_bytes.saturating_add(encode(&entry).len());
        self.entries.push(entry);
        if self.entry_bytes >= PART_BYTES_FULL || self.entries.len() == ENTRIES_PER_PART {
            self.flush_entries()?;
        }
        Ok(number)
    }

    pub(crate) fn flush_entries(&mut self) -> Result<()> {
        let entries = std::mem::take(&mut self.entries);
        self.entry_bytes = 0;
        self.part(PartKind::Entries, &encode(&entries), entries.len())
    }

    pub(crate) fn unit(&mut self, bytes: &[u8]) -> Result<()> {
        self.hashes.push(*blake3::hash(bytes).as_bytes());
        self.units = self.units.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.hashes.len() == HASHES_PER_PART {
            self.flush_hashes()?;
        }
        Ok(())
    }

    fn flush_hashes(&mut self) -> Result<()> {
        let hashes = std::mem::take(&mut self.hashes);
        self.part(PartKind::Hashes, &hashes.concat(), hashes.len())
    }

    pub(crate) fn small(&mut self, file: SmallFile) -> Result<()> {
        self.small.push(file);
        if self.small.len() == SMALL_FILES_PER_PART {
            self.flush_small()?;
        }
        Ok(())
    }

    fn flush_small(&mut self) -> Result<()> {
        let small = std::mem::take(&mut self.small);
        self.part(PartKind::SmallFiles, &encode(&small), small.len())
    }

    fn part(&mut self, kind: PartKind, bytes: &[u8], items: usize) -> Result<()> {
        if items == 0 {
            return Ok(());
        }
        if self.parts.len() >= PARTS_MAX {
            return Err(too_large("parts of the catalogue", PARTS_MAX as u64));
        }
        self.file.write(bytes, self.at)?;
        self.parts.push(PartRef {
            kind,
            hash: *blake3::hash(bytes).as_bytes(),
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            items: u32::try_from(items).unwrap_or(u32::MAX),
        });
        self.at = self.at.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// Opens the file a second time, to read what was written.
    pub(crate) fn reopen(&self) -> Result<Box<dyn ReadFile>> {
        self.file.reopen()
    }

    pub(crate) fn head(&self) -> CatalogueHead {
        CatalogueHead {
            format: FORMAT,
            entries: self.entry_count,
            units: self.units,
            bytes: self.bytes,
            parts: self.parts.clone(),
        }
    }

    pub(crate) fn finish(mut self) -> Result<Catalogue> {
        self.flush_hashes()?;
        self.flush_small()?;
        let head = encode(&self.head());
        self.file.finish(&head, self.at)
    }
}

fn too_large(what: &'static str, max: u64) -> Error {
    Error::TooLarge { what, max }
}
