//! What is left to do: paths that may differ, and when each is to be looked at.
//!
//! A path stands here once, however often it changes, so a file that is written a thousand times is
//! copied a few times. Nothing here reads a clock or touches a tree: whoever asks says what time it
//! is. Moments are durations since 1970-01-01 UTC.

mod due;
mod effort;
mod entry;
mod left;
mod moves;
mod renames;
mod taken;
mod together;
mod tops;
mod touched;

pub use entry::{ATTEMPTS_BEFORE_QUARANTINE, Dirty, Lane};
pub use taken::{Move, Taken};

use crate::pace::Pace;
use driftless_model::{Change, Class, Hint, RelPath, Scope, Stamp};
use due::Due;
use effort::Effort;
use moves::TakenAway;
use renames::Renames;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use together::Together;
use tops::Tops;
use touched::Touched;

/// A directory that the source lacks may have been renamed, which is heard of within this time.
const GONE_WAIT: Duration = Duration::from_millis(100);
/// Longest time for which a rename shows in the tree before the kernel makes its event. The kernel
/// makes the event last, and the thread that renames may lose its processor in between.
const UNSAID: Duration = Duration::from_millis(500);
/// More paths than this are not told apart: whole directories are looked at in their place.
pub const DIRTY_PATHS_MAX: usize = 200_000;
/// Files of this size and more do not hold up smaller ones.
pub const LARGE_BYTES: u64 = 8 << 20;

/// What is heard of a path beside the change itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Circumstance {
    /// It is a directory: to look at it costs little, however often it changes.
    pub is_dir: bool,
    /// The directory was removed: what is told with all below it takes no longer than its name.
    pub is_gone: bool,
    /// Its content was written, by a call that has ended, or it is another entry than was there.
    pub is_written: bool,
    /// Somebody has the file open for writing.
    pub is_open: bool,
    /// Its size in bytes, where that is known.
    pub size: u64,
}

/// Why a path is not equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// It has a problem.
    Problem(Class),
    /// The source lacks the directory, and the replica has something in it, which was not asked
    /// about: it may have been renamed.
    Gone,
}

/// Why a path is added to those that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// It has changed, and somebody still has it open for writing.
    Open,
    /// It has changed.
    Changed,
    /// It was not done, or not well.
    Again,
    /// It was changed while it was looked at, and comes again at its own pace.
    Paced,
}

/// The paths that are left to do.
#[derive(Debug)]
pub struct DirtyPaths {
    settle: Duration,
    pace: Pace,
    left: BTreeMap<RelPath, Dirty>,
    due: Due,
    together: Together,
    moves: VecDeque<Move>,
    /// Of these, how many from the front on were taken before and given back.
    given_back: usize,
    /// Renames that were taken and are not done, in their order.
    moving: VecDeque<Move>,
    /// What is being worked on.
    work: BTreeMap<RelPath, Dirty>,
    /// Comparisons of directories in progress, with the names that changed below them meanwhile:
    /// a comparison may read a name before its change and write it afterwards.
    whole: BTreeMap<RelPath, Touched>,
    /// Where renames have taken what is worked on: whoever works on it writes there.
    taken_away: BTreeMap<RelPath, TakenAway>,
    /// What was done since the last moment until which everything is known to have been heard of;
    /// `due` is when.
    recent: BTreeMap<RelPath, Dirty>,
    /// What was told since then.
    renames: Renames,
    /// What may be done to follow renames.
    effort: Effort,
}

impl DirtyPaths {
    /// None yet. A file that is open for writing is left alone until nobody has written to it for
    /// `settle`.
    pub fn new(settle: Duration) -> Self {
        DirtyPaths {
            settle,
            pace: Pace::default(),
            left: BTreeMap::new(),
            due: Due::default(),
            together: Together::default(),
            moves: VecDeque::new(),
            given_back: 0,
            moving: VecDeque::new(),
            work: BTreeMap::new(),
            whole: BTreeMap::new(),
            taken_away: BTreeMap::new(),
            recent: BTreeMap::new(),
            renames: Renames::default(),
            effort: Effort::default(),
        }
    }

