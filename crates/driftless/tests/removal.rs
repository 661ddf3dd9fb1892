//! What goes from a replica, and what stays: mounted file systems, what rules protect, what cannot
//! be removed. The dry run, the guard, the run and `verify` say the same of it.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Way, Who, kept};
use common::flags::Immutable;
use common::mounted::Mounted;
use common::{
    USER, check_accounts, check_equal, check_settled, is_user, names_below, on_trees, only_local,
    profile, put, sync, sync_by_user, sync_ok, verify,
};
use driftless_testkit::{Driftless, FsKind, Outcome, Profile, Scratch, attrs, build_tree, mutate};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const NONE: [&str; 0] = [];

fn stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("both"), "content");
    put(&dst.join("both"), "content");
    (scratch, src, dst)
}

/// The paths of all problems, sorted.
fn problems(outcome: &Outcome) -> Vec<String> {
    let mut paths: Vec<String> = outcome
        .events_named("problem")
        .iter()
        .map(|problem| problem["path"].as_str().expect("a path").to_owned())
        .collect();
    paths.sort();
    paths
}

/// Near, and with the replica on another host.
fn ways(src: &Path, dst: &Path) -> Vec<Driftless> {
    let mut ways = vec![sync(src, dst)];
    if !is_user() {
        ways.push(kept(Who::Root).sync(Way::Push, src, dst));
    }
    ways
}

/// Such a directory is listed window by window, and each window has a thread that removes names and
/// finds out for itself what the directory has.
#[test]
fn further_names_of_files_that_stay_go_from_a_root_with_many_of_them() {
    const NAMES: usize = 25_000;
    const EXTRA: usize = 24_000;
    let scratch = Scratch::new(FsKind::Tmpfs, 256);
    let src = scratch.dir("src");
    (0..NAMES).for_each(|number| put(&src.join(format!("n{number:05}")), ""));
    for (number, way) in [Way::Push, Way::Push].into_iter().enumerate() {
        let dst = scratch.path().join(format!("dst{number}"));
        sync_ok(&src, &dst, NONE);
        let extra = |number: usize| {
            fs::hard_link(
                dst.join(format!("n{number:05}")),
                dst.join(format!("x{number:05}")),
            )
            .expect("link")
        };
        (0..EXTRA).for_each(extra);
        let run = if number == 0 || is_user() {
            sync(&src, &dst)
        } else {
            kept(Who::Root).sync(way, &src, &dst)
        };
        let outcome = run.args(["--delete", "--jobs", "8"]).run().expect(0);
        assert_eq!(
            outcome.count("deleted") as usize,
            EXTRA,
            "{}",
            outcome.describe()
        );
        check_settled(&src, &dst, ["--delete"]);
        fs::remove_dir_all(&dst).expect("make room");
    }
}

#[test]
fn what_is_mounted_below_the_replica_is_never_removed() {
    let (scratch, src, dst) = stage();
    let elsewhere = scratch.dir("elsewhere");
    put(&elsewhere.join("precious"), "of the same file system");
    put(&dst.join("extra/old"), "goes");
    let _other = Mounted::tmpfs(&dst.join("extra/deep/other"));
    let _same = Mounted::bind(&elsewhere, &dst.join("extra/same"));
    let _top = Mounted::bind(&elsewhere, &dst.join("top"));
    put(
        &dst.join("extra/deep/other/precious"),
        "of another file system",
    );
    for more in [&["--one-file-system"][..], &[]] {
        for way in ways(&src, &dst) {
            put(&dst.join("extra/old"), "goes");
            let dry = way
                .clone()
                .args(["--delete", "--dry-run"])
                .args(more)
                .run()
                .expect(3);
            let outcome = way.args(["--delete"]).args(more).run().expect(3);
            check_accounts(&outcome);
            for said in [&dry, &outcome] {
                assert_eq!(
                    problems(said),
                    ["extra/deep/other", "extra/same", "top"],
                    "{}",
                    said.describe()
                );
                assert_eq!(said.count("deleted"), 1, "{}", said.describe());
            }
            assert!(!dst.join("extra/old").exists());
            assert!(
                dst.join("extra/deep/other/precious").exists()
                    && elsewhere.join("precious").exists(),
                "{}",
                outcome.describe()
            );
        }
    }
}

