//! What a life answers when it is asked, and when those who wait have what they waited for.

use super::Live;
use super::cycle::Cycle;
use crate::ask::{Answer, Ask, Asked, Troubles};
use crate::clock::{by_clock, now};
use crate::dirty::Lane;
use crate::herald::Crier;
use crate::status::Status;
use crate::trash::Trash;
use crate::waits::Wait;
use driftless_model::RelPath;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Live {
    pub(super) fn take_question(&mut self, now: Duration, asked: Asked) {
        if matches!(asked.ask, Ask::Barrier { .. } | Ask::SyncNow { .. })
            && let Some(refusal) = self.refuses_as_member(now)
        {
            return asked.reply.give(refusal);
        }
        let answer = match asked.ask {
            Ask::Status => Answer::Status(vec![self.status(now)]),
            Ask::Problems => Answer::Problems(vec![Troubles {
                replica: self.job.replicas[0].clone(),
                paths: self.problems.all(),
            }]),
            Ask::Pause => {
                self.is_paused = true;
                self.interrupt();
                self.memory.pause(now, true);
                self.pausing.push(asked.reply);
                self.let_go(now);
                return;
            }
            Ask::Resume => {
                self.is_paused = false;
                // A run of its own may have forgotten what was mounted below the source.
                self.hands.prepare_anew();
                // Nor need the replica be the one that it was.
                self.look_at_roots(now);
                self.dirty.retry_now(now, None);
                self.interrupt();
                self.memory.pause(now, false);
                self.kept()
            }
            Ask::Foreign => {
                let replica = self.job.replicas[0].clone();
                Answer::Foreign(vec![(replica, self.status.foreign.clone())])
            }
            Ask::End => {
                self.stop.store(true, Relaxed);
                Answer::Done
            }
            Ask::Retry { path } => self.retry(now, path),
            Ask::SyncNow { wait, all } => {
                if let Some(cycle) = self.cycle.as_mut().filter(|_| all) {
                    cycle.compare_all();
                }
                self.look_now(now);
                self.try_again(now);
                self.dirty.retry_now(now, None);
                self.dirty.hurry(now);
                if wait {
                    self.begin_wait(now, Wait::for_all(asked.reply, now, None));
                    return;
                }
                Answer::Done
            }
            Ask::Hear { timeout } => {
                self.hear_all(now, Wait::for_word(asked.reply, now, timeout));
                return;
            }
            Ask::Barrier { timeout } => {
                self.begin_barrier(now, Wait::for_all(asked.reply, now, timeout));
                return;
            }
        };
        asked.reply.give(answer);
    }

    /// A mirror that is paused holds neither of its trees once it has done what it was at.
    pub(super) fn let_go(&mut self, now: Duration) {
        if self.pausing.is_empty() || self.is_busy() || !self.members_rest(now) {
            return;
        }
        self.settle(now);
        self.hands.shut();
        let answer = self.kept();
        for reply in self.pausing.drain(..) {
            reply.give(answer.clone());
        }
    }

    /// It was done, and the state knows of it, unless that cannot be written.
    fn kept(&self) -> Answer {
        let refused = |why| format!("done, but the next start will not know of it: {why}");
        let failed = self.memory.failed().map(refused);
        failed.map_or(Answer::Done, Answer::Refused)
    }

    fn retry(&mut self, now: Duration, path: Option<Vec<u8>>) -> Answer {
        let path = match path.map(|bytes| RelPath::parse(&bytes)).transpose() {
            Ok(path) => path,
            Err(error) => return Answer::Refused(error.to_string()),
        };
        self.try_again(now);
        Answer::Retried {
            paths: self.dirty.retry_now(now, path.as_ref()) as u64,
            away: self.away.is_some().into(),
        }
    }

    /// Everything that happened before is to be on the replica: what detectors have not told yet,
    /// too.
    fn begin_barrier(&mut self, now: Duration, wait: Wait) {
        if self.hearing.is_none() {
            self.look_now(now);
            self.begin_wait(now, wait);
        } else {
            self.hearing.wake();
            self.look_at_roots(now);
            self.waits.add(wait);
        }
        self.dirty.hurry(now);
    }

    /// Waits until all detectors have told what happened before.
    fn hear_all(&mut self, now: Duration, mut wait: Wait) {
        if self.hearing.is_none() {
            wait.until = Some(now);
        }
        self.waits.add(wait);
        self.hearing.wake();
    }

    /// What has changed is looked for: in a new snapshot, or by comparing all.
    fn look_now(&mut self, now: Duration) {
        if let Some(cycle) = &mut self.cycle {
            cycle.hurry(now);
        }
        if !self.reads_snapshots() {
            self.walk(now);
        }
    }

    /// Somebody waits for what is looked for now.
    fn begin_wait(&mut self, now: Duration, mut wait: Wait) {
        let is_deaf = self.hearing.why_deaf().is_some();
        if self.has_company(now) || !self.hearing.is_none() && !is_deaf {
            // Content may have been written that no comparison finds; members are asked, too.
            self.hearing.wake();
        } else if !self.reads_snapshots() {
            wait.until = Some(now);
        }
        self.waits.add(wait);
    }

    pub(super) fn answer_waits(&mut self) {
        let now = now();
        for wait in self.waits.take_done(|wait| wait.has_heard()) {
            wait.reply.give(Answer::Done);
        }
        let dirty = &self.dirty;
        let is_doubtful = self.doubt.is_some();
        let (crier, pool) = (self.crier.as_ref(), self.pool.as_ref());
        let is_done = |wait: &mut Wait| {
            let is_others = |until| pool.is_some_and(|pool| pool.waits_for_others(until));
            let is_equal = |until| !is_doubtful && !dirty.waits_since(until) && !is_others(until);
            // Who waits for the next site has to wait for what that one hears.
            wait.until.is_some_and(is_equal) && crier.is_none_or(|crier| wait.is_told(crier))
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
            if !self.reads_snapshots() {
                self.doubt = self.doubt.map(|doubt| doubt.min(now));
            }
        }
    }

    /// Keeps for later how much is left, logs what is wrong, and hands alarms to the job's command.
    pub(super) fn report(&mut self, now: Duration) {
        let status = self.status(now);
        let (left, quarantined, behind) = (status.left, status.quarantined, status.behind());
        self.memory.backlog(now, left, quarantined, behind);
        if let Some(progress) = self.alarms.log.comparison(&status) {
            tracing::info!("{progress}");
        }
        let quarantined: BTreeSet<&RelPath> =
            self.dirty.quarantined().map(|(path, _)| path).collect();
        let told = Status {
            away: status.away.clone().filter(|_| !self.is_reconnecting(now)),
            ..status
        };
        let is_quarantined = |path: &RelPath| quarantined.contains(path);
        let alarms = self.alarms.see(&told, &self.problems, is_quarantined);
        for line in self.alarms.log.lines(&alarms, now) {
            tracing::warn!("{line}");
        }
        if let Some(caller) = &self.on_problem {
            alarms.into_iter().for_each(|alarm| caller.tell(alarm));
        }
    }

    fn status(&self, now: Duration) -> Status {
        let mut status = self.status.clone();
        let oldest = [self.dirty.oldest(), self.oldest_of_members()];
        status.oldest = oldest.into_iter().flatten().min();
        status.pool = self.pool_now();
        status.waiting = self.why_waiting(now).filter(|_| self.is_member());
        status.helps = self.is_member();
        status.equal_until = self.memory.is_equal_until();
        status.left = self.dirty.len() as u64;
        status.quarantined = self.dirty.quarantined().count() as u64;
        status.problems = self.problems.count() as u64;
        status.walk = self.walked.clone();
        status.is_walking = self.busy[&Lane::Walk] > 0;
        status.comparing = self.hands.comparing.now();
        status.is_paused = self.is_paused;
        status.hears = !self.hearing.is_none();
        status.is_quiet = self.job.quiet.holds_at(by_clock());
        status.away = self.away.as_ref().map(|away| away.why.clone());
        status.cycle = self.cycle.as_ref().map(Cycle::now);
        let equal = match &self.cycle {
            Some(cycle) if self.reads_snapshots() => Some(cycle.equal()),
            _ => self.compares_alone().then_some(status.equal_until),
        };
        // What has changed since is not known before the next snapshot, or comparison.
        if let Some(equal) = equal {
            let equal = equal.unwrap_or(status.began);
            status.oldest = status.oldest.into_iter().chain([equal]).min();
        }
        status.told = self.crier.as_ref().map(Crier::now);
        status.trash = self.trash.as_ref().and_then(Trash::now);
        status.forgets = self.memory.failed().map(str::to_owned);
        status.now = now;
        status.measured()
    }
}
