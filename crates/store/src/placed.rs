//! The tree of a copy against its catalogue: which entries are still those that the store placed,
//! and which are not.
//!
//! Entries of a directory stand in the catalogue in the order of their names. So one pass over the
//! catalogue, with the sorted names of the directories that are open, finds missing entries and
//! those that a user added.

use crate::catalogue::{Catalogue, EntryGuard};
use crate::error::Result;
use crate::place::{IdFile, id_of, look_at};
use crate::staging::enter_own;
use driftless_model::{Fault, Kind, Meta};
use driftless_reconcile::is_kept;
use driftless_state::holdings::InodeIdentity;
use driftless_tree::{DirMutRef, Names};
use std::ffi::{CStr, CString};
use std::ops::Range;

/// The outcome of a look at an entry.
pub(crate) enum LookOutcome<'a> {
    /// The entry is the one that was placed.
    Placed(&'a Meta),
    /// The name is free.
    Missing,
    /// Another entry stands at the name.
    Other,
    /// The entry that was placed stands at the name, and a user gave it another owner.
    OtherOwner,
    /// A user added an entry.
    Extra(&'a CStr),
    /// The directory was visited before, with everything below it.
    Left,
    /// The call failed.
    Failed(Fault),
}

/// An entry of the catalogue, or the directory of an extra entry, and what a look showed.
pub(crate) struct LookedAt<'a> {
    pub(crate) number: u32,
    /// The directory that holds the entry, and its name there.
    pub(crate) holder: &'a DirMutRef,
    pub(crate) name: &'a CStr,
    pub(crate) entry: &'a EntryGuard,
    pub(crate) outcome: LookOutcome<'a>,
}

/// A directory that is open, or whose place has another entry or none.
struct PlacedLevel {
    number: u32,
    name: CString,
    dir: Option<OpenPlaced>,
}

struct OpenPlaced {
    dir: DirMutRef,
    names: Names,
    next: usize,
}

/// A pass over the tree of a copy.
pub(crate) struct PlacedWalk<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) ids: Option<IdFile>,
    /// The directory that holds the entries at the top.
    pub(crate) holder: DirMutRef,
    /// The path of that directory, for messages.
    pub(crate) place: Vec<u8>,
    /// Whether names of entries that the catalogue lacks are looked for.
    pub(crate) finds_extra: bool,
    /// Whether entries are removed: directories of this user get the rights that it takes.
    pub(crate) is_removing: bool,
}

