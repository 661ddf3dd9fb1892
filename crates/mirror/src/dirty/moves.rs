//! Renames among what is left to do: where they take it, and what they put in doubt.

use super::{Dirty, DirtyPaths, Move, Word, below_of};
use driftless_model::{RelPath, Scope};
use std::time::Duration;

/// With more renames that wait, one of a file is not followed: it is copied, and holds up nothing.
const FILE_MOVES_MAX: usize = 100;
/// Names that one failed rename may put in doubt; with more, all are.
const DOUBTFUL_MAX: usize = 1000;
/// Names that renames may put in doubt which failed together; with more, all are.
const DOUBTFUL_TOGETHER_MAX: usize = 4000;

/// What became of a directory while it was worked on.
#[derive(Debug, Default)]
pub(super) struct TakenAway {
    /// Where it may be by now.
    places: Vec<RelPath>,
    /// Something else came to its path, whose files may look like those that it has.
    is_doubtful: bool,
}

impl TakenAway {
    /// What is to be looked at when the work is done.
    pub(super) fn again(
        &self,
        done: &Dirty,
        due: Duration,
    ) -> impl Iterator<Item = (RelPath, Dirty)> {
        self.places.iter().map(move |place| {
            let dirty = Dirty {
                is_doubtful: !place.is_root() && (self.is_doubtful || done.is_doubtful),
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
        for path in [&from, &to] {
            self.touch(path, now);
        }
        let whole = self.within_whole(&from);
        let in_work = below_of(&self.work, &from).chain(below_of(&self.recent, &from));
        let in_work: Vec<(RelPath, Dirty)> = in_work
            .map(|(path, dirty)| (path.clone(), dirty.clone()))
            .collect();
        for (path, dirty) in self.cut_below(&from).into_iter().chain(in_work) {
            let there = path.rebased(&from, &to);
            self.put(there, Dirty { due: now, ..dirty }, Word::Again);
        }
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

    /// What was told of the new place too early, is looked at wherever it may have been done.
    fn look_where_it_was_meant(&mut self, renamed: &Move) {
        for (path, dirty) in self.renames.renamed(renamed) {
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

    /// The renames that wait. What is in work at either end of one is looked at once more: it may
    /// have been looked at before the rename, and be published after it.
    pub(super) fn take_moves(&mut self) -> Vec<Move> {
        let moves: Vec<Move> = self.moves.drain(..).collect();
        self.given_back = 0;
        let is_near = |path: &RelPath| moves.iter().any(|renamed| renamed.is_near(path));
        let near = self.work.iter().filter(|(path, _)| is_near(path));
        let near: Vec<(RelPath, Dirty)> = near
            .map(|(path, dirty)| (path.clone(), dirty.clone()))
            .collect();
        for (path, dirty) in near {
            self.take_away(&path, &moves);
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
        let mut places = std::mem::take(&mut known.places);
        places.push(path.clone());
        known.places = places_after(places, moves.iter(), DOUBTFUL_MAX);
        known.is_doubtful |= moves.iter().any(|one| one.to.is_near(path));
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

    /// Whether a rename that may not have been carried out concerns what is at `path`, above it or
    /// below it.
    pub(super) fn moves_near(&self, path: &RelPath) -> bool {
        let mut moves = self.moves.iter().chain(&self.moving);
        moves.any(|renamed| renamed.is_near(path))
    }

    /// Renames that could not be done as such, in their order: both names of each are looked at with
    /// all below them. Something new may stand at the old one by now, on what the rename has not
    /// taken away, and what stands there may have the sizes and times of what is to.
    pub fn not_moved(&mut self, failed: &[Move]) {
        let Some(first) = failed.first() else {
            return;
        };
        let all = Move {
            since: failed.iter().map(|one| one.since).min().unwrap_or_default(),
            is_dir: failed.iter().any(|one| one.is_dir),
            ..first.clone()
        };
        // Those above come first, so that none is put twice.
        for place in self.places_after_all(failed) {
            self.put_in_doubt(place, &all);
        }
    }

    /// What [`DirtyPaths::places_after`] says of each of these renames, each place once.
    fn places_after_all(&self, failed: &[Move]) -> Vec<RelPath> {
        let mut failed = failed.iter().peekable();
        let mut places = Vec::new();
        for one in self.moving.iter().chain(&self.moves) {
            places = places_after(places, std::iter::once(one), DOUBTFUL_TOGETHER_MAX);
            if places.first().is_some_and(RelPath::is_root) {
                return places;
            }
            if failed.next_if(|next| *next == one).is_some() {
                places.extend([one.from.clone(), one.to.clone()]);
            }
        }
        places.extend(failed.flat_map(|one| [one.from.clone(), one.to.clone()]));
        places.sort();
        places.dedup();
        places
    }

    /// Both names of a rename, and wherever those that were told after it take what is there.
    pub(super) fn places_after(&self, renamed: &Move) -> Vec<RelPath> {
        let later = self.moving.iter().skip_while(|one| *one != renamed).skip(1);
        let ends = vec![renamed.from.clone(), renamed.to.clone()];
        places_after(ends, later.chain(&self.moves), DOUBTFUL_MAX)
    }

    pub(super) fn put_in_doubt(&mut self, path: RelPath, renamed: &Move) {
        let dirty = Dirty {
            is_doubtful: !path.is_root(),
            ..renamed.end()
        };
        self.put(path, dirty, Word::Again);
    }
}

/// Paths, and wherever renames take what is there, in their order; all, if these are more than
/// `places_max`.
fn places_after<'a>(
    mut places: Vec<RelPath>,
    moves: impl Iterator<Item = &'a Move>,
    places_max: usize,
) -> Vec<RelPath> {
    for one in moves {
        if places.iter().any(|path| path.is_near(&one.from)) {
            // It takes what is not what it should be; the old names stay in doubt as well.
            let there = places.iter().map(|path| path.rebased(&one.from, &one.to));
            let there: Vec<RelPath> = there.chain([one.to.clone()]).collect();
            places.extend(there);
            places.sort();
            places.dedup();
            if places.len() > places_max {
                return vec![RelPath::root()];
            }
        }
    }
    places
}
