//! What is kept of gaps, hours and runs, how exactly, and how much of it.

use crate::{asked, backlog, folder, gap, hour, lag, ms, open, problem, sql};
use driftless_model::Lag;
use driftless_state::mirror::{
    BACKLOG_KEPT_MAX, BacklogRow, HOURS_KEPT_MAX, HourRow, MirrorState, PROBLEMS_KEPT_MAX,
    ProblemRow, RUNS_KEPT_MAX, RunCounts, RunKind, RunRow, Saved,
};
use std::time::Duration;

#[test]
fn gaps_never_get_narrower_and_are_told_to_the_millisecond() {
    type Moment = (i64, u32);
    let cases: [(Option<Moment>, Moment, Option<Moment>, Moment); 6] = [
        (None, (0, 0), None, (0, 0)),
        (Some((1, 999_999)), (1, 1), Some((1, 0)), (1, 1_000_000)),
        (
            Some((1, 1_000_000)),
            (1, 999_000_001),
            Some((1, 1_000_000)),
            (2, 0),
        ),
        (
            Some((-2, 999_999_999)),
            (-1, 5_000_000),
            Some((-2, 999_000_000)),
            (-1, 5_000_000),
        ),
        (Some((-1, 1)), (-1, 999_999_999), Some((-1, 0)), (0, 0)),
        (
            Some((i64::MIN, 0)),
            (i64::MAX, 999_999_999),
            Some((i64::MIN / 1000 - 1, 192_000_000)),
            (i64::MAX / 1000, 807_000_000),
        ),
    ];
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    for (since, until, since_told, until_told) in cases {
        let saved = Saved {
            gaps: vec![gap(b"a", since, until)],
            ..Saved::default()
        };
        let id = state.save(&saved).unwrap()[0];
        let found = state.gaps().unwrap().pop().unwrap();
        let expected = gap(b"a", since_told, until_told);
        assert_eq!((found.id, (found.detector, found.gap)), (id, expected));
    }
}

#[test]
fn hours_are_added_up_and_their_lag_with_them() {
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    let mut save = |hours: Vec<HourRow>, lag: Vec<(u64, Lag)>| {
        let saved = Saved {
            hours,
            lag,
            ..Saved::default()
        };
        state.save(&saved).unwrap();
    };
    save(vec![hour(5, 1), hour(6, 10)], vec![(5, lag(&[3, 3000]))]);
    save(vec![hour(5, 2)], vec![(5, lag(&[3])), (6, lag(&[90_000]))]);
    save(vec![], vec![(7, lag(&[1])), (7, lag(&[2]))]);
    save(
        vec![HourRow {
            max: ms(400_000),
            ..hour(8, 0)
        }],
        vec![(9, Lag::default())],
    );
    let mut row = hour(5, 3);
    row.max = ms(3000);
    let rows = state.hours_between(5..7).unwrap();
    assert_eq!(
        rows,
        [
            row,
            HourRow {
                max: ms(90_000),
                ..hour(6, 10)
            }
        ]
    );
    let told = state.hours_between(7..8).unwrap();
    assert_eq!(
        told,
        [HourRow {
            max: ms(2),
            ..hour(7, 0)
        }]
    );
    for (hours, times) in [
        (0..5, &[][..]),
        (5..6, &[3, 3, 3000]),
        (6..7, &[90_000]),
        (5..8, &[1, 2, 3, 3, 3000, 90_000]),
        (8..u64::MAX, &[]),
        (8..8, &[]),
    ] {
        assert_eq!(
            state.lag_between(hours.clone()).unwrap(),
            lag(times),
            "{hours:?}"
        );
    }
}

#[test]
fn numbers_that_are_too_large_stay_as_large_as_can_be() {
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    let most = i64::MAX as u64;
    let huge = Saved {
        hours: vec![HourRow {
            max: Duration::MAX,
            ..hour(most, u64::MAX)
        }],
        lag: vec![(most - 1, Lag::of([(3, u64::MAX)], ms(3)).unwrap())],
        ..Saved::default()
    };
    for _ in 0..2 {
        state.save(&huge).unwrap();
        let lag = state.lag_between(0..u64::MAX).unwrap();
        assert_eq!((lag.count(), lag.max()), (most, ms(3)));
    }
    let id = state.begin_run(RunKind::Cycle, Duration::MAX).unwrap();
    let counts = RunCounts {
        bytes: u64::MAX,
        ..RunCounts::default()
    };
    state.end_run(id, Duration::MAX, &counts, "").unwrap();
    assert_eq!(state.runs(1).unwrap()[0].counts.bytes, most);
    let told: i64 = asked(&path_of, "SELECT max(files) FROM hours").unwrap()[0];
    assert_eq!(told, i64::MAX);
}

