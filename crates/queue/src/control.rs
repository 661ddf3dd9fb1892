//! What is done to a job's queues from outside: declaring, counting, looking at parked messages,
//! emptying, deleting.

use crate::headers::Headers;
use crate::link::Link;
use crate::session::{Failure, Role, Session, Why, answer};
use crate::topology::Topology;
use crate::{Broker, Error, Job};
use lapin::message::BasicGetMessage;
use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, BasicNackOptions, QueueDeclareOptions,
    QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use std::time::Duration;
use tokio::time::timeout;

/// Most parked messages that one listing returns; all are held in memory, and by the broker for us,
/// meanwhile.
pub const LISTED_MAX: usize = 1000;

/// A connection for the management of one job.
pub struct Control {
    job: Job,
    link: Link,
    limit: Option<Duration>,
    /// As what this connection counts as a consumer; it no longer does when this is dropped.
    enlisted: Option<(Channel, Consumer)>,
}

/// How full a queue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The queue.
    pub queue: String,
    /// Messages that wait; those that were handed out are not among them.
    pub ready: u32,
    /// Consumers that are subscribed.
    pub consumers: u32,
}

/// A message that nobody could work off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// The message.
    pub body: Vec<u8>,
    /// Why it is here.
    pub reason: String,
    /// How often it was tried, as far as [`crate::Delivery`] counted it.
    pub attempts: u32,
    /// The queue that it was in, if that is known.
    pub queue: Option<String>,
}

impl Control {
    /// Connects; declares nothing.
    ///
    /// # Errors
    /// The broker refuses, or cannot be reached for as long as it may be away.
    pub fn open(broker: &Broker, job: &Job) -> Result<Control, Error> {
        let mut link = Link::new(broker, Topology::Job(job.clone()), Role::Control);
        broker
            .runtime
            .block_on(async { link.session().await.map(drop) })?;
        Ok(Control {
            job: job.clone(),
            link,
            limit: None,
            enlisted: None,
        })
    }

