//! Changes that are saved together are all there afterwards, or none of them is.

use crate::{
    about, all, common, cursor, dirty, filled, folder, gap, hour, lag, ms, open, path, problem,
    saved, sql,
};
use driftless_model::{Problem, Side};
use driftless_state::mirror::{
    BacklogRow, DirtyRow, EqualUntil, Found, INTERRUPTED, JobRow, MirrorState, MirrorView,
    ProblemRow, Role, RoleRow, Saved,
};
use driftless_state::{StateError, StateFile};
use std::fs;
use std::path::Path;
use std::time::Duration;

#[test]
fn what_is_saved_is_read_again_after_the_end_of_the_process() {
    let (folder, path_of) = folder();
    assert_eq!(
        MirrorState::open(&path_of, &about(), ms(1000)).unwrap().1,
        Found::Nothing
    );
    let state = filled(&path_of);
    let before = all(&state);
    let given = saved();
    assert_eq!(state.dirty().unwrap(), given.dirty);
    assert_eq!(state.problems().unwrap(), given.problems);
    assert_eq!(
        (
            state.cursor("lustre").unwrap(),
            state.cursor("other").unwrap()
        ),
        (given.cursors.into_iter().next(), None)
    );
    assert_eq!(state.lag_between(0..u64::MAX).unwrap(), given.lag[0].1);
    assert_eq!(state.common().unwrap(), given.common);
    let job = JobRow {
        about: about(),
        mark: Some(u128::MAX - 5),
        since: ms(1000),
        paused: Some(ms(9)),
        equal_until: Some(ms(77)),
        role: RoleRow::default(),
        has_told_all: false,
    };
    assert_eq!(state.job().unwrap(), job);
    // What a killed process leaves: nothing is taken over from the log, nothing is closed.
    let killed = folder.path().join("killed");
    for end in ["", "-wal"] {
        let name = |path: &Path| {
            path.with_extension(end)
                .to_str()
                .unwrap()
                .replace(".-", "-")
        };
        fs::copy(name(&path_of), name(&killed)).unwrap();
    }
    assert!(killed.with_file_name("killed-wal").exists());
    assert_eq!(all(&MirrorState::look(&killed).unwrap()), before);
    drop(state);
    for path in [&killed, &path_of] {
        let (state, found) = MirrorState::open(path, &about(), ms(2000)).unwrap();
        assert_eq!(found, Found::Same);
        let runs = state.runs(1).unwrap();
        assert_eq!(
            (runs[0].ended, runs[0].end.as_deref()),
            (None, Some(INTERRUPTED)),
            "the run that was under way"
        );
        let cut_off = format!("Some(\n                \"{INTERRUPTED}\",\n            )");
        assert_eq!(all(&state).replace(&cut_off, "None"), before);
    }
}

/// A process that is killed, or a machine that loses power, at any byte of the log.
#[test]
fn whatever_part_of_the_log_is_left_holds_whole_saves() {
    let (folder, path_of) = folder();
    let mut state = open(&path_of);
    let numbers = |state: &MirrorView| {
        let cursor = state.cursor("list").unwrap();
        let heard = cursor.map_or(0, |cursor| u64::from(cursor.position[0]));
        let since = state.job().unwrap().equal_until;
        (heard, since, state.dirty().unwrap().len() as u64)
    };
    for number in 1..=12u64 {
        let saved = Saved {
            dirty: vec![dirty(format!("{number}").as_bytes(), number)],
            cursors: vec![cursor("list", &[number as u8])],
            equal_until: EqualUntil::At(ms(number)),
            ..Saved::default()
        };
        state.save(&saved).unwrap();
    }
    let log = fs::read(path_of.with_file_name("state-wal")).unwrap();
    let cut = folder.path().join("cut");
    let mut met = std::collections::BTreeSet::new();
    for length in (0..=log.len()).step_by(1021).chain([log.len()]) {
        fs::copy(&path_of, &cut).unwrap();
        fs::write(cut.with_file_name("cut-wal"), &log[..length]).unwrap();
        let (state, _) = MirrorState::open(&cut, &about(), ms(1000)).unwrap();
        let (heard, until, paths) = numbers(&state);
        assert_eq!(heard, paths, "{length} bytes");
        assert_eq!(until, (heard > 0).then(|| ms(heard)), "{length} bytes");
        met.insert(heard);
        drop(state);
        fs::remove_file(&cut).unwrap();
    }
    assert!(met.len() > 10 && met.contains(&12), "{met:?}");
}