#[test]
fn runs_are_told_newest_first_and_the_oldest_go() {
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    let first = state.begin_run(RunKind::Walk, ms(1)).unwrap();
    let second = state.begin_run(RunKind::Live, ms(2)).unwrap();
    let counts = RunCounts {
        seen: 6,
        changed: 5,
        deleted: 4,
        failed: 3,
        bytes: 2,
        missed: 1,
        foreign: 1,
    };
    state.end_run(first, ms(9), &counts, "done").unwrap();
    let runs = state.runs(9).unwrap();
    let walk = RunRow {
        id: first,
        kind: RunKind::Walk,
        begun: ms(1),
        ended: Some(ms(9)),
        counts,
        end: Some("done".into()),
    };
    let live = RunRow {
        id: second,
        kind: RunKind::Live,
        begun: ms(2),
        ended: None,
        counts: RunCounts::default(),
        end: None,
    };
    assert_eq!(runs, [live, walk]);
    // The others are written in one transaction.
    let more = format!(
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {RUNS_KEPT_MAX})
        INSERT INTO runs (kind, begun_ms) SELECT 'cycle', n FROM number"
    );
    sql(&path_of, &more);
    let last = state.begin_run(RunKind::Cycle, ms(3)).unwrap();
    let runs = state.runs(u64::MAX).unwrap();
    assert_eq!(runs.len() as u64, RUNS_KEPT_MAX);
    assert!(runs[0].id == last && runs.iter().all(|run| run.id > second));
    state.end_run(first, ms(9), &counts, "late").unwrap();
    assert!(state.runs(u64::MAX).unwrap() == runs, "it stays away");
}

#[test]
fn problems_are_kept_up_to_a_bound_and_those_in_quarantine_first() {
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    let rows = (0..PROBLEMS_KEPT_MAX + 100).map(|number| ProblemRow {
        is_quarantined: number >= PROBLEMS_KEPT_MAX + 50,
        ..problem(number.to_string().as_bytes(), number)
    });
    let saved = Saved {
        problems: rows.collect(),
        ..Saved::default()
    };
    state.save(&saved).unwrap();
    let kept = state.problems().unwrap();
    assert_eq!(kept.len() as u64, PROBLEMS_KEPT_MAX);
    let gone = |row: &ProblemRow| {
        (PROBLEMS_KEPT_MAX - 50..PROBLEMS_KEPT_MAX + 50).contains(&(row.first.as_millis() as u64))
    };
    assert!(!kept.iter().any(gone));
}

#[test]
fn hours_are_kept_up_to_a_bound_whatever_the_clock_said() {
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    let ahead = 10_000_000;
    let numbers = (1..=HOURS_KEPT_MAX + 10).chain([ahead]);
    let saved = Saved {
        hours: numbers.clone().map(|number| hour(number, 1)).collect(),
        lag: numbers.map(|number| (number, lag(&[1]))).collect(),
        ..Saved::default()
    };
    state.save(&saved).unwrap();
    let hours = state.hours_between(0..u64::MAX).unwrap();
    assert_eq!(hours.len() as u64, HOURS_KEPT_MAX);
    assert_eq!(
        (hours[0].hour, hours[hours.len() - 1].hour),
        (12, ahead),
        "the oldest went"
    );
    let lag = state.lag_between(0..u64::MAX).unwrap();
    assert_eq!(lag.count(), HOURS_KEPT_MAX);
}

#[test]
fn of_a_stretch_the_most_that_was_left_is_kept_and_stretches_up_to_a_bound() {
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    let save = |state: &mut MirrorState, rows: Vec<BacklogRow>| {
        let saved = Saved {
            backlog: rows,
            ..Saved::default()
        };
        state.save(&saved).unwrap();
    };
    let mut mixed = backlog(7, 5);
    save(&mut state, vec![mixed, backlog(7, 2)]);
    mixed.left = 9;
    mixed.behind = ms(1);
    save(&mut state, vec![mixed]);
    let kept = state.backlog_between(7..8).unwrap();
    let most = BacklogRow {
        left: 9,
        ..backlog(7, 5)
    };
    assert_eq!(kept, [most]);
    let many = (8..8 + BACKLOG_KEPT_MAX).map(|stretch| backlog(stretch, 1));
    save(&mut state, many.collect());
    let kept = state.backlog_between(0..u64::MAX).unwrap();
    assert_eq!((kept.len() as u64, kept[0].stretch), (BACKLOG_KEPT_MAX, 8));
}
