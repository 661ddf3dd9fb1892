//! Carrying out shares on this host: opens the trees of a run, and has a thread watch over each share while it is worked off.

use crate::again::{self, Passed, Witness};
use crate::args::{ReachArgs, ThrottleArgs};
use crate::earlier::Earlier;
use crate::reach::{self, Lines};
use crate::signals::Signals;
use driftless_engine::message::Report;
use driftless_engine::{
    Alive, Brief, Ends, Failure, Lease, Line, Options, Outcome, Progress, Seen, Share, Watched, Watcher, carried, work_off,
};
use driftless_lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Between two looks at what is going on besides.
const TICK: Duration = Duration::from_millis(50);

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
            let opening = begins.lock().elapsed().saturating_sub(progress.elapsed);
            *seen.lock() = Seen { counts: progress.counts, opening };
        };
        let pulse = |seen: &Seen| Report::Alive(Alive { run, id, mover: mover.clone(), counts: seen.counts });
        let lease = Arc::new(Lease::default());
        line.begin(&lease);
        let mut receipts = Vec::new();
        let pass = |options: &Options| {
            *begins.lock() = Instant::now();
            let (mut outcome, end) =
                work_off(options, (brief, share), &watch, Ends { stop: &stop, yields: &yields, leaves: leave, lease: Some(&lease) })?;
            receipts.append(&mut outcome.done);
            Ok(Passed { counts: outcome.counts, end, result: outcome })
        };
        let watched = Watched { leave, stop: &stop, yields: &yields, lease: &lease, walk: share.walk };
        let watcher = Watcher::new(watched, Instant::now());
        let done = std::thread::scope(|scope| {
            let watching = scope.spawn(|| look_after(watcher, line, (&seen, &over), &pulse));
            let ticking = scope.spawn(|| lease.tick_until(&over));
            let looking = scope.spawn(|| lease.look_until(&over));
            let done = again::repeat((&mut open.options, &mut open.lines), &Told { stop: &stop, leave }, true, pass);
            over.store(true, Relaxed);
            [watching, ticking, looking].iter().for_each(|helper| helper.thread().unpark());
            done
        });
        let outcome =
            |passed: Passed<Outcome>, earlier: &Earlier| Outcome { counts: earlier.with(&passed.counts), done: receipts, ..passed.result };
        let done = done.map(|(passed, earlier)| {
            let end = passed.end.clone();
            (outcome(passed, &earlier), end)
        });
        let carried = carried(done, lease.over());
        if let Err(Failure::Here(_)) = carried {
            // The next share opens the trees anew.
            self.open = None;
        }
        carried
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
        eprintln!("driftless mover: {}", crate::output::lost_words(why, patience));
    }

    fn line_made(&self, host: &str, after: Duration) {
        eprintln!("driftless mover: {}", crate::output::made_words(host, after));
    }

    fn note(&self, text: &str) {
        eprintln!("driftless mover: {text}");
    }
}

/// Looks after a share until it is over.
fn look_after(mut watcher: Watcher<'_>, line: &mut dyn Line, (seen, over): (&Mutex<Seen>, &AtomicBool), report: &dyn Fn(&Seen) -> Report) {
    while !over.load(Relaxed) {
        let now_seen = *seen.lock();
        watcher.look(line, Instant::now(), &now_seen, (report, fastrand::f64()));
        std::thread::park_timeout(TICK);
    }
}
