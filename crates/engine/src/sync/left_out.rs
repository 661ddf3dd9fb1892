//! Names in the root of the source that no listing shows: snapshots of the tree, and removed entries.
//!
//! A run copies none of them, and succeeds. A caller that removes the source after the run would lose
//! them, and asks to have them reported.

use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use driftless_model::{SNAPSHOTS, Side, TRASH};
use driftless_mover::Trouble;
use std::sync::Arc;

/// Refusal of such a name.
const SET_ASIDE: &str = "driftless keeps snapshots and removed entries under this name in a root, and copies none of them; rename the entry";

impl Worker<'_> {
    /// Reports the entries of the root of the source that a run leaves out in silence, if the caller asks
    /// for it.
    pub fn report_left_out(&mut self, visit: &Arc<Visit>) {
        let options = self.run.options;
        if !options.refuses_set_aside || visit.parent.is_some() || visit.pass() > 0 {
            return;
        }
        for name in [SNAPSHOTS, TRASH] {
            let trouble = match visit.source.look(name) {
                Ok(_) => Trouble::Barred(Side::Source, SET_ASIDE),
                Err(fault) if fault.is_missing() => continue,
                Err(fault) => Trouble::Failed(fault),
            };
            add(&self.run.tally.seen, 1);
            self.account_trouble(visit, name, trouble);
        }
    }
}
