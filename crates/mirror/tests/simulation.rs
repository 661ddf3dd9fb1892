//! What is left to do, in a simulation: a source that changes all the time, events that come late
//! or twice, lanes that look at the trees and publish later, paths that fail, replicas that go away
//! with what is being written out, and now and then an end in the middle. After the last change the replica becomes equal, always.

use driftless_mirror::dirty::{Circumstance, Dirty, DirtyPaths, Failed, Lane, Move, Taken};
use driftless_model::{Change, Class, Hint, RelPath, Scope};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const SEEDS: u64 = 4000;
const ROUNDS: usize = 20;
const CHANGES: usize = 20;
const LANES: [Lane; 4] = [Lane::Short, Lane::Long, Lane::Long, Lane::Walk];
const UNWRITTEN_MAX: usize = 4;
const TICK: Duration = Duration::from_nanos(1);

/// A tree: files have a version, directories none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tree(BTreeMap<RelPath, Option<u64>>);

impl Tree {
    fn below(&self, path: &RelPath) -> Vec<RelPath> {
        let within = self.0.keys().filter(|at| at.is_within(path));
        within.cloned().collect()
    }

    fn remove(&mut self, path: &RelPath) {
        for at in self.below(path) {
            self.0.remove(&at);
        }
    }

    fn rename(&mut self, from: &RelPath, to: &RelPath) {
        self.remove(to);
        for at in self.below(from) {
            let what = self.0.remove(&at).expect("it is there");
            self.0.insert(at.rebased(from, to), what);
        }
    }

    fn is_dir(&self, path: &RelPath) -> bool {
        path.is_root() || self.0.get(path) == Some(&None)
    }

    fn has_parent(&self, path: &RelPath) -> bool {
        path.above().next().is_none_or(|dir| self.is_dir(&dir))
    }
}

/// What a lane has seen of the source, and will publish.
struct Work {
    taken: Taken,
    not_moved: Vec<Move>,
    found: BTreeMap<RelPath, Option<Option<u64>>>,
    /// What has become of the directories that it holds open, in both trees; of neither where it
    /// opens them in the end.
    held: [Option<usize>; 2],
    /// Directories that the replica had when it began.
    dirs: BTreeSet<RelPath>,
    ends: Duration,
}

/// What a lane has published, and what is being written out.
struct Published {
    taken: Taken,
    not_moved: Vec<Move>,
    failed: BTreeMap<RelPath, Failed>,
    written: Duration,
}

/// An event on its way.
struct Event {
    heard: Duration,
    happened: Duration,
    /// How much had become of directories by then.
    history: usize,
    change: Change,
    seen: Circumstance,
}

/// What became of a directory.
enum Became {
    Renamed(RelPath, RelPath),
    Removed(RelPath),
}

impl Became {
    /// Where the directory is after that, if there is one that was at `path`.
    fn follow(&self, path: &RelPath) -> Option<RelPath> {
        match self {
            Became::Renamed(from, to) => Some(path.rebased(from, to)),
            Became::Removed(gone) => (path != gone).then(|| path.clone()),
        }
    }
}

/// Somebody who waits until everything that happened before is on the replica.
struct Wait {
    asked: Duration,
    /// When all of that had been heard of.
    heard: Option<Duration>,
}

struct World {
    rng: fastrand::Rng,
    now: Duration,
    version: u64,
    source: Tree,
    replica: Tree,
    dirty: DirtyPaths,
    /// Events on their way.
    events: VecDeque<Event>,
    /// Whether events name directories by handles, which lead to where they are when somebody
    /// hears of the event (fanotify(7)), or by the paths that they had.
    by_handles: bool,
    /// What became of the directories of the source.
    history: Vec<Became>,
    /// And of the replica.
    history_there: Vec<Became>,
    /// When a path of the source was changed last, or renamed with all below it.
    changed: BTreeMap<RelPath, Duration>,
    wait: Option<Wait>,
    lanes: [Option<Work>; LANES.len()],
    unwritten: VecDeque<Published>,
    fails: bool,
    /// How far renames are followed one by one, where that is bounded more closely than it has to be.
    steps_max: Option<usize>,
    /// Whether all is looked at now and then, which mends whatever went wrong before.
    is_mended: bool,
}

fn dirty_paths(steps_max: Option<usize>) -> DirtyPaths {
    let settle = Duration::from_secs(2);
    match steps_max {
        Some(steps) => DirtyPaths::with_effort(settle, steps),
        None => DirtyPaths::new(settle),
    }
}

