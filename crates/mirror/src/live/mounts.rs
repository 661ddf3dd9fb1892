//! What is mounted below both trees. A part of the replica that is another file system by now may
//! lack what was made durable there, so all is compared; a part of the source that is another one
//! shows what no detector has told of, so all below it is compared.
//!
//! The state keeps what is mounted below the replica for failovers and failbacks, which miss it when
//! it is not there. It is forgotten when a comparison of all has ended during which it was away: the
//! replica has everything without it then.

use super::Live;
use crate::dirty::Dirty;
use crate::memory::Memory;
use crate::mounted;
use crate::worded::shown;
use driftless_detect::place::local_mount;
use driftless_engine::{MOUNTS_MAX, MountNotes, mounted_below};
use driftless_model::{RelPath, Scope};
use driftless_remote::Target;
use driftless_state::StateError;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Places below a tree, the devices of what is mounted there, and the numbers of the mounts, where
/// these say something.
type Mounted = BTreeSet<(RelPath, Vec<u8>, Option<u64>)>;

/// What was mounted below both trees when it was looked last; nothing is known of those that are
/// not on this host.
#[derive(Default)]
pub(super) struct Mounts {
    source: Option<Mounted>,
    replica: Option<Mounted>,
    /// Places below the replica where something was mounted when the comparison of all began that is
    /// at work.
    at_walk: BTreeSet<RelPath>,
    /// Places below the replica that the state names.
    kept: BTreeSet<RelPath>,
}

impl Mounts {
    /// Returns what an earlier life has kept.
    ///
    /// # Errors
    /// The state cannot be read.
    pub(super) fn kept_by(memory: &Memory) -> Result<Mounts, StateError> {
        Ok(Mounts {
            kept: mounted::places(memory.cursor(mounted::ON_REPLICA)?),
            ..Mounts::default()
        })
    }

    /// Notes that a comparison of all begins with what is mounted now.
    pub(super) fn begin_walk(&mut self) {
        self.at_walk = self.on_replica();
    }

    /// Returns the places below the replica where something was mounted at the last look.
    fn on_replica(&self) -> BTreeSet<RelPath> {
        let mounted = self.replica.iter().flatten().map(|(place, ..)| place);
        let places = mounted.filter(|place| mounted::is_of_tree(place));
        places.cloned().collect()
    }
}

impl Live {
    /// Has the state name what is mounted below the replica, and `others`.
    fn keep_mounts(&mut self, now: Duration, others: BTreeSet<RelPath>) {
        let places = self.mounts.on_replica().into_iter().chain(others);
        let places: BTreeSet<RelPath> = places.take(MOUNTS_MAX).collect();
        if places != self.mounts.kept {
            self.memory.heard(vec![mounted::cursor(&places, now)]);
            self.mounts.kept = places;
        }
    }

    /// A comparison of all begins with what is mounted now.
    pub(super) fn begin_to_walk_mounts(&mut self) {
        self.hands.last_replica.met.forget();
        self.mounts.begin_walk();
    }

    /// Has the state name what was met below the replica: of another host nothing else is known.
    pub(super) fn keep_met_mounts(&mut self, now: Duration) {
        let met = self.hands.last_replica.met.all();
        if !met.is_subset(&self.mounts.kept) {
            self.keep_mounts(now, &met | &self.mounts.kept);
        }
    }

    /// Has the state forget what was mounted below the replica before the comparison of all that has
    /// ended, and is not now.
    pub(super) fn forget_unmounted(&mut self, now: Duration) {
        let at_walk = std::mem::take(&mut self.mounts.at_walk);
        self.keep_mounts(now, &at_walk | &self.hands.last_replica.met.all());
    }

    /// Looks whether something was mounted below a tree of this host since the last look, or is
    /// mounted there no more.
    pub(super) fn look_at_mounts(&mut self, now: Duration) {
        let changed = changed_in(&mut self.mounts.replica, &self.job.replicas[0]);
        if !changed.is_empty() {
            tracing::warn!("a mount below the replica has changed: comparing everything");
            self.walk_in_doubt(now);
        }
        for path in changed {
            self.doubt_members_at(now, path);
        }
        self.keep_mounts(now, self.mounts.kept.clone());
        // A snapshot of the source holds nothing of what is mounted below it.
        if self.reads_snapshots() {
            return;
        }
        for path in changed_in(&mut self.mounts.source, &self.job.source) {
            let place = shown(&path);
            tracing::warn!("the mount in the source at {place} has changed: comparing it");
            let below = Dirty::new(Scope::Subtree, self.in_doubt_since(now), now);
            self.dirty.add_again(path.clone(), below);
            self.doubt_members_at(now, path);
        }
    }
}

/// Where something else is mounted below a tree than at the last look, as far as that can be told.
fn changed_in(mounted: &mut Option<Mounted>, tree: &str) -> BTreeSet<RelPath> {
    let target = Target::parse(tree.as_ref()).ok();
    let Some(target) = target.filter(|target| target.host.is_none()) else {
        return BTreeSet::new();
    };
    let current: Mounted = mounted_below(&target.path)
        .into_iter()
        .map(|(path, device)| {
            let at = || target.path.join(OsStr::from_bytes(path.as_bytes()));
            // A server that is gone may be asked for what is on no disk of this host.
            let is_on_disk = !device.starts_with(b"0:");
            let number = is_on_disk.then(|| local_mount(&at())).flatten();
            (path, device, number)
        })
        .collect();
    let Some(before) = mounted.replace(current.clone()) else {
        return BTreeSet::new();
    };
    let changed = before.symmetric_difference(&current);
    changed.map(|(path, ..)| path.clone()).collect()
}
