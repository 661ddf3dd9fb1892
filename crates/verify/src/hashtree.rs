//! The hash tree of a file: the chaining values of its leaves, from which its BLAKE3 hash follows.
//!
//! Two trees of one file, made at different times or places, show which leaves differ.

use crate::algorithm::Digest;
use crate::subtree::{Merge, PIECE_BYTES_MIN, is_piece_size, pieces_of};
use std::ops::Range;

/// Chaining value of a leaf.
pub type Leaf = [u8; 32];

/// Bytes of a leaf unless another size is asked for: 1 MiB. Each leaf takes 32 bytes of the tree.
pub const LEAF_BYTES_DEFAULT: u64 = 1024 * 1024;

/// Why parts do not make a hash tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTree {
    /// The leaf size is not a power of two, or below 1024.
    #[error("leaf size {0} is not a power of two of at least {PIECE_BYTES_MIN}")]
    LeafSize(u64),
    /// There are more or fewer leaves than a file of this size has.
    #[error("expected {expected} leaves, found {found}")]
    Count {
        /// Leaves that are there.
        found: u64,
        /// Leaves that the size asks for.
        expected: u64,
    },
    /// The hash does not follow from the leaves.
    #[error("the hash does not follow from the leaves")]
    Root,
}

/// Size, leaves and hash of a file. An empty file has no leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashTree {
    size: u64,
    leaf_bytes: u64,
    leaves: Vec<Leaf>,
    root: Digest,
}

impl HashTree {
    /// A tree from its parts, which are checked against each other. With fewer than two leaves
    /// `root` is believed: it does not follow from the chaining value of a single leaf.
    ///
    /// # Errors
    /// The parts do not make a hash tree.
    pub fn new(
        size: u64,
        leaf_bytes: u64,
        leaves: Vec<Leaf>,
        root: Digest,
    ) -> Result<Self, BadTree> {
        if !is_piece_size(leaf_bytes) {
            return Err(BadTree::LeafSize(leaf_bytes));
        }
        let (found, expected) = (leaves.len() as u64, pieces_of(size, leaf_bytes));
        if found != expected {
            return Err(BadTree::Count { found, expected });
        }
        if found >= 2 && merged(&leaves) != Some(root) {
            return Err(BadTree::Root);
        }
        Ok(HashTree {
            size,
            leaf_bytes,
            leaves,
            root,
        })
    }

    /// The tree of content that is all in memory.
    ///
    /// # Errors
    /// `leaf_bytes` is not a power of two, or is below 1024.
    pub fn of(content: &[u8], leaf_bytes: u64) -> Result<Self, BadTree> {
        if !is_piece_size(leaf_bytes) {
            return Err(BadTree::LeafSize(leaf_bytes));
        }
        let (mut leaves, mut pieces) = (Vec::new(), crate::subtree::Pieces::new(leaf_bytes, 0));
        pieces.update(content, &mut |_, leaf| leaves.push(leaf));
        pieces.finish(&mut |_, leaf| leaves.push(leaf));
        Ok(HashTree {
            size: content.len() as u64,
            leaf_bytes,
            leaves,
            root: blake3::hash(content).into(),
        })
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of a leaf.
    pub fn leaf_bytes(&self) -> u64 {
        self.leaf_bytes
    }

    /// The leaves in order.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// The BLAKE3 hash of the file.
    pub fn root(&self) -> Digest {
        self.root
    }

    /// The byte ranges in which `other`, a tree with the same leaf size, differs: whole leaves,
    /// neighbours joined, up to the end of the longer file. Of trees with different leaf sizes only
    /// the hashes can be compared: if they differ, the range is the whole file.
    pub fn differing(&self, other: &HashTree) -> Vec<Range<u64>> {
        if self.size == other.size && self.root == other.root {
            return Vec::new();
        }
        let end = self.size.max(other.size);
        if self.leaf_bytes != other.leaf_bytes || self.leaves == other.leaves {
            return std::iter::once(0..end).collect();
        }
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for index in 0..self.leaves.len().max(other.leaves.len()) {
            if self.leaves.get(index) == other.leaves.get(index) {
                continue;
            }
            let start = index as u64 * self.leaf_bytes;
            let stop = (start + self.leaf_bytes).min(end);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = stop,
                _ => ranges.push(start..stop),
            }
        }
        ranges
    }
}

fn merged(leaves: &[Leaf]) -> Option<Digest> {
    let mut merge = Merge::new(leaves.len() as u64);
    leaves
        .iter()
        .zip(0..)
        .for_each(|(leaf, index)| merge.add(index, *leaf));
    merge.root()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(content: &[u8]) -> HashTree {
        let tree = HashTree::of(content, 1024).unwrap();
        HashTree::new(tree.size, 1024, tree.leaves.clone(), tree.root).expect("the parts fit")
    }

    #[test]
    fn a_changed_byte_is_found_in_its_leaf_and_nowhere_else() {
        for length in [1usize, 1023, 1024, 1025, 5000, 8192] {
            let content = vec![7; length];
            for at in [0, length / 2, length - 1] {
                let mut changed = content.clone();
                changed[at] ^= 1;
                let start = at as u64 / 1024 * 1024;
                let expected = start..(start + 1024).min(length as u64);
                assert_eq!(
                    tree(&content).differing(&tree(&changed)),
                    [expected],
                    "byte {at} of {length}"
                );
            }
            assert!(tree(&content).differing(&tree(&content)).is_empty());
        }
    }

    #[test]
    fn neighbours_are_joined_and_lengths_count() {
        let long = vec![1; 5000];
        let mut changed = long.clone();
        [1024, 2048, 4999]
            .into_iter()
            .for_each(|at: usize| changed[at] = 0);
        assert_eq!(
            tree(&long).differing(&tree(&changed)),
            [1024..3072, 4096..5000]
        );
        assert!(
            tree(&long)
                .differing(&tree(&long[..2048]))
                .into_iter()
                .eq(std::iter::once(2048..5000))
        );
        assert!(
            tree(&long[..2047])
                .differing(&tree(&long))
                .into_iter()
                .eq(std::iter::once(1024..5000))
        );
        assert!(
            tree(&[])
                .differing(&tree(&long))
                .into_iter()
                .eq(std::iter::once(0..5000))
        );
        assert!(
            HashTree::of(&long, 2048)
                .unwrap()
                .differing(&tree(&changed))
                .into_iter()
                .eq(std::iter::once(0..5000))
        );
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let good = tree(&[3; 5000]);
        let new = |size, leaf_bytes, leaves, root| {
            HashTree::new(size, leaf_bytes, leaves, root).unwrap_err()
        };
        assert_eq!(
            new(5000, 1000, good.leaves.clone(), good.root),
            BadTree::LeafSize(1000)
        );
        assert_eq!(
            new(5000, 512, good.leaves.clone(), good.root),
            BadTree::LeafSize(512)
        );
        assert_eq!(
            new(u64::MAX, 1024, good.leaves.clone(), good.root),
            BadTree::Count {
                found: 5,
                expected: 1 << 54
            }
        );
        let mut leaves = good.leaves.clone();
        leaves[4][0] ^= 1;
        assert_eq!(new(5000, 1024, leaves, good.root), BadTree::Root);
    }
}
