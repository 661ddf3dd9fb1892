//! How far behind something was, as a histogram: small, mergeable, and as close to the truth for
//! milliseconds as for days.
//!
//! Buckets are log-linear (as in HdrHistogram, hdrhistogram.org): each power of two of milliseconds
//! is divided into sixteen equal parts, so a bucket is at most a sixteenth as wide as what is in it
//! is long. Below 16 ms each millisecond has a bucket. What is told is never too short: times are
//! rounded up to whole milliseconds, and a bucket speaks for the longest time in it.

use std::time::Duration;

/// Buckets of each power of two, as a power of two.
const PARTS_BITS: u32 = 4;
/// Longer times count as this one, in milliseconds: 30 days.
const LONGEST_MS: u64 = 30 * 24 * 3600 * 1000;
/// How many buckets there are, numbered from 0 on.
pub const LAG_BUCKETS: usize = bucket_of(LONGEST_MS) + 1;

/// How many times of each length there were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lag {
    /// By bucket, up to the last one that has any.
    counts: Vec<u64>,
    count: u64,
    max_ms: u64,
}

impl Lag {
    /// Counts one time. What is longer than 30 days counts as 30 days.
    pub fn add(&mut self, time: Duration) {
        let ms = whole_ms(time).min(LONGEST_MS);
        self.put(bucket_of(ms), 1);
        self.max_ms = self.max_ms.max(ms);
    }

    /// Adds what another histogram has counted.
    pub fn merge(&mut self, other: &Lag) {
        for (bucket, count) in other.buckets() {
            self.put(bucket, count);
        }
        self.max_ms = self.max_ms.max(other.max_ms);
    }

    /// A histogram that was kept: the buckets that had any, with their counts, and the longest
    /// time. That counts for no more than the last bucket allows. `None` if there is no such
    /// bucket.
    pub fn of(buckets: impl IntoIterator<Item = (usize, u64)>, max: Duration) -> Option<Lag> {
        let mut lag = Lag::default();
        for (bucket, count) in buckets {
            if bucket >= LAG_BUCKETS {
                return None;
            }
            if count > 0 {
                lag.put(bucket, count);
            }
        }
        if let Some(last) = lag.counts.len().checked_sub(1) {
            lag.max_ms = whole_ms(max).clamp(shortest_ms(last), longest_ms(last));
        }
        Some(lag)
    }

    /// The buckets that have any, with their counts, in order.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.counts.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0)
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest time; zero if none was counted.
    pub fn max(&self) -> Duration {
        Duration::from_millis(self.max_ms)
    }

    /// The time that a share of all was not longer than (0.5 for the median); zero if none was
    /// counted. Never shorter than that, and at most a sixteenth longer.
    pub fn quantile(&self, share: f64) -> Duration {
        // More than 2^53 times round to a neighbour, which no bucket shows.
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil() as u64;
        let rank = rank.clamp(1, self.count.max(1));
        let mut seen = 0u64;
        let found = self.buckets().find(|(_, count)| {
            seen = seen.saturating_add(*count);
            seen >= rank
        });
        let ms = found.map_or(0, |(bucket, _)| longest_ms(bucket).min(self.max_ms));
        Duration::from_millis(ms)
    }

