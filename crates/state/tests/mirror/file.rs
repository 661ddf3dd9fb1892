//! Which files are taken for the state of a mirror, by its keeper and by others.

use crate::{about, all, dirty, filled, folder, header, ms, open, sql};
use driftless_state::mirror::{About, Found, MirrorState, Saved};
use driftless_state::{StateError, StateFile};
use std::fs;
use std::path::Path;

#[test]
fn the_state_of_a_job_with_other_trees_is_refused_with_both_and_left_alone() {
    let (_folder, path_of) = folder();
    let before = all(&filled(&path_of));
    let others = [
        ("/src", "/other\n"),
        ("/other", "far:/dst"),
        ("far:/dst", "/src"),
    ];
    for (source, replica) in others {
        let other = About {
            name: "projects".into(),
            source: source.into(),
            replica: replica.into(),
        };
        let told = MirrorState::open(&path_of, &other, ms(5)).unwrap_err();
        assert!(
            matches!(&told, StateError::OtherTrees { found, wanted, .. }
                if **found == about() && **wanted == other)
                && told.is_of_the_file()
                && !told.may_be_dropped(),
            "{told}"
        );
        let words = format!(
            "state\": it is the state of a mirror of \"/src\" in \"far:/dst\", and not of \"{source}\" in \"{}\"",
            replica.replace('\n', "\\n")
        );
        assert!(told.to_string().ends_with(&words), "{told}");
        assert_eq!(all(&MirrorState::look(&path_of).unwrap()), before);
    }
    let renamed = About {
        name: "other".into(),
        ..about()
    };
    let (state, found) = MirrorState::open(&path_of, &renamed, ms(5)).unwrap();
    assert_eq!(found, Found::Same);
    assert_eq!(
        (state.job().unwrap().about, state.job().unwrap().since),
        (renamed, ms(1000))
    );
}

