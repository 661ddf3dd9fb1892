//! Doubt that a run leaves whose lock was taken away: another run may have compared the replica
//! already, and settled the mark, when this one made its last change.

use super::{Begun, Changes};
use crate::trees::marks::Marks;
use driftless_reconcile::Mark;

impl Changes {
    /// Says in the mark, which may be that of another run by now, that what this run has changed is
    /// in doubt.
    pub(super) fn leave_doubt(&self, begun: &Begun) {
        let Some(own) = &begun.own else { return };
        let Some(mut mark) = self.mark_now() else {
            return;
        };
        let before = mark.clone();
        mark.leave_doubt(own);
        if mark != before {
            let _the_error_of_the_run_is_told = self.root.set_mark(&mark.encode(), self.is_durable);
        }
    }

    /// Takes over into `mark` what runs without their locks have left since this one marked the
    /// replica.
    pub(super) fn keep_doubt(&self, begun: &Begun, mark: &mut Mark) {
        if let (Some(told), Some(now)) = (&begun.mark, self.mark_now()) {
            mark.keep_doubt(told, &now);
        }
    }

    /// Returns the mark as it is now, if it is still one of this replica.
    fn mark_now(&self) -> Option<Mark> {
        // A network file system may remember attributes.
        self.root.meta_again().ok()?;
        let mark = Marks::read_own(&self.root, self.scope).ok().flatten();
        mark.filter(|mark| mark.identity == self.found.identity)
    }
}
