//! What all detectors of live changes have in common, so that a mirror hears any set of them in one
//! way.
//!
//! A detector waits in a thread of its own, and is woken by others. One that has a position that
//! outlives the process (the number of a record, a list in a folder) gives it beside what it has
//! heard, and lets go of what stands before it only when it is told that all of that is durable on
//! the replica.

use driftless_model::{Change, RelPath, cause};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read, write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Tells of changes while they happen.
pub trait Detector: Send {
    /// What it is called, in logs and where its position is kept.
    fn name(&self) -> String;

    /// What there is to be heard now; does not wait for more. When [nothing](Heard::is_nothing) was
    /// heard, all that happened before the call has been told.
    ///
    /// # Errors
    /// Nothing can be heard, for good or for a while.
    fn hear(&mut self) -> Result<Heard, Deaf>;

    /// Waits until there may be something to hear, or until somebody wakes it.
    ///
    /// # Errors
    /// It cannot wait.
    fn wait(&mut self) -> Result<(), Deaf>;

    /// What wakes it.
    fn waker(&self) -> Arc<Waker>;

    /// The source's directory, where the kernel itself tells of each change below it.
    ///
    /// # Errors
    /// There are too many open files.
    fn source(&self) -> std::io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Whether its positions mean the same to a later process.
    fn keeps_position(&self) -> bool {
        false
    }

    /// An earlier life has let go of everything up to this position.
    fn resume(&mut self, _position: u64) {}

    /// Everything up to this position is durable on the replica and need not be told again.
    ///
    /// # Errors
    /// It cannot let go of it yet; it is told again later.
    fn acknowledge(&mut self, _position: u64) -> Result<(), Deaf> {
        Ok(())
    }
}

/// What was heard at once.
#[derive(Debug, Default)]
pub struct Heard {
    /// Changes in the order in which they were told.
    pub seen: Vec<Seen>,
    /// Files that changed, and of whose names not all are told.
    pub unnamed: Vec<Unnamed>,
    /// Everything that happened before it was read is among these.
    pub is_all: bool,
    /// How many events, lines or records were read, those that concern nobody too.
    pub events: usize,
    /// Why something may have been missed before these, or among them.
    pub missed: Option<&'static str>,
    /// Lines, records and lists that could not be used; each was told in the log.
    pub unread: u64,
    /// What was told until now stands before this position.
    pub position: Option<u64>,
    /// What is known of the queue that it hears, where there is one.
    pub queue: Option<Queue>,
    /// When nothing was heard: the moment before which everything has been told, if that is not the
    /// moment of the call.
    pub until: Option<Instant>,
}

/// A queue, of which others may hear a part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// What waits there and was handed out to nobody.
    pub waiting: u64,
    /// How many are subscribed to it, the detector counted.
    pub consumers: u64,
    /// How many connections to it were lost or ended: what came by them comes again, to somebody.
    pub connection: u64,
}

/// What a mirror tells the detector of a queue that others hear as well, on its behalf.
#[derive(Debug)]
pub struct Sharing {
    may_hear: AtomicBool,
    others: AtomicU64,
}

impl Sharing {
    /// Of a process that hears from the beginning, or only when it is told to.
    pub fn new(may_hear: bool) -> Arc<Sharing> {
        Arc::new(Sharing {
            may_hear: AtomicBool::new(may_hear),
            others: AtomicU64::new(0),
        })
    }

    /// It may hear from now on, or hears no more, and what it has not done goes to others. True if
    /// that was otherwise.
    pub fn set_may_hear(&self, may_hear: bool) -> bool {
        self.may_hear.swap(may_hear, Relaxed) != may_hear
    }

    /// Whether it may hear.
    pub fn may_hear(&self) -> bool {
        self.may_hear.load(Relaxed)
    }

    /// So many others are known that hear the queue.
    pub fn set_others(&self, others: u64) {
        self.others.store(others, Relaxed);
    }

    /// How many others are known that hear the queue.
    pub fn others(&self) -> u64 {
        self.others.load(Relaxed)
    }
}

