//! Sends messages and keeps each until the broker has confirmed it.
//!
//! Many messages are on their way at once; a call waits only when the window is full. What was
//! accepted is sent again on the next connection when the one that it went by is lost. A message
//! that came back or was not taken stays in the window and is an error of the call that notices;
//! the next call sends it again. So a caller can mend what is wrong and go on, or give up, and
//! knows from `confirmed` what is safe. How confirms are read is in `confirms.rs`.

use crate::confirms::{Confirms, Returns};
use crate::deadline::Deadline;
use crate::headers::Headers;
use crate::link::{Gate, Link};
use crate::session::Role;
use crate::topology::Topology;
use crate::window::{Message, WINDOW_MESSAGES_MAX};
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
        let mut link = Link::new(broker, Topology::Job(job.clone()), Role::Publish);
        broker
            .runtime
            .block_on(async { link.session().await.map(drop) })?;
        Ok(Publisher::by(link, WINDOW_MESSAGES_MAX, Returns::SentAgain))
    }

    /// By a connection that may not stand yet.
    pub(crate) fn by(link: Link, messages_max: usize, returns: Returns) -> Publisher {
        Publisher {
            gate: link.gate().clone(),
            broker: link.broker().clone(),
            inner: Mutex::new(Confirms::new(link, messages_max, returns)),
        }
    }

    /// Accepts a message for a queue and sends it; returns its number. Waits up to `limit` for room
    /// in the window.
    ///
    /// # Errors
    /// The message was not accepted: it is too large, there was no room in time, or one before it
    /// came back.
    pub fn publish(&self, queue: &str, body: &[u8], limit: Duration) -> Result<u64, Error> {
        let message = Message::to_queue(queue, body.to_owned(), &Headers::default());
        self.send(message, limit)
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

    /// How many messages came back and were let go.
    pub(crate) fn unheard(&self) -> u64 {
        self.broker.runtime.block_on(self.inner.lock()).unheard()
    }

    /// Takes note of the confirms that are there, without waiting for more.
    pub(crate) fn look(&self) {
        self.broker
            .runtime
            .block_on(async { self.inner.lock().await.look().await });
    }

    /// Connects, or waits up to `limit` until it has.
    pub(crate) fn connect(&self, limit: Duration) -> Result<(), Error> {
        let deadline = Deadline::within(limit);
        self.broker.runtime.block_on(async {
            let mut confirms = self.lock(deadline).await?;
            confirms.connect(deadline).await
        })
    }

    /// `publish` of any message.
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
