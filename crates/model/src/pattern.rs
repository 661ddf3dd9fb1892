//! What a glob pattern means: text is matched as text.
//!
//! A pattern is read into flat alternatives (braces are multiplied out), each a sequence of names;
//! what can never match is refused there. The alternatives become one regular expression, whose
//! time grows with the length of a name alone. A name is matched character by character where it is
//! UTF-8; each byte that is none counts as a character of its own.

use regex::Regex;
use std::borrow::Cow;
use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// Alternatives that the braces of one pattern may amount to.
const ALTERNATIVES_MAX: usize = 1000;
/// Braces within braces.
const DEPTH_MAX: usize = 16;
/// Characters of private use (Unicode, plane 16) that stand for bytes that are no UTF-8.
const STRAY_BYTES: u32 = 0x10_ff00;

/// A pattern that was understood.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    regex: Regex,
    /// Whether it is compared with the whole path, and not with the last name.
    pub whole_path: bool,
    /// Whether it stands for directories only.
    pub only_dirs: bool,
}

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(char),
    /// One character but a slash.
    Any,
    /// Any number of characters but slashes.
    Star,
    /// The same, and more where it is all of a name: any number of names.
    StarStar,
    /// One character of a set; a slash is in no set.
    Set {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    Slash,
}

impl Pattern {
    /// Reads a pattern; an error says what is wrong with it.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let only_dirs = pattern.len() > 1 && pattern.ends_with('/');
        let body = if only_dirs {
            &pattern[..pattern.len() - 1]
        } else {
            pattern
        };
        let (anchored, body) = body
            .strip_prefix('/')
            .map_or((false, body), |rest| (true, rest));
        if body.is_empty() {
            return Err("the pattern is empty".into());
        }
        let alternatives = Reader {
            chars: body.chars().peekable(),
        }
        .all()?;
        let whole_path = anchored
            || alternatives
                .iter()
                .any(|tokens| tokens.contains(&Token::Slash));
        let mut source = String::from(r"(?s)\A(?:");
        for (index, tokens) in alternatives.iter().enumerate() {
            source.push_str(if index > 0 { "|" } else { "" });
            translate(tokens, &mut source)?;
        }
        source.push_str(r")\z");
        let regex = Regex::new(&source).map_err(|_| "the pattern is too long".to_owned())?;
        Ok(Pattern {
            regex,
            whole_path,
            only_dirs,
        })
    }

    /// Whether it matches `path`, as [`text`] makes it.
    pub fn matches(&self, path: &str, is_dir: bool) -> bool {
        let last = || path.rsplit('/').next().unwrap_or(path);
        (is_dir || !self.only_dirs)
            && self
                .regex
                .is_match(if self.whole_path { path } else { last() })
    }
}

/// A path as the characters that patterns are matched with.
pub(crate) fn text(path: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(path) {
        return text.into();
    }
    let mut text = String::with_capacity(path.len() * 2);
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(
            chunk
                .invalid()
                .iter()
                .filter_map(|byte| char::from_u32(STRAY_BYTES + u32::from(*byte))),
        );
    }
    text.into()
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
}

type Alternatives = Vec<Vec<Token>>;

