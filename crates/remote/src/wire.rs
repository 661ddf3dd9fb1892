//! What goes over the line: requests and replies. Frames carry them (`frame.rs`).
//!
//! ```text
//! frame   = head length (u32, little endian) | data length (u32, little endian) | head | data
//! head    = number of the request (u64, little endian) | request or reply (postcard, https://postcard.jamesmunns.com/wire-format)
//! data    = content of a file, as it is; compressed (see `compress.rs`) where the highest bit of the number is set
//! ```
//!
//! Lengths are bounded before anything is allocated, names are checked to be names, and whatever does not decode ends the
//! connection: a peer is not trusted. Objects (directories, files, locks) are called by numbers that the client chooses, so that a
//! request about a directory can follow at once the request that makes it.

pub use crate::frame::{Announced, DATA_BYTES_MAX, Frame, HEAD_BYTES_MAX, bad};
pub use crate::identity::Identity;
pub use crate::limits::{Limits, May};
pub use crate::sparing::{SparingRules, WireRemoved};
pub use driftless_model::bounds::at_most;
use driftless_model::{Act, Entry, Fault, Keep, Kind, Level, Meta, Side, Stamp, Xattrs, bounds, check_name, errno};
use driftless_tree::{Ancestor, Attributes, Holder, Known, MarkText, Parcel, Reach, Rights, WHOLE_BYTES_MAX, Whole};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{CStr, CString};
use std::io::{self, Read};
use std::ops::Range;

/// Version of all that is defined here; two sides work together only if they have the same.
pub const PROTOCOL: u32 = 3;
/// Entries in one listing at most, whatever is asked for.
pub const ENTRIES_MAX: usize = 8192;
/// Faults of one entry that are told at most.
pub const FAULTS_MAX: usize = 1000;
/// Directories above one another at most.
const LINEAGE_MAX: usize = 64 << 10;
/// What the kernel returns as error numbers (`MAX_ERRNO` of linux/err.h).
const ERRNOS: Range<i32> = 1..4096;

/// Number of an object on the agent's side.
pub type Handle = u64;

/// The name of an entry: one component.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(pub CString);

impl From<&CStr> for Name {
    fn from(name: &CStr) -> Self {
        Name(name.into())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.to_bytes())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = <&[u8]>::deserialize(deserializer)?;
        check_name(bytes).map_err(D::Error::custom)?;
        CString::new(bytes).map(Name).map_err(D::Error::custom)
    }
}

/// Roots that a client may name.
pub const ROOTS_MAX: usize = 16;
/// Directories that a client can be held to.
pub const ONLY_MAX: usize = 64;

/// A tree, or a single entry, that a client works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// A path of the user's; a relative one begins where the agent was started.
    pub path: Vec<u8>,
    /// Whether it is only read.
    pub side: Side,
}

/// What a client says first, once, on its first line; it has no reply. The agent shuts itself off from all that is not named here.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opening {
    /// At most [`ROOTS_MAX`].
    #[serde(deserialize_with = "at_most::<ROOTS_MAX, _, _>")]
    pub roots: Vec<Root>,
}

impl Opening {
    /// Reads it from the first frame of a line; `None` at the line's end.
    pub fn read(line: &mut impl Read) -> io::Result<Option<Opening>> {
        let Some(frame) = Frame::read(line)? else { return Ok(None) };
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

/// The same of a list that may be missing.
fn maybe_at_most<'de, const MAX: usize, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<T>>, D::Error> {
    struct Bounded<T, const MAX: usize>(Vec<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            at_most::<MAX, T, D>(deserializer).map(Bounded)
        }
    }

    Ok(Option::<Bounded<T, MAX>>::deserialize(deserializer)?.map(|Bounded(elements)| elements))
}

