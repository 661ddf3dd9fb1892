//! Hashing what an open file holds.

use crate::algorithm::{Algorithm, Digest, Hasher, digest_of};
use crate::hashtree::Leaf;
use crate::subtree::Pieces;
use blake3::hazmat::HasherExt;
use driftless_model::Fault;
use driftless_tree::ReadFile;
use std::ops::Range;

/// Bytes that are read at once: few enough to stay in the cache of a core, and enough that the cost
/// of the calls does not count.
pub const BUFFER_BYTES: usize = 256 * 1024;

/// Why content could not be hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// Reading failed.
    Fault(Fault),
    /// The file ended before the range did.
    Short,
    /// The run was asked to stop.
    Stopped,
}

impl From<Fault> for Unread {
    fn from(fault: Fault) -> Self {
        Unread::Fault(fault)
    }
}

/// The hash of a range of bytes; an end of `u64::MAX` means the end of the file, wherever it is. A
/// range that does not fit into `buffer` is read block by block, and `stopped` is asked after each.
///
/// # Errors
/// Reading failed, the file ended before the range did, or `stopped` said so.
pub fn digest_range(
    file: &dyn ReadFile,
    range: Range<u64>,
    algorithm: Algorithm,
    buffer: &mut [u8],
    stopped: &dyn Fn() -> bool,
) -> Result<Digest, Unread> {
    let length = range.end - range.start;
    if length <= buffer.len() as u64 {
        let bytes = read_range(file, range.start, &mut buffer[..length as usize])?;
        return Ok(digest_of(algorithm, bytes));
    }
    let (mut hasher, mut is_stopped) = (Hasher::new(algorithm), false);
    read_blocks(file, range, buffer, &mut |bytes| {
        hasher.update(bytes);
        is_stopped = stopped();
        !is_stopped
    })?;
    if is_stopped {
        Err(Unread::Stopped)
    } else {
        Ok(hasher.finish())
    }
}

/// The BLAKE3 hash of a range that is at most one leaf of a hash tree, and that leaf; an empty
/// range has no leaf.
///
/// # Errors
/// Reading failed, or the file ended before the range did.
pub fn hash_single(
    file: &dyn ReadFile,
    range: &Range<u64>,
    buffer: &mut [u8],
) -> Result<(Digest, Vec<Leaf>), Unread> {
    let mut hasher = blake3::Hasher::new();
    read_blocks(file, range.clone(), buffer, &mut |bytes| {
        hasher.update(bytes);
        true
    })?;
    let leaves = if range.is_empty() {
        Vec::new()
    } else {
        vec![hasher.finalize_non_root()]
    };
    Ok((hasher.finalize().into(), leaves))
}

/// Hands over the number and the chaining value of each of the pieces `pieces`, which are counted
/// from `range.start` on and have `piece_bytes` each. Returns whether the content was in the page
/// cache, so that there was nothing to do but to hash it.
///
/// # Errors
/// Reading failed, or the file ended before the pieces did.
pub fn hash_pieces(
    file: &dyn ReadFile,
    range: &Range<u64>,
    (pieces, piece_bytes): (Range<u64>, u64),
    buffer: &mut [u8],
    done: &mut impl FnMut(u64, Leaf),
) -> Result<bool, Unread> {
    let start = pieces.start * piece_bytes;
    let end = pieces
        .end
        .saturating_mul(piece_bytes)
        .min(range.end - range.start);
    let bytes = range.start + start..range.start + end;
    if let Some(values) = cached_pieces(file, bytes.clone(), (piece_bytes, start)) {
        values
            .into_iter()
            .for_each(|(index, value)| done(index, value));
        return Ok(true);
    }
    let mut hasher = Pieces::new(piece_bytes, start);
    read_blocks(file, bytes, buffer, &mut |bytes| {
        hasher.update(bytes, done);
        true
    })?;
    hasher.finish(done);
    Ok(false)
}

/// Hashes pieces in the page cache itself; `None` if they are not all there. To copy them first
/// would take a third of the time that hashing takes.
fn cached_pieces(
    file: &dyn ReadFile,
    bytes: Range<u64>,
    (piece_bytes, start): (u64, u64),
) -> Option<Vec<(u64, Leaf)>> {
    let (mut hasher, mut values) = (Pieces::new(piece_bytes, start), Vec::new());
    let mut keep = |index, value| values.push((index, value));
    let was_whole = file
        .as_local()?
        .with_cached(bytes, |bytes| hasher.update(bytes, &mut keep));
    hasher.finish(&mut keep);
    was_whole.then_some(values)
}

