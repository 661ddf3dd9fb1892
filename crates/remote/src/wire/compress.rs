//! Content that is made smaller before it crosses a slow connection (zstd, RFC 8878), as long as
//! that gains anything.
//!
//! Each side does it only when the client wants it, piece by piece: what does not get smaller
//! crosses as it is. Where hardly anything gets smaller it is left off for a while. What came is
//! opened only where it is used, so what waits takes no more memory than crossed the connection.
//!
//! ```text
//! compressed data = number of bytes (u32, little endian) | one zstd frame with just as many
//! ```

use crate::wire::bounds::{DATA_BYTES_MAX, bad};
use std::io;
use zstd::bulk::Compressor;

/// Below this many bytes there is hardly anything to gain.
const PIECE_BYTES_MIN: usize = 256;
/// Bytes of the number before the zstd frame.
const SIZE_BYTES: usize = 4;
/// It is judged by so many bytes of content whether it gains anything.
const TRIAL_BYTES: u64 = 1 << 20;
/// It does if at most this share of them is left, in percent.
const LEFT_PERCENT_MAX: u64 = 90;
/// If it does not, so many bytes cross as they are before the next trial.
const REST_BYTES: u64 = 16 << 20;

/// Whether compressing gains anything lately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Gain {
    tried: u64,
    left: u64,
    rest: u64,
}

impl Gain {
    /// Whether the next `len` bytes are worth a try.
    fn is_worth(&mut self, len: u64) -> bool {
        let resting = self.rest > 0;
        self.rest = self.rest.saturating_sub(len);
        !resting
    }

    /// Of `len` bytes, so many were left.
    fn note(&mut self, len: u64, left: u64) {
        self.tried += len;
        self.left += left;
        if self.tried >= TRIAL_BYTES {
            let poor = self.left * 100 > self.tried * LEFT_PERCENT_MAX;
            *self = Gain {
                rest: if poor { REST_BYTES } else { 0 },
                ..Gain::default()
            };
        }
    }
}

/// Compresses what one side sends, as long as that gains anything.
pub struct ContentCompressor {
    compressor: Compressor<'static>,
    gain: Gain,
}

impl ContentCompressor {
    /// Compresses at a level of zstd; `None` without memory for it.
    pub fn new(level: i32) -> Option<ContentCompressor> {
        Some(ContentCompressor {
            compressor: Compressor::new(level).ok()?,
            gain: Gain::default(),
        })
    }

    /// Content, compressed; `None` if it is to cross as it is.
    pub fn compress(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let len = data.len();
        if len < PIECE_BYTES_MIN || !self.gain.is_worth(len as u64) {
            return None;
        }
        let compressed = self
            .compressor
            .compress(data)
            .ok()
            .filter(|compressed| compressed.len() + SIZE_BYTES < len);
        self.gain.note(
            len as u64,
            compressed
                .as_ref()
                .map_or(len, |compressed| compressed.len() + SIZE_BYTES) as u64,
        );
        compressed.map(|compressed| [&(len as u32).to_le_bytes(), &compressed[..]].concat())
    }
}

/// How many bytes compressed data say that they are; no more and no fewer come out.
pub fn announced(data: &[u8]) -> u64 {
    data.first_chunk::<SIZE_BYTES>()
        .map_or(0, |size| u32::from_le_bytes(*size).into())
}

/// Opens compressed data. Memory is taken for as many bytes as are announced, which is bounded;
/// more than that never comes out.
pub fn open(data: &[u8]) -> io::Result<Vec<u8>> {
    let (size, compressed) = data
        .split_first_chunk::<SIZE_BYTES>()
        .ok_or_else(|| bad("compressed data without a size"))?;
    let size = u32::from_le_bytes(*size) as usize;
    if size > DATA_BYTES_MAX {
        return Err(bad("compressed data exceed the size limit"));
    }
    let opened =
        zstd::bulk::decompress(compressed, size).map_err(|_| bad("cannot decompress the data"))?;
    if opened.len() == size {
        Ok(opened)
    } else {
        Err(bad("decompressed data have another size than announced"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(len: usize) -> Vec<u8> {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn what_is_compressed_comes_out_as_it_went_in() {
        let mut compressor = ContentCompressor::new(1).expect("memory");
        for data in [
            Vec::new(),
            vec![1; 100],
            vec![2; 256],
            b"words ".repeat(9999),
            random(5000),
            vec![0; DATA_BYTES_MAX],
        ] {
            match compressor.compress(&data) {
                Some(compressed) => {
                    assert!(compressed.len() < data.len());
                    assert_eq!(announced(&compressed), data.len() as u64);
                    assert_eq!(open(&compressed).expect("it was made here"), data);
                }
                None => assert!(
                    data.len() < PIECE_BYTES_MIN || data.len() == 5000,
                    "{} bytes",
                    data.len()
                ),
            }
        }
    }

    /// How many of `pieces` are tried, when so many percent of each are left.
    fn tried(gain: &mut Gain, left_percent: u64, pieces: u64) -> u64 {
        const PIECE: u64 = 64 << 10;
        let mut tried = 0;
        for _ in 0..pieces {
            if gain.is_worth(PIECE) {
                gain.note(PIECE, PIECE * left_percent / 100);
                tried += 1;
            }
        }
        tried
    }

    #[test]
    fn it_is_left_off_where_it_gains_nothing_and_tried_again() {
        let (trial, rest) = (TRIAL_BYTES / (64 << 10), REST_BYTES / (64 << 10));
        let mut gain = Gain::default();
        assert_eq!(
            tried(&mut gain, 50, 10 * trial),
            10 * trial,
            "as long as it gains"
        );
        assert_eq!(
            tried(&mut gain, 90, 10 * trial),
            10 * trial,
            "even a little"
        );
        assert_eq!(tried(&mut gain, 91, trial + rest), trial, "then it rests");
        assert_eq!(
            tried(&mut gain, 100, trial + rest),
            trial,
            "and is tried again"
        );
        assert_eq!(
            tried(&mut gain, 30, 10 * trial),
            10 * trial,
            "until it gains again"
        );
        assert_eq!(
            tried(&mut gain, 100, trial / 2) + tried(&mut gain, 10, trial),
            trial * 3 / 2,
            "it is judged by the whole trial"
        );
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let compressed = |said: u32, data: &[u8]| {
            [
                &said.to_le_bytes(),
                &zstd::bulk::compress(data, 1).expect("memory")[..],
            ]
            .concat()
        };
        let whole = compressed(1000, &[5; 1000]);
        assert_eq!(open(&whole).expect("this is right"), [5; 1000]);
        let bomb = compressed(1000, &vec![0; 64 << 20]);
        let large = compressed(DATA_BYTES_MAX as u32 + 1, &vec![0; DATA_BYTES_MAX + 1]);
        let twice = [&whole[..], &whole[SIZE_BYTES..]].concat();
        for wrong in [
            bomb,
            large,
            twice,
            compressed(999, &[5; 1000]),
            compressed(1001, &[5; 1000]),
            compressed(u32::MAX, b""),
        ] {
            assert!(open(&wrong).is_err());
        }
        for len in 0..whole.len() {
            assert!(open(&whole[..len]).is_err(), "{len} bytes of it");
        }
        assert!(open(&random(500)).is_err());
    }
}
