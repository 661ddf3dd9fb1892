//! Snapshots of a dataset, which are read below `.zfs/snapshot` in its root.

use super::changes;
use crate::base::Base;
use crate::snapshot::program::Program;
use crate::snapshot::provider::{Provider, SnapshotError, followable, shown};
use driftless_model::Change;
use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What `zfs list` prints has no more bytes than this.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// A dataset of ZFS that this host has mounted.
#[derive(Debug, Clone)]
pub struct Dataset {
    root: PathBuf,
}

impl Dataset {
    /// That which is mounted at `root`.
    pub fn of(root: &Path) -> Dataset {
        Dataset {
            root: root.to_owned(),
        }
    }

    /// What ZFS calls it. Asked for each time: what is mounted there may be another one later.
    fn name(&self) -> Result<String, SnapshotError> {
        let not_fit = |why| SnapshotError::NotFit {
            path: shown(&self.root),
            why,
        };
        let words = ["list", "-H", "-o", "name,mountpoint"].map(AsRef::as_ref);
        let text = printed(words.into_iter().chain([self.root.as_os_str()]))?;
        let line = text.lines().next().unwrap_or_default();
        let (name, mount) = line
            .split_once('\t')
            .ok_or_else(|| not_fit("is not on ZFS"))?;
        if Base::new(mount.as_bytes()) != Base::new(self.root.as_os_str().as_bytes()) {
            return Err(not_fit(
                "is not where a dataset is mounted; snapshots are made of whole datasets",
            ));
        }
        Ok(name.to_owned())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(".zfs/snapshot").join(name)
    }
}

/// What a command of `zfs` prints that ends well.
fn printed<A: AsRef<std::ffi::OsStr>>(
    arguments: impl IntoIterator<Item = A>,
) -> Result<String, SnapshotError> {
    let mut text = Vec::new();
    Program::new("zfs", arguments).print(|printed| {
        let read = printed.take(LIST_BYTES_MAX).read_to_end(&mut text);
        read.map(drop).map_err(|error| SnapshotError::Program {
            program: "zfs".into(),
            what: error.to_string(),
        })
    })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

impl Provider for Dataset {
    fn check(&self) -> Result<(), SnapshotError> {
        self.name().map(drop)
    }

    fn prepare(&self) -> Result<(), SnapshotError> {
        Ok(())
    }

    fn create(&self, name: &str) -> Result<(), SnapshotError> {
        let dataset = self.name()?;
        Program::new("zfs", ["snapshot", &format!("{dataset}@{name}")]).run()
    }

    fn list(&self) -> Result<BTreeMap<String, PathBuf>, SnapshotError> {
        let dataset = self.name()?;
        let words = [
            "list", "-H", "-d", "1", "-t", "snapshot", "-o", "name", &dataset,
        ];
        let text = printed(words)?;
        let names = text.lines().filter_map(|line| line.split_once('@'));
        Ok(names
            .map(|(_, name)| (name.to_owned(), self.path(name)))
            .collect())
    }

    fn delete(&self, name: &str) -> Result<(), SnapshotError> {
        let dataset = self.name()?;
        Program::new("zfs", ["destroy", &format!("{dataset}@{name}")]).run()
    }

    fn diff(&self, older: &str, newer: &str) -> Result<Vec<Change>, SnapshotError> {
        let dataset = self.name()?;
        let root = Base::new(self.root.as_os_str().as_bytes());
        let snapshots = [older, newer].map(|name| format!("{dataset}@{name}"));
        let words = ["diff", "-FHt", &snapshots[0], &snapshots[1]];
        let found = Program::new("zfs", words)
            .print(|printed| Ok(changes(BufReader::new(printed), &root)?))?;
        let mut all = found.changes;
        // Which name a file has got or lost is not told, only where it may be.
        all.extend(found.directories.into_iter().map(Change::names));
        Ok(followable(all, &self.path(newer)))
    }
}
