//! What a run says: JSON lines that programs rely on, and text that people read.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{driftless, on_trees, put, sync, sync_by_user, sync_ok};
use driftless_testkit::{EVENT_MAX, FsKind, Profile, Scratch, attrs, build_tree, on_terminal};
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const NONE: [&str; 0] = [];

fn change_of(events: &[Value], path: &str) -> Value {
    let found = events
        .iter()
        .find(|event| event["event"] == "change" && event["path"] == path);
    found
        .unwrap_or_else(|| panic!("no change of {path} in {events:#?}"))
        .clone()
}

#[test]
fn each_change_is_told_with_path_kind_and_action() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("dir/file"), "content");
    std::os::unix::fs::symlink("x", src.join("link")).expect("symlink");
    let events = sync_ok(&src, &dst, NONE).events();
    assert_eq!(events[0]["event"], "start");
    assert_eq!(events.last().expect("some")["event"], "summary");
    for (path, kind) in [("dir", "dir"), ("dir/file", "file"), ("link", "symlink")] {
        let change = change_of(&events, path);
        assert_eq!(
            (&change["kind"], &change["action"]),
            (&Value::from(kind), &Value::from("create")),
            "{change}"
        );
    }
    attrs::set_mode(&src.join("dir/file"), 0o600).expect("chmod");
    let change = change_of(&sync_ok(&src, &dst, NONE).events(), "dir/file");
    assert_eq!(
        (&change["action"], &change["what"]),
        (&Value::from("meta"), &serde_json::json!(["mode"])),
        "{change}"
    );
    put(&src.join("dir/file"), "longer content");
    assert_eq!(
        change_of(&sync_ok(&src, &dst, NONE).events(), "dir/file")["action"],
        "content"
    );
    fs::remove_file(src.join("dir/file")).expect("unlink");
    // Its name is met before that of the other.
    fs::hard_link(src.join("link"), src.join("any")).expect("link");
    let events = sync_ok(&src, &dst, ["--delete"]).events();
    assert_eq!(change_of(&events, "dir/file")["action"], "delete");
    assert_eq!(change_of(&events, "any")["action"], "link");
    fs::remove_file(src.join("link")).expect("unlink");
    put(&src.join("link"), "a file now");
    let change = change_of(&sync_ok(&src, &dst, NONE).events(), "link");
    assert_eq!(
        (&change["action"], &change["kind"]),
        (&Value::from("replace"), &Value::from("file")),
        "{change}"
    );
}

#[test]
fn a_name_that_is_no_text_is_shown_and_given_without_loss() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join(OsStr::from_bytes(b"a\xff\xfe/b")), "content");
    let events = sync_ok(&src, &dst, NONE).events();
    let change = change_of(&events, "a\\xff\\xfe/b");
    assert_eq!(change["path_base64"], "Yf/+L2I=", "{change}");
}

#[test]
fn no_control_byte_of_a_name_reaches_the_terminal() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    build_tree(
        &src,
        1,
        &Profile {
            large: false,
            ..Profile::root()
        },
    );
    for flag in ["--verbose", "--json"] {
        let outcome = on_trees("sync", &src, &dst).arg(flag).run().expect(0);
        let bad = |text: &str| text.chars().find(|c| c.is_control() && *c != '\n');
        let text = String::from_utf8(outcome.stdout.clone()).expect("UTF-8");
        assert_eq!(bad(&text), None, "{flag}: stdout");
        assert_eq!(bad(&outcome.stderr_text()), None, "{flag}: stderr");
        fs::remove_dir_all(&dst).expect("remove");
    }
}

/// What turns the direction of writing, ends a line or steers a terminal.
const UNSEEN: [char; 6] = [
    '\u{202e}', '\u{2066}', '\u{2028}', '\u{85}', '\u{9b}', '\u{1b}',
];

fn check_plain(text: &str, context: &str) {
    assert!(!text.contains(UNSEEN), "{context}: {text:?}");
    assert!(
        !text.lines().any(|line| line.starts_with("forged")),
        "{context}: {text}"
    );
}

