//! What is lost when a side is given up: what the state of the mirror says has not come to the
//! replica, and what the other tree has that is newer than both were known to be equal.

use crate::clock::by_clock;
use crate::memory::{SNAPSHOTS, snapshot_read};
use driftless_model::{Problem, RelPath, Stamp};
use driftless_state::StateError;
use driftless_state::mirror::{MirrorView, RoleRow};
use std::collections::BTreeMap;
use std::time::Duration;

/// Paths that are told one by one.
pub const PATHS_TOLD_MAX: usize = 100;

/// What the replica lacks, as far as the mirror knew when it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loss {
    /// What the replica is so far.
    pub role: RoleRow,
    /// The replica that the mirror has filled, by its mark.
    pub replica: Option<u128>,
    /// Every change of the source until then is on the replica; `None` if no such moment is known.
    pub equal_until: Option<Duration>,
    /// Paths that have changed on the source and are not on the replica.
    pub left: Vec<RelPath>,
    /// Paths that could not be made equal.
    pub problems: Vec<Problem>,
    /// The newest snapshot that both have, and when it was made.
    pub common: Option<(String, Duration)>,
    /// The snapshot of the source that was read last. If the replica has one of its name, it is
    /// equal to it, though the mirror may have been cut off before it could note that.
    pub read: Option<String>,
    /// All snapshots that both have had, by their names on the replica, and that, and when they
    /// were made.
    pub shared: BTreeMap<String, Duration>,
}

impl Loss {
    /// What a state says.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(state: &MirrorView) -> Result<Loss, StateError> {
        let job = state.job()?;
        let (left, problems) = (state.dirty()?, state.problems()?);
        let shared = state.common()?;
        let newest = shared.iter().find(|row| row.is_newest).cloned();
        let shared = shared.into_iter().map(|row| (row.replica, row.made));
        let read = snapshot_read(state.cursor(SNAPSHOTS)?);
        let shared: BTreeMap<String, Duration> = read.iter().cloned().chain(shared).collect();
        let common = newest.filter(|row| !row.replica.is_empty());
        Ok(Loss {
            role: job.role,
            replica: job.mark,
            shared,
            read: read.map(|(name, _)| name),
            // The clock was ahead, and no time of a file says what was changed since.
            equal_until: job.equal_until.filter(|until| *until <= by_clock()),
            left: left.into_iter().map(|row| row.path).collect(),
            problems: problems.into_iter().map(|row| row.problem).collect(),
            common: common.map(|row| (row.replica, row.made)),
        })
    }
}

/// An entry that would be overwritten or removed though it may be newer than what replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Where.
    pub path: RelPath,
    /// Nothing takes its place.
    pub is_removed: bool,
}

/// Whether an entry was changed after both trees were known to be equal. Where no such moment is
/// known, nobody can say that it was not.
pub(super) fn is_newer(changed: Stamp, equal_until: Option<Duration>) -> bool {
    equal_until.is_none_or(|until| {
        let seconds = i64::try_from(until.as_secs()).unwrap_or(i64::MAX);
        (changed.sec, changed.nsec) > (seconds, until.subsec_nanos())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_after_both_were_equal_is_newer() {
        let at = |sec, nsec| Stamp { sec, nsec };
        let until = Some(Duration::new(10, 5));
        for (changed, expected) in [
            (at(10, 5), false),
            (at(10, 6), true),
            (at(9, 999_999_999), false),
            (at(11, 0), true),
            (at(-1, 0), false),
        ] {
            assert_eq!(is_newer(changed, until), expected, "{changed:?}");
            assert!(is_newer(changed, None));
        }
    }
}
