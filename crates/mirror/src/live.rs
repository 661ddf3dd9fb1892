//! The life of one replica: what is heard becomes dirty paths, lanes make them equal, and whoever
//! asks is told how far it is.
//!
//! One thread owns everything that is known; detectors, lanes and the control socket send it
//! messages. Nothing waits but that thread, and it waits for one thing: the next message, or the
//! next moment at which something is due.

mod answer;
mod beside;
mod cycle;
mod missed;
mod mounts;
mod names;
pub(crate) mod pool;
mod untold;
mod work;

use crate::alarm::{Alarms, Caller};
use crate::ask::Reply;
use crate::clock::now;
use crate::deletes::Deletes;
use crate::dirty::{Circumstance, Dirty, DirtyPaths, Lane};
use crate::gaps::Gaps;
use crate::hands::{Hands, Work};
use crate::hearing::Hearing;
use crate::herald::{Crier, Desk, Herald};
use crate::job::Job;
use crate::lanes::{self, Equipment, LANES};
use crate::last_job;
use crate::link_names::LinkNames;
use crate::memory::Memory;
use crate::message::{Inbox, Message};
use crate::pulse::Pulse;
use crate::snapshots::Snapshots;
use crate::status::{Problems, Status, Walked};
use crate::trash::Trash;
use crate::waits::Waits;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use cycle::Cycle;
use driftless_model::{Change, Hint, RelPath, SNAPSHOTS, Scope};
use driftless_remote::Target;
use driftless_state::StateError;
pub use pool::Pool;
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use work::Away;

/// Messages of detectors that wait; a detector that is ahead waits, and the kernel keeps its
/// events.
const HEARD_WAITING_MAX: usize = 64;
/// A path that has been dirty for no longer is not remembered yet.
const YOUNG: Duration = Duration::from_secs(1);
/// The longest wait for a message: then it is looked whether the mirror is to stop.
const TICK: Duration = Duration::from_secs(1);

/// One replica that is kept equal.
pub struct Live {
    job: Job,
    hands: Arc<Hands>,
    dirty: DirtyPaths,
    inbox: Receiver<Message>,
    lanes: BTreeMap<Lane, Sender<Work>>,
    busy: BTreeMap<Lane, usize>,
    /// Of the work of the short lane, what was made equal and is being written out.
    unwritten: usize,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// Has lanes give back what they are at.
    interrupt: Arc<AtomicBool>,
    /// What was heard from each detector.
    hearing: Hearing,
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
    gaps: Gaps,
    trash: Option<Trash>,
    /// Tells others what was changed.
    crier: Option<Crier>,
    memory: Memory,
    heard_until: Duration,
    problems: Problems,
    alarms: Alarms,
    /// Where alarms are told.
    on_problem: Option<Caller>,
    /// Says that this thread goes on.
    pub(crate) pulse: Pulse,
    status: Status,
    is_unsettled: bool,
    settled_at: Duration,
    /// When it was looked last whether the paths of both trees lead to what is open.
    looked_at: Duration,
    /// What was mounted below them then.
    mounts: mounts::Mounts,
    /// Who else works on the replica.
    pool: Option<Pool>,
}

