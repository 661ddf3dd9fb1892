//! Carrying out shares on this host: opens the trees of a run, watches over each share while it is worked off, and knows when to come
//! to an end early.

use crate::again::{self, Earlier, Passed, Witness};
use crate::cli::{ReachArgs, ThrottleArgs};
use crate::output::lock;
use crate::reach::{self, Lines};
use crate::signals::Signals;
use driftless_engine::message::Report;
use driftless_engine::{Alive, Brief, Counts, End, Ends, Lease, Options, Outcome, Over, Progress, RunError, Share, work_off};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two looks at what is going on besides.
const TICK: Duration = Duration::from_millis(50);
/// Between two signs of life.
const PULSE: Duration = Duration::from_secs(1);
/// Between two questions whether others have nothing to do; the real pause is up to twice that, so that movers do not ask together.
const HUNGER: Duration = Duration::from_millis(250);
/// A share is worked on for so long before any of it is left to others.
const SHARE_MIN: Duration = Duration::from_millis(300);
/// What is left to others costs them about so many times what opening the trees does: the way to the entries, and the ends of two shares
/// in which few of the threads have anything to do.
const WAYS: u32 = 20;
/// A share is worked on for so long at most: a broker waits 30 minutes for an acknowledgement, unless it is told otherwise
/// (rabbitmq.com/docs/consumers, "delivery acknowledgement timeout").
const SHARE_MAX: Duration = Duration::from_secs(300);

/// The way to whoever coordinates, while a share is worked off.
pub trait Line: Send {
    /// Sends a sign of life; it does not matter if it is lost.
    fn alive(&mut self, report: Report);
    /// Whether others have nothing to do.
    fn is_hungry(&mut self) -> bool;
    /// Whether the share was taken away: somebody else will carry it out.
    fn is_lost(&mut self) -> bool;
    /// A share is begun under this lease, which hears of each sign of life of the coordinator that comes by itself.
    fn begin(&mut self, lease: &Arc<Lease>);
    /// Asks for a sign of life of the coordinator, where it has to be asked for.
    fn ask_for_sign(&mut self, lease: &Lease);
}

/// Why a share was not carried out.
#[derive(Debug)]
pub enum Failure {
    /// The share was taken away, or the mover was told to end at once.
    Dropped,
    /// It belongs to a run that holds the replica no longer, and why that is known. Nobody can carry it out.
    Stale(String),
    /// This host cannot carry it out now, and why.
    Here(String),
}

/// What carries shares out.
pub struct Crew {
    /// Who, for the coordinator's eyes.
    name: String,
    reach: ReachArgs,
    throttle: ThrottleArgs,
    signals: Signals,
    /// The trees of the last share's run.
    open: Option<Open>,
}

/// The trees of a run, and the lines to them.
struct Open {
    brief: Brief,
    options: Options,
    lines: Lines,
}

impl Crew {
    /// A crew without work.
    pub fn new(name: String, reach: ReachArgs, throttle: ThrottleArgs, signals: &Signals) -> Crew {
        Crew { name, reach, throttle, signals: signals.clone(), open: None }
    }

    /// Who it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Carries a share out. `leave` asks to come to an end early, leaving the rest to others.
    ///
    /// # Errors
    /// It was not carried out, and somebody else should.
    pub fn work_off(
        &mut self,
        (run, id): (u64, u64),
        (brief, share): (&Brief, &Share),
        line: &mut dyn Line,
        leave: &AtomicBool,
    ) -> Result<Outcome, Failure> {
        let mover = self.name.clone();
        let open = self.open(brief).map_err(Failure::Here)?;
        let (stop, yields, over) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        let (begins, seen) = (Mutex::new(Instant::now()), Mutex::new(Seen::default()));
        let watch = |progress: &Progress| {
            let opening = lock(&begins).elapsed().saturating_sub(progress.elapsed);
            *lock(&seen) = Seen { counts: progress.counts, opening };
        };
        let pulse = |seen: &Seen| Alive { run, id, mover: mover.clone(), counts: seen.counts };
        let lease = Arc::new(Lease::default());
        line.begin(&lease);
        let mut receipts = Vec::new();
        let pass = |options: &Options| {
            *lock(&begins) = Instant::now();
            let (mut outcome, end) = work_off(options, (brief, share), &watch, Ends { stop: &stop, yields: &yields, lease: Some(&lease) })?;
            receipts.append(&mut outcome.done);
            Ok(Passed { counts: outcome.counts, end, result: outcome })
        };
        let done = std::thread::scope(|scope| {
            let watcher = Watcher { line, leave, stop: &stop, yields: &yields, over: &over, lease: &lease, walk: share.walk };
            let watching = scope.spawn(|| watcher.watch(&seen, &pulse));
            let ticking = scope.spawn(|| lease.tick_until(&over));
            let looking = scope.spawn(|| lease.look_until(&over));
            let done = again::repeat((&mut open.options, &mut open.lines), &Told { stop: &stop, leave }, true, pass);
            over.store(true, Relaxed);
            [watching, ticking, looking].iter().for_each(|helper| helper.thread().unpark());
            done
        });
        let outcome =
            |passed: Passed<Outcome>, earlier: &Earlier| Outcome { counts: earlier.with(&passed.counts), done: receipts, ..passed.result };
        match done.map(|(passed, earlier)| (passed.end.clone(), outcome(passed, &earlier))) {
            Ok((End::Complete | End::Lost, outcome)) => Ok(outcome),
            Ok((End::CutOff(why), _)) => self.failed(format!("the connection was lost: {why}")),
            Ok(_) => self.stopped(lease.over()),
            Err(error @ RunError::NotHeld { .. }) => Err(Failure::Stale(error.to_string())),
            Err(error) => self.failed(error.to_string()),
        }
    }

