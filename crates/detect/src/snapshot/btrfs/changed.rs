//! Where the content of a file differs between two snapshots: where they have other extents. None is
//! ever written to while a snapshot has it; that holds for files without copy-on-write as well
//! (`can_nocow_extent`, fs/btrfs/inode.c).

use super::extents::{Extent, add, differing};
use super::search::{Known, SizeAndTime, Snapshot, Tree, open};
use super::since::is_sequel;
use super::sys::word;
use driftless_model::Stamp;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::ops::Range;
use std::path::Path;

/// Of a file with more extents than this it is not told: each takes some 60 bytes.
const EXTENTS_MAX: usize = 1 << 20;

/// Where the content of a file, by its inode number, may differ in `newer` from what it was in
/// `older`: ranges in bytes, in order. None where extents do not tell, or where `older` has no file
/// of this number, size and time of modification.
pub fn changed_ranges(
    (older, newer): (&Path, &Path),
    inode: u64,
    was: (u64, Stamp),
) -> Option<Vec<Range<u64>>> {
    find((older, newer), inode, was).unwrap_or_else(|cause| {
        tracing::debug!("btrfs does not tell where a file has changed: {cause}");
        None
    })
}

fn find(
    (older, newer): (&Path, &Path),
    inode: u64,
    (size, time): (u64, Stamp),
) -> Result<Option<Vec<Range<u64>>>, Errno> {
    let (older, newer) = (open(older)?, open(newer)?);
    if !is_sequel(&Snapshot::at(older.as_fd())?, &Snapshot::at(newer.as_fd())?) {
        return Ok(None);
    }
    let (mut older, mut newer) = (Tree::of(older.as_fd()), Tree::of(newer.as_fd()));
    let (was, is) = (older.known(inode)?, newer.known(inode)?);
    let is_same = was.made_in == is.made_in && was.size_and_time == Some(packed(size, time));
    let Some(size_now) = size_of(&is).filter(|_| is_same) else {
        return Ok(None);
    };
    let (Some(old), Some(new)) = (
        collect(older.extents(inode))?,
        collect(newer.extents(inode))?,
    ) else {
        return Ok(None);
    };
    let mut found = differing((&old, &new), size.min(size_now));
    if size < size_now {
        add(&mut found, size..size_now);
    }
    Ok(Some(found))
}

/// As an inode's item has them.
fn packed(size: u64, time: Stamp) -> SizeAndTime {
    let mut packed = SizeAndTime::default();
    packed[..8].copy_from_slice(&size.to_le_bytes());
    packed[8..16].copy_from_slice(&time.sec.to_le_bytes());
    packed[16..].copy_from_slice(&time.nsec.to_le_bytes());
    packed
}

fn size_of(known: &Known) -> Option<u64> {
    word(&mut known.size_and_time?.as_slice())
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