/// What a life begins with.
pub struct Beginning {
    /// The job, with this replica alone.
    pub job: Job,
    /// Its trees.
    pub hands: Hands,
    /// What an earlier life has left.
    pub memory: Memory,
    /// Who makes snapshots, where changes are found by them.
    pub snapshots: Option<Snapshots>,
    /// Where alarms are told.
    pub on_problem: Option<Caller>,
    /// Who tells others what was changed.
    pub herald: Option<Box<dyn Herald>>,
    /// Where others may work on the replica at the same time, by which side of the pool it is.
    pub pool: Option<Pool>,
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

impl Live {
    /// Begins to hear of changes, and to work. `hearing` knows who tells of them; `stop` ends
    /// the life, cleanly.
    ///
    /// # Errors
    /// A thread cannot be started, or what an earlier life left cannot be read.
    pub fn begin(
        beginning: Beginning,
        hearing: Hearing,
        stop: Arc<AtomicBool>,
    ) -> Result<(Live, Inbox), BeginError> {
        let Beginning {
            job,
            mut hands,
            mut memory,
            snapshots,
            on_problem,
            herald,
            mut pool,
        } = beginning;
        hands.tells = herald.is_some();
        let place = herald.as_ref().map(|herald| herald.place());
        let is_member = pool.as_mut().is_some_and(|pool| pool.announces(place));
        // What members did in earlier lives their lead knows of.
        let has_told_all = memory.begin_to_tell()? || is_member;
        let (outbox, inbox) = bounded(HEARD_WAITING_MAX);
        let (settle, began) = (job.live.settle, now());
        let deletes = Deletes::new(job.policy.delete_limit);
        let source = hands.watched.as_ref().map(OwnedFd::try_clone);
        let gaps = Gaps::of(&job, source.transpose()?);
        let mut live = Live {
            status: Status::new(&job, began),
            job,
            links: LinkNames::seeking(hands.sought.clone()),
            hands: Arc::new(hands),
            dirty: DirtyPaths::new(settle),
            inbox,
            lanes: BTreeMap::new(),
            busy: BTreeMap::new(),
            unwritten: 0,
            threads: Vec::new(),
            stop,
            interrupt: Arc::default(),
            hearing,
            cycle: None,
            waits: Waits::default(),
            is_paused: false,
            pausing: Vec::new(),
            away: None,
            walked: Walked::default(),
            doubt: None,
            deletes,
            gaps,
            trash: None,
            crier: None,
            mounts: mounts::Mounts::kept_by(&memory)?,
            memory,
            heard_until: began,
            problems: Problems::default(),
            alarms: Alarms::default(),
            on_problem,
            pulse: Pulse::new(began),
            is_unsettled: false,
            settled_at: began,
            looked_at: began,
            pool,
        };
        live.look_at_mounts(began);
        let start = |herald| Crier::start(herald, (&live.hands, &outbox), has_told_all);
        live.crier = herald.map(start).transpose()?;
        live.start_lanes(&outbox)?;
        live.recall()?;
        live.trash = Trash::of(&live.job, &live.hands, &live.stop)?;
        live.begin_to_follow(began, snapshots, &outbox)?;
        Ok((live, Inbox::new(outbox)))
    }

    /// Begins with cycles of snapshots, or finds what has changed while no mirror ran.
    fn begin_to_follow(
        &mut self,
        began: Duration,
        snapshots: Option<Snapshots>,
        outbox: &Sender<Message>,
    ) -> Result<(), BeginError> {
        match snapshots {
            Some(snapshots) if self.job.reads_snapshots() => self.start_cycles(snapshots, outbox),
            snapshots => {
                if let Some(snapshots) = snapshots {
                    self.start_beside(snapshots, outbox)?;
                }
                self.memory.leave_snapshots(began);
                self.catch_up(began)
            }
        }
    }

    /// Goes on from what an earlier life has left.
    fn recall(&mut self) -> Result<(), StateError> {
        self.hands
            .expect(self.memory.replica()?, self.memory.owner()?);
        let left = self.memory.left()?;
        let around: BTreeSet<RelPath> = left
            .iter()
            .filter_map(|(path, _)| path.above().next())
            .collect();
        for (path, dirty) in left {
            self.dirty.add_again(path, dirty);
        }
        // A life that was cut off may have left unfinished entries beside what it was at.
        for dir in around {
            self.dirty
                .add(now(), Change::names(dir), Circumstance::default());
        }
        self.problems = self.memory.problems()?;
        self.look_again_at_problems();
        self.try_under_another_job()?;
        self.is_paused = self.memory.is_paused()?;
        self.hearing.resume(|name| self.memory.cursor(name))?;
        self.walked.seen = self.memory.entries()?;
        self.walked.entries = self.walked.seen;
        self.walked.equal = self.memory.was_equal_until()?;
        Ok(())
    }

    /// Has what failed tried at once if the job is another one than that of the life before.
    fn try_under_another_job(&mut self) -> Result<(), StateError> {
        let (kept, now) = (self.memory.cursor(last_job::CURSOR)?, now());
        if last_job::is_other(kept, &self.job) {
            self.dirty.retry_now(now, None);
        }
        self.memory.heard(vec![last_job::cursor(&self.job, now)]);
        Ok(())
    }

    /// What had a problem is left to do, also where it was heard of too short a time before the end
    /// to be remembered: the problem would be told for ever.
    fn look_again_at_problems(&mut self) {
        if self.job.reads_snapshots() {
            // All that is left is remembered there.
            return;
        }
        let paths = self.problems.iter().map(|(path, _)| path);
        let forgotten = paths.filter(|path| !self.dirty.has_heard_of(path));
        for path in forgotten.cloned().collect::<Vec<_>>() {
            let dirty = Dirty::new(Scope::Subtree, now(), now());
            self.dirty.add_again(path, dirty);
        }
    }

