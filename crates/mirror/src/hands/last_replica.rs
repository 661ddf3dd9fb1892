//! Which directory the replica was when it was opened last, and whether it is as it was left. A copy
//! that somebody has put in its place has its mark, too, and a copy of the whole disk has its numbers
//! as well, but is mounted anew; another run that has changed it has left its number there.

use driftless_detect::place::local_mount;
use driftless_engine::Options;
use driftless_lock::Mutex;
use rustix::fs::stat;
use std::path::{Path, PathBuf};

/// Device and inode.
type DirId = (u64, u64);

/// A replica on this host, as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaHere {
    path: PathBuf,
    last: Standing,
}

/// The directory at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    id: DirId,
    /// The number of its mount, if that says something.
    mount: Option<u64>,
}

impl Standing {
    /// Returns why this is another than the `last`, for a person.
    fn differs(self, last: Standing) -> Option<&'static str> {
        let is_anew = || matches!((last.mount, self.mount), (Some(last), Some(now)) if last != now);
        match () {
            () if self.id != last.id => Some("another directory stands at the replica's path"),
            () if is_anew() => Some("the file system of the replica was mounted anew"),
            () => None,
        }
    }
}

impl ReplicaHere {
    /// Returns why another directory may stand at its path by now, for a person. That may take as
    /// long as the file system wants.
    pub fn why_other(&self) -> Option<&'static str> {
        let now = stat(&self.path).ok()?;
        let standing = Standing {
            id: (now.st_dev, now.st_ino),
            mount: local_mount(&self.path),
        };
        standing.differs(self.last)
    }
}

/// The directory at the replica's path.
#[derive(Debug, Default)]
pub struct LastReplica(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    last: Option<Standing>,
    /// Why what is known of it does not hold, for a person.
    why_other: Option<&'static str>,
}

impl LastReplica {
    /// Takes notice of the replica that was opened with these options; it is `None` if there is none
    /// yet.
    pub(super) fn notice(&self, replica: Option<DirId>, options: &Options) {
        let at = &options.replica;
        let path = at.host.is_none().then_some(&*at.path);
        let mount = path.and_then(local_mount);
        let now = replica.map(|id| Standing { id, mount });
        let mut seen = self.0.lock();
        let other = match (now, seen.last) {
            (Some(now), Some(last)) => now.differs(last),
            (None, Some(_)) => Some("no directory stands at the replica's path"),
            (_, None) => None,
        };
        seen.why_other = other.or(seen.why_other);
        seen.last = now.or(seen.last);
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
