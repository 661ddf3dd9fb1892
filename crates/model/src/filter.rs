//! Which entries a run leaves out: glob rules, first match wins, and bounds on the size of files.
//!
//! A pattern with a `/` inside (or at its start) is matched against the whole path below the root;
//! one without is matched against the last name. A `/` at the end restricts it to directories. `*`
//! and `?` stop at `/`, `**` does not; `[a-z]`, `{a,b}` and `\` work as in a shell. What no rule
//! matches is included. What is excluded is neither copied nor deleted. What each sign means is the
//! matter of [`Pattern`].

use crate::escape;
use crate::pattern::{Pattern, text};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A rule that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    text: String,
    why: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "filter rule \"{}\": {}", self.text, self.why)
    }
}

impl std::error::Error for FilterError {}

const NO_SIGN: &str = "a line starts with \"+ \", \"- \" or \"#\"";

/// One rule: include or exclude what a pattern matches.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Rule {
    include: bool,
    written: String,
    pattern: Pattern,
}

impl Rule {
    /// A rule from a pattern.
    pub fn new(include: bool, pattern: &str) -> Result<Self, FilterError> {
        let fail = |why| FilterError {
            text: escape(pattern.as_bytes()),
            why,
        };
        Ok(Rule {
            include,
            written: pattern.to_owned(),
            pattern: Pattern::new(pattern).map_err(fail)?,
        })
    }

    /// A rule from a line of a filter file, without its end: `+ PATTERN` or `- PATTERN`; `None` for
    /// blank lines and `#` comments.
    pub fn from_line(line: &str) -> Result<Option<Self>, FilterError> {
        if line.trim().is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let fail = |why: &str| FilterError {
            text: escape(line.as_bytes()),
            why: why.into(),
        };
        let (include, pattern) = match line.split_at_checked(2) {
            Some(("+ ", pattern)) => (true, pattern),
            Some(("- ", pattern)) => (false, pattern),
            _ => return Err(fail(&equivalent_of(line))),
        };
        // Taken for part of the pattern, it would match nothing, and nobody would notice.
        if [" #", "\t#"]
            .iter()
            .any(|comment| pattern.contains(comment))
        {
            return Err(fail(
                "comments stand on a line of their own (write \"\\#\" where the name has this character)",
            ));
        }
        Rule::new(include, pattern).map(Some)
    }

    /// Whether it takes what it matches.
    pub fn includes(&self) -> bool {
        self.include
    }

    /// The pattern as it was given.
    pub fn pattern(&self) -> &str {
        &self.written
    }
}

/// Says what to write for a line that has neither sign: those of rsync(1) and gitignore(5) have an
/// equivalent.
fn equivalent_of(line: &str) -> String {
    let (word, pattern) = line.split_once([' ', '_']).unwrap_or((line, ""));
    let pattern = escape(pattern.as_bytes());
    let equivalent = match word.split(',').next().unwrap_or(word) {
        "exclude" => format!("write \"- {pattern}\""),
        "include" => format!("write \"+ {pattern}\""),
        "merge" | "." => "give that file by a --filter-from of its own".into(),
        "dir-merge" | ":" => {
            "files of rules within the tree are not read: write \"- /DIRECTORY/PATTERN\"".into()
        }
        "hide" | "H" => format!("write \"- {pattern}\", with --delete-excluded"),
        "show" | "S" | "risk" | "R" => format!("write \"+ {pattern}\""),
        "protect" | "P" => {
            format!("write \"- {pattern}\", which neither copies nor deletes what it matches")
        }
        "clear" | "!" => "leave out the rules before it".into(),
        _ if line.starts_with('!') => format!(
            "write \"+ {}\" before the rule that it is an exception of",
            escape(&line.as_bytes()[1..])
        ),
        _ if line.starts_with(';') => "write \"#\" before a comment".into(),
        _ if line.starts_with(['+', '-']) => {
            "no other sign follows \"+\" or \"-\", and a space does".into()
        }
        _ => format!("write \"- {}\" to leave it out", escape(line.as_bytes())),
    };
    format!("{NO_SIGN}; {equivalent}")
}

/// Two rules are the same if they were written the same.
impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        (self.include, &self.written) == (other.include, &other.written)
    }
}

impl Eq for Rule {}

/// As a line of a filter file, whatever stands in its pattern.
impl From<Rule> for String {
    fn from(rule: Rule) -> String {
        format!("{} {}", if rule.include { '+' } else { '-' }, rule.written)
    }
}

