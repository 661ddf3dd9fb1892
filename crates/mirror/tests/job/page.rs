//! The page that describes jobs is true: it has every key and no other, its values can be written,
//! its defaults are the defaults, its examples are jobs.

use super::{TREES, read};
use driftless_mirror::job::{Detect, Job, KEYS, parse};
use std::collections::BTreeMap;
use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/mirror.md");

/// What of a row of a table of keys is written as TOML.
struct Row {
    values: Vec<String>,
    default: Option<String>,
}

/// The rows of all tables of keys, by key.
fn rows() -> BTreeMap<String, Row> {
    let (mut rows, mut table, mut is_of_keys) = (BTreeMap::new(), String::new(), false);
    for line in PAGE.lines() {
        if line.starts_with('#') {
            let heading = line
                .split("`[")
                .nth(1)
                .and_then(|rest| rest.split(']').next());
            table = heading.map(|name| format!("{name}.")).unwrap_or_default();
        }
        is_of_keys = line.starts_with("| key |") || (is_of_keys && line.starts_with('|'));
        if !is_of_keys || !line.starts_with("| `") {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{line}");
        let key = format!("{table}{}", cells[0].trim_matches('`'));
        let default = cells[2]
            .strip_prefix('`')
            .and_then(|text| text.strip_suffix('`'))
            .filter(|text| !text.contains('`'));
        let row = Row {
            values: quoted(cells[1]),
            default: default.map(str::to_owned),
        };
        assert!(rows.insert(key, row).is_none(), "twice: {line}");
    }
    rows
}

/// What stands in backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The blocks of the page that are fenced as this.
fn blocks(fence: &str) -> Vec<&'static str> {
    let begin = format!("```{fence}\n");
    let parts = PAGE.split(begin.as_str()).skip(1);
    parts
        .map(|rest| rest.split("```").next().expect("a block"))
        .collect()
}

/// A job in which `key` has a meaning, without it.
fn around(key: &str) -> String {
    let with = |key: &str| {
        let table = key.split_once('.').map_or(key, |(table, _)| table);
        match (table, key) {
            ("detect" | "rpo" | "quiet", _) => vec![],
            ("walk", _) => vec!["detect = [\"walk\"]"],
            ("cycle", _) => vec!["detect = [\"btrfs\"]"],
            ("live" | "fanotify", _) => vec!["detect = [\"fanotify\"]"],
            ("gpfs", _) => vec!["detect = [\"gpfs\"]"],
            ("command", _) => vec![
                "detect = [\"command\"]",
                "command.create = \"a\"",
                "command.list = \"b\"",
                "command.delete = \"c\"",
                "command.diff = \"d\"",
            ],
            ("list", _) => vec!["detect = [\"list\"]", "list.path = \"x\""],
            ("lustre", _) => vec![
                "detect = [\"lustre\"]",
                "lustre.mdt = \"x\"",
                "lustre.user = \"y\"",
            ],
            ("announcements", _) => vec![
                "detect = [\"announcements\"]",
                "announcements.broker = \"amqp://u@h\"",
                "announcements.exchange = \"x\"",
                "announcements.queue = \"y\"",
            ],
            ("publish", _) => vec![
                "publish.broker = \"amqp://u@h\"",
                "publish.exchange = \"x\"",
            ],
            ("trash" | "max_delete" | "delete_excluded" | "delete_unlike", _) => {
                vec!["delete = true"]
            }
            (_, "metrics.public") => vec!["metrics.listen = \"127.0.0.1:1\""],
            _ => vec![],
        }
    };
    let lines = TREES.lines().chain(with(key));
    let others = lines.filter(|line| {
        let other = line.split(" = ").next().expect("a key");
        other != key && !(other == "replica" && key == "replicas")
    });
    others.map(|line| format!("{line}\n")).collect()
}

