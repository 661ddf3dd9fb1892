//! The gateway's answers to a collection at the moment of an act.

use crate::distribution::{CollectGuard, CollectMove};
use crate::fresh::FreshAnswers;
use crate::parts::GatewayParts;
use driftless_batch::{JobId, LiveJob};
use std::sync::Arc;

/// Guard of the collections of a job.
pub(crate) struct LeaderGuard {
    pub parts: Arc<GatewayParts>,
    pub answers: Arc<FreshAnswers>,
    /// Epoch of the lease under which the collection began.
    pub epoch: u64,
    /// Number of the job.
    pub number: JobId,
    /// Whether the job ended.
    pub is_over: bool,
}

impl LeaderGuard {
    /// Asks the batch system, and answers by what it states of the job; `None` if it does not show the job.
    fn ask<T>(&self, answer: impl FnOnce(Option<&LiveJob>) -> T) -> Result<T, String> {
        let alive = self.answers.ask(&*self.parts.batch);
        match &*alive {
            Ok(jobs) => Ok(answer(jobs.get(&self.number))),
            Err(cause) => Err(cause.clone()),
        }
    }
}

impl CollectGuard for LeaderGuard {
    fn have_ended(&self, moves: &[CollectMove]) -> Result<Vec<bool>, String> {
        if self.is_over {
            return Ok(vec![true; moves.len()]);
        }
        // A job that is missing may have ended: its results are collected after that is certain.
        let has_ended =
            |one: &CollectMove, live: &LiveJob| one.task.is_some_and(|task| !live.has_task(task));
        self.ask(|live| {
            let moves = moves.iter();
            let answers = moves.map(|one| live.is_some_and(|live| has_ended(one, live)));
            answers.collect()
        })
    }

    fn have_begun_again(&self, moves: &[CollectMove]) -> Result<bool, String> {
        if self.is_over {
            return Ok(false);
        }
        let has_begun =
            |one: &CollectMove, live: &LiveJob| one.task.is_some_and(|task| live.has_task(task));
        self.ask(|live| live.is_some_and(|live| moves.iter().any(|one| has_begun(one, live))))
    }

    fn check_lease(&self) -> Result<(), String> {
        let mut table = self.parts.table.lock();
        let renewed = table.renew(self.epoch);
        renewed.map_err(|error| format!("{error}; the results stay on the node"))
    }
}
