//! Deposits at a gateway: whole or absent whatever happens, private, replaced at one moment, also from
//! another host. The gateway has no batch system: no job runs here.
#![allow(clippy::disallowed_methods)]

use driftless_testkit::accounts::ORDINARY_ID;
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{Sshd, attrs, wait_until};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tempfile::TempDir;

const USER: u32 = ORDINARY_ID;
const OTHER: u32 = 65_433;
/// Kills of a put; a campaign has more.
const KILLS: u64 = 6;
/// Files of a source, and bytes of each.
const FILES: usize = 200;
const FILE_BYTES: usize = 40_000;

fn bin() -> &'static str {
    env!("CARGO_BIN_EXE_driftless")
}

/// A gateway of root with an area for deposits.
struct Desk {
    folder: TempDir,
    gateway: Child,
}

impl Desk {
    fn start() -> Desk {
        let folder = scratch_folder();
        attrs::set_mode(folder.path(), 0o755).expect("open");
        let state = folder.path().join("gateway");
        let key = Command::new(bin())
            .args(["node", "key", "--cast-dir"])
            .arg(state.join("cast"))
            .output()
            .expect("a key");
        let key = String::from_utf8(key.stdout).expect("text");
        let nodes = folder.path().join("nodes.txt");
        fs::write(&nodes, format!("n1 127.0.0.1:1 {key}")).expect("a file");
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let gateway = Command::new(bin())
            .args(["gateway", "--system", "pbs", "--nodes", "n1"])
            .args(["--node-dir", "/nowhere", "--daemons"])
            .arg(nodes)
            .arg("--dir")
            .arg(state)
            .arg("--gateway")
            .arg(folder.path().join("socket"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("a gateway");
        let desk = Desk { folder, gateway };
        wait_until("the gateway listens", || desk.path("socket").exists());
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, uid: u32, command: &str) -> Command {
        let mut user = Command::new("setpriv");
        user.args([format!("--reuid={uid}"), format!("--regid={uid}")]);
        user.args(["--clear-groups", "--", bin(), command, "--gateway"]);
        user.arg(self.path("socket"));
        user.current_dir(self.folder.path()).stdin(Stdio::null());
        user.env("HOME", "/nonexistent");
        user
    }

    fn try_put(&self, words: &[&str]) -> Output {
        self.command(USER, "put")
            .args(words)
            .output()
            .expect("an end")
    }

    /// Deposits, and returns the printed path.
    fn put(&self, words: &[&str]) -> PathBuf {
        path_of(&self.try_put(words))
    }

    /// Makes a source of the ordinary user: all files of a version have the same content.
    fn source(&self, name: &str, version: u8) -> PathBuf {
        let source = self.path(name);
        fs::create_dir_all(source.join("sub")).expect("a folder");
        for number in 0..FILES {
            let path = source.join(format!("sub/{number}"));
            fs::write(&path, vec![version; FILE_BYTES]).expect("a file");
            chown(path, Some(USER), Some(USER)).expect("given");
        }
        for path in [source.join("sub"), source.clone()] {
            chown(path, Some(USER), Some(USER)).expect("given");
        }
        source
    }

    /// Returns the home of the ordinary user.
    fn home(&self) -> PathBuf {
        let mut names = fs::read_dir(self.path("deposits")).expect("an area");
        names.next().expect("a home").expect("a home").path()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.home())
            .expect("a home")
            .map(|name| name.expect("a name").file_name().to_string_lossy().into())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _it_may_have_ended = self.gateway.kill();
        let _it_was_killed = self.gateway.wait();
        if std::thread::panicking() {
            eprintln!(
                "{}",
                fs::read_to_string(self.path("log")).unwrap_or_default()
            );
        }
    }
}

fn must(command: &mut Command) {
    assert!(command.status().expect("a process").success());
}

fn path_of(output: &Output) -> PathBuf {
    assert!(output.status.success(), "{output:?}");
    let path = output.stdout.strip_suffix(b"\n").expect("a line");
    assert!(!path.contains(&b'\n'), "the path alone: {output:?}");
    PathBuf::from(std::ffi::OsStr::from_bytes(path))
}

fn fails(output: &Output, code: i32, words: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(words), "{text}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// Returns the version of a deposit, which must be whole. `None` if there is none.
fn version_of(deposit: &Path) -> Option<u8> {
    // A directory that is open stays the same one when another takes its name.
    let open = fs::File::open(deposit).ok()?;
    let open = PathBuf::from(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&open)
    ));
    let mut versions: Vec<u8> = (0..FILES)
        .map(|number| {
            let content = fs::read(open.join(format!("sub/{number}"))).expect("a file");
            assert_eq!(content.len(), FILE_BYTES);
            content[0]
        })
        .collect();
    versions.dedup();
    assert_eq!(versions.len(), 1, "a mix of versions");
    versions.pop()
}

