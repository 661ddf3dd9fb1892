//! Keeping within limits on bytes and requests a second.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How much of a second's allowance may be spent at once.
const BURST_SECONDS: f64 = 0.1;
/// The longest single wait; then whoever waits looks whether the run was stopped.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A token bucket shared by all threads: whoever overdraws it waits until it is full enough again.
#[derive(Debug)]
pub struct Pace {
    per_second: f64,
    state: Mutex<(Instant, f64)>,
}

impl Pace {
    /// A limit of `per_second` units; none if `None`.
    pub fn new(per_second: Option<u64>) -> Option<Self> {
        per_second.map(|n| Pace { per_second: n.max(1) as f64, state: Mutex::new((Instant::now(), 0.0)) })
    }

    /// Takes `units`, waiting as long as it must, or until `stopped`.
    pub fn take(&self, units: u64, stopped: &dyn Fn() -> bool) {
        let mut debt = self.draw(units as f64);
        while debt > 0.0 && !stopped() {
            std::thread::sleep(Duration::from_secs_f64(debt / self.per_second).min(WAIT_MAX));
            debt = self.draw(0.0);
        }
    }

    fn draw(&self, units: f64) -> f64 {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        let earned = now.duration_since(state.0).as_secs_f64() * self.per_second;
        let full = self.per_second * BURST_SECONDS;
        *state = (now, (state.1 + earned).min(full) - units);
        -state.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_overdrawn_is_owed() {
        let pace = Pace::new(Some(1000)).unwrap();
        assert!(pace.draw(500.0) > 0.0);
        assert!(Pace::new(None).is_none());
        pace.take(1_000_000, &|| true);
    }
}
