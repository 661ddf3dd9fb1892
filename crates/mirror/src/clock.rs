//! What time it is: by the clock, and by what has passed since the mirror began.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

/// What time it is, since 1970: as it was when the mirror began, and what has passed since. A clock
/// that is set meanwhile makes no lag.
pub fn now() -> Duration {
    at(Instant::now())
}

/// Returns a moment of this process as [`now`] would have returned it then.
pub fn at(moment: Instant) -> Duration {
    static BEGAN: LazyLock<(Duration, Instant)> = LazyLock::new(|| (by_clock(), Instant::now()));
    let (began, since) = *BEGAN;
    // The first moment that is asked for may be earlier than the beginning.
    match moment.checked_duration_since(since) {
        Some(passed) => began + passed,
        None => began.saturating_sub(since.duration_since(moment)),
    }
}

/// What the clock says, since 1970: it may have been set since the mirror began. Files have their
/// times by it, and hours of the day are meant by it.
pub fn by_clock() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Whether a moment is past. One that is not was noted by a clock that was ahead, and nobody knows
/// when that was: no time of a file says what was changed since.
pub fn is_past(moment: Duration) -> bool {
    moment <= by_clock()
}
