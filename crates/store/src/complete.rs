//! The last steps in the private directory, once all units are there: all entries are made, then
//! they get their metadata.
//!
//! Entries come first, because a directory of an ordinary user may end without rights for its
//! owner. Directories get their metadata last and from the bottom up: what is made in them changes
//! their times.

use crate::catalogue::{Catalogue, EntryGuard};
use crate::cursor::DirCursor;
use crate::error::{Error, Result};
use crate::format::EntryBody;
use crate::place::{IdWriter, id_of, look_at};
use crate::staging::StagedDir;
use crate::writer::open_sized;
use driftless_model::{Act, Fault, Keep, Kind, errno};
use driftless_state::holdings::UnkeptCounts;
use driftless_tree::{Attributes, Dir, DirMut, DirMutRef, Done, Known};
use std::ffi::{CStr, CString};

/// Metadata that could not be kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnkeptMetadata {
    /// Numbers of entries and attributes.
    pub counts: UnkeptCounts,
    /// The first attribute, with the path of its entry below the place.
    pub first: Option<(Vec<u8>, Fault)>,
}

impl UnkeptMetadata {
    fn add(&mut self, path: impl FnOnce() -> Vec<u8>, fault: Fault) {
        self.counts.attributes = self.counts.attributes.saturating_add(1);
        if self.first.is_none() {
            self.first = Some((path(), fault));
        }
    }

    /// Returns the first attribute in words.
    pub fn first_text(&self) -> Option<String> {
        let (path, fault) = self.first.clone()?;
        Some(Error::Entry { path, fault }.to_string())
    }
}

/// The last steps in the private directory of a copy.
pub(crate) struct CopyCompletion<'a> {
    pub(crate) catalogue: &'a Catalogue,
    /// Directories in which entries are made.
    pub(crate) cursor: DirCursor<StagedDir>,
    /// Directories of first names of hard links.
    pub(crate) links: DirCursor<StagedDir>,
    /// The private directory.
    pub(crate) root: DirMutRef,
    /// An earlier process may have made entries.
    pub(crate) is_resumed: bool,
    pub(crate) keep: Keep,
    /// Whether this user may give entries to other owners.
    pub(crate) may_give: bool,
}

