//! Lists that the user names on the command line: of paths, and of rules. One form is read everywhere
//! ([`ListForm`]).

use driftless_model::{ListError, ListForm, RelPath, Rule, Scope, Selection, Work, cause, quote};
use driftless_remote::{Target, check_syntax};
use driftless_tree::plain_path;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads the rules in a file.
pub fn rules_of(path: &Path) -> Result<Vec<Rule>, String> {
    let text = read(path)?;
    let refused = |why: &dyn std::fmt::Display| format!("{}: {why}", quote(path));
    // A pattern that ends with a carriage return has a backslash before it.
    let form = match ListForm::of(&text, b'\n', |line| line.ends_with(b"\\\r")) {
        Err(ListError::EndsWithNul) => {
            return Err(refused(&"filter rules end with newlines, and NUL is in it"));
        }
        form => form.map_err(|error| refused(&error))?,
    };
    let text = String::from_utf8(text).map_err(|_| refused(&"filter rules must be UTF-8"))?;
    let rule = |(number, line): (u64, &str)| {
        let line = std::str::from_utf8(form.line(number, line.as_bytes())).unwrap_or(line);
        match Rule::from_line(without_return(line)) {
            Ok(rule) => rule.map(Ok),
            Err(error) => Some(Err(format!("{} line {number}: {error}", quote(path)))),
        }
    };
    (1..).zip(text.split('\n')).filter_map(rule).collect()
}

/// Returns a line without the carriage return that ends it in some files; one behind a backslash
/// belongs to the pattern.
fn without_return(line: &str) -> &str {
    line.strip_suffix('\r')
        .filter(|rest| !rest.ends_with('\\'))
        .unwrap_or(line)
}

/// Reads the list of paths of a run. `source` is its source, as it was typed.
pub fn selection(path: &Path, nul: bool, source: &Path) -> Result<Arc<Selection>, String> {
    let refused = |why: &dyn std::fmt::Display| format!("{}: {why}", quote(path));
    let list = read(path)?;
    let source = Target::parse(source.as_os_str()).map_err(|error| error.to_string())?;
    let is_here = source.host.is_none();
    let root = if is_here {
        plain_path(&source.path)
    } else {
        source.path
    };
    let end = if nul { 0 } else { b'\n' };
    let is_there = |name: &[u8]| is_here && is_there(&root.join(OsStr::from_bytes(name)));
    let form = ListForm::of(&list, end, is_there).map_err(|error| refused(&error))?;
    let mut works = Vec::new();
    for (number, line) in (1..).zip(list.split(|byte| *byte == end)) {
        let line = form.line(number, line);
        if line.is_empty() {
            continue;
        }
        let path = below(&root, line).map_err(|error| refused(&error))?;
        works.push(Work {
            path,
            scope: Scope::Subtree,
        });
    }
    Ok(Arc::new(Selection::of(&works)))
}

/// Reads a listed path. An absolute one names what it says, and must lie below the root.
fn below(root: &Path, line: &[u8]) -> Result<RelPath, String> {
    let path = Path::new(OsStr::from_bytes(line));
    let below = if path.is_absolute() {
        path.strip_prefix(root).map_err(|_| {
            format!(
                "{}: not below SRC, {}; write paths relative to SRC",
                quote(path),
                quote(root)
            )
        })?
    } else {
        path
    };
    RelPath::parse(below.as_os_str().as_bytes()).map_err(|error| error.to_string())
}

/// Tells how a list is written from what is read of it at once; the file that a line names is
/// looked for at the path that `named` returns.
pub fn form_of(
    input: &mut impl BufRead,
    end: u8,
    named: impl Fn(&[u8]) -> Option<PathBuf>,
) -> Result<ListForm, ListError> {
    // An error is told when it is read again.
    let first = input.fill_buf().unwrap_or_default();
    ListForm::of(first, end, |line| {
        named(line).is_some_and(|path| is_there(&path))
    })
}

#[allow(
    clippy::disallowed_methods,
    reason = "it is only found out what the user's list means"
)]
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Reads a file that the user named; "-" is standard input. It is no part of a replicated tree.
#[allow(clippy::disallowed_methods)]
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let fail = |error: io::Error| not_read(path, "read", &error);
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().read_to_end(&mut bytes).map_err(fail)?;
    } else {
        File::open(path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(fail)?;
    }
    Ok(bytes)
}

/// Says why a list cannot be read. A list on another host is not looked for.
pub fn not_read(path: &Path, verb: &str, error: &io::Error) -> String {
    let is_elsewhere = check_syntax(path.as_os_str()).is_err()
        || Target::parse(path.as_os_str()).is_ok_and(|target| target.host.is_some());
    let hint = if error.kind() == io::ErrorKind::NotFound && is_elsewhere {
        "; lists are files of this host: copy it here, or pipe it in and name \"-\""
    } else {
        ""
    };
    format!("{}: cannot {verb}: {}{hint}", quote(path), cause(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_listed_paths_lie_below_the_source() {
        for (root, line, expected) in [
            ("/", "/etc/x", Some("etc/x")),
            ("/data", "/data/a/", Some("a")),
            ("/data", "/data", Some("")),
            ("/data", "./a//b", Some("a/b")),
            ("/data", "/database/a", None),
            ("/data", "/a", None),
            ("/data", "/data/../etc", None),
        ] {
            let path = below(Path::new(root), line.as_bytes());
            let expected = expected.map(|path| RelPath::parse(path.as_bytes()).expect("a path"));
            assert_eq!(path.ok(), expected, "{line} below {root}");
        }
    }
}
