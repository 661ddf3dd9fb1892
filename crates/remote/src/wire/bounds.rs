//! What one message may hold at most, whoever sends it. Lengths and counts are checked before
//! memory is taken.

pub use driftless_model::bounds::at_most;
use driftless_tree::WHOLE_BYTES_MAX;
use serde::{Deserialize, Deserializer};
use std::io::{self, ErrorKind};

/// Bytes of a head at most: a listing of some thousand entries with their attributes, each of which
/// may have 64 KiB.
pub const HEAD_BYTES_MAX: usize = 16 << 20;

/// Bytes of data in a frame at most.
pub const DATA_BYTES_MAX: usize = 4 << 20;

/// Entries in one listing at most, whatever is asked for.
pub const ENTRIES_MAX: usize = 8192;

/// Faults of one entry that are told at most.
pub const FAULTS_MAX: usize = 1000;

/// Directories above one another at most.
pub const LINEAGE_MAX: usize = 64 << 10;

/// Roots that a client may name.
pub const ROOTS_MAX: usize = 16;

/// Directories that a client can be held to.
pub const ONLY_MAX: usize = 64;

/// Bytes of the head of an answer to [`Request::Fetch`], at most: a file with more attributes is
/// read the long way.
pub const FETCHED_HEAD_BYTES_MAX: usize = 16 << 10;

/// What the attributes of an entry may take of memory that are asked for by themselves, in bytes,
/// unless all of them are.
pub const SHORT_XATTRS_BYTES_MAX: u64 = 16 << 10;

/// Extents of a file that is moved whole, at most: no file system has smaller blocks than 512
/// bytes, and a hole lies between two extents.
pub const EXTENTS_MAX: usize = (WHOLE_BYTES_MAX / 1024) as usize + 1;

/// Bytes of the head of a reply that says little.
pub const SMALL_BYTES: u64 = 4 << 10;

/// Hashes that one reply holds at most.
pub const DIGESTS_MAX: u64 = 64 * 1024;

/// Bytes that one hash is made of at most.
pub const PIECE_BYTES_MAX: u64 = 4 << 20;

/// Reads a list of at most `MAX` elements that may be missing.
///
/// # Errors
/// It has more.
pub fn maybe_at_most<'de, const MAX: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    struct Bounded<T, const MAX: usize>(Vec<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            at_most::<MAX, T, D>(deserializer).map(Bounded)
        }
    }

    Ok(Option::<Bounded<T, MAX>>::deserialize(deserializer)?.map(|Bounded(elements)| elements))
}

/// The peer said something that cannot be.
pub fn bad(why: &str) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("the other side does not keep to the protocol: {why}"),
    )
}
