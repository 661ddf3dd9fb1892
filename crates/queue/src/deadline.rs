//! Until when a call may wait; given once by the caller, shared by all that the call waits for.

use std::future::Future;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long something is waited for before it is looked at whether the connection still stands. The
/// client should say so by itself, and has not always done it.
const LOOK_SECONDS: u64 = 1;

/// The end of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    begin: Instant,
    limit: Duration,
}

impl Deadline {
    /// The end is `limit` from now.
    pub(crate) fn within(limit: Duration) -> Deadline {
        Deadline {
            begin: Instant::now(),
            limit,
        }
    }

    /// How long was waited.
    pub(crate) fn waited(self) -> Duration {
        self.begin.elapsed()
    }

    /// Whether there is no time left.
    pub(crate) fn is_over(self) -> bool {
        self.waited() >= self.limit
    }

    /// The same end, or an earlier one, at which the connection is looked at again.
    pub(crate) fn next_look(self) -> Deadline {
        Deadline::within(
            self.limit
                .saturating_sub(self.waited())
                .min(Duration::from_secs(LOOK_SECONDS)),
        )
    }

    /// What a future comes to, if it does in time. Asks it once even if there is no time left.
    pub(crate) async fn until<F: Future>(self, future: F) -> Option<F::Output> {
        timeout(self.limit.saturating_sub(self.waited()), future)
            .await
            .ok()
    }
}
