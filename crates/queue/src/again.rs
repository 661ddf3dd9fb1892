//! When what the broker has refused is sent again: a queue that is full refuses, and the other
//! queues of the exchange get each try as well.
//!
//! So between tries there are pauses that grow, and first one message is tried for all. Where it is
//! taken, twice as many are tried. No input or output here.

use crate::backoff::Backoff;
use std::collections::BTreeSet;
use std::time::Instant;

/// What is known of messages that were refused.
#[derive(Debug)]
pub(crate) struct Again {
    backoff: Backoff,
    until: Instant,
    /// Numbers of messages that are sent again, and have no answer yet.
    tried: BTreeSet<u64>,
    at_once: usize,
}

impl Again {
    /// A message was refused at this moment.
    pub(crate) fn after(now: Instant) -> Again {
        let mut backoff = Backoff::default();
        Again {
            until: now + backoff.pause(),
            backoff,
            tried: BTreeSet::new(),
            at_once: 1,
        }
    }

    /// How many messages are to be sent again now.
    pub(crate) fn due(&self, now: Instant) -> usize {
        match self.tried.is_empty() && now >= self.until {
            true => self.at_once,
            false => 0,
        }
    }

    /// A message is sent again.
    pub(crate) fn sends(&mut self, number: u64) {
        self.tried.insert(number);
    }

    /// A message was taken. If it was sent again, so are more.
    pub(crate) fn taken(&mut self, number: u64) {
        if self.tried.remove(&number) && self.tried.is_empty() {
            self.at_once = self.at_once.saturating_mul(2);
            self.backoff = Backoff::default();
        }
    }

    /// A message was refused. If it was sent again, the next is after a longer pause.
    pub(crate) fn refused(&mut self, number: u64, now: Instant) {
        if self.tried.remove(&number) && now >= self.until {
            self.at_once = 1;
            self.until = now + self.backoff.pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn one_is_tried_for_all_after_pauses_that_grow() {
        let mut now = Instant::now();
        let mut again = Again::after(now);
        again.refused(7, now);
        assert_eq!(again.due(now), 0);
        let mut tries = 0;
        for _ in 0..60_000 {
            now += Duration::from_millis(1);
            if again.due(now) > 0 {
                assert_eq!(again.due(now), 1);
                again.sends(3);
                assert_eq!(again.due(now), 0, "it has no answer");
                again.refused(3, now);
                // Others that are refused meanwhile make no difference.
                again.refused(9, now);
                tries += 1;
            }
        }
        assert!((10..40).contains(&tries), "{tries}");
        now += Duration::from_secs(5);
        for count in [1, 2, 4, 8] {
            assert_eq!(again.due(now), count);
            (0..count as u64).for_each(|number| again.sends(number));
            (0..count as u64).for_each(|number| again.taken(number));
        }
        (0..16).for_each(|number| again.sends(number));
        again.taken(0);
        (1..16).for_each(|number| again.refused(number, now));
        assert_eq!(again.due(now), 0);
        now += Duration::from_millis(200);
        assert_eq!(again.due(now), 1, "the pauses begin anew");
    }
}
