//! How long a run tries to make lost connections again, and how long it waits between two attempts.

use driftless_engine::Clock;
use driftless_remote::ReachError;
use std::time::{Duration, Instant};

/// The pause before the first attempt; each is twice as long as the one before, up to the longest.
/// Half of each is left to chance, so that many runs that lost the same host do not come back at
/// once.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The run gives up an attempt that takes longer, and makes another.
const ATTEMPT_MAX: Duration = Duration::from_secs(60);

/// Between two looks at whether to stop.
const TICK: Duration = Duration::from_millis(20);

/// How long it has been going badly: since a connection was lost after which no pass got any
/// further.
pub struct Trouble<'a> {
    clock: &'a dyn Clock,
    /// When the run began.
    began: Instant,
    patience: Duration,
    since: Option<Instant>,
    /// Connections that were lost since then.
    lost: u64,
    pause: Duration,
}

impl<'a> Trouble<'a> {
    /// None yet, of a run that begins now and has this much patience.
    pub fn new(clock: &'a dyn Clock, patience: Duration) -> Trouble<'a> {
        Trouble {
            clock,
            began: clock.now(),
            patience,
            since: None,
            lost: 0,
            pause: PAUSE_FIRST,
        }
    }

    /// When the run began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The run has got further.
    pub fn is_over(&mut self) {
        (self.since, self.lost, self.pause) = (None, 0, PAUSE_FIRST);
    }

    /// A connection was lost once more.
    pub fn add(&mut self) {
        self.lost += 1;
    }

    /// When an attempt that begins now is given up at the latest.
    pub fn attempt_ends(&mut self) -> Instant {
        self.deadline().min(self.clock.now() + ATTEMPT_MAX)
    }

    /// Lets some time pass, each time more; false if the patience is at its end, or the run is to
    /// stop.
    pub fn wait(&mut self, is_stopped: &dyn Fn() -> bool) -> bool {
        let deadline = self.deadline();
        if self.clock.now() >= deadline {
            return false;
        }
        let until =
            deadline.min(self.clock.now() + self.pause.mul_f64(0.5 + fastrand::f64() / 2.0));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        while self.clock.now() < until && !is_stopped() {
            self.clock.sleep(TICK);
        }
        !is_stopped()
    }

    /// Why the run gives up.
    pub fn words(&self, why: &str, last: Option<ReachError>) -> String {
        let seconds = self.patience.as_secs();
        match last {
            Some(error) if self.lost == 1 => {
                format!("{why}; connecting again did not succeed within {seconds} s: {error}")
            }
            _ => format!(
                "{why}; it was lost {} times within {seconds} s, and nothing was done in between",
                self.lost
            ),
        }
    }

    fn deadline(&mut self) -> Instant {
        *self.since.get_or_insert(self.clock.now()) + self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A clock whose time passes where somebody sleeps, and nowhere else.
    struct Moved {
        began: Instant,
        passed: Cell<Duration>,
    }

    impl Moved {
        fn new() -> Moved {
            Moved {
                began: Instant::now(),
                passed: Cell::default(),
            }
        }
    }

    impl Clock for Moved {
        fn now(&self) -> Instant {
            self.began + self.passed.get()
        }

        fn seconds(&self) -> u64 {
            self.passed.get().as_secs()
        }

        fn sleep(&self, span: Duration) {
            self.passed.set(self.passed.get() + span);
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_end_with_the_patience() {
        let (clock, patience) = (Moved::new(), Duration::from_secs(300));
        let mut trouble = Trouble::new(&clock, patience);
        let mut pauses = Vec::new();
        loop {
            let before = clock.passed.get();
            if !trouble.wait(&|| false) {
                break;
            }
            pauses.push(clock.passed.get() - before);
        }
        assert!(
            clock.passed.get() >= patience && clock.passed.get() < patience + TICK,
            "{pauses:?}"
        );
        for (number, pause) in pauses.iter().enumerate().take(pauses.len() - 1) {
            let whole = (PAUSE_FIRST * 2u32.pow(number.min(10) as u32)).min(PAUSE_MAX);
            assert!(
                *pause >= whole / 2 && *pause < whole + TICK,
                "pause {number} of {pauses:?}"
            );
        }
    }

    #[test]
    fn a_run_that_gets_further_has_all_its_patience_again() {
        let clock = Moved::new();
        let mut trouble = Trouble::new(&clock, Duration::from_secs(10));
        while trouble.wait(&|| false) {}
        trouble.is_over();
        let again = clock.passed.get();
        while trouble.wait(&|| false) {}
        assert!(clock.passed.get() - again >= Duration::from_secs(10));
    }

    #[test]
    fn nobody_waits_who_is_to_stop() {
        let clock = Moved::new();
        assert!(!Trouble::new(&clock, Duration::from_secs(10)).wait(&|| true));
        assert_eq!(clock.passed.get(), Duration::ZERO);
        assert!(
            !Trouble::new(&clock, Duration::ZERO).wait(&|| false),
            "without patience there is no attempt"
        );
    }

    #[test]
    fn an_attempt_ends_with_the_patience_or_after_its_own_time() {
        for (patience, expected) in [(10, 10), (300, 60)] {
            let clock = Moved::new();
            let mut trouble = Trouble::new(&clock, Duration::from_secs(patience));
            assert_eq!(
                trouble.attempt_ends() - clock.now(),
                Duration::from_secs(expected)
            );
        }
    }
}
