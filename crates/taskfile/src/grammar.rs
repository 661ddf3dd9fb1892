//! Grammar of a task file: sections of statements.
//!
//! A parser that has read a keyword never backtracks, so that the error names the statement.

use crate::draft::Draft;
use crate::error::{BYTE_ORDER_MARK, Parsed, line_of, shown, unexpected, wrong};
use crate::keywords::{Keyword, Section};
use crate::lexer::{BareWord, TextInput, blanks, offset, word};
use crate::statements::statement;
use crate::{TASK_FILE_BYTES_MAX, TaskFile, TaskFileError};
use winnow::Parser;
use winnow::combinator::opt;
use winnow::stream::{LocatingSlice, Stateful};

/// Section that the parser is in.
#[derive(Clone, Copy)]
struct OpenSection {
    section: Section,
    at: usize,
}

pub(crate) fn parse(text: &[u8]) -> Result<TaskFile, TaskFileError> {
    let found = check_bytes(text).and_then(|()| {
        let mut input = Stateful {
            input: LocatingSlice::new(text),
            state: text,
        };
        sections(&mut input)
    });
    found.map_err(|failure| failure.into_error(text))
}

fn check_bytes(text: &[u8]) -> Parsed<()> {
    if text.len() > TASK_FILE_BYTES_MAX {
        let found = format!("the file exceeds {TASK_FILE_BYTES_MAX} bytes");
        return wrong(0, found, "write TRANSFER for directories or globs");
    }
    match text.iter().position(|byte| *byte == 0) {
        Some(at) => wrong(at, "zero byte", "save the file as text in UTF-8"),
        None => Ok(()),
    }
}

fn sections(input: &mut TextInput) -> Parsed<TaskFile> {
    let mut draft = Draft::new(input.state);
    opt(BYTE_ORDER_MARK).parse_next(input)?;
    blanks(input)?;
    while !input.is_empty() {
        let open = section_start(input, &draft)?;
        draft.enter(open.section, open.at)?;
        statements(input, open, &mut draft)?;
        blanks(input)?;
    }
    draft.finish(offset(input))
}

/// Parses the name of a section and its opening brace.
fn section_start(input: &mut TextInput, draft: &Draft) -> Parsed<OpenSection> {
    let at = offset(input);
    let Some(name) = opt(word).parse_next(input)? else {
        return no_word(input, Section::Data.example());
    };
    blanks(input)?;
    let has_brace = opt(b'{').parse_next(input)?.is_some();
    match Section::of(name.text) {
        Some(section) if has_brace => Ok(OpenSection { section, at }),
        Some(section) => {
            let found = format!("missing \"{{\" behind {}", section.name());
            wrong(name.end(), found, format!("write {}", section.example()))
        }
        None => no_section(&name, has_brace, draft),
    }
}

/// Fails at a word where the name of a section is expected.
fn no_section<T>(name: &BareWord, has_brace: bool, draft: &Draft) -> Parsed<T> {
    let meant = Section::nearest(name.text);
    if let Some(keyword) = Keyword::of(name.text) {
        let found = format!("{} outside a section", keyword.name());
        return wrong(
            name.at,
            found,
            format!("write {}", keyword.section().example()),
        );
    }
    if has_brace || meant.is_some() {
        let instead = match meant {
            Some(section) => format!("write {}", section.example()),
            None => "write WLM, DATA, EXECUTE, RESULTS or CLEANUP".to_owned(),
        };
        return wrong(
            name.at,
            format!("unknown section {}", shown(name.text)),
            instead,
        );
    }
    let place = match draft.last {
        Some(section) => format!("behind section {}", section.name()),
        None => "in front of the first section".to_owned(),
    };
    wrong(
        name.at,
        format!("text {} {place}", shown(name.text)),
        "write \"#\" in front of a comment",
    )
}

/// Parses the statements of a section and its closing brace.
fn statements(input: &mut TextInput, open: OpenSection, draft: &mut Draft) -> Parsed<()> {
    loop {
        blanks(input)?;
        let at = offset(input);
        if opt(b'}').parse_next(input)?.is_some() {
            return draft.leave(open.section, at);
        }
        let keyword = keyword(input, open)?;
        draft.begin(keyword, at)?;
        statement(input, keyword, draft)?;
    }
}

/// Parses the first word of a statement.
fn keyword(input: &mut TextInput, open: OpenSection) -> Parsed<Keyword> {
    let at = offset(input);
    let Some(name) = opt(word).parse_next(input)? else {
        return no_statement(input, open);
    };
    match Keyword::of(name.text) {
        Some(keyword) if keyword.section() == open.section => Ok(keyword),
        Some(keyword) => {
            let found = format!("{} in section {}", keyword.name(), open.section.name());
            wrong(at, found, format!("write {}", keyword.section().example()))
        }
        None if is_section_start(input, name.text)? => {
            let line = line_of(input.state, open.at);
            let inner = name.text.to_ascii_uppercase();
            let (inner, outer) = (String::from_utf8_lossy(&inner), open.section.name());
            let found =
                format!("section {inner} within section {outer}, which begins in line {line}");
            wrong(at, found, "write \"}\" in front of it")
        }
        None => {
            let instead = match Keyword::nearest(name.text, open.section) {
                Some(keyword) if keyword.section() == open.section => keyword.form().to_owned(),
                Some(keyword) => keyword.section().example(),
                None => open.section.forms(),
            };
            let found = format!("unknown statement {}", shown(name.text));
            wrong(at, found, format!("write {instead}"))
        }
    }
}

/// Tells whether a word names a section and a brace follows.
fn is_section_start(input: &TextInput, name: &[u8]) -> Parsed<bool> {
    let mut ahead = *input;
    blanks(&mut ahead)?;
    Ok(Section::of(name).is_some() && ahead.starts_with(b"{"))
}

/// Fails where a section has neither a statement nor its end.
fn no_statement<T>(input: &TextInput, open: OpenSection) -> Parsed<T> {
    let at = offset(input);
    if input.is_empty() {
        let (name, line) = (open.section.name(), line_of(input.state, open.at));
        let found = format!("missing \"}}\" of section {name}, which begins in line {line}");
        return wrong(at, found, "write \"}\" behind the last statement");
    }
    no_word(input, open.section.forms())
}

/// Fails at a sign where a word is expected.
fn no_word<T>(input: &TextInput, instead: String) -> Parsed<T> {
    let at = offset(input);
    match input.first() {
        Some(b';') => wrong(at, "\";\" without a statement", "remove it"),
        Some(b'}') => wrong(at, "\"}\" without \"{\"", "remove it"),
        _ => wrong(at, unexpected(input), format!("write {instead}")),
    }
}