impl CopyCompletion<'_> {
    /// Makes all entries that have no content, and notes the identity of each entry.
    pub(crate) fn make_entries(&mut self, ids: &mut IdWriter) -> Result<()> {
        for number in 0..self.catalogue.entries() {
            let entry = self.catalogue.entry(number)?;
            if entry.body.kind() == Some(Kind::Dir) {
                let dir = self.cursor.dir(self.catalogue, number)?;
                ids.add(id_of(&*dir.0))?;
                continue;
            }
            let (dir, name) = self.cursor.holder(self.catalogue, number)?;
            self.make(number, &entry, (&*dir.0, &name))?;
            let (_, id) = look_at(&*dir.0, &name).map_err(|fault| self.failed(number, fault))?;
            ids.add(id)?;
        }
        Ok(())
    }

    fn make(&mut self, number: u32, entry: &EntryGuard, at: (&dyn DirMut, &CStr)) -> Result<()> {
        let (dir, name) = at;
        let failed = |fault| self.cursor.failed(self.catalogue, number, fault);
        match &entry.body {
            EntryBody::HardLink { first } => self.link(number, *first, at),
            EntryBody::Symlink { target, .. } => {
                let target = CString::new(target.clone()).unwrap_or_default();
                let made = dir.make_symlink(name, &target);
                self.unless_there(made, at, |dir| Ok(dir.read_link(name)? == target))
                    .map_err(failed)
            }
            EntryBody::Node { kind, rdev, .. } => {
                let made = dir.make_node(name, *kind, *rdev);
                let is_same = |dir: &dyn Dir| {
                    let meta = dir.look(name)?;
                    Ok(meta.kind == *kind && (!kind.is_device() || meta.rdev == *rdev))
                };
                self.unless_there(made, at, is_same).map_err(failed)
            }
            body if body.data_bytes() == 0 => {
                let file = open_sized(dir, name, body).map_err(failed)?;
                file.close().map_err(failed)
            }
            _ => Ok(()),
        }
    }

    /// Takes an entry of an earlier process for the one that was to be made, if it is the same.
    fn unless_there(
        &self,
        made: Done,
        at: (&dyn DirMut, &CStr),
        is_same: impl FnOnce(&dyn Dir) -> Done<bool>,
    ) -> Done {
        match made {
            Err(fault) if fault.errno == errno::EEXIST && self.is_resumed => {
                let (dir, _) = at;
                match is_same(as_dir(dir))? {
                    true => Ok(()),
                    false => Err(fault),
                }
            }
            made => made,
        }
    }

    fn link(&mut self, number: u32, first: u32, at: (&dyn DirMut, &CStr)) -> Result<()> {
        let (dir, name) = at;
        let (from, from_name) = self.links.holder(self.catalogue, first)?;
        let failed = |fault| self.cursor.failed(self.catalogue, number, fault);
        let id = from.0.look(&from_name).map_err(failed)?.id();
        let linked = dir.link(name, (as_dir(&*from.0), &from_name), id);
        linked.map_err(failed)
    }

    /// Gives all entries their metadata. Directories at the top keep the right of their owner to
    /// move them, until they have their final names.
    pub(crate) fn set_metadata(&mut self) -> Result<UnkeptMetadata> {
        let birth = if self.is_resumed {
            None
        } else {
            self.root.birth()
        };
        let mut unkept = UnkeptMetadata::default();
        let mut open: Vec<(u32, StagedDir)> = Vec::new();
        for number in 0..self.catalogue.entries() {
            let entry = self.catalogue.entry(number)?;
            while open
                .last()
                .is_some_and(|(above, _)| Some(*above) != entry.parent)
            {
                self.end_last(&mut open, birth, &mut unkept)?;
            }
            if entry.body.kind() == Some(Kind::Dir) {
                open.push((number, self.cursor.dir(self.catalogue, number)?));
                continue;
            }
            let (Some(facts), Some(kind)) = (entry.body.facts(), entry.body.kind()) else {
                continue;
            };
            let (dir, name) = self.cursor.holder(self.catalogue, number)?;
            let attributes = facts.attributes(kind, &self.keep);
            let faults = dir.0.set(&name, &self.known(kind, birth), &attributes);
            let faults = faults.map_err(|fault| self.failed(number, fault))?;
            self.note(number, faults, &mut unkept)?;
        }
        while !open.is_empty() {
            self.end_last(&mut open, birth, &mut unkept)?;
        }
        Ok(unkept)
    }

    fn end_last(
        &self,
        open: &mut Vec<(u32, StagedDir)>,
        birth: Option<(u32, u32)>,
        unkept: &mut UnkeptMetadata,
    ) -> Result<()> {
        let Some((number, dir)) = open.pop() else {
            return Ok(());
        };
        let entry = self.catalogue.entry(number)?;
        if let Some(facts) = entry.body.facts() {
            let mut attributes = facts.attributes(Kind::Dir, &self.keep);
            if entry.parent.is_none() && dir.0.user().0 != 0 {
                attributes.mode = attributes.mode.map(|mode| mode | OWNER_RIGHTS);
            }
            let faults = dir.0.set_own(&self.known(Kind::Dir, birth), &attributes);
            self.note(number, faults, unkept)?;
        }
        dir.0.leave();
        Ok(())
    }

    /// Returns what is known of an entry that this process made in the private directory.
    fn known(&self, kind: Kind, birth: Option<(u32, u32)>) -> Known {
        Known {
            owner: birth,
            clean: !self.is_resumed,
            symlink: kind == Kind::Symlink,
            made_now: kind != Kind::Dir,
            private: kind != Kind::Dir,
            ..Known::default()
        }
    }

    fn note(&self, number: u32, faults: Vec<Fault>, unkept: &mut UnkeptMetadata) -> Result<()> {
        for fault in faults {
            match fault.act {
                // A limit of the entry or of the file system (setxattr(2), "ENOSPC").
                Act::SetXattr | Act::SetAcl => unkept.add(|| self.catalogue.path(number), fault),
                Act::SetOwner | Act::SetGroup if fault.is_denied() && !self.may_give => {
                    unkept.counts.owners = unkept.counts.owners.saturating_add(1);
                }
                _ if fault.lacks_room() || fault.errno == errno::EIO => {
                    return Err(self.failed(number, fault));
                }
                _ => unkept.add(|| self.catalogue.path(number), fault),
            }
        }
        Ok(())
    }

    fn failed(&self, number: u32, fault: Fault) -> Error {
        self.cursor.failed(self.catalogue, number, fault)
    }
}

/// The rights that an ordinary user needs to move a directory to another one (rename(2)).
pub(crate) const OWNER_RIGHTS: u32 = 0o700;

fn as_dir(dir: &dyn DirMut) -> &dyn Dir {
    dir
}

/// Gives a directory its final mode and time, after it got its final name.
pub(crate) fn settle_top(entry: &EntryGuard, dir: &dyn DirMut, name: &CStr) -> Done {
    let (Some(Kind::Dir), Some(facts)) = (entry.body.kind(), entry.body.facts()) else {
        return Ok(());
    };
    let meta = dir.look(name)?;
    let wanted = facts.xattrs.mode_of_copy(facts.mode);
    if meta.mode & OWNER_RIGHTS == wanted & OWNER_RIGHTS && meta.mtime == facts.mtime {
        return Ok(());
    }
    let attributes = Attributes {
        mode: Some(meta.mode & !OWNER_RIGHTS | wanted & OWNER_RIGHTS),
        mtime: Some(facts.mtime),
        ..Attributes::default()
    };
    let faults = dir.set(name, &Known::of(&meta), &attributes)?;
    faults.into_iter().next().map_or(Ok(()), Err)
}