impl Heard {
    /// Whether there was nothing to be heard.
    pub fn is_nothing(&self) -> bool {
        self.events == 0
    }
}

/// A change, and what else was seen of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What may differ.
    pub change: Change,
    /// It is a directory.
    pub is_dir: bool,
    /// The directory was removed. Nobody tells any more what was in it, and what stands at its path
    /// by now is another one.
    pub is_gone: bool,
    /// Its content was written, or it is another entry than the one that was there.
    pub is_written: bool,
    /// Somebody still has the file open for writing.
    pub is_open: bool,
    /// Bytes of a regular file when its event was read.
    pub size: u64,
    /// It was told to another process before, which has not said that it is done, and may be at it.
    pub is_repeated: bool,
}

impl Seen {
    /// A change of what nobody has open for writing.
    pub fn closed(change: Change) -> Seen {
        Seen {
            change,
            is_dir: false,
            is_gone: false,
            is_written: false,
            is_open: false,
            size: 0,
            is_repeated: false,
        }
    }
}

/// A file that was changed through a name, and has or may have others, of which nobody tells.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unnamed {
    /// Device and inode.
    pub inode: (u64, u64),
    /// Its content was written.
    pub is_written: bool,
    /// How many names it has, those outside of the source too.
    pub names: u64,
    /// The name by which it was changed, if that is one below the source's root and still its own.
    pub at: Option<RelPath>,
    /// The name by which it was changed is gone, and it may have one in the source that is not told.
    pub is_lost: bool,
}

/// Why a detector hears nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Deaf {
    /// Where, what and why.
    pub what: String,
    /// It is no use to try again.
    pub is_final: bool,
}

impl Deaf {
    /// It may be over soon.
    pub fn for_now(what: impl Into<String>) -> Deaf {
        Deaf {
            what: what.into(),
            is_final: false,
        }
    }

    /// Something failed that concerns this place.
    pub(crate) fn of(place: &str, act: &str, errno: Errno) -> Deaf {
        Deaf::for_now(format!("{place}: cannot {act}: {}", cause(&errno.into())))
    }
}

/// Wakes a detector that waits (eventfd(2)), and has it stop.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
    asked: AtomicU64,
    is_stopping: AtomicBool,
}

impl Waker {
    /// One that has not been used yet.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn new() -> Result<Arc<Waker>, Errno> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Waker {
            event,
            asked: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
        }))
    }

    /// Has the detector look whether there is anything to hear.
    pub fn wake(&self) {
        let _it_is_awake_already_if_that_fails = write(&self.event, &1u64.to_ne_bytes());
    }

    /// Wakes the detector for a user who waits for everything that happened before: it also asks
    /// those who tell it.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Relaxed);
        self.wake();
    }

    /// Returns how often it was asked.
    pub fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// Has the detector give up what it is at: nobody listens any more.
    pub fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
        self.wake();
    }

    /// Whether nobody listens any more.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    /// Whether somebody woke it since this was last asked, or since it last waited.
    pub fn was_woken(&self) -> bool {
        read(&self.event, &mut [0; 8]).is_ok()
    }

    /// Waits until there is something to read, until somebody wakes it, or for so long.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub fn wait(&self, ready: Option<BorrowedFd<'_>>, time: Option<Duration>) -> Result<(), Errno> {
        let mut fds = vec![PollFd::new(&self.event, PollFlags::IN)];
        if let Some(fd) = &ready {
            fds.push(PollFd::new(fd, PollFlags::IN));
        }
        match poll(&mut fds, timespec(time).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(cause) => return Err(cause),
        }
        let _nobody_may_have_woken_it = read(&self.event, &mut [0; 8]);
        Ok(())
    }
}

/// Whether there is something to read within this time.
///
/// # Errors
/// The kernel has no memory.
pub(crate) fn is_ready(fd: impl AsFd, time: Duration) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    match poll(&mut fds, timespec(Some(time)).as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(cause) => Err(cause),
    }
}

fn timespec(time: Option<Duration>) -> Option<Timespec> {
    time.and_then(|time| Timespec::try_from(time).ok())
}
