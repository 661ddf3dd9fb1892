//! Words and syntax of other programs: they mean the same here, or are refused with the equivalent.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{driftless, names_below, on_trees, put, stage, sync, sync_ok};
use driftless_testkit::{Driftless, snapshot_hash};
use std::path::Path;
use std::process::Command;

/// A tree in which rules can tell depth, kind and case apart.
fn plant(root: &Path) {
    for name in [
        "a/x",
        "a/b/y",
        "a/c.o",
        "c/a/b/z",
        "c/z.o",
        "b",
        "d.o",
        "[e]",
        "deep/er/a/b/w",
    ] {
        put(&root.join(name), name);
    }
}

/// Runs `rsync -a` with these options, which must succeed.
fn rsync(src: &Path, dst: &Path, options: &[&str]) {
    let mut from = src.as_os_str().to_owned();
    from.push("/");
    let status = Command::new("rsync")
        .arg("-a")
        .args(options)
        .arg(from)
        .arg(dst)
        .status()
        .expect("rsync");
    assert!(status.success(), "rsync {options:?}");
}

#[test]
fn rules_of_rsync_choose_what_rsync_chooses() {
    let cases: [&[&str]; 17] = [
        &["--include=/a/***", "--exclude=*"],
        &["--exclude=/a/***"],
        &["--exclude=/a/b/***"],
        &["--exclude=/b/***"],
        &["--exclude=/***"],
        &["--exclude=**/b/***"],
        &["--exclude=/a/**"],
        &["--exclude=b"],
        &["--exclude=b/"],
        &["--exclude=/a/*"],
        &["--exclude=**/a/b"],
        &["--exclude=*.o"],
        &["--exclude=[[]*"],
        &["--exclude=[^a-c]"],
        &["--exclude=?.o"],
        &["--exclude=**"],
        &["--include=*/", "--include=*.o", "--exclude=*"],
    ];
    for options in cases {
        let (scratch, src, dst) = stage();
        plant(&src);
        let peer = scratch.path().join("peer");
        rsync(&src, &peer, options);
        let _ = sync_ok(&src, &dst, options);
        assert_eq!(names_below(&dst), names_below(&peer), "{options:?}");
    }
}

#[test]
fn three_stars_keep_their_directory_from_deletion() {
    let (_scratch, src, dst) = stage();
    plant(&src);
    let _ = sync_ok(&src, &dst, [""; 0]);
    let options = [
        "--delete",
        "--delete-excluded",
        "--include=/a/***",
        "--exclude=*",
    ];
    let _ = sync_ok(&src, &dst, options);
    assert_eq!(names_below(&dst), ["a", "a/b", "a/b/y", "a/c.o", "a/x"]);
}

/// Checks that a command is refused with exit code 2 and these words, and that nothing changes.
fn check_refused(root: &Path, run: Driftless, words: &str) {
    let before = snapshot_hash(root, false);
    let outcome = run.run().expect(2);
    let told = outcome.stderr_text();
    assert!(
        told.contains(words),
        "{words:?} is not said\n{}",
        outcome.describe()
    );
    assert_eq!(snapshot_hash(root, false), before, "{}", outcome.describe());
}

#[test]
fn patterns_of_other_programs_are_refused_with_the_equivalent() {
    let (scratch, src, dst) = stage();
    plant(&src);
    for (pattern, words) in [
        ("a**b", "write \"*\" for a part of a name"),
        ("/a**", "write \"*\" for a part of a name"),
        ("/***/b", "write \"**/\" for directories"),
        ("/a/****", "write \"**\""),
        ("!a", "write --include PATTERN"),
        ("+ a", "write --include PATTERN"),
        ("- a", "write --exclude PATTERN"),
        ("./a", "a slash at the start stands for the root"),
        ("a\\b", "write \"\\\\\" for a backslash"),
        ("[\\]]", "write \"]\" first"),
        ("[[:alpha:]]", "name the characters"),
        ("{a}", "such as {a,b}"),
        ("{1..3}", "such as {a,b}"),
        ("{{a.*}}", "regular expressions are not understood"),
    ] {
        for option in ["--include", "--exclude"] {
            let run = sync(&src, &dst).arg(format!("{option}={pattern}"));
            check_refused(scratch.path(), run, words);
        }
    }
}

