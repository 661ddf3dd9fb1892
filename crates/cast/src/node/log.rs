//! Lines of a node in the log of its process: casts that begin and end, and hosts that are refused.
//!
//! A refused host tries again every few seconds, so the log repeats a refusal after a while only.

use crate::message::{CastBrief, shown};
use driftless_dataplane::LinkPeer;
use driftless_lock::Mutex;
use driftless_model::{escape, quote};
use driftless_store::{Catalogue, SetHash};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which the same refusal is logged again.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// Refusals that are remembered.
const REFUSALS_MAX: usize = 1024;

/// End of a cast at a node.
pub(crate) struct CastEnd {
    /// The catalogue, if it arrived.
    pub catalogue: Option<Arc<Catalogue>>,
    /// Outcome in words. `None` if the cast ended without one.
    pub outcome: Option<String>,
}

/// Log of one cast.
pub(crate) struct CastLog {
    host: IpAddr,
    set: SetHash,
}

impl CastLog {
    /// Logs the begin of a cast.
    pub fn begin(peer: &LinkPeer, brief: &CastBrief) -> Self {
        let (host, set) = (peer.address.ip(), brief.set);
        let place = match brief.place.directory() {
            Ok(Some(path)) => format!("place {}", quote(&path)),
            _ => "place cache".to_owned(),
        };
        let job = brief.job.as_deref().map(shown);
        let job = job.map_or_else(String::new, |job| format!(", job {job}"));
        tracing::info!(
            "{host}: cast begins: set {set}, {place}{job}, key {}",
            peer.key
        );
        CastLog { host, set }
    }

    /// Logs the end of a cast.
    pub fn end(&self, end: &CastEnd) {
        let content = end.catalogue.as_deref().map_or_else(String::new, content);
        let outcome = end.outcome.as_deref().unwrap_or("unfinished");
        tracing::info!(
            "{}: cast ends: set {}{content}: {outcome}",
            self.host,
            self.set
        );
    }
}

/// Returns the names and the bytes of a data set, behind a comma.
fn content(catalogue: &Catalogue) -> String {
    let names = catalogue.tops().unwrap_or_default();
    let names: Vec<String> = names.iter().map(|name| escape(name.as_bytes())).collect();
    format!(", names {}, {} bytes", names.join(", "), catalogue.bytes())
}

/// Refusals that were logged, with their times.
#[derive(Default)]
pub(crate) struct RefusalLog(Mutex<HashMap<(IpAddr, String), Instant>>);

impl RefusalLog {
    /// Logs that a host was refused, unless the log has the same line from a moment ago.
    pub fn warn(&self, host: IpAddr, cause: &str) {
        if self.is_new(host, cause, Instant::now()) {
            tracing::warn!("{host}: refused: {cause}");
        }
    }

    fn is_new(&self, host: IpAddr, cause: &str, now: Instant) -> bool {
        let mut logged = self.0.lock();
        logged.retain(|_, at| now.saturating_duration_since(*at) < REPEAT_AFTER);
        let refusal = (host, cause.to_owned());
        if logged.contains_key(&refusal) || logged.len() >= REFUSALS_MAX {
            return false;
        }
        logged.insert(refusal, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_refusal_is_logged_once_a_while() {
        let log = RefusalLog::default();
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let begin = Instant::now();
        assert!(log.is_new(one, "its key", begin));
        assert!(!log.is_new(one, "its key", begin + REPEAT_AFTER / 2));
        assert!(log.is_new(one, "its name", begin + REPEAT_AFTER / 2));
        assert!(log.is_new(two, "its key", begin + REPEAT_AFTER / 2));
        assert!(log.is_new(one, "its key", begin + REPEAT_AFTER));
    }
}
