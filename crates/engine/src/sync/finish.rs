//! The end of a directory: what earlier runs left is removed, what the source lacks is noted, its
//! own attributes are set.

use crate::shared::unfinished::Unfinished;
use crate::sync::closed::OPENED;
use crate::sync::entry::Intent;
use crate::sync::run::Run;
use crate::sync::stored::stored_otherwise;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::{Reason, add};
use crate::trees::looks::{believed_twice, there};
use driftless_model::{Act, Action, Class, Entry, Fault, Kind, Meta, Side, What, Xattrs, errno};
use driftless_reconcile::{differences, values};
use driftless_tree::{
    Attributes, DirMutRef, DirRef, Done, Known, NameHashes, Names, ROOT_MARK, descend, descend_mut,
    is_between_name, is_root_name, is_temp_name, windows,
};
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How a directory ends.
enum End {
    /// It was equal.
    Equal,
    /// What differed was set, but for what could not be.
    Set(Intent, Vec<Fault>),
    /// What differs was submitted; the rest follows from its completion.
    Submitted,
}

impl Worker<'_> {
    /// Finds entries of the replica that the source lacks. `known` are all names of the source, if
    /// one window holds them.
    ///
    /// In a second look at a directory, too: what was there in the first may have vanished since.
    pub fn find_extras(&mut self, visit: &Arc<Visit>, known: Option<&Names>) {
        let Some(replica) = visit
            .replica
            .as_ref()
            .filter(|_| self.looks_for_extras(visit))
        else {
            return;
        };
        if visit.is_repeated() {
            self.run.deletes.forget(visit.path());
        }
        if let Err(fault) = self.scan_extras(visit, replica, known) {
            self.run.problem(visit.path(), fault, Class::Skip);
        }
    }

    /// Whether the source does not have a chosen name any more, which then is to go from the
    /// replica, unless it is gone from there, too. Whatever cannot be told is met like any other
    /// entry.
    pub fn is_gone(&mut self, visit: &Arc<Visit>, name: &CStr) -> bool {
        let options = self.run.options;
        let Some(replica) = visit
            .replica
            .as_ref()
            .filter(|_| options.removes_chosen && options.policy.delete)
        else {
            return false;
        };
        if is_temp_name(name)
            || !matches!(there(visit.source.look(name)), Ok(None))
            || self.run.hides_mount(visit, name)
        {
            return false;
        }
        let Ok(standing) = there(replica.look(name)) else {
            return false;
        };
        if standing.is_some_and(|meta| meta.kind == Kind::Dir) && self.keeps_unasked(visit, name) {
            return true;
        }
        if let Some(meta) = standing
            && (options.policy.delete_excluded
                || self.run.takes(visit, name, meta.kind == Kind::Dir))
        {
            add(&self.run.tally.replica_seen, 1);
            self.run.deletes.add(&visit.path(), &[name.into()]);
        }
        true
    }

    /// Whether a directory that the source lacks stays for what the replica has in it, which was
    /// not asked about: it may have been renamed, of which somebody will tell.
    fn keeps_unasked(&mut self, visit: &Visit, name: &CStr) -> bool {
        let chosen = visit.selection.children.get(name.to_bytes());
        let replica = visit.replica.as_ref().expect("it was looked at there");
        if chosen.is_none_or(|chosen| chosen.whole) {
            return false;
        }
        let is_filled = replica.enter(name).and_then(|dir| {
            let mut names = Names::default();
            dir.list()?.fill(&mut names, 1)?;
            Ok(!names.is_empty())
        });
        if is_filled.is_ok_and(|is_filled| is_filled) {
            let fault = Fault {
                side: Side::Replica,
                act: Act::RemoveDirectory,
                errno: errno::ENOTEMPTY,
            };
            self.run
                .problem(visit.path_of(name), fault, Class::Changing);
            return true;
        }
        false
    }

    /// Whether the replica's directory is listed together with the source's.
    pub fn looks_for_extras(&self, visit: &Visit) -> bool {
        !visit.borrowed
            && if visit.pass() == 0 {
                !visit.is_made()
            } else {
                self.run.may_delete(visit)
            }
    }

    /// Of a directory that somebody else listed: only unfinished entries are looked for.
    fn find_leftovers(&mut self, visit: &Arc<Visit>, left: &Unfinished, replica: &DirMutRef) {
        if left.unlisted {
            visit.mark_unlisted();
        }
        if let Err(fault) = self.scan_extras(visit, replica, None) {
            self.run.problem(visit.path(), fault, Class::Skip);
        }
    }

    fn scan_extras(
        &mut self,
        visit: &Arc<Visit>,
        replica: &DirMutRef,
        known: Option<&Names>,
    ) -> Done {
        let windows = windows(replica)?;
        let met = self.run.recall_names(visit);
        for names in windows {
            let names = names?;
            if !visit.is_repeated() {
                add(&self.run.tally.replica_seen, names.len() as u64);
            }
            if let Some(known) = known {
                self.note_protected((visit, replica), known, &names);
            }
            let (mut extras, mut kept) = (Vec::new(), Vec::new());
            for (name, kind) in (0..names.len()).map(|index| names.get(index)) {
                if is_between_name(name) && self.respell_on(visit, name, known)? {
                    continue;
                }
                match self.is_extra((visit, replica), (name, kind), (known, &met)) {
                    // The lock of a replica within this one is its own business.
                    Ok(true) if name == ROOT_MARK => self.run.meet_listed_mark(visit, replica)?,
                    Ok(true) if is_root_name(name) => {}
                    Ok(true) if is_temp_name(name) => visit.leftovers.lock().push(name.into()),
                    Ok(false) if !self.is_kept((visit, replica), (name, kind), (known, &met)) => {}
                    Ok(_) if self.run.hides_mount(visit, name) => {}
                    Ok(true) => extras.push(name.into()),
                    Ok(false) => kept.push(name.into()),
                    Err(fault) => self.run.problem(visit.path_of(name), fault, Class::Skip),
                }
            }
            if !extras.is_empty() {
                self.keep_misspelt(visit, (known, &names), &mut extras)?;
            }
            if !extras.is_empty() {
                self.run.deletes.add(&visit.path(), &extras);
            }
            if !kept.is_empty() && !visit.is_repeated() {
                let misspelt = self.misspelt(visit, (known, &names), &kept)?;
                add(
                    &self.run.tally.only_on_replica,
                    (kept.len() - misspelt.len()) as u64,
                );
                self.note_doubt_of_kept((visit, replica), &kept);
            }
        }
        Ok(())
    }

    /// Whether an entry of the replica is to go. Nothing goes on doubt: a look that fails for
    /// another reason than absence is a fault.
    fn is_extra(
        &self,
        (visit, replica): (&Arc<Visit>, &DirMutRef),
        (name, kind): (&CStr, Option<Kind>),
        (known, met): (Option<&Names>, &NameHashes),
    ) -> Done<bool> {
        // What the source has at such a name is not copied, so it cannot be that.
        if is_temp_name(name) {
            return Ok(true);
        }
        if !self.run.may_delete(visit) {
            return Ok(false);
        }
        if self.run.options.policy.filter.has_rules() {
            let Some(kind) = kind_there(replica, name, kind)? else {
                return Ok(false);
            };
            if !self.run.takes(visit, name, kind == Kind::Dir) {
                return Ok(self.run.options.policy.delete_excluded
                    && !self.is_taken_otherwise(visit, name, known)?);
            }
        }
        match known {
            Some(known) => Ok(!self.indexes(known, name)),
            None => Ok(!met.contains(name) && there(visit.source.look(name))?.is_none()),
        }
    }

    /// Whether the source has something of another kind at a name which the rules leave out as what
    /// it is on the replica: then it takes its place.
    fn is_taken_otherwise(
        &self,
        visit: &Arc<Visit>,
        name: &CStr,
        known: Option<&Names>,
    ) -> Done<bool> {
        if known.is_some_and(|known| !self.indexes(known, name)) {
            return Ok(false);
        }
        Ok(there(visit.source.look(name))?
            .is_some_and(|meta| self.run.takes(visit, name, meta.kind == Kind::Dir)))
    }

    /// Sets the attributes of the directory itself and accounts for it; returns whether that is
    /// done, and not submitted. `now` is what the source's directory is like.
    pub fn finish_attributes(&mut self, visit: &Arc<Visit>, now: Result<Meta, Fault>) -> bool {
        if let (Some(left), Some(replica)) = (&visit.left, &visit.replica) {
            self.find_leftovers(visit, left, replica);
        }
        self.respell(visit);
        self.remove_leftovers(visit);
        let keep = &self.run.options.policy.keep;
        let source = now.and_then(|meta| {
            Ok(Entry {
                meta,
                xattrs: visit.source.xattrs(keep)?,
            })
        });
        let done = source.and_then(|source| self.finish_entry(visit, source));
        match done {
            Err(fault) if self.is_lost(visit, &fault) => self.account_unlisted(visit),
            Err(fault) => {
                add(&self.run.tally.failed, 1);
                self.run.problem(visit.path(), fault, Class::Skip);
            }
            Ok(End::Submitted) => return false,
            Ok(End::Equal) if !visit.is_unlisted() => {
                let _equal_either_way = self.count_dir(visit, &self.run.tally.same);
            }
            Ok(End::Equal) => self.account_unlisted(visit),
            Ok(End::Set(intent, faults)) => self.account_dir(visit, intent, faults),
        }
        true
    }

    /// Counts a directory that could not be listed to its end: that was reported before, or it is
    /// looked for once more.
    fn account_unlisted(&self, visit: &Visit) {
        if visit.is_lost() {
            self.run.tally.skip(Reason::Vanished)
        } else {
            add(&self.run.tally.failed, 1)
        }
    }

    /// Counts and reports a directory that was not equal.
    pub fn account_dir(&mut self, visit: &Visit, intent: Intent, faults: Vec<Fault>) {
        if visit.is_unlisted() {
            return self.account_unlisted(visit);
        }
        // What the other host heard of it before the line was lost, nobody knows.
        if !faults.iter().any(Fault::is_cut_off) && self.count_dir(visit, &self.run.tally.changed) {
            self.run.receipt(|| visit.path(), intent);
        }
        faults
            .into_iter()
            .for_each(|fault| self.run.problem(visit.path(), fault, Class::Partly));
    }

    /// Counts a directory, unless that was done before and it was seen once more on the way to
    /// something else; says whether it counts.
    fn count_dir(&self, visit: &Visit, counter: &AtomicU64) -> bool {
        let again = self.run.is_second && !visit.selection.whole;
        if again {
            self.run.tally.seen.fetch_sub(1, Relaxed);
        } else {
            add(counter, 1);
            self.run.part.settle(|| visit.path(), Some((Kind::Dir, 0)));
        }
        !again
    }

    fn finish_entry(&mut self, visit: &Arc<Visit>, source: Entry) -> Done<End> {
        let there = met_there(visit);
        let (action, what) = self.step_of_dir(visit, &source, there.as_ref());
        let equal = action == Action::Meta && what.is_empty();
        if let Some(there) = visit.replica.as_ref().map(|replica| replica.first_meta()) {
            self.run
                .note_unkept(Run::unkept_between(&source, there), || visit.path());
        }
        // Whatever else is set leaves the time as it is.
        let timed = action != Action::Meta || visit.is_touched() || what.has(What::MTIME);
        visit
            .before
            .iter()
            .filter(|_| !timed)
            .for_each(|(before, _)| self.note_times(visit, None, (&source.meta, before)));
        let mut intent = Intent::new(action, what, &source.meta);
        if let (true, Some(there)) = (self.run.monitor.wants_values(), &there) {
            intent.values = values(&source, there, what);
        }
        let faults = match &visit.replica {
            Some(replica) if !self.run.options.dry_run && (!equal || visit.is_touched()) => {
                let (known, mut attributes) = self.wanted(visit, replica, source)?;
                attributes.mtime = attributes.mtime.filter(|_| timed);
                self.run.unmark_closed(visit)?;
                if !equal && self.submit_attributes(visit, known, &attributes, &intent) {
                    return Ok(End::Submitted);
                }
                let faults = replica.set_own(&known, &attributes).into_iter();
                faults
                    .filter(|fault| !self.run.does_without(fault))
                    .collect()
            }
            _ => {
                for (before, xattrs) in visit.before.iter().filter(|_| equal) {
                    self.run
                        .note_owner(&source.meta, before, None::<&DirMutRef>);
                    self.run.note_privileges(&source.xattrs, xattrs);
                }
                Vec::new()
            }
        };
        Ok(if equal && faults.is_empty() {
            End::Equal
        } else {
            End::Set(intent, faults)
        })
    }

    /// What was or is done to a directory as a whole, and what differs of it.
    fn step_of_dir(&self, visit: &Visit, source: &Entry, there: Option<&Entry>) -> (Action, What) {
        let keep = &self.run.options.policy.keep;
        let differs = || {
            let held = |there: &Entry| {
                let attainable = self.run.attainable_entry(source, there, None::<&DirMutRef>);
                differences(&attainable, there, keep)
            };
            let mut what = there.map_or(What::default(), held);
            what.add_if(visit.closed, What::MODE);
            what
        };
        match visit.left {
            _ if visit.replaced.is_some() => (Action::Replace, differs()),
            Some(left) if left.replaced => (Action::Replace, What::default()),
            Some(left) if left.made => (Action::Create, What::default()),
            _ if visit.is_made() => (Action::Create, What::default()),
            _ => (Action::Meta, differs()),
        }
    }

    /// What is known of the replica's directory, and what it shall have.
    fn wanted(
        &mut self,
        visit: &Visit,
        replica: &DirMutRef,
        source: Entry,
    ) -> Done<(Known, Attributes)> {
        let terms = self.mover.terms;
        let mut attributes = Attributes::of(&source.meta, source.xattrs, &terms.rules.keep);
        let known = if visit.is_made() {
            attributes = attributes.or_mode(OPENED);
            Known {
                owner: visit.birth,
                mode: Some(0o700),
                clean: true,
                ..Known::default()
            }
        } else {
            if let (None, Some((before, _))) = (attributes.mode, &visit.before) {
                attributes.mode = Some(if visit.closed { OPENED } else { before.mode });
            }
            Known::of(&replica.meta()?)
        };
        Ok((known, attributes))
    }

    /// Removes unfinished entries that an earlier run left and nobody took up again.
    fn remove_leftovers(&mut self, visit: &Visit) {
        let Some(replica) = visit.replica.as_ref().filter(|_| !self.run.options.dry_run) else {
            return;
        };
        let leftovers = std::mem::take(&mut *visit.leftovers.lock());
        for name in leftovers {
            visit.touch();
            let removed = replica.remove_leftover(&name);
            self.run.report_stuck(&visit.path(), removed.stuck);
        }
    }

    /// Removes names from the replica's directory at `path`, if the source still lacks them, and
    /// mends its times.
    pub fn delete(&mut self, path: &driftless_model::RelPath, names: &[CString]) {
        let Some((source, replica)) = self.open_both(path) else {
            return;
        };
        // A network file system remembers names that are not there as long as it takes the
        // directory to be what it was.
        if let Err(fault) = source.meta_again() {
            return self.run.problem(path.clone(), fault, Class::Skip);
        }
        let stored = match stored_otherwise(self.run, path, (&source, &replica)) {
            Ok(stored) => stored,
            Err(fault) => return self.run.problem(path.clone(), fault, Class::Skip),
        };
        if !self.run.options.dry_run {
            replica.make_writable();
        }
        for name in names {
            if self.run.stopped() {
                return;
            }
            self.run.pace_request();
            self.delete_one((path, name), (&source, &replica), &stored);
        }
        if self.run.options.dry_run {
            return;
        }
        if let (Ok(meta), Ok(there)) = (source.meta(), replica.meta()) {
            let keep = driftless_model::Keep {
                xattrs: false,
                acls: false,
                ..self.run.options.policy.keep
            };
            let faults = replica.set_own(
                &Known::of(&there),
                &Attributes::of(&meta, Xattrs::default(), &keep),
            );
            // What this user may not set was told when the directory was finished.
            let new = faults.into_iter().filter(|fault| !fault.is_denied());
            new.for_each(|fault| self.run.problem(path.clone(), fault, Class::Partly));
        }
    }

    /// The directory that names go from, on both sides. It was listed, so that it is absent is
    /// believed the second time. Where the replica has none any more, there is nothing to remove;
    /// where the source has none any more, it is seen later whether the replica still has it.
    fn open_both(&self, path: &driftless_model::RelPath) -> Option<(DirRef, DirMutRef)> {
        let (source, replica) = &self.run.roots;
        let open = || descend_mut(replica.as_ref().expect("deletes need a replica"), path);
        match believed_twice(open).and_then(|replica| Ok((descend(source, path)?, replica))) {
            Ok(both) => return Some(both),
            Err(fault) if !fault.is_absent() => self.run.problem(path.clone(), fault, Class::Skip),
            Err(fault)
                if fault.side == Side::Replica || self.run.deletes.left_by_source(path, fault) => {}
            Err(fault) => self.run.problem(path.clone(), fault, Class::Changing),
        }
        None
    }

    /// Removes an entry of the replica, unless it is one of those that are `stored` there under
    /// another name of the source.
    fn delete_one(
        &mut self,
        (path, name): (&driftless_model::RelPath, &CStr),
        dirs: (&DirRef, &DirMutRef),
        stored: &HashSet<(u64, u64)>,
    ) {
        match self.still_extra(path, name, dirs) {
            Ok(Standing::Extra(meta))
                if stored.contains(&meta.id()) && (meta.kind == Kind::Dir || meta.nlink == 1) => {}
            // It may be a further name of what another name of the source stands for, or that name
            // as the file system stores it.
            Ok(Standing::Extra(meta)) if stored.contains(&meta.id()) => {
                self.report_untold(path.join(name.to_bytes()))
            }
            Ok(Standing::Extra(meta)) => self.remove_extra(path, name, dirs.1, &meta),
            Ok(Standing::Gone) => {}
            Ok(Standing::There) => self.report_unlisted(path.join(name.to_bytes())),
            Err(fault) => self
                .run
                .problem(path.join(name.to_bytes()), fault, Class::Skip),
        }
    }

    /// Looks once more on both sides at a name that is to go. The source is not asked only about
    /// what the rules leave out. That the replica lacks what it has listed before is believed the
    /// second time: who deletes it is not this run, and nobody else would tell.
    fn still_extra(
        &self,
        path: &driftless_model::RelPath,
        name: &CStr,
        (source, replica): (&DirRef, &DirMutRef),
    ) -> Done<Standing> {
        let Some(meta) = there(believed_twice(|| replica.look(name)))? else {
            return Ok(Standing::Gone);
        };
        let (filter, options) = (&self.run.options.policy.filter, self.run.options);
        let excluded = options.policy.delete_excluded
            && !filter.takes(
                path.join(name.to_bytes()).as_bytes(),
                meta.kind == Kind::Dir,
            );
        let lacks = excluded || there(source.look(name))?.is_none();
        Ok(if lacks {
            Standing::Extra(meta)
        } else {
            Standing::There
        })
    }

    /// Says that a name may be one of the source's that the replica stores otherwise, or a further
    /// one of the same file.
    fn report_untold(&self, path: driftless_model::RelPath) {
        let cause = "a name of the source that no listing shows leads to the same file".into();
        self.run.report(&driftless_model::Problem {
            path,
            side: Side::Replica,
            act: Act::TellApart,
            cause,
            class: Class::Skip,
        });
    }

    /// Says that the source has a name that no listing had: it came back, or the listing missed it.
    /// Nobody compared it.
    fn report_unlisted(&self, path: driftless_model::RelPath) {
        let (act, cause) = (Act::Compare, "it is there, and was not listed".into());
        self.run.report(&driftless_model::Problem {
            path,
            side: Side::Source,
            act,
            cause,
            class: Class::Changing,
        });
    }

    fn remove_extra(
        &mut self,
        path: &driftless_model::RelPath,
        name: &CStr,
        replica: &DirMutRef,
        meta: &Meta,
    ) {
        let place = || path.join(name.to_bytes());
        let dry = self.run.options.dry_run;
        let removed = self.run.with_spared(path, |spared| match dry {
            true => replica.count_tree(name, u64::MAX, spared),
            false => replica.remove_tree(name, spared),
        });
        add(&self.run.tally.deleted, removed.entries);
        self.run.report_stuck(path, removed.stuck);
        // Of a directory in which everything is spared nothing goes.
        if removed.entries > 0 {
            self.run.receipt(
                place,
                Intent {
                    size: 0,
                    ..Intent::new(Action::Delete, What::default(), meta)
                },
            );
        }
    }
}

/// How a name that is to go from the replica stands in the second look.
enum Standing {
    /// The replica has it no more.
    Gone,
    /// The replica alone has it.
    Extra(Meta),
    /// The source has it, too.
    There,
}

/// The kind of an entry, which not every file system tells in a listing; `None` if it is gone.
fn kind_there(dir: &DirMutRef, name: &CStr, listed: Option<Kind>) -> Done<Option<Kind>> {
    listed.map_or_else(
        || Ok(there(dir.look(name))?.map(|meta| meta.kind)),
        |kind| Ok(Some(kind)),
    )
}

/// What the replica had at the name of a directory, if that is known.
fn met_there(visit: &Visit) -> Option<Entry> {
    match (&visit.replaced, &visit.before) {
        (Some(other), _) => Some(Entry {
            meta: *other,
            xattrs: Xattrs::default(),
        }),
        (None, before) => before.as_ref().map(|(meta, xattrs)| Entry {
            meta: *meta,
            xattrs: xattrs.clone(),
        }),
    }
}
