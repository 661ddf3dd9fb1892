//! Failures that end the server, or a session before its first reply.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Failure of a server or a session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot listen.
    #[error(
        "{address}: cannot listen: {}; end the other server, or change --listen",
        driftless_model::cause(cause)
    )]
    Listen {
        /// Address.
        address: SocketAddr,
        /// Cause.
        cause: io::Error,
    },
    /// A file of the administrator cannot be read.
    #[error(
        "{}: cannot read: {}",
        driftless_model::quote(path),
        driftless_model::cause(cause)
    )]
    Read {
        /// Path.
        path: PathBuf,
        /// Cause.
        cause: io::Error,
    },
    /// A file of the administrator has another form.
    #[error("{}: {why}", driftless_model::quote(path))]
    Form {
        /// Path.
        path: PathBuf,
        /// Cause and remedy.
        why: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// A call of the operating system failed.
    #[error("{act}: {}", driftless_model::cause(cause))]
    System {
        /// Act that failed.
        act: &'static str,
        /// Cause.
        cause: io::Error,
    },
}

impl Error {
    /// Returns a function that makes an error of a call.
    pub(crate) fn system(act: &'static str) -> impl Fn(io::Error) -> Error {
        move |cause| Error::System { act, cause }
    }
}
