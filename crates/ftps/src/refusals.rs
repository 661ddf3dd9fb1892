//! Lines of the log for refused connections: one for an address and minute, with a count. A stranger
//! could fill the log otherwise.

use crate::policy::network_of;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Time between two lines for one address.
const INTERVAL: Duration = Duration::from_secs(60);
/// Addresses that are known at the same time. Further ones share one line.
const ADDRESSES_MAX: usize = 1024;

/// Refused connections by address, or by network for IPv6.
#[derive(Default)]
pub struct RefusedConnections(BTreeMap<IpAddr, LastLine>);

struct LastLine {
    at: Instant,
    /// Refused connections since the line.
    silent: u64,
}

impl RefusedConnections {
    /// Notes a refused connection. Returns the number of refused connections since the last line, if
    /// the log gets a line now.
    pub fn note(&mut self, address: IpAddr, now: Instant) -> Option<u64> {
        let is_recent = |line: &LastLine| now.saturating_duration_since(line.at) < INTERVAL;
        let mut address = network_of(address);
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(&address) {
            self.0.retain(|_, line| is_recent(line));
            if self.0.len() >= ADDRESSES_MAX {
                address = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            }
        }
        let mut count = 1;
        if let Some(line) = self.0.get_mut(&address) {
            line.silent += 1;
            if is_recent(line) {
                return None;
            }
            count = line.silent;
        }
        self.0.insert(address, LastLine { at: now, silent: 0 });
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_one_line_a_minute() {
        let (mut log, now) = (RefusedConnections::default(), Instant::now());
        let here = IpAddr::from([192, 0, 2, 1]);
        let there = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(log.note(here, now), Some(1));
        (0..50).for_each(|_| assert_eq!(log.note(here, now), None));
        assert_eq!(log.note(there, now), Some(1));
        assert_eq!(log.note(here, now + INTERVAL), Some(51));
        assert_eq!(log.note(here, now + INTERVAL), None);
    }

    #[test]
    fn many_addresses_share_a_line() {
        let (mut log, now) = (RefusedConnections::default(), Instant::now());
        let lines =
            (0..10_000_u32).filter_map(|number| log.note(IpAddr::from(number.to_be_bytes()), now));
        assert_eq!(lines.count(), ADDRESSES_MAX + 1);
        assert_eq!(
            log.note(IpAddr::from([1, 2, 3, 4]), now + INTERVAL),
            Some(1)
        );
        assert_eq!(log.0.len(), 1);
    }
}
