//! Which directory the replica was when it was opened last. A copy that somebody has put in its place
//! has its mark, too.

use driftless_lock::Mutex;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device and inode.
type DirId = (u64, u64);

/// The directory at the replica's path.
#[derive(Debug, Default)]
pub(super) struct LastReplica(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    last: Option<DirId>,
    /// It was another one before.
    is_other: bool,
}

impl LastReplica {
    /// It was opened; `None` if there is none yet.
    pub(super) fn notice(&self, replica: Option<DirId>) {
        let mut seen = self.0.lock();
        seen.is_other |= seen.last.is_some() && replica != seen.last;
        seen.last = replica.or(seen.last);
    }

    /// Whether it was found to be another one since this was asked last.
    pub(super) fn take_other(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_other)
    }

    /// Whether another one stands at its path on this host.
    pub(super) fn is_other_at(&self, path: &Path) -> bool {
        let last = self.0.lock().last;
        let stands = std::fs::metadata(path).map(|now| (now.dev(), now.ino()));
        last.zip(stands.ok()).is_some_and(|(last, now)| last != now)
    }
}
