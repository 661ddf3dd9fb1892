//! The names that a stream touches, as they are between two of its commands.
//!
//! A tree begins as the older snapshot, of which nothing is known: an entry comes into it when a
//! command first speaks of its name, with the place that it has in the older snapshot. The kernel
//! moves entries out of the way under names of its own (`o257-9-0` at the top), and replays renames
//! step by step; since entries are kept apart from their names, only where they stand at the end
//! counts.

use super::fault::StreamFault;
use super::ranges::Ranges;
use driftless_model::RelPath;
use std::collections::HashMap;

/// A path in a stream is at most `PATH_MAX` long (4096 bytes, fs/btrfs/send.c,
/// `fs_path_ensure_buf`), and each directory takes two of them at least.
const DEPTH_MAX: usize = 4096;

/// The number of an entry in its tree.
pub(super) type Id = usize;

/// The root of the subvolume.
pub(super) const ROOT: Id = 0;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) parent: Id,
    pub(super) name: Box<[u8]>,
}

/// An entry, with what is known of it.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The stream made it.
    pub(super) is_created: bool,
    /// It can hold others, as far as is known.
    pub(super) is_directory: bool,
    /// It is known to be no directory.
    pub(super) is_file: bool,
    /// The name by which it was met, in the older snapshot.
    pub(super) older: Option<Name>,
    /// The names that it has now; none when it is gone. A directory has one at most.
    pub(super) newer: Vec<Name>,
    /// Something of it differs that is not content.
    pub(super) is_touched: bool,
    /// Where its content differs.
    pub(super) ranges: Ranges,
    /// Names in it that were met; `None` where nothing stands now.
    children: HashMap<Box<[u8]>, Option<Id>>,
}

/// What the commands so far have made of the older snapshot.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    held: usize,
    held_max: usize,
}

impl Tree {
    /// With an older snapshot, or with nothing in it. Holds `held_max` names and ranges at most.
    pub(super) fn new(has_older: bool, held_max: usize) -> Tree {
        let root = Node {
            is_created: !has_older,
            is_directory: true,
            ..Node::default()
        };
        Tree {
            nodes: vec![root],
            held: 0,
            held_max,
        }
    }

