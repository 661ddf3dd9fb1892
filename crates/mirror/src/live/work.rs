//! What a life does next: which lane gets what, what became of it, and what is done when the trees
//! are out of reach.

use super::Live;
use crate::clock::{by_clock, is_past, now};
use crate::dirty::{Circumstance, Lane};
use crate::hands::{Ended, Outcome, Work, is_to_be_told};
use crate::job::Detect;
use crate::lanes::LANES;
use crate::last_run;
use crate::trash::Trash;
use crate::worded;
use driftless_engine::Counts;
use driftless_model::{Change, RelPath, Scope};
use driftless_remote::Target;
use driftless_state::mirror::{COMPLETE, INTERRUPTED, RunCounts, RunKind};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Entries that are made equal in one go.
const SHORT_PATHS_MAX: usize = 8000;
/// Pieces of work that may wait to be written out while the next is made equal.
const UNWRITTEN_MAX: usize = 8;
/// After trees were out of reach, they are tried again after this, then after twice as long.
const AWAY_FIRST: Duration = Duration::from_secs(1);
/// The longest wait for trees that are out of reach.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// How often the mark says that all is durable, while nothing is to be done.
const SETTLE_EVERY: Duration = Duration::from_secs(300);

/// How often it is looked at least whether the paths of both trees lead to what is open.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The same while members work on them by what this process has found, which may have nothing to do
/// itself: the mark, too, says what leads to the source.
const LOOK_FOR_MEMBERS_EVERY: Duration = Duration::from_secs(10);

/// The trees are out of reach.
pub(super) struct Away {
    pub(super) why: String,
    since: Duration,
    again: Duration,
    pause: Duration,
}

impl Live {
    /// Nothing may be done at the moment.
    fn is_at_rest(&self) -> bool {
        self.is_paused || self.job.quiet.holds_at(by_clock()) || self.why_waiting(now()).is_some()
    }

    /// Has lanes give back what they are at when nothing may be done any more: a comparison of all
    /// may take hours.
    pub(super) fn interrupt(&self) {
        let is_over = self.stop.load(Relaxed) || self.is_at_rest();
        self.interrupt.store(is_over, Relaxed);
    }

    /// When there is something to do next, unless nothing may be done.
    pub(super) fn next_work(&self, now: Duration) -> Option<Duration> {
        if self.is_at_rest() {
            return None;
        }
        if let Some(away) = &self.away {
            let next = self.next_cycle().into_iter().chain([away.again]);
            return next.filter(|due| *due > now).min();
        }
        let walk = self.next_walk().into_iter().chain(self.next_cycle());
        let due = self
            .dirty
            .next_due()
            .filter(|_| self.at_work(Lane::Short) == 0);
        // What is due in a lane that is busy waits for the lane's message.
        due.into_iter().chain(walk).filter(|due| *due > now).min()
    }

