//! Directories at whose names the source has something else: what lies in them goes as a whole or
//! not at all, and is held against the limit on deletes with all else that goes.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way, Who, kept};
use common::flags::Immutable;
use common::mounted::Mounted;
use common::movers::sync_on_hosts;
use common::{check_accounts, check_equal, is_user, names_below, only_local, put, sync, sync_ok};
use driftless_testkit::{Driftless, FsKind, Outcome, Scratch};
use std::fs;
use std::path::{Path, PathBuf};

fn stage(kind: FsKind) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(kind, 64);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    [&src, &dst]
        .into_iter()
        .for_each(|root| put(&root.join("kept"), "content"));
    (scratch, src, dst)
}

/// Near, and with the replica on another host.
fn ways(src: &Path, dst: &Path) -> Vec<Driftless> {
    let far = (!is_user()).then(|| kept(Who::Root).sync(Way::Push, src, dst));
    std::iter::once(sync(src, dst)).chain(far).collect()
}

/// The paths of all problems, sorted.
fn problems(outcome: &Outcome) -> Vec<String> {
    let mut paths = common::problems(outcome);
    paths.sort();
    paths
}

/// Something of each kind where a directory with two entries is, and three entries that only the
/// replica has: eleven that would go.
fn too_many(src: &Path, dst: &Path) -> u64 {
    put(&src.join("file"), "of the source");
    std::os::unix::fs::symlink("kept", src.join("link")).expect("link");
    put(&src.join("one"), "two names");
    fs::hard_link(src.join("one"), src.join("two")).expect("link");
    for name in ["file", "link", "one", "two"] {
        (1..3).for_each(|index| put(&dst.join(name).join(index.to_string()), ""));
    }
    (1..4).for_each(|index| put(&dst.join(format!("extra-{index}")), ""));
    11
}

#[test]
fn where_the_plan_is_refused_no_directory_is_replaced_either() {
    for limit in ["10", "3", "0", "50%"] {
        let (_scratch, src, dst) = stage(FsKind::Tmpfs);
        let all = too_many(&src, &dst);
        let before = names_below(&dst);
        for way in ways(&src, &dst) {
            for more in [&["--dry-run"][..], &[]] {
                let refused = way
                    .clone()
                    .args(["--delete", "--max-delete", limit])
                    .args(more)
                    .run()
                    .expect(13);
                check_accounts(&refused);
                let text = refused.stderr_text();
                assert!(
                    text.contains(&format!("entries to delete: {all}")),
                    "{limit}\n{}",
                    refused.describe()
                );
                assert!(
                    text.contains("nothing was deleted;"),
                    "{limit}\n{}",
                    refused.describe()
                );
                assert_eq!(
                    refused.count("deleted"),
                    0,
                    "{limit}\n{}",
                    refused.describe()
                );
                assert_eq!(
                    problems(&refused),
                    ["file", "link", "one", "two"],
                    "{limit}\n{}",
                    refused.describe()
                );
                assert_eq!(
                    names_below(&dst),
                    before,
                    "{limit}: something went\n{}",
                    refused.describe()
                );
            }
        }
    }
}

#[test]
fn where_the_plan_passes_all_directories_are_replaced() {
    for limit in ["11", "70%"] {
        let (_scratch, src, dst) = stage(FsKind::Tmpfs);
        let all = too_many(&src, &dst);
        let planned = sync_ok(&src, &dst, ["--delete", "--max-delete", limit, "--dry-run"]);
        let done = sync_ok(&src, &dst, ["--delete", "--max-delete", limit]);
        assert_eq!(
            [&planned, &done].map(|said| said.count("deleted")),
            [all; 2],
            "{limit}\n{}",
            done.describe()
        );
        check_equal(&src, &dst, "replaced");
    }
}

#[test]
fn where_movers_share_the_run_the_plan_is_judged_with_what_directories_hold() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    let all = too_many(&src, &dst);
    let before = names_below(&dst);
    let run = |limit| {
        sync_on_hosts("far,far", &far.words(), &src, &dst).args(["--delete", "--max-delete", limit])
    };
    let refused = run("10").run().expect(13);
    check_accounts(&refused);
    assert_eq!(
        (refused.count("deleted"), names_below(&dst)),
        (0, before),
        "{}",
        refused.describe()
    );
    let done = run("11").run().expect(0);
    check_accounts(&done);
    assert_eq!(done.count("deleted"), all, "{}", done.describe());
    check_equal(&src, &dst, "replaced");
}

/// A directory `x` of which `held` cannot be removed is left whole, and `why` is told.
fn check_left_whole(src: &Path, dst: &Path, held: &str, why: &str) {
    let before = names_below(dst);
    for way in ways(src, dst) {
        for more in [&["--dry-run"][..], &[], &["--max-delete=100"]] {
            let outcome = way.clone().arg("--delete").args(more).run().expect(3);
            check_accounts(&outcome);
            let told = outcome.events_named("problem");
            let cause = told
                .first()
                .and_then(|problem| problem["cause"].as_str())
                .unwrap_or_default();
            assert_eq!(
                (problems(&outcome), outcome.count("deleted")),
                (vec!["x".to_owned()], 0),
                "{held}\n{}",
                outcome.describe()
            );
            assert!(
                cause.contains(&format!("\"{held}\" has to stay")) && cause.contains(why),
                "{held}\n{}",
                outcome.describe()
            );
            assert_eq!(
                names_below(dst),
                before,
                "{held}: something went\n{}",
                outcome.describe()
            );
        }
    }
}

fn in_the_way(kind: FsKind) -> (Scratch, PathBuf, PathBuf) {
    let (scratch, src, dst) = stage(kind);
    put(&src.join("x"), "now a file");
    ["1", "2", "3", "sub/4"]
        .into_iter()
        .for_each(|name| put(&dst.join("x").join(name), name));
    (scratch, src, dst)
}

#[test]
fn a_directory_in_which_a_file_is_mounted_is_left_whole() {
    let (scratch, src, dst) = in_the_way(FsKind::Tmpfs);
    put(&scratch.path().join("other"), "of somebody else");
    for held in ["x/2", "x/sub/4"] {
        let _mounted = Mounted::bind(&scratch.path().join("other"), &dst.join(held));
        check_left_whole(&src, &dst, held, "mounted");
    }
    let done = sync_ok(&src, &dst, ["--delete"]);
    assert_eq!(done.count("deleted"), 5, "{}", done.describe());
}

#[test]
fn a_directory_in_which_something_is_immutable_is_left_whole() {
    let (_scratch, src, dst) = in_the_way(FsKind::Ext4);
    for held in ["x/2", "x/sub", "x/sub/4"] {
        let _fixed = Immutable::of(dst.join(held));
        check_left_whole(&src, &dst, held, "chattr -i");
    }
    let done = sync_ok(&src, &dst, ["--delete"]);
    assert_eq!(done.count("deleted"), 5, "{}", done.describe());
}
