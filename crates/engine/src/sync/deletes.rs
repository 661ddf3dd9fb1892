//! The plan of deletes: collected while the trees are walked, judged as a whole, carried out last.
//!
//! It stands in an unnamed temporary file, so that any number of names costs no memory. A record is
//! the length of a path (8 bytes, little-endian), the path, the number of names, and each name with
//! its length in front. What a later look at a directory finds takes the place of what an earlier
//! one did.

use driftless_lock::Mutex;
use driftless_model::{Fault, RelPath, cause, quote};
use driftless_reconcile::{Guard, Refusal};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Directories of which the plan remembers that their earlier records do not hold any more. Earlier
/// records of further directories still count, which makes the guard stricter than it need be.
const FORGOTTEN_MAX: usize = 100_000;

/// Directories that vanished from the source meanwhile and are looked at in the end; more are
/// reported at once.
const LEFT_MAX: usize = 10_000;

/// The plan.
#[derive(Debug, Default)]
pub struct DeletePlan {
    spool: Mutex<Spool>,
    error: Mutex<Option<io::Error>>,
    /// It was judged as a whole, and may be carried out.
    passed: AtomicBool,
    reserved: AtomicU64,
    /// Entries that lie below something which goes, so that no listing of the walk has shown them.
    unseen: AtomicU64,
    /// Directories that names were to go from, and that the source does not have any more.
    left: Mutex<Vec<(RelPath, Fault)>>,
}

/// The records, and which of them do not hold any more.
#[derive(Debug, Default)]
struct Spool {
    file: Option<BufWriter<File>>,
    records: u64,
    /// Of each of these directories, how many records of the plan came before the latest look at
    /// it.
    forgotten: HashMap<RelPath, u64>,
}

impl DeletePlan {
    /// An empty plan, of a run that has removed `deleted` entries before a connection was lost.
    pub fn after(deleted: u64) -> Self {
        DeletePlan {
            reserved: AtomicU64::new(deleted),
            ..DeletePlan::default()
        }
    }

    /// Adds names of one directory.
    pub fn add(&self, path: &RelPath, names: &[CString]) {
        let done = self.write(path, names);
        if let Err(error) = done {
            self.error.lock().get_or_insert(error);
        }
    }

    fn write(&self, path: &RelPath, names: &[CString]) -> io::Result<()> {
        let mut spool = self.spool.lock();
        spool.records += 1;
        if spool.file.is_none() {
            spool.file = Some(BufWriter::new(tempfile::tempfile()?));
        }
        let out = spool.file.as_mut().expect("it was opened above");
        write_bytes(out, path.as_bytes())?;
        out.write_all(&(names.len() as u64).to_le_bytes())?;
        names
            .iter()
            .try_for_each(|name| write_bytes(out, name.to_bytes()))
    }

    /// Forgets what was added of one directory, which is looked at again.
    pub fn forget(&self, path: RelPath) {
        let mut spool = self.spool.lock();
        let before = spool.records;
        if before > 0
            && (spool.forgotten.len() < FORGOTTEN_MAX || spool.forgotten.contains_key(&path))
        {
            spool.forgotten.insert(path, before);
        }
    }

    /// Notes that the source does not have this directory any more, as `fault` says; returns
    /// whether there was room for that. It is no problem if the directory itself goes with the
    /// plan.
    pub fn left_by_source(&self, path: &RelPath, fault: Fault) -> bool {
        let mut left = self.left.lock();
        let fits = left.len() < LEFT_MAX;
        if fits {
            left.push((path.clone(), fault));
        }
        fits
    }

    /// Takes `entries`, which lie below something else that goes, off what may be deleted; false if
    /// that is too much. Under a limit nothing may go before the whole plan has passed. `seen`
    /// tells how many entries of the replica the walk has come by.
    pub fn reserve(&self, entries: u64, guard: Guard, seen: impl FnOnce() -> u64) -> bool {
        if guard.limit.is_none() || entries == 0 {
            return true;
        }
        if !self.passed.load(Relaxed) {
            return false;
        }
        let reserved = self.reserved.fetch_add(entries, Relaxed) + entries;
        let unseen = self.unseen.fetch_add(entries, Relaxed) + entries;
        let fits = guard.check(reserved, seen() + unseen).is_ok();
        if !fits {
            self.reserved.fetch_sub(entries, Relaxed);
            self.unseen.fetch_sub(entries, Relaxed);
        }
        fits
    }

