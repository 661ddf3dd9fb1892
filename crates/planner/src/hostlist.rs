//! Lists of nodes, in the syntax of Slurm's hostlists (`scontrol show hostnames`).
//!
//! `n[1-8]`, `n[01-12,15]`, `rack[0-3]node[0-9]`, `a,b,c` and `@FILE`. In a file, commas, spaces and line
//! ends separate names, and `#` starts a comment. A range keeps the leading zeros of its first
//! number. A name that occurs twice counts once. The number of names and their length are bounded
//! before any is made, so no list uses much memory.

use std::collections::BTreeSet;

/// Maximum number of nodes in a list.
pub const NODES_MAX: usize = 65_536;
/// Maximum length of a name in bytes: that of a domain name (RFC 1035, section 2.3.4).
pub const NODE_NAME_BYTES_MAX: usize = 253;

/// Errors in a list of nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// The list has no name.
    #[error("list of nodes: no name; write names such as n[1-8] or a,b,c")]
    Empty,
    /// The list has more than [`NODES_MAX`] names.
    #[error("list of nodes: more than {NODES_MAX} names; cast to fewer nodes")]
    TooMany,
    /// A bracket has no partner, or stands in another one.
    #[error("{0}: brackets do not match; write ranges such as n[1-8,12]")]
    Brackets(String),
    /// A range between brackets is not `NUMBER` or `NUMBER-NUMBER`.
    #[error("{name}: {range:?} is not a range; write a number or two, such as 8 or 1-8")]
    Range {
        /// The term of the list.
        name: String,
        /// The text between commas.
        range: String,
    },
    /// A range ends before it starts.
    #[error("{name}: range {range} ends before it starts; write the lower number first")]
    Descending {
        /// The term of the list.
        name: String,
        /// The text between commas.
        range: String,
    },
    /// A name has other characters than ASCII letters, digits, `.`, `_`, `-` and `:`, or starts with `-`.
    #[error(
        "{0}: not the name of a host; use letters, digits, '.', '_', ':' and '-', and no '-' at the start"
    )]
    Name(String),
    /// A name is longer than [`NODE_NAME_BYTES_MAX`].
    #[error("{0}...: longer than {NODE_NAME_BYTES_MAX} bytes; shorten the name")]
    Long(String),
    /// A file names another file.
    #[error("{0}: a file of nodes cannot name another file; name both on the command line")]
    Nested(String),
    /// The file cannot be read.
    #[error("{path}: cannot read: {cause}; check the path")]
    File {
        /// Path after the `@`.
        path: String,
        /// Cause, from the caller.
        cause: String,
    },
}

/// Characters of a name that an error quotes.
const QUOTED: usize = 60;

