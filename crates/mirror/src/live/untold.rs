//! What a cycle beside live changes has found before any other detector told of it.

use crate::dirty::{DIRTY_PATHS_MAX, reaches};
use driftless_model::{Change, RelPath, Scope};
use std::collections::BTreeMap;

/// What a cycle has found and no other detector had told of, as long as nobody has looked at it.
#[derive(Debug, Default)]
pub(super) struct Untold(BTreeMap<RelPath, Scope>);

impl Untold {
    pub(super) fn found(&mut self, change: &Change) {
        if self.0.len() < DIRTY_PATHS_MAX {
            let scope = self.0.entry(change.path.clone()).or_insert(change.scope);
            *scope = change.scope.max(*scope);
        }
    }

    /// A detector has told of it after all.
    pub(super) fn told(&mut self, path: &RelPath) {
        self.0.remove(path);
    }

    /// Paths were looked at, and of these some were changed; how many of them nobody had told of.
    pub(super) fn looked_at<'a>(
        &mut self,
        paths: impl Iterator<Item = &'a RelPath>,
        changed: &[RelPath],
    ) -> u64 {
        let found: Vec<(RelPath, Scope)> =
            paths.filter_map(|path| self.0.remove_entry(path)).collect();
        let is_found = |at: &&RelPath| {
            let mut found = found.iter();
            found.any(|(path, scope)| reaches((path, *scope), at))
        };
        changed.iter().filter(is_found).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_and_nobody_had_told_of_was_missed() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        let mut untold = Untold::default();
        for change in [
            Change::entry(path("a")),
            Change::entry(path("told")),
            Change::subtree(path("d")),
            Change::names(path("n")),
            Change::entry(path("equal")),
        ] {
            untold.found(&change);
        }
        untold.told(&path("told"));
        let looked_at = ["a", "told", "d", "n", "equal", "other"].map(path);
        let changed = ["a", "told", "d/x/y", "n/x", "n/x/y", "other"].map(path);
        assert_eq!(untold.looked_at(looked_at.iter(), &changed), 3);
        assert_eq!(untold.looked_at(looked_at.iter(), &changed), 0, "once");
    }
}
