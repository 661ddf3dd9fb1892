//! A group that watches the whole file system of a source, and what its events mean below the
//! source's root.
//!
//! Events name directories by handles. A handle is opened when its event is read, and its path is
//! the one that the directory has then: a rename that came after the event has an event of its own,
//! which follows. So the path of an event may be newer than the renames that were told before it,
//! and whoever follows renames has to mind that. What happened in a directory that is gone is not
//! told: the event of its removal stands for it.

mod names;

use super::event::{Event, Handle, Place, parse};
use super::sys;
use crate::detector::{Deaf, Detector, Heard, Seen, Waker, is_ready};
use crate::snapshot::btrfs::ROOT_INODE;
use driftless_model::{Change, Hint, RelPath, Scope, check_name};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fstat, fstatvfs, open, openat, readlink, statat,
};
use rustix::io::{Errno, read};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// What is asked of the kernel: names and both ends of renames, without descriptors (Linux 5.17).
const GROUP: u32 = libc::FAN_CLASS_NOTIF
    | libc::FAN_CLOEXEC
    | libc::FAN_NONBLOCK
    | libc::FAN_REPORT_FID
    | libc::FAN_REPORT_DIR_FID
    | libc::FAN_REPORT_NAME
    | libc::FAN_REPORT_TARGET_FID;

/// Everything that may make an entry differ. What is written through a mapping makes no event
/// (fanotify(7), "Limitations and caveats").
const EVENTS: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_RENAME
    | libc::FAN_MODIFY
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_ATTRIB
    | libc::FAN_ONDIR;

/// Bytes that are read at once: some thousand events.
const READ_BYTES: usize = 1 << 18;

/// No event is longer: three directories, each with a handle of 128 bytes and a name of 255.
const EVENT_BYTES_MAX: usize = 4096;

/// What a path of a deleted directory ends with (proc(5), `/proc/pid/fd`).
const DELETED: &[u8] = b" (deleted)";

/// Why a source cannot be watched.
#[derive(Debug, Error)]
pub enum Unwatched {
    /// The kernel refuses.
    #[error("fanotify: {0}")]
    Refused(&'static str),
    /// Something failed that should not.
    #[error("fanotify: cannot {what}: {cause}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// The error.
        cause: Errno,
    },
    /// The kernel's words are not understood.
    #[error(transparent)]
    Unknown(#[from] super::event::Unknown),
}

/// The directory of an entry that came or went.
fn of_parent(path: &RelPath) -> Option<Seen> {
    let dir = path.above().next()?;
    Some(Seen {
        is_dir: true,
        ..Seen::closed(Change::entry(dir))
    })
}

/// A watched source.
#[derive(Debug)]
pub struct Watch {
    group: OwnedFd,
    root: OwnedFd,
    waker: Arc<Waker>,
    buffer: Vec<u8>,
    /// Who has written what since it was asked last, if it is asked.
    writers: Option<Vec<Writer>>,
}

/// A process that has closed a file which it had open for writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// The file.
    pub path: RelPath,
    /// The number of the process, which may be gone by now.
    pub process: i32,
}

