//! Lines to other hosts that do not come about, say something else first, or end in the middle of a
//! run.
//!
//! What cannot be reached is told in words that help. A line that is lost and not made again
//! (`--reconnect=0`; `remote_again.rs` has the rest) ends the run soon; nothing on the replica is
//! torn, and the next run makes it equal.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{self, Far, Way};
use common::{check_equal, leftovers, programs, put, wait_until};
use driftless_testkit::mutate::list_all;
use driftless_testkit::{
    Driftless, EVENT_MAX, FsKind, Outcome, Relay, Scratch, Weather, snapshot_hash,
};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: usize = 1 << 20;
const SMALL_FILES: usize = 4000;
const LARGE_BYTES: usize = 80 * MIB;
/// What only the replica has.
const EXTRA: &str = "extra";
/// So slow that the tree takes much longer than the test needs to break in.
const SLOW: Weather = Weather {
    delay: Duration::ZERO,
    bytes_per_second_max: Some(20 << 20),
};

/// A source, a replica that is not there yet, and a folder for programs.
fn stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 400);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    (scratch, src, dst)
}

/// A program that a shell runs; where `AGENT` stands is the real agent, and where `PROTOCOL` stands
/// its protocol.
fn script(scratch: &Scratch, text: &str) -> PathBuf {
    let path = scratch.path().join("agent");
    let text = text
        .replace("AGENT", far::agent())
        .replace("PROTOCOL", &driftless_remote::wire::PROTOCOL.to_string());
    driftless_testkit::write_program(&path, &format!("#!/bin/sh\n{text}\n"));
    path
}

/// A run that cannot begin: code 1 within the limit, nothing made, and these words.
fn check_refused(run: Driftless, dst: &Path, words: &[&str]) {
    let outcome = run.limit(EVENT_MAX).run().expect(1);
    let text = outcome.stderr_text();
    for word in words {
        assert!(
            text.contains(word),
            "no word of \"{word}\"\n{}",
            outcome.describe()
        );
    }
    assert_eq!(
        text.trim().lines().count(),
        1,
        "one line says it\n{}",
        outcome.describe()
    );
    assert!(!dst.exists(), "a replica was made\n{}", outcome.describe());
}

#[test]
fn a_host_without_an_agent_is_told_with_what_to_do() {
    let far = Far::root();
    let (_scratch, src, dst) = stage();
    let run = far.command_with(
        "sync",
        "/nonexistent/driftless",
        far.ends(Way::Push, &src, &dst),
    );
    check_refused(
        run,
        &dst,
        &[
            "far",
            "/nonexistent/driftless",
            "install driftless",
            "--agent-path",
        ],
    );
    let run = far.command_with(
        "verify",
        "/nonexistent/driftless",
        far.ends(Way::Pull, &src, &dst),
    );
    check_refused(
        run,
        &dst,
        &[
            "far",
            "/nonexistent/driftless",
            "install driftless",
            "--agent-path",
        ],
    );
}

#[test]
fn an_agent_of_another_protocol_is_told_with_both_versions() {
    let far = Far::root();
    let (scratch, src, dst) = stage();
    let agent = script(&scratch, "echo driftless-agent 999 9.9.9; cat >/dev/null");
    let run = far.command_with("sync", &agent, far.ends(Way::Push, &src, &dst));
    check_refused(
        run,
        &dst,
        &[
            "far",
            "999",
            "9.9.9",
            env!("CARGO_PKG_VERSION"),
            "the same version",
        ],
    );
    let agent = script(
        &scratch,
        "printf 'driftless-agent \\033[31m red\\n'; cat >/dev/null",
    );
    let outcome = far
        .command_with("sync", &agent, far.ends(Way::Push, &src, &dst))
        .run()
        .expect(1);
    assert!(
        !outcome.stderr.contains(&0x1b),
        "a version reaches the terminal as it came\n{}",
        outcome.describe()
    );
}

#[test]
fn what_is_no_agent_is_told() {
    let far = Far::root();
    let (scratch, src, dst) = stage();
    let programs = [
        ("exit 0", "no connection"),
        (
            "echo some words; exit 3",
            "no connection; what came was \"some words\"",
        ),
        (
            "echo 'the disk is on fire' >&2; exit 1",
            "the disk is on fire",
        ),
        ("printf '\\033[31mred\\n' >&2; exit 1", "\\x1b[31mred"),
        ("cat /dev/zero; cat >/dev/null", "no greeting of an agent"),
        ("yes; cat >/dev/null", "no greeting of an agent"),
        // The greeting, and no more of it.
        (
            "echo driftless-agent PROTOCOL 0.1.0; exit 0",
            "no connection",
        ),
        (
            "echo driftless-agent PROTOCOL 0.1.0; head -c 100 /dev/zero; cat >/dev/null",
            "no connection",
        ),
        (
            "echo driftless-agent PROTOCOL 0.1.0; head -c 100000 /dev/urandom; cat >/dev/null",
            "no connection",
        ),
    ];
    for (text, words) in programs {
        let agent = script(&scratch, text);
        check_refused(
            far.command_with("sync", &agent, far.ends(Way::Push, &src, &dst)),
            &dst,
            &["far", words],
        );
    }
}

