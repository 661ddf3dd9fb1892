//! What is noted of a run that movers share, in a [`Record`] that outlives the coordinator.

use driftless_model::RelPath;
use driftless_state::{Fact, Record, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;

/// Facts that are read at a time.
const FACTS: usize = 1000;

/// What stands in the record beside the open shares.
pub mod fact {
    /// What was counted.
    pub const TOTAL: u8 = 0;
    /// Parts of outcomes whose last part has not come.
    pub const PART: u8 = 1;
    /// Names of files that have several.
    pub const LINK: u8 = 2;
    /// Directories that are to be finished.
    pub const DIR: u8 = 3;
    /// What the source lacks.
    pub const EXTRA: u8 = 4;
    /// Entries for which there was no room.
    pub const NO_ROOM: u8 = 5;
    /// Large files that several movers copy.
    pub const FILE: u8 = 6;
    /// How far the run has come.
    pub const STAGE: u8 = 7;
    /// File systems that are mounted below the source.
    pub const MOUNT: u8 = 8;
    /// The life of the run in which the rest was noted.
    pub const LIFE: u8 = 9;
    /// Names that the replica may take for one with others.
    pub const ALIKE: u8 = 10;
    /// What is to be respelt.
    pub const MISSPELT: u8 = 11;
}

/// How far the run has come, as facts whose order is that of their keys: the first shares were made, those of the links, and what is
/// left for the coordinator alone was begun.
pub const BEGUN: &[u8] = b"1-begun";

pub const LINKS: &[u8] = b"2-links";

pub const ENDING: &[u8] = b"3-ending";

/// What the record answers.
pub type Noted<T> = Result<T, StoreError>;

/// All facts of a kind, read as they are wanted.
pub struct Facts<'a> {
    record: &'a Record,
    kind: u8,
    read: VecDeque<Fact>,
    after: Vec<u8>,
}

impl<'a> Facts<'a> {
    /// All of `kind`.
    pub fn of(record: &'a Record, kind: u8) -> Self {
        Facts { record, kind, read: VecDeque::new(), after: Vec::new() }
    }

    /// The next one.
    pub fn next(&mut self) -> Noted<Option<Fact>> {
        self.peek()?;
        Ok(self.read.pop_front())
    }

    /// The one that comes next.
    pub fn peek(&mut self) -> Noted<Option<&Fact>> {
        if self.read.is_empty() {
            self.read = self.record.facts(self.kind, &self.after, FACTS)?.into();
            self.read.back().into_iter().for_each(|(key, _)| self.after.clone_from(key));
        }
        Ok(self.read.front())
    }
}

/// A plain value as it stands in the record.
pub fn encoded(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain values can be encoded")
}

/// The value that stands in the record; none if it is of another kind.
pub fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

/// Keys are not empty, so that they come after "nothing"; the root's path is.
pub fn keyed(path: &RelPath) -> Vec<u8> {
    [b"/", path.as_bytes()].concat()
}

/// The path that a key holds.
pub fn path_in(key: &[u8]) -> Option<RelPath> {
    RelPath::parse(key.strip_prefix(b"/")?).ok()
}
