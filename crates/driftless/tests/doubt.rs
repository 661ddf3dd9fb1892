//! Doubt is not absence: what cannot be looked at, is not there for a moment, or is of an unknown
//! kind is a problem of its path or is looked at again, and the replica keeps what it has.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mounted::Mounted;
use common::{
    check_accounts, check_equal, names_below, only_local, put, stage, sync, sync_ok, verify,
    wait_until,
};
use driftless_testkit::fuse::{Fuse, Mood};
use driftless_testkit::{Outcome, Running, Scratch};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const NONE: [&str; 0] = [];

/// A run of one thread that stops at files of the source: content is moved by a program that waits
/// after each whose first line begins with `gate` until it is told to go on.
struct Gated {
    folder: PathBuf,
    running: Option<Running>,
}

impl Gated {
    fn start(scratch: &Scratch, src: &Path, dst: &Path, arguments: &[&str]) -> Gated {
        let folder = scratch.dir("gates");
        let text = r#"cat "$1" > "$2"; read -r gate < "$2"; case $gate in gate*) : > "$3/at-$gate"; until [ -e "$3/go-$gate" ]; do sleep 0.01; done;; esac"#;
        let program = format!("sh -c '{text}' x %s %d '{}'", folder.display());
        let running = sync(src, dst)
            .args(["--jobs=1", "--copy-with", &program])
            .args(arguments)
            .spawn();
        Gated {
            folder,
            running: Some(running),
        }
    }

    /// Does something while the run waits at a gate.
    fn at(self, gate: &str, act: impl FnOnce()) -> Gated {
        wait_until(gate, || self.folder.join(format!("at-{gate}")).exists());
        act();
        put(&self.folder.join(format!("go-{gate}")), "");
        self
    }

    fn end(mut self) -> Outcome {
        self.running.take().expect("it ends once").wait()
    }
}

