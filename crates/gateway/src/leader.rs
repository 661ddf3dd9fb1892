//! The gateway that acts: one thread that owns all decisions.
//!
//! Each turn reads the table if others changed it, asks the batch system if it is time, and carries out the
//! next act of each job. Casts and purges run in threads of their own and report events. The table
//! states what was begun before the batch system or a node is changed.

mod acts;
mod ask;
mod candidates;
mod claims;
mod collect;
mod compare;
mod credits;
mod guard;
mod health;
mod outboxes;
mod readiness;
mod references;
mod requeued;
mod sight;
mod signs;
mod state;
mod tasks;
mod told;
mod work;

use crate::parts::now;
use crate::plan::{NextAct, PlannedJob, next_act};
use crossbeam_channel::{Receiver, select};
use driftless_state::jobs::{ChangeError, JobChange, JobNodeRow, JobNodeState, JobStage};
use signs::silent_row;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use work::WorkEvent;

pub(crate) use state::GatewayLeader;

/// Longest pause between two turns.
const TURN: Duration = Duration::from_secs(1);
/// Events that one turn takes.
const EVENTS_MAX: usize = 4096;
/// Age at which rows of closed jobs are removed.
const CLOSED_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Age at which rows of jobs that were never submitted are removed.
const PREPARED_AGE: Duration = Duration::from_secs(24 * 3600);
/// Fault of a job whose hold was ended too early.
const RELEASED_EARLY: &str = "the job was released by hand before its data arrived; its tasks can start without data: hold it again, or cancel it";
/// Interval at which old rows are removed.
const FORGETTING: Duration = Duration::from_secs(3600);

/// Cause of the end of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaderEnd {
    /// The caller stopped the gateway.
    Stopped,
    /// Another gateway has the lease.
    LeaseLost,
}

