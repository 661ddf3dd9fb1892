//! What the state of a mirror holds, as values, and how rows become such values. Moments are
//! durations since 1970-01-01 UTC and are kept in whole milliseconds.

use crate::StoreError;
use crate::columns::{bad, count, from_hex, opt_time, path, time};
use driftless_model::{Act, Class, Gap, Problem, RelPath, Scope, Side, Stamp};
use rusqlite::Row;
use rusqlite::types::Type;
use std::time::Duration;

/// Which job a state belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The name of the job. A job may get another one.
    pub name: String,
    /// Its source.
    pub source: String,
    /// Its replica.
    pub replica: String,
}

/// A job, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// Which one.
    pub about: About,
    /// The identity in the mark of the replica that was filled; `None` before anything was.
    pub mark: Option<u128>,
    /// Since when there is a state of it.
    pub since: Duration,
    /// Since when it is paused; `None` if it is not.
    pub paused: Option<Duration>,
    /// Every change up to this moment is on the replica; `None` if no such moment is known.
    pub equal_until: Option<Duration>,
    /// What the replica is.
    pub role: RoleRow,
    /// All that was changed on the replica was told others, and nothing is changed now.
    pub has_told_all: bool,
}

/// What a replica is to its source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// It follows: the source is the active side.
    #[default]
    Following,
    /// It is being made the active side, or that was cut off.
    FailingOver,
    /// It is the active side.
    FailedOver,
    /// It is, and what changed on it is being brought back, or that was cut off.
    FailingBack,
}

impl Role {
    const ALL: [Role; 4] = [
        Role::Following,
        Role::FailingOver,
        Role::FailedOver,
        Role::FailingBack,
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Role::Following => "following",
            Role::FailingOver => "failing over",
            Role::FailedOver => "failed over",
            Role::FailingBack => "failing back",
        }
    }
}

/// What a replica is, since when, and how it got so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleRow {
    /// What it is.
    pub role: Role,
    /// Since when; `None` if it always was.
    pub since: Option<Duration>,
    /// What it was failed over to: a snapshot, or what it had then.
    pub to: Option<String>,
}

/// A path that may differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtyRow {
    /// Where.
    pub path: RelPath,
    /// How far below.
    pub scope: Scope,
    /// When the first change was heard of that is not on the replica.
    pub since: Duration,
    /// When it is to be looked at.
    pub due: Duration,
    /// How often it has failed in a row.
    pub attempts: u32,
    /// It takes long.
    pub is_long: bool,
    /// Content may differ although sizes and times agree.
    pub is_doubtful: bool,
}

/// A problem that has not gone away yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemRow {
    /// What is wrong.
    pub problem: Problem,
    /// When it was met first.
    pub first: Duration,
    /// When it was met last.
    pub last: Duration,
    /// How often its path has failed in a row.
    pub attempts: u32,
    /// It has failed too often to be tried soon.
    pub is_quarantined: bool,
}

/// Up to where a detector was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The detector.
    pub detector: String,
    /// The position, as the detector itself writes it.
    pub position: Vec<u8>,
    /// When it was heard that far.
    pub at: Duration,
}

/// What has not been walked yet, though changes there may have been missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapRow {
    /// Its number, which no other gap of the file ever has.
    pub id: u64,
    /// Who may have missed them.
    pub detector: String,
    /// Where and when: in whole milliseconds, never narrower than what was saved.
    pub gap: Gap,
}

/// What a mirror does for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunKind {
    /// It compares all.
    Walk,
    /// It copies what differs between two snapshots.
    Cycle,
    /// It follows what detectors tell.
    Live,
}

impl RunKind {
    const ALL: [RunKind; 3] = [RunKind::Walk, RunKind::Cycle, RunKind::Live];

    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            RunKind::Walk => "walk",
            RunKind::Cycle => "cycle",
            RunKind::Live => "live",
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Entries that were looked at.
    pub seen: u64,
    /// Entries that were changed.
    pub changed: u64,
    /// Entries that were deleted.
    pub deleted: u64,
    /// Paths that failed.
    pub failed: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Entries that a walk has changed, and of which a live detector should have told.
    pub missed: u64,
    /// Entries that a walk has changed because somebody else had changed them on the replica.
    pub foreign: u64,
}

/// A run of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// Its number, which no other run of the file ever has.
    pub id: u64,
    /// What it does.
    pub kind: RunKind,
    /// When it began.
    pub begun: Duration,
    /// When it ended; `None` if it has not, or was cut off.
    pub ended: Option<Duration>,
    /// What came of it; nothing before its end.
    pub counts: RunCounts,
    /// How it ended, in a word; [`INTERRUPTED`] if its process did not live to say so.
    pub end: Option<String>,
}

/// How a run ended whose process did not live to say so.
pub const INTERRUPTED: &str = "interrupted";
/// How a run ended that has looked at everything.
pub const COMPLETE: &str = "complete";

