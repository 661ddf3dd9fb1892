//! Quiet hours: windows of the week in which a mirror copies nothing.
//!
//! A window is written `DAYS HH:MM-HH:MM`, `HH:MM-HH:MM` (every day) or `DAYS` (all day). Which
//! weekday and minute a moment is, the time zone of the host says.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::Duration;

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Weekday {
    /// All, in the order of the week.
    pub const ALL: [Weekday; 7] = [
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
        Weekday::Saturday,
        Weekday::Sunday,
    ];

    fn before(self) -> Weekday {
        Weekday::ALL[(self as usize + 6) % 7]
    }
}

/// How the days are written, in the order of the week.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The minutes of a day.
pub(super) const DAY_MINUTES: u16 = 24 * 60;

/// One window: it begins on some days of the week, and ends on the same day or the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    days: [bool; 7],
    /// The first minute of the day in the window.
    from: u16,
    /// The first minute behind it; not after `from` if it is one of the next day.
    until: u16,
}

/// Windows of the week in which nothing is copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quiet(Vec<Window>);

impl Quiet {
    /// Whether the `minute` of this day (0 to 1439) lies in a window.
    pub fn holds(&self, day: Weekday, minute: u16) -> bool {
        self.0.iter().any(|window| window.holds(day, minute))
    }

    /// Whether a moment, since 1970, lies in a window, in the time of the host.
    pub fn holds_at(&self, moment: Duration) -> bool {
        if self.is_empty() {
            return false;
        }
        let seconds = moment.as_secs().cast_signed();
        let Ok(moment) = Timestamp::from_second(seconds) else {
            return false;
        };
        let there = moment.to_zoned_datetime(TimeZone::system());
        let day = Weekday::ALL[there.weekday().to_monday_zero_offset() as usize];
        let minute = u16::from(there.hour().cast_unsigned()) * 60
            + u16::from(there.minute().cast_unsigned());
        self.holds(day, minute)
    }

    /// Whether there is no window.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether no minute of the week is left.
    pub fn is_always(&self) -> bool {
        let minutes = |day| (0..DAY_MINUTES).map(move |minute| (day, minute));
        let mut week = Weekday::ALL.into_iter().flat_map(minutes);
        week.all(|(day, minute)| self.holds(day, minute))
    }

    /// Reads one window and adds it.
    ///
    /// # Errors
    /// It is no window.
    pub(super) fn add(&mut self, text: &str) -> Result<(), String> {
        self.0.push(window(text)?);
        Ok(())
    }
}

impl Window {
    fn holds(&self, day: Weekday, minute: u16) -> bool {
        let begins = |day: Weekday| self.days[day as usize];
        if self.from < self.until {
            begins(day) && (self.from..self.until).contains(&minute)
        } else {
            (begins(day) && minute >= self.from) || (begins(day.before()) && minute < self.until)
        }
    }
}

fn window(text: &str) -> Result<Window, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let all_day = (0, DAY_MINUTES);
    let (days, (from, until)) = match words[..] {
        [hours] if hours.contains(':') => ([true; 7], times(hours)?),
        [named] => (days(named)?, all_day),
        [named, hours] => (days(named)?, times(hours)?),
        _ => {
            return Err(
                "a window is days and hours, such as \"Mon-Fri 08:00-18:00\"; one of both may lack"
                    .into(),
            );
        }
    };
    Ok(Window { days, from, until })
}

/// `Mon`, `Mon-Fri`, `Sat,Sun`; through the end of the week, too.
fn days(text: &str) -> Result<[bool; 7], String> {
    let mut chosen = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let count = (last + 7 - first) % 7;
        (first..=first + count).for_each(|day| chosen[day % 7] = true);
    }
    Ok(chosen)
}

fn day(name: &str) -> Result<usize, String> {
    let at = DAYS.iter().position(|day| day.eq_ignore_ascii_case(name));
    at.ok_or_else(|| {
        let name = driftless_model::escape(name.as_bytes());
        format!("\"{name}\" is no day: {} are", DAYS.join(", "))
    })
}

/// `HH:MM-HH:MM`.
fn times(text: &str) -> Result<(u16, u16), String> {
    let wrong = || "hours are written HH:MM-HH:MM, from 00:00 to 24:00".to_string();
    let (from, until) = text.split_once('-').ok_or_else(wrong)?;
    let (from, until) = (
        minute(from).ok_or_else(wrong)?,
        minute(until).ok_or_else(wrong)?,
    );
    match (from, until) {
        (DAY_MINUTES, _) => {
            Err("a window begins at 23:59 at the latest; 00:00 is the next day".into())
        }
        (from, until) if from == until => {
            Err("it begins when it ends: all day is 00:00-24:00".into())
        }
        times => Ok(times),
    }
}

