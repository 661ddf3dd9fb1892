//! Cycles: a snapshot is made, what differs from the one before becomes dirty, and lanes make the
//! replica equal to it. Then the replica gets a snapshot, too, and both are the newest that they
//! have in common.
//!
//! What differs is saved together with the name of the snapshot, before any of it is worked on. So
//! the replica never is nearer to a snapshot than what is remembered, and what an interrupted cycle
//! has left is left beside what the next one finds.

use super::untold::Untold;
use super::work::counts_of;
use super::{BeginError, Live};
use crate::clock::{is_past, now};
use crate::dirty::Circumstance;
use crate::hands::ReplicaHere;
use crate::herald::Crier;
use crate::memory::Memory;
use crate::message::Message;
use crate::snapshots::{Known, Made, OnReplica, Snapshots, Task, Told};
use crate::status::CycleNow;
use crate::trash::Trash;
use crossbeam_channel::{Sender, unbounded};
use driftless_engine::Counts;
use driftless_model::{Change, RelPath};
use driftless_state::mirror::{COMPLETE, RunCounts, RunKind};
use std::thread::Builder;
use std::time::Duration;

/// What failed is tried again after this, or at the next cycle if that is sooner.
const FAILED_PAUSE: Duration = Duration::from_secs(30);
/// From the beginning of one cycle to that of the next at least: names tell milliseconds.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// Where the cycle is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing is to be done before the next.
    Idle,
    /// A snapshot is being made.
    Making {
        /// What differs from the one before is not asked.
        compares_all: bool,
    },
    /// It waits until what is in work is over.
    Made(Box<Made>),
    /// What differs is not saved yet.
    Saving,
    /// The replica is made equal to it.
    Copying,
    /// It is, and gets a snapshot.
    Finishing,
}

/// The cycles of a mirror.
pub(super) struct Cycle {
    tasks: Sender<Task>,
    pub(super) stage: Stage,
    /// The replica follows the source itself, not its snapshots.
    pub(super) is_beside: bool,
    /// What no other detector had told of, where there is one.
    pub(super) untold: Untold,
    /// When what differs was found.
    pub(super) found_at: Duration,
    /// The snapshot that was read last.
    pub(super) snapshot: Option<String>,
    /// What tells it from others of its name, where something does.
    identity: Option<String>,
    /// It is there to be read; beside live changes, there is one from before all is compared.
    pub(super) is_read: bool,
    /// It holds everything that happened before.
    pub(super) at: Duration,
    equal: Option<Duration>,
    /// The last snapshot of the replica.
    on_replica: Option<String>,
    /// The last that source and replica have in common.
    common: Option<String>,
    /// All that the state knows.
    known: Known,
    every: Duration,
    pub(super) next: Duration,
    pub(super) counts: RunCounts,
    count: u64,
    pub(super) failed: Option<String>,
    /// The replica is closed to others as soon as its trash was looked at.
    closes: bool,
    /// The next compares all, whatever differs from the snapshot before.
    compares_all: bool,
}

impl Cycle {
    fn new(
        every: Option<Duration>,
        snapshots: Snapshots,
        outbox: Sender<Message>,
        memory: &Memory,
    ) -> Result<Cycle, BeginError> {
        let (tasks, asked) = unbounded();
        let work = move || {
            for task in asked {
                let told = snapshots.carry_out(task);
                let _nobody_listens_at_the_end = outbox.send(Message::Told(told));
            }
        };
        // Nobody waits for its end: a program that it has started may take long, and leaves
        // nothing half done that the next cycle would not see.
        Builder::new().name("snapshots".into()).spawn(work)?;
        let (snapshot, at) = memory.snapshot()?.unzip();
        let mut known = Known {
            common: memory.all_common()?,
            ..Known::default()
        };
        let unfinished = snapshot.as_deref();
        let unfinished = unfinished.filter(|name| !known.common.contains(*name));
        unfinished.into_iter().for_each(|name| known.made(name));
        Ok(Cycle {
            tasks,
            stage: Stage::Idle,
            is_beside: false,
            untold: Untold::default(),
            found_at: Duration::ZERO,
            snapshot,
            identity: memory.snapshot_identity()?,
            is_read: false,
            at: at.unwrap_or_default(),
            equal: memory.common()?.filter(|equal| is_past(*equal)),
            on_replica: memory.snapshot_on_replica()?,
            common: memory.common_snapshot()?,
            known,
            every: every.unwrap_or_default().max(EVERY_MIN),
            next: now(),
            counts: RunCounts::default(),
            count: 0,
            failed: None,
            closes: false,
            compares_all: false,
        })
    }

