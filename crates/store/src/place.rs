//! Names and identities of what the store puts into directories of users.
//!
//! An unfinished copy stands in the directory that will hold it, under a name of a random number and
//! the number of the copy. An inode number can be used again, so an entry is known by its number and
//! its time of birth.

use crate::error::{Result, own_file};
use driftless_model::{Meta, Stamp, has_unfinished_form};
use driftless_state::holdings::InodeIdentity;
use driftless_tree::{Dir, DirMutRef, Done, ReadFile, WriteFile};
use std::ffi::{CStr, CString};

/// The beginning of the names of unfinished copies; 32 hexadecimal digits follow.
const PRIVATE: &[u8] = b".driftless-cast-";
/// Bytes of the identity of one entry in a file.
const ID_BYTES: usize = 20;
/// Identities that are read or written at a time.
const IDS_AT_ONCE: usize = 4096;
/// The nanoseconds of a time of birth that the file system does not state.
const NO_BIRTH: u32 = u32::MAX;

/// Returns whether a name has the form of those of unfinished copies.
pub(crate) fn is_private_name(name: &CStr) -> bool {
    has_unfinished_form(name.to_bytes(), PRIVATE)
}

/// Returns the name of the private directory of a copy. Other users cannot guess the token, so they
/// cannot make the name before.
pub(crate) fn private_name(token: u64, copy: u64) -> CString {
    let name = format!(
        "{}{token:016x}{copy:016x}",
        String::from_utf8_lossy(PRIVATE)
    );
    CString::new(name).unwrap_or_default()
}

/// Looks at an entry, and returns its identity, too.
pub(crate) fn look_at(dir: &dyn Dir, name: &CStr) -> Done<(Meta, InodeIdentity)> {
    let meta = dir.look(name)?;
    let birth = dir.made_at_of(name);
    let inode = meta.ino;
    Ok((meta, InodeIdentity { inode, birth }))
}

/// Returns the identity of an open directory.
pub(crate) fn id_of(dir: &dyn Dir) -> InodeIdentity {
    InodeIdentity {
        inode: dir.first_meta().ino,
        birth: dir.made_at(),
    }
}

fn encode(id: InodeIdentity) -> [u8; ID_BYTES] {
    let birth = id.birth.unwrap_or(Stamp {
        sec: 0,
        nsec: NO_BIRTH,
    });
    let mut bytes = [0; ID_BYTES];
    let (inode, rest) = bytes.split_at_mut(8);
    let (sec, nsec) = rest.split_at_mut(8);
    inode.copy_from_slice(&id.inode.to_le_bytes());
    sec.copy_from_slice(&birth.sec.to_le_bytes());
    nsec.copy_from_slice(&birth.nsec.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; ID_BYTES]) -> Option<InodeIdentity> {
    let (inode, rest) = bytes.split_first_chunk()?;
    let (sec, rest) = rest.split_first_chunk()?;
    let (nsec, _) = rest.split_first_chunk()?;
    let (sec, nsec) = (i64::from_le_bytes(*sec), u32::from_le_bytes(*nsec));
    Some(InodeIdentity {
        inode: u64::from_le_bytes(*inode),
        birth: (nsec != NO_BIRTH).then_some(Stamp { sec, nsec }),
    })
}

/// Returns the name of the file with the identities of a copy.
pub(crate) fn ids_name(copy: u64) -> CString {
    CString::new(format!("ids-{copy}")).unwrap_or_default()
}

/// Writes the identities of the entries of a copy, in the order of the catalogue.
pub(crate) struct IdWriter {
    file: Box<dyn WriteFile>,
    name: CString,
    buffer: Vec<u8>,
    at: u64,
}

impl IdWriter {
    /// Makes the file anew.
    pub(crate) fn create(dir: &DirMutRef, copy: u64) -> Result<IdWriter> {
        let name = ids_name(copy);
        let _it_may_be_missing = dir.remove(&name);
        let file = dir.create_file(&name, 0o600);
        Ok(IdWriter {
            file: file.map_err(own_file(name.to_bytes()))?,
            name,
            buffer: Vec::new(),
            at: 0,
        })
    }

    /// Adds the identity of the next entry.
    pub(crate) fn add(&mut self, id: InodeIdentity) -> Result<()> {
        self.buffer.extend(encode(id));
        match self.buffer.len() >= ID_BYTES * IDS_AT_ONCE {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        let written = self.file.write_at(&self.buffer, self.at);
        written.map_err(own_file(self.name.to_bytes()))?;
        self.at = self.at.saturating_add(self.buffer.len() as u64);
        self.buffer.clear();
        Ok(())
    }

    /// Makes the file durable.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()?;
        let failed = own_file(self.name.to_bytes());
        self.file.sync().map_err(&failed)?;
        self.file.close().map_err(&failed)
    }
}

/// The identities of the entries of a copy.
pub(crate) struct IdFile {
    file: Box<dyn ReadFile>,
    name: CString,
    buffer: Vec<u8>,
    first: usize,
}

impl IdFile {
    /// Opens the file of a copy.
    pub(crate) fn open(dir: &DirMutRef, copy: u64) -> Result<IdFile> {
        let name = ids_name(copy);
        let file = dir.open_file(&name);
        Ok(IdFile {
            file: file.map_err(own_file(name.to_bytes()))?,
            name,
            buffer: Vec::new(),
            first: 0,
        })
    }

    /// Returns the identity of an entry; `None` if the file ends before.
    pub(crate) fn get(&mut self, entry: u32) -> Result<Option<InodeIdentity>> {
        let entry = entry as usize;
        let held = self.buffer.len() / ID_BYTES;
        if !(self.first..self.first.saturating_add(held)).contains(&entry) {
            self.first = entry / IDS_AT_ONCE * IDS_AT_ONCE;
            self.buffer.resize(ID_BYTES * IDS_AT_ONCE, 0);
            let at = (self.first as u64).saturating_mul(ID_BYTES as u64);
            let got = self.file.read_at(&mut self.buffer, at);
            let got = got.map_err(own_file(self.name.to_bytes()))?;
            self.buffer.truncate(got);
        }
        let (ids, _) = self.buffer.as_chunks::<ID_BYTES>();
        let found = entry.checked_sub(self.first).and_then(|at| ids.get(at));
        Ok(found.and_then(decode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_names_have_their_form() {
        assert!(is_private_name(&private_name(7, 9)));
        assert!(!is_private_name(c".driftless-cast-7"));
    }

    #[test]
    fn identities_are_read_as_written() {
        let birth = Some(Stamp { sec: -5, nsec: 7 });
        for birth in [birth, None] {
            let id = InodeIdentity {
                inode: u64::MAX,
                birth,
            };
            assert_eq!(decode(&encode(id)), Some(id));
        }
    }
}
