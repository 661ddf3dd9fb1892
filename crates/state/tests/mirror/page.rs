//! The page draws the tables as they are, and what was written once stays understood.

use crate::{asked, filled, folder, header, open, problem, sql};
use driftless_model::{Act, Class, LAG_BUCKETS, Lag};
use driftless_state::mirror::{ProblemRow, Saved};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Words of acts that any version has written into a state. One that gets other words leaves the
/// former ones to `FORMER_ACTS`, and stays here.
const ACTS_WRITTEN: [&str; 83] = [
    "open it",
    "open the directory",
    "open the directory again",
    "open the directory that shall hold the replica",
    "begin in the home directory",
    "use it as a path",
    "look at it",
    "list the directory",
    "find it",
    "find the directories above it",
    "tell whether something is mounted on it",
    "tell it from another name",
    "compare it",
    "enter it",
    "read it",
    "read all of it",
    "read back what was written",
    "read its extended attributes",
    "read the symbolic link",
    "read the mark",
    "read the marks of the directories above it",
    "find its holes",
    "hash it",
    "take it out of the page cache",
    "take it",
    "copy a consistent state of it",
    "create the file",
    "make the directory",
    "make the symbolic link",
    "make the special file",
    "make it",
    "have a mover make it, and what is below it, equal",
    "have the program of --copy-with make it",
    "let another program reach it",
    "make the hard link",
    "link it to its first name",
    "link all its names",
    "keep the table of its hard links",
    "find the file to link it to",
    "keep hold of the file to link it to",
    "keep hold of the new directory",
    "keep hold of its unfinished copy",
    "give it its name",
    "replace what stands in its place",
    "replace the directory",
    "remove it",
    "remove the directory",
    "remove what something is mounted on",
    "remove the subvolume",
    "remove the source of this run",
    "remove a directory that may not be ours",
    "write to it",
    "set its length",
    "reserve space for it",
    "copy its earlier content",
    "note how far its copy has come",
    "make it durable",
    "close it",
    "set its owner",
    "set its group",
    "set its mode",
    "set its times",
    "set its ACL",
    "set an extended attribute of it",
    "remove an extended attribute of it",
    "set a capability or trusted attribute of it",
    "set its attributes",
    "set the attributes of what is mounted on it",
    "lock it",
    "keep its lock",
    "begin to change it",
    "find the root again at its path",
    "write the mark",
    "make the mark durable",
    "reach the agent",
    "understand the agent",
    "carry out the request",
    "send the whole request about it",
    "send the whole reply about it",
    "add connections",
    "put it into the trash",
    "open the trash",
    "remove what the source does not have",
];

#[test]
fn words_that_any_version_has_written_are_understood() {
    let words: Vec<&str> = Act::ALL.iter().map(|act| act.words()).collect();
    for word in &words {
        assert!(
            ACTS_WRITTEN.contains(word),
            "add \"{word}\" to those that are written"
        );
    }
    let (_folder, path_of) = folder();
    let mut state = open(&path_of);
    let rows: Vec<ProblemRow> = Act::ALL
        .iter()
        .zip(
            [Class::Changing, Class::Partly, Class::Skip, Class::Stop]
                .into_iter()
                .cycle(),
        )
        .map(|(act, class)| {
            let mut row = problem(b"a", 1);
            (row.problem.act, row.problem.class) = (*act, class);
            row
        })
        .collect();
    let saved = Saved {
        problems: rows.clone(),
        ..Saved::default()
    };
    state.save(&saved).unwrap();
    let found = state.problems().unwrap();
    assert_eq!(found.len(), rows.len());
    assert!(rows.iter().all(|row| found.contains(row)));
    let written: Vec<String> = ACTS_WRITTEN
        .iter()
        .map(|word| format!("(x'62', 'source', '{word}', '', 'skip', 0, 0, 0, 0)"))
        .collect();
    sql(
        &path_of,
        &format!("INSERT INTO problems VALUES {}", written.join(", ")),
    );
    let found = state.problems().unwrap();
    assert_eq!(found.len(), rows.len() + ACTS_WRITTEN.len());
}

/// What a database is made of.
fn layout_of(path: &Path) -> Vec<String> {
    let parts = asked::<String>(
        path,
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY name",
    );
    parts.unwrap().iter().map(|sql| words(sql)).collect()
}

/// Without comments, and without what tells lines apart.
fn words(sql: &str) -> String {
    let lines = sql
        .lines()
        .map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    lines
        .flat_map(str::split_whitespace)
        .collect::<Vec<_>>()
        .join(" ")
}

/// What the page says of the state of a mirror.
fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/state.md");
    let page = fs::read_to_string(page).unwrap();
    let (_records, mirrors) = page.split_once("\n## State of a mirror").unwrap();
    let mirrors = mirrors.split("\n## ").next().unwrap();
    mirrors.to_owned()
}

/// The blocks of SQL in the page: the last one draws the tables, the others are questions.
fn blocks() -> Vec<String> {
    let page = page();
    let blocks = page.split("```sql\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_layout_is_the_one_that_is_drawn() {
    let (_folder, path_of) = folder();
    drop(filled(&path_of));
    let drawn = path_of.with_extension("drawn");
    sql(&drawn, blocks().last().unwrap());
    assert_eq!(layout_of(&drawn), layout_of(&path_of));
}

#[test]
fn the_page_names_the_number_of_the_layout() {
    let (_folder, path_of) = folder();
    drop(filled(&path_of));
    let (application, layout) = header(&path_of);
    let words = format!(
        "`PRAGMA application_id` is {application:#x} (\"drfm\"), `PRAGMA user_version` is the number of the layout: {layout}."
    );
    assert!(page().contains(&words), "{words}");
}

#[test]
fn the_questions_of_the_page_are_answered() {
    let (_folder, path_of) = folder();
    let _state = filled(&path_of);
    let blocks = blocks();
    let questions = blocks[..blocks.len() - 1]
        .iter()
        .flat_map(|block| block.split(";\n"));
    let questions: Vec<&str> = questions
        .filter(|question| !question.trim().is_empty())
        .collect();
    assert!(questions.len() >= 8);
    for question in questions {
        // The first column may be a name that is no text.
        let count = format!("SELECT count(*) FROM ({question})");
        let rows: Vec<i64> =
            asked(&path_of, &count).unwrap_or_else(|error| panic!("{question}: {error}"));
        assert!(rows[0] > 0, "{question}");
    }
}

#[test]
fn the_question_about_lag_knows_what_a_bucket_is() {
    let (_folder, path_of) = folder();
    let _state = open(&path_of);
    let blocks = blocks();
    let mut questions = blocks.iter().flat_map(|block| block.split(";\n"));
    let question = questions
        .find(|question| question.contains("up_to_ms"))
        .unwrap();
    // The last bucket ends where times are not told apart any more.
    let buckets = 0..LAG_BUCKETS - 1;
    let rows: Vec<String> = buckets.clone().map(|n| format!("(1, {n}, 1)")).collect();
    let rows = rows.join(", ");
    sql(
        &path_of,
        &format!(
            "INSERT INTO hours VALUES (1, 0, 0, 0, 0, 0, 0, 0, 0); INSERT INTO lag VALUES {rows}"
        ),
    );
    let longest = |bucket| Lag::of([(bucket, 1)], Duration::MAX).unwrap().max();
    let expected: Vec<i64> = buckets
        .map(|bucket| longest(bucket).as_millis() as i64)
        .collect();
    assert_eq!(asked::<i64>(&path_of, question).unwrap(), expected);
}
