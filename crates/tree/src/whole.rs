//! A small regular file in memory: its metadata and all its content.

use crate::{Done, ReadFile};
use driftless_model::{Keep, Meta, Xattrs};
use std::ops::Range;

/// Files up to this many bytes are moved whole.
pub const WHOLE_BYTES_MAX: u64 = 256 * 1024;
/// The most bytes of memory that the extended attributes of such a file may take, so that their
/// names and values fit the head of a message.
pub const WHOLE_XATTRS_BYTES_MAX: u64 = 16 << 10;
/// Bytes of a block that may be a hole if it is all zeros: no file system has smaller blocks.
const BLOCK_BYTES: usize = 512;

/// A regular file with its metadata, read at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// Metadata.
    pub meta: Meta,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// Where it has data; the rest are holes.
    pub extents: Vec<Range<u64>>,
    /// All its bytes, holes as zeros.
    pub data: Vec<u8>,
}

impl Whole {
    /// Reads an open file that had the metadata `meta` a moment ago. `None` if it is larger than
    /// [`WHOLE_BYTES_MAX`], has attributes that take more than [`WHOLE_XATTRS_BYTES_MAX`], or
    /// changes meanwhile.
    pub fn read(file: &dyn ReadFile, meta: &Meta, keep: &Keep) -> Done<Option<Whole>> {
        if meta.size > WHOLE_BYTES_MAX {
            return Ok(None);
        }
        let Some(xattrs) = file.xattrs_within(keep, WHOLE_XATTRS_BYTES_MAX)? else {
            return Ok(None);
        };
        let mut data = vec![0; meta.size as usize];
        let got = if data.is_empty() {
            0
        } else {
            file.read_at(&mut data, 0)?
        };
        let extents = extents(file, &data, keep)?;
        let unchanged = got == data.len() && meta.unchanged(&file.meta_again()?);
        Ok(unchanged.then_some(Whole {
            meta: *meta,
            xattrs,
            extents,
            data,
        }))
    }
}

/// Where the file has data. Only one that shows a block of zeros is searched for holes.
fn extents(file: &dyn ReadFile, data: &[u8], keep: &Keep) -> Done<Vec<Range<u64>>> {
    let size = data.len() as u64;
    if !keep.holes || !has_zero_block(data) {
        return Ok(Some(0..size)
            .filter(|all| !all.is_empty())
            .into_iter()
            .collect());
    }
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(extent) = if at < size {
        file.next_data(at..size)?
    } else {
        None
    } {
        at = extent.end;
        found.push(extent);
    }
    Ok(found)
}

/// Whether any block of the smallest size that a file system has is all zeros.
pub fn has_zero_block(data: &[u8]) -> bool {
    data.chunks(BLOCK_BYTES)
        .any(|block| block[0] == 0 && block.iter().all(|byte| *byte == 0))
}

impl ReadFile for Whole {
    fn meta(&self) -> Done<Meta> {
        Ok(self.meta)
    }

    fn xattrs(&self, _keep: &Keep) -> Done<Xattrs> {
        Ok(self.xattrs.clone())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Done<usize> {
        let rest = self.data.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.data)
    }

    fn drop_cached(&self) -> Done {
        Ok(())
    }

    fn next_data(&self, within: Range<u64>) -> Done<Option<Range<u64>>> {
        let cut = |extent: &Range<u64>| extent.start.max(within.start)..extent.end.min(within.end);
        Ok(self
            .extents
            .iter()
            .map(cut)
            .find(|extent| extent.start < extent.end))
    }
}
