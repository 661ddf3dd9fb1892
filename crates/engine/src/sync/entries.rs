//! Making the entries of a directory equal: looking, comparing, and doing the least.

mod make;

use crate::sync::comparisons::WHOLE;
use crate::sync::entry::{Intent, Met, Pair, Reconciled, Verdict};
use crate::sync::grouped::store_trouble;
use crate::sync::listed::has_listed;
use crate::sync::run::Run;
use crate::sync::unkept::Settled;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::{Reason, add};
use crate::trees::looks::there;
use crate::trees::mounts::UNMOUNTED;
use driftless_model::{Action, Class, Difference, Entry, Kind, Meta, Side, What, Xattrs, escape};
use driftless_mover::{Compared, Moved, Opened, Patch, Trouble, kind_changed};
use driftless_reconcile::{Rules, Step, after_content, decide, values};
use driftless_tree::{Dir, DirMutRef, is_temp_name};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What is open already of an entry that is to be made.
#[derive(Default)]
struct Ready {
    opened: Option<Opened>,
    patch: Option<Patch>,
}

/// Ranges that a receipt names at most.
const RANGES_MAX: usize = 1000;

/// Reason why an entry of the source that has a reserved name is not copied.
pub const RESERVED: &str = "names of this form are for unfinished entries and locks of replicas";

