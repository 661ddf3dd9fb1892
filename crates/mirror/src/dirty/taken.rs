//! What is taken to be done at once: renames, and paths.

use super::{Dirty, Lane, reaches};
use driftless_model::{RelPath, Scope, Stamp, Work};
use std::collections::BTreeMap;
use std::time::Duration;

/// An entry of the replica that is to be renamed, since its source was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Where it stood.
    pub from: RelPath,
    /// Where it stands.
    pub to: RelPath,
    /// When that was heard of.
    pub since: Duration,
    /// It is a directory.
    pub is_dir: bool,
}

impl Move {
    /// Either name, where it is not known whether the rename was carried out. The replica may still
    /// have a directory where the source had a file, and another file of the same size and times.
    pub(super) fn end(&self) -> Dirty {
        Dirty {
            is_long: self.is_dir,
            is_doubtful: true,
            ..Dirty::new(Scope::Subtree, self.since, self.since)
        }
    }
}

/// What is taken to be done at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Where.
    pub lane: Lane,
    /// Renames, to be carried out first and in this order.
    pub moves: Vec<Move>,
    /// Paths with what is known of them.
    pub paths: BTreeMap<RelPath, Dirty>,
}

impl Taken {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty() && self.paths.is_empty()
    }

    /// From when on changes may have been missed, if that is what it is about.
    pub fn gap(&self) -> Option<Stamp> {
        let mut gaps = self.paths.values().filter_map(|dirty| dirty.gap);
        gaps.next()
    }

    /// When the first change of it was heard of.
    pub fn since(&self) -> Option<Duration> {
        self.paths.values().map(|dirty| dirty.since).min()
    }

    /// Whether all is compared.
    pub fn is_walk(&self) -> bool {
        self.lane == Lane::Walk && self.gap().is_none()
    }

    /// What may differ in its content although sizes and times agree.
    pub fn doubtful(&self) -> impl Iterator<Item = Work> {
        let paths = self.paths.iter();
        paths.filter(|(_, dirty)| dirty.is_doubtful).map(work_of)
    }

    /// Whether the content of what is at a path may differ although sizes and times agree.
    pub fn doubts(&self, path: &RelPath) -> bool {
        let at = std::iter::once(path.clone()).chain(path.above());
        let doubtful = at.filter_map(|at| self.paths.get_key_value(&at));
        doubtful
            .filter(|(_, dirty)| dirty.is_doubtful)
            .any(|(at, dirty)| reaches((at, dirty.scope), path))
    }

    /// The paths as the engine takes them.
    pub fn works(&self) -> Vec<Work> {
        self.paths.iter().map(work_of).collect()
    }
}

pub(super) fn work_of((path, dirty): (&RelPath, &Dirty)) -> Work {
    Work {
        path: path.clone(),
        scope: dirty.scope,
    }
}
