//! When driftless refuses: wrong arguments, dangerous roots, suspicious deletions, a second run.
//! Refusing touches nothing.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_equal, driftless, on_trees, put, sync, sync_by_user, sync_ok, wait_until};
use driftless_testkit::{FsKind, Scratch, attrs, snapshot_hash};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;

const NONE: [&str; 0] = [];

/// A source with three files and a replica with those and seven more.
fn stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 256);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for index in 0..3 {
        put(&src.join(format!("kept-{index}")), "content");
    }
    let _ = sync_ok(&src, &dst, NONE);
    for index in 0..7 {
        put(&dst.join(format!("extra/{index}")), "content");
    }
    (scratch, src, dst)
}

#[test]
fn roots_that_cannot_be_synced_are_refused() {
    let (scratch, src, dst) = stage();
    fs::create_dir(src.join("inner")).expect("dir");
    fs::create_dir(dst.join("inner")).expect("dir");
    put(&scratch.path().join("file"), "content");
    std::os::unix::fs::symlink(&src, scratch.path().join("alias")).expect("symlink");
    let root = scratch.path();
    let cases = [
        (root.join("missing"), dst.clone(), "missing source"),
        (src.clone(), src.clone(), "source is replica"),
        (
            src.clone(),
            src.join("."),
            "source is replica, spelt otherwise",
        ),
        (
            src.clone(),
            src.join("inner/../../src"),
            "source is replica, by a detour",
        ),
        (
            src.clone(),
            root.join("alias"),
            "source is replica, by a symlink",
        ),
        (src.clone(), src.join("inner"), "replica inside source"),
        (src.clone(), src.join("new"), "new replica inside source"),
        (dst.join("inner"), dst.clone(), "source inside replica"),
        (src.clone(), root.join("file"), "directory onto file"),
        (root.join("file"), dst.clone(), "file onto directory"),
        (
            src.clone(),
            root.join("no/such/parent"),
            "no parent for the replica",
        ),
    ];
    let before = snapshot_hash(root, false);
    for (from, to, what) in cases {
        let outcome = sync(&from, &to).arg("--delete").run();
        assert_eq!(outcome.code(), 1, "{what}\n{}", outcome.describe());
        assert!(!outcome.stderr.is_empty(), "{what}: no word on stderr");
        assert_eq!(
            snapshot_hash(root, false),
            before,
            "{what}: something was touched"
        );
    }
}

#[test]
fn what_the_system_refuses_is_said_in_words_that_name_it() {
    let (scratch, src, dst) = stage();
    let looped = scratch.path().join("loop");
    std::os::unix::fs::symlink("loop", &looped).expect("symlink");
    let nowhere = scratch.path().join("nowhere");
    let far = std::path::Path::new("far:x");
    let cases = [
        (on_trees("sync", &looped, &dst), "too many symbolic links"),
        (
            on_trees("sync", &src, &dst)
                .arg("--delete")
                .env("TMPDIR", &nowhere),
            "nowhere\": no such file or directory",
        ),
        (
            driftless()
                .args(["sync", "--ssh"])
                .arg(&nowhere)
                .args([far, &dst]),
            "cannot start: no such file or directory",
        ),
    ];
    for (run, words) in cases {
        let outcome = run.run().expect(1);
        let said = outcome.stderr_text();
        assert!(
            said.contains(words) && !said.contains("os error"),
            "{words}: {}",
            outcome.describe()
        );
    }
    let _ = on_trees("sync", &src, &dst)
        .args(["--hosts", ","])
        .run()
        .expect(2);
}

#[test]
fn a_folder_above_that_may_not_be_entered_keeps_nobody_from_what_is_below() {
    let (_scratch, src, _) = stage();
    let closed = src.join("closed");
    put(&closed.join("open/from/file"), "content");
    fs::create_dir(closed.join("open/to")).expect("dir");
    attrs::set_owner(&closed.join("open/to"), common::USER, common::USER).expect("chown");
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("chmod");
    let (id, program) = (common::USER, env!("CARGO_BIN_EXE_driftless"));
    let ids = [
        format!("--reuid={id}"),
        format!("--regid={id}"),
        "--clear-groups".into(),
    ];
    for arguments in [
        &["sync", "--no-times", "from", "to"][..],
        &["verify", "from", "from"],
        &["verify", "--no-times", "from", "to"],
    ] {
        let mut run = std::process::Command::new("setpriv");
        let done = run
            .args(&ids)
            .arg(program)
            .args(arguments)
            .current_dir(closed.join("open"))
            .output()
            .expect("setpriv starts");
        assert!(
            !String::from_utf8_lossy(&done.stderr).contains("above"),
            "{arguments:?}: {done:?}"
        );
    }
    assert_eq!(
        fs::read(closed.join("open/to/file")).expect("it was copied"),
        b"content"
    );
}

#[test]
fn wrong_usage_exits_with_2_and_touches_nothing() {
    let (_scratch, src, dst) = stage();
    let before = snapshot_hash(&dst, true);
    let wrong: [&[&str]; 10] = [
        &["--no-such-option"],
        &["--jobs=many"],
        &["--bwlimit=fast"],
        &["--bwlimit=1000"],
        &["--max-delete=101%"],
        &["--cache=maybe"],
        &["--durability=always"],
        &["--min-size=big"],
        &["--min-size=2k", "--max-size=1k"],
        &["third-argument"],
    ];
    for arguments in wrong {
        let outcome = sync(&src, &dst).args(arguments).run().expect(2);
        assert!(!outcome.stderr.is_empty(), "{arguments:?}");
        assert_eq!(snapshot_hash(&dst, true), before, "{arguments:?}");
    }
    let _ = driftless().arg("sync").arg(&src).run().expect(2);
    let _ = driftless().run().expect(2);
}

