//! The directories that an agent's clients are held to: found when it starts, by whoever starts it,
//! and held open.

use crate::wire::{Apart, Limits, May};
use crate::wire::{Handle, Request, WireFault};
use driftless_lock::RwLock;
use driftless_model::{errno, quote};
use driftless_tree::{DirRef, HandlePool, Place, locate_mut, prepare_marks};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

/// How often a directory is looked for that appears meanwhile: one that is made and removed without
/// end is given up.
const LOOKS_MAX: u32 = 8;

/// Cause for a directory that is missing, and is not made.
const NOT_MADE: &str = "no such directory, and --read-only creates none; create it";

/// What clients are held to.
pub struct Fence {
    limits: Limits,
    dirs: Vec<DirRef>,
    names: RwLock<()>,
}

/// That a request may be carried out, as long as this is there.
#[derive(Default)]
pub struct Permit<'f> {
    _makes: Option<RwLockReadGuard<'f, ()>>,
    _renames: Option<RwLockWriteGuard<'f, ()>>,
}

impl Fence {
    /// Opens the directories of the limits, and makes those that are missing unless clients only
    /// read.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn open(limits: Limits, pool: &Arc<HandlePool>) -> io::Result<Fence> {
        let dirs = limits
            .only
            .iter()
            .map(|path| Fence::directory(Path::new(OsStr::from_bytes(path)), limits.may, pool));
        Ok(Fence {
            dirs: dirs.collect::<io::Result<_>>()?,
            limits,
            names: RwLock::default(),
        })
    }

    fn directory(path: &Path, may: May, pool: &Arc<HandlePool>) -> io::Result<DirRef> {
        let dir = found_or_made(path, may, pool)
            .map_err(|why| io::Error::other(format!("--only {}: {why}", quote(path))))?;
        dir.as_local().into_iter().for_each(prepare_marks);
        Ok(dir)
    }

    /// What the client may do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether a request may be carried out. `dir` finds a directory that it is about.
    ///
    /// # Errors
    /// It is refused, or it cannot be told whether it may be.
    pub fn permit(
        &self,
        request: &Request,
        dir: &dyn Fn(Handle) -> Result<DirRef, WireFault>,
    ) -> Result<Permit<'_>, WireFault> {
        let mut permit = Permit::default();
        match self.limits.apart(request) {
            Apart::Nothing => {}
            Apart::Renaming => permit._makes = Some(self.names.read()),
            Apart::Naming => permit._renames = Some(self.names.write()),
        }
        self.limits.permit(request, dir)?;
        Ok(permit)
    }

    /// The directories.
    pub fn directories(&self) -> impl Iterator<Item = &DirRef> {
        self.dirs.iter()
    }

    /// Whether a directory is one of these or lies below one. That is asked of what is open, not of
    /// a path: what a symbolic link in a path led to has no part in it.
    pub fn holds(&self, dir: &DirRef) -> bool {
        let is_within = || {
            dir.lineage().is_ok_and(|above| {
                above.iter().any(|above| {
                    self.dirs
                        .iter()
                        .any(|dir| dir.first_meta().id() == above.id)
                })
            })
        };
        self.limits.only.is_empty() || is_within()
    }
}

/// The directory at a path. The agents of one run start together, and may all find it missing: one
/// makes it, the others look again.
fn found_or_made(path: &Path, may: May, pool: &Arc<HandlePool>) -> Result<DirRef, String> {
    let mut looks_left = LOOKS_MAX;
    loop {
        looks_left -= 1;
        let has_appeared =
            |errno| (errno == errno::EEXIST || errno == errno::ESTALE) && looks_left > 0;
        let (parent, name) = match locate_mut(path, pool) {
            Ok(Place::Dir(dir)) => return Ok(dir),
            Ok(Place::Missing { parent, name }) if may != May::Read => (parent, name),
            Ok(Place::Missing { .. }) => return Err(NOT_MADE.into()),
            Ok(Place::Entry { .. }) => return Err("it is not a directory".into()),
            Err(error) if has_appeared(error.parts().1) => continue,
            Err(error) => return Err(error.reason()),
        };
        match parent.make_dir(&name) {
            Err(fault) if has_appeared(fault.errno) => {}
            made => {
                return made
                    .map(|dir| dir as DirRef)
                    .map_err(|fault| format!("cannot {}: {}", fault.act.words(), fault.cause()));
            }
        }
    }
}
