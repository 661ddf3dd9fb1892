//! The order in which moves can be followed one after another.
//!
//! The difference of two snapshots tells each move by its paths in the older and in the newer one,
//! as if all were made at once. Who follows them one by one needs the directory first in which
//! something is to stand, a place that is free, and the path at which it stands by then.

use driftless_model::{Change, Hint, RelPath};
use std::collections::{BTreeMap, VecDeque};

/// Puts moves first, in an order in which they can be followed, each from where its entry stands
/// when those before it were. Of moves that wait for each other in a circle, as when two entries
/// have changed places, one is not told as a move: what stands there is looked at with all below it,
/// and its content.
pub fn in_sequence(changes: Vec<Change>) -> Vec<Change> {
    let (mut moves, mut others) = (Vec::new(), Vec::new());
    for change in changes {
        match &change.hint {
            Some(Hint::MovedFrom(from)) => moves.push((from.clone(), change)),
            _ => others.push(change),
        }
    }
    let mut all = Pending::new(moves).sequence();
    all.extend(others);
    all
}

/// Moves that were not put in order yet, by their numbers.
struct Pending {
    moves: Vec<Option<Change>>,
    /// Where each stands by now.
    places: Vec<RelPath>,
    /// Which stands there.
    stands: BTreeMap<RelPath, usize>,
    /// Which is to stand there.
    ends: BTreeMap<RelPath, usize>,
    /// Which waits for which, and the other way round.
    awaits: BTreeMap<usize, usize>,
    waiting: BTreeMap<usize, Vec<usize>>,
    ready: VecDeque<usize>,
}

impl Pending {
    fn new(moves: Vec<(RelPath, Change)>) -> Pending {
        let (places, moves): (Vec<RelPath>, Vec<Change>) = moves.into_iter().unzip();
        let by_path = |paths: &mut dyn Iterator<Item = &RelPath>| {
            let numbered = paths.enumerate();
            numbered
                .map(|(number, path)| (path.clone(), number))
                .collect()
        };
        Pending {
            stands: by_path(&mut places.iter()),
            ends: by_path(&mut moves.iter().map(|change| &change.path)),
            awaits: BTreeMap::new(),
            waiting: BTreeMap::new(),
            ready: (0..moves.len()).collect(),
            moves: moves.into_iter().map(Some).collect(),
            places,
        }
    }

    fn sequence(mut self) -> Vec<Change> {
        let (mut all, mut given_up) = (Vec::with_capacity(self.moves.len()), Vec::new());
        loop {
            while let Some(number) = self.ready.pop_front() {
                match self.obstacle(number) {
                    Some(other) => self.wait(number, other),
                    None => all.extend(self.follow(number)),
                }
            }
            let Some(number) = self.in_circle() else {
                all.extend(given_up);
                return all;
            };
            let change = self.take(number);
            // Of what stands there meanwhile, sizes and times may be the same.
            let doubt = |change: Change| Change::subtree(change.path).with(Hint::content());
            given_up.extend(change.map(doubt));
        }
    }

    /// A move that has to be followed before this one: of a directory above, of what stands in the
    /// way, or of something in it.
    fn obstacle(&self, number: usize) -> Option<usize> {
        let to = &self.moves[number].as_ref()?.path;
        let mut above = to.above().filter_map(|dir| self.ends.get(&dir).copied());
        let is_other = |other: &usize| *other != number;
        let in_the_way = || {
            let places = std::iter::once(to.clone()).chain(to.above());
            places
                .filter_map(|place| self.stands.get(&place).copied())
                .chain(at_and_below(&self.stands, to).map(|(_, other)| other))
                .find(is_other)
        };
        above.next().or_else(in_the_way)
    }

    fn wait(&mut self, number: usize, other: usize) {
        self.awaits.insert(number, other);
        self.waiting.entry(other).or_default().push(number);
    }

    /// The next move of the sequence; it takes along what stands below.
    fn follow(&mut self, number: usize) -> Option<Change> {
        let change = self.take(number)?;
        let (from, to) = (self.places[number].clone(), &change.path);
        let below: Vec<(RelPath, usize)> = at_and_below(&self.stands, &from).collect();
        for (place, other) in below {
            self.stands.remove(&place);
            self.places[other] = place.rebased(&from, to);
            self.stands.insert(self.places[other].clone(), other);
        }
        if from == *to {
            // A directory above has taken it there.
            return Some(Change::entry(from));
        }
        Some(change.with(Hint::MovedFrom(from)))
    }

    /// Takes a move out; those that waited for it are looked at again.
    fn take(&mut self, number: usize) -> Option<Change> {
        let change = self.moves[number].take()?;
        if self.stands.get(&self.places[number]) == Some(&number) {
            self.stands.remove(&self.places[number]);
        }
        self.ends.remove(&change.path);
        self.awaits.remove(&number);
        for other in self.waiting.remove(&number).unwrap_or_default() {
            self.awaits.remove(&other);
            self.ready.push_back(other);
        }
        Some(change)
    }

    /// One of those that wait for each other in a circle.
    fn in_circle(&self) -> Option<usize> {
        let mut number = *self.awaits.keys().next()?;
        // After as many steps as there are, the way goes round.
        for _ in 0..self.awaits.len() {
            number = *self.awaits.get(&number)?;
        }
        Some(number)
    }
}

