//! Waits for events that must come.
//!
//! Tests wait through this module or use its limit, so that a loaded machine fails none of them. A
//! long limit costs time only in a test that fails.

use std::time::{Duration, Instant};

/// Limit of a wait for an event that must come.
///
/// Such an event takes seconds on an idle machine, and has taken more than a minute beside other
/// test programs.
pub const EVENT_MAX: Duration = Duration::from_secs(300);
/// Time between two looks at something in this process or in the file system.
const LOOK: Duration = Duration::from_millis(2);
/// Time between two looks that each start a program.
const SLOW_LOOK: Duration = Duration::from_millis(20);

/// Waits until `ready` returns true; panics after [`EVENT_MAX`].
pub fn wait_until(what: &str, ready: impl FnMut() -> bool) {
    wait(what, LOOK, EVENT_MAX, ready);
}

/// Waits as [`wait_until`] does, for a condition that a program has to be started for.
pub fn wait_slowly_until(what: &str, ready: impl FnMut() -> bool) {
    wait(what, SLOW_LOOK, EVENT_MAX, ready);
}

fn wait(what: &str, look: Duration, limit: Duration, mut ready: impl FnMut() -> bool) {
    let began = Instant::now();
    while !ready() {
        assert!(
            began.elapsed() < limit,
            "waited {limit:?} in vain until {what}"
        );
        std::thread::sleep(look);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_with_their_event() {
        let mut looks = 0;
        wait("it was looked at", LOOK, EVENT_MAX, || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "in vain until it comes")]
    fn waits_without_an_event_fail() {
        wait("it comes", LOOK, LOOK, || false);
    }
}
