//! State of the jobs in the batch system.
//!
//! A list that lacks a job does not end it: lists can be cut or filtered. The leader asks for the job by
//! its number, and believes a clear answer alone.

use crate::plan::{PlannedJob, Sight};
use driftless_batch::{JobId, LiveJob};
use driftless_state::jobs::JobStage;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Lists without a job after which the batch system is asked for it.
const ABSENT_MIN: u32 = 2;
/// Jobs that lived in one list. If none of them lives in the next one, the batch system may have lost
/// its state.
const MANY: usize = 8;
/// Numbers that clients stated alone, and for which one turn asks at most.
const CLAIMED_MAX: usize = 4;

/// The last answers of the batch system.
#[derive(Debug, Default)]
pub(crate) struct BatchSight {
    pub alive: Option<HashMap<JobId, LiveJob>>,
    /// Lists in a row that lacked a job, by its mark.
    absent: HashMap<String, u32>,
    /// Questions for such a job by its number that had no clear answer.
    questions: HashMap<String, u32>,
    /// Jobs that ended, as the batch system stated by their numbers.
    ended: HashSet<String>,
    /// Jobs whose numbers belong to other jobs now.
    replaced: HashSet<String>,
    /// Jobs of the gateway in the last list.
    known: usize,
    /// Time at which many jobs vanished at once.
    vanished: Option<Instant>,
    pub next: Option<Instant>,
    /// Time of the next question while no job is open.
    pub next_idle: Option<Instant>,
    /// Begin of the last question that was answered.
    pub answered: Option<Instant>,
}

