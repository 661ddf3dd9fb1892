//! Keys that start an agent of their own, which lets clients do less than the user may: what they
//! ask for still agrees, what they may not reach or do is refused in words that help, and a client
//! that keeps to nothing comes no further.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{self, Far, Way, cut_after};
use common::{check_equal, leftovers, put, wait_until};
use driftless_model::Side;
use driftless_remote::wire::{Frame, Located, Name, Opening, Reply, Request, Root};
use driftless_testkit::mutate::list_all;
use driftless_testkit::{
    EVENT_MAX, FsKind, Outcome, Profile, Relay, Scratch, Weather, build_tree, mutate, snapshot_hash,
};
use driftless_tree::Reach;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const NONE: [&str; 0] = [];
const MIB: usize = 1 << 20;
const EACCES: i32 = 13;
const EROFS: i32 = 30;
const RUN_MAX: Duration = EVENT_MAX;

/// A server whose key starts one agent, a source, what that agent lets in to, and something beside
/// it.
struct Stage {
    far: Far,
    scratch: Scratch,
    src: PathBuf,
    only: PathBuf,
    outside: PathBuf,
}

impl Stage {
    /// `ONLY` stands for the path that clients are let in to.
    fn new(limits: &str) -> Stage {
        let (far, scratch) = (Far::own(), Scratch::new(FsKind::Tmpfs, 400));
        let (src, only, outside) = (
            scratch.dir("src"),
            scratch.path().join("only"),
            scratch.dir("outside"),
        );
        put(&src.join("dir/file"), "content");
        put(&outside.join("secret"), "not for them");
        let stage = Stage {
            far,
            scratch,
            src,
            only,
            outside,
        };
        stage.force(limits);
        stage
    }

    fn force(&self, limits: &str) {
        let limits = limits.replace("ONLY", &self.only.display().to_string());
        self.far
            .server
            .force_command(&format!("{} agent {limits}", far::agent()));
    }

    /// A run that must be refused with these words, and leave everything as it is.
    fn check_refused(&self, way: Way, (src, dst): (&Path, &Path), code: i32, words: &[&str]) {
        let before = (
            snapshot_hash(&self.outside, true),
            self.scratch.path().join("only").exists(),
        );
        let outcome = self.far.sync(way, src, dst).run().expect(code);
        let text = outcome.stderr_text();
        for word in words {
            assert!(
                text.contains(word),
                "no word of \"{word}\"\n{}",
                outcome.describe()
            );
        }
        assert_eq!(
            (snapshot_hash(&self.outside, true), before.1),
            before,
            "{}",
            outcome.describe()
        );
    }
}

/// A tree with everything in it that is hard to keep.
fn build(root: &Path) {
    fs::create_dir(root).expect("mkdir");
    build_tree(
        root,
        31,
        &Profile {
            large: false,
            ..Profile::root()
        },
    );
}

#[test]
fn a_key_that_is_held_to_a_path_reaches_nothing_else() {
    let stage = Stage::new("--only ONLY");
    let (only, outside) = (&stage.only, &stage.outside);
    build(&stage.src.join("hostile"));
    // What is not there yet is made: the path itself, and a replica in it.
    for dst in [only.join("replica"), only.clone()] {
        let _ = stage
            .far
            .sync_ok(Way::Push, &stage.src, &dst, ["--delete-unlike", "--delete"]);
        check_equal(&stage.src, &dst, "what the key may reach");
    }
    let back = stage.scratch.path().join("back");
    let _ = stage.far.sync_ok(Way::Pull, only, &back, NONE);
    let named = only.display().to_string();
    let told = [
        "cannot use it as a path: permission denied",
        "limits this login to",
        &named,
    ];
    symlink(outside, only.join("way out")).expect("symlink");
    let around = only.join("../outside");
    let new = stage.scratch.path().join("new");
    for beyond in [
        outside,
        &new,
        &around,
        &only.join("way out"),
        &outside.join("secret"),
        Path::new("/"),
    ] {
        let told = if beyond.exists() || beyond == new {
            &told[1..]
        } else {
            &told
        };
        stage.check_refused(Way::Push, (&stage.src, beyond), 1, told);
        if beyond != new {
            stage.check_refused(
                Way::Pull,
                (beyond, &stage.scratch.path().join("pulled")),
                1,
                told,
            );
        }
    }
    assert!(!new.exists());
}

