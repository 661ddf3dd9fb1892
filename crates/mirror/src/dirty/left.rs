//! The paths that are left: how a path is added to them, what one with all below it stands for, and
//! how their number is bounded.

use super::{DIRTY_PATHS_MAX, Dirty, DirtyPaths, Word, below_of};
use driftless_model::{RelPath, Scope};
use std::collections::BTreeMap;
use std::time::Duration;

/// So many dirty names of one directory make the directory dirty with all below it, when there are
/// too many paths.
const NAMES_TO_FOLD: usize = 1000;
/// A file that somebody keeps writing to is copied after so many times the time to settle.
const SETTLE_AT_MOST: u32 = 10;

impl DirtyPaths {
    /// Adds a path to those that are left.
    pub(super) fn put(&mut self, path: RelPath, mut dirty: Dirty, word: Word) {
        if let Some(whole) = self.covering(&path, &dirty, word) {
            whole.since = whole.since.min(dirty.since);
            return;
        }
        // What came below it since it is left as a whole is looked at earlier, or more closely.
        let is_new = dirty.is_whole();
        let known = self.left.remove(&path);
        let takes_in = is_new || !known.as_ref().is_some_and(Dirty::is_whole);
        if let Some(known) = known {
            self.due.remove(&path, &known);
            dirty.due = match word {
                // A path that fails all the time is not tried at each change of it.
                Word::Open | Word::Changed if known.attempts > 1 => known.due,
                Word::Open => dirty.due.min(known.since + self.settle * SETTLE_AT_MOST),
                Word::Changed | Word::Again => dirty.due.min(known.due),
                Word::Paced => dirty.due,
            };
            dirty.join(&known);
        }
        if dirty.is_whole() && takes_in {
            self.take_in(&path, &mut dirty);
        }
        self.due.insert(&path, &dirty);
        self.left.insert(path, dirty);
    }

    /// What is left below `path` is done with it, but for what has failed, which has a time of its
    /// own, for what is looked at more closely, for what is short, which need not wait so long, and
    /// for what is worked on still: it is looked at once that is over.
    fn take_in(&mut self, path: &RelPath, dirty: &mut Dirty) {
        for (below, known) in self.cut_below(path) {
            let is_closer = known.is_doubtful && !dirty.is_doubtful;
            let is_own = known.attempts > 0 || is_closer || self.work.contains_key(&below);
            if is_own || (dirty.is_long && !known.is_long) {
                self.due.insert(&below, &known);
                self.left.insert(below, known);
            } else {
                dirty.since = dirty.since.min(known.since);
            }
        }
    }

    /// What is dirty with all below it, includes `path`, and is looked at no later and as closely.
    fn covering(&mut self, path: &RelPath, dirty: &Dirty, word: Word) -> Option<&mut Dirty> {
        let covers = |whole: &Dirty| {
            whole.is_whole()
                && whole.due <= dirty.due
                && (dirty.is_long || !whole.is_long)
                && dirty.attempts == 0
                && (whole.is_doubtful || !dirty.is_doubtful)
        };
        // These two words may put off what is known of the path itself.
        let is_put_off = matches!(word, Word::Open | Word::Paced);
        let is_as_long = |whole: &Dirty| whole.is_long || !dirty.is_long;
        let known = self.left.get(path).filter(|_| !is_put_off);
        let found = match known.is_some_and(|known| covers(known) && is_as_long(known)) {
            true => path.clone(),
            // What is worked on is looked at once more when that is over, and no earlier.
            false if self.work.contains_key(path) => return None,
            false => path
                .above()
                .find(|above| self.left.get(above).is_some_and(covers))?,
        };
        self.left.get_mut(&found)
    }

    /// Takes away what is left at `path` and below.
    pub(super) fn cut_below(&mut self, path: &RelPath) -> Vec<(RelPath, Dirty)> {
        let names: Vec<RelPath> = below_of(&self.left, path)
            .map(|(name, _)| name.clone())
            .collect();
        names
            .into_iter()
            .map(|name| {
                let dirty = self.left.remove(&name).expect("it was just found");
                self.due.remove(&name, &dirty);
                (name, dirty)
            })
            .collect()
    }

    /// Keeps the number of paths within its bound.
    pub(super) fn fold(&mut self, now: Duration) {
        if self.left.len() <= DIRTY_PATHS_MAX {
            return;
        }
        let mut names: BTreeMap<RelPath, usize> = BTreeMap::new();
        for path in self.left.keys() {
            *names
                .entry(path.above().next().unwrap_or_default())
                .or_default() += 1;
        }
        let full: Vec<RelPath> = names
            .into_iter()
            .filter(|(_, count)| *count >= NAMES_TO_FOLD)
            .map(|(dir, _)| dir)
            .collect();
        for dir in full {
            self.put_whole(dir, now, now);
        }
        if self.left.len() > DIRTY_PATHS_MAX {
            self.put_whole(RelPath::root(), now, now);
        }
    }

    /// All below a directory is left to do, in the place of what is known of it and what was heard
    /// of since a moment.
    pub(super) fn put_whole(&mut self, dir: RelPath, since: Duration, now: Duration) {
        let mut whole = Dirty::new(Scope::Subtree, since, now);
        for (path, dirty) in self.cut_below(&dir) {
            if self.work.contains_key(&path) {
                self.due.insert(&path, &dirty);
                self.left.insert(path, dirty);
                continue;
            }
            whole.since = whole.since.min(dirty.since);
            whole.is_doubtful |= dirty.is_doubtful;
        }
        self.put(dir, whole, Word::Changed);
    }
}
