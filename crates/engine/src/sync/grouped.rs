//! Hard-link groups on their way: the first name of each is made equal, the others become links to
//! it.

use crate::sync::entry::{Intent, Met, Reconciled, Verdict};
use crate::sync::links::{Arrival, Standing};
use crate::sync::run::Run;
use crate::sync::task::Task;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use driftless_model::{
    Act, Action, Class, Entry, Fault, Keep, Kind, Level, Meta, Problem, RelPath, Side, What,
    Xattrs, errno,
};
use driftless_mover::{Moved, Opened, Spot, Trouble};
use driftless_reconcile::{Agreement, Step, differences, mtimes};
use driftless_state::{Leader, StoreError};
use driftless_tree::{DirMutRef, descend, descend_mut};
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

impl Worker<'_> {
    /// Takes care of hard links, then makes the entry equal.
    pub fn grouped(&mut self, met: Met<'_>, opened: Option<Opened>) -> Reconciled {
        let Met {
            visit, name, meta, ..
        } = met;
        let monitor = self.run.monitor;
        if meta.nlink > 1 || monitor.seeks(meta.id()) {
            monitor.linked(&|| visit.path_of(name), meta.id(), meta.nlink);
        }
        if meta.nlink < 2 || !self.run.options.policy.keep.hard_links || self.run.part.is_alone() {
            return self.equalise(met, opened);
        }
        if self.run.part.is_batch() {
            return self.leave_link(met);
        }
        let there = self.standing(visit, name)?;
        visit.more();
        let arrival =
            self.run
                .links
                .arrive(meta.id(), meta.nlink, there, (visit.clone(), name.into()));
        self.arrived(met, arrival.map_err(store_trouble)?, opened)
    }

    /// Goes on with a name of a group as the group is now.
    pub fn arrived(
        &mut self,
        met: Met<'_>,
        arrival: Arrival,
        opened: Option<Opened>,
    ) -> Reconciled {
        let Met { visit, name, .. } = met;
        match arrival {
            Arrival::Waits => Ok(Verdict::Waits),
            Arrival::PutOff => {
                visit.less();
                self.run
                    .links
                    .put_off(&visit.path_of(name))
                    .map_err(store_trouble)?;
                Err(Trouble::Postponed)
            }
            Arrival::Follow(leader) => {
                visit.less();
                self.follow(met, &leader)
            }
            Arrival::Lead(whole) => {
                visit.less();
                let done = self.equalise(
                    Met {
                        leads: true,
                        whole,
                        ..met
                    },
                    opened,
                );
                match &done {
                    Ok(Verdict::Large | Verdict::Waits) => {}
                    // Where it was left as it was, there is nothing to link to either.
                    Err(_) | Ok(Verdict::Reported) => self.settle(met, None),
                    Ok(verdict) => self.settle(met, Some(verdict)),
                }
                done
            }
        }
    }

    /// What the replica has at a name, for its group.
    fn standing(&self, visit: &Visit, name: &CStr) -> Result<Standing, Trouble> {
        let Some(replica) = visit.replica.as_ref().filter(|_| !visit.is_fresh()) else {
            return Ok(Standing::New);
        };
        let place = || {
            BuildHasherDefault::<DefaultHasher>::default()
                .hash_one((replica.first_meta().id(), name))
        };
        Ok(self
            .replica_meta(visit, name)?
            .map_or(Standing::Missing, |there| {
                Standing::Inode(there.id(), place())
            }))
    }

    /// Whether the first name of a group waits until all names of `there`, its inode on the
    /// replica, are known: what differs is set in place only where all of them are names of the
    /// group.
    pub fn gathers(
        &self,
        Met {
            visit,
            name,
            meta,
            leads,
            whole,
            ..
        }: &Met<'_>,
        there: &Meta,
        step: Step,
    ) -> Result<bool, Trouble> {
        let (Step::MetaOfAll(what) | Step::CompareContent(what)) = step else {
            return Ok(false);
        };
        let is_due = *leads
            && whole.is_none()
            && !what.is_empty()
            && (2..=meta.nlink).contains(&there.nlink);
        let again = if is_due {
            self.run
                .links
                .gather(meta.id(), there, ((*visit).clone(), CString::from(*name)))
        } else {
            None
        };
        let Some(again) = again else { return Ok(false) };
        visit.more();
        again
            .into_iter()
            .for_each(|(visit, name)| self.run.queue.push(Task::Waiter(visit, name)));
        Ok(true)
    }

    /// The first name of a group is done (`None`: it failed): notes where it is and lets the others
    /// go on.
    pub fn settle(&mut self, met: Met<'_>, done: Option<&Verdict>) {
        let leader = match done.map(|verdict| self.leader(&met, verdict)).transpose() {
            Ok(leader) => leader,
            Err(fault) => {
                // The next name leads then, and the group is not what it is on the source.
                self.run
                    .problem(met.visit.path_of(met.name), fault, Class::Partly);
                None
            }
        };
        if let (Some(verdict), Some(_)) = (done, &leader) {
            self.note_late(&met, verdict);
        }
        match self.run.links.settle(met.meta.id(), leader) {
            Ok(waiting) => waiting
                .into_iter()
                .for_each(|(visit, name)| self.run.queue.push(Task::Waiter(visit, name))),
            Err(error) => self.account_trouble(met.visit, met.name, store_trouble(error)),
        }
    }

    fn leader(&self, met: &Met<'_>, verdict: &Verdict) -> Result<Leader, Fault> {
        /// No inode: the one that a dry run would have made.
        const NOT_MADE: (u64, u64) = (0, 0);
        let path = self.run.path_of_link(met.visit.path_of(met.name));
        let path = path.as_bytes().to_vec();
        let left = met.meta.nlink - 1;
        let made = match verdict {
            Verdict::Changed(intent, moved) => moved.id.filter(|_| intent.action != Action::Meta),
            _ => None,
        };
        let in_place = matches!(verdict, Verdict::Same)
            || matches!(verdict, Verdict::Changed(intent, _) if intent.action == Action::Meta);
        let id = match &self.run.options {
            // The other names are compared with this inode, whatever else differs in it.
            options if options.compares() && met.visit.replica.is_some() => {
                match self.look_at(met) {
                    Err(fault) if fault.is_missing() => NOT_MADE,
                    there => there?.id(),
                }
            }
            options if !options.applies() && !in_place => NOT_MADE,
            _ => made.map_or_else(|| self.look_at_equal(met, verdict), Ok)?,
        };
        let linked =
            matches!(verdict, Verdict::Changed(intent, _) if intent.action == Action::Link);
        Ok(Leader {
            path,
            id,
            left,
            proven: made.is_some() && !linked,
        })
    }

    fn look_at(&self, Met { visit, name, .. }: &Met<'_>) -> Result<Meta, Fault> {
        visit
            .replica
            .as_ref()
            .expect("only dry runs have none")
            .look(visit.renamed.as_deref().unwrap_or(name))
    }

    /// The inode of an entry that was found equal, or made so in place. Somebody may have put
    /// another there since.
    fn look_at_equal(&self, met: &Met<'_>, verdict: &Verdict) -> Result<(u64, u64), Fault> {
        let there = self.look_at(met)?;
        let entry = |meta: &Meta, xattrs: Xattrs| Entry {
            meta: *meta,
            xattrs,
        };
        let keep = Keep {
            xattrs: false,
            acls: false,
            ..self.run.options.policy.keep
        };
        let is_same = match verdict {
            Verdict::Changed(_, Moved { id: Some(id), .. }) => there.id() == *id,
            // A copy that could not be given all that it should have tells its inode.
            _ => {
                // An ACL that the copy lacks makes the mode another one.
                let source = entry(met.meta, self.xattrs_met(met)?);
                let there = entry(&there, Xattrs::default());
                let replica = met.visit.replica.as_ref();
                let attainable = self.run.attainable_entry(&source, &there, replica);
                !self.run.options.applies() || differences(&attainable, &there, &keep).is_empty()
            }
        };
        let stale = Fault {
            side: Side::Replica,
            act: Act::HoldFirstLink,
            errno: errno::ESTALE,
        };
        if is_same { Ok(there.id()) } else { Err(stale) }
    }

    /// Reads the attributes of the source's entry that its mode depends on.
    fn xattrs_met(&self, met: &Met<'_>) -> Result<Xattrs, Fault> {
        let keep = &self.run.options.policy.keep;
        met.visit.source.xattrs_of(met.name, keep)
    }

    /// Makes a further name of a group a link to its first.
    fn follow(&mut self, met: Met<'_>, leader: &Leader) -> Reconciled {
        let Met {
            visit, name, meta, ..
        } = met;
        let there = self.replica_meta(visit, name)?;
        if let Some(there) = &there
            && (there.id() == leader.id || self.is_further(&met, there, leader)?)
        {
            if visit.pass() > 0 {
                // It was met in the first look.
                self.run
                    .links
                    .give_back(meta.id(), leader)
                    .map_err(store_trouble)?;
            }
            return Ok(Verdict::Same);
        }
        if there.is_some_and(|there| self.keeps_directory(&met, &there)) {
            self.run
                .links
                .give_back(meta.id(), leader)
                .map_err(store_trouble)?;
            return Ok(Verdict::Reported);
        }
        if there.is_some_and(|there| self.waits_for_room(visit, name, &there)) {
            self.run
                .links
                .give_back(meta.id(), leader)
                .map_err(store_trouble)?;
            return Err(Trouble::Postponed);
        }
        let room = there.map_or(Ok(0), |there| self.room(visit, name, &there))?;
        let intent = Intent {
            room,
            ..self.intent_to_follow(meta, there.is_some())
        };
        if !self.run.options.applies() {
            there.iter().for_each(|there| self.run.foretell_loss(there));
            return Ok(Verdict::Changed(intent, Moved::default()));
        }
        if there.is_some_and(|there| self.is_alike(meta, &there)) && !leader.proven {
            self.prove(met, leader)?;
        }
        if let Some(there) = &there {
            self.set_aside_unlike(visit, name, (there, meta))?;
        }
        let done = match self.link_to(visit, name, leader, room) {
            Ok(moved) => self
                .check_replaced(visit, name, there)
                .map(|()| Verdict::Changed(intent, moved)),
            Err(Trouble::Failed(fault)) if self.takes_no_more(meta, &fault) => {
                return self.succeed(met, leader);
            }
            // Content would want room, too.
            Err(Trouble::Failed(fault)) if !fault.lacks_room() => self.copy_instead(met, fault),
            Err(other) => Err(other),
        };
        if matches!(&done, Err(Trouble::Failed(fault)) if fault.lacks_room()) {
            // It is met again when there is room.
            self.run
                .links
                .give_back(meta.id(), leader)
                .map_err(store_trouble)?;
        }
        done
    }

    /// What is reported of a further name. A run that only compares calls a name that the replica
    /// lacks missing; a sync would link it.
    fn intent_to_follow(&self, meta: &Meta, is_there: bool) -> Intent {
        if self.run.options.compares() && !is_there {
            return Intent::new(Action::Create, What::default(), meta);
        }
        let mut what = What::default();
        what.add_if(true, What::LINKS);
        Intent::new(Action::Link, what, meta)
    }

    /// A file may be mounted over a name that is one of the group already: then to give it that
    /// name does nothing, and no error comes of it (rename(2)).
    fn check_replaced(
        &self,
        visit: &Visit,
        name: &CStr,
        before: Option<Meta>,
    ) -> Result<(), Trouble> {
        let Some(before) = before else { return Ok(()) };
        let is_left = self
            .replica_meta(visit, name)?
            .is_some_and(|now| now.id() == before.id());
        if is_left {
            Err(Trouble::Failed(Fault {
                side: Side::Replica,
                act: Act::Replace,
                errno: errno::EBUSY,
            }))
        } else {
            Ok(())
        }
    }

    /// Whether a file of the replica looks as if it had the source's content.
    fn is_alike(&self, source: &Meta, there: &Meta) -> bool {
        let files = source.kind == Kind::File && there.kind == Kind::File;
        files
            && source.size == there.size
            && mtimes(source, there, self.run.options.policy.keep.modify_window) != Agreement::Other
    }

    /// Two inodes of the replica claim to be the one of the source. Before a name that may be right
    /// becomes a link to the other, its content is compared: whoever may write where the first name
    /// is may have put anything there that has the right size and time.
    fn prove(
        &mut self,
        Met {
            visit, name, meta, ..
        }: Met<'_>,
        leader: &Leader,
    ) -> Result<(), Trouble> {
        let (dir, leader_name) = self.place_of(visit, leader)?;
        let spot = Spot {
            replica: &*dir,
            name: &leader_name,
            private: false,
            birth: None,
            only: Some(meta.id()),
            ..visit.spot(name)
        };
        let source = self.mover.open(&spot)?;
        let compared = self.mover.compare(&spot, source, Level::Content)?;
        add(&self.run.tally.bytes_compared, meta.size);
        if !compared.differs.is_empty() {
            return Err(Trouble::Failed(Fault {
                side: Side::Replica,
                act: Act::LinkSame,
                errno: errno::EILSEQ,
            }));
        }
        self.run.links.prove(meta.id()).map_err(store_trouble)
    }

    fn link_to(
        &mut self,
        visit: &Arc<Visit>,
        name: &CStr,
        leader: &Leader,
        room: u64,
    ) -> Result<Moved, Trouble> {
        let (dir, leader_name) = self.place_of(visit, leader)?;
        let spot = Spot {
            room,
            ..visit.touched_spot(name)
        };
        let link = || {
            self.mover
                .make_link(&spot, (&*dir, &leader_name), leader.id)
        };
        match link() {
            // A name that has gone meanwhile has left room for this one.
            Err(Trouble::Failed(fault)) if fault.errno == errno::EMLINK => link(),
            made => made,
        }
    }

    /// Where on the replica the first name of a group is.
    pub fn place_of(
        &self,
        visit: &Visit,
        leader: &Leader,
    ) -> Result<(DirMutRef, CString), Trouble> {
        let gone = Fault {
            side: Side::Replica,
            act: Act::FindFirstLink,
            errno: errno::ENOENT,
        };
        let (dir, name) = leader.place().ok_or(Trouble::Failed(gone))?;
        let name = CString::new(name).map_err(|_| Trouble::Failed(gone))?;
        Ok((
            self.replica_dir(visit, &dir).map_err(Trouble::Failed)?,
            name,
        ))
    }

    /// The replica's directory at a path: this very one most of the time, else a walk from the
    /// root.
    fn replica_dir(
        &self,
        visit: &Visit,
        path: &driftless_model::RelPath,
    ) -> Result<DirMutRef, Fault> {
        let own = visit.replica.as_ref().expect("only dry runs have none");
        if self.run.path_of_link(visit.path()) == *path {
            return Ok(own.clone());
        }
        let above = self.run.links_above.as_ref().map(|above| &above.dir);
        let root = above.or(self.run.roots.1.as_ref());
        descend_mut(root.expect("only dry runs have none"), path)
    }

    /// The file system refuses one more link (EMLINK, say): the content is kept, and that it is no
    /// link is reported.
    fn copy_instead(&mut self, met: Met<'_>, fault: Fault) -> Reconciled {
        match self.equalise(met, None)? {
            Verdict::Changed(intent, mut moved) => {
                moved.faults.push(fault);
                Ok(Verdict::Changed(intent, moved))
            }
            // Its content is right already, and it is still not the link that it should be.
            Verdict::Same => Err(Trouble::Failed(fault)),
            // It is accounted for later, by the thread that does the work, which knows nothing of
            // the link.
            later @ (Verdict::Large | Verdict::Submitted) => {
                self.run
                    .problem(met.visit.path_of(met.name), fault, Class::Partly);
                Ok(later)
            }
            other => Ok(other),
        }
    }
}

