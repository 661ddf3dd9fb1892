//! A broker, its queues, movers and time itself, of one seed: what coordinators meet when they call
//! upon their movers.
//!
//! The coordinators, the way of a batch through a mover, its lease and what carries batches out are
//! the real ones, on small real trees. One thread goes on at a time, from one change of the replica
//! to the next, and time passes in between. Messages are late, come twice, come again after a
//! connection was lost, and overtake those of other queues; movers and coordinators are stopped and
//! wake up, are cut off, and die.
//!
//! The world is also a judge: who does not hold the replica must not change it.

mod mover;
mod state;
mod turn;

use driftless_engine::message::{Order, decode, encode};
use driftless_engine::{Batch, Brief, Clock, Exchange, Options, Over, Unreachable, Word};
use mover::Place;
use state::{Act, CLASSES};
pub use state::{Holder, JOBS, Link, Message, State};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use turn::Who;

/// What a judge says of a change by somebody who may make none.
pub const NOT_HELD: &str = "changed the replica and did not hold it";

/// Longer spans pass without anybody being awake but at their end.
const SPAN_MAX: u64 = 120_000;
const SPAN_END: u64 = 60_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that is outside of the coordinators.
pub struct World {
    state: Arc<Mutex<State>>,
    threads: Vec<JoinHandle<()>>,
}

impl World {
    /// Of a seed, with the options of each job.
    pub fn new(seed: u64, options: [Options; JOBS], replica: PathBuf) -> World {
        let state = Arc::new(Mutex::new(State::new(seed, options, replica)));
        let turns: Vec<_> = lock(&state)
            .movers
            .iter()
            .map(|mover| mover.turn.clone())
            .collect();
        let place = |(index, turn)| Place {
            state: state.clone(),
            turn,
            index,
        };
        let places: Vec<Place> = turns.into_iter().enumerate().map(place).collect();
        let threads = places
            .into_iter()
            .map(|place| std::thread::spawn(move || place.live()))
            .collect();
        World { state, threads }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub fn history(&self) -> String {
        self.state().history.join("\n")
    }

    /// Lets time pass; movers go on meanwhile.
    pub fn pass(&self, millis: u64) {
        let until = self.state().millis + millis;
        if millis > SPAN_MAX {
            self.pass(SPAN_END);
            let mut state = self.state();
            state.millis = until - SPAN_END;
        }
        while self.state().millis < until {
            let acts = self.state().advance(until);
            acts.into_iter().for_each(|act| self.act(act));
        }
    }

    fn act(&self, act: Act) {
        match act {
            Act::Eyes(index) => {
                let turn = self.state().movers[index].turn.clone();
                turn.hand_to(Who::Eyes);
            }
            Act::Hands(index) => self.slice(index),
            Act::Kill(index) => self.kill(index),
        }
        if let Some(failure) = &self.state().failure {
            panic!("{failure}");
        }
    }

    /// A mover goes on to its next change of the replica.
    fn slice(&self, index: usize) {
        let (turn, before) = {
            let mut state = self.state();
            state.movers[index].slices += 1;
            (
                state.movers[index].turn.clone(),
                state.is_foreign(index).then(|| stamps(&state.replica)),
            )
        };
        turn.hand_to(Who::Hands);
        let Some(before) = before else { return };
        let mut state = self.state();
        state.judged += 1;
        let changed = differing(&before, &stamps(&state.replica));
        if !changed.is_empty() {
            state.tell(format!("mover {index} changes {changed:?}"));
            drop(state);
            panic!("mover {index} {NOT_HELD}: {changed:?}");
        }
    }

    /// The process of a mover is killed: nothing that it does from now on reaches anybody.
    fn kill(&self, index: usize) {
        let (turn, lease) = {
            let mut state = self.state();
            state.kill(index);
            (
                state.movers[index].turn.clone(),
                state.movers[index].lease.clone(),
            )
        };
        if let Some(lease) = lease {
            lease.end(Over::Unwanted);
        }
        turn.set_free(true);
        self.slice(index);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for index in 0..self.threads.len() {
            let (turn, lease) = {
                let mut state = self.state();
                (
                    state.is_over,
                    state.movers[index].is_dead,
                    state.movers[index].link,
                ) = (true, true, Link::Closed);
                (
                    state.movers[index].turn.clone(),
                    state.movers[index].lease.clone(),
                )
            };
            lease.iter().for_each(|lease| lease.end(Over::Unwanted));
            turn.set_free(true);
            turn.hand_to(Who::Hands);
        }
        self.threads
            .drain(..)
            .for_each(|thread| drop(thread.join()));
    }
}

/// What shows that an entry was changed: its inode, and when it was changed last. Not of the root,
/// where the mark leaves a trace.
type Stamps = BTreeMap<PathBuf, (u64, i64, i64, u64)>;

fn stamps(root: &Path) -> Stamps {
    let all = driftless_testkit::mutate::list_all(root).unwrap_or_default();
    let stamp = |path: PathBuf| {
        let meta = path.symlink_metadata().ok()?;
        Some((
            path,
            (meta.ino(), meta.ctime(), meta.ctime_nsec(), meta.size()),
        ))
    };
    all.into_iter()
        .filter(|path| path != root)
        .filter_map(stamp)
        .collect()
}

fn differing(before: &Stamps, now: &Stamps) -> Vec<PathBuf> {
    let paths = before.keys().chain(now.keys());
    let mut changed: Vec<PathBuf> = paths
        .filter(|path| before.get(*path) != now.get(*path))
        .cloned()
        .collect();
    changed.dedup();
    changed
}

fn described_batch(batch: &Batch) -> String {
    use driftless_engine::Piece;
    let piece = |piece: &Piece| match piece {
        Piece::Root => "all".to_owned(),
        Piece::Entries(dir, names) => names
            .iter()
            .map(|name| driftless_model::escape(dir.join(name.as_bytes()).as_bytes()))
            .collect::<Vec<_>>()
            .join(" "),
        Piece::Bytes(path, _, range) => format!("{range:?} of {path}"),
        Piece::Rest(path, ..) => format!("the rest of {path}"),
    };
    batch.pieces.iter().map(piece).collect::<Vec<_>>().join(" ")
}

/// What a crash is: nobody catches it but whoever started the life.
pub struct Crash;

/// The coordinator's connection in one life, which ends in a crash after so many calls, or asks it
/// to stop, or sleeps for long.
pub struct Life<'w> {
    pub world: &'w World,
    pub job: usize,
    pub calls: u64,
    pub dies_at: Option<u64>,
    pub stops_at: Option<u64>,
    pub sleeps_at: Option<u64>,
    pub stop: &'w AtomicBool,
    /// What somebody does while the coordinator sleeps.
    pub meanwhile: &'w dyn Fn(),
}