    /// Where it is left what has changed, to be told others.
    fn desk(&self) -> Desk {
        self.crier.as_ref().map(Crier::desk).unwrap_or_default()
    }

    /// Returns the path of a live source of this host.
    fn source_here(&self) -> Option<PathBuf> {
        let target = Target::parse(self.job.source.as_ref()).ok()?;
        let is_here = target.host.is_none() && !self.job.reads_snapshots();
        is_here.then_some(target.path)
    }

    fn start_lanes(&mut self, outbox: &Sender<Message>) -> std::io::Result<()> {
        if let Some(source) = self.source_here() {
            self.hands.watch_place(source)?;
        }
        let equipment = Equipment {
            hands: self.hands.clone(),
            desk: self.desk(),
            interrupt: self.interrupt.clone(),
            outbox: outbox.clone(),
        };
        for (lane, threads) in LANES {
            let (work, works) = unbounded::<Work>();
            let threads = lanes::start((lane, threads), &works, &equipment)?;
            self.threads.extend(threads);
            self.busy.insert(lane, 0);
            self.lanes.insert(lane, work);
        }
        Ok(())
    }

    /// Works until it is to stop; whether it is to begin anew, since nothing would be heard of what
    /// is the source by now.
    pub fn run(mut self) -> bool {
        while !self.stop.load(Relaxed) {
            self.pulse.beat(now());
            self.turn_pool(now());
            self.interrupt();
            self.begin_work();
            self.close_after_purge();
            self.wait();
            self.remember();
        }
        let is_deaf = self.hands.is_deaf();
        self.end();
        is_deaf
    }

    /// Waits for a message, or for what is due.
    fn wait(&mut self) {
        let now = now();
        let due = [
            self.next_work(now),
            self.waits.next_deadline(),
            self.next_again(),
        ];
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
        // What waits already belongs to the same batch; what comes meanwhile has to wait, or nothing
        // else would ever be done where something changes all the time.
        for message in self
            .inbox
            .try_iter()
            .take(HEARD_WAITING_MAX)
            .collect::<Vec<_>>()
        {
            self.take_in(message);
        }
        self.answer_waits();
    }

    /// Saves now and then what is known. What is done within a second need not be known later.
    fn remember(&mut self) {
        let now = now();
        let is_live = !self.reads_snapshots();
        let is_sure = self.walked.ended.is_some() && self.doubt.is_none() && self.away.is_none();
        let is_done = self.dirty.is_empty() && self.next_again().is_none();
        if is_live && is_sure && is_done {
            if let Some(moment) = self.known_until() {
                self.memory.equal_until(moment);
            }
            self.hearing.wake_quiet(now);
        }
        if self.memory.is_due(now) {
            self.report(now);
            self.keep_heard(now);
            let dirty = match is_live {
                true => self.dirty.all_until(now.saturating_sub(YOUNG)),
                false => self.dirty.all(),
            };
            let done = self.positions_done();
            self.memory.heard(self.hearing.cursors(&done, now));
            if self.memory.save(now, dirty, &self.problems) {
                self.saved_until(now.saturating_sub(YOUNG));
                self.hearing.let_go(&done);
            }
        }
    }

    /// Returns the moment until which all changes of the source are known: no detector reports any of
    /// another directory that was put in its place since.
    fn known_until(&self) -> Option<Duration> {
        let known = match self.compares_alone() {
            true => self.walked.equal?,
            false => self.heard_until,
        };
        match self.source_here().is_some() {
            true => self.hands.seen_in_place().map(|seen| seen.min(known)),
            false => Some(known),
        }
    }

    /// Returns whether comparisons of all are the only source of changes.
    fn compares_alone(&self) -> bool {
        self.hearing.is_none() && self.cycle.is_none() && self.pool.is_none()
    }

    /// Positions of detectors before which nothing is left. A path in quarantine is, but is saved.
    fn positions_done(&self) -> Vec<(usize, u64)> {
        let waits_for_others = |moment| {
            let pool = self.pool.as_ref();
            pool.is_some_and(|pool| pool.waits_for_others(moment))
        };
        let is_done = |moment| {
            self.doubt.is_none() && !self.dirty.waits_since(moment) && !waits_for_others(moment)
        };
        self.hearing.done(is_done)
    }

