//! What a user asks of a run.

use crate::first_roots::FirstRoots;
use crate::lent::Lent;
use crate::sample::Sample;
use driftless_model::{Level, Policy, RelPath, Selection};
use driftless_mover::Carrier;
use driftless_pool::Concurrency;
use driftless_reconcile::Rules;
use driftless_tree::{Endpoint, Loss};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Where a run notes what it has compared.
#[derive(Debug, Clone)]
pub struct Notes {
    /// The file.
    pub path: PathBuf,
    /// Notes of an earlier run that are older than this are not used.
    pub age_max: Duration,
}

/// What a run does about what differs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// It makes the replica equal.
    #[default]
    Apply,
    /// It tells what it would do, and changes nothing.
    Preview,
    /// It tells of each difference, what the replica alone has included, and changes nothing.
    Compare,
}

/// A run: which trees, what of them, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The tree that is read.
    pub source: Endpoint,
    /// The tree that is made equal.
    pub replica: Endpoint,
    /// An earlier copy, on the replica's machine, whose unchanged files become hard links.
    pub link_dest: Option<PathBuf>,
    /// What is kept, compared, taken and deleted.
    pub policy: Policy,
    /// What is done about what differs.
    pub mode: Mode,
    /// Where it is noted which content was found equal, so that an interrupted run can go on.
    pub ledger: Option<Notes>,
    /// Paths below the source on which file systems were mounted in earlier runs of the same two
    /// trees.
    pub known_mounts: Arc<BTreeSet<RelPath>>,
    /// What is mounted below the source on the coordinator's host shows there.
    pub mounted: Arc<BTreeMap<RelPath, Sample>>,
    /// Where those that a run meets are noted.
    pub mount_notes: Option<Arc<dyn MountNotes>>,
    /// Notes of those that a run meets below the replica.
    pub replica_mounts: Option<Arc<dyn MountNotes>>,
    /// Which paths are looked at; the whole tree if `None`.
    pub selection: Option<Arc<Selection>>,
    /// A chosen path that the source lacks goes from the replica, where entries are deleted:
    /// somebody knows that it was there. Otherwise it is told, since it may have been mistyped.
    pub removes_chosen: bool,
    /// What is on another file system or subvolume than the root of the replica is left as it is,
    /// with all in it: the tree that is read is one that a snapshot was made of, which holds
    /// nothing of that.
    pub leaves_mounts: bool,
    /// The source is a snapshot whose job knows that it lacks subvolumes: the empty directories in
    /// their place are made on the replica, and what the replica has in them stays.
    pub enters_stubs: bool,
    /// The tree that is read was a replica: what has the name of an unfinished entry in it is one
    /// that a mirror has left, and is passed by.
    pub passes_by_unfinished: bool,
    /// Names in the root of the source that are kept beside a tree are errors. The caller removes the
    /// source after a success.
    pub refuses_set_aside: bool,
    /// How hard this process works.
    pub throttle: Throttle,
    /// Moves the content of files in the run's place; both trees are on this machine then.
    pub carrier: Option<Arc<dyn Carrier>>,
    /// The number of the run, which holds for all passes that a lost connection makes of it; drawn
    /// when it is 0.
    pub run: u128,
    /// Whose the replica is: the first half of the numbers of its runs. 0 where each run is
    /// on its own.
    pub owner: u64,
    /// The replica that is meant, by the identity in its mark: where another one or none stands, nothing is
    /// made.
    pub known_replica: Option<u128>,
    /// The tree that leads to the replica, where its mark is to say so, and a ring of mirrors is
    /// refused: the source, or what the source is a snapshot of.
    pub comes_from: Option<Endpoint>,
    /// By which number those know this run who help it change the replica, if somebody does: its
    /// members.
    pub members: Option<u64>,
    /// Another process holds the replica, and this one helps it: it locks and marks nothing, and
    /// changes something only while that process lets it.
    pub lent: Option<Lent>,
    /// What a member calls itself, so that no other finds its unfinished files; 0 otherwise.
    pub own: u128,
    /// Others change the replica at the same time.
    pub is_among_others: Arc<AtomicBool>,
    /// A replica whose mark says that it is the active side of its job is left alone.
    pub refuses_active: bool,
    /// A replica that holds other entries, and none of the source's, is refused where nothing is
    /// deleted.
    pub refuses_other_entries: bool,
    /// A file of this machine on which another process holds a lease is a problem, and is not waited
    /// for: it is tried again later.
    pub passes_by_leases: bool,
    /// Entries that were removed before a connection was lost, by the same run as the user sees it:
    /// they count for the limit, too.
    pub deleted_before: u64,
    /// Roots that the first pass of the run found; later passes refuse others. `None` where no
    /// lost connection makes passes of a run.
    pub first_roots: Option<Arc<FirstRoots>>,
}

