//! Finds the tree in which the target of a restore lies. No list shows entries that a restore puts
//! into a trash, and a full scan deletes those that it puts into a replica.

use crate::options::Options;
use driftless_model::{EntryName, Side, TRASH};
use driftless_tree::{HandlePool, Place};

/// Directories that are open at a time.
const HANDLES_MAX: usize = 16;

/// A tree that a target of a restore lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetIn {
    /// A trash, of whatever tree.
    Trash,
    /// The replica.
    Replica,
    /// Neither, as far as that can be told.
    Neither,
}

/// Finds the tree in which the target lies that `options` change. They read the replica.
pub fn find_tree_of_target(options: &Options) -> TargetIn {
    let pool = HandlePool::new(HANDLES_MAX);
    let Ok(Place::Dir(target)) = options.replica.locate(Side::Replica, &pool) else {
        return TargetIn::Neither;
    };
    let Ok(above) = target.lineage() else {
        return TargetIn::Neither;
    };
    let is_trash = |name: &EntryName| name.as_bytes() == TRASH.to_bytes();
    if above
        .iter()
        .any(|level| level.name.as_ref().is_some_and(is_trash))
    {
        return TargetIn::Trash;
    }
    let replica = options.source.locate(Side::Source, &pool);
    match replica {
        Ok(Place::Dir(replica)) if options.is_one_machine() => {
            let id = replica.first_meta().id();
            match above.iter().any(|level| level.id == id) {
                true => TargetIn::Replica,
                false => TargetIn::Neither,
            }
        }
        _ => TargetIn::Neither,
    }
}