#[test]
fn what_is_taken_away_goes_and_what_is_put_takes_the_place_of_what_was_there() {
    let (_folder, path_of) = folder();
    let mut state = filled(&path_of);
    let again = DirtyRow {
        attempts: 7,
        ..dirty(b"", 9)
    };
    let other_side = |row: ProblemRow| ProblemRow {
        problem: Problem {
            side: Side::Source,
            ..row.problem
        },
        ..row
    };
    let change = Saved {
        dirty: vec![again.clone(), dirty(b"b", 2), dirty(b"b", 3)],
        clean: vec![path(b""), path(b"a/\xff"), path(b"no such")],
        problems: vec![problem(b"b", 1), other_side(problem(b"b", 2))],
        solved: vec![path(b"a\xff"), path(b"no such")],
        cursors: vec![cursor("lustre", b""), cursor("list", b"x")],
        gaps: vec![gap(b"h", None, (6, 0)), gap(b"", None, (7, 0))],
        walked: vec![1, 999],
        common: vec![common("tuesday", 3, true), common("sunday", 0, false)],
        ..Saved::default()
    };
    assert_eq!(state.save(&change).unwrap(), [2, 3]);
    assert_eq!(state.dirty().unwrap(), [again, dirty(b"b", 3)]);
    assert_eq!(
        state.problems().unwrap(),
        [problem(b"b", 1), other_side(problem(b"b", 2))]
    );
    assert_eq!(state.cursor("lustre").unwrap(), Some(cursor("lustre", b"")));
    let gaps = state.gaps().unwrap();
    assert_eq!(
        gaps.iter()
            .map(|row| (row.id, row.gap.path.clone()))
            .collect::<Vec<_>>(),
        [(2, path(b"h")), (3, path(b""))]
    );
    assert_eq!(
        state.common().unwrap(),
        [
            common("sunday", 0, false),
            common("monday", 1, false),
            common("tuesday", 3, true)
        ]
    );
    let uncommon = Saved {
        uncommon: vec!["tuesday".into(), "no such".into()],
        walked: vec![2, 3],
        gaps: vec![gap(b"", None, (8, 0))],
        ..Saved::default()
    };
    assert_eq!(
        state.save(&uncommon).unwrap(),
        [4],
        "numbers are not used twice"
    );
    assert_eq!(state.common().unwrap().len(), 2);
}

#[test]
fn a_save_of_nothing_changes_nothing() {
    let (_folder, path_of) = folder();
    let mut state = filled(&path_of);
    let before = all(&state);
    state.save(&Saved::default()).unwrap();
    assert_eq!(all(&state), before);
}

#[test]
fn a_save_that_fails_leaves_the_former_state() {
    let (_folder, path_of) = folder();
    let mut state = filled(&path_of);
    let before = all(&state);
    // The last thing that is written fails, and so does each that is written before it.
    for table in [
        "dirty", "problems", "cursors", "hours", "lag", "common", "gaps", "backlog",
    ] {
        let name = format!("no_{table}");
        sql(
            &path_of,
            &format!(
                "CREATE TRIGGER {name} BEFORE INSERT ON {table} BEGIN SELECT raise(ABORT, 'no'); END"
            ),
        );
        let change = Saved {
            clean: vec![path(b"")],
            solved: vec![path(b"a\xff")],
            walked: vec![1],
            uncommon: vec!["monday".into()],
            equal_until: EqualUntil::Unknown,
            lag: vec![(400_001, lag(&[5]))],
            hours: vec![hour(400_000, 7), hour(3, 3)],
            dirty: vec![dirty(b"new", 1)],
            cursors: vec![cursor("lustre", b"new")],
            gaps: vec![gap(b"new", None, (1, 1))],
            common: vec![common("new", 2, true)],
            problems: vec![problem(b"new", 1)],
            backlog: vec![BacklogRow {
                stretch: 1,
                left: 2,
                quarantined: 3,
                behind: ms(4),
            }],
        };
        let told = state.save(&change).expect_err(table);
        assert!(
            matches!(
                &told,
                StateError::Failed {
                    file: StateFile::Mirror,
                    ..
                }
            ) && !told.is_of_the_file(),
            "{table}: {told}"
        );
        assert!(
            told.to_string()
                .ends_with("state\": cannot keep the state of the mirror: no"),
            "{told}"
        );
        assert_eq!(all(&state), before, "{table}");
        sql(&path_of, &format!("DROP TRIGGER {name}"));
    }
    drop(state);
    assert!(all(&open(&path_of)).contains("\"monday\""));
}