    /// The next begins as soon as it can.
    pub(super) fn hurry(&mut self, now: Duration) {
        self.next = self.next.min(now);
    }

    /// The next compares all: somebody may have written to the replica.
    pub(super) fn compare_all(&mut self) {
        self.compares_all = true;
    }

    /// The replica has everything that happened before.
    pub(super) fn equal(&self) -> Option<Duration> {
        self.equal
    }

    /// Where it is, for whoever asks.
    pub(super) fn now(&self) -> CycleNow {
        let stage = match self.stage {
            Stage::Idle => "idle",
            Stage::Making { .. } | Stage::Made(_) | Stage::Saving => "snapshot",
            Stage::Copying => "copying",
            Stage::Finishing => "finishing",
        };
        CycleNow {
            snapshot: self.snapshot.clone(),
            equal: self.equal,
            next: self.next,
            stage: stage.to_owned(),
            count: self.count,
            failed: self.failed.clone(),
        }
    }

    pub(super) fn ask(&self, task: Task) {
        self.tasks.send(task).expect("it ends after this thread");
    }

    pub(super) fn begin(&mut self, now: Duration, replica: Option<ReplicaHere>) {
        let compares_all = std::mem::take(&mut self.compares_all);
        self.stage = Stage::Making { compares_all };
        self.next = now + self.every;
        self.ask(Task::Make {
            older: self.snapshot.clone().filter(|_| !compares_all),
            identity: self.identity.clone(),
            on_replica: self.on_replica.clone(),
            common: (!self.is_beside).then(|| self.common.clone().unwrap_or_default()),
            known: self.known.clone(),
            replica,
            now,
        });
    }

    fn fail(&mut self, now: Duration, why: String) {
        if self.failed.as_ref() != Some(&why) {
            tracing::error!("snapshots: {why}");
        }
        self.failed = Some(why);
        self.compares_all |= self.stage == Stage::Making { compares_all: true };
        self.is_read |= self.is_beside;
        self.next = self.next.min(now + FAILED_PAUSE).max(now + EVERY_MIN);
        self.stage = Stage::Idle;
    }
}

impl Live {
    /// Whether the replica becomes equal to snapshots of the source, and not to the source itself.
    pub(super) fn reads_snapshots(&self) -> bool {
        self.cycle.as_ref().is_some_and(|cycle| !cycle.is_beside)
    }

    /// Begins with snapshots beside live changes: there is none yet.
    pub(super) fn start_beside(
        &mut self,
        snapshots: Snapshots,
        outbox: &Sender<Message>,
    ) -> Result<(), BeginError> {
        let every = self.job.cycle.every;
        let cycle = Cycle::new(every, snapshots, outbox.clone(), &self.memory)?;
        self.cycle = Some(Cycle {
            is_beside: true,
            snapshot: None,
            identity: None,
            on_replica: None,
            equal: None,
            ..cycle
        });
        Ok(())
    }

    /// Goes on with the snapshot that was read last, if it is there.
    pub(super) fn start_cycles(
        &mut self,
        snapshots: Snapshots,
        outbox: &Sender<Message>,
    ) -> Result<(), BeginError> {
        let last = self.memory.snapshot()?;
        let last = last.map(|(name, _)| name);
        // Of a cycle that was cut off, some has come to the replica.
        let common = self
            .memory
            .common_snapshot()?
            .filter(|common| last.as_ref() == Some(common));
        let path = last.and_then(|name| snapshots.find(&name).ok().flatten());
        let common = common.and_then(|name| snapshots.find(&name).ok().flatten());
        self.hands.was_equal_to(common);
        let every = self.job.cycle.every;
        let mut cycle = Cycle::new(every, snapshots, outbox.clone(), &self.memory)?;
        if let Some(path) = path {
            self.hands.read_from(&path);
            cycle.is_read = true;
        }
        if cycle.snapshot.is_some() && self.memory.rules()? != Some(self.job.rules()) {
            tracing::warn!("the rules of the job have changed: comparing everything");
            cycle.compare_all();
        }
        self.cycle = Some(cycle);
        Ok(())
    }

