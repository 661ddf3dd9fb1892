//! Results of jobs: `outbox/JOB` belongs to the user of a job, whose tasks leave their results there.
//!
//! A result is sealed, collected by another program, and discarded. Sealing renames it to
//! `outbox/.sealed/JOB/PATH`. Discarding renames it to `outbox/.private`, and removes it there. So a
//! process that is killed leaves each result in the outbox, or sealed, or discarded as ordered.
//!
//! The user may change these directories at any moment. So every call acts on open directories and
//! follows no symbolic link, and a directory of another user or on another file system is refused.

use crate::error::{Error, Result};
use crate::job_links::link_name;
use crate::node::NodeFiles;
use crate::outbox_dirs::{OutboxDirs, PRIVATE, SEALED, is_empty, move_entry};
use crate::staging::names_in;
use crate::store::NodeStore;
use driftless_model::{EntryName, Fault, RelPath, errno, escape_text, is_reserved_name};
use driftless_tree::{Dir, DirMutRef, Done, Names, Spared};
use std::collections::{BTreeSet, BinaryHeap};
use std::ffi::{CStr, CString};
use std::path::PathBuf;

/// Names that one list of an outbox has at most.
pub const OUTBOX_PAGE_NAMES: usize = 4096;
/// Bytes of the longest path of a sealed result (limits.h, `PATH_MAX`).
pub const SEALED_PATH_BYTES_MAX: usize = 4095;
/// Directories above a sealed result at most, with its own name.
const SEALED_NAMES_MAX: usize = 64;
/// Bytes of the longest name (limits.h, `NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// Names of a directory that are read at a time.
const WINDOW_NAMES: usize = 4096;
/// Names that a list looks at, so that a user who adds entries all the time cannot hold it up.
const LOOKED_AT_MAX: usize = 1 << 24;

/// Path of a sealed result below the directory of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPath(RelPath);

/// Order to seal an entry of an outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealMove {
    /// Name at the top of the outbox.
    pub name: EntryName,
    /// Path of the sealed result.
    pub path: SealedPath,
}

/// Outcome of an order to seal an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SealOutcome {
    /// The entry has its sealed path, from now on or since an earlier order.
    Sealed,
    /// The entry is neither in the outbox nor sealed.
    Missing,
    /// The entry stays in the outbox. The text has cause and remedy.
    Refused(String),
}

/// Directory of the sealed results of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPlace {
    /// Absolute path.
    pub path: PathBuf,
    /// UID of its owner, who may read it.
    pub owner: u32,
}

impl SealedPath {
    /// Reads a path of a peer: names with one `/` between them.
    ///
    /// # Errors
    /// Returns the broken rule: an empty name, `.` or `..`, an absolute path, a bound, or a name that
    /// driftless uses itself.
    pub fn parse(bytes: &[u8]) -> std::result::Result<SealedPath, &'static str> {
        let is_plain =
            |name: &[u8]| !name.is_empty() && name != b"." && name.len() <= NAME_BYTES_MAX;
        if bytes.len() > SEALED_PATH_BYTES_MAX || bytes.split(is_slash).count() > SEALED_NAMES_MAX {
            return Err("the path is too long");
        }
        if !bytes.split(is_slash).all(is_plain) {
            return Err("the path has an empty name, \".\" or a name that is too long");
        }
        let path = RelPath::parse(bytes).map_err(|_| "the path has \"..\" or a zero byte")?;
        if path.is_set_aside() || path.names().any(is_reserved_name) {
            return Err("driftless uses this name itself; rename the entry");
        }
        Ok(SealedPath(path))
    }

    /// Returns the path.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn names(&self) -> Vec<CString> {
        let c_name = |name: &[u8]| CString::new(name).unwrap_or_default();
        self.0.names().map(c_name).collect()
    }

    /// Returns the directories above the result, and its name.
    fn parts(&self) -> (Vec<CString>, CString) {
        let mut names = self.names();
        let last = names.pop().unwrap_or_default();
        (names, last)
    }
}

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

/// Returns whether a job of this name can have an outbox: the name can be that of a directory.
pub fn is_outbox_name(job: &str) -> bool {
    outbox_name(job).is_ok()
}

fn outbox_name(job: &str) -> Result<CString> {
    let name = link_name(job).filter(|name| ![SEALED, PRIVATE].contains(&name.as_c_str()));
    name.ok_or_else(|| Error::OutboxName { job: job.into() })
}

