//! Carrying out batches on this host: opens the trees of a run, and has a thread watch over each
//! batch while it is worked off.

use driftless_engine::message::Report;
use driftless_engine::{
    Alive, Batch, Brief, Ends, Failure, Known, Lease, Line, Options, Outcome, Progress, Seen,
    Watched, Watcher, carried, work_off,
};
use driftless_lock::Mutex;
use driftless_pool::Concurrency;
use driftless_remote::Reach;
use driftless_session::{
    Before, Connections, Earlier, Passed, Witness, connect, lost_words, made_words, repeat,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// Between two looks at what is going on besides.
const TICK: Duration = Duration::from_millis(50);

/// How hard a mover works.
#[derive(Debug, Clone)]
pub struct Throttle {
    /// Requests in flight.
    pub jobs: Concurrency,
    /// Bytes of content a second, read or written, whichever is more.
    pub bytes_per_second_max: Option<u64>,
    /// Entries and blocks a second.
    pub requests_per_second_max: Option<u64>,
}

/// How a mover reaches the hosts of a run's trees.
#[derive(Debug, Clone)]
pub struct Ways {
    /// How it connects to them.
    pub reach: Reach,
    /// How long it tries to make a lost connection again.
    pub patience: Duration,
}

/// What carries batches out on this host.
pub struct Executor {
    /// Who, for the coordinator's eyes.
    name: String,
    ways: Ways,
    throttle: Throttle,
    /// The trees of the last batch's run.
    open: Option<Open>,
}

/// The trees of a run, and the connections to them.
struct Open {
    brief: Brief,
    options: Options,
    connections: Connections,
    known: Known,
}

impl Executor {
    /// An executor without work, called `name` (host and process).
    pub fn new(name: String, ways: Ways, throttle: Throttle) -> Executor {
        Executor {
            name,
            ways,
            throttle,
            open: None,
        }
    }

    /// Who it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Carries a batch out. `leave` asks to come to an end early, leaving the rest to others.
    ///
    /// # Errors
    /// It was not carried out, and somebody else should.
    pub fn work_off(
        &mut self,
        (run, id): (u64, u64),
        (brief, batch): (&Brief, &Batch),
        line: &mut dyn Line,
        leave: &AtomicBool,
    ) -> Result<Outcome, Failure> {
        debug!(run, id, "takes a batch");
        let mover = self.name.clone();
        let open = self.open(brief).map_err(Failure::Here)?;
        let (stop, yields, over) = (
            AtomicBool::new(false),
            AtomicBool::new(false),
            AtomicBool::new(false),
        );
        let (begins, seen) = (Mutex::new(Instant::now()), Mutex::new(Seen::default()));
        let watch = |progress: &Progress| {
            let opening = begins.lock().elapsed().saturating_sub(progress.elapsed);
            *seen.lock() = Seen {
                counts: progress.counts,
                opening,
            };
        };
        let pulse = |seen: &Seen| {
            Report::Alive(Alive {
                run,
                id,
                mover: mover.clone(),
                counts: seen.counts,
            })
        };
        let lease = Arc::new(Lease::default());
        line.begin(&lease);
        let known = &mut open.known;
        let (mut receipts, mut earlier) = (Vec::new(), Earlier::default());
        let pass = |options: &mut Options, _: &Before<'_>| {
            *begins.lock() = Instant::now();
            let (mut outcome, end) = work_off(
                (options, &mut *known),
                (brief, batch),
                &watch,
                Ends {
                    stop: &stop,
                    yields: &yields,
                    leaves: leave,
                    lease: Some(&lease),
                },
            )?;
            receipts.append(&mut outcome.done);
            Ok(Passed {
                counts: outcome.counts,
                end,
                result: outcome,
            })
        };
        let watched = Watched {
            leave,
            stop: &stop,
            yields: &yields,
            lease: &lease,
            walk: batch.walk,
        };
        let watcher = Watcher::new(watched, Instant::now());
        let done = std::thread::scope(|scope| {
            let watching = scope.spawn(|| look_after(watcher, line, (&seen, &over), &pulse));
            let ticking = scope.spawn(|| lease.tick_until(&over));
            let looking = scope.spawn(|| lease.look_until(&over));
            let witness = Logged { stop: &stop, leave };
            let done = repeat(
                (&mut open.options, &mut open.connections),
                &witness,
                (&mut earlier, true),
                pass,
            );
            over.store(true, Relaxed);
            [watching, ticking, looking]
                .iter()
                .for_each(|helper| helper.thread().unpark());
            done
        });
        let outcome = |passed: Passed<Outcome>| {
            (
                Outcome {
                    counts: earlier.with(&passed.counts),
                    done: receipts,
                    ..passed.result
                },
                passed.end,
            )
        };
        let done = done.map(outcome);
        let carried = carried(done, lease.over());
        debug!(run, id, done = carried.is_ok(), "a batch is over");
        if let Err(Failure::Here(_)) = carried {
            // The next batch opens the trees anew.
            self.open = None;
        }
        carried
    }

    /// The trees of a run, opened once as long as batches of the same run follow each other.
    fn open(&mut self, brief: &Brief) -> Result<&mut Open, String> {
        if !self
            .open
            .as_ref()
            .is_some_and(|open| open.brief.is_of_one_run(brief))
        {
            self.open = None;
            let (source, replica) = brief.trees();
            let mut options = brief.options(source.into(), replica.into());
            options.jobs = self.throttle.jobs;
            options.bytes_per_second_max = self.throttle.bytes_per_second_max;
            options.requests_per_second_max = self.throttle.requests_per_second_max;
            let connections = connect(&mut options, &self.ways.reach, self.ways.patience)
                .map_err(|error| error.to_string())?;
            self.open = Some(Open {
                brief: brief.clone(),
                options,
                connections,
                known: Known::default(),
            });
        }
        Ok(self.open.as_mut().expect("it was opened above"))
    }
}

/// Has the log of a mover tell of its connections.
struct Logged<'a> {
    stop: &'a AtomicBool,
    leave: &'a AtomicBool,
}

impl Witness for Logged<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed) || self.leave.load(Relaxed)
    }

    fn connection_lost(&self, why: &str, _elapsed: Duration, patience: Duration) {
        warn!("{}", lost_words(why, patience));
    }

    fn connection_made(&self, host: &str, after: Duration) {
        info!("{}", made_words(host, after));
    }

    fn note(&self, text: &str) {
        info!("{text}");
    }
}

/// Looks after a batch until it is over.
fn look_after(
    mut watcher: Watcher<'_>,
    line: &mut dyn Line,
    (seen, over): (&Mutex<Seen>, &AtomicBool),
    report: &dyn Fn(&Seen) -> Report,
) {
    while !over.load(Relaxed) {
        let now_seen = *seen.lock();
        watcher.look(line, Instant::now(), &now_seen, (report, fastrand::f64()));
        std::thread::park_timeout(TICK);
    }
}