#[test]
fn what_rules_spare_in_a_directory_that_goes_is_counted_by_nobody() {
    for far in [false, true] {
        let (_scratch, src, dst) = stage();
        if far && is_user() {
            return;
        }
        let run = || {
            if far {
                kept(Who::Root).sync(Way::Push, &src, &dst)
            } else {
                sync(&src, &dst)
            }
            .args(["--delete", "--exclude=*.keep"])
        };
        for name in ["d/s/k.keep", "d/s/1", "d/2", "e/3"] {
            put(&dst.join(name), name);
        }
        let planned = run().arg("--dry-run").run().expect(0);
        let verified = on_trees("verify", &src, &dst)
            .args(["--json", "--exclude=*.keep"])
            .run()
            .expect(4);
        let refused = run().arg("--max-delete=3").run().expect(13);
        assert!(
            refused.stderr_text().contains("entries to delete: 4"),
            "{}",
            refused.describe()
        );
        let done = run().arg("--max-delete=4").run().expect(0);
        assert_eq!(
            [&planned, &verified, &done].map(|said| said.count("deleted")),
            [4; 3],
            "{}",
            done.describe()
        );
        assert_eq!(names_below(&dst), ["both", "d", "d/s", "d/s/k.keep"]);
        let again = run().args(["--max-delete=0", "--verbose"]).run().expect(0);
        assert_eq!(
            (again.count("deleted"), again.events_named("change").len()),
            (0, 0),
            "{}",
            again.describe()
        );
        let verified = on_trees("verify", &src, &dst)
            .args(["--json", "--exclude=*.keep"])
            .run()
            .expect(0);
        assert_eq!(verified.count("deleted"), 0);
    }
}

#[test]
fn all_that_may_go_goes_from_a_directory_in_which_much_is_spared() {
    // More names than are read at a time, on file systems that keep positions in different ways.
    for kind in [FsKind::Tmpfs, FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let scratch = Scratch::new(kind, 300);
        let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
        [&src, &dst]
            .into_iter()
            .for_each(|root| put(&root.join("both"), "content"));
        for index in 0..3000 {
            put(&dst.join(format!("d/{index}.keep")), "");
            put(&dst.join(format!("d/{index}")), "");
            put(&dst.join(format!("d/sub-{index}/below")), "");
        }
        let run = || sync(&src, &dst).args(["--delete", "--exclude=*.keep"]);
        let planned = run().arg("--dry-run").run().expect(0);
        let done = run().run().expect(0);
        assert_eq!(
            (planned.count("deleted"), done.count("deleted")),
            (9000, 9000),
            "{kind:?}\n{}",
            done.describe()
        );
        let left = names_below(&dst);
        assert_eq!(left.len(), 3002, "{kind:?}");
        assert!(
            left.iter()
                .filter(|name| name.contains('/'))
                .all(|name| name.ends_with(".keep")),
            "{kind:?}"
        );
    }
}

#[test]
fn a_share_of_the_replica_means_all_of_its_entries() {
    let (_scratch, src, dst) = stage();
    for index in 0..60 {
        put(&src.join(format!("e/{index}")), "");
    }
    for index in 0..49 {
        put(&src.join(format!("d/{index}")), "");
    }
    let _ = sync_ok(&src, &dst, NONE);
    fs::remove_dir_all(src.join("d")).expect("remove");
    // 50 entries of 112, which is 44 %.
    let outcome = sync(&src, &dst)
        .args(["--delete", "--max-delete=44%"])
        .run()
        .expect(13);
    assert!(
        outcome
            .stderr_text()
            .contains("entries to delete: 50, allowed: 49"),
        "{}",
        outcome.describe()
    );
    let _ = sync_ok(&src, &dst, ["--delete", "--max-delete=45%"]);
    check_equal(&src, &dst, "45 % may go");
    // Five entries that go with a replaced directory, which is met before anything else: 7 % of 69.
    put(&src.join("0"), "a file");
    (0..5).for_each(|index| put(&dst.join(format!("0/{index}")), ""));
    let outcome = sync(&src, &dst)
        .args(["--delete", "--max-delete=7%"])
        .run()
        .expect(13);
    check_accounts(&outcome);
    assert_eq!(problems(&outcome), ["0"], "{}", outcome.describe());
    let planned = sync_ok(&src, &dst, ["--delete", "--max-delete=8%", "--dry-run"]);
    let done = sync_ok(&src, &dst, ["--delete", "--max-delete=8%"]);
    assert_eq!(
        (planned.count("deleted"), done.count("deleted")),
        (5, 5),
        "{}",
        done.describe()
    );
    check_equal(&src, &dst, "8 % may go");
}

