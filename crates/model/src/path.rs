//! Names and paths as bytes, checked once at the edge.
//!
//! A name is one component; a [`RelPath`] is a list of names below a root and cannot hold `..`,
//! so whatever holds one needs no further check before it is used under an open directory.

use crate::escape;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::ffi::CStr;
use std::fmt;
use std::ops::{Bound, RangeBounds};

/// Why bytes are not a usable name or path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadName(Vec<u8>);

impl fmt::Display for BadName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\" is not a name below the root", escape(&self.0))
    }
}

impl std::error::Error for BadName {}

/// The folder in the root of a tree that holds snapshots of the tree, and is no part of it.
pub const SNAPSHOTS: &CStr = c".driftless-snapshots";

/// The folder in the root of a replica that holds what was removed from the replica, and is no part
/// of it.
pub const TRASH: &CStr = c".driftless-trash";

/// Whether an entry of a root is none of the tree, whatever it is: a folder that is kept in a root
/// beside the tree. On the other side, nothing may take its place.
pub fn is_set_aside(name: &CStr) -> bool {
    [SNAPSHOTS, TRASH].contains(&name)
}

/// What the names of unfinished entries of a replica begin with, and that of the file which is its
/// mark; hexadecimal digits follow.
pub const UNFINISHED: &[u8] = b".driftless-tmp-";
/// How many digits follow.
const UNFINISHED_DIGITS: usize = 32;

/// Whether a name has the form of those of unfinished entries, or begins with another text and goes
/// on like these.
pub fn has_unfinished_form(name: &[u8], begin: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = name.strip_prefix(begin);
    digits.is_some_and(|digits| digits.len() == UNFINISHED_DIGITS && digits.iter().all(is_digit))
}

/// The lock of a replica, in its root. The name of the lock of a single file goes on with `-` and
/// the digits of its hash.
pub const LOCK: &CStr = c".driftless-lock";

/// The sign of a replica, in its root: it shows other users whether the lock is held. The name of
/// the sign of a single file goes on like that of its lock.
pub const LOCK_SIGN: &CStr = c".driftless-lock-sign";

/// Whether a name is that of a lock or of its sign.
pub fn is_lock_name(name: &[u8]) -> bool {
    [LOCK, LOCK_SIGN].into_iter().any(|of_root| {
        let rest = name.strip_prefix(of_root.to_bytes());
        rest.is_some_and(|rest| rest.is_empty() || has_unfinished_form(rest, b"-"))
    })
}

/// Whether a name is one that entries of a source cannot have on a replica: that of an unfinished
/// entry, of a mark, of a lock or of its sign.
pub fn is_reserved_name(name: &[u8]) -> bool {
    has_unfinished_form(name, UNFINISHED) || is_lock_name(name)
}

/// Checks that `name` is one path component that stays in its directory: not empty, not `.` or
/// `..`, no `/`, no NUL.
pub fn check_name(name: &[u8]) -> Result<(), BadName> {
    let bad = name.is_empty()
        || name == b"."
        || name == b".."
        || name.iter().any(|b| matches!(b, b'/' | 0));
    if bad {
        Err(BadName(name.to_vec()))
    } else {
        Ok(())
    }
}

/// A path below a root: names joined by `/`; the root itself is empty. Of any length. Checked when
/// it is decoded.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>")]
pub struct RelPath(Vec<u8>);

impl Borrow<[u8]> for RelPath {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// The paths below one ([`RelPath::below`]).
#[derive(Debug, Clone)]
pub struct Below(Bound<Vec<u8>>, Bound<Vec<u8>>);

impl RangeBounds<[u8]> for Below {
    fn start_bound(&self) -> Bound<&[u8]> {
        self.0.as_ref().map(Vec::as_slice)
    }

    fn end_bound(&self) -> Bound<&[u8]> {
        self.1.as_ref().map(Vec::as_slice)
    }
}

impl TryFrom<Vec<u8>> for RelPath {
    type Error = BadName;

