//! The names of the dated folders in the trash: `2026-11-24T193000Z`, or with milliseconds
//! `2026-11-24T193012.345Z`, in universal time (RFC 3339 without what shells and other systems
//! stumble over).

use driftless_model::{Stamp, date_and_time};
use std::ffi::CString;
use std::fmt;

const MINUTE_SEC: i64 = 60;
const NSEC_PER_MSEC: u32 = 1_000_000;
const MSEC_PER_SEC: u64 = 1000;
const DAY_SEC: i64 = 86_400;

/// When something went into the trash: within a minute that begins then, or in that millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    sec: i64,
    msec: Option<u16>,
}

impl Date {
    /// The minute of a moment.
    pub fn minute(now: Stamp) -> Date {
        Date {
            sec: now.sec - now.sec.rem_euclid(MINUTE_SEC),
            msec: None,
        }
    }

    /// So many milliseconds after a moment.
    pub fn millisecond(now: Stamp, later: u64) -> Date {
        let msec = u64::from(now.nsec / NSEC_PER_MSEC) + later;
        Date {
            sec: now.sec + (msec / MSEC_PER_SEC).cast_signed(),
            msec: Some((msec % MSEC_PER_SEC) as u16),
        }
    }

    /// Reads the name of a folder; nothing else has this form.
    pub fn parse(name: &[u8]) -> Option<Date> {
        let text = std::str::from_utf8(name).ok()?.strip_suffix('Z')?;
        let (date, time) = text.split_once('T')?;
        let (time, msec) = match time.split_once('.') {
            Some((time, msec)) if msec.len() == 3 => (time, Some(msec.parse().ok()?)),
            Some(_) => return None,
            None => (time, None),
        };
        let found = Date {
            sec: days(date)? * DAY_SEC + seconds(time)?,
            msec,
        };
        // What is written otherwise is not ours: signs, days that no month has.
        (found.to_string().as_bytes() == name).then_some(found)
    }

    /// The name of its folder.
    pub fn name(self) -> CString {
        CString::new(self.to_string()).expect("digits and letters")
    }

    /// In seconds since 1970, when the last could have gone there.
    pub fn until_sec(self) -> i64 {
        match self.msec {
            None => self.sec + MINUTE_SEC,
            Some(_) => self.sec + 1,
        }
    }

    /// In seconds since 1970, when the first could have gone there.
    pub fn since_sec(self) -> i64 {
        self.sec
    }
}

impl fmt::Display for Date {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (date, time) = date_and_time(self.sec);
        write!(out, "{date}T{}", time.replace(':', ""))?;
        match self.msec {
            Some(msec) => write!(out, ".{msec:03}Z"),
            None => out.write_str("Z"),
        }
    }
}

/// Days since 1970 of `2026-11-24`, in the proleptic Gregorian calendar (H. Hinnant,
/// "chrono-compatible low-level date algorithms").
fn days(date: &str) -> Option<i64> {
    let mut parts = date.split('-').map(str::parse::<i64>);
    let (year, month, day) = (
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    );
    if !(0..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

/// Seconds of a day of `193012`.
fn seconds(time: &str) -> Option<i64> {
    let number: i64 = Some(time).filter(|time| time.len() == 6)?.parse().ok()?;
    let (hour, minute, second) = (number / 10_000, number / 100 % 100, number % 100);
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp {
        sec: 1_795_548_612,
        nsec: 999_000_000,
    };

    #[test]
    fn names_tell_the_minute_or_the_millisecond() {
        assert_eq!(Date::minute(NOW).to_string(), "2026-11-24T193000Z");
        let after = |later| Date::millisecond(NOW, later).to_string();
        assert_eq!(after(0), "2026-11-24T193012.999Z");
        assert_eq!(after(1), "2026-11-24T193013.000Z");
    }

    #[test]
    fn what_is_written_is_read() {
        for sec in [0, 951_782_400, 1_709_251_199, 4_107_542_400, NOW.sec] {
            for later in [0, 1, 500] {
                let now = Stamp { sec, nsec: 7 };
                for date in [Date::minute(now), Date::millisecond(now, later)] {
                    assert_eq!(Date::parse(date.name().to_bytes()), Some(date));
                }
            }
        }
    }

    #[test]
    fn nothing_else_is_taken_for_one() {
        for name in [
            "",
            "Z",
            "2026-11-24T193000",
            "2026-11-24T19:30:00Z",
            "2026-11-24T193000z",
            "2026-11-24T193000.5Z",
            "2026-11-24T193000.1234Z",
            "2026-11-24T193000.+12Z",
            "2026-11-24T240000Z",
            "2026-11-24T+93000Z",
            "2026-11-31T193000Z",
            "2026-02-29T193000Z",
            "2026-13-01T193000Z",
            "+026-11-24T193000Z",
            "2026-1-24T193000Z",
            "a\n",
        ] {
            assert_eq!(Date::parse(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn a_minute_is_over_later_than_what_went_in_it() {
        let minute = Date::minute(NOW);
        assert!(minute.since_sec() <= NOW.sec && NOW.sec < minute.until_sec());
    }
}
