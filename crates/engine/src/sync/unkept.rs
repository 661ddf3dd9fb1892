//! What the replica cannot come to have, without that being a difference: times that its file
//! system cuts, and owners that the user of the run cannot give.
//!
//! Nobody but root may give an entry to somebody else (chown(2)). An ordinary user knows that, and
//! one problem for each file of others, in every run, would hide all else. So what he cannot give
//! is no difference; it is counted, and told once. Where owners were demanded, it is a problem as
//! any other.

use crate::sync::entry::{Intent, Met, Pair};
use crate::sync::owners::Owners;
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use driftless_model::{
    Act, Action, Class, Entry, Fault, Meta, RelPath, Side, Sort, Unkept, What, Xattr, Xattrs, errno,
};
use driftless_mover::Trouble;
use driftless_reconcile::{Agreement, Grain, Step, mtimes};
use driftless_tree::{Attributes, Dir, Done, Known, Rights};
use std::borrow::Cow;
use std::cell::LazyCell;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The attributes that an entry, which has those that are `there`, can come to have: what this user
/// may not set only if it is there already. `None` if all can be had. What is there and not the
/// source's is a difference, whatever the user may remove.
fn attainable_xattrs(rights: &Rights, source: &Xattrs, there: &Xattrs) -> Option<Xattrs> {
    let kept = |xattr: &Xattr| rights.may_set(&xattr.0) || there.contains(xattr);
    if source.iter().all(kept) {
        return None;
    }
    let kept = source.iter().filter(|xattr| kept(xattr)).cloned().collect();
    let kept = Xattrs::new(kept, source.unkept).lacking_acl(source.without_acl);
    Some(kept.hiding_trusted(source.hides_trusted))
}

/// Whether an entry has what its source has not, or not so, and what this user can neither set nor
/// take away.
fn is_stuck_with(rights: &Rights, source: &Xattrs, there: &Xattrs) -> bool {
    there
        .iter()
        .any(|xattr| !rights.may_set(&xattr.0) && !source.contains(xattr))
}

