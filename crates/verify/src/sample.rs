//! A uniform sample of the entries of two trees, drawn while they are walked.
//!
//! Each path gets a number that looks random but follows from the path and the seed alone; the
//! paths with the smallest numbers are the sample (bottom-k sampling: Cohen and Kaplan,
//! "Summarizing data using bottom-k sketches", PODC 2007). So every set of that size is as likely
//! as any other, nothing is drawn twice, and the order of the walk and the number of threads change
//! nothing: the same seed draws the same entries again. Memory grows with the sample, not with the
//! trees.

use driftless_lock::Mutex;
use driftless_model::{RelPath, Side};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The numbers and paths of a sample, and the tree each was met in.
type Drawn = BTreeMap<(u64, Box<[u8]>), Side>;

/// Draws a sample of at most `samples_max` paths.
#[derive(Debug)]
pub struct Sampler {
    hash_seed: u64,
    samples_max: u64,
    /// Numbers above this one are not drawn any more: most paths are turned away without the lock.
    limit: AtomicU64,
    drawn: Mutex<Drawn>,
}

impl Sampler {
    /// Begins a sample of at most `samples_max` paths; which paths are drawn follows from `seed`.
    pub fn new(seed: u64, samples_max: u64) -> Self {
        let limit = AtomicU64::new(if samples_max == 0 { 0 } else { u64::MAX });
        Sampler {
            hash_seed: scattered(seed),
            samples_max,
            limit,
            drawn: Mutex::default(),
        }
    }

    /// The number of a path.
    pub fn number(&self, path: &[u8]) -> u64 {
        xxh3_64_with_seed(path, self.hash_seed)
    }

    /// Offers a path, its [`number`](Sampler::number) and the tree that it was met in. A path that
    /// was offered before changes nothing.
    pub fn offer(&self, number: u64, path: &[u8], side: Side) {
        if number > self.limit.load(Relaxed) {
            return;
        }
        let mut drawn = self.drawn.lock();
        drawn.entry((number, path.into())).or_insert(side);
        if drawn.len() as u64 > self.samples_max {
            drawn.pop_last();
        }
        if drawn.len() as u64 == self.samples_max {
            let highest = drawn.last_key_value().map_or(0, |((number, _), _)| *number);
            self.limit.store(highest, Relaxed);
        }
    }

    /// The sample, in the order of its paths. The paths must be made of names that were checked.
    pub fn finish(self) -> Vec<(RelPath, Side)> {
        let drawn = self.drawn.into_inner();
        let path = |bytes: &[u8]| {
            RelPath::from_names(
                bytes
                    .split(|byte| *byte == b'/')
                    .filter(|name| !name.is_empty()),
            )
        };
        let mut sample: Vec<(RelPath, Side)> = drawn
            .into_iter()
            .map(|((_, bytes), side)| (path(&bytes), side))
            .collect();
        sample.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        sample
    }
}

/// Makes unlike seeds of neighbouring ones (SplitMix64: Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014). The hash adds its seed to short paths, so 1 and 2
/// would otherwise draw similar samples.
fn scattered(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(index: u64) -> Vec<u8> {
        format!("run-{}/{index}.dat", index % 7).into_bytes()
    }

    fn draw(seed: u64, samples: u64, order: impl Iterator<Item = u64>) -> Vec<RelPath> {
        let sampler = Sampler::new(seed, samples);
        for index in order {
            let path = path(index);
            sampler.offer(sampler.number(&path), &path, Side::Source);
        }
        sampler.finish().into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn the_order_and_a_second_offer_change_nothing() {
        let sample = draw(1, 50, 0..1000);
        assert_eq!(sample.len(), 50);
        assert_eq!(draw(1, 50, (0..1000).rev()), sample);
        assert_eq!(draw(1, 50, (0..1000).chain(0..1000)), sample);
        assert_ne!(draw(2, 50, 0..1000), sample);
    }

    #[test]
    fn a_sample_of_at_least_everything_is_everything() {
        assert_eq!(draw(1, 1000, 0..1000).len(), 1000);
        assert_eq!(draw(1, u64::MAX, 0..1000).len(), 1000);
        assert_eq!(draw(1, 0, 0..1000).len(), 0);
        let root = Sampler::new(1, 1);
        root.offer(root.number(b""), b"", Side::Source);
        assert_eq!(root.finish(), [(RelPath::root(), Side::Source)]);
    }

    /// Each of 2000 samples has 100 of 1000 paths. The squared deviations of how often each path
    /// was drawn add up to about 999 times the variance; chi-square with 999 degrees of freedom has
    /// a standard deviation of 44.7. The seeds are consecutive numbers.
    #[test]
    fn each_path_is_drawn_equally_often() {
        const SEEDS: u64 = 2000;
        let mut times = vec![0u64; 1000];
        let all: Vec<RelPath> = (0..1000)
            .map(|index| RelPath::parse(&path(index)).expect("a path"))
            .collect();
        for seed in 0..SEEDS {
            let sample = draw(seed, 100, 0..1000);
            all.iter()
                .zip(&mut times)
                .for_each(|(path, times)| *times += u64::from(sample.binary_search(path).is_ok()));
        }
        let (expected, variance) = (SEEDS as f64 * 0.1, SEEDS as f64 * 0.1 * 0.9);
        let chi_square: f64 = times
            .iter()
            .map(|times| (*times as f64 - expected).powi(2) / variance)
            .sum();
        assert!((820.0..1180.0).contains(&chi_square), "{chi_square}");
    }

    /// How many paths two samples have in common is hypergeometric: 10 of 100 on average, with a
    /// variance of 8.1.
    #[test]
    fn samples_of_neighbouring_seeds_have_nothing_to_do_with_each_other() {
        const PAIRS: u64 = 500;
        let common = |seed| {
            let (one, other) = (draw(seed, 100, 0..1000), draw(seed + 1, 100, 0..1000));
            one.iter()
                .filter(|path| other.binary_search(path).is_ok())
                .count() as f64
        };
        let mean = (0..PAIRS).map(common).sum::<f64>() / PAIRS as f64;
        assert!(
            (mean - 10.0).abs() < 5.0 * (8.1 / PAIRS as f64).sqrt(),
            "{mean}"
        );
    }
}
