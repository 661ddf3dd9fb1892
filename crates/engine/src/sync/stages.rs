//! The stages of a run, each of which has threads work off a queue: the walk, the deletes, and what
//! had no room before these.

use crate::sync::begin::begin_root;
use crate::sync::deletes::PlanError;
use crate::sync::ending::End;
use crate::sync::run::{Postponing, Run};
use crate::sync::task::Task;
use crate::sync::visit::Visit;
use crate::tally::add;
use crate::trees::error::RunError;
use driftless_model::{Kind, RelPath, Scope, Selection, Work};
use driftless_tree::descend;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

/// Goes through everything below `visit`, and then through the hard links that would have taken too
/// much memory to wait for.
pub fn walk(run: &mut Run<'_>, visit: Visit, threads_max: usize) -> Result<(), RunError> {
    go_through(run, visit, threads_max);
    look_at_put_off(run, threads_max)
}

fn look_at_put_off(run: &mut Run<'_>, threads_max: usize) -> Result<(), RunError> {
    while !run.stopped() {
        let paths = run.take_put_off();
        if paths.is_empty() {
            break;
        }
        look_again_at(run, paths, threads_max)?;
    }
    Ok(())
}

/// Goes through these paths once more. The directories that lead there were counted before.
fn look_again_at(
    run: &mut Run<'_>,
    paths: Vec<RelPath>,
    threads_max: usize,
) -> Result<(), RunError> {
    let works: Vec<Work> = paths
        .into_iter()
        .map(|path| Work {
            path,
            scope: Scope::Subtree,
        })
        .collect();
    run.is_second = true;
    let visit = begin_root(run, Selection::of(&works), 0)?;
    add(&run.tally.seen, u64::from(!visit.borrowed));
    go_through(run, visit, threads_max);
    run.is_second = false;
    Ok(())
}

/// Goes through everything below `visit`. Hard-link groups none of whose names was there come last:
/// then it is known.
pub fn go_through(run: &Run<'_>, visit: Visit, threads_max: usize) {
    run.queue.push(Task::Again(Arc::new(visit)));
    run.work_off_queue(threads_max);
    loop {
        let elected = run.links.elect();
        if elected.is_empty() || run.stopped() {
            return;
        }
        elected
            .into_iter()
            .for_each(|(visit, name)| run.queue.push(Task::Waiter(visit, name)));
        run.work_off_queue(threads_max);
    }
}

/// Carries out the plan of deletes.
pub fn delete(run: &Run<'_>, threads_max: usize) -> End {
    if run.stopped() {
        return End::Stopped;
    }
    match run.carry_out_deletes(&mut || run.work_off_queue(threads_max)) {
        Ok(()) => End::Complete,
        Err(error @ PlanError::Refused(_)) => End::Refused(without(&error, run)),
        Err(error @ PlanError::Spool(_)) => End::NoPlan(without(&error, run)),
    }
}

/// Why the plan of deletes was not carried out, and how many entries were removed outside of it.
fn without(error: &PlanError, run: &Run<'_>) -> String {
    let before = match run.options.deleted_before {
        0 => String::new(),
        deleted => format!(", but for {deleted} before the connection was lost"),
    };
    let displaced = match run.tally.counts().deleted {
        0 => String::new(),
        deleted => format!(", but for {deleted} in directories that were replaced"),
    };
    format!("{error}{before}{displaced}")
}

/// Tries again what there was no room for: all at once after deletes, and what does not fit then, or
/// where nothing was deleted, once more by one thread, the smallest first. An entry that fails gives
/// back the room that others lacked.
pub fn try_postponed(
    run: &mut Run<'_>,
    postponing: Postponing,
    threads_max: usize,
) -> Result<(), RunError> {
    let mut paths = run.postponed(postponing);
    if paths.is_empty() || run.stopped() || run.roots.1.is_none() {
        return Ok(());
    }
    if run.tally.counts().deleted > 0 || run.options.policy.delete_limit.is_some() {
        run.postpone_again();
        look_again_at(run, paths, threads_max)?;
        paths = run.postponed_again();
    }
    for paths in by_size(run, paths) {
        look_again_at(run, paths, 1)?;
    }
    look_at_put_off(run, threads_max)
}

/// Divides paths by the size of what the source has there, from small to large: those within a
/// power of two are one part.
fn by_size(run: &Run<'_>, paths: Vec<RelPath>) -> Vec<Vec<RelPath>> {
    let mut parts = BTreeMap::<u32, Vec<RelPath>>::new();
    for path in paths {
        let part =
            size_of(run, &path).map_or(0, |size| size.checked_ilog2().map_or(0, |log| log + 1));
        parts.entry(part).or_default().push(path);
    }
    parts.into_values().collect()
}

/// Returns the size of the source's file at a path; `None` for anything else.
fn size_of(run: &Run<'_>, path: &RelPath) -> Option<u64> {
    let (dir, name) = path.split_last()?;
    let name = CString::new(name).ok()?;
    let meta = descend(&run.roots.0, &dir).ok()?.look(&name).ok()?;
    (meta.kind == Kind::File).then_some(meta.size)
}
