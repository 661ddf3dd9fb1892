//! Notes of the file systems that runs of a pair of trees met below the source.
//!
//! A small file in the user's folder for state: a line that says what it is, then the paths, each with a NUL behind it. It is written
//! whole and only when it changes. Notes are a help: without them, or where there is no such folder, a file system that is not mounted is
//! not missed.

use crate::{config, own};
use driftless_engine::{End, MOUNTS_MAX, Options, Summary};
use driftless_model::RelPath;
use driftless_tree::Endpoint;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

/// What the file begins with.
const HEAD: &[u8] = b"driftless mounts 1\n";
/// Bytes of it that are read at most.
const BYTES_MAX: u64 = 1 << 20;

/// The notes of a pair of trees.
pub struct Notes {
    /// The file's name.
    name: String,
    /// The name of a file of earlier runs, if there is one: they had the trees as they were typed.
    typed: Option<String>,
    known: BTreeSet<RelPath>,
}

impl Notes {
    /// What earlier runs of these two trees left.
    pub fn of(options: &Options) -> Notes {
        let name_of = |path: &dyn Fn(&Endpoint) -> Vec<u8>| {
            let (source, replica) = (path(&options.source), path(&options.replica));
            config::name_of_pair("mounts", [&source, &replica].map(|bytes| Path::new(OsStr::from_bytes(bytes))))
        };
        let (name, typed) = (name_of(&real_path), name_of(&Endpoint::to_bytes));
        let noted = |name: &String| own::state_file(name).ok().and_then(|path| read(&path).ok()).unwrap_or_default();
        let typed = Some(typed).filter(|typed| *typed != name && !noted(typed).is_empty());
        let known = std::iter::once(&name).chain(&typed).flat_map(noted).collect();
        Notes { name, typed, known }
    }

    /// The paths that a run must know of.
    pub fn known(&self) -> Arc<BTreeSet<RelPath>> {
        Arc::new(self.known.clone())
    }

    /// Adds what a run met. What it did not know any more is forgotten, if it came to its end.
    pub fn keep(&self, summary: &Summary, options: &Options) {
        let has_ended = matches!(summary.end, End::Complete | End::Refused(_) | End::NoPlan(_));
        let before = if has_ended { &options.known_mounts } else { &self.known };
        let now: BTreeSet<&RelPath> = before.iter().chain(&summary.mounts).collect();
        let now: BTreeSet<RelPath> = now.into_iter().take(MOUNTS_MAX).cloned().collect();
        if now != self.known || self.typed.is_some() {
            let forget = |typed: &String| write(typed, &BTreeSet::new());
            let _a_run_that_was_well_done_does_not_fail_for_it =
                write(&self.name, &now).and_then(|()| self.typed.as_ref().map_or(Ok(()), forget));
        }
    }
}

/// The path that leads to a root of this host, which may be missing yet, through no symbolic link: whichever way it is named, it is the
/// same pair of trees.
#[allow(clippy::disallowed_methods, reason = "a path that the user named, in which links are followed")]
fn real_path(root: &Endpoint) -> Vec<u8> {
    let path = root.plain_path();
    let above = || Some(std::fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?));
    let real = if root.host.is_none() { std::fs::canonicalize(&path).ok().or_else(above) } else { None };
    real.map_or_else(|| root.to_bytes(), |path| path.into_os_string().into_vec())
}

#[allow(clippy::disallowed_methods, reason = "our own file, no part of a replicated tree")]
fn read(path: &Path) -> io::Result<BTreeSet<RelPath>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    let paths = bytes.strip_prefix(HEAD).ok_or(io::ErrorKind::InvalidData)?;
    // What follows the last NUL is empty, or was cut off.
    let whole = paths.iter().rposition(|byte| *byte == 0).unwrap_or(0);
    Ok(paths[..whole].split(|byte| *byte == 0).filter_map(|path| RelPath::parse(path).ok()).filter(|path| !path.is_root()).collect())
}

#[allow(clippy::disallowed_methods, reason = "our own file, no part of a replicated tree")]
fn write(name: &str, paths: &BTreeSet<RelPath>) -> io::Result<()> {
    let path = own::state_file(name).map_err(io::Error::other)?;
    if paths.is_empty() {
        return std::fs::remove_file(path).or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) });
    }
    let mut file = tempfile::NamedTempFile::new_in(path.parent().ok_or(io::ErrorKind::NotFound)?)?;
    file.write_all(HEAD)?;
    paths.iter().try_for_each(|path| file.write_all(&[path.as_bytes(), b"\0"].concat()))?;
    file.persist(path).map(drop).map_err(|error| error.error)
}
