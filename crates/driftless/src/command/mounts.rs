//! Notes of the file systems that runs of a pair of trees met below the source.
//!
//! A small file in the user's folder for state: a line that says what it is, then the paths, each
//! with a NUL behind it, and one more NUL that says that these are all. It is written whole,
//! durably, and only when it changes: when something new is met, before anything on it is copied,
//! and when a run has come to its end and found that something is gone. Where there is no such
//! folder, or no notes, a file system that is not mounted is not missed. Notes that are there and
//! cannot be read are doubt: nothing begins until the user says that they are not needed.

use crate::command::config;
use crate::own;
use driftless_engine::{End, MOUNTS_MAX, MountNotes, Options, Summary};
use driftless_lock::Mutex;
use driftless_model::{RelPath, Side, cause, quote};
use driftless_tree::{Endpoint, HandlePool, Place};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, MutexGuard};

/// What the file begins with.
const HEAD: &[u8] = b"driftless mounts 1\n";
/// Bytes of it at most: paths may be long.
const BYTES_MAX: u64 = 16 << 20;

/// The notes of a pair of trees.
#[derive(Debug)]
pub struct Notes {
    /// The file's name.
    name: String,
    /// The name of a file of earlier runs, if there is one: they had the trees as they were typed.
    typed: Option<String>,
    known: BTreeSet<RelPath>,
    /// What the files hold now.
    noted: Mutex<BTreeSet<RelPath>>,
    /// Why what was noted is not known, if it is not.
    doubt: Option<String>,
}

impl Notes {
    /// What earlier runs of these two trees left.
    pub fn of(options: &Options) -> Notes {
        let name_of = |path: &dyn Fn(&Endpoint, Side) -> Vec<u8>| {
            let (source, replica) = (
                path(&options.source, Side::Source),
                path(&options.replica, Side::Replica),
            );
            config::name_of_pair(
                "mounts",
                [&source, &replica].map(|bytes| Path::new(OsStr::from_bytes(bytes))),
            )
        };
        let (name, typed) = (name_of(&real_path), name_of(&|root, _| root.to_bytes()));
        let mut notes = Notes {
            known: BTreeSet::new(),
            noted: Mutex::default(),
            doubt: None,
            typed: None,
            name,
        };
        notes.add(notes.name.clone());
        if typed != notes.name && !notes.add(typed.clone()) {
            notes.typed = Some(typed);
        }
        notes.noted = Mutex::new(notes.known.clone());
        notes
    }

    /// Adds what stands in a file; returns whether there is nothing.
    fn add(&mut self, name: String) -> bool {
        match noted(&name) {
            Ok(paths) if paths.is_empty() => return true,
            Ok(paths) => self.known.extend(paths),
            Err(why) => self.doubt = Some(why),
        }
        false
    }

    /// Why nothing may begin: earlier runs noted something, and nobody knows what.
    pub fn doubt(&self) -> Option<String> {
        let why = self.doubt.as_ref()?;
        Some(format!(
            "the notes of what was mounted below the source in earlier runs cannot be read ({why}), so what is not mounted now \
             would not be missed; nothing was touched (--forget-mounts goes on without them)"
        ))
    }

    /// The paths that a run must know of.
    pub fn known(&self) -> Arc<BTreeSet<RelPath>> {
        Arc::new(self.known.clone())
    }

    /// Adds what a run met. What it did not know any more is forgotten, if it came to its end.
    ///
    /// # Errors
    /// It could not be noted, in words: the next runs will not miss it.
    pub fn keep(&self, summary: &Summary, options: &Options) -> Result<(), String> {
        let has_ended = matches!(
            summary.end,
            End::Complete | End::Refused(_) | End::NoPlan(_)
        );
        if self.doubt.is_some() && !has_ended {
            return Ok(());
        }
        let before = if has_ended {
            &options.known_mounts
        } else {
            &self.known
        };
        let now: BTreeSet<&RelPath> = before.iter().chain(&summary.mounts).collect();
        let now: BTreeSet<RelPath> = now.into_iter().take(MOUNTS_MAX).cloned().collect();
        let mut noted = self.noted();
        if now == *noted && self.typed.is_none() && self.doubt.is_none() {
            return Ok(());
        }
        let forget = |typed: &String| write(typed, &BTreeSet::new());
        let kept =
            write(&self.name, &now).and_then(|()| self.typed.as_ref().map_or(Ok(()), forget));
        if kept.is_ok() {
            *noted = now;
        }
        kept.map_err(|error| format!("what is mounted below the source cannot be noted ({}): later runs will not miss it", cause(&error)))
    }

    fn noted(&self) -> MutexGuard<'_, BTreeSet<RelPath>> {
        self.noted.lock()
    }
}