impl Reader<'_> {
    fn all(mut self) -> Result<Alternatives, String> {
        let alternatives = self.sequence(0)?;
        match self.chars.next() {
            None => Ok(alternatives),
            Some(_) => Err("\"}\" closes nothing (\"\\}\" is the character)".into()),
        }
    }

    /// Reads up to the end of the pattern, or of the alternative within braces.
    fn sequence(&mut self, depth: usize) -> Result<Alternatives, String> {
        let mut read: Alternatives = vec![Vec::new()];
        while let Some(c) = self
            .chars
            .next_if(|c| *c != '}' && (depth == 0 || *c != ','))
        {
            let token = match c {
                '{' => {
                    read = product(&read, &self.braces(depth + 1)?)?;
                    continue;
                }
                '*' if self.chars.next_if_eq(&'*').is_some() => Token::StarStar,
                '*' => Token::Star,
                '?' => Token::Any,
                '/' => Token::Slash,
                '[' => self.set()?,
                '\\' => match self.chars.next() {
                    Some('/') => Token::Slash,
                    Some(next) => Token::Literal(next),
                    None => return Err("nothing follows the \"\\\" at the end".into()),
                },
                c => Token::Literal(c),
            };
            read.iter_mut()
                .for_each(|tokens| tokens.push(token.clone()));
        }
        Ok(read)
    }

    /// Reads what stands between braces.
    fn braces(&mut self, depth: usize) -> Result<Alternatives, String> {
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} braces within each other"));
        }
        let mut read = Vec::new();
        loop {
            read.extend(self.sequence(depth)?);
            match self.chars.next() {
                Some(',') => {}
                Some(_) => return Ok(read),
                None => return Err("a \"{\" is not closed (\"\\{\" is the character)".into()),
            }
        }
    }

    /// Reads a set; its `[` is read already. A `]` at the start, a `-` at either end and a `\`
    /// stand for themselves (glob(7)).
    fn set(&mut self) -> Result<Token, String> {
        let unclosed = || "a \"[\" is not closed (\"\\[\" is the character)".to_owned();
        let negated = self.chars.next_if(|c| matches!(c, '!' | '^')).is_some();
        let mut ranges = Vec::new();
        loop {
            let first = match self.chars.next().ok_or_else(unclosed)? {
                ']' if !ranges.is_empty() => break,
                '[' if matches!(self.chars.peek(), Some(':' | '.' | '=')) => {
                    return Err("classes such as [:digit:] are not understood: name the characters, such as [0-9]".into());
                }
                c => c,
            };
            ranges.push((first, self.range_end(first)?));
        }
        if !negated && ranges.iter().all(|range| *range == ('/', '/')) {
            return Err("a set never matches a slash".into());
        }
        Ok(Token::Set { negated, ranges })
    }

    /// The last character of the range in a set that begins with `first`: `first` itself where no
    /// range follows.
    fn range_end(&mut self, first: char) -> Result<char, String> {
        let mut ahead = self.chars.clone();
        if ahead.next() != Some('-') || matches!(ahead.peek(), None | Some(']')) {
            return Ok(first);
        }
        let last = ahead.next().unwrap_or(first);
        self.chars = ahead;
        if last < first {
            Err(format!("the range \"{first}-{last}\" is empty"))
        } else {
            Ok(last)
        }
    }
}

/// Each of `before`, followed by each of `after`.
fn product(before: &Alternatives, after: &Alternatives) -> Result<Alternatives, String> {
    if before.len() * after.len() > ALTERNATIVES_MAX {
        return Err(format!(
            "the braces amount to more than {ALTERNATIVES_MAX} alternatives"
        ));
    }
    Ok(before
        .iter()
        .flat_map(|head| after.iter().map(move |tail| [&head[..], tail].concat()))
        .collect())
}

/// Adds one alternative to a regular expression.
fn translate(tokens: &[Token], source: &mut String) -> Result<(), String> {
    let names: Vec<&[Token]> = tokens.split(|token| *token == Token::Slash).collect();
    for (index, name) in names.iter().enumerate() {
        refuse_impossible(name, names.len())?;
        let is_last = index + 1 == names.len();
        match (*name == [Token::StarStar], is_last) {
            (true, true) => source.push_str(".+"),
            (true, false) => source.push_str("(?:[^/]+/)*"),
            (false, _) => {
                name.iter().for_each(|token| translate_token(token, source));
                source.push_str(if is_last { "" } else { "/" });
            }
        }
    }
    Ok(())
}

/// A rule that can never match protects nothing: the user means something else.
fn refuse_impossible(name: &[Token], names: usize) -> Result<(), String> {
    let dots = name
        .iter()
        .all(|token| *token == Token::Literal('.'))
        .then_some(name.len());
    match dots {
        Some(0) if names == 1 => Err("an alternative is empty".into()),
        Some(0) => Err("a name between, before or behind slashes is empty: it can never match".into()),
        Some(1) => Err("no path has a name \".\": it can never match (a slash at the start stands for the root)".into()),
        Some(2) => Err("no path has a name \"..\": it can never match".into()),
        _ if name.contains(&Token::Literal('\0')) => Err("no name holds a NUL: it can never match".into()),
        _ => Ok(()),
    }
}

fn translate_token(token: &Token, source: &mut String) {
    match token {
        Token::Literal(c) => source.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        Token::Any => source.push_str("[^/]"),
        Token::Star | Token::StarStar => source.push_str("[^/]*"),
        Token::Set { negated, ranges } => {
            source.push_str(if *negated { "[[^" } else { "[[" });
            for (first, last) in ranges {
                write!(
                    source,
                    r"\x{{{:x}}}-\x{{{:x}}}",
                    u32::from(*first),
                    u32::from(*last)
                )
                .expect("a string takes all");
            }
            source.push_str("]&&[^/]]");
        }
        Token::Slash => unreachable!("names are what stands between slashes"),
    }
}