impl Watch {
    /// Begins to watch the file system of the directory `root`. From then on nothing is missed that
    /// happens on it, but for what [`Heard::missed`] says. `unlimited`: the kernel's queue
    /// grows as it must, and not only to `/proc/sys/fs/fanotify/max_queued_events`.
    ///
    /// # Errors
    /// The kernel is too old, the process may not, or the file system has no handles.
    pub fn begin(root: &Path, unlimited: bool) -> Result<Watch, Unwatched> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            open(root, flags, Mode::empty()).map_err(|cause| failed("open the source", cause))?;
        let more = if unlimited {
            libc::FAN_UNLIMITED_QUEUE
        } else {
            0
        };
        let group = sys::init(GROUP | more).map_err(no_group)?;
        sys::mark_file_system(group.as_fd(), EVENTS, root.as_fd()).map_err(no_mark)?;
        let waker = Waker::new().map_err(|cause| failed("make an eventfd", cause))?;
        Ok(Watch {
            group,
            root,
            waker,
            buffer: vec![0; READ_BYTES],
            writers: None,
        })
    }

    /// From here on it is remembered who has written what.
    pub fn tell_writers(&mut self) {
        self.writers.get_or_insert_default();
    }

    /// Who has written what, as far as was heard since the last call.
    pub fn take_writers(&mut self) -> Vec<Writer> {
        self.writers
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Waits for events, `wait` at most, and says what they mean. When nothing was heard, all
    /// that happened before the call has been told.
    ///
    /// # Errors
    /// The queue cannot be read, or the kernel's words are not understood.
    pub fn hear(&mut self, wait: Duration) -> Result<Heard, Unwatched> {
        let mut heard = Heard::default();
        let length = match read(&self.group, &mut self.buffer[..]) {
            Ok(length) => length,
            Err(Errno::AGAIN) if self.is_ready(wait)? => read(&self.group, &mut self.buffer[..])
                .map_err(|cause| failed("read events", cause))?,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(heard),
            Err(cause) => return Err(failed("read events", cause)),
        };
        let events = parse(&self.buffer[..length])?;
        heard.events = events.len();
        // The kernel stops when the next event has no room.
        heard.is_all = length + EVENT_BYTES_MAX <= READ_BYTES;
        let mut paths = Paths::below(&self.root)?;
        // What happens to it under its new name is told of that when the rename is.
        paths.renamed = events.iter().filter_map(|event| event.old).collect();
        for event in &events {
            if event.mask & libc::FAN_Q_OVERFLOW != 0 {
                heard.missed = Some("the kernel's queue of events was full");
            }
            paths.add(event, &mut heard.seen);
            paths.find_names(event, &mut heard);
            if let Some(writers) = &mut self.writers {
                writers.extend(paths.writer(event));
            }
        }
        if paths.is_doubtful.get() {
            heard.missed = Some("a directory with an event could not be looked up");
        }
        Ok(heard)
    }

    /// Waits until there is something to hear, or until somebody [wakes](Waker::wake) it.
    ///
    /// # Errors
    /// The queue cannot be waited for.
    pub fn wait(&self) -> Result<(), Unwatched> {
        let waited = self.waker.wait(Some(self.group.as_fd()), None);
        waited.map_err(|cause| failed("wait for events", cause))
    }

    /// What wakes it.
    pub fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    fn is_ready(&self, wait: Duration) -> Result<bool, Unwatched> {
        is_ready(&self.group, wait).map_err(|cause| failed("wait for events", cause))
    }
}

impl Detector for Watch {
    fn name(&self) -> String {
        "fanotify".into()
    }

    fn hear(&mut self) -> Result<Heard, Deaf> {
        Ok(Watch::hear(self, Duration::ZERO)?)
    }

    fn wait(&mut self) -> Result<(), Deaf> {
        Ok(Watch::wait(self)?)
    }

    fn waker(&self) -> Arc<Waker> {
        Watch::waker(self)
    }

    fn source(&self) -> std::io::Result<Option<OwnedFd>> {
        self.root.try_clone().map(Some)
    }
}

impl From<Unwatched> for Deaf {
    /// What the kernel tells of later changes would not be all of them.
    fn from(why: Unwatched) -> Deaf {
        Deaf {
            what: why.to_string(),
            is_final: true,
        }
    }
}

fn failed(what: &'static str, cause: Errno) -> Unwatched {
    Unwatched::Failed { what, cause }
}

/// Why there is no group (fanotify_init(2), "ERRORS").
fn no_group(cause: Errno) -> Unwatched {
    match cause {
        Errno::PERM => {
            Unwatched::Refused("only root (CAP_SYS_ADMIN) may watch a whole file system")
        }
        Errno::INVAL => Unwatched::Refused(
            "this kernel reports no names and renames (Linux 5.17 does); detect = [\"walk\"] works",
        ),
        Errno::NOSYS => {
            Unwatched::Refused("this kernel does not support it; detect = [\"walk\"] works")
        }
        Errno::MFILE => Unwatched::Refused(
            "this user has too many groups (/proc/sys/fs/fanotify/max_user_groups)",
        ),
        cause => failed("make a group", cause),
    }
}

/// Why the file system is not watched (fanotify_mark(2), "ERRORS").
fn no_mark(cause: Errno) -> Unwatched {
    match cause {
        Errno::NODEV | Errno::OPNOTSUPP => Unwatched::Refused(
            "the source's file system has no file handles; detect = [\"walk\"] works",
        ),
        Errno::XDEV => Unwatched::Refused(
            "the source is a btrfs subvolume, which the kernel does not watch by itself; detect = [\"btrfs\"] works",
        ),
        Errno::INVAL => Unwatched::Refused(
            "this kernel reports no renames (Linux 5.17 does); detect = [\"walk\"] works",
        ),
        cause => failed("watch the file system", cause),
    }
}

/// Directories of the events that are read at once, opened once each.
struct Paths<'a> {
    root: BorrowedFd<'a>,
    /// The root's own path, with a slash at its end.
    above: Vec<u8>,
    file_system: [i32; 2],
    known: HashMap<Handle<'a>, Looked>,
    /// Files that were changed by a name that is not theirs in the source, and whether they were
    /// written to.
    unnamed: HashSet<(Handle<'a>, bool)>,
    /// Names that something loses by a rename among these events.
    renamed: HashSet<Place<'a>>,
    /// Something could not be looked up that may be there.
    is_doubtful: Cell<bool>,
}

