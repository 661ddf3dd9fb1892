//! The thread that opens a copy, as the loop of its cast sees it.
//!
//! It may hash for hours, and a disk that does not answer any more looks the same. So it leaves signs
//! of progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time without progress after which a copy counts as stuck. Steps that leave no sign, such as the
/// removal of a copy, take minutes on a slow disk.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(600);

/// Number of steps that a thread has done.
#[derive(Clone, Default)]
pub(crate) struct OpeningSteps(Arc<AtomicU64>);

impl OpeningSteps {
    /// Counts a step.
    pub fn count(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Watch over a thread that opens a copy.
pub(crate) struct OpeningWatch {
    steps: OpeningSteps,
    seen: u64,
    since: Instant,
}

impl OpeningWatch {
    /// Begins to watch a thread that counts these steps.
    pub fn new(steps: OpeningSteps, now: Instant) -> Self {
        OpeningWatch {
            steps,
            seen: 0,
            since: now,
        }
    }

    /// Whether the thread has done no step for [`STUCK_AFTER`].
    pub fn is_stuck(&mut self, now: Instant) -> bool {
        let steps = self.steps.0.load(Relaxed);
        if steps != self.seen {
            (self.seen, self.since) = (steps, now);
        }
        now.saturating_duration_since(self.since) >= STUCK_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_without_steps_is_stuck() {
        let steps = OpeningSteps::default();
        let start = Instant::now();
        let mut watch = OpeningWatch::new(steps.clone(), start);
        let before = STUCK_AFTER - Duration::from_secs(1);
        assert!(!watch.is_stuck(start + before));
        steps.count();
        assert!(!watch.is_stuck(start + STUCK_AFTER));
        assert!(!watch.is_stuck(start + STUCK_AFTER + before));
        assert!(watch.is_stuck(start + STUCK_AFTER * 2));
    }
}