#[test]
fn a_state_can_be_read_while_a_mirror_writes_and_when_none_does() {
    let (folder, path_of) = folder();
    let mut state = filled(&path_of);
    let view = MirrorState::look(&path_of).unwrap();
    assert_eq!(all(&view), all(&state));
    let more = Saved {
        dirty: vec![dirty(b"new", 5)],
        ..Saved::default()
    };
    state.save(&more).unwrap();
    assert_eq!(all(&view), all(&state), "it sees what was saved since");
    let last = all(&state);
    drop((view, state));
    let bytes = fs::read(&path_of).unwrap();
    let view = MirrorState::look(&path_of).unwrap();
    assert_eq!(all(&view), last);
    drop(view);
    assert!(fs::read(&path_of).unwrap() == bytes, "it was written to");
    open(&path_of).save(&more).unwrap();

    let missing = folder.path().join("missing");
    let told = MirrorState::look(&missing).unwrap_err();
    assert!(matches!(told, StateError::Failed { .. }), "{told}");
    assert!(!missing.exists());
    for script in ["", "PRAGMA journal_mode = WAL"] {
        sql(&missing, script);
        fs::File::options()
            .append(true)
            .create(true)
            .open(&missing)
            .unwrap();
        let told = MirrorState::look(&missing).unwrap_err();
        assert!(
            matches!(&told, StateError::Unready { .. }) && !told.is_of_the_file(),
            "{told}"
        );
        assert!(
            told.to_string()
                .contains("missing\": the state of the mirror is not ready yet"),
            "{told}"
        );
    }
    assert_eq!(
        MirrorState::open(&missing, &about(), ms(1)).unwrap().1,
        Found::Nothing
    );
    sql(&missing, "DELETE FROM job");
    assert!(matches!(
        MirrorState::look(&missing),
        Err(StateError::Unready { .. })
    ));
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_file_that_is_damaged_or_another_programs_is_refused_and_left_alone() {
    type Spoil = fn(&Path);
    let cases: [(&str, Spoil, bool); 7] = [
        (
            "no database",
            |path| fs::write(path, "a text that is no database ".repeat(999)).unwrap(),
            true,
        ),
        (
            "half of it",
            |path| change(path, |bytes| bytes.truncate(bytes.len() / 2)),
            true,
        ),
        (
            "pages of noise",
            |path| {
                change(path, |bytes| {
                    let pages = bytes.chunks_mut(4096).skip(1);
                    pages.for_each(|page| page[..64].fill(0x5a));
                })
            },
            true,
        ),
        (
            "a layout that never was",
            |path| sql(path, "PRAGMA user_version = 0"),
            true,
        ),
        (
            "the record of a run",
            |path| sql(path, "PRAGMA application_id = 0x64726674"),
            false,
        ),
        (
            "another program's",
            |path| sql(path, "PRAGMA application_id = 252006674"),
            false,
        ),
        (
            "other tables",
            |path| sql(path, "PRAGMA application_id = 0; PRAGMA user_version = 0;"),
            false,
        ),
    ];
    for (case, spoil, may_be_dropped) in cases {
        let (_folder, path_of) = folder();
        drop(filled(&path_of));
        spoil(&path_of);
        let before = fs::read(&path_of).unwrap();
        let told = MirrorState::open(&path_of, &about(), ms(1)).expect_err(case);
        assert!(
            told.is_of_the_file() && told.may_be_dropped() == may_be_dropped,
            "{case}: {told}"
        );
        let words = if may_be_dropped {
            "state\": the state of the mirror is damaged"
        } else {
            "state\": is not the state of a mirror"
        };
        assert!(told.to_string().contains(words), "{case}: {told}");
        assert!(
            fs::read(&path_of).unwrap() == before,
            "{case}: it was written to"
        );
        if !matches!(case, "half of it" | "pages of noise") {
            let told = MirrorState::look(&path_of).expect_err(case);
            assert!(told.to_string().contains(words), "{case}: {told}");
        }
    }
}

#[test]
fn a_newer_layout_is_refused_with_both_numbers() {
    let (_folder, path_of) = folder();
    drop(filled(&path_of));
    let (_, known) = header(&path_of);
    sql(&path_of, "PRAGMA user_version = 1000");
    let opened = MirrorState::open(&path_of, &about(), ms(1)).unwrap_err();
    let looked = MirrorState::look(&path_of).unwrap_err();
    for told in [opened, looked] {
        assert!(
            matches!(told, StateError::Newer { found: 1000, known: here, .. } if here == known)
                && told.may_be_dropped(),
            "{told}"
        );
        assert!(
            told.to_string().contains(
                "state\": the state of the mirror is of a newer version of driftless: layout 1000"
            ),
            "{told}"
        );
    }
}

#[test]
fn a_value_that_cannot_be_is_damage() {
    let cases = [
        "UPDATE dirty SET path = x'2e2e2f61' WHERE path = x''",
        "UPDATE dirty SET path = 'text' WHERE path = x''",
        "UPDATE dirty SET since_ms = -1",
        "UPDATE dirty SET attempts = 4294967296",
        "PRAGMA ignore_check_constraints = 1; UPDATE dirty SET scope = 'all'",
        "UPDATE problems SET act = 'no such act'",
        "UPDATE problems SET side = 'left'",
        "UPDATE problems SET class = 'x'",
        "UPDATE problems SET cause = x'ff'",
        "UPDATE cursors SET position = 'text'",
        "UPDATE cursors SET position = 5",
        "UPDATE gaps SET until_ms = 'noon'",
        "UPDATE gaps SET path = x'2f'",
        "PRAGMA ignore_check_constraints = 1; UPDATE runs SET kind = 'x'",
        "UPDATE runs SET bytes = -1",
        "UPDATE lag SET bucket = bucket + 100000",
        "UPDATE lag SET bucket = -1 WHERE bucket = 3",
        "UPDATE lag SET count = -1",
        "UPDATE hours SET max_ms = 1.5",
        "UPDATE common SET made_ms = -5",
        "UPDATE job SET since_ms = 'x'",
        "UPDATE job SET source = x'ff'",
    ];
    for script in cases {
        let (_folder, path_of) = folder();
        let state = filled(&path_of);
        sql(&path_of, script);
        let answers = [
            state.job().err(),
            state.dirty().err(),
            state.problems().err(),
            state.cursor("lustre").err(),
            state.gaps().err(),
            state.runs(9).err(),
            state.lag_between(0..u64::MAX).err(),
            state.hours_between(0..u64::MAX).err(),
            state.common().err(),
        ];
        let told: Vec<_> = answers.into_iter().flatten().collect();
        assert!(!told.is_empty(), "{script}");
        for error in told {
            assert!(
                matches!(
                    error,
                    StateError::Damaged {
                        file: StateFile::Mirror,
                        ..
                    }
                ),
                "{script}: {error}"
            );
        }
    }
}
