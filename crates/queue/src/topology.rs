//! What must stand at the broker before a connection is of use: the queues of a job, an exchange to
//! publish to, or a queue that is bound to one. No input or output here.
//!
//! Exchanges and queues of announcements may be somebody else's. So they are asked for before they
//! are declared: a declaration with other arguments than those they have is an error, and a user
//! may be allowed to use what he is not allowed to make.

use crate::{Error, Job};
use lapin::types::{AMQPValue, FieldTable};
use std::time::Duration;

/// Longest name of an exchange, a queue or a routing key: they travel as short strings (AMQP 0.9.1,
/// 4.2.5.3).
const NAME_BYTES_MAX: usize = 255;
/// Most bindings of one subscription; each takes a round trip whenever it connects.
const BINDINGS_MAX: usize = 100;
/// How the names begin that a broker keeps for itself (AMQP 0.9.1, 1.6.2.1 and 1.7.2.1).
const RESERVED: &str = "amq.";

/// What a connection needs to find.
#[derive(Debug, Clone)]
pub(crate) enum Topology {
    /// All queues of a job.
    Job(Job),
    /// An exchange, for one who publishes.
    Exchange(Exchange),
    /// A queue that is bound to an exchange, for one who consumes.
    Subscription(Subscription),
}

/// An exchange whose messages go to every queue that is bound to their topic: durable, of type
/// `topic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange(String);

/// A durable queue, the exchange that it is bound to, and the topics that it wants. Everybody who
/// subscribes to the same queue shares its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    queue: String,
    exchange: Exchange,
    bindings: Vec<String>,
    passing: Option<Passing>,
    is_made: bool,
}

/// A queue that is of use to one process while that runs: the broker deletes it and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passing {
    /// When nobody was subscribed for so long, the queue goes.
    pub unused_max: Duration,
    /// A message that was not fetched for so long goes.
    pub age_max: Duration,
    /// Of more messages the oldest go.
    pub messages_max: u32,
}

impl Exchange {
    /// The exchange of this name.
    ///
    /// # Errors
    /// Names have 1 to 255 bytes, no control characters, and do not begin with `amq.`.
    pub fn new(name: &str) -> Result<Exchange, Error> {
        check_name(name)?;
        Ok(Exchange(name.to_owned()))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Subscription {
    /// A queue and the routing keys by which it is bound, in which `*` stands for one word and `#`
    /// for any number of them.
    ///
    /// # Errors
    /// The queue's name is not as that of an [`Exchange`] must be; there are no bindings or more
    /// than 100; or one is longer than 255 bytes.
    pub fn new(
        queue: &str,
        exchange: Exchange,
        bindings: &[String],
    ) -> Result<Subscription, Error> {
        check_name(queue)?;
        if bindings.is_empty() || bindings.len() > BINDINGS_MAX {
            return Err(bad(queue, "a queue has 1 to 100 bindings"));
        }
        bindings.iter().try_for_each(|key| check_key(key))?;
        Ok(Subscription {
            queue: queue.to_owned(),
            exchange,
            bindings: bindings.to_vec(),
            passing: None,
            is_made: true,
        })
    }

    /// The same, of which nothing is kept for long: if the queue is not there it is made so.
    #[must_use]
    pub fn passing(self, passing: Passing) -> Subscription {
        Subscription {
            passing: Some(passing),
            ..self
        }
    }

    /// The same, of a queue that another process makes, which has to know when it was not there.
    /// Until then there is nothing to be heard.
    #[must_use]
    pub fn made_by_another(self) -> Subscription {
        Subscription {
            is_made: false,
            ..self
        }
    }

    /// Whether its queue is made if it is not there.
    pub(crate) fn is_made(&self) -> bool {
        self.is_made
    }

    /// The arguments with which its queue is made (<https://www.rabbitmq.com/docs/ttl>,
    /// <https://www.rabbitmq.com/docs/maxlength>).
    pub(crate) fn arguments(&self) -> FieldTable {
        let mut table = FieldTable::default();
        let Some(passing) = self.passing else {
            return table;
        };
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        for (name, value) in [
            ("x-expires", millis(passing.unused_max)),
            ("x-message-ttl", millis(passing.age_max)),
            ("x-max-length", i64::from(passing.messages_max)),
        ] {
            table.insert(name.into(), AMQPValue::LongLongInt(value));
        }
        table
    }

    /// The name of the queue.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// The exchange that it is bound to.
    pub fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// The routing keys by which it is bound.
    pub fn bindings(&self) -> &[String] {
        &self.bindings
    }
}

impl Topology {
    /// What operators see in the broker's list of connections.
    pub(crate) fn name(&self) -> &str {
        match self {
            Topology::Job(job) => job.name(),
            Topology::Exchange(exchange) => exchange.name(),
            Topology::Subscription(subscription) => subscription.queue(),
        }
    }
}

/// Whether a routing key can travel.
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    match key.len() <= NAME_BYTES_MAX {
        true => Ok(()),
        false => Err(bad(key, "a routing key has at most 255 bytes")),
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(bad(
            name,
            "names of exchanges and queues have 1 to 255 bytes",
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(bad(name, "names have no control characters"));
    }
    match name.starts_with(RESERVED) {
        true => Err(bad(name, "names that begin with amq. are the broker's own")),
        false => Ok(()),
    }
}

fn bad(name: &str, why: &'static str) -> Error {
    Error::Name {
        name: name.escape_default().to_string(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(queue: &str, bindings: &[String]) -> Result<Subscription, Error> {
        Subscription::new(queue, Exchange::new("xs_site")?, bindings)
    }

    #[test]
    fn names_that_a_broker_would_not_take_are_refused() {
        let long = "x".repeat(256);
        for name in ["", "a\nb", "amq.topic", long.as_str()] {
            assert!(Exchange::new(name).is_err(), "{name:?}");
            assert!(subscription(name, &["v03.#".into()]).is_err(), "{name:?}");
        }
        for name in ["xs_site", "q_site.subscribe.mirror", "a b/ä"] {
            assert!(Exchange::new(name).is_ok(), "{name:?}");
            assert!(subscription(name, &["v03.#".into()]).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn a_subscription_has_one_to_a_hundred_bindings_that_can_travel() {
        let bindings = |count: usize| vec!["v03.#".to_owned(); count];
        assert!(subscription("q", &bindings(0)).is_err());
        assert!(subscription("q", &bindings(100)).is_ok());
        assert!(subscription("q", &bindings(101)).is_err());
        assert!(subscription("q", &["x".repeat(256)]).is_err());
    }
}
