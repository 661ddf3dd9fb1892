//! The clock on the wall.

use std::time::{Duration, SystemTime};

/// What time it is, since 1970.
pub(crate) fn now() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}