/// The minute of the day that `HH:MM` names.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<u16>().ok()).flatten()
    };
    let minute = number(hours)? * 60 + number(minutes).filter(|minutes| *minutes < 60)?;
    (minute <= DAY_MINUTES).then_some(minute)
}

#[cfg(test)]
mod tests {
    use super::Weekday::{Friday, Monday, Saturday, Sunday, Thursday, Tuesday, Wednesday};
    use super::*;

    fn quiet(windows: &[&str]) -> Quiet {
        let mut quiet = Quiet::default();
        windows.iter().for_each(|text| {
            quiet
                .add(text)
                .unwrap_or_else(|why| panic!("{text}: {why}"))
        });
        quiet
    }

    #[test]
    fn a_window_holds_its_days_and_minutes_and_no_others() {
        type Minutes = &'static [(Weekday, u16)];
        let cases: [(&str, Minutes, Minutes); 8] = [
            (
                "Mon-Fri 08:00-18:00",
                &[(Monday, 480), (Friday, 1079)],
                &[
                    (Monday, 479),
                    (Friday, 1080),
                    (Saturday, 600),
                    (Sunday, 600),
                ],
            ),
            (
                "22:30-06:00",
                &[(Monday, 1350), (Monday, 359), (Sunday, 1439), (Sunday, 0)],
                &[(Monday, 1349), (Monday, 360)],
            ),
            (
                "Fri 22:00-06:00",
                &[(Friday, 1320), (Saturday, 359)],
                &[(Friday, 359), (Saturday, 1320), (Saturday, 360)],
            ),
            (
                "Sun 23:00-01:00",
                &[(Sunday, 1380), (Monday, 59)],
                &[(Sunday, 59), (Monday, 60)],
            ),
            (
                "sat,SUN",
                &[(Saturday, 0), (Sunday, 1439)],
                &[(Friday, 1439), (Monday, 0)],
            ),
            (
                "Sat-Mon",
                &[(Saturday, 5), (Sunday, 5), (Monday, 5)],
                &[(Tuesday, 5), (Friday, 5)],
            ),
            (
                "Tue,Thu-Fri 00:00-24:00",
                &[(Tuesday, 0), (Thursday, 1439), (Friday, 0)],
                &[(Wednesday, 0), (Wednesday, 1439), (Saturday, 0)],
            ),
            (
                "Wed 20:00-00:00",
                &[(Wednesday, 1439)],
                &[(Thursday, 0), (Wednesday, 1199)],
            ),
        ];
        for (text, within, without) in cases {
            let quiet = quiet(&[text]);
            for (day, minute) in within {
                assert!(quiet.holds(*day, *minute), "{text}: {day:?} {minute}");
            }
            for (day, minute) in without {
                assert!(!quiet.holds(*day, *minute), "{text}: {day:?} {minute}");
            }
        }
    }

    #[test]
    fn several_windows_add_up() {
        let all = ["Mon-Sun 00:00-12:00", "12:00-24:00"];
        assert!(quiet(&all).is_always() && !quiet(&all[..1]).is_always());
        assert!(Quiet::default().is_empty() && !Quiet::default().is_always());
    }

    #[test]
    fn what_is_no_window_is_refused_with_what_is_possible() {
        for (text, says) in [
            ("", "such as \"Mon-Fri"),
            ("Mon 08:00 18:00", "such as \"Mon-Fri"),
            ("Mo 08:00-18:00", "\"Mo\" is no day: Mon, Tue"),
            ("Mon- 08:00-18:00", "\"\" is no day"),
            ("Mon,,Tue", "\"\" is no day"),
            ("08:00", "HH:MM-HH:MM"),
            ("8:00-18:00", "HH:MM-HH:MM"),
            ("08:00-18:60", "HH:MM-HH:MM"),
            ("08:00-24:01", "HH:MM-HH:MM"),
            ("+8:00-18:00", "HH:MM-HH:MM"),
            ("24:00-06:00", "00:00 is the next day"),
            ("08:00-08:00", "00:00-24:00"),
            ("\u{1b}[2J", "\"\\x1b[2J\" is no day"),
        ] {
            let why = window(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
    }
}
