//! Gathers all pieces of a path in a directory that no listing shows, of each path the newest.
//!
//! A directory that was renamed away is one piece. Of one that was removed entry by entry, the
//! trash has many pieces under many dates: a live mirror deletes the first files before the last
//! ones are gone. Pieces come from the newest date to the oldest. Memory holds one window of names
//! for each level of the tree, however many pieces there are, and the names of the subdirectories of a
//! directory that is many levels deep. It also holds the inode of each directory that was made because
//! neither the tree nor a newer piece has it.

use super::choice::{Occupant, RestoreChoice, StagedEntry, TrashPiece, choose};
use super::listing::{LISTINGS_MAX, OpenListing};
use super::problems::{DirectoryMonitor, RestoreProblems};
use super::reach::require_reach_below;
use super::rights::DirectoryRights;
use super::{RestoreError, Restored, Wanted, place, split};
use crate::options::Options;
use crate::sync::ending::{End, Summary, sum_up};
use crate::sync::ground::Ground;
use crate::sync::run::{LinkGroups, LinkRoot, Run};
use crate::sync::stages::walk;
use crate::sync::trash::bin::folder;
use crate::sync::trash::date::Date;
use crate::sync::trash::{LEADING_MODE, lead, leads};
use crate::sync::visit::{Sides, Visit};
use crate::tally::{Counts, WHOLE_WALK};
use crate::trees::error::RunError;
use driftless_model::{Act, Fault, Keep, Meta, RelPath, Selection, Side, Work, Xattrs, errno};
use driftless_tree::{Attributes, DirMutRef, DirRef, Done, Known, Names, Spared};
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Pieces of one path while they are gathered.
pub struct PieceGathering<'a> {
    /// Options of the runs that copy.
    pub options: &'a Options,
    /// Path whose pieces are gathered.
    pub wanted: &'a Wanted,
    /// Threads of a run at most.
    pub threads_max: usize,
    /// Problems so far.
    pub problems: &'a RestoreProblems<'a>,
    /// Flag that ends the gathering early.
    pub stop: &'a AtomicBool,
    /// Ground that all runs share.
    pub ground: Ground,
    /// Counts so far.
    pub restored: Restored,
    /// Device and inode of each gathered directory that was made for entries below it, and that the
    /// tree lacks. Its mode alone does not show that: a piece may have the same.
    pub led: HashSet<(u64, u64)>,
    /// Files with several names that were gathered.
    pub links: LinkGroups,
}

/// Directories between which a path is restored.
#[derive(Clone, Copy)]
pub struct RestoreRoots<'a> {
    /// Root of the tree that has the trash.
    pub trashed: &'a DirRef,
    /// Directory in which pieces are gathered.
    pub staging: &'a DirMutRef,
    /// Directory of the tree in which the path gets its name.
    pub above: &'a DirMutRef,
}

/// A directory of the trash whose entries are met.
struct GatherFrame {
    /// Path that it had.
    path: RelPath,
    /// Path below the directory in which pieces are gathered.
    below_staging: RelPath,
    source: DirRef,
    /// Directory in which its entries are gathered.
    staged: DirMutRef,
    /// Directory of the tree with the same path, if there is one.
    standing: Option<DirMutRef>,
    names: OpenListing,
    /// Directories that were listed and are still to be entered.
    below: Vec<Entering>,
    /// The directory is a piece, or part of one.
    is_inside: bool,
    /// Entries that had come back before this directory.
    entries_before: u64,
    /// The directory is a piece that is not counted yet.
    is_uncounted: bool,
    /// Rights that the directory keeps, at most, if entries of this one come into it.
    joined: JoinedRights,
    /// Attributes of the directory in which its entries are gathered, before any was added.
    before: Meta,
    /// Name of that directory, if it was made for this one.
    made: Option<CString>,
}

/// Rights of newer entries in a gathered directory, which the piece must not widen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JoinedRights {
    /// The tree has the directory, or nothing newer is in it.
    Unlimited,
    /// The rights of the gathered directory, which come from a newer piece.
    OfPiece,
    /// The rights of the mirror's user alone: newer entries came without their directory, so its
    /// rights are unknown.
    OfUser,
}

