//! What outlives the process: paths that are left to do, problems, how long changes took, what each
//! comparison came to. It is written behind the work, about every second.
//!
//! A detector whose position is kept must not be told to move on before what it told of is saved;
//! that of fanotify is a moment, from which on times of change are looked at after an end.

use crate::clock::{by_clock, is_past, now};
use crate::dirty::Dirty;
use crate::snapshots::OnReplica;
use crate::status::{Problems, Trouble};
use driftless_engine::Counts;
use driftless_model::{Lag, RelPath, Scope};
use driftless_state::StateError;
use driftless_state::mirror::{
    About, BacklogRow, COMPLETE, CommonRow, Cursor, DirtyRow, EqualUntil, HourRow, MirrorState,
    ProblemRow, RunCounts, RunKind, RunRow, Saved,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// How often it is saved.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Saving takes one part in so many of the time.
const SAVE_SHARE: u32 = 20;
/// The detector of snapshots, as the state calls it.
pub(crate) const SNAPSHOTS: &str = "snapshots";
/// What tells the snapshot that was read last from others of its name, as the state calls it.
const IDENTITY: &str = "snapshots.identity";
/// What tells those of the replica, as the state calls it: a line each, name, blank and identity.
pub(crate) const ON_REPLICA: &str = "snapshots.replica";
/// The rules by which it is compared, as the state calls them.
const RULES: &str = "snapshots.rules";
/// The detector that the kernel tells, as the state calls it.
const FANOTIFY: &str = "fanotify";
/// The last comparison of all is looked for in so many runs.
const RUNS_LOOKED_AT: u64 = 1000;
const HOUR: Duration = Duration::from_secs(3600);
/// What is counted as long.
const LONG: [Duration; 2] = [Duration::from_secs(300), Duration::from_secs(600)];

/// The state of a mirror, and what of it is saved.
pub struct Memory {
    state: MirrorState,
    dirty: BTreeMap<RelPath, Dirty>,
    problems: BTreeMap<RelPath, Duration>,
    /// What was measured since it was saved last, by the hour.
    lag: BTreeMap<u64, Lag>,
    hours: BTreeMap<u64, HourRow>,
    runs: BTreeMap<RunKind, u64>,
    saved: Saved,
    next: Duration,
    /// The replica, as the state knows it.
    replica: Option<u128>,
    /// What tells its snapshots from others of their names.
    on_replica: BTreeMap<String, String>,
    /// What was left to do in this stretch of time.
    backlog: Option<BacklogRow>,
    is_equal: Option<Duration>,
    failed: Option<String>,
}

impl Memory {
    /// Of a state that was opened.
    pub fn of(state: MirrorState) -> Memory {
        let job = state.job().ok();
        let on_replica = state.cursor(ON_REPLICA).ok().flatten();
        Memory {
            is_equal: job.and_then(|job| job.equal_until),
            on_replica: identities_of(on_replica),
            state,
            dirty: BTreeMap::new(),
            problems: BTreeMap::new(),
            lag: BTreeMap::new(),
            hours: BTreeMap::new(),
            runs: BTreeMap::new(),
            saved: Saved::default(),
            next: Duration::ZERO,
            replica: None,
            backlog: None,
            failed: None,
        }
    }

    /// What an earlier life of the mirror has left to do.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn left(&mut self) -> Result<Vec<(RelPath, Dirty)>, StateError> {
        let rows = self.state.dirty()?;
        let left: Vec<(RelPath, Dirty)> = rows.into_iter().map(|row| of_row(row, now())).collect();
        self.dirty = left.iter().cloned().collect();
        Ok(left)
    }

    /// The problems that an earlier life of the mirror has met.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn problems(&mut self) -> Result<Problems, StateError> {
        let rows = self.state.problems()?;
        let paths = rows.iter().map(|row| (row.problem.path.clone(), row.last));
        self.problems = paths.collect();
        Ok(Problems::of(rows.into_iter().map(trouble_of)))
    }

    /// The replica that an earlier life of the mirror has filled, by its mark.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn replica(&mut self) -> Result<Option<u128>, StateError> {
        self.replica = self.state.job()?.mark;
        Ok(self.replica)
    }

    /// By what all lives of the mirror are told from others that may fill the same replica, those
    /// with another state of the same job among them: never 0.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn owner(&self) -> Result<u64, StateError> {
        let job = self.state.job()?;
        let About {
            name,
            source,
            replica,
        } = &job.about;
        let text = format!("{name}\n{source}\n{replica}\n{}", job.since.as_millis());
        Ok(xxh3_64(text.as_bytes()) | 1)
    }

    /// This replica is filled; `None` while nobody knows which it is.
    pub fn know(&mut self, replica: Option<u128>) {
        if replica.is_some() && replica != self.replica {
            let done = self.state.know(replica);
            if self.noted(done).is_some() {
                self.replica = replica;
            }
        }
    }

    /// What stands at the replica's path is taken for it from now on, whatever it is.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn take_new_replica(&mut self) -> Result<(), StateError> {
        // It has never been equal.
        self.is_equal = None;
        self.saved.equal_until = EqualUntil::Unknown;
        self.state.know(None)
    }

    /// Whether it was paused when it ended.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn is_paused(&self) -> Result<bool, StateError> {
        self.state.job().map(|job| job.paused.is_some())
    }

    /// Every change until then was on the replica when the mirror ended.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn was_equal_until(&self) -> Result<Option<Duration>, StateError> {
        let until = self.state.job()?.equal_until;
        Ok(until.filter(|until| is_past(*until)))
    }

    /// What is changed on the replica from now on, nobody may have been told of when this life is
    /// cut off; says whether the life before has told everything.
    ///
    /// # Errors
    /// The state cannot be read or written.
    pub fn begin_to_tell(&mut self) -> Result<bool, StateError> {
        let has_told = self.state.job()?.has_told_all;
        if has_told {
            self.state.tell_all(false)?;
        }
        Ok(has_told)
    }

    /// Everything that was changed on the replica was told, and nothing is changed any more.
    pub fn has_told_all(&mut self) {
        let done = self.state.tell_all(true);
        self.noted(done);
    }

    /// It is paused, or goes on.
    pub fn pause(&mut self, now: Duration, is_paused: bool) {
        let done = self.state.pause(is_paused.then_some(now));
        self.noted(done);
    }

    /// Something was done, and these changes took so long.
    pub fn done(&mut self, now: Duration, counts: &Counts, waited: &[Duration]) {
        let number = now.as_secs() / HOUR.as_secs();
        let hour = self.hours.entry(number).or_default();
        hour.hour = number;
        hour.files += waited.len() as u64;
        hour.bytes += counts.bytes_copied;
        hour.changed += counts.changed;
        hour.deleted += counts.deleted;
        hour.problems += counts.problems();
        let lag = self.lag.entry(number).or_default();
        for time in waited {
            hour.max = hour.max.max(*time);
            hour.over_300 += u64::from(*time > LONG[0]);
            hour.over_600 += u64::from(*time > LONG[1]);
            lag.add(*time);
        }
    }

    /// A comparison of all begins, or a cycle.
    pub fn begin_run(&mut self, kind: RunKind, now: Duration) {
        let begun = self.state.begin_run(kind, now);
        if let Some(number) = self.noted(begun) {
            self.runs.insert(kind, number);
        }
    }

    /// It has come to its end.
    pub fn end_run(&mut self, kind: RunKind, now: Duration, counts: &RunCounts, end: &str) {
        let Some(number) = self.runs.remove(&kind) else {
            return;
        };
        let done = self.state.end_run(number, now, counts, end);
        self.noted(done);
    }

    /// How many entries the last comparison of all has met, in this life or an earlier one.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn entries(&self) -> Result<u64, StateError> {
        Ok(self.last_walk()?.map_or(0, |run| run.counts.seen))
    }

    /// The last comparison of all that came to its end.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn last_walk(&self) -> Result<Option<RunRow>, StateError> {
        let complete = (RunKind::Walk, Some(COMPLETE));
        let mut runs = self.state.runs(RUNS_LOOKED_AT)?.into_iter();
        Ok(runs.find(|run| (run.kind, run.end.as_deref()) == complete))
    }

    /// Until when all was heard of, as it was kept.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn heard_until(&self) -> Result<Option<Vec<u8>>, StateError> {
        let cursor = self.state.cursor(FANOTIFY)?;
        Ok(cursor.map(|cursor| cursor.position))
    }

    /// Keeps until when all was heard of.
    pub fn keep_heard(&mut self, position: Vec<u8>, at: Duration) {
        self.heard(vec![Cursor {
            detector: FANOTIFY.into(),
            position,
            at,
        }]);
    }

    /// The snapshot that was read last, and what it holds everything before.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn snapshot(&self) -> Result<Option<(String, Duration)>, StateError> {
        Ok(snapshot_read(self.state.cursor(SNAPSHOTS)?))
    }

    /// Up to where a detector was heard.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn cursor(&self, detector: &str) -> Result<Option<Cursor>, StateError> {
        self.state.cursor(detector)
    }

    /// Up to these positions detectors were heard; they are saved with what is left to do.
    pub fn heard(&mut self, cursors: Vec<Cursor>) {
        for cursor in cursors {
            let others = &mut self.saved.cursors;
            others.retain(|other| other.detector != cursor.detector);
            others.push(cursor);
        }
    }

    /// The replica follows the source itself from now on: no snapshot says what it was like.
    pub fn leave_snapshots(&mut self, now: Duration) {
        self.heard(vec![cursor("", now)]);
    }

    /// The moment of the newest snapshot that the replica has been equal to.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn common(&self) -> Result<Option<Duration>, StateError> {
        Ok(self.newest_common()?.map(|row| row.made))
    }

    /// The newest snapshot of the source that the replica was made equal to.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn common_snapshot(&self) -> Result<Option<String>, StateError> {
        Ok(self.newest_common()?.map(|row| row.source))
    }

    /// The replica's own snapshot of that.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn snapshot_on_replica(&self) -> Result<Option<String>, StateError> {
        let replica = self.newest_common()?.map(|row| row.replica);
        Ok(replica.filter(|name| !name.is_empty()))
    }

    /// All that both have.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn all_common(&self) -> Result<BTreeSet<String>, StateError> {
        let rows = self.state.common()?.into_iter();
        Ok(rows.map(|row| row.name).collect())
    }

    fn newest_common(&self) -> Result<Option<CommonRow>, StateError> {
        Ok(self.state.common()?.into_iter().find(|row| row.is_newest))
    }

    /// Another snapshot is read from now on, and what differs from the one before is dirty: both
    /// are saved together, now. False if they are not.
    #[must_use]
    pub fn read_from(
        &mut self,
        (name, at): (&str, Duration),
        now: Duration,
        dirty: BTreeMap<RelPath, Dirty>,
        problems: &Problems,
    ) -> bool {
        self.heard(vec![cursor(name, at)]);
        self.save(now, dirty, problems)
    }

    /// What the snapshot that is read is told from others of its name by, and the rules by which it
    /// is compared: saved with it.
    pub fn rely_on(&mut self, identity: Option<&str>, rules: u64, at: Duration) {
        let kept = |detector: &str, text: String| Cursor {
            detector: detector.into(),
            position: text.into_bytes(),
            at,
        };
        let identity = identity.unwrap_or_default().to_owned();
        self.heard(vec![
            kept(IDENTITY, identity),
            kept(RULES, rules.to_string()),
        ]);
    }

    /// What the snapshot that was read last was told from others of its name by.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn snapshot_identity(&self) -> Result<Option<String>, StateError> {
        Ok(self.text(IDENTITY)?.filter(|text| !text.is_empty()))
    }

    /// By which rules the replica was made equal to it.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn rules(&self) -> Result<Option<u64>, StateError> {
        let text = self.text(RULES)?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    fn text(&self, detector: &str) -> Result<Option<String>, StateError> {
        let cursor = self.state.cursor(detector)?;
        Ok(cursor.and_then(|cursor| String::from_utf8(cursor.position).ok()))
    }

    /// Source and replica have these snapshots in common no more.
    pub fn share_no_more(&mut self, names: Vec<String>, at: Duration) {
        names.iter().for_each(|name| {
            self.on_replica.remove(name);
        });
        self.saved.uncommon.extend(names);
        self.keep_identities(at);
    }

    /// Source and replica have a snapshot in common.
    pub fn share(&mut self, name: &str, at: Duration, on_replica: Option<OnReplica>) {
        let (replica, identity) = match on_replica {
            Some(one) => (one.name, one.identity),
            None => (String::new(), None),
        };
        match identity {
            Some(identity) => self.on_replica.insert(replica.clone(), identity),
            None => self.on_replica.remove(&replica),
        };
        self.saved.common = vec![CommonRow {
            name: name.to_owned(),
            source: name.to_owned(),
            replica,
            made: at,
            is_newest: true,
        }];
        self.keep_identities(at);
    }

    fn keep_identities(&mut self, at: Duration) {
        let lines = self.on_replica.iter();
        let lines = lines.map(|(name, identity)| format!("{name} {identity}\n"));
        let position = lines.collect::<String>().into_bytes();
        self.heard(vec![Cursor {
            detector: ON_REPLICA.into(),
            position,
            at,
        }]);
    }

    /// Everything that happened until then is on the replica. Files that are written later have
    /// times of the clock as it is, which may have been ahead when the mirror began.
    pub fn equal_until(&mut self, moment: Duration) {
        self.is_equal = Some(moment.min(by_clock()));
    }

    /// Until when that is known; of an earlier life, too.
    pub fn is_equal_until(&self) -> Option<Duration> {
        self.is_equal.filter(|until| is_past(*until))
    }

    /// So much is left to do just now.
    pub fn backlog(&mut self, now: Duration, left: u64, quarantined: u64, behind: Duration) {
        let row = BacklogRow {
            stretch: now.as_secs() / BacklogRow::LENGTH.as_secs(),
            left,
            quarantined,
            behind,
        };
        let known = self.backlog.filter(|known| known.stretch == row.stretch);
        let mut widest = known.unwrap_or(row);
        widest.widen(&row);
        if known != Some(widest) {
            self.saved.backlog = vec![widest];
        }
        self.backlog = Some(widest);
    }

    /// Whether it is time to save.
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.next
    }

    /// Saves what has changed; false if that fails.
    pub fn save(
        &mut self,
        now: Duration,
        dirty: BTreeMap<RelPath, Dirty>,
        problems: &Problems,
    ) -> bool {
        let began = Instant::now();
        let gone = self.dirty.keys().filter(|path| !dirty.contains_key(*path));
        let solved = self.problems.keys().filter(|path| !problems.has(path));
        let news = dirty
            .iter()
            .filter(|(path, one)| self.dirty.get(*path) != Some(one));
        let met = problems.all().into_iter();
        let met = met.filter(|one| self.problems.get(&one.problem.path) != Some(&one.last));
        let saved = Saved {
            clean: gone.cloned().collect(),
            dirty: news.map(|(path, one)| to_row(path, one)).collect(),
            solved: solved.cloned().collect(),
            problems: met.map(|one| problem_row(one, &dirty)).collect(),
            lag: self
                .lag
                .iter()
                .map(|(hour, lag)| (*hour, lag.clone()))
                .collect(),
            hours: self.hours.values().copied().collect(),
            equal_until: self.is_equal.map_or(self.saved.equal_until, EqualUntil::At),
            ..self.saved.clone()
        };
        let done = self.state.save(&saved);
        let is_done = self.noted(done).is_some();
        if is_done {
            self.saved = Saved::default();
            self.dirty = dirty;
            let last = problems.all().into_iter();
            self.problems = last.map(|one| (one.problem.path, one.last)).collect();
            self.lag.clear();
            self.hours.clear();
        }
        self.next = now + SAVE_EVERY.max(began.elapsed() * SAVE_SHARE);
        is_done
    }

    /// Why nothing is saved, if that is so.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// A state that cannot be written is told once, and tried again with the next second.
    fn noted<T>(&mut self, done: Result<T, StateError>) -> Option<T> {
        match done {
            Ok(done) => {
                self.failed = None;
                Some(done)
            }
            Err(error) => {
                let why = error.to_string();
                if self.failed.as_ref() != Some(&why) {
                    tracing::error!("{why}");
                }
                self.failed = Some(why);
                None
            }
        }
    }
}

