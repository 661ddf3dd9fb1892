//! The first signal ends a run with another host cleanly and soon, whatever that host does.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{self, Far, Way};
use common::programs::{bash, signal};
use common::{check_accounts, check_equal, put, wait_until};
use driftless_testkit::mutate::list_all;
use driftless_testkit::{Driftless, EVENT_MAX, FsKind, Running, Scratch, on_terminal};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

fn is_called(pid: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

/// Signals the run alone, and waits for its end.
fn interrupt(running: Running) -> driftless_testkit::Outcome {
    signal(running.pid(), Signal::INT);
    assert!(
        running.ends_within(EVENT_MAX),
        "the first signal does not end it"
    );
    running.wait().expect(130)
}

#[test]
fn a_far_side_that_does_not_answer_keeps_nobody_from_stopping() {
    for way in [Way::Push, Way::Pull] {
        let far = Far::own();
        let scratch = Scratch::new(FsKind::Tmpfs, 200);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        (0..400u64).for_each(|index| {
            put(
                &src.join(format!("dir-{}/file-{index}", index % 40)),
                vec![index as u8; 50_000],
            )
        });
        let running = far
            .sync(way, &src, &dst)
            .args(["--bwlimit=2M", "--durability=none"])
            .spawn();
        wait_until("the replica fills", || {
            list_all(&dst).map_or(0, |all| all.len()) > 50
        });
        let agents: Vec<u32> = far
            .server
            .sessions()
            .into_iter()
            .filter(|pid| is_called(*pid, "driftless"))
            .collect();
        assert!(!agents.is_empty());
        agents.iter().for_each(|agent| signal(*agent, Signal::STOP));
        let outcome = interrupt(running);
        assert_eq!(
            outcome.summary()["end"],
            "stopped",
            "{way:?}\n{}",
            outcome.describe()
        );
        assert_eq!(
            outcome.count("connections_lost"),
            0,
            "{way:?}\n{}",
            outcome.describe()
        );
        agents.iter().for_each(|agent| signal(*agent, Signal::CONT));
        wait_until("the agents end", || {
            !far.server.sessions().iter().any(|pid| agents.contains(pid))
        });
    }
}

#[test]
fn a_connection_that_does_not_come_about_keeps_nobody_from_stopping() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, pid) = (scratch.dir("src"), scratch.path().join("pid"));
    let silent = bash(
        &scratch,
        "silent",
        &format!(
            "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000",
            pid.display()
        ),
    );
    for command in ["sync", "verify"] {
        let _ = fs::remove_file(&pid);
        let running = common::driftless()
            .args([command, "--ssh"])
            .arg(&silent)
            .arg(&src)
            .arg("far:dst")
            .spawn();
        wait_until("it connects", || pid.exists());
        let ssh: u32 = fs::read_to_string(&pid)
            .expect("its number")
            .trim()
            .parse()
            .expect("a number");
        wait_until("it waits", || is_called(ssh, "sleep"));
        let outcome = interrupt(running);
        assert!(
            outcome
                .stderr_text()
                .contains("stopped before anything was done"),
            "{}",
            outcome.describe()
        );
        assert!(
            !Path::new(&format!("/proc/{ssh}")).exists(),
            "what connects is left behind"
        );
    }
}

/// What a terminal sends goes to all that run in its foreground.
#[test]
fn what_connects_does_not_hear_the_signals_of_a_terminal() {
    check_line_outlives(Signal::INT, 130);
}

/// A batch system signals all processes of a job.
#[test]
fn warning_of_a_job_cuts_no_connection() {
    check_line_outlives(Signal::USR2, 140);
}

fn check_line_outlives(signal: Signal, code: i32) {
    const SIZE: u64 = 160 * MIB;
    let far = Far::own();
    let scratch = Scratch::new(FsKind::Tmpfs, 400);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("large"), vec![9; SIZE as usize]);
    let running = far
        .sync(Way::Push, &src, &dst)
        .args(["--bwlimit=20M", "--streams=1"])
        .spawn();
    let on_disk = || {
        list_all(&dst)
            .unwrap_or_default()
            .iter()
            .filter_map(|path| fs::metadata(path).ok())
            .map(|meta| meta.blocks() * 512)
            .sum::<u64>()
    };
    wait_until("much of it is there", || on_disk() > 40 * MIB);
    running.signal(signal);
    assert!(
        running.ends_within(EVENT_MAX),
        "the first signal does not end it"
    );
    let first = running.wait().expect(code);
    assert_eq!(
        (
            first.summary()["end"].as_str(),
            first.count("connections_lost")
        ),
        (Some("stopped"), 0),
        "{}",
        first.describe()
    );
    let second = far.sync_ok(Way::Push, &src, &dst, ["--streams=1"]);
    check_accounts(&second);
    check_equal(&src, &dst, &second.describe());
    let (done, kept) = (first.count("bytes_copied"), second.count("bytes_resumed"));
    assert!(
        kept + 8 * MIB >= done,
        "of {done} bytes {kept} were kept\n{}\n{}",
        first.describe(),
        second.describe()
    );
}

/// ssh asks at the terminal, which it can only in the foreground.
#[test]
fn a_password_can_be_typed_at_the_terminal() {
    let far = Far::root();
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let asking = format!(
        "read -r word </dev/tty && [ \"$word\" = secret ] || exit 255\nexec {} \"$@\"",
        far.words()
    );
    let asking = bash(&scratch, "asking", &asking);
    let typed = far.path(&dst);
    let words = [
        far::agent(),
        "sync",
        "--ssh",
        &asking.display().to_string(),
        "--agent-path",
        far::agent(),
    ]
    .map(str::to_owned);
    let words = words.into_iter().chain([
        src.display().to_string(),
        typed.to_string_lossy().into_owned(),
    ]);
    let command = shell_words::join(words);
    let mut terminal = on_terminal(&format!("timeout --foreground 300 {command}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a terminal");
    terminal
        .stdin
        .as_mut()
        .expect("piped")
        .write_all(b"secret\n")
        .expect("type");
    let outcome = terminal.wait_with_output().expect("its end");
    assert!(
        outcome.status.success(),
        "{}",
        String::from_utf8_lossy(&outcome.stdout)
    );
    check_equal(&src, &dst, "behind a password");
}

/// So many directories that it takes a while to remove them.
fn plant_many(dir: &Path) {
    for index in 0..600 {
        let dir = dir.join(format!("d{index}"));
        fs::create_dir_all(&dir).expect("mkdir");
        (0..200)
            .for_each(|file| drop(fs::File::create(dir.join(format!("f{file}"))).expect("create")));
    }
}

fn break_off(sync: impl Fn(&Path, &Path) -> Driftless) {
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("file"), "content");
    put(&dst.join("file"), "content");
    plant_many(&dst.join("gone"));
    let left = || fs::read_dir(dst.join("gone")).map_or(0, Iterator::count);
    let running = sync(&src, &dst)
        .args(["--json", "--delete", "--max-delete=100%"])
        .spawn();
    wait_until("some is removed", || left() < 600);
    let outcome = interrupt(running);
    assert_eq!(
        outcome.summary()["end"],
        "stopped",
        "{}",
        outcome.describe()
    );
    assert!(left() > 0, "all was removed after the signal");
    check_accounts(&outcome);
}

#[test]
fn a_removal_here_is_broken_off_by_the_first_signal() {
    break_off(|src, dst| common::driftless().arg("sync").arg(src).arg(dst));
}
