//! A mover on the queue: it takes one batch after the other until it is told to end.

use crate::executor::Executor;
use crate::queue::CALL_TIMEOUT;
use crate::queue::desk::QueueDesk;
use driftless_engine::{Batch, Brief, Carrying, Failure, Outcome};
use driftless_queue::{Broker, Error};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use thiserror::Error;
use tracing::{error, info};

/// A mover that fails so many batches one after the other ends: something is wrong with its host.
const FAILURES_MAX: u32 = 5;
/// Pause after the first of them; it doubles with each.
const PAUSE: Duration = Duration::from_secs(1);

/// Which work a mover takes, and for how long.
#[derive(Debug, Clone)]
pub struct Seat<'a> {
    /// The job's name.
    pub job: &'a str,
    /// The class of work.
    pub class: &'a str,
    /// It ends after so long without work; never if `None`.
    pub idle_max: Option<Duration>,
}

/// Why a mover ended before it was told to.
#[derive(Debug, Error)]
pub enum MoverError {
    /// The broker refuses, or is out of reach.
    #[error(transparent)]
    Queue(#[from] Error),
    /// So many batches failed, one after the other.
    #[error("{0} batches failed one after the other; this mover ends")]
    Failing(u32),
}

/// Takes batches from the queue until `stop` is set, or there was no work for long enough.
///
/// # Errors
/// The broker refuses or is out of reach for too long, or this host fails one batch after the
/// other.
pub fn serve(
    broker: &Broker,
    seat: &Seat<'_>,
    mut executor: Executor,
    stop: &AtomicBool,
) -> Result<(), MoverError> {
    let mut desk = QueueDesk::open(broker, seat.job, seat.class)?;
    info!(
        "ready for \"{}\" of job \"{}\" at {}",
        seat.class,
        seat.job,
        broker.url()
    );
    let (mut idle_since, mut failures) = (Instant::now(), 0);
    while !stop.load(Relaxed) {
        let Some(delivery) = desk.next()? else {
            if seat
                .idle_max
                .is_some_and(|limit| idle_since.elapsed() >= limit)
            {
                return Ok(());
            }
            continue;
        };
        let mut working = Working {
            executor: &mut executor,
            leave: stop,
        };
        match driftless_engine::serve(delivery, &mut desk, &mut working) {
            Ok(()) => failures = 0,
            Err(reason) => {
                failures += 1;
                error!("{reason}");
                pause(failures, stop)?;
            }
        }
        idle_since = Instant::now();
    }
    Ok(())
}

/// A host that fails may do so at once, and must not empty the queue that way.
fn pause(failures: u32, stop: &AtomicBool) -> Result<(), MoverError> {
    if failures >= FAILURES_MAX {
        return Err(MoverError::Failing(failures));
    }
    let until = Instant::now() + PAUSE * 2u32.pow(failures - 1);
    while Instant::now() < until && !stop.load(Relaxed) {
        std::thread::sleep(CALL_TIMEOUT / 10);
    }
    Ok(())
}

/// An executor that takes its batches from a queue.
struct Working<'a> {
    executor: &'a mut Executor,
    leave: &'a AtomicBool,
}

impl Carrying<QueueDesk> for Working<'_> {
    fn name(&self) -> &str {
        self.executor.name()
    }

    fn carry_out(
        &mut self,
        batch: (u64, u64),
        what: (&Brief, &Batch),
        desk: &mut QueueDesk,
    ) -> Result<Outcome, Failure> {
        self.executor.work_off(batch, what, desk, self.leave)
    }
}
