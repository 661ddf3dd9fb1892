//! System calls that fail: the run says so, or the trees are equal; never "done" when they are not,
//! never a deletion.
//!
//! `strace` makes the n-th call of each thread fail, in the real binary.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_equal, leftovers, names_below, only_local, problems, put, sync, sync_ok};
use driftless_testkit::{FsKind, Options, Profile, Scratch, build_tree, compare, snapshot_hash};
use std::fs;
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];
/// A bug trap, a panic, an abort, a wild access.
const CRASHES: [i32; 5] = [70, 101, 134, 135, 139];

/// Arguments of `strace` that make one call of a system call fail.
fn failing(calls: &str, error: &str, when: &str) -> Vec<String> {
    let inject = format!("inject={calls}:error={error}:when={when}");
    let trace = format!("trace={calls}");
    let words = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        &trace,
        "-e",
        &inject,
        "--",
    ];
    words.map(str::to_owned).to_vec()
}

#[test]
fn the_faults_really_reach_the_binary() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("dir/file"), "content");
    for (calls, error) in [
        ("getdents64", "EIO"),
        ("mkdirat", "EIO"),
        ("utimensat", "EIO"),
        ("openat", "EMFILE"),
    ] {
        let outcome = sync(&src, &dst).through(failing(calls, error, "1+")).run();
        assert_ne!(
            outcome.code(),
            0,
            "{calls} never fails\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn a_directory_that_was_not_read_to_its_end_deletes_nothing() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Ext4, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for index in 0..6000 {
        put(
            &src.join(format!("wide/entry-with-a-rather-long-name-{index}")),
            "",
        );
        if index % 100 == 0 {
            put(&src.join(format!("dirs/{index}/file")), "x");
        }
    }
    let _ = sync_ok(&src, &dst, NONE);
    let names = names_below(&dst);
    let mut failed = 0;
    for when in [
        "1", "2", "3", "4", "5", "6", "7", "8", "10", "14", "20", "1+", "2+", "5+",
    ] {
        for error in ["EIO", "ENOENT", "ESTALE"] {
            let outcome = sync(&src, &dst)
                .arg("--delete")
                .through(failing("getdents64", error, when))
                .run();
            assert_eq!(
                names_below(&dst),
                names,
                "getdents64 {when} {error}\n{}",
                outcome.describe()
            );
            failed += u32::from(outcome.code() != 0);
        }
    }
    assert!(failed > 10, "the faults were met only {failed} times");
    check_equal(&src, &dst, "still equal");
}

#[test]
fn a_source_entry_that_cannot_be_looked_at_is_not_deleted() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Ext4, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    build_tree(&src, 23, &Profile::small());
    let _ = sync_ok(&src, &dst, NONE);
    let names = names_below(&dst);
    for calls in ["statx", "newfstatat", "openat", "openat2", "fstat"] {
        for error in ["EIO", "EACCES", "ESTALE", "ELOOP"] {
            for when in ["8", "17+", "30", "60+"] {
                let outcome = sync(&src, &dst)
                    .arg("--delete")
                    .through(failing(calls, error, when))
                    .run();
                let now = names_below(&dst);
                let gone: Vec<_> = names.iter().filter(|name| !now.contains(name)).collect();
                assert!(
                    gone.is_empty(),
                    "{calls} {when} {error}: {gone:?}\n{}",
                    outcome.describe()
                );
            }
        }
    }
}