#[test]
fn foreign_rule_lines_are_refused_with_the_equivalent() {
    let (scratch, src, dst) = stage();
    plant(&src);
    let rules = scratch.path().join("rules");
    for (line, words) in [
        ("*.o", "write \\\"- *.o\\\""),
        ("!*.o", "write \\\"+ *.o\\\" before"),
        ("!", "leave out the rules before it"),
        ("clear", "leave out the rules before it"),
        ("; words", "write \\\"#\\\" before a comment"),
        ("exclude *.o", "write \\\"- *.o\\\""),
        ("include *.o", "write \\\"+ *.o\\\""),
        ("-/ a", "a space does"),
        ("-s a", "a space does"),
        ("-_a", "a space does"),
        (". other", "a --filter-from of its own"),
        ("merge other", "a --filter-from of its own"),
        ("dir-merge .rules", "write \\\"- /DIRECTORY/PATTERN\\\""),
        (": .rules", "files of rules within the tree"),
        ("hide a", "with --delete-excluded"),
        ("P a", "neither copies nor deletes"),
        ("risk a", "write \\\"+ a\\\""),
        ("- !a", "before the rule that it is an exception of"),
    ] {
        put(&rules, format!("{line}\n"));
        let run = sync(&src, &dst).arg("--filter-from").arg(&rules);
        check_refused(scratch.path(), run, &words.replace("\\\"", "\""));
    }
}

#[test]
fn patterns_that_programs_read_differently_delete_nothing() {
    let (scratch, src, dst) = stage();
    plant(&src);
    put(&dst.join("c/a/b/only"), "only here");
    let words = "write \"/a/b\" or \"**/a/b\"";
    for command in [["sync", "--quiet"], ["verify", "--repair"]] {
        let run = on_trees(command[0], &src, &dst);
        let run = run.args([command[1], "--delete", "--exclude=a/b"]);
        check_refused(scratch.path(), run, words);
    }
    let job = scratch.path().join("job.toml");
    put(
        &job,
        format!("source = {src:?}\nreplica = {dst:?}\nfilters = [\"- a/b\"]\ndelete = true\n"),
    );
    let run = driftless().args(["mirror", "check"]).arg(&job);
    check_refused(scratch.path(), run, words);
    for pattern in ["/a/b", "**/a/b", "b"] {
        let _ = sync_ok(&src, &dst, ["--delete", &format!("--exclude={pattern}")]);
        let stays = pattern != "/a/b";
        assert_eq!(dst.join("c/a/b/only").exists(), stays, "{pattern}");
        put(&dst.join("c/a/b/only"), "only here");
    }
    let _ = sync_ok(&src, &scratch.path().join("new"), ["--exclude=a/b"]);
    assert!(scratch.path().join("new/c/a/b/z").exists(), "at the root");
}

/// Trees elsewhere in the syntax of other programs, and what the refusal says.
const ELSEWHERE: [(&str, &str); 6] = [
    ("far::module", "write \"far:PATH\""),
    ("rsync://me@far/module", "write \"me@far:PATH\""),
    ("sftp://far/x", "write \"far:/x\""),
    ("file:///x", "write \"/x\""),
    ("s3://bucket/x", "mount it and name the path"),
    (":s3:bucket", "mount it and name the path"),
];

#[test]
fn trees_in_syntax_of_other_programs_are_refused() {
    let (scratch, src, dst) = stage();
    plant(&src);
    for (typed, words) in ELSEWHERE {
        let at = Path::new(typed);
        for (command, from, to) in [
            ("sync", &*src, at),
            ("sync", at, &*dst),
            ("verify", &*src, at),
            ("audit", at, &*dst),
        ] {
            let more: &[&str] = if command == "audit" {
                &["--samples=1"]
            } else {
                &[]
            };
            let run = driftless().arg(command).arg(from).arg(to).args(more);
            check_refused(scratch.path(), run, words);
        }
        let run = sync(&src, &dst).arg(format!("--link-dest={typed}"));
        check_refused(scratch.path(), run, words);
        let run = driftless().arg("sum").arg(typed);
        check_refused(scratch.path(), run, words);
        let job = scratch.path().join("job.toml");
        put(&job, format!("source = {src:?}\nreplica = \"{typed}\"\n"));
        let run = driftless().args(["mirror", "check"]).arg(&job);
        check_refused(scratch.path(), run, words);
    }
}

#[test]
fn a_file_named_like_an_address_is_hashed() {
    let (scratch, _, _) = stage();
    let path = scratch.path().join("far::module");
    put(&path, "content");
    let name = path.file_name().expect("a name");
    let run = driftless().arg("sum").arg(name);
    let in_folder = ["env".as_ref(), "-C".as_ref(), scratch.path().as_os_str()];
    let _ = run.through(in_folder).run().expect(0);
}

#[test]
fn a_list_on_another_host_is_refused() {
    let (scratch, src, dst) = stage();
    plant(&src);
    for list in ["far:/list", "far::module/list", "rsync://far/list"] {
        for option in ["--files-from", "--filter-from"] {
            let run = sync(&src, &dst).arg(format!("{option}={list}"));
            check_refused(scratch.path(), run, "lists are files of this host");
        }
    }
}
