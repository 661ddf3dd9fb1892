//! Gives gathered entries their names in the tree. One rename brings a directory that the tree
//! lacks, with everything in it. Into a directory of the tree, its entries go one by one. An entry
//! of the tree is never replaced.

use super::listing::{LISTINGS_MAX, OpenListing};
use super::problems::RestoreProblems;
use super::{RestoreError, Restored};
use crate::sync::trash::{leads, lend_and_take};
use driftless_model::{Fault, Kind, RelPath, errno};
use driftless_tree::{DirMutRef, Done, Names, Removed, Spared};
use std::ffi::{CStr, CString};

/// A gathered directory that the tree has as well.
struct MergeFrame {
    /// Path in the tree.
    path: RelPath,
    /// Name in the gathered directory above.
    name: CString,
    staged: DirMutRef,
    target: DirMutRef,
    names: OpenListing,
    /// Directories that were listed and that the tree has as well.
    below: Vec<CString>,
    /// An entry went since the directory was listed.
    has_moved: bool,
}

/// Gathered entries while they get their names.
pub struct PieceMerging<'a> {
    problems: &'a RestoreProblems<'a>,
    restored: &'a mut Restored,
}

impl<'a> PieceMerging<'a> {
    /// Returns what reports problems and corrects the counts of what was gathered.
    pub fn new(problems: &'a RestoreProblems<'a>, restored: &'a mut Restored) -> PieceMerging<'a> {
        PieceMerging { problems, restored }
    }

    /// Moves all entries of `staging` into the directory `above` of the tree, which has this path,
    /// durably. An entry that cannot be moved is reported and goes from `staging`: the trash has it.
    ///
    /// # Errors
    /// The connection to a host is lost.
    pub fn merge(
        &mut self,
        staging: &DirMutRef,
        (above, path): (&DirMutRef, &RelPath),
    ) -> Result<(), RestoreError> {
        let first = MergeFrame::open((staging.clone(), above.clone()), path.clone(), c"".into());
        let mut frames = Vec::new();
        match first {
            Ok(first) => frames.push(first),
            Err(fault) => self.problems.report(path, fault)?,
        }
        loop {
            let is_deep = frames.len() > LISTINGS_MAX;
            let Some(frame) = frames.last_mut() else {
                break;
            };
            let is_next_below = !is_deep || frame.names.is_over();
            if let Some(name) = frame.below.pop_if(|_| is_next_below) {
                let next = self.enter(frame, name)?;
                frames.extend(next);
            } else if let Some(names) = frame.names.next_window() {
                self.place_window(frame, names)?;
            } else if !frame.below.is_empty() {
                // These are entered now that the listing is closed.
            } else if frame.has_moved {
                self.list_again(frame)?;
            } else if let Some(over) = frames.pop() {
                self.leave(&over, frames.last_mut())?;
            }
        }
        let synced = above.sync_all();
        synced.or_else(|fault| self.problems.report(path, fault))
    }

    fn enter(
        &mut self,
        above: &mut MergeFrame,
        name: CString,
    ) -> Result<Option<MergeFrame>, RestoreError> {
        let path = above.path.join(name.to_bytes());
        let staged = above.staged.enter_mut(&name);
        let both = staged.and_then(|staged| Ok((staged, above.target.enter_mut(&name)?)));
        match both.and_then(|both| MergeFrame::open(both, path, name.clone())) {
            Ok(entered) => Ok(Some(entered)),
            Err(fault) => self.give_up(above, &name, fault).map(|()| None),
        }
    }

    fn place_window(
        &mut self,
        frame: &mut MergeFrame,
        names: Done<Names>,
    ) -> Result<(), RestoreError> {
        let names = match names {
            Ok(names) => names,
            Err(fault) => return self.problems.report(&frame.path, fault),
        };
        for (name, _) in (0..names.len()).map(|index| names.get(index)) {
            match lend_and_take(&frame.target, &frame.staged, name) {
                Ok(()) => frame.has_moved = true,
                Err(fault) if fault.errno == errno::EEXIST => self.keep(frame, name)?,
                // A listing may show a name twice.
                Err(fault) if fault.is_missing() && frame.staged.look(name).is_err() => {}
                Err(fault) => self.give_up(frame, name, fault)?,
            }
        }
        Ok(())
    }

    /// Keeps the entry that the tree has at this name: two directories are merged, another gathered
    /// entry goes.
    fn keep(&mut self, frame: &mut MergeFrame, name: &CStr) -> Result<(), RestoreError> {
        let is_dir = |dir: &DirMutRef| dir.look(name).is_ok_and(|meta| meta.kind == Kind::Dir);
        if is_dir(&frame.target) && is_dir(&frame.staged) {
            frame.below.push(name.into());
            return Ok(());
        }
        let removed = self.drop_gathered(frame, name);
        self.restored.stays += removed.entries;
        let path = frame.path.join(name.to_bytes());
        let done = removed.done();
        done.or_else(|fault| self.problems.report(&path, fault))
    }

    /// Reports an entry that cannot get its name, and removes its copy.
    fn give_up(
        &mut self,
        frame: &mut MergeFrame,
        name: &CStr,
        fault: Fault,
    ) -> Result<(), RestoreError> {
        let path = frame.path.join(name.to_bytes());
        self.problems.report(&path, fault)?;
        let _the_room_is_removed_later = self.drop_gathered(frame, name);
        Ok(())
    }

    fn drop_gathered(&mut self, frame: &mut MergeFrame, name: &CStr) -> Removed {
        let removed = frame.staged.remove_tree(name, Spared::NOTHING);
        self.restored.entries = self.restored.entries.saturating_sub(removed.entries);
        frame.has_moved |= removed.entries > 0;
        removed
    }

    /// Lists a directory again: a listing may pass over names while others go.
    fn list_again(&mut self, frame: &mut MergeFrame) -> Result<(), RestoreError> {
        frame.has_moved = false;
        match OpenListing::of(&frame.staged) {
            Ok(names) => frame.names = names,
            Err(fault) => self.problems.report(&frame.path, fault)?,
        }
        Ok(())
    }

    fn leave(
        &mut self,
        over: &MergeFrame,
        above: Option<&mut MergeFrame>,
    ) -> Result<(), RestoreError> {
        let Some(above) = above else { return Ok(()) };
        match above.staged.remove_dir(&over.name) {
            Ok(()) => {
                above.has_moved = true;
                // The tree got the directory after this one was copied, and keeps its own.
                if !leads(over.staged.first_meta(), over.staged.user().0) {
                    self.restored.entries = self.restored.entries.saturating_sub(1);
                    self.restored.stays += 1;
                }
            }
            Err(fault) => self.give_up(above, &over.name, fault)?,
        }
        Ok(())
    }
}

impl MergeFrame {
    fn open(
        (staged, target): (DirMutRef, DirMutRef),
        path: RelPath,
        name: CString,
    ) -> Done<MergeFrame> {
        staged.make_writable();
        let names = OpenListing::of(&staged)?;
        Ok(MergeFrame {
            path,
            name,
            staged,
            target,
            names,
            below: Vec::new(),
            has_moved: false,
        })
    }
}