impl Life<'_> {
    fn call(&mut self) {
        self.calls += 1;
        if self.calls == 1 {
            self.world.state().begins(self.job);
        }
        if self.stops_at == Some(self.calls) {
            self.stop.store(true, Relaxed);
        }
        if self.dies_at == Some(self.calls) {
            self.world.state().loses_coordinator(self.job);
            std::panic::resume_unwind(Box::new(Crash));
        }
        if self.sleeps_at == Some(self.calls) {
            let span = self.world.state().coordinator_sleeps(self.job);
            self.world.pass(span / 2);
            (self.meanwhile)();
            self.world.pass(span / 2);
            self.world.state().coordinator_wakes(self.job);
        }
    }
}

impl Exchange for Life<'_> {
    fn send(&mut self, brief: &Brief, run: u64, id: u64, batch: &Batch) -> Result<(), Unreachable> {
        self.call();
        let body = encode(&Order::Batch {
            brief: Box::new(brief.clone()),
            run,
            id,
            batch: batch.clone(),
        });
        let (links, what) = (
            if batch.alone { ", of links" } else { "" },
            described_batch(batch),
        );
        let mut state = self.world.state();
        state.holder = Holder::Run {
            job: self.job,
            run: Some(run),
        };
        state.tell(format!(
            "{id} of job {} is handed out, of class {}{links}: {what}",
            self.job, batch.class
        ));
        state.work[self.job][usize::from(batch.class)].push_back(Message {
            job: self.job,
            body,
            attempts: 0,
        });
        Ok(())
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Word>, Unreachable> {
        self.call();
        let (word, passes) = {
            let mut state = self.world.state();
            let word = state.next_word(self.job);
            let passes = if word.is_some() {
                1
            } else {
                limit.as_millis() as u64
            };
            (word, passes * if state.rng.u8(0..4) == 0 { 10 } else { 1 })
        };
        self.world.pass(passes);
        Ok(word)
    }

    fn accept(&mut self, ticket: u64) {
        self.call();
        self.world.state().unacknowledged[self.job].remove(&ticket);
    }

    fn waits(&mut self) -> Result<bool, Unreachable> {
        self.call();
        Ok(self.world.state().work[self.job]
            .iter()
            .any(|queue| !queue.is_empty()))
    }

    fn idle(&mut self) -> usize {
        self.world.state().count(self.job, false)
    }

    fn at_work(&mut self) -> usize {
        self.world.state().count(self.job, true)
    }

    fn call_back(&mut self) -> Result<(), Unreachable> {
        // They look at the mark of the replica, and at whether somebody listens.
        self.clear(false)
    }

    fn dismiss(&mut self, mover: &str, _why: &str) {
        self.world
            .state()
            .tell(format!("{mover} is not believed any more"));
    }

    fn parked(&mut self, run: u64) -> Result<Vec<(u64, String)>, Unreachable> {
        let state = self.world.state();
        let ours = state.parked[self.job]
            .iter()
            .filter_map(|(body, why)| match decode(body) {
                Ok(Order::Batch { run: of, id, .. }) if of == run => Some((id, why.clone())),
                _ => None,
            });
        Ok(ours.collect())
    }

    fn clear(&mut self, words: bool) -> Result<(), Unreachable> {
        self.call();
        let mut state = self.world.state();
        state.tell(format!(
            "the queues of job {} are emptied{}",
            self.job,
            if words { ", with all words" } else { "" }
        ));
        state.work[self.job] = [const { std::collections::VecDeque::new() }; CLASSES];
        if words {
            state.results[self.job].clear();
            state.parked[self.job].clear();
        }
        Ok(())
    }
}

impl Drop for Life<'_> {
    /// However it ended, nobody coordinates the job any more.
    fn drop(&mut self) {
        self.world.state().loses_coordinator(self.job);
    }
}

/// The time of the world.
pub struct WorldClock<'w>(pub &'w World);

impl Clock for WorldClock<'_> {
    fn now(&self) -> Instant {
        self.0.state().now()
    }

    fn seconds(&self) -> u64 {
        1_000_000_000 + self.0.state().millis / 1000
    }

    fn sleep(&self, span: Duration) {
        self.0.state().tell(format!("somebody waits for {span:?}"));
        self.0.pass(span.as_millis() as u64);
    }
}
