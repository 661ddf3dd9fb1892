//! Catalogues of sources that have not changed: their content is not read again.
//!
//! A symbolic link in the directory of the catalogues leads to the catalogue of a set. Its name is a
//! digest of what the first pass saw: all entries, and inode, size and times of each file (stat(2)).
//! A change of content changes the ctime, unless a file is written twice within one tick of the clock
//! of its file system. Files that changed a moment ago are therefore read again.
//!
//! The digest also covers the user who reads the sources. An agent of a user may state anything, and
//! such statements must lead no other user to a catalogue.

use crate::error::{Result, own_file};
use crate::format::{CatalogueHead, FORMAT, SetHash};
use crate::parts::file_name;
use driftless_model::Meta;
use driftless_tree::DirMutRef;
use std::ffi::CString;
use std::time::Duration;

/// Purpose of the digest (derive_key of BLAKE3).
const CONTEXT: &str = "driftless store 2026-11 sources seen by the first pass";
/// Age of the newest file from which on its ctime shows each later change. The clocks of file servers
/// may differ from that of this host, and file systems note times in steps of up to two seconds.
const SETTLED: Duration = Duration::from_secs(60);
const PREFIX: &str = "seen-";

/// Identities of the files of sources, as the first pass saw them.
pub(crate) struct SeenIdentities {
    hasher: blake3::Hasher,
    /// Seconds since 1970 of the last change of an inode.
    newest: i64,
}

impl SeenIdentities {
    /// Returns the identities of no files, for a user.
    pub(crate) fn for_user(user: u32) -> SeenIdentities {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&FORMAT.to_le_bytes());
        hasher.update(&user.to_le_bytes());
        SeenIdentities {
            hasher,
            newest: i64::MIN,
        }
    }

    /// Adds a file.
    pub(crate) fn add(&mut self, meta: &Meta) {
        self.newest = self.newest.max(meta.ctime.sec);
        for number in [meta.dev, meta.ino, meta.size] {
            self.hasher.update(&number.to_le_bytes());
        }
        for time in [meta.mtime, meta.ctime] {
            self.hasher.update(&time.sec.to_le_bytes());
            self.hasher.update(&time.nsec.to_le_bytes());
        }
    }

    /// Returns the digest, if no file changed in the time `steps` before `now`, since 1970: each later
    /// change shows in the ctime then.
    pub(crate) fn settled(&self, now: Duration, steps: Duration) -> Option<blake3::Hash> {
        let settled = now.saturating_sub(steps).as_secs().cast_signed();
        (self.newest < settled).then(|| self.hasher.finalize())
    }

    /// Returns what was seen, at a time since 1970 before the first file was read.
    pub(crate) fn with_entries(mut self, entries: &CatalogueHead, begun: Duration) -> SeenSources {
        for part in &entries.parts {
            self.hasher.update(&part.hash);
        }
        let is_settled = self.settled(begun, SETTLED).is_some();
        let name = format!("{PREFIX}{}", self.hasher.finalize().to_hex());
        SeenSources {
            name: CString::new(name).unwrap_or_default(),
            is_settled,
        }
    }
}

/// The state of sources in the first pass.
pub(crate) struct SeenSources {
    name: CString,
    is_settled: bool,
}

impl SeenSources {
    /// Returns the set whose catalogue an earlier build made of the same.
    pub(crate) fn find(&self, catalogues: &DirMutRef) -> Result<Option<SetHash>> {
        match catalogues.read_link(&self.name) {
            Ok(target) => Ok(target.to_str().ok().and_then(|text| text.parse().ok())),
            Err(fault) if fault.is_missing() => Ok(None),
            Err(fault) => Err(own_file(self.name.to_bytes())(fault)),
        }
    }

    /// Notes the set. Nothing is lost if that fails: the next build reads all content.
    pub(crate) fn note(&self, catalogues: &DirMutRef, set: SetHash) {
        if self.is_settled {
            let _it_is_the_first = catalogues.remove(&self.name);
            let noted = catalogues.make_symlink(&self.name, &file_name(set));
            if let Err(fault) = noted {
                tracing::debug!("catalogues/{:?}: {fault}", self.name);
            }
        }
    }
}