/// Parses a list of nodes and returns the names in their order. `read` returns the text of the file
/// behind an `@`, or the cause of an error.
pub fn parse_hostlist(
    list: &str,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Vec<String>, HostlistError> {
    let mut names = NameList::default();
    for term in terms(list)? {
        match term.strip_prefix('@') {
            Some(path) => names.add_file(path, read)?,
            None => names.add(term)?,
        }
    }
    if names.ordered.is_empty() {
        return Err(HostlistError::Empty);
    }
    Ok(names.ordered)
}

/// Parses a list of nodes that names no file.
pub(crate) fn parse_names(list: &str) -> Result<Vec<String>, HostlistError> {
    parse_hostlist(list, &mut |path| {
        Err(format!("{path} is a file, not a name"))
    })
}

/// Names in their order, each once.
#[derive(Default)]
struct NameList {
    ordered: Vec<String>,
    known: BTreeSet<String>,
}

impl NameList {
    fn add_file(
        &mut self,
        path: &str,
        read: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<(), HostlistError> {
        let text = read(path).map_err(|cause| HostlistError::File {
            path: path.to_owned(),
            cause,
        })?;
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or(line);
            for term in terms(line)? {
                if term.starts_with('@') {
                    return Err(HostlistError::Nested(quoted(term)));
                }
                self.add(term)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, term: &str) -> Result<(), HostlistError> {
        for name in expand(term)? {
            check_name(&name)?;
            if self.known.insert(name.clone()) {
                self.ordered.push(name);
            }
            if self.ordered.len() > NODES_MAX {
                return Err(HostlistError::TooMany);
            }
        }
        Ok(())
    }
}

fn quoted(name: &str) -> String {
    name.chars().take(QUOTED).collect()
}

/// Divides a list at commas, spaces and line ends outside brackets.
fn terms(list: &str) -> Result<Vec<&str>, HostlistError> {
    let mut depth = 0_u32;
    for c in list.chars() {
        match c {
            '[' => depth = depth.saturating_add(1),
            ']' if depth == 0 => return Err(HostlistError::Brackets(quoted(list))),
            ']' => depth -= 1,
            _ => {}
        }
        if depth > 1 {
            return Err(HostlistError::Brackets(quoted(list)));
        }
    }
    if depth > 0 {
        return Err(HostlistError::Brackets(quoted(list)));
    }
    let mut is_inside = false;
    let parts = list.split(|c: char| {
        is_inside = match c {
            '[' => true,
            ']' => false,
            _ => is_inside,
        };
        !is_inside && (c == ',' || c.is_whitespace())
    });
    Ok(parts.filter(|part| !part.is_empty()).collect())
}

/// Numbers from `first` to `last`, written with at least `width` digits.
struct NumberRange {
    first: u64,
    last: u64,
    width: usize,
}

/// Returns the names that a term stands for. The last bracket varies fastest.
fn expand(term: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = vec![String::new()];
    let mut rest = term;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after
            .split_once(']')
            .ok_or_else(|| HostlistError::Brackets(quoted(term)))?;
        let ranges: Vec<NumberRange> = inside
            .split(',')
            .map(|range| parse_range(term, range.trim()))
            .collect::<Result<_, _>>()?;
        for name in &mut names {
            name.push_str(before);
        }
        names = product(&names, &ranges)?;
        rest = behind;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// Returns each name with each number behind it.
fn product(names: &[String], ranges: &[NumberRange]) -> Result<Vec<String>, HostlistError> {
    let counts = ranges
        .iter()
        .map(|range| range.last.saturating_sub(range.first).saturating_add(1));
    let total = counts.fold(0_u64, u64::saturating_add);
    if total.saturating_mul(names.len() as u64) > NODES_MAX as u64 {
        return Err(HostlistError::TooMany);
    }
    let mut found = Vec::new();
    for name in names {
        for range in ranges {
            check_length(name, name.len().saturating_add(range.width))?;
            let width = range.width;
            found
                .extend((range.first..=range.last).map(|number| format!("{name}{number:0width$}")));
        }
    }
    Ok(found)
}

fn parse_range(term: &str, range: &str) -> Result<NumberRange, HostlistError> {
    let wrong = || HostlistError::Range {
        name: quoted(term),
        range: quoted(range),
    };
    let number = |digits: &str| -> Result<u64, HostlistError> {
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        // Leading zeros are no part of the value, however many there are.
        match digits.trim_start_matches('0') {
            "" => Ok(0),
            value => value.parse().map_err(|_| wrong()),
        }
    };
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = (number(low)?, number(high)?);
    if last < first {
        return Err(HostlistError::Descending {
            name: quoted(term),
            range: quoted(range),
        });
    }
    Ok(NumberRange {
        first,
        last,
        width: low.len(),
    })
}

fn check_length(name: &str, length: usize) -> Result<(), HostlistError> {
    if length > NODE_NAME_BYTES_MAX {
        return Err(HostlistError::Long(quoted(name)));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), HostlistError> {
    check_length(name, name.len())?;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    // A name that starts with "-" would be an option of ssh.
    if name.is_empty() || name.starts_with('-') || !name.chars().all(is_allowed) {
        return Err(HostlistError::Name(quoted(name)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<Vec<String>, HostlistError> {
        parse_hostlist(list, &mut |path| match path {
            "nodes" => Ok("a b # c\n\nn[1-2],d\n".to_owned()),
            "nested" => Ok("@nodes".to_owned()),
            _ => Err("no such file or directory".to_owned()),
        })
    }

    #[test]
    fn lists_are_expanded() {
        for (list, expected) in [
            ("a,b,c", "a b c"),
            ("n[1-3]", "n1 n2 n3"),
            ("n[01-03,15]", "n01 n02 n03 n15"),
            ("n[8-11]", "n8 n9 n10 n11"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("r[0-1]n[1-2]x,z", "r0n1x r0n2x r1n1x r1n2x z"),
            ("b,a b", "b a"),
            ("x,@nodes", "x a b n1 n2 d"),
            ("n[0000000000000000000000007]", "n0000000000000000000000007"),
            (
                "host.example.org,10.0.0.1,fe80::1",
                "host.example.org 10.0.0.1 fe80::1",
            ),
        ] {
            let names = parse(list).map(|names| names.join(" "));
            assert_eq!(names.as_deref(), Ok(expected), "{list}");
        }
    }

    #[test]
    fn wrong_lists_are_refused() {
        let range = |name: &str, range: &str| HostlistError::Range {
            name: name.to_owned(),
            range: range.to_owned(),
        };
        for (list, expected) in [
            ("", HostlistError::Empty),
            (" ,,", HostlistError::Empty),
            ("n[1-3", HostlistError::Brackets("n[1-3".to_owned())),
            ("n1]", HostlistError::Brackets("n1]".to_owned())),
            ("n[1[2]]", HostlistError::Brackets("n[1[2]]".to_owned())),
            ("n[]", range("n[]", "")),
            ("n[1-]", range("n[1-]", "1-")),
            ("n[a-c]", range("n[a-c]", "a-c")),
            ("n[+1]", range("n[+1]", "+1")),
            (
                "n[1-99999999999999999999]",
                range("n[1-99999999999999999999]", "1-99999999999999999999"),
            ),
            ("n[1-65537]", HostlistError::TooMany),
            ("n[0-18446744073709551615]", HostlistError::TooMany),
            ("n[1-300]m[1-300]", HostlistError::TooMany),
            (
                "-oProxyCommand=x",
                HostlistError::Name("-oProxyCommand=x".to_owned()),
            ),
            ("a/b", HostlistError::Name("a/b".to_owned())),
            ("@nested", HostlistError::Nested("@nodes".to_owned())),
        ] {
            assert_eq!(parse(list), Err(expected), "{list}");
        }
        let message = parse("n[8-1]").map_err(|error| error.to_string());
        let expected = "n[8-1]: range 8-1 ends before it starts; write the lower number first";
        assert_eq!(message, Err(expected.to_owned()));
        let message = parse("@gone").map_err(|error| error.to_string());
        let expected = "gone: cannot read: no such file or directory; check the path";
        assert_eq!(message, Err(expected.to_owned()));
    }

    #[test]
    fn long_names_use_little_memory() {
        let zeros = "0".repeat(1_000_000);
        let list = format!("n[{zeros}1-{zeros}65536]");
        assert_eq!(parse(&list), Err(HostlistError::Long("n".to_owned())));
        let list = "x".repeat(NODE_NAME_BYTES_MAX + 1);
        assert!(matches!(parse(&list), Err(HostlistError::Long(_))));
        assert!(parse(&"x".repeat(NODE_NAME_BYTES_MAX)).is_ok());
    }
}