/// What one side asks of the other. `dir`, `file` and `from` are numbers of open objects, `at` is that of the object that is made, or
/// that is meant.
#[derive(Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields have the names and meanings of the arguments in `driftless_tree`")]
pub enum Request {
    /// Look at what stands at one of the roots, counted from 0; a directory found gets the number `at`.
    Locate { root: u32, at: Handle },
    /// Enter a subdirectory and call it `at`; tell its entries, too, if asked for.
    Enter { dir: Handle, name: Name, at: Handle, survey: Option<Survey> },
    /// Make a subdirectory and call it `at`.
    MakeDir { dir: Handle, name: Name, at: Handle },
    /// Tell more entries; from the first if `restart`.
    List { dir: Handle, survey: Survey, restart: bool },
    /// Metadata of an object.
    Meta { at: Handle },
    /// Extended attributes of an object; those that are many or long only if asked for.
    Xattrs { at: Handle, keep: Keep, long: bool },
    /// Metadata of an entry.
    Look { dir: Handle, name: Name },
    /// The same as the host remembers it.
    Peek { dir: Handle, name: Name },
    /// Extended attributes of an entry; those that are many or long only if asked for.
    EntryXattrs { dir: Handle, name: Name, keep: Keep, long: bool },
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
    Digests { file: Handle, range: Range<u64>, piece: u64 },
    /// Copy a range from one file to another.
    CopyRange { from: Handle, file: Handle, range: Range<u64> },
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
    SetOwn { at: Handle, known: Known, attributes: Attributes },
    /// Make a file durable.
    SyncFile { file: Handle },
    /// See `WriteFile::flush`.
    FlushFile { file: Handle },
    /// Read a note of progress.
    Progress { file: Handle },
    /// Keep a note of progress.
    SaveProgress { file: Handle, note: Option<Vec<u8>> },
    /// Make a symbolic link.
    Symlink { dir: Handle, name: Name, target: CString },
    /// Make a fifo, socket or device node.
    Node { dir: Handle, name: Name, kind: Kind, rdev: u64 },
    /// Make a hard link.
    Link { dir: Handle, name: Name, from: Handle, from_name: Name, id: (u64, u64) },
    /// Set attributes of an entry.
    SetEntry { dir: Handle, name: Name, known: Known, attributes: Attributes },
    /// Lend an ordinary user the right to change his directory.
    MakeWritable { dir: Handle },
    /// Call the private directory in a directory `at`, if there has to be one.
    Nest { dir: Handle, hidden: bool, at: Handle },
    /// Move an entry of another directory to a directory.
    Take { dir: Handle, from: Handle, name: Name, to: Name },
    /// Rename within a directory.
    Rename { dir: Handle, from: Name, to: Name },
    /// Rename within a directory to a name at which a directory stands, which goes.
    Displace { dir: Handle, from: Name, to: Name, below_max: u64 },
    /// Remove an entry that is not a directory.
    Remove { dir: Handle, name: Name },
    /// Remove an empty directory.
    RemoveDir { dir: Handle, name: Name },
    /// Remove an entry and all below it, but for what is spared.
    RemoveTree { dir: Handle, name: Name, spared: Option<SparingRules> },
    /// Remove what an earlier run left.
    RemoveLeftover { dir: Handle, name: Name },
    /// Count what would be removed.
    CountTree { dir: Handle, name: Name, max: u64, spared: Option<SparingRules>, is_wary: bool },
    /// Make the file system durable.
    SyncAll { dir: Handle },
    /// Notes that a new directory is closed to others until it is finished, or that it is.
    SetUnfinished { dir: Handle, is: bool },
    /// Lock a directory, or an entry of it, and call the lock `at`.
    Lock { dir: Handle, name: Option<Name>, reach: Reach, at: Handle },
    /// Whether a lock still keeps others out.
    IsKept { at: Handle },
    /// Read the marks of a directory, and of those above it.
    Marks { dir: Handle, above: bool },
    /// Mark a replica's root.
    SetMark { dir: Handle, text: Vec<u8>, durable: bool },
    /// What lies above a directory.
    Lineage { dir: Handle },
    /// From now on the tree of this replica's root is changed only while its mark is that of the replica `identity` and names the run of
    /// `movers`.
    Hold { dir: Handle, identity: u128, movers: u128 },
    /// Make an entry; the frame's data is its content.
    Make { dir: Handle, parcel: Box<ParcelHead> },
    /// Read a small file whole.
    Fetch { dir: Handle, name: Name, keep: Keep },
    /// Take further lines of this client, and greet on each with this number.
    Gather { secret: u128 },
    /// Let go of an object. Has no reply.
    Forget { at: Handle },
    /// The client is there. Has no reply.
    Alive,
    /// The run is to end: what takes long is broken off, as far as that leaves nothing half done. Has no reply.
    Cease,
}

