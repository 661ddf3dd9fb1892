//! Task description files (`.tdf`) of Exludus Replicator, with sections for results and for Slurm
//! and PBS.
//!
//! [`TaskFile::parse`] turns the bytes of a file into typed fields, or returns the first error with
//! its position and a remedy. The caller reads the file, expands globs and submits the job. Paths
//! are bytes: a file need not be UTF-8.

mod cleanup;
mod draft;
mod error;
mod grammar;
mod keywords;
mod lexer;
mod parameters;
mod pattern;
mod statements;

pub use cleanup::{Cleanup, KEEP_SECONDS_MAX};
pub use error::TaskFileError;
pub use keywords::WorkloadManager;
pub use parameters::ParameterRange;
pub use pattern::{PatternError, ResultPattern};

use std::ffi::OsString;
use std::path::PathBuf;

/// Bytes that a task file has at most.
pub const TASK_FILE_BYTES_MAX: usize = 1 << 20;
/// Paths that a task file transfers at most.
pub const DATA_PATHS_MAX: usize = 65_536;

/// Content of a task file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFile {
    /// Batch system that runs the job.
    pub system: WorkloadManager,
    /// Options for the submission command, divided as a shell does.
    pub options: Vec<String>,
    /// Files, directories and globs to transfer: at least one.
    pub data: Vec<DataPath>,
    /// Script that the job runs.
    pub script: PathBuf,
    /// Arguments of the script.
    pub arguments: Vec<OsString>,
    /// Indices of the tasks. `None` stands for a job of one task.
    pub parameters: Option<ParameterRange>,
    /// Place of the results. `None` means that the nodes keep no results.
    pub results: Option<ResultPattern>,
    /// Treatment of the copies after the last task.
    pub cleanup: Cleanup,
}

/// Path of a `TRANSFER` statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPath {
    /// Path or glob, without quotes.
    pub path: PathBuf,
    /// Whether the path has `*`, `?` or `[` outside quotes.
    pub is_glob: bool,
}

impl TaskFile {
    /// Parses the bytes of a task file.
    ///
    /// # Errors
    /// Fails at the first text that breaks the grammar, if a required section is missing, and if the
    /// file exceeds [`TASK_FILE_BYTES_MAX`] or [`DATA_PATHS_MAX`].
    pub fn parse(text: &[u8]) -> Result<TaskFile, TaskFileError> {
        grammar::parse(text)
    }
}
