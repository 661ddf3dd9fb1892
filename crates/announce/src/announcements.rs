//! Hears announcements of a broker, for a mirror.
//!
//! The broker keeps what was not acknowledged, so nothing is lost while the mirror or the broker is
//! away. But it keeps it for a queue, not for a replica: a queue that was made anew has nothing of
//! what was announced before, and that is told as missed. One thread hears and waits, in short
//! turns, so that it can be woken; a message ends a turn at once.

use crate::seen::seen_of;
use driftless_detect::{Deaf, Detector, Heard, Queue, Seen, Sharing, Waker};
use driftless_queue::{Acknowledger, Broker, Subscription, TopicConsumer, TopicDelivery};
use driftless_sarracenia::{BaseUrl, Headers, Message, Refused, parse};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages that are handed out before one is acknowledged. A mirror acknowledges what is durable
/// on the replica, about every second: this bounds how many it takes in a second.
const PREFETCH: u16 = 20_000;
/// The same of a member of a pool: what it has taken nobody else works on.
const PREFETCH_OF_MEMBER: u16 = 5000;
/// Messages that are told at once.
const MESSAGES_AT_ONCE: usize = 1000;
/// A turn of waiting: how long somebody who wakes it may wait for it.
const TURN: Duration = Duration::from_millis(25);
/// How often one looks that may not hear, or cannot hear all; whoever lets it wakes it.
const REST: Duration = Duration::from_millis(500);
/// How long a connection may take before nothing is said to be heard.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How old what is said of the queue may be.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// How long the broker may take for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);

/// How long somebody else may be subscribed to the queue before it is told: the broker takes as
/// long to notice that an earlier connection of this mirror is gone.
const SHARED_TIME_MAX: Duration = Duration::from_secs(60);

const MADE_ANEW: &str =
    "the missing queue of announcements was created: earlier announcements are unknown";

/// The announcements of a queue, of one tree.
pub struct Announcements {
    name: String,
    /// The broker and the queue, for people.
    place: String,
    base: BaseUrl,
    consumer: TopicConsumer,
    acknowledger: Acknowledger,
    waker: Arc<Waker>,
    /// What was heard while it waited.
    first: Option<TopicDelivery>,
    /// The queue was made, and that was not told yet.
    is_queue_new: bool,
    /// How the queue stood, and when that was asked.
    queue: Option<(Queue, Instant)>,
    /// Since when somebody else is subscribed to the queue, and whether that was told.
    shared: Option<(Instant, bool)>,
    /// Others were subscribed to the queue: what one of them had and did not acknowledge may be on
    /// the replica in part.
    was_shared: bool,
    /// What the mirror says of others that hear the queue.
    sharing: Arc<Sharing>,
    /// It helps a mirror that hears the queue as well: all that it can hear is what was handed to
    /// it.
    is_member: bool,
}