/// Device and inode of the folder of a date; `None` if there is none.
type FolderId = Option<(u64, u64)>;

/// A directory that is to be entered.
struct Entering {
    name: CString,
    /// Its attributes were copied, so the piece is counted.
    is_counted: bool,
}

impl PieceGathering<'_> {
    /// Gathers the pieces of these dates, which are in order, the newest first.
    ///
    /// # Errors
    /// An entry cannot be copied, and was reported as all others of that kind, or an entry is to go
    /// to another file system.
    pub fn gather(&mut self, dates: &[Date], roots: RestoreRoots<'_>) -> Result<(), RestoreError> {
        for date in dates {
            let pieces = self.restored.pieces;
            let began = folder_id(roots.trashed, *date);
            if let Some(first) = self.begin(*date, roots)? {
                self.go_through(first)?;
                self.require_whole(began, folder_id(roots.trashed, *date))?;
            }
            if self.restored.pieces > pieces {
                self.restored.add_date(*date);
            }
        }
        match self.problems.missing() {
            0 => Ok(()),
            _ => Err(self.incomplete()),
        }
    }

    /// Reports a purge that removed a part of a date meanwhile: a purge gives the folder another
    /// name first.
    fn require_whole(
        &self,
        began: Done<FolderId>,
        now: Done<FolderId>,
    ) -> Result<(), RestoreError> {
        let whole = began.and_then(|began| now.map(|now| now == began));
        match whole {
            Ok(true) => Ok(()),
            Ok(false) => self.report(&self.wanted.path, gone()),
            Err(fault) => self.report(&self.wanted.path, fault),
        }
    }

    /// Returns the directory that has the piece of a date; `None` if it is gone.
    fn begin(
        &mut self,
        date: Date,
        roots: RestoreRoots<'_>,
    ) -> Result<Option<GatherFrame>, RestoreError> {
        let path = &self.wanted.path;
        let found = match place(roots.trashed, date, path) {
            Ok(found) => found,
            Err(fault) => {
                self.report(path, fault)?;
                None
            }
        };
        let Some(((source, is_inside), (above, name))) = found.zip(split(path)) else {
            return Ok(None);
        };
        let mut names = Names::default();
        names.push(&name, None);
        Ok(Some(GatherFrame {
            path: above,
            below_staging: RelPath::root(),
            source,
            staged: roots.staging.clone(),
            standing: Some(roots.above.clone()),
            names: OpenListing::only(names),
            below: Vec::new(),
            is_inside,
            entries_before: self.restored.entries,
            is_uncounted: false,
            joined: JoinedRights::Unlimited,
            before: *roots.staging.first_meta(),
            made: None,
        }))
    }

    fn go_through(&mut self, first: GatherFrame) -> Result<(), RestoreError> {
        let mut frames = vec![first];
        loop {
            let is_deep = frames.len() > LISTINGS_MAX;
            let Some(frame) = frames.last_mut() else {
                return Ok(());
            };
            if self.stop.load(Relaxed) {
                return Err(self.interrupted());
            }
            let is_next_below = !is_deep || frame.names.is_over();
            if let Some(entering) = frame.below.pop_if(|_| is_next_below) {
                let next = self.enter(frame, entering)?;
                frames.extend(next);
            } else if let Some(names) = frame.names.next_window() {
                self.take_window(frame, names)?;
            } else if let Some(over) = frames.pop_if(|frame| frame.below.is_empty()) {
                self.leave(&over, frames.last())?;
            }
        }
    }

    fn take_window(
        &mut self,
        frame: &mut GatherFrame,
        names: Done<Names>,
    ) -> Result<(), RestoreError> {
        match names {
            Ok(names) => {
                let below = self.take(frame, &names)?;
                frame.below.extend(below);
                Ok(())
            }
            Err(fault) => self.report(&frame.path, fault),
        }
    }

    /// Copies those names of a directory that come back whole; returns the directories to enter.
    fn take(&mut self, frame: &GatherFrame, names: &Names) -> Result<Vec<Entering>, RestoreError> {
        let (mut works, mut below) = (Vec::new(), Vec::new());
        for (name, _) in (0..names.len()).map(|index| names.get(index)) {
            let met = match frame.meet(name, &mut self.led) {
                Ok(met) => met,
                Err(fault) => {
                    self.report(&frame.path.join(name.to_bytes()), fault)?;
                    None
                }
            };
            let Some((piece, choice)) = met else { continue };
            if let Some(scope) = choice.scope() {
                let path = RelPath::from_names([name.to_bytes()]);
                works.push(Work { path, scope });
                self.restored.pieces += u64::from(!frame.is_inside);
            }
            match choice {
                RestoreChoice::Copy => {}
                RestoreChoice::Complete => {
                    self.restored.made = self.restored.made.saturating_sub(1);
                    below.push(Entering::of(name, true));
                }
                RestoreChoice::Enter => below.push(Entering::of(name, false)),
                RestoreChoice::Stay => self.restored.stays += frame.count(name, piece),
                RestoreChoice::Older => self.restored.older += frame.count(name, piece),
            }
        }
        self.copy(frame, &works)?;
        Ok(below)
    }

    /// Copies entries of a directory.
    fn copy(&mut self, frame: &GatherFrame, works: &[Work]) -> Result<(), RestoreError> {
        if works.is_empty() {
            return Ok(());
        }
        let now = match frame.staged.meta() {
            Ok(now) => now,
            Err(fault) => return self.report(&frame.path, fault),
        };
        let monitor = DirectoryMonitor {
            problems: self.problems,
            path: &frame.path,
        };
        let roots = (frame.source.clone(), Some(frame.staged.clone()));
        let ground = self.ground.between(roots);
        // Nothing makes room for an entry during a restore, so this run postpones none.
        let mut run = Run::new(self.options, &monitor, self.stop, ground);
        // Many directories have a single piece.
        run.is_few = true;
        // Names of one file may lie in directories of several runs.
        run.links = std::mem::take(&mut self.links);
        run.links_above = Some(LinkRoot {
            dir: self
                .ground
                .roots
                .1
                .clone()
                .expect("pieces are gathered somewhere"),
            below: frame.below_staging.clone(),
        });
        let sides = Sides {
            source: frame.source.clone(),
            replica: Some(frame.staged.clone()),
            before: Some((now, Xattrs::default())),
        };
        let mut visit = Visit::root(sides, Arc::new(Selection::of(works)), WHOLE_WALK);
        // The directory keeps its attributes, and counts for nothing.
        visit.borrowed = true;
        let reported = self.problems.missing();
        walk(&mut run, visit, self.threads_max)?;
        // Names of a group may be elsewhere in the replica, so one that is not met is no sign of a
        // change.
        let summary = sum_up(&run, End::Complete);
        let links = std::mem::take(&mut run.links);
        drop(run);
        self.links = links;
        self.account(&summary)?;
        let is_reported = self.problems.missing() > reported;
        match is_reported || frame.is_whole(works, &summary.counts) {
            true => Ok(()),
            false => works
                .iter()
                .try_for_each(|work| self.report(&frame.path_of(work), gone())),
        }
    }

    /// Adds what a run copied. Fails if the run was ended early.
    fn account(&mut self, summary: &Summary) -> Result<(), RestoreError> {
        let counts = &summary.counts;
        self.restored.entries += counts.changed + counts.same;
        match &summary.end {
            End::Complete => Ok(()),
            End::CutOff(why) => Err(RunError::CutOff(why.clone()).into()),
            End::Stopped => Err(self.interrupted()),
            _ => Err(self.incomplete()),
        }
    }

    /// Enters a directory of the trash, and makes the one in which its entries are gathered; `None` if
    /// that fails.
    fn enter(
        &mut self,
        above: &GatherFrame,
        entering: Entering,
    ) -> Result<Option<GatherFrame>, RestoreError> {
        let path = above.path.join(entering.name.to_bytes());
        let standing = match above.standing_below(&entering.name) {
            Ok(standing) => standing,
            Err(fault) => return self.report(&path, fault).map(|()| None),
        };
        if let Some(standing) = &standing {
            require_reach_below(&above.staged, standing, &path)?;
        }
        match self.entered(above, entering, (path.clone(), standing)) {
            Ok(entered) => Ok(Some(entered)),
            Err(fault) => self.report(&path, fault).map(|()| None),
        }
    }

    fn entered(
        &mut self,
        above: &GatherFrame,
        Entering { name, is_counted }: Entering,
        (path, standing): (RelPath, Option<DirMutRef>),
    ) -> Done<GatherFrame> {
        let below_staging = above.below_staging.join(name.to_bytes());
        let source = above.source.enter(&name)?;
        let is_inside = above.is_inside || !leads(source.first_meta(), source.user().0);
        let (staged, made) = match above.staged.enter_mut(&name) {
            Err(fault) if fault.is_missing() => {
                let made = lead(&above.staged, &name)?;
                if standing.is_none() {
                    self.restored.made += 1;
                    self.led.insert(made.first_meta().id());
                }
                (made, Some(name))
            }
            entered => (entered?, None),
        };
        let before = staged.meta()?;
        staged.make_writable();
        let is_standing_led = standing.is_some() && leads(&before, staged.user().0);
        let is_led = made.is_some() || is_standing_led || self.led.contains(&before.id());
        Ok(GatherFrame {
            path,
            below_staging,
            names: OpenListing::of(&source)?,
            below: Vec::new(),
            is_inside,
            entries_before: self.restored.entries,
            is_uncounted: is_inside && !above.is_inside && !is_counted,
            joined: match is_counted {
                true => JoinedRights::OfUser,
                false if is_inside && !is_led => JoinedRights::OfPiece,
                false => JoinedRights::Unlimited,
            },
            source,
            staged,
            standing,
            before,
            made,
        })
    }

    /// Gives a gathered directory its attributes again, after the last entry was added. One that
    /// was made for entries, and got none, is removed.
    fn leave(
        &mut self,
        over: &GatherFrame,
        above: Option<&GatherFrame>,
    ) -> Result<(), RestoreError> {
        let has_more = self.restored.entries > over.entries_before;
        self.restored.pieces += u64::from(over.is_uncounted && has_more);
        over.source.leave();
        // The first directory is no part of what comes back.
        let Some(above) = above else { return Ok(()) };
        let made = over.made.as_ref();
        if made.is_some_and(|name| above.staged.remove_dir(name).is_ok()) {
            let is_counted = self.led.remove(&over.before.id());
            let counted = u64::from(is_counted);
            self.restored.made = self.restored.made.saturating_sub(counted);
            return Ok(());
        }
        let keep = &self.options.policy.keep;
        let is_narrowed = match over.joined {
            JoinedRights::Unlimited => false,
            JoinedRights::OfPiece => has_more,
            JoinedRights::OfUser => true,
        };
        let failed = over.finish(is_narrowed, keep);
        over.staged.leave();
        failed.map_or(Ok(()), |fault| self.report(&over.path, fault))
    }

    /// Reports an entry that cannot be copied.
    fn report(&self, path: &RelPath, fault: Fault) -> Result<(), RestoreError> {
        self.problems.report(path, fault)
    }

    fn incomplete(&self) -> RestoreError {
        RestoreError::Incomplete(self.wanted.path.clone())
    }

    fn interrupted(&self) -> RestoreError {
        RestoreError::Interrupted(self.wanted.path.clone())
    }
}

