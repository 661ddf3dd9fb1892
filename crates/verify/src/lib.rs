//! Proof: hash trees, sums, manifests, and what a sample proves.
#![deny(missing_docs)]

mod algorithm;
mod content;
mod hashtree;
mod interval;
mod lines;
mod list;
mod manifest;
mod sample;
mod subtree;
mod sum;
mod treefile;

pub use algorithm::{Algorithm, Digest, Hasher, digest_of};
pub use content::{BUFFER_BYTES, Unread, digest_range, hash_pieces, hash_single};
pub use hashtree::{BadTree, HashTree, LEAF_BYTES_DEFAULT, Leaf};
pub use interval::{is_share, samples_needed, upper_bound};
pub use lines::Lines;
pub use list::{BadLine, Line, parse_line, push_line};
pub use manifest::Manifest;
pub use sample::Sampler;
pub use subtree::{Merge, PIECE_BYTES_MIN, Pieces, is_piece_size, pieces_of};
pub use sum::{
    BadTarget, Expected, Found, Sum, SumMonitor, SumOptions, Target, Targets, What, sum,
};
pub use treefile::{BadTreeFile, TreeReader, TreeWriter};
