//! What somebody who wrote an unknown key may have meant.
//!
//! Most are misspelt, or stand in the wrong table (TOML takes all that follows a `[table]` for a
//! part of it), or are an option of `sync` that a job says in another way.

use super::keys::{KEYS, key_of, split, table, tables};
use std::collections::BTreeSet;

/// Longer names are not compared with others: they are no slip of the pen, and comparing takes as
/// long as both names are long.
const NAME_BYTES_MAX: usize = 40;

/// What `sync` or other programs call something, and how it is written in a job.
const ELSEWHERE: [(&str, &str); 24] = [
    ("include", "filters = [\"+ PATTERN\"]"),
    ("exclude", "filters = [\"- PATTERN\"]"),
    ("filter", "filters = [\"- PATTERN\"]"),
    ("filter_from", "filters = [\"- PATTERN\"]"),
    ("checksum", "level = \"content\""),
    ("verify", "read_back = \"content\""),
    ("require", "required = [\"PATH\"]"),
    ("bwlimit", "bytes_per_second in [limits]"),
    ("iops_limit", "requests_per_second in [limits]"),
    ("queue_credentials", "credentials in [movers]"),
    ("queue_ca", "ca in [movers]"),
    ("route", "routes in [movers]"),
    ("job", "name"),
    ("src", "source"),
    ("dst", "replica"),
    ("dest", "replica"),
    ("destination", "replica"),
    ("target", "replica"),
    ("detector", "detect"),
    ("detectors", "detect"),
    ("interval", "every in [walk] or [cycle]"),
    ("schedule", "every in [walk] or [cycle]"),
    ("settle_time", "settle in [live]"),
    ("prometheus", "listen in [metrics]"),
];

/// What may have been meant by the unknown key `name` of a table (empty at the top of the file):
/// how a sentence about it goes on.
pub(super) fn for_key(in_table: &str, name: &str) -> String {
    let name = name.replace('-', "_");
    elsewhere(&name)
        .or_else(|| in_another_table(in_table, &name))
        .or_else(|| misspelt(in_table, &name))
        .unwrap_or_else(|| format!("possible here: {}", names_in(in_table).join(", ")))
}

fn elsewhere(name: &str) -> Option<String> {
    let kept = name
        .strip_prefix("no_")
        .and_then(|kept| key_of("keep", kept));
    if let Some(kept) = kept {
        return Some(format!("write {} = false in [keep]", split(kept).1));
    }
    let (_, instead) = ELSEWHERE.iter().find(|(other, _)| *other == name)?;
    Some(format!("write {instead}"))
}

/// A known name that stands where it does not belong.
fn in_another_table(in_table: &str, name: &str) -> Option<String> {
    if let Some(key) = key_of(in_table, name) {
        return Some(format!("write {}, with an underscore", split(key).1));
    }
    if key_of("", name).is_some() {
        return Some(format!("{name} belongs above the first [table]"));
    }
    let places: Vec<String> = tables_with(name)
        .iter()
        .map(|table| format!("[{table}]"))
        .collect();
    (!places.is_empty()).then(|| format!("{name} belongs in {}", places.join(" or ")))
}

fn misspelt(in_table: &str, name: &str) -> Option<String> {
    if let Some(key) = nearest(name, names_in(in_table)) {
        return Some(format!("did you mean {key}?"));
    }
    let (key, _) = closest(name, KEYS.into_iter().map(|key| (key, split(key).1)))?;
    Some(match split(key) {
        ("", key) => format!("did you mean {key}, above the first [table]?"),
        (table, key) => format!("did you mean {key} in [{table}]?"),
    })
}

/// The names that a table has; at the top of the file those of the tables, too.
fn names_in(in_table: &str) -> Vec<&'static str> {
    let here = KEYS.into_iter().map(split);
    let mut names: Vec<&str> = here
        .filter(|(table, _)| *table == in_table)
        .map(|(_, name)| name)
        .collect();
    if in_table.is_empty() {
        let tables: BTreeSet<&str> = tables().filter(|table| !names.contains(table)).collect();
        names.extend(tables);
    }
    names
}

/// The one of some words that was probably meant by `name`.
pub(super) fn nearest<'w>(name: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    closest(name, words.into_iter().map(|word| (word, word))).map(|(word, _)| word)
}

/// The thing whose name is closest to `name`, if that is near enough for a slip of the pen: a third
/// of its letters.
fn closest<'w, T>(name: &str, words: impl Iterator<Item = (T, &'w str)>) -> Option<(T, usize)> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let near = |(thing, word): (T, &str)| {
        let distance = strsim::damerau_levenshtein(&name.to_lowercase(), word);
        (distance <= (word.len() / 3).max(1)).then_some((thing, distance))
    };
    words.filter_map(near).min_by_key(|(_, distance)| *distance)
}

/// What is said of a table that was written as a key: how it is written, and which keys of other
/// tables have its name.
pub(super) fn as_table(name: &str) -> Option<String> {
    let name = table(name)?;
    let keys = names_in(name).join(", ");
    let others: String = tables_with(name)
        .iter()
        .map(|table| format!("; another {name} belongs in [{table}]"))
        .collect();
    Some(format!(
        "it is a table: write [{name}], and below it {keys}{others}"
    ))
}

/// The tables that have a key of this name.
fn tables_with(name: &str) -> BTreeSet<&'static str> {
    tables()
        .filter(|table| key_of(table, name).is_some())
        .collect()
}
