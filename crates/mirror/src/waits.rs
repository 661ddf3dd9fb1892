//! Who waits until the replica has everything that happened before a moment.

use crate::ask::Reply;
use crate::herald::Crier;
use std::time::Duration;

/// Somebody who waits.
#[derive(Debug)]
pub struct Wait {
    /// Where the answer goes.
    pub reply: Reply,
    /// Everything that happened before is waited for.
    since: Duration,
    /// What was heard of until then is waited for, once all of it has been heard of.
    pub until: Option<Duration>,
    /// How much others are to be told, once all of that is on the replica.
    told: Option<u64>,
    /// The answer does not wait for the replica.
    hears_only: bool,
    deadline: Option<Duration>,
}

impl Wait {
    /// Waits for everything that happened before `now`, for so long at most.
    pub fn for_all(reply: Reply, now: Duration, timeout: Option<Duration>) -> Wait {
        Wait {
            reply,
            since: now,
            until: None,
            told: None,
            hears_only: false,
            deadline: timeout.map(|timeout| now.saturating_add(timeout)),
        }
    }

    /// Waits until everything that happened before `now` has been heard of, for so long at most.
    pub fn for_word(reply: Reply, now: Duration, timeout: Duration) -> Wait {
        Wait {
            hears_only: true,
            ..Wait::for_all(reply, now, Some(timeout))
        }
    }

    /// Returns whether everything has been heard of, and nothing more is waited for.
    pub fn has_heard(&self) -> bool {
        self.hears_only && self.until.is_some()
    }

    /// Whether others have been told what was to be told when all was on the replica.
    pub(crate) fn is_told(&mut self, crier: &Crier) -> bool {
        let pushed = *self.told.get_or_insert_with(|| crier.pushed());
        crier.has_told(pushed)
    }
}

/// All who wait.
#[derive(Debug, Default)]
pub struct Waits(Vec<Wait>);

impl Waits {
    /// One more.
    pub fn add(&mut self, wait: Wait) {
        self.0.push(wait);
    }

    /// Everything that happened until `moment` has been heard of by now.
    pub fn heard_until(&mut self, moment: Duration, now: Duration) {
        let hearing = self.0.iter_mut().filter(|wait| wait.until.is_none());
        for wait in hearing.filter(|wait| wait.since <= moment) {
            wait.until = Some(now);
        }
    }

    /// Whether somebody waits for what has not all been heard of.
    pub fn is_hearing(&self) -> bool {
        self.0.iter().any(|wait| wait.until.is_none())
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When somebody has waited long enough.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.0.iter().filter_map(|wait| wait.deadline).min()
    }

    /// Those who have what they waited for.
    pub fn take_done(&mut self, is_done: impl Fn(&mut Wait) -> bool) -> Vec<Wait> {
        self.0.extract_if(.., |wait| is_done(wait)).collect()
    }

    /// Those who have waited long enough.
    pub fn take_late(&mut self, now: Duration) -> Vec<Wait> {
        let is_late = |wait: &mut Wait| wait.deadline.is_some_and(|deadline| deadline <= now);
        self.0.extract_if(.., is_late).collect()
    }
}
