//! Silence on a line: whoever carries it, each side notices that the other is gone, says so, and
//! lets go of what it holds.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{self, Far, Way};
use common::movers::sync_on_hosts;
use common::programs::{bash, signal};
use common::{check_equal, leftovers, put, stage, wait_until};
use driftless_model::Side;
use driftless_remote::wire::{Frame, Opening, Reply, Request, Root};
use driftless_testkit::mutate::list_all;
use driftless_testkit::{EVENT_MAX, FsKind, Relay, Running, Scratch, Weather, on_terminal};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// What a run may take on a busy machine, its losses included.
const RUN_MAX: Duration = EVENT_MAX;

/// A tree that takes a while at a few MiB a second.
fn plant(src: &Path) {
    for index in 0..200u64 {
        put(
            &src.join(format!("dir-{}/file-{index}", index % 10)),
            vec![index as u8; 30_000],
        );
    }
    put(&src.join("large"), vec![7; 24 * MIB as usize]);
}

fn entries(root: &Path) -> usize {
    list_all(root).map_or(0, |all| all.len())
}

fn begun(running: Running, dst: &Path) -> Running {
    wait_until("the replica fills", || entries(dst) > 50);
    running
}

// ---- an agent and a client of the test's own ----

/// A client that says what the test has it say, and nothing else.
struct Client {
    agent: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Client {
    /// An agent for a replica, whose root has the number 1.
    fn of(replica: &Path) -> Client {
        let mut command = Command::new(far::agent());
        let mut agent = command
            .arg("agent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("an agent");
        let (to, mut from) = (
            agent.stdin.take(),
            BufReader::new(agent.stdout.take().expect("piped")),
        );
        while !from.buffer().starts_with(b"driftless-agent") {
            let mut line = Vec::new();
            if from
                .fill_buf()
                .expect("a greeting")
                .starts_with(b"driftless-agent")
            {
                break;
            }
            from.read_until(b'\n', &mut line).expect("a line");
        }
        from.read_until(b'\n', &mut Vec::new()).expect("a greeting");
        let _hello = Frame::read(&mut from).expect("a frame").expect("a hello");
        let mut client = Client { agent, to, from };
        let root = Root {
            path: replica.as_os_str().as_bytes().to_vec(),
            side: Side::Replica,
        };
        client.say(&Frame::new(0, &Opening { roots: vec![root] }, Vec::new()));
        client.ask(1, &Request::Locate { root: 0, at: 1 });
        assert!(matches!(client.hear(), Some((1, Reply::Located(_)))));
        client
    }

    fn say(&mut self, frame: &Frame) {
        let to = self.to.as_mut().expect("it is open");
        frame
            .write(to)
            .and_then(|()| to.flush())
            .expect("the agent listens");
    }

    fn ask(&mut self, number: u64, request: &Request) {
        self.say(&Frame::new(number, request, Vec::new()));
    }

    /// The next message; none at the end.
    fn hear(&mut self) -> Option<(u64, Reply)> {
        let frame = Frame::read(&mut self.from).expect("a frame")?;
        Some((
            frame.number(),
            frame.message().expect("the agent speaks properly"),
        ))
    }

    /// The next that is no sign of life.
    fn answer(&mut self) -> Reply {
        loop {
            match self.hear().expect("the agent lives") {
                (0, Reply::Alive) => {}
                (_, reply) => return reply,
            }
        }
    }

    fn has_ended(&mut self) -> bool {
        self.agent.try_wait().expect("its state").is_some()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn remove(name: &str) -> Request {
    Request::RemoveTree {
        dir: 1,
        name: (&*std::ffi::CString::new(name).expect("a name")).into(),
        spared: None,
    }
}

#[test]
fn an_agent_ends_when_its_client_says_nothing_and_stays_while_it_does() {
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let (mut silent, mut alive) = (Client::of(scratch.path()), Client::of(scratch.path()));
    let since = Instant::now();
    wait_until("the agent ends", || {
        if since.elapsed().as_millis() % 1000 < 100 {
            alive.ask(0, &Request::Alive);
        }
        silent.has_ended()
    });
    assert!(
        since.elapsed() > Duration::from_secs(20),
        "after {:?}",
        since.elapsed()
    );
    assert!(
        !alive.has_ended(),
        "a client that is there has lost its agent"
    );
    let beats = std::iter::from_fn(|| silent.hear())
        .filter(|(number, reply)| *number == 0 && matches!(reply, Reply::Alive))
        .count();
    assert!(beats >= 4, "{beats} signs of life in {:?}", since.elapsed());
}

/// So many directories that it takes a while to remove them.
fn plant_many(dir: &Path, directories: usize, each: usize) {
    for index in 0..directories {
        let dir = dir.join(format!("d{index}"));
        fs::create_dir_all(&dir).expect("mkdir");
        (0..each)
            .for_each(|file| drop(fs::File::create(dir.join(format!("f{file}"))).expect("create")));
    }
}

#[test]
fn what_an_agent_has_not_begun_when_its_client_is_gone_is_not_done() {
    let scratch = Scratch::new(FsKind::Tmpfs, 200);
    plant_many(scratch.path(), 400, 200);
    let mut client = Client::of(scratch.path());
    (0..400).for_each(|index| client.ask(10 + index, &remove(&format!("d{index}"))));
    assert!(matches!(client.answer(), Reply::Removed(_)));
    drop(client.to.take());
    wait_until("the agent ends", || client.has_ended());
    assert!(
        fs::read_dir(scratch.path()).expect("list").count() > 0,
        "everything that was read was carried out"
    );
}

#[test]
fn a_removal_is_broken_off_when_its_client_is_gone() {
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    plant_many(&scratch.path().join("gone"), 600, 200);
    for end in ["the line ends", "the run ceases"] {
        let mut client = Client::of(scratch.path());
        let left = || fs::read_dir(scratch.path().join("gone")).map_or(0, Iterator::count);
        let before = left();
        client.ask(2, &remove("gone"));
        wait_until("some is removed", || left() < before);
        if end == "the line ends" {
            drop(client.to.take());
            wait_until("the agent ends", || client.has_ended());
        } else {
            client.ask(0, &Request::Cease);
            let Reply::Removed(removed) = client.answer() else {
                panic!("no answer")
            };
            assert!(
                removed.on(Side::Replica).stays(),
                "{end}: it says that all is gone"
            );
        }
        assert!(left() > 0, "{end}: the removal went on");
    }
}

// ---- lines that fall silent ----

/// The way by which a line is carried, for `--ssh`.
fn stall_and_resume(words: &dyn Fn(&Scratch, &Far) -> String) {
    let far = Far::own();
    let relay = Relay::with(
        far.server.address(),
        Weather {
            bytes_per_second_max: Some(6 * MIB),
            ..Weather::default()
        },
    );
    let near = far.via(relay.address());
    let scratch = Scratch::new(FsKind::Tmpfs, 200);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    plant(&src);
    let run = common::driftless()
        .arg("sync")
        .arg("--ssh")
        .arg(words(&scratch, &near))
        .arg("--agent-path")
        .arg(far::agent());
    let run = run
        .args(near.ends(Way::Push, &src, &dst))
        .args(["--json", "--durability=none"]);
    let running = begun(run.limit(RUN_MAX).spawn(), &dst);
    let first = children(running.pid());
    relay.stall();
    wait_until("the silence is noticed", || {
        !children(running.pid())
            .iter()
            .any(|pid| first.contains(pid))
    });
    relay.cut();
    relay.resume();
    let outcome = running.wait().expect(0);
    assert!(
        outcome.count("connections_lost") >= 1,
        "{}",
        outcome.describe()
    );
    check_equal(&src, &dst, &outcome.describe());
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

/// The processes that a process has started and that run.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let of =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: Vec<u32> = tasks
        .flat_map(|task| {
            of(task)
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect();
    let runs = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    };
    all.into_iter().filter(runs).collect()
}

#[test]
fn silence_is_noticed_whatever_the_command_that_connects_is_called() {
    stall_and_resume(&|scratch, near| {
        bash(scratch, "wrapper", &format!("exec {} \"$@\"", near.words()))
            .display()
            .to_string()
    });
}

#[test]
fn silence_is_noticed_on_a_connection_that_is_shared() {
    stall_and_resume(&|scratch, near| {
        let shared = format!(
            "{} -o ControlPath={}",
            near.words(),
            scratch.path().join("master").display()
        );
        let master = Command::new("sh")
            .arg("-c")
            .arg(format!("{shared} -M -f -N -o ControlPersist=60 far"))
            .status()
            .expect("ssh");
        assert!(master.success(), "no master");
        shared
    });
}

/// Its client was stopped, as a laptop is that is closed: the lock goes within a minute, and the
/// client goes on when it wakes.
#[test]
fn a_client_that_sleeps_loses_its_lock_and_goes_on_when_it_wakes() {
    let far = Far::own();
    let scratch = Scratch::new(FsKind::Tmpfs, 200);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    plant(&src);
    let running = far
        .sync(Way::Push, &src, &dst)
        .args(["--bwlimit=3M", "--durability=none"])
        .limit(RUN_MAX)
        .spawn();
    let running = begun(running, &dst);
    let mut all = children(running.pid());
    all.push(running.pid());
    all.iter().for_each(|pid| signal(*pid, Signal::STOP));
    wait_until("its agent ends", || {
        !far.server.sessions().iter().any(|pid| is_agent(*pid))
    });
    let _ = far.sync_ok(Way::Push, &src, &dst, ["--durability=none"]);
    all.iter().rev().for_each(|pid| signal(*pid, Signal::CONT));
    let outcome = running.wait().expect(0);
    assert_eq!(
        outcome.count("connections_lost"),
        1,
        "{}",
        outcome.describe()
    );
    check_equal(&src, &dst, &outcome.describe());
}

fn is_agent(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("driftless"))
}

// ---- hosts that never begin ----

/// Peers that never get as far as an agent or a mover: silent, noisy without an end, and with a
/// greeting that nothing follows.
const MUTE: [(&str, &str); 4] = [
    ("silent", "exec sleep 600"),
    ("noisy", "while sleep 0.2; do echo noise; done"),
    ("agent", "AGENT agent </dev/null; exec sleep 600"),
    (
        "mover",
        "echo driftless mover ready, protocol MOVERS; exec sleep 600",
    ),
];
/// Seconds that a mute host has for its greeting.
const GREETING_SECONDS: &str = "4";
/// Seconds that a host has which greets, on a loaded machine.
const LATE_GREETING_SECONDS: &str = "20";
/// Longest time until a run has ended that waits for such a host, on a busy machine.
const MUTE_MAX: Duration = EVENT_MAX;

/// Commands in the place of ssh, one for each such peer.
fn mute_peers(scratch: &Scratch) -> Vec<(&'static str, String)> {
    let movers = driftless_engine::message::VERSION.to_string();
    let write = |(name, text): (&'static str, &str)| {
        let text = text
            .replace("AGENT", far::agent())
            .replace("MOVERS", &movers);
        let path = bash(scratch, name, &text);
        (name, path.display().to_string())
    };
    MUTE.into_iter().map(write).collect()
}

#[test]
fn a_mute_host_is_an_error_in_every_command() {
    let (scratch, src, _) = stage();
    put(&src.join("file"), "content");
    let (near, there) = (src.display().to_string(), "far:/tmp/there".to_owned());
    let mut running = Vec::new();
    // The greeting of an agent is none of a mover, and the other way round.
    for (peer, ssh) in mute_peers(&scratch) {
        // A run that waits for its movers holds the replica.
        let own = scratch.path().join(format!("dst-{peer}"));
        for words in [
            vec!["sync", &near, &there],
            vec!["sync", &there, &near],
            vec!["verify", &near, &there],
            vec!["audit", "--samples=5", &near, &there],
            vec!["sync", "--hosts=far", &near, &own.display().to_string()],
        ] {
            let run = common::driftless()
                .args(&words)
                .args(["--ssh", &ssh, "--connect-timeout", GREETING_SECONDS])
                .args(["--agent-path", far::agent()])
                .limit(MUTE_MAX)
                .spawn();
            running.push((format!("{peer}: {words:?}"), run));
        }
    }
    for (context, run) in running {
        let outcome = run.wait();
        let said = outcome.stdout_text() + &outcome.stderr_text();
        let context = format!("{context}\n{}", outcome.describe());
        // A run with movers goes on without them.
        let is_run = said.contains("this host goes on alone");
        assert_eq!(is_run, outcome.code() == 0, "{context}");
        assert!([0, 1, 10].contains(&outcome.code()), "{context}");
        assert!(said.contains("far: "), "which host\n{context}");
        assert!(said.contains("greeting"), "what was waited for\n{context}");
    }
}

#[test]
fn a_mute_host_leaves_its_work_to_others() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let ssh = bash(
        &scratch,
        "some",
        "case $* in *mute*) exec sleep 600;; *) exec ${@: -1};; esac",
    );
    let outcome = sync_on_hosts("mute,near", &ssh.display().to_string(), &src, &dst)
        .args(["--connect-timeout", GREETING_SECONDS])
        .run()
        .expect(0);
    check_equal(&src, &dst, &outcome.describe());
}

#[test]
fn configuration_of_ssh_that_hangs_is_done_without() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let text = "case \"$*\" in *-G*) exec sleep 600;; esac; exec ${@: -1}";
    let ssh = bash(&scratch, "ssh", text).display().to_string();
    let (near, there) = (src.display(), format!("far:{}", dst.display()));
    let outcome = common::driftless()
        .args(["sync", &near.to_string(), &there, "--ssh", &ssh])
        .args(["--connect-timeout", LATE_GREETING_SECONDS])
        .args(["--agent-path", far::agent()])
        .limit(MUTE_MAX)
        .run()
        .expect(0);
    check_equal(&src, &dst, &outcome.describe());
}

/// A command in the place of ssh that has the terminal open for longer than a host may be silent,
/// as ssh does while it asks for a password, and then is the other host.
#[test]
fn time_that_a_prompt_takes_does_not_count() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let ssh = bash(
        &scratch,
        "asks",
        "exec 3</dev/tty; sleep 12; exec 3<&-; exec ${@: -1}",
    );
    let (own, ssh) = (far::agent(), ssh.display());
    let line = format!(
        "{own} sync --ssh {ssh} --agent-path {own} --connect-timeout 10 {} far:{}",
        src.display(),
        dst.display()
    );
    let done = on_terminal(&line).output().expect("unshare");
    assert!(done.status.success(), "{done:?}");
    check_equal(&src, &dst, &line);
}
