//! Where the content of a file differs between two snapshots: where they have other extents. None is
//! ever written to while a snapshot has it; that holds for files without copy-on-write as well
//! (`can_nocow_extent`, fs/btrfs/inode.c).

use super::extents::{Extent, add, differing};
use super::search::{SizeAndTime, Tree};
use super::sequel::Sequel;
use driftless_model::{RelPath, Stamp};
use rustix::io::Errno;
use std::ops::Range;
use std::path::Path;

/// Of a file with more extents than this it is not told: each takes some 60 bytes.
const EXTENTS_MAX: usize = 1 << 20;

/// Where the content of a file, by its path and inode number in `newer`, may differ from what it was
/// in `older`: ranges in bytes, in order. None where extents do not tell, or where `older` has no
/// file of this number, size and time of modification at that path.
pub fn changed_ranges(
    (older, newer): (&Path, &Path),
    file: (&RelPath, u64),
    was: (u64, Stamp),
) -> Option<Vec<Range<u64>>> {
    find((older, newer), file, was).unwrap_or_else(|cause| {
        tracing::debug!("btrfs cannot report the changed ranges of a file: {cause}");
        None
    })
}

fn find(
    (older, newer): (&Path, &Path),
    (path, inode): (&RelPath, u64),
    (size, time): (u64, Stamp),
) -> Result<Option<Vec<Range<u64>>>, Errno> {
    let Some(sequel) = Sequel::open(older, newer)? else {
        return Ok(None);
    };
    // Another file may have the same size and time.
    if sequel.inode_before(path)? != inode {
        return Ok(None);
    }
    let (mut older, mut newer) = sequel.trees();
    let (was, is) = (older.known(inode)?, newer.known(inode)?);
    let is_same = was.made_in == is.made_in && was.size_and_time == Some(packed(size, time));
    let Some(size_now) = is.size().filter(|_| is_same) else {
        return Ok(None);
    };
    let mut found = ranges_of((&mut older, &mut newer), inode, size.min(size_now))?;
    if let Some(found) = found.as_mut().filter(|_| size < size_now) {
        add(found, size..size_now);
    }
    Ok(found)
}

/// Where a file differs in two trees within its first bytes; none if it has too many extents.
pub(super) fn ranges_of(
    (older, newer): (&mut Tree<'_>, &mut Tree<'_>),
    inode: u64,
    bytes: u64,
) -> Result<Option<Vec<Range<u64>>>, Errno> {
    let old = collect(older.extents(inode))?;
    let new = collect(newer.extents(inode))?;
    let both = old.zip(new);
    Ok(both.map(|(old, new)| differing((&old, &new), bytes)))
}

/// As an inode's item has them.
fn packed(size: u64, time: Stamp) -> SizeAndTime {
    let mut packed = SizeAndTime::default();
    packed[..8].copy_from_slice(&size.to_le_bytes());
    packed[8..16].copy_from_slice(&time.sec.to_le_bytes());
    packed[16..].copy_from_slice(&time.nsec.to_le_bytes());
    packed
}

/// All of them, if there are not too many.
fn collect(
    extents: impl Iterator<Item = Result<Extent, Errno>>,
) -> Result<Option<Vec<Extent>>, Errno> {
    let found = extents
        .take(EXTENTS_MAX + 1)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Some(found).filter(|found| found.len() <= EXTENTS_MAX))
}