#[test]
fn each_entry_that_cannot_be_removed_is_told_once_by_its_own_path_and_cause() {
    let scratch = Scratch::new(FsKind::Ext4, 64);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    [&src, &dst]
        .into_iter()
        .for_each(|root| put(&root.join("both"), "content"));
    for name in ["d/sub/fixed", "d/sub/free", "d/also", "single"] {
        put(&dst.join(name), name);
    }
    let _fixed = ["d/sub/fixed", "d/also", "single"].map(|name| Immutable::of(dst.join(name)));
    for way in ways(&src, &dst) {
        let outcome = way.arg("--delete").run().expect(3);
        check_accounts(&outcome);
        assert_eq!(
            problems(&outcome),
            ["d/also", "d/sub/fixed", "single"],
            "{}",
            outcome.describe()
        );
        for problem in outcome.events_named("problem") {
            assert_eq!(
                problem["cause"],
                "it is immutable there: \"chattr -i\" frees it",
                "{}",
                outcome.describe()
            );
        }
        assert!(!dst.join("d/sub/free").exists());
    }
}

#[test]
fn a_dry_run_says_what_the_run_does_and_a_second_one_does_nothing() {
    // What an ordinary user cannot make is found out by trying.
    if is_user() {
        return;
    }
    for seed in 1..=6 {
        let scratch = Scratch::new(FsKind::Tmpfs, 256);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        build_tree(
            &src,
            seed,
            &Profile {
                large: false,
                entries: 60,
                ..profile()
            },
        );
        let _ = sync_ok(&src, &dst, NONE);
        mutate(&src, seed, 120);
        let run = |more: &[&str]| {
            sync(&src, &dst)
                .args(["--delete", "--exclude=*[1-4]"])
                .args(more)
                .run()
        };
        let (planned, done, again) = (run(&["--dry-run"]), run(&[]), run(&[]));
        [&planned, &done, &again]
            .into_iter()
            .for_each(check_accounts);
        let said =
            |outcome: &Outcome| (outcome.code(), outcome.count("deleted"), problems(outcome));
        assert_eq!(
            said(&planned),
            said(&done),
            "seed {seed}\n{}\n{}",
            planned.describe(),
            done.describe()
        );
        assert!(
            done.count("deleted") > 0,
            "seed {seed}: nothing is deleted, and nothing proven"
        );
        assert_eq!(
            (again.count("deleted"), again.count("changed")),
            (0, 0),
            "seed {seed}\n{}",
            again.describe()
        );
    }
}

#[test]
fn a_directory_that_is_emptied_by_others_meanwhile_is_no_problem() {
    let (_scratch, src, dst) = stage();
    for index in 0..200 {
        put(&dst.join(format!("d/{index}")), "");
    }
    let running = sync(&src, &dst)
        .args(["--delete", "--iops-limit=1000"])
        .spawn();
    let other = fs::remove_dir_all(dst.join("d"));
    let outcome = running.wait().expect(0);
    assert!(
        other.is_ok() || !dst.join("d").exists(),
        "{}",
        outcome.describe()
    );
    check_settled(&src, &dst, ["--delete"]);
}

/// What came of the entry `path`: the causes of its problems.
fn causes(outcome: &Outcome, path: &str) -> Vec<String> {
    let told = outcome.events_named("problem");
    told.iter()
        .filter(|problem| problem["path"] == path)
        .map(|problem| problem["cause"].as_str().expect("text").to_owned())
        .collect()
}

