//! Messages between a client and a gateway on one host: the length (4 bytes, little-endian) and a
//! value of postcard.

use crate::JobRequest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Bytes of a message of a client at most: 1,024 paths of 4 KiB, and what stands beside them.
pub(crate) const REQUEST_BYTES_MAX: u32 = 5 << 20;
/// Bytes of an answer at most.
pub(crate) const REPLY_BYTES_MAX: u32 = 512 << 20;

/// Question of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ClientRequest {
    /// The client is about to submit a job.
    Prepare(JobRequest),
    /// The client submitted the job.
    Confirm { mark: String, number: String },
    /// The client did not submit the job.
    Abandon { mark: String },
    /// The jobs of this user, or of all users for root.
    Jobs,
    /// The path of the directory in which this user deposits data.
    Home,
}

/// Answer of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum GatewayReply {
    /// The job may be submitted.
    Prepared(PreparedJob),
    /// The gateway did so.
    Done,
    /// Jobs, the oldest first.
    Jobs(Vec<JobInfo>),
    /// Cause and remedy.
    Refused(String),
    /// An absolute path, as bytes.
    Home(Vec<u8>),
}

/// A job that a client may submit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PreparedJob {
    /// Mark of the job.
    pub mark: String,
    /// Batch system, as a word.
    pub system: String,
    /// Variables for the tasks.
    pub variables: Vec<(String, String)>,
}

/// A job, as a gateway shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Mark, 16 hexadecimal digits.
    pub mark: String,
    /// Name of the user.
    pub owner: String,
    /// Number in the batch system.
    pub number: Option<String>,
    /// Stage: "prepared", "loading", "releasing", "released", "ended" or "closed".
    pub stage: String,
    /// Sources, as bytes.
    pub sources: Vec<Vec<u8>>,
    /// Policy of the release.
    pub policy: String,
    /// Root hash of the data set, 64 hexadecimal digits.
    pub set: Option<String>,
    /// Bytes of the data set.
    pub bytes: Option<u64>,
    /// Nodes.
    pub nodes: Vec<JobNodeInfo>,
    /// Pattern of the path of the results, as bytes.
    pub pattern: Option<Vec<u8>>,
    /// Results that were collected.
    pub results: Vec<ResultInfo>,
    /// Last problem and its remedy.
    pub fault: Option<String>,
    /// Seconds since 1970 at which the user asked.
    pub made: u64,
    /// Seconds since 1970 at which the stage was reached.
    pub changed: u64,
}

/// A node of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNodeInfo {
    /// Node.
    pub node: String,
    /// State: "wanted", "ready", "failed" or "purged".
    pub state: String,
    /// Last problem and its remedy.
    pub fault: Option<String>,
}

/// Results of a job from a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultInfo {
    /// Node.
    pub node: String,
    /// Entries that arrived.
    pub entries: u64,
    /// Bytes of content that arrived.
    pub bytes: u64,
    /// Tasks that ran on another node later. Their results from this node are beside the newer ones.
    pub earlier_runs: u64,
    /// Cause and remedy, if the last attempt failed.
    pub fault: Option<String>,
}

/// Writes a message.
pub(crate) fn write<T: Serialize>(stream: &mut UnixStream, value: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(value).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(&bytes)
}

/// Reads a message of at most `bytes_max` bytes.
pub(crate) fn read<T: DeserializeOwned>(stream: &mut UnixStream, bytes_max: u32) -> io::Result<T> {
    let length = read_length(stream, bytes_max)?;
    read_value(stream, length)
}

/// Reads the length of a message of at most `bytes_max` bytes.
pub(crate) fn read_length(stream: &mut UnixStream, bytes_max: u32) -> io::Result<u32> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    match length > bytes_max {
        true => Err(io::Error::other("the message is too long")),
        false => Ok(length),
    }
}

/// Reads the value of a message of this length.
pub(crate) fn read_value<T: DeserializeOwned>(
    stream: &mut UnixStream,
    length: u32,
) -> io::Result<T> {
    let mut bytes = Vec::new();
    let read = stream.take(length.into()).read_to_end(&mut bytes)?;
    if u32::try_from(read) != Ok(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match postcard::take_from_bytes(&bytes).map_err(io::Error::other)? {
        (value, []) => Ok(value),
        _ => Err(io::Error::other("the message has more than one value")),
    }
}