/// What became of a handle that was looked up.
enum Looked {
    Found(Found),
    /// It is outside of the source, or cannot be looked up.
    Elsewhere,
    /// It has been removed, and may have been one of the source.
    Gone,
}

/// What a handle names.
struct Found {
    fd: OwnedFd,
    path: RelPath,
    /// The path is longer than the kernel tells (`PAGE_SIZE`): it is that of a directory above.
    is_above: bool,
}

impl<'a> Paths<'a> {
    fn below(root: &'a OwnedFd) -> Result<Paths<'a>, Unwatched> {
        let failed = |cause| failed("look at the source", cause);
        let mut above = path_of(root.as_fd()).map_err(failed)?;
        if !above.ends_with(b"/") {
            above.push(b'/');
        }
        Ok(Paths {
            root: root.as_fd(),
            above,
            file_system: file_system(root.as_fd()).map_err(failed)?,
            known: HashMap::new(),
            unnamed: HashSet::new(),
            renamed: HashSet::new(),
            is_doubtful: Cell::new(false),
        })
    }

    fn add(&mut self, event: &Event<'a>, seen: &mut Vec<Seen>) {
        let is_dir = event.mask & libc::FAN_ONDIR != 0;
        if event.old.is_some() || event.new.is_some() {
            let scope = if is_dir { Scope::Subtree } else { Scope::Entry };
            let places = [event.old, event.new].into_iter().flatten();
            let above = places
                .filter_map(|place| self.above(place))
                .collect::<Vec<_>>();
            if above.is_empty() {
                let old = event.old.and_then(|place| self.path(place));
                let new = event.new.and_then(|place| self.path(place));
                self.add_move((old, new), scope, seen);
            }
            seen.extend(above.into_iter().map(Seen::closed));
            if is_dir {
                // Directories below have other paths from here on.
                self.known.clear();
            }
            return;
        }
        match (event.place, event.object) {
            (Some(place), _) => self.add_place(event.mask, place, seen),
            // Nobody has the name any more by which it was changed, or none was used.
            (None, Some(object)) => {
                let found = self.found(object).map(Found::change);
                seen.extend(found.map(Seen::closed));
            }
            (None, None) => {}
        }
    }

    /// A path of the kernel's as one below the root, if it is there.
    fn below_root(&self, path: &[u8]) -> Option<RelPath> {
        let with_slash = [path, b"/"].concat();
        let below = with_slash.strip_prefix(&self.above[..])?;
        RelPath::parse(below).ok()
    }

    /// Who has closed a file that may have been written.
    fn writer(&mut self, event: &Event<'a>) -> Option<Writer> {
        let place = event
            .place
            .filter(|_| event.mask & libc::FAN_CLOSE_WRITE != 0)?;
        Some(Writer {
            path: self.path(place)?,
            process: event.process,
        })
    }

    fn add_place(&mut self, mask: u64, place: Place<'a>, seen: &mut Vec<Seen>) {
        let Some(dir) = self.found(place.dir) else {
            return;
        };
        if dir.is_above {
            return seen.push(Seen::closed(dir.change()));
        }
        let Some(path) = dir.named(place.name) else {
            return;
        };
        if mask & (libc::FAN_CREATE | libc::FAN_DELETE) != 0 {
            seen.extend(of_parent(&path));
        }
        let is_dir = mask & libc::FAN_ONDIR != 0;
        let file = (!is_dir).then(|| dir.file(place.name)).flatten();
        // Who makes a file has it open, and closes it; a further name of a file is made by itself.
        let is_made = |file: &Stat| mask & libc::FAN_CREATE != 0 && file.st_nlink == 1;
        let writes = mask & libc::FAN_MODIFY != 0 || file.as_ref().is_some_and(is_made);
        let is_filled = is_dir && mask & libc::FAN_CREATE != 0 && dir.is_subvolume(place.name);
        let is_gone = is_dir && mask & libc::FAN_DELETE != 0;
        seen.push(Seen {
            change: match is_filled || is_gone {
                true => Change::subtree(path),
                false => Change::entry(path),
            },
            is_dir,
            is_gone,
            is_written: mask & libc::FAN_MODIFY != 0,
            is_open: writes && mask & libc::FAN_CLOSE_WRITE == 0,
            size: file.map_or(0, |file| u64::try_from(file.st_size).unwrap_or(0)),
            is_repeated: false,
        });
    }

    fn add_move(
        &self,
        ends: (Option<RelPath>, Option<RelPath>),
        scope: Scope,
        seen: &mut Vec<Seen>,
    ) {
        let (path, hint) = match ends.clone() {
            (Some(old), Some(new)) => (new, Some(Hint::MovedFrom(old))),
            // It came from elsewhere, or went there.
            (old, new) => match new.or(old) {
                Some(path) => (path, None),
                None => return,
            },
        };
        seen.push(Seen {
            // Another file is there by now, or none.
            is_written: hint.is_none(),
            ..Seen::closed(Change { path, scope, hint })
        });
        let (old, new) = ends;
        // The times of both directories have changed.
        seen.extend([old, new].iter().flatten().filter_map(of_parent));
    }

    /// The path of a name now; `None` where its directory is gone, or outside of the source.
    fn path(&mut self, place: Place<'a>) -> Option<RelPath> {
        self.found(place.dir)?.named(place.name)
    }

    /// What has to be looked at in place of a name whose path is too long to be told.
    fn above(&mut self, place: Place<'a>) -> Option<Change> {
        self.found(place.dir)
            .filter(|dir| dir.is_above)
            .map(Found::change)
    }

    fn found(&mut self, handle: Handle<'a>) -> Option<&Found> {
        if !self.known.contains_key(&handle) {
            let found = self.open(handle);
            self.known.insert(handle, found);
        }
        match &self.known[&handle] {
            Looked::Found(found) => Some(found),
            Looked::Elsewhere | Looked::Gone => None,
        }
    }

    /// What was looked up. What is gone has an event of its own, above it; only a want of files
    /// puts in doubt what is there.
    fn sure<T>(&self, looked_up: Result<T, Errno>) -> Option<T> {
        let wants = [Errno::MFILE, Errno::NFILE];
        if looked_up.as_ref().is_err_and(|cause| wants.contains(cause)) {
            self.is_doubtful.set(true);
        }
        looked_up.ok()
    }

    fn open(&self, handle: Handle<'a>) -> Looked {
        if handle.file_system != self.file_system {
            return Looked::Elsewhere;
        }
        match sys::open_by_handle(self.root, handle.kind, handle.bytes) {
            // ENOMEM is what ext4 says of an inode that is being freed.
            Err(Errno::STALE | Errno::NOMEM) => Looked::Gone,
            opened => self
                .sure(opened)
                .and_then(|fd| self.opened(fd))
                .unwrap_or(Looked::Elsewhere),
        }
    }

    fn opened(&self, fd: OwnedFd) -> Option<Looked> {
        let (path, is_above) = match path_of(fd.as_fd()) {
            Err(Errno::NAMETOOLONG) => (path_above(fd.as_fd())?, true),
            path => (self.sure(path)?, false),
        };
        if path.ends_with(DELETED) && fstat(&fd).is_ok_and(|meta| meta.st_nlink == 0) {
            return Some(Looked::Gone);
        }
        let path = self.below_root(&path)?;
        Some(Looked::Found(Found { fd, path, is_above }))
    }
}

impl Found {
    fn named(&self, name: &[u8]) -> Option<RelPath> {
        match name {
            b"." | b"" => Some(self.path.clone()),
            name => check_name(name).is_ok().then(|| self.path.join(name)),
        }
    }

