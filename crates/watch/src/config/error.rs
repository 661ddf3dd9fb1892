//! What is wrong with the configuration of an agent: where, which key, what, and what is possible.

use super::KEYS;
use driftless_model::{escape, escape_text};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use toml::de::DeValue;

/// How many errors are told of one file.
const TOLD_MAX: usize = 50;
/// Longer names are not compared with others: they are no slip of the pen.
const NAME_BYTES_MAX: usize = 40;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The key with its table; empty where the text is no TOML.
    pub key: String,
    /// What is wrong with it, and what is possible.
    pub what: String,
}

/// All that is wrong with a file: one at least. Shown, each is a line that begins with the file's
/// path, as compilers do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    place: PathBuf,
    told: Vec<ConfigError>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = escape(self.place.as_os_str().as_bytes());
        for (number, error) in self.told.iter().enumerate() {
            let end = if number == 0 { "" } else { "\n" };
            let ConfigError { line, column, .. } = error;
            write!(out, "{end}{place}:{line}:{column}: ")?;
            if !error.key.is_empty() {
                write!(out, "{}: ", escape_text(&error.key))?;
            }
            out.write_str(&escape_text(&error.what))?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// What is wrong so far with a text.
pub(super) struct Errors<'t> {
    text: &'t str,
    told: Vec<ConfigError>,
}

impl<'t> Errors<'t> {
    pub(super) fn of(text: &'t str) -> Errors<'t> {
        Errors {
            text,
            told: Vec::new(),
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.told.is_empty()
    }

    /// Says what is wrong at a byte of the text.
    pub(super) fn tell(&mut self, at: usize, key: &str, what: String) {
        if self.told.len() >= TOLD_MAX {
            return;
        }
        let before = String::from_utf8_lossy(&self.text.as_bytes()[..at.min(self.text.len())]);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        self.told.push(ConfigError {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            key: key.to_owned(),
            what,
        });
    }

    pub(super) fn tell_kind(&mut self, at: usize, key: &str, expected: &str, found: &DeValue<'_>) {
        let what = format!("{expected} is expected, not {}", kind(found));
        self.tell(at, key, what);
    }

    /// A key that there is not.
    pub(super) fn tell_unknown(&mut self, at: usize, key: &str) {
        let shown: String = key.chars().take(NAME_BYTES_MAX).collect();
        self.tell(at, &shown, format!("no such key; {}", meant(key)));
    }

    /// A word that is none of those that can be.
    pub(super) fn tell_choice(&mut self, at: usize, key: &str, word: &str, all: &[&str]) {
        let shown: String = word.chars().take(NAME_BYTES_MAX).collect();
        let near = nearest(word, all.iter().copied());
        let near = near.map(|near| format!("; did you mean \"{near}\"?"));
        let what = format!(
            "\"{shown}\" is none of {}{}",
            all.join(", "),
            near.unwrap_or_default()
        );
        self.tell(at, key, what);
    }

    /// All of it, in the order of the lines.
    pub(super) fn told(mut self, place: &Path) -> ConfigErrors {
        assert!(!self.told.is_empty(), "without an error there are values");
        self.told.sort_by_key(|error| (error.line, error.column));
        ConfigErrors {
            place: place.to_owned(),
            told: self.told,
        }
    }
}

/// The table of a key and its name there.
fn split(key: &str) -> (&str, &str) {
    key.split_once('.').unwrap_or(("", key))
}

/// What may have been meant by a key that there is not.
fn meant(key: &str) -> String {
    let (table, name) = split(key);
    let elsewhere = KEYS
        .into_iter()
        .map(split)
        .find(|(_, other)| *other == name);
    let here = KEYS
        .into_iter()
        .map(split)
        .filter(|(other, _)| *other == table);
    let mut here: Vec<&str> = here.map(|(_, name)| name).collect();
    if table.is_empty() {
        here.push("shim");
    }
    match (elsewhere, nearest(name, here.iter().copied())) {
        (Some(("", name)), _) => format!("{name} belongs above the first [table]"),
        (Some((table, name)), _) => format!("{name} belongs in [{table}]"),
        (None, Some(near)) => format!("did you mean {near}?"),
        (None, None) => format!("possible here: {}", here.join(", ")),
    }
}

/// The one of some words that was probably meant: a third of its letters may be wrong.
fn nearest<'w>(name: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let near = |word: &'w str| {
        let distance = strsim::damerau_levenshtein(&name.to_lowercase(), word);
        (distance <= (word.len() / 3).max(1)).then_some((word, distance))
    };
    let found = words.filter_map(near).min_by_key(|(_, distance)| *distance);
    found.map(|(word, _)| word)
}

/// What a value is.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