fn read_range<'b>(
    file: &dyn ReadFile,
    offset: u64,
    buffer: &'b mut [u8],
) -> Result<&'b [u8], Unread> {
    let got = file.read_at(buffer, offset)?;
    if got == buffer.len() {
        Ok(buffer)
    } else {
        Err(Unread::Short)
    }
}

/// Hands over a range block by block, as long as `wants_more` says so.
fn read_blocks(
    file: &dyn ReadFile,
    range: Range<u64>,
    buffer: &mut [u8],
    wants_more: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<(), Unread> {
    let mut at = range.start;
    while at < range.end {
        let wanted = usize::try_from(range.end - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let got = file.read_at(&mut buffer[..wanted], at)?;
        at += got as u64;
        if !wants_more(&buffer[..got]) {
            break;
        }
        if got < wanted {
            return if range.end == u64::MAX {
                Ok(())
            } else {
                Err(Unread::Short)
            };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subtree::Merge;
    use driftless_model::{Keep, Meta, Xattrs};
    use driftless_tree::{Done, LocalFile};

    struct Bytes(Vec<u8>);

    impl ReadFile for Bytes {
        fn meta(&self) -> Done<Meta> {
            unreachable!("content only")
        }
        fn xattrs(&self, _: &Keep) -> Done<Xattrs> {
            unreachable!("content only")
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Done<usize> {
            let rest = self.0.get(offset as usize..).unwrap_or_default();
            let got = rest.len().min(buffer.len());
            buffer[..got].copy_from_slice(&rest[..got]);
            Ok(got)
        }
        fn next_data(&self, _: Range<u64>) -> Done<Option<Range<u64>>> {
            unreachable!("content only")
        }
        fn drop_cached(&self) -> Done {
            Ok(())
        }
        fn as_local(&self) -> Option<&LocalFile> {
            None
        }
    }

    #[test]
    fn ranges_are_hashed_whatever_the_buffer() {
        let file = Bytes((0..9000u32).map(|at| (at / 3) as u8).collect());
        for (range, buffer_bytes) in [0..9000, 0..0, 5..8000, 8999..9000]
            .into_iter()
            .flat_map(|range| [100, 9000].map(|b| (range.clone(), b)))
        {
            let expected = digest_of(
                Algorithm::Md5,
                &file.0[range.start as usize..range.end as usize],
            );
            assert_eq!(
                digest_range(
                    &file,
                    range,
                    Algorithm::Md5,
                    &mut vec![0; buffer_bytes],
                    &|| false
                ),
                Ok(expected)
            );
        }
        let whole = digest_of(Algorithm::Blake3, &file.0);
        assert_eq!(
            digest_range(
                &file,
                0..u64::MAX,
                Algorithm::Blake3,
                &mut [0; 100],
                &|| false
            ),
            Ok(whole)
        );
        for buffer_bytes in [100, 9999] {
            let short = digest_range(
                &file,
                0..9001,
                Algorithm::Blake3,
                &mut vec![0; buffer_bytes],
                &|| false,
            );
            assert_eq!(short, Err(Unread::Short));
        }
        assert_eq!(
            digest_range(&file, 0..9000, Algorithm::Md5, &mut [0; 100], &|| true),
            Err(Unread::Stopped)
        );
    }

    #[test]
    fn one_leaf_and_the_hash_come_from_one_reading() {
        let file = Bytes(vec![9; 700]);
        let tree = crate::HashTree::of(&file.0, 1024).unwrap();
        assert_eq!(
            hash_single(&file, &(0..700), &mut [0; 100]),
            Ok((tree.root(), tree.leaves().to_vec()))
        );
        assert_eq!(
            hash_single(&file, &(0..0), &mut [0; 100]),
            Ok((digest_of(Algorithm::Blake3, b""), Vec::new()))
        );
    }

    #[test]
    fn pieces_of_a_range_give_the_hash_of_the_range() {
        let (file, range) = (
            Bytes((0..9000u32).map(|at| (at / 5) as u8).collect()),
            100..8500,
        );
        let mut merge = Merge::new(9);
        for pieces in [4..9, 0..4] {
            hash_pieces(
                &file,
                &range,
                (pieces, 1024),
                &mut [0; 600],
                &mut |index, value| merge.add(index, value),
            )
            .unwrap();
        }
        assert_eq!(
            merge.root(),
            Some(digest_of(Algorithm::Blake3, &file.0[100..8500]))
        );
    }
}