impl NodeStore {
    /// Makes the outbox of a job, unless it is there. The reader owns it and no other user may open it;
    /// without a reader, the own user owns it.
    ///
    /// # Errors
    /// [`Error::OtherReader`]; [`Error::OutboxName`]; [`Error::Foreign`] if another user has it.
    pub fn make_outbox(&self, job: &str, reader: Option<u32>) -> Result<()> {
        let name = outbox_name(job)?;
        let (own, _) = self.files.dir.user();
        let reader = reader.unwrap_or(own);
        if own != 0 && own != reader {
            return Err(Error::OtherReader { reader, own });
        }
        let dirs = &self.files.outboxes;
        let made = || dirs.enter_or_make(&*dirs.outbox, &name, reader).map(drop);
        self.files.alone(made)
    }

    /// Returns names at the top of the outbox of a job, in the order of their bytes: at most
    /// [`OUTBOX_PAGE_NAMES`] behind the name `after`. A job without an outbox has none.
    ///
    /// # Errors
    /// The outbox cannot be read.
    pub fn outbox_names(&self, job: &str, after: &[u8]) -> Result<Vec<Vec<u8>>> {
        let dirs = &self.files.outboxes;
        let outbox = dirs.enter_job(&dirs.outbox, &outbox_name(job)?)?;
        dirs.page(outbox, job, after)
    }

    /// Returns names of the sealed results of a job, as [`outbox_names`](NodeStore::outbox_names): those
    /// at the top, or in the directory `below`. No order to seal is half done then.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn sealed_names(
        &self,
        job: &str,
        below: Option<&SealedPath>,
        after: &[u8],
    ) -> Result<Vec<Vec<u8>>> {
        let (name, dirs) = (outbox_name(job)?, &self.files.outboxes);
        let names = below.map(SealedPath::names).unwrap_or_default();
        let dir = self.files.alone(|| {
            let Some(mut dir) = dirs.enter_job(&dirs.sealed, &name)? else {
                return Ok(None);
            };
            let owner = dir.first_meta().uid;
            for name in &names {
                match dirs.enter_owned(&*dir, name, owner)? {
                    Some(below) => dir = below,
                    None => return Ok(None),
                }
            }
            Ok(Some(dir))
        })?;
        dirs.page(dir, job, after)
    }

    /// Seals entries of the outbox of a job. Returns an outcome for each. An entry that was sealed
    /// before at the same path counts as sealed.
    ///
    /// # Errors
    /// The outbox, or the directory of the sealed results, cannot be opened.
    pub fn seal(&self, job: &str, moves: &[SealMove]) -> Result<Vec<SealOutcome>> {
        let (name, dirs) = (outbox_name(job)?, &self.files.outboxes);
        self.files.alone(|| {
            let Some(outbox) = dirs.enter_job(&dirs.outbox, &name)? else {
                return Err(Error::NoOutbox { job: job.into() });
            };
            let owner = outbox.first_meta().uid;
            let sealed = dirs.enter_or_make(&*dirs.sealed, &name, owner)?;
            let seal = |one: &SealMove| match dirs.seal(&outbox, &sealed, one) {
                Ok(outcome) => outcome,
                Err(error) => SealOutcome::Refused(error.to_string()),
            };
            Ok(moves.iter().map(seal).collect())
        })
    }

    /// Removes a sealed result, with all in it. Directories above it that are empty then go as well.
    /// Returns whether it was there.
    ///
    /// # Errors
    /// The result cannot be opened or renamed. It stays sealed then.
    pub fn discard_sealed(&self, job: &str, path: &SealedPath) -> Result<bool> {
        let (name, dirs) = (outbox_name(job)?, &self.files.outboxes);
        let taken = self
            .files
            .alone(|| match dirs.enter_job(&dirs.sealed, &name)? {
                Some(sealed) => dirs.take_sealed(sealed, path),
                None => Ok(None),
            })?;
        let Some(taken) = taken else {
            return Ok(false);
        };
        dirs.remove_private(&taken);
        Ok(true)
    }

    /// Returns the directory of the sealed results of a job.
    ///
    /// # Errors
    /// [`Error::NoOutbox`] if no result is sealed.
    pub fn sealed_place(&self, job: &str) -> Result<SealedPlace> {
        let (name, dirs) = (outbox_name(job)?, &self.files.outboxes);
        let Some(sealed) = dirs.enter_job(&dirs.sealed, &name)? else {
            return Err(Error::NoOutbox { job: job.into() });
        };
        Ok(SealedPlace {
            path: self.path().join("outbox/.sealed").join(job),
            owner: sealed.first_meta().uid,
        })
    }

    /// Removes what processes that were killed left in the private directory of the outboxes.
    pub(crate) fn sweep_outboxes(&self) -> Result<()> {
        let dirs = &self.files.outboxes;
        // A directory that another process makes there has its final place before it is alone no more.
        let left = self.files.alone(|| {
            let names = names_in(&*dirs.private);
            names.map_err(|fault| dirs.failed(PRIVATE.to_bytes(), fault))
        })?;
        left.iter().for_each(|name| dirs.remove_private(name));
        Ok(())
    }
}

