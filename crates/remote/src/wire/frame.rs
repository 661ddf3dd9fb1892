//! Frames: what carries a request or a reply, with content, over a connection.
//!
//! The form is drawn at the head of `wire.rs`. Lengths are bounded before anything is allocated.

use crate::wire::bounds::{DATA_BYTES_MAX, HEAD_BYTES_MAX, bad};
use crate::wire::compress;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};

/// A frame: a head with its number, and data.
#[derive(Debug, Default)]
pub struct Frame {
    /// Number and message.
    pub head: Vec<u8>,
    /// Content.
    pub data: Vec<u8>,
}

/// What a head may take besides its bytes.
const SPARE_BYTES_MAX: usize = 64 << 10;

pub(crate) const NUMBER_BYTES: usize = 8;

/// Of a frame's number, the bit that says that its data are compressed. Requests are counted from
/// one and never get there.
const COMPRESSED: u64 = 1 << 63;

impl Frame {
    /// A frame that carries a message.
    pub fn new(number: u64, message: &impl Serialize, data: Vec<u8>) -> Self {
        let mut head = postcard::to_extend(message, number.to_le_bytes().to_vec())
            .expect("messages are plain values, and memory does not fail");
        // What grew in steps has room to spare, which would count as nothing.
        if head.len() > SPARE_BYTES_MAX {
            head.shrink_to_fit();
        }
        Frame { head, data }
    }

    /// Number of the request that this belongs to.
    pub fn number(&self) -> u64 {
        self.marked_number() & !COMPRESSED
    }

    /// Whether the data are compressed.
    pub fn is_compressed(&self) -> bool {
        self.marked_number() & COMPRESSED != 0
    }

    /// The same message with compressed data.
    pub fn with_compressed(mut self, data: Vec<u8>) -> Frame {
        let number = self.marked_number() | COMPRESSED;
        self.head[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        Frame { data, ..self }
    }

    /// The data as they were before they were compressed.
    pub fn into_data(self) -> io::Result<Vec<u8>> {
        if self.is_compressed() {
            compress::open(&self.data)
        } else {
            Ok(self.data)
        }
    }

    fn marked_number(&self) -> u64 {
        let mut bytes = [0; NUMBER_BYTES];
        bytes.copy_from_slice(&self.head[..NUMBER_BYTES]);
        u64::from_le_bytes(bytes)
    }

    /// The message.
    pub fn message<T: DeserializeOwned>(&self) -> io::Result<T> {
        let (message, rest) = postcard::take_from_bytes(&self.head[NUMBER_BYTES..])
            .map_err(|e| bad(&e.to_string()))?;
        if rest.is_empty() {
            Ok(message)
        } else {
            Err(bad("unexpected bytes at the end of a frame"))
        }
    }

    /// What it takes of memory.
    pub fn bytes(&self) -> u64 {
        (self.head.len() + self.data.len()) as u64
    }

    /// Bytes of its data before they were compressed, as it says itself.
    pub fn data_bytes(&self) -> u64 {
        if self.is_compressed() {
            compress::announced(&self.data)
        } else {
            self.data.len() as u64
        }
    }

    /// Writes the frame.
    pub fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        stream.write_all(&(self.head.len() as u32).to_le_bytes())?;
        stream.write_all(&(self.data.len() as u32).to_le_bytes())?;
        stream.write_all(&self.head)?;
        stream.write_all(&self.data)
    }

    /// Reads a frame; `None` at the end of the stream.
    pub fn read(stream: &mut impl Read) -> io::Result<Option<Frame>> {
        let read = Frame::read_admitted(stream, |_, _| Ok(()))?;
        Ok(read.map(|(frame, ())| frame))
    }

    /// Reads a frame if `admit` lets it in, which is asked before any memory is taken for it.
    ///
    /// # Errors
    /// The stream breaks, no frame may be as long, or it is not let in.
    pub fn read_admitted<R: Read, T>(
        stream: &mut R,
        admit: impl FnOnce(&mut R, &Announced) -> io::Result<T>,
    ) -> io::Result<Option<(Frame, T)>> {
        let Some(announced) = Announced::read(stream)? else {
            return Ok(None);
        };
        let admitted = admit(stream, &announced)?;
        let mut head = announced.number.to_le_bytes().to_vec();
        read_bytes(stream, announced.head, &mut head)?;
        let mut data = Vec::new();
        read_bytes(stream, announced.data, &mut data)?;
        Ok(Some((Frame { head, data }, admitted)))
    }
}

/// What the beginning of a frame says of it.
#[derive(Debug, Clone, Copy)]
pub struct Announced {
    number: u64,
    /// Bytes of its head.
    pub head: usize,
    /// Bytes of its data, as they cross the stream.
    pub data: usize,
}

impl Announced {
    /// Reads the beginning of a frame; `None` at the end of the stream.
    fn read(stream: &mut impl Read) -> io::Result<Option<Announced>> {
        let mut lengths = [0; 8];
        match stream.read_exact(&mut lengths) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let [head, data] = [&lengths[..4], &lengths[4..]]
            .map(|four| u32::from_le_bytes(four.try_into().expect("four bytes")) as usize);
        if !(NUMBER_BYTES..=HEAD_BYTES_MAX).contains(&head) || data > DATA_BYTES_MAX {
            return Err(bad("a frame exceeds the size limit"));
        }
        let mut number = [0; NUMBER_BYTES];
        stream.read_exact(&mut number)?;
        Ok(Some(Announced {
            number: u64::from_le_bytes(number),
            head,
            data,
        }))
    }

    /// Number of the request that the frame belongs to.
    pub fn number(&self) -> u64 {
        self.number & !COMPRESSED
    }

    /// Whether its data are compressed.
    pub fn is_compressed(&self) -> bool {
        self.number & COMPRESSED != 0
    }

    /// Returns an error if data are compressed without a request.
    pub fn check_agreed(&self, compressed: bool) -> io::Result<()> {
        if self.is_compressed() && !compressed {
            Err(bad("data are compressed without a request"))
        } else {
            Ok(())
        }
    }

    /// What the frame takes of memory as long as its data are not opened.
    pub fn bytes(&self) -> u64 {
        (self.head + self.data) as u64
    }
}

/// Reads up to `len` bytes in all. Memory is taken as bytes arrive, not as they are announced, and
/// for no more than these.
fn read_bytes(stream: &mut impl Read, len: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    while bytes.len() < len {
        let piece = (len - bytes.len()).min(PIECE_BYTES.max(bytes.len()));
        bytes.reserve_exact(piece);
        if stream.by_ref().take(piece as u64).read_to_end(bytes)? < piece {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}
