//! The objects that a client holds on the agent's side, by the numbers that it gave them.
//!
//! A number is taken as soon as the request that will make its object has been read. A request
//! about an object that is not made yet is parked with it, and goes on when it is: so a client need
//! not wait for a directory before it fills it, and no thread ever waits for another's work.

use crate::budget::{Room, Taken};
use crate::wire::{DATA_BYTES_MAX, Frame, Handle, Request, WireFault};
use crossbeam_channel::Sender;
use driftless_lock::Mutex;
use driftless_model::{Act, errno};
use driftless_tree::{DirMutRef, DirRef, Done, Hold, NameStream, Names, WriteFile};
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Objects at most; each takes some hundred bytes.
const OBJECTS_MAX: usize = 128 << 10;
/// Bytes of names, in all listings, that were read and not told yet, at most.
const UNTOLD_BYTES_MAX: u64 = 40 << 20;

/// What a request takes of memory besides its frame.
pub const CALL_BYTES: u64 = 512;

/// A request that was read and not carried out yet.
pub struct Call {
    /// Its number.
    pub number: u64,
    /// What is asked.
    pub request: Request,
    /// The data that came with it.
    pub data: Vec<u8>,
    /// They are compressed.
    pub compressed: bool,
    /// The stream on which it came, and on which it is answered. What waits here must not keep a
    /// stream that has ended.
    pub stream: Weak<Sender<Frame>>,
    /// What it takes of memory, as long as it is there.
    pub room: Taken,
}

impl Call {
    /// What its data take of memory besides when they are opened.
    pub fn opened_bytes(&self) -> u64 {
        let announced = if self.compressed {
            crate::wire::compress::announced(&self.data)
        } else {
            0
        };
        announced.min(DATA_BYTES_MAX as u64)
    }

    /// Whether its client gets a reply.
    pub fn is_answered(&self) -> bool {
        self.request.is_answered()
    }

    /// Takes a frame apart, for which room was taken.
    pub fn of((frame, room): (Frame, Taken), stream: &Arc<Sender<Frame>>) -> std::io::Result<Call> {
        let (number, request, compressed) =
            (frame.number(), frame.message()?, frame.is_compressed());
        Ok(Call {
            number,
            request,
            data: frame.data,
            compressed,
            stream: Arc::downgrade(stream),
            room,
        })
    }
}

/// A listing in progress.
#[derive(Default)]
pub struct Cursor {
    /// Where further names come from.
    pub stream: Option<Box<dyn NameStream>>,
    /// There are names that were not told, or it is not known whether there are any.
    pub goes_on: bool,
    /// Names that were read, and how many of them were told.
    pub names: (Names, usize),
    /// What those that were not told take of memory.
    pub room: Option<Room>,
}

/// An open file: one that is only read, or one that is being made.
pub enum OpenFile {
    /// It is read.
    Read(Box<dyn driftless_tree::ReadFile>),
    /// It is written. Whoever copies within this host holds the lock: the kernel lets one thread at
    /// a time write to a file, and the others would burn a core while they wait.
    Write(Box<dyn WriteFile>, Mutex<()>),
}

/// An open directory: one of a source, which is only read, or one of a replica.
#[derive(Clone)]
pub enum OpenDir {
    /// It is read.
    Read(DirRef),
    /// It may be changed.
    Write(DirMutRef),
}

impl OpenDir {
    /// The directory, to be read.
    pub fn reader(&self) -> DirRef {
        match self {
            OpenDir::Read(dir) => dir.clone(),
            OpenDir::Write(dir) => dir.clone(),
        }
    }

    /// The directory, to be changed.
    ///
    /// # Errors
    /// It is a source's. `act` says what was to be done.
    pub fn writer(&self, act: Act) -> Result<DirMutRef, WireFault> {
        match self {
            OpenDir::Read(_) => Err(WireFault::new(act, errno::EACCES)),
            OpenDir::Write(dir) => Ok(dir.clone()),
        }
    }

