//! What listings tell of a directory's entries: kept until somebody asks for it, so that the first look at an entry costs nothing.

use super::Inner;
use crate::link::{lock, nonsense, on};
use crate::wire::{Listing, Reply, Request, Survey};
use driftless_model::{Entry, Meta, Xattrs};
use driftless_reconcile::fold;
use driftless_tree::{Done, NameStream, Names};
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Entries of a further listing.
const LISTED_ENTRIES: u32 = 4096;

/// What a listing told of an entry and nobody has asked yet. All empty: the entry is there, or was touched; ask.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) meta: Option<Meta>,
    pub(super) xattrs: Option<Xattrs>,
    pub(super) target: Option<CString>,
}

/// What was heard of a directory's entries.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) heard: HashMap<CString, Heard>,
    /// Whatever is not among them is not there, unless its file system takes it for one that is.
    pub(super) complete: bool,
    /// Hashes of what they have in common with names that some file system takes for one with them.
    pub(super) folds: HashSet<u64>,
    pub(super) hashes: RandomState,
    /// The listing that came with the directory.
    pub(super) first: Option<Listing>,
    pub(super) listed: bool,
}

impl Entries {
    pub(super) fn hear(&mut self, name: CString, heard: Heard) {
        self.folds.insert(self.hashes.hash_one(fold(name.to_bytes())));
        self.heard.insert(name, heard);
    }

    /// Whether nothing is there at a name that was never heard of. A listing has one spelling of each name alone.
    pub(super) fn lacks(&self, unheard: &CStr) -> bool {
        self.complete && !self.folds.contains(&self.hashes.hash_one(fold(unheard.to_bytes())))
    }
}

pub(super) struct RemoteNames {
    pub(super) dir: Arc<Inner>,
    pub(super) restart: bool,
}

impl NameStream for RemoteNames {
    fn fill(&mut self, names: &mut Names, max: usize) -> Done<bool> {
        let mut more = true;
        while more && names.len() < max {
            let listing = self.next()?;
            more = self.take(listing, names)?;
        }
        Ok(more)
    }
}

impl RemoteNames {
    fn next(&mut self) -> Done<Listing> {
        let first = lock(&self.dir.entries).first.take();
        if let Some(first) = first {
            return Ok(first);
        }
        let survey = Survey { keep: self.dir.line.keep, files: self.dir.files, entries_max: LISTED_ENTRIES };
        let restart = std::mem::take(&mut self.restart);
        match on(self.dir.side, self.dir.line.link.call(&Request::List { dir: self.dir.at, survey, restart }, Vec::new()))? {
            (Reply::Listing(listing), _) => Ok(listing),
            _ => Err(nonsense().on(self.dir.side)),
        }
    }

    fn take(&self, listing: Listing, names: &mut Names) -> Done<bool> {
        let mut entries = lock(&self.dir.entries);
        // A listing that says nothing and promises more could go on for ever.
        let endless = listing.more && listing.told.is_empty();
        for told in listing.told {
            names.push(&told.name.0, told.kind.or(told.entry.as_ref().map(|entry| entry.meta.kind)));
            let (meta, xattrs) = told.entry.map(|Entry { meta, xattrs }| (meta, xattrs)).unzip();
            entries.hear(told.name.0, Heard { meta, xattrs, target: told.target });
        }
        if let Some(fault) = listing.fault.or(endless.then(nonsense)) {
            return Err(fault.on(self.dir.side));
        }
        entries.complete = !listing.more;
        Ok(listing.more)
    }
}