    /// When the next cycle begins, if that is all it waits for.
    pub(super) fn next_cycle(&self) -> Option<Duration> {
        let cycle = self.cycle.as_ref()?;
        let waits = match cycle.stage {
            Stage::Idle | Stage::Copying => true,
            Stage::Making { .. } | Stage::Made(_) | Stage::Saving | Stage::Finishing => false,
        };
        waits.then_some(cycle.next)
    }

    /// Does what is next with snapshots; whether lanes may work.
    pub(super) fn turn_cycle(&mut self, now: Duration) -> bool {
        let is_busy = self.is_busy();
        let is_left = self.dirty.has_fresh();
        let is_away = self.away.is_some();
        // Somebody has deleted the snapshot that is read: there is nothing to wait for.
        let is_gone = is_away && self.hands.has_lost_snapshot();
        let is_equal = self.dirty.is_empty() && self.problems.count() == 0;
        if self.cycle.is_some() && !self.reads_snapshots() {
            return self.turn_beside(now);
        }
        let Some(cycle) = &mut self.cycle else {
            return true;
        };
        match &mut cycle.stage {
            Stage::Idle if now >= cycle.next => cycle.begin(now, self.hands.replica_here()),
            Stage::Made(_) if !is_busy => self.change_over(now),
            Stage::Saving => self.save_change_over(now),
            // The trees are out of reach, or a source that is empty is not taken for one: by now it
            // may be another.
            Stage::Copying if is_away && !is_busy && (now >= cycle.next || is_gone) => {
                self.give_up_cycle(now)
            }
            Stage::Copying if is_busy || is_left => {}
            // A name that nobody told of may differ.
            Stage::Copying if self.doubt.is_some() => self.doubt = Some(now),
            Stage::Copying if is_equal => self.finish_cycle(now),
            // What is left has failed, and is tried again now and then.
            Stage::Copying if now >= cycle.next => self.give_up_cycle(now),
            Stage::Idle
            | Stage::Making { .. }
            | Stage::Made(_)
            | Stage::Copying
            | Stage::Finishing => {}
        }
        self.cycle.as_ref().is_none_or(|cycle| {
            let waits = matches!(
                cycle.stage,
                Stage::Made(_) | Stage::Saving | Stage::Finishing
            );
            cycle.is_read && !waits
        })
    }

    /// From here on the new snapshot is read, and what differs from the one before is dirty.
    fn change_over(&mut self, now: Duration) {
        let cycle = self.cycle.as_mut().expect("it has a stage");
        let Stage::Made(made) = std::mem::replace(&mut cycle.stage, Stage::Saving) else {
            unreachable!("a snapshot was made")
        };
        cycle.known.made(&made.name);
        (cycle.snapshot, cycle.at) = (Some(made.name), made.at);
        cycle.identity = made.identity;
        (cycle.is_read, cycle.counts, cycle.failed) = (true, RunCounts::default(), None);
        self.hands.read_from(&made.path);
        self.try_again(now);
        // What was done so far was done before any of it.
        self.dirty.heard_until(now);
        self.status.heard(made.changes.len(), 0);
        if made.changes == [Change::subtree(RelPath::root())] {
            // Whichever directory the replica is by now.
            self.hands.last_replica.forget();
            self.walk(now);
        } else {
            for change in made.changes {
                self.add(made.at, change, Circumstance::default());
            }
        }
        self.dirty.hurry(now);
        self.heard_until = made.at;
        self.waits.heard_until(made.at, now);
        self.save_change_over(now);
    }

    fn save_change_over(&mut self, now: Duration) {
        let cycle = self.cycle.as_mut().expect("it has a stage");
        let name = cycle.snapshot.as_deref().expect("it was made");
        let (dirty, problems) = (self.dirty.all(), &self.problems);
        let read = (name, cycle.at);
        let identity = cycle.identity.as_deref();
        self.memory.rely_on(identity, self.job.rules(), cycle.at);
        if self.memory.read_from(read, now, dirty, problems) {
            cycle.stage = Stage::Copying;
            self.memory.begin_run(RunKind::Cycle, now);
        }
    }

