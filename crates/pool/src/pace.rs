//! Keeping within limits on bytes and requests a second, and the length of the steps in which large
//! files are copied.

use driftless_lock::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How much of a second's allowance may be spent at once.
const BURST_SECONDS: f64 = 0.1;
/// The longest single wait; then the thread that waits looks whether the run was stopped.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A token bucket shared by all threads: a thread that overdraws it waits until it is full enough
/// again.
#[derive(Debug)]
pub struct Pace {
    per_second: f64,
    state: Mutex<(Instant, f64)>,
}

impl Pace {
    /// A limit of `per_second` units; none if `None`.
    pub fn new(per_second: Option<u64>) -> Option<Self> {
        per_second.map(|n| Pace {
            per_second: n.max(1) as f64,
            state: Mutex::new((Instant::now(), 0.0)),
        })
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
        let mut state = self.state.lock();
        let now = Instant::now();
        let earned = now.duration_since(state.0).as_secs_f64() * self.per_second;
        let full = self.per_second * BURST_SECONDS;
        *state = (now, (state.1 + earned).min(full) - units);
        -state.1
    }
}

/// How much of a large file is copied between two looks at whether somebody is idle or the run is
/// to end: a power of two, and not more than a fraction of a second's work, however slow the line
/// is.
#[derive(Debug)]
pub struct Stride(AtomicU64);

/// Nothing is known yet.
impl Default for Stride {
    fn default() -> Self {
        Stride(AtomicU64::new(Stride::FIRST))
    }
}

impl Stride {
    /// Bytes of the shortest and of the longest step.
    pub const MIN: u64 = 1 << 20;
    /// Pieces of files are cut at multiples of it.
    pub const MAX: u64 = 8 << 20;
    /// Bytes of the first.
    const FIRST: u64 = 2 << 20;
    /// A step that takes less is lengthened, and one that takes more is shortened.
    const BRISK: Duration = Duration::from_millis(100);
    const SLOW: Duration = Duration::from_millis(250);

    /// Bytes of the next step.
    pub fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Learns that `bytes` took so long.
    pub fn learn(&self, bytes: u64, took: Duration) {
        let stride = self.bytes();
        if took > Stride::SLOW && stride > Stride::MIN {
            self.0.store(stride / 2, Relaxed);
        } else if took < Stride::BRISK && bytes >= stride && stride < Stride::MAX {
            self.0.store(stride * 2, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_as_long_as_the_line_is_fast() {
        let stride = Stride::default();
        (0..9).for_each(|_| stride.learn(stride.bytes(), Duration::from_millis(5)));
        assert_eq!(stride.bytes(), Stride::MAX);
        (0..9).for_each(|_| stride.learn(stride.bytes(), Duration::from_secs(1)));
        assert_eq!(stride.bytes(), Stride::MIN);
        // The end of a file says nothing of a whole step.
        stride.learn(Stride::MIN - 1, Duration::ZERO);
        assert_eq!(stride.bytes(), Stride::MIN);
    }

    #[test]
    fn what_was_overdrawn_is_owed() {
        let pace = Pace::new(Some(1000)).unwrap();
        assert!(pace.draw(500.0) > 0.0);
        assert!(Pace::new(None).is_none());
        pace.take(1_000_000, &|| true);
    }
}
