//! How long to wait between tries: twice as long each time, up to a bound, and never in step with
//! others.
//!
//! A broker that comes back meets all its clients at once; jitter spreads them.

use std::time::Duration;

/// The first pause, in milliseconds.
const FIRST_MILLISECONDS: u64 = 100;
/// The longest pause, in milliseconds: a broker that comes back is found within this.
const PAUSE_MILLISECONDS_MAX: u64 = 5_000;

/// The pauses of one series of tries.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The next pause: between half of the bound of this try and all of it.
    pub(crate) fn pause(&mut self) -> Duration {
        let bound = bound_milliseconds(self.tries);
        self.tries = self.tries.saturating_add(1);
        Duration::from_millis(bound / 2 + fastrand::u64(0..=bound / 2))
    }
}

fn bound_milliseconds(tries: u32) -> u64 {
    FIRST_MILLISECONDS
        .saturating_mul(1_u64.checked_shl(tries).unwrap_or(u64::MAX))
        .min(PAUSE_MILLISECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        assert_eq!(
            (0..4).map(bound_milliseconds).collect::<Vec<_>>(),
            [100, 200, 400, 800]
        );
        assert_eq!([7, 63, 64, u32::MAX].map(bound_milliseconds), [5_000; 4]);
    }
}