#[test]
fn a_directory_with_something_in_it_is_replaced_only_with_delete() {
    for far in [false, true] {
        let (_scratch, src, dst) = stage();
        if far && is_user() {
            return;
        }
        let run = || {
            if far {
                kept(Who::Root).sync(Way::Push, &src, &dst)
            } else {
                sync(&src, &dst)
            }
        };
        put(&src.join("file"), "now a file");
        put(&src.join("large"), "");
        fs::File::options()
            .write(true)
            .open(src.join("large"))
            .expect("open")
            .set_len(65 << 20)
            .expect("length");
        std::os::unix::fs::symlink("file", src.join("link")).expect("symlink");
        put(&src.join("empty"), "was an empty directory");
        fs::create_dir(dst.join("empty")).expect("dir");
        for name in ["file/a", "file/b/c", "large/a", "link/a"] {
            put(&dst.join(name), name);
        }
        for dry in [true, false] {
            let outcome = if dry { run().arg("--dry-run") } else { run() }
                .run()
                .expect(3);
            check_accounts(&outcome);
            assert_eq!(
                problems(&outcome),
                ["file", "large", "link"],
                "{}",
                outcome.describe()
            );
            assert!(
                causes(&outcome, "link")[0].contains("only with --delete"),
                "{}",
                outcome.describe()
            );
            assert_eq!(outcome.count("deleted"), 0);
        }
        assert!(
            dst.join("file/b/c").exists()
                && dst.join("large/a").exists()
                && dst.join("link/a").exists()
        );
        assert!(
            dst.join("empty").is_file(),
            "an empty directory is replaced"
        );
        let planned = run().args(["--delete", "--dry-run"]).run().expect(0);
        let done = run().arg("--delete").run().expect(0);
        check_accounts(&done);
        assert_eq!(
            (planned.count("deleted"), done.count("deleted")),
            (5, 5),
            "{}",
            done.describe()
        );
        check_equal(&src, &dst, "replaced");
    }
}

#[test]
fn repairing_replaces_a_directory_only_with_its_own_delete() {
    let (_scratch, src, dst) = stage();
    put(&src.join("x"), "a file");
    put(&dst.join("x/kept"), "kept");
    let verify = |more: &[&str]| verify(&src, &dst).args(more);
    let told = verify(&[]).run().expect(4);
    assert!(
        problems(&told).is_empty() && told.count("changed") > 0,
        "{}",
        told.describe()
    );
    let outcome = verify(&["--repair"]).run().expect(3);
    assert!(
        problems(&outcome) == ["x"] && dst.join("x/kept").exists(),
        "{}",
        outcome.describe()
    );
    let _ = verify(&["--repair", "--delete"]).run().expect(0);
    check_equal(&src, &dst, "repaired");
}

#[test]
fn a_hard_link_takes_the_place_of_a_directory_on_the_same_terms() {
    let (_scratch, src, dst) = stage();
    put(&src.join("a"), "content");
    fs::hard_link(src.join("a"), src.join("b")).expect("link");
    let _ = sync_ok(&src, &dst, NONE);
    fs::remove_file(dst.join("b")).expect("remove");
    for index in 0..5 {
        put(&dst.join(format!("b/{index}")), "");
    }
    for (arguments, why, code) in [
        (&["--delete", "--max-delete=4"][..], "--max-delete", 13),
        (&[], "only with --delete", 3),
        (&["--delete", "--exclude=/b/3"], "filters protect", 3),
    ] {
        let outcome = sync(&src, &dst).args(arguments).run().expect(code);
        check_accounts(&outcome);
        assert!(
            causes(&outcome, "b")[0].contains(why),
            "{arguments:?}\n{}",
            outcome.describe()
        );
        assert_eq!(
            fs::read_dir(dst.join("b")).expect("still there").count(),
            5,
            "{arguments:?}"
        );
    }
    let done = sync_ok(&src, &dst, ["--delete", "--max-delete=5"]);
    assert_eq!(done.count("deleted"), 5, "{}", done.describe());
    check_equal(&src, &dst, "linked");
}

#[test]
fn what_filters_protect_stays_where_another_kind_of_entry_shall_be() {
    let cases: [(&[&str], &str, &str); 4] = [
        (&["--exclude=*.keep"], "x", "x/deep/data.keep"),
        (&["--exclude=x/"], "x", "x/data"),
        (&["--include=*/", "--exclude=*"], "d/below", "d"),
        (&["--include=*/", "--exclude=/d"], "d/below", "d"),
    ];
    for (rules, source, protected) in cases {
        let (_scratch, src, dst) = stage();
        put(&src.join(source), "of the source");
        put(&dst.join(protected), "protected");
        for dry in [true, false] {
            let mode = if dry { "--dry-run" } else { "--verbose" };
            let outcome = sync(&src, &dst)
                .args(["--delete", mode])
                .args(rules)
                .run()
                .expect(3);
            check_accounts(&outcome);
            let top = source.split('/').next().expect("a name");
            assert!(
                causes(&outcome, top)[0].contains("filters protect"),
                "{rules:?}\n{}",
                outcome.describe()
            );
            assert_eq!(
                fs::read(dst.join(protected)).expect("still there"),
                b"protected",
                "{rules:?}"
            );
        }
        let _ = sync_ok(
            &src,
            &dst,
            ["--delete", "--delete-excluded"].iter().chain(rules),
        );
        assert!(
            fs::read(dst.join(protected)).is_err(),
            "{rules:?}: it is replaced"
        );
    }
}

