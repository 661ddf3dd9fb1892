//! Questions to the batch system.

use super::state::GatewayLeader;
use crate::parts::now;
use crate::plan::{NumberHolder, PlannedJob, number_holder};
use driftless_batch::{BatchError, FoundJob, JobId, LiveJob, MarkedJob};
use driftless_state::jobs::{ChangeError, JobStage};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Longest pause, and how much longer than a question it is, while jobs run.
const RUNNING: (Duration, u32) = (Duration::from_secs(10), 20);
/// The same while jobs only wait for data: nothing but their removal is to be seen.
const WAITING: (Duration, u32) = (Duration::from_secs(30), 100);
/// Pause after a list that lacks a job which the list before had.
const AGAIN: Duration = Duration::from_millis(250);
/// Pause while no job is open, as a multiple of the shortest one.
const IDLE_TIMES: u32 = 30;
/// Single questions of a turn, and their time: jobs that ended together are found in several turns.
const QUESTIONS: (usize, Duration) = (32, Duration::from_secs(1));
/// Pause before the first single question when many jobs vanished at once, as a multiple of the first
/// pause after a failure.
const SLOW_TIMES: u32 = 12;

impl GatewayLeader<'_> {
    /// Asks the batch system if it is time. Returns whether jobs were adopted.
    pub(super) fn ask_batch(&mut self) -> Result<bool, ChangeError> {
        let begin = Instant::now();
        if !self.is_question_due(begin)? {
            return Ok(false);
        }
        let asked = self.ask();
        let waits = |job: &PlannedJob| job.row.stage == JobStage::Loading;
        let (pause_max, times) = match self.jobs.iter().all(waits) {
            true => WAITING,
            false => RUNNING,
        };
        let pause = begin.elapsed().saturating_mul(times).min(pause_max);
        let (poll, now) = (self.parts.settings.poll, Instant::now());
        self.sight.next = Some(now + pause.max(poll));
        self.sight.next_idle = Some(now + poll.saturating_mul(IDLE_TIMES));
        match asked {
            Ok((marked, alive)) => {
                self.sight.answered = Some(begin);
                if self.sight.note_alive(alive, &self.jobs, Instant::now()) {
                    self.sight.next = Some(now + AGAIN.min(poll));
                }
                let fault = self.ask_for_absent();
                self.note_batch_fault(fault);
                let is_reopened = self.reopen_requeued()?;
                Ok(self.adopt(marked)? || is_reopened)
            }
            Err(error) => {
                self.sight.alive = None;
                self.note_batch_fault(Some(error.to_string()));
                Ok(false)
            }
        }
    }

    /// Returns whether it is time to ask. Without open jobs, only a closed one that is requeued matters.
    fn is_question_due(&mut self, now: Instant) -> Result<bool, ChangeError> {
        let next = match self.jobs.is_empty() {
            true => self.sight.next_idle,
            false => self.sight.next,
        };
        if next.is_some_and(|next| now < next) {
            return Ok(false);
        }
        Ok(!self.jobs.is_empty() || !self.closed_jobs()?.is_empty())
    }

    /// Asks for some of the jobs that the last lists lacked, by their numbers. Returns the cause of a
    /// question without a clear answer: its job may live.
    fn ask_for_absent(&mut self) -> Option<String> {
        let (begin, mut fault) = (Instant::now(), None);
        let slow = self.parts.settings.retry.saturating_mul(SLOW_TIMES);
        let asked = self.sight.to_ask(&self.jobs, begin, slow).into_iter();
        for (mark, number) in asked.take(QUESTIONS.0) {
            if begin.elapsed() >= QUESTIONS.1 {
                break;
            }
            self.sight.note_asked(&mark);
            match self.parts.batch.find(&number) {
                Ok(found) => self.note_found(&mark, found.as_ref()),
                Err(error) => {
                    fault.get_or_insert(error.to_string());
                }
            }
        }
        fault
    }

    /// Notes what the batch system stated about the number of a job that the lists lacked.
    fn note_found(&mut self, mark: &str, found: Option<&FoundJob>) {
        let job = self.jobs.iter().find(|job| job.row.mark == mark);
        let Some(row) = job.map(|job| &job.row) else {
            return;
        };
        match found {
            Some(found) if number_holder(row, found) == NumberHolder::Stranger => {
                self.note_replaced(mark);
            }
            Some(found) if found.is_alive => self.sight.set_alive(mark),
            _ => self.sight.set_ended(mark),
        }
    }

    /// Notes that the number of a job belongs to another job now: the batch system lost the first one.
    pub(super) fn note_replaced(&mut self, mark: &str) {
        let number = self.shown(mark);
        tracing::warn!(
            "job {number}: the batch system gave its number to another job, which is left alone; the first one is lost"
        );
        self.sight.set_replaced(mark);
    }

    /// Shows users why the batch system did not answer, and writes a new cause to the log.
    fn note_batch_fault(&self, fault: Option<String>) {
        let mut known = self.parts.batch_fault.lock();
        match &fault {
            Some(cause) if *known != fault => tracing::warn!("{cause}; the gateway tries again"),
            None if known.is_some() => tracing::info!("the batch system answers again"),
            _ => {}
        }
        *known = fault;
    }

    /// Returns the jobs with a mark, if a job waits for its number, and the jobs that live. A job that
    /// is adopted lives in the second answer, because that is younger.
    fn ask(&self) -> Result<(Vec<MarkedJob>, HashMap<JobId, LiveJob>), BatchError> {
        let is_prepared = |job: &PlannedJob| job.row.stage == JobStage::Prepared;
        let batch = &self.parts.batch;
        let marked = match self.jobs.iter().any(is_prepared) {
            true => batch.marked()?,
            false => Vec::new(),
        };
        Ok((marked, batch.alive()?))
    }

    /// Notes the numbers of jobs that clients submitted. The batch system states the owner: no user
    /// can make a job of another user one of the gateway.
    fn adopt(&mut self, marked: Vec<MarkedJob>) -> Result<bool, ChangeError> {
        let mut is_any = false;
        for found in marked {
            let of_mark = |job: &&PlannedJob| job.row.mark == found.mark.as_str();
            let Some(job) = self.jobs.iter().find(of_mark) else {
                continue;
            };
            if job.row.stage != JobStage::Prepared {
                continue;
            }
            if job.row.owner != found.owner {
                let (number, owner, user) = (&found.job, &found.owner, &job.row.owner);
                tracing::warn!(
                    "job {number} of {owner} carries a mark of {user}; it is left alone"
                );
                continue;
            }
            let number = found.job.as_str();
            let mut table = self.parts.table.lock();
            table.note_held(self.lease.epoch, found.mark.as_str(), number, now())?;
            tracing::info!(
                "job {number} of {}: held until its data has arrived",
                found.owner
            );
            is_any = true;
        }
        if is_any {
            self.reread();
        }
        Ok(is_any)
    }
}
