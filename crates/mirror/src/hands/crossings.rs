//! What a member leaves to its lead: its host may see other file systems below both trees.

use super::{Ended, Hands, Open, Outcome};
use crate::dirty::Dirty;
use crate::gathered::Gathered;
use crate::pool::Crossings;
use driftless_engine::{MountNotes, Options, RunError, mounted_below};
use driftless_lock::Mutex;
use driftless_model::{Policy, RelPath};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a member misses below its source: also what is, or was, mounted on the host of its lead.
#[derive(Debug)]
pub(super) struct NotesOfPool {
    own: Option<Arc<dyn MountNotes>>,
    lead: Arc<Mutex<Crossings>>,
}

impl NotesOfPool {
    pub(super) fn new(own: Option<Arc<dyn MountNotes>>, lead: Arc<Mutex<Crossings>>) -> Self {
        NotesOfPool { own, lead }
    }
}

impl MountNotes for NotesOfPool {
    fn met(&self, paths: &BTreeSet<RelPath>) {
        self.own.iter().for_each(|own| own.met(paths));
    }

    fn all(&self) -> BTreeSet<RelPath> {
        let mut all = self
            .own
            .as_ref()
            .map_or_else(BTreeSet::new, |own| own.all());
        all.extend(self.lead.lock().of_source().iter().cloned());
        all
    }
}

impl Hands {
    /// Where something is mounted below both trees on this host, or was below the source in an
    /// earlier run.
    pub fn crossings(&self) -> Crossings {
        let options = self.options.read();
        let Some(options) = options.as_ref() else {
            return Crossings::default();
        };
        let mut noted = options.known_mounts.as_ref().clone();
        noted.extend(options.mount_notes.iter().flat_map(|notes| notes.all()));
        crossings_of(options, noted)
    }

    /// Where something is mounted on the host of the lead, which is left to that.
    pub fn leave_to_lead(&self, crossings: Crossings) {
        *self.company.crossings.lock() = crossings;
    }

    /// Makes equal what was taken. A member leaves to its lead what lies where something is mounted
    /// on the host of either. What is mounted may change meanwhile, so it looks before and after.
    pub(super) fn work_where_alike(
        &self,
        (open, policy): (&Open, &Policy),
        outcome: &mut Outcome,
        from: (&Gathered, &AtomicBool),
    ) -> Result<Ended, RunError> {
        if !self.company.is_member() {
            return self.work((&open.trees, policy), outcome, from);
        }
        let before = self.take_apart(open, outcome);
        let end = self.work((&open.trees, policy), outcome, from);
        let after = self.take_apart(open, outcome).into_iter();
        // What this process has made there may have the size and time of the source's.
        let after = after.map(|(path, dirty)| {
            let dirty = Dirty {
                is_doubtful: true,
                ..dirty
            };
            (path, dirty)
        });
        outcome.for_lead = before.into_iter().chain(after).collect();
        outcome.taken.paths.extend(outcome.for_lead.iter().cloned());
        end
    }

    fn take_apart(&self, open: &Open, outcome: &mut Outcome) -> Vec<(RelPath, Dirty)> {
        let own = crossings_of(&open.places, BTreeSet::new());
        let lead = self.company.crossings.lock().clone();
        let is_for_lead = |path: &RelPath, dirty: &Dirty| {
            let are_met = |one: &Crossings| one.are_met(path, dirty.scope);
            are_met(&own) || are_met(&lead)
        };
        let mut apart = Vec::new();
        outcome.taken.paths.retain(|path, dirty| {
            let is_kept = !is_for_lead(path, dirty);
            if !is_kept {
                apart.push((path.clone(), dirty.clone()));
            }
            is_kept
        });
        apart
    }
}

/// Where something is mounted below both trees, and at the further places of the source.
fn crossings_of(options: &Options, noted: BTreeSet<RelPath>) -> Crossings {
    let places = |path: PathBuf| mounted_below(&path).into_iter().map(|(place, _)| place);
    // What is mounted on another host is the same for all that reach the tree there.
    let here = |tree: (bool, PathBuf)| Some(tree.1).filter(|_| tree.0).map(places);
    let (source, replica) = (&options.source, &options.replica);
    let in_source = here((source.host.is_none(), source.plain_path()));
    let in_replica = here((replica.host.is_none(), replica.plain_path()));
    let in_source = in_source.into_iter().flatten().chain(noted);
    Crossings::new(
        in_source.collect(),
        in_replica.into_iter().flatten().collect(),
    )
}