    /// Opens a subdirectory for what this directory is open for.
    ///
    /// # Errors
    /// As for [`Dir::enter`](driftless_tree::Dir::enter).
    pub fn enter(&self, name: &CStr) -> Done<OpenDir> {
        Ok(match self {
            OpenDir::Read(dir) => OpenDir::Read(dir.enter(name)?),
            OpenDir::Write(dir) => OpenDir::Write(dir.enter_mut(name)?),
        })
    }
}

/// Something that a client holds.
#[derive(Clone)]
pub enum Object {
    /// A directory, and how far its listing is.
    Dir(OpenDir, Arc<Mutex<Cursor>>),
    /// A file.
    File(Arc<OpenFile>),
    /// A lock.
    Lock(Arc<Hold>),
}

impl Object {
    /// A directory whose listing has not begun.
    pub fn dir(dir: OpenDir) -> Object {
        Object::Dir(dir, Arc::default())
    }
}

enum Slot {
    /// It will be made; these wait for it. The request that makes it may be on another stream, and
    /// come later.
    Coming {
        announced: bool,
        waiting: Vec<Call>,
    },
    Here(Object),
    /// It could not be made.
    Failed(WireFault),
}

/// All objects of a client.
#[derive(Default)]
pub struct Table {
    /// Streams on which requests come.
    pub streams: AtomicUsize,
    slots: Mutex<HashMap<Handle, Slot>>,
    /// Requests that wait for an object and have a reply to come.
    pub parked: AtomicUsize,
    untold: Arc<AtomicU64>,
}

impl Table {
    /// Room for names that a listing has read and not told; none if there is too little.
    pub fn untold(&self, bytes: u64) -> Option<Room> {
        Room::take(&self.untold, bytes, UNTOLD_BYTES_MAX)
    }

    /// Takes the number of the object that a request will make. `false` if it cannot be had.
    pub fn announce(&self, call: &Call) -> bool {
        let Some(at) = makes(&call.request) else {
            return true;
        };
        let mut slots = self.slots.lock();
        if slots.len() >= OBJECTS_MAX {
            return false;
        }
        match slots.entry(at).or_insert(Slot::Coming {
            announced: false,
            waiting: Vec::new(),
        }) {
            Slot::Coming { announced, .. } => !std::mem::replace(announced, true),
            _ => false,
        }
    }

    /// Hands a request back if all that it needs is here (or has failed); else keeps it until then.
    pub fn admit(&self, call: Call) -> Option<Call> {
        let mut slots = self.slots.lock();
        for at in needs(&call.request) {
            if self.streams.load(Relaxed) > 1
                && is_in_directory(&call.request)
                && slots.len() < OBJECTS_MAX
            {
                slots.entry(at).or_insert(Slot::Coming {
                    announced: false,
                    waiting: Vec::new(),
                });
            }
            if let Some(Slot::Coming { waiting, .. }) = slots.get_mut(&at) {
                self.parked
                    .fetch_add(usize::from(call.is_answered()), Relaxed);
                waiting.push(call);
                return None;
            }
        }
        Some(call)
    }

    /// The object is made, or cannot be; returns the requests that waited for it.
    pub fn settle(&self, at: Handle, object: Result<Object, WireFault>) -> Vec<Call> {
        let slot = object.map_or_else(Slot::Failed, Slot::Here);
        match self.slots.lock().insert(at, slot) {
            Some(Slot::Coming { waiting, .. }) => {
                self.parked.fetch_sub(
                    waiting.iter().filter(|call| call.is_answered()).count(),
                    Relaxed,
                );
                waiting
            }
            _ => Vec::new(),
        }
    }

    /// The object with a number.
    pub fn get(&self, at: Handle) -> Result<Object, WireFault> {
        match self.slots.lock().get(&at) {
            Some(Slot::Here(object)) => Ok(object.clone()),
            Some(Slot::Failed(fault)) => Err(fault.clone()),
            _ => Err(WireFault::new(Act::Obey, errno::EBADF)),
        }
    }

