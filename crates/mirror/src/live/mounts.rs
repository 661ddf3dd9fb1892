//! What is mounted below both trees. A part of the replica that is another file system by now may
//! lack what was made durable there, so all is compared; a part of the source that is another one
//! shows what no detector has told of, so all below it is compared.

use super::Live;
use crate::dirty::Dirty;
use crate::worded::shown;
use driftless_engine::mounted_below;
use driftless_model::{RelPath, Scope};
use driftless_remote::Target;
use std::collections::BTreeSet;
use std::time::Duration;

/// Places below a tree, and the devices of what is mounted there.
type Mounted = BTreeSet<(RelPath, Vec<u8>)>;

/// What was mounted below both trees when it was looked last; nothing is known of those that are
/// not on this host.
#[derive(Default)]
pub(super) struct Mounts {
    source: Option<Mounted>,
    replica: Option<Mounted>,
}

impl Live {
    /// Looks whether something was mounted below a tree of this host since the last look, or is
    /// mounted there no more.
    pub(super) fn look_at_mounts(&mut self, now: Duration) {
        let changed = changed_in(&mut self.mounts.replica, &self.job.replicas[0]);
        if !changed.is_empty() {
            tracing::warn!("what is mounted below the replica has changed: all is compared");
            self.walk_in_doubt(now);
        }
        for path in changed {
            self.doubt_members_at(now, path);
        }
        // A snapshot of the source holds nothing of what is mounted below it.
        if self.reads_snapshots() {
            return;
        }
        for path in changed_in(&mut self.mounts.source, &self.job.source) {
            let place = shown(&path);
            tracing::warn!("what is mounted in the source at {place} has changed: it is compared");
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
    let current = mounted_below(&target.path);
    let Some(before) = mounted.replace(current.clone()) else {
        return BTreeSet::new();
    };
    let changed = before.symmetric_difference(&current);
    changed.map(|(path, _)| path.clone()).collect()
}
