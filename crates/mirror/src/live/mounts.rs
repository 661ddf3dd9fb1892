//! What is mounted below the replica. A part of it that is another file system by now may lack what
//! was made durable there, so all is compared.

use super::Live;
use driftless_engine::mounted_below;
use driftless_model::RelPath;
use driftless_remote::Target;
use std::collections::BTreeSet;
use std::time::Duration;

/// Places below the replica, and the devices of what is mounted there.
pub(super) type Mounted = BTreeSet<(RelPath, Vec<u8>)>;

impl Live {
    /// Looks whether something was mounted below a replica of this host since the last look, or is
    /// mounted there no more.
    pub(super) fn look_at_mounts(&mut self, now: Duration) {
        let target = Target::parse(self.job.replicas[0].as_ref());
        let Some(target) = target.ok().filter(|target| target.host.is_none()) else {
            return;
        };
        let before = self.mounted.replace(mounted_below(&target.path));
        if before.is_some() && before != self.mounted {
            tracing::warn!("what is mounted below the replica has changed: all is compared");
            self.walk_in_doubt(now);
        }
    }
}