#[test]
fn a_directory_in_which_something_is_mounted_is_not_moved() {
    let (_scratch, src, dst) = stage();
    put(&src.join("d"), "a file");
    put(&src.join("top"), "a file");
    let _inner = Mounted::tmpfs(&dst.join("d/deep/mnt"));
    put(&dst.join("d/deep/mnt/precious"), "precious");
    put(&dst.join("d/other"), "other");
    let _top = Mounted::tmpfs(&dst.join("top"));
    for way in ways(&src, &dst) {
        let outcome = way.arg("--delete").run().expect(3);
        assert_eq!(problems(&outcome), ["d", "top"], "{}", outcome.describe());
        assert!(
            causes(&outcome, "d")[0].contains("d/deep/mnt"),
            "{}",
            outcome.describe()
        );
        assert_eq!(
            names_below(&dst),
            [
                "both",
                "d",
                "d/deep",
                "d/deep/mnt",
                "d/deep/mnt/precious",
                "d/other",
                "top"
            ]
        );
    }
}

/// Runs it with an error or a signal injected into system calls.
fn injected(run: Driftless, what: &str) -> Driftless {
    run.through([
        "strace",
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "trace=renameat2,renameat,rename",
        "-e",
        &format!("inject={what}"),
        "--",
    ])
}

#[test]
fn something_always_stands_at_the_name_of_a_directory_that_is_replaced() {
    only_local!("makes calls of one process fail");
    for stop in 1..=4 {
        let (_scratch, src, dst) = stage();
        put(&src.join("d"), "a file");
        put(&dst.join("d/a/b"), "below");
        let what = format!("renameat2,renameat,rename:signal=KILL:when={stop}");
        let killed = injected(sync(&src, &dst).args(["--delete", "--jobs=1"]), &what).run();
        assert!(
            fs::symlink_metadata(dst.join("d")).is_ok(),
            "{}",
            killed.describe()
        );
        let _ = sync_ok(&src, &dst, ["--delete"]);
        check_equal(&src, &dst, "after the kill");
    }
}

#[test]
fn a_directory_is_replaced_where_names_cannot_change_places() {
    only_local!("makes calls of one process fail");
    let (_scratch, src, dst) = stage();
    put(&src.join("d"), "a file");
    put(&dst.join("d/a/b"), "below");
    for errno in ["EINVAL", "ENOSYS"] {
        let run = sync(&src, &dst).args(["--delete", "--jobs=1"]);
        let _ = injected(run, &format!("renameat2:error={errno}"))
            .run()
            .expect(0);
        check_equal(&src, &dst, errno);
        fs::remove_file(dst.join("d")).expect("remove");
        put(&dst.join("d/a/b"), "below");
    }
}

#[test]
fn a_directory_of_a_lower_layer_is_replaced() {
    let (scratch, src, _) = stage();
    let [low, up, work, at] = ["low", "up", "work", "over"].map(|name| scratch.dir(name));
    put(&low.join("dst/d/a/b"), "below");
    fs::create_dir(low.join("dst/empty")).expect("dir");
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        low.display(),
        up.display(),
        work.display()
    );
    let _over = Mounted::with(["-t", "overlay", "driftless-overlay", "-o", &layers], &at);
    let dst = at.join("dst");
    put(&src.join("d"), "a file");
    put(&src.join("empty"), "a file");
    let _ = sync_ok(&src, &dst, ["--delete"]);
    check_equal(&src, &dst, "overlay");
    check_settled(&src, &dst, ["--delete"]);
}

/// A name of the reserved form.
const RESERVED: &str = ".driftless-tmp-0123456789abcdef0123456789abcdef";

/// The name under which the unfinished copy of a large file is looked for (ARCHITECTURE.md,
/// Formats).
fn unfinished_name(name: &str) -> String {
    let fnv = name.bytes().fold(
        0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128,
        |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        },
    );
    format!(".driftless-tmp-{fnv:032x}")
}

