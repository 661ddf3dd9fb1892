//! Progress of the comparison of all that runs now. The thread of the lane writes it, and the thread
//! that answers questions reads it.

use driftless_engine::{Estimator, Progress};
use driftless_lock::Mutex;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Progress of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparingNow {
    /// Time since the comparison began.
    pub elapsed: Duration,
    /// Entries seen.
    pub seen: u64,
    /// Entries created or updated.
    pub changed: u64,
    /// Bytes copied.
    pub bytes_copied: u64,
    /// Estimated share of the walk that is over, 0 to 1.
    pub share: f64,
    /// Estimated time to the end; `None` while it is too early to say.
    pub left: Option<Duration>,
}

/// The comparison that runs now, if one does.
#[derive(Debug, Default)]
pub struct Comparing(Mutex<Option<Running>>);

#[derive(Debug, Default)]
struct Running {
    now: ComparingNow,
    estimator: Estimator,
}

impl Comparing {
    /// Begins a comparison.
    pub fn begin(&self) {
        *self.0.lock() = Some(Running::default());
    }

    /// Ends the comparison.
    pub fn end(&self) {
        *self.0.lock() = None;
    }

    /// Takes the engine's progress into account.
    pub fn see(&self, progress: &Progress) {
        let mut running = self.0.lock();
        let Some(running) = &mut *running else {
            return;
        };
        let counts = &progress.counts;
        running.now = ComparingNow {
            elapsed: progress.elapsed,
            seen: counts.seen,
            changed: counts.changed,
            bytes_copied: counts.bytes_copied,
            share: counts.walked_share().clamp(0.0, 1.0),
            left: running
                .estimator
                .see(progress)
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        };
    }

    /// Returns the progress, or `None` while no comparison runs.
    pub fn now(&self) -> Option<ComparingNow> {
        self.0.lock().as_ref().map(|running| running.now)
    }
}

impl ComparingNow {
    /// Formats share and remaining time: `57 %, about 3 hours left`.
    pub fn in_words(&self) -> String {
        let percent = (self.share * 100.0).floor();
        match self.left {
            Some(left) => {
                let left = driftless_model::span(left.as_secs());
                format!("{percent} %, about {left} left")
            }
            None => format!("{percent} %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_engine::{Counts, LargeFiles, WHOLE_WALK};

    #[test]
    fn progress_is_there_while_a_comparison_runs() {
        let comparing = Comparing::default();
        assert_eq!(comparing.now(), None);
        comparing.begin();
        assert_eq!(comparing.now(), Some(ComparingNow::default()));
        let look = |walked: u64, seconds| Progress {
            counts: Counts {
                seen: 10,
                changed: 4,
                walked,
                ..Counts::default()
            },
            elapsed: Duration::from_secs(seconds),
            large: LargeFiles::default(),
            jobs: 1,
        };
        comparing.see(&look(WHOLE_WALK / 4, 3600));
        comparing.see(&look(WHOLE_WALK / 2, 7200));
        let now = comparing.now().unwrap();
        assert_eq!((now.seen, now.changed), (10, 4));
        assert_eq!(now.in_words(), "50 %, about 2 hours left");
        comparing.end();
        comparing.see(&look(WHOLE_WALK, 7200));
        assert_eq!(comparing.now(), None);
    }
}
