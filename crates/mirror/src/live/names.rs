//! Files with several names, of which detectors tell one: what is known of the others, and when all
//! is compared to find them.

use super::Live;
use super::work::looked_at;
use crate::dirty::{Circumstance, Dirty, Lane};
use crate::hands::Outcome;
use driftless_detect::Unnamed;
use driftless_model::{Act, Change, RelPath, Scope};
use std::collections::BTreeMap;
use std::time::Duration;

/// All is compared again because of a doubt after so many times what the last comparison took.
const DOUBT_PAUSES: u32 = 10;
/// And no sooner than after this.
const DOUBT_PAUSE_MIN: Duration = Duration::from_secs(5);

impl Live {
    /// A file was changed by a name that is not the one that counts, as a rule: all that are known
    /// of it may differ. Where none is, all is compared, unless it can have none.
    pub(super) fn add_unnamed(&mut self, now: Duration, file: Unnamed) {
        if file.at.as_ref().is_some_and(|path| self.takes(path)) {
            // That name is looked at, and what is known of it.
            return;
        }
        let names: Vec<RelPath> = self.links.names_of(file.inode).cloned().collect();
        let has_several = file.names > 1;
        // A file inside may have got its first other name where nothing is looked at.
        let is_in_doubt = file.at.is_some() || !self.links.are_all_known();
        if names.is_empty() && (file.is_lost || has_several && is_in_doubt) {
            self.links.lost(now, file.inode);
            self.look_for_names(now);
        }
        let circumstance = Circumstance {
            is_written: file.is_written,
            ..Circumstance::default()
        };
        for name in names {
            self.dirty.add(now, Change::entry(name), circumstance);
        }
    }

    /// Whether the job's filters take a file.
    fn takes(&self, path: &RelPath) -> bool {
        let filter = &self.job.policy.filter;
        let mut above = path.above().filter(|dir| !dir.is_root());
        filter.takes(path.as_bytes(), false) && above.all(|dir| filter.takes(dir.as_bytes(), true))
    }

    /// Learns which files have several names. Those that were not looked at together are.
    pub(super) fn learn_links(&mut self, now: Duration, outcome: &Outcome) {
        let looked_at = looked_at(outcome);
        let walked = outcome.taken.is_walk().then_some(self.walked.begun);
        let linked = &outcome.linked;
        let together = self.links.met(now, &looked_at, linked, walked);
        for problem in &outcome.problems {
            if problem.act == Act::LinkAll {
                self.links.lacks_names(now, &problem.path);
            }
        }
        // Whoever waits for what was looked at waits for them as well.
        let since = outcome.taken.since().unwrap_or(now);
        let doubtful = outcome.doubtful_files();
        let together = together.into_iter().map(|name| {
            let file = self.links.file_at(&name);
            let dirty = Dirty {
                is_doubtful: file.is_some_and(|file| doubtful.contains(&file)),
                ..Dirty::new(Scope::Entry, since, now)
            };
            (name, dirty)
        });
        let mut together: BTreeMap<RelPath, Dirty> = together.collect();
        // What was written to these may have left their sizes and times as they were.
        for (name, since) in self.links.take_found() {
            let dirty = Dirty {
                is_doubtful: true,
                ..Dirty::new(Scope::Entry, since, now)
            };
            together.insert(name, dirty);
        }
        self.dirty.add_together(together);
        self.look_for_names(now);
    }

    /// Has all be compared where not all names of a file are known, though not all the time.
    pub(super) fn look_for_names(&mut self, now: Duration) {
        if !self.links.is_in_doubt() {
            self.doubt = None;
        } else if self.reads_snapshots() {
            // When all else is done.
            self.doubt = Some(Duration::MAX);
        } else if self.doubt.is_none() && self.busy[&Lane::Walk] == 0 {
            // One that is under way may find them, and comes here when it ends.
            let pause = (self.walked.took * DOUBT_PAUSES).max(DOUBT_PAUSE_MIN);
            let last = self.walked.ended.unwrap_or_default();
            self.doubt = Some(now.max(last + pause));
        }
    }
}
