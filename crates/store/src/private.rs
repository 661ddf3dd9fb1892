//! The private directory of a copy: made under a random name, and known by its inode.
//!
//! Another user may own the directory of `--to`. That user can rename entries there, and put a
//! directory with entries of his own under the name of the private one. So the index notes the
//! identity of the private directory, and no other directory is taken for it or removed.

use crate::error::Result;
use crate::node::{CopyPlace, NodeFiles};
use crate::place::{id_of, look_at, private_name};
use crate::staging::{close_to_others, enter_own, failed_at, names_in};
use driftless_model::{Act, Fault, Side, errno};
use driftless_state::holdings::CopyRow;
use driftless_tree::{DirMutRef, Spared, random_id};
use std::ffi::CString;

/// Names that are tried at most.
const NAMES_MAX: usize = 16;

/// An open private directory.
pub(crate) struct PrivateDir {
    pub(crate) dir: DirMutRef,
    pub(crate) name: CString,
    pub(crate) is_new: bool,
}

impl NodeFiles {
    /// Opens the private directory of a copy; `None` if there is none.
    pub(crate) fn find_private(
        &self,
        row: &CopyRow,
        place: &CopyPlace,
    ) -> Result<Option<PrivateDir>> {
        let name = private_name(row.token, row.id);
        let failed = failed_at(&place.path, &name);
        match look_at(&*place.dir, &name) {
            Ok((_, id)) if row.private_id == Some(id) => {}
            Ok(_) => return Ok(None),
            Err(fault) if fault.is_missing() => return Ok(None),
            Err(fault) => return Err(failed(fault)),
        }
        let dir = enter_own(&*place.dir, &name).map_err(failed)?;
        let is_own = row.private_id == Some(id_of(&*dir));
        Ok(is_own.then_some(PrivateDir {
            dir,
            name,
            is_new: false,
        }))
    }

    /// Opens the private directory of a copy, or makes it.
    pub(crate) fn open_private(&self, row: &CopyRow, place: &CopyPlace) -> Result<PrivateDir> {
        let mut row = row.clone();
        for _ in 0..NAMES_MAX {
            if let Some(found) = self.find_private(&row, place)? {
                return Ok(found);
            }
            if let Some(made) = self.make_private(&row, place)? {
                return Ok(made);
            }
            let token = random_id() as u64;
            self.index.lock().renew_private(row.id, token)?;
            row = self.row(row.id)?;
        }
        let name = private_name(row.token, row.id);
        Err(failed_at(&place.path, &name)(Fault {
            side: Side::Replica,
            act: Act::HoldUnfinished,
            errno: errno::EEXIST,
        }))
    }

    /// Makes the private directory of a copy. Returns `None` if its name is taken.
    fn make_private(&self, row: &CopyRow, place: &CopyPlace) -> Result<Option<PrivateDir>> {
        let name = private_name(row.token, row.id);
        let failed = failed_at(&place.path, &name);
        let dir = match place.dir.make_dir(&name) {
            Ok(dir) => dir,
            Err(fault) if fault.errno == errno::EEXIST => {
                // A process that was killed before it noted the identity has left it empty.
                if row.private_id.is_none() {
                    let _another_name_is_tried = place.dir.remove_dir(&name);
                }
                return Ok(None);
            }
            Err(fault) => return Err(failed(fault)),
        };
        close_to_others(&*dir).map_err(&failed)?;
        let is_own = dir.first_meta().uid == dir.user().0;
        // Another user exchanged it before it was closed.
        if !is_own || !names_in(&*dir).map_err(&failed)?.is_empty() {
            return Ok(None);
        }
        self.index.lock().note_private(row.id, id_of(&*dir))?;
        Ok(Some(PrivateDir {
            dir,
            name,
            is_new: true,
        }))
    }

    /// Removes the private directory of a copy and all in it. Returns the number of entries.
    pub(crate) fn remove_private(&self, row: &CopyRow, place: &CopyPlace) -> Result<u64> {
        let Some(private) = self.find_private(row, place)? else {
            if row.private_id.is_none() {
                // A process that was killed before it noted the identity has left it empty.
                let _it_may_be_missing = place.dir.remove_dir(&private_name(row.token, row.id));
            }
            return Ok(0);
        };
        let failed = failed_at(&place.path, &private.name);
        let mut entries = 0u64;
        for name in names_in(&*private.dir).map_err(&failed)? {
            let removed = private.dir.remove_tree(&name, Spared::NOTHING);
            entries = entries.saturating_add(removed.entries);
            removed.done().map_err(&failed)?;
        }
        match place.dir.remove_dir(&private.name) {
            Ok(()) => Ok(entries.saturating_add(1)),
            // Another user renamed it.
            Err(fault) if fault.is_missing() || fault.errno == errno::ENOTEMPTY => Ok(entries),
            Err(fault) => Err(failed(fault)),
        }
    }
}
