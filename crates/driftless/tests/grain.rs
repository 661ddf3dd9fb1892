//! Replicas that keep less of a time than the source has.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_accounts, check_settled, on_trees, only_local, put, sync, sync_ok};
use driftless_testkit::{EVENT_MAX, FsKind, Fuse, Mood, Outcome, Running, Scratch, snapshot_hash};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NONE: [&str; 0] = [];

/// A source that keeps nanoseconds, and a replica on ext4 with inodes of 128 bytes: whole seconds
/// from 1901 to 2038.
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
    Stage {
        src,
        dst,
        _source: source,
        _replica: replica,
    }
}

fn set_time(path: &Path, sec: i64, nsec: i64) {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: sec,
            tv_nsec: nsec,
        },
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("utimensat");
}

/// Odd and even seconds with nanoseconds, a directory, a symbolic link, all long before any copy.
fn plant(src: &Path) {
    put(&src.join("dir/odd"), "odd");
    put(&src.join("even"), "even");
    std::os::unix::fs::symlink("even", src.join("link")).expect("symlink");
    for (number, name) in ["dir/odd", "dir", "even", "link", "."]
        .into_iter()
        .enumerate()
    {
        set_time(&src.join(name), 1_500_000_001 + number as i64, 123_456_789);
    }
}

fn problems(outcome: &Outcome) -> Vec<String> {
    let mut told: Vec<String> = outcome
        .events_named("problem")
        .iter()
        .map(|p| format!("{} {} {}", p["path"], p["act"], p["class"]))
        .collect();
    told.sort();
    told
}

#[test]
fn times_that_the_replica_cuts_count_as_equal_and_that_is_said() {
    let stage = stage();
    plant(&stage.src);
    let first = sync(&stage.src, &stage.dst).arg("--strict").run().expect(3);
    assert_eq!(first.count("times_cut_to_seconds"), 5);
    check_settled(&stage.src, &stage.dst, NONE);
    let again = sync_ok(&stage.src, &stage.dst, NONE);
    assert_eq!(
        [
            again.count("times_cut"),
            again.count("times_cut_to_seconds"),
            again.count("bytes_compared")
        ],
        [5, 5, 0]
    );
    let _ = sync(&stage.src, &stage.dst).arg("--strict").run().expect(3);
    let words = on_trees("sync", &stage.src, &stage.dst)
        .run()
        .expect(0)
        .stdout_text();
    assert!(
        words.contains("5 times agree as far as the replica keeps them, to the second"),
        "{words}"
    );
    for command in [
        &["verify"][..],
        &["verify", "--level=meta"],
        &["audit", "--samples=100", "--grace=0"],
    ] {
        let _ = on_trees(command[0], &stage.src, &stage.dst)
            .args(&command[1..])
            .run()
            .expect(0);
    }
}

#[test]
fn one_time_is_told_as_one() {
    let stage = stage();
    put(&stage.src.join("file"), "content");
    set_time(&stage.src.join("file"), 1_500_000_001, 5);
    set_time(&stage.src, 1_500_000_000, 0);
    let _ = sync_ok(&stage.src, &stage.dst, NONE);
    let words = on_trees("sync", &stage.src, &stage.dst)
        .run()
        .expect(0)
        .stdout_text();
    assert!(
        words.contains("; 1 time agrees as far as the replica keeps it, to the second"),
        "{words}"
    );
}

#[test]
fn another_second_is_another_time_on_a_replica_that_keeps_seconds() {
    let stage = stage();
    plant(&stage.src);
    let _ = sync_ok(&stage.src, &stage.dst, NONE);
    put(&stage.src.join("even"), "EVEN");
    set_time(&stage.src.join("even"), 1_500_000_004, 0);
    let _ = sync_ok(&stage.src, &stage.dst, NONE);
    assert_eq!(
        std::fs::read(stage.dst.join("even")).expect("read"),
        b"EVEN"
    );
}