impl World {
    fn new(seed: u64) -> World {
        let steps_max = [None, Some(0), Some(5), Some(40)][seed as usize / 2 % 4];
        World {
            rng: fastrand::Rng::with_seed(seed),
            now: Duration::from_secs(1000),
            version: 0,
            source: Tree::default(),
            replica: Tree::default(),
            dirty: dirty_paths(steps_max),
            events: VecDeque::new(),
            by_handles: seed % 2 == 1,
            history: Vec::new(),
            history_there: Vec::new(),
            changed: BTreeMap::new(),
            wait: None,
            lanes: [const { None }; LANES.len()],
            unwritten: VecDeque::new(),
            fails: true,
            steps_max,
            is_mended: seed.is_multiple_of(3),
        }
    }

    fn burst(&mut self) -> usize {
        if self.rng.u8(..) < 60 {
            self.rng.usize(2..8)
        } else {
            1
        }
    }

    fn any_path(&mut self) -> RelPath {
        let depth = self.rng.usize(1..4);
        let names: Vec<[u8; 1]> = (0..depth).map(|_| [self.rng.u8(b'a'..b'd')]).collect();
        RelPath::from_names(names.iter().map(|name| &name[..]))
    }

    fn tell(&mut self, mut change: Change) {
        self.changed.insert(change.path.clone(), self.now);
        if let Some(Hint::MovedFrom(from)) = &change.hint {
            self.changed.insert(from.clone(), self.now);
        }
        let is_entry = change == Change::entry(change.path.clone());
        if !self.by_handles && is_entry && self.rng.u8(..) < 30 {
            // Some detectors know no more than that it is in this directory.
            let dir = change.path.above().next().unwrap_or_default();
            change = Change::names(dir);
        }
        let seen = Circumstance {
            is_dir: self.rng.bool(),
            is_gone: change.scope == Scope::Subtree && change.hint.is_none(),
            is_written: self.by_handles && is_entry || self.rng.bool(),
            is_open: self.rng.u8(..) < 60,
            size: if self.rng.u8(..) < 60 { 1 << 30 } else { 0 },
        };
        let times = if self.rng.u8(..) < 30 { 2 } else { 1 };
        for _ in 0..times {
            let heard = self.now + Duration::from_millis(self.rng.u64(0..50));
            let heard = self
                .events
                .back()
                .map_or(heard, |last| heard.max(last.heard));
            self.events.push_back(Event {
                heard,
                happened: self.now,
                history: self.history.len(),
                change: change.clone(),
                seen,
            });
        }
    }

    /// Where a directory is by now of which an event was made when it was at `path`.
    fn dir_by_now(&self, path: RelPath, event: &Event) -> Option<RelPath> {
        let mut later = self.history[event.history..].iter();
        let is_path = !self.by_handles;
        match is_path {
            true => Some(path),
            false => later.try_fold(path, |path, what| what.follow(&path)),
        }
    }

    /// The path of an entry that was at `path` when an event was made of it, as it is told by now;
    /// nothing if its directory is gone.
    fn path_by_now(&self, path: &RelPath, event: &Event) -> Option<RelPath> {
        let (dir, name) = path.split_last()?;
        Some(self.dir_by_now(dir, event)?.join(name))
    }

    /// What is heard of an event by now.
    fn heard(&self, event: &Event) -> Option<(Change, Circumstance)> {
        let (Change { path, scope, hint }, mut seen) = (event.change.clone(), event.seen);
        let (path, hint) = match hint {
            _ if scope == Scope::Names => (self.dir_by_now(path, event)?, None),
            Some(Hint::MovedFrom(from)) => {
                let ends = [&path, &from].map(|end| self.path_by_now(end, event));
                match ends {
                    [Some(path), Some(from)] => (path, Some(Hint::MovedFrom(from))),
                    [path, from] => {
                        seen.is_written = true;
                        (path.or(from)?, None)
                    }
                }
            }
            hint => (self.path_by_now(&path, event)?, hint),
        };
        Some((Change { path, scope, hint }, seen))
    }

