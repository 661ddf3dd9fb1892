//! Snapshots of a file system of GPFS, or of an independent fileset, which are read below
//! `.snapshots` in its root.
//!
//! A policy scan of the newer snapshot lists what was changed since the older one was made; the
//! directories among it are listed in both, which shows what has gone, come and moved.

use super::commands::{Row, chosen, snapshots};
use super::{Escaping, LIST_NAME, Listed, Scan, listed};
use crate::base::Base;
use crate::snapshot::between::{self, between};
use crate::snapshot::program::Program;
use crate::snapshot::provider::{Provider, SnapshotError, followable, shown};
use driftless_model::{Change, unescape_mountinfo};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where the commands of GPFS are installed, which is on few users' path.
const COMMANDS: &str = "/usr/lpp/mmfs/bin";
/// What a command prints has no more bytes than this.
const PRINTED_BYTES_MAX: u64 = 64 << 20;

/// A file system of GPFS that this host has mounted, or an independent fileset of it.
#[derive(Debug, Clone)]
pub struct Fileset {
    root: PathBuf,
    device: Option<String>,
    fileset: Option<String>,
}

impl Fileset {
    /// That whose root is at `root`. Without a device, it is looked up what is mounted there;
    /// without a fileset, it is a whole file system.
    pub fn of(root: &Path, device: Option<String>, fileset: Option<String>) -> Fileset {
        Fileset {
            root: root.to_owned(),
            device,
            fileset,
        }
    }

    /// What GPFS calls the file system. Asked for each time: what is mounted there may be another
    /// one later.
    #[allow(
        clippy::disallowed_methods,
        reason = "they are no part of a replicated tree"
    )]
    fn device(&self) -> Result<OsString, SnapshotError> {
        if let Some(device) = &self.device {
            return Ok(device.into());
        }
        let mounted = own(
            || std::fs::read("/proc/self/mountinfo"),
            Path::new("/proc/self/mountinfo"),
        )?;
        let why = "is not on GPFS; where it is, gpfs.device says what GPFS calls the file system";
        let (device, point) = device_at(&mounted, &self.root).ok_or_else(|| self.not_fit(why))?;
        if point != self.root && self.fileset.is_none() {
            return Err(self.not_fit(
                "is not the root of a file system; gpfs.fileset says which fileset it is the root of",
            ));
        }
        Ok(device)
    }

    fn not_fit(&self, why: &'static str) -> SnapshotError {
        SnapshotError::NotFit {
            path: shown(&self.root),
            why,
        }
    }

    /// A command about the file system or fileset.
    fn command<'a>(&self, name: &'a str, more: &[&str]) -> Result<Program<'a>, SnapshotError> {
        let mut words = vec![self.device()?];
        words.extend(more.iter().map(OsString::from));
        if let Some(fileset) = &self.fileset {
            words.extend(["-j".into(), fileset.into()]);
        }
        Ok(Program::new(name, words).with("PATH", &path()))
    }

    fn rows(&self) -> Result<Vec<Row>, SnapshotError> {
        let table = printed(self.command("mmlssnapshot", &["-Y"])?, "mmlssnapshot")?;
        let mut rows = snapshots(&table)?;
        let fileset = self.fileset.as_deref().unwrap_or_default();
        rows.retain(|row| row.fileset == fileset);
        Ok(rows)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(".snapshots").join(name)
    }

    /// What was changed since `older`, as a policy scan of `newer` lists it.
    #[allow(
        clippy::disallowed_methods,
        reason = "they are no part of a replicated tree"
    )]
    fn scan(&self, older: &str, newer: &str) -> Result<Listed, SnapshotError> {
        let mut rows = self.rows()?.into_iter();
        let row = rows.find(|row| row.name == older);
        let row = row.ok_or_else(|| SnapshotError::Absent(older.to_owned()))?;
        let scan = Scan::new(row.id, newer)?;
        let folder = own(tempfile::tempdir, &std::env::temp_dir())?;
        let (policy, prefix) = (folder.path().join("policy"), folder.path().join("scan"));
        own(|| std::fs::write(&policy, &scan.policy), &policy)?;
        let root = self.root.join(&scan.folder);
        let words = [
            root.as_os_str(),
            OsStr::new("-P"),
            policy.as_os_str(),
            OsStr::new("-M"),
            OsStr::new(&scan.substitution),
            OsStr::new("-I"),
            OsStr::new("defer"),
            OsStr::new("-f"),
            prefix.as_os_str(),
        ];
        let program = Program::new("mmapplypolicy", words).with("PATH", &path());
        let chosen = chosen(&printed(program, "mmapplypolicy")?)?;
        if chosen == 0 {
            return Ok(Listed::default());
        }
        let list = prefix.with_extension(format!("list.{LIST_NAME}"));
        let file = own(|| File::open(&list), &list)?;
        let base = Base::new(root.as_os_str().as_bytes());
        Ok(listed(
            BufReader::new(file),
            Escaping::Percent,
            &base,
            chosen,
        )?)
    }
}

