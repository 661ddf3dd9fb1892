//! How long a run will still take: from what it has done so far, at the pace of the last while.
//!
//! Two things are left: the rest of the walk, and the rest of the large files that were begun. Each
//! has its own pace, and the run ends with the slower one. The walk's share is an estimate itself:
//! each directory divides its share of the whole equally among its entries (Knuth, "Estimating the
//! efficiency of backtrack programs", 1975).

use crate::monitor::Progress;
use crate::tally::WHOLE_WALK;
use crate::underway::LargeFiles;

/// Samples that are kept; when there are more, every other one goes.
const SAMPLES_MAX: usize = 64;
/// Seconds before which nothing is said.
const SECONDS_MIN: f64 = 1.0;
/// Of the walk, or of the bytes, before which nothing is said.
const SHARE_MIN: f64 = 0.002;

/// What was done up to one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    /// Seconds since the beginning.
    seconds: f64,
    /// Share of the walk that is over, large files included, 0 to 1.
    walked: f64,
    /// Bytes of content that were moved or compared.
    moved: f64,
    /// Large files: bytes and shares of the walk, begun and done.
    large: Large,
}

/// The large files at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Large {
    /// Bytes of those that were begun.
    bytes_begun: f64,
    /// Those of them that are done.
    bytes_done: f64,
    /// Their share of the walk, 0 to 1.
    walk_begun: f64,
    /// That of what is done of them.
    walk_done: f64,
}

impl Sample {
    /// What a look at a run shows.
    fn of(progress: &Progress) -> Self {
        let LargeFiles {
            bytes_begun,
            bytes_done,
            walk_begun,
            walk_done,
        } = progress.large;
        let share = |walk: u64| walk as f64 / WHOLE_WALK as f64;
        Sample {
            seconds: progress.elapsed.as_secs_f64(),
            walked: progress.counts.walked_share(),
            moved: (progress.counts.bytes_copied + progress.counts.bytes_compared) as f64,
            large: Large {
                bytes_begun: bytes_begun as f64,
                bytes_done: bytes_done as f64,
                walk_begun: share(walk_begun),
                walk_done: share(walk_done),
            },
        }
    }

    /// The walk without the large files.
    fn small_walked(&self) -> f64 {
        (self.walked - self.large.walk_done).max(0.0)
    }

    /// The rest of the walk without the large files that were begun.
    fn small_left(&self) -> f64 {
        (1.0 - self.large.walk_begun - self.small_walked()).max(0.0)
    }

    fn small_moved(&self) -> f64 {
        (self.moved - self.large.bytes_done).max(0.0)
    }
}

/// What was done so far, in a few samples.
#[derive(Debug, Default)]
pub struct Estimator {
    samples: Vec<Sample>,
    /// One of so many samples is kept.
    stride: usize,
    met: usize,
}

impl Estimator {
    /// Adds what a look at the run shows; returns the seconds to the end, or `None` while it is too
    /// early to say.
    pub fn see(&mut self, progress: &Progress) -> Option<f64> {
        let sample = Sample::of(progress);
        self.add(sample);
        self.seconds_left(&sample)
    }

    /// Adds a sample.
    fn add(&mut self, sample: Sample) {
        self.met += 1;
        if self.met.is_multiple_of(self.stride.max(1)) {
            self.samples.push(sample);
        }
        if self.samples.len() > SAMPLES_MAX {
            let mut keeps = false;
            self.samples.retain(|_| {
                keeps = !keeps;
                keeps
            });
            self.stride = self.stride.max(1) * 2;
        }
    }

    /// Seconds to the end, as seen from `now`; `None` while it is too early to say.
    fn seconds_left(&self, now: &Sample) -> Option<f64> {
        if now.seconds < SECONDS_MIN {
            return None;
        }
        let then = self.half_way_to(now);
        let seconds = now.seconds - then.seconds;
        let pace = |done: f64, before: f64| (done - before).max(0.0) / seconds;
        let walk = time(
            now.small_left(),
            pace(now.small_walked(), then.small_walked()),
        );
        let bytes = time(self.bytes_left(now), pace(now.moved, then.moved));
        let said = now.walked > SHARE_MIN
            || now.large.bytes_done > SHARE_MIN * now.large.bytes_begun
                && now.large.bytes_begun > 0.0;
        if said {
            walk.into_iter().chain(bytes).reduce(f64::max)
        } else {
            None
        }
    }

    /// Bytes that are known to be left, and those that the rest of the walk will bring if it is as
    /// what was walked so far.
    fn bytes_left(&self, now: &Sample) -> f64 {
        let known = (now.large.bytes_begun - now.large.bytes_done).max(0.0);
        let walked = now.small_walked();
        known
            + if walked > 0.0 {
                now.small_moved() / walked * now.small_left()
            } else {
                0.0
            }
    }

    /// The sample of half the time: what was before it says little of the pace now.
    fn half_way_to(&self, now: &Sample) -> Sample {
        let later = self
            .samples
            .partition_point(|sample| sample.seconds < now.seconds / 2.0);
        let kept = self
            .samples
            .get(later)
            .filter(|sample| sample.seconds < now.seconds * 0.75);
        kept.or_else(|| self.samples[..later.min(self.samples.len())].last())
            .copied()
            .unwrap_or_default()
    }
}

