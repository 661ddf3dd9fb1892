//! A connection to one peer, before it is split into halves.

use crate::shared::{LinkCounters, LinkParts, LinkPeer, LinkShared};
use crate::wire::Intake;
use crate::{Error, LinkEvent, LinkFault, LinkMessage, LinkReceiver, LinkSender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Authenticated connection that carries messages both ways, in order.
pub struct DataLink {
    sender: LinkSender,
    receiver: LinkReceiver,
}

impl DataLink {
    pub(crate) fn new(parts: LinkParts, intake: Intake) -> Self {
        let shared = LinkShared::new(parts);
        DataLink {
            sender: LinkSender::new(Arc::clone(&shared)),
            receiver: LinkReceiver::new(shared, intake),
        }
    }

    /// Returns the peer.
    pub fn peer(&self) -> LinkPeer {
        self.handle().peer().clone()
    }

    /// Returns a handle for other threads.
    pub fn handle(&self) -> LinkHandle {
        self.sender.handle()
    }

    /// Returns the halves, for two threads.
    pub fn split(self) -> (LinkSender, LinkReceiver) {
        (self.sender, self.receiver)
    }

    /// Sends one message, as [`LinkSender::send`].
    ///
    /// # Errors
    /// As [`LinkSender::send`].
    pub fn send(&self, kind: u8, parts: &[&[u8]]) -> Result<(), Error> {
        self.sender.send(kind, parts)
    }

    /// Waits for the next message, as [`LinkReceiver::recv`].
    ///
    /// # Errors
    /// As [`LinkReceiver::recv`].
    pub fn recv(&mut self) -> Result<Option<LinkMessage>, Error> {
        self.receiver.recv()
    }

    /// Waits for the next message, as [`LinkReceiver::recv_within`].
    ///
    /// # Errors
    /// As [`LinkReceiver::recv_within`].
    pub fn recv_within(&mut self, limit: Duration) -> Result<LinkEvent, Error> {
        self.receiver.recv_within(limit)
    }

    /// Closes the connection: finishes, and drops messages until the peer has finished.
    ///
    /// # Errors
    /// Fails if the connection has ended before, or the peer does not finish within `limit`.
    pub fn close(self, limit: Duration) -> Result<(), Error> {
        let (sender, mut receiver) = self.split();
        sender.finish()?;
        let begin = Instant::now();
        loop {
            match receiver.recv_within(limit.saturating_sub(begin.elapsed()))? {
                LinkEvent::End => return Ok(()),
                LinkEvent::Message(_) => {}
                LinkEvent::Timeout => {
                    let cause = "the peer did not close in time".to_owned();
                    return Err(receiver.handle().abort(cause));
                }
            }
        }
    }
}

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
