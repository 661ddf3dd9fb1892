//! What the state of a mirror promises: that it keeps what it is given, all or nothing, that its
//! file says what it is, and that the page draws it as it is.
#![allow(clippy::disallowed_methods)]

mod file;
mod kept;
mod page;
mod save;

use driftless_model::{Act, Class, Gap, Lag, Problem, RelPath, Scope, Side, Stamp};
use driftless_state::mirror::{
    About, BacklogRow, CommonRow, Cursor, DirtyRow, EqualUntil, HourRow, MirrorState, MirrorView,
    ProblemRow, RunCounts, RunKind, Saved,
};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    (folder, path)
}

fn path(text: &[u8]) -> RelPath {
    RelPath::parse(text).unwrap()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn about() -> About {
    About {
        name: "projects".into(),
        source: "/src".into(),
        replica: "far:/dst".into(),
    }
}

fn open(path: &Path) -> MirrorState {
    MirrorState::open(path, &about(), ms(1000)).unwrap().0
}

fn dirty(text: &[u8], since: u64) -> DirtyRow {
    DirtyRow {
        path: path(text),
        scope: Scope::Entry,
        since: ms(since),
        due: ms(since + 1),
        attempts: 0,
        is_long: false,
        is_doubtful: true,
    }
}

fn problem(text: &[u8], first: u64) -> ProblemRow {
    ProblemRow {
        problem: Problem {
            path: path(text),
            side: Side::Replica,
            act: Act::Open,
            cause: "no space left on device".into(),
            class: Class::Skip,
        },
        first: ms(first),
        last: ms(first + 5),
        attempts: 3,
        is_quarantined: false,
    }
}

fn gap(text: &[u8], since: Option<(i64, u32)>, until: (i64, u32)) -> (String, Gap) {
    let stamp = |(sec, nsec)| Stamp { sec, nsec };
    let gap = Gap {
        path: path(text),
        since: since.map(stamp),
        until: stamp(until),
    };
    ("fanotify".into(), gap)
}

fn cursor(detector: &str, position: &[u8]) -> Cursor {
    Cursor {
        detector: detector.into(),
        position: position.to_vec(),
        at: ms(7),
    }
}

fn lag(times_ms: &[u64]) -> Lag {
    let mut lag = Lag::default();
    times_ms.iter().for_each(|time| lag.add(ms(*time)));
    lag
}

fn hour(hour: u64, count: u64) -> HourRow {
    HourRow {
        hour,
        files: count,
        bytes: count,
        max: ms(count),
        over_300: count,
        over_600: count,
        changed: count,
        deleted: count,
        problems: count,
    }
}

fn backlog(stretch: u64, count: u64) -> BacklogRow {
    BacklogRow {
        stretch,
        left: count,
        quarantined: count,
        behind: ms(count),
    }
}

fn common(name: &str, made: u64, is_newest: bool) -> CommonRow {
    CommonRow {
        name: name.into(),
        source: format!("source of {name}"),
        replica: format!("replica of {name}"),
        made: ms(made),
        is_newest,
    }
}

/// Something of each kind.
fn saved() -> Saved {
    Saved {
        dirty: vec![
            dirty(b"", 1),
            DirtyRow {
                scope: Scope::Subtree,
                attempts: u32::MAX,
                is_long: true,
                ..dirty(b"a/\xff", u64::from(u32::MAX) * 1000)
            },
        ],
        problems: vec![problem(b"a\xff", 5)],
        cursors: vec![cursor("lustre", b"\0\xff")],
        gaps: vec![gap(b"g", None, (5, 0))],
        lag: vec![(400_000, lag(&[3, 70_000]))],
        hours: vec![hour(400_000, 2)],
        backlog: vec![backlog(4_800_000, 3)],
        common: vec![common("monday", 1, true)],
        equal_until: EqualUntil::At(ms(77)),
        ..Saved::default()
    }
}

/// A state in which each table has rows.
fn filled(path: &Path) -> MirrorState {
    let mut state = open(path);
    state.save(&saved()).unwrap();
    let run = state.begin_run(RunKind::Walk, ms(5)).unwrap();
    let counts = RunCounts {
        seen: u64::MAX >> 1,
        changed: 1,
        deleted: 2,
        failed: 3,
        bytes: 4,
        missed: 5,
        foreign: 6,
    };
    state.end_run(run, ms(6), &counts, "done").unwrap();
    state.begin_run(RunKind::Live, ms(7)).unwrap();
    state.know(Some(u128::MAX - 5)).unwrap();
    state.pause(Some(ms(9))).unwrap();
    state
}

/// All that a state holds.
fn all(state: &MirrorView) -> String {
    format!(
        "{:#?}",
        (
            state.job().unwrap(),
            state.dirty().unwrap(),
            state.problems().unwrap(),
            state.cursor("lustre").unwrap(),
            state.gaps().unwrap(),
            state.runs(u64::MAX).unwrap(),
            state.lag_between(0..u64::MAX).unwrap(),
            state.hours_between(0..u64::MAX).unwrap(),
            state.backlog_between(0..u64::MAX).unwrap(),
            state.common().unwrap(),
        )
    )
}

fn sql(path: &Path, script: &str) {
    Connection::open(path)
        .unwrap()
        .execute_batch(script)
        .unwrap();
}

/// What a question brings, in the first column of each row.
fn asked<T: rusqlite::types::FromSql>(
    path: &Path,
    question: &str,
) -> Result<Vec<T>, rusqlite::Error> {
    let file = Connection::open(path)?;
    let mut find = file.prepare(question)?;
    find.query_map([], |row| row.get(0))?.collect()
}

fn header(path: &Path) -> (i32, i32) {
    let file = Connection::open(path).unwrap();
    let pragma = |name: &str| {
        file.pragma_query_value(None, name, |row| row.get(0))
            .unwrap()
    };
    (pragma("application_id"), pragma("user_version"))
}
