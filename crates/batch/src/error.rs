//! Errors of a batch system.

use driftless_model::escape_text;
use std::io;

/// Characters of a text of a command that a message shows.
const SHOWN_CHARS_MAX: usize = 500;

/// Result of a call.
pub type BatchResult<T> = std::result::Result<T, BatchError>;

/// Error of a batch system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The batch system does not answer, or not in time. A later attempt may succeed.
    #[error("{command}: the batch system does not answer: {}", shown(.text))]
    Unavailable {
        /// Command.
        command: String,
        /// Standard error of the command, or the time limit.
        text: String,
    },
    /// The batch system refused. The same call fails again.
    #[error("{command}: refused: {}", shown(.text))]
    Refused {
        /// Command.
        command: String,
        /// Standard error of the command.
        text: String,
    },
    /// The batch system has no such job.
    #[error("{command}: the job does not exist, or ended long ago: {}", shown(.text))]
    NoJob {
        /// Command.
        command: String,
        /// Standard error of the command.
        text: String,
    },
    /// This user may not do that.
    #[error("{command}: this user lacks the right: {}; {remedy}", shown(.text))]
    Rights {
        /// Command.
        command: String,
        /// Standard error of the command.
        text: String,
        /// Command by which an administrator gives the right.
        remedy: &'static str,
    },
    /// The output has an unknown form.
    #[error(
        "{command}: its output has an unknown form: \"{}\"; report it with the version of the batch system",
        shown(.line)
    )]
    Output {
        /// Command.
        command: String,
        /// First line that could not be read.
        line: String,
    },
    /// The command of the user cannot be submitted.
    #[error("{0}")]
    Arguments(String),
    /// The program cannot be started.
    #[error(
        "{command}: cannot start the program: {}; install the commands of the batch system, or correct the PATH",
        driftless_model::cause(cause)
    )]
    Program {
        /// Command.
        command: String,
        /// Cause.
        cause: io::Error,
    },
}

impl BatchError {
    /// Returns whether a later attempt may succeed.
    pub fn may_pass(&self) -> bool {
        matches!(self, BatchError::Unavailable { .. })
    }

    /// Returns whether the job is unknown.
    pub fn is_no_job(&self) -> bool {
        matches!(self, BatchError::NoJob { .. })
    }
}

/// Returns a text of a command on one line, escaped and shortened.
fn shown(text: &str) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    let short: String = line.join(" ").chars().take(SHOWN_CHARS_MAX).collect();
    escape_text(&short)
}
