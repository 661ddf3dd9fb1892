//! What somebody who wrote an unknown key may have meant.
//!
//! Most are misspelt, or stand in the wrong table (TOML takes all that follows a `[table]` for a
//! part of it), or are what other programs call something.

use crate::keys::{Keys, split};
use std::collections::BTreeSet;

/// Longer names are not compared with others: they are no slip of the pen, and comparing takes as
/// long as both names are long.
const NAME_BYTES_MAX: usize = 40;

/// What may have been meant by the unknown key `name` of a table (empty at the top of the file):
/// how a sentence about it goes on.
pub(crate) fn for_key(keys: &Keys, in_table: &str, name: &str) -> String {
    let name = name.replace('-', "_");
    let elsewhere = (keys.elsewhere)(&name).map(|instead| format!("write {instead}"));
    elsewhere
        .or_else(|| in_another_table(keys, in_table, &name))
        .or_else(|| misspelt(keys, in_table, &name))
        .unwrap_or_else(|| format!("possible here: {}", names_in(keys, in_table).join(", ")))
}

/// A known name that stands where it does not belong.
fn in_another_table(keys: &Keys, in_table: &str, name: &str) -> Option<String> {
    if let Some(key) = keys.of(in_table, name) {
        return Some(format!("write {}, with an underscore", split(key).1));
    }
    if keys.of("", name).is_some() {
        return Some(format!("{name} belongs above the first [table]"));
    }
    let places: Vec<String> = tables_with(keys, name)
        .iter()
        .map(|table| format!("[{table}]"))
        .collect();
    (!places.is_empty()).then(|| format!("{name} belongs in {}", places.join(" or ")))
}

fn misspelt(keys: &Keys, in_table: &str, name: &str) -> Option<String> {
    if let Some(key) = nearest(name, names_in(keys, in_table)) {
        return Some(format!("did you mean {key}?"));
    }
    let (key, _) = closest(name, keys.all.iter().map(|key| (*key, split(key).1)))?;
    Some(match split(key) {
        ("", key) => format!("did you mean {key}, above the first [table]?"),
        (table, key) => format!("did you mean {key} in [{table}]?"),
    })
}

/// The names that a table has; at the top of the file those of the tables, too.
fn names_in(keys: &Keys, in_table: &str) -> Vec<&'static str> {
    let here = keys.with_tables();
    let mut names: Vec<&str> = here
        .filter(|(table, _)| *table == in_table)
        .map(|(_, name)| name)
        .collect();
    if in_table.is_empty() {
        let tables: BTreeSet<&str> = keys
            .tables()
            .filter(|table| !names.contains(table))
            .collect();
        names.extend(tables);
    }
    names
}

/// The one of some words that was probably meant by `name`.
pub(crate) fn nearest<'w>(name: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
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
pub(crate) fn as_table(keys: &Keys, name: &str) -> Option<String> {
    let name = keys.table(name)?;
    let names = names_in(keys, name).join(", ");
    let others: String = tables_with(keys, name)
        .iter()
        .map(|table| format!("; another {name} belongs in [{table}]"))
        .collect();
    Some(format!(
        "it is a table: write [{name}], and below it {names}{others}"
    ))
}

/// The tables that have a key of this name.
fn tables_with(keys: &Keys, name: &str) -> BTreeSet<&'static str> {
    keys.tables()
        .filter(|table| keys.of(table, name).is_some())
        .collect()
}
