//! Sums of files and trees: what is asked, what is found, and what all threads of such a run share.
//!
//! The tasks are shares of the targets, directories, ranges of names, and large files; they stand in an [`Ordered`], and the
//! queue of the pool holds a ticket for each. So any thread does the first task that waits, and what is found comes out as if one
//! thread had gone through everything: targets as they were given, names sorted by bytes, a directory's content at its name.
//! Pieces of large files are in the queue itself, before all tickets.

mod file;
mod walk;

use crate::sum::file::Large;
use crate::sum::walk::{Hands, Task};
use crate::{Algorithm, Digest, HashTree};
use driftless_lock::Mutex;
use driftless_model::Entry;
use driftless_pool::{BYTES_PER_ENTRY, Concurrency, Ordered, Position, Queue, Workload, descriptors, drive, part};
use driftless_tree::HandlePool;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard};

/// What was found and waits for what stands before it, at most about this many.
const HELD_MAX: usize = 32 * 1024;
/// So many leaves of a hash tree take about the memory of one find.
const LEAVES_PER_FIND: usize = 4;

/// What a target should be.
#[derive(Debug, Clone)]
pub enum Expected {
    /// It has this hash.
    Digest(Digest),
    /// It has this hash tree.
    Tree(HashTree),
}

/// A file to hash, or a directory with all files below it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its path, followed as the user gave it.
    pub path: PathBuf,
    /// Only these bytes of each file; an end of `u64::MAX` means that of the file.
    pub range: Option<Range<u64>>,
    /// The hash function.
    pub algorithm: Algorithm,
    /// Hash trees with leaves of this size are wanted, too; for BLAKE3 only.
    pub leaf_bytes: Option<u64>,
    /// What it should be; a directory is not expected then.
    pub expected: Option<Expected>,
}

/// The targets in order; in between, what keeps one from being known.
pub type Targets<'t> = Box<dyn Iterator<Item = Result<Target, String>> + Send + 't>;

/// How targets are worked on.
#[derive(Debug, Clone, Default)]
pub struct SumOptions {
    /// How many requests are in flight.
    pub jobs: Concurrency,
    /// Entries of all kinds are reported with their metadata, directories before what is in them.
    pub manifest: bool,
    /// Device and inode of files that are passed over, since they are what the sums are written to.
    pub left_out: Vec<(u64, u64)>,
}

/// What was found at a path.
#[derive(Debug)]
pub struct Found {
    /// The target it belongs to; none if that could not be known.
    pub target: Option<Arc<Target>>,
    /// The path: that of the target, and the names below it. For a manifest the names alone, `.` for the root.
    pub path: Vec<u8>,
    /// What it is.
    pub what: What,
}

/// What was found.
#[derive(Debug)]
pub enum What {
    /// A file was hashed.
    Sum(Sum),
    /// An entry of a manifest, and the hash of a file's content or of a symbolic link's target.
    Entry(Box<Entry>, Option<Digest>),
    /// The target is not there.
    Missing,
    /// It could not be hashed or listed, for this reason.
    Problem(String),
}

/// What was hashed.
#[derive(Debug)]
pub struct Sum {
    /// The hash.
    pub digest: Digest,
    /// The bytes that were hashed.
    pub range: Range<u64>,
    /// The hash tree, if it was asked for.
    pub tree: Option<Box<HashTree>>,
}

/// Told what is found, in order, by one thread at a time.
pub trait SumMonitor: Sync {
    /// Something was found.
    fn found(&self, found: &Found);
    /// A few times a second.
    fn tick(&self);
}

/// What waits in the queue.
pub enum Item {
    /// The right to do the first task that waits.
    Ticket,
    /// Pieces of a large file, before all else.
    Pieces(Arc<Large>, Range<u64>),
}

/// A run in progress.
pub struct Sums<'r> {
    /// What was asked.
    pub options: &'r SumOptions,
    /// What waits.
    pub queue: Queue<Item>,
    /// Open directories.
    pub handles: Arc<HandlePool>,
    /// Targets that were not looked at yet.
    pub targets: Mutex<Targets<'r>>,
    monitor: &'r dyn SumMonitor,
    stop: &'r AtomicBool,
    state: Mutex<State>,
    entries: AtomicU64,
    bytes: AtomicU64,
}

