//! Errors of a task file: an offset while the parser runs, line and column for the caller.

use winnow::error::ParserError;
use winnow::stream::{Location, Stream};

/// Characters of the file that an error quotes.
const QUOTED_CHARS: usize = 40;
/// Mark of UTF-8 that some editors put at the start of a file. It takes no column.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Error of a task file: position, cause and remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {wrong}: {instead}")]
pub struct TaskFileError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1. An invalid UTF-8 sequence counts as one character.
    pub column: usize,
    /// Cause, such as `unknown statement "TRANFSER"`.
    pub wrong: String,
    /// Remedy, such as `write TRANSFER PATH;`.
    pub instead: String,
}

/// Result of a part of the grammar.
pub(crate) type Parsed<T> = Result<T, ParseFailure>;

/// Failure of a part of the grammar.
#[derive(Debug)]
pub(crate) enum ParseFailure {
    /// The text at this offset is something else: the parser tries the next alternative.
    Mismatch(usize),
    /// The text is wrong: the parser stops.
    Wrong(Box<Defect>),
}

/// First defect of a file, before its offset becomes line and column.
#[derive(Debug)]
pub(crate) struct Defect {
    pub at: usize,
    pub wrong: String,
    pub instead: String,
}

impl<I: Stream + Location> ParserError<I> for ParseFailure {
    type Inner = ParseFailure;

    fn from_input(input: &I) -> ParseFailure {
        ParseFailure::Mismatch(input.current_token_start())
    }

    fn is_backtrack(&self) -> bool {
        matches!(self, ParseFailure::Mismatch(_))
    }

    fn into_inner(self) -> Result<ParseFailure, ParseFailure> {
        Ok(self)
    }
}

impl ParseFailure {
    /// Turns the offset into line and column of the text.
    pub fn into_error(self, text: &[u8]) -> TaskFileError {
        let defect = match self {
            ParseFailure::Wrong(defect) => *defect,
            ParseFailure::Mismatch(at) => Defect {
                at,
                wrong: unexpected(text.get(at..).unwrap_or_default()),
                instead: "remove it".to_owned(),
            },
        };
        let (line, column) = place(text, defect.at);
        TaskFileError {
            line,
            column,
            wrong: defect.wrong,
            instead: defect.instead,
        }
    }
}

/// Returns the failure for a defect at an offset.
pub(crate) fn wrong<T>(
    at: usize,
    wrong: impl Into<String>,
    instead: impl Into<String>,
) -> Parsed<T> {
    Err(ParseFailure::Wrong(Box::new(Defect {
        at,
        wrong: wrong.into(),
        instead: instead.into(),
    })))
}

/// Quotes the first characters of a text on one line. Control characters are escaped, and invalid
/// UTF-8 becomes the replacement character.
pub(crate) fn shown(text: &[u8]) -> String {
    // A character has at most four bytes.
    let start = &text[..text.len().min(4 * (QUOTED_CHARS + 1))];
    let start = String::from_utf8_lossy(start);
    let mut chars = start.chars();
    let quoted: String = chars.by_ref().take(QUOTED_CHARS).collect();
    let end = if chars.next().is_some() { "..." } else { "" };
    format!("{quoted:?}{end}")
}

/// Describes text that starts with an unexpected character.
pub(crate) fn unexpected(text: &[u8]) -> String {
    // A character has at most four bytes.
    let start = String::from_utf8_lossy(&text[..text.len().min(4)]);
    match start.chars().next() {
        None => "unexpected end of the file".to_owned(),
        Some('"') => "unexpected quote".to_owned(),
        Some(found) => format!("unexpected {:?}", found.to_string()),
    }
}

/// Returns the line of an offset, from 1.
pub(crate) fn line_of(text: &[u8], at: usize) -> usize {
    place(text, at).0
}

/// Returns line and column of an offset, from 1.
fn place(text: &[u8], at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let start = before.iter().rposition(|byte| *byte == b'\n');
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let here = &before[start.map_or(0, |newline| newline + 1)..];
    let here = match start {
        None => here.strip_prefix(BYTE_ORDER_MARK).unwrap_or(here),
        Some(_) => here,
    };
    (line, String::from_utf8_lossy(here).chars().count() + 1)
}
