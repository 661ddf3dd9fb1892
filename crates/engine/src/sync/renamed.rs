//! Renames of the replica's entries where the source's were renamed, reported or not, so that nothing
//! is copied again.
//!
//! That an entry was renamed is a hint, and may be wrong. An entry that is renamed here is looked at
//! like any other afterwards; here, nothing may show up where it should not.

use crate::monitor::DirectoryPlace;
use crate::sync::ground::Ground;
use crate::sync::spelling::{can_be_respelt, respell};
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use driftless_model::{Act, DirectoryId, Filter, Kind, Meta, RelPath, Xattrs, errno, is_set_aside};
use driftless_mover::Trouble;
use driftless_tree::{DirMutRef, DirRef, Done, descend, descend_mut, is_root_name, is_temp_name};
use std::ffi::{CStr, CString};
use std::sync::Arc;

/// An entry of the source that stood at another path before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// Where it stood.
    pub from: RelPath,
    /// Where it stands.
    pub to: RelPath,
    /// It is a directory.
    pub is_dir: bool,
    /// It was renamed once more, so that the source need not have it there.
    pub goes_on: bool,
}

/// Roots of the source and of the replica.
type BothRoots = (DirRef, Option<DirMutRef>);

/// Renames an entry of the replica; false if that is not right as far as can be seen.
pub fn try_relocate(
    ground: &Ground,
    (source, replica): &BothRoots,
    renamed: &Renamed,
) -> Done<bool> {
    if [&renamed.from, &renamed.to].into_iter().any(is_beside) {
        return Ok(false);
    }
    let (Some(replica), Some(from), Some(to)) = (replica, split(&renamed.from), split(&renamed.to))
    else {
        return Ok(false);
    };
    if [&from.1, &to.1].iter().any(|name| is_ours(name)) {
        return Ok(false);
    }
    let from_dir = descend_mut(replica, &from.0)?;
    let moved = from_dir.look(&from.1)?;
    let at_source = |(dir, name): &(RelPath, CString)| {
        present(descend(source, dir).and_then(|dir| dir.look(name)))
    };
    let stands = at_source(&to)?;
    let is_right = match &stands {
        Some(stands) => is_like(stands, &moved),
        None => renamed.goes_on,
    };
    if !is_right || renamed.is_dir != (moved.kind == Kind::Dir) {
        return Ok(false);
    }
    // It may be what has come to its old place.
    if !renamed.is_dir && at_source(&from)?.is_some_and(|left| is_like(&left, &moved)) {
        return Ok(false);
    }
    for path in [&renamed.from, &to.0] {
        if is_of_another(ground, (source, replica), path)? {
            return Ok(false);
        }
    }
    let to_dir = descend_mut(replica, &to.0)?;
    if present(to_dir.look(&to.1))?.is_some() {
        // What stands there may have another name on the source, or be the entry itself.
        if let Some(spelling) = spelt_otherwise(ground, &to_dir, &to.1)? {
            let is_there = from_dir.first_meta().id() == to_dir.first_meta().id();
            return match is_there && spelling == from.1 && can_be_respelt(&spelling, &to.1) {
                true => respell(&*to_dir, &spelling, &to.1).map(|()| true),
                false => Ok(false),
            };
        }
        // In an exchange it would take the place of the other one.
        if renamed.is_dir || stands.is_none() {
            return Ok(false);
        }
    }
    to_dir.take(&*from_dir, &from.1, &to.1).map(|()| true)
}

/// A directory of the replica that was entered.
pub struct Entered {
    /// The directory; `None` in a run that changes nothing, if the replica lacks it.
    pub replica: Option<DirMutRef>,
    /// Its attributes, if it existed.
    pub before: Option<(Meta, Xattrs)>,
    /// The entry of another kind that stood in its place.
    pub replaced: Option<Meta>,
    /// The directory stood elsewhere before, so that nothing below it was selected.
    pub is_relocated: bool,
}

impl Entered {
    /// Returns a directory that was not there before.
    pub fn new(replica: Option<DirMutRef>) -> Entered {
        Entered {
            replica,
            before: None,
            replaced: None,
            is_relocated: false,
        }
    }

    /// Returns the directory that took the place of an entry of another kind.
    pub fn in_place_of(self, replaced: Meta) -> Entered {
        Entered {
            replaced: Some(replaced),
            ..self
        }
    }
}

