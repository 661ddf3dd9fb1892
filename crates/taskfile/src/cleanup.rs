//! Treatment of the copies on the nodes after the last task.

use crate::error::{Parsed, shown, wrong};
use crate::lexer::TaskValue;
use std::time::Duration;

/// Seconds that `KEEP` keeps the copies at most: ten years.
pub const KEEP_SECONDS_MAX: u64 = 10 * 365 * 24 * 3600;

/// Treatment of the copies after the last task that needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cleanup {
    /// Purges the copies.
    #[default]
    PurgeAll,
    /// Keeps the copies without a limit of time.
    Keep,
    /// Keeps the copies for this time.
    KeepFor(Duration),
}

/// Parses the duration of `KEEP`.
pub(crate) fn keep_for(value: &TaskValue) -> Parsed<Cleanup> {
    let bytes = value.bytes();
    let digits = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (number, unit) = bytes.split_at(digits);
    let seconds = match unit.to_ascii_lowercase().as_slice() {
        b"s" => 1,
        b"m" => 60,
        b"h" => 3600,
        b"d" => 24 * 3600,
        b"w" => 7 * 24 * 3600,
        _ => 0,
    };
    if number.is_empty() || seconds == 0 {
        let found = format!("{} is not a duration", shown(&bytes));
        return wrong(
            value.at,
            found,
            "write a number with s, m, h, d or w, such as 7d",
        );
    }
    let number = String::from_utf8_lossy(number);
    // Too many digits for the type are too long in any unit.
    match number
        .parse::<u64>()
        .map(|number| number.saturating_mul(seconds))
    {
        Ok(0) => wrong(value.at, "duration of zero", "write PURGEALL;"),
        Ok(seconds) if seconds <= KEEP_SECONDS_MAX => {
            Ok(Cleanup::KeepFor(Duration::from_secs(seconds)))
        }
        _ => {
            let days = KEEP_SECONDS_MAX / (24 * 3600);
            let found = format!("duration {} is too long", shown(&bytes));
            wrong(value.at, found, format!("write at most {days}d, or KEEP;"))
        }
    }
}
