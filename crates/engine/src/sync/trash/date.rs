//! The names of the dated folders in the trash: `2026-11-24T193000Z`, or with milliseconds
//! `2026-11-24T193012.345Z`, in universal time (RFC 3339 without what shells and other systems
//! stumble over).
//!
//! The folder of a minute takes entries from its first second on. A folder with milliseconds follows
//! another of the same minute, and takes entries from then on. So the order of dates is the order of
//! deletions.

use driftless_model::{Stamp, date_and_time};
use driftless_tree::{Dir, Done, windows};
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

const MINUTE_SEC: i64 = 60;
const NSEC_PER_MSEC: u32 = 1_000_000;
const MSEC_PER_SEC: u16 = 1000;
const DAY_SEC: i64 = 86_400;

/// When something went into the trash: then or later in the same minute.
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

    /// Returns the date of the folder that follows this one: the millisecond of `now`, or the
    /// millisecond after this date if that is later.
    pub fn next(self, now: Stamp) -> Date {
        let now = Date {
            sec: now.sec,
            msec: u16::try_from(now.nsec / NSEC_PER_MSEC).ok(),
        };
        now.max(self.millisecond_after())
    }

    fn millisecond_after(self) -> Date {
        let msec = self.msec.map_or(0, |msec| msec.saturating_add(1));
        Date {
            sec: self.sec.saturating_add(i64::from(msec / MSEC_PER_SEC)),
            msec: Some(msec % MSEC_PER_SEC),
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
        self.sec - self.sec.rem_euclid(MINUTE_SEC) + MINUTE_SEC
    }

    /// In seconds since 1970, when the first could have gone there.
    pub fn since_sec(self) -> i64 {
        self.sec
    }
}

/// Gives `each` the dates of all folders in the trash, in no order.
///
/// # Errors
/// The directory cannot be listed.
pub fn for_each_date<D: Dir + ?Sized>(trash: &Arc<D>, each: &mut dyn FnMut(Date)) -> Done {
    for names in windows(trash)? {
        let names = names?;
        (0..names.len())
            .filter_map(|index| Date::parse(names.bytes(index)))
            .for_each(&mut *each);
    }
    Ok(())
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
        let minute = Date::minute(NOW);
        assert_eq!(minute.to_string(), "2026-11-24T193000Z");
        let next = minute.next(NOW);
        assert_eq!(next.to_string(), "2026-11-24T193012.999Z");
        assert_eq!(next.next(NOW).to_string(), "2026-11-24T193013.000Z");
    }

    #[test]
    fn each_folder_follows_the_one_before() {
        let earlier = Stamp {
            sec: NOW.sec - 3600,
            nsec: 0,
        };
        let mut last = Date::minute(NOW);
        for now in [NOW, NOW, earlier, earlier, NOW] {
            let next = last.next(now);
            assert!(next > last, "{next} does not follow {last}");
            last = next;
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for sec in [0, 951_782_400, 1_709_251_199, 4_107_542_400, NOW.sec] {
            for msec in [0, 1, 500] {
                let nsec = msec * NSEC_PER_MSEC + 7;
                let now = Stamp { sec, nsec };
                let minute = Date::minute(now);
                for date in [minute, minute.next(now)] {
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
        assert_eq!(minute.next(NOW).until_sec(), minute.until_sec());
    }
}
