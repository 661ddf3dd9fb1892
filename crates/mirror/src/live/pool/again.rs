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
/// A process may stand still between its last look at its lease and the change that it makes then.
/// When that goes on, and the process dies at once, nobody looks at the change: so these are looked
/// at again, for which nobody waits.
const STOOD_STILL: [Duration; 3] = [
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];
/// Paths that wait for that; more are let go, since they were looked at before.
const LATE_MAX: usize = 20_000;

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
        if self.all.len() < LATE_MAX {
            for late in STOOD_STILL {
                self.add(now + late, None, change.clone());
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::RelPath;

    #[test]
    fn what_another_had_is_looked_at_when_its_lease_is_over_and_later_when_nobody_waits() {
        let at = Duration::from_secs;
        let mut again = Again::default();
        again.add_begun(at(100), Change::entry(RelPath::root()));
        assert!(again.waits_since(at(100)) && !again.waits_since(at(99)));
        assert_eq!((again.next(), again.take(at(115))), (Some(at(116)), None));
        assert!(
            again
                .take(at(116))
                .is_some_and(|(since, _)| since == at(100))
        );
        assert!(!again.waits_since(at(1000)), "nobody waits for the others");
        assert_eq!(again.take(at(129)), None);
        assert!(
            again
                .take(at(130))
                .is_some_and(|(since, _)| since == at(130))
        );
        assert_eq!(again.next(), Some(at(220)));
    }
}