    /// How many entries were taken off what may be deleted, and how many of them no listing has
    /// shown.
    pub fn reserved(&self) -> (u64, u64) {
        (self.reserved.load(Relaxed), self.unseen.load(Relaxed))
    }

    /// The plan has passed as a whole, with so many entries that go, so many of which no listing
    /// has shown: what is tried again after the deletes may take what they have left, and no more.
    pub fn pass(&self, deletes: u64, unseen: u64) {
        self.reserved.store(deletes, Relaxed);
        self.unseen.store(unseen, Relaxed);
        self.passed.store(true, Relaxed);
    }

    /// The directories that names were to go from, and that the source does not have any more,
    /// once.
    pub fn take_left(&self) -> Vec<(RelPath, Fault)> {
        std::mem::take(&mut *self.left.lock())
    }

    /// The finished plan, if there is any.
    pub fn finished(&self) -> io::Result<Option<Finished>> {
        if let Some(error) = self.error.lock().take() {
            return Err(error);
        }
        let Spool {
            file, forgotten, ..
        } = std::mem::take(&mut *self.spool.lock());
        let Some(writer) = file else { return Ok(None) };
        Ok(Some(Finished {
            file: writer
                .into_inner()
                .map_err(io::IntoInnerError::into_error)?,
            forgotten,
        }))
    }

    /// Takes the plan apart: each directory with its names.
    pub fn for_each(&self, each: &mut dyn FnMut(RelPath, Vec<CString>)) -> io::Result<()> {
        self.finished()?.map_or(Ok(()), |plan| plan.for_each(each))
    }
}

/// A plan that nothing is added to any more.
pub struct Finished {
    file: File,
    forgotten: HashMap<RelPath, u64>,
}

impl Finished {
    /// Calls `each` for every record that holds.
    pub fn for_each(&self, each: &mut dyn FnMut(RelPath, Vec<CString>)) -> io::Result<()> {
        let mut before = 0;
        records(&self.file, &mut |path, names| {
            let holds = self
                .forgotten
                .get(&path)
                .is_none_or(|forgotten| before >= *forgotten);
            before += 1;
            if holds {
                each(path, names);
            }
        })
    }
}

/// Calls `each` for every record of a plan.
fn records(mut file: &File, each: &mut dyn FnMut(RelPath, Vec<CString>)) -> io::Result<()> {
    file.rewind()?;
    let mut input = BufReader::new(file);
    while let Some(path) = read_bytes(&mut input)? {
        let path = RelPath::parse(&path).map_err(io::Error::other)?;
        let mut names = Vec::new();
        for _ in 0..read_number(&mut input)?.unwrap_or(0) {
            let name = read_bytes(&mut input)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            names.push(CString::new(name).map_err(io::Error::other)?);
        }
        each(path, names);
    }
    Ok(())
}

/// Why deletes were not carried out.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The guard refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The plan could not be written or read back.
    #[error("cannot keep the plan of deletes in a temporary file in {}: {}; nothing was deleted", quote(&std::env::temp_dir()), cause(.0))]
    Spool(#[from] io::Error),
}

fn write_bytes(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&(bytes.len() as u64).to_le_bytes())?;
    out.write_all(bytes)
}

fn read_number(input: &mut impl Read) -> io::Result<Option<u64>> {
    let mut number = [0; 8];
    match input.read_exact(&mut number) {
        Ok(()) => Ok(Some(u64::from_le_bytes(number))),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

fn read_bytes(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let Some(len) = read_number(input)? else {
        return Ok(None);
    };
    let mut bytes = vec![0; len as usize];
    input.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}