impl Run<'_> {
    /// What an entry of the replica's directory `above` can come to have of its source; of a
    /// directory itself without it.
    ///
    /// What belongs to whom the directory around it belongs to is left with him: a file system that
    /// gives all to one user would have it made anew in every run.
    pub fn attainable<D: Dir + ?Sized>(
        &self,
        source: &Meta,
        there: &Meta,
        above: Option<&Arc<D>>,
    ) -> Meta {
        let stays = above.is_none_or(|above| above.first_meta().uid == there.uid);
        self.owners
            .attainable(source, there, &self.options.policy.keep, stays)
    }

    /// What the replica can have of an entry with its extended attributes.
    pub fn attainable_entry<'e, D: Dir + ?Sized>(
        &self,
        source: &'e Entry,
        there: &Entry,
        above: Option<&Arc<D>>,
    ) -> Cow<'e, Entry> {
        if self.owners == Owners::All && source.xattrs.is_empty() {
            return Cow::Borrowed(source);
        }
        let mut meta = self.attainable(&source.meta, &there.meta, above);
        let mut wanted = Cow::Borrowed(&source.xattrs);
        if meta.gid != source.meta.gid {
            let mode = source.xattrs.mode_of_copy(meta.mode);
            let (mode, xattrs) = source.xattrs.for_other_group(mode);
            (meta.mode, wanted) = (mode, Cow::Owned(xattrs));
        }
        let xattrs = self
            .ground
            .rights
            .as_ref()
            .and_then(|rights| attainable_xattrs(rights, &wanted, &there.xattrs));
        match xattrs {
            None if meta == source.meta => Cow::Borrowed(source),
            xattrs => Cow::Owned(Entry {
                meta,
                xattrs: xattrs.unwrap_or_else(|| wanted.into_owned()),
            }),
        }
    }

    /// What a user cannot change in place, he can make anew: what belongs to somebody else, and
    /// what has rights that he may not take away.
    pub fn takes_over(&self, step: Step, source: &Entry, there: &Entry) -> Step {
        let is_stuck = || {
            self.ground
                .rights
                .as_ref()
                .is_some_and(|rights| is_stuck_with(rights, &source.xattrs, &there.xattrs))
        };
        match step {
            Step::Meta(what) | Step::MetaOfAll(what) if what.has(What::XATTRS) && is_stuck() => {
                Step::Anew(what)
            }
            step => self.owners.takes_over(step, &there.meta),
        }
    }

    /// Whether this is what an ordinary user does without; counts it.
    pub fn does_without(&self, fault: &Fault) -> bool {
        let owner = self.owners.do_without(fault);
        let privilege = fault.side == Side::Replica && fault.act == Act::SetPrivileged;
        add(&self.tally.unkept_owners, u64::from(owner));
        let link = self.is_of_link(fault);
        add(&self.tally.unkept_privileges, u64::from(privilege));
        add(&self.tally.unkept_links, u64::from(link));
        owner || privilege || link
    }

    /// Whether the replica's file system would have set attributes of the entry that a symbolic
    /// link leads to, and owners were not demanded.
    fn is_of_link(&self, fault: &Fault) -> bool {
        (fault.side, fault.act, fault.errno)
            == (Side::Replica, Act::SetAttributes, errno::EOPNOTSUPP)
            && !self.options.policy.keep.demands_owners
    }

    /// Counts an entry whose capabilities or trusted attributes this user cannot give.
    pub fn note_privileges(&self, source: &Xattrs, there: &Xattrs) {
        let lacks = self
            .ground
            .rights
            .as_ref()
            .is_some_and(|rights| attainable_xattrs(rights, source, there).is_some());
        add(&self.tally.unkept_privileges, u64::from(lacks));
    }

    /// Counts an entry that has something which its copy does not get; the first of each kind is
    /// named. Extended attributes that could not be read are a problem of each path.
    pub fn note_unkept(&self, what: Unkept, path: impl FnOnce() -> RelPath) {
        if what.is_empty() {
            return;
        }
        let unread = what.unread_errnos();
        let (what, path) = (what - Unkept::UNREAD, LazyCell::new(path));
        for errno in unread {
            let fault = Fault {
                side: Side::Source,
                act: Act::ReadXattrs,
                errno,
            };
            self.problem(path.clone(), fault, Class::Partly);
        }
        for sort in Sort::ALL
            .into_iter()
            .filter(|sort| !what.of_sort(*sort).is_empty())
        {
            let counter = match sort {
                Sort::Flags => &self.tally.unkept_flags,
                Sort::Acls => &self.tally.unkept_acls,
            };
            add(counter, 1);
        }
        let mut met = self.unkept.lock();
        let new = what - *met;
        *met = *met | what;
        drop(met);
        if !new.is_empty() {
            self.monitor.unkept(new, &path);
        }
    }

    /// What a copy of the source does not get. A flag that the replica's entry has all the same is
    /// not missing.
    pub fn unkept_between(source: &Entry, there: &Meta) -> Unkept {
        (source.meta.unkept - there.unkept) | source.xattrs.unkept
    }

    /// Tells once that an owner of the source was met which the user namespace of the run, or an
    /// id-mapped mount, shows as one number with others.
    pub fn tell_unmapped(&self, source: &Meta) {
        let keep = &self.options.policy.keep;
        let hides_owner = keep.owner && self.ground.unmapped.hides_owner(source.uid);
        let hides_group = keep.group && self.ground.unmapped.hides_group(source.gid);
        if (hides_owner || hides_group) && !self.has_told_unmapped.swap(true, Relaxed) {
            self.monitor.note(
                "owners or groups that this user namespace (user_namespaces(7)) or an id-mapped mount does not map look all the \
                same here: they were not compared, and a copy gets the number that is shown; run driftless where they are mapped",
            );
        }
    }

    /// Counts an owner that is not kept, if the replica's entry cannot come to have it.
    pub fn note_owner<D: Dir + ?Sized>(&self, source: &Meta, there: &Meta, above: Option<&Arc<D>>) {
        if self.owners == Owners::All {
            return;
        }
        let attainable = self.attainable(source, there, above);
        if (attainable.uid, attainable.gid) != (source.uid, source.gid) {
            add(&self.tally.unkept_owners, 1);
        }
    }
}

