//! A connection to one peer, before it is split into halves.

use crate::handle::LinkHandle;
use crate::receive::{LinkEvent, LinkReceiver};
use crate::send::LinkSender;
use crate::shared::{LinkParts, LinkPeer, LinkShared};
use crate::wire::Intake;
use crate::{Error, LinkMessage};
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
