//! Where the entries of a diff stand in the newer snapshot.
//!
//! ZFS tells a directory that has moved once, and what has gone from it by its old path: on the
//! replica, which follows the move, that is elsewhere. What is found here makes a replica of the
//! older snapshot one of the newer whether it follows moves or not, as with btrfs.

use super::{Done, Found, Record};
use driftless_model::{Change, Hint, RelPath};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What the lines say, by path.
#[derive(Default)]
struct Sides<'a> {
    /// New paths by those of the older snapshot.
    moved: HashMap<&'a RelPath, &'a RelPath>,
    /// Paths in the older snapshot of what is gone.
    removed: HashSet<&'a RelPath>,
    /// Paths in the older snapshot of what has moved or is gone, and is known to be no directory.
    files: HashSet<&'a RelPath>,
    /// Paths in the newer snapshot of what was created or has moved there.
    arrived: HashSet<&'a RelPath>,
    created: HashSet<&'a RelPath>,
}

pub(super) fn found(records: &[Record]) -> Found {
    let entries = || records.iter().filter(|record| !record.is_attribute);
    let sides = Sides::of(entries());
    let mut changes = BTreeMap::new();
    for record in entries() {
        match &record.done {
            Done::Created | Done::Modified(_) => {
                // Another line may say more of the path.
                let hint = sides.is_left(&record.path).then(Hint::content);
                let change = Change {
                    hint,
                    ..Change::entry(record.path.clone())
                };
                changes.entry(change.path.clone()).or_insert(change);
            }
            Done::Renamed(to) => {
                let change = sides.arrival(&record.path, to);
                changes.insert(change.path.clone(), change);
            }
            Done::Removed => {}
        }
    }
    sides.leave(&mut changes);
    for record in records.iter().filter(|record| record.is_attribute) {
        // Of an attribute that is gone the owner may have moved; a name that looks like a directory
        // of attributes may be a user's.
        let owner = sides.now(&record.path);
        changes.insert(owner.clone(), Change::subtree(owner));
    }
    let (mut all, others): (Vec<Change>, Vec<Change>) = changes
        .into_values()
        .partition(|change| matches!(change.hint, Some(Hint::MovedFrom(_))));
    all.extend(others);
    Found {
        changes: all,
        directories: directories(records),
    }
}

impl<'a> Sides<'a> {
    fn of(records: impl Iterator<Item = &'a Record>) -> Self {
        let mut sides = Sides::default();
        for record in records {
            let path = &record.path;
            let has_left = matches!(record.done, Done::Removed | Done::Renamed(_));
            if has_left && record.kind.is_some_and(|kind| kind != b'/') {
                sides.files.insert(path);
            }
            match &record.done {
                Done::Created => drop(sides.created.insert(path)),
                Done::Removed => drop(sides.removed.insert(path)),
                Done::Modified(_) => (),
                Done::Renamed(to) => {
                    sides.moved.insert(path, to);
                    sides.arrived.insert(to);
                }
            }
        }
        sides.arrived.extend(&sides.created);
        sides
    }

    /// Whether something else stood at a path: its size and times may be those of what is there now.
    fn is_left(&self, path: &RelPath) -> bool {
        self.removed.contains(path) || self.moved.contains_key(path)
    }

    /// A hint that says no more than that of a directory above is left away.
    fn arrival(&self, from: &RelPath, to: &RelPath) -> Change {
        if self.left_at(from) == *to {
            return Change::entry(to.clone());
        }
        let hint = Hint::MovedFrom(from.clone());
        self.reaching(from, to.clone()).with(hint)
    }

    /// A change at a place that an entry has left or come to.
    fn reaching(&self, older: &RelPath, place: RelPath) -> Change {
        if self.files.contains(older) {
            Change::entry(place)
        } else {
            Change::subtree(place)
        }
    }

    /// The path in the newer snapshot of a path of the older, its own move or removal left out.
    fn left_at(&self, older: &RelPath) -> RelPath {
        let names: Vec<&[u8]> = older.names().collect();
        let mut above = older.split_last().map(|(directory, _)| directory);
        for depth in (1..names.len()).rev() {
            let directory = above.take().expect("as many as there are names");
            if let Some(to) = self.moved.get(&directory) {
                return RelPath::from_names(to.names().chain(names[depth..].iter().copied()));
            }
            above = directory.split_last().map(|(directory, _)| directory);
        }
        older.clone()
    }

    /// The path in the newer snapshot of an entry that may have moved.
    fn now(&self, older: &RelPath) -> RelPath {
        let moved = self.moved.get(older).map(|to| (*to).clone());
        moved.unwrap_or_else(|| self.left_at(older))
    }

    /// Adds the places that something has left, and nothing has taken.
    fn leave(&self, changes: &mut BTreeMap<RelPath, Change>) {
        for older in self.removed.iter().chain(self.moved.keys()) {
            let place = self.left_at(older);
            if !self.arrived.contains(&place) {
                if !self.is_told_above(older) {
                    let change = self.reaching(older, place.clone());
                    changes.entry(place).or_insert(change);
                }
            } else if self.moved.contains_key(older) && self.created.contains(&place) {
                // On a replica that has not moved it, what is in it still stands there.
                changes.insert(place.clone(), Change::subtree(place));
            }
        }
    }

    /// Whether the directory is gone and nothing stands in its place, so that all in it goes with
    /// it.
    fn is_told_above(&self, older: &RelPath) -> bool {
        let above = older.split_last().map(|(directory, _)| directory);
        above.is_some_and(|directory| {
            self.removed.contains(&directory) && !self.arrived.contains(&self.left_at(&directory))
        })
    }
}

/// Where names of files that have got or lost some may stand: in every directory that is another.
fn directories(records: &[Record]) -> Vec<RelPath> {
    let has_links = |record: &Record| matches!(record.done, Done::Modified(more) if more != 0);
    if !records.iter().any(has_links) {
        return Vec::new();
    }
    let may_be = |record: &&Record| {
        record.kind.is_none_or(|kind| kind == b'/') && !record.is_attribute && !has_links(record)
    };
    let paths: BTreeSet<&RelPath> = records
        .iter()
        .filter(may_be)
        .filter_map(|record| match &record.done {
            Done::Modified(_) | Done::Created => Some(&record.path),
            Done::Renamed(to) => Some(to),
            Done::Removed => None,
        })
        .collect();
    paths.into_iter().cloned().collect()
}
