//! Answers of the batch system for acts that cannot wait for the next turn: a result is sealed only if
//! its task has ended at this very moment.
//!
//! Collections that ask at the same time share an answer, and there are pauses between two questions.

use driftless_batch::{BatchSystem, JobId, LiveJob};
use driftless_lock::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two questions, as a multiple of the time that an answer takes.
const PAUSE_TIMES: u32 = 4;
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Jobs that have tasks which wait or run, or why they are unknown.
pub(crate) type AliveJobs = Result<HashMap<JobId, LiveJob>, String>;

/// The last answer of the batch system, which several threads share.
#[derive(Debug, Default)]
pub(crate) struct FreshAnswers {
    last: Mutex<Option<FreshAnswer>>,
}

#[derive(Debug)]
struct FreshAnswer {
    began: Instant,
    ended: Instant,
    jobs: Arc<AliveJobs>,
}

impl FreshAnswers {
    /// Returns an answer to a question that was asked after this call.
    pub fn ask(&self, batch: &dyn BatchSystem) -> Arc<AliveJobs> {
        let called = Instant::now();
        // Others wait here while one thread asks, and share the answer to the next question.
        let mut last = self.last.lock();
        if let Some(last) = &*last {
            if last.began > called {
                return Arc::clone(&last.jobs);
            }
            let took = last.ended.saturating_duration_since(last.began);
            let next = last.ended + took.saturating_mul(PAUSE_TIMES).min(PAUSE_MAX);
            std::thread::sleep(next.saturating_duration_since(called));
        }
        let began = Instant::now();
        let jobs = Arc::new(batch.alive().map_err(|error| error.to_string()));
        let answer = FreshAnswer {
            began,
            ended: Instant::now(),
            jobs: Arc::clone(&jobs),
        };
        *last = Some(answer);
        jobs
    }
}
