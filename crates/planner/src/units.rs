//! Sets of units, kept as sorted ranges.
//!
//! A data set is divided into units of equal size, numbered from 0. A node that follows a chain
//! holds one range, so the sets are short. Every set is sorted, without empty ranges, and two
//! ranges never touch: equal sets have equal ranges.

use serde::{Deserialize, Serialize};
use std::cmp::{max, min};

/// Maximum number of ranges in a set that another process sends: 1 MiB of memory.
pub const RANGES_MAX: usize = 65_536;

/// Units from `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitRange {
    /// First unit.
    pub start: u64,
    /// Unit behind the last one.
    pub end: u64,
}

/// Errors in ranges that another process sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitSetError {
    /// Ranges are empty, overlap, touch or stand in another order.
    #[error("ranges of units: not in ascending order at range {0}; send sorted, separate ranges")]
    Order(usize),
    /// The set has more than [`RANGES_MAX`] ranges.
    #[error("ranges of units: {0} ranges, at most {RANGES_MAX} are allowed; send fewer")]
    TooMany(usize),
}

/// A set of units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<UnitRange>", into = "Vec<UnitRange>")]
pub struct UnitSet {
    ranges: Vec<UnitRange>,
}

impl UnitRange {
    /// Returns the number of units.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Tells whether the range has no unit.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

impl UnitSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the units from `start` up to but not including `end`; empty if `end <= start`.
    pub fn range(start: u64, end: u64) -> Self {
        let mut set = Self::new();
        set.append(UnitRange { start, end });
        set
    }

    /// Returns the first `count` units.
    pub fn first(count: u64) -> Self {
        Self::range(0, count)
    }

    /// Returns the ranges in ascending order.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = UnitRange> + '_ {
        self.ranges.iter().copied()
    }

    /// Returns the number of units.
    pub fn len(&self) -> u64 {
        self.ranges().map(UnitRange::len).sum()
    }

    /// Tells whether the set has no unit.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Tells whether the set has the unit.
    pub fn contains(&self, unit: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= unit);
        self.ranges.get(at).is_some_and(|range| range.start <= unit)
    }

    /// Tells whether `other` has every unit of this set.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.subtract(other).is_empty()
    }

    /// Tells whether both sets have a unit in common.
    pub fn intersects(&self, other: &Self) -> bool {
        !self.intersect(other).is_empty()
    }

    /// Adds every unit of `other`.
    pub fn insert(&mut self, other: &Self) {
        if !other.is_empty() {
            *self = self.union(other);
        }
    }

    /// Returns the units of either set.
    pub fn union(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.ranges().peekable(), other.ranges().peekable());
        let mut set = Self::new();
        loop {
            let from_left = match (left.peek(), right.peek()) {
                (Some(one), Some(another)) => one.start <= another.start,
                (one, _) => one.is_some(),
            };
            let next = if from_left { left.next() } else { right.next() };
            match next {
                Some(range) => set.append(range),
                None => return set,
            }
        }
    }

    /// Returns the units that both sets have.
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.ranges().peekable(), other.ranges().peekable());
        let mut set = Self::new();
        while let (Some(one), Some(another)) = (left.peek().copied(), right.peek().copied()) {
            set.append(UnitRange {
                start: max(one.start, another.start),
                end: min(one.end, another.end),
            });
            if one.end <= another.end {
                left.next();
            } else {
                right.next();
            }
        }
        set
    }

    /// Returns the units that `other` lacks.
    pub fn subtract(&self, other: &Self) -> Self {
        let mut holes = other.ranges().peekable();
        let mut set = Self::new();
        for UnitRange { mut start, end } in self.ranges() {
            while let Some(hole) = holes.peek().copied().filter(|hole| hole.start < end) {
                set.append(UnitRange {
                    start,
                    end: min(hole.start, end),
                });
                start = max(start, hole.end);
                // A hole that reaches further is needed for the next range.
                if hole.end > end {
                    break;
                }
                holes.next();
            }
            set.append(UnitRange { start, end });
        }
        set
    }

    /// Keeps the first [`RANGES_MAX`] ranges, to bound the memory that another process can use.
    pub fn truncate(&mut self) {
        self.ranges.truncate(RANGES_MAX);
    }

    /// Appends a range that starts at or behind the start of the last one.
    fn append(&mut self, range: UnitRange) {
        if range.is_empty() {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if range.start <= last.end => last.end = max(last.end, range.end),
            _ => self.ranges.push(range),
        }
    }
}

