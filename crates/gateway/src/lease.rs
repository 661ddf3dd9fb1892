//! The lease: which of several gateways acts.
//!
//! The clocks of hosts differ, so the table has no time of a lease. A waiting gateway watches the
//! holder's count of renewals with its own clock, and takes the lease once the count stood still for
//! the time of a lease. The holder stops acting before that: [`GatewayLease::is_sure`] holds for half the time.

use driftless_state::StateError;
use driftless_state::jobs::{ChangeError, JobTable, LeaseRow};
use std::time::{Duration, Instant};

/// Renewals in the time of a lease.
const RENEWALS: u32 = 5;

/// A lease that this gateway holds.
#[derive(Debug)]
pub(crate) struct GatewayLease {
    pub epoch: u64,
    renewed: Instant,
    time_max: Duration,
}

impl GatewayLease {
    /// Renews the lease if it is time.
    ///
    /// # Errors
    /// Another gateway has the lease; the table cannot be written.
    pub fn keep(&mut self, table: &mut JobTable, now: Instant) -> Result<(), ChangeError> {
        if now.saturating_duration_since(self.renewed) >= self.time_max / RENEWALS {
            table.renew(self.epoch)?;
            // The time before the call: a commit may take long.
            self.renewed = now;
        }
        Ok(())
    }

    /// Returns whether no other gateway can have the lease yet.
    pub fn is_sure(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.renewed) < self.time_max / 2
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
        Ok(taken.map(|epoch| GatewayLease {
            epoch,
            renewed: now,
            time_max: self.time_max,
        }))
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
        let (_folder, mut first, mut second) = tables();
        let (mut a, mut b) = (LeaseCandidate::new(TIME_MAX), LeaseCandidate::new(TIME_MAX));
        let begin = Instant::now();
        let mut lease = a.try_take(&mut first, "a", begin).unwrap().unwrap();
        assert!(b.try_take(&mut second, "b", begin).unwrap().is_none());
        let renewal = begin + TIME_MAX / RENEWALS;
        lease.keep(&mut first, renewal).unwrap();
        let later = begin + TIME_MAX;
        assert!(b.try_take(&mut second, "b", later).unwrap().is_none());
        assert_eq!(b.holder(), Some("a"));
        let silent = later + TIME_MAX;
        assert!(!lease.is_sure(silent));
        assert!(b.try_take(&mut second, "b", silent).unwrap().is_some());
        let lost = lease.keep(&mut first, silent);
        assert!(matches!(lost, Err(ChangeError::LeaseLost)));
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
