//! Moments as messages write them: `YYYYMMDDTHHMMSS.FRACTION` in universal time; version 02 has no
//! `T`.
//!
//! Sarracenia demands the point, so it is always written; what is read may lack it. Only the years
//! that four digits can name are written.

use driftless_model::{Stamp, date_and_time};

/// The first and the last second that can be written.
const WRITTEN_SEC: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;
const NANOS_DIGITS: usize = 9;

/// A moment in words of version 03; `None` outside of the years 0000 to 9999.
pub fn written(at: Stamp) -> Option<String> {
    if !WRITTEN_SEC.contains(&at.sec) {
        return None;
    }
    let (date, time) = date_and_time(at.sec);
    let (date, time) = (date.replace('-', ""), time.replace(':', ""));
    let nanos = format!("{:09}", at.nsec);
    let fraction = nanos.trim_end_matches('0');
    let fraction = if fraction.is_empty() { "0" } else { fraction };
    Some(format!("{date}T{time}.{fraction}"))
}

/// The moment that a text of either version names; parts of a nanosecond are dropped.
pub fn read(text: &str) -> Option<Stamp> {
    let text = text.trim();
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = match whole.as_bytes().get(8) {
        Some(b'T') => [whole.get(..8)?, whole.get(9..)?].concat(),
        _ => whole.to_owned(),
    };
    Some(Stamp {
        sec: seconds(&digits)?,
        nsec: nanos(fraction)?,
    })
}

/// Seconds since 1970 of `YYYYMMDDHHMMSS`.
fn seconds(digits: &str) -> Option<i64> {
    let is_plain = digits.len() == 14 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = |from, to| digits.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    // A leap second is the first second of the next minute.
    let is_time = hour < 24 && minute < 60 && second <= 60;
    if !is_plain || !is_time || !(1..=12).contains(&month) {
        return None;
    }
    let day_number = days(year, month, day);
    let sec = day_number * 86_400;
    // A day that the month does not have is one of the next month.
    let (date, _) = date_and_time(sec);
    let is_day = date.get(8..)?.parse() == Ok(day);
    is_day.then_some(sec + hour * 3600 + minute * 60 + second)
}

/// Days since 1970 in the proleptic Gregorian calendar (H. Hinnant, "chrono-compatible low-level
/// date algorithms", 2014): years begin in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    const DAYS_TO_1970: i64 = 719_468;
    const DAYS_PER_ERA: i64 = 146_097;
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year * 365 + year / 4 - year / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - DAYS_TO_1970
}

fn nanos(fraction: &str) -> Option<u32> {
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &fraction[..fraction.len().min(NANOS_DIGITS)];
    format!("{kept:0<NANOS_DIGITS$}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_both_versions_are_read() {
        let cases = [
            ("20260131T101112.123456789", (1_769_854_272, 123_456_789)),
            ("20260131101112.12", (1_769_854_272, 120_000_000)),
            ("20260131T101112", (1_769_854_272, 0)),
            ("20260131T101112.", (1_769_854_272, 0)),
            ("20260131T101112.1234567899", (1_769_854_272, 123_456_789)),
            ("20260131T101112.5Z", (1_769_854_272, 500_000_000)),
            ("19691231T235959.5", (-1, 500_000_000)),
            ("20240229T000000.0", (1_709_164_800, 0)),
            ("20161231T235960.0", (1_483_228_800, 0)),
        ];
        for (text, (sec, nsec)) in cases {
            assert_eq!(read(text), Some(Stamp { sec, nsec }), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for text in [
            "",
            "2026",
            "20260131X101112.1",
            "20260230T101112.1",
            "20261331T101112.1",
            "20260131T241112.1",
            "20260131T106012.1",
            "20260131T101112.1x",
            "2026013éT01112.1",
            "+2260131T101112.1",
            "20260131T101112,1",
            "20260100T101112.1",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let at = Stamp {
                sec: rng.i64(WRITTEN_SEC),
                nsec: rng.u32(..1_000_000_000),
            };
            let text = written(at).expect("a year of four digits");
            assert_eq!(&text[8..9], "T");
            assert_eq!(&text[15..16], ".");
            assert_eq!(read(&text), Some(at), "{text}");
        }
        for sec in [*WRITTEN_SEC.start(), *WRITTEN_SEC.end()] {
            let at = Stamp { sec, nsec: 0 };
            assert_eq!(read(&written(at).expect("the last one")), Some(at));
        }
        let year_10000 = Stamp {
            sec: WRITTEN_SEC.end() + 1,
            nsec: 0,
        };
        assert_eq!(written(year_10000), None);
    }
}
