//! Sends messages and keeps each until the broker has confirmed it.
//!
//! Many messages are on their way at once; a call waits only when the window is full. What was
//! accepted is sent again on the next connection when the one that it went by is lost. A message
//! that came back or was not taken stays in the window and is an error of the call that notices;
//! the next call sends it again. So a caller can mend what is wrong and go on, or give up, and
//! knows from `confirmed` what is safe. How confirms are read is in `confirms.rs`.

use crate::confirms::Confirms;
use crate::deadline::Deadline;
use crate::headers::Headers;
use crate::link::{Gate, Link};
use crate::session::Role;
use crate::window::Message;
use crate::{Blocked, Broker, Error, Job, MESSAGE_BYTES_MAX};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// Publishes to the queues of a job; can be shared by threads.
pub struct Publisher {
    inner: Mutex<Confirms>,
    gate: Gate,
    broker: Broker,
}

impl Publisher {
    /// Connects and declares the job's queues.
    ///
    /// # Errors
    /// The broker refuses, or cannot be reached for as long as it may be away.
    pub fn open(broker: &Broker, job: &Job) -> Result<Publisher, Error> {
        let mut link = Link::new(broker, job, Role::Publish);
        broker
            .runtime
            .block_on(async { link.session().await.map(drop) })?;
        Ok(Publisher {
            gate: link.gate().clone(),
            inner: Mutex::new(Confirms::new(link)),
            broker: broker.clone(),
        })
    }

    /// Accepts a message for a queue and sends it; returns its number. Waits up to `limit` for room
    /// in the window.
    ///
    /// # Errors
    /// The message was not accepted: it is too large, there was no room in time, or one before it
    /// came back.
    pub fn publish(&self, queue: &str, body: &[u8], limit: Duration) -> Result<u64, Error> {
        self.send(
            Message {
                queue: queue.to_owned(),
                body: body.to_owned(),
                headers: Headers::default(),
            },
            limit,
        )
    }

    /// Waits up to `limit` until all that was accepted is confirmed.
    ///
    /// # Errors
    /// It was not, in time; or a message came back. All are kept, and sent again with the next
    /// call.
    pub fn flush(&self, limit: Duration) -> Result<(), Error> {
        self.settle(u64::MAX, limit)
    }

    /// Waits up to `limit` until the message `number`, and with it all before it, is confirmed.
    ///
    /// # Errors
    /// As with [`Publisher::flush`].
    pub fn settle(&self, number: u64, limit: Duration) -> Result<(), Error> {
        let deadline = Deadline::within(limit);
        self.broker.runtime.block_on(async {
            let mut confirms = self.lock(deadline).await?;
            while !confirms.reached(number) {
                confirms.step(deadline).await?;
            }
            Ok(())
        })
    }

    /// Everything below this number is known to be confirmed: the broker has it on disk. Does not
    /// wait for the broker, but for another thread's call that does.
    pub fn confirmed(&self) -> u64 {
        self.broker.runtime.block_on(self.inner.lock()).confirmed()
    }

    /// How many messages are accepted and not known to be confirmed. Waits as
    /// [`Publisher::confirmed`] does.
    pub fn outstanding(&self) -> usize {
        self.broker
            .runtime
            .block_on(self.inner.lock())
            .outstanding()
    }

    /// Since when the broker takes no messages, if it says so: it is short of memory or disk space.
    /// Never waits.
    pub fn blocked(&self) -> Option<Blocked> {
        self.gate.blocked()
    }

    /// `publish` with headers.
    pub(crate) fn send(&self, message: Message, limit: Duration) -> Result<u64, Error> {
        if message.body.len() > MESSAGE_BYTES_MAX {
            return Err(Error::TooLarge {
                bytes: message.body.len(),
            });
        }
        let deadline = Deadline::within(limit);
        self.broker.runtime.block_on(async {
            let mut confirms = self.lock(deadline).await?;
            while !confirms.has_room(message.body.len()) {
                confirms.step(deadline).await?;
            }
            Ok(confirms.accept(message).await)
        })
    }

    /// Another thread may wait for the broker with the lock in its hands, as long as its own limit
    /// allows.
    async fn lock(&self, deadline: Deadline) -> Result<MutexGuard<'_, Confirms>, Error> {
        deadline
            .until(self.inner.lock())
            .await
            .ok_or_else(|| self.gate.late(&self.broker, deadline))
    }
}