#[test]
fn several_paths_can_be_reached() {
    let stage = Stage::new("");
    let (one, two) = (stage.scratch.dir("one"), stage.scratch.dir("two"));
    stage.force(&format!(
        "--only {} --only {}",
        one.display(),
        two.display()
    ));
    for dst in [one.join("new"), two.clone()] {
        let _ = stage.far.sync_ok(Way::Push, &stage.src, &dst, NONE);
        check_equal(&stage.src, &dst, "one of several");
    }
    let (one, two) = (one.display().to_string(), two.display().to_string());
    stage.check_refused(Way::Push, (&stage.src, &stage.outside), 1, &[&one, &two]);
}

#[test]
fn a_key_that_only_reads_serves_sources_and_verifications() {
    let stage = Stage::new("--only ONLY --read-only");
    build(&stage.only);
    let before = snapshot_hash(&stage.only, true);
    let back = stage.scratch.path().join("back");
    let _ = stage.far.sync_ok(Way::Pull, &stage.only, &back, NONE);
    check_equal(&stage.only, &back, "pulled with a key that only reads");
    let state = tempfile::tempdir().expect("temp folder");
    for (command, way) in [
        (&["verify"][..], Way::Push),
        (&["verify"], Way::Pull),
        (&["audit", "--samples=200"], Way::Push),
    ] {
        let (src, dst) = if way == Way::Push {
            (&back, &stage.only)
        } else {
            (&stage.only, &back)
        };
        let run = stage
            .far
            .command(command[0], stage.far.ends(way, src, dst))
            .args(&command[1..]);
        let _ = run.env("XDG_STATE_HOME", state.path()).run().expect(0);
    }
    stage.check_refused(
        Way::Push,
        (&stage.src, &stage.only),
        13,
        &["far: the agent there only reads"],
    );
    assert_eq!(
        snapshot_hash(&stage.only, true),
        before,
        "nothing was touched"
    );
}

