//! Paths that the user has listed and that are not as the list has them: each is a problem of its
//! own.

use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use driftless_model::{Act, Class, Fault, RelPath, Side, errno};
use driftless_tree::Names;
use std::ffi::{CStr, CString};

/// Whether anything was chosen by itself below an entry.
pub fn has_listed(visit: &Visit, name: &CStr) -> bool {
    visit
        .selection
        .children
        .get(name.to_bytes())
        .is_some_and(|node| !node.children.is_empty())
}

impl Worker<'_> {
    /// Whether what is listed below an entry, which is no directory, keeps it as it is: what stands
    /// there is made equal only if it is listed itself.
    pub fn blocks_listed(&self, visit: &Visit, name: &CStr) -> bool {
        let node = visit.selection.children.get(name.to_bytes());
        let Some(node) =
            node.filter(|_| has_listed(visit, name) && visit.pass() == 0 && self.has_list())
        else {
            return false;
        };
        let listed = node.chosen(visit.path_of(name));
        if node.whole {
            // It comes first, and is accounted for as what it is.
            self.report_listed(&listed[1..], (0, 0), errno::ENOTDIR);
            return false;
        }
        let seen = u64::from(!self.run.part.passes(visit, name));
        self.report_listed(&listed, (seen, 1), errno::ENOTDIR);
        true
    }

    /// Tells what is listed by itself in a directory that is listed, too, and is not there. `known`
    /// are all of its names, if one window holds them.
    pub fn find_listed(&self, visit: &Visit, known: Option<&Names>) {
        if visit.pass() > 0 || !visit.selection.whole || !self.has_list() {
            return;
        }
        for (name, node) in &visit.selection.children {
            let Ok(name) = CString::new(&name[..]) else {
                continue;
            };
            let met = known.is_some_and(|names| names.contains(&name));
            if !met
                && visit
                    .source
                    .look(&name)
                    .is_err_and(|fault| fault.is_missing())
            {
                self.report_listed(&node.chosen(visit.path_of(&name)), (0, 0), errno::ENOENT);
            }
        }
    }

    /// The paths that the user has listed at an entry and below it; else that of the entry.
    pub fn listed_at(&self, visit: &Visit, name: &CStr) -> Vec<RelPath> {
        let path = visit.path_of(name);
        match visit
            .selection
            .children
            .get(name.to_bytes())
            .filter(|_| self.has_list())
        {
            Some(node) => node.chosen(path),
            None => vec![path],
        }
    }

    /// Counts and reports listed paths, so many of which are counted otherwise, as seen and as
    /// failed.
    pub fn report_listed(&self, listed: &[RelPath], (seen, failed): (u64, u64), errno: i32) {
        let (tally, all) = (&self.run.tally, listed.len() as u64);
        add(&tally.seen, all - seen);
        add(&tally.failed, all - failed);
        let fault = Fault {
            side: Side::Source,
            act: Act::LookAt,
            errno,
        };
        listed
            .iter()
            .for_each(|path| self.run.problem(path.clone(), fault, Class::Skip));
    }

    /// Whether a listed path that is not there is a problem: it is on a user's list. Where the list
    /// names paths that were there before, they were removed, and that is no problem.
    fn has_list(&self) -> bool {
        self.run.part.has_list(self.run.options) && !self.run.options.removes_chosen
    }
}