    /// Lets go of all objects, locks among them.
    pub fn forget_all(&self) {
        let gone = std::mem::take(&mut *self.slots.lock());
        drop(gone);
    }

    /// Lets go of an object.
    pub fn forget(&self, at: Handle) {
        let gone = self.slots.lock().remove(&at);
        drop(gone);
    }
}

/// The number of the object that a request makes.
pub fn makes(request: &Request) -> Option<Handle> {
    match request {
        Request::Locate { at, .. }
        | Request::Enter { at, .. }
        | Request::Again { at, .. }
        | Request::MakeDir { at, .. }
        | Request::Nest { at, .. }
        | Request::Open { at, .. }
        | Request::Create { at, .. }
        | Request::Reopen { at, .. }
        | Request::Lock { at, .. } => Some(*at),
        _ => None,
    }
}

/// Whether a request is about an entry of a directory: only these may come before the directory
/// itself does, since a client uses files and locks when it has been told that it has them.
fn is_in_directory(request: &Request) -> bool {
    matches!(
        request,
        Request::Make { .. }
            | Request::MakeDir { .. }
            | Request::Create { .. }
            | Request::Enter { .. }
            | Request::Fetch { .. }
    )
}

/// The numbers of the objects that a request is about.
fn needs(request: &Request) -> impl Iterator<Item = Handle> + use<> {
    use Request as R;
    let (first, second) = match request {
        R::Locate { .. } | R::Gather { .. } | R::Alive | R::Cease => (None, None),
        R::CopyRange { from, file, .. } => (Some(*from), Some(*file)),
        R::Link { dir, from, .. } | R::Take { dir, from, .. } => (Some(*dir), Some(*from)),
        R::Nest { dir, .. } => (Some(*dir), None),
        R::Again { dir, .. } => (Some(*dir), None),
        R::Enter { dir, .. }
        | R::MakeDir { dir, .. }
        | R::List { dir, .. }
        | R::Look { dir, .. }
        | R::Peek { dir, .. } => (Some(*dir), None),
        R::EntryXattrs { dir, .. }
        | R::ReadLink { dir, .. }
        | R::Open { dir, .. }
        | R::Create { dir, .. } => (Some(*dir), None),
        R::Reopen { dir, .. }
        | R::Symlink { dir, .. }
        | R::Node { dir, .. }
        | R::SetEntry { dir, .. } => (Some(*dir), None),
        R::SetUnfinished { dir, .. } => (Some(*dir), None),
        R::MakeWritable { dir }
        | R::SyncAll { dir }
        | R::Lineage { dir }
        | R::Birthmark { dir }
        | R::Hold { dir, .. }
        | R::Lock { dir, .. } => (Some(*dir), None),
        R::Rename { dir, .. } | R::Displace { dir, .. } | R::RemoveLeftover { dir, .. } => {
            (Some(*dir), None)
        }
        R::Remove { dir, .. } | R::RemoveDir { dir, .. } | R::RemoveTree { dir, .. } => {
            (Some(*dir), None)
        }
        R::CountTree { dir, .. }
        | R::Marks { dir, .. }
        | R::SetMark { dir, .. }
        | R::Make { dir, .. }
        | R::Fetch { dir, .. } => (Some(*dir), None),
        R::Digests { file, .. } => (Some(*file), None),
        R::Read { file, .. }
        | R::NextData { file, .. }
        | R::DropCached { file }
        | R::Write { file, .. } => (Some(*file), None),
        R::SetLen { file, .. } | R::Allocate { file, .. } => (Some(*file), None),
        R::SyncFile { file } | R::FlushFile { file } => (Some(*file), None),
        R::Progress { file } | R::SaveProgress { file, .. } => (Some(*file), None),
        R::Meta { at }
        | R::Xattrs { at, .. }
        | R::SetOwn { at, .. }
        | R::IsKept { at }
        | R::Forget { at } => (Some(*at), None),
    };
    [first, second].into_iter().flatten()
}