impl Announcements {
    /// Those of a queue, about the tree that messages call `base`. Connects when it first hears.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn new(
        broker: &Broker,
        subscription: &Subscription,
        base: BaseUrl,
    ) -> Result<Announcements, Deaf> {
        Announcements::with(
            (broker, subscription),
            base,
            (PREFETCH, Sharing::new(true), false),
        )
    }

    /// The same in a pool: `sharing` says what is known of it. A member hears only while it may.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn in_pool(
        broker: &Broker,
        subscription: &Subscription,
        base: BaseUrl,
        (sharing, is_member): (Arc<Sharing>, bool),
    ) -> Result<Announcements, Deaf> {
        if !is_member {
            let how = (PREFETCH, sharing, false);
            return Announcements::with((broker, subscription), base, how);
        }
        // Its lead has to learn that the queue was not there, and members may be killed at any time.
        let subscription = subscription.clone().made_by_another();
        let how = (PREFETCH_OF_MEMBER, sharing, true);
        Announcements::with((broker, &subscription), base, how)
    }

    fn with(
        (broker, subscription): (&Broker, &Subscription),
        base: BaseUrl,
        (prefetch, sharing, is_member): (u16, Arc<Sharing>, bool),
    ) -> Result<Announcements, Deaf> {
        let place = format!("{}, queue {}", broker.url(), subscription.queue());
        let waker = Waker::new().map_err(|errno| Deaf::for_now(format!("{place}: {errno}")))?;
        let consumer = TopicConsumer::new(broker, subscription, prefetch);
        Ok(Announcements {
            name: format!("announcements of {}", subscription.exchange().name()),
            place,
            base,
            acknowledger: consumer.acknowledger(),
            consumer,
            waker,
            first: None,
            is_queue_new: false,
            queue: None,
            shared: None,
            was_shared: is_member,
            sharing,
            is_member,
        })
    }

    /// Gives back what it has not acknowledged, and says that it hears nothing.
    fn give_back(&mut self) -> Heard {
        if self.consumer.is_connected() {
            self.consumer.disconnect();
        }
        self.first = None;
        let queue = Queue {
            connection: self.consumer.lost_connections(),
            ..Queue::default()
        };
        self.queue = None;
        Heard {
            queue: Some(queue),
            ..Heard::default()
        }
    }

    /// Waits until the connection stands, in turns.
    fn connect(&mut self) -> Result<(), Deaf> {
        let begun = Instant::now();
        while !self.consumer.is_connected() {
            if self.waker.is_stopping() || begun.elapsed() >= CONNECT_TIME_MAX {
                return Err(self.deaf(&self.consumer.last_failure()));
            }
            self.first = self.next(TURN)?;
        }
        Ok(())
    }

    fn next(&mut self, limit: Duration) -> Result<Option<TopicDelivery>, Deaf> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let heard = self.consumer.next(limit);
        self.is_queue_new |= self.consumer.was_queue_made();
        heard.map_err(|error| self.deaf(&error.to_string()))
    }

    /// What is here by now.
    fn here(&mut self) -> Result<Vec<TopicDelivery>, Deaf> {
        let mut here = Vec::new();
        while here.len() < MESSAGES_AT_ONCE
            && let Some(delivery) = self.next(Duration::ZERO)?
        {
            here.push(delivery);
        }
        Ok(here)
    }

    /// What is here when all that the broker had has come; the second value says whether that is
    /// so.
    fn rest(&mut self) -> Result<(Vec<TopicDelivery>, bool), Deaf> {
        let waits = self.count()?;
        let then = self.queue;
        // The broker may have answered before it sent what it had handed out by then. What it
        // answers afterwards comes behind that.
        self.count()?;
        // Those count that were subscribed when nothing waited.
        self.queue = then;
        let here = self.here()?;
        let has_all = waits == 0 && self.strangers() == 0;
        let is_all = (has_all || self.is_member) && here.len() < MESSAGES_AT_ONCE;
        Ok((here, is_all))
    }

    /// How many are subscribed to the queue whom the mirror does not know: what they have and did
    /// not acknowledge nobody can ask for.
    fn strangers(&self) -> u64 {
        let consumers = self.queue.map_or(0, |(queue, _)| queue.consumers);
        consumers.saturating_sub(1 + self.sharing.others())
    }

    fn count(&mut self) -> Result<u32, Deaf> {
        let Some(count) = self.consumer.count(ANSWER_TIME_MAX) else {
            return Err(self.deaf("the broker does not answer"));
        };
        let queue = Queue {
            waiting: count.ready.into(),
            consumers: count.consumers.into(),
            connection: self.consumer.lost_connections(),
        };
        self.queue = Some((queue, Instant::now()));
        self.note_consumers(count.consumers);
        Ok(count.ready)
    }

    fn is_count_old(&self) -> bool {
        self.queue
            .is_none_or(|(_, asked)| asked.elapsed() >= COUNT_EVERY)
    }

    /// Each message comes to one of those who are subscribed; a mirror that shares its queue by
    /// mistake hears a part.
    fn note_consumers(&mut self, consumers: u32) {
        self.was_shared |= consumers > 1;
        if self.is_member || self.strangers() == 0 {
            self.shared = None;
            return;
        }
        let (since, is_told) = self.shared.unwrap_or_else(|| (Instant::now(), false));
        let is_long = since.elapsed() >= SHARED_TIME_MAX;
        if is_long && !is_told {
            tracing::warn!(
                "{}: the queue has {consumers} consumers: this mirror lacks the messages of the others",
                self.place
            );
        }
        self.shared = Some((since, is_told || is_long));
    }

    /// What the messages say, with what is to be known beside.
    fn told(&mut self, messages: &[TopicDelivery]) -> Heard {
        let mut heard = Heard {
            events: messages.len(),
            position: messages.last().map(|last| last.number + 1),
            queue: self.queue.map(|(queue, _)| queue),
            missed: std::mem::take(&mut self.is_queue_new).then_some(MADE_ANEW),
            ..Heard::default()
        };
        for delivery in messages {
            match read(delivery) {
                Ok(message) => {
                    let seen = seen_of(&message, &self.base).into_iter();
                    let is_doubtful = delivery.is_redelivered && self.was_shared;
                    // Whoever had it before may have had no time to make it durable.
                    heard.seen.extend(seen.map(|one| Seen {
                        is_written: one.is_written || is_doubtful,
                        is_repeated: is_doubtful,
                        ..one
                    }));
                }
                Err(why) => {
                    tracing::warn!("{}: cannot use a message: {why}", self.place);
                    heard.unread += 1;
                }
            }
        }
        // A listener takes what has no events for nothing.
        heard.events = heard.events.max(usize::from(heard.missed.is_some()));
        heard
    }

    fn deaf(&self, why: &str) -> Deaf {
        Deaf::for_now(format!(
            "{}: cannot receive announcements: {why}",
            self.place
        ))
    }
}