impl MountNotes for Notes {
    /// Notes that cannot be read stay as they are until a run has come to its end. What cannot be
    /// written is tried again then, and told.
    fn met(&self, paths: &BTreeSet<RelPath>) {
        let mut noted = self.noted();
        if self.doubt.is_some() || noted.len() >= MOUNTS_MAX || paths.is_subset(&noted) {
            return;
        }
        let now: BTreeSet<RelPath> = noted.union(paths).take(MOUNTS_MAX).cloned().collect();
        if write(&self.name, &now).is_ok() {
            *noted = now;
        }
    }

    fn all(&self) -> BTreeSet<RelPath> {
        self.noted().clone()
    }
}

/// What stands in a file of notes; nothing where there is none, or no folder for it.
fn noted(name: &str) -> Result<BTreeSet<RelPath>, String> {
    let Ok(path) = own::state_file(name) else {
        return Ok(BTreeSet::new());
    };
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(format!("{}: {}", quote(&path), cause(&error))),
        Ok(paths) => Ok(paths),
    }
}

/// The path that leads to a root, which may be missing yet, through no symbolic link: whichever way
/// it is named, it is the same pair of trees. It is the path as it was typed where nobody can tell.
fn real_path(root: &Endpoint, side: Side) -> Vec<u8> {
    let real = match &root.host {
        None => real_path_here(root),
        Some(host) => {
            real_path_there(root, side).map(|path| [host.name().as_bytes(), b":", &path].concat())
        }
    };
    real.unwrap_or_else(|| root.to_bytes())
}

#[allow(
    clippy::disallowed_methods,
    reason = "a path that the user named, in which links are followed"
)]
fn real_path_here(root: &Endpoint) -> Option<Vec<u8>> {
    let path = root.plain_path();
    let above = || {
        Some(
            std::fs::canonicalize(path.parent()?)
                .ok()?
                .join(path.file_name()?),
        )
    };
    std::fs::canonicalize(&path)
        .ok()
        .or_else(above)
        .map(|path| path.into_os_string().into_vec())
}

/// The names of the directories above, as the other host tells them.
fn real_path_there(root: &Endpoint, side: Side) -> Option<Vec<u8>> {
    let (dir, last) = match root.locate(side, &HandlePool::new(1)).ok()? {
        Place::Dir(dir) => (dir, None),
        Place::Entry { parent, name, .. } | Place::Missing { parent, name } => (parent, Some(name)),
    };
    let lineage = dir.lineage().ok()?;
    // The last is the root of the name space. One that stands alone may also be where that user may
    // look no further.
    let (_, below) = lineage
        .split_last()
        .filter(|(_, below)| !below.is_empty())?;
    let mut path = Vec::new();
    for ancestor in below.iter().rev() {
        path.extend([b"/", ancestor.name.as_ref()?.as_bytes()].concat());
    }
    path.extend(
        last.iter()
            .flat_map(|name| [b"/", name.as_bytes()].concat()),
    );
    Some(path)
}

#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
fn read(path: &Path) -> io::Result<BTreeSet<RelPath>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(BYTES_MAX)
        .read_to_end(&mut bytes)?;
    paths_in(&bytes).ok_or_else(|| io::Error::other("it is damaged"))
}

/// The paths of a whole file of notes. There is at least one, and a NUL behind each; no path is
/// empty, so one more NUL is the end.
fn paths_in(bytes: &[u8]) -> Option<BTreeSet<RelPath>> {
    let paths = bytes.strip_prefix(HEAD)?.strip_suffix(b"\0\0")?;
    paths
        .split(|byte| *byte == 0)
        .map(|path| RelPath::parse(path).ok().filter(|path| !path.is_root()))
        .collect()
}

#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
fn write(name: &str, paths: &BTreeSet<RelPath>) -> io::Result<()> {
    let path = own::state_file(name).map_err(io::Error::other)?;
    if paths.is_empty() {
        return std::fs::remove_file(path).or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                Ok(())
            } else {
                Err(error)
            }
        });
    }
    let mut bytes = HEAD.to_vec();
    paths
        .iter()
        .for_each(|path| bytes.extend([path.as_bytes(), b"\0"].concat()));
    bytes.push(0);
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&bytes)?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_are_not_whole_are_not_taken_for_fewer() {
        let whole = [HEAD, b"a/b\0c\0\0"].concat();
        assert_eq!(paths_in(&whole).map(|paths| paths.len()), Some(2));
        let cut = [
            whole.len() - 1,
            whole.len() - 2,
            whole.len() - 3,
            HEAD.len(),
            HEAD.len() - 1,
            0,
        ]
        .map(|len| whole[..len].to_vec());
        let other = [
            [HEAD, b"/a\0\0"].concat(),
            [HEAD, b"a\0\0\0"].concat(),
            [HEAD, b"../a\0\0"].concat(),
            vec![0; 4096],
        ];
        for bytes in cut.iter().chain(&other) {
            assert_eq!(paths_in(bytes), None, "{bytes:?}");
        }
    }
}
