//! What is known of one replica and one stretch of time: read from the state, and summed up.

use super::HOUR;
use driftless_model::Lag;
use driftless_state::StateError;
use driftless_state::mirror::{
    BacklogRow, HourRow, JobRow, MirrorView, ProblemRow, RunKind, RunRow,
};
use std::ops::Range;
use std::time::Duration;

/// Runs that are looked at: all that are kept.
const RUNS_MAX: u64 = driftless_state::mirror::RUNS_KEPT_MAX;

/// What was done in an hour.
#[derive(Debug, Clone, Default)]
pub struct Hour {
    /// The counts.
    pub row: HourRow,
    /// How long changes took.
    pub lag: Lag,
    /// What was left to do at most.
    pub backlog: BacklogRow,
}

/// What is known of one replica.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Which one, and since when.
    pub job: JobRow,
    /// Of which time: seconds since 1970.
    pub time: Range<u64>,
    /// Each hour of it in which anything was done or a mirror ran.
    pub hours: Vec<Hour>,
    /// All of them together.
    pub sum: Hour,
    /// What was left to do, by stretches.
    pub backlog: Vec<BacklogRow>,
    /// Comparisons and cycles, the newest first.
    pub runs: Vec<RunRow>,
    /// What is wrong now.
    pub problems: Vec<ProblemRow>,
    /// When it was asked.
    pub now: u64,
    /// The recovery point objective of the job.
    pub rpo: Duration,
}

impl Facts {
    /// What a state has of a time.
    pub fn gather(
        state: &MirrorView,
        time: Range<u64>,
        now: u64,
        rpo: Duration,
    ) -> Result<Facts, StateError> {
        let numbers = time.start / HOUR..time.end / HOUR;
        let length = BacklogRow::LENGTH.as_secs();
        let backlog = state.backlog_between(time.start / length..time.end / length)?;
        let rows = state.hours_between(numbers.clone())?;
        let mut hours = Vec::new();
        let mut sum = Hour::default();
        for number in numbers {
            let row = rows.iter().find(|row| row.hour == number).copied();
            let left = backlog
                .iter()
                .filter(|row| row.stretch * length / HOUR == number);
            let left = left.copied().reduce(widest);
            if row.is_none() && left.is_none() {
                continue;
            }
            let hour = Hour {
                row: row.unwrap_or(HourRow {
                    hour: number,
                    ..HourRow::default()
                }),
                lag: state.lag_between(number..number + 1)?,
                backlog: left.unwrap_or_default(),
            };
            sum.add(&hour);
            hours.push(hour);
        }
        let runs = state.runs(RUNS_MAX)?.into_iter();
        let is_within = |run: &RunRow| {
            let ended = run.ended.unwrap_or(run.begun).as_secs();
            run.begun.as_secs() < time.end && ended >= time.start
        };
        Ok(Facts {
            job: state.job()?,
            hours,
            sum,
            backlog,
            runs: runs.filter(is_within).collect(),
            problems: state.problems()?,
            time,
            now,
            rpo,
        })
    }

    /// Returns the share of the time in which the replica was within the RPO, by stretches of
    /// [`BacklogRow::LENGTH`]. A stretch without a running mirror counts as outside. Returns `None`
    /// if the time has no stretch that has ended since the state was made.
    pub fn share_within_rpo(&self) -> Option<f64> {
        let since = self.job.since.as_secs();
        let time = self.time.start.max(since)..self.time.end.min(self.now);
        share_within(self.rpo, &self.backlog, time)
    }

    /// Entries that comparisons have found and that no detector had told of.
    pub fn missed(&self) -> u64 {
        let walks = self.runs.iter().filter(|run| run.kind == RunKind::Walk);
        walks.map(|run| run.counts.missed).sum()
    }

    /// Of all changes, the share that was missed; `None` if there were none.
    pub fn miss_rate(&self) -> Option<f64> {
        let (missed, all) = (self.missed(), self.missed() + self.sum.row.files);
        (all > 0).then(|| missed as f64 / all as f64)
    }
}

impl Hour {
    /// What was done in another one, too.
    fn add(&mut self, more: &Hour) {
        let (sum, row) = (&mut self.row, &more.row);
        sum.files += row.files;
        sum.bytes += row.bytes;
        sum.max = sum.max.max(row.max);
        sum.over_300 += row.over_300;
        sum.over_600 += row.over_600;
        sum.changed += row.changed;
        sum.deleted += row.deleted;
        sum.problems += row.problems;
        self.lag.merge(&more.lag);
        self.backlog.widen(&more.backlog);
    }

    /// How long half of the changes took, 95 and 99 of 100, and the longest.
    pub fn spans(&self) -> [Duration; 4] {
        let lag = &self.lag;
        let quantiles = [0.5, 0.95, 0.99].map(|share| lag.quantile(share));
        [quantiles[0], quantiles[1], quantiles[2], lag.max()]
    }
}

/// Returns the share of the whole stretches of a time in which the replica was at most `rpo` behind.
fn share_within(rpo: Duration, backlog: &[BacklogRow], time: Range<u64>) -> Option<f64> {
    let length = BacklogRow::LENGTH.as_secs();
    let stretches = time.start / length..time.end / length;
    let count = stretches.end.checked_sub(stretches.start);
    let count = count.filter(|count| *count > 0)?;
    let is_within = |row: &&BacklogRow| stretches.contains(&row.stretch) && row.behind <= rpo;
    let within = backlog.iter().filter(is_within).count();
    Some(within as f64 / count as f64)
}

fn widest(mut one: BacklogRow, other: BacklogRow) -> BacklogRow {
    one.widen(&other);
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_without_a_mirror_are_outside_the_rpo() {
        const LENGTH: u64 = BacklogRow::LENGTH.as_secs();
        let row = |stretch, behind| BacklogRow {
            stretch,
            behind: Duration::from_secs(behind),
            ..BacklogRow::default()
        };
        let rows = [row(2, 10), row(3, 61), row(5, 60), row(9, 0)];
        let share = |begun, ended| share_within(Duration::from_secs(60), &rows, begun..ended);
        assert_eq!(share(2 * LENGTH, 6 * LENGTH), Some(0.5));
        assert_eq!(share(2 * LENGTH, 3 * LENGTH + 1), Some(1.0));
        assert_eq!(share(2 * LENGTH, 3 * LENGTH - 1), None);
        assert_eq!(share(6 * LENGTH, 8 * LENGTH), Some(0.0));
        assert_eq!(share(8 * LENGTH, 6 * LENGTH), None);
    }
}