impl GatherFrame {
    fn path_of(&self, work: &Work) -> RelPath {
        RelPath::from_names(self.path.names().chain(work.path.names()))
    }

    /// Returns whether a run copied all of these entries. An entry that is gone from the trash was
    /// skipped.
    fn is_whole(&self, works: &[Work], counts: &Counts) -> bool {
        let is_there = |work: &Work| {
            let name = split(&work.path).map(|(_, name)| name);
            name.is_some_and(|name| self.staged.look(&name).is_ok())
        };
        counts.failed == 0 && counts.skipped() == 0 && works.iter().all(is_there)
    }

    /// Sets the attributes that the gathered directory had before. One that is shared with a newer
    /// piece gets only rights that both pieces gave. Returns why that failed.
    fn finish(&self, is_narrowed: bool, keep: &Keep) -> Option<Fault> {
        let (staged, before) = (&self.staged, &self.before);
        let now = match staged.meta() {
            Ok(now) => now,
            Err(fault) => return Some(fault),
        };
        let plain = Attributes {
            mode: (now.mode != before.mode).then_some(before.mode),
            ..Attributes::default()
        };
        let attributes = match is_narrowed.then(|| self.narrowed(keep)) {
            None => plain,
            Some(Ok(narrowed)) => narrowed,
            Some(Err(fault)) => return Some(fault),
        };
        let attributes = Attributes {
            mtime: Some(before.mtime),
            ..attributes
        };
        let faults = staged.set_own(&Known::of(&now), &attributes);
        // The time of a directory is no reason to fail.
        let mut faults = faults.into_iter();
        faults.find(|fault| fault.act != Act::SetTimes)
    }

