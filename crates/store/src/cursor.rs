//! A way through the directories of a set, from entry to entry.
//!
//! A cursor keeps the directories from the top down to the last one. Entries in the order of the
//! catalogue cost one call for each directory, however deep the tree is. Handles are under the bound
//! of their pool, so the depth of a tree is no bound either.

use crate::catalogue::Catalogue;
use crate::error::{Error, Result};
use driftless_model::{Act, EntryName, Fault, Side, errno};
use driftless_tree::{DirMutRef, DirRef, Done};
use std::ffi::{CStr, CString};

/// An open directory, read or changed.
pub(crate) trait DirHandle: Clone {
    /// Opens a subdirectory.
    fn enter(&self, name: &CStr) -> Done<Self>;
    /// Ends the work in it and below it: its parent is used next.
    fn leave(&self);
}

impl DirHandle for DirRef {
    fn enter(&self, name: &CStr) -> Done<Self> {
        (**self).enter(name)
    }

    fn leave(&self) {
        (**self).leave();
    }
}

impl DirHandle for DirMutRef {
    fn enter(&self, name: &CStr) -> Done<Self> {
        (**self).enter_mut(name)
    }

    fn leave(&self) {
        (**self).leave();
    }
}

/// The place of an entry at the top of a set.
#[derive(Clone)]
pub enum TopPlace<D> {
    /// A name in a directory.
    Within(D, CString),
    /// An open directory, at whichever name.
    Whole(D),
}

/// A way through the directories of a set.
pub(crate) struct DirCursor<D> {
    /// For each entry at the top, in the order of the catalogue.
    tops: Vec<TopPlace<D>>,
    /// Directories down to the last one, with their entries.
    open: Vec<(u32, D)>,
    /// The path of the place, for messages; empty for a source.
    place: Vec<u8>,
}

impl<D: DirHandle> DirCursor<D> {
    /// Starts at places that are open.
    pub(crate) fn new(tops: Vec<TopPlace<D>>, place: &[u8]) -> DirCursor<D> {
        DirCursor {
            tops,
            open: Vec::new(),
            place: place.to_vec(),
        }
    }

    /// Starts in the directory that holds a copy.
    pub(crate) fn within(catalogue: &Catalogue, dir: &D, place: &[u8]) -> Result<DirCursor<D>> {
        let tops = catalogue.tops()?;
        let top = |name: &EntryName| TopPlace::Within(dir.clone(), CString::from(name));
        Ok(DirCursor::new(tops.iter().map(top).collect(), place))
    }

    /// Returns the directory that holds an entry, and the name there.
    pub(crate) fn holder(&mut self, catalogue: &Catalogue, number: u32) -> Result<(D, CString)> {
        let entry = catalogue.entry(number)?;
        match entry.parent {
            Some(parent) => {
                let dir = self.dir(catalogue, parent)?;
                Ok((dir, CString::from(&entry.name)))
            }
            None => match self.top(catalogue, number)? {
                TopPlace::Within(dir, name) => Ok((dir, name)),
                TopPlace::Whole(_) => Err(self.failed(catalogue, number, no_file())),
            },
        }
    }

    /// Returns an open directory of the set.
    pub(crate) fn dir(&mut self, catalogue: &Catalogue, number: u32) -> Result<D> {
        let mut chain = Vec::new();
        let mut next = Some(number);
        while let Some(entry) = next {
            if let Ok(at) = self.open.binary_search_by_key(&entry, |(open, _)| *open) {
                self.leave_to(at.saturating_add(1));
                break;
            }
            chain.push(entry);
            next = catalogue.entry(entry)?.parent;
            if next.is_none() {
                self.leave_to(0);
            }
        }
        for entry in chain.into_iter().rev() {
            let dir = self.enter(catalogue, entry)?;
            self.open.push((entry, dir));
        }
        match self.open.last() {
            Some((_, dir)) => Ok(dir.clone()),
            None => Err(self.failed(catalogue, number, no_file())),
        }
    }

    /// Leaves the last directories, from the bottom up: each opens its parent again if its handle was
    /// taken back, which costs one call then.
    fn leave_to(&mut self, levels: usize) {
        while self.open.len() > levels {
            if let Some((_, dir)) = self.open.pop() {
                dir.leave();
            }
        }
    }

    fn enter(&self, catalogue: &Catalogue, number: u32) -> Result<D> {
        let entered = match self.open.last() {
            Some((_, above)) => {
                let name = CString::from(&catalogue.entry(number)?.name);
                above.enter(&name)
            }
            None => match self.top(catalogue, number)? {
                TopPlace::Within(dir, name) => dir.enter(&name),
                TopPlace::Whole(dir) => Ok(dir),
            },
        };
        entered.map_err(|fault| self.failed(catalogue, number, fault))
    }

    fn top(&self, catalogue: &Catalogue, number: u32) -> Result<TopPlace<D>> {
        let at = catalogue.layout().tops.binary_search(&number).ok();
        let top = at.and_then(|at| self.tops.get(at));
        top.cloned()
            .ok_or_else(|| self.failed(catalogue, number, no_file()))
    }

    /// Names the entry whose call failed.
    pub(crate) fn failed(&self, catalogue: &Catalogue, number: u32, fault: Fault) -> Error {
        let path = self.path(catalogue, number);
        Error::Entry { path, fault }
    }

    /// Returns the path of an entry for messages.
    pub(crate) fn path(&self, catalogue: &Catalogue, number: u32) -> Vec<u8> {
        let below = catalogue.path(number);
        match self.place.is_empty() {
            true => below,
            false => [&self.place, &b"/"[..], &below].concat(),
        }
    }
}

/// The fault of an entry that the set does not have.
fn no_file() -> Fault {
    Fault {
        side: Side::Replica,
        act: Act::Find,
        errno: errno::ENOENT,
    }
}