impl From<UnitSet> for Vec<UnitRange> {
    fn from(set: UnitSet) -> Self {
        set.ranges
    }
}

impl TryFrom<Vec<UnitRange>> for UnitSet {
    type Error = UnitSetError;

    fn try_from(ranges: Vec<UnitRange>) -> Result<Self, UnitSetError> {
        if ranges.len() > RANGES_MAX {
            return Err(UnitSetError::TooMany(ranges.len()));
        }
        let mut end_before = None;
        for (at, range) in ranges.iter().enumerate() {
            let is_behind = end_before.is_none_or(|end| end < range.start);
            if range.is_empty() || !is_behind {
                return Err(UnitSetError::Order(at));
            }
            end_before = Some(range.end);
        }
        Ok(Self { ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: u64 = 40;

    fn set(ranges: &[(u64, u64)]) -> UnitSet {
        let mut set = UnitSet::new();
        for (start, end) in ranges {
            set.insert(&UnitSet::range(*start, *end));
        }
        set
    }

    fn random(rng: &mut fastrand::Rng) -> UnitSet {
        let mut set = UnitSet::new();
        for _ in 0..rng.usize(0..8) {
            let start = rng.u64(0..UNITS);
            set.insert(&UnitSet::range(start, start + rng.u64(0..6)));
        }
        set
    }

    #[test]
    fn operations_agree_with_single_units() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let (one, another) = (random(&mut rng), random(&mut rng));
            let (all, both) = (one.union(&another), one.intersect(&another));
            let rest = one.subtract(&another);
            for unit in 0..UNITS + 8 {
                let (a, b) = (one.contains(unit), another.contains(unit));
                assert_eq!(all.contains(unit), a || b, "{one:?} {another:?}");
                assert_eq!(both.contains(unit), a && b, "{one:?} {another:?}");
                assert_eq!(rest.contains(unit), a && !b, "{one:?} {another:?}");
            }
            for result in [&all, &both, &rest] {
                let sent: Vec<UnitRange> = result.clone().into();
                assert_eq!(UnitSet::try_from(sent).as_ref(), Ok(result));
            }
            assert_eq!(rest.len() + both.len(), one.len());
            assert_eq!(one.is_subset(&another), rest.is_empty());
        }
    }

    #[test]
    fn neighbours_become_one_range() {
        assert_eq!(set(&[(4, 6), (0, 2), (2, 4)]), UnitSet::first(6));
        assert_eq!(UnitSet::range(5, 5), UnitSet::new());
    }

    #[test]
    fn received_ranges_must_be_sorted() {
        let of = |ranges: &[(u64, u64)]| {
            let one = |(start, end): &(u64, u64)| UnitRange {
                start: *start,
                end: *end,
            };
            UnitSet::try_from(ranges.iter().map(one).collect::<Vec<_>>())
        };
        assert!(of(&[(0, 2), (3, 4)]).is_ok());
        for (wrong, at) in [
            (&[(0, 0)][..], 0),
            (&[(0, 2), (2, 4)], 1),
            (&[(3, 4), (0, 2)], 1),
            (&[(0, 4), (2, 3)], 1),
        ] {
            assert_eq!(of(wrong), Err(UnitSetError::Order(at)), "{wrong:?}");
        }
        let many: Vec<(u64, u64)> = (0..=RANGES_MAX as u64)
            .map(|at| (at * 2, at * 2 + 1))
            .collect();
        assert_eq!(of(&many), Err(UnitSetError::TooMany(RANGES_MAX + 1)));
    }
}