#[test]
fn a_tree_of_others_that_was_given_a_name_of_ours_stays() {
    if is_user() {
        return;
    }
    let (_scratch, src, dst) = stage();
    put(&src.join("alice/large"), "");
    fs::File::options()
        .write(true)
        .open(src.join("alice/large"))
        .expect("open")
        .set_len(65 << 20)
        .expect("length");
    put(&src.join("group/file"), "content");
    fs::create_dir(src.join("root")).expect("dir");
    let taken = unfinished_name("large");
    let trees = [
        format!("alice/{RESERVED}"),
        format!("alice/{taken}"),
        format!("group/{RESERVED}"),
    ];
    for tree in &trees {
        put(&dst.join(tree).join("private/file"), "of root");
        attrs::set_mode(&dst.join(tree), 0o700).expect("chmod");
    }
    for name in [
        format!("alice/{}", unfinished_name("x")),
        format!("root/{RESERVED}/below"),
        format!("root/{taken}"),
    ] {
        put(&dst.join(name), "goes");
    }
    for (root, mode) in [(&src, 0o755), (&dst, 0o755), (&src, 0o775), (&dst, 0o775)] {
        let name = if mode == 0o755 { "alice" } else { "group" };
        attrs::set_owner(
            &root.join(name),
            if name == "alice" { common::USER } else { 0 },
            common::USER,
        )
        .expect("chown");
        attrs::set_mode(&root.join(name), mode).expect("chmod");
    }
    for way in ways(&src, &dst) {
        let outcome = way.run().expect(3);
        check_accounts(&outcome);
        assert!(
            trees
                .iter()
                .all(|tree| dst.join(tree).join("private/file").exists()),
            "{}",
            outcome.describe()
        );
        let mut told = problems(&outcome);
        told.dedup();
        let mut expected: Vec<&str> = trees
            .iter()
            .map(String::as_str)
            .chain(["alice/large"])
            .collect();
        expected.sort_unstable();
        assert_eq!(told, expected, "{}", outcome.describe());
        assert_eq!(
            names_below(&dst.join("root")),
            Vec::<String>::new(),
            "what lies where nobody else may rename goes"
        );
        assert!(
            !dst.join("alice").join(unfinished_name("x")).exists(),
            "what is no directory goes"
        );
    }
}

#[test]
fn what_a_killed_run_left_goes_from_a_directory_of_others_too() {
    only_local!("uses --copy-with, which is for trees on one machine");
    let (_scratch, src, dst) = stage();
    put(&src.join("alice/file"), "content");
    fs::create_dir(dst.join("alice")).expect("dir");
    [&src, &dst].into_iter().for_each(|root| {
        attrs::set_owner(&root.join("alice"), common::USER, common::USER).expect("chown")
    });
    let killed = sync(&src, &dst)
        .args([
            "--copy-with",
            "sh -c 'mkdir %d; touch %d/half; kill -9 $PPID' x %s",
        ])
        .run();
    assert_eq!(killed.code(), 137, "{}", killed.describe());
    assert!(
        !common::leftovers(&dst).is_empty(),
        "the test needs something that is left"
    );
    let _ = sync_ok(&src, &dst, NONE);
    assert_eq!(common::leftovers(&dst), Vec::<PathBuf>::new());
    check_equal(&src, &dst, "nothing is left");
}

#[test]
fn what_is_tried_again_after_the_deletes_takes_no_more_than_they_left() {
    let (_scratch, src, dst) = stage();
    (1..10).for_each(|index| put(&src.join(format!("k/{index}")), ""));
    let _ = sync_ok(&src, &dst, NONE);
    (1..5).for_each(|index| put(&dst.join(format!("g/{index}")), ""));
    (1..6).for_each(|index| put(&dst.join(format!("repl/{index}")), ""));
    put(&src.join("repl"), "a file");
    // Ten entries would go of 22, and 8 may.
    let outcome = sync(&src, &dst)
        .args(["--jobs=1", "--delete", "--max-delete=40%"])
        .run();
    assert!(
        outcome.code() != 0 && outcome.count("deleted") <= 8,
        "{}",
        outcome.describe()
    );
}