#[test]
fn a_link_that_turns_out_to_be_there_already_leaves_no_unfinished_name() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("a"), "content");
    for name in ["b", "c", "d", "e"] {
        fs::hard_link(src.join("a"), src.join(name)).expect("link");
    }
    let _ = sync_ok(&src, &dst, NONE);
    for when in 3..30 {
        let fault = failing("statx,newfstatat", "ENOENT", &when.to_string());
        let outcome = sync(&src, &dst).arg("--jobs=1").through(fault).run();
        assert_eq!(
            leftovers(&dst),
            Vec::<PathBuf>::new(),
            "look number {when}\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn a_failed_flush_is_never_success() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Ext4, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    // `ENOTCONN` is what a network file system says that has lost its server.
    for (durability, error) in [
        ("end", "EIO"),
        ("file", "EIO"),
        ("end", "ENOTCONN"),
        ("file", "ENOTCONN"),
    ] {
        put(&src.join("file"), [durability, error].concat());
        let flag = format!("--durability={durability}");
        let outcome = sync(&src, &dst)
            .arg(&flag)
            .through(failing("syncfs,fsync,fdatasync", error, "1+"))
            .run();
        assert_eq!(outcome.code(), 1, "{}", outcome.describe());
        assert!(!CRASHES.contains(&outcome.code()), "{}", outcome.describe());
        let _ = sync_ok(&src, &dst, [&flag]);
        check_equal(&src, &dst, "flushed");
    }
}

#[test]
fn success_means_that_a_flush_was_asked_for() {
    only_local!("counts calls of one process");
    let scratch = Scratch::new(FsKind::Ext4, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    let trace = scratch.path().join("trace");
    for (durability, flushes) in [("end", true), ("file", true), ("none", false)] {
        put(&src.join("file"), durability);
        let calls = "trace=syncfs,fsync,fdatasync";
        let words = [
            "strace",
            "-f",
            "-qq",
            "-o",
            trace.to_str().expect("ascii"),
            "-e",
            calls,
            "--",
        ];
        let _ = sync(&src, &dst)
            .arg(format!("--durability={durability}"))
            .through(words)
            .run()
            .expect(0);
        let text = fs::read_to_string(&trace).expect("trace");
        assert_eq!(
            text.contains("sync(") || text.contains("syncfs("),
            flushes,
            "--durability={durability}\n{text}"
        );
    }
}

#[test]
fn success_is_durable_even_if_an_earlier_run_did_the_work() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Ext4, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let _ = sync_ok(&src, &dst, ["--durability=none"]);
    let outcome = sync(&src, &dst)
        .through(failing("syncfs,fsync,fdatasync", "EIO", "1+"))
        .run();
    assert_ne!(
        outcome.code(),
        0,
        "nobody has flushed what the first run wrote\n{}",
        outcome.describe()
    );
}

#[test]
fn a_full_file_system_is_told_and_nothing_is_torn() {
    let big = Scratch::new(FsKind::Tmpfs, 400);
    let small = Scratch::new(FsKind::Ext4, 40);
    let (src, dst) = (big.dir("src"), small.path().join("dst"));
    for index in 0..60 {
        put(
            &src.join(format!("dir/file-{index}")),
            vec![index as u8 + 1; 1 << 20],
        );
    }
    let outcome = sync(&src, &dst).run();
    assert!([1, 3].contains(&outcome.code()), "{}", outcome.describe());
    assert!(
        outcome.describe().contains("space"),
        "it says why\n{}",
        outcome.describe()
    );
    let found = compare(
        &src,
        &dst,
        &Options {
            holes: false,
            ..Options::default()
        },
    );
    for difference in found
        .iter()
        .filter(|difference| difference.kind == "content")
    {
        let same_path = |kind| {
            found
                .iter()
                .any(|other| other.path == difference.path && other.kind == kind)
        };
        assert!(
            same_path("size") || same_path("mtime"),
            "looks done: {difference}"
        );
    }
    for index in 20..60 {
        fs::remove_file(src.join(format!("dir/file-{index}"))).expect("remove");
    }
    let _ = sync_ok(&src, &dst, ["--delete"]);
    check_equal(&src, &dst, "it fits now");
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

#[test]
fn small_files_fit_after_a_large_failure() {
    let big = Scratch::new(FsKind::Tmpfs, 400);
    let small = Scratch::new(FsKind::Ext4, 40);
    let (src, dst) = (big.dir("src"), small.path().join("dst"));
    put(&src.join("large"), vec![1; 60 << 20]);
    for index in 0..20 {
        put(&src.join(format!("small-{index:02}")), vec![2; 1 << 20]);
    }
    // Each large file that is made while the other ones are takes the room of a small one.
    let outcome = sync(&src, &dst).run().expect(3);
    assert_eq!(problems(&outcome), ["large"], "{}", outcome.describe());
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
    fs::remove_file(src.join("large")).expect("remove");
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "without the large one");
}

#[test]
fn files_that_fit_in_turn_are_replaced() {
    let big = Scratch::new(FsKind::Tmpfs, 400);
    let small = Scratch::new(FsKind::Ext4, 80);
    let (src, dst) = (big.dir("src"), small.path().join("dst"));
    let names = ["a", "b", "c"];
    let write = |byte| names.map(|name| put(&src.join(name), vec![byte; 15 << 20]));
    let _ = write(1);
    let _ = sync_ok(&src, &dst, NONE);
    let _ = write(2);
    let _ = sync_ok(&src, &dst, ["--jobs=3"]);
    check_equal(&src, &dst, "replaced in turn");
}

#[test]
fn a_file_too_large_for_the_replica_does_not_keep_the_others_out() {
    let big = Scratch::new(FsKind::Tmpfs, 400);
    let small = Scratch::new(FsKind::Ext4, 40);
    let (src, dst) = (big.dir("src"), small.path().join("dst"));
    put(&src.join("a/huge"), vec![1u8; 150 << 20]);
    for index in 0..20 {
        put(&src.join(format!("b/file-{index}")), "content");
    }
    let _ = sync_ok(&src.join("b"), &dst, NONE);
    driftless_testkit::remove_deep(&dst).expect("remove");
    let outcome = sync(&src, &dst).run();
    assert!([1, 3].contains(&outcome.code()), "{}", outcome.describe());
    assert!(
        !dst.join("a/huge").exists() || private(&dst.join("a")) || private(&dst),
        "a torn file is visible"
    );
}

/// Nobody but its owner can look into this directory.
fn private(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).is_ok_and(|meta| meta.mode() & 0o077 == 0)
}