impl PlacedWalk<'_> {
    /// Visits the entries of a range, which is that of one entry at the top and all below.
    pub(crate) fn visit(
        &mut self,
        range: Range<u32>,
        see: &mut dyn FnMut(LookedAt<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut open: Vec<PlacedLevel> = Vec::new();
        for number in range {
            let entry = self.catalogue.entry(number)?;
            while open
                .last()
                .is_some_and(|level| Some(level.number) != entry.parent)
            {
                self.end_last(&mut open, see)?;
            }
            self.step(&mut open, number, &entry, see)?;
        }
        while !open.is_empty() {
            self.end_last(&mut open, see)?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        open: &mut Vec<PlacedLevel>,
        number: u32,
        entry: &EntryGuard,
        see: &mut dyn FnMut(LookedAt<'_>) -> Result<()>,
    ) -> Result<()> {
        let name = CString::from(&entry.name);
        let holder = match open.last_mut() {
            None => Some(self.holder.clone()),
            Some(level) => {
                if let Some(dir) = &mut level.dir {
                    let above = self.catalogue.entry(level.number)?;
                    extras_before(level.number, &above, dir, Some(&name), see)?;
                }
                level.dir.as_ref().map(|open| open.dir.clone())
            }
        };
        let is_dir = entry.body.kind() == Some(Kind::Dir);
        let Some(holder) = holder else {
            // Its directory is missing, and so is the entry.
            if is_dir {
                let dir = None;
                open.push(PlacedLevel { number, name, dir });
            }
            return Ok(());
        };
        let (found, below) = self.look(number, entry, &holder, &name)?;
        let outcome = match &found {
            FoundEntry::Placed(meta) => LookOutcome::Placed(meta),
            FoundEntry::Missing => LookOutcome::Missing,
            FoundEntry::Other => LookOutcome::Other,
            FoundEntry::OtherOwner => LookOutcome::OtherOwner,
            FoundEntry::Failed(fault) => LookOutcome::Failed(*fault),
        };
        see(LookedAt {
            number,
            holder: &holder,
            name: &name,
            entry,
            outcome,
        })?;
        if is_dir {
            let dir = below;
            open.push(PlacedLevel { number, name, dir });
        }
        Ok(())
    }

    /// Looks at an entry, and opens it if it is a directory that the store placed.
    fn look(
        &mut self,
        number: u32,
        entry: &EntryGuard,
        holder: &DirMutRef,
        name: &CStr,
    ) -> Result<(FoundEntry, Option<OpenPlaced>)> {
        let (meta, id) = match look_at(&**holder, name) {
            Ok(found) => found,
            Err(fault) if fault.is_missing() => return Ok((FoundEntry::Missing, None)),
            Err(fault) => return Ok((FoundEntry::Failed(fault), None)),
        };
        let kind = entry.body.kind();
        let placed = match &mut self.ids {
            Some(ids) => ids.get(number)?,
            None => Some(id),
        };
        let is_same = placed.is_some_and(|placed| is_placed((placed, id), &meta, entry));
        if !is_same || kind.is_some_and(|kind| kind != meta.kind) {
            return Ok((FoundEntry::Other, None));
        }
        let facts = entry.body.facts();
        let is_own = || meta.uid == holder.user().0;
        if facts.is_some_and(|facts| meta.uid != facts.uid && !is_own()) {
            return Ok((FoundEntry::OtherOwner, None));
        }
        if kind != Some(Kind::Dir) {
            return Ok((FoundEntry::Placed(meta), None));
        }
        match self.open(holder, name, id) {
            Ok(Some(open)) => Ok((FoundEntry::Placed(meta), Some(open))),
            Ok(None) => Ok((FoundEntry::Other, None)),
            Err(fault) => Ok((FoundEntry::Failed(fault), None)),
        }
    }

    fn open(
        &self,
        holder: &DirMutRef,
        name: &CStr,
        id: InodeIdentity,
    ) -> driftless_tree::Done<Option<OpenPlaced>> {
        let dir = match self.is_removing {
            true => enter_own(&**holder, name)?,
            false => holder.enter_mut(name)?,
        };
        // Something is mounted there, or another directory took the place.
        if id_of(&*dir) != id {
            return Ok(None);
        }
        if self.is_removing {
            dir.make_writable();
        }
        let mut names = Names::default();
        if self.finds_extra {
            let mut listing = dir.list()?;
            while listing.fill(&mut names, usize::MAX)? {}
            names.sort();
        }
        let next = 0;
        Ok(Some(OpenPlaced { dir, names, next }))
    }

    fn end_last(
        &self,
        open: &mut Vec<PlacedLevel>,
        see: &mut dyn FnMut(LookedAt<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(mut level) = open.pop() else {
            return Ok(());
        };
        let Some(dir) = &mut level.dir else {
            return Ok(());
        };
        let entry = self.catalogue.entry(level.number)?;
        extras_before(level.number, &entry, dir, None, see)?;
        dir.dir.leave();
        let holder = match open.last() {
            None => Some(&self.holder),
            Some(above) => above.dir.as_ref().map(|open| &open.dir),
        };
        if let Some(holder) = holder {
            see(LookedAt {
                number: level.number,
                holder,
                name: &level.name,
                entry: &entry,
                outcome: LookOutcome::Left,
            })?;
        }
        Ok(())
    }

    /// Returns the path of an entry for messages.
    pub(crate) fn path(&self, number: u32) -> Vec<u8> {
        [&self.place, &b"/"[..], &self.catalogue.path(number)].concat()
    }
}

enum FoundEntry {
    Placed(Meta),
    Missing,
    Other,
    OtherOwner,
    Failed(Fault),
}

/// Returns whether an entry is the one that was placed: its inode and its time of birth. Without a
/// time of birth, its modification time counts, as far as the file system keeps it.
fn is_placed(ids: (InodeIdentity, InodeIdentity), meta: &Meta, entry: &EntryGuard) -> bool {
    let (placed, now) = ids;
    let facts = entry.body.facts();
    let is_dir = entry.body.kind() == Some(Kind::Dir);
    let is_time =
        placed.birth.is_some() || is_dir || facts.is_none_or(|facts| is_kept(facts.mtime, meta));
    placed == now && is_time
}

/// Reports the names of a directory that come before `name` in its order, or all that are left.
fn extras_before(
    number: u32,
    entry: &EntryGuard,
    open: &mut OpenPlaced,
    name: Option<&CStr>,
    see: &mut dyn FnMut(LookedAt<'_>) -> Result<()>,
) -> Result<()> {
    while open.next < open.names.len() {
        let found = CString::from(open.names.get(open.next).0);
        match name.map(|name| found.as_bytes().cmp(name.to_bytes())) {
            Some(std::cmp::Ordering::Greater) => break,
            Some(std::cmp::Ordering::Equal) => {
                open.next = open.next.saturating_add(1);
                break;
            }
            _ => {}
        }
        open.next = open.next.saturating_add(1);
        see(LookedAt {
            number,
            holder: &open.dir,
            name: &found,
            entry,
            outcome: LookOutcome::Extra(&found),
        })?;
    }
    Ok(())
}