    /// How many times were longer than this one: never too few; some that are shorter by up to a
    /// sixteenth may be among them.
    pub fn over(&self, time: Duration) -> u64 {
        let longer = self.buckets().filter(|(bucket, _)| {
            Duration::from_millis(longest_ms(*bucket).min(self.max_ms)) > time
        });
        longer.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    fn put(&mut self, bucket: usize, count: u64) {
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(count);
        self.count = self.count.saturating_add(count);
    }
}

/// Whole milliseconds, rounded up.
fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The bucket of a time.
const fn bucket_of(ms: u64) -> usize {
    // Times below 16 ms, and those of the first power of two that is divided, are their own bucket.
    if ms >> PARTS_BITS == 0 {
        return ms as usize;
    }
    let shift = ms.ilog2() - PARTS_BITS;
    ((shift as usize) << PARTS_BITS) + (ms >> shift) as usize
}

/// The shortest time of a bucket.
fn shortest_ms(bucket: usize) -> u64 {
    let (part, shift) = part_of(bucket);
    part << shift
}

/// The longest time of a bucket.
fn longest_ms(bucket: usize) -> u64 {
    let (part, shift) = part_of(bucket);
    (((part + 1) << shift) - 1).min(LONGEST_MS)
}

/// The highest bits of the times of a bucket, and by how many others they are followed.
fn part_of(bucket: usize) -> (u64, usize) {
    let shift = (bucket >> PARTS_BITS).saturating_sub(1);
    ((bucket - (shift << PARTS_BITS)) as u64, shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lag(times_ms: &[u64]) -> Lag {
        let mut lag = Lag::default();
        for ms in times_ms {
            lag.add(Duration::from_millis(*ms));
        }
        lag
    }

    fn buckets(lag: &Lag) -> Vec<(usize, u64)> {
        lag.buckets().collect()
    }

    #[test]
    fn each_time_has_one_bucket_and_they_follow_each_other_without_a_gap() {
        for (ms, bucket) in [
            (0, 0),
            (1, 1),
            (15, 15),
            (16, 16),
            (31, 31),
            (32, 32),
            (33, 32),
            (34, 33),
            (63, 47),
            (64, 48),
            (1000, 111),
            (300_000, 242),
            (600_000, 258),
            (LONGEST_MS, LAG_BUCKETS - 1),
        ] {
            assert_eq!(bucket_of(ms), bucket, "{ms}");
        }
        for bucket in 0..LAG_BUCKETS {
            let (first, last) = (shortest_ms(bucket), longest_ms(bucket));
            assert_eq!(
                (bucket_of(first), bucket_of(last)),
                (bucket, bucket),
                "{bucket}"
            );
            if bucket + 1 < LAG_BUCKETS {
                assert_eq!(last + 1, shortest_ms(bucket + 1), "{bucket}");
            }
            assert!((last - first) * 16 <= first, "{bucket} is too wide");
        }
        assert_eq!(longest_ms(LAG_BUCKETS - 1), LONGEST_MS);
    }

    #[test]
    fn quantiles_are_never_too_short_and_at_most_a_sixteenth_too_long() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let bits = random.u32(1..=31);
            let mut times: Vec<u64> = (0..random.usize(1..500))
                .map(|_| random.u64(0..1 << bits))
                .collect();
            let lag = lag(&times);
            times.sort_unstable();
            for share in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let rank = (share * times.len() as f64).ceil() as usize;
                let truth = times[rank.max(1) - 1];
                let told = lag.quantile(share).as_millis() as u64;
                assert!(
                    told >= truth && (told - truth) * 16 <= truth,
                    "seed {seed}: {share}: {told} for {truth}"
                );
            }
            let (limit, many) = (random.u64(0..1 << bits), times.len() as u64);
            let longer = |limit: u64| times.iter().filter(|ms| **ms > limit).count() as u64;
            let told = lag.over(Duration::from_millis(limit));
            assert!(
                (longer(limit)..=longer((limit - limit / 16).saturating_sub(1))).contains(&told),
                "seed {seed}: {told} over {limit}"
            );
            let longest = Duration::from_millis(times[times.len() - 1]);
            assert_eq!(
                (lag.count(), lag.max(), lag.quantile(1.0)),
                (many, longest, longest),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn what_is_told_of_few_times_and_of_extreme_ones() {
        let month = Duration::from_millis(LONGEST_MS);
        for (times, share, told) in [
            (vec![], 0.5, Duration::ZERO),
            (vec![Duration::ZERO], 0.5, Duration::ZERO),
            (vec![Duration::from_nanos(1)], 0.5, Duration::from_millis(1)),
            (
                vec![Duration::from_micros(1900)],
                0.0,
                Duration::from_millis(2),
            ),
            (vec![Duration::MAX], 1.0, month),
            (vec![Duration::ZERO, month * 2], 0.5, Duration::ZERO),
            (vec![Duration::ZERO, month * 2], 0.51, month),
            (vec![Duration::ZERO, month * 2], 7.0, month),
            (vec![Duration::ZERO, month], -7.0, Duration::ZERO),
            (vec![Duration::ZERO, month], f64::NAN, Duration::ZERO),
        ] {
            let mut lag = Lag::default();
            times.iter().for_each(|time| lag.add(*time));
            assert_eq!(lag.quantile(share), told, "{times:?}, {share}");
        }
        assert_eq!(Lag::default().over(Duration::ZERO), 0);
        assert_eq!(lag(&[0, 1, 2]).over(Duration::ZERO), 2);
        assert_eq!(lag(&[LONGEST_MS]).over(month), 0);
    }

    #[test]
    fn histograms_that_are_merged_are_that_of_all_times() {
        let (one, other) = ([0, 1, 17, 5000], [5001, 70, LONGEST_MS]);
        let mut merged = lag(&one);
        merged.merge(&lag(&other));
        assert_eq!(merged, lag(&[&one[..], &other].concat()));
        let mut same = merged.clone();
        same.merge(&Lag::default());
        assert_eq!(same, merged);
        let mut full = Lag::of([(3, u64::MAX)], Duration::ZERO).unwrap();
        full.merge(&full.clone());
        assert_eq!(full.count(), u64::MAX);
        assert_eq!(full.quantile(0.5), Duration::from_millis(3));
    }

    #[test]
    fn a_histogram_that_was_kept_is_the_same() {
        for times in [&[][..], &[0], &[1, 1, 33, 40_000], &[0, LONGEST_MS]] {
            let lag = lag(times);
            assert_eq!(Lag::of(buckets(&lag), lag.max()), Some(lag));
        }
        assert_eq!(Lag::of([(LAG_BUCKETS, 1)], Duration::ZERO), None);
        assert_eq!(
            Lag::of([(2, 0)], Duration::from_secs(1)),
            Some(Lag::default())
        );
        for (max_ms, told_ms) in [(0, 64), (66, 66), (1000, 67)] {
            let lag = Lag::of([(48, 1)], Duration::from_millis(max_ms)).unwrap();
            assert_eq!(lag.max(), Duration::from_millis(told_ms));
        }
    }
}
