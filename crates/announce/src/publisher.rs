//! Tells a broker what has become of entries.

use driftless_model::Stamp;
use driftless_queue::{Broker, Error, Exchange, TopicMessage, TopicPublisher};
use driftless_sarracenia::{
    Announced, BaseUrl, CONTENT_ENCODING, CONTENT_TYPE, Message, announce, topic,
};
use std::time::Duration;

/// Messages that are on their way and not confirmed: enough for some thousands a second over a
/// round trip of many milliseconds.
const UNCONFIRMED_MAX: usize = 2000;

/// Announces changes of one tree at an exchange; can be shared by threads.
pub struct Publisher {
    publisher: TopicPublisher,
    topic_prefix: String,
    base: BaseUrl,
}

impl Publisher {
    /// A publisher of the tree that messages are to call `base`. It connects when it first has
    /// something to tell, and makes the exchange if it is not there.
    pub fn new(
        broker: &Broker,
        exchange: &Exchange,
        topic_prefix: &str,
        base: BaseUrl,
    ) -> Publisher {
        Publisher {
            publisher: TopicPublisher::new(broker, exchange, UNCONFIRMED_MAX),
            topic_prefix: topic_prefix.to_owned(),
            base,
        }
    }

    /// Connects, if that has not been done, and waits for it up to `limit`.
    ///
    /// # Errors
    /// The broker refuses, or cannot be reached in time. The next call tries again.
    pub fn connect(&self, limit: Duration) -> Result<(), Error> {
        self.publisher.connect(limit)
    }

    /// Tells what has become of an entry, at the moment `now`; returns the number of the message,
    /// counted from zero. Waits up to `limit` for room. What was accepted is sent until it is
    /// confirmed, so it may be heard twice.
    ///
    /// # Errors
    /// It was not accepted, such as because the broker has been away for long.
    pub fn announce(
        &self,
        announced: &Announced,
        now: Stamp,
        limit: Duration,
    ) -> Result<u64, Error> {
        self.send(&announce(announced, &self.base, now), limit)
    }

    /// Sends a message as it is, such as one that is forwarded.
    ///
    /// # Errors
    /// As with [`Publisher::announce`].
    pub fn send(&self, message: &Message, limit: Duration) -> Result<u64, Error> {
        let body = message.to_json();
        let message = TopicMessage {
            key: &topic(&self.topic_prefix, &message.rel_path),
            content_type: CONTENT_TYPE,
            content_encoding: CONTENT_ENCODING,
            body: body.as_bytes(),
        };
        self.publisher.publish(&message, limit)
    }

    /// Waits up to `limit` until all that was accepted is confirmed.
    ///
    /// # Errors
    /// It was not, in time; it is kept, and sent again if that is needed.
    pub fn flush(&self, limit: Duration) -> Result<(), Error> {
        self.publisher.flush(limit)
    }

    /// Everything below this number is confirmed and can be forgotten: the broker has it for all
    /// that want it.
    pub fn confirmed(&self) -> u64 {
        self.publisher.confirmed()
    }

    /// How many announcements no queue wanted.
    pub fn unheard(&self) -> u64 {
        self.publisher.unheard()
    }
}