    /// As [`DirtyPaths::new`] says, with so many steps at most at once to follow what renames take
    /// with them.
    pub fn with_effort(settle: Duration, steps_max: usize) -> Self {
        DirtyPaths {
            effort: Effort::at_most(steps_max),
            ..DirtyPaths::new(settle)
        }
    }

    /// Paths that are left, those in work too.
    pub fn len(&self) -> usize {
        self.left.len() + self.moves.len() + self.work.len()
    }

    /// Whether the replica is equal as far as is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Since when the oldest change waits that is not on the replica.
    pub fn oldest(&self) -> Option<Duration> {
        let paths = self.left.values().chain(self.work.values());
        paths
            .map(|dirty| dirty.since)
            .chain(self.moves.iter().map(|renamed| renamed.since))
            .min()
    }

    /// When there is something to do next.
    pub fn next_due(&self) -> Option<Duration> {
        let moves = self.moves.front().map(|renamed| renamed.since);
        let is_free = |(_, path): &&(Duration, RelPath)| self.is_free(path);
        let paths = Lane::ALL
            .into_iter()
            .filter_map(|lane| self.due.of(lane).find(is_free));
        moves.into_iter().chain(paths.map(|(due, _)| *due)).min()
    }

    /// Everything that is left, a rename as the two paths that it is about: what is to be
    /// remembered. A gap is found again by its moment.
    pub fn all(&self) -> BTreeMap<RelPath, Dirty> {
        self.all_until(Duration::MAX)
    }

    /// Everything of that which was heard of at `moment` or before; the whole tree in any case.
    pub fn all_until(&self, moment: Duration) -> BTreeMap<RelPath, Dirty> {
        let is_old = |(path, dirty): &(&RelPath, &Dirty)| dirty.since <= moment || path.is_root();
        let left = self.left.iter().filter(is_old);
        let mut all: BTreeMap<RelPath, Dirty> = left
            .map(|(path, dirty)| (path.clone(), dirty.clone()))
            .collect();
        for (path, dirty) in self.work.iter().filter(is_old) {
            join_at(&mut all, path, dirty);
        }
        all.retain(|_, dirty| dirty.gap.is_none());
        for (path, away) in &self.taken_away {
            let done = self.work.get(path).filter(|done| done.since <= moment);
            let again = done.into_iter().flat_map(|done| away.again(done, done.due));
            again.for_each(|(place, dirty)| join_at(&mut all, &place, &dirty));
        }
        // One that was taken may not have been carried out.
        let moves = self.moves.iter().chain(&self.moving);
        for renamed in moves.filter(|renamed| renamed.since <= moment) {
            for path in [&renamed.from, &renamed.to] {
                join_at(&mut all, path, &renamed.end());
            }
        }
        all
    }

    /// A change was heard of.
    pub fn add(&mut self, now: Duration, change: Change, seen: Circumstance) {
        self.effort.told();
        if let Some(Hint::MovedFrom(from)) = change.hint {
            let is_dir = change.scope == Scope::Subtree;
            self.add_move(Move {
                from,
                to: change.path,
                since: now,
                is_dir,
            });
            return;
        }
        let ready = if seen.is_dir {
            now
        } else {
            self.pace.ready(&change.path).max(now)
        };
        let (word, due) = if seen.is_open {
            (Word::Open, ready.max(now + self.settle))
        } else {
            (Word::Changed, ready)
        };
        // A call that writes sets the time first: it may have been at it while the file was copied.
        let is_written = seen.is_written || matches!(change.hint, Some(Hint::Ranges(_)));
        let dirty = Dirty {
            is_long: change.scope > Scope::Entry && !seen.is_gone || seen.size >= LARGE_BYTES,
            is_doubtful: is_written,
            ..Dirty::new(change.scope, now, due)
        };
        self.touch(&change.path, (now, is_written));
        self.renames.told(&change.path, &dirty);
        self.put(change.path, dirty, word);
        self.fold(now);
    }

