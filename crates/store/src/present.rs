//! The units that an unfinished copy has.

use driftless_lock::Mutex;
use std::ops::Range;

const WORD_BITS: u64 = 64;

/// The units that an unfinished copy has: one bit for each. Threads share it while units arrive.
#[derive(Debug)]
pub struct PresentUnits {
    units: u64,
    bits: Mutex<UnitBits>,
}

#[derive(Debug)]
struct UnitBits {
    words: Vec<u64>,
    count: u64,
}

impl PresentUnits {
    pub(crate) fn new(units: u64) -> PresentUnits {
        let words = usize::try_from(units.div_ceil(WORD_BITS)).unwrap_or(0);
        PresentUnits {
            units,
            bits: Mutex::new(UnitBits {
                words: vec![0; words],
                count: 0,
            }),
        }
    }

    /// Returns whether a unit is there.
    pub fn has(&self, unit: u64) -> bool {
        has(&self.bits.lock().words, unit)
    }

    /// Returns the number of units that are there.
    pub fn count(&self) -> u64 {
        self.bits.lock().count
    }

    /// Returns the number of units that the set has.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns whether all units are there.
    pub fn is_complete(&self) -> bool {
        self.count() == self.units
    }

    /// Returns the first ranges of missing units, at most `max` of them.
    pub fn lacking(&self, max: usize) -> Vec<Range<u64>> {
        let bits = self.bits.lock();
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut unit = 0;
        while unit < self.units {
            let word = unit / WORD_BITS;
            let is_full = usize::try_from(word).ok().and_then(|at| bits.words.get(at));
            if is_full == Some(&u64::MAX) {
                unit = word.saturating_add(1).saturating_mul(WORD_BITS);
                continue;
            }
            if !has(&bits.words, unit) {
                let count = found.len();
                match found.last_mut() {
                    Some(last) if last.end == unit => last.end = unit.saturating_add(1),
                    _ if count == max => break,
                    _ => found.push(unit..unit.saturating_add(1)),
                }
            }
            unit = unit.saturating_add(1);
        }
        found
    }

    pub(crate) fn add(&self, unit: u64) {
        let mut bits = self.bits.lock();
        let bit = 1 << (unit % WORD_BITS);
        let word = usize::try_from(unit / WORD_BITS).ok();
        let Some(word) = word.and_then(|at| bits.words.get_mut(at)) else {
            return;
        };
        if *word & bit == 0 && unit < self.units {
            *word |= bit;
            bits.count = bits.count.saturating_add(1);
        }
    }
}

fn has(words: &[u64], unit: u64) -> bool {
    let word = usize::try_from(unit / WORD_BITS).ok();
    let word = word.and_then(|at| words.get(at));
    word.is_some_and(|word| word >> (unit % WORD_BITS) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_units_are_ranges() {
        let present = PresentUnits::new(200);
        assert_eq!(present.lacking(9).first(), Some(&(0..200)));
        (0..128)
            .chain([130, 199])
            .for_each(|unit| present.add(unit));
        present.add(130);
        present.add(200);
        assert_eq!(present.count(), 130);
        assert_eq!(present.lacking(9), [128..130, 131..199]);
        assert_eq!(present.lacking(1).last(), Some(&(128..130)));
        assert!(present.has(199) && !present.has(200) && !present.is_complete());
    }
}