/// Makes calls on entries of a name fail.
fn failing(name: &str, calls: &str, error: &str, when: &str) -> Vec<String> {
    let (trace, inject) = (
        format!("trace={calls}"),
        format!("inject={calls}:error={error}:when={when}"),
    );
    [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        name,
        "-e",
        &trace,
        "-e",
        &inject,
        "--",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The paths and classes of the problems of a run.
fn problems(outcome: &Outcome) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let mut found: Vec<_> = outcome
        .events_named("problem")
        .iter()
        .map(|event| (text(&event["path"]), text(&event["class"])))
        .collect();
    found.sort();
    found
}

fn problem(path: &str, class: &str) -> Vec<(String, String)> {
    vec![(path.into(), class.into())]
}

#[test]
fn a_stale_directory_is_a_problem_and_not_absent() {
    only_local!("makes calls of one process fail");
    let (_scratch, src, dst) = stage();
    put(&src.join("vol1/file"), "content");
    put(&src.join("vol2/file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    put(&src.join("vol2/new"), "content");
    let before = names_below(&dst);
    for (calls, arguments) in [
        ("openat", &["--delete"][..]),
        ("openat", &[]),
        ("openat", &["--dry-run", "--delete"]),
    ] {
        let outcome = sync(&src, &dst)
            .args(arguments)
            .through(failing("vol2", calls, "ESTALE", "1+"))
            .run()
            .expect(3);
        check_accounts(&outcome);
        assert_eq!(
            problems(&outcome),
            problem("vol2", "skip"),
            "{}",
            outcome.describe()
        );
        assert_eq!(names_below(&dst), before, "{}", outcome.describe());
    }
    let verify = verify(&src, &dst);
    let outcome = verify
        .through(failing("vol2", "openat", "ESTALE", "1+"))
        .run()
        .expect(3);
    assert_eq!(
        problems(&outcome),
        problem("vol2", "skip"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn what_is_stale_once_is_looked_at_again() {
    only_local!("makes calls of one process fail");
    let (_scratch, src, dst) = stage();
    put(&src.join("vol1/file"), "content");
    put(&src.join("vol2/file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    for (index, calls) in ["openat", "getdents64", "statx"].into_iter().enumerate() {
        put(&src.join(format!("vol2/new-{index}")), "content");
        put(&src.join("vol1/file"), format!("another content {index}"));
        let names = if calls == "statx" { "file" } else { "vol2" };
        let path = if calls == "getdents64" {
            src.join("vol2").to_str().expect("text").to_owned()
        } else {
            names.to_owned()
        };
        let outcome = sync(&src, &dst)
            .args(["--jobs=1", "--delete"])
            .through(failing(&path, calls, "ESTALE", "1"))
            .run()
            .expect(0);
        check_accounts(&outcome);
        check_equal(
            &src,
            &dst,
            &format!("{calls} is stale once\n{}", outcome.describe()),
        );
    }
}

#[test]
fn a_directory_that_is_away_for_a_moment_is_entered_when_it_is_back() {
    only_local!("uses --copy-with, which is for trees on one machine");
    let (scratch, src, dst) = stage();
    put(&src.join("a/f"), "old");
    put(&src.join("first"), "x");
    put(&src.join("zz/second"), "x");
    let _ = sync_ok(&src, &dst, NONE);
    put(&src.join("first"), "gate one");
    put(&src.join("zz/second"), "gate two");
    let gone = || fs::remove_dir_all(src.join("a")).expect("remove");
    let back = || put(&src.join("a/f"), "new content");
    let outcome = Gated::start(&scratch, &src, &dst, &[])
        .at("gate one", gone)
        .at("gate two", back)
        .end()
        .expect(0);
    check_accounts(&outcome);
    check_equal(&src, &dst, &outcome.describe());
}

#[test]
fn a_directory_that_is_made_anew_after_it_was_done_is_entered_again() {
    only_local!("uses --copy-with, which is for trees on one machine");
    for arguments in [&[][..], &["--delete"]] {
        let (scratch, src, dst) = stage();
        put(&src.join("a/f"), "old");
        put(&src.join("a/old"), "old");
        put(&src.join("b/f"), "of another");
        put(&src.join("zz/last"), "x");
        let _ = sync_ok(&src, &dst, NONE);
        put(&src.join("zz/last"), "gate");
        let anew = || {
            fs::remove_dir_all(src.join("a")).expect("remove");
            fs::rename(src.join("b"), src.join("a")).expect("rename");
            put(&src.join("b/deep/g"), "new");
        };
        let outcome = Gated::start(&scratch, &src, &dst, arguments)
            .at("gate", anew)
            .end()
            .expect(0);
        check_accounts(&outcome);
        if arguments.is_empty() {
            fs::remove_file(dst.join("a/old")).expect("only the replica has it");
            fs::remove_file(dst.join("b/f")).expect("only the replica has it");
            let _ = sync_ok(&src, &dst, NONE);
        }
        check_equal(&src, &dst, &outcome.describe());
    }
}

#[test]
fn a_root_that_is_not_at_its_path_any_more_is_told() {
    only_local!("uses --copy-with, which is for trees on one machine");
    let moves: [fn(&Path, &Path); 2] = [
        |dst, away| fs::rename(dst, away).expect("rename"),
        |dst, away| {
            fs::rename(dst, away).expect("rename");
            fs::create_dir(dst).expect("mkdir");
        },
    ];
    for act in moves {
        let (scratch, src, dst) = stage();
        put(&src.join("f"), "gate");
        let away = scratch.path().join("away");
        let outcome = Gated::start(&scratch, &src, &dst, &[])
            .at("gate", || act(&dst, &away))
            .end()
            .expect(3);
        assert_eq!(
            problems(&outcome),
            problem(".", "skip"),
            "{}",
            outcome.describe()
        );
        check_accounts(&outcome);
        check_equal(&src, &away, "what was opened was made equal");
    }
}

#[test]
fn a_directory_that_is_removed_while_it_is_listed_is_gone_and_no_problem() {
    only_local!("makes calls of one process fail");
    let (_scratch, src, dst) = stage();
    for index in 0..5 {
        put(&src.join(format!("d{index}/file")), "content");
    }
    let _ = sync_ok(&src, &dst, NONE);
    // What a directory answers that was removed while it is open.
    let path = src.join("d3").to_str().expect("text").to_owned();
    let outcome = sync(&src, &dst)
        .args(["--jobs=1", "--delete"])
        .through(failing(&path, "getdents64", "ENOENT", "1"))
        .run()
        .expect(0);
    check_accounts(&outcome);
    check_equal(&src, &dst, &outcome.describe());
    // It is there, and never to be listed: that is not a directory without entries.
    let outcome = sync(&src, &dst)
        .args(["--jobs=1", "--delete"])
        .through(failing(&path, "getdents64", "ENOENT", "1+"))
        .run()
        .expect(5);
    check_accounts(&outcome);
    check_equal(&src, &dst, &outcome.describe());
}

#[test]
fn what_vanishes_during_a_run_goes_from_the_replica() {
    only_local!("uses --copy-with, which is for trees on one machine");
    for first in [true, false] {
        let (scratch, src, dst) = stage();
        put(&src.join("a"), "content");
        put(&src.join("gone"), "content");
        put(&src.join("made/x"), "content");
        put(&src.join("zz/last"), "x");
        if !first {
            let _ = sync_ok(&src, &dst, NONE);
            put(&dst.join("extra"), "only there");
        }
        put(&src.join("zz/last"), "gate");
        let change = || {
            fs::rename(src.join("a"), src.join("b")).expect("rename");
            fs::remove_file(src.join("gone")).expect("remove");
            fs::remove_dir_all(src.join("made")).expect("remove");
        };
        // What was to go from the beginning does not count twice: a, gone, made, made/x, extra.
        let outcome = Gated::start(&scratch, &src, &dst, &["--delete", "--max-delete=5"])
            .at("gate", change)
            .end()
            .expect(0);
        check_accounts(&outcome);
        assert_eq!(
            outcome.count("deleted"),
            if first { 4 } else { 5 },
            "{}",
            outcome.describe()
        );
        check_equal(&src, &dst, &outcome.describe());
    }
}

#[test]
fn what_comes_back_before_the_deletes_stays_whatever_the_rules_say() {
    only_local!("uses --copy-with, which is for trees on one machine");
    let (scratch, src, dst) = stage();
    put(&src.join("d/a"), "content");
    put(&src.join("zz/last"), "gate");
    put(&dst.join("d/late"), "older");
    put(&dst.join("d/x.o"), "left out");
    fs::create_dir_all(dst.join("zz")).expect("dir");
    let arguments = ["--delete", "--delete-excluded", "--exclude=*.o"];
    let back = || put(&src.join("d/late"), "important");
    let outcome = Gated::start(&scratch, &src, &dst, &arguments)
        .at("gate", back)
        .end()
        .expect(5);
    assert_eq!(
        problems(&outcome),
        problem("d/late", "changing"),
        "nobody has compared it\n{}",
        outcome.describe()
    );
    assert_eq!(names_below(&dst), ["d", "d/a", "d/late", "zz", "zz/last"]);
}

#[test]
fn a_second_look_that_fails_is_a_problem_and_nothing_goes() {
    only_local!("makes calls of one process fail");
    let (_scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    for side in ["replica", "source"] {
        let _ = sync_ok(&src, &dst, ["--delete"]);
        put(&dst.join("extra"), "only there");
        let when = if side == "replica" { "1" } else { "2" };
        for error in ["EIO", "EACCES", "ESTALE"] {
            let outcome = sync(&src, &dst)
                .arg("--delete")
                .through(failing("extra", "statx", error, when))
                .run()
                .expect(3);
            check_accounts(&outcome);
            assert_eq!(
                problems(&outcome),
                problem("extra", "skip"),
                "{}",
                outcome.describe()
            );
            assert_eq!(
                outcome.events_named("problem")[0]["side"],
                side,
                "{}",
                outcome.describe()
            );
            assert!(dst.join("extra").exists());
        }
    }
}

#[test]
fn a_directory_that_the_source_loses_before_the_deletes_is_changing() {
    only_local!("makes calls of one process fail");
    let (_scratch, src, dst) = stage();
    put(&src.join("d/file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    put(&dst.join("d/extra"), "only there");
    // The second opening in each of the two phases: of the replica's directory in the walk, which
    // is tried again, and of the source's before the deletes.
    let outcome = sync(&src, &dst)
        .args(["--delete", "--jobs=1"])
        .through(failing("d", "openat", "ENOENT", "2"))
        .run()
        .expect(5);
    check_accounts(&outcome);
    assert_eq!(
        problems(&outcome),
        problem("d", "changing"),
        "{}",
        outcome.describe()
    );
    assert!(dst.join("d/extra").exists());
    // That it cannot be opened says nothing of whether it is there.
    let outcome = sync(&src, &dst)
        .args(["--delete", "--jobs=1"])
        .through(failing("d", "openat", "EIO", "2"))
        .run()
        .expect(3);
    assert_eq!(
        problems(&outcome),
        problem("d", "skip"),
        "{}",
        outcome.describe()
    );
    // Where the replica has lost it, there is nothing to remove, and nothing to say.
    let outcome = sync(&src, &dst)
        .args(["--delete", "--jobs=1"])
        .through(failing("d", "openat", "ENOENT", "1"))
        .run()
        .expect(0);
    assert_eq!(problems(&outcome), [], "{}", outcome.describe());
}

/// A file system whose listings tell no kinds.
fn kindless(scratch: &Scratch) -> Mounted {
    let image = scratch.path().join("image");
    fs::File::create(&image)
        .expect("image")
        .set_len(16 << 20)
        .expect("size");
    let status = Command::new("mkfs.ext2")
        .args(["-q", "-F", "-O", "^filetype"])
        .arg(&image)
        .status();
    assert!(status.expect("mkfs.ext2 runs").success());
    Mounted::with(
        [Path::new("-o"), Path::new("loop"), &image],
        &scratch.path().join("mounted"),
    )
}

/// One with room for 40 names.
fn narrow(scratch: &Scratch) -> Mounted {
    Mounted::with(
        ["-t", "tmpfs", "-o", "nr_inodes=40", "driftless-narrow"],
        &scratch.path().join("mounted"),
    )
}

#[test]
fn rules_for_directories_protect_where_listings_tell_no_kinds() {
    only_local!("makes calls of one process fail");
    let (scratch, src, _) = stage();
    let kindless = kindless(&scratch);
    let dst = kindless.path().join("dst");
    put(&src.join("x"), "content");
    put(&dst.join("x"), "older content");
    put(&dst.join("scratch/precious"), "keep");
    put(&dst.join("goes/scratch/precious"), "keep");
    put(&dst.join("goes/other"), "content");
    put(&dst.join("other/file"), "content");
    let outcome = sync_ok(&src, &dst, ["--delete", "--exclude=scratch/"]);
    assert_eq!(
        names_below(&dst),
        [
            "goes",
            "goes/scratch",
            "goes/scratch/precious",
            "scratch",
            "scratch/precious",
            "x"
        ]
    );
    assert_eq!(outcome.count("deleted"), 3, "{}", outcome.describe());
    // Of what kind an entry is cannot be found out: it stays, and that is told.
    put(&dst.join("scratch2"), "content");
    let outcome = sync(&src, &dst)
        .args(["--delete", "--exclude=scratch/"])
        .through(failing("scratch2", "statx", "EIO", "1+"))
        .run();
    assert_eq!(problems(&outcome.expect(3)), problem("scratch2", "skip"));
    assert!(dst.join("scratch2").exists());
    let _ = sync_ok(
        &src,
        &dst,
        ["--delete", "--delete-excluded", "--exclude=scratch/"],
    );
    assert_eq!(names_below(&dst), ["x"]);
}

#[test]
fn what_is_listed_below_something_that_is_no_directory_is_told_path_by_path() {
    let (scratch, src, dst) = stage();
    put(&src.join("releases/5/f"), "data");
    put(&src.join("releases/5/g"), "data");
    put(&src.join("plain"), "content");
    symlink("releases/5", src.join("current")).expect("symlink");
    let list = scratch.path().join("list");
    let releases = ["releases", "releases/5", "releases/5/f", "releases/5/g"];
    let cases = [
        (
            "current/f\ncurrent/g\nplain/x/y\nreleases/5/f\n",
            &["current/f", "current/g", "plain/x/y"][..],
            &releases[..3],
        ),
        // What is listed itself is made equal, and what is listed below it is still missing.
        (
            "current\ncurrent/f\nplain\n",
            &["current/f"],
            &["current", "plain"],
        ),
        ("current/f\ncurrent\n", &["current/f"], &["current"]),
        (
            "releases\nreleases/5/f\nreleases/5/f/deeper\n",
            &["releases/5/f/deeper"],
            &releases,
        ),
        (
            "releases\nreleases/5/f\nreleases/5/nope\nreleases/nope/f\n",
            &["releases/5/nope", "releases/nope/f"],
            &releases,
        ),
        (
            "nope/a\nnope/b/c\nplain\n",
            &["nope/a", "nope/b/c"],
            &["plain"],
        ),
    ];
    for (text, told, made) in cases {
        put(&list, text);
        let outcome = sync(&src, &dst)
            .arg("--files-from")
            .arg(&list)
            .run()
            .expect(3);
        check_accounts(&outcome);
        let expected: Vec<_> = told
            .iter()
            .map(|path| ((*path).to_owned(), "skip".to_owned()))
            .collect();
        assert_eq!(problems(&outcome), expected, "{text}{}", outcome.describe());
        assert_eq!(
            outcome.count("failed"),
            told.len() as u64,
            "{text}{}",
            outcome.describe()
        );
        assert_eq!(names_below(&dst), made, "{text}{}", outcome.describe());
        let verify = verify(&src, &dst)
            .arg("--files-from")
            .arg(&list)
            .run()
            .expect(3);
        assert_eq!(problems(&verify), expected, "{text}{}", verify.describe());
        fs::remove_dir_all(&dst).expect("remove");
    }
}

#[test]
fn a_hard_link_for_which_there_was_no_room_becomes_one_after_the_deletes() {
    let (scratch, src, _) = stage();
    let narrow = narrow(&scratch);
    let dst = narrow.path().join("dst");
    put(&src.join("f"), "data");
    let _ = sync_ok(&src, &dst, NONE);
    fs::hard_link(src.join("f"), src.join("g")).expect("link");
    let filled = (0..100).find(|index| fs::write(dst.join(format!("old{index}")), "").is_err());
    assert!(filled.is_some(), "there is no room left");
    let outcome = sync_ok(&src, &dst, ["--delete"]);
    check_equal(&src, &dst, &outcome.describe());
}

#[test]
fn a_name_that_is_linked_after_the_first_was_done_is_changing() {
    only_local!("uses --copy-with, which is for trees on one machine");
    for listed_again in [true, false] {
        let (scratch, src, dst) = stage();
        put(&src.join("d1/a"), "A");
        put(&src.join("zz/last"), "gate");
        fs::create_dir(src.join("zz/sub")).expect("dir");
        // A name outside of the tree that was there before is nobody's business.
        put(&src.join("zz/own"), "of its own");
        fs::hard_link(src.join("zz/own"), scratch.path().join("outside")).expect("link");
        let late = src.join(if listed_again { "zz/c" } else { "zz/sub/c" });
        let link = || fs::hard_link(src.join("d1/a"), &late).expect("link");
        let outcome = Gated::start(&scratch, &src, &dst, &[])
            .at("gate", link)
            .end()
            .expect(5);
        check_accounts(&outcome);
        let path = late
            .strip_prefix(&src)
            .expect("below")
            .to_str()
            .expect("text");
        assert_eq!(
            problems(&outcome),
            problem(path, "changing"),
            "{}",
            outcome.describe()
        );
        let _ = sync_ok(&src, &dst, NONE);
        check_equal(&src, &dst, "the next run");
    }
}

#[test]
fn a_first_name_that_is_met_again_and_again_leaves_room_for_all_others() {
    only_local!("uses --copy-with, which is for trees on one machine");
    let (scratch, src, dst) = stage();
    put(&src.join("d1/a"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    for name in ["d2/x/y/z/b", "d3/x/y/z/c"] {
        fs::create_dir_all(src.join(name).parent().expect("a parent")).expect("dir");
        fs::hard_link(src.join("d1/a"), src.join(name)).expect("link");
    }
    put(&src.join("d1/one"), "gate one");
    // The directory is listed three times before anybody comes to the others.
    let one = || put(&src.join("d1/two"), "gate two");
    let two = || put(&src.join("d1/three"), "x");
    let outcome = Gated::start(&scratch, &src, &dst, &[])
        .at("gate one", one)
        .at("gate two", two)
        .end()
        .expect(0);
    check_accounts(&outcome);
    check_equal(&src, &dst, &outcome.describe());
}

#[test]
fn a_second_look_is_not_answered_from_a_cache() {
    only_local!("uses --copy-with, which is for trees on one machine");
    let fuse = Fuse::mount(Mood {
        remembers: Duration::from_secs(600),
        ..Mood::healthy()
    });
    let (scratch, _, dst) = stage();
    let src = fuse.dir("src");
    put(&src.join("d/f"), "gate");
    let real = fuse.backing().join("src/d");
    let change = || {
        // After a read the kernel asks again by itself; a look in between has it remember.
        for path in ["d", "d/f"] {
            let _looked = fs::metadata(src.join(path)).expect("look");
        }
        put(&real.join("f"), "another content");
        put(&real.join("new"), "new");
    };
    let outcome = Gated::start(&scratch, &src, &dst, &[])
        .at("gate", change)
        .end()
        .expect(0);
    check_accounts(&outcome);
    assert_eq!(
        fs::read(dst.join("d/f")).expect("read"),
        b"another content",
        "{}",
        outcome.describe()
    );
    assert_eq!(names_below(&dst), ["d", "d/f", "d/new"]);
}

#[test]
fn a_source_that_is_moved_away_or_replaced_during_a_run_is_told() {
    only_local!("uses --copy-with, which is for trees on one machine");
    for takes_its_place in [true, false] {
        let (scratch, src, dst) = stage();
        put(&src.join("file"), "gate\ncontent");
        put(&src.join("z/file"), "content");
        let (away, other) = (scratch.path().join("away"), scratch.path().join("other"));
        put(&other.join("other"), "content");
        let gated = Gated::start(&scratch, &src, &dst, &[]).at("gate", || {
            fs::rename(&src, &away).expect("rename");
            if takes_its_place {
                fs::rename(&other, &src).expect("rename");
            }
        });
        let outcome = gated.end().expect(5);
        check_accounts(&outcome);
        assert_eq!(
            problems(&outcome),
            problem(".", "changing"),
            "{}",
            outcome.describe()
        );
        check_equal(&away, &dst, "what the run had opened");
    }
}