#[test]
fn what_there_is_room_for_after_the_deletes_alone_is_counted_once() {
    const MIB: usize = 1 << 20;
    let (source, replica) = (
        Scratch::new(FsKind::Tmpfs, 64),
        Scratch::new(FsKind::Tmpfs, 10),
    );
    let (src, dst) = (source.dir("src"), replica.dir("dst"));
    for name in ["a", "b/c"] {
        put(&src.join(name).join("new"), vec![1u8; 3 * MIB]);
        put(&src.join(name).join("stays"), "content");
        put(&dst.join(name).join("old"), vec![2u8; 4 * MIB]);
    }
    let outcome = sync_ok(&src, &dst, ["--delete"]);
    assert_eq!(outcome.count("deleted"), 2, "{}", outcome.describe());
    assert_eq!(
        outcome.count("seen"),
        common::count_entries(&src),
        "{}",
        outcome.describe()
    );
    check_equal(&src, &dst, "after the deletes");
    check_settled(&src, &dst, ["--delete"]);
}

#[test]
fn a_leftover_that_cannot_be_removed_is_told_with_the_cause_of_that() {
    let scratch = Scratch::new(FsKind::Ext4, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    let leftover = ".driftless-tmp-0123456789abcdef0123456789abcdef";
    put(&src.join("file"), "content");
    put(&dst.join(leftover), "unfinished");
    let fixed = Immutable::of(dst.join(leftover));
    let outcome = sync(&src, &dst).run().expect(3);
    drop(fixed);
    check_accounts(&outcome);
    let problems = outcome.events_named("problem");
    assert_eq!(problems.len(), 1, "{}", outcome.describe());
    let told = ["path", "act", "cause"]
        .map(|field| problems[0][field].as_str().unwrap_or_default().to_owned());
    assert_eq!(
        (told[0].as_str(), told[1].as_str()),
        (leftover, "remove it"),
        "{told:?}"
    );
    assert!(told[2].contains("immutable"), "{told:?}");
    let _ = sync_ok(&src, &dst, NONE);
}

#[test]
fn an_empty_subvolume_goes_and_one_with_something_in_it_is_told_to_be_one() {
    let scratch = Scratch::new(FsKind::Btrfs, 160);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("both"), "content");
    put(&dst.join("both"), "content");
    fs::create_dir(dst.join("dir")).expect("make");
    for name in ["empty", "dir/full"] {
        let made = Command::new("btrfs")
            .args(["-q", "subvolume", "create"])
            .arg(dst.join(name))
            .output()
            .expect("btrfs starts");
        assert!(made.status.success(), "{made:?}");
    }
    put(&dst.join("dir/full/file"), "content");
    for arguments in [&["--delete", "--dry-run"][..], &["--delete"]] {
        let outcome = sync(&src, &dst).args(arguments).run().expect(3);
        check_accounts(&outcome);
        assert_eq!(
            (problems(&outcome), outcome.count("deleted")),
            (vec!["dir/full".into()], 1),
            "{}",
            outcome.describe()
        );
        let problem = &outcome.events_named("problem")[0];
        assert_eq!(
            problem["act"],
            "remove the subvolume",
            "{}",
            outcome.describe()
        );
        assert!(
            causes(&outcome, "dir/full")[0].contains("btrfs subvolume delete"),
            "{}",
            outcome.describe()
        );
    }
    assert!(!dst.join("empty").exists() && dst.join("dir/full/file").exists());
    fs::remove_file(dst.join("dir/full/file")).expect("remove");
    let _ = sync_ok(&src, &dst, ["--delete"]);
    check_equal(&src, &dst, "all went");
}

#[test]
fn what_is_somebody_elses_in_a_sticky_directory_is_told_to_be_so() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("dir/replaced"), "longer than before");
    for name in ["dir/replaced", "dir/extra"] {
        put(&dst.join(name), "of another");
        attrs::set_owner(&dst.join(name), 5, 5).expect("chown");
    }
    for dir in [src.join("dir"), dst.join("dir")] {
        attrs::set_mode(&dir, 0o1777).expect("chmod");
    }
    for path in [&src, &src.join("dir/replaced"), &dst] {
        attrs::set_owner(path, USER, USER).expect("chown");
    }
    let outcome = sync_by_user(&src, &dst)
        .args(["--delete", "--no-times"])
        .run()
        .expect(3);
    check_accounts(&outcome);
    assert_eq!(
        problems(&outcome),
        ["dir/extra", "dir/replaced"],
        "{}",
        outcome.describe()
    );
    for name in ["dir/extra", "dir/replaced"] {
        assert!(
            causes(&outcome, name)[0].contains("its directory is sticky"),
            "{}",
            outcome.describe()
        );
    }
}
