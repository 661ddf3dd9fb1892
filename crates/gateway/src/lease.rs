//! The lease: which of several gateways acts.
//!
//! The clocks of hosts differ, so the table has no time of a lease. A waiting gateway watches the
//! holder's count of renewals with its own clock, and takes the lease once the count stood still for
//! [`LEASE_MAX`]. The holder stops acting before that: [`Lease::is_sure`] holds for half the time.

use driftless_state::StateError;
use driftless_state::jobs::{ChangeError, JobTable, LeaseRow};
use std::time::{Duration, Instant};

/// Time without a renewal after which another gateway takes over.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(15);
/// Interval of renewals.
const RENEWAL: Duration = Duration::from_secs(3);

/// A lease that this gateway holds.
#[derive(Debug)]
pub(crate) struct Lease {
    pub epoch: u64,
    renewed: Instant,
}

impl Lease {
    /// Renews the lease if it is time.
    ///
    /// # Errors
    /// Another gateway has the lease; the table cannot be written.
    pub fn keep(&mut self, table: &mut JobTable, now: Instant) -> Result<(), ChangeError> {
        if now.saturating_duration_since(self.renewed) >= RENEWAL {
            table.renew(self.epoch)?;
            // The time before the call: a commit may take long.
            self.renewed = now;
        }
        Ok(())
    }

    /// Returns whether no other gateway can have the lease yet.
    pub fn is_sure(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.renewed) < LEASE_MAX / 2
    }
}

/// A gateway that waits for the lease.
#[derive(Debug, Default)]
pub(crate) struct Candidate {
    seen: Option<(LeaseRow, Instant)>,
}

impl Candidate {
    /// Looks at the lease, and takes it if its holder ended or is silent.
    ///
    /// # Errors
    /// The table cannot be read or written.
    pub fn try_take(
        &mut self,
        table: &mut JobTable,
        name: &str,
        now: Instant,
    ) -> Result<Option<Lease>, StateError> {
        let current = table.lease()?;
        if !self.may_take(current.as_ref(), now) {
            return Ok(None);
        }
        let taken = table.take_lease(current.as_ref(), name)?;
        Ok(taken.map(|epoch| Lease {
            epoch,
            renewed: now,
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
                now.saturating_duration_since(*since) >= LEASE_MAX
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

    fn tables() -> (TempDir, JobTable, JobTable) {
        let folder = TempDir::new().expect("a folder");
        let open = || JobTable::open(&folder.path().join("jobs.db")).expect("a table");
        let (first, second) = (open(), open());
        (folder, first, second)
    }

    #[test]
    fn silent_holder_is_replaced() {
        let (_folder, mut first, mut second) = tables();
        let (mut a, mut b) = (Candidate::default(), Candidate::default());
        let begin = Instant::now();
        let mut lease = a.try_take(&mut first, "a", begin).unwrap().unwrap();
        assert!(b.try_take(&mut second, "b", begin).unwrap().is_none());
        let renewal = begin + RENEWAL;
        lease.keep(&mut first, renewal).unwrap();
        let later = begin + LEASE_MAX;
        assert!(b.try_take(&mut second, "b", later).unwrap().is_none());
        assert_eq!(b.holder(), Some("a"));
        let silent = later + LEASE_MAX;
        assert!(!lease.is_sure(silent));
        assert!(b.try_take(&mut second, "b", silent).unwrap().is_some());
        let lost = lease.keep(&mut first, silent);
        assert!(matches!(lost, Err(ChangeError::LeaseLost)));
    }

    #[test]
    fn ended_lease_is_taken_at_once() {
        let (_folder, mut first, mut second) = tables();
        let now = Instant::now();
        let lease = Candidate::default()
            .try_take(&mut first, "a", now)
            .unwrap()
            .unwrap();
        first.end_lease(lease.epoch).unwrap();
        let mut b = Candidate::default();
        assert!(b.try_take(&mut second, "b", now).unwrap().is_some());
    }
}