#[test]
fn the_moment_until_which_all_is_equal_can_be_lost_and_found() {
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    for (equal_until, expected) in [
        (EqualUntil::AsBefore, None),
        (EqualUntil::At(Duration::from_nanos(5_999_999)), Some(ms(5))),
        (EqualUntil::AsBefore, Some(ms(5))),
        (EqualUntil::Unknown, None),
        (EqualUntil::At(Duration::ZERO), Some(ms(0))),
        (EqualUntil::At(Duration::MAX), Some(ms(i64::MAX as u64))),
    ] {
        let saved = Saved {
            equal_until,
            ..Saved::default()
        };
        state.save(&saved).unwrap();
        assert_eq!(state.job().unwrap().equal_until, expected);
    }
}

#[test]
fn what_a_replica_is_is_noted_together_with_what_follows_from_it() {
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    for (role, since, to) in [
        (Role::FailingOver, Some(5), Some("latest")),
        (Role::FailedOver, Some(6), Some("a-b")),
        (Role::FailingBack, Some(7), None),
        (Role::Following, None, None),
    ] {
        let row = RoleRow {
            role,
            since: since.map(ms),
            to: to.map(str::to_owned),
        };
        let saved = Saved {
            equal_until: since.map_or(EqualUntil::Unknown, |since| EqualUntil::At(ms(since))),
            ..Saved::default()
        };
        state.take_role(&row, &saved).unwrap();
        drop(state);
        state = open(&path_of);
        let job = state.job().unwrap();
        assert_eq!((job.role, job.equal_until), (row, since.map(ms)));
    }
    drop(state);
    sql(
        &path_of,
        "PRAGMA ignore_check_constraints = 1; UPDATE job SET role = 'asleep'",
    );
    let told = MirrorState::look(&path_of).unwrap_err().to_string();
    assert!(told.contains("there is no \"asleep\""), "{told}");
}

#[test]
fn a_pause_lasts_until_it_is_ended_and_keeps_its_beginning() {
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    for (since, expected) in [
        (None, None),
        (Some(5), Some(5)),
        (Some(6), Some(5)),
        (None, None),
        (Some(0), Some(0)),
    ] {
        state.pause(since.map(ms)).unwrap();
        assert_eq!(state.job().unwrap().paused, expected.map(ms));
    }
}

#[test]
fn as_many_dirty_paths_as_a_mirror_tells_apart_are_saved_and_loaded() {
    const PATHS: u64 = 200_000;
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    let mut rows: Vec<DirtyRow> = (0..PATHS)
        .map(|number| dirty(format!("{:x}/{number}", number % 997).as_bytes(), number))
        .collect();
    let saved = Saved {
        dirty: rows.clone(),
        ..Saved::default()
    };
    state.save(&saved).unwrap();
    rows.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(state.dirty().unwrap() == rows);
    drop(state);
    state = open(&path_of);
    assert!(state.dirty().unwrap() == rows);
    let clean = Saved {
        clean: rows.iter().skip(1).map(|row| row.path.clone()).collect(),
        ..Saved::default()
    };
    state.save(&clean).unwrap();
    assert_eq!(state.dirty().unwrap(), rows[..1]);
}
