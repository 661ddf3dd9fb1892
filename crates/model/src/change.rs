//! What detectors say: that a path may differ now, and where they may have missed something.
//!
//! Nothing is replayed: whoever hears of a change looks at the path as it is then. So a change may
//! come late, twice or without reason, and what a hint says may be wrong.

use crate::{RelPath, Scope, Stamp, Work};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A detector's word: this path may differ now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Where.
    pub path: RelPath,
    /// How far below.
    pub scope: Scope,
    /// What may spare work. May be wrong, and does no harm then.
    pub hint: Option<Hint>,
}

/// What a detector knows beside the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hint {
    /// The entry, with all below it, stood at this path before. That path is no longer there, or
    /// has a change of its own.
    MovedFrom(RelPath),
    /// Content was written: only these ranges may differ, in bytes, in order, none empty. Sizes and
    /// times need not show that. Of a directory with all below it, that of each file in it.
    Ranges(Vec<Range<u64>>),
}

impl Hint {
    /// Content may differ anywhere, whatever sizes and times say.
    pub fn content() -> Hint {
        Hint::Ranges(std::iter::once(0..u64::MAX).collect())
    }
}

/// Where changes may have been missed: in a subtree, from one moment to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The root of the subtree.
    pub path: RelPath,
    /// Everything before was heard of; `None` if nothing is known of before.
    pub since: Option<Stamp>,
    /// Everything after is heard of.
    pub until: Stamp,
}

impl Change {
    /// The entry at `path` may differ.
    pub fn entry(path: RelPath) -> Self {
        Change {
            path,
            scope: Scope::Entry,
            hint: None,
        }
    }

    /// The directory at `path` may have other names or entries in it.
    pub fn names(path: RelPath) -> Self {
        Change {
            path,
            scope: Scope::Names,
            hint: None,
        }
    }

    /// The entry at `path` and everything below it may differ.
    pub fn subtree(path: RelPath) -> Self {
        Change {
            path,
            scope: Scope::Subtree,
            hint: None,
        }
    }

    /// The same change with a hint.
    #[must_use]
    pub fn with(self, hint: Hint) -> Self {
        Change {
            hint: Some(hint),
            ..self
        }
    }
}

impl From<Change> for Work {
    fn from(change: Change) -> Self {
        Work {
            path: change.path,
            scope: change.scope,
        }
    }
}
