//! Whether two times agree, where the replica's file system keeps less of a time than the source has.
//!
//! Lustre, ext4 with inodes of 128 bytes and sshfs keep whole seconds, FAT every second one, SMB 100 ns; most have a first and a last
//! second. The kernel cuts silently (`timestamp_truncate`, fs/inode.c), so that a copy never has its source's time. What an inode can
//! keep shows in its change time, which nobody sets: that has no nanoseconds where none are kept. So nothing has to be written to
//! find out, not even by a run that changes nothing.
//!
//! A coarse time vouches for less. Whatever was written in the same moment as the copy may hide behind it; there the content decides.

use driftless_model::{Meta, Stamp};

/// How the time of an entry stands to that of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// It is the same.
    Same,
    /// It is as much of it as can be kept there; or not further away than the user allows.
    Cut(Grain),
    /// The same, but something else could have the same time: the content has to decide, where there is any.
    Unsure(Grain),
    /// The source's lies before the first or after the last time that can be kept there: the time says nothing.
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
/// A change time that is a multiple of this is no accident: FAT keeps 10 ms of it where it keeps two seconds of the modification time.
const COARSE_NSEC: u32 = 1_000_000;
/// How far the clocks of two hosts are apart at most when they are told to agree.
const CLOCKS_SEC: u64 = 1;

/// The first seconds that file systems keep (`s_time_min` of their super blocks): NTFS, 32 bits with and without a sign.
const FIRST_SECONDS: [i64; 3] = [-11_644_473_600, i32::MIN as i64, 0];
/// The last ones: 32 bits with and without a sign, ext4, XFS.
const LAST_SECONDS: [i64; 4] = [i32::MAX as i64, u32::MAX as i64, 15_032_385_535, 16_299_260_424];
/// FAT keeps local time from 1980 to 2107; a zone is up to 14 hours from UTC.
const FAT_SECONDS: (i64, i64) = (315_532_800, 4_354_819_198);
const ZONES_SEC: u64 = 14 * 3600;

/// How the modification times of a pair agree; up to `window` seconds are no difference.
pub fn mtimes(source: &Meta, replica: &Meta, window: u32) -> Agreement {
    let hides = is_coarse(source) || is_coarse(replica);
    match agree(source.mtime, replica.mtime, replica.ctime) {
        Agreement::Same if hides && source.mtime.nsec == 0 && is_racy(replica) => Agreement::Unsure(Grain::Seconds),
        Agreement::Same => Agreement::Same,
        _ if window > 0 && is_within(source.mtime, replica.mtime, window) => Agreement::Cut(Grain::Seconds),
        Agreement::Cut(Grain::Seconds) if is_racy(replica) => Agreement::Unsure(Grain::Seconds),
        other => other,
    }
}