impl Request {
    /// Whether it has a reply.
    pub fn is_answered(&self) -> bool {
        !matches!(self, Request::Forget { .. } | Request::Alive | Request::Cease)
    }

    /// What it takes of memory to make the reply, at most, in bytes.
    pub fn reply_memory(&self) -> u64 {
        let max = self.reply_max();
        match self {
            Request::Digests { piece, .. } => 2 * max.head + (*piece).min(PIECE_BYTES_MAX),
            // As entries, and as a message.
            Request::List { survey, .. } | Request::Enter { survey: Some(survey), .. } => {
                2 * survey.listing_bytes_max() as u64 + 2 * TOLD_BYTES * survey.entries()
            }
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

/// Bytes of the head of an answer to [`Request::Fetch`], at most: a file with more attributes is read the long way.
pub const FETCHED_HEAD_BYTES_MAX: usize = 16 << 10;
/// What the attributes of an entry may take of memory that are asked for by themselves, in bytes, unless all of them are.
pub const SHORT_XATTRS_BYTES_MAX: u64 = 16 << 10;
/// Extents of a file that is moved whole, at most: no file system has smaller blocks than 512 bytes, and a hole lies between two extents.
pub const EXTENTS_MAX: usize = (WHOLE_BYTES_MAX / 1024) as usize + 1;
/// What one told entry takes besides its name, target and attributes, in bytes.
const TOLD_BYTES: u64 = 256;

impl Survey {
    /// About how many bytes of names, targets and attributes a listing may have, as they take memory.
    pub fn listing_bytes_max(&self) -> usize {
        const ENTRY_BYTES: usize = 128;
        (self.entries_max as usize).saturating_mul(ENTRY_BYTES).clamp(LISTING_BYTES_MIN, LISTING_BYTES_MAX)
    }

    /// Entries that are told at most.
    fn entries(&self) -> u64 {
        u64::from(self.entries_max).min(ENTRIES_MAX as u64)
    }
}

/// Bytes that names, link targets and attributes of entries may add to a listing before it is cut, at least and at most.
const LISTING_BYTES_MIN: usize = 4 << 10;
const LISTING_BYTES_MAX: usize = 4 << 20;

/// What attributes take of memory, in bytes. A peer can tell one in three bytes.
pub fn xattrs_memory(xattrs: &Xattrs) -> u64 {
    xattrs.iter().map(|(name, value)| Xattrs::memory_of_one(name, value)).sum()
}

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
            R::Read { len, .. } => return ReplyMax { head: SMALL, data: u64::from(*len).min(DATA_BYTES_MAX as u64) },
            R::Fetch { .. } => return ReplyMax { head: FETCHED_HEAD_BYTES_MAX as u64, data: WHOLE_BYTES_MAX },
            R::List { survey, .. } | R::Enter { survey: Some(survey), .. } => {
                3 * survey.listing_bytes_max() as u64 + survey.entries() * TOLD_BYTES + 2 * SMALL
            }
            R::Digests { range, piece, .. } => {
                const DIGEST_BYTES: u64 = 32;
                SMALL + DIGEST_BYTES * (range.end.saturating_sub(range.start) / (*piece).max(1)).saturating_add(1).min(DIGESTS_MAX + 1)
            }
            R::ReadLink { .. } => TARGET,
            R::Xattrs { long: false, .. } | R::EntryXattrs { long: false, .. } => XATTRS,
            R::Xattrs { .. } | R::EntryXattrs { .. } => HEAD_BYTES_MAX as u64,
            R::Make { .. } => FETCHED_HEAD_BYTES_MAX as u64,
            R::Locate { .. } | R::Lock { .. } => PATHS,
            R::Progress { .. } => NOTE,
            R::Lineage { .. } | R::Marks { .. } => MANY,
            R::RemoveTree { .. } | R::RemoveLeftover { .. } | R::Displace { .. } | R::CountTree { .. } => MANY,
            _ => SMALL,
        };
        ReplyMax { head, data: 0 }
    }
}

/// Bytes of the head of a reply that says little.
pub const SMALL_BYTES: u64 = 4 << 10;
/// Hashes that one reply holds at most.
pub const DIGESTS_MAX: u64 = 64 * 1024;
/// Bytes that one hash is made of at most.
pub const PIECE_BYTES_MAX: u64 = 4 << 20;

