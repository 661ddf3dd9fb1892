//! What waits while targets are hashed.

use crate::sum::file::HashFile;
use crate::sum::found::{BadTarget, Target};
use driftless_pool::{Position, part};
use driftless_tree::{DirRef, Levels, Names};
use std::collections::VecDeque;
use std::ffi::CString;
use std::ops::Range;
use std::sync::Arc;

/// An open directory of a target.
pub struct Folder {
    /// The target it belongs to.
    pub target: Arc<Target>,
    /// Its path as it is reported.
    pub path: Vec<u8>,
    /// The directory.
    pub dir: DirRef,
    /// The directories above it.
    pub levels: Levels,
    /// Its place in the order.
    pub place: Position,
}

/// Targets that were taken from the list, with an error in the place of each line that names none.
/// The number of the first stands beside them.
pub type Chosen = VecDeque<Result<Target, BadTarget>>;

/// What waits in the order.
pub enum Task {
    /// The targets that are still in the list, the first of this number.
    Targets(u64),
    /// Targets that were taken from the list already, the first of this number.
    Chosen(u64, Chosen),
    /// A subdirectory.
    Dir(Arc<Folder>, CString),
    /// An open directory.
    Open(Box<Folder>),
    /// More windows of a directory: the names that sort after this one, the first of this number.
    More(Arc<Folder>, CString, u64),
    /// A range of names.
    Row(Row),
    /// A large file.
    Large(Box<HashFile>),
}

/// A range of the names of a directory, sorted.
pub struct Row {
    /// The directory.
    pub folder: Arc<Folder>,
    /// A window of its names.
    pub names: Arc<Names>,
    /// Which of them.
    pub range: Range<usize>,
    /// The number that the first of `names` has in the directory.
    pub base: u64,
    /// Whether `range` goes up to the last of `names`, and the directory may have names after that.
    pub more: bool,
}

impl Row {
    /// The place of a name.
    pub fn place_of(&self, index: usize) -> Position {
        part(&self.folder.place, self.base + index as u64)
    }
}
