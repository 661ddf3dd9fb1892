//! `--copy-with`: somebody else's program moves the content, and nothing else is left to it.
//! Whatever it does, what stands at a name is whole, comes from the source, and is accounted for.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    check_accounts, check_equal, check_settled, leftovers, names_below, put, sync, sync_ok,
    wait_until,
};
use driftless_testkit::{
    FsKind, Options, Outcome, Profile, Scratch, assert_equal, attrs, build_tree,
};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

const CAT: &str = r#"sh -c 'cat < "$1" > "$2"' x %s %d"#;
const MIB: usize = 1 << 20;

/// A shell that is given the two paths as `$1` and `$2`, and one more word as `$3`.
fn script(text: &str, third: &Path) -> String {
    assert!(!text.contains('\''), "quotes are for the command line");
    format!("sh -c '{text}' x %s %d '{}'", third.display())
}

fn stage(kind: FsKind) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(kind, 400);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (scratch, src, dst)
}

fn check_clean(dst: &Path, context: &str) {
    assert_eq!(leftovers(dst), Vec::<PathBuf>::new(), "{context}");
}

/// The problems of a run: path and cause.
fn problems(outcome: &Outcome) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let mut found: Vec<_> = outcome
        .events_named("problem")
        .iter()
        .map(|event| (text(&event["path"]), text(&event["cause"])))
        .collect();
    found.sort();
    found
}

#[test]
fn programs_of_every_kind_make_a_hostile_tree_equal_but_for_holes() {
    let commands = [
        "cp %s %d",
        "cp --preserve=mode,timestamps %s %d",
        "dd if=%s of=%d bs=64k status=none",
        CAT,
        // What a careless user writes is safe, too: no name of the tree gets to the program.
        "sh -c 'cat %s > %d'",
        // It replaces what it made by another file.
        r#"sh -c 'echo none > "$2"; cp "$1" "$2.new" && mv "$2.new" "$2"' x %s %d"#,
    ];
    for (command, kind) in commands.into_iter().zip(
        [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::Tmpfs]
            .into_iter()
            .cycle(),
    ) {
        let (_scratch, src, dst) = stage(kind);
        build_tree(
            &src,
            41,
            &Profile {
                large: false,
                entries: 40,
                ..Profile::root()
            },
        );
        let outcome = sync_ok(&src, &dst, ["--copy-with", command]);
        assert_equal(
            &src,
            &dst,
            &Options {
                holes: false,
                ..Options::default()
            },
            command,
        );
        check_settled(&src, &dst, ["--copy-with", command]);
        check_clean(&dst, &outcome.describe());
        driftless_testkit::mutate(&src, 42, 60);
        let _ = sync_ok(
            &src,
            &dst,
            [
                "--delete",
                "--verify",
                "--checksum",
                "--durability=file",
                "--copy-with",
                command,
            ],
        );
        assert_equal(
            &src,
            &dst,
            &Options {
                holes: false,
                ..Options::default()
            },
            command,
        );
        check_clean(&dst, command);
    }
}

