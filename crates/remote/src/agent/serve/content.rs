//! Content: read, hashed, or a small file whole.

use crate::wire::{DATA_BYTES_MAX, DIGESTS_MAX, EXTENTS_MAX, PIECE_BYTES_MAX, Reply, WireFault};
use driftless_model::{Act, Entry, Kind, errno};
use driftless_tree::{Dir, ReadFile, Whole};
use std::ffi::CStr;
use std::ops::Range;

/// A reply, and the data that goes with it.
pub type Replied = (Reply, Vec<u8>);

/// What is said of something that is no regular file (any more): what is said of a fifo or a device
/// without its other half (open(2)).
pub(super) const OTHER_KIND: i32 = errno::ENXIO;

pub(super) fn read(file: &dyn ReadFile, offset: u64, len: usize) -> Result<Vec<u8>, WireFault> {
    if len > DATA_BYTES_MAX {
        return Err(WireFault::new(Act::Read, errno::EINVAL));
    }
    let mut data = vec![0; len];
    let got = file.read_at(&mut data, offset)?;
    data.truncate(got);
    Ok(data)
}

/// Bytes that are hashed between two looks at whether anybody wants the hashes.
const HASHED_BYTES: u64 = 64 << 20;

/// Hashes a range, some pieces at a time, unless its client is gone meanwhile.
pub(super) fn digests(
    file: &dyn ReadFile,
    range: Range<u64>,
    piece: u64,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<[u8; 32]>, WireFault> {
    let bounded = (1..=PIECE_BYTES_MAX).contains(&piece)
        && range.end.saturating_sub(range.start) / piece <= DIGESTS_MAX;
    if !bounded {
        return Err(WireFault::new(Act::Hash, errno::EINVAL));
    }
    let step = (HASHED_BYTES / piece).max(1) * piece;
    let (mut found, mut at) = (Vec::new(), range.start);
    while at < range.end {
        if is_over() {
            return Err(WireFault::new(Act::Hash, errno::ECANCELED));
        }
        let end = at.saturating_add(step).min(range.end);
        let some = file.digests(at..end, piece)?;
        // The file ends here.
        let is_short = (some.len() as u64) < (end - at).div_ceil(piece);
        found.extend(some);
        if is_short {
            break;
        }
        at = end;
    }
    Ok(found)
}

/// Reads a small file whole; one that changes meanwhile is left to be read the long way.
pub(super) fn fetched(
    dir: &dyn Dir,
    name: &CStr,
    keep: &driftless_model::Keep,
) -> Result<Replied, WireFault> {
    let file = dir.open_file(name)?;
    let meta = file.meta()?;
    if meta.kind != Kind::File {
        return Err(WireFault::new(Act::Open, OTHER_KIND));
    }
    // What does not fit the largest answer is read the long way.
    let fits = |whole: &Whole| whole.extents.len() <= EXTENTS_MAX;
    let whole = Whole::read(&*file, &meta, keep)?.filter(fits);
    Ok(whole.map_or((Reply::Whole(None), Vec::new()), |whole| {
        let Whole {
            meta,
            xattrs,
            extents,
            data,
        } = whole;
        (Reply::Whole(Some((Entry { meta, xattrs }, extents))), data)
    }))
}
