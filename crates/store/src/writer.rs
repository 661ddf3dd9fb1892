//! Writes units into the files of an unfinished copy.

use crate::catalogue::Catalogue;
use crate::cursor::DirCursor;
use crate::error::{Error, Result};
use crate::format::{DataExtent, EntryBody};
use crate::layout::{UnitPiece, file_ranges};
use crate::staging::{PRIVATE_FILE, StagedDir};
use driftless_model::{Act, Fault, Side, errno};
use driftless_tree::{DirMut, Done, WriteFile};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::Arc;

/// Large files that stay open.
const OPEN_FILES_MAX: usize = 16;
/// Ranges of data for which room is reserved in a new file; a file with more of them is reserved as
/// it is written.
const RESERVED_RANGES_MAX: usize = 64;

/// Writes units into the files of an unfinished copy.
pub(crate) struct UnitWriter {
    catalogue: Arc<Catalogue>,
    pub(crate) cursor: DirCursor<StagedDir>,
    open: VecDeque<OpenCopy>,
}

/// A large file that stays open.
struct OpenCopy {
    entry: u32,
    file: Box<dyn WriteFile>,
    extents: Vec<DataExtent>,
}

impl UnitWriter {
    pub(crate) fn new(catalogue: &Arc<Catalogue>, cursor: DirCursor<StagedDir>) -> UnitWriter {
        UnitWriter {
            catalogue: catalogue.clone(),
            cursor,
            open: VecDeque::new(),
        }
    }

    /// Writes a unit whose hash was checked.
    pub(crate) fn write(&mut self, unit: u64, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        for piece in self.catalogue.pieces(unit)? {
            let (own, behind) = rest.split_at(rest.len().min(piece.bytes as usize));
            rest = behind;
            self.write_piece(&piece, own)?;
        }
        Ok(())
    }

    /// Writes a piece of a file whose hash was checked.
    pub(crate) fn write_piece(&mut self, piece: &UnitPiece, bytes: &[u8]) -> Result<()> {
        let entry = piece.entry;
        if piece.small.is_some() {
            let open = self.open_file(entry)?;
            let done = write_ranges(&open, piece, bytes).and_then(|()| open.file.close());
            return done.map_err(|fault| self.failed(entry, fault));
        }
        let done = write_ranges(self.large(entry)?, piece, bytes);
        done.map_err(|fault| self.failed(entry, fault))
    }

    /// Returns an open large file.
    fn large(&mut self, entry: u32) -> Result<&OpenCopy> {
        if let Some(at) = self.open.iter().position(|open| open.entry == entry) {
            self.open.swap(at, 0);
        } else {
            let open = self.open_file(entry)?;
            self.open.push_front(open);
        }
        if self.open.len() > OPEN_FILES_MAX
            && let Some(oldest) = self.open.pop_back()
        {
            let (entry, closed) = (oldest.entry, oldest.file.close());
            closed.map_err(|fault| self.failed(entry, fault))?;
        }
        match self.open.front() {
            Some(open) => Ok(open),
            None => Err(self.no_file(entry)),
        }
    }

    /// Returns an open large file to copy ranges into.
    pub(crate) fn large_file(&mut self, entry: u32) -> Result<&dyn WriteFile> {
        self.large(entry).map(|open| &*open.file)
    }

    fn open_file(&mut self, entry: u32) -> Result<OpenCopy> {
        let (dir, name) = self.cursor.holder(&self.catalogue, entry)?;
        let body = &self.catalogue.entry(entry)?.body;
        let file = open_sized(&*dir.0, &name, body);
        Ok(OpenCopy {
            entry,
            file: file.map_err(|fault| self.failed(entry, fault))?,
            extents: body.extents(),
        })
    }

    /// Closes all files; some file systems report failed writes only then (close(2)).
    pub(crate) fn close(&mut self) -> Result<()> {
        while let Some(open) = self.open.pop_front() {
            let (entry, closed) = (open.entry, open.file.close());
            closed.map_err(|fault| self.failed(entry, fault))?;
        }
        Ok(())
    }

    pub(crate) fn failed(&self, entry: u32, fault: Fault) -> Error {
        self.cursor.failed(&self.catalogue, entry, fault)
    }

    fn no_file(&self, entry: u32) -> Error {
        let fault = Fault {
            side: Side::Replica,
            act: Act::Open,
            errno: errno::ENOENT,
        };
        self.failed(entry, fault)
    }
}

fn write_ranges(open: &OpenCopy, piece: &UnitPiece, bytes: &[u8]) -> Done {
    let mut rest = bytes;
    for range in file_ranges(&open.extents, piece.at, piece.bytes.into()) {
        let length = usize::try_from(range.bytes).unwrap_or(usize::MAX);
        let (own, behind) = rest.split_at(rest.len().min(length));
        rest = behind;
        open.file.write_at(own, range.offset)?;
    }
    Ok(())
}

/// Makes a file with its size, or opens the one of an earlier process.
pub(crate) fn open_sized(
    dir: &dyn DirMut,
    name: &CStr,
    body: &EntryBody,
) -> Done<Box<dyn WriteFile>> {
    let EntryBody::File { size, .. } = body else {
        return Err(Fault {
            side: Side::Replica,
            act: Act::Open,
            errno: errno::EINVAL,
        });
    };
    let file = match dir.create_file(name, PRIVATE_FILE) {
        Err(fault) if fault.errno == errno::EEXIST => {
            let file = dir.reopen_file(name)?;
            if file.meta()?.size != *size {
                file.set_len(*size)?;
            }
            return Ok(file);
        }
        made => made?,
    };
    let extents = body.extents();
    let is_large = crate::layout::is_large(body.data_bytes());
    if is_large && extents.len() <= RESERVED_RANGES_MAX {
        extents
            .iter()
            .try_for_each(|range| file.allocate(range.offset..range.end()))?;
    }
    let ends_with_data = extents.last().is_some_and(|last| last.end() == *size);
    if *size > 0 && (is_large || !ends_with_data) {
        file.set_len(*size)?;
    }
    Ok(file)
}