    /// Somebody changes the source.
    fn change(&mut self) {
        let path = self.any_path();
        if !self.source.has_parent(&path) {
            return;
        }
        self.version += 1;
        match self.rng.u8(0..10) {
            0..4 if !self.source.is_dir(&path) => {
                self.source.0.insert(path.clone(), Some(self.version));
                self.tell(Change::entry(path));
            }
            4..6 if !self.source.0.contains_key(&path) => {
                self.source.0.insert(path.clone(), None);
                self.tell(Change::entry(path));
            }
            6 if self.source.0.contains_key(&path) => {
                // Each entry goes by itself, what is below first.
                for at in self.source.below(&path).into_iter().rev() {
                    if self.source.0.remove(&at) == Some(None) {
                        self.history.push(Became::Removed(at.clone()));
                        self.tell(Change::subtree(at));
                    } else {
                        self.tell(Change::entry(at));
                    }
                }
            }
            7 => self.swap(),
            _ => {
                let to = self.any_path();
                self.rename(path, to);
            }
        }
    }

    /// Two directories change places, a moment after something has changed in them.
    fn swap(&mut self) {
        let dirs = self.source.0.iter().filter(|(_, what)| what.is_none());
        let dirs: Vec<RelPath> = dirs.map(|(path, _)| path.clone()).collect();
        let [one, other, third] = [(); 3].map(|()| self.rng.choice(&dirs));
        let (Some(one), Some(other), Some(third)) = (one, other, third) else {
            return;
        };
        for dir in [one, other] {
            let [from, to] = [self.rng.u8(b'a'..b'd'), self.rng.u8(b'a'..b'd')];
            self.write(dir.join(&[from]));
            self.rename(dir.join(&[from]), dir.join(&[to]));
        }
        if self.rng.bool() {
            let [file, at] = [self.rng.u8(b'a'..b'd'), self.rng.u8(b'a'..b'd')];
            self.swap_both(&one.join(&[file]), &third.join(&[at]));
        }
        self.swap_both(one, other);
    }

    fn swap_both(&mut self, one: &RelPath, other: &RelPath) {
        let is_possible = !one.is_within(other) && !other.is_within(one);
        let aside = RelPath::root().join(b"aside");
        if is_possible && (!self.by_handles || self.rng.bool()) {
            self.rename(one.clone(), aside.clone());
            self.rename(other.clone(), one.clone());
            self.rename(aside, other.clone());
        } else if is_possible && self.has_both(one, other) {
            self.exchange(one, other);
        }
    }

    fn has_both(&self, one: &RelPath, other: &RelPath) -> bool {
        [one, other]
            .iter()
            .all(|path| self.source.0.contains_key(*path))
    }

    /// In one call: `RENAME_EXCHANGE` of renameat2(2), of which two renames are told.
    fn exchange(&mut self, one: &RelPath, other: &RelPath) {
        let between = &RelPath::root().join(b"between");
        for (from, to) in [(one, between), (other, one), (between, other)] {
            self.source.rename(from, to);
            self.history.push(Became::Renamed(from.clone(), to.clone()));
        }
        for (from, to) in [(one, other), (other, one)] {
            self.tell_rename(from.clone(), to.clone());
        }
    }

    fn tell_rename(&mut self, from: RelPath, path: RelPath) {
        let is_dir = self.source.is_dir(&path);
        let scope = if is_dir { Scope::Subtree } else { Scope::Entry };
        let hint = Some(Hint::MovedFrom(from));
        self.tell(Change { path, scope, hint });
    }

    fn write(&mut self, path: RelPath) {
        let is_possible = self.source.has_parent(&path) && !self.source.is_dir(&path);
        if is_possible && self.rng.bool() {
            self.source.0.insert(path.clone(), Some(self.version));
            self.tell(Change::entry(path));
        }
    }

    fn rename(&mut self, from: RelPath, to: RelPath) {
        let is_dir = self.source.is_dir(&from);
        let is_possible = self.source.0.contains_key(&from)
            && self.source.has_parent(&to)
            && !to.is_within(&from)
            && !from.is_within(&to)
            && (is_dir == self.source.is_dir(&to) || !self.source.0.contains_key(&to))
            && (!is_dir || self.source.below(&to).len() <= 1);
        if is_possible {
            self.source.rename(&from, &to);
            if is_dir {
                self.history.push(Became::Removed(to.clone()));
                self.history.push(Became::Renamed(from.clone(), to.clone()));
            }
            self.tell_rename(from, to);
        }
    }

