//! Consequences of changes that a dry run does not make, where what it tells next depends on them.
//!
//! A name that a run replaces is one name less of the file that had it, and a file that has one name
//! left is changed in place. The first change in a directory takes rights off the directory, which
//! is a change of its own where modes are not kept.

use crate::options::Mode;
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use driftless_model::{Kind, Meta};

/// Files of the replica whose names are counted at most. Of others a dry run tells that they are
/// made anew, also where the run would change the last name in place.
const FILES_MAX: usize = 1 << 18;

impl Run<'_> {
    fn is_dry(&self) -> bool {
        self.options.mode == Mode::Preview
    }

    /// Notes that the run would change something in a directory.
    pub fn foretell_change(&self, visit: &Visit) {
        if self.is_dry() {
            visit.narrow();
        }
    }

    /// Notes that the run would replace one name of `there`, an entry of the replica.
    pub fn foretell_loss(&self, there: &Meta) {
        if !self.is_dry() || !may_lose(there) {
            return;
        }
        let mut lost = self.names_lost.lock();
        if lost.len() < FILES_MAX || lost.contains_key(&there.id()) {
            *lost.entry(there.id()).or_default() += 1;
        }
    }

    /// Returns an entry of the replica with as many names as the run would have left it.
    pub fn foretold(&self, there: Meta) -> Meta {
        if !self.is_dry() || !may_lose(&there) {
            return there;
        }
        let lost = self.names_lost.lock().get(&there.id()).copied();
        let nlink = there.nlink.saturating_sub(lost.unwrap_or(0)).max(1);
        Meta { nlink, ..there }
    }
}

fn may_lose(there: &Meta) -> bool {
    there.kind != Kind::Dir && there.nlink > 1
}