/// What a run said of paths that it could not make equal.
fn problems(outcome: &Outcome) -> Vec<String> {
    let of_path = |event: &&serde_json::Value| event["event"] == "problem";
    outcome
        .events()
        .iter()
        .filter(of_path)
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_key_that_removes_nothing_takes_what_is_new() {
    let stage = Stage::new("--only ONLY --no-delete");
    let dst = stage.only.join("replica");
    build(&stage.src.join("hostile"));
    put(&stage.src.join("large"), vec![7; 70 * MIB]);
    let _ = stage.far.sync_ok(Way::Push, &stage.src, &dst, NONE);
    check_equal(&stage.src, &dst, "a first copy");
    put(&stage.src.join("dir/file"), "newer content");
    put(
        &stage.src.join("large"),
        [vec![7; 70 * MIB], vec![8; 10]].concat(),
    );
    let _ = stage.far.sync_ok(Way::Push, &stage.src, &dst, NONE);
    check_equal(&stage.src, &dst, "newer files");
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
    // What would lose something stays.
    fs::remove_file(stage.src.join("dir/file")).expect("remove");
    fs::create_dir(stage.src.join("dir/file")).expect("mkdir");
    fs::remove_file(stage.src.join("large")).expect("remove");
    symlink("dir", stage.src.join("large")).expect("symlink");
    let outcome = stage.far.sync(Way::Push, &stage.src, &dst).run().expect(3);
    let told = problems(&outcome);
    assert!(
        told.len() == 2 && told.iter().all(|told| told.contains("permission denied")),
        "{}",
        outcome.describe()
    );
    assert_eq!(
        fs::read(dst.join("dir/file")).expect("it stays"),
        b"newer content"
    );
    assert_eq!(
        fs::metadata(dst.join("large")).expect("it stays").len(),
        (70 * MIB + 10) as u64
    );
    let outcome = stage
        .far
        .sync(Way::Push, &stage.src, &dst)
        .arg("--delete")
        .run()
        .expect(13);
    assert!(
        outcome
            .stderr_text()
            .contains("far: the agent there removes nothing"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_key_that_removes_nothing_goes_on_where_a_cut_line_left_off() {
    let stage = Stage::new("--only ONLY --no-delete");
    let dst = stage.only.join("replica");
    put(
        &stage.src.join("large"),
        (0..40 * MIB)
            .map(|at| (at * 7 + at / 251) as u8)
            .collect::<Vec<_>>(),
    );
    (0..300).for_each(|number| {
        put(
            &stage.src.join(format!("small/{number}")),
            vec![number as u8; 20_000],
        )
    });
    let slow = Weather {
        bytes_per_second_max: Some(20 << 20),
        ..Weather::default()
    };
    let relay = Relay::with(stage.far.server.address(), slow);
    let running = stage
        .far
        .via(relay.address())
        .sync(Way::Push, &stage.src, &dst)
        .arg("--streams=1")
        .limit(RUN_MAX)
        .spawn();
    let outcome = cut_after(&relay, running, &[3 << 20, 12 << 20]).expect(0);
    check_equal(&stage.src, &dst, &outcome.describe());
    assert_eq!(
        leftovers(&dst),
        Vec::<PathBuf>::new(),
        "{}",
        outcome.describe()
    );
}

#[test]
fn random_changes_are_kept_by_a_key_that_removes_nothing() {
    let stage = Stage::new("--only ONLY --no-delete");
    build_tree(
        &stage.src,
        5,
        &Profile {
            large: false,
            ..Profile::root()
        },
    );
    let _ = stage.far.sync_ok(Way::Push, &stage.src, &stage.only, NONE);
    for seed in 0..3 {
        let names = |root: &Path| list_all(root).expect("list").len();
        let before = names(&stage.only);
        mutate(&stage.src, seed, 60);
        let outcome = stage.far.sync(Way::Push, &stage.src, &stage.only).run();
        assert!([0, 3].contains(&outcome.code()), "{}", outcome.describe());
        assert!(
            names(&stage.only) >= before,
            "seed {seed}: something went\n{}",
            outcome.describe()
        );
        assert_eq!(
            leftovers(&stage.only),
            Vec::<PathBuf>::new(),
            "seed {seed}\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn what_a_client_asks_for_agrees_although_the_key_has_a_command() {
    let stage = Stage::new("");
    put(&stage.src.join("even"), vec![0; 8 * MIB]);
    (0..200).for_each(|number| put(&stage.src.join(format!("many/{number}")), vec![1; 100_000]));
    let relay = Relay::start(stage.far.server.address());
    let near = stage.far.via(relay.address());
    let _ = near.sync_ok(
        Way::Push,
        &stage.src,
        &stage.only,
        ["--compress", "--streams=4"],
    );
    check_equal(
        &stage.src,
        &stage.only,
        "compressed, over several connections",
    );
    assert!(
        relay.passed().both() < 4 * MIB as u64,
        "compressed: {:?}",
        relay.passed()
    );
}

#[test]
fn compression_that_an_agent_knows_nothing_of_is_left_out() {
    let stage = Stage::new("");
    stage.far.server.force_command(&format!(
        "unset SSH_ORIGINAL_COMMAND; exec {} agent",
        far::agent()
    ));
    put(&stage.src.join("even"), vec![0; MIB]);
    let _ = stage.far.sync_ok(
        Way::Push,
        &stage.src,
        &stage.only,
        ["--compress", "--streams=1"],
    );
    check_equal(&stage.src, &stage.only, "as it is");
}

#[test]
fn other_commands_are_refused_with_what_the_login_is_for() {
    let stage = Stage::new("--only ONLY");
    for command in [
        "cat /etc/passwd",
        "sh -s -- x",
        "driftless mover --stdio",
        "driftless agent --only /",
    ] {
        let ssh: Vec<String> = shell_words::split(&stage.far.words()).expect("words");
        let said = Command::new(&ssh[0])
            .args(&ssh[1..])
            .args(["far", command])
            .stdin(Stdio::null())
            .output()
            .expect("ssh");
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(
            (said.status.code(), said.stdout.len()),
            (Some(1), 0),
            "{command}: {text}"
        );
        assert!(
            text.contains("serves trees") && text.contains(command),
            "{command}: {text}"
        );
    }
}

#[test]
fn the_agent_of_a_silent_line_is_ended_although_the_key_has_a_command() {
    let stage = Stage::new("--only ONLY");
    let wanted = |known_as: &str| {
        let mut agent = Command::new(far::agent());
        agent.args(["agent", "--only"]).arg(&stage.only).env(
            "SSH_ORIGINAL_COMMAND",
            format!("driftless agent --{known_as}"),
        );
        agent
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("an agent")
    };
    let greeted = |agent: &mut Child| {
        BufReader::new(agent.stdout.as_mut().expect("piped"))
            .read_line(&mut String::new())
            .expect("a line")
    };
    let (mut same, mut other) = (wanted("run 0123"), wanted("run 4567"));
    assert!(greeted(&mut same) > 0 && greeted(&mut other) > 0);
    let mut again = wanted("again 0123");
    assert!(greeted(&mut again) > 0);
    wait_until("the agent of the same run has ended", || {
        same.try_wait().expect("wait").is_some()
    });
    assert!(
        other.try_wait().expect("wait").is_none(),
        "that of another run goes on"
    );
    for mut agent in [other, again] {
        drop(agent.stdin.take());
        let _ended = agent.wait().expect("wait");
    }
}

#[test]
fn limits_that_the_kernel_cannot_hold_are_refused_unless_it_is_wanted() {
    let stage = Stage::new("");
    let lacking = |limits: &str| {
        let lack = "strace -f -o /dev/null -e trace=landlock_create_ruleset -e inject=landlock_create_ruleset:error=ENOSYS";
        let limits = limits.replace("ONLY", &stage.only.display().to_string());
        stage
            .far
            .server
            .force_command(&format!("{lack} {} agent {limits}", far::agent()));
    };
    for limits in ["--only ONLY", "--read-only", "--only ONLY --no-delete"] {
        lacking(limits);
        stage.check_refused(
            Way::Push,
            (&stage.src, &stage.only.join("a")),
            1,
            &["no Landlock", "--without-landlock"],
        );
        assert!(!stage.only.exists());
    }
    lacking("--only ONLY --without-landlock");
    let _ = stage
        .far
        .sync_ok(Way::Push, &stage.src, &stage.only.join("a"), NONE);
    check_equal(
        &stage.src,
        &stage.only.join("a"),
        "held by the agent's own checks",
    );
    stage.check_refused(
        Way::Push,
        (&stage.src, &stage.outside),
        1,
        &["limits this login to"],
    );
    lacking("");
    let _ = stage
        .far
        .sync_ok(Way::Push, &stage.src, &stage.outside.join("b"), NONE);
}

#[test]
fn a_path_that_is_no_directory_is_told_before_anybody_is_served() {
    let stage = Stage::new("");
    put(&stage.scratch.path().join("plain"), "");
    let plain = stage.scratch.path().join("plain");
    for (limits, words) in [
        (format!("--only {}", plain.display()), "not a directory"),
        (
            format!("--only {}/a/b", stage.outside.display()),
            "no such file or directory",
        ),
        (
            format!("--read-only --only {}/a", stage.outside.display()),
            "no such directory, and --read-only creates none",
        ),
    ] {
        stage.force(&limits);
        stage.check_refused(
            Way::Push,
            (&stage.src, &stage.only),
            1,
            &["far: no connection", "--only", words],
        );
    }
}

/// A run opens several lines, and each starts an agent.
#[test]
fn agents_that_start_together_all_take_the_path_that_one_of_them_makes() {
    const ROUNDS: usize = 20;
    const AGENTS: usize = 8;
    // In the first round, all of them find it missing before one makes it.
    const LATE: &str =
        "strace -f -o /dev/null -e trace=mkdirat -e inject=mkdirat:delay_enter=1000000";
    let stage = Stage::new("");
    for round in 0..ROUNDS {
        let only = stage.only.with_file_name(format!("only-{round}"));
        let words: Vec<&str> = if round == 0 {
            LATE.split(' ').chain([far::agent()]).collect()
        } else {
            vec![far::agent()]
        };
        let start = |_| {
            let mut agent = Command::new(words[0]);
            agent
                .args(&words[1..])
                .args(["agent", "--only"])
                .arg(&only)
                .env_remove("SSH_ORIGINAL_COMMAND");
            agent
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("an agent")
        };
        for agent in (0..AGENTS).map(start).collect::<Vec<_>>() {
            // That its client has gone ends it, and is no failure.
            let ended = agent.wait_with_output().expect("wait");
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(
                ended.status.success() && !ended.stdout.is_empty(),
                "round {round}: {said}"
            );
        }
        assert!(only.is_dir());
    }
}

// ---- clients that keep to nothing ----

struct Client {
    agent: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
}

fn name(text: &str) -> Name {
    Name(CString::new(text).expect("no NUL"))
}

fn unfinished() -> Name {
    Name(driftless_tree::temp_name())
}

impl Client {
    fn new(limits: &[&str], only: &Path, roots: &[&Path]) -> Client {
        Client::start(&[far::agent()], limits, only, roots)
    }

    /// Of an agent that is started with other words.
    fn start(words: &[&str], limits: &[&str], only: &Path, roots: &[&Path]) -> Client {
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .arg("agent")
            .args(limits)
            .arg("--only")
            .arg(only)
            .env_remove("SSH_ORIGINAL_COMMAND");
        let mut agent = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("an agent");
        let mut from = BufReader::new(agent.stdout.take().expect("piped"));
        let _greeting = from.read_until(b'\n', &mut Vec::new()).expect("a greeting");
        let _hello = Frame::read(&mut from).expect("a frame").expect("a hello");
        let to = agent.stdin.take().expect("piped");
        let mut client = Client {
            agent,
            to,
            from,
            next: 0,
        };
        let root = |path: &&Path| Root {
            path: path.as_os_str().as_bytes().to_vec(),
            side: Side::Replica,
        };
        let opening = Opening {
            roots: roots.iter().map(root).collect(),
        };
        Frame::new(0, &opening, Vec::new())
            .write(&mut client.to)
            .expect("it listens");
        client
    }

    fn ask(&mut self, request: &Request) -> Reply {
        self.post(request);
        self.hear()
    }

    /// Asks without waiting.
    fn post(&mut self, request: &Request) {
        self.next += 1;
        Frame::new(self.next, request, Vec::new())
            .write(&mut self.to)
            .expect("it listens");
        self.to.flush().expect("it listens");
    }

    fn hear(&mut self) -> Reply {
        self.hear_any().1
    }

    /// The next answer, with the number of what is answered. That the agent is there is none.
    fn hear_any(&mut self) -> (u64, Reply) {
        loop {
            let frame = Frame::read(&mut self.from)
                .expect("a frame")
                .expect("the agent lives");
            match (frame.number(), frame.message().expect("it speaks properly")) {
                (_, Reply::Alive) => {}
                answer => return answer,
            }
        }
    }

    fn locate(&mut self, root: u32, at: u64) -> Reply {
        self.ask(&Request::Locate { root, at })
    }

    #[track_caller]
    fn is_refused(&mut self, request: &Request, errno: i32) {
        let reply = self.ask(request);
        let (Reply::Fault(fault) | Reply::Located(Located::Refused(_, fault))) = &reply else {
            panic!("{request:?}: {reply:?}")
        };
        assert_eq!(
            fault.on(Side::Replica).errno,
            errno,
            "{request:?}: {reply:?}"
        );
    }

    #[track_caller]
    fn is_done(&mut self, request: &Request) {
        let reply = self.ask(request);
        assert!(!matches!(reply, Reply::Fault(_)), "{request:?}: {reply:?}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _it_may_have_ended = self.agent.kill();
        let _it_was_started_here = self.agent.wait();
    }
}

/// All requests that change something, in the directory 1 with the file `old`, the link `link` and
/// the directory `folder`.
fn changes() -> Vec<Request> {
    use Request as R;
    let (old, new, folder) = (name("old"), || name("new"), name("folder"));
    vec![
        R::MakeDir {
            dir: 1,
            name: new(),
            at: 90,
        },
        R::Create {
            dir: 1,
            name: new(),
            mode: 0o600,
            at: 91,
        },
        R::Reopen {
            dir: 1,
            name: old.clone(),
            at: 92,
        },
        R::Symlink {
            dir: 1,
            name: new(),
            target: CString::new("old").expect("no NUL"),
        },
        R::Node {
            dir: 1,
            name: new(),
            kind: driftless_model::Kind::Fifo,
            rdev: 0,
        },
        R::Link {
            dir: 1,
            name: new(),
            from: 1,
            from_name: old.clone(),
            id: (1, 1),
        },
        R::SetEntry {
            dir: 1,
            name: old.clone(),
            known: driftless_tree::Known::default(),
            attributes: driftless_tree::Attributes::default(),
        },
        R::SetOwn {
            at: 1,
            known: driftless_tree::Known::default(),
            attributes: driftless_tree::Attributes::default(),
        },
        R::MakeWritable { dir: 1 },
        R::Nest {
            dir: 1,
            hidden: true,
            at: 93,
        },
        R::Take {
            dir: 1,
            from: 1,
            name: old.clone(),
            to: new(),
        },
        R::Rename {
            dir: 1,
            from: old.clone(),
            to: new(),
        },
        R::Displace {
            dir: 1,
            from: old.clone(),
            to: folder.clone(),
            below_max: 9,
        },
        R::Remove {
            dir: 1,
            name: old.clone(),
        },
        R::RemoveDir {
            dir: 1,
            name: folder.clone(),
        },
        R::RemoveTree {
            dir: 1,
            name: folder.clone(),
            spared: None,
        },
        R::RemoveLeftover { dir: 1, name: old },
        R::SyncAll { dir: 1 },
        R::Lock {
            dir: 1,
            name: None,
            reach: Reach::Everywhere,
            at: 94,
        },
        R::SetMark {
            dir: 1,
            text: b"driftless mark 1".to_vec(),
            durable: false,
        },
    ]
}

/// A directory that clients are held to, with an entry of each kind.
fn plant(stage: &Stage) {
    put(&stage.only.join("old"), "it was here");
    put(&stage.only.join("folder/below"), "it was here");
    symlink("old", stage.only.join("link")).expect("symlink");
}

/// What is there: paths, and what is in files and links.
fn there(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let content = |path: &Path| {
        fs::read_link(path)
            .map(|to| to.into_os_string().into_encoded_bytes())
            .or_else(|_| fs::read(path))
    };
    let mut all: Vec<_> = list_all(root)
        .expect("list")
        .into_iter()
        .map(|path| (content(&path).unwrap_or_default(), path))
        .collect();
    all.sort();
    all.into_iter()
        .map(|(content, path)| (path, content))
        .collect()
}

#[test]
fn a_client_of_an_agent_that_only_reads_changes_nothing() {
    let stage = Stage::new("");
    plant(&stage);
    let before = snapshot_hash(&stage.only, true);
    let mut client = Client::new(&["--read-only"], &stage.only, &[&stage.only]);
    assert!(matches!(
        client.locate(0, 1),
        Reply::Located(Located::Dir(_))
    ));
    for request in changes() {
        client.is_refused(&request, EROFS);
    }
    client.is_done(&Request::Look {
        dir: 1,
        name: name("old"),
    });
    client.is_done(&Request::Open {
        dir: 1,
        name: name("old"),
        at: 50,
    });
    assert_eq!(snapshot_hash(&stage.only, true), before);
}

#[test]
fn a_client_of_an_agent_that_removes_nothing_loses_nothing() {
    use Request as R;
    let stage = Stage::new("");
    plant(&stage);
    let before = there(&stage.only);
    let mut client = Client::new(&["--no-delete"], &stage.only, &[&stage.only]);
    assert!(matches!(
        client.locate(0, 1),
        Reply::Located(Located::Dir(_))
    ));
    let loses = |request: &Request| {
        matches!(
            request,
            R::Reopen { .. }
                | R::Take { .. }
                | R::Rename { .. }
                | R::Displace { .. }
                | R::Remove { .. }
                | R::RemoveDir { .. }
                | R::RemoveTree { .. }
                | R::RemoveLeftover { .. }
        )
    };
    for request in changes().iter().filter(|request| loses(request)) {
        client.is_refused(request, EACCES);
    }
    // By way of what is unfinished, or of another name: neither replaces something of another kind,
    // nor a lock or a mark.
    let (file, link, folder) = (unfinished(), unfinished(), unfinished());
    client.is_done(&R::Create {
        dir: 1,
        name: file.clone(),
        mode: 0o600,
        at: 10,
    });
    client.is_done(&R::Symlink {
        dir: 1,
        name: link.clone(),
        target: CString::new("old").expect("no NUL"),
    });
    client.is_done(&R::MakeDir {
        dir: 1,
        name: folder.clone(),
        at: 11,
    });
    client.is_refused(
        &R::Rename {
            dir: 1,
            from: link.clone(),
            to: name("old"),
        },
        EACCES,
    );
    client.is_refused(
        &R::Take {
            dir: 1,
            from: 1,
            name: file.clone(),
            to: name("link"),
        },
        EACCES,
    );
    client.is_refused(
        &R::Rename {
            dir: 1,
            from: folder.clone(),
            to: name("folder"),
        },
        EACCES,
    );
    client.is_refused(
        &R::Rename {
            dir: 1,
            from: file.clone(),
            to: Name(driftless_tree::ROOT_MARK.into()),
        },
        EACCES,
    );
    client.is_refused(
        &R::Remove {
            dir: 1,
            name: Name(driftless_tree::ROOT_MARK.into()),
        },
        EACCES,
    );
    let id = fs::metadata(stage.only.join("old"))
        .map(|meta| (meta.dev(), meta.ino()))
        .expect("stat");
    let twin = unfinished();
    client.is_done(&R::Link {
        dir: 1,
        name: twin.clone(),
        from: 1,
        from_name: name("old"),
        id,
    });
    assert!(
        matches!(
            client.ask(&R::Reopen {
                dir: 1,
                name: twin.clone(),
                at: 12
            }),
            Reply::Fault(_)
        ),
        "two names"
    );
    for name in [twin, link] {
        client.is_done(&R::Remove { dir: 1, name });
    }
    // What was made in an unfinished directory goes with it, as when it is asked what names a
    // directory takes for one.
    client.is_done(&R::Create {
        dir: 11,
        name: name("probe"),
        mode: 0o600,
        at: 15,
    });
    client.is_done(&R::Remove {
        dir: 11,
        name: name("probe"),
    });
    client.is_done(&R::RemoveDir {
        dir: 1,
        name: folder,
    });
    client.is_done(&R::Remove { dir: 1, name: file });
    assert_eq!(there(&stage.only), before);
    // A newer state of the same name.
    client.is_done(&R::Create {
        dir: 1,
        name: unfinished(),
        mode: 0o600,
        at: 13,
    });
    let newer = unfinished();
    client.is_done(&R::Create {
        dir: 1,
        name: newer.clone(),
        mode: 0o600,
        at: 14,
    });
    client.is_done(&R::Rename {
        dir: 1,
        from: newer,
        to: name("old"),
    });
    assert_eq!(
        fs::metadata(stage.only.join("old"))
            .expect("it is there")
            .len(),
        0
    );
}

/// What stands at a name when a request is judged is what the request is carried out with.
#[test]
fn a_client_of_an_agent_that_removes_nothing_wins_no_race_against_it() {
    use Request as R;
    // Between the look at an entry and its new name.
    const LATE: &str = "strace -D -f -o /dev/null -e trace=renameat,renameat2 -e inject=renameat,renameat2:delay_enter=1000000";
    let stage = Stage::new("");
    plant(&stage);
    let late: Vec<&str> = LATE.split(' ').chain([far::agent()]).collect();
    let mut client = Client::start(&late, &["--no-delete"], &stage.only, &[&stage.only]);
    assert!(matches!(
        client.locate(0, 1),
        Reply::Located(Located::Dir(_))
    ));
    let fresh = unfinished();
    client.is_done(&R::Create {
        dir: 1,
        name: fresh.clone(),
        mode: 0o600,
        at: 2,
    });
    client.post(&R::Rename {
        dir: 1,
        from: fresh.clone(),
        to: name("old"),
    });
    std::thread::sleep(Duration::from_millis(300));
    client.post(&R::Remove {
        dir: 1,
        name: fresh.clone(),
    });
    std::thread::sleep(Duration::from_millis(100));
    client.post(&R::Symlink {
        dir: 1,
        name: fresh,
        target: CString::new("/etc/passwd").expect("no NUL"),
    });
    let _whatever_they_say = [client.hear(), client.hear(), client.hear()];
    assert!(
        stage
            .only
            .join("old")
            .symlink_metadata()
            .is_ok_and(|meta| meta.is_file()),
        "a file stays one"
    );
}

/// That requests are kept apart does not hold up those that take long.
#[test]
fn an_agent_that_removes_nothing_gives_names_while_it_writes() {
    use Request as R;
    const LATE: &str = "strace -D -f -o /dev/null -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_enter=5000000";
    let stage = Stage::new("");
    plant(&stage);
    let late: Vec<&str> = LATE.split(' ').chain([far::agent()]).collect();
    let mut client = Client::start(&late, &["--no-delete"], &stage.only, &[&stage.only]);
    assert!(matches!(
        client.locate(0, 1),
        Reply::Located(Located::Dir(_))
    ));
    let (one, two) = (unfinished(), unfinished());
    client.is_done(&R::Create {
        dir: 1,
        name: one,
        mode: 0o600,
        at: 2,
    });
    client.is_done(&R::Create {
        dir: 1,
        name: two.clone(),
        mode: 0o600,
        at: 3,
    });
    client.post(&R::SyncFile { file: 2 });
    let slow = client.next;
    std::thread::sleep(Duration::from_millis(100));
    client.post(&R::Rename {
        dir: 1,
        from: two,
        to: name("old"),
    });
    let first = client.hear_any().0;
    assert_ne!(first, slow, "what takes long is not waited for");
}

/// What comes of a process that a key starts to be one more line to an agent, whose client gives it
/// these bytes and goes.
fn joined(limits: &[&OsStr], place: &str, said: &[u8]) -> (Option<i32>, Vec<u8>, String) {
    let mut command = Command::new(far::agent());
    command.arg("agent").args(limits).env(
        "SSH_ORIGINAL_COMMAND",
        format!("driftless agent --join {place}"),
    );
    let mut line = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a line");
    line.stdin
        .take()
        .expect("piped")
        .write_all(said)
        .expect("room in the pipe");
    let ended = line.wait_with_output().expect("wait");
    (
        ended.status.code(),
        ended.stdout,
        String::from_utf8_lossy(&ended.stderr).into_owned(),
    )
}

#[test]
fn a_restricted_key_gets_nothing_of_the_agent_of_another() {
    let stage = Stage::new("");
    plant(&stage);
    let only: Vec<&OsStr> = vec!["--only".as_ref(), stage.only.as_os_str()];
    let read: Vec<&OsStr> = [&only[..], &["--read-only".as_ref()]].concat();
    let mut wide = Client::new(&[], &stage.only, &[&stage.only]);
    let Reply::Gathers { place, secret } = wide.ask(&Request::Gather { secret: 7 }) else {
        panic!("no place for further lines")
    };
    let address = SocketAddr::from_abstract_name(&place).expect("a name");
    let place = String::from_utf8(place).expect("text");
    // It knows the place, by guessing.
    for (said, why) in [
        (Vec::new(), "end of file"),
        (vec![0; 16], "another client"),
        (7_u128.to_le_bytes().to_vec(), "another client"),
        ((secret ^ 1).to_le_bytes().to_vec(), "another client"),
        (
            [&0_u128.to_le_bytes()[..], &secret.to_le_bytes()[..]].concat(),
            "another client",
        ),
    ] {
        for limits in [&read, &only] {
            let (code, stdout, words) = joined(limits, &place, &said);
            assert_eq!((code, stdout.len()), (Some(1), 0), "{said:?}: {words}");
            assert!(
                words.contains("cannot join the agent") && words.contains(why),
                "{said:?}: {words}"
            );
        }
    }
    // It knows the secret as well: what its own key lets it do is less.
    let (code, stdout, words) = joined(&read, &place, &secret.to_le_bytes());
    assert_eq!((code, stdout.len()), (Some(1), 0), "{words}");
    assert!(words.contains("other limits"), "{words}");
    // Nor does anybody keep those out who may come.
    let nobodies: Vec<UnixStream> = (0..40)
        .map(|_| UnixStream::connect_addr(&address).expect("connect"))
        .collect();
    for mut nobody in nobodies.iter().take(20) {
        nobody.write_all(&[0; 48]).expect("it listens");
    }
    let (code, stdout, words) = joined(&only, &place, &secret.to_le_bytes());
    assert_eq!((code, words.as_str()), (Some(0), ""));
    assert!(stdout.starts_with(b"driftless-agent "), "the agent greets");
    assert!(
        matches!(wide.locate(0, 1), Reply::Located(Located::Dir(_))),
        "and goes on"
    );
}

#[test]
fn several_lines_reach_the_agent_of_a_restricted_key() {
    let stage = Stage::new("--only ONLY --no-delete");
    put(&stage.src.join("large"), vec![7; 40 * MIB]);
    let slow = Weather {
        bytes_per_second_max: Some(20 * MIB as u64),
        ..Weather::default()
    };
    let relay = Relay::with(stage.far.server.address(), slow);
    let near = stage.far.via(relay.address());
    let outcome = near.sync_ok(
        Way::Push,
        &stage.src,
        &stage.only,
        ["--json", "--streams=4"],
    );
    check_equal(&stage.src, &stage.only, "over several connections");
    assert_eq!(
        (relay.accepted(), outcome.events_named("note").len()),
        (4, 0),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_client_is_held_to_the_path_whatever_it_puts_into_it() {
    let stage = Stage::new("");
    plant(&stage);
    symlink(&stage.outside, stage.only.join("out")).expect("symlink");
    let (out, up, held) = (
        stage.only.join("out"),
        stage.only.join("folder/../../outside"),
        stage.only.join("folder"),
    );
    let secret = out.join("secret");
    let mut client = Client::new(
        &[],
        &stage.only,
        &[&out, &up, &secret, &stage.outside, &held],
    );
    for root in 0..4 {
        client.is_refused(
            &Request::Locate {
                root,
                at: 20 + u64::from(root),
            },
            EACCES,
        );
    }
    assert!(matches!(
        client.locate(4, 30),
        Reply::Located(Located::Dir(_))
    ));
    // What is named becomes a link to the outside between two looks.
    fs::rename(&held, stage.only.join("moved")).expect("rename");
    symlink(&stage.outside, &held).expect("symlink");
    client.is_refused(&Request::Locate { root: 4, at: 31 }, EACCES);
    let mode = fs::metadata(&stage.outside)
        .expect("stat")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755, "nothing was touched");
}