impl Worker<'_> {
    /// Enters a directory that came to stand on the replica before this worker could `make` it. Other
    /// work of a mirror renames directories at the same time, and another host may make them.
    pub fn or_met(
        &mut self,
        made: Result<Entered, Trouble>,
        parent: &Arc<Visit>,
        (above, name): (&DirMutRef, &CStr),
    ) -> Result<Entered, Trouble> {
        let Err(Trouble::Failed(fault)) = &made else {
            return made;
        };
        let is_met = fault.act == Act::MakeDirectory && fault.errno == errno::EEXIST;
        let Some(dir) = is_met.then(|| above.enter_mut(name).ok()).flatten() else {
            return made;
        };
        // Nothing below it was compared.
        Ok(Entered {
            is_relocated: true,
            ..self.existing(parent, name, dir)?
        })
    }

    /// Tells the monitor the place of a directory that was entered on both sides.
    pub fn note_place(
        &self,
        (parent, name, id): (&Visit, &CStr, Option<DirectoryId>),
        entered: &Entered,
    ) {
        if let (Some(id), Some(replica)) = (id, &entered.replica) {
            self.note_copy((parent, name, id), replica.first_meta().ino);
        }
    }

    /// Tells the monitor the place of a directory, with the inode number of its copy.
    fn note_copy(&self, (parent, name, id): (&Visit, &CStr, DirectoryId), replica: u64) {
        let place = DirectoryPlace {
            parent: parent.source.first_meta().ino,
            name,
            replica,
        };
        self.run.monitor.directory(id, place);
    }

    /// Returns the identity of a directory of the source, if the monitor keeps an index of them.
    /// Inode numbers of other file systems below the source are no identities there.
    pub fn directory_id(&self, source: &DirRef) -> Option<DirectoryId> {
        let meta = source.first_meta();
        let is_indexed =
            self.run.monitor.indexes_directories() && meta.dev == self.run.roots.0.first_meta().dev;
        let made = is_indexed.then(|| source.made_at())??;
        Some(DirectoryId {
            inode: meta.ino,
            made,
        })
    }

    /// Renames a directory of the replica that the source has at `name` of `parent` by now, and that
    /// no detector reported as renamed. Returns the directory, or `None` if the index does not know
    /// it, or if the rename is not possible: then it is made anew.
    ///
    /// Inode numbers are a hint: everything below is compared afterwards.
    pub fn relocate_unreported(
        &self,
        parent: &Visit,
        name: &CStr,
        id: DirectoryId,
    ) -> Option<DirMutRef> {
        let run = self.run;
        let policy = &run.options.policy;
        if !run.options.applies() || !policy.delete || policy.filter != Filter::default() {
            return None;
        }
        // Relocations around this one would take what was found from its place.
        let _alone = run.relocating.lock();
        let root = run.roots.0.first_meta().ino;
        let (from, copy) = run.monitor.stood_at(id, root)?;
        let to = parent.path_of(name);
        // A directory that stands at the old place by now is another one, and so is its copy.
        let (dir, old_name) = split(&from)?;
        let at_source = descend(&run.roots.0, &dir).and_then(|dir| dir.look(&old_name));
        let at_replica =
            descend_mut(run.roots.1.as_ref()?, &dir).and_then(|dir| dir.look(&old_name));
        let is_gone = matches!(present(at_source), Ok(None));
        let is_copy = at_replica.is_ok_and(|meta| meta.ino == copy);
        if !is_gone || !is_copy || to.is_within(&from) {
            return None;
        }
        let renamed = Renamed {
            from,
            to,
            is_dir: true,
            goes_on: false,
        };
        if !try_relocate(&run.ground, &run.roots, &renamed).ok()? {
            return None;
        }
        run.monitor.relocated(&renamed.from, &renamed.to);
        self.note_copy((parent, name, id), copy);
        parent.replica.as_ref()?.enter_mut(name).ok()
    }
}

/// Returns whether a path leads, on the replica, to the copy of what has another name on the source.
fn is_of_another(
    ground: &Ground,
    (source, replica): (&DirRef, &DirMutRef),
    path: &RelPath,
) -> Done<bool> {
    let (mut dir, mut there) = (RelPath::root(), replica.clone());
    for name in path.names() {
        let name = CString::new(name).expect("names hold no NUL");
        if let Some(spelling) = spelt_otherwise(ground, &there, &name)? {
            let other = descend(source, &dir).and_then(|dir| dir.look(&spelling));
            if present(other)?.is_some() {
                return Ok(true);
            }
        }
        dir = dir.join(name.to_bytes());
        let Ok(next) = there.enter_mut(&name) else {
            break;
        };
        there = next;
    }
    Ok(false)
}

/// Returns the spelling under which a directory of the replica lists a name, if that is another.
fn spelt_otherwise(ground: &Ground, dir: &DirMutRef, name: &CString) -> Done<Option<CString>> {
    let mut shown = ground.shown_otherwise(dir, std::slice::from_ref(name))?;
    Ok(shown.pop().map(|(_, spelling)| spelling))
}

/// What was looked at, if it is there.
fn present(looked_at: Done<Meta>) -> Done<Option<Meta>> {
    match looked_at {
        Err(fault) if fault.is_absent() => Ok(None),
        looked_at => looked_at.map(Some),
    }
}

/// Whether the replica's entry may show up in the place of the source's: a directory with the same
/// rights, which is finished below, or another entry that is equal already as far as its metadata
/// say.
fn is_like(source: &Meta, replica: &Meta) -> bool {
    let has_same_rights = (source.kind, source.mode, source.uid, source.gid)
        == (replica.kind, replica.mode, replica.uid, replica.gid);
    let is_equal = (source.size, source.mtime) == (replica.size, replica.mtime);
    has_same_rights && (source.kind == Kind::Dir || is_equal)
}

/// Whether a path leads to what is kept beside the tree, in its root.
fn is_beside(path: &RelPath) -> bool {
    let first = path.names().next().map(CString::new);
    first.is_some_and(|name| name.is_ok_and(|name| is_set_aside(&name)))
}

fn is_ours(name: &CStr) -> bool {
    is_temp_name(name) || is_root_name(name)
}

fn split(path: &RelPath) -> Option<(RelPath, CString)> {
    let (dir, name) = path.split_last()?;
    Some((dir, CString::new(name).expect("names hold no NUL")))
}
