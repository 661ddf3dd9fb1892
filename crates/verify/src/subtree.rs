//! BLAKE3 cut into subtrees, so that many threads can hash one file and get the hash that one
//! thread would get.
//!
//! The BLAKE3 paper (section 2.1) gives each input a binary tree whose left subtrees are always
//! full. Pieces of equal size, if that is a power of two, are such subtrees, and only the last may
//! be shorter. They can be hashed in any order ([`Pieces`]) and merged as they come ([`Merge`]).
//! What waits to be merged stays small, because neighbours merge at once.

use crate::algorithm::Digest;
use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use std::collections::HashMap;

/// Bytes of the smallest piece: a chunk of BLAKE3.
pub const PIECE_BYTES_MIN: u64 = blake3::CHUNK_LEN as u64;

/// Whether pieces can have this size: a power of two, and not below [`PIECE_BYTES_MIN`].
pub fn is_piece_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes >= PIECE_BYTES_MIN
}

/// How many pieces an input of `bytes` bytes has; an empty input has none.
pub fn pieces_of(bytes: u64, piece_bytes: u64) -> u64 {
    bytes.div_ceil(piece_bytes)
}

/// Hashes consecutive pieces of an input.
#[derive(Debug)]
pub struct Pieces {
    piece_bytes: u64,
    at: u64,
    hasher: Hasher,
}

impl Pieces {
    /// Begins at byte `offset` of the input, a multiple of `piece_bytes`.
    pub fn new(piece_bytes: u64, offset: u64) -> Self {
        debug_assert!(is_piece_size(piece_bytes) && offset.is_multiple_of(piece_bytes));
        Pieces {
            piece_bytes,
            at: offset,
            hasher: hasher_at(offset),
        }
    }

    /// Adds bytes; hands over the number and the chaining value of each piece that they complete.
    pub fn update(&mut self, mut bytes: &[u8], done: &mut impl FnMut(u64, ChainingValue)) {
        while !bytes.is_empty() {
            let room = self.piece_bytes - self.at % self.piece_bytes;
            let (now, later) =
                bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.hasher.update(now);
            self.at += now.len() as u64;
            bytes = later;
            if self.at.is_multiple_of(self.piece_bytes) {
                done(
                    self.at / self.piece_bytes - 1,
                    self.hasher.finalize_non_root(),
                );
                self.hasher = hasher_at(self.at);
            }
        }
    }

    /// Hands over the last, incomplete piece, if there is one.
    pub fn finish(self, done: &mut impl FnMut(u64, ChainingValue)) {
        if !self.at.is_multiple_of(self.piece_bytes) {
            done(self.at / self.piece_bytes, self.hasher.finalize_non_root());
        }
    }
}

fn hasher_at(offset: u64) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(offset);
    hasher
}

/// Merges the pieces of an input, in whatever order they come, into its hash.
#[derive(Debug)]
pub struct Merge {
    pieces: u64,
    waiting: HashMap<(u32, u64), ChainingValue>,
    root: Option<Digest>,
}

impl Merge {
    /// Begins with an input of `pieces` pieces.
    ///
    /// # Panics
    /// There are fewer than two: the hash of a single piece is not made from its chaining value.
    pub fn new(pieces: u64) -> Self {
        assert!(pieces >= 2, "one piece is hashed as a whole");
        Merge {
            pieces,
            waiting: HashMap::new(),
            root: None,
        }
    }

    /// Adds the chaining value of piece number `index`; each piece is added once.
    pub fn add(&mut self, index: u64, value: ChainingValue) {
        let (mut level, mut index, mut value) = (0, index, value);
        let mut width = self.pieces;
        while width > 1 {
            let is_last_and_alone = index % 2 == 0 && index + 1 == width;
            if !is_last_and_alone {
                let Some(sibling) = self.waiting.remove(&(level, index ^ 1)) else {
                    self.waiting.insert((level, index), value);
                    return;
                };
                let (left, right) = if index % 2 == 0 {
                    (value, sibling)
                } else {
                    (sibling, value)
                };
                if width == 2 {
                    self.root = Some(merge_subtrees_root(&left, &right, Mode::Hash).into());
                    return;
                }
                value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            }
            (level, index, width) = (level + 1, index / 2, width.div_ceil(2));
        }
    }

    /// The hash; `None` until all pieces were added.
    pub fn root(&self) -> Option<Digest> {
        self.root
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(length: u64) -> Vec<u8> {
        (0..length)
            .map(|at| (at.wrapping_mul(at) >> 3) as u8)
            .collect()
    }

    fn values(content: &[u8], piece_bytes: u64) -> Vec<(u64, ChainingValue)> {
        let (mut found, mut pieces) = (Vec::new(), Pieces::new(piece_bytes, 0));
        content
            .chunks(777)
            .for_each(|part| pieces.update(part, &mut |index, value| found.push((index, value))));
        pieces.finish(&mut |index, value| found.push((index, value)));
        found
    }

    #[test]
    fn pieces_in_any_order_give_the_hash_of_the_whole() {
        let lengths = [
            1025, 2048, 2049, 3072, 5000, 7168, 8192, 8193, 31_000, 65_536, 99_999,
        ];
        for (length, piece_bytes) in lengths
            .into_iter()
            .flat_map(|length| [1024, 2048, 8192, 65_536].map(|piece| (length, piece)))
        {
            let content = content(length);
            let mut found = values(&content, piece_bytes);
            assert_eq!(found.len() as u64, pieces_of(length, piece_bytes));
            if found.len() < 2 {
                continue;
            }
            let half = found.len() / 2;
            for turn in 0..3 {
                if turn > 0 {
                    found.rotate_left(half)
                } else {
                    found.reverse()
                }
                let mut merge = Merge::new(found.len() as u64);
                found
                    .iter()
                    .for_each(|(index, value)| merge.add(*index, *value));
                assert_eq!(
                    merge.root(),
                    Some(blake3::hash(&content).into()),
                    "{length} bytes in pieces of {piece_bytes}"
                );
                assert!(merge.waiting.is_empty());
            }
        }
    }

    #[test]
    fn a_run_of_pieces_can_begin_anywhere() {
        let content = content(20_000);
        let all = values(&content, 2048);
        let mut pieces = Pieces::new(2048, 6144);
        let mut found = Vec::new();
        pieces.update(&content[6144..12_288], &mut |index, value| {
            found.push((index, value))
        });
        pieces.finish(&mut |_, _| panic!("nothing is left"));
        assert_eq!(found, all[3..6]);
    }

    #[test]
    fn what_waits_to_be_merged_stays_small() {
        let mut merge = Merge::new(1 << 20);
        for index in 0..1 << 16 {
            merge.add(index, [index as u8; 32]);
            assert!(merge.waiting.len() <= 17);
        }
    }
}
