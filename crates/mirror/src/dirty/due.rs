//! When the paths that are left are to be looked at, by the lane that looks at them: a lane that has
//! nothing to do finds that out at once, however much the others have.

use super::{Dirty, Lane};
use driftless_model::RelPath;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

/// Moments and paths, the earliest first, of each lane.
#[derive(Debug, Default)]
pub(super) struct Due {
    short: BTreeSet<(Duration, RelPath)>,
    long: BTreeSet<(Duration, RelPath)>,
    walk: BTreeSet<(Duration, RelPath)>,
}

impl Due {
    /// What a lane is to look at, the earliest first.
    pub(super) fn of(&self, lane: Lane) -> impl Iterator<Item = &(Duration, RelPath)> {
        match lane {
            Lane::Short => &self.short,
            Lane::Long => &self.long,
            Lane::Walk => &self.walk,
        }
        .iter()
    }

    /// A path is to be looked at.
    pub(super) fn insert(&mut self, path: &RelPath, dirty: &Dirty) {
        let lane = self.lane(dirty.lane(path));
        lane.insert((dirty.due, path.clone()));
    }

    /// It is not, or not as it was known so far.
    pub(super) fn remove(&mut self, path: &RelPath, dirty: &Dirty) {
        let lane = self.lane(dirty.lane(path));
        lane.remove(&(dirty.due, path.clone()));
    }

    /// What is to be looked at later than `now`.
    pub(super) fn after(&self, now: Duration) -> Vec<RelPath> {
        // Later than any path at that very moment.
        let next = now.saturating_add(Duration::from_nanos(1));
        let later = (Bound::Included((next, RelPath::root())), Bound::Unbounded);
        let lanes = [&self.short, &self.long, &self.walk];
        let found = lanes.into_iter().flat_map(|lane| lane.range(later.clone()));
        found.map(|(_, path)| path.clone()).collect()
    }

    fn lane(&mut self, lane: Lane) -> &mut BTreeSet<(Duration, RelPath)> {
        match lane {
            Lane::Short => &mut self.short,
            Lane::Long => &mut self.long,
            Lane::Walk => &mut self.walk,
        }
    }
}
