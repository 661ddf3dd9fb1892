//! Which snapshot is read in the source's place, and which one the replica was equal to.

use super::Hands;
use rustix::fs::stat;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

impl Hands {
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
