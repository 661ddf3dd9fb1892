//! The life of a mirror: what is heard becomes dirty paths, lanes make them equal, and whoever asks
//! is told how far it is.
//!
//! One thread owns everything that is known; detectors, lanes and the control socket send it
//! messages. Nothing waits but that thread, and it waits for one thing: the next message, or the
//! next moment at which something is due.

mod cycle;

use crate::ask::{Answer, Ask, Asked, Reply};
use crate::deletes::Deletes;
use crate::dirty::{Circumstance, Dirty, DirtyPaths, Lane, Taken};
use crate::hands::{Ended, Hands, Outcome, Work, is_to_be_told};
use crate::job::{Detect, Job};
use crate::link_names::LinkNames;
use crate::memory::Memory;
use crate::message::{Inbox, Message};
use crate::snapshots::Snapshots;
use crate::status::{Problems, Status, Walked};
use crate::waits::{Wait, Waits};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use cycle::Cycle;
use driftless_detect::fanotify::{Unwatched, Watch};
use driftless_engine::Counts;
use driftless_model::{Change, Hint, RelPath, Scope};
use driftless_state::StateError;
use driftless_state::mirror::{RunCounts, RunKind};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// Messages of detectors that wait; a detector that is ahead waits, and the kernel keeps its
/// events.
const HEARD_WAITING_MAX: usize = 64;
/// Entries that are made equal in one go.
const SHORT_PATHS_MAX: usize = 2000;
/// After trees were out of reach, they are tried again after this, then after twice as long.
const AWAY_FIRST: Duration = Duration::from_secs(1);
/// The longest wait for trees that are out of reach.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// All is compared again because of a doubt after so many times what the last comparison took.
const DOUBT_PAUSES: u32 = 10;
/// And no sooner than after this.
const DOUBT_PAUSE_MIN: Duration = Duration::from_secs(5);
/// How often the mark says that all is durable, while nothing is to be done.
const SETTLE_EVERY: Duration = Duration::from_secs(300);
/// A path that has been dirty for no longer is not remembered yet.
const YOUNG: Duration = Duration::from_secs(1);
/// The longest wait for a message: then it is looked whether the mirror is to stop.
const TICK: Duration = Duration::from_secs(1);

/// What time it is, since 1970: as it was when the mirror began, and what has passed since. A clock
/// that is set meanwhile makes no lag.
pub fn now() -> Duration {
    static BEGAN: LazyLock<(Duration, Instant)> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        (since.unwrap_or_default(), Instant::now())
    });
    BEGAN.0 + BEGAN.1.elapsed()
}

/// A mirror at work.
pub struct Live {
    job: Job,
    hands: Arc<Hands>,
    dirty: DirtyPaths,
    inbox: Receiver<Message>,
    lanes: BTreeMap<Lane, Sender<Work>>,
    busy: BTreeMap<Lane, usize>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// Wakes the detector that waits for events.
    watcher: Option<Arc<driftless_detect::fanotify::Waker>>,
    /// What is done with snapshots, where changes are found by them.
    cycle: Option<Cycle>,
    waits: Waits,
    is_paused: bool,
    /// Who asked for the pause, and waits until it has begun.
    pausing: Vec<Reply>,
    away: Option<Away>,
    walked: Walked,
    /// When all is to be compared because something is in doubt.
    doubt: Option<Duration>,
    links: LinkNames,
    deletes: Deletes,
    memory: Memory,
    heard_until: Duration,
    problems: Problems,
    status: Status,
    is_unsettled: bool,
    settled_at: Duration,
}

/// How a mirror finds out what has changed, beside comparing all.
#[derive(Default)]
pub struct Detectors {
    /// By what the kernel tells.
    pub watch: Option<Watch>,
    /// By snapshots.
    pub snapshots: Option<Snapshots>,
}

/// Why a mirror does not begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// What an earlier life left cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The trees are out of reach.
struct Away {
    why: String,
    again: Duration,
    pause: Duration,
}

