//! Units of content, read from a source or from a copy.
//!
//! A unit is hashed before the caller sees it. A source that changes, and a copy that a user or a
//! disk damaged, are errors that name the file.

use crate::catalogue::Catalogue;
use crate::cursor::DirCursor;
use crate::error::{Error, Result};
use crate::format::{DataExtent, Hash};
use crate::layout::{UnitPiece, file_ranges};
use crate::sources::OpenSource;
use driftless_model::{Fault, Kind, errno};
use driftless_tree::{DirRef, ReadFile};
use std::collections::VecDeque;
use std::sync::Arc;

/// Large files that stay open.
const OPEN_FILES_MAX: usize = 8;

/// The tree that units are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadFrom {
    Source,
    Copy,
}

/// Reads units of one set. Belongs to one thread; readers of one set do not disturb each other.
pub struct UnitReader {
    catalogue: Arc<Catalogue>,
    cursor: DirCursor<DirRef>,
    from: ReadFrom,
    open: VecDeque<OpenUnitFile>,
}

/// A large file that stays open.
#[derive(Clone)]
struct OpenUnitFile {
    entry: u32,
    file: Arc<dyn ReadFile>,
    extents: Arc<Vec<DataExtent>>,
}

impl UnitReader {
    /// Reads open sources.
    pub(crate) fn of_source(catalogue: &Arc<Catalogue>, sources: &[OpenSource]) -> UnitReader {
        let tops = sources.iter().map(|source| source.top.clone()).collect();
        UnitReader {
            catalogue: catalogue.clone(),
            cursor: DirCursor::new(tops, b""),
            from: ReadFrom::Source,
            open: VecDeque::new(),
        }
    }

    /// Reads a copy in the directory that holds it.
    pub(crate) fn of_copy(
        catalogue: &Arc<Catalogue>,
        dir: &DirRef,
        place: &[u8],
    ) -> Result<UnitReader> {
        Ok(UnitReader {
            catalogue: catalogue.clone(),
            cursor: DirCursor::within(catalogue, dir, place)?,
            from: ReadFrom::Copy,
            open: VecDeque::new(),
        })
    }

    /// Returns the set.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Reads a unit into `buffer`, in place of what is there, and checks its hash.
    ///
    /// # Errors
    /// [`Error::SourceChanged`] or [`Error::CopyChanged`] if the content has another hash or is
    /// missing; [`Error::Entry`] if a file cannot be read.
    pub fn read(&mut self, unit: u64, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.clear();
        let pieces = self.catalogue.pieces(unit)?;
        for piece in &pieces {
            let begin = buffer.len();
            self.read_piece(piece, buffer)?;
            if buffer.len().saturating_sub(begin) < piece.bytes as usize {
                buffer.clear();
                return Err(self.changed(piece.entry));
            }
        }
        if *blake3::hash(buffer).as_bytes() == self.catalogue.unit_hash(unit)? {
            return Ok(());
        }
        let culprit = self.culprit(&pieces, buffer)?;
        buffer.clear();
        Err(self.changed(culprit))
    }

    /// Reads the data of one small file into `buffer`, and checks its hash.
    ///
    /// # Errors
    /// As [`read`](UnitReader::read).
    pub(crate) fn read_small(&mut self, number: usize, buffer: &mut Vec<u8>) -> Result<()> {
        let file = self.catalogue.small_file(number)?;
        let piece = UnitPiece {
            entry: file.entry,
            at: 0,
            bytes: file.bytes,
            small: Some(number),
        };
        buffer.clear();
        self.read_piece(&piece, buffer)?;
        if *blake3::hash(buffer).as_bytes() == file.hash {
            return Ok(());
        }
        buffer.clear();
        Err(self.changed(file.entry))
    }

