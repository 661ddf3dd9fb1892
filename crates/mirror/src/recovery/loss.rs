//! What is lost when a side is given up: what the state of the mirror says has not come to the
//! replica, and what the other tree has that is newer than both were known to be equal.

use crate::clock::is_past;
use crate::memory::{ON_REPLICA, SNAPSHOTS, identities_of, snapshot_read};
use crate::{last_run, mounted};
use driftless_model::{Problem, RelPath, Scope, Stamp};
use driftless_state::StateError;
use driftless_state::mirror::{COMPLETE, MirrorView, RUNS_KEPT_MAX, RoleRow};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Paths that are told one by one.
pub const PATHS_TOLD_MAX: usize = 100;

/// The longest that the clock of a file system of this host is behind: a tick of the kernel.
const TICK: Duration = Duration::from_millis(10);
/// The same of a file system that keeps whole seconds, or every other one, as FAT does.
const WHOLE_SECONDS: Duration = Duration::from_secs(2);

/// What the replica lacks, as far as the mirror knew when it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loss {
    /// What the replica is so far.
    pub role: RoleRow,
    /// The replica that the mirror has filled, by its mark.
    pub replica: Option<u128>,
    /// Every change of the source until then is on the replica; `None` if no such moment is known.
    pub equal_until: Option<Duration>,
    /// A comparison of all has come to its end, or both trees were equal at a moment. Until then,
    /// the replica may lack any part of the source.
    pub has_been_equal: bool,
    /// Paths that have changed on the source and are not on the replica.
    pub left: Vec<RelPath>,
    /// Those of these paths that stand for an unknown number of entries below them.
    pub whole: BTreeMap<RelPath, Scope>,
    /// Paths that could not be made equal.
    pub problems: Vec<Problem>,
    /// Snapshots that both have, by their names on the replica, the newest first.
    pub common: Vec<String>,
    /// What told those of the replica from others of their names when they were made.
    pub identities: BTreeMap<String, String>,
    /// The snapshot of the source that was read last. If the replica has one of its name, it is
    /// equal to it, though the mirror may have been cut off before it could note that.
    pub read: Option<String>,
    /// All snapshots that both have had, by their names on the replica, and that, and when they
    /// were made, where that is known.
    pub shared: BTreeMap<String, Duration>,
    /// The run that has changed the replica last, as its mark says unless it is an older copy.
    pub run: Option<u128>,
    /// Places below the replica on which something was mounted when its mirror ran. The replica has
    /// everything only with that.
    pub mounts: BTreeSet<RelPath>,
}

impl Loss {
    /// What a state says.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(state: &MirrorView) -> Result<Loss, StateError> {
        let job = state.job()?;
        let (left, problems) = (state.dirty()?, state.problems()?);
        let mut rows = state.common()?;
        rows.retain(|row| !row.replica.is_empty());
        // The moment of a snapshot says little where the clock was ahead; which was the last is known.
        rows.sort_by_key(|row| Reverse((row.is_newest, row.made)));
        let read = snapshot_read(state.cursor(SNAPSHOTS)?);
        let shared = rows.iter().map(|row| (row.replica.clone(), row.made));
        let shared = read.iter().cloned().chain(shared);
        let shared = shared.filter(|(_, made)| is_past(*made)).collect();
        let whole = left.iter().filter(|row| row.scope != Scope::Entry);
        let whole = whole.map(|row| (row.path.clone(), row.scope)).collect();
        let has_newest = rows.first().is_some_and(|row| row.is_newest);
        let common = rows.into_iter().filter(|_| has_newest);
        Ok(Loss {
            role: job.role,
            replica: job.mark,
            shared,
            read: read.map(|(name, _)| name),
            has_been_equal: job.equal_until.is_some() || has_compared(state)?,
            equal_until: job.equal_until.filter(|until| is_past(*until)),
            whole,
            left: left.into_iter().map(|row| row.path).collect(),
            problems: problems.into_iter().map(|row| row.problem).collect(),
            common: common.map(|row| row.replica).collect(),
            identities: identities_of(state.cursor(ON_REPLICA)?),
            run: last_run::named(state.cursor(last_run::CURSOR)?),
            mounts: mounted::places(state.cursor(mounted::ON_REPLICA)?),
        })
    }
}

impl Loss {
    /// Returns whether [`left`](Loss::left) names everything that the mirror knows to be missing.
    pub fn is_counted(&self) -> bool {
        self.has_been_equal && self.whole.is_empty()
    }

    /// Returns what tells entries of the source that the replica has never had.
    pub fn known(&self) -> Known {
        let problems = self.problems.iter().map(|problem| &problem.path);
        let entries = self.left.iter().chain(problems).cloned();
        // Where all may differ, times tell what does.
        let is_part = |path: &&RelPath| !path.is_root();
        let subtrees = self
            .whole
            .iter()
            .filter(|(_, scope)| **scope == Scope::Subtree);
        Known {
            equal_until: self.equal_until,
            apart: Duration::ZERO,
            entries: entries.collect(),
            subtrees: subtrees
                .map(|(path, _)| path)
                .filter(is_part)
                .cloned()
                .collect(),
        }
    }
}

