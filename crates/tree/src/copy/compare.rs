//! Comparing content: reads back what was copied, and finds where two files differ.

use crate::Done;
use crate::copy::{ALIGN, Copier, Halt, Pace};
use crate::dir::ReadFile;
use crate::dir_mut::WriteFile;
use std::ops::Range;

/// Bytes of the pieces that are compared by their hashes where a file is on another host.
pub const HASHED_BYTES: u64 = 64 * 1024;

/// Ranges that differ are told in multiples of this many bytes.
pub const DIFFERENCE_BYTES: u64 = 4096;

impl Copier {
    /// Copies a range like [`copy`](Copier::copy) and reads it back, from the medium if asked for.
    /// Returns the number of bytes copied, and whether what was read back is what was read from the
    /// source.
    pub fn copy_verified(
        &mut self,
        (from, to): (&dyn ReadFile, &dyn WriteFile),
        (range, sparse): (Range<u64>, bool),
        from_medium: bool,
        pace: Pace<'_>,
    ) -> Result<(u64, bool), Halt> {
        self.digest = Some(blake3::Hasher::new());
        let copied = self.copy((from, to), range.clone(), sparse, pace);
        let wanted = self.digest.take().expect("it was set above").finalize();
        let copied = copied?;
        if from_medium {
            to.drop_cached()?;
        }
        let found = self.read_back((from, to), (range, sparse), pace)?;
        Ok((copied, found == wanted))
    }

    /// Hashes what the replica has where the source has data.
    fn read_back(
        &mut self,
        (from, to): (&dyn ReadFile, &dyn WriteFile),
        (range, sparse): (Range<u64>, bool),
        pace: Pace<'_>,
    ) -> Result<blake3::Hash, Halt> {
        let mut digest = blake3::Hasher::new();
        let mut at = range.start;
        while at < range.end {
            let extent = if sparse {
                from.next_data(at..range.end)?
            } else {
                Some(at..range.end)
            };
            let Some(extent) = extent else { break };
            at = extent.start;
            while at < extent.end {
                let len = self.block_len(at, extent.end);
                pace(len as u64)?;
                let block = self.block(len);
                let got = to.read_at(block, at)?;
                digest.update(&block[..got]);
                at += len as u64;
            }
        }
        Ok(digest.finalize())
    }

    /// Finds where a range of two files, source and replica, differs, in multiples of
    /// [`DIFFERENCE_BYTES`]. What only one of them has counts as different, and so does what cannot
    /// be read from the replica.
    pub fn differing(
        &mut self,
        files: (&dyn ReadFile, &dyn ReadFile),
        range: Range<u64>,
        found: &mut dyn FnMut(Range<u64>),
        pace: Pace<'_>,
    ) -> Result<(), Halt> {
        if files.0.as_local().is_none() || files.1.as_local().is_none() {
            return self.differing_far(files, range, found, pace);
        }
        self.differing_near(files, range, found, pace)
    }

    /// If a file is on another host, hashes say which pieces differ, and only those are read.
    fn differing_far(
        &mut self,
        files: (&dyn ReadFile, &dyn ReadFile),
        range: Range<u64>,
        found: &mut dyn FnMut(Range<u64>),
        pace: Pace<'_>,
    ) -> Result<(), Halt> {
        pace(range.end - range.start)?;
        let wanted = files.0.digests(range.clone(), HASHED_BYTES)?;
        let Ok(got) = files.1.digests(range.clone(), HASHED_BYTES) else {
            return self.differing_near(files, range, found, &mut |_| Ok(()));
        };
        differing_pieces(range, &wanted, &got)
            .try_for_each(|piece| self.differing_near(files, piece, found, &mut |_| Ok(())))
    }

    fn differing_near(
        &mut self,
        files: (&dyn ReadFile, &dyn ReadFile),
        range: Range<u64>,
        found: &mut dyn FnMut(Range<u64>),
        pace: Pace<'_>,
    ) -> Result<(), Halt> {
        let half = (self.buffer.len() - ALIGN) as u64 / 2;
        let mut at = range.start;
        while at < range.end {
            let end = (at + half).min(range.end);
            pace(end - at)?;
            if !self.differing_piece(files, at..end, found)? {
                // Some part of it cannot be read: find out which.
                for start in (at..end).step_by(DIFFERENCE_BYTES as usize) {
                    let part = start..(start + DIFFERENCE_BYTES).min(end);
                    if !self.differing_piece(files, part.clone(), found)? {
                        found(part);
                    }
                }
            }
            at = end;
        }
        Ok(())
    }

    /// Compares a piece that fits into the buffer twice; `false` if it cannot be read from the
    /// replica.
    fn differing_piece(
        &mut self,
        (source, replica): (&dyn ReadFile, &dyn ReadFile),
        piece: Range<u64>,
        found: &mut dyn FnMut(Range<u64>),
    ) -> Done<bool> {
        let len = (piece.end - piece.start) as usize;
        let (left, right) = self.buffer.split_at_mut(len);
        let (left, right) = (&mut left[..], &mut right[..len]);
        let wanted = source.read_at(left, piece.start)?;
        let Ok(got) = replica.read_at(right, piece.start) else {
            return Ok(false);
        };
        if (wanted, got) != (len, len) || left != right {
            differing_blocks(&left[..wanted], &right[..got], piece.start, found);
        }
        Ok(true)
    }
}

/// The pieces of a range, each of [`HASHED_BYTES`], whose hashes are not known to be equal.
pub fn differing_pieces(
    range: Range<u64>,
    wanted: &[[u8; 32]],
    got: &[[u8; 32]],
) -> impl Iterator<Item = Range<u64>> {
    let starts = range.clone().step_by(HASHED_BYTES as usize).enumerate();
    let differ = starts
        .filter(|(index, _)| wanted.get(*index).is_none() || wanted.get(*index) != got.get(*index));
    differ.map(move |(_, start)| start..range.end.min(start + HASHED_BYTES))
}

/// Tells `found` the blocks in which two pieces at offset `at` differ.
fn differing_blocks(left: &[u8], right: &[u8], at: u64, found: &mut dyn FnMut(Range<u64>)) {
    let end = at + left.len().max(right.len()) as u64;
    let mut start = at;
    while start < end {
        let stop = ((start / DIFFERENCE_BYTES + 1) * DIFFERENCE_BYTES).min(end);
        let part = (start - at) as usize..(stop - at) as usize;
        if left
            .get(part.clone())
            .is_none_or(|left| right.get(part) != Some(left))
        {
            found(start..stop);
        }
        start = stop;
    }
}
