//! What stands on the replica of open trees, entry by entry: for whoever tells others of it.

use crate::sync::open::Trees;
use driftless_model::{Kind, Meta, RelPath};
use driftless_tree::{Dir, DirRef, Done, descend};
use std::ffi::CString;
use std::sync::Arc;

/// An entry as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stood {
    /// Its metadata.
    pub meta: Meta,
    /// Where it leads, of a symbolic link.
    pub target: Option<CString>,
}

/// The replica, to be looked at for a moment. Where replies take their time it keeps the directory
/// that it was in last, since what is asked one after another often stands in the same.
pub struct Onlooker {
    root: DirRef,
    last: Option<(RelPath, DirRef)>,
}

impl Trees {
    /// Who looks at the replica; `None` while there is none.
    pub fn onlooker(&self) -> Option<Onlooker> {
        let root = self.ground().roots.1.clone()?;
        Some(Onlooker {
            root: root as Arc<dyn Dir>,
            last: None,
        })
    }
}

impl Onlooker {
    /// What stands at a path now; `None` if nothing does.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn look(&mut self, path: &RelPath) -> Done<Option<Stood>> {
        match self.find(path) {
            Err(fault) if fault.is_absent() => Ok(None),
            found => found.map(Some),
        }
    }

    fn find(&mut self, path: &RelPath) -> Done<Stood> {
        let Some((dir, name)) = path.split_last() else {
            let meta = self.root.meta_again()?;
            return Ok(Stood { meta, target: None });
        };
        let name = CString::new(name).expect("names hold no NUL");
        let dir = self.enter(&dir)?;
        let meta = dir.look(&name)?;
        let target = match meta.kind {
            Kind::Symlink => Some(dir.read_link(&name)?),
            _ => None,
        };
        Ok(Stood { meta, target })
    }

    fn enter(&mut self, path: &RelPath) -> Done<DirRef> {
        match &self.last {
            Some((last, dir)) if last == path => Ok(dir.clone()),
            _ => {
                let dir = descend(&self.root, path)?;
                let is_far = self.root.takes_submissions();
                self.last = is_far.then(|| (path.clone(), dir.clone()));
                Ok(dir)
            }
        }
    }
}
