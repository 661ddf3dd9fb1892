//! What is told of paths that differ between two snapshots.

use driftless_model::{Change, Hint, RelPath};
use std::collections::BTreeMap;

/// Changes, of each path one.
#[derive(Default)]
pub(super) struct Told(BTreeMap<RelPath, Change>);

impl Told {
    /// Of two words about a path the one that reaches further holds, and a hint. Where something
    /// has moved to, that is the hint: who cannot follow it finds something else there.
    pub(super) fn tell(&mut self, change: Change) {
        let known = self.0.entry(change.path.clone());
        let known = known.or_insert_with(|| change.clone());
        known.scope = known.scope.max(change.scope);
        if known.hint.is_none() || matches!(change.hint, Some(Hint::MovedFrom(_))) {
            known.hint = change.hint.or(known.hint.take());
        }
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
