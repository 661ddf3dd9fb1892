//! Nodes on which jobs may run: the batch system is asked for all jobs at once, and its answer is kept
//! for a while. So the number of commands does not grow with the number of jobs.

use driftless_batch::{BatchError, BatchResult, JobCandidates, JobId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which an answer is kept, as a multiple of the time of the question.
const KEPT_TIMES: u32 = 500;
const KEPT_MIN: Duration = Duration::from_secs(1);
const KEPT_MAX: Duration = Duration::from_secs(30);
/// Pause after a question, as a multiple of its time, and the longest one.
const PAUSE: (u32, Duration) = (5, Duration::from_secs(10));

/// Answer about one job.
#[derive(Debug)]
struct KnownNodes {
    asked: Instant,
    nodes: Result<Vec<String>, Arc<BatchError>>,
}

/// The last answers of the batch system.
#[derive(Debug, Default)]
pub(crate) struct CandidateNodes {
    of: HashMap<JobId, KnownNodes>,
    /// Time for which answers are kept.
    kept: Duration,
    /// Time of the next question.
    next: Option<Instant>,
    /// Whether a job waits for it.
    is_awaited: bool,
    /// Failure of the last question.
    failed: Option<Arc<BatchError>>,
}

impl CandidateNodes {
    /// Returns the jobs that a question has to name, so that a job gets a young answer: those without
    /// an answer, or all if the answer of this job is too old. `None` if no question is needed, or it is
    /// too early for one.
    pub fn question_for(
        &mut self,
        job: &JobId,
        all: impl FnOnce() -> Vec<JobId>,
        now: Instant,
    ) -> Option<Vec<JobId>> {
        if self.young(job, now).is_some() {
            return None;
        }
        if self.next.is_some_and(|next| now < next) {
            self.is_awaited = true;
            return None;
        }
        let is_known = self.of.contains_key(job);
        let is_asked = |one: &JobId| one != job && (is_known || !self.of.contains_key(one));
        let others = all().into_iter().filter(is_asked);
        Some(others.chain([job.clone()]).collect())
    }

    /// Keeps the answer to a question about some jobs.
    pub fn note(&mut self, answer: BatchResult<JobCandidates>, (begin, end): (Instant, Instant)) {
        let spent = end.saturating_duration_since(begin);
        self.next = Some(end + spent.saturating_mul(PAUSE.0).min(PAUSE.1));
        self.kept = spent.saturating_mul(KEPT_TIMES).clamp(KEPT_MIN, KEPT_MAX);
        self.is_awaited = false;
        // Closed jobs are not asked about again.
        self.of
            .retain(|_, known| end.saturating_duration_since(known.asked) < KEPT_MAX * 2);
        match answer {
            Ok(found) => {
                self.failed = None;
                let known = |(job, nodes)| (job, KnownNodes { asked: end, nodes });
                self.of.extend(found.into_iter().map(known));
            }
            Err(error) => self.failed = Some(Arc::new(error)),
        }
    }

    /// Returns the nodes of a job. `None` if the batch system has to be asked first.
    pub fn of(&self, job: &JobId, now: Instant) -> Option<Result<Vec<String>, Arc<BatchError>>> {
        if let Some(known) = self.young(job, now) {
            return Some(known.nodes.clone());
        }
        self.failed.clone().map(Err)
    }

    /// Returns the time until a question that had to wait. `None` if no job waits for one.
    pub fn wait_max(&self, now: Instant) -> Option<Duration> {
        let next = self.next.filter(|_| self.is_awaited)?;
        Some(next.saturating_duration_since(now))
    }

    fn young(&self, job: &JobId, now: Instant) -> Option<&KnownNodes> {
        let is_young = |known: &&KnownNodes| now.saturating_duration_since(known.asked) < self.kept;
        self.of.get(job).filter(is_young)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPENT: Duration = Duration::from_millis(10);

    fn jobs(numbers: &[&str]) -> Vec<JobId> {
        let number = |number: &&str| JobId::new(number).expect("a number");
        numbers.iter().map(number).collect()
    }

    fn answer(jobs: &[JobId]) -> BatchResult<JobCandidates> {
        let nodes = |job: &JobId| (job.clone(), Ok(vec!["n1".to_owned()]));
        Ok(jobs.iter().map(nodes).collect())
    }

    fn unavailable() -> BatchError {
        BatchError::Unavailable {
            command: "squeue".into(),
            text: "no".into(),
        }
    }

    /// Returns the jobs of the next question for a job, in the order of their numbers.
    fn question_for(
        known: &mut CandidateNodes,
        job: &JobId,
        all: &[JobId],
        now: Instant,
    ) -> Vec<JobId> {
        let asked = known.question_for(job, || all.to_vec(), now);
        let mut asked = asked.unwrap_or_default();
        asked.sort();
        asked
    }

    #[test]
    fn old_answer_renews_that_of_all_jobs() {
        let (all, begin) = (jobs(&["1", "2", "3"]), Instant::now());
        let mut known = CandidateNodes::default();
        assert_eq!(question_for(&mut known, &all[0], &all, begin), all);
        let end = begin + SPENT;
        known.note(answer(&all), (begin, end));
        assert!(known.of(&all[2], end).expect("an answer").is_ok());
        assert_eq!(question_for(&mut known, &all[2], &all, end + SPENT * 6), []);
        let late = end + SPENT * KEPT_TIMES;
        assert_eq!(question_for(&mut known, &all[2], &all, late), all);
    }

    #[test]
    fn new_jobs_are_asked_about_alone() {
        let (all, begin) = (jobs(&["1", "2", "3", "4"]), Instant::now());
        let mut known = CandidateNodes::default();
        let end = begin + SPENT;
        known.note(answer(&all[..2]), (begin, end));
        assert_eq!(
            question_for(&mut known, &all[3], &all, end),
            [],
            "too early"
        );
        assert_eq!(known.wait_max(end), Some(SPENT * PAUSE.0));
        let soon = end + SPENT * PAUSE.0;
        assert_eq!(question_for(&mut known, &all[3], &all, soon), all[2..]);
    }

    #[test]
    fn failed_question_answers_all_jobs() {
        let (all, begin) = (jobs(&["1", "2"]), Instant::now());
        let mut known = CandidateNodes::default();
        known.note(Err(unavailable()), (begin, begin + SPENT));
        for job in &all {
            let answer = known.of(job, begin + SPENT).expect("an answer");
            assert!(answer.expect_err("failed").may_pass());
            assert_eq!(
                question_for(&mut known, job, &all, begin + SPENT),
                [],
                "one command"
            );
        }
    }
}
