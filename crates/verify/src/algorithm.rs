//! The hash functions, their names, and a hasher that is fed piece by piece.
//!
//! BLAKE3 is our own choice: it is fast, a tree inside, and collision resistant. The others are
//! there for users who have lists of such sums already. XXH3 is the variant with 128 bits, which
//! finds accidents but no forgery.

use md5::Md5;
use sha2::{Digest as _, Sha256, Sha512};
use std::fmt;
use xxhash_rust::xxh3::Xxh3;

/// A hash function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// BLAKE3 with 256 bits.
    #[default]
    Blake3,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-512 (FIPS 180-4).
    Sha512,
    /// MD5 (RFC 1321).
    Md5,
    /// XXH3 with 128 bits.
    Xxh3,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 5] = [
        Algorithm::Blake3,
        Algorithm::Sha256,
        Algorithm::Sha512,
        Algorithm::Md5,
        Algorithm::Xxh3,
    ];

    /// The word used in options and output.
    pub fn word(self) -> &'static str {
        match self {
            Algorithm::Blake3 => "blake3",
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
            Algorithm::Md5 => "md5",
            Algorithm::Xxh3 => "xxh3",
        }
    }

    /// The name in lines like `SHA256 (name) = hash`.
    pub fn tag(self) -> &'static str {
        match self {
            Algorithm::Blake3 => "BLAKE3",
            Algorithm::Sha256 => "SHA256",
            Algorithm::Sha512 => "SHA512",
            Algorithm::Md5 => "MD5",
            Algorithm::Xxh3 => "XXH128",
        }
    }

    /// The number of bytes of its digests.
    pub fn digest_bytes(self) -> usize {
        match self {
            Algorithm::Blake3 | Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
            Algorithm::Md5 | Algorithm::Xxh3 => 16,
        }
    }

    /// The algorithm that a hash of this many bytes is taken for when nobody says which: BLAKE3
    /// before SHA-256, MD5 before XXH3. `None` if no algorithm has hashes of that length.
    pub fn guess(digest_bytes: usize) -> Option<Self> {
        [Algorithm::Blake3, Algorithm::Sha512, Algorithm::Md5]
            .into_iter()
            .find(|one| one.digest_bytes() == digest_bytes)
    }
}

/// Bytes of the longest digest.
const DIGEST_BYTES_MAX: usize = 64;

/// What a hash function makes of some bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    length: u8,
    bytes: [u8; DIGEST_BYTES_MAX],
}

impl Digest {
    /// A digest from its bytes; `None` if there are more than 64, which the longest digest has.
    pub fn from_bytes(digest: &[u8]) -> Option<Self> {
        let mut bytes = [0; DIGEST_BYTES_MAX];
        bytes.get_mut(..digest.len())?.copy_from_slice(digest);
        Some(Digest {
            length: digest.len() as u8,
            bytes,
        })
    }

    /// Reads hexadecimal digits in either case; `None` if there is anything else, an odd number of
    /// digits, or more than 128.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        if !hex.len().is_multiple_of(2) || hex.len() > 2 * DIGEST_BYTES_MAX {
            return None;
        }
        let value = |digit: u8| char::from(digit).to_digit(16);
        let bytes: Option<Vec<u8>> = hex
            .chunks(2)
            .map(|pair| Some((value(pair[0])? * 16 + value(pair[1])?) as u8))
            .collect();
        Digest::from_bytes(&bytes?)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 2 * DIGEST_BYTES_MAX];
        for (pair, byte) in hex.chunks_mut(2).zip(self.as_bytes()) {
            pair.copy_from_slice(&[
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        }
        let hex = &hex[..2 * self.as_bytes().len()];
        out.write_str(std::str::from_utf8(hex).expect("digits are ASCII"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Digest::from_bytes(hash.as_bytes()).expect("32 bytes fit")
    }
}

/// A hash in the making.
#[derive(Debug)]
pub struct Hasher(State);

enum State {
    Blake3(Box<blake3::Hasher>),
    Sha256(Sha256),
    Sha512(Sha512),
    Md5(Md5),
    Xxh3(Box<Xxh3>),
}

impl fmt::Debug for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("State")
    }
}

impl Hasher {
    /// A hasher to which no bytes were added yet.
    pub fn new(algorithm: Algorithm) -> Self {
        Hasher(match algorithm {
            Algorithm::Blake3 => State::Blake3(Box::default()),
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
            Algorithm::Md5 => State::Md5(Md5::new()),
            Algorithm::Xxh3 => State::Xxh3(Box::default()),
        })
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Blake3(hasher) => _ = hasher.update(bytes),
            State::Sha256(hasher) => hasher.update(bytes),
            State::Sha512(hasher) => hasher.update(bytes),
            State::Md5(hasher) => hasher.update(bytes),
            State::Xxh3(hasher) => hasher.update(bytes),
        }
    }

    /// The hash of all that was added.
    pub fn finish(self) -> Digest {
        let digest = match self.0 {
            State::Blake3(hasher) => return hasher.finalize().into(),
            State::Sha256(hasher) => Digest::from_bytes(&hasher.finalize()),
            State::Sha512(hasher) => Digest::from_bytes(&hasher.finalize()),
            State::Md5(hasher) => Digest::from_bytes(&hasher.finalize()),
            // The canonical representation is big-endian (XXH128_canonicalFromHash of xxhash.h).
            State::Xxh3(hasher) => Digest::from_bytes(&hasher.digest128().to_be_bytes()),
        };
        digest.expect("no digest is longer")
    }
}

/// The hash of bytes that are all in memory.
pub fn digest_of(algorithm: Algorithm, bytes: &[u8]) -> Digest {
    if algorithm == Algorithm::Blake3 {
        return blake3::hash(bytes).into();
    }
    let mut hasher = Hasher::new(algorithm);
    hasher.update(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes of "abc" from the test vectors of the algorithms' own documents, XXH128 from `xxhsum
    /// -H2`.
    const ABC: [(Algorithm, &str); 5] = [
        (
            Algorithm::Blake3,
            "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        ),
        (
            Algorithm::Sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            Algorithm::Sha512,
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        (Algorithm::Md5, "900150983cd24fb0d6963f7d28e17f72"),
        (Algorithm::Xxh3, "06b05ab6733a618578af5f94892f3950"),
    ];

    #[test]
    fn every_algorithm_gives_its_known_answer() {
        for (algorithm, expected) in ABC {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(b"a");
            hasher.update(b"bc");
            assert_eq!(
                hasher.finish().to_string(),
                expected,
                "{}",
                algorithm.word()
            );
            assert_eq!(
                digest_of(algorithm, b"abc").to_string(),
                expected,
                "{}",
                algorithm.word()
            );
            assert_eq!(expected.len(), 2 * algorithm.digest_bytes());
        }
    }

    #[test]
    fn digits_are_read_back_and_nothing_else_is() {
        for hex in ["", "00", "AbCdEf09"] {
            assert_eq!(
                Digest::from_hex(hex.as_bytes()).map(|digest| digest.to_string()),
                Some(hex.to_lowercase())
            );
        }
        for bad in ["0", "0g", "0x12", &"00".repeat(65)] {
            assert_eq!(Digest::from_hex(bad.as_bytes()), None, "{bad}");
        }
    }
}
