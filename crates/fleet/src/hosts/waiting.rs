//! Batches that wait for a mover, and the hosts that take them.

use crate::hosts::{OWN, TICK};
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
    /// Brief of this batch alone, in the place of the one that all batches have.
    pub brief: Option<Box<Brief>>,
}

/// Which batches wait, and what hosts do.
#[derive(Default)]
pub struct State {
    /// What a mover that takes a batch is told of the run; it says what the source is like now.
    pub brief: Option<Brief>,
    pub waiting: VecDeque<Waiting>,
    /// Batches that movers have given back too often, for the coordinator's own host.
    pub for_own: VecDeque<Waiting>,
    /// Why movers gave the first of them back.
    pub refusal: Option<String>,
    /// The coordinator's own host takes all that waits: no mover is left.
    pub alone: bool,
    /// Why the coordinator's own host carries out no further batches.
    pub own_gone: Option<String>,
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

impl Shared {
    /// Returns what is told of the run with a batch that was handed out.
    pub fn brief_of(&self, batch: &Waiting) -> Brief {
        if let Some(brief) = &batch.brief {
            return (**brief).clone();
        }
        let brief = self.state.lock().brief.clone();
        brief.expect("it came with the batch")
    }
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

/// Returns the next batch for the coordinator's own host, or `None` when the run is over, or that
/// host is dismissed.
pub fn take_own(shared: &Shared, index: usize) -> Option<Waiting> {
    let mut state = shared.state.lock();
    loop {
        if state.over || state.dismissed.contains_key(OWN) {
            return None;
        }
        let next = match state.for_own.pop_front() {
            None if state.alone => state.waiting.pop_front(),
            next => next,
        };
        if let Some(batch) = next {
            state.busy.insert(index, Some(Instant::now()));
            return Some(batch);
        }
        state = shared.changed.wait(state);
    }
}

/// Puts a batch back that this host can do nothing about, and gives the host no other.
pub fn leave_out(shared: &Shared, host: &str, (batch, why): (Waiting, String)) {
    let mut state = shared.state.lock();
    state.dismissed.insert(host.to_owned(), why);
    state.waiting.push_front(batch);
    drop(state);
    shared.changed.notify_all();
}

/// Puts a batch back that a mover says it cannot carry out. After too many tries the coordinator's
/// own host takes it: hosts may not see the trees as the coordinator does, and this one does.
pub fn give_back(shared: &Shared, batch: Waiting, reason: &str) {
    let attempts = batch.attempts + 1;
    let mut state = shared.state.lock();
    if attempts < ATTEMPTS_MAX || state.own_gone.is_some() {
        drop(state);
        return put_back(shared, batch, reason);
    }
    state.refusal.get_or_insert(tried(reason, attempts));
    state.for_own.push_back(Waiting {
        attempts: 0,
        ..batch
    });
    drop(state);
    shared.changed.notify_all();
}

/// Puts a batch back for the coordinator's own host. With a `reason` this was a try of the batch,
/// and too many of them are its end.
pub fn put_back_own(shared: &Shared, batch: Waiting, reason: Option<&str>) {
    let mut state = shared.state.lock();
    let attempts = batch.attempts + u32::from(reason.is_some());
    match reason.filter(|_| attempts >= ATTEMPTS_MAX) {
        Some(reason) => state.given_up.push((batch.id, tried(reason, attempts))),
        None => state.for_own.push_front(Waiting { attempts, ..batch }),
    }
}

/// Gives up what is left for the coordinator's own host, which carries out no further batches.
pub fn leave_out_own(shared: &Shared, why: &str) {
    let mut state = shared.state.lock();
    let why = format!("{OWN}: {why}");
    let left = std::mem::take(&mut state.for_own);
    let left = left.into_iter().map(|batch| (batch.id, why.clone()));
    state.given_up.extend(left);
    state.own_gone = Some(why);
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
    shared.changed.notify_all();
}

/// Lets so much time pass, unless the run is over.
pub fn pause(shared: &Shared, pause: Duration) {
    let until = Instant::now() + pause;
    while Instant::now() < until && !shared.state.lock().over {
        std::thread::sleep(TICK);
    }
}
