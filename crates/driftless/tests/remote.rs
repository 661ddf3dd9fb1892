//! Trees on other hosts are kept as local ones are: pushed, pulled and between two hosts, over a
//! real ssh server.
//!
//! The other host is this machine, so both trees can be judged here, and the same run can be made
//! locally for comparison.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way, Who};
use common::{
    USER, check_accounts, check_equal, check_equal_twice, driftless, leftovers, names_below, put,
    sync, wait_until,
};
use driftless_testkit::{
    FsKind, Options, Outcome, Profile, Scratch, attrs, build_tree, compare, deep_path, mutate,
    remove_deep, snapshot_hash,
};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];
const MIB: usize = 1 << 20;
const WIDE_FILES: usize = 20_000;
/// Deeper than any path can name: 20 times 255 is more than 4096.
const DEEP_LEVELS: usize = 60;
const NAME_BYTES: usize = 255;
const LARGE_BYTES: usize = 200 * MIB;
/// Progress is recorded each 256 MiB.
const LARGEST_BYTES: usize = 320 * MIB;

fn stage(size_mib: u64) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, size_mib);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (scratch, src, dst)
}

/// Another run finds nothing to do and touches nothing, not even a change time.
fn check_settled(far: &Far, way: Way, src: &Path, dst: &Path) {
    let before = snapshot_hash(dst, true);
    let outcome = far.sync_ok(way, src, dst, ["--delete"]);
    for field in ["changed", "deleted", "bytes_copied", "failed"] {
        assert_eq!(
            outcome.count(field),
            0,
            "{field} of a second run, {way:?}\n{}",
            outcome.describe()
        );
    }
    assert_eq!(
        snapshot_hash(dst, true),
        before,
        "a second run touched the replica, {way:?}\n{}",
        outcome.describe()
    );
}

/// What other commands say of two trees that are equal.
fn check_agreed(far: &Far, way: Way, src: &Path, dst: &Path) {
    let state = tempfile::tempdir().expect("temp folder");
    attrs::set_mode(state.path(), 0o777).expect("open to all");
    for arguments in [&["verify"][..], &["audit", "--samples=200"]] {
        let run = far
            .command(arguments[0], far.ends(way, src, dst))
            .args(&arguments[1..]);
        let _ = run.env("XDG_STATE_HOME", state.path()).run().expect(0);
    }
}

/// What a run said of paths: changes and problems, in an order of their own.
fn said(outcome: &Outcome) -> BTreeSet<String> {
    let of_paths =
        |event: &serde_json::Value| event["event"] == "change" || event["event"] == "problem";
    outcome
        .events()
        .iter()
        .filter(|event| of_paths(event))
        .map(ToString::to_string)
        .collect()
}

/// Panics with what only one of two runs has said.
fn check_same_words(one: &BTreeSet<String>, other: &BTreeSet<String>, context: &str) {
    let lines = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
        a.difference(b).cloned().collect::<Vec<_>>().join("\n")
    };
    let (left, right) = (lines(one, other), lines(other, one));
    assert!(
        left.is_empty() && right.is_empty(),
        "{context}: over the line only:\n{left}\nlocally only:\n{right}"
    );
}

