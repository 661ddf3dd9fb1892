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

/// A row of `foreign.tsv`.
struct Row {
    tool: &'static str,
    word: &'static str,
    /// Spellings of an option, without what stands for its value.
    options: Vec<&'static str>,
    here: &'static str,
    equivalent: &'static str,
}

fn rows() -> Vec<Row> {
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('\t').collect();
        assert_eq!(cells.len(), 5, "five cells: {line}");
        let options = cells[1].split(", ").filter(|word| word.starts_with('-'));
        Row {
            tool: cells[0],
            word: cells[1],
            options: options
                .filter_map(|word| word.split(['=', ' ']).next())
                .collect(),
            here: cells[2],
            equivalent: cells[3],
        }
    };
    let rows: Vec<Row> = include_str!("foreign.tsv")
        .lines()
        .skip(1)
        .map(row)
        .collect();
    assert!(rows.len() > 200, "{} rows", rows.len());
    rows
}

#[test]
fn options_of_other_programs_are_refused_with_the_equivalent() {
    let (scratch, src, dst) = stage();
    plant(&src);
    put(&dst.join("only"), "only here");
    let of_jobs = ["lsyncd", "sr3"];
    let refused = |row: &&Row| row.here == "refused" && !of_jobs.contains(&row.tool);
    for row in rows().iter().filter(refused) {
        assert!(!row.options.is_empty(), "an option: {}", row.equivalent);
        for option in &row.options {
            let run = driftless().arg("sync").arg(option).arg(&src).arg(&dst);
            let words = format!("{}'s {option}: {}", row.tool, row.equivalent);
            check_refused(scratch.path(), run, &words);
        }
    }
}

#[test]
fn keys_of_other_programs_are_refused_with_the_equivalent() {
    let (scratch, src, dst) = stage();
    let job = scratch.path().join("job.toml");
    let of_jobs = ["lsyncd", "sr3"];
    let rows = rows();
    let refused = |row: &&Row| row.here == "refused" && of_jobs.contains(&row.tool);
    let mut tried = 0;
    for row in rows.iter().filter(refused) {
        let text = format!("source = {src:?}\nreplica = {dst:?}\n{} = 1\n", row.word);
        put(&job, text);
        let run = driftless().args(["mirror", "check"]).arg(&job);
        check_refused(scratch.path(), run, row.equivalent);
        tried += 1;
    }
    assert!(tried > 8, "{tried} keys");
}

#[test]
fn options_that_are_not_refused_are_understood() {
    let help = driftless().args(["sync", "--help"]).run().expect(0);
    let help = help.stdout_text();
    for row in rows()
        .iter()
        .filter(|row| row.tool == "rsync" && ["same", "other"].contains(&row.here))
    {
        for option in &row.options {
            let known = [" ", ",", "\n", "["].map(|end| format!("{option}{end}"));
            let is_known = known.iter().any(|word| help.contains(word));
            assert!(is_known || ["-V", "--version"].contains(option), "{option}");
        }
    }
}

#[test]
fn every_option_of_rsync_has_a_row() {
    let help = Command::new("rsync").arg("--help").output().expect("rsync");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let rows = rows();
    let has_row = |option: &str| {
        rows.iter()
            .any(|row| row.tool == "rsync" && row.options.contains(&option))
    };
    let mut all = 0;
    for line in help.lines().filter(|line| line.starts_with('-')) {
        let names = line.split("  ").next().unwrap_or(line);
        for name in names
            .split(", ")
            .filter_map(|name| name.split(['=', ' ']).next())
        {
            // It stands for others, and is no option; help is the same everywhere.
            if !["--no-OPTION", "--help"].contains(&name) {
                assert!(has_row(name), "{name} has no row: {line}");
                all += 1;
            }
        }
    }
    assert!(all > 120, "{all} options in the help of rsync");
}

#[test]
fn command_lines_of_rsync_work() {
    let (scratch, src, dst) = stage();
    plant(&src);
    for words in [
        &["-aHAX"][..],
        &["-avP"],
        &["-avzh"],
        &["-rlptgoD"],
        &["-aHAXSx", "--numeric-ids"],
        &["-n"],
        &["-ani", "--delete"],
        &["-i"],
        &["-a", "--stats"],
        &["-a", "--info=progress2"],
        &["-a", "-e", "ssh -p 22"],
        &["-az"],
        &["-a", "--partial"],
        &["-a", "--delete-after"],
        &["-a", "--progress"],
        &["-a", "--no-o", "--no-g"],
        &["-aW", "--outbuf=L"],
    ] {
        let run = driftless().arg("sync").args(words);
        let outcome = run.arg(&src).arg(&dst).run().expect(0);
        let is_asked = words[0].contains('n');
        assert!(is_asked || dst.join("a/x").exists(), "{words:?}");
        assert!(outcome.stderr.is_empty(), "{}", outcome.describe());
        std::fs::remove_dir_all(&dst).expect("removed");
        std::fs::create_dir(&dst).expect("made");
    }
    let run = driftless().args(["sync", "-aL"]).arg(&src).arg(&dst);
    check_refused(
        scratch.path(),
        run,
        "-L: not offered: no symbolic link below SRC",
    );
    let run = driftless().args(["verify", "-aHAX"]).arg(&src).arg(&src);
    check_refused(scratch.path(), run, "rsync's -a: leave it out");
    let run = driftless().arg("sync").args([&src, &src, &dst]);
    check_refused(
        scratch.path(),
        run,
        "for several SRC, name the directory above",
    );
    let run = driftless()
        .args(["sync", "--bwlimit=1000"])
        .arg(&src)
        .arg(&dst);
    check_refused(scratch.path(), run, "write 1000k for 1000 KiB a second");
}

/// Lists the entries below a root with kind and mode, and files with their sums.
fn described(root: &Path) -> Vec<String> {
    let listing = "find . -printf '%P %y %m\n'; find . -type f -exec sha256sum {} +";
    let output = Command::new("sh")
        .args(["-c", listing])
        .current_dir(root)
        .output()
        .expect("find");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn same_options_do_what_rsync_does() {
    let mut tried = 0;
    for row in rows()
        .iter()
        .filter(|row| row.tool == "rsync" && row.here == "same")
    {
        let Some(option) = row.options.last() else {
            continue;
        };
        let words: Vec<String> = match *option {
            "--version" => continue,
            "--max-size" | "--min-size" => vec![format!("{option}=3k")],
            "--modify-window" => vec![format!("{option}=2")],
            "--exclude" | "--include" => vec![format!("{option}=*.o"), "--exclude=a".into()],
            "--delete-excluded" => {
                vec!["--delete".into(), (*option).into(), "--exclude=*.o".into()]
            }
            option => vec![option.into()],
        };
        let (scratch, src, dst) = stage();
        plant(&src);
        put(&src.join("large"), [1; 5000]);
        for (kind, name) in [("p", "fifo"), ("c", "device")] {
            let mut node = Command::new("mknod");
            node.arg(src.join(name)).arg(kind);
            if kind == "c" {
                node.args(["1", "3"]);
            }
            assert!(node.status().expect("mknod").success());
        }
        let peer = scratch.path().join("peer");
        for replica in [&dst, &peer] {
            put(&replica.join("old.o"), "old");
            put(&replica.join("b"), "other");
        }
        rsync(
            &src,
            &peer,
            &words.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        let _ = driftless()
            .arg("sync")
            .args(&words)
            .arg(&src)
            .arg(&dst)
            .run()
            .expect(0);
        assert_eq!(described(&dst), described(&peer), "{words:?}");
        tried += 1;
    }
    assert!(tried >= 15, "{tried} options");
}
