//! The page describes every key of the configuration as it is.
#![allow(clippy::disallowed_methods)]

use driftless_watch::config::{Config, KEYS, parse};
use std::collections::BTreeMap;
use std::path::Path;

/// Keys of the page, with their defaults and values.
fn rows() -> BTreeMap<String, (String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/watch.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, after) = page.split_once("\n## The configuration").unwrap();
    let section = after.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let plain = |cell: &str| cell.trim_matches('`').to_owned();
        (plain(cells[1]), (plain(cells[3]), plain(cells[4])))
    })
    .collect()
}

/// What a file says in which a key has this value.
fn read(key: &str, value: Option<&str>) -> Config {
    let (table, name) = key.split_once('.').unwrap_or(("", key));
    // What the table must have, and the key is not.
    let needed = [
        ("publish", "broker", "\"amqp://u@b/\""),
        ("publish", "exchange", "\"e\""),
        ("metrics", "listen", "\"127.0.0.1:1\""),
    ];
    let needed = needed
        .iter()
        .filter(|(of, other, _)| *of == table && (*other != name || value.is_none()));
    let needed: String = needed
        .map(|(_, name, value)| format!("{name} = {value}\n"))
        .collect();
    let line = value.map_or(String::new(), |value| format!("{name} = {value}\n"));
    let line = format!("{needed}{line}");
    let trees = if key == "trees" && value.is_some() {
        ""
    } else {
        "trees = [\"/x\"]\n"
    };
    let text = match table {
        "" => format!("{trees}{line}"),
        table => format!("{trees}[{table}]\n{line}"),
    };
    parse(&text, Path::new("node.toml")).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

#[test]
fn the_page_has_every_key_and_no_other() {
    let told: Vec<String> = rows().into_keys().collect();
    let mut known = KEYS.to_vec();
    known.sort_unstable();
    assert_eq!(told, known);
}

#[test]
fn defaults_of_the_page_are_the_defaults_and_its_values_mean_something() {
    for (key, (default, value)) in rows() {
        if default.starts_with(['"', '[']) {
            assert_eq!(read(&key, Some(&default)), read(&key, None), "{key}");
        }
        // This one allows something, and is nothing by itself.
        if !["name", "metrics.public"].contains(&&*key) {
            assert_ne!(read(&key, Some(&value)), read(&key, None), "{key}");
        }
    }
}
