//! Cycles of snapshots beside live changes: what differs between two snapshots is a second word
//! about the source.
//!
//! The replica follows the source as it is now, and is equal to no snapshot, so it gets none, and
//! none is read: what a cycle finds becomes dirty like what is heard. What it finds, no detector
//! has told of and the replica lacks was missed. Nothing of it outlives the process: all is compared
//! when the next begins.

use super::Live;
use super::cycle::Stage;
use crate::dirty::{Circumstance, DIRTY_PATHS_MAX, reaches};
use crate::hands::Outcome;
use crate::snapshots::Task;
use driftless_model::{Change, RelPath, Scope};
use driftless_state::mirror::{RunCounts, RunKind};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a cycle has found and no other detector had told of, as long as nobody has looked at it.
#[derive(Debug, Default)]
pub(super) struct Untold(BTreeMap<RelPath, Scope>);

impl Untold {
    fn found(&mut self, change: &Change) {
        if self.0.len() < DIRTY_PATHS_MAX {
            let scope = self.0.entry(change.path.clone()).or_insert(change.scope);
            *scope = change.scope.max(*scope);
        }
    }

    /// A detector has told of it after all.
    pub(super) fn told(&mut self, path: &RelPath) {
        self.0.remove(path);
    }

    /// Paths were looked at, and of these some were changed; how many of them nobody had told of.
    fn looked_at<'a>(
        &mut self,
        paths: impl Iterator<Item = &'a RelPath>,
        changed: &[RelPath],
    ) -> u64 {
        let found: Vec<(RelPath, Scope)> =
            paths.filter_map(|path| self.0.remove_entry(path)).collect();
        let is_found = |at: &&RelPath| {
            let mut found = found.iter();
            found.any(|(path, scope)| reaches((path, *scope), at))
        };
        changed.iter().filter(is_found).count() as u64
    }
}

impl Live {
    /// Does what is next with snapshots; whether lanes may work. They wait for the first snapshot
    /// alone: what nobody hears of and happens from then on shows in the next.
    pub(super) fn turn_beside(&mut self, now: Duration) -> bool {
        let cycle = self.cycle.as_mut().expect("it is beside");
        let is_left = self.dirty.waits_since(cycle.found_at);
        match cycle.stage {
            Stage::Idle if now >= cycle.next => cycle.begin(now),
            Stage::Made(_) => self.take_found(now),
            Stage::Copying if !is_left => {
                cycle.stage = Stage::Finishing;
                let name = cycle.snapshot.clone().expect("it was made");
                cycle.ask(Task::Finish { name });
            }
            // What is left has failed, and is tried again now and then.
            Stage::Copying if now >= cycle.next => self.give_up_cycle(now),
            Stage::Idle | Stage::Making | Stage::Copying | Stage::Saving | Stage::Finishing => {}
        }
        self.cycle.as_ref().is_none_or(|cycle| cycle.is_read)
    }

    /// What differs from the snapshot before is dirty, and is compared with the source as it is.
    fn take_found(&mut self, now: Duration) {
        let cycle = self.cycle.as_mut().expect("it has a stage");
        let Stage::Made(made) = std::mem::replace(&mut cycle.stage, Stage::Copying) else {
            unreachable!("a snapshot was made")
        };
        let before = cycle.snapshot.replace(made.name);
        (cycle.at, cycle.found_at, cycle.is_read) = (made.at, now, true);
        (cycle.counts, cycle.failed) = (RunCounts::default(), None);
        self.memory.begin_run(RunKind::Cycle, now);
        if made.changes == [Change::subtree(RelPath::root())] {
            // With none before there is nothing to tell: all is compared at the beginning.
            if before.is_some() {
                self.walk(now);
            }
            return;
        }
        self.status.heard(made.changes.len(), 0);
        for change in made.changes {
            // Who has heard of a rename has followed it.
            let change = Change {
                hint: None,
                ..change
            };
            if !self.dirty.has_heard_of(&change.path) {
                self.cycle
                    .as_mut()
                    .expect("it is beside")
                    .untold
                    .found(&change);
            }
            self.add(now, change, Circumstance::default());
        }
    }

    /// Counts what a cycle has found that a live detector should have told of.
    pub(super) fn count_missed(&mut self, outcome: &Outcome) {
        let Some(cycle) = self.cycle.as_mut().filter(|cycle| cycle.is_beside) else {
            return;
        };
        let missed = cycle
            .untold
            .looked_at(outcome.taken.paths.keys(), &outcome.changed);
        cycle.counts.missed += missed;
        self.walked.missed += missed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_and_nobody_had_told_of_was_missed() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        let mut untold = Untold::default();
        for change in [
            Change::entry(path("a")),
            Change::entry(path("told")),
            Change::subtree(path("d")),
            Change::names(path("n")),
            Change::entry(path("equal")),
        ] {
            untold.found(&change);
        }
        untold.told(&path("told"));
        let looked_at = ["a", "told", "d", "n", "equal", "other"].map(path);
        let changed = ["a", "told", "d/x/y", "n/x", "n/x/y", "other"].map(path);
        assert_eq!(untold.looked_at(looked_at.iter(), &changed), 3);
        assert_eq!(untold.looked_at(looked_at.iter(), &changed), 0, "once");
    }
}