#[test]
fn a_read_only_replica_is_told() {
    let scratch = Scratch::new(FsKind::Ext4, 64);
    let source = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (source.dir("src"), scratch.path().join("dst"));
    put(&src.join("dir/file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    put(&src.join("dir/file"), "new content");
    let before = snapshot_hash(&dst, true);
    let remount = |mode: &str| {
        let options = format!("remount,{mode}");
        let status = std::process::Command::new("mount")
            .args(["-o", &options])
            .arg(scratch.path())
            .status();
        assert!(status.expect("mount runs").success());
    };
    remount("ro");
    let outcome = sync(&src, &dst).arg("--delete").run();
    assert!([1, 3].contains(&outcome.code()), "{}", outcome.describe());
    assert!(
        outcome.describe().to_lowercase().contains("read-only"),
        "it says why\n{}",
        outcome.describe()
    );
    assert_eq!(snapshot_hash(&dst, true), before);
    remount("rw");
    let _ = sync_ok(&src, &dst, ["--delete"]);
    check_equal(&src, &dst, "writable again");
}

#[test]
fn holes_are_kept_where_the_file_system_cannot_tell_where_they_are() {
    only_local!("makes calls of one process fail");
    use std::os::unix::fs::{FileExt, MetadataExt};
    let scratch = Scratch::new(FsKind::Ext4, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for (name, size) in [("small", 1 << 20), ("large", 200 << 20)] {
        let file = fs::File::create(src.join(name)).expect("create");
        file.set_len(size).expect("size");
        file.write_all_at(&[7; 5000], size / 2).expect("write");
        file.write_all_at(&[7], size - 1).expect("write");
    }
    let mut strace = failing("lseek", "EINVAL", "1+");
    let only = |name: &str| {
        [
            "-P".to_owned(),
            src.join(name).to_str().expect("text").to_owned(),
        ]
    };
    strace.splice(1..1, ["small", "large"].map(only).concat());
    let outcome = sync(&src, &dst).through(strace).run();
    assert_eq!(outcome.code(), 0, "{}", outcome.describe());
    for name in ["small", "large"] {
        let blocks = fs::metadata(dst.join(name)).expect("it is there").blocks();
        assert!(
            blocks * 512 < 256 << 10,
            "{name} takes {blocks} blocks of 512 bytes"
        );
    }
    let found = compare(
        &src,
        &dst,
        &Options {
            holes: false,
            ..Options::default()
        },
    );
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_run_without_one_more_thread_does_its_work() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("dir/file"), "content");
    for action in ["sync", "verify"] {
        let run = common::driftless().arg(action).arg(&src).arg(&dst);
        let _ = run
            .through(failing("clone3", "EAGAIN", "1+"))
            .run()
            .expect(0);
        check_equal(&src, &dst, action);
    }
}

#[test]
fn a_standard_error_that_is_full_ends_no_run() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("dir/file"), "content");
    std::os::unix::fs::symlink("t".repeat(300), src.join("link")).expect("link");
    let to_full = ["sh", "-c", "exec \"$0\" \"$@\" 2>/dev/full"];
    // A problem is told there, and by the exit code.
    let mut strace = failing("openat", "EIO", "1+");
    let end = strace.len() - 1;
    strace.splice(end..end, ["-P", "file"].map(str::to_owned));
    let outcome = sync(&src, &dst)
        .through(to_full.map(str::to_owned).into_iter().chain(strace))
        .run()
        .expect(3);
    assert_eq!(outcome.count("failed"), 1, "{}", outcome.describe());
    assert_eq!(
        fs::read_link(dst.join("link"))
            .expect("link")
            .as_os_str()
            .len(),
        300,
        "{}",
        outcome.describe()
    );
}