impl Live {
    /// Begins to hear of changes, and to work. `stop` ends it, cleanly.
    ///
    /// # Errors
    /// A thread cannot be started, or what an earlier life left cannot be read.
    pub fn begin(
        job: Job,
        (hands, memory): (Hands, Memory),
        detectors: Detectors,
        stop: Arc<AtomicBool>,
    ) -> Result<(Live, Inbox), BeginError> {
        let (outbox, inbox) = bounded(HEARD_WAITING_MAX);
        let (settle, began) = (job.live.settle, now());
        let deletes = Deletes::new(job.policy.delete_limit);
        let mut live = Live {
            status: Status::new(&job, began),
            job,
            hands: Arc::new(hands),
            dirty: DirtyPaths::new(settle),
            inbox,
            lanes: BTreeMap::new(),
            busy: BTreeMap::new(),
            threads: Vec::new(),
            stop,
            watcher: None,
            cycle: None,
            waits: Waits::default(),
            is_paused: false,
            pausing: Vec::new(),
            away: None,
            walked: Walked::default(),
            doubt: None,
            links: LinkNames::default(),
            deletes,
            memory,
            heard_until: began,
            problems: Problems::default(),
            is_unsettled: false,
            settled_at: began,
        };
        for (lane, threads) in [(Lane::Short, 1), (Lane::Long, 2), (Lane::Walk, 1)] {
            live.start_lane(lane, threads, &outbox)?;
        }
        if let Some(watch) = detectors.watch {
            live.watcher = Some(watch.waker());
            live.start_watch(watch, &outbox)?;
        }
        for (path, dirty) in live.memory.left()? {
            live.dirty.add_again(path, dirty);
        }
        live.problems = live.memory.problems()?;
        live.is_paused = live.memory.is_paused()?;
        live.walked.seen = live.memory.entries()?;
        match detectors.snapshots {
            Some(snapshots) => live.start_cycles(snapshots, &outbox)?,
            None => {
                live.memory.leave_snapshots(began);
                live.walk(began);
            }
        }
        Ok((live, Inbox::new(outbox)))
    }

    fn start_lane(
        &mut self,
        lane: Lane,
        threads: usize,
        outbox: &Sender<Message>,
    ) -> std::io::Result<()> {
        let (work, works) = unbounded::<Work>();
        for _ in 0..threads {
            let (hands, stop) = (self.hands.clone(), self.stop.clone());
            let (works, outbox) = (works.clone(), outbox.clone());
            let thread = Builder::new()
                .name(format!("{lane:?}").to_lowercase())
                .spawn(move || {
                    for work in works {
                        let outcome = hands.carry_out(work, &stop);
                        let _nobody_listens_at_the_end =
                            outbox.send(Message::Done(Box::new(outcome)));
                    }
                })?;
            self.threads.push(thread);
        }
        self.busy.insert(lane, 0);
        self.lanes.insert(lane, work);
        Ok(())
    }