impl TryFrom<String> for Rule {
    type Error = FilterError;

    fn try_from(line: String) -> Result<Rule, FilterError> {
        match line.split_at_checked(2) {
            Some(("+ ", pattern)) => Rule::new(true, pattern),
            Some(("- ", pattern)) => Rule::new(false, pattern),
            _ => Err(FilterError {
                text: escape(line.as_bytes()),
                why: NO_SIGN.into(),
            }),
        }
    }
}

/// All rules of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Filter {
    /// Rules in their order; the first that matches decides.
    pub rules: Vec<Rule>,
    /// Regular files smaller than this many bytes are left out.
    pub size_min: Option<u64>,
    /// Regular files larger than this many bytes are left out.
    pub size_max: Option<u64>,
}

impl fmt::Display for Filter {
    /// Writes the rules in their order and the limits of the size, or "none".
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.iter().cloned().map(String::from);
        let mut parts: Vec<String> = rules.map(|rule| escape(rule.as_bytes())).collect();
        for (name, bytes) in [("min size", self.size_min), ("max size", self.size_max)] {
            parts.extend(bytes.map(|bytes| format!("{name} {bytes} B")));
        }
        match parts[..] {
            [] => out.write_str("none"),
            _ => out.write_str(&parts.join(", ")),
        }
    }
}

impl Filter {
    /// Whether any rule needs a path to decide.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Returns the first rule that rsync(1) and gitignore(5) read differently: its pattern has a slash inside
    /// and none at its start. A run that deletes refuses it.
    pub fn ambiguity(&self) -> Option<FilterError> {
        let rule = self.rules.iter().find(|rule| rule.pattern.is_floating)?;
        let text = escape(rule.written.as_bytes());
        Some(FilterError {
            why: format!(
                "rsync matches it at any depth, git at the root only; where a run deletes, write \"/{text}\" or \"**/{text}\""
            ),
            text,
        })
    }

    /// Whether the entry at `path` (bytes below the root) is taken.
    pub fn takes(&self, path: &[u8], is_dir: bool) -> bool {
        if !self.has_rules() {
            return true;
        }
        let path = text(path);
        self.rules
            .iter()
            .find(|rule| rule.pattern.matches(&path, is_dir))
            .is_none_or(|rule| rule.include)
    }

    /// Whether a regular file of `size` bytes is taken.
    pub fn takes_size(&self, size: u64) -> bool {
        self.size_min.is_none_or(|min| size >= min) && self.size_max.is_none_or(|max| size <= max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(lines: &str) -> Filter {
        let rules = lines
            .lines()
            .filter_map(|line| Rule::from_line(line).unwrap())
            .collect();
        Filter {
            rules,
            ..Filter::default()
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let f = filter("# keep one\n+ keep.o\n- *.o\n- /build/\n- a/**/tmp\n");
        let cases: [(&str, bool, bool); 8] = [
            ("x/keep.o", false, true),
            ("x/y.o", false, false),
            ("build", true, false),
            ("build", false, true),
            ("x/build", true, true),
            ("a/b/c/tmp", false, false),
            ("b/a/c/tmp", false, true),
            ("x/y.c", false, true),
        ];
        for (path, is_dir, taken) in cases {
            assert_eq!(f.takes(path.as_bytes(), is_dir), taken, "{path}");
        }
    }

    #[test]
    fn names_that_are_not_utf8_match_too() {
        assert!(!filter("- *.o").takes(b"a/\xff.o", false));
        assert!(filter("- a/*.o").takes(b"a/\xff/x.o", false));
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_refused() {
        for bad in ["* x", "+ ", "- [", "-x"] {
            assert!(Rule::from_line(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_looks_like_a_comment_behind_a_pattern_is_refused_and_not_made_part_of_it() {
        for bad in ["- *.tmp  # scratch", "+ a #b", "- /x/\t# y"] {
            let error = Rule::from_line(bad).unwrap_err().to_string();
            assert!(error.contains("a line of their own"), "{bad}: {error}");
        }
        for (line, name) in [
            ("- a \\#b", "a #b"),
            ("- a#b", "a#b"),
            ("- #a", "#a"),
            ("- a [#]b", "a #b"),
        ] {
            assert!(!filter(line).takes(name.as_bytes(), false), "{line}");
        }
    }
}
