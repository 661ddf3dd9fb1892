//! What a client asks of an agent, and what the reply may take.

use crate::wire::bounds::{
    DATA_BYTES_MAX, DIGESTS_MAX, ENTRIES_MAX, FETCHED_HEAD_BYTES_MAX, HEAD_BYTES_MAX,
    PIECE_BYTES_MAX, ROOTS_MAX, SMALL_BYTES, at_most,
};
use crate::wire::frame::Frame;
use crate::wire::name::{Handle, Name};
use crate::wire::new_entry::NewEntryHead;
use crate::wire::sparing::WireSpared;
use driftless_model::{Keep, Kind, Side, bounds};
use driftless_tree::{Attributes, Known, Reach, WHOLE_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::io::{self, Read};
use std::ops::Range;

/// A tree, or a single entry, that a client works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// A path of the user's; a relative one begins where the agent was started.
    pub path: Vec<u8>,
    /// Whether it is only read.
    pub side: Side,
}

/// What a client says first, once, on its first stream; it has no reply. The agent shuts itself off
/// from all that is not named here.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opening {
    /// At most [`ROOTS_MAX`].
    #[serde(deserialize_with = "at_most::<ROOTS_MAX, _, _>")]
    pub roots: Vec<Root>,
}

impl Opening {
    /// Reads it from the first frame of a stream; `None` at the stream's end.
    pub fn read(stream: &mut impl Read) -> io::Result<Option<Opening>> {
        let Some(frame) = Frame::read(stream)? else {
            return Ok(None);
        };
        frame.message().map(Some)
    }
}

/// How the entries of a directory are told.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Survey {
    /// Which attributes are told.
    pub keep: Keep,
    /// Metadata of regular files, too; without, only their names.
    pub files: bool,
    /// About how many entries at once.
    pub entries_max: u32,
}

