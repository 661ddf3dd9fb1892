//! Errors of a gateway and of its clients.

use driftless_batch::BatchError;
use driftless_deposit::DepositError;
use driftless_state::StateError;
use std::io;
use std::path::PathBuf;

/// A call of this crate that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The table of jobs failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// The batch system failed.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A deposit failed.
    #[error(transparent)]
    Deposit(#[from] DepositError),
    /// No gateway answers.
    #[error(
        "{}: no gateway answers: {}; it runs on another host or is down: log in to its host, ask the administrator, or name its socket with --gateway",
        driftless_model::quote(path),
        driftless_model::cause(cause)
    )]
    NoGateway {
        /// Path of the socket.
        path: PathBuf,
        /// Cause.
        cause: io::Error,
    },
    /// The gateway broke off.
    #[error(
        "{}: the gateway does not answer: {}; look into its log",
        driftless_model::quote(path),
        driftless_model::cause(cause)
    )]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Cause.
        cause: io::Error,
    },
    /// The gateway refused.
    #[error("the gateway refused: {0}")]
    Refused(String),
    /// The command that submits cannot be started.
    #[error(
        "{program}: cannot start: {}; check the command behind --",
        driftless_model::cause(cause)
    )]
    Program {
        /// Program.
        program: String,
        /// Cause.
        cause: io::Error,
    },
    /// The command that submits failed. It printed the cause.
    #[error("{program} ended with {code}: no job was submitted")]
    NotSubmitted {
        /// Program.
        program: String,
        /// Exit code.
        code: u8,
    },
    /// The command that submits failed without a word on the job.
    #[error(
        "{program} ended with {code}: a job may have been submitted; look for {mark} in \"driftless jobs\" before you submit it again"
    )]
    MaybeSubmitted {
        /// Program.
        program: String,
        /// Exit code.
        code: u8,
        /// Mark.
        mark: String,
    },
    /// The job was submitted, and its number is unknown.
    #[error(
        "the number of the job cannot be read: {cause}; look for {mark} in \"driftless jobs\" before you submit it again"
    )]
    NoNumber {
        /// Mark.
        mark: String,
        /// Cause.
        cause: BatchError,
    },
    /// Another gateway serves the socket.
    #[error(
        "{}: another gateway serves this socket; stop it, or name another one with --gateway",
        driftless_model::quote(.0)
    )]
    Taken(PathBuf),
    /// A file of the gateway cannot be read or written.
    #[error(
        "{}: cannot {act}: {}; check its directory and owner",
        driftless_model::quote(path),
        driftless_model::cause(cause)
    )]
    OwnFile {
        /// Path.
        path: PathBuf,
        /// Call that failed.
        act: &'static str,
        /// Cause.
        cause: io::Error,
    },
    /// The kernel refused a thread.
    #[error("thread: cannot start: {}; raise the limits of this process", driftless_model::cause(.0))]
    Thread(io::Error),
}

impl Error {
    /// Returns whether no gateway answered. One that starts again may answer later.
    pub fn is_absence(&self) -> bool {
        matches!(self, Error::NoGateway { .. } | Error::Socket { .. })
    }

    /// Returns whether the job of a submission that failed may exist.
    pub fn may_have_submitted(&self) -> bool {
        matches!(self, Error::MaybeSubmitted { .. } | Error::NoNumber { .. })
    }
}
