//! Which directory the replica was when it was opened last, and whether it is as it was left. A copy
//! that somebody has put in its place has its mark, too, and a copy of the whole disk has its numbers
//! as well, but is mounted anew; another run that has changed it has left its number there.

use super::Hands;
use crate::mounted::Met;
use driftless_detect::place::local_mount;
use driftless_lock::Mutex;
use rustix::fs::stat;
use std::path::PathBuf;
use std::sync::Arc;

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
pub struct LastReplica {
    seen: Mutex<Seen>,
    /// Places below it where something was met mounted.
    pub(crate) met: Arc<Met>,
}

#[derive(Debug, Default)]
struct Seen {
    last: Option<Standing>,
    /// Its path, if it is on this host.
    path: Option<PathBuf>,
    /// The run that had changed it last when it was closed, by its mark.
    run: Option<u128>,
    /// The run that the state was told of.
    told: Option<u128>,
    /// Why what is known of it does not hold, for a person.
    why_other: Option<&'static str>,
}

impl LastReplica {
    /// It was opened, by its path if it is on this host; `None` if there is none yet. `run` has
    /// changed it last.
    pub(super) fn notice(&self, replica: Option<DirId>, path: Option<PathBuf>, run: Option<u128>) {
        let mount = path.as_deref().and_then(local_mount);
        let now = replica.map(|id| Standing { id, mount });
        let mut seen = self.seen.lock();
        if let Some(last) = seen.last {
            let none = Some("no directory stands at the replica's path");
            let why = now.map_or(none, |now| now.differs(last));
            let runs = seen.run.zip(run);
            let is_older = runs.is_some_and(|(left, found)| left != found);
            let why = why.or(is_older.then_some("the replica is not as it was left"));
            seen.why_other = why.or(seen.why_other);
        }
        seen.last = now.or(seen.last);
        seen.path = path;
    }

    /// Notes that it was closed when this run had changed it last; `None` if that is unknown.
    pub(super) fn left_by(&self, run: Option<u128>) {
        self.seen.lock().run = run;
    }

    /// Notes that the run of another program has changed it.
    pub(super) fn was_changed(&self) {
        self.seen.lock().why_other = Some("a run of another program has changed the replica");
    }

    /// Why it was found to be another one, or another's, since this was asked last.
    pub fn take_other(&self) -> Option<&'static str> {
        self.seen.lock().why_other.take()
    }

    /// All is compared with whichever is opened next: it is no other one.
    pub fn forget(&self) {
        *self.seen.lock() = Seen::default();
    }
}

impl Hands {
    /// The replica as it was opened last, if it is on this host.
    pub fn replica_here(&self) -> Option<ReplicaHere> {
        let seen = self.last_replica.seen.lock();
        let path = seen.path.clone()?;
        seen.last.map(|last| ReplicaHere { path, last })
    }

    /// Returns the run that has changed the replica last, by its mark, unless it is the one that was
    /// returned before. Trees that are being opened are not waited for.
    pub fn take_run(&self) -> Option<u128> {
        let open = self.open.try_read()?.clone();
        let run = open?.trees.last_run()?;
        let mut seen = self.last_replica.seen.lock();
        (seen.told.replace(run) != Some(run)).then_some(run)
    }
}
