//! Operations that are submitted to a directory whose replies take their time, and their
//! completions.
//!
//! A call that waits for its answer from another host costs a round trip. What makes up the bulk of
//! a run (making small entries, reading small files, the end of a directory) is submitted instead,
//! thousands at a time.

use crate::{Attributes, Done, Known, Removed, Whole};
use driftless_model::{Entry, Fault, Keep, Level, Meta};
use std::ffi::CString;

/// An entry to be made, with all that is in it.
#[derive(Debug)]
pub struct NewEntry {
    /// Its name.
    pub name: CString,
    /// Metadata and extended attributes that it is to have.
    pub entry: Entry,
    /// Content of a regular file.
    pub content: Option<Whole>,
    /// Target of a symbolic link.
    pub target: Option<CString>,
    /// What is kept of it.
    pub keep: Keep,
    /// The directory is new and private, so the entry is made under its own name.
    pub private: bool,
    /// How many entries may be removed with a directory that stands at the name.
    pub room: u64,
    /// The mode of the entry that it replaces, if that is of the same kind.
    pub stood: Option<u32>,
    /// A file is made durable before it gets its name.
    pub sync: bool,
    /// What was written is read back and compared.
    pub verify: Option<Level>,
}

/// What is asked of a directory.
#[derive(Debug)]
pub enum Op {
    /// Read this regular file whole, if it is small enough.
    Fetch(CString, Keep),
    /// Metadata of the directory itself, now.
    Meta,
}

/// What is changed in a directory.
#[derive(Debug)]
pub enum OpMut {
    /// Make this entry, and give it its name.
    Make(Box<NewEntry>),
    /// Set attributes of the directory itself.
    SetOwn(Known, Box<Attributes>),
}

/// What came of an operation.
#[derive(Debug)]
pub enum Completion {
    /// The entry was made, but for what could not be set.
    Made(Done<Vec<Fault>>),
    /// The disk did not keep what it was given: fsync(2) failed.
    Lost(Fault),
    /// What was written is not what was read back.
    Mismatch,
    /// Something in the directory that stands at its name could not be removed.
    Stuck(Removed),
    /// The file; `None` if it is too large to be read whole, or changed while it was read.
    Fetched(Done<Option<Whole>>),
    /// Metadata of the directory itself.
    Meta(Done<Meta>),
    /// What could not be set on the directory itself.
    OwnSet(Vec<Fault>),
}