#[test]
fn a_name_that_turns_the_direction_of_writing_is_shown_escaped_and_given_without_loss() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, log) = (scratch.dir("src"), scratch.path().join("log"));
    put(&src.join("annexe-\u{202e}gnp.exe"), "content");
    let dst = scratch.path().join("dst");
    let said = on_trees("sync", &src, &dst)
        .args(["--verbose", "--log"])
        .arg(&log)
        .run()
        .expect(0);
    let logged = fs::read_to_string(log).expect("a log");
    for text in [said.stdout_text(), logged] {
        check_plain(&text, "a name");
        assert!(text.contains("annexe-\\xe2\\x80\\xaegnp.exe"), "{text}");
    }
    let events = sync_ok(&src, &scratch.path().join("other"), NONE).events();
    let change = change_of(&events, "annexe-\\xe2\\x80\\xaegnp.exe");
    assert_eq!(
        change["path_base64"], "YW5uZXhlLeKArmducC5leGU=",
        "{change}"
    );
}

#[test]
fn what_other_hosts_say_cannot_steer_a_terminal_or_begin_a_line_in_a_log() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, log, far) = (
        scratch.dir("src"),
        scratch.path().join("log"),
        scratch.path().join("far"),
    );
    put(&src.join("file"), "content");
    let evil = r"\033[2J\302\205\302\233\342\200\256\342\201\246\342\200\250\rforged";
    let hosts = [
        format!("printf '{evil}\\n' >&2; exit 255"),
        format!("printf 'driftless-agent 999 {evil}\\n'"),
        format!("printf 'driftless-agent {evil} 1\\n'"),
        format!("printf '{evil}\\n{evil}\\n'; printf 'x\\n{evil}' >&2; exit 3"),
    ];
    for host in hosts {
        put(&far, format!("#!/bin/sh\n{host}\n"));
        attrs::set_mode(&far, 0o755).expect("chmod");
        for json in [None, Some("--json")] {
            let (ssh, name) = (far.display().to_string(), "h\u{202e}ost\u{9b}:/nowhere");
            let command = driftless()
                .args(["sync", "--ssh", &ssh, "--log"])
                .arg(&log)
                .args(json)
                .arg(&src)
                .arg(name);
            let outcome = command.run();
            assert_ne!(outcome.code(), 0, "{host}: {}", outcome.describe());
            let logged = fs::read_to_string(&log).expect("a log");
            assert!(
                !logged.is_empty() && !outcome.stderr_text().is_empty(),
                "{host}: {}",
                outcome.describe()
            );
            for text in [outcome.stdout_text(), outcome.stderr_text(), logged] {
                check_plain(&text, &host);
            }
        }
    }
}

#[test]
fn quiet_comparison_prints_what_differs_alone() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    put(&src.join("same"), "content");
    let _ = sync_ok(&src, &dst, [""; 0]);
    let commands = [
        &["verify", "--quiet"][..],
        &["audit", "--quiet", "--samples=10", "--grace=0"],
    ];
    let run = |words: &[&str], code| {
        let outcome = on_trees(words[0], &src, &dst).args(&words[1..]).run();
        outcome.expect(code).stdout_text()
    };
    for words in commands {
        assert_eq!(run(words, 0), "", "{words:?}");
    }
    put(&dst.join("file"), "other");
    for words in commands {
        let told = run(words, 4);
        assert!(told.contains("file") && !told.contains("equal"), "{told}");
    }
}

#[test]
fn log_in_a_pipe_without_reader_is_refused() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let pipe = scratch.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let run = || {
        let run = on_trees("sync", &src, &dst).arg("--log").arg(&pipe);
        run.limit(EVENT_MAX).run()
    };
    let told = run().expect(1).stderr_text();
    assert!(told.contains("no program reads from this pipe"), "{told}");
    assert!(!dst.exists());
    // Opened to read and write, it has a reader.
    let reader = std::fs::File::options().read(true).write(true).open(&pipe);
    let _reader = reader.expect("the pipe");
    let _done = run().expect(0);
}

