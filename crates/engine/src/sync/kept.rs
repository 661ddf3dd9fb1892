//! What only the replica has and keeps, counted while its directories are listed anyway.
//!
//! Names of the source are at hand where one window holds them. Of a larger directory their hashes
//! are kept, within a bound for the whole run; the source is asked about names that are not among
//! them. Nothing is ever removed because of a hash.

use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use driftless_model::{Kind, Meta, RelPath, Stamp};
use driftless_tree::{DirMutRef, DirRef, Done, NameHashes, Names, descend, is_temp_name, windows};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Run<'_> {
    /// Whether a name that a listing of the source does not show is one that the source lacks.
    pub fn vouches(&self, visit: &Visit) -> bool {
        visit.selection.is_listed() && !visit.is_unlisted() && !self.is_stub(visit)
    }

    /// Keeps in mind a part of the names of a directory whose replica will be listed.
    pub fn remember_names(&self, visit: &Visit, names: &Names) {
        let due = if visit.pass() == 0 {
            !visit.is_made()
        } else {
            self.options.policy.delete
        };
        if !due || visit.borrowed || visit.replica.is_none() {
            return;
        }
        if self.hashes_kept.take(names.len()) {
            let mut met = visit.met.lock();
            let before = met.len();
            met.add(names);
            // Equal names are kept once, and some file systems list them twice.
            let added = met.len() - before;
            self.hashes_kept.give(names.len() - added);
        }
    }

    /// Takes the hashes of a directory's names that the run remembered, and remembers them no
    /// longer.
    pub fn recall_names(&self, visit: &Visit) -> NameHashes {
        let met = std::mem::take(&mut *visit.met.lock());
        self.hashes_kept.give(met.len());
        met
    }
}

impl Worker<'_> {
    /// Whether an entry of the replica is one that the source lacks, and that this run leaves
    /// there. `known` are all names of the source, with which the index was filled; without them
    /// `met` has the hashes of those that the run remembers.
    pub fn is_kept(
        &self,
        (visit, replica): (&Arc<Visit>, &DirMutRef),
        (name, kind): (&CStr, Option<Kind>),
        (known, met): (Option<&Names>, &NameHashes),
    ) -> bool {
        if self.run.options.policy.delete || !self.run.vouches(visit) || is_temp_name(name) {
            return false;
        }
        let is_absent = match known {
            Some(known) => !self.indexes(known, name),
            None => {
                !met.contains(name)
                    && visit
                        .source
                        .look(name)
                        .is_err_and(|fault| fault.is_missing())
            }
        };
        let is_dir =
            || kind.or_else(|| replica.look(name).ok().map(|meta| meta.kind)) == Some(Kind::Dir);
        is_absent
            && (!self.run.options.policy.filter.has_rules()
                || self.run.takes(visit, name, is_dir()))
    }

    /// Looks whether an entry that only the replica has, so that it is compared with nothing, was
    /// changed since an earlier run that was not made durable. One such entry says enough.
    pub fn note_doubt_of_kept(&self, (visit, replica): (&Visit, &DirMutRef), kept: &[CString]) {
        let tally = &self.run.tally.kept_in_doubt;
        let Some(since) = self
            .run
            .rules_in(visit)
            .suspect_since
            .filter(|_| tally.load(Relaxed) == 0)
        else {
            return;
        };
        // What cannot be looked at is in doubt.
        if kept.iter().any(|name| {
            self.has_since(&(replica.clone() as DirRef), name, since)
                .unwrap_or(true)
        }) {
            add(tally, 1);
        }
    }

    /// Whether `name`, or a file below it, was changed since then.
    fn has_since(&self, dir: &DirRef, name: &CStr, since: Stamp) -> Done<bool> {
        let is_since = |meta: &Meta| meta.kind == Kind::File && meta.ctime >= since;
        let found = dir.look(name)?;
        if found.kind != Kind::Dir {
            return Ok(is_since(&found));
        }
        let (top, mut paths) = (dir.enter(name)?, vec![RelPath::root()]);
        while let Some(path) = paths.pop() {
            let dir = descend(&top, &path)?;
            for names in windows(&dir)? {
                let names = names?;
                for name in (0..names.len()).map(|index| names.get(index).0) {
                    let meta = dir.look(name)?;
                    if is_since(&meta) || self.run.stopped() {
                        return Ok(true);
                    }
                    if meta.kind == Kind::Dir {
                        paths.push(path.join(name.to_bytes()));
                    }
                }
            }
        }
        Ok(false)
    }
}
