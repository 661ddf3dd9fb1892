//! What somebody else has changed on the replica: found by a walk, put right by it, and told.
//!
//! A walk finds what differs and nobody has told of. If the source's entry was not changed since
//! both trees were equal, the replica's was. Where a name came or went, the directories above must
//! not have been changed either: one that was renamed takes old entries to new names.

use crate::gathered::Made;
use crate::worded::shown;
use driftless_engine::Trees;
use driftless_model::{Action, RelPath, Stamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Paths that are known one by one: the newest.
const PATHS_MAX: usize = 1000;
/// Entries of one walk whose times are looked at: with more, a replica is new rather than changed.
const LOOKED_AT_MAX: usize = 10_000;
/// Paths of one walk that go into the log.
const LOGGED_MAX: usize = 20;
/// The clocks of a file system and of this process may be so far apart.
const MARGIN: Duration = Duration::from_secs(2);

/// What somebody else has changed on the replica.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// How many entries.
    pub count: u64,
    /// The newest of them.
    pub paths: Vec<RelPath>,
}

impl Foreign {
    /// A walk has found these.
    pub fn add(&mut self, found: &BTreeSet<RelPath>) {
        for path in found.iter().take(LOGGED_MAX) {
            let path = shown(path);
            tracing::warn!("\"{path}\": another program changed it on the replica: reverted");
        }
        if found.len() > LOGGED_MAX {
            let more = found.len() - LOGGED_MAX;
            tracing::warn!("other programs changed {more} more on the replica: reverted");
        }
        self.count += found.len() as u64;
        self.paths.extend(found.iter().take(PATHS_MAX).cloned());
        let beyond = self.paths.len().saturating_sub(PATHS_MAX);
        self.paths.drain(..beyond);
    }
}

/// Which of the entries that were made equal somebody else had changed.
pub fn foreign(trees: &Trees, changed: &[Made], equal_at: Duration) -> Vec<RelPath> {
    let is_old = |path: &RelPath| {
        let source = trees.changed_on_source(path);
        source.is_some_and(|changed| is_before(changed.at, equal_at.saturating_sub(MARGIN)))
    };
    let is_foreign = |made: &&Made| match made.action {
        Action::Create | Action::Delete | Action::Replace => {
            levels(&made.path).all(|at| is_old(&at))
        }
        Action::Content | Action::Meta | Action::Link => is_old(&made.path),
    };
    let found = changed.iter().take(LOOKED_AT_MAX).filter(is_foreign);
    found.map(|made| made.path.clone()).collect()
}

/// A path, and all above it.
fn levels(path: &RelPath) -> impl Iterator<Item = RelPath> {
    std::iter::successors(Some(path.clone()), |at| Some(at.split_last()?.0))
}

fn is_before(changed: Stamp, moment: Duration) -> bool {
    let seconds = i64::try_from(moment.as_secs()).unwrap_or(i64::MAX);
    (changed.sec, changed.nsec) < (seconds, moment.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_newest_are_known() {
        let path = |number: usize| RelPath::parse(format!("{number:06}").as_bytes()).unwrap();
        let mut foreign = Foreign::default();
        foreign.add(&(0..1500).map(path).collect());
        foreign.add(&(2000..2010).map(path).collect());
        assert_eq!(foreign.count, 1510);
        assert_eq!(foreign.paths.len(), PATHS_MAX);
        assert_eq!(foreign.paths.last(), Some(&path(2009)));
    }

    #[test]
    fn above_a_path_are_all_its_directories_and_the_root() {
        let path = RelPath::parse(b"a/b/c").unwrap();
        let all: Vec<String> = levels(&path).map(|at| at.to_string()).collect();
        assert_eq!(all.len(), 4, "{all:?}");
    }
}