    /// Gives every call an end: while the broker is away, it fails after `limit` instead of waiting
    /// for as long as the broker may be away.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Control {
        self.limit = Some(limit);
        self
    }

    /// Declares the job's queues; it makes no difference if they are there.
    ///
    /// # Errors
    /// A queue of this name is there and differs; or the broker does not answer.
    pub fn declare(&mut self) -> Result<(), Error> {
        let job = self.job.clone();
        self.on_session(async |session| session.declare_job(&job).await)
    }

    /// How full each queue of the job is, in the order of [`Job::queues`].
    ///
    /// # Errors
    /// A queue is not there; or the broker does not answer.
    pub fn counts(&mut self) -> Result<Vec<Count>, Error> {
        self.each_queue(async |channel, queue| count(channel, queue).await)
    }

    /// How full one queue is, in one round trip.
    ///
    /// # Errors
    /// The queue is not there; or the broker does not answer.
    pub fn count(&mut self, queue: &str) -> Result<Count, Error> {
        self.on_session(async |session| {
            count(&session.channel, queue.to_owned())
                .await
                .map_err(|why| why.at(queue))
        })
    }

    /// Counts as a consumer of a queue to which nobody publishes, until [`Control::withdraw`] or
    /// the end of the connection.
    ///
    /// # Errors
    /// The queue is not there; or the broker does not answer.
    pub fn enlist(&mut self, queue: &str) -> Result<(), Error> {
        if self
            .enlisted
            .as_ref()
            .is_some_and(|(channel, _)| channel.status().connected())
        {
            return Ok(());
        }
        let enlisted = self.on_session(async |session| {
            let channel = answer(session.connection.create_channel())
                .await
                .map_err(|why| why.at(queue))?;
            let consumed = channel.basic_consume(
                queue.into(),
                "".into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            );
            let consumer = answer(consumed).await.map_err(|why| why.at(queue))?;
            Ok((channel, consumer))
        });
        self.enlisted = Some(enlisted?);
        Ok(())
    }

    /// No longer counts as a consumer.
    ///
    /// # Errors
    /// The broker does not answer; then it counts until the connection is lost.
    pub fn withdraw(&mut self) -> Result<(), Error> {
        let Some((channel, _consumer)) = self
            .enlisted
            .take()
            .filter(|(channel, _)| channel.status().connected())
        else {
            return Ok(());
        };
        self.on_session(async |_| {
            let _gone_with_its_connection = answer(channel.close(200, "done".into())).await;
            Ok(())
        })
    }

    /// Removes all messages that wait in one queue of the job; returns how many. Those that were
    /// handed out stay.
    ///
    /// # Errors
    /// The queue is not there; or the broker does not answer.
    pub fn purge_queue(&mut self, queue: &str) -> Result<u64, Error> {
        self.on_session(async |session| {
            let channel = answer(session.connection.create_channel())
                .await
                .map_err(|why| why.at(queue))?;
            let purged =
                answer(channel.queue_purge(queue.into(), QueuePurgeOptions::default())).await;
            let _ = answer(channel.close(200, "done".into())).await;
            purged.map(u64::from).map_err(|why| why.at(queue))
        })
    }

    /// Deletes the job's queues with all that is in them; it makes no difference if they are gone.
    /// A publisher or consumer of the job that is still at work declares them anew when it next
    /// connects.
    ///
    /// # Errors
    /// The broker does not answer.
    pub fn delete(&mut self) -> Result<(), Error> {
        let delete = async |channel: &Channel, queue: String| {
            answer(channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()))
                .await
                .map(drop)
        };
        self.each_queue(delete).map(drop)
    }

    /// The oldest parked messages, at most `max` and [`LISTED_MAX`]. They stay where they are; two
    /// listings at the same time do not see the same messages.
    ///
    /// # Errors
    /// The queue is not there; or the broker does not answer.
    pub fn parked(&mut self, max: usize) -> Result<Vec<Parked>, Error> {
        let (queue, max) = (self.job.parked(), max.min(LISTED_MAX));
        self.on_session(async |session| {
            let channel = answer(session.connection.create_channel())
                .await
                .map_err(|why| why.at(&queue))?;
            list(&channel, &queue, max)
                .await
                .map_err(|why| why.at(&queue))
        })
    }

    /// What the coordinator of the job, or the last one, says of itself; none while somebody else
    /// reads it.
    ///
    /// # Errors
    /// The queue is not there; or the broker does not answer.
    pub fn coordinator(&mut self) -> Result<Option<String>, Error> {
        let queue = self.job.coordinator();
        self.on_session(async |session| said(session, &queue).await.map_err(|why| why.at(&queue)))
    }

    /// Does something to each queue, on a channel of its own: an error of the broker closes the
    /// channel.
    fn each_queue<T>(
        &mut self,
        call: impl AsyncFn(&Channel, String) -> Result<T, Why>,
    ) -> Result<Vec<T>, Error> {
        let queues = self.job.queues();
        self.on_session(async |session| {
            let mut results = Vec::new();
            for queue in queues {
                let channel = answer(session.connection.create_channel())
                    .await
                    .map_err(|why| why.at(&queue))?;
                results.push(
                    call(&channel, queue.clone())
                        .await
                        .map_err(|why| why.at(&queue))?,
                );
                let _ = answer(channel.close(200, "done".into())).await;
            }
            Ok(results)
        })
    }

    fn on_session<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let (broker, limit) = (
            self.link.broker().clone(),
            self.limit.unwrap_or(Duration::MAX),
        );
        broker.runtime.block_on(async {
            let link = &mut self.link;
            let answered = timeout(limit, async {
                let outcome = call(link.session().await?).await;
                outcome.map_err(|failure| {
                    if failure.is_lost {
                        broker.lost(failure.error)
                    } else {
                        failure.error
                    }
                })
            });
            match answered.await {
                Ok(outcome) => outcome,
                Err(_) => {
                    // One that does not answer in time may be half dead.
                    self.link.lose();
                    Err(self
                        .link
                        .broker()
                        .lost(format!("no answer within {} s", limit.as_secs())))
                }
            }
        })
    }
}

pub(crate) async fn count(channel: &Channel, queue: String) -> Result<Count, Why> {
    let options = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let found =
        answer(channel.queue_declare(queue.as_str().into(), options, FieldTable::default()))
            .await?;
    Ok(Count {
        queue,
        ready: found.message_count(),
        consumers: found.consumer_count(),
    })
}

/// Takes messages and puts all of them back at the end; whatever happens in between, the broker
/// puts them back itself.
pub(crate) async fn list(channel: &Channel, queue: &str, max: usize) -> Result<Vec<Parked>, Why> {
    let mut found: Vec<Parked> = Vec::new();
    let mut last = None;
    while found.len() < max {
        let Some(message) =
            answer(channel.basic_get(queue.into(), BasicGetOptions::default())).await?
        else {
            break;
        };
        found.push(parked(&message));
        last = Some(message);
    }
    if let Some(last) = last {
        answer(last.acker.nack(BasicNackOptions {
            multiple: true,
            requeue: true,
        }))
        .await?;
    }
    let _ = answer(channel.close(200, "done".into())).await;
    Ok(found)
}

/// What stands in a queue that holds one message for everybody to read.
pub(crate) async fn said(session: &Session, queue: &str) -> Result<Option<String>, Why> {
    let channel = answer(session.connection.create_channel()).await?;
    let said = list(&channel, queue, 1).await?.pop();
    Ok(said.map(|said| {
        String::from_utf8_lossy(&said.body)
            .escape_debug()
            .to_string()
    }))
}

fn parked(message: &BasicGetMessage) -> Parked {
    let headers = Headers::read(&message.properties);
    Parked {
        body: message.data.clone(),
        reason: headers.reason.unwrap_or_else(|| "unknown".to_owned()),
        attempts: headers.attempts,
        queue: headers.queue,
    }
}
