//! The parts that both ends of a stream share: its end, and its reports.

use driftless_dataplane::{Error as LinkError, LinkFault, LinkHandle};
use driftless_lock::Mutex;
use driftless_planner::{StreamCause, StreamId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Stack of a thread of a stream, in bytes. The store needs most of it.
const STACK_BYTES: usize = 1 << 20;

/// Report of a thread to the loop of its node or of the coordinator.
#[derive(Debug)]
pub(crate) enum StreamReport {
    /// The receiver holds each unit of a stream.
    Complete { stream: StreamId },
    /// A stream failed.
    Failed {
        stream: StreamId,
        cause: StreamCause,
        detail: String,
    },
    /// Units that the node holds cannot be read any more.
    Unreadable { detail: String },
}

/// Way to end a stream from another thread.
#[derive(Clone, Default)]
pub(crate) struct StreamEnd(Arc<EndState>);

#[derive(Default)]
struct EndState {
    is_stopped: AtomicBool,
    links: Mutex<Vec<LinkHandle>>,
}

impl StreamEnd {
    /// Adds the connections of the stream. Ends them if the stream has been stopped.
    pub fn watch(&self, links: Vec<LinkHandle>) {
        self.0.links.lock().extend(links);
        if self.is_stopped() {
            self.stop();
        }
    }

    /// Ends the stream without a report.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Relaxed);
        for link in self.0.links.lock().drain(..) {
            link.abort("the stream was stopped");
        }
    }

    /// Whether the stream was stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Relaxed)
    }
}

/// Failure of a stream.
#[derive(Debug)]
pub(crate) struct StreamFailure {
    pub cause: StreamCause,
    pub detail: String,
}

impl StreamFailure {
    /// Returns a fault with its detail.
    pub fn new(cause: StreamCause, detail: impl Into<String>) -> Self {
        StreamFailure {
            cause,
            detail: detail.into(),
        }
    }
}

impl From<LinkError> for StreamFailure {
    fn from(error: LinkError) -> Self {
        let cause = match &error {
            LinkError::Connect { .. } => StreamCause::Unreachable,
            LinkError::Link {
                fault: LinkFault::Silent(_),
                ..
            } => StreamCause::Stalled,
            _ => StreamCause::Closed,
        };
        StreamFailure::new(cause, error.to_string())
    }
}

/// Starts a thread. Returns whether the kernel gave one.
pub(crate) fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().name(name.into());
    builder.stack_size(STACK_BYTES).spawn(run).map(drop)
}
