//! Frames: messages in the stream of plaintext, each behind its length and its kind.
//!
//! ```text
//! 0        4      5
//! ┌────────┬──────┬─────────────────┐
//! │ length │ kind │ length bytes    │   length: u32, little endian, without the head
//! └────────┴──────┴─────────────────┘
//! ```
//!
//! The reader takes plaintext in pieces of any size, copies each byte once, and allocates memory for
//! a message only after its length was found to be within the limit.

use std::collections::VecDeque;
use std::mem;
use thiserror::Error as ThisError;

/// Bytes before each message.
pub(crate) const HEAD_BYTES: usize = 5;
/// Largest message in bytes that any settings allow.
pub const MESSAGE_BYTES_LIMIT: usize = 16 << 20;
/// Greatest kind of a message that a caller may use. This crate has the others.
pub const KIND_MAX: u8 = 239;
/// A heartbeat: no content.
pub(crate) const KIND_HEARTBEAT: u8 = 255;
/// A whole frame that is a heartbeat.
pub(crate) const HEARTBEAT: [u8; HEAD_BYTES] = [0, 0, 0, 0, KIND_HEARTBEAT];
/// The first frame of the end that has connected.
pub(crate) const KIND_OPEN: u8 = 254;
/// The answer to it.
pub(crate) const KIND_WELCOME: u8 = 253;
/// A block of a bundle: its bytes, then stream and number.
pub(crate) const KIND_BLOCK: u8 = 252;
/// Memory that a message reserves before its bytes arrive. It grows with them.
const RESERVED_BYTES_MAX: usize = 128 << 10;

/// A message as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkMessage {
    /// Kind that the sender gave.
    pub kind: u8,
    /// Content.
    pub bytes: Vec<u8>,
}

/// A frame that breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub enum FrameError {
    /// The length exceeds the limit.
    #[error("a frame of {bytes} bytes exceeds the limit of {bytes_max}")]
    Oversized {
        /// The length that the frame states.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

/// Returns the head of a frame, or `None` if the length has more than 32 bits.
pub(crate) fn head(kind: u8, bytes: usize) -> Option<[u8; HEAD_BYTES]> {
    let [a, b, c, d] = u32::try_from(bytes).ok()?.to_le_bytes();
    Some([a, b, c, d, kind])
}

/// Frame whose head has arrived.
#[derive(Debug)]
struct PartialMessage {
    kind: u8,
    bytes: Vec<u8>,
    bytes_total: usize,
}

impl PartialMessage {
    fn is_complete(&self) -> bool {
        self.bytes.len() == self.bytes_total
    }
}

/// Assembles messages from plaintext.
#[derive(Debug)]
pub struct FrameReader {
    bytes_max: usize,
    head: Vec<u8>,
    partial: Option<PartialMessage>,
    complete: VecDeque<LinkMessage>,
}

impl FrameReader {
    /// Returns a reader for messages of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        FrameReader {
            bytes_max,
            head: Vec::with_capacity(HEAD_BYTES),
            partial: None,
            complete: VecDeque::new(),
        }
    }

    /// Changes the limit for frames whose heads have not arrived.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Takes the next bytes of the stream. The caller fetches the messages between two calls.
    ///
    /// # Errors
    /// Fails at a frame that breaks the protocol. The stream is of no use then.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), FrameError> {
        while !bytes.is_empty() {
            bytes = match self.partial.take() {
                Some(partial) => self.continue_message(partial, bytes),
                None => self.begin_message(bytes)?,
            };
        }
        Ok(())
    }

    /// Returns the oldest complete message, or `None` if there is none.
    pub fn pop(&mut self) -> Option<LinkMessage> {
        self.complete.pop_front()
    }

    /// Whether a frame has begun and is not complete.
    pub fn is_within_frame(&self) -> bool {
        !self.head.is_empty() || self.partial.is_some()
    }

    /// Returns the bytes that the frame which has begun still lacks.
    pub(crate) fn missing_bytes(&self) -> usize {
        let partial = self.partial.as_ref();
        partial.map_or(0, |partial| {
            partial.bytes_total.saturating_sub(partial.bytes.len())
        })
    }

    fn begin_message<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], FrameError> {
        let missing = HEAD_BYTES.saturating_sub(self.head.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        self.head.extend_from_slice(taken);
        let &[a, b, c, d, kind] = self.head.as_slice() else {
            return Ok(rest);
        };
        self.head.clear();
        // A length that does not fit exceeds every limit.
        let bytes_total = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if bytes_total > self.bytes_max {
            return Err(FrameError::Oversized {
                bytes: bytes_total,
                bytes_max: self.bytes_max,
            });
        }
        self.keep(PartialMessage {
            kind,
            bytes: Vec::with_capacity(bytes_total.min(RESERVED_BYTES_MAX)),
            bytes_total,
        });
        Ok(rest)
    }

    fn continue_message<'a>(&mut self, mut partial: PartialMessage, bytes: &'a [u8]) -> &'a [u8] {
        let missing = partial.bytes_total.saturating_sub(partial.bytes.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        partial.bytes.extend_from_slice(taken);
        self.keep(partial);
        rest
    }

    fn keep(&mut self, mut partial: PartialMessage) {
        if !partial.is_complete() {
            self.partial = Some(partial);
        } else if partial.kind != KIND_HEARTBEAT {
            let (kind, bytes) = (partial.kind, mem::take(&mut partial.bytes));
            self.complete.push_back(LinkMessage { kind, bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FrameError, FrameReader, KIND_HEARTBEAT, LinkMessage, head};

    fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
        [&head(kind, bytes.len()).unwrap()[..], bytes].concat()
    }

    #[test]
    fn frames_arrive_whole_however_they_are_cut() {
        let stream = [frame(1, b"one"), frame(2, b""), frame(3, &[7; 99])].concat();
        for piece in [1, 2, 3, 5, 8, 200] {
            let mut reader = FrameReader::new(99);
            let mut kinds = Vec::new();
            for part in stream.chunks(piece) {
                reader.push(part).unwrap();
                kinds.extend(std::iter::from_fn(|| reader.pop()).map(|one| one.kind));
            }
            assert_eq!(kinds, [1, 2, 3]);
            assert!(!reader.is_within_frame());
        }
    }

    #[test]
    fn heartbeats_are_no_messages() {
        let mut reader = FrameReader::new(9);
        let stream = [frame(KIND_HEARTBEAT, b""), frame(1, b"x")].concat();
        reader.push(&stream).unwrap();
        let bytes = b"x".to_vec();
        assert_eq!(reader.pop(), Some(LinkMessage { kind: 1, bytes }));
        assert_eq!(reader.pop(), None);
    }

    #[test]
    fn frame_above_the_limit_is_refused() {
        let mut reader = FrameReader::new(9);
        reader.push(&frame(1, &[0; 9])).unwrap();
        let (bytes, bytes_max) = (10, 9);
        let refused = FrameError::Oversized { bytes, bytes_max };
        assert_eq!(reader.push(&frame(1, &[0; 10])), Err(refused));
    }

    #[test]
    fn unfinished_frame_is_no_end() {
        for cut in 1..8 {
            let mut reader = FrameReader::new(9);
            reader.push(&frame(1, b"abc")[..cut]).unwrap();
            assert!(reader.is_within_frame(), "{cut}");
            assert_eq!(reader.missing_bytes(), if cut < 5 { 0 } else { 8 - cut });
        }
    }
}
