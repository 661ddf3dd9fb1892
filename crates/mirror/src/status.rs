//! How a mirror is: what it tells whoever asks.

use crate::comparing::ComparingNow;
use crate::dirty::{below_of, reaches};
use crate::foreign::Foreign;
use crate::herald::ToldNow;
use crate::job::Job;
use driftless_engine::Counts;
use driftless_model::{Class, Lag, Problem, RelPath, Scope};
use driftless_state::mirror::RunRow;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Problems that are known at once.
const PROBLEMS_MAX: usize = 10_000;

/// Times, in milliseconds, of which it is known how many changes took no longer.
pub const LAG_BOUNDS: [u64; 15] = [
    10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 600_000,
    3_600_000,
];

/// How a mirror is. Moments are durations since 1970.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The job.
    pub job: String,
    /// Its source.
    pub source: String,
    /// Its replica.
    pub replica: String,
    /// The process; 0 if none runs, and the state tells how it was.
    pub process: u32,
    /// The process that has the job and does not answer yet, in words.
    #[serde(default)]
    pub starting: Option<String>,
    /// When it began.
    pub began: Duration,
    /// When this was said.
    pub now: Duration,
    /// How far the replica may be behind.
    pub rpo: Duration,
    /// Since when the oldest change waits that is not on the replica.
    pub oldest: Option<Duration>,
    /// The replica has everything that happened before; `None` if no such moment is known.
    pub equal_until: Option<Duration>,
    /// Nobody knows since when the replica is behind: all moments that were noted are yet to come,
    /// since the clock was ahead.
    #[serde(default)]
    pub is_unknown: bool,
    /// Paths that are left to do.
    pub left: u64,
    /// Of these, paths that have failed too often.
    pub quarantined: u64,
    /// Paths that have a problem.
    pub problems: u64,
    /// All is compared just now.
    pub is_walking: bool,
    /// Progress of that comparison.
    #[serde(default)]
    pub comparing: Option<ComparingNow>,
    /// It works on nothing, since somebody asked for that.
    pub is_paused: bool,
    /// It works on nothing, since these are quiet hours of the job.
    pub is_quiet: bool,
    /// Something tells of changes as they happen.
    pub hears: bool,
    /// Why it cannot work.
    pub away: Option<String>,
    /// Why changes are not heard of any more.
    pub deaf: Option<String>,
    /// The queue of announcements, as far as that is known.
    #[serde(default)]
    pub queue: Option<QueueNow>,
    /// How far others were told what was changed, where they are.
    #[serde(default)]
    pub told: Option<ToldNow>,
    /// Others that work on the replica at the same time, and are led by this mirror.
    #[serde(default)]
    pub pool: Vec<PoolMember>,
    /// It helps another mirror, and is no mirror of its own.
    #[serde(default)]
    pub helps: bool,
    /// Why it does not help at the moment.
    #[serde(default)]
    pub waiting: Option<String>,
    /// Events that were heard.
    pub events: u64,
    /// Lines, posts and lists that detectors could not use.
    pub unread: u64,
    /// How often events were missed.
    pub overflows: u64,
    /// How often changes may have been missed, at a start too.
    pub gaps: u64,
    /// How often times of change said what had to be compared.
    pub narrowed: u64,
    /// Entries that were looked at for that on both sides.
    pub narrowed_seen: u64,
    /// Comparisons of all.
    pub walk: Walked,
    /// What somebody else has changed on the replica.
    pub foreign: Foreign,
    /// Where the cycle of snapshots is, if there are any.
    pub cycle: Option<CycleNow>,
    /// How long changes took to the replica.
    pub lag: LagNow,
    /// Entries that were changed.
    pub changed: u64,
    /// Entries that were deleted.
    pub deleted: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
    /// What is in the trash of the replica, as far as that is known.
    pub trash: Option<TrashNow>,
    /// Why nothing of this is kept for later.
    pub forgets: Option<String>,
    #[serde(skip)]
    pub(crate) lags: [Hour; 2],
}

/// A queue of announcements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueNow {
    /// What waits there and was handed out to nobody.
    pub waiting: u64,
    /// How many are subscribed to it, this mirror counted.
    pub consumers: u64,
}

