//! Measured rates of a node.

use std::collections::VecDeque;

/// Samples that a meter keeps at most.
const SAMPLES_MAX: usize = 64;

/// Counts verified units and tells how many of them fell into the last period.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    total: u64,
    /// Times in ms and totals, the oldest first.
    samples: VecDeque<(u64, u64)>,
}

impl Meter {
    /// Counts verified units.
    pub fn add(&mut self, units: u64) {
        self.total = self.total.saturating_add(units);
    }

    /// Takes a sample. Samples that are older than `keep_ms` are dropped, but for the newest of them.
    pub fn sample(&mut self, now_ms: u64, keep_ms: u64) {
        self.samples.push_back((now_ms, self.total));
        let oldest = now_ms.saturating_sub(keep_ms);
        while self.samples.len() > SAMPLES_MAX
            || self.samples.get(1).is_some_and(|(at, _)| *at <= oldest)
        {
            self.samples.pop_front();
        }
    }

    /// Returns the units since a moment. Returns `None` if no sample is that old.
    pub fn since(&self, moment_ms: u64) -> Option<u64> {
        let before = self.samples.iter().rev().find(|(at, _)| *at <= moment_ms);
        before.map(|(_, total)| self.total.saturating_sub(*total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_the_last_period_are_counted() {
        let mut meter = Meter::default();
        assert_eq!(meter.since(0), None);
        for tick in 0..100 {
            meter.sample(tick * 250, 2000);
            meter.add(3);
        }
        assert_eq!(meter.since(24_750), Some(3));
        assert_eq!(meter.since(22_750), Some(27));
        assert_eq!(meter.since(1_000), None);
    }
}