#[test]
fn deposit_is_private_and_has_metadata() {
    let desk = Desk::start();
    let source = desk.source("refs", 1);
    attrs::set_mode(&source, 0o555).expect("set");
    attrs::set_mode(&source.join("sub/7"), 0o640).expect("set");
    let deposit = desk.put(&["refs"]);
    assert_eq!(deposit, desk.home().join("refs"));
    assert_eq!(version_of(&deposit), Some(1));
    assert_eq!(desk.names(), ["refs"], "no draft is left");
    let [was, is] = [source, deposit.clone()].map(|root| {
        let root_mode = fs::metadata(&root).expect("there").mode();
        let file = fs::metadata(root.join("sub/7")).expect("there");
        (root_mode, file.mode(), file.uid(), file.mtime_nsec())
    });
    assert_eq!(was, is);
    let listed = fs::read_dir(&deposit).expect("a folder").count();
    assert_eq!(listed, 1, "the copy has no files of its own");
    let home = fs::metadata(desk.home()).expect("a home");
    assert_eq!((home.uid(), home.mode() & 0o7777), (USER, 0o700));
    let mut cat = Command::new("setpriv");
    cat.args([&format!("--reuid={OTHER}"), "--clear-groups", "ls"]);
    assert!(!cat.arg(&deposit).output().expect("ls").status.success());
    // The directory is read-only, and the user may replace and remove it all the same.
    desk.put(&["refs", "--replace"]);
    assert!(desk.try_put(&["--remove", "refs"]).status.success());
    assert!(desk.names().is_empty(), "{:?}", desk.names());
}

#[test]
fn killed_put_leaves_a_whole_deposit_or_none() {
    let desk = Desk::start();
    let source = desk.source("refs", 1);
    let kills = std::env::var("DRIFTLESS_SEEDS").ok();
    let kills = kills.and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    let mut last = 0;
    for version in 1..=kills {
        let version = u8::try_from(version % 200).expect("small") + 1;
        desk.source("refs", version);
        let mut put = desk.command(USER, "put");
        put.args(["refs", "--replace"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut put = put.spawn().expect("a process");
        std::thread::sleep(Duration::from_millis(fastrand::u64(..400)));
        let _it_may_have_ended = put.kill();
        put.wait().expect("an end");
        if desk.path("deposits").exists()
            && fs::read_dir(desk.path("deposits")).expect("listed").count() > 0
        {
            let found = version_of(&desk.home().join("refs")).unwrap_or(0);
            assert!(
                found == version || found == last,
                "{found} is neither {version} nor {last}"
            );
            last = found;
        }
    }
    desk.put(&["refs", "--replace"]);
    assert_eq!(desk.names(), ["refs"]);
    assert_eq!(version_of(&desk.home().join("refs")), version_of(&source));
}

#[test]
fn other_source_does_not_continue_a_draft() {
    let desk = Desk::start();
    let [first, second] = [desk.source("a/refs", 1), desk.source("b/refs", 2)];
    desk.put(&[first.to_str().expect("text"), "--name", "x"]);
    // A draft as a killed process leaves it: the same sizes and times, and another content.
    let draft = desk.home().join(".put-refs");
    fs::create_dir(&draft).expect("a draft");
    fs::write(draft.join(".origin"), "another").expect("a file");
    must(Command::new("cp").arg("-a").arg(&first).arg(&draft));
    must(
        Command::new("chown")
            .arg("-R")
            .arg(USER.to_string())
            .arg(&draft),
    );
    for number in 0..FILES {
        let name = format!("sub/{number}");
        must(
            Command::new("touch")
                .arg("-r")
                .arg(first.join(&name))
                .arg(second.join(&name)),
        );
    }
    let deposit = desk.put(&[second.to_str().expect("text")]);
    assert_eq!(version_of(&deposit), Some(2));
    assert_eq!(desk.names(), ["refs", "x"]);
}

#[test]
fn replacing_is_one_moment_for_readers() {
    let desk = Desk::start();
    desk.source("refs", 1);
    let deposit = desk.put(&["refs"]);
    fails(&desk.try_put(&["refs"]), 13, "this deposit exists");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                assert!(deposit.join("sub").exists(), "the name had nothing");
            }
        });
        for version in 2..6 {
            desk.source("refs", version);
            desk.put(&["refs", "--replace"]);
        }
        done.store(true, Relaxed);
    });
    assert_eq!(version_of(&deposit), Some(5));
    assert_eq!(desk.names(), ["refs"], "the old ones are removed");
}

