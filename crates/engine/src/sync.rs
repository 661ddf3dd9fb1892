//! One run from its beginning to its end: open, lock, walk, delete, make durable, sum up.

pub mod begin;
pub mod borrowed;
pub mod changing;
pub mod closed;
pub mod comparisons;
pub mod delete;
pub mod deletes;
pub mod doubt;
pub mod ending;
pub mod entered;
pub mod entries;
pub mod entry;
pub mod extras;
pub mod files;
pub mod finish;
pub mod foretold;
pub mod frozen;
pub mod further;
pub mod ground;
pub mod grouped;
pub mod hashes;
pub mod kept;
mod left_out;
pub mod lending;
pub mod links;
pub mod listed;
pub mod moments;
pub mod namesakes;
pub mod narrowing;
pub mod nested;
pub mod open;
pub mod owners;
pub mod pending;
pub mod protect;
pub mod protected;
pub mod relocate;
pub mod removal;
pub mod renamed;
pub mod room;
pub mod root;
pub mod run;
pub mod shown_names;
pub mod spelling;
pub mod stages;
pub mod stood;
pub mod stored;
pub mod submit;
pub mod task;
pub mod trash;
pub mod twice;
pub mod unkept;
pub mod unmounted;
pub mod visit;
pub mod walk;
pub mod whereabouts;
pub mod worker;

use crate::clock::{Clock, MachineClock};
use crate::monitor::Monitor;
use crate::options::Options;
use crate::sync::ending::{End, Summary, end_run, or_cut_off};
use crate::sync::ground::Ground;
use crate::sync::open::{Trees, watched};
use crate::sync::root::{tell_hidden, tell_root};
use crate::sync::run::Run;
use crate::sync::stages::{delete, go_through, try_postponed};
use crate::sync::visit::{Sides, Visit};
use crate::tally::WHOLE_WALK;
use crate::trees::changes::Changes;
use crate::trees::error::RunError;
use crate::trees::locks::{Locks, hold};
use crate::trees::marks::tell_source;
use crate::trees::replica::Replica;
use crate::trees::roots::{Roots, open_roots};
use driftless_model::{RelPath, Scope, Selection, Work, Xattrs};
use driftless_pool::descriptors;
use driftless_tree::{DirMutRef, DirRef, HandlePool};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Makes the replica equal to the source. A connection that is lost is an end ([`End::CutOff`]),
/// however early.
pub fn sync(
    options: &Options,
    monitor: &dyn Monitor,
    stop: &AtomicBool,
) -> Result<Summary, RunError> {
    sync_by(&MachineClock, options, monitor, stop)
}

/// Makes the replica equal to the source, by this clock as far as movers of earlier runs are given
/// time.
pub fn sync_by(
    clock: &dyn Clock,
    options: &Options,
    monitor: &dyn Monitor,
    stop: &AtomicBool,
) -> Result<Summary, RunError> {
    let began = Instant::now();
    let outside = Outside {
        monitor,
        stop,
        clock,
    };
    or_cut_off(try_sync(options, &outside), options, |end| {
        Summary::of_nothing(began.elapsed(), end)
    })
}

fn try_sync(options: &Options, outside: &Outside<'_>) -> Result<Summary, RunError> {
    let (directories, mut threads_max) = descriptors();
    if let Some(carrier) = &options.carrier {
        carrier.check()?;
        // A program's standard error and its private directory want descriptors, too.
        threads_max = threads_max.div_ceil(2);
    }
    let pool = HandlePool::new(directories);
    match open_roots(options, &pool)? {
        Roots::Trees { source, replica } => {
            sync_trees(options, outside, (source, replica), threads_max)
        }
        Roots::Entries { source, replica } => {
            sync_entry(options, outside, (source, replica), threads_max)
        }
    }
}

/// What a run is given from outside.
struct Outside<'a> {
    monitor: &'a dyn Monitor,
    stop: &'a AtomicBool,
    clock: &'a dyn Clock,
}

fn sync_trees(
    options: &Options,
    outside: &Outside<'_>,
    (source, replica): (DirRef, Replica),
    threads_max: usize,
) -> Result<Summary, RunError> {
    let monitor = outside.monitor;
    let above = match &replica {
        Replica::Missing(above, _) if !options.applies() => Some(above.clone()),
        _ => None,
    };
    let trees = Trees::between(
        options,
        (monitor, outside.clock),
        (source, replica),
        threads_max,
    )?;
    let (source, replica) = trees.ground().roots.clone();
    let mut run = Run::new(options, monitor, outside.stop, trees.ground().clone());
    run.above = above;
    run.basis_since = trees.doubt_of_basis(monitor)?;
    run.within(trees.changes().as_ref());
    tell_source(options, (&source, false), monitor);
    tell_hidden(&run);
    if let Some(replica) = replica
        .as_ref()
        .filter(|_| !trees.is_made() && !options.compares())
    {
        tell_root(&run, source.first_meta(), replica);
    }
    let selection = options
        .selection
        .clone()
        .unwrap_or_else(|| Arc::new(Selection::all()));
    let visit = trees.root(&run, selection)?;
    let (end, done) = trees.through(&mut run, visit);
    run.look_again_at_roots();
    let summary = end_run(&run, end);
    run.changes
        .as_ref()
        .map_or(Ok(()), |changes| changes.outcome())?;
    // What was done before the line was lost is not forgotten.
    if matches!(summary.end, End::CutOff(_)) {
        Ok(summary)
    } else {
        done.map(|()| summary)
    }
}

/// A single file, symbolic link or node: its directory is only borrowed.
fn sync_entry(
    options: &Options,
    outside: &Outside<'_>,
    (source, replica): ((DirRef, CString), (DirMutRef, CString)),
    threads_max: usize,
) -> Result<Summary, RunError> {
    let (monitor, (source_dir, name)) = (outside.monitor, source);
    let locks = if !options.applies() {
        Locks::default()
    } else {
        hold(options, &replica.0, Some(&replica.1))?
    };
    let changes = Changes::of(options, &replica.0, Some(&replica.1), &locks)?;
    let replica_dir = replica.0;
    let mut run = Run::new(
        options,
        monitor,
        outside.stop,
        Ground::of(options, (source_dir.clone(), Some(replica_dir.clone()))),
    );
    (run.is_single, run.renamed) = (true, Some(replica.1.clone()));
    let (changes, _watch) = watched(options, changes, monitor);
    run.within(Some(&changes));
    tell_source(options, (&source_dir, true), monitor);
    tell_hidden(&run);
    let path = RelPath::from_names([name.to_bytes()]);
    let selection = Arc::new(Selection::of(&[Work {
        path,
        scope: Scope::Entry,
    }]));
    let before = Some((*replica_dir.first_meta(), Xattrs::default()));
    let sides = Sides {
        source: source_dir,
        replica: Some(replica_dir),
        before,
    };
    let visit = Visit::root(sides, selection, WHOLE_WALK).borrow_for(replica.1);
    let postponing = run.allow_postponing();
    go_through(&run, visit, threads_max);
    let end = delete(&run, threads_max);
    let tried = try_postponed(&mut run, postponing, threads_max);
    let summary = end_run(&run, end);
    run.changes
        .as_ref()
        .map_or(Ok(()), |changes| changes.outcome())?;
    if matches!(summary.end, End::CutOff(_)) {
        Ok(summary)
    } else {
        tried.map(|()| summary)
    }
}