fn hostile_round_trip(way: Way) {
    let far = Far::root();
    let (_scratch, src, dst) = stage(600);
    build_tree(&src, 31, &Profile::root());
    let _ = far.sync_ok(way, &src, &dst, NONE);
    check_equal_twice(&src, &dst, &format!("first copy, {way:?}"));
    check_settled(&far, way, &src, &dst);
    check_agreed(&far, way, &src, &dst);
    mutate(&src, 32, 150);
    let _ = far.sync_ok(way, &src, &dst, ["--delete"]);
    check_equal_twice(&src, &dst, &format!("after mutations, {way:?}"));
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

#[test]
fn root_pushes_the_hostile_tree() {
    hostile_round_trip(Way::Push);
}

#[test]
fn root_pulls_the_hostile_tree() {
    hostile_round_trip(Way::Pull);
}

#[test]
fn root_copies_the_hostile_tree_between_two_hosts() {
    hostile_round_trip(Way::Between);
}

#[test]
fn an_ordinary_user_copies_what_belongs_to_him() {
    let far = Far::of(Who::User);
    for way in Way::ALL {
        let (_scratch, src, dst) = stage(600);
        fs::create_dir(&dst).expect("replica");
        build_tree(
            &src,
            33,
            &Profile {
                large: way == Way::Push,
                ..Profile::user(USER, USER)
            },
        );
        attrs::set_owner(&dst, USER, USER).expect("chown");
        let _ = far.sync_ok(way, &src, &dst, NONE);
        check_equal_twice(&src, &dst, &format!("copy by an ordinary user, {way:?}"));
        check_settled(&far, way, &src, &dst);
        check_agreed(&far, way, &src, &dst);
        driftless_testkit::mutate::remove_any(&src.join("modes")).expect("remove");
        fs::write(src.join("names/with space"), "new content").expect("write");
        let _ = far.sync_ok(way, &src, &dst, ["--delete"]);
        check_equal(
            &src,
            &dst,
            &format!("a user deletes read-only directories and updates, {way:?}"),
        );
    }
}

#[test]
fn the_hostile_tree_crosses_file_systems() {
    let far = Far::root();
    for (kind, way) in [(FsKind::Ext4, Way::Push), (FsKind::Btrfs, Way::Pull)] {
        let scratch = Scratch::new(kind, 400);
        let (near, src, _) = stage(400);
        let dst = scratch.path().join("dst");
        build_tree(
            &src,
            34,
            &Profile {
                large: false,
                ..Profile::root()
            },
        );
        let _ = far.sync_ok(way, &src, &dst, NONE);
        check_equal(&src, &dst, &format!("to {kind:?}, {way:?}"));
        check_settled(&far, way, &src, &dst);
        let back = near.path().join("back");
        let _ = far.sync_ok(way, &dst, &back, NONE);
        check_equal(&src, &back, &format!("and back from {kind:?}, {way:?}"));
    }
}

/// Options that change how the work is done and never what comes of it.
fn arguments(seed: u64) -> [&'static str; 3] {
    let jobs = ["--jobs=1", "--jobs=3", "--jobs=32", "--jobs=auto"][(seed % 4) as usize];
    let way = [
        "--streams=3",
        "--checksum",
        "--durability=file",
        "--cache=direct",
        "--verify",
    ][(seed % 5) as usize];
    ["--delete", jobs, way]
}

fn converge_after_mutations(way: Way, seeds: std::ops::Range<u64>) {
    let far = Far::root();
    for seed in seeds {
        let (_scratch, src, dst) = stage(400);
        build_tree(&src, seed, &Profile::small());
        for round in 0..3 {
            let context = format!("seed {seed}, round {round}, {way:?}");
            if round > 0 {
                mutate(&src, seed * 100 + round, 60);
                mutate(&dst, seed * 100 + 50 + round, 20);
            }
            let _ = far.sync_ok(way, &src, &dst, arguments(seed));
            check_equal(&src, &dst, &context);
            assert_eq!(leftovers(&dst), Vec::<PathBuf>::new(), "{context}");
        }
        check_settled(&far, way, &src, &dst);
    }
}

#[test]
fn random_trees_converge_when_pushed() {
    converge_after_mutations(Way::Push, 400..404);
}

#[test]
fn random_trees_converge_when_pulled() {
    converge_after_mutations(Way::Pull, 410..414);
}

#[test]
fn random_trees_converge_between_two_hosts() {
    converge_after_mutations(Way::Between, 420..422);
}

#[test]
fn a_dry_run_changes_nothing_and_lists_what_a_local_one_does() {
    let far = Far::root();
    let (_scratch, src, dst) = stage(400);
    build_tree(&src, 35, &Profile::small());
    for first in [true, false] {
        if !first {
            let _ = far.sync_ok(Way::Push, &src, &dst, NONE);
            mutate(&src, 36, 80);
            mutate(&dst, 37, 20);
        }
        let before = (!first).then(|| snapshot_hash(&dst, true));
        // With one thread the same name of a file comes first, and last, each time.
        let arguments = ["--dry-run", "--delete", "--no-hard-links", "--jobs=1"];
        let local = sync(&src, &dst).args(arguments).run().expect(0);
        for way in Way::ALL {
            let outcome = far.sync_ok(way, &src, &dst, arguments);
            check_same_words(&said(&outcome), &said(&local), &format!("{way:?}"));
            assert!(said(&outcome).len() > 20, "{}", outcome.describe());
            for field in ["seen", "same", "changed", "deleted", "skipped"] {
                assert_eq!(outcome.count(field), local.count(field), "{field}, {way:?}");
            }
        }
        assert_eq!(
            dst.exists().then(|| snapshot_hash(&dst, true)),
            before,
            "a dry run changed something"
        );
    }
}

#[test]
fn verify_lists_what_a_local_one_does_and_repairs_over_the_line() {
    let far = Far::root();
    let (scratch, src, dst) = stage(400);
    build_tree(&src, 38, &Profile::small());
    put(&src.join("large"), vec![3u8; 40 * MIB]);
    let _ = far.sync_ok(Way::Push, &src, &dst, NONE);
    let meta = fs::metadata(dst.join("large")).expect("stat");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(dst.join("large"))
        .expect("open");
    file.write_all_at(&[9], 20 * MIB as u64 + 5).expect("write");
    attrs::set_mtime(&dst.join("large"), meta.mtime(), meta.mtime_nsec() as u32).expect("mtime");
    mutate(&dst, 39, 20);
    let state = scratch.dir("state");
    let before = snapshot_hash(&dst, true);
    let differences = |outcome: &Outcome| -> BTreeSet<String> {
        outcome
            .events_named("difference")
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let arguments = ["--json", "--no-hard-links"];
    let local = driftless()
        .arg("verify")
        .args([&src, &dst])
        .args(arguments)
        .env("XDG_STATE_HOME", &state)
        .run()
        .expect(4);
    for way in Way::ALL {
        let outcome = far
            .command("verify", far.ends(way, &src, &dst))
            .args(arguments)
            .env("XDG_STATE_HOME", &state)
            .run()
            .expect(4);
        check_same_words(
            &differences(&outcome),
            &differences(&local),
            &format!("{way:?}"),
        );
    }
    assert_eq!(
        snapshot_hash(&dst, true),
        before,
        "a verification changed something"
    );
    let repair = far
        .command("verify", far.ends(Way::Push, &src, &dst))
        .args(["--repair", "--delete"])
        .env("XDG_STATE_HOME", &state);
    let _ = repair.run().expect(0);
    check_equal(&src, &dst, "repaired");
}

#[test]
fn a_directory_of_links_whose_targets_are_as_long_as_can_be_is_kept() {
    const LINKS: usize = 5000;
    let far = Far::root();
    for way in [Way::Push, Way::Pull] {
        let (_scratch, src, dst) = stage(200);
        fs::create_dir_all(&src).expect("mkdir");
        let target = "x".repeat(4095);
        (0..LINKS).for_each(|index| {
            std::os::unix::fs::symlink(&target, src.join(index.to_string())).expect("symlink")
        });
        let _ = far.sync_ok(way, &src, &dst, NONE);
        check_settled(&far, way, &src, &dst);
        check_equal(&src, &dst, "long targets");
    }
}

#[test]
fn attributes_that_no_message_holds_are_a_problem_of_their_entry() {
    let far = Far::root();
    for way in [Way::Push, Way::Pull] {
        let scratch = Scratch::new(FsKind::Xfs, 512);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        put(&src.join("a"), "content");
        put(&src.join("b"), "content");
        (0..300).for_each(|index| {
            attrs::set_xattr(
                &src.join("a"),
                format!("user.{index}").as_bytes(),
                &[b'x'; 60_000],
            )
            .expect("xattr");
        });
        let outcome = far
            .command("sync", far.ends(way, &src, &dst))
            .args(["--json"])
            .run()
            .expect(3);
        assert!(
            outcome.describe().contains("too long"),
            "{}",
            outcome.describe()
        );
        let told: Vec<_> = outcome
            .events_named("problem")
            .iter()
            .map(|problem| problem["path"].clone())
            .collect();
        assert_eq!(told, ["a"], "{way:?}\n{}", outcome.describe());
        // Content may be kept without any of its attributes, but then all of it.
        assert!(
            ["a", "b"]
                .iter()
                .all(|name| fs::read(dst.join(name))
                    .map_or(*name == "a", |found| found == b"content")),
            "{way:?}"
        );
    }
}

#[test]
fn what_filters_exclude_stays_unless_it_is_to_go() {
    let far = Far::root();
    for way in Way::ALL {
        let (_scratch, src, dst) = stage(64);
        for name in ["keep/a", "keep/b.o", "sub/c"] {
            put(&src.join(name), name);
        }
        for name in ["gone/a", "gone/b.o", "keep/old", "keep/old.o", "extra.o"] {
            put(&dst.join(name), name);
        }
        let _ = far.sync_ok(way, &src, &dst, ["--delete", "--exclude=*.o"]);
        let wanted = [
            "extra.o",
            "gone",
            "gone/b.o",
            "keep",
            "keep/a",
            "keep/old.o",
            "sub",
            "sub/c",
        ];
        assert_eq!(names_below(&dst), wanted, "{way:?}");
        let _ = far.sync_ok(
            way,
            &src,
            &dst,
            ["--delete", "--delete-excluded", "--exclude=*.o"],
        );
        assert_eq!(
            names_below(&dst),
            ["keep", "keep/a", "sub", "sub/c"],
            "{way:?}"
        );
    }
}

#[test]
fn content_that_differs_under_equal_times_is_found_with_checksum() {
    let far = Far::root();
    for way in [Way::Push, Way::Pull] {
        let (_scratch, src, dst) = stage(200);
        for (name, size) in [("small", 5000), ("large", 40 * MIB)] {
            put(&src.join(name), vec![1u8; size]);
        }
        let _ = far.sync_ok(way, &src, &dst, NONE);
        for name in ["small", "large"] {
            let meta = fs::metadata(src.join(name)).expect("stat");
            let file = fs::OpenOptions::new()
                .write(true)
                .open(dst.join(name))
                .expect("open");
            file.write_all_at(&[2], meta.size() - 7).expect("write");
            attrs::set_mtime(&dst.join(name), meta.mtime(), meta.mtime_nsec() as u32)
                .expect("mtime");
        }
        assert_eq!(
            far.sync_ok(way, &src, &dst, NONE).count("changed"),
            0,
            "size and time vouch for the content"
        );
        assert_eq!(
            far.sync_ok(way, &src, &dst, ["--checksum"])
                .count("changed"),
            2,
            "{way:?}"
        );
        check_equal(&src, &dst, &format!("with --checksum, {way:?}"));
    }
}

#[test]
fn unchanged_files_become_links_into_an_earlier_copy_there() {
    let far = Far::root();
    for way in Way::ALL {
        let (scratch, src, first) = stage(400);
        build_tree(&src, 40, &Profile::small());
        put(&src.join("unchanged"), "content");
        let _ = far.sync_ok(way, &src, &first, NONE);
        put(&src.join("new"), "content");
        let second = scratch.path().join("second");
        let link_dest = format!("--link-dest={}", first.display());
        let _ = far.sync_ok(way, &src, &second, [link_dest.as_str()]);
        let inode = |root: &Path| fs::metadata(root.join("unchanged")).expect("stat").ino();
        assert_eq!(inode(&first), inode(&second), "{way:?}");
        check_equal(&src, &second, &format!("with --link-dest, {way:?}"));
    }
}

#[test]
fn a_single_entry_goes_to_a_name() {
    let far = Far::root();
    for way in Way::ALL {
        let (scratch, src, _) = stage(64);
        put(&src.join("file"), "content");
        attrs::set_xattr(&src.join("file"), b"user.note", b"kept").expect("xattr");
        let into = scratch.dir("into");
        put(&into.join("other"), "stays");
        let (from, to) = (src.join("file"), into.join("copy"));
        for content in ["content", "other content"] {
            put(&from, content);
            let _ = far.sync_ok(way, &from, &to, NONE);
            check_equal(&from, &to, &format!("a single file, {way:?}"));
        }
        assert_eq!(names_below(&into), ["copy", "other"], "{way:?}");
    }
}

#[test]
fn written_data_is_read_back_there() {
    let far = Far::root();
    for way in [Way::Push, Way::Pull] {
        for level in ["--verify", "--verify=media"] {
            let (_scratch, src, dst) = stage(400);
            build_tree(&src, 41, &Profile::small());
            put(&src.join("large"), vec![7u8; 40 * MIB]);
            let outcome = far.sync_ok(way, &src, &dst, [level]);
            assert_eq!(outcome.count("mismatched"), 0);
            check_equal(&src, &dst, &format!("{level}, {way:?}"));
        }
    }
}

#[test]
fn only_listed_paths_are_looked_at() {
    let far = Far::root();
    for way in Way::ALL {
        let (scratch, src, dst) = stage(64);
        for name in ["a/1", "a/2", "b/1", "c/d/e"] {
            put(&src.join(name), name);
        }
        put(&dst.join("stays"), "content");
        let list = scratch.path().join("list");
        fs::write(&list, "a/2\nc\ngone\n").expect("list");
        put(&dst.join("gone"), "content");
        let argument = format!("--files-from={}", list.display());
        let outcome = far
            .sync(way, &src, &dst)
            .args([argument.as_str(), "--delete"])
            .run()
            .expect(3);
        assert_eq!(
            names_below(&dst),
            ["a", "a/2", "c", "c/d", "c/d/e", "gone", "stays"],
            "{way:?}"
        );
        assert!(
            outcome
                .events_named("problem")
                .iter()
                .all(|problem| problem["path"] == "gone"),
            "{way:?}\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn trees_deeper_than_any_path_are_kept() {
    let far = Far::root();
    for way in Way::ALL {
        let (_scratch, src, dst) = stage(64);
        deep_path(&src, DEEP_LEVELS, NAME_BYTES).expect("deep");
        let _ = far.sync_ok(way, &src, &dst, ["--delete"]);
        check_equal(&src, &dst, &format!("deep, {way:?}"));
        remove_deep(&src).expect("remove");
        put(&src.join("left"), "content");
        let _ = far.sync_ok(way, &src, &dst, ["--delete", "--delete-unlike"]);
        check_equal(&src, &dst, &format!("a deep tree is deleted, {way:?}"));
    }
}

#[test]
fn a_wide_directory_is_kept() {
    let far = Far::root();
    for way in [Way::Push, Way::Pull] {
        let (_scratch, src, dst) = stage(400);
        for index in 0..WIDE_FILES {
            put(&src.join(format!("file-{index}")), index.to_le_bytes());
        }
        let outcome = far.sync_ok(way, &src, &dst, NONE);
        assert_eq!(outcome.count("changed"), WIDE_FILES as u64 + 1);
        check_equal(&src, &dst, &format!("wide, {way:?}"));
        for index in (0..WIDE_FILES).step_by(3) {
            fs::remove_file(src.join(format!("file-{index}"))).expect("remove");
        }
        let outcome = far.sync_ok(way, &src, &dst, ["--delete"]);
        assert_eq!(outcome.count("deleted"), WIDE_FILES.div_ceil(3) as u64);
        check_equal(
            &src,
            &dst,
            &format!("a wide directory with deletes, {way:?}"),
        );
    }
}

#[test]
fn a_name_that_came_into_the_source_while_the_run_lasted_is_not_deleted() {
    let far = Far::root();
    for way in [Way::Push, Way::Pull] {
        let (_scratch, src, dst) = stage(64);
        put(&src.join("slow/large"), vec![1u8; 12 * MIB]);
        put(&src.join("done/file"), "content");
        put(&dst.join("done/late"), "there before");
        put(&dst.join("done/extra"), "only here");
        attrs::set_mtime(&src.join("done"), 1_000_000, 1).expect("mtime");
        let running = far
            .sync(way, &src, &dst)
            .args(["--delete", "--bwlimit=4M"])
            .spawn();
        wait_until("one directory is done, and another begun", || {
            dst.join("slow").exists()
                && fs::metadata(dst.join("done")).expect("stat").mtime() == 1_000_000
        });
        put(&src.join("done/late"), "there before");
        // Nobody has compared it, so that it is there proves nothing.
        let outcome = running.wait().expect(5);
        assert!(
            dst.join("done/late").exists(),
            "{way:?}: what the source has was deleted\n{}",
            outcome.describe()
        );
        assert!(
            !dst.join("done/extra").exists(),
            "{way:?}\n{}",
            outcome.describe()
        );
    }
}

/// A file of which a part is data: no two words of it are alike.
fn put_large(path: &Path, bytes: usize, holes: bool) {
    let file = fs::File::create(path).expect("create");
    file.set_len(bytes as u64).expect("size");
    let mut rng = fastrand::Rng::with_seed(bytes as u64);
    let mut block = vec![0u8; MIB];
    for (index, start) in (0..bytes).step_by(MIB).enumerate() {
        if holes && index % 5 == 2 {
            continue;
        }
        rng.fill(&mut block);
        file.write_all_at(&block[..MIB.min(bytes - start)], start as u64)
            .expect("write");
    }
}

#[test]
fn a_large_file_with_holes_is_kept() {
    let far = Far::root();
    for way in [Way::Push, Way::Pull] {
        let (_scratch, src, dst) = stage(500);
        put_large(&src.join("large"), LARGE_BYTES + 12_345, true);
        let _ = far.sync_ok(way, &src, &dst, NONE);
        check_equal(&src, &dst, &format!("large, {way:?}"));
    }
}

/// Like `leftovers` for one directory that changes while it is listed.
fn unfinished(dst: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(dst).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| common::is_temp(path))
}

#[test]
fn a_large_file_goes_on_where_a_killed_run_stopped() {
    let far = Far::root();
    for way in [Way::Push, Way::Pull] {
        let (_scratch, src, dst) = stage(800);
        put_large(&src.join("large"), LARGEST_BYTES, false);
        let running = far
            .sync(way, &src, &dst)
            .args(["--bwlimit=150M", "--jobs=1"])
            .spawn();
        wait_until("a part of the large file is recorded", || {
            assert!(!dst.join("large").exists(), "it ended before that");
            let note = unfinished(&dst).and_then(|path| {
                attrs::get_xattr(&path, b"user.driftless.resume")
                    .ok()
                    .flatten()
            });
            note.is_some_and(|note| String::from_utf8_lossy(&note).lines().count() > 2)
        });
        running.signal(Signal::KILL);
        assert_eq!(running.wait().code(), 137);
        // The agent may live a moment longer, and the replica is its own until then.
        wait_until("the sessions have ended", || {
            sync_again_is_let_in(&far, way, &src, &dst)
        });
        check_equal(&src, &dst, &format!("resumed, {way:?}"));
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
    }
}

/// Goes on after a kill; false if the replica is still in use.
fn sync_again_is_let_in(far: &Far, way: Way, src: &Path, dst: &Path) -> bool {
    let outcome = far.sync(way, src, dst).run();
    if outcome.code() == 11 {
        return false;
    }
    let outcome = outcome.expect(0);
    let (resumed, copied) = (
        outcome.count("bytes_resumed"),
        outcome.count("bytes_copied"),
    );
    assert!(
        resumed > 0 && resumed + copied <= LARGEST_BYTES as u64,
        "{way:?}\n{}",
        outcome.describe()
    );
    true
}

#[test]
fn what_an_ordinary_user_cannot_read_is_told_as_locally() {
    let far = Far::of(Who::User);
    let (scratch, src, _) = stage(64);
    for name in ["open", "closed", "shut/inside", "sub/open"] {
        put(&src.join(name), name);
    }
    attrs::set_mode(&src.join("closed"), 0o600).expect("chmod");
    attrs::set_mode(&src.join("shut"), 0o700).expect("chmod");
    let problems = |dst: &Path, run: driftless_testkit::Driftless| {
        let outcome = run.arg("--no-owner").arg("--no-group").run().expect(3);
        check_accounts(&outcome);
        assert!(dst.join("sub/open").exists() && !dst.join("closed").exists());
        let problems = outcome.events_named("problem");
        assert!(
            problems.iter().any(|problem| problem["path"] == "closed"),
            "{}",
            outcome.describe()
        );
        problems
            .iter()
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>()
    };
    let replica = |name: &str| {
        let dst = scratch.dir(name);
        attrs::set_owner(&dst, USER, USER).expect("chown");
        dst
    };
    let dst = replica("local");
    let local = problems(&dst, sync(&src, &dst).as_user(USER, USER));
    for way in Way::ALL {
        let dst = replica(&format!("{way:?}"));
        check_same_words(
            &problems(&dst, far.sync(way, &src, &dst)),
            &local,
            &format!("{way:?}"),
        );
    }
}

#[test]
fn what_an_ordinary_user_cannot_keep_is_told_and_the_rest_is_equal() {
    let far = Far::of(Who::User);
    for way in [Way::Push, Way::Pull] {
        let (_scratch, src, dst) = stage(400);
        fs::create_dir(&dst).expect("replica");
        build_tree(
            &src,
            42,
            &Profile {
                unreadable: false,
                large: false,
                ..Profile::root()
            },
        );
        attrs::set_mode(&src, 0o755).expect("chmod");
        attrs::set_owner(&dst, USER, USER).expect("chown");
        let outcome = far.sync(way, &src, &dst).run().expect(3);
        check_accounts(&outcome);
        let told: Vec<Vec<u8>> = outcome
            .events_named("problem")
            .iter()
            .map(common::path_of)
            .collect();
        let is_told = |path: &[u8]| {
            told.iter().any(|told| {
                path.strip_prefix(&told[..])
                    .is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
            })
        };
        assert!(
            outcome.count("unkept_privileges") > 0,
            "{}",
            outcome.describe()
        );
        let all = compare(&src, &dst, &Options::default()).into_iter();
        let silent = all
            .filter(|difference| !common::is_roots_alone(difference) && !is_told(&difference.path))
            .filter(|difference| !common::is_of_another_group(&src, difference));
        let silent: Vec<String> = silent.map(|difference| difference.to_string()).collect();
        assert!(
            silent.is_empty(),
            "{way:?}: differences that no problem tells:\n{}\n{}",
            silent.join("\n"),
            outcome.describe()
        );
    }
}

#[test]
fn a_full_replica_is_told_as_locally() {
    let far = Far::root();
    let (_scratch, src, _) = stage(100);
    put(&src.join("small"), "content");
    put(&src.join("too-large"), vec![1u8; 30 * MIB]);
    for index in 0..40 {
        put(
            &src.join(format!("many/file-{index}")),
            vec![index as u8; 500_000],
        );
    }
    let full = |run: &dyn Fn(&Path) -> Outcome| {
        let small = Scratch::new(FsKind::Ext4, 12);
        let dst = small.dir("dst");
        let outcome = run(&dst);
        check_accounts(&outcome);
        let problems = outcome.events_named("problem");
        let no_space = |problem: &serde_json::Value| {
            problem["cause"] == "no space or no inode is left on the file system, see df and df -i"
                && problem["side"] == "replica"
        };
        assert!(
            problems
                .iter()
                .any(|problem| problem["path"] == "too-large" && no_space(problem)),
            "{}",
            outcome.describe()
        );
        assert!(problems.iter().all(no_space), "{}", outcome.describe());
        assert!(
            leftovers(&dst).len() <= 1,
            "at most the unfinished large file: {:?}",
            leftovers(&dst)
        );
        let torn: Vec<_> = compare(&src, &dst, &Options::default())
            .into_iter()
            .filter(|d| ["content", "size"].contains(&d.kind))
            .collect();
        assert!(torn.is_empty(), "{torn:?}");
        outcome.code()
    };
    let local = full(&|dst| sync(&src, dst).run());
    for way in [Way::Push, Way::Pull] {
        assert_eq!(
            full(&|dst| far.sync(way, &src, dst).run()),
            local,
            "{way:?}"
        );
    }
}

#[test]
fn a_second_run_on_the_same_replica_is_turned_away_wherever_it_comes_from() {
    let far = Far::root();
    let (_scratch, src, dst) = stage(200);
    put(&src.join("first"), "content");
    put(&src.join("slow"), vec![1u8; 64 * MIB]);
    let runs =
        |way: Option<Way>| way.map_or_else(|| sync(&src, &dst), |way| far.sync(way, &src, &dst));
    for (holder, others) in [
        (Some(Way::Push), [None, Some(Way::Push)]),
        (None, [Some(Way::Push), Some(Way::Between)]),
    ] {
        let first = runs(holder).arg("--bwlimit=1M").spawn();
        wait_until("the first run works", || {
            fs::read_dir(&dst).is_ok_and(|mut dir| dir.next().is_some())
        });
        for other in others {
            let outcome = runs(other).run().expect(11);
            let text = outcome.stderr_text();
            assert!(
                text.contains("another run is working on this replica"),
                "{}",
                outcome.describe()
            );
            assert!(
                text.contains("(process ") && text.contains(", since 20"),
                "who, and since when\n{}",
                outcome.describe()
            );
        }
        first.signal(Signal::KILL);
        assert_eq!(first.wait().code(), 137);
        wait_until("the lock has died with its run", || {
            runs(Some(Way::Push)).run().code() == 0
        });
        check_equal(&src, &dst, "the lock died with its run");
        driftless_testkit::remove_deep(&dst).expect("remove");
    }
}

#[test]
fn deletion_from_an_empty_source_is_refused() {
    let far = Far::root();
    for way in Way::ALL {
        let (_scratch, src, dst) = stage(64);
        put(&dst.join("kept"), "content");
        let before = snapshot_hash(&dst, true);
        let outcome = far.sync(way, &src, &dst).arg("--delete").run().expect(13);
        assert_eq!(
            snapshot_hash(&dst, true),
            before,
            "{way:?}\n{}",
            outcome.describe()
        );
        put(&src.join("kept"), "content");
        for index in 0..9 {
            put(&dst.join(format!("extra/{index}")), "content");
        }
        let outcome = far
            .sync(way, &src, &dst)
            .args(["--delete", "--max-delete=5"])
            .run()
            .expect(13);
        assert_eq!(
            (outcome.count("deleted"), dst.join("extra/0").exists()),
            (0, true),
            "{way:?}"
        );
    }
}

#[test]
fn roots_that_cannot_be_synced_are_refused_on_one_machine_by_whatever_way() {
    let far = Far::root();
    let (scratch, src, dst) = stage(64);
    let root = scratch.path();
    put(&src.join("inner/file"), "content");
    put(&dst.join("inner/file"), "content");
    put(&root.join("file"), "content");
    std::os::unix::fs::symlink(&src, root.join("alias")).expect("symlink");
    let cases = [
        (src.clone(), src.clone(), "same"),
        (src.clone(), src.join("inner/../../src"), "same"),
        (src.clone(), root.join("alias"), "same"),
        (root.join("file"), root.join("file"), "same"),
        (src.clone(), src.join("inner"), "inside"),
        (src.clone(), src.join("new"), "inside"),
        (dst.join("inner"), dst.clone(), "inside"),
        (src.clone(), root.join("file"), "the replica"),
        (root.join("file"), dst.clone(), "the replica"),
        (
            root.join("missing"),
            dst.clone(),
            "no such file or directory",
        ),
        (
            src.clone(),
            root.join("no/such/parent"),
            "no such file or directory",
        ),
    ];
    let before = snapshot_hash(root, false);
    for way in Way::ALL {
        for (from, to, words) in &cases {
            let outcome = far.sync(way, from, to).arg("--delete").run();
            let (text, case) = (
                outcome.stderr_text(),
                format!("{way:?}, {} to {}", from.display(), to.display()),
            );
            assert_eq!(outcome.code(), 1, "{case}\n{}", outcome.describe());
            assert!(
                text.contains(words),
                "{case}: no word of \"{words}\"\n{}",
                outcome.describe()
            );
            assert_eq!(
                snapshot_hash(root, false),
                before,
                "{case}: something was touched"
            );
        }
    }
}