impl Worker<'_> {
    /// Makes the entry `name` of `visit` equal and accounts for it. Its share of the walk is
    /// `weight`.
    pub fn entry(&mut self, visit: &Arc<Visit>, name: &CStr, hint: Option<Kind>, weight: u64) {
        let done = self.reconcile(visit, name, hint, weight);
        self.conclude(visit, name, weight, done);
    }

    /// Counts and reports what came of an entry.
    pub fn account(&mut self, visit: &Arc<Visit>, name: &CStr, verdict: Verdict) {
        match verdict {
            Verdict::Same if visit.pass() == 0 => {
                add(&self.run.tally.same, 1);
            }
            Verdict::Same
            | Verdict::Waits
            | Verdict::Large
            | Verdict::Submitted
            | Verdict::Below
            | Verdict::GivenBack => {}
            Verdict::Reported => {
                self.count_late(visit);
                add(&self.run.tally.failed, 1);
            }
            Verdict::Skipped(reason) => self.skip(visit, reason),
            Verdict::Changed(intent, moved) => {
                self.count_late(visit);
                self.run.foretell_change(visit);
                add(&self.run.tally.changed, 1);
                add(&self.run.tally.deleted, intent.room);
                add(&self.run.tally.bytes_copied, moved.bytes);
                add(&self.run.tally.mismatched, moved.mismatches);
                self.note_made(visit, name, moved.unkept);
                self.note_time_made(visit, Some(name), &intent);
                if moved.faults.is_empty() && !moved.young {
                    let (source, applies) = (moved.source.as_deref(), self.run.options.applies());
                    self.run.part.settle_made(visit, name, source, applies);
                }
                self.run.receipt(|| visit.path_of(name), intent);
                for fault in moved.faults {
                    self.run.problem(visit.path_of(name), fault, Class::Partly);
                }
                if moved.young {
                    self.report_changing(visit, name);
                }
            }
        }
    }

    fn reconcile(
        &mut self,
        visit: &Arc<Visit>,
        name: &CStr,
        hint: Option<Kind>,
        weight: u64,
    ) -> Reconciled {
        if is_temp_name(name) {
            return self.refuse_reserved(visit, name, hint);
        }
        if visit.is_beside(name) {
            return Ok(Verdict::Skipped(Reason::Filtered));
        }
        if hint.is_some_and(|kind| !self.run.takes(visit, name, kind == Kind::Dir)) {
            return Ok(Verdict::Skipped(Reason::Filtered));
        }
        self.spared_as_spelt(visit, name)?;
        if let Some(problem) = self.namesake(visit, name) {
            return Ok(problem);
        }
        match hint {
            Some(Kind::Dir) => return self.subdirectory(visit, name, weight),
            Some(_) if self.run.is_other_file(visit, name) => {
                return Err(Trouble::Barred(Side::Source, UNMOUNTED));
            }
            Some(Kind::File)
                if visit.is_fresh() && self.run.options.applies() && !has_listed(visit, name) =>
            {
                return self.new_file(visit, name, weight);
            }
            _ => {}
        }
        let meta = visit.source.look(name)?;
        if meta.kind != Kind::Dir && self.run.was_divided(visit, name) {
            // The directory went. What took its place is met, and counted, when the whole run
            // finishes what was divided.
            return Err(Trouble::Vanished);
        }
        if hint.is_none() && !self.run.takes(visit, name, meta.kind == Kind::Dir) {
            return Ok(Verdict::Skipped(Reason::Filtered));
        }
        if meta.kind == Kind::Dir {
            return self.subdirectory(visit, name, weight);
        }
        if hint.is_none() && self.run.is_other_file(visit, name) {
            return Err(Trouble::Barred(Side::Source, UNMOUNTED));
        }
        if self.blocks_listed(visit, name) {
            return Ok(Verdict::Reported);
        }
        self.run.tell_unmapped(&meta);
        if let Some(reason) = self.unwanted(&meta) {
            return Ok(Verdict::Skipped(reason));
        }
        self.grouped(
            Met {
                visit,
                name,
                meta: &meta,
                leads: false,
                whole: None,
                weight,
            },
            None,
        )
    }

    /// Refuses an entry of the source that has the name of an unfinished copy: a run would take the
    /// one for the other. In a tree that was a replica, it is such a copy.
    fn refuse_reserved(&mut self, visit: &Visit, name: &CStr, hint: Option<Kind>) -> Reconciled {
        if self.run.options.passes_by_unfinished {
            return Ok(Verdict::Skipped(Reason::Filtered));
        }
        let kind = match hint {
            Some(kind) => kind,
            None => match there(visit.source.look(name))? {
                Some(meta) => meta.kind,
                // It was chosen, and is gone; what the replica has at such a name is no copy of it.
                None => return Ok(Verdict::Skipped(Reason::Filtered)),
            },
        };
        // No listing shows it; it was chosen, such as by somebody who has announced it.
        if visit.is_own(name, kind) {
            return Ok(Verdict::Skipped(Reason::Filtered));
        }
        if !self.run.takes(visit, name, kind == Kind::Dir) {
            return Ok(Verdict::Skipped(Reason::Filtered));
        }
        Err(Trouble::Barred(Side::Source, RESERVED))
    }

    fn unwanted(&self, meta: &Meta) -> Option<Reason> {
        if !self.run.options.policy.keep.keeps_kind(meta.kind) {
            return Some(Reason::Kind);
        }
        if meta.kind != Kind::File {
            return None;
        }
        add(&self.run.tally.bytes_seen, meta.size);
        (!self.run.options.policy.filter.takes_size(meta.size)).then_some(Reason::Filtered)
    }

    /// Enters a subdirectory; in a second look at its directory, only one that was not entered in
    /// the first. What lies in the others is looked at by their own visits.
    fn subdirectory(&mut self, visit: &Arc<Visit>, name: &CStr, weight: u64) -> Reconciled {
        if self.is_passed_by(visit, name)? {
            return Ok(self.pass_by(visit, weight));
        }
        if visit.pass() == 0 || !self.was_entered(visit, name)? {
            self.descend(visit, name, weight);
        }
        Ok(Verdict::Below)
    }

    /// Whether a directory is not looked at: only the names around it are, and both sides have it.
    /// One that has come to its name since, on the source, is.
    fn is_passed_by(&self, visit: &Visit, name: &CStr) -> Result<bool, Trouble> {
        let chosen = &visit.selection;
        if chosen.whole || !chosen.names || chosen.children.contains_key(name.to_bytes()) {
            return Ok(false);
        }
        let there = self.replica_meta(visit, name)?;
        if visit.pass() > 0 || there.is_none_or(|meta| meta.kind != Kind::Dir) {
            return Ok(false);
        }
        visit.entered.note(name, &visit.source.look(name)?);
        Ok(true)
    }

    /// Nobody has looked at it, so it counts as never met.
    fn pass_by(&self, visit: &Visit, weight: u64) -> Verdict {
        if visit.pass() == 0 {
            self.run.tally.seen.fetch_sub(1, Relaxed);
        }
        add(&self.run.tally.walked, weight);
        Verdict::Below
    }

    fn was_entered(&self, visit: &Visit, name: &CStr) -> Result<bool, Trouble> {
        if visit.left.is_some() {
            // Another mover has listed it, and made each subdirectory that it entered.
            let known =
                |replica: &DirMutRef| replica.look(name).is_ok_and(|meta| meta.kind == Kind::Dir);
            return Ok(visit.replica.as_ref().is_some_and(known));
        }
        Ok(visit.entered.has(name, &visit.source.look(name)?))
    }

    /// What the replica has at a name, if anything.
    pub fn replica_meta(&self, visit: &Visit, name: &CStr) -> Result<Option<Meta>, Trouble> {
        let Some(replica) = visit.replica.as_ref().filter(|_| !visit.is_fresh()) else {
            return Ok(None);
        };
        match replica.look(visit.renamed.as_deref().unwrap_or(name)) {
            Ok(meta) => Ok(Some(self.run.foretold(meta))),
            Err(fault) if fault.is_missing() => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Whether what is no directory on the source does not take the place of the replica's yet,
    /// since that is filled and nobody has asked for what is in it. That is told.
    pub fn keeps_directory(&mut self, met: &Met<'_>, there: &Meta) -> bool {
        let is_no_dir = there.kind == Kind::Dir && met.meta.kind != Kind::Dir;
        is_no_dir && self.run.options.removes_chosen && self.keeps_unasked(met.visit, met.name)
    }

    /// Compares an entry with the replica's and does what the comparison says.
    pub fn equalise(&mut self, met: Met<'_>, opened: Option<Opened>) -> Reconciled {
        let Met {
            visit, name, meta, ..
        } = met;
        let Some(there) = self.replica_meta(visit, name)? else {
            return self.create(met, opened);
        };
        if self.keeps_directory(&met, &there) {
            return Ok(Verdict::Reported);
        }
        let pair = self.pair(visit, name, meta, there)?;
        let mut step = self.decide(visit, &pair, pair.has_same_target());
        // An entry of another kind is removed from this name, so no inode of the replica is claimed
        // for it.
        let is_to_go = matches!(step, Step::Replace(_));
        if !is_to_go && there.kind != Kind::Dir && there.nlink > 1 && !self.claim(&there, meta)? {
            let mut what = What::default();
            what.add_if(true, What::LINKS);
            step = Step::Anew(what);
        }
        if self.gathers(&met, &pair.replica.meta, step)? {
            return Ok(Verdict::Waits);
        }
        match step {
            Step::CompareContent(what) => self.compare(met, pair, what),
            step => self.act(
                met,
                &pair,
                step,
                Ready {
                    opened,
                    patch: None,
                },
            ),
        }
    }

    /// Compares both entries and decides. A property that the replica cannot come to have does not
    /// count as a difference.
    pub fn decide(&self, visit: &Visit, pair: &Pair, same_target: bool) -> Step {
        let attainable =
            self.run
                .attainable_entry(&pair.source, &pair.replica, visit.replica.as_ref());
        let (source, replica) = (&pair.source.meta, &pair.replica.meta);
        let rules = Rules {
            is_unheard: self.run.monitor.is_unheard(source, replica),
            ..self.run.rules_in(visit)
        };
        let step = decide(&attainable, &pair.replica, &rules, same_target);
        self.run.takes_over(step, &pair.source, &pair.replica)
    }

    /// Decides when it is known whether the content is equal, `what` being what differs besides.
    pub fn decide_after(&self, visit: &Visit, pair: &Pair, what: What, same: bool) -> Step {
        let attainable =
            self.run
                .attainable_entry(&pair.source, &pair.replica, visit.replica.as_ref());
        let step = after_content(&attainable, &pair.replica, &self.run.rules, what, same);
        self.run.takes_over(step, &pair.source, &pair.replica)
    }

    /// Completes an entry that is on both sides.
    pub fn pair(
        &self,
        visit: &Visit,
        name: &CStr,
        meta: &Meta,
        there: Meta,
    ) -> Result<Pair, Trouble> {
        let source = self.source_entry(visit, name, meta)?;
        let replica = self.replica_entry(visit, name, there, meta.kind)?;
        let links = meta.kind == Kind::Symlink && there.kind == Kind::Symlink;
        let targets = if links {
            Some(self.targets(visit, name)?)
        } else {
            None
        };
        Ok(Pair {
            source,
            replica,
            targets,
        })
    }

    /// Does what follows from a comparison of content.
    pub fn compared(
        &mut self,
        met: Met<'_>,
        pair: &Pair,
        what: What,
        content: Compared,
    ) -> Reconciled {
        let same = content.differs.is_empty();
        if same {
            self.note_equal(pair, WHOLE);
        }
        let step = self.decide_after(met.visit, pair, what, same);
        let Compared {
            source,
            replica,
            differs,
        } = content;
        let patch = replica.filter(|_| !same).map(|replica| Patch {
            replica,
            differs: Some(differs),
        });
        self.act(
            met,
            pair,
            step,
            Ready {
                opened: Some(source),
                patch,
            },
        )
    }

    /// Makes an entry anew because the replica's content cannot be read.
    pub fn unreadable(&mut self, met: Met<'_>, pair: &Pair, what: What) -> Reconciled {
        let step = self.decide_after(met.visit, pair, what, false);
        self.act(met, pair, step, Ready::default())
    }

    /// Does what follows where the content is equal.
    pub fn same_content(&mut self, met: Met<'_>, pair: &Pair, what: What) -> Reconciled {
        let step = self.decide_after(met.visit, pair, what, true);
        self.act(met, pair, step, Ready::default())
    }

    /// Does what was decided about an entry that is on both sides.
    fn act(&mut self, met: Met<'_>, pair: &Pair, step: Step, ready: Ready) -> Reconciled {
        let Met {
            visit, name, meta, ..
        } = met;
        let step = self.sparing(&met, pair, step);
        let settled = match step {
            Step::Same | Step::CompareContent(_) | Step::Meta(_) => self.settle_time(&met, pair)?,
            _ => Settled::Left,
        };
        let (action, what) = match step {
            Step::Same | Step::CompareContent(_) if settled == Settled::Set => {
                let intent =
                    self.explained(Intent::new(Action::Meta, What::MTIME, meta), pair, None);
                return Ok(Verdict::Changed(intent, Moved::of(&pair.source)));
            }
            Step::Same | Step::CompareContent(_) if settled == Settled::Anew => {
                (Action::Content, What::MTIME)
            }
            Step::Same | Step::CompareContent(_) => {
                self.note_same(visit, name, pair);
                return Ok(Verdict::Same);
            }
            Step::Meta(mut what) => {
                what.add_if(settled != Settled::Left, What::MTIME);
                let is_anew = settled == Settled::Anew;
                (
                    if is_anew {
                        Action::Content
                    } else {
                        Action::Meta
                    },
                    what,
                )
            }
            Step::Anew(what) | Step::MetaOfAll(what) => (Action::Content, what),
            Step::Replace(what) => (Action::Replace, what),
        };
        let mut intent =
            self.explained(Intent::new(action, what, meta), pair, ready.patch.as_ref());
        match action {
            Action::Meta => self.set_meta(visit, name, pair, intent),
            Action::Replace
                if pair.replica.meta.kind == Kind::Dir && self.run.part.is_limited() =>
            {
                Ok(self.leave_for_room(visit, name))
            }
            Action::Replace if self.waits_for_room(visit, name, &pair.replica.meta) => {
                Err(Trouble::Postponed)
            }
            _ => {
                intent.room = self.room(visit, name, &pair.replica.meta)?;
                let there = &pair.replica.meta;
                // It may have an ACL, which its successor does not get.
                let stood = pair.replica.xattrs.mode_without_any_acl(there.mode);
                intent.stood = (there.kind == meta.kind).then_some(stood);
                self.set_aside_unlike(visit, name, (there, meta))?;
                self.run.foretell_loss(there);
                self.make(met, &pair.source, ready, intent)
            }
        }
    }

    /// Notes an entry that was found to be equal, and what its copy does not have.
    fn note_same(&self, visit: &Visit, name: &CStr, pair: &Pair) {
        if visit.pass() > 0 {
            return;
        }
        let Pair {
            source, replica, ..
        } = pair;
        self.run.part.settle_equal(visit, name, pair);
        self.run
            .note_owner(&source.meta, &replica.meta, visit.replica.as_ref());
        self.run.note_privileges(&source.xattrs, &replica.xattrs);
        let unkept = Run::unkept_between(source, &replica.meta);
        self.run.note_unkept(unkept, || visit.path_of(name));
    }

    /// A change in place must not reach what is not this entry's alone.
    pub fn sparing(&self, met: &Met<'_>, pair: &Pair, step: Step) -> Step {
        match step {
            Step::MetaOfAll(what)
                if !met.whole.is_some_and(|whole| whole.is(&pair.replica.meta)) =>
            {
                Step::Anew(what)
            }
            Step::Meta(what) | Step::MetaOfAll(what)
                if self.is_of_basis(met, &pair.replica.meta) =>
            {
                Step::Anew(what)
            }
            Step::Meta(what) | Step::MetaOfAll(what)
                if self.is_doubtful_leader(met, pair, what) =>
            {
                Step::Anew(what)
            }
            Step::MetaOfAll(what) => Step::Meta(what),
            other => other,
        }
    }

    /// Whether it is a file of the earlier copy, which is never changed.
    fn is_of_basis(&self, Met { visit, name, .. }: &Met<'_>, there: &Meta) -> bool {
        visit.basis.as_ref().is_some_and(|basis| {
            basis
                .look(name)
                .is_ok_and(|earlier| earlier.id() == there.id())
        })
    }

    /// Whether other names are about to become links to an inode of another owner, who may have put
    /// it there and may write to it still.
    fn is_doubtful_leader(&self, met: &Met<'_>, pair: &Pair, what: What) -> bool {
        met.leads && what.has(What::OWNER) && pair.replica.meta.nlink < pair.source.meta.nlink
    }

    /// Adds both values of what differs, if the monitor wants them.
    fn explained(&self, mut intent: Intent, pair: &Pair, patch: Option<&Patch>) -> Intent {
        if !self.run.monitor.wants_values() {
            return intent;
        }
        let (run, there) = (self.run, &pair.replica);
        let wanted = run.attainable_entry(&pair.source, there, None::<&DirMutRef>);
        intent.values = values(&wanted, there, &run.options.policy.keep, intent.what);
        if let (true, Some((source, replica))) = (intent.what.has(What::TARGET), &pair.targets) {
            let [source, replica] = [source, replica].map(|target| escape(target.to_bytes()));
            intent.values.push(Difference {
                property: "target",
                source,
                replica,
            });
        }
        intent.ranges = patch
            .iter()
            .flat_map(|patch| patch.differs.iter())
            .flat_map(|differs| differs.iter())
            .take(RANGES_MAX)
            .cloned()
            .collect();
        intent
    }

    /// An inode of the replica with several names belongs to one inode of the source: the first
    /// that claims it.
    fn claim(&self, replica: &Meta, source: &Meta) -> Result<bool, Trouble> {
        let wanted = self.run.options.policy.keep.hard_links;
        if self.run.part.is_batch() {
            // A mover does not see which other source inodes claim it. Of a group the coordinator
            // judges at the end, when it links the names. An inode with more names than a source
            // that has one name counts as claimed by another.
            let is_left = self.run.part.is_alone();
            return Ok(!wanted || is_left || replica.nlink <= source.nlink);
        }
        Ok(!wanted
            || self
                .run
                .links
                .claim(replica.id(), source.id())
                .map_err(store_trouble)?)
    }

    /// Whether a file of the earlier copy may have this name, too. Where hard links are not kept,
    /// it may have one name here and no other: two names of it would be a group.
    fn claim_basis(&self, earlier: &Meta, source: &Meta) -> Result<bool, Trouble> {
        if self.run.options.policy.keep.hard_links || earlier.nlink < 2 {
            return self.claim(earlier, source);
        }
        self.run
            .links
            .claim_alone(earlier.id())
            .map_err(store_trouble)
    }

    fn source_entry(&self, visit: &Visit, name: &CStr, meta: &Meta) -> Result<Entry, Trouble> {
        Ok(Entry {
            meta: *meta,
            xattrs: self.xattrs(&*visit.source, name)?,
        })
    }

    fn replica_entry(
        &self,
        visit: &Visit,
        name: &CStr,
        there: Meta,
        wanted: Kind,
    ) -> Result<Entry, Trouble> {
        let dir = visit.replica.as_ref().filter(|_| there.kind == wanted);
        let name = visit.renamed.as_deref().unwrap_or(name);
        let xattrs = dir.map_or(Ok(Xattrs::default()), |dir| self.xattrs(&**dir, name))?;
        Ok(Entry {
            meta: there,
            xattrs,
        })
    }

    fn xattrs(&self, dir: &dyn Dir, name: &CStr) -> Result<Xattrs, Trouble> {
        Ok(dir.xattrs_of(name, &self.run.options.policy.keep)?)
    }

    fn targets(&self, visit: &Visit, name: &CStr) -> Result<(CString, CString), Trouble> {
        let spot = visit.spot(name);
        Ok((
            spot.source.read_link(name).map_err(kind_changed)?,
            spot.replica.read_link(spot.name)?,
        ))
    }
}
