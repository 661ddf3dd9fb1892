//! Signs of nodes, for all jobs together: a node that does not answer delays no cast to others, and one
//! that answers again gets what it lacks.

use super::state::GatewayLeader;
use super::work::WorkKind;
use crate::distribution::NodeAnswer;
use crate::plan::PlannedJob;
use driftless_state::jobs::{JobNodeRow, JobNodeState};
use std::time::Instant;

/// End of a name that no job has: the answer of a node is short.
const NO_JOB: &str = "-";

/// Returns the row of a node that does not answer.
pub(super) fn silent_row(node: String, cause: &str) -> JobNodeRow {
    JobNodeRow {
        node,
        state: JobNodeState::Failed,
        fault: Some(cause.to_owned()),
    }
}

impl GatewayLeader<'_> {
    /// Asks silent nodes whether they answer again, if it is time.
    pub(super) fn probe(&mut self) {
        let due = self.health.due(Instant::now());
        let prefix = self.parts.job_name(NO_JOB);
        self.works.probe(due, prefix, &self.parts.distribution);
    }

    /// Notes that a node answered. Jobs whose data it lacks wait no longer.
    pub(super) fn note_answer(&mut self, node: &str) {
        if !self.health.note_answer(node, Instant::now()) {
            return;
        }
        tracing::info!("{node}: answers again");
        for job in self.jobs.iter().filter(|job| lacks(job, node)) {
            self.works.succeed(&job.row.mark, WorkKind::Load);
        }
    }

    /// Notes that a node did not answer, and writes a new cause to the log.
    pub(super) fn note_silence(&mut self, node: &str, cause: &str) {
        if self.health.note_silence(node, cause, Instant::now()) {
            tracing::warn!("{node}: does not answer: {cause}; the gateway asks it again");
        }
    }

    /// Notes which nodes answered a question.
    pub(super) fn note_signs<T>(&mut self, answers: &[NodeAnswer<T>]) {
        for answer in answers {
            match &answer.answer {
                Ok(_) => self.note_answer(&answer.node),
                Err(cause) => self.note_silence(&answer.node, cause),
            }
        }
    }

    /// Returns whether a job lacks a node that answers, and that its casts at work do not reach: one that
    /// lost its copy meanwhile, for example.
    pub(super) fn lacks_others(&self, job: &PlannedJob) -> bool {
        let mark = &job.row.mark;
        let is_other = |row: &JobNodeRow| {
            row.state == JobNodeState::Wanted
                && self.health.silence(&row.node).is_none()
                && !self.works.is_loading_to(mark, &row.node)
        };
        job.nodes.iter().any(is_other)
    }

    /// Returns whether a job lacks no node but silent ones.
    pub(super) fn lacks_silent_alone(&self, job: &PlannedJob) -> bool {
        let lacks = |row: &&JobNodeRow| row.state != JobNodeState::Ready;
        let mut lacking = job.nodes.iter().filter(lacks);
        !job.nodes.is_empty() && lacking.all(|row| self.health.silence(&row.node).is_some())
    }
}

fn lacks(job: &PlannedJob, node: &str) -> bool {
    let mut rows = job.nodes.iter();
    rows.any(|row| row.node == node && row.state != JobNodeState::Ready)
}