    /// Appends the bytes of a piece; fewer if the file ends early.
    pub(crate) fn read_piece(&mut self, piece: &UnitPiece, buffer: &mut Vec<u8>) -> Result<()> {
        let open = self.open(piece)?;
        for range in file_ranges(&open.extents, piece.at, piece.bytes.into()) {
            let begin = buffer.len();
            let length = usize::try_from(range.bytes).unwrap_or(usize::MAX);
            buffer.resize(begin.saturating_add(length), 0);
            let Some(room) = buffer.get_mut(begin..) else {
                break;
            };
            let got = open.file.read_at(room, range.offset);
            let got = got.map_err(|fault| self.failed(piece.entry, fault))?;
            buffer.truncate(begin.saturating_add(got));
            if got < length {
                break;
            }
        }
        Ok(())
    }

    /// Returns the open file and the range in which all of a piece lies; `None` if holes divide it.
    pub(crate) fn whole_range(
        &mut self,
        piece: &UnitPiece,
    ) -> Result<Option<(Arc<dyn ReadFile>, DataExtent)>> {
        let Ok(open) = self.open(piece) else {
            return Ok(None);
        };
        let ranges = file_ranges(&open.extents, piece.at, piece.bytes.into());
        match ranges.as_slice() {
            [range] if range.bytes == u64::from(piece.bytes) => Ok(Some((open.file, *range))),
            _ => Ok(None),
        }
    }

    fn open(&mut self, piece: &UnitPiece) -> Result<OpenUnitFile> {
        if let Some(found) = self.open.iter().find(|open| open.entry == piece.entry) {
            return Ok(found.clone());
        }
        let (dir, name) = self
            .cursor
            .holder(&self.catalogue, piece.entry)
            .map_err(|error| self.absent(piece.entry, error))?;
        let failed = |fault| self.failed(piece.entry, fault);
        let file: Arc<dyn ReadFile> = dir.open_file(&name).map_err(failed)?.into();
        if file.meta().map_err(failed)?.kind != Kind::File {
            return Err(self.changed(piece.entry));
        }
        let extents = Arc::new(self.catalogue.entry(piece.entry)?.body.extents());
        let open = OpenUnitFile {
            entry: piece.entry,
            file,
            extents,
        };
        if piece.small.is_none() {
            self.open.push_back(open.clone());
            if self.open.len() > OPEN_FILES_MAX {
                self.open.pop_front();
            }
        }
        Ok(open)
    }

    /// Returns the first file of a unit whose data has another hash; the first one if the hashes do
    /// not tell.
    fn culprit(&self, pieces: &[UnitPiece], bytes: &[u8]) -> Result<u32> {
        let mut rest = bytes;
        for piece in pieces {
            let (own, behind) = rest.split_at(rest.len().min(piece.bytes as usize));
            rest = behind;
            let Some(number) = piece.small else {
                return Ok(piece.entry);
            };
            let hash: Hash = blake3::hash(own).into();
            if hash != self.catalogue.small_file(number)?.hash {
                return Ok(piece.entry);
            }
        }
        Ok(pieces.first().map_or(0, |piece| piece.entry))
    }

    /// Names the entry whose call failed. An entry that is missing or has another kind has changed.
    fn failed(&self, entry: u32, fault: Fault) -> Error {
        const OTHER_KIND: [i32; 3] = [errno::ENXIO, errno::EISDIR, errno::ENODEV];
        let is_other = fault.is_absent() || OTHER_KIND.contains(&fault.errno) || fault.is_stale();
        match is_other {
            true => self.changed(entry),
            false => self.cursor.failed(&self.catalogue, entry, fault),
        }
    }

    fn absent(&self, entry: u32, error: Error) -> Error {
        match error {
            Error::Entry { fault, .. } => self.failed(entry, fault),
            other => other,
        }
    }

    fn changed(&self, entry: u32) -> Error {
        let path = self.cursor.path(&self.catalogue, entry);
        match self.from {
            ReadFrom::Source => Error::SourceChanged { path },
            ReadFrom::Copy => Error::CopyChanged { path },
        }
    }
}
