//! What all threads of a run that hashes targets share.

use crate::sum::file::Large;
use crate::sum::found::{BadTarget, Found, Sum, Target, What};
use crate::sum::task::Task;
use driftless_lock::Mutex;
use driftless_pool::{BYTES_PER_ENTRY, Concurrency, Ordered, Position, Queue, part};
use driftless_tree::HandlePool;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, MutexGuard};

/// At most about this many finds wait until those before them in the order are told.
const HELD_MAX: usize = 32 * 1024;

/// So many leaves of a hash tree take about the memory of one find.
const LEAVES_PER_FIND: usize = 4;

/// The targets in order. A line of a list that names none is an error in the place of a target.
pub type Targets<'t> = Box<dyn Iterator<Item = Result<Target, BadTarget>> + Send + 't>;

/// How targets are worked on.
#[derive(Debug, Clone, Default)]
pub struct SumOptions {
    /// How many requests are under way at the same time.
    pub jobs: Concurrency,
    /// Entries of all kinds are reported with their metadata, directories before what is in them.
    pub manifest: bool,
    /// Device and inode of files that are passed over, since the sums are written to them.
    pub left_out: Vec<(u64, u64)>,
}

/// Is told what is found, in order, by one thread at a time.
pub trait SumMonitor: Sync {
    /// Something was found.
    fn found(&self, found: &Found);
    /// Time has passed: called a few times a second.
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
    /// The pool of open directories.
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

fn weight(found: &Found) -> usize {
    match &found.what {
        What::Sum(Sum {
            tree: Some(tree), ..
        }) => 1 + tree.leaves().len() / LEAVES_PER_FIND,
        _ => 1,
    }
}

impl<'r> Sums<'r> {
    /// A run that has not begun.
    pub fn new(
        (options, handles): (&'r SumOptions, Arc<HandlePool>),
        targets: Targets<'r>,
        monitor: &'r dyn SumMonitor,
        stop: &'r AtomicBool,
    ) -> Self {
        let state = Mutex::new(State {
            order: Ordered::new(HELD_MAX),
            parked: 0,
            telling: false,
        });
        let (queue, targets) = (Queue::new(1), Mutex::new(targets));
        Sums {
            options,
            queue,
            handles,
            targets,
            monitor,
            stop,
            state,
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// What was done so far, in entries; [`BYTES_PER_ENTRY`] bytes count as one.
    pub fn work_so_far(&self) -> u64 {
        self.entries.load(Relaxed) + self.bytes.load(Relaxed) / BYTES_PER_ENTRY
    }

    /// Lets the monitor know that time passes.
    pub fn tick(&self) {
        self.monitor.tick();
    }

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
    pub fn take(&self) -> Option<(Position, Task)> {
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
        let wanted = if state.order.has_room() {
            state.parked
        } else {
            usize::from(state.order.may_take())
        };
        let tickets = wanted.min(state.parked);
        state.parked -= tickets;
        (0..tickets).for_each(|_| self.queue.push(Item::Ticket));
    }
}
