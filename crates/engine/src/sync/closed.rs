//! New directories of a run that keeps no modes. They are closed to others (0700) until everything
//! in them is done, and then get the mode of new ones. Where modes are kept, a directory that a
//! run left closed differs from its source, and the next run opens it. Where they are not, nothing
//! would tell it from one that the user has closed; so the topmost ones, in which all else is
//! closed too, are marked until they are finished. Below those, one that has its source's time was
//! finished, and closed by the user.

use crate::options::{Mode, Options};
use crate::sync::narrowing::Narrowing;
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use driftless_model::{Keep, Xattrs};
use driftless_tree::{Attributes, DirMutRef, Done, Known};

/// The permission bits of directories that are not finished.
const CLOSED: u32 = 0o700;

/// Marks a directory that this run has made.
pub fn mark_closed(options: &Options, dir: &DirMutRef) -> Done {
    if options.policy.keep.mode {
        Ok(())
    } else {
        dir.set_unfinished(true)
    }
}

/// Removes an ACL that a new directory took over from the one above: everything in it would take
/// that over, too.
pub fn forget_inherited(dir: &DirMutRef) -> Done {
    let keep = Keep::default();
    if dir.xattrs(&keep)?.is_empty() {
        return Ok(());
    }
    let attributes = Attributes {
        mode: Some(CLOSED),
        xattrs: Some((Xattrs::default(), keep)),
        ..Attributes::default()
    };
    dir.set_own(&Known::default(), &attributes)
        .into_iter()
        .next()
        .map_or(Ok(()), Err)
}

impl Run<'_> {
    /// Returns what narrows a directory that this run may change; `None` if it made the directory, or
    /// only compares. Where modes are not kept, the root of the replica stays as the user made it;
    /// where they are, a dry run tells a narrower mode by the source's alone.
    pub fn narrowing_of(&self, visit: &Visit) -> Option<Narrowing> {
        let (before, _) = visit.before.as_ref()?;
        let keep = self.options.policy.keep;
        let is_due = match self.options.mode {
            Mode::Apply => keep.mode || visit.parent.is_some(),
            Mode::Preview => !keep.mode && visit.parent.is_some(),
            Mode::Compare => false,
        };
        if !is_due {
            return None;
        }
        let source = visit.source.first_meta();
        let attainable = self.attainable(source, before, None::<&DirMutRef>);
        let uid = if keep.owner {
            attainable.uid
        } else {
            before.uid
        };
        let gid = if keep.group {
            attainable.gid
        } else {
            before.gid
        };
        let replica = visit.replica.as_ref();
        let is_user = replica.is_some_and(|replica| replica.user().0 != 0);
        let is_dry = !self.options.applies();
        Some(Narrowing::new(keep, (uid, gid), (is_user, is_dry)))
    }

    /// Finds out whether an earlier run, or another mover, made the replica's directory and did not
    /// finish it.
    pub fn find_closed(&self, visit: &mut Visit) {
        if self.options.policy.keep.mode || !is_private(visit) {
            return;
        }
        let (Some(replica), Some((before, _))) = (&visit.replica, &visit.before) else {
            return;
        };
        let is_a_mover_s = visit.left.is_some_and(|left| left.made);
        let has_time =
            self.options.policy.keep.times && before.mtime == visit.source.first_meta().mtime;
        let is_within = !has_time && visit.parent.as_ref().is_some_and(|parent| parent.closed);
        visit.is_marked = replica.is_unfinished();
        visit.closed = visit.is_marked || is_a_mover_s || is_within;
    }

    /// Says that a directory gets its own mode now. One where modes are kept may have the mark of a
    /// run that kept none.
    pub fn unmark_closed(&self, visit: &Visit) -> Done {
        let Some(replica) = &visit.replica else {
            return Ok(());
        };
        let is_marked = if self.options.policy.keep.mode {
            is_private(visit) && replica.is_unfinished()
        } else {
            visit.is_marked
        };
        if is_marked {
            replica.set_unfinished(false)
        } else {
            Ok(())
        }
    }
}

/// Whether the replica's directory was there, and closed to others.
fn is_private(visit: &Visit) -> bool {
    visit
        .before
        .as_ref()
        .is_some_and(|(before, _)| before.mode & 0o777 == CLOSED)
}