#[test]
fn a_host_that_refuses_the_connection_is_told() {
    let far = Far::root();
    let (_scratch, src, dst) = stage();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("a free port");
    let nobody = far.via(free);
    check_refused(
        nobody.command("sync", nobody.ends(Way::Push, &src, &dst)),
        &dst,
        &["far: no connection", "Connection refused"],
    );
    let outcome = nobody.sync(Way::Pull, &src, &dst).run().expect(1);
    let errors = outcome.events_named("error");
    assert_eq!(
        (errors.len(), errors[0]["exit_code"].as_u64()),
        (1, Some(1)),
        "{}",
        outcome.describe()
    );
}

#[test]
fn an_ssh_command_that_cannot_be_used_is_told() {
    let (_scratch, src, dst) = stage();
    let run = |command: &str| {
        let mut typed = std::ffi::OsString::from("far:");
        typed.push(&dst);
        common::driftless()
            .arg("sync")
            .arg("--ssh")
            .arg(command)
            .arg(&src)
            .arg(typed)
    };
    check_refused(
        run("/nonexistent/ssh -v"),
        &dst,
        &["/nonexistent/ssh", "cannot start"],
    );
    check_refused(
        run("/bin/false"),
        &dst,
        &[
            "far: no connection",
            "ended with exit code 1, without a message",
        ],
    );
    for usage in ["", "ssh 'unfinished"] {
        let outcome = run(usage).run().expect(2);
        assert!(
            outcome.stderr_text().contains("--ssh"),
            "{}",
            outcome.describe()
        );
    }
}

#[test]
fn what_ssh_would_take_for_an_option_is_no_host() {
    let (scratch, src, dst) = stage();
    let proof = scratch.path().join("proof");
    let touch = format!("touch${{IFS}}{}", proof.display());
    for host in [
        "-oProxyCommand=x",
        &format!("-oProxyCommand={touch}"),
        "x;touch",
        "$(id)",
        "a b",
        "me@-x",
    ] {
        let typed = format!("{}:{}", host.replace('/', "_"), dst.display());
        let outcome = common::driftless()
            .args(["sync", "--"])
            .arg(&src)
            .arg(&typed)
            .run()
            .expect(2);
        assert!(
            outcome.stderr_text().contains("a host's name is"),
            "{typed}\n{}",
            outcome.describe()
        );
        assert!(!proof.exists() && !dst.exists(), "{typed}");
    }
}

#[test]
fn what_a_shell_says_before_the_agent_is_passed_over() {
    let far = Far::root();
    for way in Way::ALL {
        let (scratch, src, dst) = stage();
        let noise = "echo Welcome to this host; echo; echo 'driftless-agents are welcome'; printf '\\377\\376\\n'; seq 1 3000";
        let agent = script(
            &scratch,
            &format!("{noise}; echo and errors >&2; exec AGENT \"$@\""),
        );
        let outcome = far
            .command_with("sync", &agent, far.ends(way, &src, &dst))
            .run()
            .expect(0);
        check_equal(
            &src,
            &dst,
            &format!("behind noise, {way:?}\n{}", outcome.describe()),
        );
    }
}

#[test]
fn noise_of_any_form_before_the_agent_is_passed_over() {
    let far = Far::root();
    let noises = [
        r"printf '\033]0;title\007'",
        "printf 'no end of line: driftless-agent '",
        "yes words | head -c 1000000; head -c 5000 /dev/zero",
        "printf driftless-; sleep 0.2; printf 'agent PROTOCOL '",
    ];
    for noise in noises {
        let (scratch, src, dst) = stage();
        let agent = script(&scratch, &format!("{noise}; exec AGENT \"$@\""));
        let outcome = far
            .command_with("sync", &agent, far.ends(Way::Push, &src, &dst))
            .limit(EVENT_MAX)
            .run()
            .expect(0);
        check_equal(
            &src,
            &dst,
            &format!("behind {noise}\n{}", outcome.describe()),
        );
    }
}

