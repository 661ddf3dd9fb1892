//! Takes messages from one queue of a job.
//!
//! The broker hands out no more than the prefetch before something is acknowledged, so a slow
//! consumer hoards nothing. When the connection is lost, what was handed out goes back to the
//! queue, and deliveries that came by it are void.

use crate::deadline::Deadline;
use crate::link::Link;
use crate::session::Role;
use crate::topology::Topology;
use crate::{Broker, Count, Delivery, Error, Job};
use std::time::Duration;

/// A subscription to one queue.
pub struct Consumer {
    job: Job,
    link: Link,
}

impl Consumer {
    /// Connects, declares the job's queues and subscribes to `queue`, one of [`Job::queues`]. At
    /// most `prefetch` messages (at least one) are handed out and not yet settled.
    ///
    /// # Errors
    /// The broker refuses, or cannot be reached for as long as it may be away.
    pub fn open(broker: &Broker, job: &Job, queue: &str, prefetch: u16) -> Result<Consumer, Error> {
        let role = Role::Consume {
            queue: queue.to_owned(),
            prefetch: prefetch.max(1),
            tag: String::new(),
        };
        let mut link = Link::new(broker, Topology::Job(job.clone()), role);
        broker
            .runtime
            .block_on(async { link.session().await.map(drop) })?;
        Ok(Consumer {
            job: job.clone(),
            link,
        })
    }

    /// Whether the connection stands, as far as is known: what was handed out on one that is lost
    /// will come again, to somebody else.
    pub fn is_connected(&mut self) -> bool {
        self.link.standing().is_some()
    }

    /// How full a queue of the job is, asked over the connection by which messages come: an answer
    /// proves that it stood when this was called, and so that what was handed out is still this
    /// consumer's. None if there is no answer within `limit`.
    pub fn count(&mut self, queue: &str, limit: Duration) -> Option<Count> {
        let runtime = self.link.broker().runtime.clone();
        let session = self.link.standing()?;
        runtime.block_on(async {
            let counted = tokio::time::timeout(
                limit,
                crate::control::count(&session.channel, queue.to_owned()),
            )
            .await;
            counted.ok()?.ok()
        })
    }

    /// Ends the subscription, so that nothing comes in the place of what is settled.
    /// [`Consumer::next`] would make another.
    ///
    /// # Errors
    /// The broker does not answer within `limit`.
    pub fn end(&mut self, limit: Duration) -> Result<(), Error> {
        let (runtime, broker) = (
            self.link.broker().runtime.clone(),
            self.link.broker().clone(),
        );
        let Some(session) = self.link.standing() else {
            return Ok(());
        };
        runtime.block_on(async {
            let ended = tokio::time::timeout(limit, session.unsubscribe()).await;
            ended
                .map_err(|late| broker.lost(late))?
                .map_err(|why| broker.lost(why))
        })
    }

    /// The next message; none if there is none within `limit`. A connection that is lost is made
    /// anew meanwhile.
    ///
    /// # Errors
    /// The broker was out of reach for longer than it may be away. The next call tries again.
    pub fn next(&mut self, limit: Duration) -> Result<Option<Delivery>, Error> {
        let (deadline, runtime) = (Deadline::within(limit), self.link.broker().runtime.clone());
        runtime.block_on(async {
            loop {
                let Some(session) = deadline.until(self.link.session()).await else {
                    return Ok(None);
                };
                match deadline.next_look().until(session?.next()).await {
                    None if deadline.is_over() => return Ok(None),
                    None => {}
                    Some(Some(message)) => {
                        return Ok(Some(Delivery::new(message, &self.job, &self.link)));
                    }
                    Some(None) => self.link.lose(),
                }
            }
        })
    }
}