#[test]
fn quiet_says_nothing_and_verbose_names_every_change() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("dir/file"), "content");
    let outcome = on_trees("sync", &src, &dst).arg("--quiet").run().expect(0);
    assert_eq!(
        (outcome.stdout_text(), outcome.stderr_text()),
        (String::new(), String::new())
    );
    put(&src.join("dir/file"), "other content");
    let outcome = on_trees("sync", &src, &dst)
        .arg("--verbose")
        .run()
        .expect(0);
    assert!(
        outcome.stdout_text().contains("dir/file"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_run_that_moves_nothing_tells_no_rate() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let summary = || on_trees("sync", &src, &dst).run().expect(0).stdout_text();
    let (first, second) = (summary(), summary());
    assert!(
        first.contains("copied 7 B in ") && first.contains("B/s"),
        "{first}"
    );
    assert!(
        second.contains("copied 0 B in ") && !second.contains("B/s"),
        "{second}"
    );
}

#[test]
fn a_log_file_is_written_when_asked_for() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let log = scratch.path().join("log");
    let _ = sync(&src, &dst).arg("--log").arg(&log).run().expect(0);
    let text = fs::read_to_string(&log).expect("log");
    let is_digit_at = |line: &str, at: usize| line.as_bytes()[at].is_ascii_digit();
    for line in text.lines() {
        // 2026-01-31T23:59:59Z
        assert!(
            [0, 3, 5, 8, 11, 14, 18]
                .iter()
                .all(|at| is_digit_at(line, *at)),
            "{line}"
        );
        assert_eq!(
            (&line[4..5], &line[10..11], &line[19..21]),
            ("-", "T", "Z "),
            "{line}"
        );
    }
    let words: Vec<&str> = text
        .lines()
        .map(|line| line[21..].split(' ').next().expect("a word"))
        .collect();
    assert_eq!(words, ["start", "create", "create", "end"], "{text}");
    assert!(
        text.contains("end      exit code 0; 2 entries: 0 same, 2 changed"),
        "{text}"
    );
}

/// A tree whose copy takes some seconds with `--bwlimit 2M`.
fn slow_tree() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (0..40).for_each(|file| put(&src.join(format!("f{file}")), vec![b'x'; 200_000]));
    (scratch, src, dst)
}

#[test]
fn sigusr1_asks_where_the_run_stands_and_ends_nothing() {
    let (_scratch, src, dst) = slow_tree();
    for command in ["sync", "verify"] {
        let running = on_trees(command, &src, &dst)
            .args(["--bwlimit", "2M", "--progress", "never"])
            .spawn();
        assert!(
            !running.ends_within(Duration::from_millis(700)),
            "it should take seconds"
        );
        running.signal(Signal::USR1);
        let outcome = running.wait().expect(0);
        let told: Vec<String> = outcome.stderr_text().lines().map(str::to_owned).collect();
        assert!(
            told.len() == 1 && told[0].contains("entries") && told[0].contains("thread"),
            "{}",
            outcome.describe()
        );
    }
}

#[test]
fn without_a_terminal_there_is_a_line_after_each_pause() {
    let (_scratch, src, dst) = slow_tree();
    let told = |when: &str| {
        let outcome = on_trees("sync", &src, &dst)
            .args(["--checksum", "--bwlimit", "2M", "--progress", when])
            .run()
            .expect(0);
        outcome
            .stderr_text()
            .lines()
            .filter(|line| line.contains(" % done, "))
            .count()
    };
    assert!((1..=20).contains(&told("1")));
    assert_eq!(
        (told("never"), told("auto")),
        (0, 0),
        "a run of seconds has nothing to say"
    );
}

