//! Messages between `driftless put --on` and the program that it starts on the other host: a greeting,
//! then the length (4 bytes, little-endian) and a value of postcard.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// Begin of the greeting; the protocol follows.
pub const GREETING: &str = "driftless-put ";
/// Version of the messages.
pub const PROTOCOL: u32 = 1;
/// Bytes of a message at most.
const MESSAGE_BYTES_MAX: u32 = 256 << 20;

/// Order to the other host.
#[derive(Debug, Serialize, Deserialize)]
pub enum PutOrder {
    /// List the deposits.
    List,
    /// Remove a deposit.
    Remove(Vec<u8>),
    /// Begin a deposit.
    Begin(PutRequest),
    /// Append bytes to the content. There is no reply.
    Data(Vec<u8>),
    /// Give the deposit its name.
    Commit,
}

/// Deposit that is to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PutRequest {
    /// Name, as bytes.
    pub name: Vec<u8>,
    /// Description of the sources, by which an unfinished copy is continued.
    pub origin: Option<Vec<u8>>,
    /// Form of the content.
    pub form: PutForm,
    /// Whether the deposit may replace another one.
    pub replaces: bool,
}

/// Form of the content of a deposit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutForm {
    /// A copy of one file or directory.
    Tree,
    /// A directory with copies of several files and directories.
    Group,
    /// A file with the bytes of standard input.
    Stream,
}

/// Reply of the other host.
#[derive(Debug, Serialize, Deserialize)]
pub enum PutReply {
    /// Deposits and unfinished ones.
    Deposits(Vec<DepositRow>),
    /// The deposit was removed.
    Removed,
    /// Path at which the content is to be created, as bytes.
    Draft(Vec<u8>),
    /// The deposit has its name.
    Placed(PlacedDeposit),
    /// Exit code, cause and remedy.
    Failed(u8, String),
}

/// Deposit of a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DepositRow {
    /// Path, as bytes.
    pub path: Vec<u8>,
    /// Name, as bytes.
    pub name: Vec<u8>,
    /// Whether it is complete.
    pub is_complete: bool,
    /// Entries below it.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Seconds since 1970 of the deposit.
    pub made: u64,
}

/// Deposit that has its name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlacedDeposit {
    /// Path, as bytes.
    pub path: Vec<u8>,
    /// Error of the removal of the replaced deposit.
    pub leftover: Option<String>,
}

/// Writes a message.
pub fn write<T: Serialize>(output: &mut impl Write, value: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(value).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    output.write_all(&length.to_le_bytes())?;
    output.write_all(&bytes)?;
    output.flush()
}

/// Reads a message. Returns `None` at the end of the input.
pub fn read<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length);
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::other("the message is too long"));
    }
    let mut bytes = Vec::new();
    input.take(length.into()).read_to_end(&mut bytes)?;
    let value = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
    Ok(Some(value))
}
