//! Limits of sessions and logins. They are decided here, without sockets and clocks.
//!
//! An attempt counts as failed until its login succeeds, so attempts at the same time cannot exceed a
//! limit.

use crate::message::ServerAnswer;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Time after the last attempt until failed attempts are forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Failed attempts for one user from one address.
const PAIR_FAILURES_MAX: u32 = 5;
/// Failed attempts from one address.
const ADDRESS_FAILURES_MAX: u32 = 20;
/// Failed attempts for one user.
const USER_FAILURES_MAX: u32 = 50;
/// Keys whose failed attempts are known at the same time.
const KEYS_MAX: usize = 4096;
/// Bits of an IPv6 address that name a network. A host can take any address in its network.
const NETWORK_BITS: u32 = 64;

/// Limits of logins and sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginLimits {
    /// Sessions at the same time.
    pub sessions_max: usize,
    /// Sessions of one user at the same time.
    pub user_sessions_max: usize,
    /// Connections from one address without a login at the same time.
    pub strangers_max: usize,
}

/// Session that has begun.
struct OpenSession {
    address: IpAddr,
    user: Option<String>,
}

/// Origin or target of attempts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum FailureKey {
    Pair(IpAddr, String),
    Address(IpAddr),
    User(String),
}

impl FailureKey {
    fn max(&self) -> u32 {
        match self {
            FailureKey::Pair(..) => PAIR_FAILURES_MAX,
            FailureKey::Address(_) => ADDRESS_FAILURES_MAX,
            FailureKey::User(_) => USER_FAILURES_MAX,
        }
    }
}

/// Failed attempts.
struct FailureCount {
    count: u32,
    last: Instant,
}

/// Sessions of a server, and failed attempts to log in.
pub struct LoginPolicy {
    limits: LoginLimits,
    sessions: BTreeMap<u64, OpenSession>,
    failures: BTreeMap<FailureKey, FailureCount>,
    begun: u64,
}

impl LoginPolicy {
    /// Returns a policy without sessions.
    pub fn new(limits: LoginLimits) -> Self {
        LoginPolicy {
            limits,
            sessions: BTreeMap::new(),
            failures: BTreeMap::new(),
            begun: 0,
        }
    }

    /// Begins a session for a new connection, and returns its number.
    pub fn begin(&mut self, address: IpAddr) -> Result<u64, String> {
        let address = network_of(address);
        let limits = self.limits;
        if self.sessions.len() >= limits.sessions_max {
            return Err(format!("{} sessions are open", limits.sessions_max));
        }
        let strangers = self.sessions.values();
        let count = strangers
            .filter(|session| session.user.is_none() && session.address == address)
            .count();
        if count >= limits.strangers_max {
            return Err(format!("{count} connections of it have no login"));
        }
        self.begun += 1;
        let user = None;
        self.sessions
            .insert(self.begun, OpenSession { address, user });
        Ok(self.begun)
    }

    /// Ends a session.
    pub fn end(&mut self, session: u64) {
        self.sessions.remove(&session);
    }

    /// Decides whether a session may try to log in.
    pub fn attempt(&mut self, session: u64, user: &str, now: Instant) -> ServerAnswer {
        self.forget(now);
        let keys = self.keys(session, user);
        for key in &keys {
            let failed = self.failures.get(key).map_or(0, |failure| failure.count);
            if failed >= key.max() {
                let minutes = FORGET_AFTER.as_secs() / 60;
                return Err(format!(
                    "{failed} failed logins; wait {minutes} minutes without an attempt"
                ));
            }
        }
        for key in keys {
            let failure = self.failures.entry(key).or_insert(FailureCount {
                count: 0,
                last: now,
            });
            failure.count += 1;
            failure.last = now;
        }
        Ok(())
    }

    /// Decides whether a user who proved to be this user may have one more session.
    pub fn log_in(&mut self, session: u64, user: &str) -> ServerAnswer {
        for key in self.keys(session, user) {
            if let Some(failure) = self.failures.get_mut(&key) {
                failure.count = failure.count.saturating_sub(1);
            }
        }
        self.log_in_without_attempt(session, user)
    }

    /// Decides the same for a user who proved it without an attempt, such as by a certificate. No
    /// failed attempt of another client is forgotten for it.
    pub fn log_in_without_attempt(&mut self, session: u64, user: &str) -> ServerAnswer {
        let own = self.sessions.values();
        let count = own
            .filter(|session| session.user.as_deref() == Some(user))
            .count();
        if count >= self.limits.user_sessions_max {
            return Err(format!("the user has {count} sessions"));
        }
        if let Some(session) = self.sessions.get_mut(&session) {
            session.user = Some(user.to_owned());
        }
        Ok(())
    }