impl From<driftless_detect::Queue> for QueueNow {
    fn from(queue: driftless_detect::Queue) -> QueueNow {
        QueueNow {
            waiting: queue.waiting,
            consumers: queue.consumers,
        }
    }
}

/// Somebody who works on the replica of a mirror at the same time, as he said last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMember {
    /// The host.
    pub host: String,
    /// The process there.
    pub process: u32,
    /// When it began.
    pub began: Duration,
    /// When it was heard of last.
    pub heard: Duration,
    /// It is subscribed to the queue.
    pub hears: bool,
    /// Paths that are left for it to do.
    pub left: u64,
    /// Entries that it has changed or removed.
    pub done: u64,
    /// Bytes that it has copied.
    pub bytes: u64,
    /// Paths that have a problem there.
    pub problems: u64,
    /// Why it does not work, or the last problem.
    pub wrong: Option<String>,
}

/// What is in the trash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrashNow {
    /// Entries.
    pub entries: u64,
    /// Bytes that they take on the disk.
    pub bytes: u64,
}

/// The lag of the changes of the last clock hour with changes, and of the hour before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LagNow {
    /// Changes that were measured since the beginning.
    pub files: u64,
    /// How long all of them took together.
    #[serde(default)]
    pub sum: Duration,
    /// How many of them took no longer than each of [`LAG_BOUNDS`].
    #[serde(default)]
    pub within: Vec<u64>,
    /// Half of the changes of these two hours took no longer; all times are rounded up.
    pub p50: Duration,
    /// 95 of 100.
    pub p95: Duration,
    /// 99 of 100.
    pub p99: Duration,
    /// All of them.
    pub max: Duration,
}

/// Cycles of snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleNow {
    /// The snapshot that is read; none before the first was made.
    pub snapshot: Option<String>,
    /// The replica has everything that happened before.
    pub equal: Option<Duration>,
    /// When the next begins, unless this one takes longer.
    pub next: Duration,
    /// What is being done.
    pub stage: String,
    /// Cycles that have come to their end since the mirror began.
    pub count: u64,
    /// Why there is no snapshot.
    pub failed: Option<String>,
}

/// Comparisons of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Walked {
    /// When the last was asked for.
    pub asked: Option<Duration>,
    /// When the last began.
    pub begun: Duration,
    /// Both trees were equal then, but for what was told of.
    pub equal: Option<Duration>,
    /// When the last came to its end.
    pub ended: Option<Duration>,
    /// How long it took.
    pub took: Duration,
    /// Entries that it met.
    pub seen: u64,
    /// Entries that there are by now: those that it met, and what has come and gone since.
    #[serde(default)]
    pub entries: u64,
    /// Entries that it changed.
    pub changed: u64,
    /// How many have ended.
    pub count: u64,
    /// Entries that all of them but the first have changed, and that no detector had told of.
    pub missed: u64,
}

/// What changes of one hour took.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Hour {
    number: u64,
    lag: Lag,
}

impl Walked {
    /// An earlier life of the mirror has made the last one. Its clock may have been ahead: the next is
    /// not put off until that moment has come.
    pub fn go_on(&mut self, walk: &RunRow, now: Duration) {
        self.asked = Some(walk.begun.min(now));
        self.ended = walk.ended;
        (self.seen, self.changed) = (walk.counts.seen, walk.counts.changed + walk.counts.deleted);
        self.entries = self.seen;
        self.took = walk.ended.unwrap_or(walk.begun).saturating_sub(walk.begun);
    }

    /// Entries of a tree have come and gone since.
    pub fn follow(&mut self, created: u64, deleted: u64) {
        self.entries = (self.entries + created).saturating_sub(deleted);
    }

    /// One has come to its end.
    pub fn end(&mut self, now: Duration, counts: &Counts, missed: u64) {
        self.took = now.saturating_sub(self.asked.unwrap_or(now));
        (self.ended, self.equal) = (Some(now), Some(self.begun));
        (self.seen, self.changed) = (counts.seen, counts.changed + counts.deleted);
        self.entries = self.seen;
        self.count += 1;
        self.missed += missed;
    }
}

impl Status {
    /// Of a mirror that has just begun.
    pub fn new(job: &Job, began: Duration) -> Status {
        Status {
            job: job.name.clone(),
            source: job.source.clone(),
            replica: job.replicas[0].clone(),
            process: std::process::id(),
            began,
            rpo: job.rpo,
            ..Status::default()
        }
    }

