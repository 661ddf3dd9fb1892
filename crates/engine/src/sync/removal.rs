//! The plan of deletes, judged as a whole and carried out.

use crate::sync::deletes::{Finished, PlanError};
use crate::sync::run::Run;
use crate::sync::task::Task;
use crate::trees::precautions::refuse_doubt;
use driftless_model::{Class, RelPath};
use driftless_reconcile::{Guard, Refusal};
use driftless_tree::descend_mut;
use std::ffi::CString;

/// Items that are in the queue at a time.
const QUEUED_MAX: usize = 1024;

impl Run<'_> {
    /// Takes `entries`, which lie below something else that goes, off what may be deleted; false if
    /// that is too much.
    pub fn reserve(&self, entries: u64) -> bool {
        self.deletes
            .reserve(entries, self.guard(), || seen_of_replica(self))
    }

    fn guard(&self) -> Guard {
        Guard {
            limit: self.options.policy.delete_limit,
        }
    }

    /// Judges the plan, and if it passes, puts it into the queue by `work`, which carries out what
    /// is in the queue.
    pub fn carry_out_deletes(&self, work: &mut dyn FnMut()) -> Result<(), PlanError> {
        let Some(plan) = self.judged_plan()? else {
            return Ok(());
        };
        let mut queued = 0;
        plan.for_each(&mut |path, names| {
            self.queue.push(Task::Delete(path, names));
            queued += 1;
            if queued % QUEUED_MAX == 0 {
                work();
            }
        })?;
        work();
        self.report_left();
        Ok(())
    }

    /// The finished plan, if there is any and it passes, together with what lies in directories
    /// that wait to be replaced.
    fn judged_plan(&self) -> Result<Option<Finished>, PlanError> {
        let (plan, guard) = (self.deletes.finished()?, self.guard());
        self.refuse_emptied(plan.is_some())?;
        if guard.limit.is_none() {
            return Ok(plan);
        }
        let (mut deletes, mut unseen) = self.deletes.reserved();
        let mut add = |path: RelPath, names: Vec<CString>| {
            let (goes, below) = count(self, &path, &names);
            deletes += goes;
            unseen += below;
        };
        plan.iter().try_for_each(|plan| plan.for_each(&mut add))?;
        let displaced = self.displaced();
        // What was counted until then is not the plan.
        if self.stopped() {
            return Ok(None);
        }
        guard.check(
            deletes + displaced,
            seen_of_replica(self) + unseen + displaced,
        )?;
        self.deletes.pass(deletes, unseen);
        Ok(plan)
    }

    /// What was no doubt when the trees were opened may be one now: the source was emptied
    /// meanwhile.
    fn refuse_emptied(&self, has_deletes: bool) -> Result<(), PlanError> {
        let (source, replica) = &self.roots;
        let replica = replica
            .as_ref()
            .filter(|_| has_deletes && self.options.applies());
        let doubt = replica.map(|replica| refuse_doubt(self.options, source, replica));
        match doubt {
            // Each name is looked at once more, and what fails then is told.
            Some(Err(Refusal::UnreadableSource(_))) | None => Ok(()),
            Some(doubt) => Ok(doubt?),
        }
    }

    /// A directory that the source does not have any more, and the replica still has, was removed
    /// too late for this run.
    fn report_left(&self) {
        let root = self.roots.1.as_ref().expect("deletes need a replica");
        for (path, fault) in self.deletes.take_left() {
            if !self.stopped() && !descend_mut(root, &path).is_err_and(|fault| fault.is_absent()) {
                self.problem(path, fault, Class::Changing);
            }
        }
    }
}

/// Entries of the replica that the walk has come by, what was removed before included.
fn seen_of_replica(run: &Run<'_>) -> u64 {
    run.tally.counts().replica_seen + run.options.deleted_before
}

/// How many entries go with `names` of the directory at `path`, and how many lie below these.
fn count(run: &Run<'_>, path: &RelPath, names: &[CString]) -> (u64, u64) {
    let dir = run
        .roots
        .1
        .as_ref()
        .and_then(|root| descend_mut(root, path).ok());
    let Some(dir) = dir else {
        return (names.len() as u64, 0);
    };
    run.with_spared(path, |spared| {
        names
            .iter()
            .map(|name| dir.count_tree(name, u64::MAX, spared))
            .fold((0, 0), |(goes, below), counted| {
                // What cannot be told counts as one, as what could not be looked at does.
                (
                    goes + counted.entries,
                    below + counted.met.saturating_sub(1),
                )
            })
    })
}
