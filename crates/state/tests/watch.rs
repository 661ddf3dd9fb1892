//! What the state of an agent promises: that it keeps what it is given, all or nothing, and that
//! the page draws it as it is.
#![allow(clippy::disallowed_methods)]

use driftless_model::RelPath;
use driftless_state::StateError;
use driftless_state::watch::{Saved, TreeRow, WaitingRow, WatchState};
use rusqlite::Connection;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    (folder, path)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn row(id: u64, tree: u64, path: &[u8]) -> WaitingRow {
    WaitingRow {
        id,
        tree,
        path: RelPath::parse(path).unwrap(),
        word: "written".into(),
        from: None,
        since: ms(id),
    }
}

fn with_trees(path: &Path, trees: &[&[u8]]) -> (WatchState, Vec<(TreeRow, bool)>) {
    let mut state = WatchState::open(path).unwrap();
    let trees: Vec<Vec<u8>> = trees.iter().map(|tree| tree.to_vec()).collect();
    let taken = state.take_trees(&trees, ms(5)).unwrap();
    (state, taken)
}

fn filled(path: &Path) -> (WatchState, Saved) {
    let (mut state, taken) = with_trees(path, &[b"/a", b"/b\xff"]);
    let [first, second] = [0, 1].map(|number: usize| taken[number].0.clone());
    let moved = WaitingRow {
        word: "moved".into(),
        from: Some(RelPath::parse(b"old\n\xff").unwrap()),
        ..row(3, second.id, b"new")
    };
    let gap = TreeRow {
        gaps: 2,
        first_gap: Some(ms(7)),
        last_gap: Some(ms(9)),
        ..first.clone()
    };
    let saved = Saved {
        waiting: vec![row(1, first.id, b""), row(2, first.id, b"x"), moved],
        trees: vec![gap],
        ..Saved::default()
    };
    state.save(&saved).unwrap();
    (state, saved)
}

#[test]
fn what_waits_and_what_was_missed_outlive_the_agent() {
    let (_folder, path) = folder();
    let (state, saved) = filled(&path);
    assert_eq!(state.waiting().unwrap(), saved.waiting);
    drop(state);
    let (state, taken) = with_trees(&path, &[b"/b\xff", b"/a"]);
    assert_eq!(state.waiting().unwrap(), saved.waiting);
    assert_eq!(taken[1], (saved.trees[0].clone(), false));
    assert_eq!(taken[0].0.path, b"/b\xff");
    assert_eq!(state.counts().unwrap(), [(1, 2), (2, 1)]);
    let view = WatchState::look(&path).unwrap();
    assert_eq!(view.waiting().unwrap(), saved.waiting);
}

#[test]
fn what_is_gone_is_gone_before_what_comes() {
    let (_folder, path) = folder();
    let (mut state, _) = filled(&path);
    let saved = Saved {
        emptied: vec![1],
        gone: vec![3, 77],
        waiting: vec![row(4, 1, b"y")],
        ..Saved::default()
    };
    assert!(!saved.is_empty() && Saved::default().is_empty());
    state.save(&saved).unwrap();
    assert_eq!(state.waiting().unwrap(), saved.waiting);
}

#[test]
fn a_tree_that_is_not_configured_any_more_takes_what_waits_with_it() {
    let (_folder, path) = folder();
    drop(filled(&path));
    let (state, taken) = with_trees(&path, &[b"/c", b"/b\xff"]);
    assert_eq!((taken[0].1, taken[1].1), (true, false));
    let waiting = state.waiting().unwrap();
    assert!(waiting.iter().all(|row| row.tree == taken[1].0.id));
    assert_eq!(waiting.len(), 1);
}

#[test]
fn what_cannot_be_saved_changes_nothing() {
    let (_folder, path) = folder();
    let (mut state, saved) = filled(&path);
    let unknown = WaitingRow {
        word: "nonsense".into(),
        ..row(9, 1, b"z")
    };
    for wrong in [unknown, row(9, 99, b"z")] {
        let changes = Saved {
            gone: vec![1],
            waiting: vec![wrong],
            ..Saved::default()
        };
        assert!(state.save(&changes).is_err());
        assert_eq!(state.waiting().unwrap(), saved.waiting);
    }
}

#[test]
fn a_file_of_another_program_is_refused() {
    let (_folder, path) = folder();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (a)").unwrap();
    for told in [WatchState::open(&path).err(), WatchState::look(&path).err()] {
        assert!(matches!(told, Some(StateError::Foreign { .. })), "{told:?}");
    }
}

/// What the page says of the state of an agent.
fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/state.md");
    let page = fs::read_to_string(page).unwrap();
    page.split_once("\n## State of an agent")
        .unwrap()
        .1
        .split("\n## ")
        .next()
        .unwrap()
        .to_owned()
}

fn blocks() -> Vec<String> {
    let page = page();
    let blocks = page.split("```sql\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

/// What a database is made of, without comments and line ends.
fn layout_of(file: &Connection) -> Vec<String> {
    let ask = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
    let mut find = file.prepare(ask).unwrap();
    let parts = find.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let code = |line: &str| line.split("--").next().unwrap().to_owned();
    let words = |sql: String| {
        let lines: Vec<String> = sql.lines().map(code).collect();
        let words: Vec<String> = lines
            .iter()
            .flat_map(|line| line.split_whitespace())
            .map(str::to_owned)
            .collect();
        words.join(" ")
    };
    parts.map(|sql| words(sql.unwrap())).collect()
}

#[test]
fn the_page_draws_the_tables_and_its_questions_are_answered() {
    let (_folder, path) = folder();
    drop(filled(&path));
    let file = Connection::open(&path).unwrap();
    let drawn = Connection::open_in_memory().unwrap();
    let blocks = blocks();
    let (tables, questions) = blocks.split_last().unwrap();
    drawn.execute_batch(tables).unwrap();
    assert_eq!(layout_of(&drawn), layout_of(&file));
    let number = |name: &str| -> i32 {
        let ask = file.pragma_query_value(None, name, |row| row.get(0));
        ask.unwrap()
    };
    let (application, layout) = (number("application_id"), number("user_version"));
    let words = format!(
        "`PRAGMA application_id` is {application:#x} (\"drfw\"), `PRAGMA user_version` is the number of the layout: {layout}."
    );
    assert!(page().contains(&words), "{words}");
    for question in questions.iter().flat_map(|block| block.split(";\n")) {
        if question.trim().is_empty() {
            continue;
        }
        let count = format!("SELECT count(*) FROM ({question})");
        let rows: i64 = file.query_row(&count, [], |row| row.get(0)).unwrap();
        assert!(rows > 0, "{question}");
    }
}
