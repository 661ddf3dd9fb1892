//! Paths of clients. A path is resolved by its text, so `..` never leaves the home of the user.

use driftless_deposit::is_draft;
use driftless_model::is_reserved_name;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longest name in bytes (limits.h, `NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// Most directories of a path.
const DEPTH_MAX: usize = 256;
/// Character that libunftp puts in the place of bytes that are no UTF-8.
const REPLACED: &[u8] = "\u{FFFD}".as_bytes();

/// Path below the home of a user: names without `.`, `..` and reserved names, and at the top without
/// drafts of `driftless put`. It is empty for the home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomePath(Vec<CString>);

impl HomePath {
    /// Parses the path of a client. Returns `None` if no entry can have this path.
    pub fn parse(path: &Path) -> Option<HomePath> {
        let mut names = Vec::new();
        for name in path.as_os_str().as_bytes().split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => {
                    names.pop();
                }
                name if is_allowed(name) => names.push(CString::new(name).ok()?),
                _ => return None,
            }
        }
        let is_in_draft = names.first().is_some_and(|name| is_draft(name.to_bytes()));
        (names.len() <= DEPTH_MAX && !is_in_draft).then_some(HomePath(names))
    }

    /// Returns the directories above the last name, and this name. Returns `None` for the home.
    pub fn split(&self) -> Option<(&[CString], &CStr)> {
        let (name, above) = self.0.split_last()?;
        Some((above, name))
    }

    /// Returns all names.
    pub fn names(&self) -> &[CString] {
        &self.0
    }
}

fn is_allowed(name: &[u8]) -> bool {
    let is_replaced = name.windows(REPLACED.len()).any(|part| part == REPLACED);
    name.len() <= NAME_BYTES_MAX && !is_reserved_name(name) && !is_replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str) -> Option<String> {
        let parsed = HomePath::parse(Path::new(path))?;
        let names = parsed.names().iter();
        Some(
            names
                .map(|name| name.to_str().unwrap().to_owned())
                .collect::<Vec<String>>()
                .join("/"),
        )
    }

    #[test]
    fn no_path_leaves_the_home() {
        let rows = [
            ("/", Some("")),
            ("", Some("")),
            ("/a//b/./c/", Some("a/b/c")),
            ("/a/../../../etc/passwd", Some("etc/passwd")),
            ("../..", Some("")),
            ("/a/../b", Some("b")),
            ("/..a", Some("..a")),
            ("/a/.put-b", Some("a/.put-b")),
        ];
        for (path, expected) in rows {
            assert_eq!(shown(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn reserved_and_impossible_names_are_refused() {
        let reserved = format!("/a/.driftless-tmp-{:032x}", 5);
        let long = "x".repeat(256);
        let deep = "a/".repeat(257);
        let draft = "/a/../.put-refs/.lock";
        for path in [&reserved, &long, &deep, draft, "a\u{FFFD}", "a\0b"] {
            assert_eq!(shown(path), None, "{path:?}");
        }
    }
}