/// What is known of two trees that were equal: an entry that one of them loses is told if it may be
/// newer than that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Both trees were equal then; `None` if no such moment is known.
    equal_until: Option<Duration>,
    /// Entries that are known to have differed all the same.
    entries: BTreeSet<RelPath>,
    /// Paths below which any entry may have differed.
    subtrees: BTreeSet<RelPath>,
    /// The longest that the clocks of both trees and of this host are apart.
    apart: Duration,
}

impl Known {
    /// Returns what is known of trees that were equal until a moment.
    pub fn until(equal_until: Option<Duration>) -> Known {
        Known {
            equal_until,
            ..Known::default()
        }
    }

    /// Returns the same of trees whose clocks may be so far apart.
    pub(super) fn with_clocks_apart(&self, apart: Duration) -> Known {
        Known {
            apart,
            ..self.clone()
        }
    }

    /// Returns whether the content of two files that were changed last then may differ, whatever size
    /// and modification time say: one was changed after both were known to be equal.
    pub(super) fn may_differ(&self, changed: [Stamp; 2]) -> bool {
        let mut changed = changed.into_iter();
        changed.any(|at| is_newer(at, self.equal_until, self.apart))
    }

    /// Returns whether an entry that was changed last at `changed` may be newer than what replaces
    /// it.
    pub(super) fn may_lose(&self, path: &RelPath, changed: Stamp) -> bool {
        let is_below = || path.above().any(|dir| self.subtrees.contains(&dir));
        is_newer(changed, self.equal_until, self.apart)
            || self.entries.contains(path)
            || self.subtrees.contains(path)
            || is_below()
    }
}

/// Returns whether a comparison of all, or a cycle, has come to its end.
fn has_compared(state: &MirrorView) -> Result<bool, StateError> {
    let runs = state.runs(RUNS_KEPT_MAX)?;
    let is_complete = |end: &str| end == COMPLETE;
    Ok(runs
        .iter()
        .any(|run| run.end.as_deref().is_some_and(is_complete)))
}

/// An entry that would be overwritten or removed though it may be newer than what replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Where.
    pub path: RelPath,
    /// Nothing takes its place.
    pub is_removed: bool,
}

/// Returns whether an entry may have been changed after both trees were known to be equal. A file
/// system stamps a change with a clock that is behind by up to a tick, and some cut the fraction of a
/// second off; that of another host may be `apart` from the one of this host. Where no such moment is
/// known, every entry may.
fn is_newer(changed: Stamp, equal_until: Option<Duration>, apart: Duration) -> bool {
    equal_until.is_none_or(|until| {
        let behind = match changed.nsec {
            0 => WHOLE_SECONDS,
            _ => TICK,
        };
        let until = until.saturating_sub(behind.max(apart));
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
        let until = Some(Duration::new(10, 500_000_000));
        for (changed, expected) in [
            (at(10, 490_000_000), false),
            (at(10, 490_000_001), true),
            (at(10, 500_000_001), true),
            (at(9, 999_999_999), false),
            (at(8, 0), false),
            (at(9, 0), true),
            (at(11, 0), true),
            (at(-1, 0), false),
        ] {
            let together = Duration::ZERO;
            assert_eq!(is_newer(changed, until, together), expected, "{changed:?}");
            assert!(is_newer(changed, None, together));
        }
        let apart = Duration::from_secs(5);
        for (changed, expected) in [
            (at(5, 500_000_000), false),
            (at(5, 500_000_001), true),
            (at(6, 0), true),
            (at(5, 0), false),
        ] {
            assert_eq!(is_newer(changed, until, apart), expected, "{changed:?}");
        }
    }

    #[test]
    fn what_was_left_is_lost_however_old() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let loss = Loss {
            equal_until: Some(Duration::from_secs(100)),
            left: vec![path("left"), path("moved"), path("dir"), RelPath::root()],
            whole: BTreeMap::from([
                (path("moved"), Scope::Subtree),
                (path("dir"), Scope::Names),
                (RelPath::root(), Scope::Subtree),
            ]),
            ..Loss::default()
        };
        let old = Stamp { sec: 5, nsec: 1 };
        let is_lost = |name: &str| loss.known().may_lose(&path(name), old);
        for (name, expected) in [
            ("left", true),
            ("moved", true),
            ("moved/a/b", true),
            ("dir", true),
            ("dir/file", false),
            ("other", false),
        ] {
            assert_eq!(is_lost(name), expected, "{name}");
        }
    }
}
