//! Movers that take their work from RabbitMQ: the coordinator's side and the mover's.

pub mod desk;
pub mod exchange;
pub mod serve;

use driftless_queue::Error;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The class of what no route takes.
pub const WORK: &str = "work";
/// How long the broker may take no messages, or be out of reach, before the run ends; it goes on
/// when it is run again.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// How long one call for the broker waits.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Calls until it works, or the broker has been away for too long, or the run is stopped.
fn patiently<T>(stop: &AtomicBool, mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let began = Instant::now();
    loop {
        match call() {
            Err(
                Error::Blocked { .. }
                | Error::Unconfirmed { .. }
                | Error::Lost { .. }
                | Error::Nacked { .. },
            ) if began.elapsed() < PATIENCE && !stop.load(Relaxed) => {
                std::thread::sleep(CALL_TIMEOUT / 10);
            }
            other => return other,
        }
    }
}
