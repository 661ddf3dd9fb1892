//! What is left to do, in a simulation: a source that changes all the time, events that come late
//! or twice, lanes that look at the trees and publish later, paths that fail, replicas that go away
//! with what is being written out, and now and then an end in the middle. After the last change the replica becomes equal, always.

use driftless_mirror::dirty::{Circumstance, Dirty, DirtyPaths, Failed, Lane, Move, Taken};
use driftless_model::{Change, Class, Hint, RelPath, Scope};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const SEEDS: u64 = 2000;
const CHANGES: usize = 400;
const LANES: [Lane; 3] = [Lane::Short, Lane::Long, Lane::Walk];
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
    ends: Duration,
}

/// What a lane has published, and what is being written out.
struct Published {
    taken: Taken,
    not_moved: Vec<Move>,
    failed: BTreeMap<RelPath, Failed>,
    written: Duration,
}

struct World {
    rng: fastrand::Rng,
    now: Duration,
    version: u64,
    source: Tree,
    replica: Tree,
    dirty: DirtyPaths,
    /// Events on their way.
    events: VecDeque<(Duration, Change, Circumstance)>,
    /// When the change happened of which each of them tells.
    happened: VecDeque<Duration>,
    lanes: [Option<Work>; 3],
    unwritten: VecDeque<Published>,
    fails: bool,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            rng: fastrand::Rng::with_seed(seed),
            now: Duration::from_secs(1000),
            version: 0,
            source: Tree::default(),
            replica: Tree::default(),
            dirty: DirtyPaths::new(Duration::from_secs(2)),
            events: VecDeque::new(),
            happened: VecDeque::new(),
            lanes: [None, None, None],
            unwritten: VecDeque::new(),
            fails: true,
        }
    }

    fn any_path(&mut self) -> RelPath {
        let depth = self.rng.usize(1..4);
        let names: Vec<[u8; 1]> = (0..depth).map(|_| [self.rng.u8(b'a'..b'd')]).collect();
        RelPath::from_names(names.iter().map(|name| &name[..]))
    }

    fn tell(&mut self, mut change: Change) {
        if change == Change::entry(change.path.clone()) && self.rng.u8(..) < 30 {
            // Some detectors know no more than that it is in this directory.
            let dir = change.path.above().next().unwrap_or_default();
            change = Change::names(dir);
        }
        let seen = Circumstance {
            is_dir: self.rng.bool(),
            is_written: self.rng.bool(),
            is_open: self.rng.u8(..) < 60,
            size: if self.rng.u8(..) < 60 { 1 << 30 } else { 0 },
        };
        let times = if self.rng.u8(..) < 30 { 2 } else { 1 };
        for _ in 0..times {
            let heard = self.now + Duration::from_millis(self.rng.u64(0..50));
            let last = self
                .events
                .back()
                .map_or(heard, |(last, ..)| heard.max(*last));
            self.events.push_back((last, change.clone(), seen));
            self.happened.push_back(self.now);
        }
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
                    self.source.0.remove(&at);
                    self.tell(Change::entry(at));
                }
            }
            _ => self.rename(path),
        }
    }

    fn rename(&mut self, from: RelPath) {
        let to = self.any_path();
        let is_dir = self.source.is_dir(&from);
        let is_possible = self.source.0.contains_key(&from)
            && self.source.has_parent(&to)
            && !to.is_within(&from)
            && !from.is_within(&to)
            && (is_dir == self.source.is_dir(&to) || !self.source.0.contains_key(&to))
            && (!is_dir || self.source.below(&to).len() <= 1);
        if is_possible {
            self.source.rename(&from, &to);
            let scope = if is_dir { Scope::Subtree } else { Scope::Entry };
            let path = to;
            let hint = Some(Hint::MovedFrom(from));
            self.tell(Change { path, scope, hint });
        }
    }

    fn hear(&mut self) {
        while self.events.front().is_some_and(|(at, ..)| *at <= self.now) {
            let (_, change, seen) = self.events.pop_front().expect("there is one");
            self.happened.pop_front();
            self.dirty.add(self.now, change, seen);
        }
        let heard = self
            .happened
            .front()
            .map_or(self.now, |at| at.saturating_sub(TICK));
        self.dirty.heard_until(heard);
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
        let ends = self.now + Duration::from_millis(self.rng.u64(0..100));
        self.lanes[lane] = Some(Work {
            taken,
            not_moved,
            found,
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
            && !self.replica.0.contains_key(to)
            && self.rng.u8(..) > 20;
        if is_possible {
            self.replica.rename(from, to);
        }
        is_possible
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
        for (path, what) in work.found {
            if let Some(why) = self.publish_if_current(&path, what, &work.taken) {
                failed.insert(path, why);
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
        if self.fails && self.rng.u16(..) < 200 {
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
        for renamed in &one.not_moved {
            self.dirty.not_moved(renamed);
        }
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
        taken: &Taken,
    ) -> Option<Failed> {
        let is_bad = self.fails && self.rng.u8(..) < 20 && taken.paths.contains_key(path);
        // The engine looks again before it publishes, and makes nothing of what has changed.
        let is_stale = self.source.0.get(path).copied() != what;
        let is_whole = path.above().chain([path.clone()]).any(|at| {
            let is_named = path.above().next().as_ref() == Some(&at);
            taken.paths.get(&at).is_some_and(|dirty| {
                dirty.scope == Scope::Subtree || dirty.scope == Scope::Names && is_named
            })
        });
        if what.is_none() && !is_whole && self.replica.below(path).len() > 1 {
            Some(Failed::Gone)
        } else if is_bad || is_stale || !self.publish(path, what) {
            Some(Failed::Problem(Class::Changing))
        } else {
            None
        }
    }

    fn publish(&mut self, path: &RelPath, what: Option<Option<u64>>) -> bool {
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

    /// The process is killed: what is in work is cut off, and what is remembered is read again.
    fn crash(&mut self) {
        self.lanes = [None, None, None];
        self.unwritten.clear();
        let remembered = self.dirty.all();
        self.dirty = DirtyPaths::new(Duration::from_secs(2));
        for (path, dirty) in remembered {
            self.dirty.add_again(path, dirty);
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

fn simulate(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..CHANGES {
        world.change();
        world.step();
        if world.rng.u16(..) < 400 {
            // On schedule.
            world.walk();
        }
        if world.rng.u16(..) < 200 {
            world.crash();
        }
    }
    world.fails = false;
    let mut steps = 0;
    while !(world.dirty.is_empty() && world.events.is_empty()) {
        world.now += Duration::from_secs(1);
        world.step();
        steps += 1;
        assert!(steps < 20_000, "seed {seed}: {:?}", world.dirty);
    }
    assert_eq!(world.replica, world.source, "seed {seed}");
}

#[test]
fn the_replica_becomes_equal_whatever_happened() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let count = number("DRIFTLESS_SEEDS").map_or(SEEDS, |hundreds: u64| 100 * hundreds);
    let seeds = number("DRIFTLESS_SEED").map_or(0..count, |seed| seed..seed + 1);
    seeds.for_each(simulate);
}