/// What came of a time that may lie beyond those that the replica's file system keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The entry has it now.
    Set,
    /// It can be had by an entry that is made anew.
    Anew,
    /// It is what it was.
    Left,
}

impl Worker<'_> {
    /// Notes what a new entry did not get, nor took over from its directory.
    pub fn note_made(&self, visit: &Visit, name: &CStr, unkept: Unkept) {
        if unkept.is_empty() {
            return;
        }
        let inherited = visit
            .replica
            .as_ref()
            .map_or(Unkept::NONE, |above| above.first_meta().unkept.inherited());
        self.run
            .note_unkept(unkept - inherited, || visit.path_of(name));
    }

    /// Tries a time that may lie beyond those that the replica's file system keeps: that it does is
    /// not said before, once in a run for each time that stands in the place of others. Where
    /// nothing is tried, or it does not help, what there is to say of the time is told.
    pub fn settle_time(&self, met: &Met<'_>, pair: &Pair) -> Result<Settled, Trouble> {
        let Met { visit, name, .. } = *met;
        let (source, there) = (&pair.source.meta, &pair.replica.meta);
        let settled = match self.may_try(source, there) {
            false => Settled::Left,
            true if self.may_set_time(met, pair) => self.try_time(met, source, there)?,
            true => self.try_time_beside(met, source)?,
        };
        if settled == Settled::Left {
            self.note_times(visit, Some(name), (met.meta, there));
        }
        Ok(settled)
    }

    fn try_time(&self, met: &Met<'_>, source: &Meta, there: &Meta) -> Result<Settled, Trouble> {
        let spot = met.visit.spot(met.name);
        let faults = self.mover.set_time(&spot, source.mtime, there)?;
        if let Some(fault) = other_than_range(faults) {
            return Err(Trouble::Failed(fault));
        }
        let is_kept = self.was_kept(source, &spot.replica.look(spot.name)?);
        Ok(if is_kept { Settled::Set } else { Settled::Left })
    }

    /// Tries it with a file of its own: other names of the entry, which may be somebody else's, must
    /// not get another time.
    fn try_time_beside(&self, met: &Met<'_>, source: &Meta) -> Result<Settled, Trouble> {
        let spot = met.visit.touched_spot(met.name);
        let is_kept = self.was_kept(source, &self.mover.timed_beside(&spot, source.mtime)?);
        Ok(if is_kept {
            Settled::Anew
        } else {
            Settled::Left
        })
    }

    /// Does so for a directory itself, which was like `before`.
    pub fn settle_time_of_dir(&self, visit: &Visit, source: &Meta, before: &Meta) -> Done<bool> {
        if let Some(replica) = visit
            .replica
            .as_ref()
            .filter(|_| self.may_try(source, before))
        {
            let attributes = Attributes {
                mtime: Some(source.mtime),
                ..Attributes::default()
            };
            let faults = replica.set_own(&Known::of(before), &attributes);
            if let Some(fault) = other_than_range(faults) {
                return Err(fault);
            }
            if self.was_kept(source, &replica.meta()?) {
                return Ok(true);
            }
        }
        self.note_times(visit, None, (source, before));
        Ok(false)
    }

    /// Whether it is not known yet that a time lies beyond those that are kept, and looks so.
    fn may_try(&self, source: &Meta, there: &Meta) -> bool {
        let keep = &self.run.options.policy.keep;
        keep.times
            && source.mtime != there.mtime
            && mtimes(source, there, keep.modify_window) == Agreement::OutOfRange
            && self.run.options.applies()
            && !self.run.ends_of_time.lock().contains(&end_of_time(there))
    }

    /// Whether the time of an entry may be changed in place.
    fn may_set_time(&self, met: &Met<'_>, pair: &Pair) -> bool {
        let step = self.decide_after(met.visit, pair, What::MTIME, true);
        matches!(self.sparing(met, pair, step), Step::Meta(_))
    }

    /// Whether a time that was set is there; notes what stands in its place otherwise.
    fn was_kept(&self, source: &Meta, now: &Meta) -> bool {
        let window = self.run.options.policy.keep.modify_window;
        let is_kept = mtimes(source, now, window) != Agreement::OutOfRange;
        if !is_kept {
            self.run.ends_of_time.lock().insert(end_of_time(now));
        }
        is_kept
    }

    /// Tells that a time is left as near to the source's as the replica can keep it; of a directory
    /// itself without a name.
    pub fn note_times(
        &self,
        visit: &Visit,
        name: Option<&CStr>,
        (source, replica): (&Meta, &Meta),
    ) {
        let keep = &self.run.options.policy.keep;
        let told_before = name.is_some() && visit.pass() > 0;
        if !keep.times || source.mtime == replica.mtime || told_before {
            return;
        }
        match mtimes(source, replica, keep.modify_window) {
            Agreement::Cut(Grain::Fine) | Agreement::Unsure(Grain::Fine) => {
                add(&self.run.tally.times_cut_fine, 1)
            }
            Agreement::Cut(Grain::Seconds) | Agreement::Unsure(Grain::Seconds) => {
                add(&self.run.tally.times_cut_seconds, 1)
            }
            Agreement::OutOfRange => {
                let fault = Fault {
                    side: Side::Replica,
                    act: Act::SetTimes,
                    errno: errno::ERANGE,
                };
                self.run.problem(
                    name.map_or_else(|| visit.path(), |name| visit.path_of(name)),
                    fault,
                    Class::Partly,
                );
            }
            Agreement::Same | Agreement::Other => {}
        }
    }
}