    fn try_from(bytes: Vec<u8>) -> Result<Self, BadName> {
        RelPath::parse(&bytes)
    }
}

/// One component of a path, checked when it is made and when it is decoded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>")]
pub struct EntryName(Vec<u8>);

impl EntryName {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for EntryName {
    type Error = BadName;

    fn try_from(bytes: Vec<u8>) -> Result<Self, BadName> {
        check_name(&bytes).map(|()| EntryName(bytes))
    }
}

impl From<&std::ffi::CStr> for EntryName {
    /// A name that the kernel gave is one component.
    fn from(name: &std::ffi::CStr) -> Self {
        EntryName(name.to_bytes().to_vec())
    }
}

impl From<&EntryName> for std::ffi::CString {
    fn from(name: &EntryName) -> Self {
        std::ffi::CString::new(name.as_bytes()).expect("names hold no NUL")
    }
}

impl RelPath {
    /// The root itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// Reads a path as a user or a peer writes it; repeated and trailing slashes and `.` are
    /// dropped, `..` and absolute paths refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadName> {
        if bytes.first() == Some(&b'/') {
            return Err(BadName(bytes.to_vec()));
        }
        let mut path = Self::root();
        for name in bytes
            .split(|b| *b == b'/')
            .filter(|n| !n.is_empty() && *n != b".")
        {
            check_name(name).map_err(|_| BadName(bytes.to_vec()))?;
            path.push(name);
        }
        Ok(path)
    }

    /// Builds a path from names that were checked before, outermost first.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut path = Self::root();
        names.into_iter().for_each(|name| path.push(name));
        path
    }

    /// Appends one checked name.
    pub fn push(&mut self, name: &[u8]) {
        debug_assert!(
            check_name(name).is_ok(),
            "names are checked before they are joined"
        );
        if !self.0.is_empty() {
            self.0.push(b'/');
        }
        self.0.extend_from_slice(name);
    }

