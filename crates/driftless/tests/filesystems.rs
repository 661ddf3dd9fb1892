//! The hostile tree on every file system, as root and as an ordinary user, judged by two oracles.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    USER, check_accounts, check_equal, check_equal_twice, check_settled, is_roots_alone, leftovers,
    path_of, sync_by_user, sync_ok,
};
use driftless_testkit::{
    FsKind, Fuse, Mood, Options, Profile, Scratch, attrs, build_tree, compare, mutate,
    rsync_oracle, snapshot_hash,
};
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];
const SIZE_MIB: u64 = 600;

fn root_round_trip(kind: FsKind) {
    let scratch = Scratch::new(kind, SIZE_MIB);
    root_round_trip_in(scratch.path(), &format!("{kind:?}"));
}

fn root_round_trip_in(mount: &Path, kind: &str) {
    let (src, dst) = (mount.join("src"), mount.join("dst"));
    std::fs::create_dir(&src).expect("source");
    build_tree(&src, 11, &Profile::root());
    let _ = sync_ok(&src, &dst, NONE);
    check_equal_twice(&src, &dst, &format!("first copy on {kind}"));
    mutate(&src, 12, 150);
    let _ = sync_ok(&src, &dst, ["--delete"]);
    check_equal_twice(&src, &dst, &format!("after mutations on {kind}"));
    check_settled(&src, &dst, ["--delete"]);
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

fn user_round_trip(kind: FsKind) {
    let scratch = Scratch::new(kind, SIZE_MIB);
    user_round_trip_in(scratch.path(), &format!("{kind:?}"));
}

fn user_round_trip_in(mount: &Path, kind: &str) {
    let (src, dst) = (mount.join("src"), mount.join("dst"));
    [&src, &dst]
        .into_iter()
        .for_each(|root| std::fs::create_dir(root).expect("root"));
    build_tree(&src, 13, &Profile::user(USER, USER));
    attrs::set_owner(&dst, USER, USER).expect("chown");
    let run = || {
        let outcome = sync_by_user(&src, &dst).arg("--delete").run().expect(0);
        check_accounts(&outcome);
        outcome
    };
    let _ = run();
    check_equal_twice(&src, &dst, &format!("copy by an ordinary user on {kind}"));
    let before = snapshot_hash(&dst, true);
    assert_eq!(run().count("changed"), 0);
    assert_eq!(snapshot_hash(&dst, true), before);
    driftless_testkit::mutate::remove_any(&src.join("modes")).expect("remove");
    std::fs::write(src.join("names/with space"), "new content").expect("write");
    let _ = run();
    check_equal(
        &src,
        &dst,
        "a user deletes read-only directories and updates",
    );
}

#[test]
fn root_copies_the_hostile_tree_on_tmpfs() {
    root_round_trip(FsKind::Tmpfs);
}

#[test]
fn root_copies_the_hostile_tree_on_ext4() {
    root_round_trip(FsKind::Ext4);
}

#[test]
fn root_copies_the_hostile_tree_on_xfs() {
    root_round_trip(FsKind::Xfs);
}

#[test]
fn root_copies_the_hostile_tree_on_btrfs() {
    root_round_trip(FsKind::Btrfs);
}

#[test]
fn root_copies_the_hostile_tree_on_fuse() {
    root_round_trip_in(
        Fuse::mount(Mood::healthy()).path(),
        "a healthy FUSE file system",
    );
}

#[test]
fn an_ordinary_user_copies_what_belongs_to_him_on_fuse() {
    user_round_trip_in(
        Fuse::mount(Mood::healthy()).path(),
        "a healthy FUSE file system",
    );
}

#[test]
fn an_ordinary_user_copies_what_belongs_to_him_on_tmpfs() {
    user_round_trip(FsKind::Tmpfs);
}

#[test]
fn an_ordinary_user_copies_what_belongs_to_him_on_ext4() {
    user_round_trip(FsKind::Ext4);
}

#[test]
fn an_ordinary_user_copies_what_belongs_to_him_on_xfs() {
    user_round_trip(FsKind::Xfs);
}

#[test]
fn an_ordinary_user_copies_what_belongs_to_him_on_btrfs() {
    user_round_trip(FsKind::Btrfs);
}

#[test]
fn trees_cross_from_one_file_system_to_another() {
    let pairs = [
        (FsKind::Tmpfs, FsKind::Ext4),
        (FsKind::Ext4, FsKind::Btrfs),
        (FsKind::Btrfs, FsKind::Tmpfs),
        (FsKind::Xfs, FsKind::Ext4),
        (FsKind::Xfs, FsKind::Btrfs),
    ];
    for (from, to) in pairs {
        let (a, b) = (Scratch::new(from, SIZE_MIB), Scratch::new(to, SIZE_MIB));
        let (src, dst) = (a.dir("src"), b.path().join("dst"));
        build_tree(&src, 14, &Profile::root());
        let _ = sync_ok(&src, &dst, NONE);
        check_equal(&src, &dst, &format!("{from:?} to {to:?}"));
        assert_eq!(rsync_oracle(&src, &dst), "", "{from:?} to {to:?}");
        mutate(&src, 15, 100);
        let _ = sync_ok(&src, &dst, ["--delete"]);
        check_equal(&src, &dst, &format!("mutated, {from:?} to {to:?}"));
    }
}

#[test]
fn what_an_ordinary_user_cannot_keep_is_told_and_the_rest_is_equal() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    build_tree(
        &src,
        16,
        &Profile {
            unreadable: false,
            large: false,
            ..Profile::root()
        },
    );
    attrs::set_mode(&src, 0o755).expect("chmod");
    attrs::set_owner(&dst, USER, USER).expect("chown");
    let outcome = sync_by_user(&src, &dst).run().expect(3);
    check_accounts(&outcome);
    assert!(outcome.count("unkept_owners") > 0, "{}", outcome.describe());
    let told: Vec<Vec<u8>> = outcome
        .events_named("problem")
        .iter()
        .map(path_of)
        .collect();
    let all = compare(&src, &dst, &Options::default()).into_iter();
    let silent: Vec<_> = all
        .filter(|difference| !is_roots_alone(difference) && !is_told(&difference.path, &told))
        .filter(|difference| !common::is_of_another_group(&src, difference))
        .collect();
    assert!(
        silent.is_empty(),
        "differences that no problem tells: {silent:#?}"
    );
}

/// A problem of a path, or of a directory above it that could not be read or made.
fn is_told(path: &[u8], told: &[Vec<u8>]) -> bool {
    told.iter().any(|problem| {
        path.strip_prefix(&problem[..])
            .is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    })
}

#[test]
fn a_dry_run_lends_an_ordinary_user_no_right() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    for dir in [src.join("closed"), dst.join("closed")] {
        std::fs::create_dir(&dir).expect("mkdir");
    }
    std::fs::write(src.join("closed/kept"), "x").expect("write");
    std::fs::write(dst.join("closed/extra"), "x").expect("write");
    for path in ["", "closed"] {
        for root in [&src, &dst] {
            attrs::set_owner(&root.join(path), USER, USER).expect("chown");
        }
    }
    attrs::set_mode(&dst.join("closed"), 0o555).expect("chmod");
    let before = snapshot_hash(&dst, true);
    let outcome = sync_by_user(&src, &dst)
        .args(["--delete", "--dry-run"])
        .run()
        .expect(0);
    assert_eq!(outcome.count("deleted"), 1, "{}", outcome.describe());
    assert_eq!(
        snapshot_hash(&dst, true),
        before,
        "a dry run changed something"
    );
}