    fn narrowed(&self, keep: &Keep) -> Done<Attributes> {
        let (staged, before) = (&*self.staged, &self.before);
        let there = DirectoryRights::of(staged, before, keep)?;
        let newer = match self.joined {
            JoinedRights::OfUser => {
                DirectoryRights::closed((staged.user().0, before.gid), LEADING_MODE)
            }
            _ => there.clone(),
        };
        let piece = DirectoryRights::of(&*self.source, self.source.first_meta(), keep)?;
        let piece = piece.copied_to(staged, (before.uid, before.gid));
        let common = newer.common(&piece, staged.user());
        Ok(common.attributes(&there, keep))
    }

    /// Looks at an entry on all sides; `None` if it is gone from the trash. A directory whose
    /// attributes are copied is no longer one of `led`.
    fn meet(
        &self,
        name: &CStr,
        led: &mut HashSet<(u64, u64)>,
    ) -> Done<Option<(TrashPiece, RestoreChoice)>> {
        let meta = match self.source.look(name) {
            Err(fault) if fault.is_absent() => return Ok(None),
            looked => looked?,
        };
        let is_leading = !self.is_inside && leads(&meta, self.source.user().0);
        let piece = TrashPiece::of(&meta, is_leading);
        let staged = there(self.staged.look(name))?;
        let id = staged.as_ref().map(Meta::id);
        let is_leading = id.is_some_and(|id| led.contains(&id));
        let gathered = StagedEntry::of(staged.as_ref(), is_leading);
        let standing = self.standing.as_ref();
        let standing = standing.map_or(Ok(None), |dir| there(dir.look(name)))?;
        let choice = choose(piece, gathered, Occupant::of(standing.as_ref()));
        if let Some(id) = id.filter(|_| choice == RestoreChoice::Complete) {
            led.remove(&id);
        }
        Ok(Some((piece, choice)))
    }