#[test]
fn a_file_written_in_the_second_of_its_copy_has_its_content_compared() {
    let stage = stage();
    put(&stage.src.join("file"), "one");
    let _ = sync_ok(&stage.src, &stage.dst, NONE);
    let copied = std::fs::metadata(stage.dst.join("file"))
        .expect("stat")
        .ctime();
    for path in [&stage.src, &stage.dst] {
        set_time(&path.join("file"), copied, 0);
    }
    put(&stage.src.join("file"), "two");
    set_time(&stage.src.join("file"), copied, 999);
    let outcome = sync_ok(&stage.src, &stage.dst, NONE);
    assert_eq!(
        std::fs::read(stage.dst.join("file")).expect("read"),
        b"two",
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_window_counts_near_times_as_equal() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    plant(&src);
    let _ = sync_ok(&src, &dst, NONE);
    set_time(&dst.join("even"), 1_500_000_005, 123_456_789);
    let near = sync_ok(&src, &dst, ["--modify-window=2", "--dry-run"]);
    assert_eq!(
        [near.count("changed"), near.count("times_cut_to_seconds")],
        [0, 1]
    );
    let _ = on_trees("verify", &src, &dst)
        .arg("--modify-window=2")
        .run()
        .expect(0);
    let _ = on_trees("verify", &src, &dst)
        .arg("--modify-window=1")
        .run()
        .expect(4);
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
    let expected =
        ["dir", "early", "late"].map(|path| format!("\"{path}\" \"set its times\" \"partly\""));
    let first = sync(&stage.src, &stage.dst).run().expect(3);
    check_accounts(&first);
    assert_eq!(problems(&first), expected);
    // That it is tried shows in the time of change.
    let before = snapshot_hash(&stage.dst, false);
    let second = sync(&stage.src, &stage.dst).run().expect(3);
    check_accounts(&second);
    assert_eq!(problems(&second), expected);
    assert_eq!(
        [second.count("changed"), second.count("bytes_compared")],
        [0, 4],
        "{}",
        second.describe()
    );
    assert_eq!(
        snapshot_hash(&stage.dst, false),
        before,
        "a second run changed the replica"
    );
    put(&stage.src.join("late"), "LATE");
    set_time(&stage.src.join("late"), 4_102_444_800, 5);
    let _ = sync(&stage.src, &stage.dst).run().expect(3);
    assert_eq!(
        std::fs::read(stage.dst.join("late")).expect("read"),
        b"LATE"
    );
}

#[test]
fn a_time_that_is_the_last_of_some_file_system_is_set_where_another_can_be() {
    let replica = Scratch::new(FsKind::Btrfs, 200);
    let source = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    let ends = [
        (-5, 0),
        (5_000_000_000, 2_147_483_647),
        (5_000_000_000, 4_294_967_295),
    ];
    let entries = ["dir", "dir/file", "empty", "link", "name", "other name"];
    for (wanted, there) in ends {
        put(&src.join("dir/file"), "content");
        put(&src.join("empty"), "");
        put(&src.join("name"), "content");
        let _ = std::fs::hard_link(src.join("name"), src.join("other name"));
        let _ = std::os::unix::fs::symlink("empty", src.join("link"));
        let _ = sync_ok(&src, &dst, NONE);
        for name in entries.into_iter().rev().chain(["."]) {
            set_time(&src.join(name), wanted, 0);
            set_time(&dst.join(name), there, 0);
        }
        let outcome = sync_ok(&src, &dst, NONE);
        assert_eq!(problems(&outcome), Vec::<String>::new());
        for name in entries.into_iter().chain(["."]) {
            let now = dst.join(name).symlink_metadata().expect("there").mtime();
            assert_eq!(now, wanted, "{name}");
        }
        check_settled(&src, &dst, NONE);
    }
}

#[test]
fn whether_a_time_can_be_kept_is_tried_once_in_a_run() {
    only_local!("counts calls of one process");
    let stage = stage();
    for number in 0..20 {
        let path = stage.src.join(format!("late{number}"));
        put(&path, "late");
        set_time(&path, 4_102_444_800, 5);
    }
    set_time(&stage.src, 1_500_000_000, 0);
    let _ = sync(&stage.src, &stage.dst).run().expect(3);
    let log = tempfile::NamedTempFile::new().expect("a file");
    let written = log.path().to_str().expect("text");
    let outcome = sync(&stage.src, &stage.dst)
        .arg("--jobs=1")
        .through([
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=utimensat",
            "-o",
            written,
            "--",
        ])
        .run()
        .expect(3);
    assert_eq!(problems(&outcome).len(), 20);
    let calls = std::fs::read_to_string(log.path()).expect("a log");
    let of_files = calls.lines().filter(|line| line.contains("4102444800"));
    assert_eq!(of_files.count(), 1, "{calls}");
}

/// How often a test tries to be quick enough.
const TRIES: u32 = 40;

/// Seconds and nanoseconds since 1970.
fn now() -> (i64, u32) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    (now.as_secs().cast_signed(), now.subsec_nanos())
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < EVENT_MAX, "never {what}");
        std::hint::spin_loop();
    }
}

