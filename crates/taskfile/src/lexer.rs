//! Blanks, comments, words and values of a task file.
//!
//! The set of bytes that ends a word depends on the statement (`;` within `parms=[...]`, `=` behind
//! a keyword), so no list of tokens is built: the grammar calls these parsers where it needs them.

use crate::error::{Parsed, line_of, wrong};
use winnow::Parser;
use winnow::combinator::{alt, opt, repeat};
use winnow::stream::{LocatingSlice, Location, Stateful};
use winnow::token::{one_of, take_till, take_while};

const QUOTE_WHOLE: &str = "put the whole value in double quotes";

/// Rest of the file, and as the state the whole file.
pub(crate) type TextInput<'t> = Stateful<LocatingSlice<&'t [u8]>, &'t [u8]>;

/// Word of letters and other bytes, without quotes.
pub(crate) struct BareWord<'t> {
    pub text: &'t [u8],
    pub at: usize,
}

impl BareWord<'_> {
    /// Returns the offset behind the word.
    pub fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// Value of a statement, as the file has it.
pub(crate) struct TaskValue<'t> {
    /// Bytes of the file, with the quotes.
    pub raw: &'t [u8],
    pub at: usize,
    pub is_quoted: bool,
}

impl TaskValue<'_> {
    /// Returns the offset behind the value.
    pub fn end(&self) -> usize {
        self.at + self.raw.len()
    }

    /// Returns the bytes that the value stands for, each with its offset in the file.
    fn decoded(&self) -> impl Iterator<Item = (usize, u8)> {
        let quotes = usize::from(self.is_quoted);
        let inner = &self.raw[quotes..self.raw.len() - quotes];
        let is_quoted = self.is_quoted;
        let mut is_escaped = false;
        let places = (self.at + quotes..).zip(inner.iter().copied());
        places.filter(move |(_, byte)| {
            let is_escape = is_quoted && *byte == b'\\' && !is_escaped;
            is_escaped = is_escape;
            !is_escape
        })
    }

    /// Returns the bytes that the value stands for.
    pub fn bytes(&self) -> Vec<u8> {
        self.decoded().map(|(_, byte)| byte).collect()
    }

    /// Returns the offset in the file of the byte at `index` of the bytes that the value stands for.
    pub fn offset_of(&self, index: usize) -> usize {
        let found = self.decoded().nth(index);
        found.map_or_else(|| self.end(), |(at, _)| at)
    }
}

pub(crate) fn offset(input: &TextInput) -> usize {
    input.current_token_start()
}

pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c')
}

/// Tells whether a byte may stand in a value without quotes.
pub(crate) fn is_of_value(byte: u8) -> bool {
    !is_blank(byte) && !b";{}".contains(&byte)
}

fn is_of_word(byte: u8) -> bool {
    is_of_value(byte) && !b"=\"".contains(&byte)
}

/// Skips blanks and comments.
pub(crate) fn blanks(input: &mut TextInput) -> Parsed<()> {
    let blank = take_while(1.., is_blank).void();
    let comment = (b'#', take_till(0.., b'\n')).void();
    repeat::<_, _, (), _, _>(0.., alt((blank, comment))).parse_next(input)
}

/// Parses a keyword or the name of a section.
pub(crate) fn word<'t>(input: &mut TextInput<'t>) -> Parsed<BareWord<'t>> {
    let at = offset(input);
    let text = take_while(1.., is_of_word).parse_next(input)?;
    Ok(BareWord { text, at })
}

/// Parses a value, with or without quotes.
pub(crate) fn value<'t>(input: &mut TextInput<'t>) -> Parsed<TaskValue<'t>> {
    alt((quoted_value, bare_value)).parse_next(input)
}

fn bare_value<'t>(input: &mut TextInput<'t>) -> Parsed<TaskValue<'t>> {
    let at = offset(input);
    let raw = take_while(1.., is_of_value).parse_next(input)?;
    if let Some(quote) = raw.iter().position(|byte| *byte == b'"') {
        let instead = format!("{QUOTE_WHOLE}, and write \\\" for a quote in it");
        return wrong(at + quote, "quote within a word", instead);
    }
    let end = at + raw.len();
    if input.state.get(end) == Some(&b'{') {
        return wrong(end, "\"{\" within a word", QUOTE_WHOLE);
    }
    Ok(TaskValue {
        raw,
        at,
        is_quoted: false,
    })
}

fn quoted_value<'t>(input: &mut TextInput<'t>) -> Parsed<TaskValue<'t>> {
    let at = offset(input);
    let text = input.state;
    let plain = take_till(1.., b"\"\\").void();
    let escape = (b'\\', one_of(b"\"\\")).void();
    let inner = repeat::<_, _, (), _, _>(0.., alt((plain, escape)));
    (b'"', inner).void().parse_next(input)?;
    let end = offset(input);
    if opt(b'"').parse_next(input)?.is_none() {
        // The inner text ends at a backslash, or at the end of the file.
        return if text.get(end + 1).is_some() {
            let instead = r#"write \\ for a backslash, and \" for a quote"#;
            wrong(end, r#"backslash without \ or " behind it"#, instead)
        } else {
            wrong(at, "unterminated quote", "write a quote behind the value")
        };
    }
    let raw = &text[at..=end];
    if text.get(end + 1).is_some_and(|byte| is_of_value(*byte)) {
        return wrong(end + 1, text_behind_quote(text, at, end), QUOTE_WHOLE);
    }
    Ok(TaskValue {
        raw,
        at,
        is_quoted: true,
    })
}

/// Describes text behind a closing quote. A quote that was opened in an earlier line is likely the
/// mistake.
fn text_behind_quote(text: &[u8], at: usize, end: usize) -> String {
    let (first, last) = (line_of(text, at), line_of(text, end));
    if first == last {
        return "text behind a closing quote".to_owned();
    }
    format!("text behind a closing quote, whose opening quote is in line {first}")
}
