//! A message that was handed out, and what can become of it: done, given back, tried again, parked.
//!
//! It belongs to the connection that it came by. When that is gone the broker has taken the message
//! back, and settling it here would at best do nothing, at worst settle another message that has
//! the same number on the next connection.

use crate::headers::Headers;
use crate::link::Link;
use crate::session::answer;
use crate::window::Message;
use crate::{Broker, Error, Job, Publisher};
use lapin::Acker;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A message that must be settled. One that is dropped unsettled is given back.
pub struct Delivery {
    body: Vec<u8>,
    queue: String,
    parked: String,
    attempts: u32,
    /// Taken when it is settled.
    acker: Option<Acker>,
    epoch: u64,
    current: Arc<AtomicU64>,
    broker: Broker,
}

impl Delivery {
    pub(crate) fn new(message: lapin::message::Delivery, job: &Job, link: &Link) -> Delivery {
        Delivery {
            attempts: Headers::of_delivery(&message.properties).attempts,
            queue: message.routing_key.as_str().to_owned(),
            parked: job.parked(),
            body: message.data,
            acker: Some(message.acker),
            epoch: link.epoch().load(Ordering::SeqCst),
            current: link.epoch().clone(),
            broker: link.broker().clone(),
        }
    }

    /// The message.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// How often it was tried before, as far as is known: what [`Delivery::try_again`] counted, and
    /// what the broker counted since, of consumers that died with it and, before RabbitMQ 4.3, of
    /// give-backs.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The message is worked off. The broker does not answer this, so the message can still come
    /// again if the connection is lost at this moment.
    ///
    /// # Errors
    /// [`Error::Stale`]: the connection is gone, and the message comes again.
    pub fn ack(mut self) -> Result<(), Error> {
        let acker = self
            .acker
            .take()
            .filter(|_| self.is_current())
            .ok_or(Error::Stale)?;
        self.settled(answer(acker.ack(BasicAckOptions::default())))
    }

    /// The message goes back to its queue, for this consumer or another.
    ///
    /// # Errors
    /// [`Error::Stale`]: the connection is gone, and the message comes again anyhow.
    pub fn give_back(mut self) -> Result<(), Error> {
        let acker = self
            .acker
            .take()
            .filter(|_| self.is_current())
            .ok_or(Error::Stale)?;
        self.settled(answer(acker.nack(requeue())))
    }

    /// The message goes to the end of its queue with one more attempt counted. Waits up to `limit`
    /// for room, and again until that is confirmed.
    ///
    /// # Errors
    /// As with [`Publisher::flush`], and then it is given back; or [`Error::Stale`], and then it
    /// comes twice.
    pub fn try_again(self, publisher: &Publisher, limit: Duration) -> Result<(), Error> {
        let headers = Headers {
            attempts: self.attempts.saturating_add(1),
            ..Headers::default()
        };
        let queue = self.queue.clone();
        self.pass_on(
            publisher,
            Message::to_queue(&queue, Vec::new(), &headers),
            limit,
        )
    }

    /// The message goes to the end of its queue, and no attempt is counted. Waits as
    /// [`Delivery::try_again`] does. (What is given back counts with brokers before RabbitMQ 4.3.)
    ///
    /// # Errors
    /// As with [`Delivery::try_again`].
    pub fn hand_on(self, publisher: &Publisher, limit: Duration) -> Result<(), Error> {
        let headers = Headers {
            attempts: self.attempts,
            ..Headers::default()
        };
        let queue = self.queue.clone();
        self.pass_on(
            publisher,
            Message::to_queue(&queue, Vec::new(), &headers),
            limit,
        )
    }

    /// The message goes to the parked queue, with the reason and the attempts, this one counted.
    /// Waits up to `limit` for room, and again until that is confirmed. Reasons are cut after 1024
    /// bytes.
    ///
    /// # Errors
    /// As with [`Publisher::flush`], and then it is given back; or [`Error::Stale`], and then it
    /// comes again.
    pub fn park(self, reason: &str, publisher: &Publisher, limit: Duration) -> Result<(), Error> {
        let attempts = self.attempts.saturating_add(1);
        let headers = Headers {
            attempts,
            reason: Some(reason.to_owned()),
            queue: Some(self.queue.clone()),
        };
        let queue = self.parked.clone();
        self.pass_on(
            publisher,
            Message::to_queue(&queue, Vec::new(), &headers),
            limit,
        )
    }

    /// Has the body published elsewhere, and only then acknowledges.
    fn pass_on(
        mut self,
        publisher: &Publisher,
        message: Message,
        limit: Duration,
    ) -> Result<(), Error> {
        if !self.is_current() {
            return Err(Error::Stale);
        }
        let body = std::mem::take(&mut self.body);
        let number = publisher.send(Message { body, ..message }, limit)?;
        publisher.settle(number, limit)?;
        self.ack()
    }

    fn is_current(&self) -> bool {
        self.epoch == self.current.load(Ordering::SeqCst)
    }

    fn settled(
        &self,
        request: impl Future<Output = Result<bool, crate::session::Why>>,
    ) -> Result<(), Error> {
        match self.broker.runtime.block_on(request) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Error::Stale),
        }
    }
}

impl Drop for Delivery {
    /// Gives it back without waiting: if that fails, so has the connection, and the broker takes it
    /// back by itself.
    fn drop(&mut self) {
        if let Some(acker) = self.acker.take().filter(|_| self.is_current()) {
            self.broker
                .runtime
                .spawn(async move { answer(acker.nack(requeue())).await.map(drop) });
        }
    }
}

fn requeue() -> BasicNackOptions {
    BasicNackOptions {
        requeue: true,
        ..BasicNackOptions::default()
    }
}
