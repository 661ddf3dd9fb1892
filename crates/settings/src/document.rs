//! The text of a file as keys with their values and places: what is not TOML, and what is no key,
//! is told here, so that those who read values see known keys only.

use crate::error::{FileErrors, KeyError, TOLD_MAX};
use crate::forms::kind;
use crate::keys::Keys;
use crate::suggest;
use driftless_model::{escape, escape_text};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The longest file in bytes. Whoever reads one reads no more than that and one byte.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// How the parser says that a key is there twice.
const TWICE: &str = "duplicate key";

/// How much is shown of a name that is not known.
const SHOWN_CHARS_MAX: usize = 40;

/// The keys of a file that are known, and what is wrong so far.
pub struct Document<'t> {
    keys: Keys,
    text: &'t str,
    found: BTreeMap<&'static str, Spanned<DeValue<'t>>>,
    /// Where each table begins, in bytes.
    tables: BTreeMap<&'static str, usize>,
    taken: BTreeSet<&'static str>,
    errors: Vec<KeyError>,
    untold: usize,
}

impl<'t> Document<'t> {
    /// Reads TOML in which the `keys` may stand. The second value says whether the text is TOML; if
    /// not, keys may lack that were written.
    fn parse(text: &'t str, keys: Keys) -> (Document<'t>, bool) {
        let mut document = Document {
            keys,
            text,
            found: BTreeMap::new(),
            tables: BTreeMap::new(),
            taken: BTreeSet::new(),
            errors: Vec::new(),
            untold: 0,
        };
        let (root, errors) = DeTable::parse_recoverable(text);
        // Of a key that stands there twice, one is left: all else can be told of it.
        let is_whole = errors.iter().all(|error| error.message() == TWICE);
        for error in errors {
            let at = error.span().map_or(0, |span| span.start);
            document.tell(at, "", || match error.message() {
                TWICE => {
                    let key = error.span().and_then(|span| text.get(span));
                    format!(
                        "the key {} is there twice: leave one",
                        escape_text(key.unwrap_or_default())
                    )
                }
                message => escape_text(message),
            });
        }
        if is_whole {
            document.enter("", root.into_inner());
        }
        (document, is_whole)
    }

    fn enter(&mut self, in_table: &'static str, entries: DeTable<'t>) {
        for (name, value) in entries {
            let at = name.span().start;
            match (value.get_ref(), self.keys.table(name.get_ref())) {
                (DeValue::Table(_), Some(table)) if in_table.is_empty() => {
                    self.tables.insert(table, at);
                    let DeValue::Table(below) = value.into_inner() else {
                        unreachable!("it was looked at")
                    };
                    self.enter(table, below);
                }
                _ => self.keep(in_table, &name, value),
            }
        }
    }

    fn keep(
        &mut self,
        in_table: &str,
        name: &Spanned<impl AsRef<str>>,
        value: Spanned<DeValue<'t>>,
    ) {
        let (at, name) = (name.span().start, name.get_ref().as_ref());
        if let Some(key) = self.keys.of(in_table, name) {
            self.found.insert(key, value);
            return;
        }
        let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
        let shown = escape(shown.as_bytes());
        let key = match in_table {
            "" => shown,
            table => format!("{table}.{shown}"),
        };
        let table = suggest::as_table(&self.keys, name).filter(|_| in_table.is_empty());
        let keys = self.keys;
        let meant = || format!("no such key; {}", suggest::for_key(&keys, in_table, name));
        self.tell(at, &key, || table.unwrap_or_else(meant));
    }

