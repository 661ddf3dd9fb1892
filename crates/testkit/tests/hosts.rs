//! What tests of remote trees stand on: a real server that one can log in to, slow networks, hosts,
//! and nothing left of them.
#![allow(clippy::disallowed_methods)]

use driftless_testkit::accounts::ORDINARY_ID;
use driftless_testkit::sshd::{FAR, FAR_USER};
use driftless_testkit::{Driftless, Lab, Relay, Sshd, wait_until};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs it; what it says without the end of the line, or how it failed.
fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{}: {}", output.status, text(&output.stderr)))
    }
}

#[test]
fn one_logs_in_as_root_and_as_the_ordinary_user() {
    let server = Sshd::start();
    let client = server.client();
    for (name, id) in [(FAR, "0".to_owned()), (FAR_USER, ORDINARY_ID.to_string())] {
        assert_eq!(
            said(client.command().args([name, "id -u"])),
            Ok(id),
            "{}",
            server.log()
        );
    }
}

#[test]
fn the_ordinary_user_can_be_the_one_who_connects() {
    let server = Sshd::start();
    let client = server.client_of_user(server.address());
    let ssh = Driftless::new("ssh")
        .as_user(ORDINARY_ID, ORDINARY_ID)
        .arg("-F")
        .arg(client.config());
    let outcome = ssh.args([FAR_USER, "id -u"]).run().expect(0);
    assert_eq!(
        outcome.stdout_text(),
        format!("{ORDINARY_ID}\n"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn the_words_of_a_client_are_a_command() {
    let server = Sshd::start();
    let line = format!("{} {FAR} echo there", server.client().words());
    assert_eq!(
        said(Command::new("sh").args(["-c", &line])),
        Ok("there".to_owned()),
        "{}",
        server.log()
    );
}

#[test]
fn many_log_in_at_once() {
    let server = Sshd::start();
    let client = server.client();
    let begin = |number: u32| {
        client
            .command()
            .args([FAR, &format!("exit {number}")])
            .spawn()
            .expect("ssh starts")
    };
    let running: Vec<_> = (0..12).map(begin).collect();
    for (number, mut ssh) in running.into_iter().enumerate() {
        assert_eq!(
            ssh.wait().expect("wait").code(),
            Some(number as i32),
            "{}",
            server.log()
        );
    }
}

#[test]
fn another_server_is_not_taken_for_this_one() {
    let (server, other) = (Sshd::start(), Sshd::start());
    let refused = said(
        server
            .client_via(other.address())
            .command()
            .args([FAR, "true"]),
    )
    .expect_err("the wrong server");
    assert!(
        refused.contains("Host key verification failed"),
        "{refused}"
    );
}

#[test]
fn a_login_through_a_slow_network_is_right_and_late() {
    let server = Sshd::start();
    let relay = Relay::delayed(server.address(), Duration::from_millis(20));
    let started = Instant::now();
    assert_eq!(
        said(
            server
                .client_via(relay.address())
                .command()
                .args([FAR, "id -u"])
        ),
        Ok("0".to_owned())
    );
    assert!(
        started.elapsed() >= Duration::from_millis(40),
        "{:?}",
        started.elapsed()
    );
    assert!(
        relay.passed().there > 1000 && relay.passed().back > 1000,
        "{:?}",
        relay.passed()
    );
}

#[test]
fn a_session_ends_when_its_connection_is_cut() {
    let server = Sshd::start();
    let relay = Relay::start(server.address());
    let mut ssh = server
        .client_via(relay.address())
        .command()
        .args([FAR, "sleep 600"])
        .stderr(Stdio::null())
        .spawn()
        .expect("ssh starts");
    wait_until("the session is there", || is_running(&server, "sleep"));
    relay.cut();
    assert_eq!(ssh.wait().expect("wait").code(), Some(255));
}

#[test]
fn hosts_reach_each_other_while_the_link_is_up() {
    let lab = Lab::new(2);
    let server = Sshd::start_on(lab.host(1));
    let client = server.client();
    let ask = || {
        said(
            client
                .command_on(lab.host(0))
                .args(["-o", "ConnectTimeout=1", FAR, "id -u"]),
        )
    };
    assert_eq!(ask(), Ok("0".to_owned()), "{}", server.log());
    lab.host(1).link_down();
    let refused = ask().expect_err("the link is down");
    assert!(refused.contains("exit status: 255"), "{refused}");
    lab.host(1).link_up();
    assert_eq!(ask(), Ok("0".to_owned()), "{}", server.log());
}

#[test]
fn a_relay_on_a_host_is_between_it_and_another() {
    let lab = Lab::new(2);
    let server = Sshd::start_on(lab.host(1));
    let relay = lab
        .host(0)
        .inside(|| Relay::delayed(server.address(), Duration::from_millis(20)));
    let started = Instant::now();
    assert_eq!(
        said(
            server
                .client_via(relay.address())
                .command_on(lab.host(0))
                .args([FAR, "id -u"])
        ),
        Ok("0".to_owned())
    );
    assert!(
        started.elapsed() >= Duration::from_millis(40),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn killed_sessions_take_all_that_they_have_started_along() {
    let server = Sshd::start();
    let sleep_twice = "setsid sleep 600 </dev/null >/dev/null 2>&1 & sleep 600";
    let mut ssh = server
        .client()
        .command()
        .args([FAR, sleep_twice])
        .stderr(Stdio::null())
        .spawn()
        .expect("ssh starts");
    wait_until("both sleep", || running(&server, "sleep").len() == 2);
    server.kill_sessions();
    assert_eq!(ssh.wait().expect("wait").code(), Some(255));
    assert!(server.sessions().is_empty(), "{:?}", server.sessions());
    assert_eq!(
        said(server.client().command().args([FAR, "echo back"])),
        Ok("back".to_owned()),
        "the server goes on"
    );
}

#[test]
fn nothing_is_left_of_a_server() {
    let server = Sshd::start();
    let client = server.client();
    // A process that its session has let go of.
    let leave = "setsid sleep 600 </dev/null >/dev/null 2>&1 &";
    assert_eq!(
        said(client.command().args([FAR_USER, leave])),
        Ok(String::new())
    );
    wait_until("it sleeps", || is_running(&server, "sleep"));
    let (listener, left) = (server.pid(), running(&server, "sleep"));
    drop(server);
    assert_eq!(name_of(listener), "", "the server runs");
    assert!(
        !left.iter().any(|pid| name_of(*pid) == "sleep"),
        "what a session has started is still there"
    );
    assert!(!client.config().exists(), "files are left");
}

/// The program of a process that has not ended; one that nobody has waited for has no command line
/// any more.
fn name_of(pid: u32) -> String {
    let line =
        std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(line.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

fn running(server: &Sshd, name: &str) -> Vec<u32> {
    server
        .sessions()
        .into_iter()
        .filter(|pid| name_of(*pid) == name)
        .collect()
}

fn is_running(server: &Sshd, name: &str) -> bool {
    !running(server, name).is_empty()
}