    fn start_watch(&mut self, watch: Watch, outbox: &Sender<Message>) -> std::io::Result<()> {
        let (stop, outbox) = (self.stop.clone(), outbox.clone());
        let hear = move || {
            if let Err(error) = hear(watch, &outbox, &stop) {
                let _nobody_listens_at_the_end = outbox.send(Message::Deaf(error.to_string()));
            }
        };
        let thread = Builder::new().name("fanotify".into()).spawn(hear)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Works until it is to stop.
    pub fn run(mut self) {
        while !self.stop.load(Relaxed) {
            self.begin_work();
            self.wait();
            self.remember();
        }
        self.end();
    }

    /// Waits for a message, or for what is due.
    fn wait(&mut self) {
        let now = now();
        let due = [self.next_work(now), self.waits.next_deadline()];
        let wait = due
            .into_iter()
            .flatten()
            .map(|due| due.saturating_sub(now))
            .min()
            .map_or(TICK, |wait| wait.min(TICK));
        match self.inbox.recv_timeout(wait) {
            Ok(message) => self.take_in(message),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        // What waits already belongs to the same batch.
        while let Ok(message) = self.inbox.try_recv() {
            self.take_in(message);
        }
        self.answer_waits();
    }

    /// Saves now and then what is known. What is done within a second need not be known later.
    fn remember(&mut self) {
        let now = now();
        let is_live = self.cycle.is_none();
        if is_live && self.dirty.is_empty() && self.walked.ended.is_some() {
            self.memory.equal_until(self.heard_until);
        }
        if self.memory.is_due(now) {
            let mut dirty = self.dirty.all();
            dirty.retain(|_, one| !is_live || now.saturating_sub(one.since) >= YOUNG);
            let _it_is_tried_again = self.memory.save(now, dirty, &self.problems);
        }
    }

    fn take_in(&mut self, message: Message) {
        let now = now();
        match message {
            Message::Heard(seen) => {
                self.status.heard(seen.len());
                for seen in seen {
                    let circumstance = Circumstance {
                        is_open: seen.is_open,
                        size: seen.size,
                    };
                    self.add(now, seen.change, circumstance);
                }
            }
            Message::HeardUntil(moment) => {
                self.heard_until = moment;
                self.waits.heard_until(moment, now);
                self.dirty.heard_until(moment);
            }
            Message::Missed => {
                self.status.missed();
                self.walk(now);
            }
            Message::Deaf(why) => {
                tracing::error!("{why}: from here on only walks find what changes");
                self.status.deaf = Some(why);
            }
            Message::Told(told) => self.take_told(now, told),
            Message::Done(outcome) => self.take_outcome(now, *outcome),
            Message::Asked(asked) => self.take_question(now, asked),
        }
    }

    /// A change was heard of: what happens to a file under one name happens under all of them.
    fn add(&mut self, now: Duration, change: Change, circumstance: Circumstance) {
        if let Some(Hint::MovedFrom(from)) = &change.hint {
            self.links.renamed(from, &change.path);
            self.problems.renamed(from);
        }
        let names = self
            .links
            .of(&change.path)
            .filter(|name| **name != change.path);
        for name in names.cloned().collect::<Vec<_>>() {
            self.dirty.add(now, Change::entry(name), circumstance);
        }
        self.dirty.add(now, change, circumstance);
    }

    /// All of both trees is compared.
    fn walk(&mut self, now: Duration) {
        (self.walked.asked, self.doubt) = (Some(now), None);
        let all = Change::subtree(RelPath::root());
        self.dirty.add(now, all, Circumstance::default());
    }

    /// When there is something to do next, unless nothing may be done.
    fn next_work(&self, now: Duration) -> Option<Duration> {
        if self.is_paused {
            return None;
        }
        if let Some(away) = &self.away {
            return Some(away.again);
        }
        let walk = self.next_walk().into_iter().chain(self.next_cycle());
        let due = self
            .dirty
            .next_due()
            .filter(|_| self.busy[&Lane::Short] == 0);
        // What is due in a lane that is busy waits for the lane's message.
        due.into_iter().chain(walk).filter(|due| *due > now).min()
    }

    fn next_walk(&self) -> Option<Duration> {
        // Where snapshots tell all, a job may do without.
        let is_on_time = self.cycle.is_none() || self.job.detects_by(Detect::Walk);
        let on_time = self
            .job
            .walk
            .every
            .filter(|_| is_on_time)
            .zip(self.walked.asked)
            .map(|(every, asked)| asked + every);
        on_time.into_iter().chain(self.doubt).min()
    }

    fn begin_work(&mut self) {
        let now = now();
        if self.next_walk().is_some_and(|due| due <= now) {
            self.walk(now);
        }
        let is_away = self.away.as_ref().is_some_and(|away| away.again > now);
        if self.is_paused || is_away || !self.turn_cycle(now) {
            return;
        }
        for (lane, threads, paths_max) in [
            (Lane::Short, 1, SHORT_PATHS_MAX),
            (Lane::Long, 2, 1),
            (Lane::Walk, 1, 1),
        ] {
            // One piece of work finds out whether the trees are there.
            while self.busy[&lane] < threads && !(self.away.is_some() && self.is_busy()) {
                let taken = self.dirty.take(now, lane, paths_max);
                if taken.is_empty() {
                    break;
                }
                if lane == Lane::Walk {
                    self.memory.begin_run(RunKind::Walk, now);
                }
                *self.busy.get_mut(&lane).expect("all lanes are known") += 1;
                let delete_limit = self.deletes.limit(now, lane, &self.walked);
                let work = Work {
                    taken,
                    delete_limit,
                };
                let sent = self.lanes[&lane].send(work);
                sent.expect("lanes end after this thread");
            }
        }
        self.settle_when_idle(now);
    }

    fn is_busy(&self) -> bool {
        self.busy.values().any(|count| *count > 0)
    }

    /// Says in the replica's mark that all is durable, now and then.
    fn settle_when_idle(&mut self, now: Duration) {
        let is_time = now.saturating_sub(self.settled_at) >= SETTLE_EVERY;
        if !self.is_unsettled || !is_time || self.is_busy() {
            return;
        }
        self.settle(now);
    }

    fn settle(&mut self, now: Duration) {
        (self.is_unsettled, self.settled_at) = (false, now);
        if let Err(why) = self.hands.settle() {
            self.go_away(now, why);
            // So that it is seen when they are back.
            self.walk(now);
        }
    }

    fn take_outcome(&mut self, now: Duration, outcome: Outcome) {
        *self
            .busy
            .get_mut(&outcome.taken.lane)
            .expect("all lanes are known") -= 1;
        self.is_unsettled = true;
        self.take_end(now, outcome);
        self.let_go(now);
    }

    fn take_end(&mut self, now: Duration, outcome: Outcome) {
        if let Ended::Away(why) = &outcome.end {
            self.go_away(now, why.clone());
        }
        if outcome.end != Ended::Done {
            self.dirty.give_back(now, outcome.taken);
            return;
        }
        self.come_back(now);
        if outcome.taken.lane == Lane::Walk {
            self.end_walk(now, &outcome);
        }
        self.learn_links(now, &outcome);
        for renamed in &outcome.not_moved {
            self.dirty.not_moved(renamed);
        }
        let failed = outcome.failed();
        self.status.add(&outcome.counts);
        self.count_cycle(&outcome.counts);
        if outcome.taken.lane != Lane::Walk {
            self.deletes.add(now, outcome.counts.deleted);
        }
        let paths = looked_at(&outcome.taken);
        let told = outcome.problems.into_iter().filter(is_to_be_told);
        self.problems.replace(now, &paths, told.collect());
        let counts = outcome.counts;
        let waited = self.dirty.done(now, outcome.taken, &failed);
        self.status.lag(now, &waited);
        self.memory.done(now, &counts, &waited);
    }

    /// Learns which files have several names. Those that were not looked at together are, and where
    /// not all are known, all is compared, though not all the time.
    fn learn_links(&mut self, now: Duration, outcome: &Outcome) {
        let looked_at = looked_at(&outcome.taken);
        let is_walk = outcome.taken.lane == Lane::Walk;
        let together = self.links.met(&looked_at, &outcome.linked, is_walk);
        for name in together {
            // All at the same time: the pace of each would keep them apart.
            let dirty = Dirty::new(Scope::Entry, now, now);
            self.dirty.add_again(name, dirty);
        }
        if !self.links.is_in_doubt() {
            self.doubt = None;
        } else if self.cycle.is_some() {
            // When all else is done.
            self.doubt = Some(Duration::MAX);
        } else if self.doubt.is_none() {
            let pause = (self.walked.took * DOUBT_PAUSES).max(DOUBT_PAUSE_MIN);
            let last = self.walked.ended.unwrap_or_default();
            self.doubt = Some(now.max(last + pause));
        }
    }

    /// Counts what a walk has found that a detector should have told of.
    fn end_walk(&mut self, now: Duration, outcome: &Outcome) {
        let is_first = self.walked.ended.is_none();
        let missed = outcome
            .changed
            .iter()
            .filter(|path| !is_first && !self.dirty.has_heard_of(path));
        let missed = if self.watcher.is_some() || self.cycle.is_some() {
            missed.count() as u64
        } else {
            0
        };
        self.walked.end(now, &outcome.counts, missed);
        let counts = RunCounts {
            missed,
            ..counts_of(&outcome.counts)
        };
        self.memory.end_run(RunKind::Walk, now, &counts, "complete");
    }

    fn go_away(&mut self, now: Duration, why: String) {
        let pause = match &self.away {
            Some(away) => (away.pause * 2).min(AWAY_MAX),
            None => {
                tracing::warn!("out of reach: {why}");
                AWAY_FIRST
            }
        };
        let again = now + pause;
        self.away = Some(Away { why, again, pause });
    }

    fn come_back(&mut self, now: Duration) {
        if self.away.take().is_some() {
            tracing::info!("within reach again");
            // Nobody knows what became of the replica meanwhile.
            self.walk(now);
        }
    }

    fn take_question(&mut self, now: Duration, asked: Asked) {
        let answer = match asked.ask {
            Ask::Status => Answer::Status(Box::new(self.status(now))),
            Ask::Problems => Answer::Problems(self.problems.all()),
            Ask::Pause => {
                self.is_paused = true;
                self.memory.pause(now, true);
                self.pausing.push(asked.reply);
                self.let_go(now);
                return;
            }
            Ask::Resume => {
                self.is_paused = false;
                self.memory.pause(now, false);
                Answer::Done
            }
            Ask::Retry { path } => self.retry(now, path),
            Ask::SyncNow { wait } => {
                self.look_now(now);
                self.dirty.hurry(now);
                if wait {
                    self.begin_wait(now, Wait::for_all(asked.reply, now, None));
                    return;
                }
                Answer::Done
            }
            Ask::Barrier { timeout } => {
                self.begin_barrier(now, Wait::for_all(asked.reply, now, timeout));
                return;
            }
        };
        asked.reply.give(answer);
    }

    /// A mirror that is paused holds neither of its trees once it has done what it was at.
    fn let_go(&mut self, now: Duration) {
        if self.pausing.is_empty() || self.is_busy() {
            return;
        }
        self.settle(now);
        self.hands.close();
        for reply in self.pausing.drain(..) {
            reply.give(Answer::Done);
        }
    }

    fn retry(&mut self, now: Duration, path: Option<Vec<u8>>) -> Answer {
        let path = path.map(|bytes| RelPath::parse(&bytes)).transpose();
        match path {
            Ok(path) => Answer::Retried(self.dirty.retry_now(now, path.as_ref()) as u64),
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    /// Everything that happened before is to be on the replica: what detectors have not told yet,
    /// too.
    fn begin_barrier(&mut self, now: Duration, wait: Wait) {
        match &self.watcher {
            Some(watcher) => {
                watcher.wake();
                self.waits.add(wait);
            }
            None => {
                self.look_now(now);
                self.begin_wait(now, wait);
            }
        }
        self.dirty.hurry(now);
    }

    /// What has changed is looked for: in a new snapshot, or by comparing all.
    fn look_now(&mut self, now: Duration) {
        match &mut self.cycle {
            Some(cycle) => cycle.hurry(now),
            None => self.walk(now),
        }
    }

    /// Somebody waits for what is looked for now.
    fn begin_wait(&mut self, now: Duration, wait: Wait) {
        self.waits.add(wait);
        if self.cycle.is_none() {
            self.waits.heard_until(now, now);
        }
    }

    fn answer_waits(&mut self) {
        let now = now();
        let dirty = &self.dirty;
        let is_doubtful = self.doubt.is_some();
        let is_done = |wait: &Wait| {
            let is_equal = |until| !is_doubtful && !dirty.waits_since(until);
            wait.until.is_some_and(is_equal)
        };
        let problems = self.problems.count() as u64;
        for wait in self.waits.take_done(is_done) {
            wait.reply.give(Answer::Reached { problems });
        }
        for wait in self.waits.take_late(now) {
            let left = self.dirty.len() as u64;
            wait.reply.give(Answer::Late { left });
        }
        if !self.waits.is_empty() {
            self.dirty.hurry(now);
            // A cycle sees to it when all else is done.
            if self.cycle.is_none() {
                self.doubt = self.doubt.map(|doubt| doubt.min(now));
            }
        }
    }

    fn status(&self, now: Duration) -> Status {
        let mut status = self.status.clone();
        status.oldest = self.dirty.oldest();
        status.left = self.dirty.len() as u64;
        status.quarantined = self.dirty.quarantined().count() as u64;
        status.problems = self.problems.count() as u64;
        status.walk = self.walked.clone();
        status.is_walking = self.busy[&Lane::Walk] > 0;
        status.is_paused = self.is_paused;
        status.away = self.away.as_ref().map(|away| away.why.clone());
        if let Some(cycle) = &self.cycle {
            let equal = cycle.equal().unwrap_or(status.began);
            status.oldest = Some(status.oldest.map_or(equal, |oldest| oldest.min(equal)));
            status.cycle = Some(cycle.now());
        }
        status.forgets = self.memory.failed().map(str::to_owned);
        status.now = now;
        status.measured()
    }

    /// What is in work is over soon, since it hears of the stop as well.
    fn end(mut self) {
        self.lanes.clear();
        if let Some(watcher) = &self.watcher {
            watcher.wake();
        }
        while self.is_busy() {
            match self.inbox.recv() {
                Ok(Message::Done(outcome)) => self.take_outcome(now(), *outcome),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        // The detector may wait for room for its last word.
        while self.inbox.try_recv().is_ok() {}
        drop(self.inbox);
        if let Err(why) = self.hands.settle() {
            tracing::warn!("{why}");
        }
        let _it_was_told = self.memory.save(now(), self.dirty.all(), &self.problems);
        for thread in self.threads {
            let _its_panic_was_told = thread.join();
        }
    }
}

/// As the state keeps them.
fn counts_of(counts: &Counts) -> RunCounts {
    RunCounts {
        seen: counts.seen,
        changed: counts.changed,
        deleted: counts.deleted,
        failed: counts.failed,
        bytes: counts.bytes_copied,
        missed: 0,
    }
}

/// What was looked at, and how far below.
fn looked_at(taken: &Taken) -> Vec<(RelPath, Scope)> {
    let paths = taken.paths.iter();
    paths
        .map(|(path, dirty)| (path.clone(), dirty.scope))
        .collect()
}

/// Hears of changes until the mirror is to stop.
fn hear(mut watch: Watch, outbox: &Sender<Message>, stop: &AtomicBool) -> Result<(), Unwatched> {
    while !stop.load(Relaxed) {
        let before = now();
        let heard = watch.hear(Duration::ZERO)?;
        let told = if heard.events == 0 {
            let told = outbox.send(Message::HeardUntil(before));
            watch.wait()?;
            told
        } else {
            let missed = heard.is_overflown;
            let told = outbox.send(Message::Heard(heard.seen));
            if missed {
                tracing::warn!("the kernel's queue of events was full: all is compared");
                told.and(outbox.send(Message::Missed))
            } else {
                told
            }
        };
        if told.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
