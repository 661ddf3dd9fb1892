//! Sends messages to everybody who wants to hear of their topics.
//!
//! As `publisher.rs`, but for two things: a message that no queue takes is done with, since nobody
//! wanted to hear it, and nothing connects before there is something to send.

use crate::confirms::Returns;
use crate::link::Link;
use crate::session::Role;
use crate::topology::{Exchange, Topology, check_key};
use crate::window::Message;
use crate::{Blocked, Broker, Error, Publisher};
use lapin::BasicProperties;
use std::time::Duration;

/// Delivery mode of a message that survives a restart of the broker.
const PERSISTENT: u8 = 2;

/// Publishes to an exchange; can be shared by threads.
pub struct TopicPublisher {
    exchange: Exchange,
    publisher: Publisher,
}

/// A message for an exchange. It has no headers, and survives a restart of the broker where a
/// durable queue takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicMessage<'a> {
    /// Its topic, at most 255 bytes.
    pub key: &'a str,
    /// What the body is, such as `application/json`.
    pub content_type: &'a str,
    /// How its text is encoded, such as `utf-8`.
    pub content_encoding: &'a str,
    /// The body, at most [`crate::MESSAGE_BYTES_MAX`].
    pub body: &'a [u8],
}

impl TopicPublisher {
    /// A publisher of which at most `unconfirmed_max` messages (at least one) are on their way. It
    /// connects when it is first used; then the exchange is made if it is not there.
    pub fn new(broker: &Broker, exchange: &Exchange, unconfirmed_max: usize) -> TopicPublisher {
        let topology = Topology::Exchange(exchange.clone());
        let link = Link::new(broker, topology, Role::Publish);
        TopicPublisher {
            exchange: exchange.clone(),
            publisher: Publisher::by(link, unconfirmed_max.max(1), Returns::Counted),
        }
    }

    /// Connects, if that has not been done, and waits for it up to `limit`.
    ///
    /// # Errors
    /// The broker refuses, or cannot be reached in time. The next call tries again.
    pub fn connect(&self, limit: Duration) -> Result<(), Error> {
        self.publisher.connect(limit)
    }

    /// Accepts a message and sends it; returns its number, counted from zero. Waits up to `limit`
    /// for room among those that are not confirmed. What was accepted is sent again when the
    /// connection is lost before it was confirmed, so it may arrive twice.
    ///
    /// # Errors
    /// The message was not accepted: it is too large, its key is too long, or there was no room in
    /// time, such as while the broker is away.
    pub fn publish(&self, message: &TopicMessage<'_>, limit: Duration) -> Result<u64, Error> {
        check_key(message.key)?;
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_content_type(message.content_type.into())
            .with_content_encoding(message.content_encoding.into());
        let message = Message {
            exchange: self.exchange.name().to_owned(),
            key: message.key.to_owned(),
            body: message.body.to_owned(),
            properties,
        };
        self.publisher.send(message, limit)
    }

    /// Waits up to `limit` until all that was accepted is confirmed.
    ///
    /// # Errors
    /// It was not, in time. All is kept, and sent again with the next call if that is needed.
    pub fn flush(&self, limit: Duration) -> Result<(), Error> {
        self.publisher.flush(limit)
    }

    /// Everything below this number is confirmed: the broker has handed it to every queue that
    /// wants it, and those have it on disk. Does not wait for the broker, but for another thread's
    /// call that does.
    pub fn confirmed(&self) -> u64 {
        self.publisher.look();
        self.publisher.confirmed()
    }

    /// How many messages are accepted and not confirmed. Waits as [`TopicPublisher::confirmed`]
    /// does.
    pub fn outstanding(&self) -> usize {
        self.publisher.look();
        self.publisher.outstanding()
    }

    /// How many messages no queue wanted. One that was sent twice may count twice.
    pub fn unheard(&self) -> u64 {
        self.publisher.unheard()
    }

    /// Since when the broker takes no messages, if it says so. Never waits.
    pub fn blocked(&self) -> Option<Blocked> {
        self.publisher.blocked()
    }
}
