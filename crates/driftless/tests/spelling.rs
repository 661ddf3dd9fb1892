//! Replicas whose file system stores names in a spelling of its own: without the dots at their end.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_accounts, names_below, put, sync, sync_ok, verify};
use driftless_testkit::{FsKind, Fuse, Mood, Outcome, Scratch};
use std::fs;
use std::path::PathBuf;

const NONE: [&str; 0] = [];

struct Stage {
    _source: Scratch,
    _replica: Fuse,
    src: PathBuf,
    dst: PathBuf,
}

fn stage(strips: u8) -> Stage {
    let source = Scratch::new(FsKind::Tmpfs, 16);
    let replica = Fuse::mount(Mood {
        strips: Some(strips),
        ..Mood::healthy()
    });
    let (src, dst) = (source.dir("src"), replica.path().join("dst"));
    Stage {
        src,
        dst,
        _source: source,
        _replica: replica,
    }
}

fn problems(outcome: &Outcome) -> Vec<String> {
    outcome
        .events_named("problem")
        .iter()
        .map(|problem| problem["path"].as_str().expect("a path").to_owned())
        .collect()
}

#[test]
fn what_the_replica_stores_under_a_spelling_of_its_own_is_never_deleted() {
    // Dots are known to be lost somewhere; of other ends nobody has heard.
    check_never_deleted(".");
    check_never_deleted("~");
}

fn check_never_deleted(end: &str) {
    let Stage { src, dst, .. } = &stage(end.as_bytes()[0]);
    put(&src.join(format!("file{end}")), "one");
    put(&src.join(format!("dir{end}/page")), "page");
    put(&src.join("other"), "two");
    let _ = sync_ok(src, dst, NONE);
    let extra = dst.join("extra");
    for round in 0..3 {
        put(&extra, "only here");
        let plan = sync_ok(src, dst, ["--delete", "--dry-run"]);
        assert_eq!(plan.count("deleted"), 1, "{round}: {}", plan.describe());
        let outcome = sync_ok(src, dst, ["--delete"]);
        check_accounts(&outcome);
        assert_eq!(
            outcome.count("deleted"),
            1,
            "{round}: {}",
            outcome.describe()
        );
        assert_eq!(
            names_below(dst),
            ["dir", "dir/page", "file", "other"],
            "{round}"
        );
    }
    fs::remove_file(src.join(format!("file{end}"))).expect("remove");
    let outcome = sync_ok(src, dst, ["--delete"]);
    assert_eq!(outcome.count("deleted"), 1, "{}", outcome.describe());
    assert_eq!(names_below(dst), ["dir", "dir/page", "other"]);
}

#[test]
fn the_second_of_two_names_that_the_replica_stores_as_one_is_a_problem() {
    let Stage { src, dst, .. } = &stage(b'.');
    put(&src.join("f"), "first");
    put(&src.join("f."), "second");
    put(&src.join("new/f"), "first");
    put(&src.join("new/f.."), "second");
    for round in 0..3 {
        let mut outcome = sync(src, dst).arg("--delete").run().expect(3);
        check_accounts(&outcome);
        let mut told = problems(&outcome);
        told.sort();
        assert_eq!(told, ["f.", "new/f.."], "{round}: {}", outcome.describe());
        assert_eq!(
            fs::read_to_string(dst.join("f")).expect("read"),
            "first",
            "{round}"
        );
        outcome = verify(src, dst).run().expect(3);
        assert_eq!(
            problems(&outcome).len(),
            2,
            "{round}: {}",
            outcome.describe()
        );
    }
    assert_eq!(names_below(dst), ["f", "new", "new/f"]);
}

#[test]
fn names_that_differ_in_their_end_stay_apart_where_the_replica_knows_the_difference() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for name in ["f", "f.", "f ", "dir/g.", "dir/g.."] {
        put(&src.join(name), name);
    }
    let _ = sync_ok(&src, &dst, NONE);
    common::check_equal(&src, &dst, "names that differ in their end");
    fs::remove_file(src.join("f")).expect("remove");
    let outcome = sync_ok(&src, &dst, ["--delete"]);
    assert_eq!(outcome.count("deleted"), 1, "{}", outcome.describe());
    common::check_settled(&src, &dst, ["--delete"]);
}
