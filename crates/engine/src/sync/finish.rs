//! The end of a directory: what earlier runs left in it is removed, and its own attributes are set.

use crate::clock::now;
use crate::sync::entry::Intent;
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::{Reason, add};
use driftless_model::{Action, Class, Entry, Fault, Meta, PERMISSIONS, What, Xattrs};
use driftless_reconcile::{differences, values};
use driftless_tree::{Attributes, DirMutRef, Done, Known, Stood, own_temp_number};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// An unfinished entry that nobody has changed for so long was left.
const LEFT_SECONDS: i64 = 3600;

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
    /// Sets the attributes of the directory itself and accounts for it; returns whether that is
    /// done, and not submitted. `now` is what the source's directory is like.
    pub fn finish_attributes(&mut self, visit: &Arc<Visit>, now: Result<Meta, Fault>) -> bool {
        if let (Some(left), Some(replica)) = (&visit.left, &visit.replica) {
            self.find_leftovers(visit, left, replica);
        }
        self.respell(visit);
        self.remove_leftovers(visit);
        self.see_copied_up(visit);
        let keep = &self.run.options.policy.keep;
        let source = now.and_then(|meta| {
            Ok(Entry {
                meta,
                xattrs: visit.source.xattrs(keep)?,
            })
        });
        if let Ok(source) = &source {
            self.run.part.note_xattrs(visit, &source.xattrs);
        }
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

    /// Sees whether a directory has lost its time by a change that was made below it.
    fn see_copied_up(&self, visit: &Visit) {
        let replica = visit.replica.as_ref();
        if let (Some(replica), Some(_)) = (replica, &self.run.ground.copying_up) {
            let before = replica.first_meta().mtime;
            if replica.meta().is_ok_and(|now| now.mtime != before) {
                visit.touch();
            }
        }
    }

    /// Counts a directory that could not be listed to its end. That was reported before, or the
    /// source's directory vanished and is looked for once more.
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
        // Whether the other host has set it before the connection was lost is not known.
        if !faults.iter().any(Fault::is_cut_off) && self.count_dir(visit, &self.run.tally.changed) {
            self.note_time_made(visit, None, &intent);
            self.run.receipt(|| visit.path(), intent);
        }
        faults
            .into_iter()
            .for_each(|fault| self.run.problem(visit.path(), fault, Class::Partly));
    }

    /// Counts a directory and returns true; false if it was counted before and is only passed
    /// through again on the way to a chosen path.
    fn count_dir(&self, visit: &Visit, counter: &AtomicU64) -> bool {
        let again = self.run.is_second && !visit.selection.whole;
        if again {
            self.run.tally.seen.fetch_sub(1, Relaxed);
        } else {
            add(counter, 1);
            self.run.part.settle_dir(visit);
        }
        !again
    }

    fn finish_entry(&mut self, visit: &Arc<Visit>, source: Entry) -> Done<End> {
        self.run.tell_unmapped(&source.meta);
        let there = met_there(visit);
        let (action, mut what) = self.step_of_dir(visit, &source, there.as_ref());
        // Setting other attributes leaves the directory's time as it is.
        let is_left = action == Action::Meta && !visit.is_touched() && !what.has(What::MTIME);
        if let Some((before, _)) = visit.before.as_ref().filter(|_| is_left) {
            let is_set = self.settle_time_of_dir(visit, &source.meta, before)?;
            what.add_if(is_set, What::MTIME);
        }
        let equal = action == Action::Meta && what.is_empty();
        if let Some(there) = visit.replica.as_ref().map(|replica| replica.first_meta()) {
            self.run
                .note_unkept(Run::unkept_between(&source, there), || visit.path());
        }
        let timed = !is_left || what.has(What::MTIME);
        let mut intent = Intent::new(action, what, &source.meta);
        if let (true, Some(there)) = (self.run.monitor.wants_values(), &there) {
            let keep = &self.run.options.policy.keep;
            let wanted = self
                .run
                .attainable_entry(&source, there, None::<&DirMutRef>);
            intent.values = values(&wanted, there, keep, what);
        }
        let faults = match &visit.replica {
            Some(replica) if self.run.options.applies() && (!equal || visit.is_touched()) => {
                // The one above may be open to more than this one is to be.
                visit.parent.as_ref().and_then(|above| above.narrow());
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
                if let Some(above) = visit.parent.as_ref().filter(|_| !equal) {
                    self.run.foretell_change(above);
                }
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
            what.add_if(
                visit.closed || !keep.mode && visit.is_narrowed(),
                What::MODE,
            );
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
        let keep = &self.mover.terms.rules.keep;
        let mode = source.xattrs.mode_of_copy(source.meta.mode);
        let mut attributes = Attributes::of(&source.meta, source.xattrs, keep);
        let known = if visit.is_made() {
            attributes = attributes.or_mode(keep.new_mode(mode));
            Known {
                owner: visit.birth,
                mode: Some(0o700),
                clean: true,
                ..Known::default()
            }
        } else {
            if let Some((before, _)) = visit.before.as_ref().filter(|_| !keep.mode) {
                attributes = match () {
                    () if visit.closed => attributes.or_mode(keep.new_mode(mode)),
                    () => Attributes {
                        stood: Some(Stood {
                            mode: before.mode,
                            is_changed: visit.parent.is_some()
                                && (visit.is_touched() || visit.is_narrowed()),
                        }),
                        ..attributes.or_mode(mode & PERMISSIONS)
                    },
                };
            }
            Known::of(&replica.meta()?)
        };
        Ok((known, attributes))
    }

    /// Removes unfinished entries that an earlier run left and this one did not go on with.
    fn remove_leftovers(&mut self, visit: &Visit) {
        let leftovers = std::mem::take(&mut *visit.leftovers.lock());
        let Some(replica) = visit
            .replica
            .as_ref()
            .filter(|_| self.run.options.applies())
        else {
            if !leftovers.is_empty() {
                self.run.foretell_change(visit);
            }
            return;
        };
        let spares_young = self.run.options.meets_others();
        for name in leftovers {
            if spares_young && self.may_be_in_work(replica, &name) {
                continue;
            }
            visit.touch();
            let removed = replica.remove_leftover(&name);
            self.run.report_stuck(&visit.path(), removed.stuck);
        }
    }

    /// Whether another process, or another thread of this one, may be at work on an unfinished
    /// entry.
    fn may_be_in_work(&self, replica: &DirMutRef, name: &CStr) -> bool {
        // A member that loses its lease may not even remove what it has begun. Nothing is in work
        // when it opens the trees again.
        let is_left = own_temp_number(name).is_some_and(|number| number < self.run.ground.named);
        !is_left && replica.look(name).is_ok_and(|meta| is_young(&meta))
    }
}

/// Whether an unfinished entry was changed so short a time ago that a process may be at work on it.
fn is_young(meta: &Meta) -> bool {
    meta.ctime.max(meta.mtime).sec > now().sec - LEFT_SECONDS
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
