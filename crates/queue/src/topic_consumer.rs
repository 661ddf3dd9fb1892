//! Hears the messages of a queue that is bound to an exchange.
//!
//! Those who subscribe to the same queue share its messages: each comes to one of them. Whoever
//! hears a message may need long until nothing of it can be lost, so messages are acknowledged by
//! number and many at once, from another thread than the one that hears. The numbers rise for as
//! long as the consumer lives, whatever connection a message came by. What was not acknowledged
//! when a connection is lost comes again, with another number, to this consumer or another.

use crate::deadline::Deadline;
use crate::link::Link;
use crate::session::{Role, answer};
use crate::topology::{Subscription, Topology};
use crate::{Broker, Count, Error};
use driftless_lock::Mutex;
use lapin::Acker;
use lapin::options::BasicAckOptions;
use lapin::types::AMQPValue;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A subscription to a queue of an exchange.
pub struct TopicConsumer {
    link: Link,
    subscription: Subscription,
    unsettled: Arc<Mutex<VecDeque<Unsettled>>>,
    next_number: u64,
    is_queue_new: bool,
}

/// A message that was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDelivery {
    /// By which it is acknowledged; higher than that of all that was heard before.
    pub number: u64,
    /// The body.
    pub body: Vec<u8>,
    /// What the body is; empty if the message does not say.
    pub content_type: String,
    /// Headers that are text, in the order of their names.
    pub headers: Vec<(String, String)>,
    /// Where it was published.
    pub exchange: String,
    /// Its topic.
    pub key: String,
    /// It was handed out before, to this consumer or another.
    pub is_redelivered: bool,
}

/// Acknowledges what a [`TopicConsumer`] has heard; can be used by another thread.
#[derive(Clone)]
pub struct Acknowledger {
    unsettled: Arc<Mutex<VecDeque<Unsettled>>>,
    current: Arc<AtomicU64>,
    broker: Broker,
}

/// A message that was handed out, by which connection, and what acknowledges it.
struct Unsettled {
    number: u64,
    epoch: u64,
    acker: Acker,
}

impl TopicConsumer {
    /// A consumer to which at most `prefetch` messages (at least one) are handed out before it
    /// acknowledges any. It connects when it is first asked; then the queue is made if it is not
    /// there, and bound. The exchange has to be there.
    pub fn new(broker: &Broker, subscription: &Subscription, prefetch: u16) -> TopicConsumer {
        let role = Role::Consume {
            queue: subscription.queue().to_owned(),
            prefetch: prefetch.max(1),
            tag: own_tag(),
        };
        TopicConsumer {
            link: Link::new(broker, Topology::Subscription(subscription.clone()), role),
            subscription: subscription.clone(),
            unsettled: Arc::default(),
            next_number: 0,
            is_queue_new: false,
        }
    }

    /// What acknowledges what this consumer hears.
    pub fn acknowledger(&self) -> Acknowledger {
        Acknowledger {
            unsettled: self.unsettled.clone(),
            current: self.link.epoch().clone(),
            broker: self.link.broker().clone(),
        }
    }

    /// The next message; none if there is none within `limit`. A connection that is lost is made
    /// anew meanwhile.
    ///
    /// # Errors
    /// The broker refuses, or was out of reach for longer than it may be away. The next call tries
    /// again.
    pub fn next(&mut self, limit: Duration) -> Result<Option<TopicDelivery>, Error> {
        let (deadline, runtime) = (Deadline::within(limit), self.link.broker().runtime.clone());
        runtime.block_on(async {
            loop {
                let Some(session) = deadline.until(self.link.session()).await else {
                    return Ok(None);
                };
                let session = session?;
                self.is_queue_new |= std::mem::take(&mut session.is_queue_new);
                match deadline.next_look().until(session.next()).await {
                    None if deadline.is_over() => return Ok(None),
                    None => {}
                    Some(Some(message)) => return Ok(Some(self.take(message))),
                    Some(None) => self.link.lose(),
                }
            }
        })
    }

