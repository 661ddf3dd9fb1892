//! Which directory the replica was when it was opened last, and whether it is as it was left. A copy
//! that somebody has put in its place has its mark, too; another run that has changed it has left its
//! number there.

use driftless_lock::Mutex;
use rustix::fs::stat;
use std::path::{Path, PathBuf};

/// Device and inode.
type DirId = (u64, u64);

/// A replica on this host, as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaHere {
    path: PathBuf,
    last: DirId,
}

impl ReplicaHere {
    /// Whether another directory stands at its path by now. That may take as long as the file
    /// system wants.
    pub fn is_replaced(&self) -> bool {
        stat(&self.path).is_ok_and(|now| (now.st_dev, now.st_ino) != self.last)
    }
}

/// The directory at the replica's path.
#[derive(Debug, Default)]
pub struct LastReplica(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    last: Option<DirId>,
    /// Why what is known of it does not hold, for a person.
    why_other: Option<&'static str>,
}

impl LastReplica {
    /// It was opened; `None` if there is none yet.
    pub(super) fn notice(&self, replica: Option<DirId>) {
        let mut seen = self.0.lock();
        if seen.last.is_some() && replica != seen.last {
            seen.why_other = Some("another directory stands at the replica's path");
        }
        seen.last = replica.or(seen.last);
    }

    /// Somebody else's run has changed it.
    pub(super) fn was_changed(&self) {
        self.0.lock().why_other = Some("a run of somebody else has changed the replica");
    }

    /// Why it was found to be another one, or another's, since this was asked last.
    pub fn take_other(&self) -> Option<&'static str> {
        self.0.lock().why_other.take()
    }

    /// All is compared with whichever is opened next: it is no other one.
    pub fn forget(&self) {
        *self.0.lock() = Seen::default();
    }

    /// What it was, if its path on this host is `path`.
    pub(super) fn at(&self, path: &Path) -> Option<ReplicaHere> {
        let path = path.to_owned();
        self.0.lock().last.map(|last| ReplicaHere { path, last })
    }
}
