//! What another process of the pool may have been at, and is looked at once more when that one can
//! change nothing any more.

use super::{Live, Pool};
use crate::dirty::{Circumstance, Dirty};
use driftless_model::Change;
use std::collections::BTreeMap;
use std::time::Duration;

/// So long after a message came again that another process had, the lease of that one is over: it
/// is lost 15 seconds after it heard its lead last.
const LEASE_OVER: Duration = Duration::from_secs(16);

/// What is to be looked at once more.
#[derive(Default)]
pub(super) struct Again {
    /// When, and a number of its own; and since when it is known, if somebody may wait for it.
    all: BTreeMap<(Duration, u64), (Option<Duration>, Change)>,
    number: u64,
}

impl Again {
    fn add(&mut self, due: Duration, since: Option<Duration>, change: Change) {
        self.number += 1;
        self.all.insert((due, self.number), (since, change));
    }

    /// Looks at a change, of which is known since then, when a lease is over that holds now.
    pub(super) fn add_after_lease(&mut self, now: Duration, since: Duration, change: Change) {
        self.add(now + LEASE_OVER, Some(since), change);
    }

    /// The same for what another one had begun, which may come late.
    fn add_begun(&mut self, now: Duration, change: Change) {
        self.add_after_lease(now, now, change);
    }

    /// Whether something waits that is known since `moment` or before.
    pub(super) fn waits_since(&self, moment: Duration) -> bool {
        let mut since = self.all.values().filter_map(|(since, _)| *since);
        since.any(|since| since <= moment)
    }

    /// When the next is due.
    fn next(&self) -> Option<Duration> {
        self.all.first_key_value().map(|((due, _), _)| *due)
    }

    /// One that is due, and since when it is known.
    fn take(&mut self, now: Duration) -> Option<(Duration, Change)> {
        self.next().filter(|due| *due <= now)?;
        let (_, (since, change)) = self.all.pop_first()?;
        Some((since.unwrap_or(now), change))
    }
}

impl Live {
    /// Another process had this before and did not acknowledge it. It may be at it still, as long
    /// as its lease lasts, and may not come to look at it again.
    pub(in crate::live) fn look_again_later(&mut self, now: Duration, change: &Change) {
        if let Some(pool) = &mut self.pool {
            let change = Change {
                hint: None,
                ..change.clone()
            };
            pool.again.add_begun(now, change);
        }
    }

    /// What is to be looked at once more by now is left to do.
    pub(super) fn look_again_now(&mut self, now: Duration) {
        while let Some((since, change)) = self.pool.as_mut().and_then(|pool| pool.again.take(now)) {
            let dirty = Dirty {
                is_doubtful: true,
                ..Dirty::new(change.scope, since, now)
            };
            // Who was killed may have left an unfinished entry beside it.
            if let Some(dir) = change.path.above().next() {
                let names = Change::names(dir);
                self.dirty.add(now, names, Circumstance::default());
            }
            self.dirty.add_again(change.path, dirty);
        }
    }

    /// When something is to be looked at once more.
    pub(in crate::live) fn next_again(&self) -> Option<Duration> {
        self.pool.as_ref().and_then(|pool: &Pool| pool.again.next())
    }
}
