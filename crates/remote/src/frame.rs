//! Frames: what carries a request or a reply, with content, over the line.
//!
//! The form is drawn at the head of `wire.rs`. Lengths are bounded before anything is allocated.

use crate::wire::{Reply, WireFault};
use driftless_model::Act;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};

/// Bytes of a head at most: a listing of some thousand entries with their attributes, each of which may have 64 KiB.
pub const HEAD_BYTES_MAX: usize = 16 << 20;
/// Bytes of data in a frame at most.
pub const DATA_BYTES_MAX: usize = 4 << 20;
/// `E2BIG` of errno(3).
const E2BIG: i32 = 7;
/// A frame: a head with its number, and data.
#[derive(Debug, Default)]
pub struct Frame {
    /// Number and message.
    pub head: Vec<u8>,
    /// Content.
    pub data: Vec<u8>,
}

pub(crate) const NUMBER_BYTES: usize = 8;
/// Of a frame's number, the bit that says that its data are squeezed. Requests are counted from one and never get there.
const SQUEEZED: u64 = 1 << 63;

impl Frame {
    /// A frame that carries a message.
    pub fn new(number: u64, message: &impl Serialize, data: Vec<u8>) -> Self {
        let head =
            postcard::to_extend(message, number.to_le_bytes().to_vec()).expect("messages are plain values, and memory does not fail");
        Frame { head, data }
    }

    /// Number of the request that this belongs to.
    pub fn number(&self) -> u64 {
        self.marked_number() & !SQUEEZED
    }

    /// Whether the data are squeezed.
    pub fn is_squeezed(&self) -> bool {
        self.marked_number() & SQUEEZED != 0
    }

    /// The same message with squeezed data.
    pub fn with_squeezed(mut self, data: Vec<u8>) -> Frame {
        let number = self.marked_number() | SQUEEZED;
        self.head[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        Frame { data, ..self }
    }

    /// The data as they were before they were squeezed.
    pub fn into_data(self) -> io::Result<Vec<u8>> {
        if self.is_squeezed() { crate::squeeze::open(&self.data) } else { Ok(self.data) }
    }

    fn marked_number(&self) -> u64 {
        let mut bytes = [0; NUMBER_BYTES];
        bytes.copy_from_slice(&self.head[..NUMBER_BYTES]);
        u64::from_le_bytes(bytes)
    }

    /// The message.
    pub fn message<T: DeserializeOwned>(&self) -> io::Result<T> {
        let (message, rest) = postcard::take_from_bytes(&self.head[NUMBER_BYTES..]).map_err(|e| bad(&e.to_string()))?;
        if rest.is_empty() { Ok(message) } else { Err(bad("bytes are left over")) }
    }

    /// The same if the other side would read it, else one that says so: what is too long for a message is a problem of one entry.
    pub fn or_too_long(self, act: Act) -> Frame {
        let fits = self.head.len() <= HEAD_BYTES_MAX;
        if fits { self } else { Frame::new(self.number(), &Reply::Fault(WireFault::new(act, E2BIG)), Vec::new()) }
    }

    /// What it takes of memory.
    pub fn bytes(&self) -> u64 {
        (self.head.len() + self.data.len()) as u64
    }

    /// Bytes of its data before they were squeezed, as it says itself.
    pub fn data_bytes(&self) -> u64 {
        if self.is_squeezed() { crate::squeeze::announced(&self.data) } else { self.data.len() as u64 }
    }

    /// Writes the frame.
    pub fn write(&self, line: &mut impl Write) -> io::Result<()> {
        line.write_all(&(self.head.len() as u32).to_le_bytes())?;
        line.write_all(&(self.data.len() as u32).to_le_bytes())?;
        line.write_all(&self.head)?;
        line.write_all(&self.data)
    }

    /// Reads a frame whose data may be squeezed only if that was agreed on; `None` at the end of the line.
    pub fn read_agreed(line: &mut impl Read, squeezed: bool) -> io::Result<Option<Frame>> {
        match Frame::read(line)? {
            Some(frame) if frame.is_squeezed() && !squeezed => Err(bad("data are squeezed, and nobody asked for that")),
            frame => Ok(frame),
        }
    }

    /// Reads a frame; `None` at the end of the line.
    pub fn read(line: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut lengths = [0; 8];
        match line.read_exact(&mut lengths) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let [head, data] = [&lengths[..4], &lengths[4..]].map(|four| u32::from_le_bytes(four.try_into().expect("four bytes")) as usize);
        if !(NUMBER_BYTES..=HEAD_BYTES_MAX).contains(&head) || data > DATA_BYTES_MAX {
            return Err(bad("a frame is longer than any may be"));
        }
        Ok(Some(Frame { head: read_bytes(line, head)?, data: read_bytes(line, data)? }))
    }
}

/// Memory is taken as bytes arrive, not as they are announced.
fn read_bytes(line: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len.min(1 << 20));
    let got = line.take(len as u64).read_to_end(&mut bytes)?;
    if got == len { Ok(bytes) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// The peer said something that cannot be.
pub fn bad(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the other side does not keep to the protocol: {why}"))
}
