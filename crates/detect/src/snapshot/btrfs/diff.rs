//! What differs between two snapshots, by the commands that make one of the other.
//!
//! The changes are told by their paths in the newer snapshot, since that is what the replica is to
//! become and what is read:
//!
//! - A created entry: `Entry`. All that is in a created directory has commands of its own. Where a
//!   directory stood that is elsewhere now, `Subtree`: on a replica that has not moved it, what is
//!   in it still stands there.
//! - A moved entry: [`Hint::MovedFrom`], with `Subtree` unless it is known to be no directory. Who
//!   has followed the hint need look at the entry alone, since what differs below is told, too.
//! - A name that is gone: `Subtree` unless it is known to be no directory's, since what was in that
//!   is not told; at the place that its directory has in the newer snapshot. Nothing if something
//!   else has the name, which then has a change of its own.
//! - Content: `Entry` with [`Hint::Ranges`]; metadata and links: `Entry`. Other names of a file
//!   with several are told only if a command has named them.
//!
//! Any part of the moves may be followed, or none: the changes make a replica of the older snapshot
//! one of the newer. Moves come first, since where they were not followed yet what stands at the old
//! places goes. Moved directories hold each other in any order, so who follows hints takes all of
//! them out first, that of the longest old path first, and puts them in by their new paths.

use super::command::{Command, Made};
use super::fault::{StreamError, StreamFault};
use super::stream::Stream;
use super::tree::{Id, Name, Node, ROOT, Tree};
use driftless_model::{Change, Hint, RelPath, Scope};
use std::collections::HashSet;
use std::io::Read;

/// So many names and ranges are held of a stream; each takes some 300 bytes. A source of which more
/// differs is compared as a whole in the same time.
const HELD_MAX: usize = 16 << 20;

/// Reads a stream to its end and says what differs: moves first, each part in the order of the
/// paths.
///
/// Fails if it is damaged, cut off, or not what `btrfs send` makes.
pub fn changes(reader: impl Read) -> Result<Vec<Change>, StreamError> {
    let mut stream = Stream::new(reader)?;
    let mut diff = Diff::default();
    while let Some(command) = stream.next().transpose()? {
        let applied = diff.apply(&command);
        applied.map_err(|fault| fault.at(stream.offset()))?;
    }
    diff.changes().map_err(|fault| fault.at(stream.offset()))
}

/// The commands of a stream so far, and what they come to.
#[derive(Debug)]
pub struct Diff {
    tree: Option<Tree>,
    held_max: usize,
}

impl Default for Diff {
    fn default() -> Self {
        Diff::bounded(HELD_MAX)
    }
}

impl Diff {
    /// Holds `held_max` names and ranges at most.
    pub fn bounded(held_max: usize) -> Diff {
        Diff {
            tree: None,
            held_max,
        }
    }

    /// Replays one command. Fails if it does not fit what the commands before it have made.
    pub fn apply(&mut self, command: &Command) -> Result<(), StreamFault> {
        match (&mut self.tree, command) {
            (Some(_), Command::Subvolume { .. }) => Err(StreamFault::SecondSubvolume),
            (Some(tree), _) => replay(tree, command),
            (None, Command::Subvolume { parent, .. }) => {
                self.tree = Some(Tree::new(parent.is_some(), self.held_max));
                Ok(())
            }
            (None, _) => Err(StreamFault::NoSubvolume),
        }
    }

    /// What differs: moves first, each part in the order of the paths. Fails if there was no command.
    pub fn changes(self) -> Result<Vec<Change>, StreamFault> {
        let tree = self.tree.ok_or(StreamFault::NoSubvolume)?;
        let mut all = Vec::new();
        let mut merging = HashSet::new();
        for id in tree.ids() {
            match vacated(&tree, id)? {
                Vacated::Empty(change) => all.push(change),
                Vacated::Merging(directory) => drop(merging.insert(directory)),
                Vacated::Elsewhere => (),
            }
        }
        for id in tree.ids() {
            standing(&tree, id, merging.contains(&id), &mut all)?;
        }
        Ok(in_order(all))
    }
}

/// Moves first, each part in the order of the paths. A name may be left by two directories that
/// have had one place.
fn in_order(mut all: Vec<Change>) -> Vec<Change> {
    let is_move = |change: &Change| matches!(change.hint, Some(Hint::MovedFrom(_)));
    all.sort_by(|a, b| (!is_move(a), &a.path).cmp(&(!is_move(b), &b.path)));
    all.dedup_by(|other, kept| {
        let is_same = other.path == kept.path;
        if is_same && other.scope == Scope::Subtree {
            kept.scope = Scope::Subtree;
        }
        is_same
    });
    all
}