    fn keys(&self, session: u64, user: &str) -> Vec<FailureKey> {
        let user = user.to_owned();
        match self.sessions.get(&session) {
            Some(OpenSession { address, .. }) => vec![
                FailureKey::Pair(*address, user.clone()),
                FailureKey::Address(*address),
                FailureKey::User(user),
            ],
            None => vec![FailureKey::User(user)],
        }
    }

    /// Forgets old attempts, and the oldest ones if there are too many.
    fn forget(&mut self, now: Instant) {
        self.failures.retain(|_, failure| {
            failure.count > 0 && now.saturating_duration_since(failure.last) < FORGET_AFTER
        });
        while self.failures.len() > KEYS_MAX {
            let oldest = self.failures.iter().min_by_key(|(_, failure)| failure.last);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            self.failures.remove(&key);
        }
    }
}

/// Returns the address, or the network of an IPv6 address.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (128 - NETWORK_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LoginLimits = LoginLimits {
        sessions_max: 12,
        user_sessions_max: 2,
        strangers_max: 8,
    };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn failed_logins_block_the_pair_alone() {
        let (mut policy, now) = (LoginPolicy::new(LIMITS), Instant::now());
        let here = policy.begin(address(1)).unwrap();
        let there = policy.begin(address(2)).unwrap();
        for _ in 0..PAIR_FAILURES_MAX {
            assert_eq!(policy.attempt(here, "alice", now), Ok(()));
        }
        let why = policy.attempt(here, "alice", now).unwrap_err();
        assert!(why.contains("5 failed logins"), "{why}");
        assert_eq!(policy.attempt(here, "bob", now), Ok(()));
        assert_eq!(policy.attempt(there, "alice", now), Ok(()));
        let later = now + FORGET_AFTER;
        assert_eq!(policy.attempt(here, "alice", later), Ok(()));
    }

    #[test]
    fn many_names_from_one_address_are_blocked() {
        let (mut policy, now) = (LoginPolicy::new(LIMITS), Instant::now());
        let here = policy.begin(address(1)).unwrap();
        let tried = (0..30).filter(|number| {
            let answer = policy.attempt(here, &format!("user{number}"), now);
            answer.is_ok()
        });
        assert_eq!(tried.count(), ADDRESS_FAILURES_MAX as usize);
    }

    #[test]
    fn successful_logins_are_no_failures() {
        let (mut policy, now) = (LoginPolicy::new(LIMITS), Instant::now());
        for _ in 0..100 {
            let session = policy.begin(address(1)).unwrap();
            assert_eq!(policy.attempt(session, "alice", now), Ok(()));
            assert_eq!(policy.log_in(session, "alice"), Ok(()));
            policy.end(session);
        }
    }

    #[test]
    fn certificates_neither_count_nor_forgive() {
        let (mut policy, now) = (LoginPolicy::new(LIMITS), Instant::now());
        let session = policy.begin(address(1)).unwrap();
        for _ in 0..PAIR_FAILURES_MAX {
            assert_eq!(policy.attempt(session, "alice", now), Ok(()));
        }
        assert_eq!(policy.log_in_without_attempt(session, "alice"), Ok(()));
        assert!(policy.attempt(session, "alice", now).is_err());
    }

    #[test]
    fn sessions_have_their_limits() {
        let mut policy = LoginPolicy::new(LIMITS);
        let sessions: Vec<u64> = (0..8).map(|_| policy.begin(address(1)).unwrap()).collect();
        assert!(policy.begin(address(1)).is_err());
        assert_eq!(policy.log_in(sessions[0], "alice"), Ok(()));
        assert_eq!(policy.log_in(sessions[1], "alice"), Ok(()));
        assert!(policy.log_in(sessions[2], "alice").is_err());
        assert_eq!(policy.log_in(sessions[2], "bob"), Ok(()));
        policy.end(sessions[0]);
        assert_eq!(policy.log_in(sessions[3], "alice"), Ok(()));
        (0..5).for_each(|last| {
            policy.begin(address(10 + last)).unwrap();
        });
        assert!(policy.begin(address(20)).is_err());
    }

    #[test]
    fn addresses_of_one_network_count_together() {
        let networks = ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"]
            .map(|text| network_of(text.parse().unwrap()));
        assert_eq!(networks[0], networks[1]);
        assert_ne!(networks[0], networks[2]);
        assert_eq!(network_of("::ffff:192.0.2.1".parse().unwrap()), address(1));
    }

    #[test]
    fn memory_of_failures_is_bounded() {
        let (mut policy, now) = (LoginPolicy::new(LIMITS), Instant::now());
        for number in 0..10_000 {
            let session = policy.begin(address((number % 200) as u8)).unwrap();
            let _refused_after_some = policy.attempt(session, &format!("user{number}"), now);
            policy.end(session);
        }
        policy.forget(now);
        assert!(policy.failures.len() <= KEYS_MAX);
    }
}
