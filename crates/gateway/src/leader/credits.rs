//! Credits of collections: which results are collected next, as a pure function.
//!
//! At most `credits_max` collections are at work. The user with the fewest comes first, then the one
//! who waited longest, and so for the jobs of a user. A collection that takes long lends its credit to
//! a user without any: the slow destination of one user holds up no other one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Age from which a collection lends its credit.
const LONG: Duration = Duration::from_secs(30);
/// Collections at the same time, as a multiple of the credits, when all of them take long.
const LENT_TIMES: usize = 8;

/// The results of a job on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OutboxKey {
    pub mark: String,
    pub node: String,
    pub uid: u32,
}

/// A collection at work.
#[derive(Debug, Clone)]
pub(crate) struct ActiveCollection {
    pub key: OutboxKey,
    pub age: Duration,
}

/// Turns of users and of jobs: the number of the last one of each.
#[derive(Debug, Default)]
pub(crate) struct CollectTurns {
    last: u64,
    users: HashMap<u32, u64>,
    jobs: HashMap<String, u64>,
}

impl CollectTurns {
    /// Notes that a collection starts.
    pub fn take(&mut self, key: &OutboxKey) {
        self.last = self.last.saturating_add(1);
        self.users.insert(key.uid, self.last);
        self.jobs.insert(key.mark.clone(), self.last);
    }

    /// Forgets users and jobs other than these open jobs and their users.
    pub fn retain(&mut self, open: &HashMap<String, u32>) {
        let users: HashSet<u32> = open.values().copied().collect();
        self.users.retain(|uid, _| users.contains(uid));
        self.jobs.retain(|mark, _| open.contains_key(mark));
    }

    fn of(&self, key: &OutboxKey) -> (u64, u64) {
        let user = self.users.get(&key.uid).copied().unwrap_or(0);
        let job = self.jobs.get(&key.mark).copied().unwrap_or(0);
        (user, job)
    }
}

/// Returns the position of the results in `waiting` that are collected next, if a credit is free for
/// them.
pub(crate) fn next_collection(
    waiting: &[&OutboxKey],
    active: &[ActiveCollection],
    turns: &CollectTurns,
    credits_max: usize,
) -> Option<usize> {
    let (mut users, mut jobs) = (HashMap::new(), HashMap::new());
    for key in active.iter().map(|one| &one.key) {
        *users.entry(key.uid).or_insert(0_usize) += 1;
        *jobs.entry(key.mark.as_str()).or_insert(0_usize) += 1;
    }
    let of_user = |key: &OutboxKey| users.get(&key.uid).copied().unwrap_or(0);
    let short = active.iter().filter(|one| one.age < LONG).count();
    let is_free = active.len() < credits_max;
    let is_lent = short < credits_max && active.len() < credits_max.saturating_mul(LENT_TIMES);
    let has_credit = |key: &OutboxKey| is_free || is_lent && of_user(key) == 0;
    let rank = |key: &OutboxKey| {
        let (user, job) = turns.of(key);
        let of_job = jobs.get(key.mark.as_str()).copied().unwrap_or(0);
        (of_user(key), user, of_job, job)
    };
    let may_start = waiting
        .iter()
        .enumerate()
        .filter(|(_, key)| has_credit(key));
    may_start.min_by_key(|(_, key)| rank(key)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Duration = Duration::from_secs(1);

    fn key(uid: u32, job: u32, node: u32) -> OutboxKey {
        OutboxKey {
            mark: format!("{uid}-{job}"),
            node: format!("n{node}"),
            uid,
        }
    }

    fn active(uid: u32, job: u32, age: Duration) -> ActiveCollection {
        let key = key(uid, job, 9);
        ActiveCollection { key, age }
    }

    /// Starts collections until no credit is free. Returns users and jobs in their order.
    fn started(mut waiting: Vec<OutboxKey>, mut active: Vec<ActiveCollection>) -> Vec<String> {
        let (mut turns, mut order) = (CollectTurns::default(), Vec::new());
        while let Some(at) = {
            let keys: Vec<&OutboxKey> = waiting.iter().collect();
            next_collection(&keys, &active, &turns, 4)
        } {
            let key = waiting.remove(at);
            turns.take(&key);
            order.push(key.mark.clone());
            active.push(ActiveCollection { key, age: NEW });
        }
        order
    }

    #[test]
    fn credits_go_round_users_and_jobs() {
        let mut waiting: Vec<OutboxKey> = (1..=8).map(|node| key(1, 1, node)).collect();
        waiting.extend((1..=8).map(|node| key(1, 2, node)));
        waiting.push(key(2, 1, 1));
        assert_eq!(started(waiting, Vec::new()), ["1-1", "2-1", "1-2", "1-1"]);
    }

    #[test]
    fn several_nodes_of_one_job_share_credits() {
        let waiting = (1..=8).map(|node| key(1, 1, node)).collect();
        assert_eq!(started(waiting, Vec::new()), ["1-1"; 4]);
    }

    #[test]
    fn slow_destination_holds_up_no_other_user() {
        let slow: Vec<ActiveCollection> = (0..4).map(|job| active(1, job, LONG)).collect();
        let waiting = vec![key(1, 9, 1), key(2, 1, 1), key(2, 2, 2), key(3, 1, 1)];
        assert_eq!(started(waiting.clone(), slow), ["2-1", "3-1"]);
        let new: Vec<ActiveCollection> = (0..4).map(|job| active(1, job, NEW)).collect();
        assert!(started(waiting, new).is_empty(), "the credits are taken");
    }

    #[test]
    fn lent_credits_have_an_end() {
        let slow = (10..42).map(|uid| active(uid, 1, LONG)).collect();
        assert!(started(vec![key(2, 1, 1)], slow).is_empty());
    }

    #[test]
    fn user_who_waited_longest_is_next() {
        let mut turns = CollectTurns::default();
        turns.take(&key(1, 1, 1));
        let (first, second) = (key(1, 2, 1), key(2, 1, 1));
        let waiting = [&first, &second];
        assert_eq!(next_collection(&waiting, &[], &turns, 1), Some(1));
        turns.take(&second);
        assert_eq!(next_collection(&waiting, &[], &turns, 1), Some(0));
    }
}
