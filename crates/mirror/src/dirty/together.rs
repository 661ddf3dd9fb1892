//! Paths that are to be looked at together, such as the names of a file with several: none of them
//! while another is worked on. Each would bring the others again, in turns, without an end.

use driftless_model::RelPath;
use std::collections::{BTreeMap, HashMap};

/// Sets of paths of which some are worked on.
#[derive(Debug, Default)]
pub(super) struct Together {
    /// The last set that a path which is left is of, by its number.
    of: BTreeMap<RelPath, u64>,
    /// How many paths of a set are worked on still.
    busy: HashMap<u64, usize>,
    /// The sets that wait for a path.
    waiting: BTreeMap<RelPath, Vec<u64>>,
    last: u64,
}

impl Together {
    /// These paths are left, all of them; so many as `is_in_work` says are worked on.
    pub(super) fn add<'a>(
        &mut self,
        paths: impl Iterator<Item = &'a RelPath> + Clone,
        is_in_work: impl Fn(&RelPath) -> bool,
    ) {
        self.last += 1;
        let busy = paths.clone().filter(|path| is_in_work(path));
        let mut count = 0;
        for path in busy {
            self.waiting
                .entry(path.clone())
                .or_default()
                .push(self.last);
            count += 1;
        }
        if count > 0 {
            self.busy.insert(self.last, count);
            self.of.extend(paths.map(|path| (path.clone(), self.last)));
        }
    }

    /// Whether nothing that a path belongs to is worked on.
    pub(super) fn is_free(&self, path: &RelPath) -> bool {
        let set = self.of.get(path);
        set.is_none_or(|set| !self.busy.contains_key(set))
    }

    /// A path is left no more.
    pub(super) fn take(&mut self, path: &RelPath) {
        self.of.remove(path);
    }

    /// Work on a path is over.
    pub(super) fn done(&mut self, path: &RelPath) {
        for set in self.waiting.remove(path).unwrap_or_default() {
            let count = self.busy.get_mut(&set).expect("it waits");
            *count -= 1;
            if *count == 0 {
                self.busy.remove(&set);
            }
        }
        if self.busy.is_empty() {
            // Paths may have been left no more without being taken.
            self.of.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Circumstance, Dirty, DirtyPaths, Lane};
    use driftless_model::{Change, RelPath, Scope};
    use std::collections::BTreeMap;
    use std::time::Duration;

    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn names_wait_for_the_one_that_is_worked_on() {
        let names = ["a", "b", "c"].map(|name| RelPath::parse(name.as_bytes()).unwrap());
        let mut dirty = DirtyPaths::new(NOW);
        let all = || names.iter().cloned();
        let entry = || Dirty::new(Scope::Entry, NOW, NOW);
        let together: BTreeMap<RelPath, Dirty> = all().map(|name| (name, entry())).collect();
        let mut works = Vec::new();
        for name in all() {
            dirty.add(NOW, Change::entry(name), Circumstance::default());
            works.push(dirty.take(NOW, Lane::Short, 10));
        }
        for work in works {
            assert!(dirty.take(NOW, Lane::Short, 10).is_empty());
            dirty.done(NOW, work, &BTreeMap::new());
            dirty.add_together(together.clone());
        }
        let taken = dirty.take(NOW, Lane::Short, 10);
        assert_eq!(taken.paths.keys().cloned().collect::<Vec<_>>(), names);
        dirty.done(NOW, taken, &BTreeMap::new());
        assert!(dirty.is_empty());
    }
}
