//! Chosen names that the replica finds and lists under another spelling.
//!
//! Where all names of a directory are known, the first of those that the replica takes for one is
//! kept. Of chosen names the others are not known: so what stands on the replica is kept, and a name
//! that is the same there is a problem of its path. What the source has under no other spelling any
//! more was respelt, and is respelt on the replica.

use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::trees::looks::there;
use driftless_model::Kind;
use driftless_reconcile::{Likeness, likeness};
use driftless_tree::{Done, Names};
use std::ffi::{CStr, CString};

impl Worker<'_> {
    /// Finds out under which other spellings the replica lists chosen names of a directory. Names that
    /// were found in a directory by another mover are no choice.
    pub fn find_shown(&self, visit: &Visit, chosen: &[CString]) -> Done {
        let is_chosen = !self.run.part.found_names(self.run.options);
        let replica = visit
            .replica
            .as_ref()
            .filter(|_| is_chosen && visit.renamed.is_none() && !visit.is_made());
        let shown = match replica {
            Some(replica) => self.run.ground.shown_otherwise(replica, chosen)?,
            None => Vec::new(),
        };
        *visit.namesakes.shown.lock() = shown.into_iter().collect();
        Ok(())
    }

    /// Notes what the spellings under which the replica lists some of `names`, which were chosen and are
    /// sorted, lead to.
    pub fn note_shown(&self, visit: &Visit, names: &Names) {
        let shown = visit.namesakes.shown.lock().clone();
        let shown = shown.iter();
        // What is gone is neither respelt nor the same as another.
        let stands = |name: &CStr| names.contains(name) && !lacks(visit, name);
        for (name, spelling) in shown.filter(|(name, _)| stands(name)) {
            if lacks(visit, spelling) {
                if self.may_respell(visit, (name, spelling)) {
                    let pair = (spelling.clone(), name.clone());
                    visit.namesakes.misspelt.lock().push(pair);
                }
            } else if !names.contains(spelling) && self.takes_shown(visit, spelling) {
                visit.namesakes.add(name.clone(), spelling.clone());
            }
        }
    }

    /// Returns whether the replica finds a name that is gone as another that stays: then nothing goes.
    pub fn is_shown_otherwise(&self, visit: &Visit, name: &CStr) -> bool {
        let spelling = visit.namesakes.shown.lock().get(name).cloned();
        spelling.is_some_and(|spelling| !lacks(visit, &spelling))
    }

    /// Returns whether the rules take what the replica lists under a spelling.
    fn takes_shown(&self, visit: &Visit, spelling: &CStr) -> bool {
        let meta = visit.replica.as_ref().map(|replica| replica.look(spelling));
        let is_dir = meta.is_some_and(|meta| meta.is_ok_and(|meta| meta.kind == Kind::Dir));
        self.run.takes(visit, spelling, is_dir)
    }

    /// Returns whether the replica's entry is given the source's spelling. A file system that stores
    /// Unicode forms of its own would be asked for that each time.
    fn may_respell(&self, visit: &Visit, (name, spelling): (&CStr, &CStr)) -> bool {
        self.run.options.policy.delete
            && likeness(spelling.to_bytes(), name.to_bytes()) == Likeness::Case
            && self.takes_shown(visit, spelling)
    }
}

/// Returns whether the source has no entry of that name.
fn lacks(visit: &Visit, name: &CStr) -> bool {
    matches!(there(visit.source.look(name)), Ok(None))
}
