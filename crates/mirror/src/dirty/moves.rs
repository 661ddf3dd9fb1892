//! Renames among what is left to do: where they take it, and what they put in doubt.

use super::{Dirty, DirtyPaths, Move, Tops, Word, below_of};
use driftless_model::{RelPath, Scope};
use std::time::Duration;

/// With more renames that wait, one of a file is not followed: it is copied, and holds up nothing.
const FILE_MOVES_MAX: usize = 100;
/// Names that renames may put in doubt of what is worked on at a path; with more, all are.
const DOUBTFUL_MAX: usize = 100;
/// Renames that are followed for what is worked on, each for each; with more, anything may be at any
/// name of one.
const FOLLOWED_MAX: usize = 100_000;
/// Names that renames may put in doubt which failed together; with more, all are.
const DOUBTFUL_TOGETHER_MAX: usize = 1000;

/// What became of a directory while it was worked on.
#[derive(Debug, Default)]
pub(super) struct TakenAway {
    /// Where it may be by now.
    places: Vec<RelPath>,
    /// Something else came to its path, whose files may look like those that it has.
    is_doubtful: bool,
}

impl TakenAway {
    /// Whether the directory may stand around `path` by now.
    pub(super) fn is_around(&self, path: &RelPath) -> bool {
        self.places.iter().any(|place| path.is_within(place))
    }

    /// What is to be looked at when the work is done.
    pub(super) fn again(
        &self,
        done: &Dirty,
        due: Duration,
    ) -> impl Iterator<Item = (RelPath, Dirty)> {
        let is_doubtful = self.is_doubtful || done.raced().is_doubtful;
        self.places.iter().map(move |place| {
            let dirty = Dirty {
                is_doubtful: is_doubtful && !place.is_root(),
                ..Dirty::new(Scope::Subtree, done.since, due)
            };
            (place.clone(), dirty)
        })
    }
}

impl DirtyPaths {
    /// An entry was renamed: what is left to do below it is left to do at its new place. So is
    /// what is in work, or was done a moment ago: it may have been looked at after the rename, at
    /// a place where something else stands.
    pub(super) fn add_move(&mut self, renamed: Move) {
        let (from, to, now) = (renamed.from.clone(), renamed.to.clone(), renamed.since);
        self.touch_both(&renamed);
        let whole = self.within_whole(&from);
        self.take_along(&renamed);
        self.look_where_it_was_meant(&renamed);
        // What was to be looked at with all above it is to be looked at where it stands now, too.
        if let Some(is_doubtful) = whole {
            let dirty = Dirty {
                is_doubtful,
                ..renamed.end()
            };
            self.put(to.clone(), dirty, Word::Again);
        }
        let is_followed = renamed.is_dir || self.moves.len() < FILE_MOVES_MAX;
        if is_followed {
            self.moves.push_back(renamed);
        }
        for path in [from, to] {
            let dirty = Dirty {
                // What stands there may look like what stood there.
                is_doubtful: !is_followed,
                ..Dirty::new(Scope::Entry, now, now)
            };
            self.put(path, dirty, Word::Changed);
        }
    }

    /// What is left, in work or was done a moment ago at the old place of a rename and below is left
    /// to do at its new place: one by one, or all below where that would take too long.
    fn take_along(&mut self, renamed: &Move) {
        let Move { from, to, .. } = renamed;
        let maps = [&self.left, &self.work, &self.recent];
        let known = maps.into_iter().flat_map(|map| below_of(map, from));
        let steps = known.take(self.effort.left() + 1).count();
        if !self.effort.spend(steps) {
            let in_work = below_of(&self.work, from).map(|(_, dirty)| dirty.since);
            let since = in_work.min().unwrap_or(renamed.since);
            let left = self.cut_below(from).into_iter();
            let since = left
                .map(|(_, dirty)| dirty.since)
                .fold(since, Duration::min);
            let whole = Dirty {
                is_doubtful: true,
                ..Dirty::new(Scope::Subtree, since, renamed.since)
            };
            self.put(to.clone(), whole, Word::Again);
            return;
        }
        let in_work = below_of(&self.work, from).chain(below_of(&self.recent, from));
        let in_work: Vec<(RelPath, Dirty)> = in_work
            .map(|(path, dirty)| (path.clone(), dirty.raced()))
            .collect();
        for (path, dirty) in self.cut_below(from).into_iter().chain(in_work) {
            let (there, due) = (path.rebased(from, to), renamed.since);
            self.put(there, Dirty { due, ..dirty }, Word::Again);
        }
    }

    /// What was told of the new place too early, is looked at wherever it may have been done.
    fn look_where_it_was_meant(&mut self, renamed: &Move) {
        for (path, dirty) in self.renames.renamed(renamed, &mut self.effort) {
            let due = renamed.since;
            self.put(path, Dirty { due, ..dirty }, Word::Again);
        }
    }

