//! Whether what was made equal is what its name leads to when the run is over.
//!
//! A run works on the directory that it has opened, wherever that is moved meanwhile. Who then finds another one at the replica's path, or
//! none, must not read that all is equal.

use crate::run::Run;
use driftless_model::{Act, Class, Fault, Meta, RelPath, Side};
use driftless_reconcile::{Agreement, mtimes};
use driftless_tree::{HandlePool, Place};

impl Run<'_> {
    /// Looks once more where the replica's path leads to, and reports what is not as the run leaves it.
    pub fn look_again_at_root(&self) {
        const ESTALE: i32 = 116;
        // What is known of a single file is the directory that it is in.
        let Some(root) = self.roots.1.as_ref().filter(|_| !self.stopped() && !self.is_single) else { return };
        match self.options.replica.locate(Side::Replica, &HandlePool::new(1)) {
            Ok(Place::Dir(now)) if now.first_meta().id() == root.first_meta().id() => self.report_touched(now.first_meta()),
            _ if self.options.replica.lost().is_some() => {}
            _ => self.problem(RelPath::root(), Fault { side: Side::Replica, act: Act::FindAgain, errno: ESTALE }, Class::Skip),
        }
    }

    /// A lock and a mark that are files touch the time of their directory, and only its owner and root can put it back (utimensat(2)).
    fn report_touched(&self, now: &Meta) {
        const EPERM: i32 = 1;
        let is_others = self.rights.as_ref().is_some_and(|rights| !rights.any_owner && rights.uid != now.uid);
        if !is_others || !self.options.keep.times || self.options.dry_run {
            return;
        }
        let source = self.roots.0.first_meta();
        if mtimes(source, now, self.options.keep.modify_window) == Agreement::Other {
            self.problem(RelPath::root(), Fault { side: Side::Replica, act: Act::SetTimes, errno: EPERM }, Class::Partly);
        }
    }
}
