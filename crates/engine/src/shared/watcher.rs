//! Looks after a batch that another thread works off: says that the mover lives, asks for signs of
//! life of the coordinator, and knows when to come to an end early.
//!
//! It has no thread and no clock of its own: its caller says what time it is.

use crate::shared::lease::{Lease, Over};
use crate::shared::message::Report;
use crate::tally::Counts;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Between two signs of life.
const SIGN_INTERVAL: Duration = Duration::from_secs(1);
/// Between two questions whether others have nothing to do; the real pause is up to twice that, so
/// that movers do not ask together.
const HUNGER_INTERVAL: Duration = Duration::from_millis(250);
/// A batch is worked on for so long before any of it is left to others.
const BATCH_MIN: Duration = Duration::from_millis(300);
/// What is left to others costs them about so many times what opening the trees does: the way to
/// the entries, and the ends of two batches in which few of the threads have anything to do.
const WAYS_FACTOR: u32 = 20;
/// A batch is worked on for so long at most: a broker waits 30 minutes for an acknowledgement,
/// unless it is told otherwise (rabbitmq.com/docs/consumers, "delivery acknowledgement timeout").
const BATCH_MAX: Duration = Duration::from_secs(300);

/// The way to the coordinator, while a batch is worked off.
pub trait Line: Send {
    /// Sends a sign of life; it does not matter if it is lost.
    fn alive(&mut self, report: Report);
    /// Whether others have nothing to do.
    fn is_hungry(&mut self) -> bool;
    /// Whether the batch was taken away: another mover will carry it out.
    fn is_lost(&mut self) -> bool;
    /// A batch is begun under this lease, which hears of each sign of life of the coordinator that
    /// comes by itself.
    fn begin(&mut self, lease: &Arc<Lease>);
    /// Asks for a sign of life of the coordinator, where it has to be asked for.
    fn ask_for_sign(&mut self, lease: &Lease);
}

/// What is known of a batch while it is worked off.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// What was counted so far.
    pub counts: Counts,
    /// How long it took to open its trees.
    pub opening: Duration,
}

impl Seen {
    fn entries(&self) -> u64 {
        self.counts.same + self.counts.changed + self.counts.failed + self.counts.skipped()
    }

    /// Whether anything was done, so that leaving the rest is no step on the spot.
    fn has_begun(&self) -> bool {
        self.entries() + self.counts.bytes_copied + self.counts.bytes_compared > 0
    }

    /// Whether what is left, of a batch of the size `walk`, is worth the way to another mover, as
    /// far as can be told from what `took` so long.
    fn is_worth_leaving(&self, walk: u64, took: Duration) -> bool {
        if self.counts.walked == 0 || walk == 0 {
            return true;
        }
        let left = |of: u64, done: u64| of.saturating_sub(done) as f64 / done.max(1) as f64;
        // Where directories are listed long before their entries are done, the walk alone says too
        // little.
        let left = left(walk, self.counts.walked).max(left(self.counts.seen, self.entries()));
        took.as_secs_f64() * left > (self.opening * WAYS_FACTOR).as_secs_f64()
    }
}

/// What a watcher may ask of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'a> {
    /// Asked from outside to come to an end early.
    pub leave: &'a AtomicBool,
    /// Ends the batch at once.
    pub stop: &'a AtomicBool,
    /// Ends it early.
    pub yields: &'a AtomicBool,
    /// What it may change, and for how long.
    pub lease: &'a Lease,
    /// How much it is, in the unit of [`Counts::walked`].
    pub walk: u64,
}

/// Looks after a batch.
pub struct Watcher<'a> {
    watched: Watched<'a>,
    began: Instant,
    pulsed: Option<Instant>,
    signed: Option<Instant>,
    asked: Instant,
    pause: Duration,
}

impl<'a> Watcher<'a> {
    /// Looks after a batch that is begun at this moment.
    pub fn new(watched: Watched<'a>, now: Instant) -> Watcher<'a> {
        Watcher {
            watched,
            began: now,
            pulsed: None,
            signed: None,
            asked: now,
            pause: HUNGER_INTERVAL,
        }
    }

    /// A look at how far it is, and at the line; a few times a second. `report` makes a sign of
    /// life. Pauses are longer by up to `more` of their length, at most as long again.
    pub fn look(
        &mut self,
        line: &mut dyn Line,
        now: Instant,
        seen: &Seen,
        (report, more): (&dyn Fn(&Seen) -> Report, f64),
    ) {
        let Watched {
            leave,
            stop,
            yields,
            lease,
            walk,
        } = self.watched;
        let is_due = |last: Option<Instant>| last.is_none_or(|last| now - last >= SIGN_INTERVAL);
        if is_due(self.pulsed) {
            line.alive(report(seen));
            self.pulsed = Some(now);
        }
        if is_due(self.signed) || lease.wants_sign() {
            line.ask_for_sign(lease);
            self.signed = Some(now);
        }
        if line.is_lost() || lease.is_unheard() {
            lease.end(Over::Unwanted);
        }
        if lease.is_over() {
            stop.store(true, Relaxed);
        }
        let took = now - self.began;
        let may_yield = took >= BATCH_MIN && seen.has_begun() && seen.is_worth_leaving(walk, took);
        if may_yield && now - self.asked >= self.pause {
            yields.fetch_or(line.is_hungry(), Relaxed);
            (self.asked, self.pause) = (now, HUNGER_INTERVAL.mul_f64(1.0 + more));
        }
        if leave.load(Relaxed) || took >= BATCH_MAX {
            yields.store(true, Relaxed);
        }
    }
}
