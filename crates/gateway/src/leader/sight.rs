//! State of the jobs in the batch system.

use crate::plan::{PlannedJob, Sight};
use driftless_batch::{JobId, LiveJob};
use std::collections::HashMap;
use std::time::Instant;

/// Answers without a job after which the job counts as ended.
const ABSENT_MIN: u32 = 2;

/// The last answers of the batch system.
#[derive(Debug, Default)]
pub(crate) struct BatchSight {
    pub alive: Option<HashMap<JobId, LiveJob>>,
    /// Answers in a row that lacked a job, by its mark.
    absent: HashMap<String, u32>,
    pub next: Option<Instant>,
    /// Begin of the last question that was answered.
    pub answered: Option<Instant>,
}

impl BatchSight {
    /// Returns the state of a job.
    pub fn of(&self, job: &PlannedJob) -> Sight<'_> {
        let Some(alive) = &self.alive else {
            return Sight::Unknown;
        };
        let number = job.row.number.as_deref().and_then(JobId::new);
        match number.and_then(|number| alive.get(&number)) {
            Some(live) => Sight::Alive(live),
            None if self.absent.get(&job.row.mark) >= Some(&ABSENT_MIN) => Sight::Gone,
            None => Sight::Unknown,
        }
    }

    /// Returns whether the last question was answered.
    pub fn is_fresh(&self) -> bool {
        self.alive.is_some()
    }

    /// Returns whether the last answer is to a question that was asked after a time.
    pub fn is_younger(&self, than: Instant) -> bool {
        self.answered.is_some_and(|asked| asked > than)
    }

    /// Asks in the next turn.
    pub fn ask_soon(&mut self) {
        self.next = None;
    }

    pub fn count_absent(&mut self, jobs: &[PlannedJob]) {
        let Some(alive) = &self.alive else {
            return;
        };
        let mut absent = HashMap::new();
        for row in jobs.iter().map(|job| &job.row) {
            let number = row.number.as_deref().and_then(JobId::new);
            if number.is_some_and(|number| !alive.contains_key(&number)) {
                let before = self.absent.get(&row.mark).copied().unwrap_or(0);
                absent.insert(row.mark.clone(), before.saturating_add(1));
            }
        }
        self.absent = absent;
    }
}
