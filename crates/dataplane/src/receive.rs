//! The receiving half of a connection, which also notices that the peer is dead.

use crate::frame::KIND_BLOCK;
use crate::shared::LinkShared;
use crate::wire::{Intake, ReadStep, io_fault};
use crate::{Error, KIND_MAX, LinkFault, LinkHandle, LinkMessage};
use rustix::event::PollFlags;
use rustix::net::sockopt::set_tcp_user_timeout;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the socket that one call reads.
pub(crate) const READ_BYTES: usize = 128 << 10;
/// Bytes that a message has to lack for a pause, in which more of it arrives. Without the pause, each
/// few packets of a bulk transfer wake the thread.
const GATHER_BYTES: usize = 16 << 10;
const GATHER: Duration = Duration::from_micros(500);
/// After the peer has closed its direction, no heartbeats tell of its death. The kernel then ends
/// the connection if the peer takes nothing for so long (`TCP_USER_TIMEOUT` of tcp(7)).
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(60);

/// Receiving half of a connection, for one thread.
///
/// Silence of the peer is noticed while a thread receives. A caller that only sends needs a thread
/// that receives all the same. A half that is dropped before the end breaks the connection.
pub struct LinkReceiver {
    shared: Arc<LinkShared>,
    intake: Intake,
    is_ended: bool,
}

/// Result of a wait for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// A message arrived.
    Message(LinkMessage),
    /// The peer has closed its direction. Nothing follows.
    End,
    /// The time ran out.
    Timeout,
}

impl LinkReceiver {
    pub(crate) fn new(shared: Arc<LinkShared>, mut intake: Intake) -> Self {
        intake.grow(READ_BYTES);
        intake
            .frames
            .set_bytes_max(shared.settings.message_bytes_max());
        LinkReceiver {
            shared,
            intake,
            is_ended: false,
        }
    }

    /// Waits for the next message. Returns `None` if the peer has closed its direction.
    ///
    /// # Errors
    /// Fails if the connection has ended otherwise, or the peer was silent for too long.
    pub fn recv(&mut self) -> Result<Option<LinkMessage>, Error> {
        match self.recv_until(None)? {
            LinkEvent::Message(message) => Ok(Some(message)),
            LinkEvent::End | LinkEvent::Timeout => Ok(None),
        }
    }

    /// Waits for the next message, and no longer than `limit`.
    ///
    /// # Errors
    /// As [`Self::recv`].
    pub fn recv_within(&mut self, limit: Duration) -> Result<LinkEvent, Error> {
        // A limit above the range of the clock is none.
        self.recv_until(Instant::now().checked_add(limit))
    }

    /// Returns a handle for other threads.
    pub fn handle(&self) -> LinkHandle {
        LinkHandle::new(Arc::clone(&self.shared))
    }

    fn recv_until(&mut self, deadline: Option<Instant>) -> Result<LinkEvent, Error> {
        // While no thread receives, bytes of the peer wait in the kernel: that time is no silence.
        let since = self.shared.now();
        loop {
            if let Some(message) = self.intake.frames.pop() {
                return self.take(message).map(LinkEvent::Message);
            }
            if self.is_ended {
                return Ok(LinkEvent::End);
            }
            self.shared.check()?;
            match self.intake.step(&self.shared.wire) {
                Err(fault) => return Err(self.shared.fail(fault)),
                Ok(ReadStep::Received) => self.shared.note_heard(),
                Ok(ReadStep::Decrypted) => {}
                Ok(ReadStep::Closed) => self.end()?,
                Ok(ReadStep::Empty) if deadline.is_some_and(|end| end <= Instant::now()) => {
                    return Ok(LinkEvent::Timeout);
                }
                Ok(ReadStep::Empty) => {
                    if self.intake.frames.missing_bytes() >= GATHER_BYTES {
                        thread::sleep(GATHER);
                    }
                    self.wait(since, deadline)?;
                }
            }
        }
    }

    fn take(&mut self, message: LinkMessage) -> Result<LinkMessage, Error> {
        let kind = message.kind;
        if kind > KIND_MAX && kind != KIND_BLOCK {
            let cause = format!("a message of the reserved kind {kind}");
            return Err(self.shared.fail(LinkFault::Protocol(cause)));
        }
        self.shared.note_received(message.bytes.len());
        Ok(message)
    }

    /// Notes the end of this direction. Messages before it may still wait to be fetched.
    fn end(&mut self) -> Result<(), Error> {
        if self.intake.frames.is_within_frame() {
            return Err(self.shared.fail(LinkFault::Truncated));
        }
        self.is_ended = true;
        let limit = UNACKNOWLEDGED_MAX.max(self.shared.settings.silence_max);
        let limit = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        let set = set_tcp_user_timeout(self.shared.wire.stream(), limit);
        set.map_err(|error| self.shared.fail(LinkFault::Io(error.to_string())))
    }

    /// Waits for bytes, and fails if the peer was silent for too long.
    fn wait(&self, since: u64, deadline: Option<Instant>) -> Result<(), Error> {
        let silence_max = self.shared.settings.silence_max;
        let quiet_since = since.max(self.shared.heard_at());
        let quiet = Duration::from_millis(self.shared.now().saturating_sub(quiet_since));
        let mut left = silence_max.saturating_sub(quiet);
        if left.is_zero() {
            return Err(self.shared.fail(LinkFault::Silent(silence_max)));
        }
        if let Some(deadline) = deadline {
            left = left.min(deadline.saturating_duration_since(Instant::now()));
        }
        let waited = self.shared.wire.wait(PollFlags::IN, left);
        waited.map_err(|error| self.shared.fail(io_fault(&error)))?;
        Ok(())
    }
}

impl Drop for LinkReceiver {
    fn drop(&mut self) {
        if !self.is_ended {
            let cause = LinkFault::Aborted("the receiver was dropped before the end".into());
            self.shared.fail(cause);
        }
    }
}