#[test]
fn standard_input_and_lists_of_deposits() {
    let desk = Desk::start();
    let mut put = desk.command(USER, "put");
    put.args(["-", "--name", "numbers"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut put = put.spawn().expect("a process");
    let content = vec![b'7'; 3_000_000];
    put.stdin
        .take()
        .expect("piped")
        .write_all(&content)
        .expect("taken");
    let path = path_of(&put.wait_with_output().expect("an end"));
    assert!(fs::read(path).expect("a file") == content);
    desk.source("a", 1);
    desk.source("b", 2);
    let both = desk.put(&["a", "b", "--name", "both"]);
    assert_eq!(version_of(&both.join("b")), Some(2));
    let list = desk.try_put(&["--list", "--json"]);
    let lines = String::from_utf8(list.stdout).expect("text");
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(rows.len(), 2, "{lines}");
    assert_eq!(rows[0]["name"], "both");
    assert_eq!(rows[0]["bytes"], 2 * FILES * FILE_BYTES);
    assert_eq!(rows[1]["bytes"], 3_000_000);
    fails(&desk.try_put(&["--remove", "none"]), 3, "no such deposit");
    assert!(desk.try_put(&["--remove", "both"]).status.success());
    let text = desk.try_put(&["--list"]).stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("numbers") && !text.contains("both"), "{text}");
}

#[test]
fn unsafe_names_homes_and_sources_are_refused() {
    let desk = Desk::start();
    desk.source("refs", 1);
    fails(&desk.try_put(&["nothing"]), 1, "nothing was deposited");
    fails(
        &desk.try_put(&["refs", "--name", ".x"]),
        2,
        "cannot name a deposit",
    );
    fails(
        &desk.try_put(&["refs", "--name", "../x"]),
        2,
        "cannot name a deposit",
    );
    fails(&desk.try_put(&["-"]), 2, "--name");
    fails(
        &desk.try_put(&["refs", "refs", "--name", "x"]),
        2,
        "same one",
    );
    let mut other = desk.command(USER, "put");
    other.args(["refs", "--gateway", "/nowhere/socket"]);
    fails(&other.output().expect("an end"), 1, "no gateway answers");
    desk.put(&["refs"]);
    let home = desk.home();
    fs::rename(&home, desk.path("moved")).expect("moved");
    symlink(desk.path("moved"), &home).expect("a link");
    fails(
        &desk.try_put(&["refs", "--replace"]),
        1,
        "a symbolic link is not followed",
    );
    fs::remove_file(&home).expect("removed");
    fs::rename(desk.path("moved"), &home).expect("moved");
    attrs::set_mode(&home, 0o755).expect("open");
    fails(
        &desk.try_put(&["refs", "--replace"]),
        1,
        "open to other users",
    );
}

#[test]
fn sources_without_content_are_refused() {
    let desk = Desk::start();
    must(Command::new("mkfifo").arg(desk.path("fifo")));
    attrs::set_mode(&desk.path("fifo"), 0o666).expect("open");
    fails(
        &desk.try_put(&["fifo"]),
        2,
        "neither a file nor a directory",
    );
    fails(&desk.try_put(&["/dev/zero"]), 2, "neither a file");
    let put = desk.command(USER, "put");
    let mut closed = Command::new("sh");
    closed.args(["-c", "exec \"$@\" - --name x <&-", "sh"]);
    closed.arg(put.get_program()).args(put.get_args());
    fails(&closed.output().expect("an end"), 2, "is closed");
    desk.source("refs", 1);
    desk.put(&["refs"]);
    fails(
        &desk.try_put(&[".", "--name", "all"]),
        2,
        "it contains your deposits",
    );
    assert_eq!(desk.names(), ["refs"]);
}

#[test]
fn source_of_another_type_begins_anew() {
    let desk = Desk::start();
    let source = desk.source("refs", 1);
    attrs::set_mode(&source.join("sub"), 0o000).expect("closed");
    assert!(!desk.try_put(&["refs"]).status.success());
    fs::remove_dir_all(&source).expect("removed");
    fs::write(&source, "a file").expect("a file");
    assert_eq!(fs::read(desk.put(&["refs"])).expect("it"), b"a file");
    assert_eq!(desk.names(), ["refs"]);
}

#[test]
fn unreadable_deposit_does_not_hide_others() {
    let desk = Desk::start();
    desk.source("refs", 1);
    desk.put(&["refs"]);
    let closed = desk.put(&["refs", "--name", "closed"]);
    attrs::set_mode(&closed, 0o400).expect("closed");
    let list = desk.try_put(&["--list"]);
    let text = String::from_utf8(list.stdout).expect("text");
    assert!(list.status.success());
    assert!(text.contains("refs") && text.contains("closed"), "{text}");
}

#[test]
fn signal_leaves_a_copy_that_goes_on() {
    let desk = Desk::start();
    desk.source("refs", 1);
    let mut put = desk.command(USER, "put");
    put.args(["refs", "--iops-limit", "100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let put = put.spawn().expect("a process");
    wait_until("it copies", || {
        let homes = fs::read_dir(desk.path("deposits"))
            .into_iter()
            .flatten()
            .flatten();
        homes
            .last()
            .is_some_and(|home| home.path().join(".put-refs/refs/sub").exists())
    });
    fails(&desk.try_put(&["refs"]), 11, "another process makes");
    let pid = rustix::process::Pid::from_child(&put);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("sent");
    let output = put.wait_with_output().expect("an end");
    assert_eq!(output.status.signal(), None);
    fails(&output, 130, "the same command continues the copy");
    assert_eq!(desk.names(), [".put-refs"]);
    assert_eq!(version_of(&desk.put(&["refs"])), Some(1));
    assert_eq!(desk.names(), ["refs"]);
}

#[test]
fn other_users_cannot_submit_a_deposit() {
    let desk = Desk::start();
    desk.source("refs", 1);
    let deposit = desk.put(&["refs"]);
    let mut submit = desk.command(OTHER, "submit");
    submit
        .arg("--data")
        .arg(&deposit)
        .args(["--", "qsub", "job.sh"]);
    fails(&submit.output().expect("an end"), 1, "permission denied");
}

#[test]
fn deposit_from_another_host() {
    let desk = Desk::start();
    let server = Sshd::start();
    desk.source("refs", 3);
    let client = server.client_of_user(server.address());
    let far = |words: &[&str]| {
        let mut put = desk.command(USER, "put");
        put.args(["--on", "far-user", "--agent-path", bin(), "--ssh"]);
        put.arg(client.words()).args(words);
        put
    };
    let deposit = path_of(&far(&["refs"]).output().expect("an end"));
    assert_eq!(deposit, desk.home().join("refs"));
    assert_eq!(version_of(&deposit), Some(3));
    fails(
        &far(&["refs"]).output().expect("an end"),
        13,
        "this deposit exists",
    );
    let mut put = far(&["-", "--name", "numbers"]);
    put.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut put = put.spawn().expect("a process");
    put.stdin
        .take()
        .expect("piped")
        .write_all(b"1\n2\n")
        .expect("taken");
    let path = path_of(&put.wait_with_output().expect("an end"));
    assert_eq!(fs::read(path).expect("a file"), b"1\n2\n");
    let list = far(&["--list"]).output().expect("an end");
    assert!(
        String::from_utf8_lossy(&list.stdout).contains("numbers"),
        "{list:?}"
    );
    assert!(
        far(&["--remove", "refs"])
            .status()
            .expect("an end")
            .success()
    );
    assert_eq!(desk.names(), ["numbers"]);
    let mut cut = far(&["-", "--name", "half"]);
    cut.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut cut = cut.spawn().expect("a process");
    cut.stdin
        .as_mut()
        .expect("piped")
        .write_all(b"half")
        .expect("taken");
    wait_until("the bytes arrive", || {
        desk.home().join(".put-half/half").exists()
    });
    server.kill_sessions();
    drop(cut.stdin.take());
    fails(
        &cut.wait_with_output().expect("an end"),
        1,
        "the connection was lost",
    );
    assert!(!desk.home().join("half").exists(), "half of a deposit");
}
