//! How many entries may go while a mirror follows changes: as many in an hour as a single run may
//! delete.

use crate::status::Walked;
use driftless_model::{DeleteLimit, Problem};
use std::collections::VecDeque;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// Deletes of a minute are counted together.
const MINUTE: Duration = Duration::from_secs(60);
/// Until it is known how many entries there are, a share of them stands for so many.
const UNKNOWN_ENTRIES: u64 = 1000;
/// What the guard says of a job when more would go than may.
const BY_LIMIT: &str = "(max_delete in the job)";
/// What it says may go, and what that is where some of it went before.
const ALLOWED: &str = ", allowed: ";
const LEFT: &str = ", still allowed within this hour: ";

/// What was deleted within the last hour.
#[derive(Debug)]
pub struct Deletes {
    limit: Option<DeleteLimit>,
    minutes: VecDeque<(u64, u64)>,
}

impl Deletes {
    /// None yet.
    pub fn new(limit: Option<DeleteLimit>) -> Deletes {
        Deletes {
            limit,
            minutes: VecDeque::new(),
        }
    }

    /// Whether not all may go.
    pub fn are_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// So many entries were deleted.
    pub fn add(&mut self, now: Duration, deleted: u64) {
        if deleted == 0 {
            return;
        }
        let minute = now.as_secs() / MINUTE.as_secs();
        match self.minutes.back_mut() {
            Some((last, count)) if *last == minute => *count += deleted,
            _ => self.minutes.push_back((minute, deleted)),
        }
    }

    /// How many may go for the next piece of work. A comparison of all has the job's own limit.
    pub fn limit(&mut self, now: Duration, is_walk: bool, walked: &Walked) -> Option<DeleteLimit> {
        let limit = self.limit?;
        let max = match limit {
            _ if is_walk => return Some(limit),
            DeleteLimit::Count(count) => count,
            DeleteLimit::Percent(percent) => {
                // The share is one of what there was when the hour began.
                let entries = match walked.seen {
                    0 => UNKNOWN_ENTRIES,
                    _ => walked.entries + self.gone(now),
                };
                entries.saturating_mul(percent) / 100
            }
        };
        Some(DeleteLimit::Count(max.saturating_sub(self.gone(now))))
    }

    /// How many went within the last hour.
    fn gone(&mut self, now: Duration) -> u64 {
        let oldest = now.saturating_sub(HOUR).as_secs() / MINUTE.as_secs();
        let is_old = |(minute, _): &(u64, u64)| *minute < oldest;
        while self.minutes.front().is_some_and(is_old) {
            self.minutes.pop_front();
        }
        self.minutes.iter().map(|(_, count)| count).sum()
    }

    /// A problem of a piece of work; where the limit does not allow it, with what went before.
    pub fn explained(&mut self, now: Duration, problem: Problem) -> Problem {
        let gone = self.gone(now);
        if gone == 0 || !problem.cause.contains(BY_LIMIT) {
            return problem;
        }
        let went = format!("; entries deleted within the last hour, which count: {gone}");
        let left = problem.cause.replace(ALLOWED, LEFT);
        Problem {
            cause: left + &went,
            ..problem
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Act, Class, RelPath, Side};

    #[test]
    fn what_may_go_in_an_hour_is_what_one_run_may_delete() {
        let at = |minutes: u64| Duration::from_secs(100 * 3600 + minutes * 60);
        let mut walked = Walked {
            ended: Some(at(0)),
            seen: 1500,
            entries: 1500,
            ..Walked::default()
        };
        let unknown = Walked::default();
        let count = |left| Some(DeleteLimit::Count(left));
        let percent = Some(DeleteLimit::Percent(10));
        let mut deletes = Deletes::new(percent);
        assert_eq!(deletes.limit(at(0), true, &walked), percent);
        assert_eq!(deletes.limit(at(0), false, &unknown), count(100));
        walked.follow(690, 0);
        let delete = |deletes: &mut Deletes, walked: &mut Walked, minutes, count| {
            deletes.add(at(minutes), count);
            walked.follow(0, count);
        };
        delete(&mut deletes, &mut walked, 0, 150);
        delete(&mut deletes, &mut walked, 30, 40);
        assert_eq!(deletes.limit(at(31), false, &walked), count(29));
        assert_eq!(deletes.limit(at(62), false, &walked), count(164));
        assert_eq!(deletes.limit(at(200), false, &walked), count(200));
        let told = |deletes: &mut Deletes, at, cause: &str| {
            let problem = Problem {
                path: RelPath::root(),
                side: Side::Replica,
                act: Act::Remove,
                cause: cause.to_owned(),
                class: Class::Skip,
            };
            deletes.explained(at, problem).cause
        };
        let why = "entries to delete: 3, allowed: 0 (max_delete in the job); nothing was deleted";
        assert_eq!(told(&mut deletes, at(200), why), why);
        deletes.add(at(201), 7);
        let went = told(&mut deletes, at(202), why);
        assert_eq!(
            went,
            "entries to delete: 3, still allowed within this hour: 0 (max_delete in the job); \
            nothing was deleted; entries deleted within the last hour, which count: 7"
        );
        assert_eq!(told(&mut deletes, at(202), "no room"), "no room");
        assert_eq!(Deletes::new(None).limit(at(0), false, &walked), None);
    }
}
