//! Going through directories: entering, listing, handing out names, and finishing when everything
//! below is done.

use crate::sync::closed::{forget_inherited, mark_closed};
use crate::sync::entry::Intent;
use crate::sync::renamed::Entered;
use crate::sync::run::Run;
use crate::sync::task::Task;
use crate::sync::twice::{ENDLESS, SHOWN_TWICE, is_endless};
use crate::sync::visit::{Sides, Visit};
use crate::sync::worker::Worker;
use crate::tally::{Reason, add};
use crate::trees::mounts::UNMOUNTED;
use crate::trees::overlap::{OWN_REPLICA, OWN_SOURCE};
use driftless_model::{Action, Class, DirectoryId, Entry, Fault, Kind, Meta, Selection, Side};
use driftless_mover::Trouble;
use driftless_reconcile::{differences, values};
use driftless_tree::{Attributes, DirMutRef, DirRef, Done, Known, NameStream, Names, WINDOW_NAMES};
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::sync::Arc;

/// Items in the queue above which the walk goes down before it goes on.
const QUEUE_LONG: usize = 2048;
/// How often a directory that changes is looked at again.
const PASSES_MAX: u8 = 3;

impl Worker<'_> {
    /// Enters the directory `name` of `parent` and begins with it.
    pub fn directory(&mut self, parent: &Arc<Visit>, name: &CStr, weight: u64) {
        match self.enter(parent, name, weight) {
            Ok(Some(visit)) => {
                self.count_late(parent);
                self.list(&visit);
            }
            Ok(None) => {
                self.count_late(parent);
                self.less(parent);
            }
            Err(trouble) => {
                self.account_trouble(parent, name, trouble);
                self.less(parent);
            }
        }
    }

    fn enter(
        &mut self,
        parent: &Arc<Visit>,
        name: &CStr,
        weight: u64,
    ) -> Result<Option<Arc<Visit>>, Trouble> {
        let source = match parent.source.enter(name) {
            Err(_) if self.run.is_foreign_at(parent, name) => {
                add(&self.run.tally.walked, weight);
                self.run.tally.skip(Reason::OtherFileSystem);
                return Ok(None);
            }
            entered => entered.map_err(kind_changed)?,
        };
        parent.entered.note(name, source.first_meta());
        let foreign = self.run.is_foreign(&source);
        if let Some(why) = self.barred(parent, name, &source, foreign) {
            // The first look at the directory above has told it.
            return Err(if parent.pass() > 0 {
                Trouble::Stopped
            } else {
                Trouble::Barred(Side::Source, why)
            });
        }
        let id = self.directory_id(&source);
        let entered = match self.enter_replica(parent, name, id) {
            Err(Trouble::Failed(fault))
                if self.tells_closed((parent, name, weight), &source, fault)? =>
            {
                return Ok(None);
            }
            entered => entered?,
        };
        let there = entered.replica.as_ref();
        self.run.meet_on_replica(parent, name, there);
        let foreign = foreign || self.run.is_left(&source, there)?;
        let basis = parent
            .basis
            .as_ref()
            .and_then(|basis| basis.enter(name).ok());
        self.note_place((parent, name, id), &entered);
        let is_new = entered.before.is_none() || entered.is_relocated;
        let selection = below(parent, name, is_new);
        let sides = Sides {
            source,
            replica: entered.replica,
            before: entered.before,
        };
        let mut visit = Visit::below(parent, name, sides, selection, weight);
        (visit.basis, visit.replaced) = (basis, entered.replaced);
        self.run.part.assign(&mut visit);
        self.run.find_closed(&mut visit);
        visit.narrowing = self.run.narrowing_of(&visit);
        self.run.meet_marks(&mut visit)?;
        let visit = Arc::new(visit);
        if foreign && !visit.borrowed {
            self.leave_mount_point(visit);
            return Ok(None);
        }
        Ok(Some(visit))
    }

    /// Why a directory of the source is not entered, although it is there and may be read.
    fn barred(
        &self,
        parent: &Visit,
        name: &CStr,
        source: &DirRef,
        foreign: bool,
    ) -> Option<&'static str> {
        match () {
            () if !foreign && self.run.is_replica(source) => Some(OWN_REPLICA),
            () if self.run.is_unmounted(parent, name, source) => Some(UNMOUNTED),
            () if is_endless(parent, source) => Some(ENDLESS),
            () => None,
        }
    }

    /// The root of another file system: the directory itself is made, what is in it is left alone.
    fn leave_mount_point(&mut self, visit: Arc<Visit>) {
        add(&self.run.tally.walked, visit.weight);
        self.run.tally.skip(Reason::OtherFileSystem);
        let parent = visit
            .parent
            .as_ref()
            .expect("the root is on its own file system");
        if let (true, Some(replica)) = (visit.is_made(), &visit.replica) {
            let (source, keep) = (visit.source.first_meta(), &self.run.options.policy.keep);
            // One whose ACL is not known stays closed to others.
            if let Ok(xattrs) = visit.source.xattrs(keep) {
                let mode = xattrs.mode_of_copy(source.mode);
                let attributes = Attributes::of(source, xattrs, keep).or_mode(keep.new_mode(mode));
                replica.set_own(&Known::default(), &attributes);
            }
            let _its_mode_says_the_same = self.run.unmark_closed(&visit);
            parent.touch();
        }
    }

    fn enter_replica(
        &mut self,
        parent: &Arc<Visit>,
        name: &CStr,
        id: Option<DirectoryId>,
    ) -> Result<Entered, Trouble> {
        let Some(above) = parent.replica.as_ref().filter(|_| !parent.is_fresh()) else {
            return self.relocate_or_make(parent, name, id);
        };
        match above.enter_mut(name) {
            Ok(dir) => self.existing(parent, name, dir),
            Err(fault) => self.make_room((parent, name, id), above, fault),
        }
    }

    /// Takes the replica's directory from the path at which the source had it before, or makes a new
    /// one.
    fn relocate_or_make(
        &mut self,
        parent: &Arc<Visit>,
        name: &CStr,
        id: Option<DirectoryId>,
    ) -> Result<Entered, Trouble> {
        let taken = id.and_then(|id| self.relocate_unreported(parent, name, id));
        let Some(dir) = taken else {
            return self.make_replica(parent, name).map(Entered::new);
        };
        parent.touch();
        let entered = self.existing(parent, name, dir)?;
        Ok(Entered {
            is_relocated: true,
            ..entered
        })
    }

    pub fn existing(
        &mut self,
        parent: &Visit,
        name: &CStr,
        dir: DirMutRef,
    ) -> Result<Entered, Trouble> {
        if self.run.is_source(&dir) {
            return Err(Trouble::Barred(Side::Replica, OWN_SOURCE));
        }
        if self.run.is_double(parent, name) {
            return Err(Trouble::Barred(Side::Replica, SHOWN_TWICE));
        }
        let keep = &self.run.options.policy.keep;
        let before = (*dir.first_meta(), dir.xattrs(keep)?);
        self.run.met_replica(&dir);
        Ok(Entered {
            before: Some(before),
            ..Entered::new(Some(dir))
        })
    }

    /// There is no such directory on the replica, or something else in its place.
    fn make_room(
        &mut self,
        (parent, name, id): (&Arc<Visit>, &CStr, Option<DirectoryId>),
        above: &DirMutRef,
        fault: Fault,
    ) -> Result<Entered, Trouble> {
        match above.look(name) {
            Err(missing) if missing.is_missing() => {
                let made = self.relocate_or_make(parent, name, id);
                self.or_met(made, parent, (above, name))
            }
            Err(other) => Err(other.into()),
            // It was missed, or came back: a second look is believed.
            Ok(meta) if meta.kind == Kind::Dir && fault.is_missing() => {
                let dir = above.enter_mut(name)?;
                self.existing(parent, name, dir)
            }
            Ok(meta) if meta.kind == Kind::Dir => self.force_open(above, name, &meta, fault),
            Ok(there) if !self.run.options.applies() => {
                self.spared_for_dir(parent, name)?;
                self.run.foretell_loss(&there);
                self.run.foretell_change(parent);
                Ok(Entered::new(None).in_place_of(there))
            }
            Ok(there) => {
                self.spared_for_dir(parent, name)?;
                parent.touch();
                match self.run.options.policy.trash {
                    true => self.run.give_way((&parent.path(), above), (name, &there))?,
                    false => above.remove(name)?,
                }
                self.make_replica(parent, name)
                    .map(|made| Entered::new(made).in_place_of(there))
            }
        }
    }

    /// Opens a directory that is this user's own and closed to reading: its mode lets the user in
    /// for the time of the run.
    fn force_open(
        &mut self,
        above: &DirMutRef,
        name: &CStr,
        meta: &Meta,
        fault: Fault,
    ) -> Result<Entered, Trouble> {
        // A mode does not let into a directory whose key is not there, say.
        let is_closed = fault.is_denied() && meta.uid == above.user().0;
        if !self.run.options.applies() || !is_closed {
            return Err(fault.into());
        }
        let attributes = Attributes {
            mode: Some(meta.mode | 0o700),
            ..Attributes::default()
        };
        above.set(name, &Known::of(meta), &attributes)?;
        let dir = above.enter_mut(name)?;
        let before = (*meta, dir.xattrs(&self.run.options.policy.keep)?);
        self.run.met_replica(&dir);
        Ok(Entered {
            before: Some(before),
            ..Entered::new(Some(dir))
        })
    }

    /// Reports a closed directory in a run that changes nothing: how it differs, and that what is
    /// in it is not known. Returns whether it was such a directory.
    fn tells_closed(
        &mut self,
        (parent, name, weight): (&Visit, &CStr, u64),
        source: &DirRef,
        fault: Fault,
    ) -> Done<bool> {
        let run = self.run;
        let Some(above) = parent.replica.as_ref().filter(|_| !run.options.applies()) else {
            return Ok(false);
        };
        let meta = above.look(name)?;
        if meta.kind != Kind::Dir || meta.uid != above.user().0 || !fault.is_denied() {
            return Ok(false);
        }
        let source = Entry {
            meta: *source.first_meta(),
            xattrs: source.xattrs(&run.options.policy.keep)?,
        };
        // Of a directory that may not be read, `user.*` attributes may not either (xattr(7)).
        let xattrs = above
            .xattrs_of(name, &run.options.policy.keep)
            .unwrap_or_else(|_| source.xattrs.clone());
        let replica = Entry { meta, xattrs };
        let mut intent = Intent::new(
            Action::Meta,
            differences(&source, &replica, &run.options.policy.keep),
            &source.meta,
        );
        if intent.what.is_empty() {
            return Ok(false);
        }
        let keep = &run.options.policy.keep;
        intent.values = values(&source, &replica, keep, intent.what);
        add(&run.tally.walked, weight);
        add(&run.tally.changed, 1);
        run.receipt(|| parent.path_of(name), intent);
        run.problem(parent.path_of(name), fault, Class::Skip);
        Ok(true)
    }

    fn make_replica(
        &mut self,
        parent: &Arc<Visit>,
        name: &CStr,
    ) -> Result<Option<DirMutRef>, Trouble> {
        let Some(above) = parent
            .replica
            .as_ref()
            .filter(|_| self.run.options.applies())
        else {
            self.run.foretell_change(parent);
            return Ok(None);
        };
        parent.touch();
        let dir = above.make_dir(name)?;
        if !parent.is_fresh() {
            // One that is made over a line may turn out not to be; further down, everything in it
            // then says so.
            dir.meta()?;
            forget_inherited(&dir)?;
            mark_closed(self.run.options, &dir)?;
        }
        Ok(Some(dir))
    }

    /// Lists a directory that was just begun, and hands out its names.
    pub fn list(&mut self, visit: &Arc<Visit>) {
        let weight = if visit.pass() == 0 { visit.weight } else { 0 };
        if !visit.selection.is_listed() && (!visit.was_listed() || visit.pass() == 0) {
            // No listing of the replica shows it.
            if let Err(fault) = self.run.look_for_mark(visit) {
                return self.unlisted(visit, fault);
            }
            if visit.is_repeated() {
                self.run.deletes.forget(visit.path());
            }
            let chosen: Vec<CString> = visit
                .selection
                .children
                .keys()
                .filter_map(|name| CString::new(&name[..]).ok())
                .collect();
            if let Err(fault) = self.find_shown(visit, &chosen) {
                return self.unlisted(visit, fault);
            }
            let mut names = Names::default();
            for name in &chosen {
                if !self.is_gone(visit, name) {
                    names.push(name, None);
                }
            }
            self.note_names(visit, &names);
            self.note_shown(visit, &names);
            self.find_protected(visit, &names);
            self.hand_out(visit, names, weight);
            return self.less(visit);
        }
        self.report_left_out(visit);
        match visit.source.list() {
            Ok(stream) => self.list_on(visit, stream, weight, true),
            Err(fault) => self.unlisted(visit, fault),
        }
    }

    /// Reads a window of names. What is left of a longer directory becomes an item for others.
    pub fn list_on(
        &mut self,
        visit: &Arc<Visit>,
        mut stream: Box<dyn NameStream>,
        weight: u64,
        is_first: bool,
    ) {
        let mut names = Names::default();
        let filled = stream.fill(&mut names, WINDOW_NAMES);
        let is_last = matches!(filled, Ok(false));
        if is_first && is_last {
            names.sort();
        }
        self.run
            .part
            .note_listing(visit, &names, (is_first, is_last));
        self.note_names(visit, &names);
        // Else the listing of the replica that follows shows it.
        if !is_first || !is_last || !self.looks_for_extras(visit) {
            self.find_protected(visit, &names);
        }
        match filled {
            Err(fault) => {
                self.hand_out(visit, names, weight);
                return self.unlisted(visit, fault);
            }
            Ok(true) => {
                // The listing of the replica comes too late for the first of so many names.
                if is_first && let Err(fault) = self.run.look_for_mark(visit) {
                    return self.unlisted(visit, fault);
                }
                self.run.remember_names(visit, &names);
                visit.more();
                self.run
                    .queue
                    .push(Task::List(visit.clone(), stream, weight / 2));
                self.hand_out(visit, names, weight - weight / 2);
            }
            Ok(false) => {
                drop(stream);
                if !is_first {
                    self.run.remember_names(visit, &names);
                }
                self.find_extras(visit, is_first.then_some(&names));
                self.find_listed(visit, is_first.then_some(&names));
                self.hand_out(visit, names, weight);
            }
        }
        self.less(visit);
    }

    fn unlisted(&mut self, visit: &Arc<Visit>, fault: Fault) {
        visit.mark_unlisted();
        if !self.is_lost(visit, &fault) {
            self.run.problem(visit.path(), fault, Class::Skip);
        }
        self.less(visit);
    }

    /// Directories come first: a kernel lets one thread at a time make or remove names in a
    /// directory, and the sooner many are open, the fewer threads wait for the same.
    fn hand_out(&mut self, visit: &Arc<Visit>, mut names: Names, weight: u64) {
        names.put_directories_first();
        let count = names.len() as u64;
        if count == 0 {
            return add(&self.run.tally.walked, weight);
        }
        add(&self.run.tally.walked, weight % count);
        if visit.pass() == 0 {
            add(&self.run.tally.seen, self.run.part.counted(visit, count));
        }
        visit.more();
        self.names(visit, &Arc::new(names), 0..count, weight / count);
    }

    /// Makes a range of names equal, giving half of the rest away whenever a thread is idle.
    pub fn names(
        &mut self,
        visit: &Arc<Visit>,
        names: &Arc<Names>,
        mut range: Range<u64>,
        weight: u64,
    ) {
        let queue = &self.run.queue;
        let share = |range| {
            visit.more();
            Task::Names(visit.clone(), names.clone(), range, weight)
        };
        while range.start < range.end && !self.run.stopped() && !self.run.yields() {
            let (name, hint) = names.get(range.start as usize);
            range.start += 1;
            queue.spare(
                &mut range,
                if hint == Some(Kind::Dir) {
                    QUEUE_LONG
                } else {
                    usize::MAX
                },
                share,
            );
            self.run.pace_request();
            self.entry(visit, name, hint, weight);
        }
        if self.run.yields() {
            self.give_back_names(visit, names, range);
        }
        self.less(visit);
    }

    /// Puts a subdirectory into the queue.
    pub fn descend(&mut self, visit: &Arc<Visit>, name: &CStr, weight: u64) {
        let new = visit.is_fresh();
        visit
            .source
            .expect(name, !new || !self.run.options.applies());
        if let Some(replica) = visit.replica.as_ref().filter(|_| !new) {
            replica.expect(name, true);
        }
        visit.more();
        self.run
            .queue
            .push(Task::Dir(visit.clone(), name.into(), weight));
    }

    /// A piece of work of `visit` is over. Finishes it if that was the last, and then the
    /// directories above.
    pub fn less(&mut self, visit: &Arc<Visit>) {
        if visit.less() && self.finish(visit) {
            self.ascend(visit);
        }
    }

    /// A directory is finished, and with it a piece of work of the one above.
    pub fn ascend(&mut self, visit: &Arc<Visit>) {
        let mut visit = visit.clone();
        loop {
            let Some(parent) = visit.parent.clone() else {
                return;
            };
            visit.source.leave();
            if let Some(replica) = &visit.replica {
                replica.leave();
            }
            visit = parent;
            if !visit.less() || !self.finish(&visit) {
                return;
            }
        }
    }

    /// Looks again at the source's directory; returns whether the matter is over, and not submitted
    /// or begun again.
    fn finish(&mut self, visit: &Arc<Visit>) -> bool {
        if self.run.stopped() || self.leaves_open(visit) {
            return true;
        }
        if self.submit_look_again(visit) {
            return false;
        }
        self.finish_now(visit, visit.source.meta_again())
    }

    /// Looks again at the source's directory, which is like `now`; returns whether the matter is
    /// over.
    pub fn finish_now(&mut self, visit: &Arc<Visit>, now: Done<Meta>) -> bool {
        let now = match now {
            Ok(now) => now,
            Err(fault) => return self.finish_attributes(visit, Err(fault)),
        };
        if visit.is_dirty(&now) && !visit.is_lost() {
            if visit.pass() < PASSES_MAX {
                visit.again(now);
                self.run.queue.push(Task::Again(visit.clone()));
                return false;
            }
            self.report_changing_dir(visit);
        }
        self.finish_attributes(visit, Ok(now))
    }
}

/// What is looked at below `name`. Of a directory that is listed again, what was not known is new,
/// and all of it is; so is all of one that the replica lacks and that is looked at by its names.
fn below(parent: &Visit, name: &CStr, is_new: bool) -> Arc<Selection> {
    let known = parent.selection.below(name.to_bytes());
    let by_names = parent.selection.names || known.as_ref().is_some_and(|known| known.names);
    if is_new && by_names {
        return Arc::new(Selection::all());
    }
    known.unwrap_or_else(|| {
        Arc::new(if parent.was_listed() || parent.selection.names {
            Selection::all()
        } else {
            Selection::default()
        })
    })
}

/// A name that was a directory a moment ago and is something else now has changed.
fn kind_changed(fault: Fault) -> Trouble {
    if fault.is_no_directory() {
        Trouble::Vanished
    } else {
        fault.into()
    }
}

impl Run<'_> {
    /// Whether a name that a listing of the source does not show is one that the source lacks.
    pub fn may_delete(&self, visit: &Visit) -> bool {
        self.options.policy.delete && self.vouches(visit)
    }
}