    /// Whatever has changed since that moment may not have been heard of.
    pub fn add_gap(&mut self, now: Duration, since: Stamp) {
        let dirty = Dirty {
            gap: Some(since),
            ..Dirty::new(Scope::Subtree, now, now)
        };
        self.put(RelPath::root(), dirty, Word::Changed);
    }

    /// Whether all is left to do, or to be looked for in a gap.
    pub fn has_all(&self) -> bool {
        let root = RelPath::root();
        [&self.left, &self.work]
            .iter()
            .filter_map(|map| map.get(&root))
            .any(|dirty| dirty.scope == Scope::Subtree)
    }

    /// What was not done, or not well, comes again.
    pub fn add_again(&mut self, path: RelPath, dirty: Dirty) {
        self.put(path, dirty.repeated(), Word::Again);
    }

    /// Paths that are to be looked at together, once none of them is worked on.
    pub fn add_together(&mut self, paths: BTreeMap<RelPath, Dirty>) {
        let is_in_work = |path: &RelPath| self.work.contains_key(path);
        self.together.add(paths.keys(), is_in_work);
        for (path, dirty) in paths {
            self.put(path, dirty, Word::Again);
        }
    }

    /// Everything that happened until `moment` has been heard of.
    pub fn heard_until(&mut self, moment: Duration) {
        // Whoever renames is seen to have done so a moment before he says so.
        let heard = moment.saturating_sub(UNSAID);
        // Of these, `due` says when they were done.
        self.recent.retain(|_, dirty| dirty.due > heard);
        self.renames.forget_until(heard);
        if self.renames.is_empty() && self.moves.is_empty() && self.moving.is_empty() {
            self.effort.renew();
        }
    }

    /// Takes what is due in a lane, the oldest first.
    pub fn take(&mut self, now: Duration, lane: Lane, paths_max: usize) -> Taken {
        let mut taken = Taken {
            lane,
            ..Taken::default()
        };
        if lane == Lane::Short {
            taken.moves = self.take_moves();
        }
        // What a rename is about is looked at when it has been carried out.
        let is_due = self.due.of(lane).next().is_some_and(|(due, _)| *due <= now);
        let moves = match lane == Lane::Short || !is_due {
            true => Tops::default(),
            false => Tops::of(self.moves.iter().chain(&self.moving)),
        };
        let fits = |(_, path): &&(Duration, RelPath)| self.is_free(path) && !moves.is_near(path);
        let paths: Vec<(Duration, RelPath)> = self
            .due
            .of(lane)
            .take_while(|(due, _)| *due <= now)
            .filter(fits)
            .take(paths_max)
            .cloned()
            .collect();
        for (_, path) in paths {
            let dirty = self.left.remove(&path).expect("what is due is left");
            self.due.remove(&path, &dirty);
            self.together.take(&path);
            self.work.insert(path.clone(), dirty.clone());
            if dirty.scope > Scope::Entry {
                self.whole.insert(path.clone(), Touched::default());
            }
            taken.paths.insert(path, dirty);
        }
        taken
    }

    /// Nobody works on a path any more.
    fn let_go(&mut self, now: Duration, path: &RelPath) {
        let done = self.work.remove(path);
        self.together.done(path);
        if let Some(touched) = self.whole.remove(path) {
            for (path, dirty) in touched.again(done.as_ref(), now) {
                self.put(path, dirty, Word::Changed);
            }
        }
        if let Some(done) = done {
            self.look_where_it_was_taken(now, path, &done);
        }
    }

    /// What was taken is over. What has renames comes in the order in which it was taken. Returns
    /// how long each path waited that is equal now: all but those at which, below which or above
    /// which something has failed.
    pub fn done(
        &mut self,
        now: Duration,
        taken: Taken,
        failed: &BTreeMap<RelPath, Failed>,
    ) -> Vec<Duration> {
        let mut waited = Vec::new();
        self.moving.drain(..taken.moves.len());
        for (path, dirty) in taken.paths {
            self.let_go(now, &path);
            let problems = problems_of(&path, failed);
            if problems.is_empty() {
                waited.push(now.saturating_sub(dirty.since));
                self.pace.done(&path, now);
                self.remember(path, Dirty { due: now, ..dirty });
                continue;
            }
            for (at, why) in problems {
                self.retry(now, at, (why, &path, &dirty));
            }
        }
        waited
    }