/// How the access times of a pair agree. They vouch for nothing.
pub fn atimes(source: &Meta, replica: &Meta, window: u32) -> Agreement {
    match agree(source.atime, replica.atime, replica.ctime) {
        Agreement::Unsure(grain) => Agreement::Cut(grain),
        Agreement::Other if window > 0 && is_within(source.atime, replica.atime, window) => Agreement::Cut(Grain::Seconds),
        other => other,
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
    if FINE_NSEC
        .iter()
        .any(|step| wanted.sec == kept.sec && cut(wanted.nsec, *step) == kept.nsec && changed.nsec.is_multiple_of(*step) && kept.nsec > 0)
    {
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

/// The copy was finished about when its source was written: what was written later in that second has the same time.
fn is_racy(replica: &Meta) -> bool {
    replica.ctime.sec.abs_diff(replica.mtime.sec) <= 1 + CLOCKS_SEC
}

fn is_out_of_range(wanted: Stamp, kept: Stamp, changed: Stamp) -> bool {
    let fat = !wanted.is_kept_everywhere() && changed.nsec.is_multiple_of(COARSE_NSEC);
    let near = |limit: i64| fat && kept.sec.abs_diff(limit) <= ZONES_SEC;
    let before = || FIRST_SECONDS.contains(&kept.sec) || near(FAT_SECONDS.0);
    let after = || LAST_SECONDS.contains(&kept.sec) || near(FAT_SECONDS.1);
    kept.nsec == 0 && (wanted.sec < kept.sec && before() || wanted.sec > kept.sec && after())
}

fn is_within(a: Stamp, b: Stamp, window_sec: u32) -> bool {
    let nsec = |stamp: Stamp| i128::from(stamp.sec) * i128::from(SECOND_NSEC) + i128::from(stamp.nsec);
    nsec(a).abs_diff(nsec(b)) <= u128::from(window_sec) * u128::from(SECOND_NSEC)
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
        Meta { kind, mode, uid, gid, size, blocks, mtime, atime, ctime, nlink, dev, ino, rdev }
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
            (stamp(old, 5), stamp(old, 0), fine, Other, "nanoseconds are kept here"),
            (stamp(old, 5), stamp(old, 0), whole, SECONDS, "whole seconds"),
            (stamp(old + 1, 5), stamp(old + 1, 0), whole, SECONDS, "whole seconds"),
            (stamp(old + 1, 5), stamp(old, 0), whole, DOUBT, "two seconds, or another second"),
            (stamp(old + 2, 5), stamp(old + 1, 0), whole, Other, "an odd second is no even one that was cut"),
            (stamp(old + 2, 0), stamp(old, 0), whole, Other, "two seconds later"),
            (stamp(old - 1, 7), stamp(old, 0), whole, DOUBT, "rounded up"),
            (stamp(old, 5), stamp(old, 0), stamp(2_000_000_000, 130_000_000), DOUBT, "FAT keeps 10 ms of change times"),
            (stamp(old, 123_456_789), stamp(old, 123_456_700), stamp(2, 700), FINE, "SMB"),
            (stamp(old, 123_456_789), stamp(old, 123_456_700), fine, Other, "SMB, on ext4"),
            (stamp(old, 127_456_789), stamp(old, 120_000_000), stamp(2, 50_000_000), FINE, "exFAT"),
            (stamp(-5, 500), stamp(-5, 0), whole, SECONDS, "before 1970"),
        ];
        for (source, replica, ctime, expected, case) in cases {
            assert_eq!(mtimes(&meta(source, fine), &meta(replica, ctime), 0), expected, "{case}");
        }
    }

    #[test]
    fn what_was_written_in_the_second_of_its_copy_is_in_doubt() {
        let at = |sec, nsec, changed| mtimes(&meta(stamp(sec, nsec), stamp(sec, 9)), &meta(stamp(sec, 0), stamp(changed, 0)), 0);
        assert_eq!(at(100, 5, 100), DOUBT);
        assert_eq!(at(100, 5, 102), DOUBT);
        assert_eq!(at(100, 5, 103), SECONDS);
        assert_eq!(at(100, 0, 100), DOUBT, "both on such a file system");
        assert_eq!(at(100, 0, 103), Same);
        let to_come = mtimes(&meta(stamp(900, 0), stamp(1, 0)), &meta(stamp(900, 0), stamp(1, 0)), 0);
        assert_eq!(to_come, Same, "a time that was set says nothing about when it was written");
    }

    #[test]
    fn a_time_beyond_the_last_one_is_out_of_range() {
        let fine = stamp(2_000_000_000, 1);
        let over = |source: i64, replica: i64, changed| mtimes(&meta(stamp(source, 3), fine), &meta(stamp(replica, 0), changed), 0);
        let of = |source, replica| over(source, replica, fine);
        assert_eq!(of(4_102_444_800, i32::MAX.into()), OutOfRange);
        assert_eq!(of(-5_364_662_400, i32::MIN.into()), OutOfRange);
        assert_eq!(of(99_000_000_000, 15_032_385_535), OutOfRange);
        assert_eq!(over(0, FAT_SECONDS.0 - 3600, stamp(2_000_000_000, 0)), OutOfRange, "FAT in another zone");
        assert_eq!(of(0, FAT_SECONDS.0), Other, "a time of 1980 on ext4");
        assert_eq!(of(1_000_000_000, FAT_SECONDS.0), Other, "FAT could keep it");
        assert_eq!(of(1_000_000_000, i32::MAX.into()), Other);
        assert_eq!(of(4_102_444_800, 4_102_444_700), Other);
    }

    #[test]
    fn a_window_makes_near_times_equal() {
        let fine = stamp(2_000_000_000, 1);
        let of = |window| mtimes(&meta(stamp(100, 5), fine), &meta(stamp(98, 5), fine), window);
        assert_eq!([of(0), of(1), of(2)], [Other, Other, SECONDS]);
    }
}
