//! How much of what a user says is heard: one who says more than programs do at work is not to take
//! the time of the others.

use std::collections::HashMap;
use std::time::Duration;

/// Messages of one user in a second, over a long time.
const MESSAGES_PER_SECOND: f64 = 20_000.0;
/// Messages of one user that may come at once.
const MESSAGES_AT_ONCE: f64 = 200_000.0;
/// Users that are told apart; those who have said little are forgotten first.
const USERS_MAX: usize = 1000;

/// What each user may still say.
#[derive(Debug, Default)]
pub struct Budgets(HashMap<u32, Budget>);

#[derive(Debug)]
struct Budget {
    left: f64,
    since: Duration,
}

impl Budgets {
    /// Whether one more message of this user is heard; `now` is a moment of a clock that goes
    /// forward only.
    pub fn allow(&mut self, user: u32, now: Duration) -> bool {
        if self.0.len() >= USERS_MAX && !self.0.contains_key(&user) {
            self.0.retain(|_, budget| budget.at(now) < MESSAGES_AT_ONCE);
        }
        let budget = self.0.entry(user).or_insert(Budget {
            left: MESSAGES_AT_ONCE,
            since: now,
        });
        budget.left = budget.at(now);
        budget.since = now;
        if budget.left < 1.0 {
            return false;
        }
        budget.left -= 1.0;
        true
    }
}

impl Budget {
    fn at(&self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.since).as_secs_f64();
        (self.left + passed * MESSAGES_PER_SECOND).min(MESSAGES_AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_too_much_is_not_heard_for_a_while_and_others_are() {
        let mut budgets = Budgets::default();
        let now = Duration::from_secs(5);
        let heard = (0..300_000).filter(|_| budgets.allow(7, now)).count();
        assert_eq!(heard, MESSAGES_AT_ONCE as usize);
        assert!(budgets.allow(8, now));
        let later = now + Duration::from_secs(1);
        let heard = (0..300_000).filter(|_| budgets.allow(7, later)).count();
        assert_eq!(heard, MESSAGES_PER_SECOND as usize);
    }

    #[test]
    fn users_without_number_take_no_room() {
        let mut budgets = Budgets::default();
        for user in 0..100_000 {
            budgets.allow(user, Duration::from_millis(u64::from(user)));
            assert!(budgets.0.len() <= USERS_MAX);
        }
    }
}
