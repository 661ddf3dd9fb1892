//! Statements of the sections, from their keyword to their semicolon.

use crate::cleanup::{Cleanup, keep_for};
use crate::draft::{Draft, JobScript};
use crate::error::{Parsed, shown, wrong};
use crate::keywords::{Keyword, Section, WorkloadManager, nearest, system_instead};
use crate::lexer::{TaskValue, TextInput, blanks, offset, value, word};
use crate::parameters::{self, parameters};
use crate::{DataPath, ResultPattern};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use winnow::Parser;
use winnow::combinator::opt;

/// Parses a statement behind its keyword.
pub(crate) fn statement(input: &mut TextInput, keyword: Keyword, draft: &mut Draft) -> Parsed<()> {
    let behind = offset(input);
    match keyword {
        Keyword::System => draft.system = Some(system(input)?),
        Keyword::Options => draft.options = options(input)?,
        Keyword::Transfer => draft.data.push(data_path(input)?),
        Keyword::Do => draft.script = Some(script(input)?),
        Keyword::Collect => draft.results = Some(results(input)?),
        Keyword::PurgeAll => end(input, keyword, behind)?,
        Keyword::Keep => draft.cleanup = keep(input)?,
    }
    Ok(())
}

fn system(input: &mut TextInput) -> Parsed<WorkloadManager> {
    equals(input, Keyword::System)?;
    let name = only_value(input, Keyword::System)?;
    let bytes = name.bytes();
    match WorkloadManager::of(&bytes) {
        Some(system) => Ok(system),
        None => {
            let found = format!("unknown batch system {}", shown(&bytes));
            wrong(name.at, found, system_instead(&bytes))
        }
    }
}

fn options(input: &mut TextInput) -> Parsed<Vec<String>> {
    equals(input, Keyword::Options)?;
    let text = only_value(input, Keyword::Options)?;
    let Ok(options) = String::from_utf8(text.bytes()) else {
        return wrong(text.at, "OPTIONS is not UTF-8", "save the file in UTF-8");
    };
    shell_words::split(&options).or_else(|_| {
        let instead = "close each quote and write an even number of backslashes at the end";
        wrong(
            text.at,
            "unterminated quote of the shell in OPTIONS",
            instead,
        )
    })
}

fn data_path(input: &mut TextInput) -> Parsed<DataPath> {
    let text = only_value(input, Keyword::Transfer)?;
    let is_glob = !text.is_quoted && text.raw.iter().any(|byte| b"*?[".contains(byte));
    Ok(DataPath {
        path: path(&text),
        is_glob,
    })
}

fn script(input: &mut TextInput) -> Parsed<JobScript> {
    let name = required_value(input, Keyword::Do)?;
    let mut behind = name.end();
    let (mut arguments, mut range) = (Vec::new(), None);
    while range.is_none() {
        blanks(input)?;
        range = opt(parameters).parse_next(input)?;
        if range.is_some() {
            behind = offset(input);
        } else if let Some(argument) = next_value(input, behind)? {
            check_misspelt_range(&argument)?;
            behind = argument.end();
            arguments.push(OsString::from_vec(argument.bytes()));
        } else {
            break;
        }
    }
    end(input, Keyword::Do, behind)?;
    Ok(JobScript {
        path: path(&name),
        arguments,
        parameters: range,
    })
}

/// Fails if an argument is likely a range: the `;` within its brackets would end the statement.
fn check_misspelt_range(argument: &TaskValue) -> Parsed<()> {
    let raw = argument.raw;
    let Some(at) = raw.iter().position(|byte| *byte == b'=') else {
        return Ok(());
    };
    let is_range = !argument.is_quoted && raw[at + 1..].starts_with(b"[");
    if is_range && nearest(&raw[..at], [((), "PARMS")]).is_some() {
        let found = format!("unknown word {}", shown(&raw[..=at]));
        return wrong(argument.at, found, parameters::INSTEAD);
    }
    Ok(())
}

fn results(input: &mut TextInput) -> Parsed<ResultPattern> {
    let behind = offset(input);
    blanks(input)?;
    let keyword = Keyword::Collect;
    let mut to = opt(word.verify(|word| word.text.eq_ignore_ascii_case(b"to")));
    if to.parse_next(input)?.is_none() {
        return wrong(behind, "missing TO behind COLLECT", instead(keyword));
    }
    let text = only_value(input, keyword)?;
    ResultPattern::parse(&text.bytes())
        .or_else(|error| wrong(text.offset_of(error.index), error.wrong(), error.instead()))
}

