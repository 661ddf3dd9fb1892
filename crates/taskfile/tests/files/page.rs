//! The page for users: its examples parse, and its messages are those of the parser.

use driftless_taskfile::{DATA_PATHS_MAX, KEEP_SECONDS_MAX, TASK_FILE_BYTES_MAX, TaskFile};

const PAGE: &str = include_str!("../../../../docs/task-files.md");
const EXAMPLE: &str = include_str!("example.tdf");

fn examples() -> Vec<&'static str> {
    let blocks = PAGE.split("```tdf\n").skip(1);
    blocks.filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn examples_of_the_page_parse() {
    let examples = examples();
    assert_eq!(examples.len(), 2);
    assert_eq!(examples[0], EXAMPLE);
    for text in examples {
        let file = TaskFile::parse(text.as_bytes());
        assert!(file.is_ok(), "{file:?}");
    }
}

#[test]
fn messages_of_the_page_match_the_parser() {
    let (_, table) = PAGE.split_once("| text | message |\n").expect("the table");
    let rows = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    let mut seen = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('`').collect();
        let [_, text, _, message, _] = cells[..] else {
            panic!("not two cells: {row}");
        };
        let error = TaskFile::parse(text.as_bytes()).expect_err(text);
        assert_eq!(format!("{}: {}", error.wrong, error.instead), message);
        seen += 1;
    }
    assert!(seen > 10, "only {seen} rows");
}

#[test]
fn bounds_of_the_page_match_the_parser() {
    let days = KEEP_SECONDS_MAX / (24 * 3600);
    assert!(PAGE.contains(&format!("at most `{days}d`")));
    let thousands = DATA_PATHS_MAX / 1000;
    let paths = format!("at most {thousands},{}", DATA_PATHS_MAX % 1000);
    assert!(PAGE.contains(&paths), "{paths}");
    let mebibytes = TASK_FILE_BYTES_MAX >> 20;
    assert!(PAGE.contains(&format!("at most {mebibytes} MiB")));
}