    /// Whether the content of a directory above `path` is in doubt that is left to do, in work or
    /// was done a moment ago, with all below it; none if there is no such directory.
    fn within_whole(&self, path: &RelPath) -> Option<bool> {
        let maps = [&self.left, &self.work, &self.recent];
        let above = path.above();
        let known = above.flat_map(|dir| maps.map(|map| map.get(&dir)));
        let whole = known.flatten().filter(|dirty| dirty.scope > Scope::Entry);
        whole.map(|dirty| dirty.is_doubtful).max()
    }

    /// The renames that wait. What is in work at either end of one, or below it, is looked at once
    /// more: it may have been looked at before the rename, and be published after it. A comparison
    /// of a directory around them is not: it compares again what was renamed when it ends.
    pub(super) fn take_moves(&mut self) -> Vec<Move> {
        let moves: Vec<Move> = self.moves.drain(..).collect();
        self.given_back = 0;
        let tops = Tops::of(moves.iter());
        let is_concerned = |path: &RelPath| match self.whole.contains_key(path) {
            true => tops.has_above(path),
            false => tops.is_near(path),
        };
        let near = self.work.iter().filter(|(path, _)| is_concerned(path));
        let near: Vec<(RelPath, Dirty)> = near
            .map(|(path, dirty)| (path.clone(), dirty.raced()))
            .collect();
        let is_followed = near.len() * moves.len() <= FOLLOWED_MAX;
        for (path, dirty) in near {
            match is_followed {
                true => self.take_away(&path, &moves),
                false => self.take_away_anywhere(&path, &tops),
            }
            self.put(path, dirty, Word::Again);
        }
        self.moving.extend(moves.iter().cloned());
        moves
    }

    /// Notes where renames take what is worked on at `path`. All of the tree is in its place.
    fn take_away(&mut self, path: &RelPath, moves: &[Move]) {
        if path.is_root() {
            return;
        }
        let known = self.taken_away.entry(path.clone()).or_default();
        let mut places = Tops::default();
        known.places.iter().for_each(|place| places.insert(place));
        places.insert(path);
        moves.iter().for_each(|one| places.follow(one));
        known.places = places.at_most(DOUBTFUL_MAX);
        known.is_doubtful |= moves.iter().any(|one| one.to.is_near(path));
    }

    /// Notes that renames may take what is worked on at `path` to any of their names.
    fn take_away_anywhere(&mut self, path: &RelPath, tops: &Tops) {
        if path.is_root() {
            return;
        }
        let known = self.taken_away.entry(path.clone()).or_default();
        let mut places = tops.clone();
        known.places.iter().for_each(|place| places.insert(place));
        places.insert(path);
        known.places = places.at_most(DOUBTFUL_MAX);
        known.is_doubtful = true;
    }

    /// Work on `path` is over: wherever it may have been done is looked at.
    pub(super) fn look_where_it_was_taken(&mut self, now: Duration, path: &RelPath, done: &Dirty) {
        let Some(away) = self.taken_away.remove(path) else {
            return;
        };
        for (place, dirty) in away.again(done, now).filter(|(place, _)| place != path) {
            self.put(place, dirty, Word::Again);
        }
    }

    /// Renames that could not be done as such, in their order: both names of each are looked at with
    /// all below them. Something new may stand at the old one by now, on what the rename has not
    /// taken away, and what stands there may have the sizes and times of what is to.
    pub fn not_moved(&mut self, failed: &[Move]) {
        let (mut places, taken) = self.places_after(failed);
        taken.iter().for_each(|place| places.insert(place));
        self.put_in_doubt(places, failed);
    }

    /// Wherever those that were told after each of these renames take what it should have taken.
    pub(super) fn doubt_what_follows(&mut self, given_back: &[Move]) {
        let (_, taken) = self.places_after(given_back);
        self.put_in_doubt(taken, given_back);
    }

    /// Both names of each of these renames, and wherever those that were told after it take what is
    /// there.
    fn places_after(&self, moves: &[Move]) -> (Tops, Tops) {
        let mut waiting = moves.iter().peekable();
        let [mut places, mut taken] = [Tops::default(), Tops::default()];
        for one in self.moving.iter().chain(&self.moves) {
            if places.is_near(&one.from) || taken.is_near(&one.from) {
                taken.insert(&one.to);
            }
            if waiting.next_if(|next| *next == one).is_some() {
                places.insert_both(one);
            }
        }
        waiting.for_each(|one| places.insert_both(one));
        (places, taken)
    }

    /// What is at these places may not be what renames should have made of it.
    fn put_in_doubt(&mut self, places: Tops, moves: &[Move]) {
        let Some(first) = moves.first() else {
            return;
        };
        let all = Move {
            since: moves.iter().map(|one| one.since).min().unwrap_or_default(),
            is_dir: moves.iter().any(|one| one.is_dir),
            ..first.clone()
        };
        for place in places.at_most(DOUBTFUL_TOGETHER_MAX) {
            let dirty = Dirty {
                is_doubtful: !place.is_root(),
                ..all.end()
            };
            self.put(place, dirty, Word::Again);
        }
    }
}
