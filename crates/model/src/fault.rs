//! What can go wrong with one path, and what follows from it.
//!
//! A [`Fault`] is one failed call; a [`Problem`] is a path that could not be made equal because of
//! one. The run goes on.

use crate::{Act, RelPath, cause_of, errno, escape, escape_text};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Which tree an act was on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The tree that is read.
    Source,
    /// The tree that is made equal.
    Replica,
}

impl Side {
    /// The other tree.
    #[must_use]
    pub fn other(self) -> Side {
        match self {
            Side::Source => Side::Replica,
            Side::Replica => Side::Source,
        }
    }

    /// The word with its article: `the source`.
    pub fn tree(self) -> String {
        format!("the {}", self.word())
    }

    /// The word used in output.
    pub fn word(self) -> &'static str {
        match self {
            Side::Source => "source",
            Side::Replica => "replica",
        }
    }
}

/// One call that failed: where, what was tried, and the kernel's error number (errno(3)). It is not
/// sent as it is: what a peer says of its failures is checked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The tree it happened on.
    pub side: Side,
    /// What was tried.
    pub act: Act,
    /// The error number, or [`LINE_LOST`].
    pub errno: i32,
}

/// In place of an error number: the connection to the host that the tree is on is lost. No kernel
/// gives it (`MAX_ERRNO` of linux/err.h is 4095) and no peer can, so nothing else is taken for it.
pub const LINE_LOST: i32 = 4096;

impl Fault {
    /// Whether the entry is known not to be there: there is none, or its file system can have none
    /// by a name that is so long, as long as it is looked for by that name alone. No other error
    /// proves that, a stale handle of a network file system neither.
    pub fn is_missing(&self) -> bool {
        let is_looked_for = matches!(self.act, Act::LookAt | Act::OpenDirectory);
        self.errno == errno::ENOENT || is_looked_for && self.errno == errno::ENAMETOOLONG
    }

    /// Whether what should be a directory is none (`ENOTDIR`; `ELOOP` for a symbolic link).
    pub fn is_no_directory(&self) -> bool {
        matches!(self.errno, errno::ENOTDIR | errno::ELOOP)
    }

    /// Whether there is no such entry, or what should be a directory is none.
    pub fn is_absent(&self) -> bool {
        self.is_missing() || self.is_no_directory()
    }

    /// Whether the handle is not good any more (`ESTALE`): what it stood for was removed, replaced,
    /// or is out of reach.
    pub fn is_stale(&self) -> bool {
        self.errno == errno::ESTALE
    }

    /// Whether there was no room (`ENOSPC`, `EDQUOT`).
    pub fn lacks_room(&self) -> bool {
        matches!(self.errno, errno::ENOSPC | errno::EDQUOT)
    }

    /// Whether this user may not do that.
    pub fn is_denied(&self) -> bool {
        matches!(self.errno, errno::EPERM | errno::EACCES)
    }

    /// Whether the connection to the host that the tree is on is lost ([`LINE_LOST`]).
    pub fn is_cut_off(&self) -> bool {
        self.errno == LINE_LOST
    }

    /// Why it failed, in words.
    pub fn cause(&self) -> String {
        cause_of(self.act, self.errno)
    }

    /// The fault in words that name no tree, where there is but one.
    pub fn alone(&self) -> String {
        format!("cannot {}: {}", self.act.words(), self.cause())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "cannot {}: {}", self.act.on(self.side), self.cause())
    }
}

impl std::error::Error for Fault {}

/// What follows from a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The source kept changing or vanished while it was copied; the next run will see.
    Changing,
    /// The entry was made equal but for a property that this user or this file system cannot keep.
    Partly,
    /// The entry was left as it was; a later run may succeed.
    Skip,
    /// Going on would be wrong; the run ended.
    Stop,
}

impl Class {
    /// The word used in output.
    pub fn word(self) -> &'static str {
        match self {
            Class::Changing => "changing",
            Class::Partly => "partly",
            Class::Skip => "skip",
            Class::Stop => "stop",
        }
    }

    /// What follows, for a person.
    pub fn follows(self) -> &'static str {
        match self {
            Class::Changing => "run again when it is quiet",
            Class::Partly => "the rest of it was kept",
            Class::Skip => "left as it was",
            Class::Stop => "the run ended",
        }
    }
}

/// A path that is not equal after the run, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The path below the root.
    pub path: RelPath,
    /// The tree it happened on.
    pub side: Side,
    /// What was tried.
    pub act: Act,
    /// Why it failed, in words; of a mover, they are escaped when they are decoded.
    #[serde(deserialize_with = "escaped")]
    pub cause: String,
    /// What follows.
    pub class: Class,
}

impl Problem {
    /// A problem from a failed call.
    pub fn new(path: RelPath, fault: Fault, class: Class) -> Self {
        Problem {
            path,
            side: fault.side,
            act: fault.act,
            cause: fault.cause(),
            class,
        }
    }

    /// Returns the words of the problem, with these words for its tree.
    pub fn on_tree(&self, tree: &str) -> String {
        let path = if self.path.is_root() {
            ".".into()
        } else {
            escape(self.path.as_bytes())
        };
        let (act, cause) = (self.act.on_tree(tree), &self.cause);
        format!(
            "\"{path}\": cannot {act}: {cause} ({})",
            self.class.follows()
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.on_tree(&self.side.tree()))
    }
}

fn escaped<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| escape_text(&text))
}
