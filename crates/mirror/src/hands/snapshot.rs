//! Which snapshot is read in the source's place, and which one the replica was equal to.

use super::Hands;
use crate::gathered::Gathered;
use driftless_detect::gap::begin_of;
use driftless_model::Stamp;
use rustix::fs::stat;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

impl Hands {
    /// Returns what takes in the engine's reports of a piece of work, where not everything was heard
    /// of since a moment.
    pub(super) fn gathers(&self, unheard_since: Option<Stamp>) -> Gathered {
        let (older, newer) = (self.equal_to.read().clone(), self.snapshot.read().clone());
        Gathered {
            is_of_snapshot: newer.is_some(),
            unheard_since: unheard_since.map(begin_of),
            between: older.zip(newer),
            sought: self.sought.clone(),
            ..Gathered::default()
        }
    }

    /// From now on a snapshot is read in the source's place. Nothing may be in work.
    pub fn read_from(&self, snapshot: &Path) {
        *self.snapshot.write() = Some(snapshot.to_owned());
        self.close();
    }

    /// Whether the snapshot that is read is not there any more.
    pub fn has_lost_snapshot(&self) -> bool {
        let snapshot = self.snapshot.read();
        let is_gone = |path: &PathBuf| stat(path).err() == Some(Errno::NOENT);
        snapshot.as_ref().is_some_and(is_gone)
    }

    /// The replica was made equal to a snapshot, earlier.
    pub fn was_equal_to(&self, snapshot: Option<PathBuf>) {
        *self.equal_to.write() = snapshot;
    }

    /// The replica has become equal to the snapshot that is read.
    pub fn became_equal(&self) {
        self.was_equal_to(self.snapshot.read().clone());
    }
}