    /// Something was done for the cycle.
    pub(super) fn count_cycle(&mut self, done: &Counts) {
        let Some(cycle) = &mut self.cycle else {
            return;
        };
        let (sum, more) = (&mut cycle.counts, counts_of(done));
        sum.seen += more.seen;
        sum.changed += more.changed;
        sum.deleted += more.deleted;
        sum.failed += more.failed;
        sum.bytes += more.bytes;
    }

    fn finish_cycle(&mut self, now: Duration) {
        self.settle(now);
        if self.away.is_some() {
            return;
        }
        // Its snapshot is made in it.
        if let Err(why) = self.hands.close_replica(false) {
            self.go_away(now, why);
            return;
        }
        let cycle = self.cycle.as_mut().expect("it has a stage");
        cycle.stage = Stage::Finishing;
        let name = cycle.snapshot.clone().expect("it was made");
        cycle.ask(Task::Finish { name });
        self.memory.equal_until(cycle.at);
        self.hands.became_equal();
        cycle.equal = Some(cycle.at);
    }

    /// A cycle is over: its replica is closed to others, after a look at the trash.
    fn close_or_purge(&mut self) {
        let is_looked_at = match &self.trash {
            Some(trash) if self.hands.open().is_ok() => {
                trash.look();
                true
            }
            _ => false,
        };
        let is_telling = self.crier.as_ref().is_some_and(Crier::is_telling);
        let is_in_use = is_looked_at || is_telling;
        if let Some(cycle) = &mut self.cycle {
            cycle.closes = is_in_use;
        }
        if !is_in_use {
            self.hands.shut();
        }
    }

    /// Closes the replica to others when its trash was looked at, others were told what was changed
    /// there, and no cycle is under way.
    pub(super) fn close_after_purge(&mut self) {
        let is_busy = self.is_busy()
            || self.trash.as_ref().is_some_and(Trash::is_looking)
            || self.crier.as_ref().is_some_and(Crier::is_telling);
        let due = |cycle: &&mut Cycle| cycle.closes && matches!(cycle.stage, Stage::Idle);
        let Some(cycle) = self.cycle.as_mut().filter(due).filter(|_| !is_busy) else {
            return;
        };
        cycle.closes = false;
        self.hands.shut();
    }

    /// Both have the snapshot. Those that the state still names go when it names this one.
    fn end_cycle(&mut self, now: Duration, on_replica: Option<OnReplica>) {
        let cycle = self.cycle.as_mut().expect("it has come to its end");
        let name = cycle.snapshot.clone().expect("it is finished");
        self.memory
            .end_run(RunKind::Cycle, now, &cycle.counts, COMPLETE);
        let is_known = cycle.is_beside || {
            cycle.on_replica = on_replica.as_ref().map(|one| one.name.clone());
            cycle.common = Some(name.clone());
            cycle.known.shared(&name);
            self.memory.share(&name, cycle.at, on_replica);
            self.memory.save(now, self.dirty.all(), &self.problems)
        };
        if is_known {
            let known = cycle.known.clone();
            cycle.ask(Task::Thin {
                needed: name,
                known,
            });
        } else {
            self.rest_after_cycle();
        }
    }

    /// Nothing is to be done before the next. The replica's old snapshots are gone from it before
    /// it is closed.
    fn rest_after_cycle(&mut self) {
        if let Some(cycle) = &mut self.cycle {
            (cycle.stage, cycle.failed) = (Stage::Idle, None);
            cycle.count += 1;
        }
        self.close_or_purge();
    }

    pub(super) fn give_up_cycle(&mut self, now: Duration) {
        // Some of it has come to the replica.
        self.hands.was_equal_to(None);
        let cycle = self.cycle.as_mut().expect("it has a stage");
        self.memory
            .end_run(RunKind::Cycle, now, &cycle.counts, "problems");
        cycle.begin(now, self.hands.replica_here());
    }

    /// Who makes snapshots has done what was asked.
    pub(super) fn take_told(&mut self, now: Duration, told: Told) {
        let Some(cycle) = &mut self.cycle else {
            return;
        };
        match told {
            Told::Made(made) => cycle.stage = Stage::Made(Box::new(made)),
            Told::Finished { on_replica } => self.end_cycle(now, on_replica),
            Told::Thinned { deleted } => {
                cycle.known.gone(&deleted);
                self.memory.share_no_more(deleted, now);
                self.rest_after_cycle();
            }
            Told::Failed(why) => cycle.fail(now, why),
        }
    }
}
