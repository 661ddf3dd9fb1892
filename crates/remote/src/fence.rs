//! The directories that an agent's clients are held to: found when it starts, by whoever starts it, and held open.

use crate::limits::{Limits, May};
use driftless_model::{Side, quote};
use driftless_tree::{DirRef, HandlePool, Place, locate, prepare_marks};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// What clients are held to.
pub struct Fence {
    limits: Limits,
    dirs: Vec<DirRef>,
}

impl Fence {
    /// Opens the directories of the limits, and makes those that are missing unless clients only read.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn open(limits: Limits, pool: &Arc<HandlePool>) -> io::Result<Fence> {
        let dirs = limits.only.iter().map(|path| Fence::directory(Path::new(OsStr::from_bytes(path)), limits.may, pool));
        Ok(Fence { dirs: dirs.collect::<io::Result<_>>()?, limits })
    }

    fn directory(path: &Path, may: May, pool: &Arc<HandlePool>) -> io::Result<DirRef> {
        let unusable = |why: String| io::Error::other(format!("--only {}: {why}", quote(path)));
        let place = locate(path, Side::Source, pool).map_err(|error| unusable(error.reason()))?;
        let dir = match place {
            Place::Dir(dir) => dir,
            Place::Missing { parent, name } if may != May::Read => parent.make_dir(&name).map_err(|fault| unusable(fault.to_string()))?,
            Place::Missing { .. } => return Err(unusable("there is no such directory".into())),
            Place::Entry { .. } => return Err(unusable("it is not a directory".into())),
        };
        dir.as_local().into_iter().for_each(prepare_marks);
        Ok(dir)
    }

    /// What the client may do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The directories.
    pub fn directories(&self) -> impl Iterator<Item = &DirRef> {
        self.dirs.iter()
    }

    /// Whether a directory is one of these or lies below one. That is asked of what is open, not of a path: what a symbolic link in a path
    /// led to has no part in it.
    pub fn holds(&self, dir: &DirRef) -> bool {
        let is_within =
            || dir.lineage().is_ok_and(|above| above.iter().any(|above| self.dirs.iter().any(|dir| dir.first_meta().id() == above.id)));
        self.limits.only.is_empty() || is_within()
    }
}
