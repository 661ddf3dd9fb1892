//! The private directory in which a copy grows, and its directories.
//!
//! Until the copy is complete, its root has mode 0700 and no ACL. No other user can reach what is in
//! it, whatever attributes the entries have already, and new entries inherit nothing from the
//! directory of the user that will hold the copy.

use crate::catalogue::Catalogue;
use crate::cursor::{DirCursor, DirHandle};
use crate::error::{Error, Result};
use driftless_model::{Fault, Keep, Kind, Xattrs, errno};
use driftless_tree::{Attributes, Dir, DirMut, DirMutRef, Done, Known, Names};
use std::ffi::{CStr, CString};

/// The mode of private directories.
const PRIVATE_DIR: u32 = 0o700;
/// The mode of directories that lead to copies in the cache.
pub(crate) const PASSAGE_DIR: u32 = 0o711;
/// The mode of files in private directories.
pub(crate) const PRIVATE_FILE: u32 = 0o600;

/// A directory of an unfinished copy: subdirectories that are missing are made when they are
/// entered.
#[derive(Clone)]
pub(crate) struct StagedDir(pub(crate) DirMutRef);

impl DirHandle for StagedDir {
    fn enter(&self, name: &CStr) -> Done<Self> {
        enter_or_make(&*self.0, name).map(StagedDir)
    }

    fn leave(&self) {
        self.0.leave();
    }
}

/// Lists a directory.
pub(crate) fn names_in(dir: &dyn Dir) -> Done<Vec<CString>> {
    let mut names = Names::default();
    let mut listing = dir.list()?;
    while listing.fill(&mut names, usize::MAX)? {}
    Ok((0..names.len())
        .map(|at| CString::from(names.get(at).0))
        .collect())
}

/// Opens a subdirectory, which is made if it is missing. A subdirectory of this user without rights
/// for its owner gets them.
pub(crate) fn enter_or_make(dir: &dyn DirMut, name: &CStr) -> Done<DirMutRef> {
    match enter_own(dir, name) {
        Err(fault) if fault.is_missing() => dir.make_dir(name),
        other => other,
    }
}

/// Opens a subdirectory. One of this user without rights for its owner gets them.
pub(crate) fn enter_own(dir: &dyn DirMut, name: &CStr) -> Done<DirMutRef> {
    match dir.enter_mut(name) {
        Err(fault) if fault.is_denied() => {
            let meta = dir.look(name)?;
            set_mode(dir, name, &Known::of(&meta), meta.mode | PRIVATE_DIR)?;
            dir.enter_mut(name)
        }
        other => other,
    }
}

/// Sets the mode of an entry.
pub(crate) fn set_mode(dir: &dyn DirMut, name: &CStr, known: &Known, mode: u32) -> Done {
    let attributes = Attributes {
        mode: Some(mode),
        ..Attributes::default()
    };
    let faults = dir.set(name, known, &attributes)?;
    faults.into_iter().next().map_or(Ok(()), Err)
}

/// Opens or makes a directory that other users can pass through if they know the names in it.
pub(crate) fn open_passage(dir: &dyn DirMut, name: &CStr) -> Done<DirMutRef> {
    let passage = enter_or_make(dir, name)?;
    let meta = dir.look(name)?;
    if meta.mode != PASSAGE_DIR {
        set_mode(dir, name, &Known::of(&meta), PASSAGE_DIR)?;
    }
    Ok(passage)
}

/// Takes all rights to a directory from other users, its ACLs included.
pub(crate) fn close_to_others(dir: &dyn DirMut) -> Done {
    let acls = Keep {
        xattrs: false,
        ..Keep::default()
    };
    let attributes = Attributes {
        mode: Some(PRIVATE_DIR),
        xattrs: Some((Xattrs::default(), acls)),
        ..Attributes::default()
    };
    let faults = dir.set_own(&Known::default(), &attributes);
    let lacks_acls = |fault: &Fault| fault.errno == errno::EOPNOTSUPP;
    let fault = faults.into_iter().find(|fault| !lacks_acls(fault));
    fault.map_or(Ok(()), Err)
}

/// Takes up an unfinished copy of an earlier process: files and directories get their private owner
/// and modes again, and further names of files go, so that each file can be opened to be written.
pub(crate) fn take_up(catalogue: &Catalogue, cursor: &mut DirCursor<StagedDir>) -> Result<()> {
    for number in 0..catalogue.entries() {
        let kind = catalogue.entry(number)?.body.kind();
        if kind == Some(Kind::Dir) {
            // It may have its final mode, without the right to write.
            cursor.dir(catalogue, number)?.0.make_writable();
            continue;
        }
        let (dir, name) = cursor.holder(catalogue, number)?;
        let done = match kind {
            None => dir.0.remove(&name),
            Some(Kind::File) => make_private(&*dir.0, &name),
            Some(_) => Ok(()),
        };
        match done {
            Err(fault) if !fault.is_missing() => {
                return Err(cursor.failed(catalogue, number, fault));
            }
            _ => {}
        }
    }
    Ok(())
}

fn make_private(dir: &dyn DirMut, name: &CStr) -> Done {
    let (meta, (own, _)) = (dir.look(name)?, dir.user());
    let is_private = meta.mode == PRIVATE_FILE && meta.uid == own;
    if is_private || meta.kind != Kind::File {
        return Ok(());
    }
    let attributes = Attributes {
        uid: Some(own),
        mode: Some(PRIVATE_FILE),
        ..Attributes::default()
    };
    let faults = dir.set(name, &Known::of(&meta), &attributes)?;
    faults.into_iter().next().map_or(Ok(()), Err)
}

/// Names a private directory whose call failed.
pub(crate) fn failed_at(place: &[u8], name: &CStr) -> impl Fn(Fault) -> Error + use<> {
    let path = [place, b"/", name.to_bytes()].concat();
    move |fault| Error::Entry {
        path: path.clone(),
        fault,
    }
}