/// The store of hard links fails when the disk for temporary files does.
pub fn store_trouble(_: StoreError) -> Trouble {
    Trouble::Failed(Fault {
        side: Side::Replica,
        act: Act::KeepLinks,
        errno: errno::EIO,
    })
}

impl Worker<'_> {
    /// Notes the first name of a group whose names changed while the run went on: others may have
    /// been met before, when there were fewer.
    pub fn note_late(
        &self,
        Met {
            visit, name, meta, ..
        }: &Met<'_>,
        verdict: &Verdict,
    ) {
        let is_made =
            matches!(verdict, Verdict::Changed(intent, _) if intent.action != Action::Meta);
        let is_late = meta.ctime > self.run.began || visit.pass() > 0 && is_made;
        if is_late
            && !self
                .run
                .links
                .note_late(meta.id(), visit.path_of(name), meta.nlink)
        {
            self.run.report_late_names(visit.path_of(name));
        }
    }
}

impl Run<'_> {
    /// Returns the path by which a name in a hard-link group is found again.
    fn path_of_link(&self, path: RelPath) -> RelPath {
        match &self.links_above {
            Some(above) => above.path(&path),
            None => path,
        }
    }

    /// Some of the paths of names that were put off. If they are lost, the run is not what it
    /// should be, and says so.
    pub fn take_put_off(&self) -> Vec<RelPath> {
        self.links.take_put_off().unwrap_or_else(|error| {
            if let Trouble::Failed(fault) = store_trouble(error) {
                self.problem(RelPath::root(), fault, Class::Skip);
            }
            Vec::new()
        })
    }

    /// Names that a file got while the run went on: one that was met before was the only one then,
    /// and is a file of its own on the replica. Where names are missing that the file still has, it
    /// is changing.
    pub fn report_split_groups(&self) {
        if self.stopped() {
            return;
        }
        // Without the table nothing is known of any group, and that was told when it failed.
        for (id, path, met) in self.links.incomplete().unwrap_or_default() {
            let Some((dir, name)) = path
                .split_last()
                .and_then(|(dir, name)| Some((dir, CString::new(name).ok()?)))
            else {
                continue;
            };
            let now = descend(&self.roots.0, &dir).and_then(|dir| dir.look(&name));
            let complete = match now {
                Ok(now) => now.id() != id || now.nlink <= met,
                Err(fault) => fault.is_missing(),
            };
            if !complete {
                self.report_late_names(path);
            }
        }
    }

    /// Says that the file at `path` has names that were made while the run went on.
    pub fn report_late_names(&self, path: RelPath) {
        self.report(&Problem {
            path,
            side: Side::Source,
            act: Act::LinkAll,
            cause: "it got another while the run went on".into(),
            class: Class::Changing,
        });
    }
}