impl Provider for Fileset {
    fn check(&self) -> Result<(), SnapshotError> {
        self.rows().map(drop)
    }

    fn prepare(&self) -> Result<(), SnapshotError> {
        Ok(())
    }

    fn create(&self, name: &str) -> Result<(), SnapshotError> {
        self.command("mmcrsnapshot", &[name])?.run()
    }

    fn list(&self) -> Result<BTreeMap<String, PathBuf>, SnapshotError> {
        let rows = self.rows()?.into_iter();
        Ok(rows
            .map(|row| (row.name.clone(), self.path(&row.name)))
            .collect())
    }

    fn delete(&self, name: &str) -> Result<(), SnapshotError> {
        self.command("mmdelsnapshot", &[name])?.run()
    }

    fn diff(&self, older: &str, newer: &str) -> Result<Vec<Change>, SnapshotError> {
        let listed = self.scan(older, newer)?;
        let (older, newer) = (self.path(older), self.path(newer));
        let guide = between::Listed::of(listed.directories);
        let changes = between(&older, &newer, &guide, listed.entries)?;
        Ok(followable(changes, &newer))
    }
}

/// Where programs are looked for: where the user says, and where GPFS puts its own.
fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(COMMANDS);
    path
}

fn printed(program: Program<'_>, name: &str) -> Result<Vec<u8>, SnapshotError> {
    let mut text = Vec::new();
    program.print(|printed| {
        let read = printed.take(PRINTED_BYTES_MAX).read_to_end(&mut text);
        read.map(drop).map_err(|error| SnapshotError::Program {
            program: name.to_owned(),
            what: error.to_string(),
        })
    })?;
    Ok(text)
}

/// Does something with a file that is ours alone, or the kernel's.
fn own<T>(act: impl FnOnce() -> std::io::Result<T>, path: &Path) -> Result<T, SnapshotError> {
    act().map_err(|error| SnapshotError::Program {
        program: shown(path),
        what: error.to_string(),
    })
}

/// What GPFS calls the file system that a path is on, and where that is mounted, by the table of
/// proc_pid_mountinfo(5).
fn device_at(table: &[u8], path: &Path) -> Option<(OsString, PathBuf)> {
    let mut found: Option<(OsString, PathBuf, bool)> = None;
    for line in table.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-");
        let Some((point, dash)) = fields.get(4).zip(dash) else {
            continue;
        };
        let (Some(kind), Some(device)) = (fields.get(dash + 1), fields.get(dash + 2)) else {
            continue;
        };
        let point = PathBuf::from(OsString::from_vec(unescape_mountinfo(point)));
        // Of mounts at one place the last is seen.
        let is_nearer = found
            .as_ref()
            .is_none_or(|(_, known, _)| point.starts_with(known));
        if path.starts_with(&point) && is_nearer {
            let device = OsString::from_vec(unescape_mountinfo(device));
            found = Some((device, point, *kind == b"gpfs"));
        }
    }
    found
        .filter(|(.., is_gpfs)| *is_gpfs)
        .map(|(device, point, _)| (device, point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_path_is_the_nearest_that_is_mounted_above_it() {
        let table = b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 20 0:40 / /gpfs/fs\\040a rw shared:1 - gpfs fs0 rw\n\
            31 30 0:41 / /gpfs/fs\\040a/scratch rw - xfs /dev/sdb rw\n\
            32 20 0:42 / /gp rw - gpfs fs1 rw\nnonsense\n";
        let at = |path: &str| device_at(table, Path::new(path));
        let fs0 = Some(("fs0".into(), PathBuf::from("/gpfs/fs a")));
        assert_eq!(at("/gpfs/fs a"), fs0);
        assert_eq!(at("/gpfs/fs a/prod"), fs0);
        assert_eq!(at("/gpfs/fs a/scratch/x"), None);
        assert_eq!(at("/gpfs"), None);
        assert_eq!(at("/gp"), Some(("fs1".into(), "/gp".into())));
    }
}
