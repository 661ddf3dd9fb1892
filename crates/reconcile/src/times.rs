//! Whether two times agree, where the replica's file system keeps less of a time than the source
//! has.
//!
//! Lustre, ext4 with inodes of 128 bytes and sshfs keep whole seconds, FAT every second one, SMB
//! 100 ns; most have a first and a last second. The kernel cuts silently (`timestamp_truncate`,
//! fs/inode.c), so that a copy never has its source's time. What an inode can keep shows in its
//! change time, which nobody sets: that has no nanoseconds where none are kept. So nothing has to
//! be written to find out, not even by a run that changes nothing. The first and the last second
//! show nowhere: a time that stands there may have been set. So it is tried whether another can be,
//! once in a run.
//!
//! A coarse time vouches for less. Whatever was written in the same moment as the copy may hide
//! behind it; there the content decides. And a file is read only when its moment is over
//! ([`ripens_in`]): from then on, whatever is written to it shows in its time.

use driftless_model::{Meta, Stamp};
use std::time::Duration;

/// How the time of an entry stands to that of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// It is the same.
    Same,
    /// It is as much of it as can be kept there; or not further away than the user allows.
    Cut(Grain),
    /// Equal times, but something else could have the same time: the content has to decide, where
    /// there is any.
    Unsure(Grain),
    /// The source's may lie before the first or after the last time that can be kept there: the time
    /// says nothing.
    OutOfRange,
    /// It is another one.
    Other,
}

/// In which steps times are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// Parts of a second, but not every nanosecond.
    Fine,
    /// Whole seconds, or more.
    Seconds,
}

const SECOND_NSEC: u32 = 1_000_000_000;
/// Steps below a second: SMB and NTFS, UDF, servers that count milliseconds, exFAT.
const FINE_NSEC: [u32; 4] = [100, 1_000, 1_000_000, 10_000_000];
/// A change time that is a multiple of this is no accident: FAT keeps 10 ms of it where it keeps
/// two seconds of the modification time.
const COARSE_NSEC: u32 = 1_000_000;
/// How far the clocks of two hosts are apart at most when they are told to agree.
const CLOCKS_SEC: u32 = 1;
/// How many seconds later what was written may still have the time that it had: that of its own
/// second, or of the two of FAT.
const RACY_SEC: u32 = 1 + CLOCKS_SEC;

/// Two ticks of the slowest clock that kernels stamp times with (jiffies, at 100 Hz): all that is
/// written within one has one time.
const TICKS_NSEC: i128 = 20_000_000;
/// What a time must be less than another for no file system and no clock to take them for one,
/// beside what the user takes for one.
const APART_SEC: i64 = 10;
/// How much less it is at least, so that runs of other windows, which are a day at most, see it,
/// too.
const HELD_BACK_SEC: i64 = 2 * 86_400;
/// FAT keeps local time from 1980 to 2107; a zone is up to 14 hours from UTC.
const FAT_SECONDS: (i64, i64) = (315_532_800, 4_354_819_198);
const ZONES_SEC: u64 = 14 * 3600;

/// How the modification times of a pair agree; up to `window` seconds are no difference.
pub fn mtimes(source: &Meta, replica: &Meta, window: u32) -> Agreement {
    let hides = is_coarse(source) || is_coarse(replica);
    match agree(source.mtime, replica.mtime, replica.ctime) {
        Agreement::Same if hides && source.mtime.nsec == 0 && is_racy(replica) => {
            Agreement::Unsure(Grain::Seconds)
        }
        Agreement::Same => Agreement::Same,
        _ if window > 0 && is_within(source.mtime, replica.mtime, window) => {
            Agreement::Cut(Grain::Seconds)
        }
        Agreement::Cut(Grain::Seconds) if is_racy(replica) => Agreement::Unsure(Grain::Seconds),
        other => other,
    }
}

/// How the access times of a pair agree. They vouch for nothing.
pub fn atimes(source: &Meta, replica: &Meta, window: u32) -> Agreement {
    match agree(source.atime, replica.atime, replica.ctime) {
        Agreement::Unsure(grain) => Agreement::Cut(grain),
        Agreement::Other if window > 0 && is_within(source.atime, replica.atime, window) => {
            Agreement::Cut(Grain::Seconds)
        }
        other => other,
    }
}