impl BatchSight {
    /// Returns the state of a job.
    pub fn of(&self, job: &PlannedJob) -> Sight<'_> {
        let Some(alive) = &self.alive else {
            return Sight::Unknown;
        };
        let mark = &job.row.mark;
        if self.replaced.contains(mark) {
            return Sight::Gone;
        }
        let number = job.row.number.as_deref().and_then(JobId::new);
        match number.and_then(|number| alive.get(&number)) {
            Some(live) => Sight::Alive(live),
            None if self.ended.contains(mark) => Sight::Gone,
            None => Sight::Unknown,
        }
    }

    /// Returns whether the last question was answered.
    pub fn is_fresh(&self) -> bool {
        self.alive.is_some()
    }

    /// Asks in the next turn.
    pub fn ask_soon(&mut self) {
        self.next = None;
    }

    /// Notes a list of the jobs that live, and counts those that it lacks. Returns whether it is the
    /// first one that lacks some job.
    pub fn note_alive(
        &mut self,
        alive: HashMap<JobId, LiveJob>,
        jobs: &[PlannedJob],
        now: Instant,
    ) -> bool {
        let (mut absent, mut known) = (HashMap::new(), 0);
        for row in jobs.iter().map(|job| &job.row) {
            let Some(number) = row.number.as_deref().and_then(JobId::new) else {
                continue;
            };
            if alive.contains_key(&number) {
                known += 1;
                continue;
            }
            let before = self.absent.get(&row.mark).copied().unwrap_or(0);
            absent.insert(row.mark.clone(), before.saturating_add(1));
        }
        self.vanished = match (known, self.known) {
            (0, before) if before >= MANY => Some(now),
            (0, _) => self.vanished,
            _ => None,
        };
        self.ended.retain(|mark| absent.contains_key(mark));
        self.questions.retain(|mark, _| absent.contains_key(mark));
        let is_open = |mark: &String| jobs.iter().any(|job| job.row.mark == *mark);
        self.replaced.retain(is_open);
        (self.absent, self.known, self.alive) = (absent, known, Some(alive));
        self.absent.values().any(|lists| *lists == 1)
    }

    /// Returns the marks and numbers of jobs that several lists lacked, and whose end is not known yet.
    /// None for the time `slow` after many jobs vanished at once. Those that were asked for least often
    /// come first. At the end are a few whose numbers a client stated, and the batch system never did.
    pub fn to_ask(
        &self,
        jobs: &[PlannedJob],
        now: Instant,
        slow: Duration,
    ) -> Vec<(String, JobId)> {
        let is_early = |at: Instant| now.saturating_duration_since(at) < slow;
        if self.vanished.is_some_and(is_early) {
            return Vec::new();
        }
        let is_asked = |mark: &String| {
            let is_known = self.ended.contains(mark) || self.replaced.contains(mark);
            !is_known && self.absent.get(mark) >= Some(&ABSENT_MIN)
        };
        let rows = jobs.iter().map(|job| &job.row);
        let asked = rows.filter(|row| is_asked(&row.mark)).filter_map(|row| {
            let number = row.number.as_deref().and_then(JobId::new)?;
            Some((row.stage == JobStage::Prepared, row.mark.clone(), number))
        });
        let (mut stated, mut claimed): (Vec<_>, Vec<_>) =
            asked.partition(|(is_claimed, ..)| !is_claimed);
        for asked in [&mut stated, &mut claimed] {
            asked.sort_by_key(|(_, mark, _)| self.questions.get(mark).copied().unwrap_or(0));
        }
        claimed.truncate(CLAIMED_MAX);
        let all = stated.into_iter().chain(claimed);
        all.map(|(_, mark, number)| (mark, number)).collect()
    }

    /// Notes a question for a job.
    pub fn note_asked(&mut self, mark: &str) {
        let questions = self.questions.entry(mark.to_owned()).or_default();
        *questions = questions.saturating_add(1);
    }

    /// Notes that a job lives, though lists lacked it.
    pub fn set_alive(&mut self, mark: &str) {
        self.absent.remove(mark);
    }

    /// Notes that a job ended.
    pub fn set_ended(&mut self, mark: &str) {
        self.ended.insert(mark.to_owned());
    }

    /// Notes that the number of a job belongs to another job now.
    pub fn set_replaced(&mut self, mark: &str) {
        self.replaced.insert(mark.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::job;

    const SLOW: Duration = Duration::from_secs(60);

    fn open(count: usize) -> Vec<PlannedJob> {
        let numbered = |number: usize| {
            let mut one = job(&number.to_string(), JobStage::Released, &[]);
            one.row.number = Some(number.to_string());
            one
        };
        (1..=count).map(numbered).collect()
    }

    fn list(jobs: &[PlannedJob]) -> HashMap<JobId, LiveJob> {
        let number = |job: &PlannedJob| JobId::new(&job.row.mark).expect("a number");
        let live = |job| (number(job), LiveJob::default());
        jobs.iter().map(live).collect()
    }

    #[test]
    fn list_without_a_job_ends_it_not() {
        let (jobs, mut sight, now) = (open(3), BatchSight::default(), Instant::now());
        assert!(sight.note_alive(list(&jobs[..2]), &jobs, now));
        assert_eq!(sight.to_ask(&jobs, now, SLOW), []);
        assert!(!sight.note_alive(list(&jobs[..2]), &jobs, now));
        let number = JobId::new("3").expect("a number");
        assert_eq!(sight.to_ask(&jobs, now, SLOW), [("3".to_owned(), number)]);
        assert!(matches!(sight.of(&jobs[2]), Sight::Unknown));
        sight.set_ended("3");
        assert!(matches!(sight.of(&jobs[2]), Sight::Gone));
        assert_eq!(sight.to_ask(&jobs, now, SLOW), []);
        sight.note_alive(list(&jobs), &jobs, now);
        assert!(matches!(sight.of(&jobs[2]), Sight::Alive(_)), "requeued");
    }

    #[test]
    fn loss_of_many_jobs_is_believed_late() {
        let (jobs, mut sight, now) = (open(MANY), BatchSight::default(), Instant::now());
        sight.note_alive(list(&jobs), &jobs, now);
        for _ in 0..5 {
            sight.note_alive(HashMap::new(), &jobs, now);
        }
        assert_eq!(sight.to_ask(&jobs, now, SLOW), []);
        assert_eq!(sight.to_ask(&jobs, now + SLOW, SLOW).len(), MANY);
    }

    #[test]
    fn unanswered_numbers_starve_no_other() {
        let (mut jobs, mut sight, now) = (open(100), BatchSight::default(), Instant::now());
        for job in jobs.iter_mut().take(60) {
            job.row.stage = JobStage::Prepared;
        }
        for _ in 0..ABSENT_MIN {
            sight.note_alive(HashMap::new(), &jobs, now);
        }
        let mut asked = HashSet::new();
        for _ in 0..20 {
            for (mark, _) in sight.to_ask(&jobs, now, SLOW).into_iter().take(16) {
                sight.note_asked(&mark);
                asked.insert(mark);
            }
            if asked.len() >= 40 {
                break;
            }
        }
        let is_stated = |mark: &String| mark.parse::<usize>().is_ok_and(|number| number > 60);
        assert_eq!(asked.iter().filter(|mark| is_stated(mark)).count(), 40);
        (61..=100).for_each(|number| sight.set_ended(&number.to_string()));
        let before = asked.len();
        for _ in 0..15 {
            for (mark, _) in sight.to_ask(&jobs, now, SLOW) {
                sight.note_asked(&mark);
                asked.insert(mark);
            }
        }
        assert_eq!((before, asked.len()), (40, 100));
    }

    #[test]
    fn job_with_a_lost_number_ended() {
        let (jobs, mut sight, now) = (open(1), BatchSight::default(), Instant::now());
        sight.note_alive(list(&jobs), &jobs, now);
        sight.set_replaced("1");
        sight.note_alive(list(&jobs), &jobs, now);
        assert!(matches!(sight.of(&jobs[0]), Sight::Gone));
    }
}