    /// How far the replica is behind.
    pub fn behind(&self) -> Duration {
        self.oldest
            .map_or(Duration::ZERO, |oldest| self.now.saturating_sub(oldest))
    }

    /// For how long the oldest change has waited to be announced; `None` if none is to be.
    pub fn unannounced(&self) -> Option<Duration> {
        let oldest = self.told.as_ref()?.oldest;
        Some(oldest.map_or(Duration::ZERO, |oldest| self.now.saturating_sub(oldest)))
    }

    /// Whether its mirror runs.
    pub fn is_running(&self) -> bool {
        self.process > 0
    }

    /// Whether the replica is being filled for the first time: it has never been equal.
    pub fn is_first_copy(&self) -> bool {
        self.is_running() && !self.helps && self.equal_until.is_none() && self.walk.ended.is_none()
    }

    /// Names the comparison that runs, with its progress.
    pub fn comparison(&self) -> String {
        let name = match self.is_first_copy() {
            true => "first copy",
            false => "full scan",
        };
        self.comparing.map_or_else(
            || name.to_owned(),
            |now| format!("{name}, {}", now.in_words()),
        )
    }

    /// Whether that is more than it may be, as far as anybody knows.
    pub fn is_behind(&self) -> bool {
        self.is_unknown || self.behind() > self.rpo
    }

    /// Returns whether the replica may be further behind than it may be, as far as the mirror knows
    /// that does not hear of all changes.
    pub fn may_be_behind(&self) -> bool {
        let behind = self.equal_until.map(|equal| self.now.saturating_sub(equal));
        behind.is_none_or(|behind| behind > self.rpo)
    }

    /// A detector told of so many changes, and could not use so much of what it was told.
    pub fn heard(&mut self, events: usize, unread: u64) {
        self.events += events as u64;
        self.unread += unread;
    }

    /// A detector has missed something.
    pub fn missed(&mut self) {
        self.overflows += 1;
    }

    /// Something was done.
    pub fn add(&mut self, counts: &Counts) {
        self.changed += counts.changed;
        self.deleted += counts.deleted;
        self.bytes_copied += counts.bytes_copied;
    }

    /// These changes took so long to the replica.
    pub fn lag(&mut self, now: Duration, waited: &[Duration]) {
        self.lag.files += waited.len() as u64;
        let number = now.as_secs() / 3600;
        if self.lags[0].number != number {
            let newest = Hour {
                number,
                lag: Lag::default(),
            };
            self.lags[1] = std::mem::replace(&mut self.lags[0], newest);
        }
        waited.iter().for_each(|time| self.lags[0].lag.add(*time));
        self.lag.sum += waited.iter().sum::<Duration>();
        self.lag.within.resize(LAG_BOUNDS.len(), 0);
        for (bound, count) in LAG_BOUNDS.iter().zip(&mut self.lag.within) {
            let bound = Duration::from_millis(*bound);
            *count += waited.iter().filter(|time| **time <= bound).count() as u64;
        }
    }

    /// The same with what changes of this hour and the one before took.
    #[must_use]
    pub fn measured(mut self) -> Status {
        let mut lag = self.lags[0].lag.clone();
        let before = &self.lags[1];
        if before.number + 1 == self.lags[0].number {
            lag.merge(&before.lag);
        }
        (self.lag.p50, self.lag.p95) = (lag.quantile(0.5), lag.quantile(0.95));
        (self.lag.p99, self.lag.max) = (lag.quantile(0.99), lag.max());
        self
    }
}

/// A path that has a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What is wrong, and where.
    pub problem: Problem,
    /// When it was first met.
    pub first: Duration,
    /// When it was met last.
    pub last: Duration,
    /// How often.
    pub times: u64,
}

/// The paths that have a problem.
#[derive(Debug, Default)]
pub struct Problems(BTreeMap<RelPath, Trouble>);

impl Problems {
    /// These, of an earlier life of the mirror.
    pub fn of(all: impl Iterator<Item = Trouble>) -> Problems {
        Problems(all.map(|one| (one.problem.path.clone(), one)).collect())
    }

