//! Errors that end a cast or a node. Each names the object, the cause and the remedy.

use driftless_store::Error as StoreError;
use std::io;
use std::path::PathBuf;

/// Error number of a file system without write access (errno(3)).
const READ_ONLY: i32 = rustix::io::Errno::ROFS.raw_os_error();

/// A call of this crate that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed, or a source cannot be read.
    #[error(transparent)]
    Store(#[from] driftless_store::Error),
    /// The agent that reads the sources cannot be used.
    #[error(transparent)]
    Agent(#[from] driftless_remote::ReachError),
    /// The data plane failed.
    #[error(transparent)]
    Link(#[from] driftless_dataplane::Error),
    /// The list of nodes makes no plan.
    #[error(transparent)]
    Plan(#[from] driftless_planner::PlanSetupError),
    /// A source lies in the directory of the store, or the reverse.
    #[error(
        "{}: it and the store's directory {} lie one in the other; choose another directory for the store (--dir)",
        driftless_model::quote(source_path),
        driftless_model::quote(dir)
    )]
    Overlap {
        /// Path of the source.
        source_path: PathBuf,
        /// Directory of the store.
        dir: PathBuf,
    },
    /// The settings contradict each other.
    #[error("{0}")]
    Settings(&'static str),
    /// A file of the node cannot be read or written.
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
    /// Another daemon serves the directory.
    #[error(
        "{}: another daemon serves this directory; stop it, or name another directory with --dir",
        driftless_model::quote(.0)
    )]
    Taken(PathBuf),
    /// The pipe to the coordinator failed.
    #[error("pipe to the coordinator: {0}; check the connection of ssh")]
    Pipe(String),
    /// The peer broke the protocol.
    #[error("{peer}: protocol error: {cause}; run the same version on all nodes")]
    Protocol {
        /// Peer.
        peer: String,
        /// Rule that the peer broke.
        cause: String,
    },
    /// The kernel refused a thread.
    #[error("thread: cannot start: {}; raise the limits of this process", driftless_model::cause(.0))]
    Thread(io::Error),
    /// The caller stopped the call.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// Returns whether another process holds the store. A later attempt may succeed.
    pub fn is_busy(&self) -> bool {
        match self {
            Error::Store(error) => error.is_busy(),
            Error::Taken(_) => true,
            _ => false,
        }
    }
}

/// Returns an error of the store at a node, with a remedy in words of a cast.
pub(crate) fn at_node(error: &StoreError) -> String {
    match error {
        StoreError::Entry { fault, .. } if fault.errno == READ_ONLY => {
            format!("{error}; mount it for writing there, or choose another directory")
        }
        StoreError::NoSuchUnit { .. } => {
            format!("{error}; use the same version of driftless on all nodes")
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{READ_ONLY, StoreError, at_node};
    use driftless_model::{Act, Fault, Side};

    #[test]
    fn read_only_file_system_has_a_remedy() {
        let fault = Fault {
            side: Side::Replica,
            act: Act::MakeDirectory,
            errno: READ_ONLY,
        };
        let path = b"to/set".to_vec();
        let text = at_node(&StoreError::Entry { path, fault });
        assert!(text.contains("read-only; mount it for writing"), "{text}");
    }
}
