//! Gives gathered entries their names in the tree. One rename brings a directory that the tree
//! lacks, with everything in it. Into a directory of the tree, its entries go one by one. An entry
//! of the tree is never replaced.

use super::{RestoreError, Restored, failed};
use crate::sync::trash::lend_and_take;
use driftless_model::{Kind, RelPath, errno};
use driftless_tree::{DirMutRef, Done, Names, Spared, windows};
use std::ffi::{CStr, CString};

/// A gathered directory that the tree has as well.
struct MergeFrame {
    /// Path in the tree.
    path: RelPath,
    /// Name in the gathered directory above.
    name: CString,
    staged: DirMutRef,
    target: DirMutRef,
    names: Box<dyn Iterator<Item = Done<Names>>>,
    /// Directories of the last window that the tree has as well.
    below: Vec<CString>,
    /// An entry went since the directory was listed.
    has_moved: bool,
}

/// Moves all entries of `staging` into the directory `above` of the tree, which has this path,
/// durably.
///
/// # Errors
/// An entry cannot be moved; those before it have their names.
pub fn merge(
    staging: &DirMutRef,
    (above, path): (&DirMutRef, &RelPath),
    restored: &mut Restored,
) -> Result<(), RestoreError> {
    let of_path = |fault| failed(path, fault);
    staging.make_writable();
    let mut frames = vec![MergeFrame {
        path: path.clone(),
        name: CString::default(),
        staged: staging.clone(),
        target: above.clone(),
        names: Box::new(windows(staging).map_err(of_path)?),
        below: Vec::new(),
        has_moved: false,
    }];
    while let Some(frame) = frames.last_mut() {
        if let Some(name) = frame.below.pop() {
            let next = frame.enter(name)?;
            frames.push(next);
        } else if let Some(names) = frame.names.next() {
            let names = names.map_err(|fault| failed(&frame.path, fault))?;
            frame.place(&names, restored)?;
        } else if frame.has_moved {
            // A listing may pass over names while others go.
            let names = windows(&frame.staged).map_err(|fault| failed(&frame.path, fault))?;
            frame.names = Box::new(names);
            frame.has_moved = false;
        } else {
            let over = frames.pop().expect("the loop has just seen it");
            if let Some(above) = frames.last_mut() {
                let removed = above.staged.remove_dir(&over.name);
                removed.map_err(|fault| failed(&over.path, fault))?;
                above.has_moved = true;
            }
        }
    }
    above.sync_all().map_err(of_path)
}

impl MergeFrame {
    fn enter(&self, name: CString) -> Result<MergeFrame, RestoreError> {
        let path = self.path.join(name.to_bytes());
        let of_path = |fault| failed(&path, fault);
        let staged = self.staged.enter_mut(&name).map_err(of_path)?;
        let target = self.target.enter_mut(&name).map_err(of_path)?;
        staged.make_writable();
        let names = Box::new(windows(&staged).map_err(of_path)?);
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

    fn place(&mut self, names: &Names, restored: &mut Restored) -> Result<(), RestoreError> {
        for (name, _) in (0..names.len()).map(|index| names.get(index)) {
            match lend_and_take(&self.target, &self.staged, name) {
                Ok(()) => self.has_moved = true,
                Err(fault) if fault.errno == errno::EEXIST => self.keep(name, restored)?,
                // A listing may show a name twice.
                Err(fault) if fault.is_missing() && self.staged.look(name).is_err() => {}
                Err(fault) => return Err(failed(&self.path.join(name.to_bytes()), fault)),
            }
        }
        Ok(())
    }

    /// Keeps the entry that the tree has at this name: two directories are merged, another gathered
    /// entry goes.
    fn keep(&mut self, name: &CStr, restored: &mut Restored) -> Result<(), RestoreError> {
        let is_dir = |dir: &DirMutRef| dir.look(name).is_ok_and(|meta| meta.kind == Kind::Dir);
        if is_dir(&self.target) && is_dir(&self.staged) {
            self.below.push(name.into());
            return Ok(());
        }
        let removed = self.staged.remove_tree(name, Spared::NOTHING);
        restored.entries = restored.entries.saturating_sub(removed.entries);
        restored.stays += removed.entries;
        self.has_moved = true;
        let removed = removed.done();
        removed.map_err(|fault| failed(&self.path.join(name.to_bytes()), fault))
    }
}