    /// Counts an entry and everything below it.
    fn count(&self, name: &CStr, piece: TrashPiece) -> u64 {
        match piece {
            TrashPiece::Other => 1,
            _ => {
                let counted = self.source.count_tree(name, u64::MAX, Spared::NOTHING);
                counted.entries
            }
        }
    }

    /// Opens the directory of the tree with this name; `None` if there is none.
    fn standing_below(&self, name: &CStr) -> Done<Option<DirMutRef>> {
        let Some(dir) = &self.standing else {
            return Ok(None);
        };
        match dir.enter_mut(name) {
            Err(fault) if fault.is_absent() => Ok(None),
            entered => entered.map(Some),
        }
    }
}

impl Entering {
    fn of(name: &CStr, is_counted: bool) -> Entering {
        Entering {
            name: name.into(),
            is_counted,
        }
    }
}

fn folder_id(trashed: &DirRef, date: Date) -> Done<FolderId> {
    match folder(trashed, date) {
        Err(fault) if fault.is_missing() => Ok(None),
        opened => opened.map(|folder| Some(folder.first_meta().id())),
    }
}

/// Returns the fault of an entry that is gone from the trash.
fn gone() -> Fault {
    Fault {
        side: Side::Source,
        act: Act::Find,
        errno: errno::ENOENT,
    }
}

/// Returns the metadata of an entry; `None` if there is none.
fn there(looked: Done<Meta>) -> Done<Option<Meta>> {
    match looked {
        Err(fault) if fault.is_missing() => Ok(None),
        looked => looked.map(Some),
    }
}
