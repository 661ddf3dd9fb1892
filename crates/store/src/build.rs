//! Making a catalogue of sources.
//!
//! The first pass lists the entries in the order of their names. The second pass reads all content
//! and hashes its units. Both write to the file of the catalogue, so memory holds a few bytes for
//! each file. A file that changes between the passes is an error: its catalogue would describe a
//! state that never was.
//!
//! Sources that an earlier catalogue describes, and that have not changed since, are opened and not read.
//!
//! Small files are packed by age and then in the order of the entries. A later version of a set has
//! its changed files side by side, so few units differ.

use crate::catalogue::Catalogue;
use crate::cursor::DirCursor;
use crate::error::{Error, Result};
use crate::format::{DataExtent, SmallFile, UNIT_BYTES};
use crate::layout::{Packer, file_ranges, is_large};
use crate::node::NodeFiles;
use crate::part_writer::PartWriter;
use crate::parts::PartFile;
use crate::sources::OpenSource;
use crate::walk::{BuildOptions, SeenFile, SourceWalk, digest};
use driftless_tree::{DirRef, ReadFile};
use std::sync::Arc;

/// Makes the catalogue of sources, in the order of their names, as a file of the node.
pub(crate) fn build(
    sources: &[OpenSource],
    node: &NodeFiles,
    options: &mut BuildOptions<'_>,
) -> Result<Arc<Catalogue>> {
    let (begun, dir) = (node.now(), &node.catalogues);
    let mut writer = PartWriter::new(PartFile::create(dir)?);
    let seen = SourceWalk::new(&mut writer, options, dir.user()).walk(sources)?;
    writer.flush_entries()?;
    let listed = Catalogue::of_entries(writer.reopen()?, writer.head())?;
    let as_seen = seen.identities.with_entries(&writer.head(), begun);
    let tops = sources.iter().map(|source| source.top.clone()).collect();
    let mut content = ContentPass {
        catalogue: &listed,
        cursor: DirCursor::new(tops, b""),
        writer,
        pace: options.pace,
    };
    if let Some(set) = as_seen.find(dir)?
        && let Some(known) = node.catalogue(set)?
    {
        content.open_all(&seen.files)?;
        return Ok(known);
    }
    let (large, mut small): (Vec<SeenFile>, Vec<SeenFile>) = seen
        .files
        .into_iter()
        .partition(|file| is_large(file.bytes));
    for file in &large {
        content.large(file)?;
    }
    sort_by_age(&mut small);
    content.small(&small)?;
    let built = content.writer.finish()?;
    as_seen.note(dir, built.hash());
    Ok(Arc::new(built))
}

/// Sorts small files by their age, as a power of two of seconds before the newest one, the oldest
/// first. The order depends on the set alone, so the same set has the same hash.
fn sort_by_age(files: &mut [SeenFile]) {
    let newest = files.iter().map(|file| file.mtime).max().unwrap_or(0);
    let class = |file: &SeenFile| newest.abs_diff(file.mtime).checked_ilog2();
    files.sort_by_key(|file| std::cmp::Reverse(class(file)));
}

/// The second pass.
struct ContentPass<'a> {
    catalogue: &'a Catalogue,
    cursor: DirCursor<DirRef>,
    writer: PartWriter,
    pace: &'a mut dyn FnMut(u64) -> bool,
}

/// An open file of the source, with its ranges of data.
struct OpenSourceFile {
    file: Arc<dyn ReadFile>,
    extents: Vec<DataExtent>,
}

impl ContentPass<'_> {
    /// Opens each file, and reads nothing: the user may have lost the right to read it.
    fn open_all(&mut self, files: &[SeenFile]) -> Result<()> {
        files.iter().try_for_each(|seen| {
            if !(self.pace)(0) {
                return Err(Error::Stopped);
            }
            self.open(seen).map(drop)
        })
    }

    fn large(&mut self, seen: &SeenFile) -> Result<()> {
        let open = self.open(seen)?;
        let (mut at, mut buffer) = (0, Vec::new());
        while at < seen.bytes {
            let bytes = seen.bytes.saturating_sub(at).min(UNIT_BYTES.into());
            buffer.clear();
            self.read(seen, &open, at, bytes, &mut buffer)?;
            self.writer.unit(&buffer)?;
            at = at.saturating_add(bytes);
        }
        self.look_again(seen, &open)
    }

    fn small(&mut self, files: &[SeenFile]) -> Result<()> {
        let (mut packer, mut unit) = (Packer::default(), Vec::new());
        for seen in files {
            let bytes = u32::try_from(seen.bytes).unwrap_or(UNIT_BYTES);
            if packer.add(bytes) && !unit.is_empty() {
                self.writer.unit(&unit)?;
                unit.clear();
            }
            let open = self.open(seen)?;
            let begin = unit.len();
            self.read(seen, &open, 0, seen.bytes, &mut unit)?;
            self.look_again(seen, &open)?;
            let own = unit.get(begin..).unwrap_or_default();
            let hash = *blake3::hash(own).as_bytes();
            let entry = seen.entry;
            self.writer.small(SmallFile { entry, bytes, hash })?;
        }
        match unit.is_empty() {
            true => Ok(()),
            false => self.writer.unit(&unit),
        }
    }

    fn open(&mut self, seen: &SeenFile) -> Result<OpenSourceFile> {
        let (dir, name) = self.cursor.holder(self.catalogue, seen.entry)?;
        let opened = dir
            .open_file(&name)
            .map_err(|fault| match fault.is_absent() {
                true => self.changed(seen),
                false => self.cursor.failed(self.catalogue, seen.entry, fault),
            })?;
        let open = OpenSourceFile {
            file: opened.into(),
            extents: self.catalogue.entry(seen.entry)?.body.extents(),
        };
        self.look_again(seen, &open)?;
        Ok(open)
    }

    /// Appends data of a file to `buffer`.
    fn read(
        &mut self,
        seen: &SeenFile,
        open: &OpenSourceFile,
        at: u64,
        bytes: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        if !(self.pace)(bytes) {
            return Err(Error::Stopped);
        }
        for range in file_ranges(&open.extents, at, bytes) {
            let begin = buffer.len();
            let length = usize::try_from(range.bytes).unwrap_or(usize::MAX);
            buffer.resize(begin.saturating_add(length), 0);
            let room = buffer.get_mut(begin..).unwrap_or_default();
            let got = open.file.read_at(room, range.offset);
            let got = got.map_err(|fault| self.cursor.failed(self.catalogue, seen.entry, fault))?;
            if got < length {
                return Err(self.changed(seen));
            }
        }
        Ok(())
    }

    fn look_again(&self, seen: &SeenFile, open: &OpenSourceFile) -> Result<()> {
        let meta = open.file.meta_again();
        let meta = meta.map_err(|fault| self.cursor.failed(self.catalogue, seen.entry, fault))?;
        match digest(&meta) == seen.digest {
            true => Ok(()),
            false => Err(self.changed(seen)),
        }
    }

    fn changed(&self, seen: &SeenFile) -> Error {
        Error::SourceChanged {
            path: self.catalogue.path(seen.entry),
        }
    }
}
