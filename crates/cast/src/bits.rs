//! Sets of units as one bit for each: fast to change, where the planner's ranges are small to send.

use driftless_planner::{UnitRange, UnitSet};

/// Bits of a word.
const WORD_BITS: u64 = 64;

/// Set of units below a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitBitmap {
    words: Vec<u64>,
    units: u64,
    count: u64,
}

/// Returns the index of the word of a unit, and its bit there.
fn place(unit: u64) -> (usize, u64) {
    let word = usize::try_from(unit / WORD_BITS).unwrap_or(usize::MAX);
    (word, 1 << (unit % WORD_BITS))
}

impl UnitBitmap {
    /// Returns the empty set of units below `units`.
    pub fn new(units: u64) -> Self {
        let words = usize::try_from(units.div_ceil(WORD_BITS)).unwrap_or(0);
        UnitBitmap {
            words: vec![0; words],
            units,
            count: 0,
        }
    }

    /// Returns the units of `set` below `units`.
    pub fn of(set: &UnitSet, units: u64) -> Self {
        let mut bits = Self::new(units);
        for range in set.ranges() {
            (range.start..range.end.min(units)).for_each(|unit| {
                bits.insert(unit);
            });
        }
        bits
    }

    /// Returns the number of units in the set.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether the set has no unit.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the set has a unit.
    pub fn contains(&self, unit: u64) -> bool {
        let (word, bit) = place(unit);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Adds a unit. Returns whether the unit is new.
    pub fn insert(&mut self, unit: u64) -> bool {
        let (word, bit) = place(unit);
        match self.words.get_mut(word) {
            Some(word) if unit < self.units && *word & bit == 0 => {
                *word |= bit;
                self.count = self.count.saturating_add(1);
                true
            }
            _ => false,
        }
    }

    /// Removes a unit. Returns whether the set had the unit.
    pub fn remove(&mut self, unit: u64) -> bool {
        let (word, bit) = place(unit);
        match self.words.get_mut(word) {
            Some(word) if *word & bit != 0 => {
                *word &= !bit;
                self.count = self.count.saturating_sub(1);
                true
            }
            _ => false,
        }
    }

    /// Returns the first unit from `from` on that both sets have.
    pub fn first_common(&self, other: &Self, from: u64) -> Option<u64> {
        let (first, _) = place(from);
        let below = u64::MAX.checked_shl(u32::try_from(from % WORD_BITS).ok()?)?;
        let pairs = self.words.iter().zip(&other.words).enumerate().skip(first);
        for (at, (one, another)) in pairs {
            let common = one & another & if at == first { below } else { u64::MAX };
            if common != 0 {
                let base = u64::try_from(at).ok()?.checked_mul(WORD_BITS)?;
                return base.checked_add(u64::from(common.trailing_zeros()));
            }
        }
        None
    }

    /// Returns the units that both sets have.
    pub fn common(mut self, other: &Self) -> Self {
        let words = self.words.iter_mut().zip(&other.words);
        self.count = words.fold(0, |count: u64, (one, another)| {
            *one &= another;
            count.saturating_add(u64::from(one.count_ones()))
        });
        self
    }

    /// Returns the set as ranges, in sets of at most `ranges_max` ranges each.
    pub fn sets(&self, ranges_max: usize) -> Vec<UnitSet> {
        let mut ranges: Vec<UnitRange> = Vec::new();
        let mut from = 0;
        while let Some(start) = self.first_common(self, from) {
            let mut end = start;
            while self.contains(end) {
                end = self.end_of_run(end);
            }
            ranges.push(UnitRange { start, end });
            from = end;
        }
        let sets = ranges.chunks(ranges_max.max(1));
        sets.filter_map(|set| UnitSet::try_from(set.to_vec()).ok())
            .collect()
    }

    /// Returns the units as one set, cut off behind the largest number of ranges.
    pub fn set(&self) -> UnitSet {
        let sets = self.sets(driftless_planner::RANGES_MAX);
        sets.into_iter().next().unwrap_or_default()
    }

    /// Returns the next unit behind a unit of the set, or behind its word if the rest is full.
    fn end_of_run(&self, unit: u64) -> u64 {
        let (word, _) = place(unit);
        let is_begin = unit.is_multiple_of(WORD_BITS);
        let step = match self.words.get(word) {
            Some(&u64::MAX) if is_begin => WORD_BITS,
            _ => 1,
        };
        unit.saturating_add(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_ranges_and_back() {
        let set: UnitSet = [(0, 1), (63, 65), (128, 300)]
            .iter()
            .fold(UnitSet::new(), |set, (start, end)| {
                set.union(&UnitSet::range(*start, *end))
            });
        let mut bits = UnitBitmap::of(&set, 300);
        assert_eq!(bits.set(), set);
        assert_eq!(bits.len(), set.len());
        assert_eq!(bits.sets(1).len(), 3);
        assert!(bits.remove(64) && !bits.remove(64) && !bits.contains(64));
        assert!(!bits.insert(300) && !bits.contains(300));
        assert!(UnitBitmap::new(0).set().is_empty());
    }

    #[test]
    fn common_units_are_found_in_order() {
        let one = UnitBitmap::of(&UnitSet::range(10, 200), 256);
        let mut other = UnitBitmap::new(256);
        for unit in [3, 10, 70, 199, 201] {
            other.insert(unit);
        }
        let (mut found, mut from) = (Vec::new(), 0);
        while let Some(unit) = one.first_common(&other, from) {
            found.push(unit);
            from = unit + 1;
        }
        assert_eq!(found, [10, 70, 199]);
        assert_eq!(one.first_common(&other, 5000), None);
    }
}
