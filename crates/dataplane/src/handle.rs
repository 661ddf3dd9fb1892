//! Handles with which other threads watch or end a connection.

use crate::shared::{LinkCounters, LinkPeer, LinkShared};
use crate::{Error, LinkFault};
use std::sync::Arc;
use std::time::Duration;

/// Handle to a connection for threads that have neither half.
///
/// A handle keeps the socket open, but neither half alive.
#[derive(Clone)]
pub struct LinkHandle(Arc<LinkShared>);

impl LinkHandle {
    pub(crate) fn new(shared: Arc<LinkShared>) -> Self {
        LinkHandle(shared)
    }

    /// Returns the peer.
    pub fn peer(&self) -> &LinkPeer {
        &self.0.peer
    }

    /// Ends the connection at once. Calls of both halves that wait fail with `cause`.
    ///
    /// Returns the error that the halves report, which names an earlier cause if there was one.
    pub fn abort(&self, cause: impl Into<String>) -> Error {
        self.0.fail(LinkFault::Aborted(cause.into()))
    }

    /// Ends the connection because the peer broke the protocol.
    pub(crate) fn refuse(&self, cause: &str) -> Error {
        self.0.fail(LinkFault::Protocol(cause.to_owned()))
    }

    /// Returns the error of a connection that has failed.
    pub(crate) fn error(&self) -> Option<Error> {
        self.0.check().err()
    }

    /// Returns the error of a connection that has failed by itself or by the peer. Returns `None`
    /// if it has not failed, or a caller of this process ended it.
    pub(crate) fn own_error(&self) -> Option<Error> {
        self.error().filter(|error| {
            let is_abort = |fault: &LinkFault| matches!(fault, LinkFault::Aborted(_));
            !matches!(error, Error::Link { fault, .. } if is_abort(fault))
        })
    }

    /// Whether the connection has failed. A clean end is no failure.
    pub fn has_failed(&self) -> bool {
        self.0.has_failed()
    }

    /// Returns the numbers of the connection.
    pub fn counters(&self) -> LinkCounters {
        self.0.counters()
    }

    /// Returns the time for which a sender has waited for the peer to take bytes.
    ///
    /// Returns `None` if no sender waits. A long time tells of a slow or stopped peer.
    pub fn stalled(&self) -> Option<Duration> {
        self.0.stalled()
    }
}
