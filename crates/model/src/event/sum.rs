//! What hashing tells: one value for each line of `driftless sum --json`. The fields are those of
//! `docs/sum.md`.

use super::PathText;
use crate::Kind;
use serde::Serialize;

/// Something that `sum` found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SumEvent {
    /// Bytes of a file were hashed.
    Sum {
        /// The file.
        #[serde(flatten)]
        path: PathText,
        /// How.
        algorithm: &'static str,
        /// The hash, in hexadecimal digits.
        hash: String,
        /// The first byte.
        start: u64,
        /// The byte behind the last one.
        end: u64,
    },
    /// A file was compared with what it should be.
    Checked {
        /// The file.
        #[serde(flatten)]
        path: PathText,
        /// What came of it.
        result: Checked,
        /// The hash that it has; none if there is nothing to hash.
        #[serde(skip_serializing_if = "Option::is_none")]
        hash: Option<String>,
        /// The hash that it should have.
        #[serde(skip_serializing_if = "Option::is_none")]
        expected: Option<String>,
        /// Start and end of the bytes that differ.
        #[serde(skip_serializing_if = "Option::is_none")]
        ranges: Option<Vec<[u64; 2]>>,
    },
    /// An entry of a manifest.
    Entry {
        /// The entry, below the root of the manifest.
        #[serde(flatten)]
        path: PathText,
        /// What it is.
        kind: Kind,
        /// Permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its bytes.
        size: u64,
        /// Seconds since 1970 and nanoseconds.
        mtime: [i64; 2],
        /// The hash of a file's content.
        content: Option<String>,
    },
    /// Something could not be read.
    Problem {
        /// What; none if it is a line of a list.
        #[serde(flatten)]
        path: Option<PathText>,
        /// Why.
        cause: String,
    },
    /// All is done, or nothing more is.
    Summary(SumSummary),
}

/// What came of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// It is as it should be.
    Ok,
    /// It is not.
    Differs,
    /// It is not there.
    Missing,
}

/// What was found in all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SumSummary {
    /// The exit code of the process.
    pub exit_code: u8,
    /// How long it took.
    pub seconds: f64,
    /// Regular files that were hashed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that are not as they should be.
    pub different: u64,
    /// Files that are not there.
    pub missing: u64,
    /// What could not be read.
    pub problems: u64,
    /// Entries of a manifest, of whatever kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// The hash of a whole manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
}
