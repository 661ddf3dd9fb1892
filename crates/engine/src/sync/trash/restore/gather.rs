//! Gathers all pieces of a path in a directory that no listing shows, of each path the newest.
//!
//! A directory that was renamed away is one piece. Of one that was removed entry by entry, the
//! trash has many pieces under many dates: a live mirror deletes the first files before the last
//! ones are gone. Pieces come from the newest date to the oldest. Memory holds one window of names
//! for each level of the tree, however many pieces there are.

use super::choice::{Occupant, RestoreChoice, StagedEntry, TrashPiece, choose};
use super::{RestoreError, Restored, Wanted, failed, place, split};
use crate::monitor::{Monitor, Progress};
use crate::options::Options;
use crate::sync::ending::{End, sum_up};
use crate::sync::ground::Ground;
use crate::sync::run::Run;
use crate::sync::stages::walk;
use crate::sync::trash::date::Date;
use crate::sync::trash::{lead, leads};
use crate::sync::visit::{Sides, Visit};
use crate::tally::WHOLE_WALK;
use driftless_model::{Fault, Meta, Problem, Receipt, RelPath, Selection, Work, Xattrs};
use driftless_tree::{Attributes, DirMutRef, DirRef, Done, Known, Names, Spared, windows};
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
    /// Monitor that receives problems.
    pub monitor: &'a dyn Monitor,
    /// Flag that ends the gathering early.
    pub stop: &'a AtomicBool,
    /// Ground that all runs share.
    pub ground: Ground,
    /// Counts so far.
    pub restored: Restored,
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
    source: DirRef,
    /// Directory in which its entries are gathered.
    staged: DirMutRef,
    /// Directory of the tree with the same path, if there is one.
    standing: Option<DirMutRef>,
    names: Box<dyn Iterator<Item = Done<Names>>>,
    /// Directories of the last window that are still to be entered.
    below: Vec<Entering>,
    /// The directory is a piece, or part of one.
    is_inside: bool,
    /// Entries that had come back before, if the directory is a piece that is not counted yet.
    uncounted: Option<u64>,
    /// Attributes of the directory in which its entries are gathered, before any was added.
    before: Meta,
    /// Name of that directory, if it was made for this one.
    made: Option<CString>,
}

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
    /// A piece cannot be copied.
    pub fn gather(&mut self, dates: &[Date], roots: RestoreRoots<'_>) -> Result<(), RestoreError> {
        for date in dates {
            let pieces = self.restored.pieces;
            if let Some(first) = self.begin(*date, roots)? {
                self.go_through(first)?;
            }
            if self.restored.pieces > pieces {
                self.restored.add_date(*date);
            }
        }
        Ok(())
    }

    /// Returns the directory that has the piece of a date; `None` if it is gone.
    fn begin(
        &self,
        date: Date,
        roots: RestoreRoots<'_>,
    ) -> Result<Option<GatherFrame>, RestoreError> {
        let path = &self.wanted.path;
        let found = place(roots.trashed, date, path).map_err(|fault| failed(path, fault))?;
        let Some(((source, is_inside), (above, name))) = found.zip(split(path)) else {
            return Ok(None);
        };
        let mut names = Names::default();
        names.push(&name, None);
        Ok(Some(GatherFrame {
            path: above,
            source,
            staged: roots.staging.clone(),
            standing: Some(roots.above.clone()),
            names: Box::new(std::iter::once(Ok::<_, Fault>(names))),
            below: Vec::new(),
            is_inside,
            uncounted: None,
            before: *roots.staging.first_meta(),
            made: None,
        }))
    }

    fn go_through(&mut self, first: GatherFrame) -> Result<(), RestoreError> {
        let mut frames = vec![first];
        while let Some(frame) = frames.last_mut() {
            if self.stop.load(Relaxed) {
                return Err(self.incomplete());
            }
            if let Some(entering) = frame.below.pop() {
                let next = self.enter(frame, entering)?;
                frames.push(next);
            } else if let Some(names) = frame.names.next() {
                let names = names.map_err(|fault| failed(&frame.path, fault))?;
                frame.below = self.take(frame, &names)?;
            } else {
                let over = frames.pop().expect("the loop has just seen it");
                self.leave(&over, frames.last());
            }
        }
        Ok(())
    }

    /// Copies those names of a directory that come back whole; returns the directories to enter.
    fn take(&mut self, frame: &GatherFrame, names: &Names) -> Result<Vec<Entering>, RestoreError> {
        let (mut works, mut below) = (Vec::new(), Vec::new());
        for (name, _) in (0..names.len()).map(|index| names.get(index)) {
            let met = frame.meet(name);
            let met = met.map_err(|fault| failed(&frame.path.join(name.to_bytes()), fault))?;
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
        let monitor = DirectoryMonitor {
            monitor: self.monitor,
            path: &frame.path,
        };
        let roots = (frame.source.clone(), Some(frame.staged.clone()));
        let ground = self.ground.between(roots);
        let mut run = Run::new(self.options, &monitor, self.stop, ground);
        // Many directories have a single piece.
        run.is_few = true;
        let now = frame.staged.meta();
        let now = now.map_err(|fault| failed(&frame.path, fault))?;
        let sides = Sides {
            source: frame.source.clone(),
            replica: Some(frame.staged.clone()),
            before: Some((now, Xattrs::default())),
        };
        let mut visit = Visit::root(sides, Arc::new(Selection::of(works)), WHOLE_WALK);
        // The directory keeps its attributes, and counts for nothing.
        visit.borrowed = true;
        walk(&mut run, visit, self.threads_max)?;
        run.report_split_groups();
        let summary = sum_up(&run, End::Complete);
        let is_there = |work: &Work| {
            let name = split(&work.path).map(|(_, name)| name);
            name.is_some_and(|name| frame.staged.look(&name).is_ok())
        };
        let is_whole = summary.end == End::Complete
            && summary.counts.failed == 0
            && summary.counts.skipped() == 0
            && works.iter().all(is_there);
        if !is_whole {
            return Err(self.incomplete());
        }
        self.restored.entries += summary.counts.changed + summary.counts.same;
        Ok(())
    }

    /// Enters a directory of the trash, and makes the one in which its entries are gathered.
    fn enter(
        &mut self,
        above: &GatherFrame,
        Entering { name, is_counted }: Entering,
    ) -> Result<GatherFrame, RestoreError> {
        let path = above.path.join(name.to_bytes());
        let of_path = |fault| failed(&path, fault);
        let source = above.source.enter(&name).map_err(of_path)?;
        let is_inside = above.is_inside || !leads(source.first_meta(), source.user().0);
        let standing = above.standing_below(&name).map_err(of_path)?;
        let (staged, made) = match above.staged.enter_mut(&name) {
            Err(fault) if fault.is_missing() => {
                self.restored.made += u64::from(standing.is_none());
                (lead(&above.staged, &name).map_err(of_path)?, Some(name))
            }
            entered => (entered.map_err(of_path)?, None),
        };
        let before = staged.meta().map_err(of_path)?;
        staged.make_writable();
        let names = Box::new(windows(&source).map_err(of_path)?);
        let is_piece = is_inside && !above.is_inside && !is_counted;
        Ok(GatherFrame {
            path,
            source,
            staged,
            standing,
            names,
            below: Vec::new(),
            is_inside,
            uncounted: is_piece.then_some(self.restored.entries),
            before,
            made,
        })
    }

    /// Gives a gathered directory its attributes again, after the last entry was added. One that
    /// was made for entries, and got none, is removed.
    fn leave(&mut self, over: &GatherFrame, above: Option<&GatherFrame>) {
        let is_piece = |before: &u64| self.restored.entries > *before;
        self.restored.pieces += u64::from(over.uncounted.as_ref().is_some_and(is_piece));
        over.source.leave();
        // The first directory is no part of what comes back.
        let Some(above) = above else { return };
        let made = over.made.as_ref();
        if made.is_some_and(|name| above.staged.remove_dir(name).is_ok()) {
            let counted = u64::from(over.standing.is_none());
            self.restored.made = self.restored.made.saturating_sub(counted);
            return;
        }
        let Ok(now) = over.staged.meta() else { return };
        let (before, known) = (&over.before, Known::of(&now));
        let attributes = Attributes {
            mode: (now.mode != before.mode).then_some(before.mode),
            mtime: Some(before.mtime),
            ..Attributes::default()
        };
        let _the_time_of_a_directory_is_no_reason_to_fail =
            over.staged.set_own(&known, &attributes);
        over.staged.leave();
    }

    fn incomplete(&self) -> RestoreError {
        RestoreError::Incomplete(self.wanted.path.clone())
    }
}

