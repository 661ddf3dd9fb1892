//! Moments as people write them, in universal time.

/// A moment in seconds since 1970 for a person.
pub fn moment(sec: i64) -> String {
    let (date, time) = date_and_time(sec);
    format!("{date} {time} UTC")
}

/// Date and time of a moment in seconds since 1970, in the proleptic Gregorian calendar (H.
/// Hinnant, "chrono-compatible low-level date algorithms", 2014): years begin in March, so that the
/// day that not all have is their last.
pub fn date_and_time(sec: i64) -> (String, String) {
    const DAYS_TO_1970: i64 = 719_468;
    const DAYS_PER_ERA: i64 = 146_097;
    let (days, seconds) = (sec.div_euclid(86_400), sec.rem_euclid(86_400));
    let shifted = days + DAYS_TO_1970;
    let (era, day) = (
        shifted.div_euclid(DAYS_PER_ERA),
        shifted.rem_euclid(DAYS_PER_ERA),
    );
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    (
        format!("{year:04}-{month:02}-{day:02}"),
        format!(
            "{:02}:{:02}:{:02}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        ),
    )
}

/// So many seconds for a person, in the largest unit of which they are one at least.
pub fn span(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let (unit, word) = UNITS
        .into_iter()
        .find(|(unit, _)| seconds >= *unit)
        .unwrap_or(UNITS[3]);
    let count = seconds / unit;
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_their_largest_unit() {
        let cases = [
            (0, "0 seconds"),
            (1, "1 second"),
            (59, "59 seconds"),
            (60, "1 minute"),
            (3 * 3600 + 59, "3 hours"),
            (200_000, "2 days"),
        ];
        for (seconds, words) in cases {
            assert_eq!(span(seconds), words);
        }
    }

    #[test]
    fn dates_are_right_on_both_sides_of_1970_and_of_leap_days() {
        let cases = [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (-2_208_988_800, "1900-01-01 00:00:00 UTC"),
        ];
        for (sec, date) in cases {
            assert_eq!(moment(sec), date);
        }
    }
}
