//! Numbers with units as a user writes them on the command line, and as they are shown.

use driftless_engine::{Date, Route, now};
pub use driftless_model::units::{bytes, delete_limit, time};
use driftless_pool::Concurrency;
use driftless_verify::is_share;
use std::str::FromStr;
use std::time::Duration;

/// Returns the bytes of a rate, which has a unit and is not zero. Without a unit, rsync means KiB.
pub fn rate(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("zero would never end; leave the option out".into()),
        _ if text.ends_with(|end: char| end.is_ascii_digit()) => Err(format!(
            "the unit is missing; write {text}k for {text} KiB a second, or {text}B for bytes"
        )),
        rate => Ok(rate),
    }
}

/// Returns the bytes of a size, which has a unit or is zero.
pub fn bytes_with_unit(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        1.. if text.ends_with(|end: char| end.is_ascii_digit()) => Err(format!(
            "the unit is missing; write {text}G for {text} GiB, or {text}B for bytes"
        )),
        size => Ok(size),
    }
}

/// A route: `size>=SIZE:CLASS`.
pub fn route(text: &str) -> Result<Route, String> {
    let parts = text
        .strip_prefix("size>=")
        .and_then(|rest| rest.split_once(':'));
    let (size, class) =
        parts.ok_or("a route has the form size>=SIZE:CLASS, such as size>=1GiB:big")?;
    if class.is_empty() {
        return Err("the class has no name".into());
    }
    Ok(Route {
        size_min: bytes(size)?,
        class: class.to_owned(),
    })
}

/// The name of a host.
pub fn host(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("a host has no name".into())
    } else {
        Ok(text.to_owned())
    }
}

/// Whole seconds, as a number.
pub fn whole_seconds<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse()
        .map_err(|_| "a whole number of seconds is expected, such as 2".into())
}

/// Whole seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    whole_seconds(text).map(Duration::from_secs)
}

/// Returns whole seconds, of which there is at least one.
pub fn seconds_above_zero(text: &str) -> Result<Duration, String> {
    match whole_seconds(text)? {
        0 => Err("a number of seconds above zero is expected".into()),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// How far times that count as equal may be apart: whole seconds, of a day at most. The copy of a
/// file that did not come to rest gets a time which is further back than that, and every file
/// system has to keep it.
pub fn window_seconds(text: &str) -> Result<u32, String> {
    const DAY: u32 = 24 * 3600;
    let seconds = whole_seconds(text)?;
    if seconds > DAY {
        Err(format!(
            "it is at most a day, {DAY} seconds; --no-times takes no heed of times"
        ))
    } else {
        Ok(seconds)
    }
}

/// A time for a person: in the largest unit that says enough.
pub fn show_time(seconds: u64) -> String {
    indicatif::HumanDuration(Duration::from_secs(seconds)).to_string()
}

/// A number, and not zero.
pub fn above_zero(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("a number above zero is expected".into()),
    }
}

/// A span with its unit.
pub fn span(text: &str) -> Result<Duration, String> {
    driftless_model::units::time(text)
}

/// A day of universal time: when it begins, in seconds since 1970.
pub fn day(text: &str) -> Result<u64, String> {
    let wrong = || "a day is expected, such as 2026-11-24".to_owned();
    let date: jiff::civil::Date = text.parse().map_err(|_| wrong())?;
    let begins = date.to_zoned_datetime(jiff::tz::TimeZone::UTC);
    let begins = begins.map_err(|_| wrong())?.timestamp().as_second();
    u64::try_from(begins).map_err(|_| wrong())
}

/// When something went into the trash.
pub fn trash_date(text: &str) -> Result<Date, String> {
    Date::parse(text.as_bytes())
        .ok_or_else(|| "a date as \"trash list\" prints it is expected".into())
}

/// So many requests at the same time.
pub fn fixed_jobs(jobs: usize) -> Concurrency {
    Concurrency::Fixed(jobs)
}

/// `auto` or a number of threads.
pub fn jobs(text: &str) -> Result<Concurrency, String> {
    const THREADS_MAX: usize = 1024;
    if text == "auto" {
        return Ok(Concurrency::Auto);
    }
    match text.parse() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(Concurrency::Fixed(threads)),
        _ => Err(format!(
            "\"auto\" or a number from 1 to {THREADS_MAX} is expected"
        )),
    }
}