    /// Nothing of what was taken was done: the trees were out of reach. What was taken first is given
    /// back first.
    pub fn give_back(&mut self, now: Duration, taken: Taken) {
        // What follows may have been carried out by now, and have taken what these should.
        self.doubt_what_follows(&taken.moves);
        self.moving.drain(..taken.moves.len());
        for (path, dirty) in taken.paths {
            self.let_go(now, &path);
            let dirty = dirty.repeated();
            self.put(path, Dirty { due: now, ..dirty }, Word::Again);
        }
        for renamed in taken.moves {
            self.moves.insert(self.given_back, renamed);
            self.given_back += 1;
        }
    }

    /// Everything is due: somebody waits for it.
    pub fn hurry(&mut self, now: Duration) {
        for path in self.due.after(now) {
            let dirty = self.left.get_mut(&path).expect("what is due is left");
            if dirty.attempts == 0 {
                self.due.remove(&path, dirty);
                dirty.due = now;
                self.due.insert(&path, dirty);
            }
        }
    }

    /// Those that have failed too often to be tried soon.
    pub fn quarantined(&self) -> impl Iterator<Item = (&RelPath, &Dirty)> {
        self.left
            .iter()
            .filter(|(_, dirty)| dirty.is_in_quarantine())
    }

    /// Takes away what has failed so often in a row.
    pub fn take_failed(&mut self, attempts: u32) -> Vec<(RelPath, Dirty)> {
        let has_failed = |(_, dirty): &(&RelPath, &Dirty)| dirty.attempts >= attempts;
        let failed = self.left.iter().filter(has_failed);
        let failed: Vec<(RelPath, Dirty)> = failed
            .map(|(path, dirty)| (path.clone(), dirty.clone()))
            .collect();
        for (path, dirty) in &failed {
            self.left.remove(path);
            self.due.remove(path, dirty);
        }
        failed
    }

    /// Whether something is left that has not failed yet.
    pub fn has_fresh(&self) -> bool {
        let is_fresh = |dirty: &Dirty| dirty.attempts == 0;
        !self.moves.is_empty() || self.left.values().any(is_fresh)
    }

    /// Returns whether `dir`, or a path below it, is left after it has failed.
    pub fn has_failed_within(&self, dir: &RelPath) -> bool {
        [&self.left, &self.work].into_iter().any(|map| {
            let mut within = below_of(map, dir);
            within.any(|(_, dirty)| dirty.attempts > 0)
        })
    }

    /// Whether something is left that was heard of at `moment` or before, but for what is in
    /// quarantine.
    pub fn waits_since(&self, moment: Duration) -> bool {
        let is_before =
            |dirty: &Dirty| dirty.since <= moment && dirty.attempts < ATTEMPTS_BEFORE_QUARANTINE;
        self.left.values().any(is_before)
            || self.work.values().any(is_before)
            || self.moves.iter().any(|renamed| renamed.since <= moment)
    }

    /// Whether a change of `path` was heard of that is left to do, in work, or was done a moment
    /// ago.
    pub fn has_heard_of(&self, path: &RelPath) -> bool {
        [&self.left, &self.work, &self.recent]
            .iter()
            .any(|map| map.contains_key(path))
            || self.whole.values().any(|touched| touched.covers(path))
    }

    /// Has what failed tried at once.
    pub fn retry_now(&mut self, now: Duration, at: Option<&RelPath>) -> usize {
        let mut found = 0;
        for (path, dirty) in &mut self.left {
            if dirty.attempts > 0 && at.is_none_or(|at| path.is_within(at)) {
                self.due.remove(path, dirty);
                (dirty.due, dirty.attempts) = (now, 1);
                self.due.insert(path, dirty);
                found += 1;
            }
        }
        found
    }

