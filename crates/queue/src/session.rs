//! One connection with all that stands on it: a channel, queues or an exchange, and a subscription
//! or confirms.
//!
//! A session is never mended. Whatever goes wrong with it, it is dropped, and `link.rs` makes
//! another.

use crate::topology::Topology;
use crate::{Broker, Error};
use futures_lite::StreamExt;
use lapin::options::{
    BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, ConfirmSelectOptions,
};
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Consumer, ErrorKind};
use std::future::Future;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// The longest that the broker may take to answer one request. Quorum queues elect a leader after a
/// restart.
pub(crate) const ANSWER_SECONDS_MAX: u64 = 15;
/// The longest that closing a connection may take.
const CLOSE_SECONDS_MAX: u64 = 2;
/// The reply code of a connection that is closed in order (AMQP 0.9.1, 1.1 "constants").
const REPLY_SUCCESS: u16 = 200;

/// What a connection is for; publishing and consuming never share one, because a broker that is
/// short of memory stops reading from connections that publish.
#[derive(Debug, Clone)]
pub(crate) enum Role {
    Publish,
    Consume {
        queue: String,
        prefetch: u16,
        /// What the broker calls this consumer; chosen by the broker if it is empty.
        tag: String,
    },
    Control,
}

/// A failed try, and whether another could end better.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) for_good: bool,
    /// It is the connection that failed, and not what was asked for.
    pub(crate) is_lost: bool,
}

impl Failure {
    pub(crate) fn for_good(error: Error) -> Failure {
        Failure {
            error,
            for_good: true,
            is_lost: false,
        }
    }

    pub(crate) fn passing(error: Error) -> Failure {
        Failure {
            error,
            for_good: false,
            is_lost: false,
        }
    }

    /// Whether the broker says no, rather than not now: wrong user, password, vhost, rights, or
    /// other arguments of a queue; or we say no, to its certificate.
    pub(crate) fn is_refusal(error: &lapin::Error) -> bool {
        match error.kind() {
            ErrorKind::ProtocolError(error) => matches!(
                error.kind(),
                AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED)
                    | AMQPErrorKind::Soft(
                        AMQPSoftError::ACCESSREFUSED | AMQPSoftError::PRECONDITIONFAILED
                    )
            ),
            ErrorKind::IOError(error) => error.kind() == std::io::ErrorKind::InvalidData,
            _ => false,
        }
    }
}

pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) channel: Channel,
    deliveries: Option<Consumer>,
    /// The queue was not there and was made: what was published before is not in it.
    pub(crate) is_queue_new: bool,
    /// The task that listens to what the broker says about the connection; ends with the session.
    pub(crate) listener: Option<AbortHandle>,
}

impl Session {
    /// One try: connects, declares what must be there, and sets up what the role needs.
    pub(crate) async fn open(
        broker: &Broker,
        topology: &Topology,
        role: &Role,
    ) -> Result<Session, Failure> {
        let connection = broker
            .connect(&format!("{} {}", topology.name(), role.word()))
            .await?;
        let channel = answer(connection.create_channel())
            .await
            .map_err(|why| Failure::passing(broker.lost(why)))?;
        let mut session = Session {
            connection,
            channel,
            deliveries: None,
            is_queue_new: false,
            listener: None,
        };
        match role {
            Role::Control => {}
            Role::Publish => {
                session.declare(topology).await?;
                let confirms = session
                    .channel
                    .confirm_select(ConfirmSelectOptions::default());
                answer(confirms)
                    .await
                    .map_err(|why| Failure::passing(broker.lost(why)))?;
            }
            Role::Consume {
                queue,
                prefetch,
                tag,
            } => {
                session.declare(topology).await?;
                session.deliveries = Some(session.subscribe(queue, *prefetch, tag).await?);
            }
        }
        Ok(session)
    }

    async fn subscribe(&self, queue: &str, prefetch: u16, tag: &str) -> Result<Consumer, Failure> {
        answer(self.channel.basic_qos(prefetch, BasicQosOptions::default()))
            .await
            .map_err(|why| why.at(queue))?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        answer(
            self.channel
                .basic_consume(queue.into(), tag.into(), options, arguments),
        )
        .await
        .map_err(|why| why.at(queue))
    }

    /// Whether connection and channel stand, as far as is known.
    pub(crate) fn is_alive(&self) -> bool {
        self.connection.status().connected() && self.channel.status().connected()
    }

    /// The next delivery; none if the subscription has ended.
    pub(crate) async fn next(&mut self) -> Option<lapin::message::Delivery> {
        self.deliveries.as_mut()?.next().await?.ok()
    }

    /// Ends the subscription: nothing more is handed out. What was handed out can be settled still.
    pub(crate) async fn unsubscribe(&self) -> Result<(), Why> {
        let Some(deliveries) = &self.deliveries else {
            return Ok(());
        };
        answer(
            self.channel
                .basic_cancel(deliveries.tag(), BasicCancelOptions::default()),
        )
        .await
    }

    /// Ends the connection in order, so that what was sent on it is read by the broker first.
    pub(crate) async fn close(self) {
        let _ = timeout(
            Duration::from_secs(CLOSE_SECONDS_MAX),
            self.connection.close(REPLY_SUCCESS, "done".into()),
        )
        .await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            listener.abort();
        }
    }
}

impl Role {
    fn word(&self) -> &'static str {
        match self {
            Role::Publish => "publish",
            Role::Consume { .. } => "consume",
            Role::Control => "control",
        }
    }
}

/// Why a request was not answered as hoped.
#[derive(Debug)]
pub(crate) enum Why {
    Late,
    Said(lapin::Error),
}

impl Why {
    /// As a failure that concerns a queue.
    pub(crate) fn at(&self, queue: &str) -> Failure {
        let error = Error::Queue {
            queue: queue.to_owned(),
            why: self.to_string(),
        };
        match self {
            Why::Said(said) if Failure::is_refusal(said) => Failure::for_good(error),
            _ => Failure {
                is_lost: self.is_lost(),
                ..Failure::passing(error)
            },
        }
    }

    /// Whether the broker has nothing of this name.
    pub(crate) fn is_not_found(&self) -> bool {
        let Why::Said(error) = self else { return false };
        matches!(error.kind(), ErrorKind::ProtocolError(error)
            if matches!(error.kind(), AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND)))
    }

    /// Whether there was no answer because the connection has ended, or is half dead.
    fn is_lost(&self) -> bool {
        let Why::Said(error) = self else { return true };
        match error.kind() {
            ErrorKind::ProtocolError(error) => matches!(
                error.kind(),
                AMQPErrorKind::Hard(AMQPHardError::CONNECTIONFORCED)
            ),
            _ => true,
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Late => write!(f, "no answer within {ANSWER_SECONDS_MAX} s"),
            Why::Said(error) => error.fmt(f),
        }
    }
}

/// Waits for the answer to a request, with a limit: the client may wait for ever on a connection
/// that is half dead.
pub(crate) async fn answer<T>(request: impl Future<Output = lapin::Result<T>>) -> Result<T, Why> {
    match timeout(Duration::from_secs(ANSWER_SECONDS_MAX), request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Why::Said(error)),
        Err(_) => Err(Why::Late),
    }
}
