//! Which folders of the trash go: those that are older than may be, and then the oldest until the
//! rest is no larger than may be.

use super::date::Date;
use std::collections::BTreeMap;
use std::time::Duration;

/// Folders that are younger are left alone: something may be on its way there.
const YOUNG_SEC: i64 = 120;

/// What the trash may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// What has gone longer ago goes.
    pub age: Option<Duration>,
    /// Of more bytes than this, the oldest goes.
    pub bytes: Option<u64>,
}

/// How much there is of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Entries, directories among them.
    pub entries: u64,
    /// The bytes that their files take on the disk, each name of a file for itself.
    pub bytes: u64,
}

impl Size {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Size) -> Size {
        Size {
            entries: self.entries + other.entries,
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl Limits {
    /// The folders that go, the oldest first, `now_sec` being the seconds since 1970.
    pub fn what_goes(self, folders: &BTreeMap<Date, Size>, now_sec: i64) -> Vec<Date> {
        let mut left: u128 = folders.values().map(|size| u128::from(size.bytes)).sum();
        let age_sec = self.age.map(|age| age.as_secs().cast_signed());
        let mut gone = Vec::new();
        for (date, size) in folders {
            let old_sec = now_sec - date.until_sec();
            let is_old = age_sec.is_some_and(|age_sec| old_sec >= age_sec);
            let is_too_much = self.bytes.is_some_and(|bytes| left > u128::from(bytes));
            let is_young = now_sec - date.since_sec() < YOUNG_SEC;
            if !is_young && (is_old || is_too_much) {
                left -= u128::from(size.bytes);
                gone.push(*date);
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::Stamp;

    fn minute(number: i64) -> Date {
        Date::minute(Stamp {
            sec: number * 60,
            nsec: 0,
        })
    }

    fn folders() -> BTreeMap<Date, Size> {
        let size = |bytes| Size { entries: 1, bytes };
        [(10, 100), (20, 10), (30, 1), (40, 5)]
            .into_iter()
            .map(|(number, bytes)| (minute(number), size(bytes)))
            .collect()
    }

    fn goes(age: Option<u64>, bytes: Option<u64>, now_minute: i64) -> Vec<Date> {
        let age = age.map(|minutes| Duration::from_secs(minutes * 60));
        Limits { age, bytes }.what_goes(&folders(), now_minute * 60)
    }

    #[test]
    fn the_old_goes_and_then_the_oldest_of_what_is_too_much() {
        let minutes = |numbers: &[i64]| numbers.iter().copied().map(minute).collect::<Vec<_>>();
        for (age, bytes, now, expected) in [
            (None, None, 1000, &[][..]),
            (Some(20), None, 30, &[]),
            (Some(20), None, 31, &[10]),
            (Some(20), None, 51, &[10, 20, 30]),
            (None, Some(116), 1000, &[]),
            (None, Some(115), 1000, &[10]),
            (None, Some(5), 1000, &[10, 20, 30]),
            (None, Some(0), 1000, &[10, 20, 30, 40]),
            // What is young stays, however much it is.
            (None, Some(0), 41, &[10, 20, 30]),
            (Some(0), None, 41, &[10, 20, 30]),
            (Some(0), None, 42, &[10, 20, 30, 40]),
            (Some(5), Some(10_000), 1000, &[10, 20, 30, 40]),
            (Some(20), Some(6), 31, &[10, 20]),
        ] {
            assert_eq!(
                goes(age, bytes, now),
                minutes(expected),
                "{age:?} {bytes:?} {now}"
            );
        }
    }

    #[test]
    fn sizes_beyond_all_bounds_do_not_wrap() {
        let most = Size {
            entries: 1,
            bytes: u64::MAX,
        };
        let folders = [(minute(1), most), (minute(2), most)].into();
        let limits = Limits {
            age: None,
            bytes: Some(1),
        };
        assert_eq!(limits.what_goes(&folders, 1_000_000).len(), 2);
    }
}