    fn next_walk(&self) -> Option<Duration> {
        if self.is_member() {
            return None;
        }
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

    /// Has it looked at whether the paths of both trees lead to what is open, which is looked at
    /// before the roots are.
    pub(super) fn look_at_roots(&mut self, now: Duration) {
        self.looked_at = now;
        self.look_at_mounts(now);
        if self.reads_snapshots() {
            return;
        }
        let circumstance = Circumstance {
            is_dir: true,
            ..Circumstance::default()
        };
        self.dirty
            .add(now, Change::entry(RelPath::root()), circumstance);
    }

    pub(super) fn begin_work(&mut self) {
        let now = now();
        let look_every = match self.hands.lent() {
            Some(_) => LOOK_FOR_MEMBERS_EVERY,
            None => LOOK_EVERY,
        };
        if now.saturating_sub(self.looked_at) >= look_every {
            self.look_at_roots(now);
        }
        if self.is_member() {
            // Its lead walks.
        } else if self.doubt.is_some_and(|due| due <= now) {
            self.walk_in_doubt(now);
        } else if self.next_walk().is_some_and(|due| due <= now) {
            self.walk(now);
        }
        if self.is_at_rest() || !self.turn_cycle(now) {
            return;
        }
        if self.away.as_ref().is_some_and(|away| away.again > now) {
            return;
        }
        for (lane, threads) in LANES {
            let paths_max = if lane == Lane::Short {
                SHORT_PATHS_MAX
            } else {
                1
            };
            // One piece of work finds out whether the trees are there.
            while self.at_work(lane) < threads && !(self.away.is_some() && self.is_busy()) {
                let taken = self.dirty.take(now, lane, paths_max);
                if taken.is_empty() {
                    break;
                }
                if taken.is_walk() {
                    self.memory.begin_run(RunKind::Walk, now);
                    // A retry is no second beginning.
                    if self.is_first_copy() && self.walked.begun.is_zero() {
                        tracing::info!("the first copy begins");
                    }
                    self.walked.begun = now;
                    self.begin_to_walk_mounts();
                }
                let unheard_since = match taken.is_walk() {
                    true => self.gaps.take_missed(),
                    false => None,
                };
                *self.busy.get_mut(&lane).expect("all lanes are known") += 1;
                let is_alone = self.begins_alone();
                let delete_limit = self.deletes.limit(now, taken.is_walk(), &self.walked);
                let equal = self.walked.equal.filter(|equal| is_past(*equal));
                let work = Work {
                    taken,
                    delete_limit,
                    equal_at: equal.filter(|_| lane == Lane::Walk),
                    unheard_since,
                    is_alone,
                };
                let sent = self.lanes[&lane].send(work);
                sent.expect("lanes end after this thread");
            }
        }
        self.settle_when_idle(now);
    }

    /// How many threads of a lane are at work. What is only written out still holds none, unless it
    /// becomes too much, or deletes are limited: they are counted when the work is done.
    fn at_work(&self, lane: Lane) -> usize {
        let is_ahead = lane == Lane::Short && !self.deletes.are_limited();
        let unwritten = self.unwritten.min(UNWRITTEN_MAX);
        self.busy[&lane] - if is_ahead { unwritten } else { 0 }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.values().any(|count| *count > 0)
    }

    /// Says in the replica's mark that all is durable, now and then.
    fn settle_when_idle(&mut self, now: Duration) {
        let is_time = now.saturating_sub(self.settled_at) >= SETTLE_EVERY;
        if !self.is_unsettled || !is_time || self.is_busy() || self.has_company(now) {
            return;
        }
        self.settle(now);
    }

    /// What was changed is made durable before this process leaves it; a failure is only told.
    pub(super) fn make_durable(&mut self) {
        match self.hands.settle() {
            Ok(()) => self.desk().settled(),
            Err(why) => tracing::warn!("{why}"),
        }
    }

    pub(super) fn settle(&mut self, now: Duration) {
        (self.is_unsettled, self.settled_at) = (false, now);
        match self.hands.settle() {
            Ok(()) => self.desk().settled(),
            Err(why) => {
                self.go_away(now, why);
                // So that it is seen when they are back.
                self.walk(now);
            }
        }
    }

    pub(super) fn take_outcome(&mut self, now: Duration, outcome: Outcome) {
        *self
            .busy
            .get_mut(&outcome.taken.lane)
            .expect("all lanes are known") -= 1;
        if outcome.taken.lane == Lane::Short && outcome.was_carried_out {
            self.unwritten -= 1;
        }
        self.is_unsettled = true;
        self.take_end(now, outcome);
        self.let_go(now);
    }

    fn take_end(&mut self, now: Duration, mut outcome: Outcome) {
        self.note_outcome(now, &mut outcome);
        let Some(outcome) = self.close_gap(now, outcome) else {
            return;
        };
        if let Ended::Away(why) = &outcome.end {
            self.go_away(now, why.clone());
        }
        if outcome.end != Ended::Done {
            self.gaps.miss_since(outcome.unheard_since);
            if outcome.taken.is_walk() {
                let counts = counts_of(&outcome.counts);
                self.memory
                    .end_run(RunKind::Walk, now, &counts, INTERRUPTED);
            }
            self.dirty.give_back(now, outcome.taken);
            return;
        }
        self.come_back(now);
        if let Some(why) = self.hands.last_replica.take_other() {
            tracing::warn!("{why}: comparing everything");
            self.walk_in_doubt(now);
            // What has failed all the time may not fail there.
            self.dirty.retry_now(now, None);
        }
        self.memory.know(self.hands.known());
        self.keep_met_mounts(now);
        if let Some(run) = self.hands.take_run() {
            self.memory.heard(vec![last_run::cursor(run, now)]);
        }
        if outcome.taken.is_walk() {
            self.end_walk(now, &outcome);
        }
        self.learn_links(now, &outcome);
        self.dirty.not_moved(&outcome.not_moved);
        let failed = outcome.failed();
        self.status.add(&outcome.counts);
        self.count_cycle(&outcome.counts);
        self.count_missed(&outcome);
        if !outcome.taken.is_walk() {
            self.deletes.add(now, outcome.counts.deleted);
            self.walked.follow(outcome.created, outcome.counts.deleted);
        }
        let paths = looked_at(&outcome);
        let is_walk = outcome.taken.is_walk();
        let told = outcome.problems.into_iter().filter(is_to_be_told);
        let told = told.map(|problem| match is_walk {
            true => problem,
            false => self.deletes.explained(now, problem),
        });
        self.problems.replace(now, &paths, told.collect());
        let counts = outcome.counts;
        let waited = self.dirty.done(now, outcome.taken, &failed);
        self.problems
            .forget_changing_above(&paths, |dir| self.dirty.has_failed_within(dir));
        self.hand_failed_over();
        self.status.lag(now, &waited);
        self.memory.done(now, &counts, &waited);
    }

    /// Whether the replica has never been equal.
    fn is_first_copy(&self) -> bool {
        self.walked.ended.is_none() && self.memory.is_equal_until().is_none()
    }

    /// Counts what a walk has found that a detector should have told of.
    fn end_walk(&mut self, now: Duration, outcome: &Outcome) {
        let is_first = self.walked.ended.is_none();
        if self.is_first_copy() {
            let seen = worded::counted(outcome.counts.seen, "entry", "entries");
            let bytes = worded::counted(outcome.counts.bytes_copied, "byte", "bytes");
            tracing::info!("the first copy is complete: {seen}, {bytes} copied");
        }
        let foreign = self.find_foreign(outcome);
        let missed = outcome
            .changed
            .iter()
            .filter(|path| !is_first && !self.dirty.has_heard_of(path) && !foreign.contains(*path));
        let missed = if !self.hearing.is_none() || self.cycle.is_some() {
            missed.count() as u64
        } else {
            0
        };
        self.walked.end(now, &outcome.counts, missed);
        self.gaps.equal();
        self.forget_unmounted(now);
        self.trash.iter().for_each(Trash::look);
        let counts = RunCounts {
            missed,
            foreign: foreign.len() as u64,
            ..counts_of(&outcome.counts)
        };
        self.memory.end_run(RunKind::Walk, now, &counts, COMPLETE);
    }

    /// What somebody else has changed on the replica, and a walk has put right.
    fn find_foreign(&mut self, outcome: &Outcome) -> BTreeSet<RelPath> {
        let found = outcome.foreign.iter();
        let found = found.filter(|path| !self.dirty.has_heard_of(path));
        let found: BTreeSet<RelPath> = found.cloned().collect();
        self.status.foreign.add(&found);
        found
    }

    pub(super) fn go_away(&mut self, now: Duration, why: String) {
        let why = worded::for_job(&why);
        let pause = match &self.away {
            Some(away) => (away.pause * 2).min(AWAY_MAX),
            None => {
                tracing::warn!("out of reach: {why}");
                AWAY_FIRST
            }
        };
        let again = now + pause;
        let since = self.away.as_ref().map_or(now, |away| away.since);
        self.away = Some(Away {
            why,
            since,
            again,
            pause,
        });
        if self.hands.is_deaf() {
            self.stop.store(true, Relaxed);
        }
    }

    /// Trees that are out of reach are tried at once, since something may be another tree by now, or
    /// somebody asks for it.
    pub(super) fn try_again(&mut self, now: Duration) {
        if let Some(away) = &mut self.away {
            away.again = now;
        }
    }

    /// Whether a lost connection is still tried again, before anybody is told.
    pub(super) fn is_reconnecting(&self, now: Duration) -> bool {
        let far = |tree: &String| Target::parse(tree.as_ref()).is_ok_and(|at| at.host.is_some());
        let has_host = far(&self.job.source) || far(&self.job.replicas[0]);
        let is_young = |away: &Away| now.saturating_sub(away.since) < self.job.reach.reconnect;
        has_host && self.away.as_ref().is_some_and(is_young)
    }

    fn come_back(&mut self, now: Duration) {
        if self.away.take().is_some() {
            tracing::info!("within reach again");
            // Nobody knows what became of the trees meanwhile. What a member had others have done.
            if !self.is_member() {
                self.walk_in_doubt(now);
            }
        }
    }
}

/// As the state keeps them.
pub(super) fn counts_of(counts: &Counts) -> RunCounts {
    RunCounts {
        seen: counts.seen,
        changed: counts.changed,
        deleted: counts.deleted,
        failed: counts.failed,
        bytes: counts.bytes_copied,
        missed: 0,
        foreign: 0,
    }
}

/// What was looked at, and how far below.
pub(super) fn looked_at(outcome: &Outcome) -> Vec<(RelPath, Scope)> {
    let works = outcome.works().into_iter();
    works.map(|work| (work.path, work.scope)).collect()
}