struct State {
    order: Ordered<Task, Found>,
    /// Tickets of tasks that may not be taken yet.
    parked: usize,
    /// Whether a thread is telling what was found.
    telling: bool,
}

/// Hashes the targets.
pub fn sum(options: &SumOptions, targets: Targets<'_>, monitor: &dyn SumMonitor, stop: &AtomicBool) {
    let (directories, threads_max) = descriptors();
    let state = State { order: Ordered::new(HELD_MAX), parked: 0, telling: false };
    let sums = Sums {
        options,
        queue: Queue::new(1),
        handles: HandlePool::new(directories),
        targets: Mutex::new(targets),
        monitor,
        stop,
        state: Mutex::new(state),
        entries: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    sums.put(vec![0], Task::Targets(0));
    drive(&sums, threads_max);
}

fn weight(found: &Found) -> usize {
    match &found.what {
        What::Sum(Sum { tree: Some(tree), .. }) => 1 + tree.leaves().len() / LEAVES_PER_FIND,
        _ => 1,
    }
}

impl Workload for Sums<'_> {
    type Item = Item;

    fn queue(&self) -> &Queue<Item> {
        &self.queue
    }

    fn concurrency(&self) -> Concurrency {
        self.options.jobs
    }

    fn work_done(&self) -> u64 {
        self.entries.load(Relaxed) + self.bytes.load(Relaxed) / BYTES_PER_ENTRY
    }

    fn work(&self, index: usize) {
        let mut hands = Hands::new(self);
        while let Some(item) = self.queue.take(index) {
            // A stopped run drops what waits.
            if !self.stopped() {
                match item {
                    Item::Ticket => self.take().into_iter().for_each(|(place, task)| hands.carry_out(place, task)),
                    Item::Pieces(large, pieces) => hands.pieces(&large, pieces),
                }
            }
            self.queue.done();
        }
    }

    fn tell(&self, _jobs: usize) {
        self.monitor.tick();
    }
}

impl Sums<'_> {
    /// Whether the run was asked to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Counts bytes that were hashed.
    pub fn count_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Adds a task.
    pub fn put(&self, place: Position, task: Task) {
        self.state.lock().order.put(place, task);
        self.queue.push(Item::Ticket);
    }

    /// Adds a task at part number `index` of `place`.
    pub fn put_part(&self, place: &Position, index: u64, task: Task) {
        self.put(part(place, index), task);
    }

    /// Takes the first task; if none may be taken now, the ticket is kept.
    fn take(&self) -> Option<(Position, Task)> {
        let mut state = self.state.lock();
        let taken = state.order.take();
        state.parked += usize::from(taken.is_none());
        taken
    }

    /// Says that a task is done, and tells what can be told now.
    pub fn finish(&self, place: Position, found: Vec<Found>) {
        self.entries.fetch_add(found.len() as u64, Relaxed);
        let total = found.iter().map(weight).sum();
        let mut state = self.state.lock();
        state.order.finish(place, found, total);
        if !state.telling {
            state = self.tell_ready(state);
        }
        self.give_back_tickets(&mut state);
    }

    /// One thread tells, outside the lock, until nothing more is ready.
    fn tell_ready<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        loop {
            let ready = state.order.ready(weight);
            if ready.is_empty() || self.stopped() {
                return state;
            }
            state.telling = true;
            self.give_back_tickets(&mut state);
            drop(state);
            ready.iter().for_each(|found| self.monitor.found(found));
            state = self.state.lock();
            state.telling = false;
        }
    }

    fn give_back_tickets(&self, state: &mut State) {
        let wanted = if state.order.has_room() { state.parked } else { usize::from(state.order.may_take()) };
        let tickets = wanted.min(state.parked);
        state.parked -= tickets;
        (0..tickets).for_each(|_| self.queue.push(Item::Ticket));
    }
}
