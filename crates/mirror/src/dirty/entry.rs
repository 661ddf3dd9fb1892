//! One path that is left to do.

use driftless_model::{RelPath, Scope, Stamp};
use std::time::Duration;

/// A path that has failed so often in a row needs somebody's help.
pub const ATTEMPTS_BEFORE_QUARANTINE: u32 = 6;

/// One dirty path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirty {
    /// How far below.
    pub scope: Scope,
    /// When the first change was heard of that is not on the replica.
    pub since: Duration,
    /// When it is to be looked at.
    pub due: Duration,
    /// How often it has failed in a row.
    pub attempts: u32,
    /// It takes long: a large file, all below a directory, or its names.
    pub is_long: bool,
    /// With all below: only what has changed since that moment of the source's clock.
    pub gap: Option<Stamp>,
    /// Its content may differ although its size and times agree.
    pub is_doubtful: bool,
}

impl Dirty {
    /// A path that has not failed.
    pub fn new(scope: Scope, since: Duration, due: Duration) -> Self {
        Dirty {
            scope,
            since,
            due,
            attempts: 0,
            is_long: scope > Scope::Entry,
            gap: None,
            is_doubtful: false,
        }
    }

    /// As it is to be looked at when it was not done to its end. A directory that was new may be
    /// there in part by then, and to compare the names around it would pass it by.
    #[must_use]
    pub fn repeated(&self) -> Self {
        let scope = match self.scope {
            Scope::Entry => Scope::Entry,
            Scope::Names | Scope::Subtree => Scope::Subtree,
        };
        Dirty {
            scope,
            ..self.clone()
        }
    }

    /// Returns how to look again at what was worked on while it was renamed: the copy of another
    /// file may have been published here, and may have its size and times.
    pub(super) fn raced(&self) -> Dirty {
        Dirty {
            is_doubtful: self.is_doubtful || self.scope == Scope::Entry,
            ..self.clone()
        }
    }

    /// It and all below it is looked at.
    pub(super) fn is_whole(&self) -> bool {
        self.scope == Scope::Subtree && self.gap.is_none()
    }

    /// It has failed too often to be tried soon.
    pub fn is_in_quarantine(&self) -> bool {
        self.attempts >= ATTEMPTS_BEFORE_QUARANTINE
    }

    /// Where the path is worked on.
    pub(super) fn lane(&self, path: &RelPath) -> Lane {
        match self.is_long {
            true if path.is_root() && self.scope == Scope::Subtree => Lane::Walk,
            true => Lane::Long,
            false => Lane::Short,
        }
    }

    /// What is known of the same path from before.
    pub(super) fn join(&mut self, known: &Dirty) {
        self.gap = match self.is_whole() || known.is_whole() {
            true => None,
            false => [self.gap, known.gap].into_iter().flatten().min(),
        };
        self.scope = self.scope.max(known.scope);
        self.since = self.since.min(known.since);
        self.attempts = self.attempts.max(known.attempts);
        self.is_long |= known.is_long;
        self.is_doubtful |= known.is_doubtful;
    }
}

/// What is worked on at a time beside others, so that what is short never waits for what is long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Renames and entries.
    #[default]
    Short,
    /// Large files, all below a directory, and its names.
    Long,
    /// Everything.
    Walk,
}

impl Lane {
    /// All there are.
    pub(super) const ALL: [Lane; 3] = [Lane::Short, Lane::Long, Lane::Walk];
}