/// The snapshot that a position of snapshots names, and what it holds everything before.
pub(crate) fn snapshot_read(cursor: Option<Cursor>) -> Option<(String, Duration)> {
    let cursor = cursor?;
    let name = String::from_utf8(cursor.position).ok()?;
    (!name.is_empty()).then_some((name, cursor.at))
}

/// What a position of the replica's snapshots says of them.
pub(crate) fn identities_of(cursor: Option<Cursor>) -> BTreeMap<String, String> {
    let text = cursor.map(|cursor| String::from_utf8_lossy(&cursor.position).into_owned());
    let text = text.unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(name, identity)| (name.to_owned(), identity.to_owned()))
        .collect()
}

fn cursor(snapshot: &str, at: Duration) -> Cursor {
    Cursor {
        detector: SNAPSHOTS.into(),
        position: snapshot.as_bytes().to_vec(),
        at,
    }
}

/// A problem that was kept.
pub(crate) fn trouble_of(row: ProblemRow) -> Trouble {
    Trouble {
        problem: row.problem,
        first: row.first,
        last: row.last,
        times: row.attempts.into(),
    }
}

/// What an earlier life has left to do, as of `now`. Its clock may have been ahead: what has changed
/// has changed by now, and is not put off until its moments come.
fn of_row(row: DirtyRow, now: Duration) -> (RelPath, Dirty) {
    let dirty = Dirty {
        scope: row.scope,
        since: row.since.min(now),
        due: row.due.min(now + HOUR),
        attempts: row.attempts,
        is_long: row.is_long,
        gap: None,
        // It may have been made equal, and the last word about it was not.
        is_doubtful: row.is_doubtful || row.scope == Scope::Entry,
    };
    (row.path, dirty)
}

fn to_row(path: &RelPath, dirty: &Dirty) -> DirtyRow {
    DirtyRow {
        path: path.clone(),
        scope: dirty.scope,
        since: dirty.since,
        due: dirty.due,
        attempts: dirty.attempts,
        is_long: dirty.is_long,
        is_doubtful: dirty.is_doubtful,
    }
}

fn problem_row(one: Trouble, dirty: &BTreeMap<RelPath, Dirty>) -> ProblemRow {
    let is_quarantined = dirty
        .get(&one.problem.path)
        .is_some_and(Dirty::is_in_quarantine);
    ProblemRow {
        first: one.first,
        last: one.last,
        attempts: u32::try_from(one.times).unwrap_or(u32::MAX),
        is_quarantined,
        problem: one.problem,
    }
}
