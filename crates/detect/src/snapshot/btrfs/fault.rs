//! What is wrong with a send stream, and at which byte.

use driftless_model::{RelPath, cause, escape};
use std::io;

/// A stream that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("byte {offset} of the send stream: {fault}")]
pub struct StreamError {
    /// Where the header or the command begins, in bytes from the start.
    pub offset: u64,
    /// What is wrong there.
    pub fault: StreamFault,
}

/// What is wrong with a stream.
#[derive(Debug, thiserror::Error)]
pub enum StreamFault {
    /// The reader failed.
    #[error("cannot read: {}", cause(.0))]
    Read(io::Error),
    /// It begins with something else.
    #[error("not a btrfs send stream")]
    Magic,
    /// A version that is not known.
    #[error("unsupported version {0} (1 to 3 are supported)")]
    Version(u32),
    /// It was cut off.
    #[error("the stream ends without an end command")]
    Truncated,
    /// A command larger than any that the kernel makes.
    #[error("a command has {0} bytes, more than {1}")]
    TooLong(u32, u32),
    /// Some bytes were changed on the way.
    #[error("wrong checksum {found:08x}, computed {computed:08x}")]
    Checksum {
        /// What the command says.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// A command with a number that is not known.
    #[error("unknown command {0}")]
    Command(u16),
    /// An attribute that ends behind its command.
    #[error("attribute {0} exceeds its command")]
    Attribute(u16),
    /// An attribute stands in a command twice.
    #[error("duplicate attribute {0}")]
    Twice(u16),
    /// An attribute is missing.
    #[error("command {command} lacks attribute {attribute}")]
    Missing {
        /// The number of the command.
        command: u16,
        /// The number of the attribute.
        attribute: u16,
    },
    /// An attribute is shorter or longer than its kind is.
    #[error("attribute {0} has {1} bytes")]
    Length(u16, usize),
    /// A path that leads out of the subvolume.
    #[error("\"{}\" is not a path below the subvolume", escape(.0))]
    Path(Vec<u8>),
    /// A range that ends behind the largest offset.
    #[error("a range of {1} bytes at {0} exceeds the largest offset")]
    Range(u64, u64),
    /// A stream has to begin with the snapshot that it is of.
    #[error("the stream does not begin with a snapshot")]
    NoSubvolume,
    /// A second snapshot in the same stream.
    #[error("a second snapshot begins before the end of the first")]
    SecondSubvolume,
    /// A command speaks of what is not there.
    #[error("\"{0}\": no such file or directory")]
    NotThere(RelPath),
    /// A command makes what is there.
    #[error("\"{0}\": already exists")]
    Occupied(RelPath),
    /// A command removes or replaces a directory that holds something.
    #[error("\"{0}\": not empty")]
    NotEmpty(RelPath),
    /// A command moves, removes or replaces the root, or moves a directory below itself.
    #[error("\"{0}\": cannot move or remove the root")]
    Root(RelPath),
    /// More directories in each other than a path can name.
    #[error("more than {0} nested directories")]
    TooDeep(usize),
    /// More differences than memory is planned for.
    #[error("more than {0} names and ranges differ")]
    TooMany(usize),
}

impl StreamFault {
    /// The fault with its place.
    pub(super) fn at(self, offset: u64) -> StreamError {
        StreamError {
            offset,
            fault: self,
        }
    }
}