impl NodeFiles {
    /// Removes the outbox of a job, if it is empty and no result is sealed. Returns what keeps it.
    pub(crate) fn end_outbox(&self, job: &str) -> Result<Option<String>> {
        let (Ok(name), dirs) = (outbox_name(job), &self.outboxes) else {
            return Ok(None);
        };
        self.alone(|| {
            if !dirs.remove_empty(&dirs.sealed, &name)? {
                return Ok(Some(keeps(
                    job,
                    "sealed results, which are not collected yet",
                )));
            }
            if !dirs.remove_empty(&dirs.outbox, &name)? {
                return Ok(Some(keeps(job, "entries, which are not collected yet")));
            }
            Ok(None)
        })
    }

    /// Returns the jobs that have an outbox or sealed results here.
    pub(crate) fn outbox_jobs(&self) -> Result<BTreeSet<String>> {
        let dirs = &self.outboxes;
        let mut jobs = BTreeSet::new();
        for above in [&dirs.outbox, &dirs.sealed] {
            let names = names_in(&**above);
            let names = names.map_err(|fault| dirs.failed(b".", fault))?;
            let names = names.into_iter().filter_map(|name| name.into_string().ok());
            jobs.extend(names.filter(|job| is_outbox_name(job)));
        }
        Ok(jobs)
    }
}

fn keeps(job: &str, what: &str) -> String {
    format!(
        "the outbox of the job \"{}\" has {what}; collect them, or move them away, and end the job again",
        escape_text(job)
    )
}

impl OutboxDirs {
    fn page(&self, dir: Option<DirMutRef>, job: &str, after: &[u8]) -> Result<Vec<Vec<u8>>> {
        let Some(dir) = dir else {
            return Ok(Vec::new());
        };
        first_names(&*dir, after).map_err(|fault| self.failed(job.as_bytes(), fault))
    }

    fn seal(&self, outbox: &DirMutRef, sealed: &DirMutRef, one: &SealMove) -> Result<SealOutcome> {
        let (above, to) = one.path.parts();
        let owner = sealed.first_meta().uid;
        let mut dir = sealed.clone();
        for name in &above {
            dir = self.enter_or_make(&*dir, name, owner)?;
        }
        let name = CString::from(&one.name);
        let failed = |fault| self.failed(name.to_bytes(), fault);
        let is_there = |dir: &DirMutRef, name: &CStr| is_there(&**dir, name).map_err(failed);
        match move_entry(&**outbox, &name, &*dir, &to) {
            Ok(()) => Ok(SealOutcome::Sealed),
            // A directory above the path may be gone as well.
            Err(fault) if fault.is_missing() && is_there(outbox, &name)? => Err(failed(fault)),
            Err(fault) if fault.is_missing() => Ok(match is_there(&dir, &to)? {
                true => SealOutcome::Sealed,
                false => SealOutcome::Missing,
            }),
            Err(fault) if fault.errno == errno::EEXIST => Ok(SealOutcome::Refused(format!(
                "\"{}\": a result is sealed at this path already; collect it first",
                one.path.0
            ))),
            Err(fault) => Err(failed(fault)),
        }
    }

