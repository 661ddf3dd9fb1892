//! Paths that any program lists: one a line, each ended by a zero byte, or JSON.
//!
//! ```text
//! {"path": "a/b", "scope": "subtree", "moved_from": "c"}
//! {"path_base64": "YS9i/w=="}
//! ```
//!
//! A path is told from the root of the source, or absolute and below it. In JSON, `scope` is
//! `entry`, which it is if it is left away, or `subtree`; a path that is no text is told in base64
//! (RFC 4648, with padding): `path_base64`, `moved_from_base64`. Other keys are errors: who misspells
//! one would miss changes.

mod folder;
mod pipe;

pub use folder::Folder;
pub use pipe::Pipe;

use crate::base::Base;
use crate::detector::{Deaf, Detector};
use crate::lines::{LineFault, Lines};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use driftless_model::{Change, Hint, RelPath, Scope, escape, escape_text};
use rustix::fs::{FileType, stat};
use rustix::io::Errno;
use serde::Deserialize;
use std::io::BufRead;
use std::path::Path;

/// Where lists come from: a directory of them, or a named pipe, which is made if nothing is there.
/// Absolute paths are told from `root`, where the source is.
///
/// # Errors
/// It is neither, or cannot be opened.
pub fn open(path: &Path, format: Format, root: Base) -> Result<Box<dyn Detector>, Deaf> {
    let meta = stat(path);
    if meta.is_ok_and(|meta| FileType::from_raw_mode(meta.st_mode).is_dir()) {
        Ok(Box::new(Folder::open(path, format, root)?))
    } else {
        Ok(Box::new(Pipe::open(path, format, root)?))
    }
}

/// Looks whether lists could come from there; makes and opens nothing.
///
/// # Errors
/// It is neither a directory nor a named pipe, and none can be made there.
pub fn check(path: &Path) -> Result<(), Deaf> {
    let kind = |path: &Path| stat(path).map(|meta| FileType::from_raw_mode(meta.st_mode));
    match kind(path) {
        Ok(FileType::Directory | FileType::Fifo) => Ok(()),
        Ok(_) => Err(pipe::neither(path)),
        Err(Errno::NOENT) => match path.parent().map(kind) {
            Some(Err(errno)) if path.is_absolute() => {
                Err(Deaf::of(&pipe::shown(path), "make a named pipe", errno))
            }
            _ => Ok(()),
        },
        Err(errno) => Err(Deaf::of(&pipe::shown(path), "look at it", errno)),
    }
}

/// The UTF-8 byte order mark (RFC 3629, section 6).
const MARK: &[u8] = b"\xef\xbb\xbf";

/// How paths are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One a line, as bytes; names with line ends cannot be told so. All have this scope.
    Lines(Scope),
    /// Each ended by a zero byte, as `find -print0` does. All have this scope.
    Zero(Scope),
    /// An object a line.
    Json,
}

impl Format {
    /// What ends a line.
    fn end(self) -> u8 {
        match self {
            Format::Zero(_) => 0,
            Format::Lines(_) | Format::Json => b'\n',
        }
    }
}

