//! Paths that the user has listed and that are not as the list has them: each is a problem of its own.

use crate::job::DirJob;
use crate::tally::add;
use crate::worker::Worker;
use driftless_model::{Act, Class, Fault, RelPath, Side};
use driftless_tree::Names;
use std::ffi::{CStr, CString};

/// `ENOENT` of errno(3).
pub const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;

/// Whether anything was chosen by itself below an entry.
pub fn has_listed(job: &DirJob, name: &CStr) -> bool {
    job.selection.children.get(name.to_bytes()).is_some_and(|node| !node.children.is_empty())
}

impl Worker<'_> {
    /// Whether what is listed below an entry, which is no directory, keeps it as it is: what stands there is made equal only if it is listed
    /// itself.
    pub fn blocks_listed(&self, job: &DirJob, name: &CStr) -> bool {
        let node = job.selection.children.get(name.to_bytes());
        let Some(node) = node.filter(|_| has_listed(job, name) && job.pass() == 0 && self.has_list()) else { return false };
        let listed = node.chosen(job.path_of(name));
        if node.whole {
            // It comes first, and is accounted for as what it is.
            self.report_listed(&listed[1..], (0, 0), ENOTDIR);
            return false;
        }
        let seen = u64::from(!self.run.part.passes(job, name));
        self.report_listed(&listed, (seen, 1), ENOTDIR);
        true
    }

    /// Tells what is listed by itself in a directory that is listed, too, and is not there. `known` are all of its names, if one window
    /// holds them.
    pub fn find_listed(&self, job: &DirJob, known: Option<&Names>) {
        if job.pass() > 0 || !job.selection.whole || !self.has_list() {
            return;
        }
        for (name, node) in &job.selection.children {
            let Ok(name) = CString::new(&name[..]) else { continue };
            let met = known.is_some_and(|names| names.contains(&name));
            if !met && job.source.look(&name).is_err_and(|fault| fault.is_missing()) {
                self.report_listed(&node.chosen(job.path_of(&name)), (0, 0), ENOENT);
            }
        }
    }

    /// The paths that the user has listed at an entry and below it; else that of the entry.
    pub fn listed_at(&self, job: &DirJob, name: &CStr) -> Vec<RelPath> {
        let path = job.path_of(name);
        match job.selection.children.get(name.to_bytes()).filter(|_| self.has_list()) {
            Some(node) => node.chosen(path),
            None => vec![path],
        }
    }

    /// Counts and reports listed paths, so many of which are counted otherwise, as seen and as failed.
    pub fn report_listed(&self, listed: &[RelPath], (seen, failed): (u64, u64), errno: i32) {
        let (tally, all) = (&self.run.tally, listed.len() as u64);
        add(&tally.seen, all - seen);
        add(&tally.failed, all - failed);
        let fault = Fault { side: Side::Source, act: Act::LookAt, errno };
        listed.iter().for_each(|path| self.run.problem(path.clone(), fault, Class::Skip));
    }

    fn has_list(&self) -> bool {
        self.run.part.has_list(self.run.options)
    }
}
