//! Changes that are reported below a directory while it is compared with all below it.
//!
//! The comparison may have read such a name before the change and may write it afterwards, so each
//! is compared once more when the comparison ends. A rename concerns its two names, and of a
//! directory all below them: it never repeats the comparison itself, or a program that renames
//! files all the time would have one comparison follow another without an end.

use super::effort::Effort;
use super::{Dirty, Move, below_of};
use driftless_model::{RelPath, Scope};
use std::collections::BTreeMap;
use std::time::Duration;

/// Names that are kept apart for one comparison; beyond, their directories stand for them.
const TOUCHED_MAX: usize = 100_000;

/// The names below one comparison that changed since it began.
#[derive(Debug, Default)]
pub(super) struct Touched {
    names: BTreeMap<RelPath, Touch>,
    /// Some of them are outside of the compared directory: a rename took something there.
    has_outside: bool,
}

/// One changed name.
#[derive(Debug, Clone, Copy)]
struct Touch {
    since: Duration,
    scope: Scope,
    /// A rename began or ended here.
    is_end: bool,
    /// Another entry of the same size and mtime may have stood here meanwhile.
    is_doubtful: bool,
    /// The comparison may have read the earlier file here, and may write its copy over that of the
    /// later file. Known while names are kept apart.
    is_replaced: bool,
}

impl Touch {
    fn of(since: Duration, scope: Scope) -> Touch {
        Touch {
            since,
            scope,
            is_end: false,
            is_doubtful: false,
            is_replaced: false,
        }
    }

    fn is_entry(&self) -> bool {
        self.scope == Scope::Entry
    }

    fn join(&mut self, other: &Touch) {
        self.since = self.since.min(other.since);
        self.scope = self.scope.max(other.scope);
        self.is_end |= other.is_end;
        self.is_doubtful |= other.is_doubtful;
        self.is_replaced |= other.is_replaced;
    }
}

impl Touched {
    /// Records a change of `path`, below the compared directory `at` or where a rename took it.
    pub(super) fn changed(&mut self, at: &RelPath, path: &RelPath, change: (Duration, bool)) {
        let (now, is_written) = change;
        let is_kept_apart = |dir: &RelPath| self.names.get(dir).is_none_or(Touch::is_entry);
        let is_news = is_written && path.above().next().as_ref().is_none_or(is_kept_apart);
        let is_replaced = is_news && !self.names.get(path).is_some_and(|known| known.is_replaced);
        if is_replaced || !self.covers(path) {
            let touch = Touch {
                is_replaced,
                ..Touch::of(now, Scope::Entry)
            };
            self.put(at, path.clone(), touch);
        }
    }

    /// Whether a rename takes something to or from the compared directory `at`, or takes along
    /// what an earlier one took from there.
    pub(super) fn concerns(&self, at: &RelPath, renamed: &Move) -> bool {
        let Move { from, to, .. } = renamed;
        from.is_within(at) || to.is_within(at) || self.has_outside && self.has_near(from)
    }

    /// Records both names of a rename, and the new places of the names that it takes along.
    pub(super) fn renamed(&mut self, at: &RelPath, renamed: &Move, effort: &mut Effort) {
        let Move {
            from,
            to,
            since,
            is_dir,
        } = renamed;
        let is_inside = [from, to].iter().all(|path| path.is_within(at));
        if is_inside && self.is_repeated(at) {
            return;
        }
        let scope = match is_dir {
            true => Scope::Subtree,
            false => Scope::Entry,
        };
        let along = below_of(&self.names, from).take(effort.left() + 1);
        let along: Vec<(RelPath, Touch)> = along
            .filter(|(path, touch)| touch.is_end && *path != from)
            .map(|(path, touch)| (path.rebased(from, to), *touch))
            .collect();
        let is_followed = effort.spend(along.len());
        let was_end = |path: &RelPath| self.names.get(path).is_some_and(|known| known.is_end);
        let [was_from, was_to] = [was_end(from), was_end(to)];
        let ends = [
            // A directory that comes to the old name may be taken for the one that left.
            (from, was_from || *is_dir, false),
            (to, was_to || self.doubts(from) || !is_followed, !is_dir),
        ];
        for (path, is_doubtful, is_replaced) in ends {
            let touch = Touch {
                is_end: true,
                is_doubtful,
                is_replaced,
                ..Touch::of(*since, scope)
            };
            self.put(at, path.clone(), touch);
        }
        for (path, touch) in along.into_iter().filter(|_| is_followed) {
            self.put(at, path, touch);
        }
    }