/// A line that cannot be used. What it would say is not known; the others stand.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the list: {fault}")]
pub struct BadLine {
    /// Its number; the first is 1.
    pub line: u64,
    /// What is wrong with it.
    pub fault: PathFault,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum PathFault {
    /// There is no line.
    #[error(transparent)]
    Line(#[from] LineFault),
    /// A path that leads elsewhere, or none.
    #[error("\"{}\" is not a path below the source", escape(.0))]
    Path(Vec<u8>),
    /// It is not JSON, or not of the keys that there are.
    #[error("{}", escape_text(.0))]
    Json(String),
    /// It is not base64.
    #[error("\"{}\" is not base64", escape(.0.as_bytes()))]
    Base64(String),
    /// It has no path, or two.
    #[error("one of \"{0}\" and \"{0}_base64\" is required")]
    OneOf(&'static str),
}

/// Reads a list; a line that is bad does not stop the others. Empty lines are passed over.
#[derive(Debug)]
pub struct List<R> {
    lines: Lines<R>,
    format: Format,
    root: Base,
    /// The other name that the line before may mean.
    other: Option<Change>,
}

impl<R: BufRead> List<R> {
    /// Absolute paths are told from `root`, where the source is.
    pub fn new(reader: R, format: Format, root: Base) -> Self {
        List {
            lines: Lines::new(reader, format.end()),
            format,
            root,
            other: None,
        }
    }

    /// Returns the change at the name without the carriage return that ends a line. Programs of other
    /// systems write one, and a name may have one, so both names are looked at.
    fn without_return(&self, line: &[u8]) -> Option<Change> {
        let name = match self.format {
            Format::Lines(_) => line.strip_suffix(b"\r")?,
            Format::Zero(_) | Format::Json => return None,
        };
        change(name, self.format, &self.root).ok()
    }
}

impl<R: BufRead> Iterator for List<R> {
    type Item = Result<Change, BadLine>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(change) = self.other.take() {
            return Some(Ok(change));
        }
        let read = loop {
            match self.lines.next()? {
                Ok(line) if line.bytes.is_empty() => (),
                Ok(line) => {
                    let mark = if line.number == 1 { MARK } else { b"" };
                    let bytes = line.bytes.strip_prefix(mark).unwrap_or(&line.bytes);
                    self.other = self.without_return(bytes);
                    break change(bytes, self.format, &self.root);
                }
                Err(fault) => break Err(PathFault::Line(fault)),
            }
        };
        let line = self.lines.number();
        Some(read.map_err(|fault| BadLine { line, fault }))
    }
}

/// Reads a line.
fn change(line: &[u8], format: Format, root: &Base) -> Result<Change, PathFault> {
    match format {
        Format::Json => json(line, root),
        Format::Lines(scope) | Format::Zero(scope) => Ok(Change {
            path: below(line, root)?,
            scope,
            hint: None,
        }),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    path: Option<String>,
    path_base64: Option<String>,
    #[serde(default)]
    scope: Reach,
    moved_from: Option<String>,
    moved_from_base64: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Reach {
    #[default]
    Entry,
    Subtree,
}

fn json(line: &[u8], root: &Base) -> Result<Change, PathFault> {
    let object: Object =
        serde_json::from_slice(line).map_err(|error| PathFault::Json(error.to_string()))?;
    let path = one_of("path", object.path, object.path_base64)?;
    let path = below(&path.ok_or(PathFault::OneOf("path"))?, root)?;
    let from = one_of("moved_from", object.moved_from, object.moved_from_base64)?;
    let from = from.map(|from| below(&from, root)).transpose()?;
    Ok(Change {
        path,
        scope: match object.scope {
            Reach::Entry => Scope::Entry,
            Reach::Subtree => Scope::Subtree,
        },
        hint: from.map(Hint::MovedFrom),
    })
}

fn one_of(
    key: &'static str,
    text: Option<String>,
    base64: Option<String>,
) -> Result<Option<Vec<u8>>, PathFault> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(PathFault::OneOf(key)),
        (text, None) => Ok(text.map(String::into_bytes)),
        (None, Some(base64)) => {
            let bytes = STANDARD.decode(&base64);
            bytes.map(Some).map_err(|_| PathFault::Base64(base64))
        }
    }
}

fn below(path: &[u8], root: &Base) -> Result<RelPath, PathFault> {
    let found = match path.first() {
        Some(b'/') => root.below(path),
        Some(_) => RelPath::parse(path).ok(),
        // A variable that a script forgot to set, not the root.
        None => None,
    };
    found.ok_or_else(|| PathFault::Path(path.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], format: Format) -> Vec<String> {
        let told = |line: Result<Change, BadLine>| match line {
            Ok(change) => format!("{} {:?} {:?}", change.path, change.scope, change.hint),
            Err(bad) => bad.to_string(),
        };
        List::new(text, format, Base::new(b"/data/"))
            .map(told)
            .collect()
    }

    #[test]
    fn lines_are_paths_from_the_root_or_below_it() {
        let text = b"a/b\n\n/data/c \xff\n/data\n.\n./d//e/\n../x\n/etc\nf\0g\nlast";
        let found = read(text, Format::Lines(Scope::Subtree));
        let expected = [
            "a/b Subtree None",
            "c \\xff Subtree None",
            ". Subtree None",
            ". Subtree None",
            "d/e Subtree None",
            "line 7 of the list: \"../x\" is no path below the source",
            "line 8 of the list: \"/etc\" is no path below the source",
            "line 9 of the list: \"f\\x00g\" is no path below the source",
            "last Subtree None",
        ];
        assert_eq!(found, expected);
        assert_eq!(
            read(b"a\nb\0\0/data/c\0", Format::Zero(Scope::Entry)),
            ["a\\nb Entry None", "c Entry None"]
        );
    }

    #[test]
    fn lists_of_other_systems_name_both_readings() {
        let text = b"\xef\xbb\xbfa\r\nb\n\r\n";
        let found = read(text, Format::Lines(Scope::Entry));
        let expected = [
            "a\\r Entry None",
            "a Entry None",
            "b Entry None",
            "\\r Entry None",
        ];
        assert_eq!(found, expected);
        let found = read(b"\xef\xbb\xbfa\r\0", Format::Zero(Scope::Entry));
        assert_eq!(found, ["a\\r Entry None"]);
    }

    #[test]
    fn json_has_scopes_origins_and_names_that_are_no_text() {
        let cases = [
            (r#"{"path": "a"}"#, "a Entry None"),
            (
                r#"{"path": "/data/a", "scope": "subtree"}"#,
                "a Subtree None",
            ),
            (
                r#"{"path": "", "scope": "subtree"}"#,
                "line 1 of the list: \"\" is no path below the source",
            ),
            (r#"{"path": ".", "scope": "subtree"}"#, ". Subtree None"),
            (
                r#"{"path": "a", "moved_from": "b\n"}"#,
                r#"a Entry Some(MovedFrom("b\n"))"#,
            ),
            (
                r#"{"path_base64": "YS9i/w==", "moved_from_base64": "Yw=="}"#,
                r#"a/b\xff Entry Some(MovedFrom("c"))"#,
            ),
            (
                r#"{"path_base64": "YS9i/w"}"#,
                "line 1 of the list: \"YS9i/w\" is not base64",
            ),
            (
                r#"{"path": "a", "path_base64": "YQ=="}"#,
                "line 1 of the list: it needs one of \"path\" and \"path_base64\"",
            ),
            (
                r#"{}"#,
                "line 1 of the list: it needs one of \"path\" and \"path_base64\"",
            ),
            (
                r#"{"path": "a", "moved_from": "b", "moved_from_base64": "Yg=="}"#,
                "line 1 of the list: it needs one of \"moved_from\"",
            ),
            (
                r#"{"path": "../a"}"#,
                "line 1 of the list: \"../a\" is no path below the source",
            ),
            (
                r#"{"path": "a", "scpoe": "subtree"}"#,
                "line 1 of the list: unknown field `scpoe`",
            ),
            (
                r#"{"path": "a", "scope": "all"}"#,
                "line 1 of the list: unknown variant `all`",
            ),
            (r#"{"path": 5}"#, "line 1 of the list: invalid type"),
            ("a", "line 1 of the list: expected value"),
        ];
        for (line, expected) in cases {
            let found = read(line.as_bytes(), Format::Json);
            assert!(
                found.len() == 1 && found[0].starts_with(expected),
                "{line}: {found:?}"
            );
        }
    }

    #[test]
    fn a_bad_line_does_not_stop_the_others() {
        let deep = "[".repeat(100_000);
        let text = format!("{{\"path\": \"a\"}}\n{deep}\n\n{{\"path\": \"b\"}}");
        let found = read(text.as_bytes(), Format::Json);
        assert_eq!(
            (found.len(), found[0].as_str(), found[2].as_str()),
            (3, "a Entry None", "b Entry None")
        );
        assert!(found[1].starts_with("line 2 of the list: "), "{}", found[1]);
    }

    #[test]
    fn no_list_makes_it_panic() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let words = [
            "{\"path\":",
            "\"a\"",
            "}",
            "\n",
            "/data",
            "/",
            "..",
            "\"moved_from_base64\":\"Yg==\"",
            ",",
            "\0",
            "\u{202e}",
        ];
        for _ in 0..30_000 {
            let mut text: Vec<u8> = Vec::new();
            for _ in 0..rng.usize(..12) {
                text.extend(words[rng.usize(..words.len())].as_bytes());
            }
            if rng.bool() && !text.is_empty() {
                let at = rng.usize(..text.len());
                text[at] = rng.u8(..);
            }
            for format in [
                Format::Lines(Scope::Entry),
                Format::Zero(Scope::Entry),
                Format::Json,
            ] {
                let lines = read(&text, format);
                assert!(
                    lines.iter().all(|line| !line.contains(['\0', '\u{202e}'])),
                    "seed {seed}: {lines:?}"
                );
            }
        }
    }
}
