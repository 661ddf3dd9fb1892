//! The lease: which of several gateways acts.
//!
//! The clocks of hosts differ, so the table has no time of a lease. A waiting gateway watches the
//! holder's count of renewals with its own clock, and takes the lease once the count stood still for
//! the time of a lease. The holder stops acting before that: [`GatewayLease::is_sure`] holds for half the time.
//!
//! A thread of the holder renews the lease while a command of the batch system runs. A holder whose
//! leader makes no step for [`STEP_MAX`] loses the lease: another gateway may do better.

use crossbeam_channel::{Receiver, RecvTimeoutError};
use driftless_lock::Mutex;
use driftless_state::StateError;
use driftless_state::jobs::{ChangeError, JobTable, LeaseRow};
use std::time::{Duration, Instant};

/// Renewals in the time of a lease.
const RENEWALS: u32 = 5;
/// Longest time of a step of the leader. A command takes a minute at most, and a step runs several.
const STEP_MAX: Duration = Duration::from_secs(600);

/// A lease that this gateway holds. The leader and a thread renew it.
#[derive(Debug)]
pub(crate) struct GatewayLease {
    pub epoch: u64,
    time_max: Duration,
    times: Mutex<LeaseTimes>,
}

#[derive(Debug)]
struct LeaseTimes {
    renewed: Instant,
    /// Begin of the last step of the leader.
    step: Instant,
}

impl GatewayLease {
    fn new(epoch: u64, time_max: Duration, now: Instant) -> Self {
        let times = Mutex::new(LeaseTimes {
            renewed: now,
            step: now,
        });
        GatewayLease {
            epoch,
            time_max,
            times,
        }
    }

    /// Renews the lease if it is time.
    ///
    /// # Errors
    /// Another gateway has the lease; the table cannot be written.
    pub fn keep(&self, table: &Mutex<JobTable>, now: Instant) -> Result<(), ChangeError> {
        let renewed = self.times.lock().renewed;
        if now.saturating_duration_since(renewed) >= self.time_max / RENEWALS {
            table.lock().renew(self.epoch)?;
            // The time before the call: a commit may take long.
            let mut times = self.times.lock();
            times.renewed = times.renewed.max(now);
        }
        Ok(())
    }

    /// Renews the lease at intervals, until the leader ends or another gateway has the lease.
    pub fn keep_until(&self, table: &Mutex<JobTable>, end: &Receiver<()>) {
        let pause = self.time_max / RENEWALS / 2;
        while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let now = Instant::now();
            // The table states the epoch: the leader finds a lost lease with its next change. It also
            // reports a table that fails.
            if self.has_step(now)
                && let Err(ChangeError::LeaseLost) = self.keep(table, now)
            {
                return;
            }
        }
    }

    /// Notes a step of the leader.
    pub fn note_step(&self, now: Instant) {
        self.times.lock().step = now;
    }

    fn has_step(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.times.lock().step) < STEP_MAX
    }

    /// Returns whether no other gateway can have the lease yet.
    pub fn is_sure(&self, now: Instant) -> bool {
        let renewed = self.times.lock().renewed;
        now.saturating_duration_since(renewed) < self.time_max / 2
    }
}

/// A gateway that waits for the lease.
#[derive(Debug)]
pub(crate) struct LeaseCandidate {
    seen: Option<(LeaseRow, Instant)>,
    time_max: Duration,
}

impl LeaseCandidate {
    /// Returns a gateway that takes the lease after this time without a renewal.
    pub fn new(time_max: Duration) -> Self {
        LeaseCandidate {
            seen: None,
            time_max,
        }
    }

    /// Looks at the lease, and takes it if its holder ended or is silent.
    ///
    /// # Errors
    /// The table cannot be read or written.
    pub fn try_take(
        &mut self,
        table: &mut JobTable,
        name: &str,
        now: Instant,
    ) -> Result<Option<GatewayLease>, StateError> {
        let current = table.lease()?;
        if !self.may_take(current.as_ref(), now) {
            return Ok(None);
        }
        let taken = table.take_lease(current.as_ref(), name)?;
        Ok(taken.map(|epoch| GatewayLease::new(epoch, self.time_max, now)))
    }

    /// Returns the name of the holder that this gateway waits for.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref().map(|(lease, _)| lease.holder.as_str())
    }

    fn may_take(&mut self, current: Option<&LeaseRow>, now: Instant) -> bool {
        let Some(current) = current.filter(|lease| !lease.holder.is_empty()) else {
            return true;
        };
        match &self.seen {
            Some((lease, since)) if lease == current => {
                now.saturating_duration_since(*since) >= self.time_max
            }
            _ => {
                self.seen = Some((current.clone(), now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const TIME_MAX: Duration = Duration::from_secs(15);

    fn tables() -> (TempDir, JobTable, JobTable) {
        let folder = TempDir::new().expect("a folder");
        let open = || JobTable::open(&folder.path().join("jobs.db")).expect("a table");
        let (first, second) = (open(), open());
        (folder, first, second)
    }

    #[test]
    fn silent_holder_is_replaced() {
        let (_folder, first, mut second) = tables();
        let first = Mutex::new(first);
        let (mut a, mut b) = (LeaseCandidate::new(TIME_MAX), LeaseCandidate::new(TIME_MAX));
        let begin = Instant::now();
        let lease = a.try_take(&mut first.lock(), "a", begin).unwrap().unwrap();
        assert!(b.try_take(&mut second, "b", begin).unwrap().is_none());
        let renewal = begin + TIME_MAX / RENEWALS;
        lease.keep(&first, renewal).unwrap();
        let later = begin + TIME_MAX;
        assert!(b.try_take(&mut second, "b", later).unwrap().is_none());
        assert_eq!(b.holder(), Some("a"));
        let silent = later + TIME_MAX;
        assert!(!lease.is_sure(silent));
        assert!(b.try_take(&mut second, "b", silent).unwrap().is_some());
        let lost = lease.keep(&first, silent);
        assert!(matches!(lost, Err(ChangeError::LeaseLost)));
    }

    #[test]
    fn leader_without_a_step_loses_the_lease() {
        let (_folder, mut first, _second) = tables();
        let begin = Instant::now();
        let mut a = LeaseCandidate::new(TIME_MAX);
        let lease = a.try_take(&mut first, "a", begin).unwrap().unwrap();
        assert!(!lease.has_step(begin + STEP_MAX));
        lease.note_step(begin + STEP_MAX);
        assert!(lease.has_step(begin + STEP_MAX));
    }

    #[test]
    fn ended_lease_is_taken_at_once() {
        let (_folder, mut first, mut second) = tables();
        let now = Instant::now();
        let lease = LeaseCandidate::new(TIME_MAX)
            .try_take(&mut first, "a", now)
            .unwrap()
            .unwrap();
        first.end_lease(lease.epoch).unwrap();
        let mut b = LeaseCandidate::new(TIME_MAX);
        assert!(b.try_take(&mut second, "b", now).unwrap().is_some());
    }
}