    fn hear(&mut self) {
        while self
            .events
            .front()
            .is_some_and(|event| event.heard <= self.now)
        {
            let event = self.events.pop_front().expect("there is one");
            if let Some((change, seen)) = self.heard(&event) {
                self.dirty.add(self.now, change, seen);
            }
        }
        let heard = self
            .events
            .front()
            .map_or(self.now, |event| event.happened.saturating_sub(TICK));
        self.dirty.heard_until(heard);
        let is_heard = |asked| self.events.front().is_none_or(|one| one.happened > asked);
        if let Some(wait) = self.wait.as_mut().filter(|wait| is_heard(wait.asked)) {
            wait.heard.get_or_insert(self.now);
        }
    }

    /// Lets go whoever waits for nothing any more: by then what has not changed since he asked is
    /// on the replica, but for what fails all the time.
    fn answer(&mut self, context: &str) {
        let Some(asked) = self.wait.take_if(|wait| {
            let heard = wait.heard;
            heard.is_some_and(|heard| !self.dirty.waits_since(heard))
        }) else {
            return;
        };
        for path in self.source.0.keys().chain(self.replica.0.keys()) {
            let mut here = path.above().chain([path.clone()]);
            let is_new = here.any(|at| self.changed.get(&at).is_some_and(|at| *at >= asked.asked));
            let fails = self.dirty.quarantined().any(|(at, _)| at.is_near(path));
            if !is_new && !fails {
                let both = [&self.source, &self.replica].map(|tree| tree.0.get(path));
                assert_eq!(both[0], both[1], "{context}: {path:?} after a wait");
            }
        }
    }

    fn begin(&mut self, lane: usize) {
        let paths_max = self.paths_max(lane);
        let taken = self.dirty.take(self.now, LANES[lane], paths_max);
        if taken.is_empty() {
            return;
        }
        // What was renamed in one go is over before anything is looked at.
        let moves = taken.moves.iter();
        let not_moved = moves.filter(|renamed| !self.relocate(renamed)).cloned();
        let not_moved = not_moved.collect();
        let mut found = BTreeMap::new();
        for (path, Dirty { scope, .. }) in &taken.paths {
            self.look(path, *scope, &mut found);
        }
        let is_slow = self.by_handles && lane > 0 && self.rng.bool();
        let takes = self.rng.u64(0..if is_slow { 400 } else { 100 });
        let ends = self.now + Duration::from_millis(takes);
        let lengths = [self.history.len(), self.history_there.len()];
        let is_long = self.by_handles && lane > 0;
        let held = lengths.map(|length| Some(length).filter(|_| is_long && self.rng.bool()));
        let dirs = found.keys().filter_map(|path| path.above().next());
        let dirs = dirs.filter(|dir| self.replica.is_dir(dir)).collect();
        self.lanes[lane] = Some(Work {
            taken,
            not_moved,
            found,
            held,
            dirs,
            ends,
        });
    }

    fn paths_max(&mut self, lane: usize) -> usize {
        if lane > 0 { 1 } else { self.rng.usize(1..20) }
    }

    fn relocate(&mut self, renamed: &Move) -> bool {
        let Move { from, to, .. } = renamed;
        let is_possible = self.replica.0.contains_key(from)
            && self.replica.is_dir(from) == renamed.is_dir
            && self.replica.has_parent(to)
            && !to.is_within(from)
            && !from.is_within(to)
            && (renamed.is_dir || self.is_right(from, to))
            && (!self.replica.0.contains_key(to) || !renamed.is_dir && !self.replica.is_dir(to))
            && self.rng.u8(..) > 20;
        if is_possible {
            self.replica.rename(from, to);
            if renamed.is_dir {
                let became = Became::Renamed(from.clone(), to.clone());
                self.history_there.push(became);
            }
        }
        is_possible
    }

    /// Whether a file of the replica looks like the source's at its new place, and not like the
    /// one at the old.
    fn is_right(&self, from: &RelPath, to: &RelPath) -> bool {
        let file = self.replica.0.get(from);
        self.are_alike(file, self.source.0.get(to))
            && !self.are_alike(file, self.source.0.get(from))
    }