/// What one side asks of the other. `dir`, `file` and `from` are numbers of open objects, `at` is
/// that of the object that is made, or that is meant.
#[derive(Debug, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "the fields have the names and meanings of the arguments in `driftless_tree`"
)]
pub enum Request {
    /// Look at what stands at one of the roots, counted from 0; a directory found gets the number
    /// `at`.
    Locate { root: u32, at: Handle },
    /// Enter a subdirectory and call it `at`; tell its entries, too, if asked for.
    Enter {
        dir: Handle,
        name: Name,
        at: Handle,
        survey: Option<Survey>,
    },
    /// Make a subdirectory and call it `at`.
    MakeDir { dir: Handle, name: Name, at: Handle },
    /// Call a directory `at` as well, for a listing of its own.
    Again { dir: Handle, at: Handle },
    /// Tell more entries; the first when all were told.
    List { dir: Handle, survey: Survey },
    /// Metadata of an object.
    Meta { at: Handle },
    /// Extended attributes of an object; those that are many or long only if asked for.
    Xattrs { at: Handle, keep: Keep, long: bool },
    /// Metadata of an entry.
    Look { dir: Handle, name: Name },
    /// Look at an entry as the host remembers it.
    Peek { dir: Handle, name: Name },
    /// Extended attributes of an entry; those that are many or long only if asked for.
    EntryXattrs {
        dir: Handle,
        name: Name,
        keep: Keep,
        long: bool,
    },
    /// Target of a symbolic link.
    ReadLink { dir: Handle, name: Name },
    /// Open a regular file for reading and call it `at`.
    Open { dir: Handle, name: Name, at: Handle },
    /// Make a regular file and call it `at`.
    Create {
        dir: Handle,
        name: Name,
        #[serde(deserialize_with = "bounds::mode")]
        mode: u32,
        at: Handle,
    },
    /// Open an unfinished file and call it `at`.
    Reopen { dir: Handle, name: Name, at: Handle },
    /// Read a range of a file.
    Read { file: Handle, offset: u64, len: u32 },
    /// Hash a range of a file, piece by piece.
    Digests {
        file: Handle,
        range: Range<u64>,
        piece: u64,
    },
    /// Copy a range from one file to another.
    CopyRange {
        from: Handle,
        file: Handle,
        range: Range<u64>,
    },
    /// Find the next data in a range.
    NextData { file: Handle, within: Range<u64> },
    /// Let go of the cache of a file.
    DropCached { file: Handle },
    /// Write the frame's data.
    Write { file: Handle, offset: u64 },
    /// Set the length of a file.
    SetLen { file: Handle, len: u64 },
    /// Reserve space.
    Allocate { file: Handle, range: Range<u64> },
    /// Set attributes of an open file, or of a directory itself.
    SetOwn {
        at: Handle,
        known: Known,
        attributes: Attributes,
    },
    /// Make a file durable.
    SyncFile { file: Handle },
    /// See `WriteFile::flush`.
    FlushFile { file: Handle },
    /// Read a note of progress.
    Progress { file: Handle },
    /// Keep a note of progress.
    SaveProgress { file: Handle, note: Option<Vec<u8>> },
    /// Make a symbolic link.
    Symlink {
        dir: Handle,
        name: Name,
        target: CString,
    },
    /// Make a fifo, socket or device node.
    Node {
        dir: Handle,
        name: Name,
        kind: Kind,
        rdev: u64,
    },
    /// Make a hard link.
    Link {
        dir: Handle,
        name: Name,
        from: Handle,
        from_name: Name,
        id: (u64, u64),
    },
    /// Set attributes of an entry.
    SetEntry {
        dir: Handle,
        name: Name,
        known: Known,
        attributes: Attributes,
    },
    /// Lend an ordinary user the right to change his directory.
    MakeWritable { dir: Handle },
    /// Call the private directory in a directory `at`, if there has to be one.
    Nest {
        dir: Handle,
        hidden: bool,
        at: Handle,
    },
    /// Move an entry of another directory to a directory.
    Take {
        dir: Handle,
        from: Handle,
        name: Name,
        to: Name,
    },
    /// Rename within a directory.
    Rename { dir: Handle, from: Name, to: Name },
    /// Rename within a directory to a name at which a directory stands, which goes.
    Displace {
        dir: Handle,
        from: Name,
        to: Name,
        below_max: u64,
    },
    /// Remove an entry that is not a directory.
    Remove { dir: Handle, name: Name },
    /// Remove an empty directory.
    RemoveDir { dir: Handle, name: Name },
    /// Remove an entry and all below it, but for what is spared.
    RemoveTree {
        dir: Handle,
        name: Name,
        spared: Option<WireSpared>,
    },
    /// Remove what an earlier run left.
    RemoveLeftover { dir: Handle, name: Name },
    /// Count what would be removed.
    CountTree {
        dir: Handle,
        name: Name,
        max: u64,
        spared: Option<WireSpared>,
        is_wary: bool,
    },
    /// Make the file system durable.
    SyncAll { dir: Handle },
    /// Notes that a new directory is closed to others until it is finished, or that it is.
    SetUnfinished { dir: Handle, is: bool },
    /// Lock a directory, or an entry of it, and call the lock `at`.
    Lock {
        dir: Handle,
        name: Option<Name>,
        reach: Reach,
        at: Handle,
    },
    /// Whether a lock still keeps others out.
    IsKept { at: Handle },
    /// Read the marks of a directory, and of those above it.
    Marks { dir: Handle, above: bool },
    /// Mark a replica's root.
    SetMark {
        dir: Handle,
        text: Vec<u8>,
        durable: bool,
    },
    /// What lies above a directory.
    Lineage { dir: Handle },
    /// What a directory is known by.
    Birthmark { dir: Handle },
    /// From now on the tree of this replica's root is changed only while its mark is that of the
    /// replica `identity` and names the run of `movers`.
    Hold {
        dir: Handle,
        identity: u128,
        movers: u128,
    },
    /// Make an entry; the frame's data is its content.
    Make { dir: Handle, new: Box<NewEntryHead> },
    /// Read a small file whole.
    Fetch { dir: Handle, name: Name, keep: Keep },
    /// Take further streams of this client, and greet on each with this number.
    Gather { secret: u128 },
    /// Let go of an object. Has no reply.
    Forget { at: Handle },
    /// The client is there. Has no reply.
    Alive,
    /// The run is to end: what takes long is broken off, as far as that leaves nothing half done.
    /// Has no reply.
    Cease,
}

