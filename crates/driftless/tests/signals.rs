//! Signals: those that end a run, those that must not, and how soon a run ends.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    check_accounts, check_equal, leftovers, only_local, put, sync, sync_ok, verify, wait_until,
};
use driftless_testkit::fuse::{Fuse, Mood, Op, Rule};
use driftless_testkit::{EVENT_MAX, FsKind, Scratch};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NONE: [&str; 0] = [];
const MIB: usize = 1 << 20;

/// Some regular file below `dir` has bytes in it.
fn has_content(dir: &Path) -> bool {
    let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.any(|entry| {
        entry
            .metadata()
            .is_ok_and(|meta| meta.is_file() && meta.blocks() > 0)
    })
}

#[test]
fn a_signal_that_was_ignored_at_the_start_does_not_end_the_run() {
    for (name, signal) in [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("TERM", Signal::TERM),
        ("USR2", Signal::USR2),
    ] {
        let scratch = Scratch::new(FsKind::Tmpfs, 64);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        put(&src.join("file"), vec![1; 2 * MIB]);
        let shell = format!("trap '' {name}; exec \"$0\" \"$@\"");
        let running = sync(&src, &dst)
            .arg("--bwlimit=1M")
            .through(["sh", "-c", &shell])
            .spawn();
        wait_until("it works", || has_content(&dst));
        running.signal(signal);
        let outcome = running.wait().expect(0);
        check_accounts(&outcome);
        check_equal(&src, &dst, &format!("SIG{name} was ignored"));
    }
}

#[test]
fn a_stopped_run_does_not_finish_its_files_at_full_speed() {
    for (size, limit) in [(30 * MIB, "2M"), (70 * MIB, "2M")] {
        let scratch = Scratch::new(FsKind::Tmpfs, 200);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        put(&src.join("file"), vec![1; size]);
        let running = sync(&src, &dst)
            .args(["--jobs=1", &format!("--bwlimit={limit}")])
            .spawn();
        wait_until("it works", || has_content(&dst));
        running.signal(Signal::INT);
        assert!(
            running.ends_within(EVENT_MAX),
            "it ends soon after the signal"
        );
        let outcome = running.wait().expect(130);
        let there = |dir: &Path| {
            fs::read_dir(dir)
                .expect("list")
                .flatten()
                .map(|e| e.metadata().expect("stat").blocks() * 512)
                .sum::<u64>()
        };
        assert!(
            there(&dst) < 8 * MIB as u64,
            "{} bytes of {size} were written\n{}",
            there(&dst),
            outcome.describe()
        );
        assert!(
            outcome.count("bytes_copied") < 8 * MIB as u64,
            "{}",
            outcome.describe()
        );
        assert!(!dst.join("file").exists(), "half a file has its name");
        if size < 64 * MIB {
            assert_eq!(
                leftovers(&dst),
                Vec::<PathBuf>::new(),
                "what cannot be gone on with is gone"
            );
        }
        let _ = sync_ok(&src, &dst, NONE);
        check_equal(&src, &dst, "gone on");
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_press_that_is_heard_twice_stops_the_run_cleanly() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), vec![1; 20 * MIB]);
    let running = sync(&src, &dst).arg("--bwlimit=2M").spawn();
    wait_until("it works", || has_content(&dst));
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(30));
    running.signal(Signal::INT);
    let outcome = running.wait().expect(130);
    assert!(
        outcome
            .stderr_text()
            .contains("stopped; finished entries are kept"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_second_press_ends_a_run_that_does_not_come_to_its_end() {
    let (fuse, scratch) = (
        Fuse::mount(Mood::healthy()),
        Scratch::new(FsKind::Tmpfs, 64),
    );
    let (src, dst) = (fuse.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    fuse.order(Rule::never(Op::Read));
    let running = sync(&src, &dst).spawn();
    wait_until("it reads", || fuse.calls(Op::Read) > 0);
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_secs(1));
    assert!(
        !running.ends_within(Duration::from_millis(100)),
        "the first press waits for what is under way"
    );
    running.signal(Signal::INT);
    assert!(running.ends_within(EVENT_MAX), "the second ends it");
    let _ = running.wait().expect(130);
}

#[test]
fn warning_ends_a_run_cleanly() {
    for (signal, code) in [(Signal::USR2, 140), (Signal::XCPU, 152)] {
        let scratch = Scratch::new(FsKind::Tmpfs, 64);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        put(&src.join("file"), vec![1; 20 * MIB]);
        let running = sync(&src, &dst).arg("--bwlimit=2M").spawn();
        wait_until("it works", || has_content(&dst));
        running.signal(signal);
        let outcome = running.wait().expect(code);
        assert_eq!(outcome.count("exit_code"), code as u64);
        assert!(
            outcome
                .stderr_text()
                .contains("stopped; finished entries are kept"),
            "{}",
            outcome.describe()
        );
    }
}

#[test]
fn repeated_warnings_do_not_end_a_run() {
    let (fuse, scratch) = (
        Fuse::mount(Mood::healthy()),
        Scratch::new(FsKind::Tmpfs, 64),
    );
    let (src, dst) = (fuse.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    fuse.order(Rule::never(Op::Read));
    let running = sync(&src, &dst).spawn();
    wait_until("it reads", || fuse.calls(Op::Read) > 0);
    // The kernel sends SIGXCPU each second, and batch systems send SIGTERM after a warning.
    for signal in [Signal::USR2, Signal::XCPU, Signal::XCPU, Signal::TERM] {
        running.signal(signal);
        assert!(
            !running.ends_within(Duration::from_millis(500)),
            "{signal:?}"
        );
    }
    running.signal(Signal::TERM);
    assert!(running.ends_within(EVENT_MAX), "the second press ends it");
    let _ = running.wait().expect(143);
}

#[test]
fn a_file_beyond_the_limit_on_file_sizes_is_one_problem() {
    only_local!("sets a limit for one process");
    let scratch = Scratch::new(FsKind::Tmpfs, 200);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("long"), vec![1; 3 * MIB]);
    put(&src.join("large"), vec![1; 65 * MIB]);
    for index in 0..20 {
        put(&src.join(format!("small-{index}")), "content");
    }
    let outcome = sync(&src, &dst)
        .through(["prlimit", "--fsize=1048576", "--"])
        .run()
        .expect(3);
    check_accounts(&outcome);
    let mut paths: Vec<_> = outcome
        .events_named("problem")
        .into_iter()
        .map(|problem| problem["path"].to_string())
        .collect();
    paths.sort();
    assert_eq!(paths, ["\"large\"", "\"long\""], "{}", outcome.describe());
    assert_eq!(
        fs::read_dir(&dst).expect("list").count(),
        20,
        "the others are there"
    );
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "without the limit");
}

#[test]
fn a_small_limit_for_stacks_ends_no_run() {
    only_local!("sets a limit for one process");
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("dir/file"), "content");
    let few = ["prlimit", "--stack=65536:65536", "--"];
    let _ = sync(&src, &dst).through(few).run().expect(0);
    let _ = verify(&src, &dst).through(few).run().expect(0);
}
