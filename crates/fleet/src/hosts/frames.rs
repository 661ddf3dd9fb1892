//! Messages on a connection: each is its length (4 bytes, little-endian), then its bytes.

use driftless_queue::MESSAGE_BYTES_MAX;
use std::io::{self, Read, Write};

/// Writes a message and has it leave.
///
/// # Errors
/// Nobody takes it, or it is too long.
pub fn write_message(out: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(body)?;
    out.flush()
}

/// The next message; none at the end.
///
/// # Errors
/// The connection fails, or ends within a message, or the message is longer than any may be.
pub fn read_message(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::other("a message longer than any may be"));
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Some(body))
}
