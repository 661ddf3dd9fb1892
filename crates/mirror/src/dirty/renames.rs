//! What was told a moment ago, and what was renamed since.
//!
//! A detector that is told of directories by handles (fanotify(7)) looks up where they are when it
//! reads an event, so the path of an event may be newer than the renames that were told by then: it
//! names what stands there on the replica only when those that follow are done. What is done at
//! that path meanwhile is done to another directory, which some of these renames take away.

use super::effort::Effort;
use super::{Dirty, Move, Tops, below_of};
use driftless_model::{RelPath, Scope};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Changes that are told apart; of more, the whole tree is in question.
const TOLD_MAX: usize = super::DIRTY_PATHS_MAX;
/// Places of one path that are told apart; of more, the whole tree is in question.
const PLACES_MAX: usize = 1000;
/// Names that are told apart of renames that took too long to follow one by one; of more, the whole
/// tree is in question.
const TOPS_MAX: usize = 100;
/// With more renames, each of their names is taken to be where any of them may lead.
const FOLLOWED_MAX: usize = 300;

/// Since everything was known to have been heard of.
#[derive(Debug, Default)]
pub(super) struct Renames {
    changes: BTreeMap<RelPath, Told>,
    /// What was renamed, in the order in which that was told.
    renamed: Vec<Move>,
    /// Which of them were at a path before.
    by_from: BTreeMap<RelPath, Vec<usize>>,
    /// All their names.
    tops: Tops,
}

/// A change that was told.
#[derive(Debug, Clone)]
struct Told {
    /// How many renames had been told by then.
    renames: usize,
    /// As it became dirty.
    dirty: Dirty,
    /// When it was told last.
    last: Duration,
}

impl Renames {
    /// A change was told.
    pub(super) fn told(&mut self, path: &RelPath, dirty: &Dirty) {
        let told = Told {
            renames: self.renamed.len(),
            dirty: dirty.clone(),
            last: dirty.since,
        };
        if let Some(known) = self.changes.get_mut(path) {
            known.dirty.join(dirty);
            known.last = told.last;
        } else if self.changes.len() < TOLD_MAX {
            self.changes.insert(path.clone(), told);
        } else {
            let whole = Dirty::new(Scope::Subtree, dirty.since, dirty.since);
            self.changes = BTreeMap::from([(
                RelPath::root(),
                Told {
                    dirty: whole,
                    ..told
                },
            )]);
        }
    }

    /// Whether nothing was told.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.renamed.is_empty()
    }

    /// An entry was renamed. Returns what was told too early of the directory that is at its new
    /// place by now: wherever that is to be looked at.
    pub(super) fn renamed(
        &mut self,
        renamed: &Move,
        effort: &mut Effort,
    ) -> BTreeMap<RelPath, Dirty> {
        let early = below_of(&self.changes, &renamed.to).filter(|_| renamed.is_dir);
        let early = early.take(effort.left() + 1);
        let early = early.map(|(path, told)| (path.clone(), told.clone()));
        let early: Vec<(RelPath, Told)> = early.collect();
        for end in [&renamed.from, &renamed.to] {
            self.told(end, &renamed.end());
        }
        let from = self.by_from.entry(renamed.from.clone());
        from.or_default().push(self.renamed.len());
        self.renamed.push(renamed.clone());
        self.tops.insert_both(renamed);
        match effort.spend(early.len()) {
            true => self.places_of(early, effort),
            false => None,
        }
        .unwrap_or_else(|| self.any_place(renamed))
    }

    /// Where what was told too early is to be looked at; nothing if that takes too long to find.
    fn places_of(
        &self,
        early: Vec<(RelPath, Told)>,
        effort: &mut Effort,
    ) -> Option<BTreeMap<RelPath, Dirty>> {
        let mut places = BTreeMap::new();
        for (path, told) in early {
            for place in self.places(&path, &told, effort)? {
                let dirty = doubtful(&place, &path, &told.dirty);
                let known = places.entry(place).or_insert_with(|| dirty.clone());
                known.join(&dirty);
            }
        }
        Some(places)
    }

    /// Wherever what stands at the new place of a rename may have been taken, with all below.
    fn any_place(&self, renamed: &Move) -> BTreeMap<RelPath, Dirty> {
        let mut tops = Tops::default();
        if self.renamed.len() > FOLLOWED_MAX {
            tops = self.tops.clone();
        } else {
            tops.insert(&renamed.to);
            self.renamed.iter().for_each(|one| tops.follow(one));
        }
        let first = self.renamed.first().unwrap_or(renamed);
        let whole = Dirty {
            is_doubtful: true,
            ..Dirty::new(Scope::Subtree, first.since, renamed.since)
        };
        let places = tops.at_most(TOPS_MAX).into_iter();
        places
            .map(|place| (place.clone(), doubtful(&place, &renamed.to, &whole)))
            .collect()
    }

    /// What was told by then was told in time.
    pub(super) fn forget_until(&mut self, moment: Duration) {
        self.changes.retain(|_, told| told.last > moment);
        let is_old = |one: &&Move| one.since <= moment;
        let old = self.renamed.iter().take_while(is_old).count();
        if old == 0 {
            return;
        }
        self.renamed.drain(..old);
        self.by_from.clear();
        self.tops = Tops::of(self.renamed.iter());
        for (number, one) in self.renamed.iter().enumerate() {
            let from = self.by_from.entry(one.from.clone());
            from.or_default().push(number);
        }
        for told in self.changes.values_mut() {
            told.renames = told.renames.saturating_sub(old);
        }
    }

    /// Where what was done at `path` has been taken since, with `path` itself; nothing if that takes
    /// too long to find.
    fn places(
        &self,
        path: &RelPath,
        told: &Told,
        effort: &mut Effort,
    ) -> Option<BTreeSet<RelPath>> {
        let mut places = BTreeSet::from([path.clone()]);
        let mut last = vec![(path.clone(), told.renames)];
        while let Some((place, first)) = last.pop() {
            for number in self.taking(&place, told.dirty.scope, first) {
                let one = &self.renamed[number];
                let there = match place.is_within(&one.from) {
                    true => place.rebased(&one.from, &one.to),
                    false => one.to.clone(),
                };
                if !effort.spend(1) {
                    return None;
                }
                if places.insert(there.clone()) {
                    last.push((there, number + 1));
                }
            }
            if places.len() > PLACES_MAX {
                return None;
            }
        }
        Some(places)
    }

    /// Which renames, from the one of this number on, have taken away what is at `place`, or, with
    /// all below it, something of it.
    fn taking<'a>(
        &'a self,
        place: &'a RelPath,
        scope: Scope,
        first: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let here = std::iter::once(place.clone()).chain(place.above());
        let above = here.filter_map(|dir| self.by_from.get(&dir));
        let below = below_of(&self.by_from, place).filter(move |_| scope > Scope::Entry);
        let numbers = above.chain(below.map(|(_, numbers)| numbers));
        // They ascend.
        numbers.flat_map(move |numbers| {
            let later = numbers.partition_point(|number| *number < first);
            numbers[later..].iter().copied()
        })
    }
}

/// How a place is to be looked at of what was told of `path`.
fn doubtful(place: &RelPath, path: &RelPath, dirty: &Dirty) -> Dirty {
    if place.is_root() && !path.is_root() {
        return Dirty::new(Scope::Subtree, dirty.since, dirty.due);
    }
    Dirty {
        is_doubtful: !place.is_root(),
        ..dirty.clone()
    }
}
