//! Carrying out batches on this host: opens the trees of a run, and has a thread watch over each
//! batch while it is worked off.

use crate::ids::id_maps;
use driftless_engine::message::Report;
use driftless_engine::{
    Alive, Batch, Brief, End, Ends, Failure, Known, Lease, Line, Options, Outcome, Progress,
    RunError, Seen, Throttle, Watched, Watcher, carried, work_off,
};
use driftless_lock::Mutex;
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
    /// User namespace of this process.
    id_maps: String,
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
            id_maps: id_maps(),
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
    /// It was not carried out here; another mover should try.
    pub fn work_off(
        &mut self,
        (run, id): (u64, u64),
        (brief, batch): (&Brief, &Batch),
        line: &mut dyn Line,
        leave: &AtomicBool,
    ) -> Result<Outcome, Failure> {
        debug!(run, id, "takes a batch");
        if let Some(why) = brief.other_ids(&self.id_maps) {
            return Err(Failure::Misfit(why));
        }
        let mover = self.name.clone();
        let report = |seen: &Seen| {
            Report::Alive(Alive {
                run,
                id,
                mover: mover.clone(),
                counts: seen.counts,
            })
        };
        let open = self.open(brief)?;
        let care = Care::new(leave);
        line.begin(&care.lease);
        let watcher = Watcher::new(care.watched(batch), Instant::now());
        let done = care.while_looked_after((watcher, line), &report, || {
            open.work_off(brief, batch, &care)
        });
        let carried = carried(done, care.lease.over());
        debug!(run, id, done = carried.is_ok(), "a batch is over");
        if let Err(Failure::Here(_)) = carried {
            // The next batch opens the trees anew.
            self.open = None;
        }
        carried
    }

    /// The trees of a run, opened once as long as batches of the same run follow each other.
    fn open(&mut self, brief: &Brief) -> Result<&mut Open, Failure> {
        if !self
            .open
            .as_ref()
            .is_some_and(|open| open.brief.is_of_one_run(brief))
        {
            self.open = None;
            let (source, replica) = brief.trees();
            let mut options = brief.options(source.into(), replica.into());
            options.throttle = self.throttle;
            let connections = connect(&mut options, &self.ways.reach, self.ways.patience)
                .map_err(|error| Failure::Here(error.to_string()))?;
            if let Some(why) = brief.other_machine([&options.source, &options.replica]) {
                return Err(Failure::Here(why));
            }
            if options.applies() && options.replica.is_read_only_here() {
                let why = "this mover cannot write to the replica: its file system is read-only on the mover's host; mount it read-write there";
                return Err(Failure::Misfit(why.into()));
            }
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

impl Open {
    /// Carries a batch out, in as many passes as its connections take.
    fn work_off(
        &mut self,
        brief: &Brief,
        batch: &Batch,
        care: &Care<'_>,
    ) -> Result<(Outcome, End), RunError> {
        let (mut receipts, mut earlier) = (Vec::new(), Earlier::default());
        let known = &mut self.known;
        let pass = |options: &mut Options, _: &Before<'_>| {
            care.begin_pass();
            let (mut outcome, end) = work_off(
                (options, &mut *known),
                (brief, batch),
                &|progress| care.note(progress),
                care.ends(),
            )?;
            receipts.append(&mut outcome.done);
            Ok(Passed {
                counts: outcome.counts,
                end,
                result: outcome,
            })
        };
        let witness = Logged {
            stop: &care.stop,
            leave: care.leave,
        };
        let passed = repeat(
            (&mut self.options, &mut self.connections),
            &witness,
            (&mut earlier, true),
            pass,
        )?;
        let outcome = Outcome {
            counts: earlier.with(&passed.counts),
            done: receipts,
            ..passed.result
        };
        Ok((outcome, passed.end))
    }
}

/// What the threads of one batch share: how far it is, and how it is told to end.
struct Care<'a> {
    /// Asked from outside to come to an end early.
    leave: &'a AtomicBool,
    stop: AtomicBool,
    yields: AtomicBool,
    /// The batch is over, and its other threads end.
    over: AtomicBool,
    /// When its last pass began.
    begins: Mutex<Instant>,
    seen: Mutex<Seen>,
    lease: Arc<Lease>,
}

impl<'a> Care<'a> {
    fn new(leave: &'a AtomicBool) -> Self {
        Care {
            leave,
            stop: AtomicBool::new(false),
            yields: AtomicBool::new(false),
            over: AtomicBool::new(false),
            begins: Mutex::new(Instant::now()),
            seen: Mutex::new(Seen::default()),
            lease: Arc::new(Lease::default()),
        }
    }

    fn begin_pass(&self) {
        *self.begins.lock() = Instant::now();
    }

    fn note(&self, progress: &Progress) {
        let opening = self
            .begins
            .lock()
            .elapsed()
            .saturating_sub(progress.elapsed);
        *self.seen.lock() = Seen {
            counts: progress.counts,
            opening,
        };
    }

    fn ends(&self) -> Ends<'_> {
        Ends {
            stop: &self.stop,
            yields: &self.yields,
            leaves: self.leave,
            lease: Some(&self.lease),
        }
    }

    fn watched(&self, batch: &Batch) -> Watched<'_> {
        Watched {
            leave: self.leave,
            stop: &self.stop,
            yields: &self.yields,
            lease: &self.lease,
            walk: batch.walk,
        }
    }

    /// Has `work` done while other threads look after the batch.
    fn while_looked_after<T>(
        &self,
        (watcher, line): (Watcher<'_>, &mut dyn Line),
        report: &(dyn Fn(&Seen) -> Report + Sync),
        work: impl FnOnce() -> T,
    ) -> T {
        std::thread::scope(|scope| {
            let helpers = [
                scope.spawn(|| self.look(watcher, line, report)),
                scope.spawn(|| self.lease.tick_until(&self.over)),
                scope.spawn(|| self.lease.look_until(&self.over)),
            ];
            let done = work();
            self.over.store(true, Relaxed);
            helpers.iter().for_each(|helper| helper.thread().unpark());
            done
        })
    }

    /// Looks after the batch until it is over.
    fn look(
        &self,
        mut watcher: Watcher<'_>,
        line: &mut dyn Line,
        report: &dyn Fn(&Seen) -> Report,
    ) {
        while !self.over.load(Relaxed) {
            let seen = *self.seen.lock();
            watcher.look(line, Instant::now(), &seen, (report, fastrand::f64()));
            std::thread::park_timeout(TICK);
        }
        // Nobody hears of the outcome of a batch that was taken away.
        if self.lease.is_over() {
            let seen = *self.seen.lock();
            line.alive(report(&seen));
        }
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
