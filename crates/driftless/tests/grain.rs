//! Replicas that keep less of a time than the source has.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_accounts, check_settled, driftless, put, sync, sync_ok};
use driftless_testkit::{FsKind, Outcome, Scratch, snapshot_hash};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];

/// A source that keeps nanoseconds, and a replica on ext4 with inodes of 128 bytes: whole seconds from 1901 to 2038.
struct Stage {
    _source: Scratch,
    _replica: Scratch,
    src: PathBuf,
    dst: PathBuf,
}

fn stage() -> Stage {
    let source = Scratch::new(FsKind::Tmpfs, 16);
    let replica = Scratch::formatted(&["mkfs.ext4", "-q", "-F", "-I", "128"], 16);
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    Stage { src, dst, _source: source, _replica: replica }
}

fn set_time(path: &Path, sec: i64, nsec: i64) {
    let times =
        Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: Timespec { tv_sec: sec, tv_nsec: nsec } };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("utimensat");
}

/// Odd and even seconds with nanoseconds, a directory, a symbolic link, all long before any copy.
fn plant(src: &Path) {
    put(&src.join("dir/odd"), "odd");
    put(&src.join("even"), "even");
    std::os::unix::fs::symlink("even", src.join("link")).expect("symlink");
    for (number, name) in ["dir/odd", "dir", "even", "link", "."].into_iter().enumerate() {
        set_time(&src.join(name), 1_500_000_001 + number as i64, 123_456_789);
    }
}

fn problems(outcome: &Outcome) -> Vec<String> {
    let mut told: Vec<String> =
        outcome.events_named("problem").iter().map(|p| format!("{} {} {}", p["path"], p["act"], p["class"])).collect();
    told.sort();
    told
}

#[test]
fn times_that_the_replica_cuts_count_as_equal_and_that_is_said() {
    let stage = stage();
    plant(&stage.src);
    let _ = sync_ok(&stage.src, &stage.dst, NONE);
    check_settled(&stage.src, &stage.dst, NONE);
    let again = sync_ok(&stage.src, &stage.dst, NONE);
    assert_eq!([again.count("times_cut"), again.count("times_cut_to_seconds"), again.count("bytes_compared")], [5, 5, 0]);
    let words = driftless().arg("sync").args([&stage.src, &stage.dst]).run().expect(0).stdout_text();
    assert!(words.contains("5 times were compared as the replica keeps them, to the second"), "{words}");
    for command in [&["verify"][..], &["verify", "--level=meta"], &["audit", "--samples=100", "--grace=0"]] {
        let _ = driftless().args(command).args([&stage.src, &stage.dst]).run().expect(0);
    }
}

#[test]
fn another_second_is_another_time_on_a_replica_that_keeps_seconds() {
    let stage = stage();
    plant(&stage.src);
    let _ = sync_ok(&stage.src, &stage.dst, NONE);
    put(&stage.src.join("even"), "EVEN");
    set_time(&stage.src.join("even"), 1_500_000_004, 0);
    let _ = sync_ok(&stage.src, &stage.dst, NONE);
    assert_eq!(std::fs::read(stage.dst.join("even")).expect("read"), b"EVEN");
}

#[test]
fn a_file_written_in_the_second_of_its_copy_has_its_content_compared() {
    let stage = stage();
    put(&stage.src.join("file"), "one");
    let _ = sync_ok(&stage.src, &stage.dst, NONE);
    let copied = std::fs::metadata(stage.dst.join("file")).expect("stat").ctime();
    for path in [&stage.src, &stage.dst] {
        set_time(&path.join("file"), copied, 0);
    }
    put(&stage.src.join("file"), "two");
    set_time(&stage.src.join("file"), copied, 999);
    let outcome = sync_ok(&stage.src, &stage.dst, NONE);
    assert_eq!(std::fs::read(stage.dst.join("file")).expect("read"), b"two", "{}", outcome.describe());
}

#[test]
fn a_window_counts_near_times_as_equal() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    plant(&src);
    let _ = sync_ok(&src, &dst, NONE);
    set_time(&dst.join("even"), 1_500_000_005, 123_456_789);
    let near = sync_ok(&src, &dst, ["--modify-window=2", "--dry-run"]);
    assert_eq!([near.count("changed"), near.count("times_cut_to_seconds")], [0, 1]);
    let _ = driftless().args(["verify", "--modify-window=2"]).args([&src, &dst]).run().expect(0);
    let _ = driftless().args(["verify", "--modify-window=1"]).args([&src, &dst]).run().expect(4);
}

#[test]
fn times_out_of_the_replicas_range_are_problems_and_the_content_decides() {
    let stage = stage();
    plant(&stage.src);
    put(&stage.src.join("late"), "late");
    set_time(&stage.src.join("late"), 4_102_444_800, 5);
    std::os::unix::fs::symlink("x", stage.src.join("early")).expect("symlink");
    set_time(&stage.src.join("early"), -5_364_662_400, 5);
    set_time(&stage.src.join("dir"), 4_102_444_800, 5);
    set_time(&stage.src, 1_500_000_000, 5);
    let expected = ["dir", "early", "late"].map(|path| format!("\"{path}\" \"set its times\" \"partly\""));
    let first = sync(&stage.src, &stage.dst).run().expect(3);
    check_accounts(&first);
    assert_eq!(problems(&first), expected);
    let before = snapshot_hash(&stage.dst, true);
    let second = sync(&stage.src, &stage.dst).run().expect(3);
    check_accounts(&second);
    assert_eq!(problems(&second), expected);
    assert_eq!([second.count("changed"), second.count("bytes_compared")], [0, 4], "{}", second.describe());
    assert_eq!(snapshot_hash(&stage.dst, true), before, "a second run touched the replica");
    put(&stage.src.join("late"), "LATE");
    set_time(&stage.src.join("late"), 4_102_444_800, 5);
    let _ = sync(&stage.src, &stage.dst).run().expect(3);
    assert_eq!(std::fs::read(stage.dst.join("late")).expect("read"), b"LATE");
}