impl Worker<'_> {
    /// Counts the time of an entry that was made, or given a time, if the replica keeps less of it; of
    /// a directory itself without a name.
    pub fn note_time_made(&self, visit: &Visit, name: Option<&CStr>, intent: &Intent) {
        let is_made = matches!(intent.action, Action::Create | Action::Replace);
        let is_given = is_made || intent.what.has(What::MTIME);
        let options = self.run.options;
        let counts = is_given && options.applies() && options.policy.keep.times;
        let Some(replica) = visit.replica.as_ref().filter(|_| counts) else {
            return;
        };
        let look = || match name {
            Some(name) => replica.look(visit.renamed.as_deref().unwrap_or(name)).ok(),
            None => replica.meta().ok(),
        };
        let steps = &self.run.ground.steps;
        match steps.cut(replica.first_meta(), intent.mtime, look) {
            Some(1_000_000_000..) => add(&self.run.tally.times_cut_seconds, 1),
            Some(_) => add(&self.run.tally.times_cut_fine, 1),
            None => {}
        }
    }
}

/// Why a time could not be set, if not because it is beyond those that are kept.
fn other_than_range(faults: Vec<Fault>) -> Option<Fault> {
    faults
        .into_iter()
        .find(|fault| fault.errno != errno::ERANGE)
}