impl Request {
    /// Whether it has a reply.
    pub fn is_answered(&self) -> bool {
        !matches!(
            self,
            Request::Forget { .. } | Request::Alive | Request::Cease
        )
    }

    /// What it takes of memory to make the reply, at most, in bytes.
    pub fn reply_memory(&self) -> u64 {
        let max = self.reply_max();
        match self {
            Request::Digests { piece, .. } => 2 * max.head + (*piece).min(PIECE_BYTES_MAX),
            // As entries, and as a message.
            Request::List { survey, .. }
            | Request::Enter {
                survey: Some(survey),
                ..
            } => 2 * survey.listing_bytes_max() as u64 + 2 * TOLD_BYTES * survey.entries(),
            _ => 2 * max.head + max.data,
        }
    }
}

/// What a reply may have at most, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyMax {
    /// Of its head.
    pub head: u64,
    /// Of its data, before they are compressed.
    pub data: u64,
}

impl ReplyMax {
    /// All together.
    pub fn bytes(&self) -> u64 {
        self.head + self.data
    }
}

/// What one told entry takes besides its name, target and attributes, in bytes.
const TOLD_BYTES: u64 = 256;

impl Survey {
    /// About how many bytes of names, targets and attributes a listing may have, as they take
    /// memory.
    pub fn listing_bytes_max(&self) -> usize {
        const ENTRY_BYTES: usize = 128;
        (self.entries_max as usize)
            .saturating_mul(ENTRY_BYTES)
            .clamp(LISTING_BYTES_MIN, LISTING_BYTES_MAX)
    }

    /// Entries that are told at most.
    fn entries(&self) -> u64 {
        u64::from(self.entries_max).min(ENTRIES_MAX as u64)
    }
}

/// Bytes that names, link targets and attributes of entries may add to a listing before it is cut,
/// at least and at most.
const LISTING_BYTES_MIN: usize = 4 << 10;

const LISTING_BYTES_MAX: usize = 4 << 20;

impl Request {
    /// What the reply may have at most; an agent sends no more, and a client takes no more.
    pub fn reply_max(&self) -> ReplyMax {
        use Request as R;
        /// Also of faults, of which [`FAULTS_MAX`] have room there.
        const SMALL: u64 = SMALL_BYTES;
        const TARGET: u64 = SMALL_BYTES + 4096;
        const XATTRS: u64 = SMALL_BYTES + (16 << 10);
        const PATHS: u64 = 64 << 10;
        const NOTE: u64 = SMALL_BYTES + (64 << 10);
        const MANY: u64 = 2 << 20;
        let head = match self {
            R::Read { len, .. } => {
                return ReplyMax {
                    head: SMALL,
                    data: u64::from(*len).min(DATA_BYTES_MAX as u64),
                };
            }
            R::Fetch { .. } => {
                return ReplyMax {
                    head: FETCHED_HEAD_BYTES_MAX as u64,
                    data: WHOLE_BYTES_MAX,
                };
            }
            R::List { survey, .. }
            | R::Enter {
                survey: Some(survey),
                ..
            } => 3 * survey.listing_bytes_max() as u64 + survey.entries() * TOLD_BYTES + 2 * SMALL,
            R::Digests { range, piece, .. } => {
                const DIGEST_BYTES: u64 = 32;
                SMALL
                    + DIGEST_BYTES
                        * (range.end.saturating_sub(range.start) / (*piece).max(1))
                            .saturating_add(1)
                            .min(DIGESTS_MAX + 1)
            }
            R::ReadLink { .. } => TARGET,
            R::Xattrs { long: false, .. } | R::EntryXattrs { long: false, .. } => XATTRS,
            R::Xattrs { .. } | R::EntryXattrs { .. } => HEAD_BYTES_MAX as u64,
            R::Make { .. } => FETCHED_HEAD_BYTES_MAX as u64,
            R::Locate { .. } | R::Lock { .. } => PATHS,
            R::Progress { .. } => NOTE,
            R::Lineage { .. } | R::Marks { .. } => MANY,
            R::RemoveTree { .. }
            | R::RemoveLeftover { .. }
            | R::Displace { .. }
            | R::CountTree { .. } => MANY,
            _ => SMALL,
        };
        ReplyMax { head, data: 0 }
    }
}