#[test]
fn the_root_has_its_time_when_one_look_at_it_fails() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("dir/file"), "content");
    for calls in ["fstat", "utimensat"] {
        for when in 1..25 {
            let outcome = sync(&src, &dst)
                .arg("--jobs=1")
                .through(failing(calls, "ESTALE", &when.to_string()))
                .run();
            assert!(!CRASHES.contains(&outcome.code()), "{}", outcome.describe());
            if outcome.code() == 0 {
                check_equal(&src, &dst, &format!("{calls} number {when} failed"));
            }
            driftless_testkit::mutate::remove_any(&dst).expect("remove");
        }
    }
}

#[test]
fn that_a_large_file_is_no_link_is_told() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("first"), "content");
    fs::OpenOptions::new()
        .write(true)
        .open(src.join("first"))
        .expect("open")
        .set_len(66 << 20)
        .expect("size");
    fs::hard_link(src.join("first"), src.join("second")).expect("link");
    let outcome = sync(&src, &dst)
        .through(failing("linkat", "EMLINK", "1+"))
        .run()
        .expect(0);
    let notes = outcome.events_named("note");
    let told = notes.iter().filter(|note| {
        let text = note["message"].as_str().expect("text");
        text.contains("more names (hard links) than")
    });
    assert_eq!(told.count(), 1, "{}", outcome.describe());
    let options = Options {
        hard_links: false,
        ..Options::default()
    };
    assert_eq!(
        compare(&src, &dst, &options),
        Vec::new(),
        "{}",
        outcome.describe()
    );
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "linked");
}

#[test]
fn a_root_that_is_away_for_a_moment_is_no_single_file() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("dir/file"), "content");
    let root = ["-P".to_owned(), src.to_str().expect("text").to_owned()];
    for calls in ["open", "openat"] {
        let mut strace = failing(calls, "ENOENT", "1");
        let end = strace.len() - 1;
        strace.splice(end..end, root.clone());
        let outcome = sync(&src, &dst).through(strace).run();
        assert!(
            outcome.code() != 0 || dst.join("dir/file").exists(),
            "{}",
            outcome.describe()
        );
    }
}