    /// Whether a change of `path` was recorded, by itself or with all around it.
    pub(super) fn covers(&self, path: &RelPath) -> bool {
        let dir = path.above().next();
        let by_name = dir.and_then(|dir| self.names.get(&dir));
        self.names.contains_key(path)
            || by_name.is_some_and(|touch| touch.scope > Scope::Entry)
            || self.above(path).next().is_some()
    }

    /// Returns what to compare when the comparison `done` has ended.
    pub(super) fn again(
        self,
        done: Option<&Dirty>,
        now: Duration,
    ) -> impl Iterator<Item = (RelPath, Dirty)> {
        let was_doubtful = done.is_some_and(|done| done.is_doubtful);
        self.names.into_iter().map(move |(path, touch)| {
            let is_doubtful =
                touch.is_doubtful || touch.is_replaced || touch.is_end && was_doubtful;
            let dirty = Dirty {
                is_doubtful: is_doubtful && !path.is_root(),
                ..Dirty::new(touch.scope, touch.since, now)
            };
            (path, dirty)
        })
    }

    fn put(&mut self, at: &RelPath, path: RelPath, touch: Touch) {
        self.has_outside |= !path.is_within(at);
        self.names
            .entry(path)
            .and_modify(|known| known.join(&touch))
            .or_insert(touch);
        if self.names.len() > TOUCHED_MAX {
            self.fold(at);
        }
    }

    /// Replaces single names by their directories, and all by one more comparison if that does not
    /// help.
    fn fold(&mut self, at: &RelPath) {
        let is_single =
            |(_, touch): &(RelPath, Touch)| touch.scope == Scope::Entry && !touch.is_doubtful;
        let names = std::mem::take(&mut self.names).into_iter();
        let (single, kept): (Vec<_>, Vec<_>) = names.partition(is_single);
        self.names.extend(kept);
        for (path, touch) in single {
            let dir = path.above().next().unwrap_or_default();
            let names = Touch::of(touch.since, Scope::Names);
            let known = self.names.entry(dir).or_insert(names);
            known.join(&names);
        }
        if self.names.len() > TOUCHED_MAX / 2 {
            let since = self.names.values().map(|touch| touch.since).min();
            let whole = match self.has_outside {
                true => RelPath::root(),
                false => at.clone(),
            };
            let touch = Touch::of(since.unwrap_or_default(), Scope::Subtree);
            self.names = BTreeMap::from([(whole, touch)]);
        }
    }

    /// Whether the comparison is repeated, since too many names changed.
    fn is_repeated(&self, at: &RelPath) -> bool {
        let whole = [at.clone(), RelPath::root()].map(|path| self.names.get(&path).copied());
        let mut whole = whole.into_iter().flatten();
        whole.any(|touch| touch.scope == Scope::Subtree)
    }

    /// Whether what stands at `path` may have the content of another entry.
    fn doubts(&self, path: &RelPath) -> bool {
        let at = self.names.get(path).into_iter();
        at.chain(self.above(path)).any(|touch| touch.is_doubtful)
    }

    fn has_near(&self, path: &RelPath) -> bool {
        below_of(&self.names, path).next().is_some() || self.above(path).next().is_some()
    }

    /// The directories above `path` that are compared with all below them.
    fn above(&self, path: &RelPath) -> impl Iterator<Item = &Touch> {
        let known = path.above().filter_map(|dir| self.names.get(&dir));
        known.filter(|touch| touch.scope == Scope::Subtree)
    }
}
