//! Snapshots that a site makes with its own commands.
//!
//! Each is run without a shell, with the source's path in the environment as `DRIFTLESS_SOURCE`, and is to
//! end with 0; what it says on standard error is told otherwise.
//!
//! | command | arguments behind its own | prints |
//! | --- | --- | --- |
//! | create | the name | nothing |
//! | list | none | a line for each snapshot: its name, a tab, and the absolute path at which it is read |
//! | delete | the name | nothing |
//! | diff | the names of the older and the newer one | what differs, as [`list`](crate::list) reads JSON |
//!
//! What differs is told completely: a path that is not told is not looked at. A directory that is new
//! or gone is told with `subtree`, or with all below it.

use super::program::Program;
use super::provider::{Provider, SnapshotError, followable};
use crate::base::Base;
use crate::list::{Format, List};
use driftless_model::{Change, escape};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names and paths of all snapshots have no more bytes than this.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// The commands, each with its arguments, and the tree that they are about.
#[derive(Debug, Clone)]
pub struct Commands {
    /// The tree.
    pub source: PathBuf,
    /// Makes a snapshot.
    pub create: Vec<String>,
    /// Lists them.
    pub list: Vec<String>,
    /// Deletes one.
    pub delete: Vec<String>,
    /// Tells what differs.
    pub diff: Vec<String>,
}

impl Commands {
    fn program<'a>(&self, words: &'a [String], more: &[&'a str]) -> Program<'a> {
        let (name, arguments) = words
            .split_first()
            .map_or(("", words), |(name, rest)| (name.as_str(), rest));
        let arguments = arguments.iter().map(String::as_str);
        Program::new(name, arguments.chain(more.iter().copied()))
            .with("DRIFTLESS_SOURCE", self.source.as_os_str())
    }

    fn find(&self, name: &str) -> Result<PathBuf, SnapshotError> {
        let found = self.list()?.remove(name);
        found.ok_or_else(|| SnapshotError::Program {
            program: "command.list".into(),
            what: format!("it does not list \"{name}\""),
        })
    }
}

impl Provider for Commands {
    fn check(&self) -> Result<(), SnapshotError> {
        self.list().map(drop)
    }

    fn prepare(&self) -> Result<(), SnapshotError> {
        Ok(())
    }

    fn create(&self, name: &str) -> Result<(), SnapshotError> {
        self.program(&self.create, &[name]).run()
    }

    fn list(&self) -> Result<BTreeMap<String, PathBuf>, SnapshotError> {
        let mut text = Vec::new();
        self.program(&self.list, &[]).print(|printed| {
            let failed = |error: std::io::Error| SnapshotError::Program {
                program: "command.list".into(),
                what: error.to_string(),
            };
            let mut printed = printed.take(LIST_BYTES_MAX);
            printed.read_to_end(&mut text).map(drop).map_err(failed)
        })?;
        let lines = text.split(|byte| *byte == b'\n');
        lines.filter(|line| !line.is_empty()).map(listed).collect()
    }

    fn delete(&self, name: &str) -> Result<(), SnapshotError> {
        self.program(&self.delete, &[name]).run()
    }

    fn diff(&self, older: &str, newer: &str) -> Result<Vec<Change>, SnapshotError> {
        let root = Base::new(self.source.as_os_str().as_bytes());
        let changes = self.program(&self.diff, &[older, newer]).print(|printed| {
            let list = List::new(BufReader::new(printed), Format::Json, root);
            Ok(list.collect::<Result<Vec<_>, _>>()?)
        })?;
        Ok(followable(changes, &self.find(newer)?))
    }
}

/// A snapshot as it is listed.
fn listed(line: &[u8]) -> Result<(String, PathBuf), SnapshotError> {
    let bad = || SnapshotError::List(escape(line));
    let tab = line
        .iter()
        .position(|byte| *byte == b'\t')
        .ok_or_else(bad)?;
    let (name, path) = (&line[..tab], Path::new(OsStr::from_bytes(&line[tab + 1..])));
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|name| !name.is_empty());
    let path = Some(path).filter(|path| path.is_absolute());
    let (name, path) = name.zip(path).ok_or_else(bad)?;
    Ok((name.to_owned(), path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_snapshots_is_names_and_absolute_paths() {
        let found = listed(b"a-1\t/snapshots/a \xff").unwrap();
        assert_eq!(found.0, "a-1");
        assert_eq!(found.1.as_os_str().as_bytes(), b"/snapshots/a \xff");
        for bad in [
            &b"a-1 /snapshots"[..],
            b"a-1\tsnapshots",
            b"\t/a",
            b"\xff\t/a",
            b"a\t",
        ] {
            let told = listed(bad).unwrap_err().to_string();
            assert!(told.starts_with("command.list: \""), "{told}");
        }
    }
}