/// How hard whoever carries out a run works. That is no part of the policy: each mover has its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Throttle {
    /// How many requests are in flight.
    pub jobs: Concurrency,
    /// Bytes of content a second, read or written, whichever is more.
    pub bytes_per_second_max: Option<u64>,
    /// Entries and blocks a second.
    pub requests_per_second_max: Option<u64>,
}

impl Options {
    /// Whether the replica is changed.
    pub fn applies(&self) -> bool {
        self.mode == Mode::Apply
    }

    /// Whether differences are what the user wants to hear of, rather than what would be done.
    pub fn compares(&self) -> bool {
        self.mode == Mode::Compare
    }

    /// Whether others may be changing the replica at the same time.
    pub fn meets_others(&self) -> bool {
        self.is_among_others.load(Relaxed)
    }

    /// How entries are compared.
    pub fn rules(&self) -> Rules {
        Rules {
            keep: self.policy.keep,
            checksum: self.policy.level >= Level::Content,
            ..Rules::default()
        }
    }

    /// Whether both trees are on the same machine, where a device and an inode mean one directory.
    /// Two hosts may well be one machine, which then says so.
    pub fn is_one_machine(&self) -> bool {
        let both_here = self.source.host.is_none() && self.replica.host.is_none();
        both_here || self.source.machine() == self.replica.machine()
    }

    /// Whether a directory of the source is left out for the file system that it is on, `own` being
    /// the one that the run is on: both by their devices.
    pub fn is_foreign(&self, device: u64, own: u64) -> bool {
        self.policy.one_file_system && device != own
    }

    /// Notes that something is mounted at these paths of the source.
    pub fn note_mounts(&self, paths: &BTreeSet<RelPath>) {
        self.mount_notes.iter().for_each(|notes| notes.met(paths));
    }

    /// Why the connection to a host of the trees is lost, if one is.
    pub fn lost(&self) -> Option<Loss> {
        [&self.source, &self.replica]
            .into_iter()
            .find_map(Endpoint::lost)
    }

    /// The loss that ended a walk, if one did. If an act failed because of a lost connection
    /// (`said`), the walk ended early and no problem says what it left out: were none lost, that
    /// would pass for an end like any other.
    ///
    /// # Panics
    /// It was said, and is not so.
    pub fn lost_as(&self, said: bool) -> Option<Loss> {
        let loss = self.lost();
        assert!(
            !said || loss.is_some(),
            "a connection is said to be lost, and none is"
        );
        loss
    }
}

/// Keeps notes of mounted file systems, so that later runs miss them.
pub trait MountNotes: Debug + Send + Sync {
    /// A run has met something that is mounted at these paths of the source. Nothing below a path
    /// was copied yet, unless by a mover.
    fn met(&self, paths: &BTreeSet<RelPath>);

    /// All that was noted so far.
    fn all(&self) -> BTreeSet<RelPath>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "said to be lost")]
    fn a_walk_that_ends_for_the_loss_of_a_line_that_stands_is_a_bug() {
        let options = Options::default();
        assert_eq!(options.lost_as(false), None);
        let _ = options.lost_as(true);
    }
}
