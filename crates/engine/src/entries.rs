//! Making the entries of a directory equal: looking, comparing, and doing the least.

use crate::comparisons::WHOLE;
use crate::grouped::store_trouble;
use crate::job::DirJob;
use crate::links::Whole;
use crate::listed::has_listed;
use crate::mounts::UNMOUNTED;
use crate::run::Run;
use crate::tally::{Reason, add};
use crate::worker::Worker;
use driftless_model::{Action, Class, Difference, Entry, Kind, Meta, Side, Unkept, What, Xattrs, escape};
use driftless_mover::{Compared, Moved, Opened, Patch, Spot, Trouble};
use driftless_reconcile::{Step, after_content, decide, values};
use driftless_tree::{Dir, DirRef, is_temp_name};
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::sync::Arc;

/// What is about to be done to an entry, and why.
#[derive(Debug, Clone)]
pub struct Intent {
    /// What is done.
    pub action: Action,
    /// What differs.
    pub what: What,
    /// Of what kind the entry is.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// Both values of what differs, if somebody wants them.
    pub values: Vec<Difference>,
    /// Where the content differs.
    pub ranges: Vec<Range<u64>>,
    /// How many entries go that lie in a directory which it takes the place of.
    pub room: u64,
}

impl Intent {
    /// Without values.
    pub fn new(action: Action, what: What, meta: &Meta) -> Self {
        let size = if meta.kind == Kind::File { meta.size } else { 0 };
        Intent { action, what, kind: meta.kind, size, values: Vec::new(), ranges: Vec::new(), room: 0 }
    }
}

/// An entry that is on both sides.
pub struct Pair {
    /// On the source.
    pub source: Entry,
    /// On the replica.
    pub replica: Entry,
    /// Their targets, if both are symbolic links.
    pub targets: Option<(CString, CString)>,
}

/// What is open already of an entry that is to be made.
#[derive(Default)]
struct Ready {
    opened: Option<Opened>,
    patch: Option<Patch>,
}

/// Ranges that a receipt names at most.
const RANGES_MAX: usize = 1000;

/// An entry of the source that was looked at.
#[derive(Clone, Copy)]
pub struct Met<'a> {
    /// Its directory.
    pub job: &'a Arc<DirJob>,
    /// Its name.
    pub name: &'a CStr,
    /// What it is like.
    pub meta: &'a Meta,
    /// It is the first name of a hard-link group.
    pub leads: bool,
    /// All names of this inode of the replica are names of the group.
    pub whole: Option<Whole>,
    /// Its share of the walk.
    pub weight: u64,
}

impl Met<'_> {
    /// The inode that has to be copied or compared, and none that took its place: others become links to the copy.
    pub fn only(&self) -> Option<(u64, u64)> {
        self.leads.then(|| self.meta.id())
    }
}

/// What came of an entry.
pub enum Verdict {
    /// It was equal.
    Same,
    /// It was made equal.
    Changed(Intent, Moved),
    /// It was left out.
    Skipped(Reason),
    /// It waits for the first name of its group; it is accounted for then.
    Waits,
    /// It is a large file, which is accounted for, its share of the walk too, when all of it is copied.
    Large,
    /// It is being made on another host; it is accounted for, its share of the walk too, when that is answered.
    Posted,
    /// It failed, and that was reported.
    Reported,
    /// It is left to somebody else, who accounts for it.
    GivenBack,
    /// It is a directory, which is accounted for, its share of the walk too, when all below it is done.
    Below,
}

pub type Reconciled = Result<Verdict, Trouble>;