/// How long to leave a file alone until whatever is written to it gets another time than it has
/// now: on the source, and as the file system of the replica's directory `place` keeps it. `None`
/// if that is so already, or if its time was set to one that is far ahead.
pub fn ripens_in(source: &Meta, place: &Meta, now: Stamp) -> Option<Duration> {
    let age = nsec(now) - nsec(source.mtime);
    let second = i128::from(SECOND_NSEC);
    if !(-second * i128::from(CLOCKS_SEC)..=second * i128::from(RACY_SEC + 1)).contains(&age) {
        return None;
    }
    let counts_seconds = source.mtime.nsec == 0 && source.ctime.nsec.is_multiple_of(COARSE_NSEC);
    let ripe = if counts_seconds || place.ctime.nsec.is_multiple_of(COARSE_NSEC) {
        i128::from(source.mtime.sec + i64::from(RACY_SEC) + 1) * second
    } else {
        nsec(source.mtime) + TICKS_NSEC
    };
    let left = u64::try_from(ripe - nsec(now))
        .ok()
        .filter(|left| *left > 0);
    left.map(Duration::from_nanos)
}

/// Returns whether the file system of a directory may keep less of a time than nanoseconds, as the
/// directory's change time shows.
pub fn may_cut(place: &Meta) -> bool {
    place.ctime.nsec.is_multiple_of(FINE_NSEC[0])
}

/// Returns to which multiple of nanoseconds the time `wanted` was cut, which an entry was given;
/// `None` if it was not.
pub fn step_of(wanted: Stamp, entry: &Meta) -> Option<u32> {
    let (kept, changed) = (entry.mtime.nsec, entry.ctime.nsec);
    match agree(wanted, entry.mtime, entry.ctime) {
        Agreement::Cut(Grain::Fine) => FINE_NSEC
            .into_iter()
            .find(|step| cut(wanted.nsec, *step) == kept && changed.is_multiple_of(*step)),
        Agreement::Cut(Grain::Seconds) | Agreement::Unsure(Grain::Seconds) => Some(SECOND_NSEC),
        _ => None,
    }
}

/// Returns whether an entry has the modification time that it was given, as far as its file system
/// keeps that.
pub fn is_kept(wanted: Stamp, entry: &Meta) -> bool {
    agree(wanted, entry.mtime, entry.ctime) != Agreement::Other
}

/// A time that no copy of what has the time `mtime` is taken to be equal with, where up to `window`
/// seconds are no difference.
pub fn held_back(mtime: Stamp, window: u32) -> Stamp {
    let by = HELD_BACK_SEC.max(i64::from(window) + APART_SEC);
    Stamp {
        sec: mtime.sec.saturating_sub(by),
        ..mtime
    }
}

/// What became of `wanted` on a file system that gave an inode the change time `changed`.
fn agree(wanted: Stamp, kept: Stamp, changed: Stamp) -> Agreement {
    if wanted == kept {
        return Agreement::Same;
    }
    if is_out_of_range(wanted, kept, changed) {
        return Agreement::OutOfRange;
    }
    if FINE_NSEC.iter().any(|step| {
        wanted.sec == kept.sec
            && cut(wanted.nsec, *step) == kept.nsec
            && changed.nsec.is_multiple_of(*step)
            && kept.nsec > 0
    }) {
        return Agreement::Cut(Grain::Fine);
    }
    if kept.nsec != 0 || !changed.nsec.is_multiple_of(COARSE_NSEC) {
        return Agreement::Other;
    }
    let two_seconds = kept.sec % 2 == 0 && (kept.sec - 2..=kept.sec + 1).contains(&wanted.sec);
    match () {
        () if wanted.sec == kept.sec && changed.nsec == 0 => Agreement::Cut(Grain::Seconds),
        () if wanted.sec == kept.sec || two_seconds => Agreement::Unsure(Grain::Seconds),
        () => Agreement::Other,
    }
}

fn cut(nsec: u32, step: u32) -> u32 {
    nsec - nsec % step
}

/// Nothing in these times is finer than a second.
fn is_coarse(meta: &Meta) -> bool {
    meta.ctime.nsec == 0 && meta.mtime.nsec == 0
}

/// The copy was finished about when its source was written: what was written later in that second
/// has the same time.
fn is_racy(replica: &Meta) -> bool {
    replica.ctime.sec.abs_diff(replica.mtime.sec) <= u64::from(RACY_SEC)
}

fn is_out_of_range(wanted: Stamp, kept: Stamp, changed: Stamp) -> bool {
    let fat = !wanted.is_kept_everywhere() && changed.nsec.is_multiple_of(COARSE_NSEC);
    let near = |limit: i64| fat && kept.sec.abs_diff(limit) <= ZONES_SEC;
    let of_fat = || match wanted.sec < kept.sec {
        true => near(FAT_SECONDS.0),
        false => wanted.sec > kept.sec && near(FAT_SECONDS.1),
    };
    wanted.is_beyond(kept) || kept.nsec == 0 && of_fat()
}