    /// Moves a sealed result to the private directory. Returns its name there, or `None` if it is gone.
    fn take_sealed(&self, sealed: DirMutRef, path: &SealedPath) -> Result<Option<CString>> {
        let (above, name) = path.parts();
        let owner = sealed.first_meta().uid;
        let mut dirs = vec![sealed];
        for name in &above {
            let Some(dir) = dirs.last() else { break };
            match self.enter_owned(&**dir, name, owner)? {
                Some(below) => dirs.push(below),
                None => return Ok(None),
            }
        }
        let private = self.free_name();
        let Some(holder) = dirs.last() else {
            return Ok(None);
        };
        match move_entry(&**holder, &name, &*self.private, &private) {
            Ok(()) => {}
            Err(fault) if fault.is_missing() => return Ok(None),
            Err(fault) => return Err(self.failed(path.0.as_bytes(), fault)),
        }
        for (name, (dir, below)) in above.iter().zip(dirs.iter().zip(dirs.iter().skip(1))).rev() {
            if !is_empty(&**below).unwrap_or(false) || dir.remove_dir(name).is_err() {
                break;
            }
        }
        Ok(Some(private))
    }

    /// Removes an entry of the private directory. Whatever cannot be removed waits for the next sweep.
    fn remove_private(&self, name: &CStr) {
        let removed = self.private.remove_tree(name, Spared::NOTHING);
        if let Err(fault) = removed.done() {
            let error = self.failed(&[PRIVATE.to_bytes(), b"/", name.to_bytes()].concat(), fault);
            tracing::warn!("a discarded result is not removed: {error}");
        }
    }

    /// Removes the directory of a job, if it is empty. Returns whether none is there any more.
    fn remove_empty(&self, above: &DirMutRef, name: &CStr) -> Result<bool> {
        let Some(dir) = self.enter_job(above, name)? else {
            return Ok(true);
        };
        let failed = |fault: Fault| self.failed(name.to_bytes(), fault);
        // Before the removal, which takes locks of runs for nothing (`forget_root_names`).
        if !is_empty(&*dir).map_err(failed)? {
            return Ok(false);
        }
        match above.remove_dir(name) {
            Ok(()) => Ok(true),
            Err(fault) if fault.is_missing() => Ok(true),
            Err(fault) if [errno::ENOTEMPTY, errno::EEXIST].contains(&fault.errno) => Ok(false),
            Err(fault) => Err(failed(fault)),
        }
    }
}

/// Returns whether an entry is at a name.
fn is_there(dir: &dyn Dir, name: &CStr) -> Done<bool> {
    match dir.look(name) {
        Ok(_) => Ok(true),
        Err(fault) if fault.is_missing() => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Returns the first names of a directory behind `after`. Memory does not grow with the directory.
fn first_names(dir: &dyn Dir, after: &[u8]) -> Done<Vec<Vec<u8>>> {
    let (mut first, mut looked_at) = (BinaryHeap::new(), 0);
    let mut listing = dir.list()?;
    loop {
        let mut names = Names::default();
        let has_more = listing.fill(&mut names, WINDOW_NAMES)?;
        for at in 0..names.len() {
            let name = names.bytes(at);
            let is_later = first
                .peek()
                .is_some_and(|last: &Vec<u8>| last.as_slice() <= name);
            if name <= after || is_later && first.len() >= OUTBOX_PAGE_NAMES {
                continue;
            }
            first.push(name.to_vec());
            if first.len() > OUTBOX_PAGE_NAMES {
                first.pop();
            }
        }
        looked_at += names.len();
        if !has_more || looked_at > LOOKED_AT_MAX {
            let mut names = first.into_sorted_vec();
            // A listing may show a name twice while entries are renamed.
            names.dedup();
            return Ok(names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_paths_stay_below_their_directory() {
        for path in ["3", "n1/3", "a/b/c", "a b/\n", ".hidden", "..."] {
            assert!(SealedPath::parse(path.as_bytes()).is_ok(), "{path}");
        }
        let long = "x".repeat(256);
        let deep = vec!["d"; SEALED_NAMES_MAX + 1].join("/");
        let own = driftless_tree::temp_name();
        let own = own.to_str().expect("text");
        for path in [
            "",
            "/",
            "/3",
            "3/",
            "a//b",
            "..",
            "a/..",
            "../a",
            ".",
            "./a",
            "a/.",
            "a\0b",
            ".driftless-trash",
            own,
            &long,
            &deep,
            &"a/".repeat(3000),
        ] {
            assert!(SealedPath::parse(path.as_bytes()).is_err(), "{path}");
        }
    }

    #[test]
    fn names_of_outboxes_are_no_own_names() {
        assert!(is_outbox_name("gateway-7-0123") && is_outbox_name(".hidden"));
        for name in [".sealed", ".private", "", "..", "a/b"] {
            assert!(!is_outbox_name(name), "{name}");
        }
    }
}
