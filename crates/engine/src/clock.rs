//! What time it is. What decides by it is given a clock, so that a test can have hours pass.

use driftless_model::Stamp;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What time it is.
pub trait Clock {
    /// A moment, to measure spans from.
    fn now(&self) -> Instant;
    /// Seconds since 1970, as the user's calendar has it.
    fn seconds(&self) -> u64;
    /// Has so much time pass.
    fn sleep(&self, span: Duration);
}

/// The clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn seconds(&self) -> u64 {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }

    fn sleep(&self, span: Duration) {
        std::thread::sleep(span);
    }
}

/// What this machine's clock says.
pub fn now() -> Stamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Stamp {
        sec: since.as_secs().cast_signed(),
        nsec: since.subsec_nanos(),
    }
}
