//! Giving a complete copy its final names.
//!
//! The index notes the identities of the entries first. So a process that takes over after a crash
//! can tell which names are final already, and goes on. An older version that the store placed
//! changes places with the new one in one step; then it is removed from the private directory,
//! entry by entry.

use crate::catalogue::Catalogue;
use crate::complete::{OWNER_RIGHTS, settle_top};
use crate::error::{Error, Result};
use crate::node::{CopyPlace, NameStanding, NodeFiles, range_named, range_of_top};
use crate::place::look_at;
use crate::purge::log_removal;
use crate::remove::{PurgeReport, remove_placed};
use crate::staging::{failed_at, names_in, set_mode};
use driftless_model::{EntryName, Fault, Kind, errno};
use driftless_state::holdings::{CopyRow, CopyState, TopRow, UnkeptCounts};
use driftless_tree::{DirMut, DirMutRef, Known};
use std::ffi::{CStr, CString};

/// A complete copy in its private directory.
pub(crate) struct Publication<'a> {
    pub(crate) files: &'a NodeFiles,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) copy: u64,
    pub(crate) place: CopyPlace,
    pub(crate) staging: DirMutRef,
    /// The name of that directory.
    pub(crate) private_name: CString,
}

impl Publication<'_> {
    /// Notes the identities of the entries at the top, and the metadata that the node could not keep.
    pub(crate) fn note(&self, unkept: UnkeptCounts) -> Result<()> {
        let mut tops = Vec::new();
        for name in self.catalogue.tops()? {
            let c_name = CString::from(&name);
            let looked = look_at(&*self.staging, &c_name);
            let (_, id) = looked.map_err(failed_at(&self.place.path, &c_name))?;
            tops.push(TopRow {
                name: name.as_bytes().to_vec(),
                id,
            });
        }
        Ok(self.files.index.lock().complete(self.copy, &tops, unkept)?)
    }

    /// Gives the copy its final names, and removes older versions.
    pub(crate) fn go(&self) -> Result<PurgeReport> {
        self.clear(&self.place()?)
    }

    /// Gives the copy its final names. Returns the copies that were there. Older versions stay in the
    /// private directory.
    pub(crate) fn place(&self) -> Result<Vec<CopyRow>> {
        let rows = self.files.rows_at(&self.place)?;
        for (at, name) in self.catalogue.tops()?.iter().enumerate() {
            self.publish(&rows, at, name)?;
        }
        let durable = self.place.dir.sync_all();
        durable.map_err(failed_at(&self.place.path, c"."))?;
        self.files.set_state(self.copy, CopyState::Held)?;
        self.take_jobs(&rows)?;
        Ok(rows)
    }

    /// Takes the jobs of a damaged copy of the same set, which this one replaces.
    fn take_jobs(&self, rows: &[CopyRow]) -> Result<()> {
        let hash = Some(self.catalogue.hash());
        let is_same = |row: &&CopyRow| row.id != self.copy && NodeFiles::hash_of(row) == hash;
        for row in rows.iter().filter(is_same) {
            self.files.index.lock().move_jobs(row.id, self.copy)?;
        }
        Ok(())
    }

    fn publish(&self, rows: &[CopyRow], at: usize, name: &EntryName) -> Result<()> {
        let c_name = CString::from(name);
        let failed = failed_at(&self.place.path, &c_name);
        let dir = &self.place.dir;
        match self.files.standing(rows, &**dir, name.as_bytes())? {
            NameStanding::Placed(copy) if copy == self.copy => {}
            NameStanding::Free => match dir.take_new(&*self.staging, &c_name, &c_name) {
                Err(fault) if fault.errno == errno::EEXIST => return Err(self.occupied(name)),
                done => done.map_err(&failed)?,
            },
            NameStanding::Placed(copy) => self.replace(rows, copy, &c_name)?,
            NameStanding::Foreign => return Err(self.occupied(name)),
        }
        let entry = self
            .catalogue
            .entry(range_of_top(self.catalogue, at).start)?;
        settle_top(&entry, &**dir, &c_name).map_err(&failed)
    }

    /// Exchanges an older version with the new one.
    fn replace(&self, rows: &[CopyRow], old: u64, name: &CStr) -> Result<()> {
        let failed = failed_at(&self.place.path, name);
        let dir = &self.place.dir;
        make_movable(&**dir, name).map_err(&failed)?;
        let done = match dir.exchange(&*self.staging, name, name) {
            Err(fault) if fault.errno == errno::EOPNOTSUPP => self.replace_in_two_steps(name),
            done => done,
        };
        done.map_err(&failed)?;
        let now = self.files.standing(rows, &*self.staging, name.to_bytes())?;
        if now == NameStanding::Placed(old) {
            return Ok(());
        }
        // Another entry took the place of the old version meanwhile.
        let back = dir.exchange(&*self.staging, name, name);
        back.map_err(&failed)?;
        Err(Error::Occupied {
            path: [&self.place.path, &b"/"[..], name.to_bytes()].concat(),
        })
    }

    /// Replaces an older version where the file system cannot exchange names. Nothing stands at the
    /// name for a moment.
    fn replace_in_two_steps(&self, name: &CStr) -> std::result::Result<(), Fault> {
        let (dir, aside) = (&self.place.dir, driftless_tree::temp_name());
        self.staging.take_new(&**dir, name, &aside)?;
        match dir.take_new(&*self.staging, name, name) {
            Ok(()) => self.staging.rename(&aside, name),
            Err(fault) => {
                let _as_it_was = dir.take_new(&*self.staging, &aside, name);
                Err(fault)
            }
        }
    }

    /// Removes older versions from the private directory, and then the directory.
    pub(crate) fn clear(&self, rows: &[CopyRow]) -> Result<PurgeReport> {
        let mut report = PurgeReport::default();
        for name in self.staged_names()? {
            report.add(self.clear_name(rows, &name)?);
        }
        self.drop_stale(rows)?;
        let _it_holds_what_a_user_added = self.place.dir.remove_dir(&self.private_name);
        Ok(report)
    }

    /// Returns the names in the private directory.
    pub(crate) fn staged_names(&self) -> Result<Vec<CString>> {
        names_in(&*self.staging).map_err(failed_at(&self.place.path, c"."))
    }

    /// Takes the final names from other copies that had them: what stood there is gone.
    fn drop_stale(&self, rows: &[CopyRow]) -> Result<()> {
        let names = self.catalogue.tops()?;
        for row in rows.iter().filter(|row| row.id != self.copy) {
            let is_ours = |top: &&TopRow| names.iter().any(|name| name.as_bytes() == top.name);
            for top in row.tops.iter().filter(is_ours) {
                self.files.index.lock().take_top(row.id, &top.name)?;
            }
            if self.files.index.lock().find(row.id)?.is_none() {
                self.files.forget_files(row)?;
                log_removal(row);
            }
        }
        Ok(())
    }

    /// Removes an older version, under whichever name it stands in the private directory.
    fn clear_name(&self, rows: &[CopyRow], name: &CStr) -> Result<PurgeReport> {
        let failed = failed_at(&self.place.path, name);
        let (_, id) = look_at(&*self.staging, name).map_err(&failed)?;
        let others = rows.iter().filter(|row| row.id != self.copy);
        let mut tops = others.flat_map(|row| row.tops.iter().map(move |top| (row, top)));
        let Some((row, top)) = tops.find(|(_, top)| top.id == id) else {
            return Ok(PurgeReport::default());
        };
        let own = CString::new(top.name.clone()).unwrap_or_default();
        if *own != *name {
            self.staging.rename(name, &own).map_err(&failed)?;
        }
        self.files
            .remove_top(row, top, &self.staging, &self.place.path)
    }

    fn occupied(&self, name: &EntryName) -> Error {
        Error::Occupied {
            path: [&self.place.path, &b"/"[..], name.as_bytes()].concat(),
        }
    }
}