    /// The value of a key, if it is there and `read` can make something of it; else it is told why.
    pub fn take<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'t>) -> Result<T, String>,
    ) -> Option<T> {
        self.taken.insert(key);
        let value = self.found.get(key)?;
        let at = value.span().start;
        match read(value.get_ref()) {
            Ok(value) => Some(value),
            Err(what) => {
                self.tell(at, key, || what);
                None
            }
        }
    }

    /// The values of a list. What is wrong with one of them is told of its place, and the others
    /// are there.
    pub fn take_list<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&DeValue<'t>) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        self.taken.insert(key);
        let value = self.found.remove(key)?;
        let mut values = Vec::new();
        match value.get_ref() {
            DeValue::Array(elements) => {
                for element in elements {
                    match read(element.get_ref()) {
                        Ok(value) => values.push(value),
                        Err(what) => self.tell(element.span().start, key, || what),
                    }
                }
            }
            other => {
                let what = format!("a list in [ ] is expected, not {}", kind(other));
                self.tell(value.span().start, key, || what);
            }
        }
        self.found.insert(key, value);
        Some(values)
    }

    /// Whether a key is there, right or wrong.
    pub fn has(&self, key: &'static str) -> bool {
        self.found.contains_key(key)
    }

    /// Whether a table is there.
    pub fn has_table(&self, table: &'static str) -> bool {
        self.tables.contains_key(table)
    }

    /// Whether nothing is wrong so far.
    pub fn is_right(&self) -> bool {
        self.errors.is_empty()
    }

    /// Whether nothing is wrong with a key so far.
    pub fn is_right_about(&self, key: &'static str) -> bool {
        self.errors.iter().all(|error| error.key != key)
    }

    /// Says what is wrong with the value of a key, or that the key lacks.
    pub fn wrong(&mut self, key: &'static str, what: impl Into<String>) {
        let table = key.split_once('.').map_or("", |(table, _)| table);
        let at = self.found.get(key).map(|value| value.span().start);
        let at = at.or_else(|| self.tables.get(table).copied());
        self.tell(at.unwrap_or(0), key, || what.into());
    }

    /// Says what is wrong with one element of a list.
    pub fn wrong_element(&mut self, key: &'static str, index: usize, what: String) {
        let value = self.found.get(key).map(Spanned::get_ref);
        let element = value.and_then(|value| value.as_array()?.get(index));
        match element.map(|element| element.span().start) {
            Some(at) => self.tell(at, key, || what),
            None => self.wrong(key, what),
        }
    }

    /// Says what is wrong with a table being there.
    pub fn wrong_table(&mut self, table: &'static str, what: impl Into<String>) {
        let at = self.tables.get(table).copied().unwrap_or(0);
        self.tell(at, table, || what.into());
    }

    fn tell(&mut self, at: usize, key: &str, what: impl FnOnce() -> String) {
        if self.errors.len() >= TOLD_MAX {
            self.untold += 1;
            return;
        }
        let (line, column) = place(self.text, at);
        self.errors.push(KeyError {
            line,
            column,
            key: key.to_owned(),
            what: what(),
        });
    }

    /// Whether all keys that there can be were asked for.
    fn is_all_taken(&self) -> bool {
        let all = self.keys.all;
        all.iter().all(|key| self.taken.contains(key)) && self.taken.len() == all.len()
    }
}

/// Reads the text of the file at `place`: `read` asks for each of the `keys`, and says there what is
/// wrong with the values.
///
/// # Errors
/// The text has more than [`FILE_BYTES_MAX`] bytes, is no TOML, has keys that there are not, or
/// `read` has said that something is wrong; all of that is told at once, but for what a text that
/// is no TOML hides.
pub fn parse<T>(
    text: &str,
    place: &Path,
    keys: Keys,
    read: impl FnOnce(&mut Document) -> T,
) -> Result<T, FileErrors> {
    if text.len() > FILE_BYTES_MAX {
        let (bytes, of_what) = (text.len(), keys.of_what);
        let what = format!("it has {bytes} bytes, and {of_what} at most {FILE_BYTES_MAX}");
        return Err(FileErrors::too_long(place, what));
    }
    let (mut document, is_whole) = Document::parse(text, keys);
    // Behind what is no TOML, what lacks may be there.
    if is_whole {
        let values = read(&mut document);
        debug_assert!(
            document.is_all_taken(),
            "each key has its reader, and each reader its key"
        );
        if document.is_right() {
            return Ok(values);
        }
    }
    Err(FileErrors::new(place, document.errors, document.untold))
}

/// Line and column of a byte of the text, from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = String::from_utf8_lossy(&text.as_bytes()[..at.min(text.len())]);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before[start..]
        .trim_start_matches('\u{feff}')
        .chars()
        .count()
        + 1;
    (line, column)
}