/// The time that `left` takes; `None` if nothing says how long.
fn time(left: f64, pace: f64) -> Option<f64> {
    if left <= 0.0 {
        return Some(0.0);
    }
    (pace > 0.0).then(|| left / pace)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of which all is known: small files at so many a second, large ones at so many bytes a
    /// second.
    struct Simulated {
        small: f64,
        small_bytes: f64,
        large: f64,
        large_bytes: f64,
        /// Small files a second, whatever their bytes.
        files_pace: f64,
        /// Bytes a second.
        bytes_pace: f64,
        /// Large files are met when so much of the small ones is done.
        large_from: f64,
    }

    impl Simulated {
        /// All samples, ten a second or a thousand in all.
        fn samples(&self) -> Vec<Sample> {
            let (mut small, mut moved_large, mut seconds) = (0.0f64, 0.0f64, 0.0);
            let per_file = 1.0 / (self.small + self.large);
            let step = self.whole() / 1000.0;
            let mut samples = Vec::new();
            while small < self.small || moved_large < self.large * self.large_bytes {
                let sees_large = self.large > 0.0
                    && (small >= self.large_from * self.small || small >= self.small);
                let has_large = sees_large && moved_large < self.large * self.large_bytes;
                // Both share the line while both are at work.
                let line = if has_large && small < self.small {
                    self.bytes_pace / 2.0
                } else {
                    self.bytes_pace
                };
                if small < self.small {
                    let by_bytes = if self.small_bytes > 0.0 {
                        line / self.small_bytes
                    } else {
                        f64::INFINITY
                    };
                    small = (small + step * self.files_pace.min(by_bytes)).min(self.small);
                }
                if has_large {
                    moved_large = (moved_large + step * line).min(self.large * self.large_bytes);
                }
                seconds += step;
                let begun = if sees_large { self.large } else { 0.0 };
                let large_share =
                    moved_large / (self.large * self.large_bytes).max(1.0) * self.large;
                samples.push(Sample {
                    seconds,
                    walked: (small + large_share) * per_file,
                    moved: small * self.small_bytes + moved_large,
                    large: Large {
                        bytes_begun: begun * self.large_bytes,
                        bytes_done: moved_large,
                        walk_begun: begun * per_file,
                        walk_done: large_share * per_file,
                    },
                });
            }
            samples
        }

        /// About how long it takes.
        fn whole(&self) -> f64 {
            let bytes = self.small * self.small_bytes + self.large * self.large_bytes;
            (self.small / self.files_pace).max(bytes / self.bytes_pace)
        }
    }

    #[test]
    fn the_time_left_is_right_within_a_factor_of_two() {
        let many = Simulated {
            small: 1e6,
            small_bytes: 1e4,
            large: 0.0,
            large_bytes: 0.0,
            files_pace: 2e4,
            bytes_pace: 1e9,
            large_from: 0.0,
        };
        let cases = [
            ("many small files", Simulated { ..many }),
            (
                "throttled by bytes",
                Simulated {
                    bytes_pace: 1e7,
                    ..many
                },
            ),
            (
                "throttled by requests",
                Simulated {
                    files_pace: 100.0,
                    ..many
                },
            ),
            (
                "nothing changed",
                Simulated {
                    small_bytes: 0.0,
                    ..many
                },
            ),
            (
                "few large ones behind many small ones",
                Simulated {
                    large: 5.0,
                    large_bytes: 1e10,
                    files_pace: 1e5,
                    large_from: 0.9,
                    ..many
                },
            ),
            (
                "large ones met on the way",
                Simulated {
                    large: 5.0,
                    large_bytes: 2e9,
                    large_from: 0.1,
                    bytes_pace: 1e8,
                    ..many
                },
            ),
            (
                "one large file",
                Simulated {
                    small: 1.0,
                    large: 1.0,
                    large_bytes: 1e12,
                    ..many
                },
            ),
        ];
        for (name, run) in cases {
            let samples = run.samples();
            let whole = samples.last().expect("some").seconds;
            let mut estimator = Estimator::default();
            let mut asked = [0.25, 0.5, 0.75].iter().peekable();
            for sample in &samples {
                estimator.add(*sample);
                if asked
                    .next_if(|share| sample.seconds >= whole * **share)
                    .is_some()
                {
                    let (left, real) = (
                        estimator.seconds_left(sample).expect("it is late enough"),
                        whole - sample.seconds,
                    );
                    assert!(
                        (0.5..=2.0).contains(&(left / real)),
                        "{name}, {:.2} of the time: {left:.0} s, really {real:.0} s",
                        sample.seconds / whole
                    );
                }
            }
        }
    }

    #[test]
    fn at_first_and_where_nothing_moves_nothing_is_said() {
        let estimator = Estimator::default();
        assert_eq!(estimator.seconds_left(&Sample::default()), None);
        assert_eq!(
            estimator.seconds_left(&Sample {
                seconds: 5.0,
                ..Sample::default()
            }),
            None
        );
        let over = Sample {
            seconds: 5.0,
            walked: 1.0,
            ..Sample::default()
        };
        assert_eq!(estimator.seconds_left(&over), Some(0.0));
    }

    #[test]
    fn samples_stay_few() {
        let mut estimator = Estimator::default();
        (0..100_000).for_each(|n| {
            estimator.add(Sample {
                seconds: f64::from(n),
                ..Sample::default()
            })
        });
        assert!(
            estimator.samples.len() <= SAMPLES_MAX
                && estimator.samples.is_sorted_by(|a, b| a.seconds < b.seconds)
        );
    }
}
