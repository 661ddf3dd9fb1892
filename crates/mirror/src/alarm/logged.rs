//! Alarms in the mirror's log: a new kind of trouble at once, further paths once a minute together,
//! so that a full replica does not fill the log as well.

use super::{Alarm, What};
use crate::status::Status;
use std::time::Duration;

/// Paths with a problem are logged together for so long after a line about them.
const PATHS_EVERY: Duration = Duration::from_secs(60);

/// Interval at which the log has the progress of a comparison.
const COMPARISON_EVERY: Duration = Duration::from_secs(600);

/// New problems of paths that are not in the log yet.
#[derive(Debug, Default)]
pub struct AlarmLog {
    /// The time of the last line about paths.
    logged: Option<Duration>,
    first: Option<Alarm>,
    more: u64,
    /// Intervals of the comparison that runs, of which the log has the progress.
    comparison: Option<u64>,
}

impl AlarmLog {
    /// Takes the alarms that are new at `now`; returns the lines to log.
    pub fn lines(&mut self, alarms: &[Alarm], now: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        for alarm in alarms {
            match (alarm.what, &self.first) {
                // Where these begin, the log says so.
                (What::Away | What::Deaf | What::Unsaved, _) => {}
                (What::Behind, _) => lines.push(format!("the replica is {}", alarm.why)),
                (What::FirstCopy, _) => lines.push(alarm.why.clone()),
                (What::Problem | What::Quarantine, None) => self.first = Some(alarm.clone()),
                (What::Problem | What::Quarantine, Some(_)) => self.more += 1,
            }
        }
        lines.extend(self.line_of_paths(now));
        lines
    }

    /// Returns the progress of a long comparison, once in an interval.
    pub fn comparison(&mut self, status: &Status) -> Option<String> {
        let turn = status
            .comparing
            .map(|now| now.elapsed.as_secs() / COMPARISON_EVERY.as_secs());
        let is_due = turn > self.comparison && turn > Some(0);
        self.comparison = turn;
        is_due.then(|| status.comparison())
    }

    fn line_of_paths(&mut self, now: Duration) -> Option<String> {
        let is_due = |logged: Duration| now.saturating_sub(logged) >= PATHS_EVERY;
        if !self.logged.is_none_or(is_due) {
            return None;
        }
        let alarm = self.first.take()?;
        self.logged = Some(now);
        let more = std::mem::take(&mut self.more);
        let quarantine = match alarm.what {
            What::Quarantine => " (failed six times: tried seldom from now on)",
            _ => "",
        };
        let tail = match more {
            0 => String::new(),
            1 => "; 1 more path has a problem".into(),
            more => format!("; {more} more paths have problems"),
        };
        let (why, job) = (&alarm.why, &alarm.job);
        Some(match tail.is_empty() {
            true => format!("{why}{quarantine}"),
            false => format!("{why}{quarantine}{tail} (driftless mirror problems {job})"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::RelPath;

    fn alarm(what: What, path: &str) -> Alarm {
        let why = format!("\"{path}\": cannot write: no space left on device");
        Alarm {
            what,
            job: "test".into(),
            replica: "/r".into(),
            path: RelPath::parse(path.as_bytes()).ok(),
            why,
            at: Duration::ZERO,
        }
    }

    #[test]
    fn many_paths_become_one_line_a_minute() {
        let mut logged = AlarmLog::default();
        let at = Duration::from_secs;
        let (a, b) = (alarm(What::Problem, "a"), alarm(What::Problem, "b"));
        let first = logged.lines(&[a.clone(), b.clone(), b.clone()], at(1));
        assert_eq!(
            first,
            [
                "\"a\": cannot write: no space left on device; 2 more paths have problems (driftless mirror problems test)"
            ]
        );
        assert!(logged.lines(std::slice::from_ref(&b), at(2)).is_empty());
        assert!(logged.lines(std::slice::from_ref(&a), at(60)).is_empty());
        let next = logged.lines(&[], at(61));
        assert_eq!(
            next,
            [
                "\"b\": cannot write: no space left on device; 1 more path has a problem (driftless mirror problems test)"
            ]
        );
        assert!(logged.lines(&[], at(200)).is_empty());
        let kept = logged.lines(&[alarm(What::Quarantine, "a")], at(201));
        assert!(kept[0].contains("failed six times"), "{kept:?}");
    }

    #[test]
    fn what_the_log_has_already_is_not_logged_again() {
        let mut logged = AlarmLog::default();
        let known = [What::Away, What::Deaf, What::Unsaved].map(|what| alarm(what, "a"));
        assert!(logged.lines(&known, Duration::ZERO).is_empty());
        let behind = logged.lines(&[alarm(What::Behind, "a")], Duration::ZERO);
        assert_eq!(behind.len(), 1);
    }
}
