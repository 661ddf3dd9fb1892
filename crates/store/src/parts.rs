//! Files of catalogues: written part by part, by the host of the source or by a node that receives
//! them, and then renamed to the hash of the set.

use crate::catalogue::{Catalogue, decode_head, part_offsets, tail};
use crate::error::{Error, Result, own_file};
use crate::format::{CatalogueHead, PART_BYTES_MAX, SetHash};
use driftless_tree::{DirMutRef, WriteFile, temp_name};
use std::ffi::CString;
use std::sync::Arc;

/// A file of a catalogue that is being written. Goes with the value unless it is finished.
pub(crate) struct PartFile {
    dir: DirMutRef,
    name: CString,
    file: Option<Box<dyn WriteFile>>,
}

impl PartFile {
    /// Makes the file.
    pub(crate) fn create(dir: &DirMutRef) -> Result<PartFile> {
        let name = temp_name();
        let file = dir.create_file(&name, 0o600);
        let file = file.map_err(own_file(name.to_bytes()))?;
        Ok(PartFile {
            dir: dir.clone(),
            name,
            file: Some(file),
        })
    }

    /// Writes bytes at an offset.
    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.write_at(bytes, at)
            .map_err(own_file(self.name.to_bytes()))
    }

    /// Opens the file a second time, to read what was written.
    pub(crate) fn reopen(&self) -> Result<Box<dyn driftless_tree::ReadFile>> {
        let opened = self.dir.open_file(&self.name);
        opened.map_err(own_file(self.name.to_bytes()))
    }

    /// Ends the file with its head, makes it durable and gives it its name.
    pub(crate) fn finish(mut self, head_bytes: &[u8], at: u64) -> Result<Catalogue> {
        let hash = SetHash(*blake3::hash(head_bytes).as_bytes());
        let failed = own_file(self.name.to_bytes());
        self.write(&tail(head_bytes), at)?;
        if let Some(file) = &self.file {
            file.sync().map_err(&failed)?;
        }
        // Nothing may stand under the name that was not checked.
        let catalogue = Catalogue::open(self.reopen()?, hash)?;
        if let Some(file) = self.file.take() {
            file.close().map_err(&failed)?;
        }
        let renamed = self.dir.rename(&self.name, &file_name(hash));
        if renamed.is_err() {
            let _the_first_error_counts = self.dir.remove(&self.name);
        }
        renamed.map_err(&failed)?;
        Ok(catalogue)
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _the_next_start_removes_it = self.dir.remove(&self.name);
        }
    }
}

/// Returns the name of the file of a catalogue.
pub(crate) fn file_name(hash: SetHash) -> CString {
    CString::new(hash.to_string()).unwrap_or_default()
}

/// Receives the parts of a catalogue in any order behind the head.
pub struct CatalogueReceiver {
    hash: SetHash,
    file: PartFile,
    head: Option<ReceivedHead>,
}

struct ReceivedHead {
    head: CatalogueHead,
    bytes: Vec<u8>,
    offsets: Vec<u64>,
    is_there: Vec<bool>,
}

impl CatalogueReceiver {
    pub(crate) fn new(hash: SetHash, dir: &DirMutRef) -> Result<CatalogueReceiver> {
        Ok(CatalogueReceiver {
            hash,
            file: PartFile::create(dir)?,
            head: None,
        })
    }

    /// Returns the numbers of the parts that are missing. Part 0 is the head; the other parts are
    /// known only once it is there.
    pub fn lacking(&self) -> Vec<u32> {
        let Some(head) = &self.head else {
            return vec![0];
        };
        let parts = (1..).zip(&head.is_there);
        let lacking = parts.filter(|(_, is_there)| !**is_there);
        lacking.map(|(number, _)| number).collect()
    }

    /// Takes a part. A part that is there already is no error.
    ///
    /// # Errors
    /// [`Error::WrongPart`] if its hash is not the one that the head states; the head is missing;
    /// the file cannot be written.
    pub fn put(&mut self, number: u32, bytes: &[u8]) -> Result<()> {
        let wrong = Error::WrongPart { part: number };
        if bytes.len() > PART_BYTES_MAX as usize {
            return Err(wrong);
        }
        let Some(part) = number.checked_sub(1) else {
            return self.put_head(bytes);
        };
        let (part, Some(head)) = (part as usize, &mut self.head) else {
            return Err(wrong);
        };
        let fits = head.head.parts.get(part).is_some_and(|named| {
            named.bytes as usize == bytes.len() && named.hash == *blake3::hash(bytes).as_bytes()
        });
        let (true, Some(at), Some(is_there)) =
            (fits, head.offsets.get(part), head.is_there.get_mut(part))
        else {
            return Err(wrong);
        };
        self.file.write(bytes, *at)?;
        *is_there = true;
        Ok(())
    }

    fn put_head(&mut self, bytes: &[u8]) -> Result<()> {
        if self.head.is_some() {
            return Ok(());
        }
        let head = decode_head(self.hash, bytes)?;
        self.head = Some(ReceivedHead {
            offsets: part_offsets(&head),
            is_there: vec![false; head.parts.len()],
            bytes: bytes.to_vec(),
            head,
        });
        Ok(())
    }

    /// Checks the catalogue as a whole, and keeps it.
    ///
    /// # Errors
    /// [`Error::WrongPart`] if a part is missing; [`Error::Malformed`] if the catalogue breaks a
    /// rule of the format; the file cannot be written.
    pub fn finish(self) -> Result<Arc<Catalogue>> {
        if let Some(part) = self.lacking().first() {
            return Err(Error::WrongPart { part: *part });
        }
        let Some(head) = self.head else {
            return Err(Error::WrongPart { part: 0 });
        };
        let end = head.offsets.last().copied().unwrap_or(0);
        self.file.finish(&head.bytes, end).map(Arc::new)
    }
}
