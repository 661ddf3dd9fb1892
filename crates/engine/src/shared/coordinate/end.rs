//! What only the whole run can decide: done by the coordinator alone, when all batches are settled.

use super::Coordinator;
use crate::shared::handed::Handed;
use crate::shared::names::handed_on;
use crate::shared::noted::unfinished;
use crate::shared::plan::LINK_NAMES_MAX;
use crate::shared::role::{Left, Part};
use crate::sync::begin::begin_root;
use crate::sync::ending::{Summary, end_run};
use crate::sync::ground::Ground;
use crate::sync::run::Run;
use crate::sync::stages::{delete, try_postponed, walk};
use crate::tally::Counts;
use crate::trees::error::RunError;
use driftless_model::{RelPath, Scope, Selection, Work};
use driftless_state::{LinkName, Rows, StateError};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Names that are given to the plan of deletes at a time.
const EXTRAS: usize = 1000;

impl Coordinator<'_> {
    /// Links names, deletes, tries again what there was no room for, and finishes directories.
    pub(super) fn end_here(&mut self) -> Result<Summary, RunError> {
        let mut run = Run::new(
            self.options,
            self.monitor,
            self.stop,
            Ground::of(self.options, self.roots.clone()),
        );
        run.is_single = self.single.is_some();
        (run.renamed, run.started) = (
            self.single.as_ref().map(|(_, renamed)| renamed.clone()),
            self.started,
        );
        (run.rules.suspect_since, run.changes) =
            (self.brief.suspect_since(), Some(self.changes.clone()));
        run.tally.add(&self.total);
        let handed = Arc::new(handed_on(self.record)?);
        run.part = Part::End(Left {
            handed: handed.clone(),
            ..Left::default()
        });
        let postponing = run.allow_postponing();
        self.link_names(&mut run)?;
        self.plan_deletes(&mut run)?;
        let mut no_room = self.record.no_room();
        while let Some(path) = no_room.next_row()? {
            run.postpone_all([path].into_iter());
        }
        let mut mounts = self.record.mounts();
        while let Some(path) = mounts.next_row()? {
            run.mounts.add([path]);
        }
        let end = delete(&run, self.threads_max);
        try_postponed(&mut run, postponing, self.threads_max)?;
        self.finish_directories(&mut run, handed)?;
        run.look_again_at_roots();
        let summary = end_run(&run, end);
        run.changes
            .as_ref()
            .map_or(Ok(()), |changes| changes.outcome())?;
        Ok(summary)
    }

    /// Makes the names of files that have several links to each other.
    fn link_names(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let mut names = self.record.links();
        while !run.stopped() {
            let (works, groups) = next_groups(&mut names)?;
            if works.is_empty() {
                break;
            }
            let before = run.tally.counts();
            let visit = begin_root(run, Selection::of(&works), 0)?;
            walk(run, visit, self.threads_max)?;
            count_once(run, &before, groups);
        }
        Ok(())
    }

    /// Adds what the source lacks to the plan of deletes.
    fn plan_deletes(&self, run: &mut Run<'_>) -> Result<(), StateError> {
        let mut extras = self.record.extras();
        while let Some((dir, first)) = extras.next_row()? {
            let mut names = vec![CString::from(&first)];
            while names.len() < EXTRAS && extras.peek()?.is_some_and(|(next, _)| *next == dir) {
                names.extend(extras.next_row()?.map(|(_, name)| CString::from(&name)));
            }
            run.deletes.add(&dir, &names);
        }
        Ok(())
    }

    fn finish_directories(&self, run: &mut Run<'_>, handed: Arc<Handed>) -> Result<(), RunError> {
        let (mut left, mut dirs) = (HashMap::new(), self.record.directories());
        while let Some(dir) = dirs.next_row()? {
            let what = unfinished(&dir);
            left.insert(dir.path, what);
        }
        if left.is_empty() || run.stopped() {
            return Ok(());
        }
        let works: Vec<Work> = left
            .keys()
            .map(|path| Work {
                path: path.clone(),
                scope: Scope::Entry,
            })
            .collect();
        let has_root = left.contains_key(&RelPath::root());
        run.part = Part::End(Left { dirs: left, handed });
        run.tally.seen.fetch_add(u64::from(has_root), Relaxed);
        let visit = begin_root(run, Selection::of(&works), 0)?;
        walk(run, visit, self.threads_max)
    }
}

/// The names of the next files, all of each, and how many files these are.
fn next_groups(names: &mut Rows<'_, LinkName>) -> Result<(Vec<Work>, u64), StateError> {
    let (mut works, mut groups, mut group) = (Vec::new(), 0, None);
    while names
        .peek()?
        .is_some_and(|name| works.len() < LINK_NAMES_MAX || group == Some(name.id))
    {
        let Some(name) = names.next_row()? else { break };
        groups += u64::from(group != Some(name.id));
        group = Some(name.id);
        works.push(Work {
            path: name.path,
            scope: Scope::Subtree,
        });
    }
    Ok((works, groups))
}

/// One name of each of so many files was counted when it was made, and is counted again since
/// `before`: as the same, unless a mover that was late has changed it meanwhile.
fn count_once(run: &Run<'_>, before: &Counts, groups: u64) {
    let (tally, now) = (&run.tally, run.tally.counts());
    let mut twice = groups;
    let counters = [
        (&tally.same, now.same - before.same),
        (&tally.changed, now.changed - before.changed),
        (&tally.failed, now.failed - before.failed),
    ];
    for (counter, new) in counters {
        let count = twice.min(new);
        counter.fetch_sub(count, Relaxed);
        tally.seen.fetch_sub(count, Relaxed);
        twice -= count;
    }
}