    /// It was stopped before it came to its end.
    fn stopped(&mut self, over: Option<Over>) -> Result<Outcome, Failure> {
        match over {
            None | Some(Over::Unwanted) => Err(Failure::Dropped),
            Some(Over::NotHeld(why)) => Err(Failure::Stale(why)),
            Some(Over::OtherTree) => self.failed("the replica is not the one that the coordinator sees".into()),
            Some(Over::Unknown(why)) => self.failed(why),
        }
    }

    /// The next share opens the trees anew.
    fn failed(&mut self, why: String) -> Result<Outcome, Failure> {
        self.open = None;
        Err(Failure::Here(why))
    }

    /// The trees of a run, opened once as long as shares of the same run follow each other.
    fn open(&mut self, brief: &Brief) -> Result<&mut Open, String> {
        if !self.open.as_ref().is_some_and(|open| open.brief.is_of_one_run(brief)) {
            self.open = None;
            let (source, replica) = brief.trees();
            let mut options = brief.options(source.into(), replica.into()).map_err(|error| error.to_string())?;
            options.jobs = self.throttle.jobs;
            options.bytes_per_second_max = self.throttle.bwlimit;
            options.requests_per_second_max = self.throttle.iops_limit;
            let lines = reach::connect(&mut options, &self.reach, &self.signals).map_err(|(_, error)| error)?;
            self.open = Some(Open { brief: brief.clone(), options, lines });
        }
        Ok(self.open.as_mut().expect("it was opened above"))
    }
}

/// Whoever reads the log of a mover is told of its lines.
struct Told<'a> {
    stop: &'a AtomicBool,
    leave: &'a AtomicBool,
}

impl Witness for Told<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed) || self.leave.load(Relaxed)
    }

    fn line_lost(&self, why: &str, (_, patience): (Duration, Duration)) {
        eprintln!("driftless mover: {}", again::lost_words(why, patience));
    }

    fn line_made(&self, host: &str, after: Duration) {
        eprintln!("driftless mover: {}", again::made_words(host, after));
    }

    fn note(&self, text: &str) {
        eprintln!("driftless mover: {text}");
    }
}

/// What is known of a share while it is worked off.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    counts: Counts,
    /// How long it took to open its trees.
    opening: Duration,
}

impl Seen {
    fn entries(&self) -> u64 {
        self.counts.same + self.counts.changed + self.counts.failed + self.counts.skipped()
    }

    /// Whether anything was done, so that leaving the rest is no step on the spot.
    fn has_begun(&self) -> bool {
        self.entries() + self.counts.bytes_copied + self.counts.bytes_compared > 0
    }

    /// Whether what is left, of a share of the size `walk`, is worth the way to somebody else, as far as can be told from what `took` so
    /// long.
    fn is_worth_leaving(&self, walk: u64, took: Duration) -> bool {
        if self.counts.walked == 0 || walk == 0 {
            return true;
        }
        let left = |of: u64, done: u64| of.saturating_sub(done) as f64 / done.max(1) as f64;
        // Where directories are listed long before their entries are done, the walk alone says too little.
        let left = left(walk, self.counts.walked).max(left(self.counts.seen, self.entries()));
        took.as_secs_f64() * left > (self.opening * WAYS).as_secs_f64()
    }
}

/// Looks after a share that another thread works off.
struct Watcher<'a> {
    line: &'a mut dyn Line,
    leave: &'a AtomicBool,
    stop: &'a AtomicBool,
    yields: &'a AtomicBool,
    over: &'a AtomicBool,
    lease: &'a Lease,
    /// How much it is, in the unit of [`Counts::walked`].
    walk: u64,
}

impl Watcher<'_> {
    fn watch(self, seen: &Mutex<Seen>, pulse: &dyn Fn(&Seen) -> Alive) {
        let began = Instant::now();
        let (mut pulsed, mut asked, mut signed) = (began - PULSE, began, began - PULSE);
        let mut pause = HUNGER;
        while !self.over.load(Relaxed) {
            let seen = *lock(seen);
            if pulsed.elapsed() >= PULSE {
                self.line.alive(Report::Alive(pulse(&seen)));
                pulsed = Instant::now();
            }
            if signed.elapsed() >= PULSE || self.lease.wants_sign() {
                self.line.ask_for_sign(self.lease);
                signed = Instant::now();
            }
            if self.line.is_lost() || self.lease.is_unheard() {
                self.lease.end(Over::Unwanted);
            }
            if self.lease.is_over() {
                self.stop.store(true, Relaxed);
            }
            let may_yield = began.elapsed() >= SHARE_MIN && seen.has_begun() && seen.is_worth_leaving(self.walk, began.elapsed());
            if may_yield && asked.elapsed() >= pause {
                self.yields.fetch_or(self.line.is_hungry(), Relaxed);
                (asked, pause) = (Instant::now(), HUNGER.mul_f64(1.0 + fastrand::f64()));
            }
            if self.leave.load(Relaxed) || began.elapsed() >= SHARE_MAX {
                self.yields.store(true, Relaxed);
            }
            std::thread::park_timeout(TICK);
        }
    }
}