    /// What the source has at a path now, with its parents, and below it.
    fn look(
        &self,
        path: &RelPath,
        scope: Scope,
        found: &mut BTreeMap<RelPath, Option<Option<u64>>>,
    ) {
        let mut see = |at: &RelPath| found.insert(at.clone(), self.source.0.get(at).copied());
        let is_new = |at: &RelPath| self.source.is_dir(at) && !self.replica.is_dir(at);
        for dir in path.above().filter(|dir| !dir.is_root()) {
            see(&dir);
        }
        if scope < Scope::Subtree && !path.is_root() {
            see(path);
        }
        if scope == Scope::Names && self.source.is_dir(path) {
            let both = [&self.source, &self.replica].map(|tree| tree.below(path));
            let depth = path.names().count();
            for at in both.iter().flatten() {
                let child = RelPath::from_names(at.names().take(depth + 1));
                if at.names().count() > depth && (child == *at || is_new(&child)) {
                    see(at);
                }
            }
        }
        if scope == Scope::Subtree || scope == Scope::Names && is_new(path) {
            for at in self
                .source
                .below(path)
                .iter()
                .chain(&self.replica.below(path))
            {
                see(at);
            }
            if !path.is_root() {
                see(path);
            }
        }
    }

    /// Publishes what a lane has found, as it was then; some paths fail.
    fn end(&mut self, lane: usize) {
        if self.lanes[lane]
            .as_ref()
            .is_none_or(|work| work.ends > self.now)
        {
            return;
        }
        let work = self.lanes[lane].take().expect("it was just looked at");
        let mut failed = BTreeMap::new();
        for (path, what) in &work.found {
            if let Some(why) = self.publish_if_current(path, *what, &work) {
                failed.insert(path.clone(), why);
            }
        }
        let last = self.unwritten.back().map_or(self.now, |one| one.written);
        let written = match lane {
            0 => last.max(self.now + Duration::from_millis(self.rng.u64(0..60))),
            _ => self.now,
        };
        let published = Published {
            taken: work.taken,
            not_moved: work.not_moved,
            failed,
            written,
        };
        if lane == 0 {
            self.unwritten.push_back(published);
        } else {
            self.done(published);
        }
    }

    /// What was published is durable; or the replica goes away with all that is not.
    fn write_out(&mut self) {
        if self.is_mended && self.fails && self.rng.u16(..) < 200 {
            let all: Vec<Published> = self.unwritten.drain(..).collect();
            for one in all {
                self.dirty.give_back(self.now, one.taken);
            }
            self.walk();
        }
        let now = self.now;
        let is_written = |one: &Published| one.written <= now;
        while self.unwritten.front().is_some_and(is_written) {
            let one = self.unwritten.pop_front().expect("it was just looked at");
            self.done(one);
        }
    }

    fn done(&mut self, one: Published) {
        self.dirty.not_moved(&one.not_moved);
        self.dirty.done(self.now, one.taken, &one.failed);
    }

    /// All is looked at.
    fn walk(&mut self) {
        let whole = Change::subtree(RelPath::root());
        self.dirty.add(self.now, whole, Circumstance::default());
    }

    /// Publishes a path as it was found, unless it has changed since; some paths fail.
    fn publish_if_current(
        &mut self,
        path: &RelPath,
        what: Option<Option<u64>>,
        work: &Work,
    ) -> Option<Failed> {
        let taken = &work.taken;
        let is_bad = self.fails && self.rng.u8(..) < 20 && taken.paths.contains_key(path);
        let Some([at_source, there]) = self.where_it_is(path, work) else {
            return Some(Failed::Problem(Class::Changing));
        };
        // The engine looks again before it publishes, and makes nothing of what has changed.
        let is_stale = self.source.0.get(&at_source).copied() != what;
        let is_doubtful = path.above().chain([path.clone()]).any(|at| {
            let of = taken.paths.get(&at).filter(|dirty| dirty.is_doubtful);
            of.is_some_and(|dirty| dirty.scope == Scope::Subtree || at == *path)
        });
        if !is_doubtful && !is_stale && self.is_taken_for(&there, what) {
            return None;
        }
        let is_whole = path.above().chain([path.clone()]).any(|at| {
            let is_named = path.above().next().as_ref() == Some(&at);
            taken.paths.get(&at).is_some_and(|dirty| {
                dirty.scope == Scope::Subtree || dirty.scope == Scope::Names && is_named
            })
        });
        let is_dir = what.is_some_and(|what| what.is_none());
        if !is_dir && !is_whole && self.replica.below(&there).len() > 1 {
            Some(Failed::Gone)
        } else if is_bad || is_stale || !self.publish(&there, what) {
            Some(Failed::Problem(Class::Changing))
        } else {
            None
        }
    }

