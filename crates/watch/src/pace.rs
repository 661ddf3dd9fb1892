//! How often all of a tree is told to differ: who makes an agent miss something again and again is
//! not to keep the mirrors comparing.

use std::time::Duration;

/// Gaps that are told at once.
const GAPS_AT_ONCE: u32 = 3;
/// After these, one in so long.
const GAP_EVERY: Duration = Duration::from_secs(60);

/// The pace of one tree's gaps.
#[derive(Debug)]
pub struct GapPace {
    /// When nothing would be held back any more, by the caller's clock.
    free: Duration,
    is_waiting: bool,
}

impl GapPace {
    /// Nothing was missed yet.
    pub fn new() -> GapPace {
        GapPace {
            free: Duration::ZERO,
            is_waiting: false,
        }
    }

    /// Something was missed; false if that waits to be told already.
    pub fn miss(&mut self) -> bool {
        !std::mem::replace(&mut self.is_waiting, true)
    }

    /// Returns whether something was missed that is not told yet.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether that is to be told now; it is taken to be.
    pub fn take(&mut self, now: Duration) -> bool {
        let is_free = self.free <= now + GAP_EVERY * (GAPS_AT_ONCE - 1);
        let is_told = self.is_waiting && is_free;
        if is_told {
            self.free = self.free.max(now) + GAP_EVERY;
            self.is_waiting = false;
        }
        is_told
    }

    /// Whether something was missed that was not told; it is taken to be told.
    pub fn take_at_end(&mut self) -> bool {
        std::mem::take(&mut self.is_waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_without_end_are_told_at_a_limited_pace_and_the_last_one_is_not_lost() {
        let mut pace = GapPace::new();
        assert!(!pace.take(Duration::ZERO));
        let mut told = 0;
        for second in 0..600 {
            let _is_first = pace.miss();
            told += u32::from(pace.take(Duration::from_secs(second)));
        }
        assert_eq!(told, GAPS_AT_ONCE + 9);
        let end = (600..700).find(|second| pace.take(Duration::from_secs(*second)));
        assert_eq!(end, Some(600));
        assert!(!pace.take_at_end());
    }
}