/// Writes a file that begins with `before`, has a run begin, and writes `after.` over that when the
/// run has read it, or waits: all in one second. `None` if that was not quick enough.
fn written_twice_in_a_second(
    file: &Path,
    rest: usize,
    begin: impl FnOnce() -> Running,
) -> Option<Outcome> {
    // The clock that stamps files is up to a tick late.
    wait_until("early in a second", || {
        (20_000_000..70_000_000).contains(&now().1)
    });
    let second = now().0;
    put(file, [&b"before"[..], &vec![7; rest]].concat());
    let running = begin();
    wait_until("late in the second", || {
        running.ends_within(Duration::from_millis(5)) || now() >= (second, 600_000_000)
    });
    put_in_place(file, b"after.");
    let outcome = running.wait();
    (std::fs::metadata(file).expect("stat").mtime() == second).then_some(outcome)
}

fn put_in_place(file: &Path, content: &[u8]) {
    std::fs::OpenOptions::new()
        .write(true)
        .open(file)
        .expect("open")
        .write_all_at(content, 0)
        .expect("write");
}

#[test]
fn a_file_written_again_in_its_second_after_it_was_copied_to_whole_seconds_is_copied_in_the_end() {
    let stage = stage();
    let (file, copy) = (stage.src.join("file"), stage.dst.join("file"));
    let begin = || sync(&stage.src, &stage.dst).spawn();
    let first = (0..TRIES)
        .find_map(|_| written_twice_in_a_second(&file, 0, begin))
        .expect("quick enough once")
        .expect(0);
    // Whatever changes the copy's change time later says nothing of when its source was read.
    let written = std::fs::metadata(&file).expect("stat").mtime();
    wait_until("some seconds later", || now().0 > written + 4);
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    let second = sync_ok(&stage.src, &stage.dst, NONE);
    assert_eq!(
        std::fs::read(&copy).expect("read"),
        b"after.",
        "{}\n{}",
        first.describe(),
        second.describe()
    );
}

#[test]
fn a_file_of_whole_seconds_written_again_while_its_long_copy_begins_is_copied_in_the_end() {
    let (source, replica) = (
        Fuse::mount(Mood::whole_seconds()),
        Scratch::new(FsKind::Tmpfs, 64),
    );
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    let file = src.join("file");
    // So slow that it ends when its source's second is long over.
    let begin = || sync(&src, &dst).arg("--bwlimit=1M").spawn();
    let first = (0..TRIES)
        .find_map(|_| written_twice_in_a_second(&file, 4 << 20, begin))
        .expect("quick enough once")
        .expect(0);
    let second = sync_ok(&src, &dst, NONE);
    let copied = std::fs::read(dst.join("file")).expect("read");
    assert_eq!(
        &copied[..6],
        b"after.",
        "{}\n{}",
        first.describe(),
        second.describe()
    );
}