impl Worker<'_> {
    /// Makes the entry `name` of `job` equal and accounts for it. Its share of the walk is `weight`.
    pub fn entry(&mut self, job: &Arc<DirJob>, name: &CStr, hint: Option<Kind>, weight: u64) {
        let done = self.reconcile(job, name, hint, weight);
        self.conclude(job, name, weight, done);
    }

    /// Counts and reports what came of an entry.
    pub fn account(&mut self, job: &Arc<DirJob>, name: &CStr, verdict: Verdict) {
        match verdict {
            Verdict::Same if job.pass() == 0 => {
                add(&self.run.tally.same, 1);
                self.run.part.settle(|| job.path_of(name), None);
            }
            Verdict::Same | Verdict::Waits | Verdict::Large | Verdict::Posted | Verdict::Below | Verdict::GivenBack => {}
            Verdict::Reported => {
                self.count_late(job);
                add(&self.run.tally.failed, 1);
            }
            Verdict::Skipped(reason) => self.skip(job, reason),
            Verdict::Changed(intent, moved) => {
                self.count_late(job);
                add(&self.run.tally.changed, 1);
                add(&self.run.tally.deleted, intent.room);
                add(&self.run.tally.bytes_copied, moved.bytes);
                add(&self.run.tally.mismatched, moved.mismatches);
                self.note_made(job, name, moved.unkept);
                self.run.part.settle(|| job.path_of(name), Some((intent.kind, intent.size)));
                self.run.receipt(|| job.path_of(name), intent);
                for fault in moved.faults {
                    self.run.problem(job.path_of(name), fault, Class::Partly);
                }
                if moved.young {
                    self.report_changing(job.path_of(name));
                }
            }
        }
    }

    /// Notes what a new entry did not get, nor took over from its directory.
    pub fn note_made(&self, job: &DirJob, name: &CStr, unkept: Unkept) {
        if unkept.is_empty() {
            return;
        }
        let inherited = job.replica.as_ref().map_or(Unkept::NONE, |above| above.first_meta().unkept.inherited());
        self.run.note_unkept(unkept - inherited, || job.path_of(name));
    }

    fn reconcile(&mut self, job: &Arc<DirJob>, name: &CStr, hint: Option<Kind>, weight: u64) -> Reconciled {
        if is_temp_name(name) {
            return self.refuse_reserved(job, name, hint);
        }
        if hint.is_some_and(|kind| !self.run.takes(job, name, kind == Kind::Dir)) {
            return Ok(Verdict::Skipped(Reason::Filtered));
        }
        self.spared_as_spelt(job, name)?;
        if let Some(problem) = self.namesake(job, name) {
            return Ok(problem);
        }
        match hint {
            Some(Kind::Dir) => return self.subdirectory(job, name, weight),
            Some(_) if self.run.is_other_file(job, name) => return Err(Trouble::Barred(Side::Source, UNMOUNTED)),
            Some(Kind::File) if job.is_fresh() && !self.run.options.dry_run && !has_listed(job, name) => {
                return self.new_file(job, name, weight);
            }
            _ => {}
        }
        let meta = job.source.look(name)?;
        if meta.kind != Kind::Dir && self.run.was_divided(job, name) {
            // The directory went. What took its place is met, and counted, when the whole run finishes what was divided.
            return Err(Trouble::Vanished);
        }
        if hint.is_none() && !self.run.takes(job, name, meta.kind == Kind::Dir) {
            return Ok(Verdict::Skipped(Reason::Filtered));
        }
        if meta.kind == Kind::Dir {
            return self.subdirectory(job, name, weight);
        }
        if hint.is_none() && self.run.is_other_file(job, name) {
            return Err(Trouble::Barred(Side::Source, UNMOUNTED));
        }
        if self.blocks_listed(job, name) {
            return Ok(Verdict::Reported);
        }
        if let Some(reason) = self.unwanted(&meta) {
            return Ok(Verdict::Skipped(reason));
        }
        self.grouped(Met { job, name, meta: &meta, leads: false, whole: None, weight }, None)
    }

    /// At such a name an unfinished copy of another file may grow: what the source has there would be taken for it, or it for that.
    fn refuse_reserved(&mut self, job: &DirJob, name: &CStr, hint: Option<Kind>) -> Reconciled {
        let kind = hint.map_or_else(|| job.source.look(name).map(|meta| meta.kind), Ok)?;
        if !self.run.takes(job, name, kind == Kind::Dir) {
            return Ok(Verdict::Skipped(Reason::Filtered));
        }
        Err(Trouble::Barred(Side::Source, "names of this form are for unfinished entries of the replica"))
    }

    fn unwanted(&self, meta: &Meta) -> Option<Reason> {
        if !self.run.options.keep.keeps_kind(meta.kind) {
            return Some(Reason::Kind);
        }
        if meta.kind != Kind::File {
            return None;
        }
        add(&self.run.tally.bytes_seen, meta.size);
        (!self.run.options.filter.takes_size(meta.size)).then_some(Reason::Filtered)
    }

    /// In a second look at a directory only subdirectories that were not entered yet are: what lies in the others has its own look.
    fn subdirectory(&mut self, job: &Arc<DirJob>, name: &CStr, weight: u64) -> Reconciled {
        if job.pass() == 0 || !self.was_entered(job, name)? {
            self.descend(job, name, weight);
        }
        Ok(Verdict::Below)
    }

    fn was_entered(&self, job: &DirJob, name: &CStr) -> Result<bool, Trouble> {
        if job.left.is_some() {
            // By somebody else, who made what he entered.
            let known = |replica: &DirRef| replica.look(name).is_ok_and(|meta| meta.kind == Kind::Dir);
            return Ok(job.replica.as_ref().is_some_and(known));
        }
        Ok(job.entered.has(name, &job.source.look(name)?))
    }

    /// The short way for a file in a new directory: nothing to compare with, and one look through the open file.
    fn new_file(&mut self, job: &Arc<DirJob>, name: &CStr, weight: u64) -> Reconciled {
        if self.post_fetch_new(job, name, weight) {
            return Ok(Verdict::Posted);
        }
        let opened = job.spot(name).open()?;
        self.new_opened(job, name, weight, opened)
    }

    /// A file in a new directory that is open, or at hand.
    pub fn new_opened(&mut self, job: &Arc<DirJob>, name: &CStr, weight: u64, opened: Opened) -> Reconciled {
        if opened.meta.kind != Kind::File {
            return Err(Trouble::Vanished);
        }
        if let Some(reason) = self.unwanted(&opened.meta) {
            return Ok(Verdict::Skipped(reason));
        }
        let meta = opened.meta;
        self.grouped(Met { job, name, meta: &meta, leads: false, whole: None, weight }, Some(opened))
    }

    /// What the replica has at a name, if anything.
    pub fn replica_meta(&self, job: &DirJob, name: &CStr) -> Result<Option<Meta>, Trouble> {
        let Some(replica) = job.replica.as_ref().filter(|_| !job.is_fresh()) else { return Ok(None) };
        match replica.look(job.renamed.as_deref().unwrap_or(name)) {
            Ok(meta) => Ok(Some(meta)),
            Err(fault) if fault.is_missing() => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Compares an entry with the replica's and does what the comparison says.
    pub fn equalise(&mut self, met: Met<'_>, opened: Option<Opened>) -> Reconciled {
        let Met { job, name, meta, .. } = met;
        let Some(there) = self.replica_meta(job, name)? else {
            return self.create(met, opened);
        };
        let pair = self.pair(job, name, meta, there)?;
        let same_target = pair.targets.as_ref().is_none_or(|(source, replica)| source == replica);
        let mut step = self.decide(job, &pair, same_target);
        if there.kind != Kind::Dir && there.nlink > 1 && !self.claim(&there, meta)? {
            let mut what = What::default();
            what.add_if(true, What::LINKS);
            step = Step::Anew(what);
        }
        if self.gathers(&met, &pair.replica.meta, step)? {
            return Ok(Verdict::Waits);
        }
        match step {
            Step::CompareContent(what) => self.compare(met, pair, what),
            step => self.act(met, &pair, step, Ready { opened, patch: None }),
        }
    }

    /// What cannot be attained is no difference.
    fn decide(&self, job: &DirJob, pair: &Pair, same_target: bool) -> Step {
        let attainable = self.run.attainable_entry(&pair.source, &pair.replica, job.replica.as_ref());
        let step = decide(&attainable, &pair.replica, &self.run.rules_in(job), same_target);
        self.run.takes_over(step, &pair.source, &pair.replica)
    }

    /// The same when it is known whether the content is equal, `what` being what differs besides.
    fn decide_after(&self, job: &DirJob, pair: &Pair, what: What, same: bool) -> Step {
        let attainable = self.run.attainable_entry(&pair.source, &pair.replica, job.replica.as_ref());
        let step = after_content(&attainable, &pair.replica, &self.run.rules, what, same);
        self.run.takes_over(step, &pair.source, &pair.replica)
    }

    fn pair(&self, job: &DirJob, name: &CStr, meta: &Meta, there: Meta) -> Result<Pair, Trouble> {
        let source = self.source_entry(job, name, meta)?;
        let replica = self.replica_entry(job, name, there, meta.kind)?;
        let links = meta.kind == Kind::Symlink && there.kind == Kind::Symlink;
        let targets = if links { Some(self.targets(job, name)?) } else { None };
        Ok(Pair { source, replica, targets })
    }

    /// Does what follows from a comparison of content.
    pub fn compared(&mut self, met: Met<'_>, pair: &Pair, what: What, content: Compared) -> Reconciled {
        let same = content.differs.is_empty();
        if same {
            self.note_equal(pair, WHOLE);
        }
        let step = self.decide_after(met.job, pair, what, same);
        let Compared { source, replica, differs } = content;
        let patch = replica.filter(|_| !same).map(|replica| Patch { replica, differs: Some(differs) });
        self.act(met, pair, step, Ready { opened: Some(source), patch })
    }

    /// Does what follows where the replica's content cannot be read: it is made anew.
    pub fn unreadable(&mut self, met: Met<'_>, pair: &Pair, what: What) -> Reconciled {
        let step = self.decide_after(met.job, pair, what, false);
        self.act(met, pair, step, Ready::default())
    }

    /// Does what follows where the content is equal.
    pub fn same_content(&mut self, met: Met<'_>, pair: &Pair, what: What) -> Reconciled {
        let step = self.decide_after(met.job, pair, what, true);
        self.act(met, pair, step, Ready::default())
    }

    /// Does what was decided about an entry that is on both sides.
    fn act(&mut self, met: Met<'_>, pair: &Pair, step: Step, ready: Ready) -> Reconciled {
        let Met { job, name, meta, .. } = met;
        let (action, what) = match self.sparing(&met, pair, step) {
            Step::Same | Step::CompareContent(_) => {
                self.note_times(job, Some(name), (meta, &pair.replica.meta));
                if job.pass() == 0 {
                    self.run.note_owner(meta, &pair.replica.meta, job.replica.as_ref());
                    self.run.note_privileges(&pair.source.xattrs, &pair.replica.xattrs);
                    self.run.note_unkept(Run::unkept_between(&pair.source, &pair.replica.meta), || job.path_of(name));
                }
                return Ok(Verdict::Same);
            }
            Step::Meta(what) => {
                self.note_times(job, Some(name), (meta, &pair.replica.meta));
                (Action::Meta, what)
            }
            Step::Anew(what) | Step::MetaOfAll(what) => (Action::Content, what),
            Step::Replace(what) => (Action::Replace, what),
        };
        let mut intent = self.explained(Intent::new(action, what, meta), pair, ready.patch.as_ref());
        match action {
            Action::Meta => self.set_meta(job, name, pair, intent),
            Action::Replace if pair.replica.meta.kind == Kind::Dir && self.run.part.is_limited() => Ok(self.leave_for_room(job, name)),
            Action::Replace if self.waits_for_room(job, name, &pair.replica.meta) => Err(Trouble::Postponed),
            _ => {
                intent.room = self.room(job, name, &pair.replica.meta)?;
                self.make(met, &pair.source, ready, intent)
            }
        }
    }

    /// A change in place must not reach what is not this entry's alone.
    fn sparing(&self, met: &Met<'_>, pair: &Pair, step: Step) -> Step {
        match step {
            Step::MetaOfAll(what) if !met.whole.is_some_and(|whole| whole.is(&pair.replica.meta)) => Step::Anew(what),
            Step::Meta(what) | Step::MetaOfAll(what) if self.is_of_basis(met, &pair.replica.meta) => Step::Anew(what),
            Step::Meta(what) | Step::MetaOfAll(what) if self.is_doubtful_leader(met, pair, what) => Step::Anew(what),
            Step::MetaOfAll(what) => Step::Meta(what),
            other => other,
        }
    }

    /// Whether it is a file of the earlier copy, which is never changed.
    fn is_of_basis(&self, Met { job, name, .. }: &Met<'_>, there: &Meta) -> bool {
        job.basis.as_ref().is_some_and(|basis| basis.look(name).is_ok_and(|earlier| earlier.id() == there.id()))
    }

    /// Whether other names are about to become links to an inode of another owner, who may have put it there and may write to it still.
    fn is_doubtful_leader(&self, met: &Met<'_>, pair: &Pair, what: What) -> bool {
        met.leads && what.has(What::OWNER) && pair.replica.meta.nlink < pair.source.meta.nlink
    }

    /// Adds both values of what differs, if somebody wants to know.
    fn explained(&self, mut intent: Intent, pair: &Pair, patch: Option<&Patch>) -> Intent {
        if !self.run.monitor.wants_values() {
            return intent;
        }
        intent.values = values(&pair.source, &pair.replica, intent.what);
        if let (true, Some((source, replica))) = (intent.what.has(What::TARGET), &pair.targets) {
            let [source, replica] = [source, replica].map(|target| escape(target.to_bytes()));
            intent.values.push(Difference { property: "target", source, replica });
        }
        intent.ranges =
            patch.iter().flat_map(|patch| patch.differs.iter()).flat_map(|differs| differs.iter()).take(RANGES_MAX).cloned().collect();
        intent
    }

    /// An inode of the replica with several names belongs to one inode of the source: the first that claims it.
    fn claim(&self, replica: &Meta, source: &Meta) -> Result<bool, Trouble> {
        let wanted = self.run.options.keep.hard_links;
        if self.run.part.is_share() {
            // Who else claims it is not known here, so names that are too many count as claimed.
            return Ok(!wanted || replica.nlink <= source.nlink);
        }
        Ok(!wanted || self.run.links.claim(replica.id(), source.id()).map_err(store_trouble)?)
    }

    /// Whether a file of the earlier copy may have this name, too. Where hard links are not kept, it may have one name here and no other:
    /// two names of it would be a group.
    fn claim_basis(&self, earlier: &Meta, source: &Meta) -> Result<bool, Trouble> {
        if self.run.options.keep.hard_links || earlier.nlink < 2 {
            return self.claim(earlier, source);
        }
        self.run.links.claim_alone(earlier.id()).map_err(store_trouble)
    }

    fn source_entry(&self, job: &DirJob, name: &CStr, meta: &Meta) -> Result<Entry, Trouble> {
        Ok(Entry { meta: *meta, xattrs: self.xattrs(&*job.source, name)? })
    }

    fn replica_entry(&self, job: &DirJob, name: &CStr, there: Meta, wanted: Kind) -> Result<Entry, Trouble> {
        let dir = job.replica.as_ref().filter(|_| there.kind == wanted);
        let name = job.renamed.as_deref().unwrap_or(name);
        let xattrs = dir.map_or(Ok(Xattrs::default()), |dir| self.xattrs(&**dir, name))?;
        Ok(Entry { meta: there, xattrs })
    }

    fn xattrs(&self, dir: &dyn Dir, name: &CStr) -> Result<Xattrs, Trouble> {
        let keep = &self.run.options.keep;
        if keep.any_xattr() { Ok(dir.xattrs_of(name, keep)?) } else { Ok(Xattrs::default()) }
    }

    fn targets(&self, job: &DirJob, name: &CStr) -> Result<(CString, CString), Trouble> {
        let spot = job.spot(name);
        Ok((spot.source.read_link(name)?, spot.replica.read_link(spot.name)?))
    }

    fn set_meta(&mut self, job: &Arc<DirJob>, name: &CStr, pair: &Pair, intent: Intent) -> Reconciled {
        if self.run.options.dry_run {
            return Ok(Verdict::Changed(intent, Moved::default()));
        }
        let moved = self.mover.set_meta(&job.spot(name), &pair.source, &pair.replica.meta)?;
        Ok(Verdict::Changed(intent, Moved { unkept: Run::unkept_between(&pair.source, &pair.replica.meta), ..moved }))
    }

    fn create(&mut self, met: Met<'_>, opened: Option<Opened>) -> Reconciled {
        let Met { job, name, meta, .. } = met;
        let intent = Intent::new(Action::Create, What::default(), meta);
        if self.run.options.dry_run {
            return Ok(Verdict::Changed(intent, Moved { unkept: meta.unkept, ..Moved::default() }));
        }
        if let Some(basis) = job.basis.as_ref().filter(|_| meta.kind == Kind::File)
            && let Some(verdict) = self.link_basis(met, basis)?
        {
            return Ok(verdict);
        }
        if meta.kind == Kind::File {
            return self.make_file(met, opened, None, intent);
        }
        let source = self.source_entry(job, name, meta)?;
        self.make(met, &source, Ready::default(), intent)
    }

    /// Links to the file of an earlier copy, if that is equal in everything.
    fn link_basis(&mut self, Met { job, name, meta, .. }: Met<'_>, basis: &DirRef) -> Result<Option<Verdict>, Trouble> {
        let Ok(earlier) = basis.look(name) else { return Ok(None) };
        let source = self.source_entry(job, name, meta)?;
        let basis_entry = Entry { meta: earlier, xattrs: basis.xattrs_of(name, &self.run.options.keep).unwrap_or_default() };
        let attainable = self.run.attainable_entry(&source, &basis_entry, Some(basis));
        let equal = decide(&attainable, &basis_entry, &self.run.basis_rules_in(job), true);
        if equal != Step::Same || !self.claim_basis(&earlier, meta)? {
            return Ok(None);
        }
        let made = self.mover.make_link(&job.touched_spot(name), (&**basis, name), earlier.id());
        Ok(made.ok().map(|moved| Verdict::Changed(Intent::new(Action::Link, What::default(), meta), moved)))
    }

    fn make(&mut self, met: Met<'_>, source: &Entry, ready: Ready, intent: Intent) -> Reconciled {
        if self.run.options.dry_run {
            return Ok(Verdict::Changed(intent, Moved::default()));
        }
        if source.meta.kind == Kind::File {
            return self.make_file(met, ready.opened, ready.patch, intent);
        }
        let spot = Spot { room: intent.room, ..met.job.touched_spot(met.name) };
        let target = if source.meta.kind == Kind::Symlink { Some(spot.source.read_link(spot.source_name)?) } else { None };
        if self.post_special(&met, source, target.as_deref(), &intent) {
            return Ok(Verdict::Posted);
        }
        let moved = self.mover.make_special(&spot, source, target.as_deref())?;
        Ok(Verdict::Changed(intent, moved))
    }
}
