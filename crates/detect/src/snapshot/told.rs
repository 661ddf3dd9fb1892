//! What is told of paths that differ between two snapshots.

use driftless_model::{Change, RelPath};
use std::collections::BTreeMap;

/// Changes, of each path one.
#[derive(Default)]
pub(super) struct Told(BTreeMap<RelPath, Change>);

impl Told {
    /// Of two words about a path the one that reaches further holds, and the first hint.
    pub(super) fn tell(&mut self, change: Change) {
        let known = self.0.entry(change.path.clone());
        let known = known.or_insert_with(|| change.clone());
        known.scope = known.scope.max(change.scope);
        known.hint = known.hint.take().or(change.hint);
    }

    /// All of them, in the order of their paths.
    pub(super) fn into_changes(self) -> Vec<Change> {
        self.0.into_values().collect()
    }
}

/// A change at a place that an entry has left or come to.
pub(super) fn change(path: RelPath, is_dir: bool) -> Change {
    if is_dir {
        Change::subtree(path)
    } else {
        Change::entry(path)
    }
}