    /// Where an entry of the directories that are held is by now, in both trees, if these are.
    fn where_it_is(&self, path: &RelPath, work: &Work) -> Option<[RelPath; 2]> {
        let Some((dir, name)) = path.split_last() else {
            return Some([path.clone(), path.clone()]);
        };
        let follow = |since: Option<usize>, history: &[Became]| {
            let since = since.unwrap_or(history.len());
            let mut later = history[since..].iter();
            later.try_fold(dir.clone(), |dir, what| what.follow(&dir))
        };
        let source = follow(work.held[0], &self.history)?;
        let was_there = work.held[1].filter(|_| work.dirs.contains(&dir));
        let replica = follow(was_there, &self.history_there)?;
        Some([source.join(name), replica.join(name)])
    }

    /// Whether two files have the same size and times.
    fn are_alike(&self, one: Option<&Option<u64>>, other: Option<&Option<u64>>) -> bool {
        let class = |version: u64| version % if self.by_handles { 3 } else { u64::MAX };
        match (one, other) {
            (Some(Some(one)), Some(Some(other))) => class(*one) == class(*other),
            (one, other) => one == other,
        }
    }

    /// Whether the replica's file looks like what was found, without a look at its content.
    fn is_taken_for(&self, path: &RelPath, what: Option<Option<u64>>) -> bool {
        self.by_handles
            && what.is_some_and(|what| what.is_some())
            && self.are_alike(self.replica.0.get(path), what.as_ref())
    }

    fn publish(&mut self, path: &RelPath, what: Option<Option<u64>>) -> bool {
        if self.replica.is_dir(path) && what != Some(None) {
            for dir in self.replica.below(path) {
                self.history_there.push(Became::Removed(dir));
            }
        }
        match what {
            None => self.replica.remove(path),
            Some(_) if !self.replica.has_parent(path) => return false,
            Some(None) => {
                if !self.replica.is_dir(path) {
                    self.replica.0.insert(path.clone(), None);
                }
            }
            Some(version) => {
                if self.replica.is_dir(path) {
                    self.replica.remove(path);
                }
                self.replica.0.insert(path.clone(), version);
            }
        }
        true
    }

    /// The process is killed: what is in work is cut off, and what is remembered is read again. What
    /// the kernel had to tell is lost with it, and all is looked at.
    fn crash(&mut self) {
        self.wait = None;
        self.lanes = [const { None }; LANES.len()];
        self.unwritten.clear();
        let remembered = self.dirty.all();
        self.dirty = dirty_paths(self.steps_max);
        for (path, dirty) in remembered {
            self.dirty.add_again(path, dirty);
        }
        if self.by_handles {
            self.events.clear();
            let all = Dirty {
                is_doubtful: true,
                ..Dirty::new(Scope::Subtree, self.now, self.now)
            };
            self.dirty.add_again(RelPath::root(), all);
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.rng.u64(0..20));
        self.hear();
        for lane in 0..LANES.len() {
            self.end(lane);
            self.write_out();
            let has_room = lane > 0 || self.unwritten.len() < UNWRITTEN_MAX;
            if self.lanes[lane].is_none() && has_room {
                self.begin(lane);
            }
        }
    }
}

/// Nothing changes any more, and nothing fails, until the replica is equal.
fn settle(world: &mut World, context: &str) {
    world.fails = false;
    let mut steps = 0;
    while !(world.dirty.is_empty() && world.events.is_empty()) {
        world.now += Duration::from_secs(1);
        world.step();
        steps += 1;
        assert!(steps < 20_000, "{context}: {:?}", world.dirty);
    }
    assert_eq!(world.replica, world.source, "{context}");
    world.fails = true;
}

fn simulate(seed: u64) {
    let mut world = World::new(seed);
    for round in 0..ROUNDS {
        for _ in 0..CHANGES {
            // Some come in a burst.
            for _ in 0..world.burst() {
                world.change();
            }
            world.step();
            if world.is_mended && world.rng.u16(..) < 400 {
                // On schedule.
                world.walk();
            }
            if world.rng.u16(..) < 200 {
                world.crash();
            }
            world.answer(&format!("seed {seed}, round {round}"));
            if world.wait.is_none() && world.rng.bool() {
                let (asked, heard) = (world.now, None);
                world.wait = Some(Wait { asked, heard });
            }
        }
        settle(&mut world, &format!("seed {seed}, round {round}"));
    }
}

#[test]
fn the_replica_becomes_equal_whatever_happened() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let count = number("DRIFTLESS_SEEDS").map_or(SEEDS, |hundreds: u64| 100 * hundreds);
    let seeds = number("DRIFTLESS_SEED").map_or(0..count, |seed| seed..seed + 1);
    seeds.for_each(simulate);
}
