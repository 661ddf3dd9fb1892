//! Cycles of snapshots beside live changes: what differs between two snapshots is a second word
//! about the source.
//!
//! The replica follows the source as it is now, and is equal to no snapshot, so it gets none, and
//! none is read: what a cycle finds becomes dirty like what is heard. What it finds, no detector
//! has told of and the replica lacks was missed. Nothing of it outlives the process: all is compared
//! when the next begins.

use super::Live;
use super::cycle::Stage;
use crate::dirty::Circumstance;
use crate::hands::Outcome;
use crate::snapshots::Task;
use driftless_model::{Change, RelPath};
use driftless_state::mirror::{RunCounts, RunKind};
use std::time::Duration;

impl Live {
    /// Does what is next with snapshots; whether lanes may work. They wait for the first snapshot
    /// alone: what nobody hears of and happens from then on shows in the next.
    pub(super) fn turn_beside(&mut self, now: Duration) -> bool {
        let cycle = self.cycle.as_mut().expect("it is beside");
        let is_left = self.dirty.waits_since(cycle.found_at);
        match cycle.stage {
            Stage::Idle if now >= cycle.next => cycle.begin(now, None),
            Stage::Made(_) => self.take_found(now),
            Stage::Copying if !is_left => {
                cycle.stage = Stage::Finishing;
                let name = cycle.snapshot.clone().expect("it was made");
                cycle.ask(Task::Finish { name });
            }
            // What is left has failed, and is tried again now and then.
            Stage::Copying if now >= cycle.next => self.give_up_cycle(now),
            Stage::Idle
            | Stage::Making { .. }
            | Stage::Copying
            | Stage::Saving
            | Stage::Finishing => {}
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