    /// A path was done. When too many were since all was heard, the whole tree stands for them.
    fn remember(&mut self, path: RelPath, dirty: Dirty) {
        if self.recent.len() >= DIRTY_PATHS_MAX {
            let whole = Dirty {
                scope: Scope::Subtree,
                ..dirty
            };
            self.recent = BTreeMap::from([(RelPath::root(), whole)]);
        } else {
            self.recent.insert(path, dirty);
        }
    }

    /// A file that was changed while it was copied is no failure where that was heard of: what was
    /// heard of is what comes next, at the pace of a file that changes all the time.
    fn retry(&mut self, now: Duration, at: RelPath, of: (Failed, &RelPath, &Dirty)) {
        let (why, path, dirty) = of;
        let is_fresh = |known: &Dirty| known.attempts == 0;
        if why == Failed::Problem(Class::Changing) && self.left.get(&at).is_some_and(is_fresh) {
            self.pace.done(&at, now);
            let due = self.pace.ready(&at);
            let again = Dirty {
                due,
                attempts: 0,
                ..dirty.repeated()
            };
            self.put(at, again, Word::Paced);
            return;
        }
        let again = match why {
            Failed::Gone => Dirty {
                is_doubtful: dirty.is_doubtful,
                ..Dirty::new(Scope::Subtree, dirty.since, now + GONE_WAIT)
            },
            Failed::Problem(class) => {
                // A problem elsewhere than where it was looked at is one of its own.
                let attempts = if at == *path { dirty.attempts + 1 } else { 1 };
                Dirty {
                    due: now + crate::pace::backoff(class, attempts),
                    attempts,
                    gap: dirty.gap.filter(|_| at == *path),
                    ..dirty.repeated()
                }
            }
        };
        self.put(at, again, Word::Again);
    }

    /// Records a change of `path` for the comparisons in progress around it, also where a rename
    /// took them.
    fn touch(&mut self, path: &RelPath, change: (Duration, bool)) {
        for (at, touched) in &mut self.whole {
            let away = self.taken_away.get(at);
            if path.is_within(at) || away.is_some_and(|away| away.is_around(path)) {
                touched.changed(at, path, change);
            }
        }
    }

    /// Records a rename for the comparisons in progress around either name.
    fn touch_both(&mut self, renamed: &Move) {
        for (at, touched) in &mut self.whole {
            if touched.concerns(at, renamed) {
                touched.renamed(at, renamed, &mut self.effort);
            }
        }
    }

    /// Whether a path that is left may be looked at now.
    fn is_free(&self, path: &RelPath) -> bool {
        !self.work.contains_key(path) && self.together.is_free(path)
    }
}

/// Adds to what is known of a path.
fn join_at(all: &mut BTreeMap<RelPath, Dirty>, path: &RelPath, dirty: &Dirty) {
    let known = all.entry(path.clone());
    known
        .and_modify(|known| known.join(dirty))
        .or_insert_with(|| dirty.clone());
}

/// Whether what reaches so far below a path includes what is at another.
pub(crate) fn reaches((path, scope): (&RelPath, Scope), at: &RelPath) -> bool {
    match scope {
        Scope::Entry => at == path,
        Scope::Names => at == path || at.above().next().as_ref() == Some(path),
        Scope::Subtree => at.is_within(path),
    }
}

/// What has failed of a path, and where it is to be tried again: a problem of a directory above it
/// is one of the path.
fn problems_of(path: &RelPath, failed: &BTreeMap<RelPath, Failed>) -> Vec<(RelPath, Failed)> {
    let above = path
        .above()
        .filter_map(|dir| failed.get(&dir).map(|why| (dir, *why)));
    let above = above.map(|(dir, why)| match why {
        Failed::Gone => (dir, why),
        Failed::Problem(_) => (path.clone(), why),
    });
    let below = below_of(failed, path).map(|(at, why)| (at.clone(), *why));
    above.chain(below).collect()
}

/// The part of a map at a path and below it.
pub(crate) fn below_of<'a, V>(
    map: &'a BTreeMap<RelPath, V>,
    path: &RelPath,
) -> impl Iterator<Item = (&'a RelPath, &'a V)> {
    let at = map.get_key_value(path).into_iter();
    at.chain(map.range::<[u8], _>(path.below()))
}