    pub(super) fn ids(&self) -> std::ops::Range<Id> {
        0..self.nodes.len()
    }

    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id]
    }

    pub(super) fn node_mut(&mut self, id: Id) -> &mut Node {
        &mut self.nodes[id]
    }

    /// Counts one more name or range.
    pub(super) fn hold(&mut self) -> Result<(), StreamFault> {
        self.held += 1;
        if self.held > self.held_max {
            return Err(StreamFault::TooMany(self.held_max));
        }
        Ok(())
    }

    /// The entry at a path.
    pub(super) fn find(&mut self, path: &RelPath) -> Result<Id, StreamFault> {
        let mut id = ROOT;
        for name in path.names() {
            let child = self.child(id, name)?;
            id = child.ok_or_else(|| StreamFault::NotThere(path.clone()))?;
        }
        Ok(id)
    }

    /// What stands in a directory under a name now; an entry of the older snapshot that no command
    /// has spoken of comes into the tree.
    fn child(&mut self, parent: Id, name: &[u8]) -> Result<Option<Id>, StreamFault> {
        let node = &mut self.nodes[parent];
        if let Some(known) = node.children.get(name) {
            return Ok(*known);
        }
        if node.is_created {
            return Ok(None);
        }
        node.is_directory = true;
        let name = Name {
            parent,
            name: name.into(),
        };
        self.add(Node {
            older: Some(name.clone()),
            newer: vec![name],
            ..Node::default()
        })
        .map(Some)
    }

    /// A new entry at a path where nothing stands.
    pub(super) fn make(&mut self, path: &RelPath, is_directory: bool) -> Result<(), StreamFault> {
        let name = self.free(path)?;
        let node = Node {
            is_created: true,
            is_directory,
            is_file: !is_directory,
            newer: vec![name],
            ..Node::default()
        };
        self.add(node).map(drop)
    }

    /// A further name of an entry.
    pub(super) fn link(&mut self, path: &RelPath, existing: &RelPath) -> Result<(), StreamFault> {
        let id = self.find(existing)?;
        if id == ROOT {
            return Err(StreamFault::Root(existing.clone()));
        }
        let name = self.free(path)?;
        self.nodes[id].is_file = true;
        self.put(id, name)
    }

    /// Gives an entry another name; what stands there goes, as it does with rename(2).
    pub(super) fn rename(&mut self, path: &RelPath, to: &RelPath) -> Result<(), StreamFault> {
        let (id, from) = self.find_name(path)?;
        let to_name = self.place(to)?;
        if from == to_name {
            return Ok(());
        }
        if self.is_within(to_name.parent, id)? {
            return Err(StreamFault::Root(path.clone()));
        }
        if self.is_known_at(&to_name) {
            self.remove(to)?;
        }
        self.take(id, &from);
        self.put(id, to_name)
    }

    /// Removes a name, and says of what. Fails if it is that of a directory in which something is
    /// known to stand.
    pub(super) fn remove(&mut self, path: &RelPath) -> Result<Id, StreamFault> {
        let (id, name) = self.find_name(path)?;
        if self.nodes[id].children.values().any(Option::is_some) {
            return Err(StreamFault::NotEmpty(path.clone()));
        }
        self.take(id, &name);
        Ok(id)
    }

    fn find_name(&mut self, path: &RelPath) -> Result<(Id, Name), StreamFault> {
        let id = self.find(path)?;
        Ok((id, self.place(path)?))
    }

    /// A path as a name in a directory of the tree.
    fn place(&mut self, path: &RelPath) -> Result<Name, StreamFault> {
        let split = path.split_last();
        let (directory, name) = split.ok_or_else(|| StreamFault::Root(path.clone()))?;
        Ok(Name {
            parent: self.find(&directory)?,
            name: name.into(),
        })
    }

    fn free(&mut self, path: &RelPath) -> Result<Name, StreamFault> {
        let name = self.place(path)?;
        if self.is_known_at(&name) {
            return Err(StreamFault::Occupied(path.clone()));
        }
        Ok(name)
    }

    fn is_known_at(&self, name: &Name) -> bool {
        self.known_child(name.parent, &name.name).is_some()
    }

    /// What is known to stand in a directory under a name.
    pub(super) fn known_child(&self, parent: Id, name: &[u8]) -> Option<Id> {
        self.nodes[parent].children.get(name).copied().flatten()
    }

    fn add(&mut self, node: Node) -> Result<Id, StreamFault> {
        self.hold()?;
        let id = self.nodes.len();
        let name = node.newer[0].clone();
        self.nodes[name.parent].children.insert(name.name, Some(id));
        self.nodes.push(node);
        Ok(id)
    }

    fn put(&mut self, id: Id, name: Name) -> Result<(), StreamFault> {
        self.hold()?;
        let parent = &mut self.nodes[name.parent];
        parent.is_directory = true;
        parent.children.insert(name.name.clone(), Some(id));
        self.nodes[id].newer.push(name);
        Ok(())
    }

    fn take(&mut self, id: Id, name: &Name) {
        self.nodes[name.parent]
            .children
            .insert(name.name.clone(), None);
        self.nodes[id].newer.retain(|one| one != name);
    }

    /// Whether an entry is `top` or stands below it.
    fn is_within(&self, id: Id, top: Id) -> Result<bool, StreamFault> {
        let mut above = id;
        for _ in 0..DEPTH_MAX {
            match self.nodes[above].newer.first() {
                _ if above == top => return Ok(true),
                Some(name) => above = name.parent,
                None => return Ok(false),
            }
        }
        Err(StreamFault::TooDeep(DEPTH_MAX))
    }

    /// The path that a name has now, by those of the directories above it.
    pub(super) fn newer_path(&self, name: &Name) -> Result<RelPath, StreamFault> {
        self.path(name, |node| node.newer.first())
    }

    /// The path that a name has in the older snapshot.
    pub(super) fn older_path(&self, name: &Name) -> Result<RelPath, StreamFault> {
        self.path(name, |node| node.older.as_ref())
    }

    fn path(
        &self,
        name: &Name,
        above: impl Fn(&Node) -> Option<&Name>,
    ) -> Result<RelPath, StreamFault> {
        let mut names = vec![&name.name];
        let mut parent = name.parent;
        while let Some(name) = above(&self.nodes[parent]) {
            if names.len() == DEPTH_MAX {
                return Err(StreamFault::TooDeep(DEPTH_MAX));
            }
            names.push(&name.name);
            parent = name.parent;
        }
        Ok(RelPath::from_names(
            names.into_iter().rev().map(|name| &name[..]),
        ))
    }
}
