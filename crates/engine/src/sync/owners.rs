//! Which owners an ordinary user can give, and what he does without.

use driftless_model::{Act, Fault, Keep, Meta, SETGID, SETUID, Side, What, errno};
use driftless_reconcile::Step;
use driftless_tree::Rights;

/// Which owners can be given on the replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owners {
    /// All, or their lack is a problem.
    All,
    /// The user's own, and his groups.
    Own(Rights),
}

impl Owners {
    /// What the user who acts on the replica may do, unless owners were demanded.
    pub fn of(rights: Option<&Rights>, keep: &Keep) -> Owners {
        let own = rights.filter(|rights| !keep.demands_owners && !rights.any_owner);
        own.cloned().map_or(Owners::All, Owners::Own)
    }

    /// What the replica's entry, which is now like `there`, can come to have of its source. One
    /// that `stays` can neither be given away, where it is somebody else's, nor be made anew. A
    /// set-id bit is not kept without the user or group that it stands for, and not where the
    /// kernel would drop it, because the user is not of the group (chmod(2)).
    pub fn attainable(&self, source: &Meta, there: &Meta, keep: &Keep, stays: bool) -> Meta {
        let Owners::Own(rights) = self else {
            return *source;
        };
        let is_given = there.uid != rights.uid && stays;
        let keeps_user =
            !keep.owner || source.uid == there.uid || source.uid == rights.uid && !is_given;
        let keeps_group =
            !keep.group || source.gid == there.gid || rights.may_give_to(source.gid) && !is_given;
        let lends_group = !keep.group || there.mode & SETGID != 0 || rights.may_give_to(source.gid);
        let mut attainable = *source;
        if !keeps_user {
            (attainable.uid, attainable.mode) = (there.uid, attainable.mode & !SETUID);
        }
        if !keeps_group {
            attainable.gid = there.gid;
        }
        if !keeps_group || !lends_group {
            attainable.mode &= !SETGID;
        }
        attainable
    }

    /// An ordinary user cannot give himself what belongs to somebody else, but he can make it anew.
    pub fn takes_over(&self, step: Step, there: &Meta) -> Step {
        match (self, step) {
            (Owners::Own(rights), Step::Meta(what))
                if there.uid != rights.uid && (what.has(What::OWNER) || what.has(What::GROUP)) =>
            {
                Step::Anew(what)
            }
            _ => step,
        }
    }

    /// Whether this is what an ordinary user does without.
    pub fn do_without(&self, fault: &Fault) -> bool {
        matches!(self, Owners::Own(_))
            && fault.side == Side::Replica
            && fault.errno == errno::EPERM
            && matches!(fault.act, Act::SetOwner | Act::SetGroup)
    }
}
