//! Numbers with units as a user writes them, on the command line and in the file of a job.
//!
//! The words of an error say what is expected, and leave it to the caller to say where.

use crate::DeleteLimit;
use std::time::Duration;

/// Units of time and their milliseconds.
const TIME_UNITS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60 * 1000),
    ("h", 3600 * 1000),
    ("d", 24 * 3600 * 1000),
    ("w", 7 * 24 * 3600 * 1000),
];

/// Returns the digits that a text begins with, and the unit behind them.
fn split(text: &str) -> (&str, &str) {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(digits)
}

/// Returns the bytes of a size, perhaps with a fraction: a number with k, M, G, T or P, in either case. The units
/// are those of the coreutils: `M` and `MiB` are powers of 1024, `MB` of 1000.
///
/// # Errors
/// Fails if there is no number, the unit is unknown, a byte is divided, or there are too many bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let size = unit_bytes(unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_divided = number.contains('.') && size == 1;
    let whole: u64 = Some(whole)
        .filter(|_| !is_divided)
        .and_then(|whole| whole.parse().ok())
        .ok_or("a number is expected, such as 10M")?;
    let part = part_of(size, fraction).ok_or("a number is expected, such as 1.5G")?;
    whole
        .checked_mul(size)
        .and_then(|bytes| bytes.checked_add(part))
        .ok_or_else(|| "the number is too large".into())
}

/// Returns a number of bytes in the largest unit of which it has one, as a person reads it.
pub fn size_text(bytes: u64) -> String {
    let (mut size, mut unit) = (bytes as f64, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, larger);
    }
    match unit {
        "B" => format!("{bytes} B"),
        unit => format!("{size:.2} {unit}"),
    }
}

/// Returns the bytes of a unit.
fn unit_bytes(unit: &str) -> Result<u64, String> {
    let lower = unit.to_ascii_lowercase();
    let (letter, base) = match (lower.strip_suffix("ib"), lower.strip_suffix('b')) {
        (Some(letter), _) => (letter, 1024_u64),
        (None, Some(letter)) => (letter, 1000),
        (None, None) => (&*lower, 1024),
    };
    let power = ["", "k", "m", "g", "t", "p"]
        .iter()
        .position(|known| *known == letter)
        .and_then(|power| u32::try_from(power).ok());
    power
        .map(|power| base.pow(power))
        .ok_or_else(|| format!("unknown unit \"{unit}\" (k, M, G, T and P are known)"))
}

/// Returns the bytes of a decimal fraction of a unit, rounded down. Returns `None` if the digits are no
/// fraction of at most nine digits.
fn part_of(unit: u64, digits: &str) -> Option<u64> {
    const DIGITS_MAX: usize = 9;
    let places = u32::try_from(digits.len()).ok()?;
    let number: u64 = digits.parse().ok().filter(|_| digits.len() <= DIGITS_MAX)?;
    let part = u128::from(unit) * u128::from(number) / 10_u128.pow(places);
    u64::try_from(part).ok()
}

/// A time: a whole number with ms, s, m, h, d or w.
///
/// # Errors
/// Fails if there is no number, no known unit, or the time is too long to be told.
pub fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let known = TIME_UNITS.iter().find(|(name, _)| *name == unit);
    let millis = known.and_then(|(_, millis)| number.parse::<u64>().ok()?.checked_mul(*millis));
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| "a number with ms, s, m, h, d or w is expected, such as 90m".into())
}

/// `N` entries or `P%` of them.
///
/// # Errors
/// Fails if it is neither, or a share of more than all.
pub fn delete_limit(text: &str) -> Result<DeleteLimit, String> {
    let wrong =
        || "a number of entries, such as 1000, or a share from 0% to 100% is expected".to_string();
    match text.strip_suffix('%') {
        Some(percent) => percent
            .parse()
            .ok()
            .filter(|p| *p <= 100)
            .map(DeleteLimit::Percent)
            .ok_or_else(wrong),
        None => text.parse().map(DeleteLimit::Count).map_err(|_| wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_in_any_usual_form() {
        for (text, expected) in [
            ("0", 0),
            ("10", 10),
            ("10k", 10240),
            ("4M", 4 << 20),
            ("1GiB", 1 << 30),
            ("1000B", 1000),
            ("10MB", 10_000_000),
            ("10kB", 10_000),
            ("2tb", 2_000_000_000_000),
            ("1.5G", 3 << 29),
            ("1.5MB", 1_500_000),
            ("0.3k", 307),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "k",
            "1x",
            "-1",
            "1.5",
            "1.5B",
            ".5M",
            "1.M",
            "1.5.5M",
            "1.+5M",
            "+1M",
            "99999999999P",
            "16384P",
        ] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown_in_their_largest_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (340_418_043, "324.65 MiB"),
            (3 << 40, "3.00 TiB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }

    #[test]
    fn times_have_a_unit() {
        for (text, seconds) in [
            ("0s", 0),
            ("90s", 90),
            ("90m", 5400),
            ("1d", 86_400),
            ("2w", 14 * 86_400),
        ] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(time("250ms"), Ok(Duration::from_millis(250)));
        for bad in [
            "",
            "1",
            "m",
            "-1s",
            "+1s",
            "1.5h",
            "1 h",
            "1M",
            "1é",
            "99999999999999999999s",
            "999999999999999999d",
        ] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_limit_is_a_number_or_a_share() {
        assert_eq!(delete_limit("10%"), Ok(DeleteLimit::Percent(10)));
        assert_eq!(delete_limit("1000"), Ok(DeleteLimit::Count(1000)));
        for bad in ["101%", "x", "%", "-1", ""] {
            assert!(delete_limit(bad).is_err(), "{bad}");
        }
    }
}