    fn take_in(&mut self, message: Message) {
        let now = now();
        match message {
            Message::Heard {
                from,
                seen,
                unnamed,
                position,
                unread,
            } => {
                self.status.heard(seen.len(), unread);
                unnamed
                    .into_iter()
                    .for_each(|one| self.add_unnamed(now, one));
                for seen in seen {
                    let circumstance = Circumstance {
                        is_dir: seen.is_dir,
                        is_gone: seen.is_gone,
                        is_written: seen.is_written,
                        is_open: seen.is_open,
                        size: seen.size,
                    };
                    if seen.is_repeated {
                        self.look_again_later(now, &seen.change);
                    }
                    if let Some(cycle) = &mut self.cycle {
                        cycle.untold.told(&seen.change.path);
                    }
                    self.add(now, seen.change, circumstance);
                }
                if position.is_some_and(|position| self.hearing.heard(from, now, position)) {
                    self.dirty.hurry(now);
                }
            }
            Message::HeardUntil { from, moment } => {
                let moment = self.hearing.heard_until(from, moment);
                self.gaps.heard_until(moment, now);
                self.dirty.heard_until(moment);
                self.heard_until(now, moment);
            }
            Message::Queue(queue) => {
                self.status.queue = Some(queue.into());
                self.note_queue(queue);
            }
            Message::Pool(word) => self.take_word(now, *word),
            Message::Mute(why) => self.note_mute(why),
            Message::Missed => {
                self.status.missed();
                self.take_gap(now);
            }
            Message::Deaf { from, why } => {
                self.hearing.deaf(from, why);
                self.status.deaf = self.hearing.why_deaf();
            }
            Message::Told(told) => self.take_told(now, told),
            Message::CarriedOut => self.unwritten += 1,
            // Those who wait are looked at after each message.
            Message::Announced => {}
            Message::Done(outcome) => self.take_outcome(now, *outcome),
            Message::Asked(asked) => self.take_question(now, asked),
        }
    }

    /// A change was heard of: what happens to a file under one name happens under all of them.
    fn add(&mut self, now: Duration, change: Change, circumstance: Circumstance) {
        // Snapshots come and go in a folder of the source that is no part of it.
        if change.path.names().next() == Some(SNAPSHOTS.to_bytes()) {
            return;
        }
        if let Some(Hint::MovedFrom(from)) = &change.hint {
            self.links.renamed(from, &change.path);
            self.problems.renamed(from);
            if change.scope == Scope::Subtree && self.walk_may_miss() {
                // What is renamed from where it was not yet to where it was already.
                let all = Dirty::new(Scope::Subtree, now, now);
                self.dirty.add_again(change.path.clone(), all);
            }
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

    /// Whether a rename that is told by now may have happened while all was compared.
    fn walk_may_miss(&self) -> bool {
        let last = self.walked.ended;
        let is_beside = last.is_some_and(|ended| self.heard_until <= ended);
        // A snapshot does not change while it is compared.
        !self.reads_snapshots() && (self.busy[&Lane::Walk] > 0 || is_beside)
    }

    /// All of both trees is compared.
    fn walk(&mut self, now: Duration) {
        self.walk_for(now, now);
    }

    /// The same, since something may be wrong since the trees were last known to be equal: whoever
    /// waits, waits for that as well.
    fn walk_in_doubt(&mut self, now: Duration) {
        self.walk_for(now, self.in_doubt_since(now));
    }

    /// Since when something may be wrong: the trees were last known to be equal then.
    fn in_doubt_since(&self, now: Duration) -> Duration {
        let equal = self.memory.is_equal_until();
        equal.unwrap_or(self.status.began).min(now)
    }

    /// The same for what may have happened since then.
    fn walk_for(&mut self, now: Duration, since: Duration) {
        (self.walked.asked, self.doubt) = (Some(now), None);
        if self.hand_all_over(since) {
            return;
        }
        let all = Dirty::new(Scope::Subtree, since, now);
        self.dirty.add_again(RelPath::root(), all);
    }

    /// What is in work is over soon, since it hears of the stop as well.
    fn end(mut self) {
        self.interrupt();
        self.lanes.clear();
        self.hearing.stop();
        while self.is_busy() {
            match self.inbox.recv() {
                Ok(message @ (Message::Done(_) | Message::CarriedOut)) => self.take_in(message),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let members_have_told = self.dismiss_members();
        // The detector may wait for room for its last word.
        while self.inbox.try_recv().is_ok() {}
        self.make_durable();
        if let Some(crier) = self.crier.take() {
            match crier.end() {
                true if members_have_told => self.memory.has_told_all(),
                true => {}
                false => self.leave_untold(),
            }
        }
        self.hands.shut();
        self.leave_pool();
        drop(self.inbox);
        let _it_was_told = self.memory.save(now(), self.dirty.all(), &self.problems);
        for thread in self.threads {
            let _its_panic_was_told = thread.join();
        }
    }
}