/// What stands at a path and below it.
fn at_and_below(
    stands: &BTreeMap<RelPath, usize>,
    path: &RelPath,
) -> impl Iterator<Item = (RelPath, usize)> {
    let at = stands.get_key_value(path).into_iter();
    at.chain(stands.range::<[u8], _>(path.below()))
        .map(|(place, other)| (place.clone(), *other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::Scope;
    use std::collections::BTreeSet;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn moved(from: &str, to: &str) -> Change {
        Change::subtree(path(to)).with(Hint::MovedFrom(path(from)))
    }

    fn sequence(moves: &[(&str, &str)]) -> Vec<String> {
        let changes = moves.iter().map(|(from, to)| moved(from, to)).collect();
        let told = |change: Change| match change.hint {
            Some(Hint::MovedFrom(from)) => format!("{from} > {}", change.path),
            _ => change.path.to_string(),
        };
        in_sequence(changes).into_iter().map(told).collect()
    }

    #[test]
    fn moves_wait_for_room_and_are_told_from_where_things_stand_by_then() {
        // The log files of a day.
        assert_eq!(
            sequence(&[("log", "log.1"), ("log.1", "log.2")]),
            ["log.1 > log.2", "log > log.1"]
        );
        // Into a directory that has moved itself, and out of it.
        assert_eq!(
            sequence(&[("x", "b/x"), ("a", "b"), ("a/y", "y")]),
            ["a > b", "b/y > y", "x > b/x"]
        );
        // What was below takes the place.
        assert_eq!(sequence(&[("a", "b"), ("a/x", "a")]), ["a > b", "b/x > a"]);
        // Into a new directory where another stood.
        assert_eq!(sequence(&[("f", "d/f"), ("d", "e")]), ["d > e", "f > d/f"]);
        // Taken along by the directory above.
        assert_eq!(sequence(&[("a", "b"), ("a/x", "b/x")]), ["a > b", "b/x"]);
        assert_eq!(sequence(&[("a", "b"), ("b", "a")]), ["b > a", "b"]);
        assert_eq!(
            sequence(&[
                ("a", "b"),
                ("b", "c"),
                ("c", "a"),
                ("d", "d.1"),
                ("d.0", "d")
            ]),
            ["d > d.1", "d.0 > d", "c > a", "b > c", "b"]
        );
    }

    /// Entries by their numbers: name and parent.
    type Tree = BTreeMap<u64, (u64, u64)>;

    fn path_of(tree: &Tree, entry: u64) -> RelPath {
        if entry == 0 {
            return RelPath::root();
        }
        let (parent, name) = tree[&entry];
        path_of(tree, parent).join(format!("n{name}").as_bytes())
    }

    fn is_above(tree: &Tree, one: u64, mut entry: u64) -> bool {
        while entry != 0 && entry != one {
            entry = tree[&entry].0;
        }
        entry == one
    }

    /// Renames an entry into another directory, if there is room.
    fn shake(tree: &mut Tree, rng: &mut fastrand::Rng) {
        let count = tree.len() as u64;
        let (entry, parent, name) = (rng.u64(1..=count), rng.u64(0..=count), rng.u64(..4));
        let is_free = tree.values().all(|one| *one != (parent, name));
        if is_free && !is_above(tree, entry, parent) {
            tree.insert(entry, (parent, name));
        }
    }

    #[test]
    fn followed_one_after_another_all_stand_where_they_should() {
        let mut followed = 0;
        for seed in 0..2000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut older = Tree::new();
            for entry in 1..=rng.u64(2..12) {
                let parent = rng.u64(0..entry);
                let free = (0..20).find(|name| older.values().all(|one| *one != (parent, *name)));
                older.insert(entry, (parent, free.unwrap()));
            }
            let mut newer = older.clone();
            (0..rng.u64(1..30)).for_each(|_| shake(&mut newer, &mut rng));
            followed += check(&older, &newer, seed);
        }
        assert!(followed > 5000, "{followed}");
    }

    fn check(older: &Tree, newer: &Tree, seed: u64) -> usize {
        let moves = older.keys().filter(|entry| older[entry] != newer[entry]);
        let changes = moves.map(|entry| {
            let from = path_of(older, *entry);
            Change::subtree(path_of(newer, *entry)).with(Hint::MovedFrom(from))
        });
        let mut stand: BTreeMap<RelPath, u64> = older
            .keys()
            .map(|entry| (path_of(older, *entry), *entry))
            .collect();
        let in_order = in_sequence(changes.collect());
        let entry_at = |path: &RelPath| {
            let mut entries = newer.keys().copied();
            entries.find(|entry| path_of(newer, *entry) == *path)
        };
        let mut given_up = BTreeSet::new();
        let mut followed = 0;
        for change in &in_order {
            if change.hint == Some(Hint::content()) {
                assert_eq!(change.scope, Scope::Subtree);
                given_up.extend(entry_at(&change.path));
            }
        }
        for change in in_order {
            let Some(Hint::MovedFrom(from)) = change.hint else {
                continue;
            };
            let entry = entry_at(&change.path).unwrap();
            let is_free = stand.keys().all(|place| !place.is_within(&change.path));
            if !is_free || stand.get(&from) != Some(&entry) {
                assert!(!given_up.is_empty(), "seed {seed}: {}", change.path);
                given_up.insert(entry);
                continue;
            }
            followed += 1;
            let below: Vec<RelPath> = stand
                .keys()
                .filter(|place| place.is_within(&from))
                .cloned()
                .collect();
            for place in below {
                let one = stand.remove(&place).unwrap();
                stand.insert(place.rebased(&from, &change.path), one);
            }
        }
        for (place, entry) in &stand {
            let is_below_one = newer
                .keys()
                .any(|one| given_up.contains(one) && is_above(newer, *one, *entry));
            assert!(
                is_below_one || *place == path_of(newer, *entry),
                "seed {seed}: {place} is not {}",
                path_of(newer, *entry)
            );
        }
        followed
    }
}