fn written(key: &str, value: &str) -> Job {
    let text = format!("{}{key} = {value}\n", around(key));
    read(&text).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

#[test]
fn the_page_has_every_key_and_no_other() {
    let rows = rows();
    let known: Vec<&str> = KEYS.to_vec();
    let told: Vec<&str> = rows.keys().map(String::as_str).collect();
    let lacking: Vec<_> = known.iter().filter(|key| !told.contains(key)).collect();
    let unknown: Vec<_> = told.iter().filter(|key| !known.contains(key)).collect();
    assert!(
        lacking.is_empty() && unknown.is_empty(),
        "{lacking:?} {unknown:?}"
    );
}

#[test]
fn values_of_the_page_can_be_written_and_mean_something() {
    for (key, row) in rows() {
        assert!(!row.values.is_empty(), "{key} has no value to copy");
        for value in &row.values {
            let job = written(&key, value);
            let says_nothing = read(&around(&key)).is_ok_and(|without| without == job);
            // The file of these jobs has this name, too, and the loopback device is never public.
            let may_say_nothing = ["name", "metrics.public"].contains(&key.as_str());
            let is_default = row.default.as_ref() == Some(value);
            assert!(
                is_default == says_nothing || may_say_nothing,
                "{key} = {value}"
            );
        }
    }
}

#[test]
fn defaults_of_the_page_are_the_defaults() {
    let mut seen = 0;
    for (key, row) in rows() {
        if let Some(default) = row.default {
            let without = read(&around(&key)).unwrap_or_else(|errors| panic!("{key}: {errors}"));
            assert_eq!(written(&key, &default), without, "{key} = {default}");
            seen += 1;
        }
    }
    assert!(seen > 30, "the test has lost its grip");
}

#[test]
fn the_page_names_every_detector_with_its_sort() {
    let table = PAGE.split("| detector |").nth(1).expect("the table");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let told: Vec<(&str, &str)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            (cells[0].trim_matches(['|', ' ', '`']), cells[1])
        })
        .collect();
    let known: Vec<(&str, &str)> = Detect::ALL
        .iter()
        .map(|(name, one)| {
            let sort = match (one.is_live(), one.is_snapshot()) {
                (true, _) => "live",
                (_, true) => "snapshots",
                _ => "comparison",
            };
            (*name, sort)
        })
        .collect();
    assert_eq!(told, known);
}

#[test]
fn examples_of_the_page_are_jobs() {
    let examples = blocks("toml");
    assert_eq!(examples.len(), 5);
    let jobs: Vec<Job> = examples
        .iter()
        .map(|text| read(text).unwrap_or_else(|errors| panic!("{errors}")))
        .collect();
    assert!(jobs[0].is_live());
    assert!(jobs.iter().any(|job| job.publish.is_some()));
    let [.., live, cycles] = &jobs[..] else {
        panic!("examples of all keys")
    };
    assert!(live.is_live() && live.trash.is_some() && live.metrics.is_some());
    assert_eq!(cycles.snapshots(), Some(Detect::Btrfs));
    assert_eq!(cycles.replicas.len(), 2);
}

#[test]
fn what_the_page_shows_of_errors_is_what_is_told() {
    let (wrong, errors) = (blocks("toml wrong")[0], blocks("text errors")[0]);
    let told = parse(wrong, Path::new("projects.toml")).expect_err("it is wrong");
    assert_eq!(told.to_string(), errors.trim_end());
}

/// Options of `sync` that are about one run, and of which a job has nothing.
const OF_ONE_RUN: [&str; 14] = [
    "connect-timeout",
    "copy-into",
    "copy-with",
    "dry-run",
    "files-from",
    "forget-mounts",
    "fresh",
    "from0",
    "json",
    "link-dest",
    "log",
    "progress",
    "strict",
    "verbose",
];

#[test]
fn whoever_knows_the_options_of_sync_is_told_what_to_write() {
    let reference = include_str!("../../../../docs/cli.md");
    let sync = reference
        .split("\n## ")
        .find(|part| part.starts_with("driftless sync"))
        .expect("sync");
    let options = sync.lines().filter(|line| line.starts_with("- `-"));
    let options = options.filter_map(|line| line.split("--").nth(1)?.split([' ', '`', '[']).next());
    let mut seen = 0;
    for option in options.filter(|option| !OF_ONE_RUN.contains(option)) {
        seen += 1;
        let key = option.replace('-', "_");
        if KEYS.contains(&key.as_str()) {
            continue;
        }
        let errors = read(&format!("{key} = 1\n{TREES}")).expect_err(option);
        let what = &errors.told()[0].what;
        let is_helpful = ["write ", "belongs in ", "it is a table"];
        assert!(
            is_helpful.iter().any(|words| what.contains(words)),
            "--{option}: {what}"
        );
    }
    assert!(seen > 35, "the test has lost its grip: {seen}");
}