/// What was done in an hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HourRow {
    /// Which one: hours since 1970.
    pub hour: u64,
    /// Files whose change has come to the replica.
    pub files: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// The longest that a change took to the replica.
    pub max: Duration,
    /// Changes that took more than 300 seconds.
    pub over_300: u64,
    /// Changes that took more than 600 seconds.
    pub over_600: u64,
    /// Entries that were changed.
    pub changed: u64,
    /// Entries that were deleted.
    pub deleted: u64,
    /// Problems that were met.
    pub problems: u64,
}

impl HourRow {
    /// Adds what else was done in the same hour.
    pub(super) fn add(&mut self, more: &HourRow) {
        let HourRow {
            hour: _,
            files,
            bytes,
            max,
            over_300,
            over_600,
            changed,
            deleted,
            problems,
        } = more;
        for (sum, count) in [
            (&mut self.files, files),
            (&mut self.bytes, bytes),
            (&mut self.over_300, over_300),
            (&mut self.over_600, over_600),
            (&mut self.changed, changed),
            (&mut self.deleted, deleted),
            (&mut self.problems, problems),
        ] {
            *sum = sum.saturating_add(*count);
        }
        self.max = self.max.max(*max);
    }
}

/// What was left to do in a stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BacklogRow {
    /// Which one: stretches of [`BacklogRow::LENGTH`] since 1970.
    pub stretch: u64,
    /// The most paths that were left to do.
    pub left: u64,
    /// The most of them that have failed too often to be tried soon.
    pub quarantined: u64,
    /// The furthest that the replica was behind.
    pub behind: Duration,
}

impl BacklogRow {
    /// How long a stretch is.
    pub const LENGTH: Duration = Duration::from_secs(300);

    /// What else was left in the same stretch: the most of either counts.
    pub fn widen(&mut self, other: &BacklogRow) {
        self.left = self.left.max(other.left);
        self.quarantined = self.quarantined.max(other.quarantined);
        self.behind = self.behind.max(other.behind);
    }
}

/// Two snapshots, one of the source and one of the replica, that are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommonRow {
    /// What both are called.
    pub name: String,
    /// What the source's file system knows its snapshot by.
    pub source: String,
    /// What the replica's file system knows its snapshot by.
    pub replica: String,
    /// When the source's was made.
    pub made: Duration,
    /// The next cycle begins with it. That is true of one at most.
    pub is_newest: bool,
}

/// A value that a word stands for.
fn of_word<T: Copy>(
    row: &Row<'_>,
    at: usize,
    words: impl IntoIterator<Item = (T, &'static str)>,
) -> Result<T, StoreError> {
    let word: String = row.get(at)?;
    let found = words.into_iter().find(|(_, known)| *known == word);
    found
        .map(|(value, _)| value)
        .ok_or_else(|| bad(at, Type::Text, format!("there is no \"{word}\"")))
}

pub(super) fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Entry => "entry",
        Scope::Names => "names",
        Scope::Subtree => "subtree",
    }
}

pub(super) const SELECT_JOB: &str =
    "SELECT name, source, replica, mark, since_ms, paused_ms, equal_until_ms, role, role_since_ms,
    role_to, has_told_all FROM job";

pub(super) fn job(row: &Row<'_>) -> Result<JobRow, StoreError> {
    Ok(JobRow {
        about: About {
            name: row.get(0)?,
            source: row.get(1)?,
            replica: row.get(2)?,
        },
        mark: row
            .get::<_, Option<String>>(3)?
            .map(|mark| from_hex(3, &mark))
            .transpose()?,
        since: time(row, 4)?,
        paused: opt_time(row, 5)?,
        equal_until: opt_time(row, 6)?,
        role: RoleRow {
            role: of_word(row, 7, Role::ALL.map(|role| (role, role.word())))?,
            since: opt_time(row, 8)?,
            to: row.get(9)?,
        },
        has_told_all: row.get(10)?,
    })
}

pub(super) const SELECT_DIRTY: &str =
    "SELECT path, scope, since_ms, due_ms, attempts, is_long, is_doubtful FROM dirty ORDER BY path";

pub(super) fn dirty(row: &Row<'_>) -> Result<DirtyRow, StoreError> {
    let scopes = [Scope::Entry, Scope::Names, Scope::Subtree];
    let scopes = scopes.map(|scope| (scope, scope_word(scope)));
    Ok(DirtyRow {
        path: path(row, 0)?,
        scope: of_word(row, 1, scopes)?,
        since: time(row, 2)?,
        due: time(row, 3)?,
        attempts: row.get(4)?,
        is_long: row.get(5)?,
        is_doubtful: row.get(6)?,
    })
}

pub(super) const SELECT_PROBLEMS: &str =
    "SELECT path, side, act, cause, class, first_ms, last_ms, attempts, quarantined FROM problems
    ORDER BY path, side, act";

/// Words of acts that other versions have written and this one does not use any more. An act that
/// gets other words leaves the former ones here: a file that holds them is not damaged.
const FORMER_ACTS: [(Act, &str); 0] = [];

