//! Ranges of a file's content, merged, and never more than a bound.

use std::ops::Range;

/// At most so many ranges are kept of a file; two neighbours become one that covers both where
/// there are more.
const RANGES_MAX: usize = 4096;

/// Ranges in bytes, in whatever order they come.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Adds a range; the kernel tells a file's in order. Says whether it takes further memory.
    pub(super) fn add(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        match self.0.last_mut() {
            Some(last) if last.start <= range.start && range.start <= last.end => {
                last.end = last.end.max(range.end);
                return false;
            }
            _ => self.0.push(range),
        }
        let is_full = self.0.len() > RANGES_MAX;
        if is_full {
            self.shrink();
        }
        !is_full
    }

    /// In order, none touching another.
    pub(super) fn merged(&self) -> Vec<Range<u64>> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shrink(&mut self) {
        let covering = |pair: &[Range<u64>]| pair[0].start..pair[pair.len() - 1].end;
        self.0 = self.merged().chunks(2).map(covering).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut all = Ranges::default();
        for range in ranges {
            all.add(range.clone());
        }
        all.merged()
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn ranges_are_merged_in_any_order() {
        let cases: [(&[Range<u64>], &[Range<u64>]); 6] = [
            (&[], &[]),
            (&[5..5], &[]),
            (&[0..4, 4..8, 9..10], &[0..8, 9..10]),
            (&[9..10, 0..4, 4..8], &[0..8, 9..10]),
            (&[0..100, 5..7, 50..200], &[0..200]),
            (&[10..u64::MAX, 0..10], &[0..u64::MAX]),
        ];
        for (added, merged) in cases {
            assert_eq!(of(added), merged, "{added:?}");
        }
    }

    #[test]
    fn too_many_ranges_become_fewer_that_cover_them() {
        let mut all = Ranges::default();
        let count = 3 * RANGES_MAX as u64;
        for at in 0..count {
            all.add(at * 10..at * 10 + 1);
        }
        let merged = all.merged();
        assert!(merged.len() <= RANGES_MAX && merged.len() > RANGES_MAX / 4);
        for at in 0..count {
            assert!(merged.iter().any(|range| range.contains(&(at * 10))));
        }
    }
}
