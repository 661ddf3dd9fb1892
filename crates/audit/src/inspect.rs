//! Looks at entries of the sample once more, on both sides: what is there, and when it was last
//! changed.
//!
//! An entry that is missing has no times of its own. What was removed or renamed shows in the
//! directory that it is missing from, and, if more than the entry is missing, in the uppermost part
//! that the other side still has.

use crate::monitor::{AuditMonitor, AuditStage, Watch};
use driftless_lock::Mutex;
use driftless_model::{Fault, Meta, RelPath, Stamp};
use driftless_pool::{Concurrency, Queue, Workload, drive};
use driftless_tree::DirRef;
use std::ffi::CString;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Neighbouring paths that one thread looks at, so that directories are entered once.
const CHUNK_PATHS: usize = 64;

/// What stands at a path of one tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// An entry.
    There(Meta),
    /// Nothing: the name at this place of the path, counted from 0, is missing from a directory
    /// that was last changed then.
    Missing(usize, Stamp),
    /// That could not be found out.
    Unknown(Fault),
}

/// An entry of the sample on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// On the source.
    pub source: Found,
    /// On the replica.
    pub replica: Found,
    /// When something about it was last changed, on whichever side, as far as anybody can see.
    pub changed: Stamp,
}

struct Inspection<'a> {
    paths: &'a [&'a RelPath],
    roots: (&'a DirRef, &'a DirRef),
    jobs: Concurrency,
    now: Stamp,
    monitor: &'a dyn AuditMonitor,
    stop: &'a AtomicBool,
    queue: Queue<Range<usize>>,
    done: AtomicUsize,
    seen: Mutex<Vec<(usize, Seen)>>,
}

/// Looks at `paths`, which are sorted, below both roots. Modification times after `now` say
/// nothing. Not all are looked at if the audit is asked to stop.
pub fn inspect(
    paths: &[&RelPath],
    roots: (&DirRef, &DirRef),
    (now, jobs): (Stamp, Concurrency),
    watch: Watch<'_>,
    threads_max: usize,
) -> Vec<Seen> {
    let Watch { monitor, stop } = watch;
    let (done, seen) = (AtomicUsize::new(0), Mutex::default());
    let inspection = Inspection {
        paths,
        roots,
        jobs,
        now,
        monitor,
        stop,
        queue: Queue::new(1),
        done,
        seen,
    };
    for start in (0..paths.len()).step_by(CHUNK_PATHS) {
        inspection
            .queue
            .push(start..paths.len().min(start + CHUNK_PATHS));
    }
    drive(&inspection, threads_max);
    let mut seen = inspection.seen.into_inner();
    seen.sort_unstable_by_key(|(index, _)| *index);
    seen.into_iter().map(|(_, seen)| seen).collect()
}

impl Workload for Inspection<'_> {
    type Item = Range<usize>;

    fn queue(&self) -> &Queue<Range<usize>> {
        &self.queue
    }

    fn concurrency(&self) -> Concurrency {
        self.jobs
    }

    fn work_done(&self) -> u64 {
        self.done.load(Relaxed) as u64
    }

    fn work(&self, index: usize) {
        while let Some(range) = self.queue.take(index) {
            if !self.stop.load(Relaxed) {
                self.look_at(range);
            }
            self.queue.done();
        }
    }

    fn tell(&self, jobs: usize) {
        self.monitor.progress(
            AuditStage::Looking,
            self.work_done(),
            Some(self.paths.len() as u64),
            jobs,
        );
    }
}

impl Inspection<'_> {
    fn look_at(&self, range: Range<usize>) {
        let mut trails = (
            Trail::new(self.roots.0, self.now),
            Trail::new(self.roots.1, self.now),
        );
        let seen: Vec<(usize, Seen)> = range
            .map(|index| (index, look(self.paths[index], &mut trails)))
            .collect();
        self.done.fetch_add(seen.len(), Relaxed);
        self.seen.lock().extend(seen);
    }
}

fn look(path: &RelPath, (source, replica): &mut (Trail, Trail)) -> Seen {
    let names: Vec<CString> = path
        .names()
        .map(|name| CString::new(name).expect("names hold no NUL"))
        .collect();
    let (on_source, on_replica) = (source.find(&names), replica.find(&names));
    let stamps = [source.stamp(&on_source), replica.stamp(&on_replica)];
    let moved = match (on_source, on_replica) {
        (Found::There(_), Found::Missing(at, _)) => source.part(&names, at),
        (Found::Missing(at, _), Found::There(_)) => replica.part(&names, at),
        _ => None,
    };
    let changed = stamps
        .into_iter()
        .chain([moved])
        .flatten()
        .max()
        .unwrap_or_default();
    Seen {
        source: on_source,
        replica: on_replica,
        changed,
    }
}

/// The open directories of the path that was looked at last.
struct Trail {
    root: DirRef,
    below: Vec<(CString, DirRef)>,
    now: Stamp,
}

impl Trail {
    fn new(root: &DirRef, now: Stamp) -> Self {
        Trail {
            root: root.clone(),
            below: Vec::new(),
            now,
        }
    }

    /// The directory that holds the name at place `at` of the last path.
    fn dir(&self, at: usize) -> &DirRef {
        if at == 0 {
            &self.root
        } else {
            &self.below[at - 1].1
        }
    }

    fn find(&mut self, names: &[CString]) -> Found {
        let Some((last, above)) = names.split_last() else {
            return there(self.root.meta());
        };
        let common = self
            .below
            .iter()
            .zip(above)
            .take_while(|(open, name)| open.0 == **name)
            .count();
        self.below.truncate(common);
        for (at, name) in above.iter().enumerate().skip(common) {
            match self.dir(at).enter(name) {
                Ok(dir) => self.below.push((name.clone(), dir)),
                Err(fault) => return self.absent(at, name, fault),
            }
        }
        match self.dir(above.len()).look(last) {
            Ok(meta) => Found::There(meta),
            Err(fault) => self.absent(above.len(), last, fault),
        }
    }

    /// The name at place `at` is missing, or something else than a directory. Then its own times
    /// tell, too.
    fn absent(&self, at: usize, name: &CString, fault: Fault) -> Found {
        if !fault.is_absent() {
            return Found::Unknown(fault);
        }
        let dir = self.dir(at);
        let stamps = [dir.meta(), dir.look(name)]
            .into_iter()
            .flatten()
            .map(|meta| self.changed(&meta));
        Found::Missing(at, stamps.max().unwrap_or_default())
    }

    /// When the part of the path that ends at place `at` was changed; this side has all of the
    /// path.
    fn part(&self, names: &[CString], at: usize) -> Option<Stamp> {
        self.dir(at)
            .look(&names[at])
            .ok()
            .map(|meta| self.changed(&meta))
    }

    fn stamp(&self, found: &Found) -> Option<Stamp> {
        match found {
            Found::There(meta) => Some(self.changed(meta)),
            Found::Missing(_, stamp) => Some(*stamp),
            Found::Unknown(_) => None,
        }
    }

    /// A modification time can be set to anything; one that is yet to come says nothing.
    fn changed(&self, meta: &Meta) -> Stamp {
        if meta.mtime <= self.now {
            meta.mtime.max(meta.ctime)
        } else {
            meta.ctime
        }
    }
}

fn there(meta: Result<Meta, Fault>) -> Found {
    meta.map_or_else(Found::Unknown, Found::There)
}