pub(super) fn problem(row: &Row<'_>) -> Result<ProblemRow, StoreError> {
    let sides = [Side::Source, Side::Replica].map(|side| (side, side.word()));
    let acts = Act::ALL.iter().map(|act| (*act, act.words()));
    let classes = [Class::Changing, Class::Partly, Class::Skip, Class::Stop];
    let classes = classes.map(|class| (class, class.word()));
    Ok(ProblemRow {
        problem: Problem {
            path: path(row, 0)?,
            side: of_word(row, 1, sides)?,
            act: of_word(row, 2, acts.chain(FORMER_ACTS))?,
            cause: row.get(3)?,
            class: of_word(row, 4, classes)?,
        },
        first: time(row, 5)?,
        last: time(row, 6)?,
        attempts: row.get(7)?,
        is_quarantined: row.get(8)?,
    })
}

pub(super) fn cursor(row: &Row<'_>) -> Result<Cursor, StoreError> {
    Ok(Cursor {
        detector: row.get(0)?,
        position: row.get(1)?,
        at: time(row, 2)?,
    })
}

/// Nanoseconds of a millisecond.
const MILLI: i64 = 1_000_000;

/// The whole milliseconds at a moment, or just before it.
pub(super) fn millis_before(moment: Stamp) -> i64 {
    let millis = moment.sec.saturating_mul(1000);
    millis.saturating_add(i64::from(moment.nsec) / MILLI)
}

/// The whole milliseconds at a moment, or just after it.
pub(super) fn millis_after(moment: Stamp) -> i64 {
    let millis = moment.sec.saturating_mul(1000);
    millis.saturating_add((i64::from(moment.nsec) + MILLI - 1) / MILLI)
}

fn stamp(millis: i64) -> Stamp {
    let nsec = millis.rem_euclid(1000) * MILLI;
    Stamp {
        sec: millis.div_euclid(1000),
        nsec: u32::try_from(nsec).expect("it is less than a second"),
    }
}

pub(super) const SELECT_GAPS: &str =
    "SELECT id, detector, path, since_ms, until_ms FROM gaps ORDER BY id";

pub(super) fn gap(row: &Row<'_>) -> Result<GapRow, StoreError> {
    Ok(GapRow {
        id: count(row, 0)?,
        detector: row.get(1)?,
        gap: Gap {
            path: path(row, 2)?,
            since: row.get::<_, Option<i64>>(3)?.map(stamp),
            until: stamp(row.get(4)?),
        },
    })
}

pub(super) const SELECT_RUNS: &str =
    "SELECT id, kind, begun_ms, ended_ms, seen, changed, deleted, failed, bytes, missed, others,
    end FROM runs ORDER BY id DESC LIMIT ?";

pub(super) fn run(row: &Row<'_>) -> Result<RunRow, StoreError> {
    Ok(RunRow {
        id: count(row, 0)?,
        kind: of_word(row, 1, RunKind::ALL.map(|kind| (kind, kind.word())))?,
        begun: time(row, 2)?,
        ended: opt_time(row, 3)?,
        counts: RunCounts {
            seen: count(row, 4)?,
            changed: count(row, 5)?,
            deleted: count(row, 6)?,
            failed: count(row, 7)?,
            bytes: count(row, 8)?,
            missed: count(row, 9)?,
            foreign: count(row, 10)?,
        },
        end: row.get(11)?,
    })
}

pub(super) const SELECT_HOURS: &str =
    "SELECT hour, files, bytes, max_ms, over_300, over_600, changed, deleted, problems FROM hours
    WHERE hour >= ? AND hour < ? ORDER BY hour";

pub(super) fn hour(row: &Row<'_>) -> Result<HourRow, StoreError> {
    Ok(HourRow {
        hour: count(row, 0)?,
        files: count(row, 1)?,
        bytes: count(row, 2)?,
        max: time(row, 3)?,
        over_300: count(row, 4)?,
        over_600: count(row, 5)?,
        changed: count(row, 6)?,
        deleted: count(row, 7)?,
        problems: count(row, 8)?,
    })
}

pub(super) const SELECT_BACKLOG: &str =
    "SELECT stretch, left_max, quarantined_max, behind_max_ms FROM backlog
    WHERE stretch >= ? AND stretch < ? ORDER BY stretch";

pub(super) fn backlog(row: &Row<'_>) -> Result<BacklogRow, StoreError> {
    Ok(BacklogRow {
        stretch: count(row, 0)?,
        left: count(row, 1)?,
        quarantined: count(row, 2)?,
        behind: time(row, 3)?,
    })
}

pub(super) const SELECT_COMMON: &str =
    "SELECT name, source, replica, made_ms, is_newest FROM common ORDER BY made_ms, name";

pub(super) fn common(row: &Row<'_>) -> Result<CommonRow, StoreError> {
    Ok(CommonRow {
        name: row.get(0)?,
        source: row.get(1)?,
        replica: row.get(2)?,
        made: time(row, 3)?,
        is_newest: row.get(4)?,
    })
}
