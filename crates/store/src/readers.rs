//! Directories of cached copies that certain users alone may open.
//!
//! The directory of a set in the cache has mode 0711, or it is closed: mode 0700, and an ACL with an
//! entry for each user whose job needs a copy. The entries of the copy itself may be readable for
//! everyone, so nothing but this directory protects them. The index knows the users; the ACL follows
//! from the index.

use crate::error::{Error, Result, own_file};
use crate::format::SetHash;
use crate::node::{CopyPlace, NodeFiles};
use crate::parts::file_name;
use crate::staging::{close_to_others, enter_or_make, failed_at, open_passage};
use driftless_model::{ACL_ACCESS, Fault, Keep, Meta, Xattrs, acl_of_readers, errno};
use driftless_state::holdings::CopyRow;
use driftless_tree::{Attributes, DirMut, Done, Known};
use std::collections::BTreeSet;

/// The right of users without a name in the ACL to pass through a directory.
const OTHERS_PASS: u32 = 0o001;
/// The mode that a directory with readers shows: the rights of the group are the mask of the ACL.
const READERS_DIR: u32 = 0o750;

impl NodeFiles {
    /// Opens the directory of a set in the cache, which is made if it is missing. With a reader, a new
    /// directory is closed to all other users, and one that is open already stays so. Without a
    /// reader, the directory is opened to all users.
    ///
    /// # Errors
    /// [`Error::OtherReader`]; [`Error::NoAcls`].
    pub(crate) fn cached_place(&self, hash: SetHash, reader: Option<u32>) -> Result<CopyPlace> {
        let name = file_name(hash);
        let failed = own_file(name.to_bytes());
        let path = self.path.join("sets").join(hash.to_string());
        let path = path.into_os_string().into_encoded_bytes();
        let Some(reader) = reader else {
            return self.alone(|| {
                let dir = enter_or_make(&*self.sets, &name).map_err(&failed)?;
                if !is_open(&dir.meta().map_err(&failed)?) {
                    close(&*dir).map_err(&failed)?;
                }
                let dir = open_passage(&*self.sets, &name).map_err(&failed)?;
                Ok(CopyPlace { dir, path })
            });
        };
        let needs_acl = self.needs_acl(reader)?;
        self.alone(|| {
            let dir = enter_or_make(&*self.sets, &name).map_err(&failed)?;
            let place = CopyPlace { dir, path };
            if is_open(&place.dir.meta().map_err(&failed)?) {
                return Ok(place);
            }
            // A file system without ACLs fails here, before a byte is fetched.
            match needs_acl {
                true => self.set_readers(&place, &self.readers_of(&place)?)?,
                false => close_to_others(&*place.dir).map_err(&failed)?,
            }
            Ok(place)
        })
    }

    /// Returns whether a reader needs an entry in an ACL.
    fn needs_acl(&self, reader: u32) -> Result<bool> {
        let (own, _) = self.dir.user();
        match own {
            _ if own == reader => Ok(false),
            0 => Ok(true),
            _ => Err(Error::OtherReader { reader, own }),
        }
    }

    /// Returns the users of the jobs that use copies at a place, without the own user.
    fn readers_of(&self, place: &CopyPlace) -> Result<BTreeSet<u32>> {
        let (own, _) = self.dir.user();
        let rows = self.rows_at(place)?;
        let readers = rows.iter().flat_map(|row| row.readers.iter().copied());
        Ok(readers.filter(|reader| *reader != own).collect())
    }

    /// Gives the directory of a cached copy the ACL that the index asks for. The caller is
    /// [alone](NodeFiles::alone).
    pub(crate) fn settle_readers(&self, row: &CopyRow) -> Result<()> {
        if !row.is_cached || self.dir.user().0 != 0 {
            return Ok(());
        }
        let Ok(Some(place)) = self.place_of(row) else {
            return Ok(());
        };
        let meta = place.dir.meta().map_err(failed_at(&place.path, c"."))?;
        let readers = self.readers_of(&place)?;
        // Without readers, the mode shows that there is no ACL.
        let is_closed = readers.is_empty() && meta.mode & 0o777 == 0o700;
        if is_open(&meta) || is_closed {
            return Ok(());
        }
        self.set_readers(&place, &readers)
    }

    fn set_readers(&self, place: &CopyPlace, readers: &BTreeSet<u32>) -> Result<()> {
        let readers: Vec<u32> = readers.iter().copied().collect();
        match set_acl(&*place.dir, &readers) {
            Err(fault) if fault.errno == errno::EOPNOTSUPP => Err(Error::NoAcls {
                path: place.path.clone(),
            }),
            done => done.map_err(failed_at(&place.path, c".")),
        }
    }
}

/// Returns whether users without a name in the ACL may pass through a directory.
fn is_open(meta: &Meta) -> bool {
    meta.mode & OTHERS_PASS != 0
}

/// Sets mode and ACL of a directory in one step of the kernel (setxattr(2)), so that no user gets a
/// right that is not meant for this user.
fn set_acl(dir: &dyn DirMut, readers: &[u32]) -> Done {
    let acls = Keep {
        xattrs: false,
        ..Keep::default()
    };
    let acl = Xattrs::from(vec![(ACL_ACCESS.into(), acl_of_readers(readers).into())]);
    let mode = match readers.is_empty() {
        true => 0o700,
        false => READERS_DIR,
    };
    let attributes = Attributes {
        mode: Some(mode),
        xattrs: Some((acl, acls)),
        ..Attributes::default()
    };
    first_of(dir.set_own(&Known::default(), &attributes))
}

/// Takes all rights from other users. The mode comes first: without the ACL, its mask would be the
/// rights of the group.
fn close(dir: &dyn DirMut) -> Done {
    let attributes = Attributes {
        mode: Some(0o700),
        ..Attributes::default()
    };
    first_of(dir.set_own(&Known::default(), &attributes))?;
    close_to_others(dir)
}

fn first_of(faults: Vec<Fault>) -> Done {
    faults.into_iter().next().map_or(Ok(()), Err)
}