#[test]
fn it_is_started_once_for_each_inode_with_content_and_bytes_are_counted() {
    let (scratch, src, dst) = stage(FsKind::Ext4);
    put(&src.join("a/one"), vec![1; 5000]);
    put(&src.join("a/empty"), "");
    put(&src.join("large"), vec![2; 70 * MIB]);
    fs::create_dir(src.join("b")).expect("dir");
    for name in ["two", "b/three", "a/four"] {
        fs::hard_link(src.join("a/one"), src.join(name)).expect("link");
    }
    let log = scratch.path().join("log");
    let command = script(r#"echo "$1 $2" >> "$3"; exec cp "$1" "$2""#, &log);
    let starts = || fs::read_to_string(&log).map_or(0, |text| text.lines().count());
    let dry = sync_ok(&src, &dst, ["--dry-run", "--copy-with", &command]);
    assert_eq!(
        (starts(), dry.count("changed")),
        (0, 9),
        "a dry run starts nothing"
    );
    let outcome = sync_ok(&src, &dst, ["--copy-with", &command]);
    check_equal(&src, &dst, "hard links and a large file");
    assert_eq!(starts(), 2, "{}", fs::read_to_string(&log).expect("log"));
    assert_eq!(outcome.count("bytes_copied"), 5000 + 70 * MIB as u64);
    // Metadata alone is none of its business.
    attrs::set_mode(&src.join("large"), 0o600).expect("chmod");
    let _ = sync_ok(&src, &dst, ["--copy-with", &command]);
    check_equal(&src, &dst, "metadata");
    assert_eq!(starts(), 2);
    put(&src.join("large"), vec![3; 66 * MIB]);
    put(&src.join("a/one"), vec![4; 5001]);
    let outcome = sync_ok(&src, &dst, ["--copy-with", &command, "--durability=none"]);
    check_equal(&src, &dst, "content");
    assert_eq!(
        (starts(), outcome.count("bytes_copied")),
        (4, 5001 + 66 * MIB as u64)
    );
}

#[test]
fn a_single_file_and_the_files_of_an_ordinary_user_are_made_too() {
    let (scratch, src, _) = stage(FsKind::Ext4);
    build_tree(
        &src,
        43,
        &Profile {
            large: false,
            ..Profile::user(common::USER, common::USER)
        },
    );
    let home = scratch.dir("home");
    attrs::set_owner(&home, common::USER, common::USER).expect("chown");
    let dst = home.join("dst");
    // It keeps modes, so its files may not be open to their own owner.
    for command in ["cp -p %s %d", CAT] {
        let run = || {
            sync(&src, &dst)
                .args(["--delete", "--verify", "--copy-with", command])
                .as_user(common::USER, common::USER)
                .run()
                .expect(0)
        };
        check_accounts(&run());
        assert_equal(
            &src,
            &dst,
            &Options {
                holes: false,
                ..Options::default()
            },
            command,
        );
        assert_eq!(run().count("changed"), 0);
        driftless_testkit::remove_deep(&dst).expect("remove");
    }
    put(&scratch.path().join("one"), "content");
    let _ = sync_ok(
        &scratch.path().join("one"),
        &scratch.path().join("other"),
        ["--copy-with", "cp %s %d"],
    );
    assert_eq!(
        fs::read(scratch.path().join("other")).expect("made"),
        b"content"
    );
}

#[test]
fn what_it_fails_at_is_a_problem_of_that_path_and_the_run_goes_on() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    for index in 0..30 {
        put(&src.join(format!("good-{index}")), format!("good {index}"));
    }
    for folder in ["", "new/"] {
        put(&src.join(folder).join("bad"), "bad content");
    }
    put(&dst.join("bad"), "old");
    let text = r#"case "$(head -c 3 "$1")" in bad) echo part > "$2"; echo lost > "$2.tmp"; echo first >&2; echo "no	luck" >&2; exit 7;; *) exec cp "$1" "$2";; esac"#;
    let outcome = sync(&src, &dst)
        .arg("--copy-with")
        .arg(script(text, &src))
        .run()
        .expect(3);
    check_accounts(&outcome);
    let cause = "it ended with exit code 7: no\\tluck";
    assert_eq!(
        problems(&outcome),
        ["bad", "new/bad"].map(|path| (path.to_owned(), cause.to_owned())),
        "{}",
        outcome.describe()
    );
    assert_eq!(
        (
            outcome.count("failed"),
            fs::read(dst.join("bad")).expect("old")
        ),
        (2, b"old".to_vec())
    );
    assert!(!dst.join("new/bad").exists());
    check_clean(&dst, "after failures");
    let _ = sync_ok(&src, &dst, ["--copy-with", "cp %s %d"]);
    check_equal(&src, &dst, "once more, with a better program");
}