#[test]
fn what_falls_silent_before_a_greeting_is_given_up_and_shown() {
    let far = Far::root();
    let (scratch, src, dst) = stage();
    let agent = script(&scratch, r"printf '\033]0;title\007'; cat >/dev/null");
    let outcome = far
        .command_with("sync", &agent, far.ends(Way::Push, &src, &dst))
        .limit(EVENT_MAX)
        .run()
        .expect(1);
    let said = outcome.stderr_text();
    assert!(
        said.contains("no greeting of an agent")
            && said.contains(r"\x1b]0;title\x07")
            && said.contains("start-up file"),
        "{said}"
    );
    assert!(!dst.exists());
}

/// The words of the agent's program are words for the far shell, whatever is in them.
#[test]
fn a_program_with_blanks_in_its_name_is_found() {
    let far = Far::root();
    let (scratch, src, dst) = stage();
    let folder = scratch.dir("with ' blanks $(touch proof)");
    let agent = folder.join("drift less");
    std::os::unix::fs::symlink(far::agent(), &agent).expect("symlink");
    let quoted = format!("\"{}\"", agent.display()).replace('$', "\\$");
    let _ = far
        .command_with("sync", quoted, far.ends(Way::Push, &src, &dst))
        .run()
        .expect(0);
    check_equal(&src, &dst, "by a program with blanks in its name");
}

#[test]
fn an_agent_is_started_by_another_command_as_with_sudo() {
    let far = Far::root();
    let (scratch, src, dst) = stage();
    // Takes what sudo takes, and notes what it was asked for.
    let sudo = script(
        &scratch,
        "[ \"$1\" = -n ] && shift || exit 1\necho \"$*\" >\"$0.asked\"\nexec \"$@\"",
    );
    let words = format!("{} -n {}", sudo.display(), far::agent());
    let _ = far
        .command_with("sync", &words, far.ends(Way::Push, &src, &dst))
        .run()
        .expect(0);
    check_equal(&src, &dst, "by an agent that another command has started");
    let asked = fs::read_to_string(sudo.with_file_name("agent.asked")).expect("it was asked");
    assert!(
        asked.starts_with(&format!("{} agent --run ", far::agent())),
        "{asked}"
    );
    let unclear = far
        .command_with("sync", "sudo 'driftless", far.ends(Way::Push, &src, &dst))
        .run()
        .expect(2);
    assert!(
        unclear.stderr_text().contains("--agent-path"),
        "{}",
        unclear.describe()
    );
}

#[test]
fn a_host_in_front_of_the_earlier_copy_is_told_to_go() {
    let far = Far::root();
    let (_scratch, src, dst) = stage();
    for end in [far.path(&dst), dst.clone().into_os_string()] {
        let run = common::driftless()
            .args(["sync", "--ssh"])
            .arg(far.words())
            .arg("--agent-path")
            .arg(far::agent());
        let outcome = run
            .arg(&src)
            .arg(end)
            .arg("--link-dest=far:/monday")
            .run()
            .expect(2);
        let text = outcome.stderr_text();
        assert!(
            text.contains("without the host: \"/monday\"") && !text.contains("far:far:"),
            "{}",
            outcome.describe()
        );
    }
}

#[test]
fn configured_terminal_changes_no_bytes() {
    let far = Far::root();
    let (_scratch, src, dst) = stage();
    put(&src.join("control"), "\u{3}\u{4}\u{11}\u{13}\r\n~.\n");
    let _done = common::driftless()
        .args(["sync", "--ssh"])
        .arg(format!("{} -o RequestTTY=force", far.words()))
        .arg("--agent-path")
        .arg(far::agent())
        .arg(&src)
        .arg(far.path(&dst))
        .run()
        .expect(0);
    check_equal(&src, &dst, "with a terminal configured");
}

#[test]
fn what_ssh_says_is_shown_without_its_line_ends() {
    let (scratch, src, _) = stage();
    let says = "printf 'Permission denied, please try again.\\r\\nme@far: Permission denied (publickey).\\r\\n' >&2; exit 255";
    let ssh = script(&scratch, says);
    let outcome = common::driftless()
        .args(["sync", "--ssh"])
        .arg(&ssh)
        .arg(&src)
        .arg("far:dst")
        .run()
        .expect(1);
    let expected = "far: no connection: Permission denied, please try again.; me@far: Permission denied (publickey).";
    assert!(
        outcome.stderr_text().contains(expected),
        "{}",
        outcome.describe()
    );
}

