//! Batches that wait for a mover, and the hosts that take them.

use crate::hosts::TICK;
use crate::tried;
use driftless_engine::{Batch, Brief};
use driftless_lock::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Tries after which a batch is given up.
const ATTEMPTS_MAX: u32 = 5;

/// A batch on its way to a mover.
pub struct Waiting {
    pub run: u64,
    pub id: u64,
    pub batch: Batch,
    pub attempts: u32,
}

/// Which batches wait, and what hosts do.
#[derive(Default)]
pub struct State {
    /// What a mover that takes a batch is told of the run; it says what the source is like now.
    pub brief: Option<Brief>,
    pub waiting: VecDeque<Waiting>,
    /// Hosts that have nothing to do.
    pub idle: usize,
    /// Hosts that are at work, and since when; none once they were asked to leave some to others.
    pub busy: BTreeMap<usize, Option<Instant>>,
    pub given_up: Vec<(u64, String)>,
    /// Hosts that get no more batches, and why.
    pub dismissed: BTreeMap<String, String>,
    /// Hosts that are left alone, and why.
    pub gone: Vec<String>,
    pub over: bool,
}

/// What waits, as the threads of all hosts share it.
pub struct Shared {
    pub state: Mutex<State>,
    pub changed: Condvar,
}

/// The next batch for a host that has nothing to do; none when the run is over, or the host is
/// dismissed.
pub fn take(shared: &Shared, (index, host): (usize, &str)) -> Option<Waiting> {
    let mut state = shared.state.lock();
    state.idle += 1;
    let taken = loop {
        if state.over || state.dismissed.contains_key(host) {
            break None;
        }
        if let Some(batch) = state.waiting.pop_front() {
            break Some(batch);
        }
        state = shared.changed.wait(state);
    };
    state.idle -= 1;
    if taken.is_some() {
        state.busy.insert(index, Some(Instant::now()));
    }
    taken
}

/// Puts a batch back that this host can do nothing about, and gives the host no other.
pub fn leave_out(shared: &Shared, host: &str, (batch, why): (Waiting, String)) {
    let mut state = shared.state.lock();
    state.dismissed.insert(host.to_owned(), why);
    state.waiting.push_front(batch);
    drop(state);
    shared.changed.notify_all();
}

/// Puts a batch back for another host, or gives it up after too many tries.
pub fn put_back(shared: &Shared, batch: Waiting, reason: &str) {
    let mut state = shared.state.lock();
    let attempts = batch.attempts + 1;
    if attempts >= ATTEMPTS_MAX {
        state.given_up.push((batch.id, tried(reason, attempts)));
    } else {
        state.waiting.push_front(Waiting { attempts, ..batch });
    }
    drop(state);
    shared.changed.notify_one();
}

/// Lets so much time pass, unless the run is over.
pub fn pause(shared: &Shared, pause: Duration) {
    let until = Instant::now() + pause;
    while Instant::now() < until && !shared.state.lock().over {
        std::thread::sleep(TICK);
    }
}
