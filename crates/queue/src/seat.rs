//! The seat of the coordinator of a job: the broker gives it to one connection at a time, whatever
//! hosts they come from.
//!
//! It is an exclusive queue (AMQP 0.9.1, 1.7.2.1 "exclusive"): nobody else can declare it as long
//! as the connection stands, and it is gone with that. Who sits there says so in another queue,
//! which all can read.

use crate::control::said;
use crate::session::{Failure, Role, Session, Why, answer};
use crate::topology::Topology;
use crate::{Broker, Error, Job};
use lapin::options::{BasicPublishOptions, QueueDeclareOptions, QueuePurgeOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::{BasicProperties, ErrorKind};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// A seat that was left a moment ago is free when the broker has noticed; one that is taken for
/// longer has somebody in it.
const TAKEN_MAX: Duration = Duration::from_secs(5);
/// How long a coordinator that had the seat and lost its connection waits for it: the broker
/// notices that with the heartbeats that are missing.
const TAKEN_AGAIN_MAX: Duration = Duration::from_secs(60);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(250);
/// How long a try may take of a caller that has other things to do.
const TRY: Duration = Duration::from_secs(1);

/// The seat, until it is dropped.
pub struct Seat {
    broker: Broker,
    job: Job,
    who: String,
    session: Option<Session>,
    /// Since when somebody else is in it, as far as the broker knows, and when it was tried last.
    taken: Option<Instant>,
    tried: Instant,
}

impl Seat {
    /// Takes it; `who` is what others are told.
    ///
    /// # Errors
    /// [`Error::Taken`]: somebody else has it; or the broker refuses, or cannot be reached.
    pub fn take(broker: &Broker, job: &Job, who: &str) -> Result<Seat, Error> {
        let (broker, job, who, began) =
            (broker.clone(), job.clone(), who.to_owned(), Instant::now());
        let mut seat = Seat {
            broker,
            job,
            who,
            session: None,
            taken: None,
            tried: began,
        };
        loop {
            let failure = match seat.broker.runtime.block_on(seat.sit_down()) {
                Ok(session) => {
                    seat.session = Some(session);
                    return Ok(seat);
                }
                Err(failure) => failure,
            };
            let patience = if matches!(failure.error, Error::Taken { .. }) {
                TAKEN_MAX
            } else {
                seat.broker.patience()
            };
            if failure.for_good || began.elapsed() >= patience {
                return Err(failure.error);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes it again if the connection was lost. To be called now and then; takes a second at
    /// most.
    ///
    /// # Errors
    /// [`Error::Taken`]: somebody else has taken it meanwhile.
    pub fn keep(&mut self) -> Result<(), Error> {
        if self.session.as_ref().is_some_and(Session::is_alive) || self.tried.elapsed() < TRY {
            return Ok(());
        }
        self.tried = Instant::now();
        let tried = self
            .broker
            .runtime
            .block_on(async { timeout(TRY, self.sit_down()).await });
        match tried {
            Ok(Ok(session)) => (self.session, self.taken) = (Some(session), None),
            Ok(Err(Failure {
                error: error @ Error::Taken { .. },
                ..
            })) => {
                if self.taken.get_or_insert_with(Instant::now).elapsed() >= TAKEN_AGAIN_MAX {
                    return Err(error);
                }
            }
            // Whoever needs the broker for more than this gives up in time.
            Ok(Err(_)) | Err(_) => {}
        }
        Ok(())
    }

    async fn sit_down(&self) -> Result<Session, Failure> {
        let (job, seat, sign) = (&self.job, self.job.seat(), self.job.coordinator());
        let topology = Topology::Job(job.clone());
        let session = Session::open(&self.broker, &topology, &Role::Control).await?;
        session.declare_job(job).await?;
        let options = QueueDeclareOptions {
            exclusive: true,
            auto_delete: true,
            ..QueueDeclareOptions::default()
        };
        match answer(session.channel.queue_declare(
            seat.as_str().into(),
            options,
            FieldTable::default(),
        ))
        .await
        {
            Ok(_) => {}
            Err(why) if is_taken(&why) => {
                return Err(Failure::passing(Error::Taken {
                    job: job.name().into(),
                    who: who(&session, &sign).await,
                }));
            }
            Err(why) => return Err(why.at(&seat)),
        }
        answer(
            session
                .channel
                .queue_purge(sign.as_str().into(), QueuePurgeOptions::default()),
        )
        .await
        .map_err(|why| why.at(&sign))?;
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        let publishing = session.channel.basic_publish(
            "".into(),
            sign.as_str().into(),
            options,
            self.who.as_bytes(),
            properties,
        );
        answer(publishing).await.map_err(|why| why.at(&sign))?;
        Ok(session)
    }
}

impl Drop for Seat {
    /// Leaves it, and waits for that within bounds: the next one may wait for it.
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.broker.runtime.block_on(session.close());
        }
    }
}

fn is_taken(why: &Why) -> bool {
    let Why::Said(error) = why else { return false };
    matches!(error.kind(), ErrorKind::ProtocolError(error) if matches!(error.kind(), AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED)))
}

/// Who has it, as far as that can be told. The refusal has closed the channel, so this takes
/// another.
async fn who(session: &Session, sign: &str) -> String {
    said(session, sign)
        .await
        .ok()
        .flatten()
        .unwrap_or_else(|| "another process".into())
}