#[test]
fn what_it_made_is_not_trusted() {
    let (scratch, src, dst) = stage(FsKind::Ext4);
    let outside = scratch.path().join("outside");
    put(&outside, "content");
    put(&src.join("file"), "content");
    let cases = [
        (r#"head -c 3 "$1" > "$2""#, "it made 3 bytes of 7"),
        (r#"cat "$1" "$1" > "$2""#, "it made 14 bytes of 7"),
        ("true", "it made no file"),
        (r#"ln -s "$3" "$2""#, "what it made is no regular file"),
        (r#"mkfifo "$2""#, "what it made is no regular file"),
        (r#"mkdir "$2""#, "what it made is no regular file"),
        (
            r#"ln "$3" "$2""#,
            "the file that it made has other names, too",
        ),
        (
            r#"cp "$1" "$2"; chown 1234 "$2""#,
            "it gave the file to another user; that is for driftless to do",
        ),
        (r#"cp "$1" "$2"; kill -9 $$"#, "signal 9 ended it"),
        (r#"cp "$1" "$2"; exit 1"#, "it ended with exit code 1"),
    ];
    let (inode, time) = (
        fs::metadata(&outside).expect("stat").ino(),
        fs::metadata(&outside).expect("stat").mtime(),
    );
    for (text, cause) in cases {
        let outcome = sync(&src, &dst)
            .arg("--copy-with")
            .arg(script(text, &outside))
            .run()
            .expect(3);
        assert_eq!(
            problems(&outcome),
            [("file".to_owned(), cause.to_owned())],
            "{text}\n{}",
            outcome.describe()
        );
        assert_eq!(names_below(&dst), Vec::<String>::new(), "{text}");
        let meta = fs::metadata(&outside).expect("stat");
        assert_eq!(
            (meta.ino(), meta.mtime(), meta.nlink(), meta.size()),
            (inode, time, 1, 7),
            "{text}: the file outside was touched"
        );
    }
}

#[test]
fn a_program_that_spoils_content_is_found_out_by_reading_back() {
    let (_scratch, src, dst) = stage(FsKind::Ext4);
    put(&src.join("small"), "banana");
    put(&src.join("large"), b"banana!!".repeat(66 * MIB / 8));
    let spoil = r#"sh -c 'tr n m < "$1" > "$2"' x %s %d"#;
    for level in ["--verify=content", "--verify=media"] {
        let outcome = sync(&src, &dst)
            .args([level, "--copy-with", spoil])
            .run()
            .expect(3);
        let paths: Vec<String> = problems(&outcome)
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        assert_eq!(paths, ["large", "small"], "{}", outcome.describe());
        assert_eq!(names_below(&dst), Vec::<String>::new(), "{level}");
    }
    let _ = sync_ok(&src, &dst, ["--copy-with", spoil]);
    assert_eq!(
        fs::read(dst.join("small")).expect("made"),
        b"bamama",
        "the control: without reading back nobody sees it"
    );
}

#[test]
fn a_source_that_changes_meanwhile_is_copied_again() {
    let (scratch, src, dst) = stage(FsKind::Ext4);
    let (file, mark) = (src.join("file"), scratch.path().join("mark"));
    put(&file, "first");
    let once = format!(
        r#"cp "$1" "$2"; if mkdir "$3"; then echo more >> {0}; exit 3; fi"#,
        file.display()
    );
    let _ = sync_ok(&src, &dst, ["--copy-with", &script(&once, &mark)]);
    check_equal(&src, &dst, "it changed once");
    let always = format!(r#"cp "$1" "$2"; echo more >> {}"#, file.display());
    put(&file, "another");
    let outcome = sync(&src, &dst)
        .arg("--copy-with")
        .arg(script(&always, &mark))
        .run()
        .expect(5);
    check_accounts(&outcome);
    assert_eq!(fs::read(dst.join("file")).expect("old"), b"firstmore\n");
    check_clean(&dst, "after changes");
}

#[test]
fn links_put_in_the_way_on_either_side_are_not_followed() {
    let (scratch, src, dst) = stage(FsKind::Ext4);
    let root = scratch.path();
    put(&root.join("outside/file"), "CANARY");
    put(&root.join("outside/content"), "CANARY");
    put(&src.join("dir/file"), "content");
    put(&dst.join("dir/file"), "old");
    let before = driftless_testkit::snapshot_hash(&root.join("outside"), true);
    // Each time before it reads and writes, names and whole directories of both trees become links
    // to the outside.
    let swap = |tree: &str, back: &str| {
        format!(
            "mv {0}/{tree}/dir {0}/moved-{tree}; ln -s {0}/outside {0}/{tree}/dir; {back}",
            root.display()
        )
    };
    let restore = |tree: &str| {
        format!(
            "rm {0}/{tree}/dir; mv {0}/moved-{tree} {0}/{tree}/dir",
            root.display()
        )
    };
    let name = format!(
        "mv {0}/src/dir/file {0}/moved; ln -s {0}/outside/file {0}/src/dir/file",
        root.display()
    );
    let copy = r#"cp "$1" "$2" && cat "$2" >> "$3""#;
    let scripts = [
        format!("{} {copy}; {}", swap("src", ""), restore("src")),
        format!("{} {copy}; {}", swap("dst", ""), restore("dst")),
        format!(
            "{name}; {copy}; mv {0}/moved {0}/src/dir/file",
            root.display()
        ),
    ];
    let seen = root.join("seen");
    for text in scripts {
        put(&src.join("dir/file"), format!("content {}", text.len()));
        let outcome = sync(&src, &dst)
            .args(["--jobs", "1", "--copy-with"])
            .arg(script(&text, &seen))
            .run();
        assert!(
            [0, 3, 5].contains(&outcome.code()),
            "{text}\n{}",
            outcome.describe()
        );
        let read = fs::read_to_string(&seen).expect("the program has read something");
        assert!(
            read.contains("content") && !read.contains("CANARY"),
            "{text}: read from outside: {read}"
        );
        assert_eq!(
            driftless_testkit::snapshot_hash(&root.join("outside"), true),
            before,
            "{text}: written outside"
        );
        fs::remove_file(&seen).expect("remove");
    }
    let _ = sync_ok(&src, &dst, ["--copy-with", "cp %s %d"]);
    check_equal(&src, &dst, "when it is quiet");
    // A link that was there before is a link, not content.
    symlink(root.join("outside/file"), src.join("link")).expect("symlink");
    let _ = sync_ok(&src, &dst, ["--copy-with", "cp %s %d"]);
    check_equal(&src, &dst, "a link");
}

#[test]
fn a_program_that_hangs_is_ended_with_all_it_started_when_the_run_is_stopped() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("file"), "content");
    put(&dst.join("file"), "old");
    let pids = scratch.path().join("pids");
    let polite = r#"sleep 600 & echo $! $$ > "$3.new"; mv "$3.new" "$3"; wait"#;
    let stubborn = r#"trap "" TERM INT; sleep 600 & echo $! $$ > "$3.new"; mv "$3.new" "$3"; while :; do wait; done"#;
    for (text, signal) in [(polite, Signal::INT), (stubborn, Signal::TERM)] {
        let run = sync(&src, &dst)
            .arg("--copy-with")
            .arg(script(text, &pids))
            .spawn();
        wait_until("the program runs", || pids.exists());
        run.signal(signal);
        let outcome = run.wait().expect(128 + signal.as_raw());
        let text = fs::read_to_string(&pids).expect("pids");
        let runs = |pid: &str| {
            fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
        };
        wait_until("what it started is gone", || {
            !text.split_whitespace().any(runs)
        });
        assert_eq!(
            fs::read(dst.join("file")).expect("old"),
            b"old",
            "{}",
            outcome.describe()
        );
        check_clean(&dst, "after a stop");
        fs::remove_file(&pids).expect("remove");
    }
}

#[test]
fn what_it_leaves_running_is_ended_and_its_words_spoil_no_output() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("file"), "content");
    let pid = scratch.path().join("pid");
    let text = r#"echo noise; echo noise >&2; cp "$1" "$2"; (sleep 1; while :; do echo worse >> "$2"; done) & echo $! > "$3""#;
    let outcome = sync_ok(&src, &dst, ["--copy-with", &script(text, &pid)]);
    assert!(
        outcome.stderr.is_empty() && !outcome.stdout_text().contains("noise"),
        "{}",
        outcome.describe()
    );
    assert_eq!(outcome.events_named("summary").len(), 1);
    let left = fs::read_to_string(&pid).expect("pid");
    let runs = || {
        fs::read_to_string(format!("/proc/{}/stat", left.trim()))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    wait_until("what it left is gone", || !runs());
    assert_eq!(
        fs::read(dst.join("file"))
            .map(|content| content.len())
            .expect("made"),
        7
    );
}

#[test]
fn commands_that_cannot_work_are_refused_before_anything_is_touched() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("file"), "content");
    let text = scratch.path().join("text");
    put(&text, "no program");
    let refuse = |code: i32, word: &str, arguments: &[&str]| {
        let outcome = common::driftless()
            .arg("sync")
            .arg(&src)
            .arg(&dst)
            .args(arguments)
            .run()
            .expect(code);
        assert!(
            outcome.stderr_text().contains(word),
            "{arguments:?}\n{}",
            outcome.describe()
        );
        assert!(!dst.exists(), "{arguments:?}");
    };
    refuse(2, "%s", &["--copy-with", "cp %d"]);
    refuse(2, "%d", &["--copy-with", "cp %s"]);
    refuse(2, "%x", &["--copy-with", "cp %s %d %x"]);
    refuse(2, "names no program", &["--copy-with", ""]);
    refuse(
        2,
        "--bwlimit",
        &["--copy-with", "cp %s %d", "--bwlimit", "1M"],
    );
    refuse(
        2,
        "--cache",
        &["--copy-with", "cp %s %d", "--cache", "drop"],
    );
    refuse(
        1,
        "cannot be found",
        &["--copy-with", "no-such-program-here %s %d"],
    );
    refuse(
        1,
        "cannot be found",
        &["--copy-with", "/no/such/program %s %d"],
    );
    refuse(
        1,
        "cannot be started",
        &["--copy-with", &format!("{} %s %d", text.display())],
    );
    for ends in [
        [src.as_os_str(), "far:/data".as_ref()],
        ["far:/data".as_ref(), dst.as_os_str()],
    ] {
        let outcome = common::driftless()
            .arg("sync")
            .args(ends)
            .args(["--ssh", "false", "--copy-with", "cp %s %d"])
            .run()
            .expect(2);
        assert!(
            outcome.stderr_text().contains("far: mount it here"),
            "{}",
            outcome.describe()
        );
    }
    assert!(!dst.exists());
}

#[test]
fn the_program_has_the_users_umask_and_no_descriptor_of_ours() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("file"), "content");
    let log = scratch.path().join("log");
    let text = r#"umask > "$3"; readlink /proc/$$/fd/* >> "$3"; exec cp "$1" "$2""#;
    let run = sync(&src, &dst)
        .arg("--copy-with")
        .arg(script(text, &log))
        .through(["sh", "-c", "umask 027; exec \"$@\"", "sh"]);
    let _ = run.run().expect(0);
    let said = fs::read_to_string(&log).expect("log");
    let (umask, open) = said.split_once('\n').expect("two parts");
    assert_eq!(umask, "0027");
    assert!(
        open.starts_with("/dev/null\n"),
        "its input is empty: {open}"
    );
    assert!(
        [&src, &dst]
            .iter()
            .all(|tree| !open.contains(tree.to_str().expect("text"))),
        "{open}"
    );
}