#[test]
fn the_last_word_counts_so_that_an_alias_can_be_overridden() {
    let (_scratch, src, dst) = stage();
    let outcome = sync(&src, &dst)
        .args([
            "--jobs=4",
            "-n",
            "--jobs=8",
            "-n",
            "--exclude=a",
            "--exclude=b",
        ])
        .run()
        .expect(0);
    assert!(
        !outcome.stderr_text().contains("error"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn wrong_numbers_are_told_in_words() {
    let words = [
        (
            &["sync", "--modify-window=1.5"][..],
            "a whole number of seconds",
        ),
        (&["verify", "--modify-window=86401"], "at most a day"),
        (&["audit", "--samples=0"], "a number above zero"),
        (
            &["sync", "--delete", "--max-delete", "-1"],
            "a number of entries",
        ),
        (&["sync", "--jobs", "-3"], "a number from 1"),
    ];
    for (arguments, wanted) in words {
        let said = driftless()
            .args(arguments.iter().copied())
            .args(["src", "dst"])
            .run()
            .expect(2)
            .stderr_text();
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn a_list_of_paths_does_not_go_with_a_single_file() {
    let (scratch, src, dst) = stage();
    let (file, list) = (src.join("single"), scratch.path().join("list"));
    put(&file, "x");
    put(&list, "other\n");
    let outcome = sync(&file, &dst.join("single"))
        .arg("--files-from")
        .arg(&list)
        .run()
        .expect(1);
    assert!(
        outcome.stderr_text().contains("it is no directory"),
        "{}",
        outcome.describe()
    );
    assert!(!dst.join("single").exists());
}

#[test]
fn deletion_from_an_empty_source_is_refused() {
    let (scratch, _, dst) = stage();
    let empty = scratch.dir("empty");
    let before = snapshot_hash(&dst, true);
    let outcome = sync(&empty, &dst).arg("--delete").run().expect(13);
    assert_eq!(snapshot_hash(&dst, true), before, "{}", outcome.describe());
    let _ = sync(&empty, &dst)
        .args(["--delete", "--dry-run"])
        .run()
        .expect(13);
    let fresh = scratch.path().join("fresh");
    let _ = sync_ok(&empty, &fresh, ["--delete"]);
    let _ = sync_ok(&empty, &fresh, ["--delete"]);
}

#[test]
fn deletion_from_a_source_that_cannot_be_read_is_refused() {
    let (scratch, _, _) = stage();
    let (src, dst) = (scratch.dir("locked"), scratch.dir("user-dst"));
    put(&src.join("file"), "content");
    put(&dst.join("file"), "content");
    for path in [&src, &dst, &dst.join("file")] {
        attrs::set_owner(path, common::USER, common::USER).expect("chown");
    }
    attrs::set_mode(&src, 0o300).expect("chmod");
    let outcome = sync_by_user(&src, &dst).arg("--delete").run();
    assert!([1, 13].contains(&outcome.code()), "{}", outcome.describe());
    assert!(dst.join("file").exists());
}

#[test]
fn more_deletions_than_allowed_are_refused_as_a_whole() {
    let (_scratch, src, dst) = stage();
    for limit in ["7", "0", "50%", "0%"] {
        let outcome = sync(&src, &dst)
            .args(["--delete", "--max-delete", limit])
            .run()
            .expect(13);
        assert_eq!(outcome.count("deleted"), 0, "{limit}");
        assert!(
            (0..7).all(|index| dst.join(format!("extra/{index}")).exists()),
            "{limit}\n{}",
            outcome.describe()
        );
    }
    let _ = sync_ok(&src, &dst, ["--delete", "--max-delete", "8"]);
    check_equal(&src, &dst, "eight deletions are allowed");
}

#[test]
fn a_refused_deletion_does_not_keep_the_rest_from_being_copied_in_the_next_run() {
    let (_scratch, src, dst) = stage();
    put(&src.join("new"), "content");
    let _ = sync(&src, &dst)
        .args(["--delete", "--max-delete=1"])
        .run()
        .expect(13);
    let _ = sync_ok(&src, &dst, NONE);
    assert_eq!(fs::read(dst.join("new")).expect("copied"), b"content");
}

#[test]
fn a_second_run_on_the_same_replica_is_turned_away() {
    let (scratch, src, _) = stage();
    put(&src.join("slow"), vec![1u8; 64 << 20]);
    let dst = scratch.path().join("busy");
    let first = sync(&src, &dst).arg("--bwlimit=100K").spawn();
    wait_until("the first run works", || {
        dst.join("kept-0").exists() || has_entries(&dst)
    });
    let other_source = scratch.dir("other");
    put(&other_source.join("file"), "content");
    let outcome = sync(&src, &dst).run().expect(11);
    assert!(!outcome.stderr.is_empty());
    let _ = sync(&other_source, &dst).run().expect(11);
    assert!(!dst.join("file").exists());
    let _ = sync_ok(&other_source, &scratch.path().join("free"), NONE);
    first.signal(Signal::KILL);
    assert_eq!(first.wait().code(), 137);
    fs::remove_file(src.join("slow")).expect("remove");
    let _ = sync_ok(&src, &dst, ["--delete"]);
    check_equal(&src, &dst, "the lock died with its run");
}

fn has_entries(dst: &std::path::Path) -> bool {
    fs::read_dir(dst).is_ok_and(|mut entries| entries.next().is_some())
}
