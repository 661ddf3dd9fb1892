//! What is wrong with a file: where, which key, what, and what is possible.

use driftless_model::{escape, escape_text};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How many errors are told of one file; the rest is counted.
pub(crate) const TOLD_MAX: usize = 50;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyError {
    /// The line, from 1. What is missing at the top of the file is told of line 1, what is missing
    /// in a table of the line where that begins.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The key with its table, such as `walk.every`; empty where the text is no TOML.
    pub key: String,
    /// What is wrong with it, and what is possible.
    pub what: String,
}

impl fmt::Display for KeyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: ", self.line, self.column)?;
        if !self.key.is_empty() {
            write!(out, "{}: ", self.key)?;
        }
        out.write_str(&escape_text(&self.what))
    }
}

impl std::error::Error for KeyError {}

/// All that is wrong with a file: one at least. Shown, each is a line that begins with the file's
/// path, as compilers do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileErrors {
    place: PathBuf,
    told: Vec<KeyError>,
    untold: usize,
}

impl FileErrors {
    /// What is wrong with the file at `place`, in the order of its lines.
    pub(crate) fn new(place: &Path, mut told: Vec<KeyError>, untold: usize) -> FileErrors {
        assert!(!told.is_empty(), "without an error there are values");
        told.sort_by_key(|error| (error.line, error.column));
        FileErrors {
            place: place.to_owned(),
            told,
            untold,
        }
    }

    /// A file at `place` that is too long, and is not read.
    pub(crate) fn too_long(place: &Path, what: String) -> FileErrors {
        let error = KeyError {
            line: 1,
            column: 1,
            key: String::new(),
            what,
        };
        FileErrors::new(place, vec![error], 0)
    }

    /// What is wrong, in the order of the lines; of very many, those that were found first.
    pub fn told(&self) -> &[KeyError] {
        &self.told
    }

    /// How many more there are.
    pub fn untold(&self) -> usize {
        self.untold
    }
}

impl fmt::Display for FileErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = escape(self.place.as_os_str().as_bytes());
        for (number, error) in self.told.iter().enumerate() {
            let end = if number == 0 { "" } else { "\n" };
            write!(out, "{end}{place}:{error}")?;
        }
        match self.untold {
            0 => Ok(()),
            more => write!(out, "\n{place}: {more} more errors are not shown"),
        }
    }
}

impl std::error::Error for FileErrors {}
