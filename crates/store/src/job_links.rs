//! Names of jobs: `jobs/NAME` is a symbolic link to the cached copy that the job began to use last.
//!
//! A user can name the data of a job before the hash of its set is known. The links follow from the
//! index, and a sweep repairs them.

use crate::error::{Error, Result, own_file};
use crate::node::NodeFiles;
use crate::place::is_private_name;
use crate::staging::names_in;
use driftless_model::{EntryName, Kind, is_reserved_name};
use driftless_tree::{is_temp_name, temp_name};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};

/// Bytes of the longest name of a file (limits.h, `NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// The directory of the cached sets, as a link in the directory of the jobs sees it.
const SETS_THERE: &[u8] = b"../sets/";

/// The entry at the name of a job.
enum LinkStanding {
    Missing,
    /// A link to a set, with its target.
    Own(CString),
    Foreign,
}

/// Returns the name of the link of a job; `None` if no file can have the name of the job.
pub(crate) fn link_name(job: &str) -> Option<CString> {
    let name = EntryName::try_from(job.as_bytes().to_vec()).ok()?;
    let c_name = CString::from(&name);
    let is_own = is_reserved_name(job.as_bytes()) || is_private_name(&c_name);
    (job.len() <= NAME_BYTES_MAX && !is_own).then_some(c_name)
}

impl NodeFiles {
    /// Makes, moves or removes the link of a job, as the index asks for. The caller is
    /// [alone](NodeFiles::alone).
    ///
    /// # Errors
    /// [`Error::Occupied`] if another entry stands at its name.
    pub(crate) fn settle_link(&self, job: &str) -> Result<()> {
        let Some(name) = link_name(job) else {
            return Ok(());
        };
        let newest = self.index.lock().newest_of_job(job)?;
        let target = newest.and_then(|row| {
            let target = [SETS_THERE, row.hash.as_bytes()].concat();
            CString::new(target).ok()
        });
        let failed = own_file(&[b"jobs/", name.to_bytes()].concat());
        match (self.link_at(&name)?, target) {
            (LinkStanding::Own(now), Some(target)) if now == target => Ok(()),
            (LinkStanding::Foreign, Some(_)) => Err(Error::Occupied {
                path: [&*self.jobs_path(), b"/", name.to_bytes()].concat(),
            }),
            (LinkStanding::Missing | LinkStanding::Foreign, None) => Ok(()),
            (LinkStanding::Own(_), None) => self.jobs.remove(&name).map_err(failed),
            (_, Some(target)) => {
                let new = temp_name();
                let made = self.jobs.make_symlink(&new, &target);
                made.and_then(|()| self.jobs.rename(&new, &name))
                    .map_err(failed)
            }
        }
    }

    fn jobs_path(&self) -> Vec<u8> {
        let path = self.path.join("jobs");
        path.into_os_string().into_encoded_bytes()
    }

    fn link_at(&self, name: &CStr) -> Result<LinkStanding> {
        let failed = own_file(&[b"jobs/", name.to_bytes()].concat());
        match self.jobs.look(name) {
            Ok(meta) if meta.kind == Kind::Symlink => {
                let target = self.jobs.read_link(name).map_err(failed)?;
                Ok(match target.to_bytes().starts_with(SETS_THERE) {
                    true => LinkStanding::Own(target),
                    false => LinkStanding::Foreign,
                })
            }
            Ok(_) => Ok(LinkStanding::Foreign),
            Err(fault) if fault.is_missing() => Ok(LinkStanding::Missing),
            Err(fault) => Err(failed(fault)),
        }
    }

    /// Repairs the links of all jobs: those of the index, and those that are there. The caller is
    /// [alone](NodeFiles::alone).
    pub(crate) fn settle_links(&self) -> Result<()> {
        let failed = own_file(b"jobs");
        let rows = self.index.lock().copies()?;
        let mut jobs: BTreeSet<String> = rows.into_iter().flat_map(|row| row.jobs).collect();
        for name in names_in(&*self.jobs).map_err(&failed)? {
            match name.to_str() {
                // Of a process that was killed.
                Ok(_) if is_temp_name(&name) => self.jobs.remove(&name).map_err(&failed)?,
                Ok(job) => _ = jobs.insert(job.to_owned()),
                Err(_) => {}
            }
        }
        jobs.iter().try_for_each(|job| self.settle_free_link(job))
    }

    /// The same as [`settle_link`](NodeFiles::settle_link), unless another entry stands at the name.
    pub(crate) fn settle_free_link(&self, job: &str) -> Result<()> {
        match self.settle_link(job) {
            Err(error @ Error::Occupied { .. }) => {
                tracing::warn!("{error}");
                Ok(())
            }
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::link_name;

    #[test]
    fn names_of_files_have_links() {
        for name in ["blast-7", "a b", "ä", ".hidden", &"x".repeat(255)] {
            assert!(link_name(name).is_some(), "{name}");
        }
        let own = driftless_tree::temp_name();
        let own = own.to_str().expect("text");
        for name in ["", ".", "..", "a/b", "/", own, &"x".repeat(256)] {
            assert!(link_name(name).is_none(), "{name}");
        }
    }
}