fn replay(tree: &mut Tree, command: &Command) -> Result<(), StreamFault> {
    match command {
        Command::Subvolume { .. } => Err(StreamFault::SecondSubvolume),
        Command::Make { path, made, .. } => tree.make(path, *made == Made::Directory),
        Command::Rename { path, to } => tree.rename(path, to),
        Command::Link { path, existing } => tree.link(path, existing),
        Command::RemoveDirectory { path } => tree.remove(path).map(drop),
        Command::Unlink { path } => {
            let id = tree.remove(path)?;
            tree.node_mut(id).is_file = true;
            Ok(())
        }
        Command::Content { path, range } => differs(tree, path, range.clone()),
        // What lay behind the new end; where a file has grown, what has no range of its own reads
        // as zeros on both sides.
        Command::Truncate { path, size } => differs(tree, path, *size..u64::MAX),
        Command::Meta { path } => {
            let id = tree.find(path)?;
            tree.node_mut(id).is_touched = true;
            Ok(())
        }
    }
}

fn differs(
    tree: &mut Tree,
    path: &RelPath,
    range: std::ops::Range<u64>,
) -> Result<(), StreamFault> {
    let id = tree.find(path)?;
    let node = tree.node_mut(id);
    node.is_touched = true;
    node.is_file = true;
    // All content of a created file is new, with or without ranges.
    if !node.is_created && node.ranges.add(range) {
        tree.hold()?;
    }
    Ok(())
}

/// What has become of the place that an entry had in the older snapshot.
enum Vacated {
    /// It is still there, or what is above the place is told.
    Elsewhere,
    /// Nothing stands there now.
    Empty(Change),
    /// A created directory stands there, and the entry, which may be one, is elsewhere.
    Merging(Id),
}

fn vacated(tree: &Tree, id: Id) -> Result<Vacated, StreamFault> {
    let node = tree.node(id);
    let left = node
        .older
        .as_ref()
        .filter(|name| !node.newer.contains(name));
    let Some((name, parent)) = left.and_then(|name| Some((name, heir(tree, name.parent)?))) else {
        return Ok(Vacated::Elsewhere);
    };
    match tree.known_child(parent, &name.name) {
        None => {
            let place = Name {
                parent,
                name: name.name.clone(),
            };
            let path = tree.newer_path(&place)?;
            Ok(Vacated::Empty(Change {
                path,
                scope: scope_of(node),
                hint: None,
            }))
        }
        Some(now) if is_created_directory(tree.node(now)) && !node.newer.is_empty() => {
            Ok(Vacated::Merging(now))
        }
        Some(_) => Ok(Vacated::Elsewhere),
    }
}

/// The directory that stands now where a replica has this one: itself, or, if it is gone, the
/// created one that has its place. A replica makes no new directory where there is one, so what the
/// old one held has to go name by name.
fn heir(tree: &Tree, directory: Id) -> Option<Id> {
    let mut names = Vec::new();
    let mut now = directory;
    while now != ROOT && tree.node(now).newer.is_empty() {
        let name = tree.node(now).older.as_ref()?;
        names.push(&name.name);
        now = name.parent;
    }
    for name in names.into_iter().rev() {
        now = tree.known_child(now, name)?;
        if !is_created_directory(tree.node(now)) {
            return None;
        }
    }
    Some(now)
}

/// How far a change of place reaches.
fn scope_of(node: &Node) -> Scope {
    if node.is_file {
        Scope::Entry
    } else {
        Scope::Subtree
    }
}

fn is_created_directory(node: &Node) -> bool {
    node.is_created && node.is_directory
}

/// The changes at the names that an entry has in the newer snapshot.
fn standing(
    tree: &Tree,
    id: Id,
    is_merging: bool,
    all: &mut Vec<Change>,
) -> Result<(), StreamFault> {
    let node = tree.node(id);
    if id == ROOT && (node.is_touched || node.is_created) {
        all.push(Change::entry(RelPath::root()));
    }
    let has_left = |older: &&Name| !node.newer.contains(older);
    let mut origin = node.older.as_ref().filter(has_left);
    for name in &node.newer {
        let mut change = Change::entry(tree.newer_path(name)?);
        if node.older.as_ref() == Some(name) {
            if !node.is_touched && node.newer.len() == 1 {
                continue;
            }
            change.hint = (!node.ranges.is_empty()).then(|| Hint::Ranges(node.ranges.merged()));
        } else if let Some(older) = origin.take() {
            change.hint = Some(Hint::MovedFrom(tree.older_path(older)?));
            change.scope = scope_of(node);
        } else if is_merging {
            change.scope = Scope::Subtree;
        }
        all.push(change);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