#[test]
fn the_progress_line_fits_a_narrow_terminal() {
    const COLUMNS: usize = 60;
    let (scratch, src, dst) = slow_tree();
    let binary = env!("CARGO_BIN_EXE_driftless");
    let inner = format!(
        "stty cols {COLUMNS}; {binary} sync --bwlimit 3M {} {} >/dev/null",
        src.display(),
        dst.display()
    );
    let shown = on_terminal(&inner)
        .current_dir(scratch.path())
        .output()
        .expect("a terminal");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success(), "{shown:?}");
    let frames: Vec<String> = text
        .split(['\r', '\n'])
        .map(without_escapes)
        .filter(|frame| frame.contains('[') || frame.contains("left"))
        .collect();
    assert!(
        frames
            .iter()
            .any(|frame| frame.contains("about ") && frame.contains(" left, 41 entries")),
        "{text}"
    );
    assert!(
        frames.iter().all(|frame| frame.chars().count() <= COLUMNS),
        "{frames:#?}"
    );
}

/// What a terminal shows of a text: without its escape sequences (ECMA-48, CSI).
fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| {
        shown
            + part
                .trim_start_matches(|c: char| !c.is_ascii_alphabetic())
                .get(1..)
                .unwrap_or_default()
    })
}

#[test]
fn the_accounts_of_a_run_with_problems_add_up() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    build_tree(
        &src,
        2,
        &Profile {
            large: false,
            ..Profile::root()
        },
    );
    attrs::set_mode(&src, 0o755).expect("chmod");
    attrs::set_owner(&dst, common::USER, common::USER).expect("chown");
    let outcome = sync_by_user(&src, &dst).run().expect(3);
    common::check_accounts(&outcome);
    assert!(outcome.count("failed") > 0);
    for problem in outcome.events_named("problem") {
        for field in ["path", "act", "cause", "class"] {
            assert!(problem[field].is_string(), "{field} in {problem}");
        }
    }
}

#[test]
fn what_was_asked_for_and_cannot_be_written_is_no_success() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("f"), "x");
    let _ = sync_ok(&src, &dst, NONE);
    let run = |command: &str| {
        let script = format!("\"$0\" {command}");
        let status = Command::new("bash")
            .args(["-c", &script, env!("CARGO_BIN_EXE_driftless")])
            .current_dir(scratch.path())
            .status();
        status.expect("bash starts").code()
    };
    for command in [
        "sync -n src dst",
        "verify src dst",
        "audit --samples 5 src dst",
        "sync --json src dst",
    ] {
        assert_eq!(run(&format!("{command} > /dev/null")), Some(0), "{command}");
        assert_eq!(run(&format!("{command} > /dev/full")), Some(1), "{command}");
    }
    assert_eq!(
        run("sync src dst > /dev/full"),
        Some(0),
        "the run itself is what matters"
    );
    assert_eq!(
        run("sync --json src dst | true; exit ${PIPESTATUS[0]}"),
        Some(0),
        "nobody wants to read on"
    );
    put(&src.join("g"), "y");
    assert_eq!(run("sync --log /dev/full src dst"), Some(1));
    assert!(dst.join("g").exists(), "all else was done");
}

#[test]
fn a_mover_tells_what_happens_in_lines_or_in_json() {
    let mover = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        command
            .args([
                "mover",
                "--queue",
                "amqp://nobody@127.0.0.1:1/x",
                "--job",
                "j\x1b[31m",
            ])
            .args(arguments);
        let output = command
            .env_remove("DRIFTLESS_QUEUE_PASSWORD")
            .output()
            .expect("the mover starts");
        (
            output.status.code(),
            String::from_utf8(output.stderr).expect("text"),
        )
    };
    let why = "there is no password for the broker";
    let (code, text) = mover(&[]);
    assert!(
        code == Some(2)
            && text.starts_with(&format!("driftless mover: {why}"))
            && text.lines().count() == 1,
        "{code:?} {text}"
    );
    let (code, text) = mover(&["--log-format", "json", "--log-level", "error"]);
    let event: Value = serde_json::from_str(text.trim_end()).expect("one JSON object");
    assert!(
        code == Some(2) && event["level"] == "ERROR" && event["timestamp"].is_string(),
        "{text}"
    );
    assert!(
        event["message"]
            .as_str()
            .is_some_and(|message| message.starts_with(why)),
        "{text}"
    );
}