fn is_within(a: Stamp, b: Stamp, window_sec: u32) -> bool {
    nsec(a).abs_diff(nsec(b)) <= u128::from(window_sec) * u128::from(SECOND_NSEC)
}

fn nsec(stamp: Stamp) -> i128 {
    i128::from(stamp.sec) * i128::from(SECOND_NSEC) + i128::from(stamp.nsec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Agreement::{Cut, Other, OutOfRange, Same, Unsure};
    use driftless_model::Kind;

    fn stamp(sec: i64, nsec: u32) -> Stamp {
        Stamp { sec, nsec }
    }

    fn meta(mtime: Stamp, ctime: Stamp) -> Meta {
        let (kind, atime) = (Kind::File, mtime);
        let (mode, uid, gid, size, blocks, nlink, dev, ino, rdev) = (0o644, 0, 0, 7, 8, 1, 1, 1, 0);
        Meta {
            kind,
            mode,
            uid,
            gid,
            size,
            blocks,
            mtime,
            atime,
            ctime,
            nlink,
            dev,
            ino,
            rdev,
            unkept: driftless_model::Unkept::NONE,
        }
    }

    const FINE: Agreement = Cut(Grain::Fine);
    const SECONDS: Agreement = Cut(Grain::Seconds);
    const DOUBT: Agreement = Unsure(Grain::Seconds);

    #[test]
    fn a_time_that_was_cut_agrees_where_the_inode_keeps_no_more() {
        let old = 1_000_000_000;
        let (whole, fine) = (stamp(2_000_000_000, 0), stamp(2_000_000_000, 123_456_789));
        let cases = [
            (stamp(old, 5), stamp(old, 5), fine, Same, "equal"),
            (
                stamp(old, 5),
                stamp(old, 0),
                fine,
                Other,
                "nanoseconds are kept here",
            ),
            (
                stamp(old, 5),
                stamp(old, 0),
                whole,
                SECONDS,
                "whole seconds",
            ),
            (
                stamp(old + 1, 5),
                stamp(old + 1, 0),
                whole,
                SECONDS,
                "whole seconds",
            ),
            (
                stamp(old + 1, 5),
                stamp(old, 0),
                whole,
                DOUBT,
                "two seconds, or another second",
            ),
            (
                stamp(old + 2, 5),
                stamp(old + 1, 0),
                whole,
                Other,
                "an odd second is no even one that was cut",
            ),
            (
                stamp(old + 2, 0),
                stamp(old, 0),
                whole,
                Other,
                "two seconds later",
            ),
            (stamp(old - 1, 7), stamp(old, 0), whole, DOUBT, "rounded up"),
            (
                stamp(old, 5),
                stamp(old, 0),
                stamp(2_000_000_000, 130_000_000),
                DOUBT,
                "FAT keeps 10 ms of change times",
            ),
            (
                stamp(old, 123_456_789),
                stamp(old, 123_456_700),
                stamp(2, 700),
                FINE,
                "SMB",
            ),
            (
                stamp(old, 123_456_789),
                stamp(old, 123_456_700),
                fine,
                Other,
                "SMB, on ext4",
            ),
            (
                stamp(old, 127_456_789),
                stamp(old, 120_000_000),
                stamp(2, 50_000_000),
                FINE,
                "exFAT",
            ),
            (stamp(-5, 500), stamp(-5, 0), whole, SECONDS, "before 1970"),
        ];
        for (source, replica, ctime, expected, case) in cases {
            assert_eq!(
                mtimes(&meta(source, fine), &meta(replica, ctime), 0),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn what_was_written_in_the_second_of_its_copy_is_in_doubt() {
        let at = |sec, nsec, changed| {
            mtimes(
                &meta(stamp(sec, nsec), stamp(sec, 9)),
                &meta(stamp(sec, 0), stamp(changed, 0)),
                0,
            )
        };
        assert_eq!(at(100, 5, 100), DOUBT);
        assert_eq!(at(100, 5, 102), DOUBT);
        assert_eq!(at(100, 5, 103), SECONDS);
        assert_eq!(at(100, 0, 100), DOUBT, "both on such a file system");
        assert_eq!(at(100, 0, 103), Same);
        let to_come = mtimes(
            &meta(stamp(900, 0), stamp(1, 0)),
            &meta(stamp(900, 0), stamp(1, 0)),
            0,
        );
        assert_eq!(
            to_come, Same,
            "a time that was set says nothing about when it was written"
        );
    }

    #[test]
    fn a_time_beyond_the_last_one_is_out_of_range() {
        let fine = stamp(2_000_000_000, 1);
        let over = |source: i64, replica: i64, changed| {
            mtimes(
                &meta(stamp(source, 3), fine),
                &meta(stamp(replica, 0), changed),
                0,
            )
        };
        let of = |source, replica| over(source, replica, fine);
        assert_eq!(of(4_102_444_800, i32::MAX.into()), OutOfRange);
        assert_eq!(of(-5_364_662_400, i32::MIN.into()), OutOfRange);
        assert_eq!(of(99_000_000_000, 15_032_385_535), OutOfRange);
        assert_eq!(
            over(0, FAT_SECONDS.0 - 3600, stamp(2_000_000_000, 0)),
            OutOfRange,
            "FAT in another zone"
        );
        assert_eq!(of(0, FAT_SECONDS.0), Other, "a time of 1980 on ext4");
        assert_eq!(of(1_000_000_000, FAT_SECONDS.0), Other, "FAT could keep it");
        assert_eq!(of(1_000_000_000, i32::MAX.into()), Other);
        assert_eq!(of(4_102_444_800, 4_102_444_700), Other);
    }

    #[test]
    fn a_window_makes_near_times_equal() {
        let fine = stamp(2_000_000_000, 1);
        let of = |window| {
            mtimes(
                &meta(stamp(100, 5), fine),
                &meta(stamp(98, 5), fine),
                window,
            )
        };
        assert_eq!([of(0), of(1), of(2)], [Other, Other, SECONDS]);
    }

    #[test]
    fn a_file_is_ripe_when_what_is_written_to_it_gets_another_time() {
        const MS: u32 = 1_000_000;
        let (fine, whole) = (stamp(100, 1), stamp(100, 0));
        let left = |source: (Stamp, Stamp), place, now| {
            ripens_in(&meta(source.0, source.1), &meta(place, place), now)
        };
        let ms = |ms| Some(Duration::from_millis(ms));
        let at = stamp(100, 500 * MS + 1);
        let cases = [
            (
                (at, fine),
                fine,
                stamp(100, 500 * MS + 1),
                ms(20),
                "two ticks",
            ),
            (
                (at, fine),
                fine,
                stamp(100, 515 * MS + 1),
                ms(5),
                "what is left of them",
            ),
            (
                (at, fine),
                fine,
                stamp(100, 520 * MS + 1),
                None,
                "they are over",
            ),
            (
                (at, fine),
                fine,
                stamp(99, 900 * MS + 1),
                ms(620),
                "the server's clock is ahead",
            ),
            (
                (at, fine),
                fine,
                stamp(99, 400 * MS),
                None,
                "a time that was set",
            ),
            ((at, fine), fine, stamp(200, 0), None, "old"),
            (
                (at, fine),
                whole,
                stamp(100, 700 * MS),
                ms(2300),
                "the replica keeps seconds",
            ),
            (
                (at, fine),
                stamp(9, 30 * MS),
                stamp(102, 0),
                ms(1000),
                "the replica is FAT",
            ),
            (
                (whole, whole),
                fine,
                stamp(100, 700 * MS),
                ms(2300),
                "the source keeps seconds",
            ),
            (
                (whole, whole),
                fine,
                stamp(103, 0),
                None,
                "the second is over, by any clock",
            ),
            (
                (whole, fine),
                fine,
                stamp(101, 0),
                None,
                "a whole second that was set",
            ),
        ];
        for (source, place, now, expected, case) in cases {
            assert_eq!(left(source, place, now), expected, "{case}");
        }
    }

    #[test]
    fn what_is_ripe_and_then_copied_is_in_no_doubt() {
        let at = stamp(100, 0);
        for sec in 99..110 {
            let copied = |ctime| mtimes(&meta(at, at), &meta(at, ctime), 0);
            if ripens_in(&meta(at, at), &meta(at, at), stamp(sec, 0)).is_none() && sec > 100 {
                assert_eq!(copied(stamp(sec, 0)), Same, "{sec}");
            }
        }
    }

    #[test]
    fn a_time_that_is_held_back_is_another_one() {
        for (sec, ctime) in [
            (100, stamp(100, 0)),
            (101, stamp(101, 10_000_000)),
            (100, stamp(100, 1)),
        ] {
            let at = stamp(sec, 7);
            for window in [0, 2, 10, 3600, 86_400, 1_000_000] {
                let cut = stamp(held_back(at, window).sec, 0);
                assert_eq!(
                    mtimes(&meta(at, at), &meta(cut, ctime), window),
                    Other,
                    "{window}"
                );
            }
            let cut = stamp(held_back(at, 0).sec, 0);
            for window in [3600, 86_400] {
                assert_eq!(
                    mtimes(&meta(at, at), &meta(cut, ctime), window),
                    Other,
                    "the next run has another window"
                );
            }
        }
    }
}