/// `auto` or a number of connections.
pub fn streams(text: &str) -> Result<Streams, String> {
    const STREAMS_MAX: usize = 64;
    if text == "auto" {
        return Ok(Streams(None));
    }
    match text.parse() {
        Ok(streams) if (1..=STREAMS_MAX).contains(&streams) => Ok(Streams(Some(streams))),
        _ => Err(format!(
            "\"auto\" or a number from 1 to {STREAMS_MAX} is expected"
        )),
    }
}

/// A share strictly between 0 and 1, as a number or in per cent: `1e-4`, `0.01%`.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text
        .strip_suffix('%')
        .map_or((text, 1.0), |number| (number, 100.0));
    match number.parse::<f64>() {
        Ok(number) if is_share(number / unit) => Ok(number / unit),
        _ => Err("a share above 0 and below 1 is expected, such as 0.01, 1e-4 or 5%".into()),
    }
}

/// A share for a person, in per cent: two digits and rounded up, or as many as it takes to come
/// near.
pub fn show_share(share: f64) -> String {
    const DIGITS: i32 = 2;
    let percent = share * 100.0;
    // A bound of 99.9 % must not become one of 100 %, nor one of 99.95 % one of 99 %.
    let near = if percent > 99.0 {
        100.0 - percent
    } else {
        percent
    };
    let places = if near > 0.0 {
        (DIGITS - 1 - near.log10().floor() as i32).max(0)
    } else {
        0
    };
    let scale = 10f64.powi(places);
    let rounded = (percent * scale - 1e-6).max(0.0).ceil() / scale;
    let text = format!("{rounded:.*}", usize::try_from(places).unwrap_or(0));
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text} %")
}

/// Bytes for a person: three digits and a unit.
pub fn show_bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// A count for a person: digits in groups of three.
pub fn show_count(count: u64) -> String {
    indicatif::HumanCount(count).to_string()
}

/// A count with its noun, which agrees with it.
pub fn show_counted(count: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        show_count(count),
        if count == 1 { one } else { many }
    )
}

/// So many entries.
pub fn show_entries(count: u64) -> String {
    show_counted(count, "entry", "entries")
}

/// The time now for a log (RFC 3339).
pub fn log_time() -> String {
    let (date, time) = driftless_model::date_and_time(now().sec);
    format!("{date}T{time}Z")
}

/// How many connections there are to a host; found out if `None`.
#[derive(Debug, Clone, Copy)]
pub struct Streams(pub Option<usize>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_and_a_number_of_threads_are_above_zero() {
        assert!(rate("0").is_err() && rate("1k") == Ok(1024));
        assert!(rate("1000").is_err() && rate("1000B") == Ok(1000));
        assert!(jobs("0").is_err() && jobs("2000").is_err());
        assert_eq!(jobs("8"), Ok(Concurrency::Fixed(8)));
    }

    #[test]
    fn days_are_read_in_universal_time() {
        assert_eq!(day("1970-01-02"), Ok(86_400));
        assert_eq!(day("2026-11-24"), Ok(1_795_478_400));
        for bad in ["", "2026-13-01", "2026-02-30", "yesterday", "1969-12-31"] {
            assert!(day(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_are_read_and_shown_in_per_cent() {
        for (text, expected) in [("0.5", 0.5), ("1e-4", 1e-4), ("99%", 0.99), ("0.01%", 1e-4)] {
            assert!((share(text).unwrap() - expected).abs() < 1e-12, "{text}");
        }
        for bad in [
            "0", "1", "100%", "0%", "-0.1", "2", "NaN", "inf", "", "%", "half",
        ] {
            assert!(share(bad).is_err(), "{bad}");
        }
        let shown = [
            (0.95, "95 %"),
            (0.999, "99.9 %"),
            (0.99995, "99.995 %"),
            (9.99973e-5, "0.01 %"),
            (1e-4, "0.01 %"),
            (0.000_123_4, "0.013 %"),
            (0.0667, "6.7 %"),
            (0.123, "13 %"),
            (0.01, "1 %"),
            (0.0, "0 %"),
            (1.0, "100 %"),
            (1e-9, "0.0000001 %"),
        ];
        for (share, text) in shown {
            assert_eq!(show_share(share), text);
        }
    }
}
