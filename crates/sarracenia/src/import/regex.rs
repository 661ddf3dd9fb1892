//! Rules of a job from the regular expressions of `accept` and `reject`.
//!
//! These are compared with a URL, from its start and as far as they go; rules see the path below
//! the root. So only such are taken over as begin with `.*`, and consist of text, single dots and
//! one further `.*`: what is between two slashes, what a name ends with, what it contains. All
//! others are to be written anew.

/// What an expression takes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Everything.
    All,
    /// What these patterns match: the first alone of what is rejected with all below it.
    Patterns(Vec<String>),
}

/// A part of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Characters, and what stands for them in a pattern.
    Text { plain: String, pattern: String },
    /// Any characters.
    Any,
}

/// What an expression takes of a tree that messages call `base`; `None` if no rule says that.
pub(super) fn meaning(expression: &str, base: &str) -> Option<Meaning> {
    let (mut parts, is_anchored) = parts(expression)?;
    if parts.first() != Some(&Part::Any) {
        return None;
    }
    parts.remove(0);
    let is_open = match parts.last() {
        Some(Part::Any) => {
            parts.pop();
            true
        }
        _ => !is_anchored,
    };
    let in_base = format!("{}/", base.trim_end_matches('/'));
    let is_in_base = |part: &Part| match part {
        Part::Text { plain, .. } => in_base.contains(plain.as_str()),
        Part::Any => false,
    };
    match &parts[..] {
        [] if is_open => Some(Meaning::All),
        // It matches where the tree stands, and so all of it.
        [first, ..] if is_in_base(first) => None,
        [Part::Text { pattern, .. }] => one(pattern, is_open),
        [
            Part::Text { pattern: above, .. },
            Part::Any,
            Part::Text { pattern: end, .. },
        ] => two(above, end, is_open),
        _ => None,
    }
}

/// Text between any characters.
fn one(pattern: &str, is_open: bool) -> Option<Meaning> {
    if !pattern.contains('/') {
        let name = format!("*{pattern}{}", if is_open { "*" } else { "" });
        return Some(patterns(name, is_open));
    }
    let below = pattern.strip_prefix('/')?;
    if let Some(directory) = below.strip_suffix('/') {
        // Of a directory, what is in it.
        let all = is_open && are_names(directory);
        return all.then(|| Meaning::Patterns(vec![format!("**/{directory}/**")]));
    }
    let open = if is_open { "*" } else { "" };
    are_names(below).then(|| patterns(format!("**/{below}{open}"), is_open))
}

/// A directory, and further down names that end so.
fn two(above: &str, end: &str, is_open: bool) -> Option<Meaning> {
    let directory = above.strip_prefix('/')?.strip_suffix('/')?;
    if end.contains('/') || !are_names(directory) {
        return None;
    }
    let open = if is_open { "*" } else { "" };
    Some(patterns(format!("**/{directory}/**/*{end}{open}"), is_open))
}

/// A pattern, and what lies below a directory whose name it matches.
fn patterns(pattern: String, has_below: bool) -> Meaning {
    let deep = pattern.strip_prefix("**/").unwrap_or(&pattern);
    let below = has_below.then(|| format!("**/{deep}/**"));
    Meaning::Patterns(std::iter::once(pattern).chain(below).collect())
}

fn are_names(path: &str) -> bool {
    let is_name = |name: &str| !["", ".", ".."].contains(&name);
    path.split('/').all(is_name)
}

/// The parts of an expression, and whether it has to end where it ends.
fn parts(expression: &str) -> Option<(Vec<Part>, bool)> {
    let expression = expression.strip_prefix('^').unwrap_or(expression);
    let mut parts = Vec::new();
    let mut rest = expression.chars().peekable();
    while let Some(c) = rest.next() {
        let (plain, in_pattern) = match c {
            '$' if rest.peek().is_none() => return Some((parts, true)),
            '.' if rest.next_if_eq(&'*').is_some() => {
                if parts.last() != Some(&Part::Any) {
                    parts.push(Part::Any);
                }
                continue;
            }
            '.' => ('.', "?".to_owned()),
            // A letter or digit behind it is a class or a place.
            '\\' => rest.next().filter(|c| !c.is_alphanumeric()).map(literal)?,
            '[' | ']' | '(' | ')' | '{' | '}' | '|' | '+' | '?' | '*' | '^' | '$' => return None,
            c => literal(c),
        };
        push(&mut parts, plain, &in_pattern);
        // Something that is repeated is more than text.
        if rest.peek().is_some_and(|next| "*+?{".contains(*next)) {
            return None;
        }
    }
    Some((parts, false))
}

fn push(parts: &mut Vec<Part>, c: char, in_pattern: &str) {
    if let Some(Part::Text { plain, pattern }) = parts.last_mut() {
        plain.push(c);
        pattern.push_str(in_pattern);
    } else {
        parts.push(Part::Text {
            plain: c.into(),
            pattern: in_pattern.to_owned(),
        });
    }
}

/// A character as it is in a pattern.
fn literal(c: char) -> (char, String) {
    match c {
        '*' | '?' | '[' | ']' | '{' | '}' | ',' | '\\' | '#' => (c, format!("\\{c}")),
        c => (c, c.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(expression: &str) -> Option<Vec<String>> {
        match meaning(expression, "file:/data")? {
            Meaning::All => Some(vec![]),
            Meaning::Patterns(patterns) => Some(patterns),
        }
    }

    #[test]
    fn expressions_that_rules_can_say_become_rules() {
        for (expression, expected) in [
            (".*", &[][..]),
            ("^.*", &[]),
            (".*.*", &[]),
            (r".*\.tmp$", &["*.tmp"]),
            (r".*\.tmp", &["*.tmp*", "**/*.tmp*/**"]),
            (".*citypage.*", &["*citypage*", "**/*citypage*/**"]),
            (".*/hourly/.*", &["**/hourly/**"]),
            (".*/a/b/.*", &["**/a/b/**"]),
            (".*/core$", &["**/core"]),
            (r".*/\.tar", &["**/.tar*", "**/.tar*/**"]),
            (r".*/a/.*\.o$", &["**/a/**/*.o"]),
            (r".*\[1\]\*$", &[r"*\[1\]\*"]),
            (".*a.b$", &["*a?b"]),
        ] {
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            assert_eq!(meant(expression), Some(expected), "{expression}");
        }
    }

    #[test]
    fn other_expressions_are_left() {
        for expression in [
            "",
            "file:/data/.*",
            ".*(a|b).*",
            r".*\d$",
            ".*[0-9]",
            ".*a+",
            ".*a.?b",
            ".*x/y.*",
            ".*/a/b.*c.*d$",
            ".*/",
            ".*//a",
            r".*/\.\./.*",
            ".*\\",
            ".*/data/.*",
            ".*$a",
        ] {
            assert_eq!(meant(expression), None, "{expression}");
        }
    }
}