    /// It may differ, or something below it whose path cannot be told.
    fn change(&self) -> Change {
        if self.is_above {
            Change::subtree(self.path.clone())
        } else {
            Change::entry(self.path.clone())
        }
    }

    /// Whether a directory in it is a subvolume of btrfs: a snapshot is filled when it is made. An
    /// inode of another file system may have that number as well, and is looked at further than it
    /// had to be.
    fn is_subvolume(&self, name: &[u8]) -> bool {
        let meta = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        meta.is_ok_and(|meta| meta.st_ino == ROOT_INODE)
    }

    /// A regular file in it.
    fn file(&self, name: &[u8]) -> Option<Stat> {
        let meta = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        meta.filter(|meta| FileType::from_raw_mode(meta.st_mode).is_file())
    }
}

/// The path of the nearest directory above whose path the kernel tells.
fn path_above(dir: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let up = |dir: BorrowedFd<'_>| openat(dir, "..", flags, Mode::empty()).ok();
    let mut dir = up(dir)?;
    loop {
        match path_of(dir.as_fd()) {
            Err(Errno::NAMETOOLONG) => dir = up(dir.as_fd())?,
            path => return path.ok(),
        }
    }
}

/// The path of an open directory, now.
fn path_of(dir: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let link: PathBuf = format!("/proc/self/fd/{}", dir.as_raw_fd()).into();
    readlink(link, Vec::new()).map(CString::into_bytes)
}

/// The number by which events name the file system (statvfs(3), which
/// has both numbers in one).
fn file_system(dir: BorrowedFd<'_>) -> Result<[i32; 2], Errno> {
    let both = fstatvfs(dir)?.f_fsid;
    Ok([both as i32, (both >> 32) as i32])
}