#[test]
fn a_file_written_again_within_one_tick_after_it_was_copied_is_copied_in_the_end() {
    const TICK: u32 = 10_000_000;
    let (source, replica) = (
        Fuse::mount(Mood {
            grain_ns: TICK.into(),
            ..Mood::healthy()
        }),
        Scratch::new(FsKind::Tmpfs, 16),
    );
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    let file = src.join("file");
    // A clock a little ahead leaves the time for a run before the tick.
    let written = || {
        // One that is further ahead than a second was set on purpose.
        wait_until("in a second", || {
            (100_000_000..700_000_000).contains(&now().1)
        });
        put(&file, "before");
        let (second, _) = now();
        set_time(&file, second + 1, TICK.into());
        let running = sync(&src, &dst).spawn();
        // The clock that stamps files is late by up to a tick of the kernel's.
        wait_until("in the middle of that tick", || {
            now() >= (second + 1, TICK + TICK / 2)
        });
        put_in_place(&file, b"after.");
        let outcome = running.wait();
        let meta = std::fs::metadata(&file).expect("stat");
        ((meta.mtime(), meta.mtime_nsec()) == (second + 1, TICK.into())).then_some(outcome)
    };
    let first = (0..TRIES)
        .find_map(|_| written())
        .expect("quick enough once")
        .expect(0);
    let second = sync_ok(&src, &dst, NONE);
    assert_eq!(
        std::fs::read(dst.join("file")).expect("read"),
        b"after.",
        "{}\n{}",
        first.describe(),
        second.describe()
    );
}

#[test]
fn a_file_that_never_rests_for_a_second_is_copied_and_told_and_compared_again() {
    let (source, replica) = (
        Fuse::mount(Mood::whole_seconds()),
        Scratch::new(FsKind::Tmpfs, 16),
    );
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    let file = src.join("file");
    put(&file, "before");
    let running = sync(&src, &dst).spawn();
    while !running.ends_within(Duration::from_millis(500)) {
        put_in_place(&file, b"during");
    }
    put_in_place(&file, b"after.");
    let restless = running.wait().expect(5);
    check_accounts(&restless);
    assert_eq!(
        problems(&restless),
        ["\"file\" \"copy a consistent state of it\" \"changing\""],
        "{}",
        restless.describe()
    );
    assert!(
        dst.join("file").exists(),
        "what is always at work would never be copied"
    );
    let _ = sync_ok(&src, &dst, NONE);
    assert_eq!(std::fs::read(dst.join("file")).expect("read"), b"after.");
    check_settled(&src, &dst, NONE);
}

#[test]
fn times_just_out_of_range_are_problems_at_once() {
    let stage = stage();
    let (first, last) = (i64::from(i32::MIN), i64::from(i32::MAX));
    let times = [
        (first - 1, 999_999_999, true),
        (first - 2, 0, true),
        (first, 0, false),
        (last, 0, false),
        (last + 1, 0, true),
        (last + 2, 0, true),
    ];
    for (number, (sec, nsec, _)) in times.into_iter().enumerate() {
        put(&stage.src.join(number.to_string()), "content");
        set_time(&stage.src.join(number.to_string()), sec, nsec);
    }
    set_time(&stage.src, 1_500_000_000, 0);
    let beyond = (0..times.len()).filter(|number| times[*number].2);
    let expected: Vec<_> = beyond
        .map(|number| format!("\"{number}\" \"set its times\" \"partly\""))
        .collect();
    for _ in 0..2 {
        let outcome = sync(&stage.src, &stage.dst).run().expect(3);
        check_accounts(&outcome);
        assert_eq!(problems(&outcome), expected);
    }
}