/// A tree that takes a while over a slow line: small files, and a large one.
fn plant(src: &Path) {
    for index in 0..SMALL_FILES {
        put(
            &src.join(format!("dir-{}/file-{index}", index % 40)),
            vec![(index % 251) as u8; 3000 + index],
        );
    }
    put(&src.join("large"), vec![7u8; LARGE_BYTES]);
}

/// Every file that has its name has its content; what is unfinished has another name.
fn check_not_torn(src: &Path, dst: &Path) {
    let is_extra = |path: &Path| path == dst.join(EXTRA);
    for path in list_all(dst)
        .expect("list")
        .into_iter()
        .filter(|path| path.is_file() && !common::is_temp(path) && !is_extra(path))
    {
        let private = path.parent().is_some_and(|dir| {
            fs::metadata(dir).expect("stat").permissions().mode() & 0o7777 == 0o700
        });
        let original = src.join(path.strip_prefix(dst).expect("below"));
        let same = fs::read(&path).expect("read") == fs::read(&original).expect("read");
        // In a directory that nobody else can look into yet, a file has its name while it is
        // written.
        assert!(same || private, "{}: torn", path.display());
    }
}

/// What must be true of a run whose line was lost.
fn check_lost(outcome: &Outcome, src: &Path, dst: &Path, context: &str) {
    assert!(
        ![0, 70, 101, 134].contains(&outcome.code()),
        "{context}: {}",
        outcome.describe()
    );
    check_not_torn(src, dst);
}

/// Another run makes the replica equal; the far side of the lost one may hold its lock a moment
/// longer.
fn check_made_good(far: &Far, way: Way, src: &Path, dst: &Path) {
    wait_until("the replica is free", || {
        let outcome = far.sync(way, src, dst).arg("--delete").run();
        assert!([0, 11].contains(&outcome.code()), "{}", outcome.describe());
        outcome.code() == 0
    });
    check_equal(src, dst, &format!("after a lost line, {way:?}"));
    assert_eq!(leftovers(dst), Vec::<PathBuf>::new());
}

fn entries(root: &Path) -> usize {
    list_all(root).map_or(0, |all| all.len())
}

/// Loses the line in the middle of a run by `lose`, and checks all that follows.
fn lose_in_the_middle(way: Way, lose: impl Fn(&Far, &Relay)) {
    let far = Far::own();
    let relay = Relay::with(far.server.address(), SLOW);
    let slow = far.via(relay.address());
    let (_scratch, src, dst) = stage();
    plant(&src);
    put(&dst.join(EXTRA), "only here");
    let running = slow.sync(way, &src, &dst).args([
        "--delete",
        "--delete-unlike",
        "--durability=none",
        "--reconnect=0",
    ]);
    let running = running.limit(EVENT_MAX).spawn();
    wait_until("the replica fills", || entries(&dst) > 200);
    lose(&far, &relay);
    assert!(
        running.ends_within(EVENT_MAX),
        "{way:?}: it goes on without a line"
    );
    let outcome = running.wait();
    assert!(
        dst.join(EXTRA).exists(),
        "{way:?}: a lost line is no reason to delete\n{}",
        outcome.describe()
    );
    check_lost(&outcome, &src, &dst, &format!("{way:?}"));
    relay.resume();
    check_made_good(&far, way, &src, &dst);
}

#[test]
fn a_push_whose_session_dies_ends_and_the_next_makes_it_good() {
    lose_in_the_middle(Way::Push, |far, _| far.server.kill_sessions());
}

#[test]
fn a_pull_whose_session_dies_ends_and_the_next_makes_it_good() {
    lose_in_the_middle(Way::Pull, |far, _| far.server.kill_sessions());
}

#[test]
fn a_push_whose_connection_is_reset_ends_and_the_next_makes_it_good() {
    lose_in_the_middle(Way::Push, |_, relay| relay.cut());
}

#[test]
fn a_pull_whose_connection_is_reset_ends_and_the_next_makes_it_good() {
    lose_in_the_middle(Way::Pull, |_, relay| relay.cut());
}

#[test]
fn a_push_into_a_silent_network_ends_and_the_next_makes_it_good() {
    lose_in_the_middle(Way::Push, |_, relay| relay.stall());
}

#[test]
fn a_pull_from_a_silent_network_ends_and_the_next_makes_it_good() {
    lose_in_the_middle(Way::Pull, |_, relay| relay.stall());
}