impl GatewayLeader<'_> {
    /// Acts until `stop` is set or the lease is lost.
    pub fn run(&mut self, nudges: &Receiver<()>, stop: &AtomicBool) -> LeaderEnd {
        let end = loop {
            if stop.load(Relaxed) {
                break LeaderEnd::Stopped;
            }
            match self.turn() {
                Ok(()) => self.note_table(None),
                Err(ChangeError::LeaseLost) => break LeaderEnd::LeaseLost,
                Err(ChangeError::State(error)) => {
                    self.note_table(Some(error.to_string()));
                    self.reread();
                }
            }
            self.wait(nudges);
        };
        self.outboxes.stop_all();
        self.works.stop_all();
        if end == LeaderEnd::Stopped {
            let mut table = self.parts.table.lock();
            let _another_gateway_waits_for_longer = table.end_lease(self.lease.epoch);
        }
        end
    }

    /// Writes a new failure of the table to the log. What the table lacks is kept until it can be
    /// written, and nothing is begun before.
    fn note_table(&mut self, fault: Option<String>) {
        match &fault {
            Some(cause) if self.table_fault != fault => {
                tracing::warn!("{cause}; the gateway tries again");
            }
            None if self.table_fault.is_some() => tracing::info!("the table of jobs works again"),
            _ => {}
        }
        self.table_fault = fault;
    }

    /// Waits for an event, a client, or the next turn.
    fn wait(&mut self, nudges: &Receiver<()>) {
        let awaited = self.candidates.wait_max(Instant::now());
        let pause = TURN
            .min(self.parts.settings.poll)
            .min(awaited.unwrap_or(TURN));
        let event = select! {
            recv(self.works.events()) -> event => event.ok(),
            recv(nudges) -> _ => {
                self.sight.ask_soon();
                None
            }
            default(pause) => None,
        };
        self.works.take_back(event);
    }

    fn turn(&mut self) -> Result<(), ChangeError> {
        self.renew()?;
        self.absorb()?;
        self.reload()?;
        if self.ask_batch()? {
            self.reload()?;
        }
        self.check_references();
        self.probe();
        self.act()?;
        self.flush()?;
        self.tell_ready()?;
        self.collect()?;
        self.forget()
    }

    /// Carries out the next act of each job.
    fn act(&mut self) -> Result<(), ChangeError> {
        let now = now();
        for at in 0..self.jobs.len() {
            let begin = Instant::now();
            if !self.lease.is_sure(begin) {
                return Ok(());
            }
            self.lease.note_step(begin);
            let Some(job) = self.jobs.get(at) else {
                break;
            };
            let sight = self.sight.of(job);
            let act = next_act(job, sight, now);
            if job.is_released_early(sight) {
                let mark = job.row.mark.clone();
                self.note_fault(&mark, Some(RELEASED_EARLY));
            }
            match act {
                NextAct::Wait => {}
                NextAct::Refresh => self.refresh(at),
                NextAct::End => self.end(at),
                NextAct::Load => self.load(at)?,
                NextAct::Release => self.release(at)?,
                NextAct::ReleaseAgain => self.release_again(at)?,
                NextAct::Resume => self.resume(at)?,
                NextAct::Purge => self.purge(at),
                NextAct::Close => self.close(at)?,
            }
        }
        Ok(())
    }

    /// Notes the events of casts and purges. The table gets all of them before the next act. A table
    /// that fails loses none: what it lacks is written in the next turn.
    fn absorb(&mut self) -> Result<(), ChangeError> {
        let mut noted = Ok(());
        for event in self.works.take(EVENTS_MAX) {
            noted = noted.and(self.note_event(event));
        }
        noted.and(self.flush())
    }

    fn note_event(&mut self, event: WorkEvent) -> Result<(), ChangeError> {
        match event {
            WorkEvent::Data { mark, hash, bytes } => {
                self.note(JobChange::Data { mark, hash, bytes });
            }
            WorkEvent::Nodes { mark, rows } => self.note_outcomes(&mark, rows),
            WorkEvent::Silent { mark, node, cause } => {
                self.note_silence(&node, &cause);
                self.works.note_silence(&mark, &node);
                let rows = vec![silent_row(node, &cause)];
                self.log_failed(&mark, &rows);
                self.note_nodes(&mark, rows);
            }
            WorkEvent::LoadEnded {
                mark,
                load,
                outcome,
            } => self.note_load(&mark, load, outcome),
            WorkEvent::PurgeEnded { mark, is_complete } => {
                self.works.end_purge(&mark, is_complete);
            }
            WorkEvent::Outboxes { mark, list } => self.note_list(&mark, list),
            WorkEvent::Collected {
                mark,
                node,
                outcome,
            } => self.note_collected(&mark, node, outcome),
            WorkEvent::References(answers) => self.note_references(answers),
            WorkEvent::Probed(answers) => {
                self.works.end_probe();
                self.note_signs(&answers);
            }
        }
        Ok(())
    }

    /// Notes outcomes of nodes in a cast or purge.
    fn note_outcomes(&mut self, mark: &str, rows: Vec<JobNodeRow>) {
        self.log_failed(mark, &rows);
        for row in &rows {
            self.works.note_outcome(mark, &row.node);
            if row.state == JobNodeState::Ready {
                self.note_answer(&row.node);
            }
        }
        self.note_nodes(mark, rows);
    }

    fn note_load(&mut self, mark: &str, load: u64, outcome: Result<(), String>) {
        let known = self.jobs.iter().find(|job| job.row.mark == mark);
        // What another cast of the job may bring is no failure of this one.
        let is_last = self.works.loads_of(mark) <= 1;
        let lacks = is_last && known.is_some_and(PlannedJob::lacks_nodes);
        let is_complete = outcome.is_ok() && !lacks;
        self.works.end_load(mark, load, is_complete);
        match outcome {
            Ok(()) => self.note_fault(mark, None),
            Err(cause) => self.note_fault(mark, Some(&cause)),
        }
    }

    /// Removes old rows.
    fn forget(&mut self) -> Result<(), ChangeError> {
        if self.forgotten.is_some_and(|at| at.elapsed() < FORGETTING) {
            return Ok(());
        }
        self.forgotten = Some(Instant::now());
        let (now, epoch) = (now(), self.lease.epoch);
        let mut table = self.parts.table.lock();
        table.forget(epoch, JobStage::Closed, now.saturating_sub(CLOSED_AGE))?;
        match self.sight.is_fresh() {
            true => table.forget(epoch, JobStage::Prepared, now.saturating_sub(PREPARED_AGE))?,
            false => return Ok(()),
        }
        drop(table);
        self.closed = None;
        self.reread();
        Ok(())
    }
}

#[cfg(test)]
#[path = "leader/tests.rs"]
mod tests;