    /// Whether the queue was not there and was made since this was last asked: what was published
    /// before is not known.
    pub fn was_queue_made(&mut self) -> bool {
        std::mem::take(&mut self.is_queue_new)
    }

    /// Whether the connection stands, as far as is known.
    pub fn is_connected(&mut self) -> bool {
        self.link.standing().is_some()
    }

    /// Ends the connection, if there is one: what was handed out and not acknowledged goes back to
    /// the queue. [`TopicConsumer::next`] makes another.
    pub fn disconnect(&mut self) {
        self.link.lose();
    }

    /// How many connections were lost or ended: what came by one of them comes again.
    pub fn lost_connections(&self) -> u64 {
        self.link.epoch().load(Ordering::SeqCst)
    }

    /// What the last try to connect ended with.
    pub fn last_failure(&self) -> String {
        self.link.last_failure()
    }

    /// How full the queue is and how many share it. None if there is no answer within `limit`.
    pub fn count(&mut self, limit: Duration) -> Option<Count> {
        let (runtime, queue) = (
            self.link.broker().runtime.clone(),
            self.subscription.queue().to_owned(),
        );
        let session = self.link.standing()?;
        runtime.block_on(async {
            let counting = crate::control::count(&session.channel, queue);
            tokio::time::timeout(limit, counting).await.ok()?.ok()
        })
    }

    fn take(&mut self, message: lapin::message::Delivery) -> TopicDelivery {
        let (number, epoch) = (self.next_number, self.link.epoch().load(Ordering::SeqCst));
        self.next_number += 1;
        let mut unsettled = self.unsettled.lock();
        // What came by an older connection cannot be acknowledged any more.
        while unsettled.front().is_some_and(|one| one.epoch != epoch) {
            unsettled.pop_front();
        }
        unsettled.push_back(Unsettled {
            number,
            epoch,
            acker: message.acker,
        });
        let content_type = message.properties.content_type().as_ref();
        TopicDelivery {
            number,
            content_type: content_type.map_or_else(String::new, ToString::to_string),
            headers: texts(&message.properties),
            exchange: message.exchange.to_string(),
            key: message.routing_key.to_string(),
            is_redelivered: message.redelivered,
            body: message.data,
        }
    }
}

impl Acknowledger {
    /// Everything up to `number`, and this itself, is done with and need not come again. What came
    /// by a connection that is lost comes again anyhow. The broker does not answer this.
    ///
    /// # Errors
    /// [`Error::Stale`]: the connection is gone, and all of it comes again.
    pub fn acknowledge(&self, number: u64) -> Result<(), Error> {
        let Some(last) = self.last_up_to(number) else {
            return Ok(());
        };
        if last.epoch != self.current.load(Ordering::SeqCst) {
            return Err(Error::Stale);
        }
        let options = BasicAckOptions { multiple: true };
        match self
            .broker
            .runtime
            .block_on(answer(last.acker.ack(options)))
        {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Error::Stale),
        }
    }

    /// How many messages were handed out and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.unsettled.lock().len()
    }

    /// Takes out all up to this number; returns the last of them.
    fn last_up_to(&self, number: u64) -> Option<Unsettled> {
        let mut unsettled = self.unsettled.lock();
        let count = unsettled.partition_point(|one| one.number <= number);
        unsettled.drain(..count).next_back()
    }
}

/// What operators see in the broker's list of consumers.
fn own_tag() -> String {
    let name = rustix::system::uname();
    let host = name.nodename().to_string_lossy();
    format!("driftless.{host}.{}", std::process::id())
}

/// Headers that are text; a name or value that is not UTF-8 is left out.
fn texts(properties: &lapin::BasicProperties) -> Vec<(String, String)> {
    let Some(table) = properties.headers() else {
        return Vec::new();
    };
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(value) => String::from_utf8(value.as_bytes().to_vec()).ok(),
        AMQPValue::ShortString(value) => Some(value.as_str().to_owned()),
        _ => None,
    };
    let pairs = table.inner().iter();
    pairs
        .filter_map(|(name, value)| Some((name.to_string(), text(value)?)))
        .collect()
}