#[test]
fn a_lost_line_is_told_in_words() {
    for way in [Way::Push, Way::Pull] {
        let far = Far::own();
        let relay = Relay::with(far.server.address(), SLOW);
        let slow = far.via(relay.address());
        let (_scratch, src, dst) = stage();
        plant(&src);
        let running = slow
            .sync(way, &src, &dst)
            .args(["--durability=none", "--reconnect=0"])
            .limit(EVENT_MAX)
            .spawn();
        wait_until("the replica fills", || entries(&dst) > 200);
        relay.cut();
        let outcome = running.wait();
        let text = outcome.stderr_text();
        let said = [
            "connection has ended",
            "connection was lost",
            "connection is lost",
            "lost the connection",
        ];
        assert!(
            said.iter().any(|words| text.contains(words)),
            "{way:?}: not a word of the connection\n{}",
            outcome.describe()
        );
        assert_eq!(
            outcome.code(),
            1,
            "{way:?}: the run had to end\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn a_lost_line_is_no_reason_to_delete() {
    // The source is lost before anything was listed, in the middle, or near the end: in hundredths
    // of what a whole run brings.
    for hundredths in [5, 33, 75] {
        let far = Far::own();
        let relay = Relay::with(
            far.server.address(),
            Weather {
                bytes_per_second_max: Some(200 << 10),
                ..Weather::default()
            },
        );
        let slow = far.via(relay.address());
        let (_scratch, src, dst) = stage();
        for index in 0..2000 {
            put(&src.join(format!("dir-{}/file-{index}", index % 50)), "x");
        }
        let _ = far.sync_ok(Way::Pull, &src, &dst, ["--durability=none"]);
        let _ = slow.sync_ok(Way::Pull, &src, &dst, ["--dry-run"]);
        let bytes = relay.passed().back * hundredths / 100;
        put(&dst.join("extra/file"), "content");
        let before = snapshot_hash(&dst, true);
        let passed = relay.passed().back;
        let running = slow
            .sync(Way::Pull, &src, &dst)
            .args(["--delete", "--dry-run", "--reconnect=0"])
            .spawn();
        wait_until("the listing is on its way", || {
            relay.passed().back > passed + bytes
        });
        relay.cut();
        let outcome = running.wait();
        assert_ne!(outcome.code(), 0, "{bytes}\n{}", outcome.describe());
        let deletes = outcome
            .events_named("change")
            .iter()
            .filter(|event| event["action"] == "delete")
            .count();
        assert!(
            deletes <= 2,
            "{bytes}: more than what is extra would be deleted\n{}",
            outcome.describe()
        );
        assert_eq!(snapshot_hash(&dst, true), before);
        let passed = relay.passed().back;
        let running = slow
            .sync(Way::Pull, &src, &dst)
            .args(["--delete", "--reconnect=0"])
            .spawn();
        wait_until("the listing is on its way", || {
            relay.passed().back > passed + bytes
        });
        relay.cut();
        let outcome = running.wait();
        assert_ne!(outcome.code(), 0, "{bytes}\n{}", outcome.describe());
        let missing = list_all(&src)
            .expect("list")
            .into_iter()
            .filter(|path| !dst.join(path.strip_prefix(&src).expect("below")).exists());
        assert_eq!(
            missing.collect::<Vec<_>>(),
            Vec::<PathBuf>::new(),
            "{bytes}\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn agents_end_with_the_run_that_started_them() {
    let far = Far::own();
    let (_scratch, src, dst) = stage();
    plant(&src);
    let gone = || {
        wait_until("the sessions have ended", || {
            far.server.sessions().is_empty()
        })
    };
    let _ = far.sync_ok(Way::Between, &src, &dst, ["--durability=none"]);
    gone();
    put(&src.join("large"), vec![8u8; LARGE_BYTES]);
    let running = far
        .sync(Way::Between, &src, &dst)
        .arg("--bwlimit=10M")
        .spawn();
    wait_until("sessions run", || {
        !far.server.sessions().is_empty() && !leftovers(&dst).is_empty()
    });
    running.signal(rustix::process::Signal::KILL);
    assert_eq!(running.wait().code(), 137);
    gone();
    let running = far.sync(Way::Push, &src, &dst).arg("--bwlimit=10M").spawn();
    wait_until("sessions run", || !far.server.sessions().is_empty());
    programs::signal(running.pid(), rustix::process::Signal::TERM);
    assert!([128 + 15, 0].contains(&running.wait().code()));
    gone();
}

#[test]
fn a_server_with_another_key_is_told_and_nothing_is_sent() {
    let (far, other) = (Far::root(), Far::own());
    let (_scratch, src, dst) = stage();
    let address: SocketAddr = other.server.address();
    let wrong = far.via(address);
    check_refused(
        wrong.command("sync", wrong.ends(Way::Push, &src, &dst)),
        &dst,
        &["far: no connection", "key"],
    );
}
