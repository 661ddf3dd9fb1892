//! Since when what is to be told waits, within bounds. No clock.

use std::collections::VecDeque;
use std::time::Duration;

/// Moments that are kept at most, and how far they are apart at least: of what was left between two
/// of them, the earlier one is told.
const MOMENTS_MAX: usize = 1000;
const APART: Duration = Duration::from_secs(1);

/// When changes were left to be told, by how many there were until then.
#[derive(Debug, Default)]
pub(super) struct Ages(VecDeque<(u64, Duration)>);

impl Ages {
    /// So many were left until `now`.
    pub(super) fn left(&mut self, pushed: u64, now: Duration) {
        let count = self.0.len();
        match self.0.back_mut() {
            Some((until, _)) if *until >= pushed => {}
            Some((until, since)) if count >= MOMENTS_MAX || now < *since + APART => {
                *until = pushed;
            }
            _ => self.0.push_back((pushed, now)),
        }
    }

    /// So many of them have arrived.
    pub(super) fn arrived(&mut self, arrived: u64) {
        while self.0.front().is_some_and(|(until, _)| *until <= arrived) {
            self.0.pop_front();
        }
    }

    /// Since when the oldest waits that has not arrived.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.0.front().map(|(_, since)| *since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_oldest_that_has_not_arrived_is_told() {
        let mut ages = Ages::default();
        assert_eq!(ages.oldest(), None);
        ages.left(3, at(10));
        ages.left(3, at(20));
        ages.left(5, at(30));
        assert_eq!(ages.oldest(), Some(at(10)));
        ages.arrived(2);
        assert_eq!(ages.oldest(), Some(at(10)));
        ages.arrived(3);
        assert_eq!(ages.oldest(), Some(at(30)));
        ages.arrived(5);
        assert_eq!(ages.oldest(), None);
    }

    #[test]
    fn few_moments_are_kept_however_much_is_left() {
        let mut ages = Ages::default();
        for number in 0..100_000 {
            ages.left(number + 1, Duration::from_millis(number * 100));
        }
        assert!(ages.0.len() <= MOMENTS_MAX);
        ages.arrived(99_999);
        assert!(ages.oldest().is_some());
        ages.arrived(100_000);
        assert_eq!(ages.oldest(), None);
    }
}