    /// This path with one more name.
    pub fn join(&self, name: &[u8]) -> Self {
        let mut longer = self.clone();
        longer.push(name);
        longer
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, outermost first.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|n| !n.is_empty())
    }

    /// The directory and the last name; `None` for the root.
    pub fn split_last(&self) -> Option<(RelPath, &[u8])> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|b| *b == b'/') {
            Some(at) => Some((RelPath(self.0[..at].to_vec()), &self.0[at + 1..])),
            None => Some((RelPath::root(), &self.0)),
        }
    }

    /// Whether this is `above`, or stands below it.
    pub fn is_within(&self, above: &RelPath) -> bool {
        above.is_root()
            || self
                .0
                .strip_prefix(&above.0[..])
                .is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
    }

    /// What stands below this, and nothing else, among paths in order: as a range of a `BTreeMap`
    /// or `BTreeSet`. A name that begins like this one (`a-b`, `ab`) is not looked at.
    pub fn below(&self) -> Below {
        let ended_with = |byte| [&self.0[..], &[byte]].concat();
        match self.is_root() {
            true => Below(Bound::Excluded(Vec::new()), Bound::Unbounded),
            false => Below(
                Bound::Included(ended_with(b'/')),
                Bound::Excluded(ended_with(b'/' + 1)),
            ),
        }
    }

    /// Whether one of both is the other, or stands below it.
    pub fn is_near(&self, other: &RelPath) -> bool {
        self.is_within(other) || other.is_within(self)
    }

    /// The directories that this stands in, the nearest first and the root last.
    pub fn above(&self) -> impl Iterator<Item = RelPath> {
        std::iter::successors(self.split_last(), |(dir, _)| {
            // The name is not used; both borrow from different paths.
            dir.split_last().map(|(above, _)| (above, &b""[..]))
        })
        .map(|(dir, _)| dir)
    }

    /// Where this stands after `from`, which it is or stands below, was renamed to `to`; elsewhere
    /// it stays.
    #[must_use]
    pub fn rebased(&self, from: &RelPath, to: &RelPath) -> RelPath {
        if !self.is_within(from) {
            return self.clone();
        }
        let mut there = to.clone();
        RelPath(self.0[from.0.len()..].to_vec())
            .names()
            .for_each(|name| there.push(name));
        there
    }

    /// Whether this is none of a user's entries: it is what a mirror keeps in the root of its
    /// replica, an unfinished entry or a lock, or stands in one.
    pub fn is_set_aside(&self) -> bool {
        let first = self.names().next();
        let is_beside = |name| [SNAPSHOTS, TRASH].map(CStr::to_bytes).contains(&name);
        let mut names = self.names();
        first.is_some_and(is_beside) || names.any(is_reserved_name)
    }

    /// The bytes, names joined by `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            out.write_str(".")
        } else {
            out.write_str(&escape(&self.0))
        }
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_below_a_path_is_a_range() {
        let all = ["a", "a/b", "a/b/c", "a-b", "a0", "ab", "a\u{1}", "b"];
        let all: std::collections::BTreeSet<RelPath> = all
            .iter()
            .map(|text| RelPath::parse(text.as_bytes()).unwrap())
            .chain([RelPath::root()])
            .collect();
        for above in &all {
            let is_below = |path: &&RelPath| path.is_within(above) && *path != above;
            let found: Vec<_> = all.range::<[u8], _>(above.below()).collect();
            assert_eq!(found, all.iter().filter(is_below).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_path_never_holds_dot_dot_or_a_leading_slash() {
        for bad in [&b"../a"[..], b"a/../b", b"/a", b"a/..", b"a\0b"] {
            assert!(RelPath::parse(bad).is_err(), "{}", escape(bad));
        }
        assert_eq!(RelPath::parse(b"./a//b/").unwrap().as_bytes(), b"a/b");
    }

    #[test]
    fn what_stands_below_a_directory_moves_with_it() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        for (at, from, to, there) in [
            ("a/b/c", "a", "x/y", "x/y/b/c"),
            ("a", "a", "b", "b"),
            ("ab/c", "a", "b", "ab/c"),
            ("a-b", "a", "b", "a-b"),
            ("a/b", "", "x", "x/a/b"),
            ("a/b", "a", "", "b"),
        ] {
            assert_eq!(path(at).rebased(&path(from), &path(to)), path(there));
        }
        let above: Vec<RelPath> = path("a/b/c").above().collect();
        assert_eq!(above, ["a/b", "a", ""].map(path));
        assert_eq!(RelPath::root().above().count(), 0);
    }

    #[test]
    fn what_mirrors_keep_for_themselves_is_told_from_entries() {
        let unfinished = format!(".driftless-tmp-{:032x}", 0xabc);
        let below = |above: &str| format!("{above}/{unfinished}/x");
        let cut = &unfinished[..unfinished.len() - 1];
        let of_file = |sign: &str| format!("a/.driftless-lock{sign}-{:032x}", 0xabc);
        for (path, is_so) in [
            (&unfinished[..], true),
            (&below("a/b"), true),
            (".driftless-trash/2026/a", true),
            (".driftless-snapshots", true),
            (".driftless-lock", true),
            ("a/.driftless-lock-sign", true),
            (&of_file(""), true),
            (&of_file("-sign"), true),
            (".driftless-lock-", false),
            (".driftless-lock-sign2", false),
            (".driftless-locks", false),
            ("", false),
            ("a/.driftless-trash/b", false),
            (".driftless-trash-2", false),
            (cut, false),
            (&format!("{cut}g"), false),
            (&format!("{unfinished}0"), false),
        ] {
            let path = RelPath::parse(path.as_bytes()).unwrap();
            assert_eq!(path.is_set_aside(), is_so, "{path}");
        }
    }

    #[test]
    fn split_and_join_are_inverse() {
        let path = RelPath::parse(b"a/b/\xff").unwrap();
        let (dir, name) = path.split_last().unwrap();
        assert_eq!(dir.join(name), path);
        assert_eq!(RelPath::root().split_last(), None);
    }
}
