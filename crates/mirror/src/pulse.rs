//! Whether the thread that keeps a replica equal goes on: it beats with each turn, and others look.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// When a life has had its last turn.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// Of a life that begins.
    pub fn new(now: Duration) -> Pulse {
        let pulse = Pulse(Arc::default());
        pulse.beat(now);
        pulse
    }

    /// Another turn.
    pub fn beat(&self, now: Duration) {
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.0.store(millis, Relaxed);
    }

    /// How long ago that was.
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_millis(self.0.load(Relaxed)))
    }
}
