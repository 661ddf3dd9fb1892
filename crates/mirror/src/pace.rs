//! How often a path is looked at: one that changes all the time is paced, one that fails waits
//! longer each time.

use driftless_model::{Class, RelPath};
use std::collections::HashMap;
use std::time::Duration;

/// The pause after a path was done; each is twice as long as the one before while the path keeps
/// changing.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// A path that is quiet for so many pauses begins anew.
const QUIET_PAUSES: u32 = 4;
/// Paths that are known at once.
const RECENT_MAX: usize = 50_000;

/// The wait after the first failure; each is twice as long as the one before.
const WAIT_FIRST: Duration = Duration::from_secs(1);
/// The longest wait for what may pass by itself.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// The longest wait for what somebody has to mend.
const WAIT_FOR_HELP_MAX: Duration = Duration::from_secs(3600);

/// Which paths were done a moment ago.
#[derive(Debug, Default)]
pub struct Pace {
    recent: HashMap<RelPath, (Duration, Duration)>,
}

impl Pace {
    /// From when on a path may be looked at again.
    pub fn ready(&self, path: &RelPath) -> Duration {
        self.recent
            .get(path)
            .map_or(Duration::ZERO, |(done, pause)| *done + *pause)
    }

    /// A path was done.
    pub fn done(&mut self, path: &RelPath, now: Duration) {
        if self.recent.len() >= RECENT_MAX {
            self.recent
                .retain(|_, (done, pause)| *done + *pause * QUIET_PAUSES > now);
        }
        if self.recent.len() >= RECENT_MAX {
            self.recent.clear();
        }
        let pause = match self.recent.get(path) {
            Some((done, pause)) if *done + *pause * QUIET_PAUSES > now => {
                (*pause * 2).min(PAUSE_MAX)
            }
            _ => PAUSE_FIRST,
        };
        self.recent.insert(path.clone(), (now, pause));
    }
}

/// How long a path waits that has failed so often in a row.
pub fn backoff(class: Class, attempts: u32) -> Duration {
    let longest = match class {
        Class::Changing => WAIT_MAX,
        Class::Partly | Class::Skip | Class::Stop => WAIT_FOR_HELP_MAX,
    };
    let doubled = WAIT_FIRST.saturating_mul(2u32.saturating_pow(attempts.saturating_sub(1)));
    doubled.min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_appended_to_all_the_time_is_copied_a_few_times() {
        let mut pace = Pace::default();
        let path = RelPath::parse(b"log").unwrap();
        // Ten thousand times, a hundred a second.
        let mut copies = 0;
        for number in 0..10_000 {
            let now = Duration::from_millis(number * 10);
            if pace.ready(&path) <= now {
                pace.done(&path, now);
                copies += 1;
            }
        }
        assert!((8..=20).contains(&copies), "{copies}");
        let later = Duration::from_secs(1000);
        assert!(pace.ready(&path) <= later);
        pace.done(&path, later);
        assert_eq!(pace.ready(&path), later + PAUSE_FIRST);
    }

    #[test]
    fn no_more_paths_are_known_than_may_be() {
        let mut pace = Pace::default();
        for number in 0..2 * RECENT_MAX {
            let path = RelPath::parse(number.to_string().as_bytes()).unwrap();
            pace.done(&path, Duration::from_micros(number as u64));
            assert!(pace.recent.len() <= RECENT_MAX);
        }
    }

    #[test]
    fn waits_double_up_to_the_longest_of_their_class() {
        for (class, attempts, seconds) in [
            (Class::Changing, 1, 1),
            (Class::Changing, 2, 2),
            (Class::Changing, 40, 300),
            (Class::Skip, 5, 16),
            (Class::Skip, 40, 3600),
        ] {
            assert_eq!(backoff(class, attempts), Duration::from_secs(seconds));
        }
    }
}