/// Lets an ordinary user move a directory of his own to another directory, which takes the right to
/// write to it (rename(2)).
fn make_movable(dir: &dyn DirMut, name: &CStr) -> driftless_tree::Done {
    let meta = dir.look(name)?;
    let is_movable = meta.mode & OWNER_RIGHTS == OWNER_RIGHTS;
    if dir.user().0 == 0 || meta.kind != Kind::Dir || is_movable {
        return Ok(());
    }
    set_mode(dir, name, &Known::of(&meta), meta.mode | OWNER_RIGHTS)
}

impl NodeFiles {
    /// Removes one entry at the top of a copy, and all below it that the store placed.
    pub(crate) fn remove_top(
        &self,
        row: &CopyRow,
        top: &TopRow,
        holder: &DirMutRef,
        place: &[u8],
    ) -> Result<PurgeReport> {
        let mut report = PurgeReport::default();
        if let Some(catalogue) = self.catalogue_of(row)?
            && let Some(range) = range_named(&catalogue, &top.name)?
        {
            let mut walk = self.walk(&catalogue, row.id, holder, place)?;
            report = remove_placed(&mut walk, range)?;
        }
        self.index.lock().take_top(row.id, &top.name)?;
        if self.index.lock().find(row.id)?.is_none() {
            self.forget_files(row)?;
            report.copies = 1;
            report.bytes = row.bytes;
        }
        Ok(report)
    }
}
