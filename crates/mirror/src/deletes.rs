//! How many entries may go while a mirror follows changes: as many in an hour as a single run may
//! delete.

use crate::status::Walked;
use driftless_model::DeleteLimit;
use std::collections::VecDeque;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// Deletes of a minute are counted together.
const MINUTE: Duration = Duration::from_secs(60);
/// Until it is known how many entries there are, a share of them stands for so many.
const UNKNOWN_ENTRIES: u64 = 1000;

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
                let entries = match walked.seen {
                    0 => UNKNOWN_ENTRIES,
                    seen => seen,
                };
                entries.saturating_mul(percent) / 100
            }
        };
        let oldest = now.saturating_sub(HOUR).as_secs() / MINUTE.as_secs();
        while self
            .minutes
            .front()
            .is_some_and(|(minute, _)| *minute < oldest)
        {
            self.minutes.pop_front();
        }
        let gone: u64 = self.minutes.iter().map(|(_, count)| count).sum();
        Some(DeleteLimit::Count(max.saturating_sub(gone)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_go_in_an_hour_is_what_one_run_may_delete() {
        let at = |minutes: u64| Duration::from_secs(100 * 3600 + minutes * 60);
        let walked = Walked {
            ended: Some(at(0)),
            seen: 2000,
            ..Walked::default()
        };
        let unknown = Walked::default();
        let count = |left| Some(DeleteLimit::Count(left));
        let percent = Some(DeleteLimit::Percent(10));
        let mut deletes = Deletes::new(percent);
        assert_eq!(deletes.limit(at(0), true, &walked), percent);
        assert_eq!(deletes.limit(at(0), false, &unknown), count(100));
        deletes.add(at(0), 150);
        deletes.add(at(30), 40);
        assert_eq!(deletes.limit(at(31), false, &walked), count(10));
        assert_eq!(deletes.limit(at(62), false, &walked), count(160));
        assert_eq!(deletes.limit(at(200), false, &walked), count(200));
        assert_eq!(Deletes::new(None).limit(at(0), false, &walked), None);
    }
}