impl Detector for Announcements {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn hear(&mut self) -> Result<Heard, Deaf> {
        if !self.sharing.may_hear() {
            return Ok(self.give_back());
        }
        self.connect()?;
        let mut here = self.here()?;
        let mut is_all = false;
        if here.is_empty() {
            (here, is_all) = self.rest()?;
        } else if self.is_count_old() {
            self.count()?;
        }
        if here.is_empty() && !is_all {
            // There is more, and it comes when something was acknowledged, or a stranger has gone.
            let limit = match self.strangers() {
                0 => TURN,
                _ => REST,
            };
            here.extend(self.next(limit)?);
        }
        let mut heard = self.told(&here);
        heard.events = heard.events.max(usize::from(!is_all));
        Ok(heard)
    }

    fn wait(&mut self) -> Result<(), Deaf> {
        if !self.sharing.may_hear() {
            let _it_is_looked_again_at_once = self.waker.wait(None, Some(REST));
            return Ok(());
        }
        while self.first.is_none() && !self.waker.was_woken() && self.sharing.may_hear() {
            self.first = self.next(TURN)?;
            if self.is_queue_new || self.is_count_old() || !self.consumer.is_connected() {
                break;
            }
        }
        Ok(())
    }

    fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    fn acknowledge(&mut self, position: u64) -> Result<(), Deaf> {
        let Some(last) = position.checked_sub(1) else {
            return Ok(());
        };
        if let Err(error) = self.acknowledger.acknowledge(last) {
            // What came by a connection that is lost comes again, and is acknowledged then.
            tracing::debug!("{}: {error}", self.place);
        }
        Ok(())
    }
}

fn read(delivery: &TopicDelivery) -> Result<Message, Refused> {
    let kind = Some(delivery.content_type.as_str()).filter(|kind| !kind.is_empty());
    let headers: Headers = delivery.headers.iter().cloned().collect();
    parse(&delivery.body, kind, &headers)
}