fn keep(input: &mut TextInput) -> Parsed<Cleanup> {
    let behind = offset(input);
    let Some(duration) = next_value(input, behind)? else {
        end(input, Keyword::Keep, behind)?;
        return Ok(Cleanup::Keep);
    };
    let cleanup = keep_for(&duration)?;
    end(input, Keyword::Keep, duration.end())?;
    Ok(cleanup)
}

fn path(text: &TaskValue) -> PathBuf {
    OsString::from_vec(text.bytes()).into()
}

fn instead(keyword: Keyword) -> String {
    format!("write {}", keyword.form())
}

fn equals(input: &mut TextInput, keyword: Keyword) -> Parsed<()> {
    let behind = offset(input);
    blanks(input)?;
    match opt(b'=').parse_next(input)? {
        Some(_) => Ok(()),
        None => {
            let found = format!("missing \"=\" behind {}", keyword.name());
            wrong(behind, found, instead(keyword))
        }
    }
}

/// Parses a value and the semicolon behind it.
fn only_value<'t>(input: &mut TextInput<'t>, keyword: Keyword) -> Parsed<TaskValue<'t>> {
    let value = required_value(input, keyword)?;
    end(input, keyword, value.end())?;
    Ok(value)
}

fn required_value<'t>(input: &mut TextInput<'t>, keyword: Keyword) -> Parsed<TaskValue<'t>> {
    let behind = offset(input);
    let name = keyword.name();
    let Some(value) = next_value(input, behind)? else {
        let found = format!("missing value behind {name}");
        return wrong(behind, found, instead(keyword));
    };
    if !value.is_quoted && value.raw.starts_with(b"=") {
        return wrong(value.at, "unexpected \"=\"", instead(keyword));
    }
    if keyword != Keyword::Options && value.bytes().is_empty() {
        return wrong(value.at, format!("empty value of {name}"), instead(keyword));
    }
    Ok(value)
}

/// Parses a value of a statement that was read up to the offset `behind`. Returns `None` if the
/// statement ends there, or if the next line starts another statement.
fn next_value<'t>(input: &mut TextInput<'t>, behind: usize) -> Parsed<Option<TaskValue<'t>>> {
    let mut ahead = *input;
    blanks(&mut ahead)?;
    let found = opt(value).parse_next(&mut ahead)?;
    let is_next_line = |value: &TaskValue| input.state[behind..value.at].contains(&b'\n');
    match found {
        Some(value) if is_next_line(&value) && is_keyword(&value, ahead)? => Ok(None),
        found => {
            *input = ahead;
            Ok(found)
        }
    }
}

/// Tells whether a value starts a statement, or a section after a missing brace.
fn is_keyword(value: &TaskValue, mut behind: TextInput) -> Parsed<bool> {
    blanks(&mut behind)?;
    let is_section = Section::of(value.raw).is_some() && behind.starts_with(b"{");
    // The raw value of a quoted word has its quotes, and is no keyword.
    Ok(is_section || Keyword::of(value.raw).is_some())
}

const TRANSFER_EACH: &str =
    "write TRANSFER PATH; for each path, and put a path with blanks in double quotes";

/// Parses the semicolon of a statement that was read up to the offset `behind`.
fn end(input: &mut TextInput, keyword: Keyword, behind: usize) -> Parsed<()> {
    blanks(input)?;
    if opt(b';').parse_next(input)?.is_some() {
        return Ok(());
    }
    let name = keyword.name();
    let at = offset(input);
    if !input.state[behind..at].contains(&b'\n')
        && let Some(more) = opt(value).parse_next(input)?
        && Keyword::of(more.raw).is_none()
    {
        let (place, instead) = match keyword {
            Keyword::Transfer => (name, TRANSFER_EACH.to_owned()),
            // Words in front of the range are arguments.
            Keyword::Do => ("the range", "write arguments in front of parms=".to_owned()),
            _ => (name, instead(keyword)),
        };
        let found = format!("unexpected {} behind {place}", shown(&more.bytes()));
        return wrong(at, found, instead);
    }
    wrong(
        behind,
        format!("missing \";\" behind {name}"),
        instead(keyword),
    )
}