/// A parcel but for the bytes of its content.
#[derive(Debug, Serialize, Deserialize)]
pub struct ParcelHead {
    name: Name,
    entry: Entry,
    #[serde(deserialize_with = "maybe_at_most::<EXTENTS_MAX, _, _>")]
    extents: Option<Vec<Range<u64>>>,
    target: Option<CString>,
    keep: Keep,
    private: bool,
    room: u64,
    sync: bool,
    verify: Option<Level>,
}

impl ParcelHead {
    /// Takes a parcel apart: what goes into the head, and the data.
    pub fn of(parcel: Parcel) -> (Self, Vec<u8>) {
        let Parcel { name, entry, content, target, keep, private, room, sync, verify } = parcel;
        let (extents, data) = content.map_or((None, Vec::new()), |whole| (Some(whole.extents), whole.data));
        (ParcelHead { name: Name(name), entry, extents, target, keep, private, room, sync, verify }, data)
    }

    /// What it makes: the name and the kind.
    pub fn place(&self) -> (&CStr, Kind) {
        (&self.name.0, self.entry.meta.kind)
    }

    /// Puts it together again. `None` if the data does not fit the head.
    pub fn with(self, data: Vec<u8>) -> Option<Parcel> {
        let ParcelHead { name, entry, extents, target, keep, private, room, sync, verify } = self;
        let size = data.len() as u64;
        let kind = entry.meta.kind;
        let has_content = match &extents {
            Some(extents) => kind == Kind::File && entry.meta.size == size && within(extents, size),
            None => size == 0 && kind != Kind::File,
        };
        let fits = has_content && (kind == Kind::Symlink) == target.is_some();
        let content = extents.map(|extents| Whole { meta: entry.meta, xattrs: entry.xattrs.clone(), extents, data });
        fits.then_some(Parcel { name: name.0, entry, content, target, keep, private, room, sync, verify })
    }
}

/// Puts a whole file together from a reply and its data. `None` if they do not fit each other.
pub fn whole(entry: Entry, extents: Vec<Range<u64>>, data: Vec<u8>) -> Option<Whole> {
    let Entry { meta, xattrs } = entry;
    let is_small = meta.size <= WHOLE_BYTES_MAX && extents.len() <= EXTENTS_MAX;
    let fits = is_small && meta.kind == Kind::File && meta.size == data.len() as u64 && within(&extents, meta.size);
    fits.then_some(Whole { meta, xattrs, extents, data })
}

/// Whether extents are in order, not empty, and end within `size`.
fn within(extents: &[Range<u64>], size: u64) -> bool {
    let mut at = 0;
    extents.iter().all(|extent| {
        let fits = extent.start >= at && extent.start < extent.end && extent.end <= size;
        at = extent.end;
        fits
    })
}

/// What came of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Locked {
    /// It is held.
    Held,
    /// Another run has it: who, as far as that can be told.
    Taken(Option<Holder>),
    /// A run that is over has left the file of this name.
    Left(Vec<u8>),
    /// There is none to be had, and why.
    Missing(#[serde(deserialize_with = "kernels")] i32),
}

/// A fault of the other side, or the loss of the line to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WireFault {
    act: Act,
    #[serde(deserialize_with = "kernels")]
    errno: i32,
}

/// Reads an error number. What is none of the kernel's would be taken for one, or for the loss of a line, and is neither (errno(3)).
fn kernels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let errno = i32::deserialize(deserializer)?;
    Ok(if ERRNOS.contains(&errno) { errno } else { errno::EPROTO })
}

impl From<Fault> for WireFault {
    fn from(fault: Fault) -> Self {
        WireFault { act: fault.act, errno: fault.errno }
    }
}

impl WireFault {
    /// What was tried, and the error number.
    pub fn new(act: Act, errno: i32) -> Self {
        WireFault { act, errno }
    }

    /// The fault on the side of the tree that it happened on.
    pub fn on(&self, side: Side) -> Fault {
        Fault { side, act: self.act, errno: self.errno }
    }
}

/// What stands at a path.
#[derive(Debug, Serialize, Deserialize)]
pub enum Located {
    /// A directory.
    Dir(Own),
    /// Something else: its directory, its name and its metadata.
    Entry(Own, Name, Meta),
    /// Nothing: the directory that would hold it, and its name.
    Missing(Own, Name),
    /// It cannot be used: the path, what was tried, and why it failed.
    Refused(Vec<u8>, WireFault),
}

