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
    /// Matches directories only: those before a `/***` at the end.
    dir_regex: Option<Regex>,
    /// Whether it is compared with the whole path, and not with the last name.
    pub whole_path: bool,
    /// Whether it stands for directories only.
    pub only_dirs: bool,
    /// Whether it has a slash inside, and neither a slash nor `**/` at its start: rsync matches such
    /// a pattern at any depth, gitignore(5) at the root only.
    pub is_floating: bool,
}

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(char),
    /// One character but a slash.
    Any,
    /// Any number of characters but slashes.
    Star,
    /// All of a name: any number of names.
    StarStar,
    /// All of the last name: the directory before it, and everything below (rsync(1)).
    StarStarStar,
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
        refuse_foreign_prefix(pattern)?;
        let alternatives = Reader {
            chars: body.chars().peekable(),
        }
        .all()?;
        let whole_path = anchored
            || alternatives
                .iter()
                .any(|tokens| tokens.contains(&Token::Slash));
        for tokens in &alternatives {
            check_names(tokens)?;
        }
        let slices = alternatives.iter().map(Vec::as_slice);
        let before_stars: Vec<&[Token]> = slices.filter_map(directory_of).collect();
        let starts_anywhere =
            |tokens: &Vec<Token>| tokens.starts_with(&[Token::StarStar, Token::Slash]);
        Ok(Pattern {
            regex: regex_of(alternatives.iter().map(Vec::as_slice))?,
            dir_regex: if before_stars.is_empty() {
                None
            } else {
                Some(regex_of(before_stars.into_iter())?)
            },
            whole_path,
            only_dirs,
            is_floating: whole_path && !anchored && !alternatives.iter().all(starts_anywhere),
        })
    }

    /// Whether it matches `path`, as [`text`] makes it.
    pub fn matches(&self, path: &str, is_dir: bool) -> bool {
        let last = || path.rsplit('/').next().unwrap_or(path);
        let compared = if self.whole_path { path } else { last() };
        let is_before_stars = || {
            let regex = self.dir_regex.as_ref();
            regex.is_some_and(|regex| regex.is_match(compared))
        };
        (is_dir || !self.only_dirs)
            && (self.regex.is_match(compared) || is_dir && is_before_stars())
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
                '*' => self.stars()?,
                '?' => Token::Any,
                '/' => Token::Slash,
                '[' => self.set()?,
                '\\' => match self.chars.next() {
                    Some('/') => Token::Slash,
                    // rsync(1) takes the backslash of a pattern without wildcards for itself.
                    Some(next) if next.is_alphanumeric() => {
                        return Err(format!(
                            "\"\\{next}\" has no meaning: write \"\\\\\" for a backslash, \"/\" between directories"
                        ));
                    }
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

    /// Reads a run of stars; its first is read already.
    fn stars(&mut self) -> Result<Token, String> {
        let mut count = 1;
        while self.chars.next_if_eq(&'*').is_some() {
            count += 1;
        }
        match count {
            1 => Ok(Token::Star),
            2 => Ok(Token::StarStar),
            3 => Ok(Token::StarStarStar),
            _ => Err("more than three stars: write \"**\" for any number of names".into()),
        }
    }

    /// Reads what stands between braces.
    fn braces(&mut self, depth: usize) -> Result<Alternatives, String> {
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} braces within each other"));
        }
        let (mut read, mut is_choice) = (Vec::new(), false);
        loop {
            read.extend(self.sequence(depth)?);
            match self.chars.next() {
                Some(',') => is_choice = true,
                Some(_) if is_choice => return Ok(read),
                Some(_) => {
                    return Err("braces hold a single alternative: write several, such as {a,b} (\"\\{\" is the character; regular expressions are not understood)".into());
                }
                None => return Err("a \"{\" is not closed (\"\\{\" is the character)".into()),
            }
        }
    }

    /// Reads a set; its `[` is read already. A `]` at the start and a `-` at either end stand for
    /// themselves (glob(7)). A backslash is an escape in rsync(1) and gitignore(5), and a character
    /// in glob(7), so it is refused.
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
                '\\' => {
                    return Err("a backslash stands in a set: write \"]\" first, \"-\" last, and a backslash outside as \"\\\\\"".into());
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

/// Refuses a pattern that begins with a sign of rsync's or git's rules. As part of a name it would
/// match nothing.
fn refuse_foreign_prefix(pattern: &str) -> Result<(), String> {
    let (sign, equivalent) = match pattern.split_at_checked(2) {
        Some(("+ ", _)) => ("+", "write --include PATTERN"),
        Some(("- ", _)) => ("-", "write --exclude PATTERN"),
        _ if pattern.starts_with('!') => (
            "!",
            "write --include PATTERN (\"+ PATTERN\" in a file) before the rule that it is an exception of",
        ),
        _ => return Ok(()),
    };
    Err(format!(
        "a pattern has no \"{sign}\" before it: {equivalent} (\"\\{sign}\" is the character)"
    ))
}

/// Builds one regular expression for whole texts that any of these alternatives matches.
fn regex_of<'t>(alternatives: impl Iterator<Item = &'t [Token]>) -> Result<Regex, String> {
    let mut source = String::from(r"(?s)\A(?:");
    for (index, tokens) in alternatives.enumerate() {
        source.push_str(if index > 0 { "|" } else { "" });
        translate(tokens, &mut source);
    }
    source.push_str(r")\z");
    Regex::new(&source).map_err(|_| "the pattern is too long".to_owned())
}

/// Returns the part before a `/***` at the end.
fn directory_of(tokens: &[Token]) -> Option<&[Token]> {
    tokens.strip_suffix(&[Token::Slash, Token::StarStarStar])
}

/// Refuses an alternative that can never match, or whose stars mean different things elsewhere.
fn check_names(tokens: &[Token]) -> Result<(), String> {
    let names: Vec<&[Token]> = tokens.split(|token| *token == Token::Slash).collect();
    for (index, name) in names.iter().enumerate() {
        refuse_impossible(name, names.len())?;
        let is_star = |token: &Token| matches!(token, Token::StarStar | Token::StarStarStar);
        if name.len() > 1 && name.iter().any(is_star) {
            return Err("\"**\" stands alone between slashes: write \"*\" for a part of a name, \"**/\" for directories".into());
        }
        if index + 1 < names.len() && *name == [Token::StarStarStar] {
            return Err(
                "\"***\" stands at the end of a pattern: write \"**/\" for directories".into(),
            );
        }
    }
    Ok(())
}

/// Adds one alternative to a regular expression.
fn translate(tokens: &[Token], source: &mut String) {
    let mut names = tokens.split(|token| *token == Token::Slash).peekable();
    while let Some(name) = names.next() {
        let is_last = names.peek().is_none();
        match (name, is_last) {
            ([Token::StarStar | Token::StarStarStar], true) => source.push_str(".+"),
            ([Token::StarStar], false) => source.push_str("(?:[^/]+/)*"),
            _ => {
                name.iter().for_each(|token| translate_token(token, source));
                source.push_str(if is_last { "" } else { "/" });
            }
        }
    }
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
        Token::Star => source.push_str("[^/]*"),
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
        Token::Slash | Token::StarStar | Token::StarStarStar => {
            unreachable!("slashes part names, and several stars are a name of their own")
        }
    }
}
