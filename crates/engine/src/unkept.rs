//! What the replica cannot come to have, without that being a difference: times that its file system cuts, and owners that the user of
//! the run cannot give.
//!
//! Nobody but root may give an entry to somebody else (chown(2)). An ordinary user knows that, and one problem for each file of others, in every run, would hide all else. So what he cannot give is
//! no difference; it is counted, and told once. Where owners were demanded, it is a problem as any other.

use crate::job::DirJob;
use crate::run::Run;
use crate::tally::add;
use crate::worker::Worker;
use driftless_model::{Class, Fault, Keep, Meta, Side, What};
use driftless_reconcile::{Agreement, Grain, Step, mtimes};
use driftless_tree::{DirRef, Rights};
use std::ffi::CStr;

/// Set-id bits are not kept without the owner or group that they stand for.
const SETID_BITS: u32 = 0o6000;

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
    pub fn of(replica: Option<&DirRef>, keep: &Keep) -> Owners {
        let rights = replica.filter(|_| !keep.demands_owners).map(|replica| replica.rights());
        rights.filter(|rights| !rights.any_owner).map_or(Owners::All, Owners::Own)
    }

    /// What the replica's entry, which is now like `there`, can come to have of its source; `None` if that is everything.
    pub fn attainable(&self, source: &Meta, there: &Meta, keep: &Keep) -> Option<Meta> {
        let Owners::Own(rights) = self else { return None };
        let foreign_user = keep.owner && source.uid != rights.uid;
        let foreign_group = keep.group && source.gid != rights.gid && !rights.groups.contains(&source.gid);
        let uid = if foreign_user { there.uid } else { source.uid };
        let gid = if foreign_group { there.gid } else { source.gid };
        (foreign_user || foreign_group).then_some(Meta { uid, gid, mode: source.mode & !SETID_BITS, ..*source })
    }

    /// An ordinary user cannot give himself what belongs to somebody else, but he can make it anew.
    pub fn takes_over(&self, step: Step, there: &Meta) -> Step {
        match (self, step) {
            (Owners::Own(rights), Step::Meta(what)) if there.uid != rights.uid && (what.has(What::OWNER) || what.has(What::GROUP)) => {
                Step::Anew(what)
            }
            _ => step,
        }
    }

    /// Whether this is what an ordinary user does without.
    pub fn do_without(&self, fault: &Fault) -> bool {
        const EPERM: i32 = 1;
        matches!(self, Owners::Own(_)) && fault.side == Side::Replica && fault.errno == EPERM && fault.act == "set owner of"
    }
}

impl Run<'_> {
    /// What an entry of the replica can come to have of its source.
    pub fn attainable(&self, source: &Meta, there: &Meta) -> Meta {
        self.owners.attainable(source, there, &self.options.keep).unwrap_or(*source)
    }

    /// Whether this is what an ordinary user does without; counts it.
    pub fn does_without(&self, fault: &Fault) -> bool {
        let does = self.owners.do_without(fault);
        add(&self.tally.unkept_owners, u64::from(does));
        does
    }

    /// Counts an owner that is not kept, if the replica's entry cannot come to have it.
    pub fn note_owner(&self, source: &Meta, there: &Meta) {
        if self.owners.attainable(source, there, &self.options.keep).is_some() {
            add(&self.tally.unkept_owners, 1);
        }
    }
}

impl Worker<'_> {
    /// Tells that a time is left as near to the source's as the replica can keep it; of a directory itself without a name.
    pub fn note_times(&self, job: &DirJob, name: Option<&CStr>, (source, replica): (&Meta, &Meta)) {
        let keep = &self.run.options.keep;
        let told_before = name.is_some() && job.pass() > 0;
        if !keep.times || source.mtime == replica.mtime || told_before {
            return;
        }
        match mtimes(source, replica, keep.modify_window) {
            Agreement::Cut(Grain::Fine) | Agreement::Unsure(Grain::Fine) => add(&self.run.tally.times_cut_fine, 1),
            Agreement::Cut(Grain::Seconds) | Agreement::Unsure(Grain::Seconds) => add(&self.run.tally.times_cut_seconds, 1),
            Agreement::OutOfRange => {
                const ERANGE: i32 = 34;
                let fault = Fault { side: Side::Replica, act: "set times of", errno: ERANGE };
                self.run.problem(name.map_or_else(|| job.path(), |name| job.path_of(name)), fault, Class::Partly);
            }
            Agreement::Same | Agreement::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Kind, Stamp};

    fn meta(uid: u32, gid: u32, mode: u32) -> Meta {
        let (kind, mtime, atime, ctime) = (Kind::File, Stamp::default(), Stamp::default(), Stamp::default());
        let (size, blocks, nlink, dev, ino, rdev) = (7, 8, 1, 1, 1, 0);
        Meta { kind, mode, uid, gid, size, blocks, mtime, atime, ctime, nlink, dev, ino, rdev }
    }

    #[test]
    fn an_ordinary_user_gives_entries_to_himself_and_his_groups() {
        let own = Owners::Own(Rights { uid: 10, gid: 20, groups: vec![21], any_owner: false });
        let there = meta(10, 20, 0o755);
        let attainable = |owners: &Owners, uid, gid| {
            let meta = owners.attainable(&meta(uid, gid, 0o4755), &there, &Keep::default())?;
            Some((meta.uid, meta.gid, meta.mode))
        };
        assert_eq!(attainable(&own, 10, 20), None);
        assert_eq!(attainable(&own, 10, 21), None);
        assert_eq!(attainable(&own, 11, 21), Some((10, 21, 0o755)));
        assert_eq!(attainable(&own, 10, 22), Some((10, 20, 0o755)));
        assert_eq!(attainable(&Owners::All, 11, 22), None);
        let keep = Keep { owner: false, ..Keep::default() };
        assert_eq!(own.attainable(&meta(11, 20, 0o4755), &there, &keep), None, "what is not asked for is not missed");
    }
}
