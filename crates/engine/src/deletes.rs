//! The plan of deletes: collected while the trees are walked, judged as a whole, carried out last.
//!
//! It stands in an unnamed temporary file, so that any number of names costs no memory. A record is the length of a path
//! (8 bytes, little-endian), the path, the number of names, and each name with its length in front.

use crate::job::{Task, descend, lock};
use crate::run::Run;
use driftless_model::RelPath;
use driftless_reconcile::{Guard, Refusal};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Items that are in the queue at a time.
const QUEUED_MAX: usize = 1024;

/// The plan.
#[derive(Debug, Default)]
pub struct DeletePlan {
    spool: Mutex<Option<BufWriter<File>>>,
    error: Mutex<Option<io::Error>>,
    reserved: AtomicU64,
    /// Entries that lie below something which goes, so that no listing of the walk has shown them.
    unseen: AtomicU64,
}

impl DeletePlan {
    /// An empty plan, when so many entries were removed before.
    pub fn after(deleted: u64) -> Self {
        DeletePlan { reserved: AtomicU64::new(deleted), ..DeletePlan::default() }
    }

    /// Adds names of one directory.
    pub fn add(&self, path: &RelPath, names: &[CString]) {
        let done = self.write(path, names);
        if let Err(error) = done {
            lock(&self.error).get_or_insert(error);
        }
    }

    fn write(&self, path: &RelPath, names: &[CString]) -> io::Result<()> {
        let mut spool = lock(&self.spool);
        if spool.is_none() {
            *spool = Some(BufWriter::new(tempfile::tempfile()?));
        }
        let out = spool.as_mut().expect("it was opened above");
        write_bytes(out, path.as_bytes())?;
        out.write_all(&(names.len() as u64).to_le_bytes())?;
        names.iter().try_for_each(|name| write_bytes(out, name.to_bytes()))
    }

    /// Takes `entries`, which lie below something else that goes, off what may be deleted; false if that is too much.
    pub fn reserve(&self, entries: u64, run: &Run<'_>) -> bool {
        let guard = Guard { limit: run.options.delete_limit };
        let reserved = self.reserved.fetch_add(entries, Relaxed) + entries;
        let unseen = self.unseen.fetch_add(entries, Relaxed) + entries;
        let fits = guard.check(reserved, seen_of_replica(run) + unseen).is_ok();
        if !fits {
            self.reserved.fetch_sub(entries, Relaxed);
        }
        fits
    }

    /// The finished plan, if there is any.
    fn finished(&self) -> io::Result<Option<File>> {
        if let Some(error) = lock(&self.error).take() {
            return Err(error);
        }
        let writer = lock(&self.spool).take();
        writer.map(|writer| writer.into_inner().map_err(io::IntoInnerError::into_error)).transpose()
    }

    /// Takes the plan apart: each directory with its names.
    pub fn for_each(&self, each: &mut dyn FnMut(RelPath, Vec<CString>)) -> io::Result<()> {
        self.finished()?.map_or(Ok(()), |file| records(&file, each))
    }

    /// Judges the plan, and if it passes, puts it into the queue by `work`, which carries out what is in the queue.
    pub fn carry_out(&self, run: &Run<'_>, work: &mut dyn FnMut()) -> Result<(), PlanError> {
        let Some(file) = self.finished()? else { return Ok(()) };
        let guard = Guard { limit: run.options.delete_limit };
        if guard.limit.is_some() {
            let (mut deletes, mut unseen) = (self.reserved.load(Relaxed), self.unseen.load(Relaxed));
            records(&file, &mut |path, names| {
                let (goes, below) = count(run, &path, &names);
                deletes += goes;
                unseen += below;
            })?;
            guard.check(deletes, seen_of_replica(run) + unseen)?;
        }
        let mut queued = 0;
        records(&file, &mut |path, names| {
            run.queue.push(Task::Delete(path, names));
            queued += 1;
            if queued % QUEUED_MAX == 0 {
                work();
            }
        })?;
        work();
        Ok(())
    }
}

/// Entries of the replica that the walk has come by, what was removed before included.
fn seen_of_replica(run: &Run<'_>) -> u64 {
    run.tally.counts().replica_seen + run.options.deleted_before
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
    #[error("cannot keep the plan of deletes in a temporary file: {0}; nothing was deleted")]
    Spool(#[from] io::Error),
}

/// How many entries go with `names` of the directory at `path`, and how many lie below these.
fn count(run: &Run<'_>, path: &RelPath, names: &[CString]) -> (u64, u64) {
    let dir = run.roots.1.as_ref().and_then(|root| descend(root, path).ok());
    let Some(dir) = dir else { return (names.len() as u64, 0) };
    let spared = run.options.spared(path);
    names.iter().map(|name| dir.count_tree(name, u64::MAX, spared)).fold((0, 0), |(goes, below), counted| {
        // What cannot be told counts as one, as what could not be looked at does.
        (goes + counted.entries, below + counted.met.saturating_sub(1))
    })
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
    let Some(len) = read_number(input)? else { return Ok(None) };
    let mut bytes = vec![0; len as usize];
    input.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}
