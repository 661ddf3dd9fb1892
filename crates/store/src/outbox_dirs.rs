//! Directories of outboxes: `outbox` and `outbox/.sealed` with a directory for each job, and
//! `outbox/.private`, which no other user can open.
//!
//! A directory for a user is made in the private one, gets its owner there, and is then renamed to its
//! name. So no other user ever reaches a directory that root is about to give away.

use crate::error::{Error, Result, own_file};
use crate::staging::{close_to_others, enter_or_make, open_passage, set_mode};
use driftless_model::{Act, Fault, Kind, Side, errno};
use driftless_tree::{Attributes, Dir, DirMut, DirMutRef, Done, Known, Names, random_id};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

const OUTBOX: &CStr = c"outbox";
pub(crate) const SEALED: &CStr = c".sealed";
pub(crate) const PRIVATE: &CStr = c".private";
/// The right of the owner to write.
const OWNER_WRITES: u32 = 0o200;

/// Open directories of outboxes.
pub(crate) struct OutboxDirs {
    pub(crate) outbox: DirMutRef,
    pub(crate) sealed: DirMutRef,
    pub(crate) private: DirMutRef,
}

impl OutboxDirs {
    /// Opens the directories, which are made if they are missing.
    pub(crate) fn open(dir: &dyn DirMut) -> Result<OutboxDirs> {
        let open = || {
            let outbox = open_passage(dir, OUTBOX)?;
            let sealed = open_passage(&*outbox, SEALED)?;
            let private = enter_or_make(&*outbox, PRIVATE)?;
            close_to_others(&*private)?;
            Ok(OutboxDirs {
                outbox,
                sealed,
                private,
            })
        };
        open().map_err(own_file(OUTBOX.to_bytes()))
    }

    /// Names an entry below the outboxes of which a call failed.
    pub(crate) fn failed(&self, name: &[u8], fault: Fault) -> Error {
        own_file(&[OUTBOX.to_bytes(), b"/", name].concat())(fault)
    }

    /// Returns a name that is free in the private directory.
    pub(crate) fn free_name(&self) -> CString {
        CString::new(format!("{:032x}", random_id())).unwrap_or_default()
    }

    /// Opens the directory of a job; `None` if it is missing.
    pub(crate) fn enter_job(&self, above: &DirMutRef, name: &CStr) -> Result<Option<DirMutRef>> {
        self.enter(&**above, name)
    }

    /// Opens a directory of a user; `None` if it is missing.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it belongs to another user.
    pub(crate) fn enter_owned(
        &self,
        above: &dyn DirMut,
        name: &CStr,
        owner: u32,
    ) -> Result<Option<DirMutRef>> {
        let dir = self.enter(above, name)?;
        match dir {
            Some(dir) if dir.first_meta().uid != owner => Err(Error::Foreign {
                path: OsStr::from_bytes(name.to_bytes()).into(),
            }),
            dir => Ok(dir),
        }
    }

    /// Opens a directory in which no other file system is mounted. A user can mount one there
    /// (fusermount3(1)), whose server need not answer.
    fn enter(&self, above: &dyn DirMut, name: &CStr) -> Result<Option<DirMutRef>> {
        let failed = |fault| self.failed(name.to_bytes(), fault);
        let device = above.first_meta().id().0;
        let is_crossing = |id: (u64, u64)| id.0 != device;
        match above.peek(name) {
            Ok(meta) if is_crossing(meta.id()) => return Err(failed(mounted())),
            Ok(_) => {}
            Err(fault) if fault.is_missing() => return Ok(None),
            Err(fault) => return Err(failed(fault)),
        }
        match above.enter_mut(name) {
            Ok(dir) if is_crossing(dir.first_meta().id()) => Err(failed(mounted())),
            Ok(dir) => Ok(Some(dir)),
            Err(fault) if fault.errno == errno::ENOENT => Ok(None),
            Err(fault) => Err(failed(fault)),
        }
    }

    /// Opens a directory of a user, which is made with mode 0700 if it is missing. The caller is
    /// alone.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it belongs to another user.
    pub(crate) fn enter_or_make(
        &self,
        above: &dyn DirMut,
        name: &CStr,
        owner: u32,
    ) -> Result<DirMutRef> {
        if let Some(dir) = self.enter_owned(above, name, owner)? {
            return Ok(dir);
        }
        let failed = |fault| self.failed(name.to_bytes(), fault);
        self.make(above, name, owner).map_err(failed)?;
        let made = self.enter_owned(above, name, owner)?;
        made.ok_or_else(|| failed(gone()))
    }

    fn make(&self, above: &dyn DirMut, name: &CStr, owner: u32) -> Done {
        let staged = self.free_name();
        let dir = self.private.make_dir(&staged)?;
        let finished = finish(&*dir, owner);
        let moved = finished.and_then(|()| above.take_new(&*self.private, &staged, name));
        if moved.is_err() {
            let _a_sweep_removes_it = self.private.remove_dir(&staged);
        }
        match moved {
            // The user was faster.
            Err(fault) if fault.errno == errno::EEXIST => Ok(()),
            moved => moved,
        }
    }
}

/// Gives a new directory to its owner.
fn finish(dir: &dyn DirMut, owner: u32) -> Done {
    close_to_others(dir)?;
    if owner == dir.user().0 {
        return Ok(());
    }
    let attributes = Attributes {
        uid: Some(owner),
        mode: Some(0o700),
        ..Attributes::default()
    };
    let faults = dir.set_own(&Known::default(), &attributes);
    faults.into_iter().next().map_or(Ok(()), Err)
}

/// Moves an entry to a free name of another directory. A directory that an ordinary user may not write
/// to cannot be moved (rename(2), `EACCES`), so it has this right until it has moved.
pub(crate) fn move_entry(from: &dyn DirMut, name: &CStr, to: &dyn DirMut, to_name: &CStr) -> Done {
    let fault = match to.take_new(from, name, to_name) {
        Err(fault) if fault.is_denied() && from.user().0 != 0 => fault,
        done => return done,
    };
    let meta = from.look(name)?;
    if meta.kind != Kind::Dir || meta.mode & OWNER_WRITES != 0 {
        return Err(fault);
    }
    set_mode(from, name, &Known::of(&meta), meta.mode | OWNER_WRITES)?;
    let moved = to.take_new(from, name, to_name);
    let (at, at_name) = match moved {
        Ok(()) => (to, to_name),
        Err(_) => (from, name),
    };
    let restored = at
        .look(at_name)
        .and_then(|now| set_mode(at, at_name, &Known::of(&now), meta.mode));
    moved.and(restored)
}

/// Returns whether a directory has no entry.
pub(crate) fn is_empty(dir: &dyn Dir) -> Done<bool> {
    let (mut names, mut listing) = (Names::default(), dir.list()?);
    while names.is_empty() && listing.fill(&mut names, 1)? {}
    Ok(names.is_empty())
}

fn mounted() -> Fault {
    Fault {
        side: Side::Replica,
        act: Act::Enter,
        errno: errno::EXDEV,
    }
}

fn gone() -> Fault {
    Fault {
        side: Side::Replica,
        act: Act::Enter,
        errno: errno::ENOENT,
    }
}
