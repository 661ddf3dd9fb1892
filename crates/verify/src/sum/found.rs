//! What is hashed, and what is found of it.

use crate::algorithm::{Algorithm, Digest};
use crate::hashtree::HashTree;
use driftless_model::{Entry, Fault};
use driftless_tree::Done;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// What a target should be.
#[derive(Debug, Clone)]
pub enum Expected {
    /// It has this hash.
    Digest(Digest),
    /// It has this hash tree.
    Tree(HashTree),
}

/// A file to hash, or a directory with all files below it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its path as the user gave it; symbolic links in it are followed.
    pub path: PathBuf,
    /// Only these bytes of each file are hashed; an end of `u64::MAX` means the end of the file.
    pub range: Option<Range<u64>>,
    /// The hash function.
    pub algorithm: Algorithm,
    /// Hash trees with leaves of this many bytes are wanted, too; for BLAKE3 only.
    pub leaf_bytes: Option<u64>,
    /// What it should be; anything but a regular file differs from it.
    pub expected: Option<Expected>,
}

/// A line of a list that names no target: where it stands, and why it names none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{list} {why}")]
pub struct BadTarget {
    /// The list, as it is called in messages.
    pub list: String,
    /// The line, and what is wrong there.
    pub why: String,
}

/// What was found at a path.
#[derive(Debug)]
pub struct Found {
    /// The target it belongs to; `None` if a list did not name one ([`BadTarget`]).
    pub target: Option<Arc<Target>>,
    /// The path: that of the target, and the names below it; empty without a target. For a manifest
    /// the names alone, `.` for the root.
    pub path: Vec<u8>,
    /// What it is.
    pub what: What,
}

/// What was found.
#[derive(Debug)]
pub enum What {
    /// A file was hashed.
    Sum(Sum),
    /// An entry of a manifest, and the hash of a file's content or of a symbolic link's target.
    Entry(Box<Entry>, Option<Digest>),
    /// The target is not there.
    Missing,
    /// The target differs from what is expected without a hash, for this reason: it is of another
    /// kind, or has no such bytes.
    Differs(String),
    /// It could not be hashed or listed, for this reason.
    Problem(String),
}

/// What was hashed.
#[derive(Debug)]
pub struct Sum {
    /// The hash.
    pub digest: Digest,
    /// The bytes that were hashed.
    pub range: Range<u64>,
    /// The hash tree, if it was asked for.
    pub tree: Option<Box<HashTree>>,
}

impl What {
    /// Returns what is found of a target that has no sum for this reason: a difference where one is
    /// expected, else a problem.
    pub(super) fn without_sum(target: &Target, why: String) -> What {
        if target.expected.is_some() {
            What::Differs(why)
        } else {
            What::Problem(why)
        }
    }
}

impl Found {
    /// A path that could not be read.
    pub fn problem(target: &Arc<Target>, path: Vec<u8>, fault: Fault) -> Found {
        Found {
            target: Some(target.clone()),
            path,
            what: What::Problem(fault.alone()),
        }
    }

    /// An entry of a manifest.
    pub fn entry(
        target: &Arc<Target>,
        path: Vec<u8>,
        entry: Done<(Entry, Option<Digest>)>,
    ) -> Found {
        match entry {
            Ok((entry, content)) => Found {
                target: Some(target.clone()),
                path,
                what: What::Entry(Box::new(entry), content),
            },
            Err(fault) => Found::problem(target, path, fault),
        }
    }
}