impl GatherFrame {
    /// Looks at an entry on all sides; `None` if it is gone from the trash.
    fn meet(&self, name: &CStr) -> Done<Option<(TrashPiece, RestoreChoice)>> {
        let meta = match self.source.look(name) {
            Err(fault) if fault.is_absent() => return Ok(None),
            looked => looked?,
        };
        let is_leading = !self.is_inside && leads(&meta, self.source.user().0);
        let piece = TrashPiece::of(&meta, is_leading);
        let staged = there(self.staged.look(name))?;
        let user = self.staged.user().0;
        let is_leading = staged.as_ref().is_some_and(|meta| leads(meta, user));
        let gathered = StagedEntry::of(staged.as_ref(), is_leading);
        let standing = self.standing.as_ref();
        let standing = standing.map_or(Ok(None), |dir| there(dir.look(name)))?;
        let occupant = Occupant::of(standing.as_ref());
        Ok(Some((piece, choose(piece, gathered, occupant))))
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

/// Returns the metadata of an entry; `None` if there is none.
fn there(looked: Done<Meta>) -> Done<Option<Meta>> {
    match looked {
        Err(fault) if fault.is_missing() => Ok(None),
        looked => looked.map(Some),
    }
}

/// A monitor that names the problems of one directory by their paths in the tree.
struct DirectoryMonitor<'a> {
    monitor: &'a dyn Monitor,
    path: &'a RelPath,
}

impl Monitor for DirectoryMonitor<'_> {
    fn wants_receipts(&self) -> bool {
        false
    }

    fn receipt(&self, _receipt: &Receipt) {}

    fn problem(&self, problem: &Problem) {
        let path = RelPath::from_names(self.path.names().chain(problem.path.names()));
        self.monitor.problem(&Problem {
            path,
            ..problem.clone()
        });
    }

    fn note(&self, text: &str) {
        self.monitor.note(text);
    }

    fn progress(&self, progress: &Progress) {
        self.monitor.progress(progress);
    }
}