/// On which device a time was seen that may stand in the place of others.
fn end_of_time(meta: &Meta) -> (u64, i64) {
    (meta.dev, meta.mtime.sec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Keep, Kind, Stamp};

    fn meta(uid: u32, gid: u32, mode: u32) -> Meta {
        let (kind, mtime, atime, ctime) = (
            Kind::File,
            Stamp::default(),
            Stamp::default(),
            Stamp::default(),
        );
        let (size, blocks, nlink, dev, ino, rdev) = (7, 8, 1, 1, 1, 0);
        Meta {
            kind,
            mode,
            uid,
            gid,
            size,
            blocks,
            mtime,
            atime,
            ctime,
            nlink,
            dev,
            ino,
            rdev,
            unkept: Unkept::NONE,
        }
    }

    /// Owner, group and mode that can be attained for such a source, by user 10 of the groups 20
    /// and 21.
    fn attained(source: (u32, u32, u32), there: (u32, u32, u32), stays: bool) -> (u32, u32, u32) {
        let own = Owners::Own(Rights {
            uid: 10,
            gid: 20,
            groups: vec![21],
            any_owner: false,
            capabilities: false,
            trusted: false,
        });
        let [source, there] = [source, there].map(|(uid, gid, mode)| meta(uid, gid, mode));
        let attained = own.attainable(&source, &there, &Keep::default(), stays);
        (attained.uid, attained.gid, attained.mode)
    }

    #[test]
    fn an_ordinary_user_gives_entries_to_himself_and_his_groups() {
        let there = (10, 20, 0o755);
        for whole in [(10, 20, 0o6755), (10, 21, 0o6755)] {
            assert_eq!(attained(whole, there, false), whole);
        }
        assert_eq!(attained((11, 21, 0o755), there, false), (10, 21, 0o755));
        assert_eq!(attained((10, 22, 0o755), there, false), (10, 20, 0o755));
        let (source, there) = (meta(11, 22, 0o6755), meta(10, 20, 0o755));
        assert_eq!(
            Owners::All.attainable(&source, &there, &Keep::default(), false),
            source
        );
        let own = Owners::Own(Rights {
            uid: 10,
            gid: 20,
            groups: vec![],
            any_owner: false,
            capabilities: false,
            trusted: false,
        });
        let keep = Keep {
            owner: false,
            group: false,
            ..Keep::default()
        };
        assert_eq!(
            own.attainable(&source, &there, &keep, false),
            source,
            "what is not asked for is not missed"
        );
    }

    #[test]
    fn a_set_id_bit_goes_with_the_user_or_group_that_it_stands_for() {
        let there = (10, 20, 0o755);
        assert_eq!(
            attained((11, 21, 0o6755), there, false),
            (10, 21, 0o2755),
            "without the user"
        );
        assert_eq!(
            attained((10, 22, 0o6755), there, false),
            (10, 20, 0o4755),
            "without the group"
        );
        assert_eq!(
            attained((11, 22, 0o6755), there, false),
            (10, 20, 0o755),
            "without both"
        );
        assert_eq!(
            attained((10, 22, 0o2755), (10, 22, 0o755), false),
            (10, 22, 0o755),
            "not of the group, which it has already"
        );
        assert_eq!(
            attained((11, 22, 0o6755), (11, 22, 0o6755), false),
            (11, 22, 0o6755),
            "it is right already"
        );
    }

    #[test]
    fn what_only_root_may_set_is_no_difference_where_it_is_lacking() {
        let rights = |may| Rights {
            uid: 10,
            gid: 20,
            groups: vec![],
            any_owner: may,
            capabilities: may,
            trusted: may,
        };
        let xattrs = |named: &[(&str, &str)]| -> Xattrs {
            named
                .iter()
                .map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into()))
                .collect()
        };
        let (capability, trusted, own) = (
            ("security.capability", "1"),
            ("trusted.a", "1"),
            ("user.a", "1"),
        );
        let source = xattrs(&[capability, trusted, own]);
        let attained =
            |may, there: &[(&str, &str)]| attainable_xattrs(&rights(may), &source, &xattrs(there));
        assert_eq!(attained(true, &[]), None);
        assert_eq!(attained(false, &[]), Some(xattrs(&[own])));
        assert_eq!(
            attained(false, &[capability, trusted]),
            None,
            "it has them already"
        );
        assert_eq!(
            attained(false, &[("trusted.a", "2"), ("trusted.b", "3")]),
            Some(xattrs(&[own])),
            "another value is a difference"
        );
        let is_stuck =
            |may, there: &[(&str, &str)]| is_stuck_with(&rights(may), &source, &xattrs(there));
        assert!(is_stuck(false, &[("trusted.a", "2")]) && is_stuck(false, &[("trusted.b", "3")]));
        assert!(
            !is_stuck(true, &[("trusted.a", "2")])
                && !is_stuck(false, &[capability, ("user.b", "1")])
        );
    }

    #[test]
    fn what_is_somebody_elses_and_stays_keeps_its_owner() {
        assert_eq!(
            attained((10, 20, 0o755), (11, 22, 0o755), true),
            (11, 22, 0o755)
        );
        assert_eq!(
            attained((10, 20, 0o755), (11, 22, 0o755), false),
            (10, 20, 0o755),
            "it can be made anew"
        );
        assert_eq!(
            attained((10, 21, 0o755), (10, 20, 0o755), true),
            (10, 21, 0o755),
            "it is the user's own"
        );
    }
}