    /// What was looked at has these problems now, and no others.
    pub fn replace(&mut self, now: Duration, looked_at: &[(RelPath, Scope)], found: Vec<Problem>) {
        let mut before = BTreeMap::new();
        for (path, scope) in looked_at {
            let gone = below_of(&self.0, path).map(|(at, _)| at);
            let gone: Vec<RelPath> = gone
                .filter(|at| reaches((path, *scope), at))
                .cloned()
                .collect();
            before.extend(gone.into_iter().filter_map(|at| self.0.remove_entry(&at)));
        }
        for problem in found {
            // A path may have several at once, of which the last is known.
            let known = before.get(&problem.path);
            let (first, times) = known.map_or((now, 0), |known| (known.first, known.times));
            let trouble = Trouble {
                problem: problem.clone(),
                first,
                last: now,
                times: times + 1,
            };
            if self.0.len() < PROBLEMS_MAX {
                self.0.insert(problem.path, trouble);
            }
        }
    }

    /// Forgets that directories above visited paths kept changing, unless `is_failing`.
    ///
    /// A visit of an entry reports the change of its directory as a problem of the directory, and
    /// the mirror tries the entry again, not the directory.
    pub fn forget_changing_above(
        &mut self,
        visited: &[(RelPath, Scope)],
        is_failing: impl Fn(&RelPath) -> bool,
    ) {
        if self.0.is_empty() {
            return;
        }
        for dir in visited.iter().flat_map(|(path, _)| path.above()) {
            let known = self.0.get(&dir);
            let is_changing = known.is_some_and(|known| known.problem.class == Class::Changing);
            if is_changing && !is_failing(&dir) {
                self.0.remove(&dir);
            }
        }
    }

    /// An entry was renamed: what was wrong below its old name is told anew, of its new one.
    pub fn renamed(&mut self, from: &RelPath) {
        self.0.retain(|path, _| !path.is_within(from));
    }

    /// Whether a path has one.
    pub fn has(&self, path: &RelPath) -> bool {
        self.0.contains_key(path)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All of them, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&RelPath, &Trouble)> {
        self.0.iter()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Trouble> {
        self.0.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Act, Side};

    fn problem(path: &str) -> Problem {
        Problem {
            path: RelPath::parse(path.as_bytes()).unwrap(),
            side: Side::Replica,
            act: Act::Remove,
            cause: "it is so".into(),
            class: Class::Skip,
        }
    }

    #[test]
    fn a_problem_is_over_when_its_path_was_looked_at_and_has_none() {
        let mut problems = Problems::default();
        let at = |seconds| Duration::from_secs(seconds);
        let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        let whole = [(RelPath::root(), Scope::Subtree)];
        problems.replace(at(1), &whole, vec![problem("a/b"), problem("c")]);
        problems.replace(at(2), &[(RelPath::root(), Scope::Entry)], Vec::new());
        assert_eq!(problems.count(), 2, "only the root itself was looked at");
        problems.replace(at(3), &[(path("c"), Scope::Entry)], vec![problem("c")]);
        let met = problems.all();
        assert_eq!((met[1].first, met[1].last, met[1].times), (at(1), at(3), 2));
        let twice = || vec![problem("c"), problem("c")];
        problems.replace(at(4), &[(path("c"), Scope::Entry)], twice());
        assert_eq!(problems.all()[1].times, 3, "it was looked at once more");
        problems.replace(at(5), &[(path("a"), Scope::Subtree)], Vec::new());
        assert_eq!(problems.count(), 1);
    }

    #[test]
    fn directory_kept_changing_until_its_entry_succeeds() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        let visited = [(path("hot/file"), Scope::Entry)];
        for (class, is_failing, left) in [
            (Class::Changing, false, 0),
            (Class::Changing, true, 1),
            (Class::Skip, false, 1),
        ] {
            let found = Problem {
                class,
                ..problem("hot")
            };
            let mut problems = Problems::default();
            problems.replace(Duration::ZERO, &visited, vec![found]);
            problems.replace(Duration::ZERO, &visited, Vec::new());
            problems.forget_changing_above(&visited, |dir| is_failing && *dir == path("hot"));
            assert_eq!(problems.count(), left, "{class:?}, {is_failing}");
        }
    }
}