/// What is known of a directory that was opened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Own {
    /// Its metadata.
    pub meta: Meta,
    /// Whether something is mounted on it, if that can be told.
    pub is_mount_root: Option<bool>,
    /// Its extended attributes, if they were asked for and could be read.
    pub xattrs: Option<Xattrs>,
    /// A mark is among them.
    pub is_marked: bool,
    /// It is closed to others until it is finished.
    pub is_unfinished: bool,
}

/// An entry as a listing tells it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Told {
    /// Its name.
    pub name: Name,
    /// Its kind, if known.
    pub kind: Option<Kind>,
    /// Its metadata and extended attributes, where they were asked for and could be read.
    pub entry: Option<Entry>,
    /// Target of a symbolic link.
    pub target: Option<CString>,
}

/// Some entries of a directory.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Listing {
    /// The entries.
    #[serde(deserialize_with = "at_most::<ENTRIES_MAX, _, _>")]
    pub told: Vec<Told>,
    /// There may be more.
    pub more: bool,
    /// Listing failed here.
    pub fault: Option<WireFault>,
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It is done; what was read is the frame's data.
    Done,
    /// It failed.
    Fault(WireFault),
    /// It is done, but for these.
    Faults(#[serde(deserialize_with = "at_most::<FAULTS_MAX, _, _>")] Vec<WireFault>),
    /// Metadata.
    Meta(Meta),
    /// Extended attributes.
    Xattrs(Xattrs),
    /// BLAKE3 hashes.
    Digests(Vec<[u8; 32]>),
    /// A range, if there is one.
    Range(Option<Range<u64>>),
    /// Bytes that were copied.
    Count(u64),
    /// What was removed, or would be.
    Removed(WireRemoved),
    /// What stands at a path.
    Located(Located),
    /// A directory was entered.
    Entered(Own, Option<Listing>),
    /// Entries.
    Listing(Listing),
    /// A file, whole, with the frame's data; `None` if it cannot be had whole.
    Whole(Option<(Entry, Vec<Range<u64>>)>),
    /// The disk did not keep what it was given.
    Lost(WireFault),
    /// What was written is not what was read back.
    Mismatch,
    /// What came of a lock.
    Lock(Locked),
    /// Whether a lock still keeps others out.
    Kept(bool),
    /// What time it is by the clock of the file system.
    Time(Stamp),
    /// Devices and inodes.
    Lineage(#[serde(deserialize_with = "at_most::<LINEAGE_MAX, _, _>")] Vec<Ancestor>),
    /// Marks of replicas.
    Marks(#[serde(deserialize_with = "at_most::<LINEAGE_MAX, _, _>")] Vec<MarkText>),
    /// A note of progress, or the target of a link.
    Note(Option<Vec<u8>>),
    /// Where further lines are handed over, and what has to be said there.
    Gathers {
        /// What `--join` is given.
        place: Vec<u8>,
        /// What is sent first on each, ahead of all frames: 16 bytes, little endian.
        secret: u128,
    },
    /// The agent is there. Answers nothing.
    Alive,
}

impl Reply {
    /// What the lists in it take of memory, where that may be much more than of the message, in bytes.
    pub fn lists_memory(&self) -> u64 {
        match self {
            Reply::Whole(Some((entry, extents))) => xattrs_memory(&entry.xattrs) + size_of_val(&extents[..]) as u64,
            Reply::Entered(own, listing) => {
                own.xattrs.as_ref().map_or(0, xattrs_memory) + listing.as_ref().map_or(0, Listing::strings_memory)
            }
            Reply::Listing(listing) => listing.strings_memory(),
            Reply::Xattrs(xattrs) => xattrs_memory(xattrs),
            _ => 0,
        }
    }
}

impl Listing {
    fn strings_memory(&self) -> u64 {
        self.told.iter().map(Told::strings_memory).sum()
    }
}

impl Told {
    /// What its name, target and attributes take of memory, in bytes.
    pub fn strings_memory(&self) -> u64 {
        let xattrs = self.entry.as_ref().map_or(0, |entry| xattrs_memory(&entry.xattrs));
        let target = self.target.as_ref().map_or(0, |target| target.count_bytes());
        (self.name.0.count_bytes() + target) as u64 + xattrs
    }
}

/// What each side says first, behind the greeting.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// What the user there may do.
    pub rights: Rights,
    /// Which machine it is.
    pub identity: Identity,
    /// On a further line, the number that its client has chosen for such; 0 on a first one.
    pub joined: u128,
    /// What its clients are limited to.
    pub limits: Limits,
    /// Content is compressed: it was started as the client wanted, which a key with a command of its own may prevent.
    pub compresses: bool,
}

impl Hello {
    /// What this process says on its first line, where it has no limits and does not compress.
    pub fn own() -> Hello {
        Hello { rights: Rights::own(), identity: Identity::own(), joined: 0, limits: Limits::default(), compresses: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::NUMBER_BYTES;
    use driftless_model::{LINE_LOST, Stamp, Unkept};

    fn meta(kind: Kind, size: u64) -> Meta {
        let stamp = Stamp::default();
        let (mtime, atime, ctime) = (stamp, stamp, stamp);
        Meta {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            size,
            blocks: 0,
            mtime,
            atime,
            ctime,
            nlink: 1,
            dev: 1,
            ino: 1,
            rdev: 0,
            unkept: Unkept::NONE,
        }
    }

    #[test]
    fn a_parcel_holds_what_its_kind_has_and_no_more() {
        type Extents = Option<Vec<Range<u64>>>;
        let (all, to): (Extents, Option<CString>) = (Some(std::iter::once(0..3).collect()), Some(c"to".into()));
        let beyond: Extents = Some(std::iter::once(0..4).collect());
        let cases: [(Kind, Extents, Option<CString>, usize, bool); 10] = [
            (Kind::File, all.clone(), None, 3, true),
            (Kind::File, all.clone(), None, 2, false),
            (Kind::File, beyond, None, 3, false),
            (Kind::File, all.clone(), to.clone(), 3, false),
            (Kind::File, None, None, 0, false),
            (Kind::Symlink, None, to.clone(), 0, true),
            (Kind::Symlink, None, None, 0, false),
            (Kind::Symlink, all, to.clone(), 3, false),
            (Kind::Fifo, None, None, 0, true),
            (Kind::Fifo, None, to, 0, false),
        ];
        for (kind, extents, target, bytes, fits) in cases {
            let context = format!("{kind:?} {extents:?} {target:?} {bytes}");
            let (entry, keep) = (Entry { meta: meta(kind, 3), xattrs: Xattrs::default() }, Keep::default());
            let name = Name(c"name".into());
            let head = ParcelHead { name, entry, extents, target, keep, private: false, room: 0, sync: false, verify: None };
            assert_eq!(head.with(vec![1; bytes]).is_some(), fits, "{context}");
        }
    }

    #[test]
    fn an_act_that_is_none_of_ours_is_no_message() {
        let mut frame = Frame::new(1, &Reply::Fault(WireFault::new(Act::Open, 5)), Vec::new());
        assert!(frame.message::<Reply>().is_ok());
        // Behind the number of the request and that of the reply stands the act.
        assert_eq!(frame.head[NUMBER_BYTES + 1], Act::Open as u8);
        frame.head[NUMBER_BYTES + 1] = Act::ALL.len() as u8;
        assert!(frame.message::<Reply>().is_err());
    }

    #[test]
    fn no_peer_can_say_that_the_line_is_lost() {
        for errno in [LINE_LOST, 0, -1, i32::MIN, i32::MAX] {
            let said = Frame::new(1, &Reply::Fault(WireFault::new(Act::ReachAgent, errno)), Vec::new());
            let Ok(Reply::Fault(heard)) = said.message() else { panic!("{errno}") };
            let heard = heard.on(Side::Source);
            assert!(heard.errno == errno::EPROTO && !heard.is_cut_off(), "{errno}");
        }
        assert!(WireFault::new(Act::ReachAgent, LINE_LOST).on(Side::Source).is_cut_off(), "this side can");
    }

    #[test]
    fn lists_that_would_take_much_memory_are_not_read() {
        let read = |count: usize| Frame::new(1, &Reply::Faults(vec![WireFault::new(Act::Open, 1); count]), Vec::new()).message::<Reply>();
        assert!(read(FAULTS_MAX).is_ok());
        assert!(read(FAULTS_MAX + 1).is_err());
    }
}
