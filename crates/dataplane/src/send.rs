//! The sending half of a connection.

use crate::frame::head;
use crate::shared::LinkShared;
use crate::{Error, KIND_MAX, LinkFault, LinkHandle};
use std::io::IoSlice;
use std::sync::Arc;

/// Parts of a message that one call takes.
const PARTS_MAX: usize = 8;

/// Sending half of a connection. Several threads may send whole messages.
///
/// A half that is dropped before [`Self::finish`] ends the connection with an error on both ends.
pub struct LinkSender {
    shared: Arc<LinkShared>,
}

impl LinkSender {
    pub(crate) fn new(shared: Arc<LinkShared>) -> Self {
        LinkSender { shared }
    }

    /// Sends one message, whose content is the concatenation of `parts`.
    ///
    /// Waits while the peer does not read, and as long as the rate limit demands. Returns when the
    /// kernel has taken the message, which says nothing of its arrival.
    ///
    /// # Errors
    /// Fails if the message is too large, its kind is reserved, or the connection has ended.
    pub fn send(&self, kind: u8, parts: &[&[u8]]) -> Result<(), Error> {
        if kind > KIND_MAX {
            return Err(Error::ReservedKind { kind });
        }
        self.send_any(kind, parts)
    }

    /// Sends a message of any kind.
    pub(crate) fn send_any(&self, kind: u8, parts: &[&[u8]]) -> Result<(), Error> {
        let bytes = parts
            .iter()
            .fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let bytes_max = self.shared.settings.message_bytes_max();
        let oversized = Error::Oversized { bytes, bytes_max };
        if bytes > bytes_max {
            return Err(oversized);
        }
        let head = head(kind, bytes).ok_or(oversized)?;
        self.keep_pace(bytes);
        if parts.len() > PARTS_MAX {
            let joined = parts.concat();
            let mut frame = [IoSlice::new(&head), IoSlice::new(&joined)];
            return self.shared.send_frame(&mut frame, bytes);
        }
        let mut frame = Vec::with_capacity(PARTS_MAX);
        frame.push(IoSlice::new(&head));
        frame.extend(
            parts
                .iter()
                .filter(|part| !part.is_empty())
                .map(|part| IoSlice::new(part)),
        );
        self.shared.send_frame(&mut frame, bytes)
    }

    /// Closes this direction after every message that was sent. The peer then receives an end.
    ///
    /// # Errors
    /// Fails if the connection has ended before.
    pub fn finish(self) -> Result<(), Error> {
        self.close()
    }

    /// Closes this direction, as [`Self::finish`]. Later messages fail.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.shared.finish()
    }

    /// Returns a handle for other threads.
    pub fn handle(&self) -> LinkHandle {
        LinkHandle::new(Arc::clone(&self.shared))
    }

    fn keep_pace(&self, bytes: usize) {
        if let Some(pace) = &self.shared.settings.pace {
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            pace.take(bytes, &|| self.shared.has_failed());
        }
    }
}

impl Drop for LinkSender {
    fn drop(&mut self) {
        if !self.shared.is_finished() {
            let cause = LinkFault::Aborted("the sender was dropped before its end".into());
            self.shared.fail(cause);
        }
    }
}
