//! Which entries take part: filters, lists, sizes, one file system, and what deletion does to the
//! others.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mounted::Mounted;
use common::{
    LOCK_FILE, SIGN_FILE, check_equal, names_below, problems, put, stage, sync, sync_ok, verify,
};
use driftless_testkit::{Outcome, snapshot_hash};
use std::fs;
use std::path::Path;

const NONE: [&str; 0] = [];

/// A tree in which the same names come at several places.
fn plant(root: &Path) {
    for name in [
        "a.o",
        "b.c",
        "build/a.o",
        "build/x/deep.o",
        "src/a.c",
        "src/build/c.c",
        "src/build/d.o",
        "tmp",
    ] {
        put(&root.join(name), name);
    }
}

const ALL: [&str; 12] = [
    "a.o",
    "b.c",
    "build",
    "build/a.o",
    "build/x",
    "build/x/deep.o",
    "src",
    "src/a.c",
    "src/build",
    "src/build/c.c",
    "src/build/d.o",
    "tmp",
];

fn all_but(gone: &[&str]) -> Vec<String> {
    ALL.iter()
        .filter(|name| !gone.contains(name))
        .map(ToString::to_string)
        .collect()
}

#[test]
fn filters_choose_what_is_copied() {
    let cases: [(&[&str], &[&str]); 11] = [
        (
            &["--exclude=*.o"],
            &["a.o", "build/a.o", "build/x/deep.o", "src/build/d.o"],
        ),
        (&["--exclude=/a.o"], &["a.o"]),
        (
            &["--exclude=build"],
            &[
                "build",
                "build/a.o",
                "build/x",
                "build/x/deep.o",
                "src/build",
                "src/build/c.c",
                "src/build/d.o",
            ],
        ),
        (
            &["--exclude=/build"],
            &["build", "build/a.o", "build/x", "build/x/deep.o"],
        ),
        (
            &["--exclude=src/build"],
            &["src/build", "src/build/c.c", "src/build/d.o"],
        ),
        (&["--exclude=tmp/"], &[]),
        (
            &["--exclude=build/"],
            &[
                "build",
                "build/a.o",
                "build/x",
                "build/x/deep.o",
                "src/build",
                "src/build/c.c",
                "src/build/d.o",
            ],
        ),
        (
            &["--exclude=/**/*.o"],
            &["a.o", "build/a.o", "build/x/deep.o", "src/build/d.o"],
        ),
        (&["--exclude=/build/*.o"], &["build/a.o"]),
        (
            &["--include=/a.o", "--exclude=*.o"],
            &["build/a.o", "build/x/deep.o", "src/build/d.o"],
        ),
        (
            &["--exclude=*.o", "--include=/a.o"],
            &["a.o", "build/a.o", "build/x/deep.o", "src/build/d.o"],
        ),
    ];
    for (arguments, gone) in cases {
        let (_scratch, src, dst) = stage();
        plant(&src);
        let outcome = sync_ok(&src, &dst, arguments);
        assert_eq!(
            names_below(&dst),
            all_but(gone),
            "{arguments:?}\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn rules_come_from_a_file_with_comments() {
    let (scratch, src, dst) = stage();
    plant(&src);
    let rules = scratch.path().join("rules");
    put(&rules, "# objects, but for one\n+ /a.o\n\n- *.o\n- tmp\n");
    let _ = sync_ok(&src, &dst, [format!("--filter-from={}", rules.display())]);
    assert_eq!(
        names_below(&dst),
        all_but(&["build/a.o", "build/x/deep.o", "src/build/d.o", "tmp"])
    );
}

#[test]
fn a_rule_file_with_a_bad_line_is_a_usage_error() {
    let (scratch, src, dst) = stage();
    plant(&src);
    let rules = scratch.path().join("rules");
    put(&rules, "exclude everything\n");
    let outcome = sync(&src, &dst).arg("--filter-from").arg(&rules).run();
    assert!([1, 2].contains(&outcome.code()), "{}", outcome.describe());
    assert!(!dst.exists());
}

#[test]
fn excluded_entries_of_the_replica_stay_unless_they_are_to_go() {
    let (_scratch, src, dst) = stage();
    plant(&src);
    for name in ["old.o", "build/old.o", "old.c", "gone/only.o"] {
        put(&dst.join(name), name);
    }
    let outcome = sync(&src, &dst).args(["--delete", "--exclude=*.o"]).run();
    assert!(
        dst.join("old.o").exists() && dst.join("build/old.o").exists(),
        "{}",
        outcome.describe()
    );
    assert!(
        dst.join("gone/only.o").exists(),
        "a directory does not take an excluded file with it"
    );
    assert!(!dst.join("old.c").exists());
    let _ = sync_ok(
        &src,
        &dst,
        ["--delete", "--delete-excluded", "--exclude=*.o"],
    );
    assert_eq!(
        names_below(&dst),
        all_but(&["a.o", "build/a.o", "build/x/deep.o", "src/build/d.o"])
    );
}

#[test]
fn only_listed_paths_and_their_parents_are_copied() {
    let (scratch, src, dst) = stage();
    plant(&src);
    let list = scratch.path().join("list");
    put(&list, "build/x/deep.o\nsrc/a.c\n");
    let argument = format!("--files-from={}", list.display());
    let _ = sync_ok(&src, &dst, [&argument]);
    assert_eq!(
        names_below(&dst),
        ["build", "build/x", "build/x/deep.o", "src", "src/a.c"]
    );
    let before = snapshot_hash(&dst, true);
    assert_eq!(sync_ok(&src, &dst, [&argument]).count("changed"), 0);
    assert_eq!(snapshot_hash(&dst, true), before);
}

#[test]
fn what_another_run_keeps_in_the_root_of_a_source_is_left_out_where_it_is_listed() {
    let (scratch, src, dst) = stage();
    let marks = [1, 2, 3].map(|number| format!(".driftless-tmp-{number:032x}"));
    for name in marks
        .iter()
        .map(String::as_str)
        .chain([".driftless-trash", "file"])
    {
        put(&src.join(name), "content");
    }
    // A run makes the lock before it writes to it.
    put(&src.join(LOCK_FILE), "");
    put(&src.join(SIGN_FILE), "driftless lock sign: it shows\n");
    let list = scratch.path().join("list");
    put(
        &list,
        format!(
            "{}\n{LOCK_FILE}\n{SIGN_FILE}\n.driftless-trash\nfile\n",
            marks.join("\n")
        ),
    );
    let argument = format!("--files-from={}", list.display());
    let outcome = sync_ok(&src, &dst, [&argument]);
    assert_eq!(outcome.count("skipped"), 6, "{}", outcome.describe());
    assert_eq!(names_below(&dst), ["file"]);
    let _ = sync_ok(&src, &dst, ["--delete"]);
    assert_eq!(names_below(&dst), ["file"]);
}

#[test]
fn users_own_file_at_the_name_of_a_lock_is_told() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let of_file = format!("{LOCK_FILE}-{:032x}", 7);
    let told = [LOCK_FILE, &of_file, SIGN_FILE, &format!("d/{LOCK_FILE}")];
    for name in told {
        put(&src.join(name), "notes of a user's\n");
    }
    let list = scratch.path().join("list");
    put(&list, told.join("\n"));
    let listed = format!("--files-from={}", list.display());
    for argument in ["--delete", &listed] {
        let outcome = sync(&src, &dst).arg(argument).run().expect(3);
        let mut found = problems(&outcome);
        found.sort_unstable();
        assert_eq!(found, told, "{}", outcome.describe());
    }
    assert_eq!(names_below(&dst), ["d", "file"]);
    let _ = verify(&src, &dst).run().expect(3);
}

#[test]
fn listed_paths_may_hold_newlines_when_they_end_with_nul() {
    let (scratch, src, dst) = stage();
    put(&src.join("a\nb/c\nd"), "content");
    put(&src.join("other"), "content");
    let list = scratch.path().join("list");
    put(&list, "a\nb/c\nd\0");
    let _ = sync_ok(
        &src,
        &dst,
        [
            "--files-from".as_ref(),
            list.as_os_str(),
            "--from0".as_ref(),
        ],
    );
    assert_eq!(names_below(&dst), ["a\\x0ab", "a\\x0ab/c\\x0ad"]);
}

#[test]
fn a_listed_path_that_leaves_the_source_reads_nothing_outside() {
    let (scratch, src, dst) = stage();
    put(&src.join("inside"), "content");
    put(&scratch.path().join("secret"), "secret");
    let list = scratch.path().join("list");
    for line in ["../secret\n", "a/../../secret\n", "/../secret\n"] {
        put(&list, line);
        let outcome = sync(&src, &dst).arg("--files-from").arg(&list).run();
        assert_ne!(outcome.code(), 0, "{line}{}", outcome.describe());
        assert!(!dst.exists() || names_below(&dst).is_empty(), "{line}");
        assert!(!scratch.path().join("dst/secret").exists());
    }
}

#[test]
fn a_listed_path_that_is_missing_is_told_and_the_rest_copied() {
    let (scratch, src, dst) = stage();
    plant(&src);
    let list = scratch.path().join("list");
    put(&list, "no/such/file\nb.c\n");
    let outcome = sync(&src, &dst).arg("--files-from").arg(&list).run();
    assert!([3, 5].contains(&outcome.code()), "{}", outcome.describe());
    assert!(dst.join("b.c").exists());
    let named = outcome
        .events_named("problem")
        .iter()
        .any(|p| p["path"].as_str().is_some_and(|p| p.starts_with("no")));
    assert!(named, "{}", outcome.describe());
}

#[test]
fn sizes_choose_files_and_nothing_else() {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["--min-size=2K"], &["dir", "large", "link", "middle"]),
        (&["--max-size=2K"], &["dir", "link", "middle", "small"]),
        (
            &["--min-size=100", "--max-size=1M"],
            &["dir", "link", "middle"],
        ),
        (&["--max-size=2047"], &["dir", "link", "small"]),
    ];
    for (arguments, expected) in cases {
        let (_scratch, src, dst) = stage();
        put(&src.join("small"), [0u8; 10]);
        put(&src.join("middle"), [0u8; 2048]);
        put(&src.join("large"), vec![0u8; 2 << 20]);
        fs::create_dir(src.join("dir")).expect("dir");
        std::os::unix::fs::symlink("large", src.join("link")).expect("symlink");
        let outcome = sync_ok(&src, &dst, arguments);
        assert_eq!(
            names_below(&dst),
            expected,
            "{arguments:?}\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn files_outside_the_size_range_are_not_deleted_from_the_replica() {
    let (_scratch, src, dst) = stage();
    put(&src.join("large"), vec![0u8; 5000]);
    put(&src.join("small"), "x");
    let _ = sync_ok(&src, &dst, NONE);
    let _ = sync_ok(&src, &dst, ["--delete", "--max-size=1K"]);
    check_equal(&src, &dst, "nothing is deleted because of its size");
}

#[test]
fn other_file_systems_are_left_out_when_asked_for() {
    let (scratch, src, dst) = stage();
    put(&src.join("here"), "content");
    let _inner = Mounted::tmpfs(&src.join("mounted"));
    put(&src.join("mounted/there"), "content");
    let _ = sync_ok(&src, &dst, ["--one-file-system"]);
    assert!(dst.join("here").exists() && !dst.join("mounted/there").exists());
    let other = scratch.path().join("other");
    let _ = sync_ok(&src, &other, NONE);
    assert!(other.join("mounted/there").exists());
    let before = names_below(&other);
    let _ = sync_ok(&src, &other, ["-x", "--delete"]);
    assert_eq!(
        names_below(&other),
        before,
        "what was not looked at is not deleted"
    );
}

#[test]
fn names_beyond_ascii_are_left_out_by_their_letters_and_not_by_their_bytes() {
    let (_scratch, src, dst) = stage();
    for name in ["über", "ärzte", "é.c", "a.c"] {
        put(&src.join(name), name);
    }
    let _ = sync_ok(&src, &dst, ["--exclude", "[äÄ]*", "--exclude", "?.c"]);
    assert_eq!(names_below(&dst), [r"\xc3\xbcber"]);
    let _ = sync_ok(
        &src,
        &dst,
        ["--delete", "--delete-excluded", "--exclude", "[ä]*"],
    );
    assert_eq!(names_below(&dst), ["a.c", r"\xc3\xa9.c", r"\xc3\xbcber"]);
}

#[test]
fn a_rule_that_can_never_match_is_a_usage_error_and_deletes_nothing() {
    let (_scratch, src, dst) = stage();
    put(&src.join("x"), "x");
    put(&dst.join("scratch/precious"), "p");
    for rule in ["./scratch/", "scratch//", "//scratch", "[[:alpha:]]*"] {
        let outcome = sync(&src, &dst)
            .args(["--delete", "--exclude", rule])
            .run()
            .expect(2);
        assert!(
            outcome.stderr_text().contains("filter rule"),
            "{}",
            outcome.describe()
        );
    }
    assert_eq!(names_below(&dst), ["scratch", "scratch/precious"]);
}

#[test]
fn a_carriage_return_behind_a_backslash_belongs_to_the_rule() {
    let (_scratch, src, dst) = stage();
    for name in ["plain", "odd\r", "kept"] {
        put(&src.join(name), name);
    }
    let rules = src.with_file_name("rules");
    put(&rules, "- plain\r\n- odd\\\r\n");
    let _ = sync_ok(&src, &dst, ["--filter-from", rules.to_str().expect("text")]);
    assert_eq!(names_below(&dst), ["kept"]);
}

/// Runs with a list of these bytes.
fn listed(src: &Path, dst: &Path, list: &[u8], more: &[&str]) -> Outcome {
    let path = src.with_file_name("list");
    put(&path, list);
    let run = sync(src, dst).arg("--files-from").arg(&path);
    run.args(more).run()
}

#[test]
fn lists_of_other_systems_are_understood() {
    for list in [
        &b"b.c\r\nsrc/a.c\r\n"[..],
        b"\xef\xbb\xbfb.c\nsrc/a.c",
        b"\xef\xbb\xbfb.c\r\n\r\nsrc/a.c\r\n",
    ] {
        let (_scratch, src, dst) = stage();
        plant(&src);
        let _ = listed(&src, &dst, list, &[]).expect(0);
        assert_eq!(
            names_below(&dst),
            ["b.c", "src", "src/a.c"],
            "{}",
            list.escape_ascii()
        );
    }
}

#[test]
fn listed_names_may_end_with_carriage_returns() {
    let (_scratch, src, dst) = stage();
    plant(&src);
    put(&src.join("odd\r"), "content");
    let _ = listed(&src, &dst, b"odd\r\nb.c\n", &[]).expect(0);
    assert_eq!(names_below(&dst), ["b.c", "odd\\x0d"]);
}

#[test]
fn absolute_listed_paths_below_the_source_are_taken() {
    let (_scratch, src, dst) = stage();
    plant(&src);
    let list = format!("{}/src/a.c\n/tmp\n", src.display());
    let outcome = listed(&src, &dst, list.as_bytes(), &[]).expect(2);
    let words = "write paths relative to SRC";
    assert!(
        outcome.stderr_text().contains(words),
        "{}",
        outcome.describe()
    );
    assert!(!dst.exists());
    let _ = listed(&src, &dst, list.replace("/tmp\n", "").as_bytes(), &[]).expect(0);
    assert_eq!(names_below(&dst), ["src", "src/a.c"]);
}

#[test]
fn a_list_of_another_kind_is_refused() {
    let (_scratch, src, dst) = stage();
    plant(&src);
    for (list, more, words) in [
        (&b"b.c\0src/a.c\0"[..], &[][..], "add --from0"),
        (b"b.c\nsrc/a.c\n", &["--from0"], "leave --from0 out"),
        (b"\xff\xfeb\0.\0c\0", &[], "save it as UTF-8"),
    ] {
        let outcome = listed(&src, &dst, list, more).expect(2);
        assert!(
            outcome.stderr_text().contains(words),
            "{}",
            outcome.describe()
        );
        assert!(!dst.exists());
    }
}

#[test]
fn a_rule_file_of_another_system_is_understood() {
    let (scratch, src, dst) = stage();
    plant(&src);
    let rules = scratch.path().join("rules");
    put(&rules, "\u{feff}- *.o\r\n- /tmp\n");
    let _ = sync_ok(&src, &dst, [format!("--filter-from={}", rules.display())]);
    let gone = ["a.o", "build/a.o", "build/x/deep.o", "src/build/d.o", "tmp"];
    assert_eq!(names_below(&dst), all_but(&gone));
}
