//! The library as it is shipped, the agent and a mirror together: whatever becomes of the agent, no
//! program waits for it or fails, and the replica is equal afterwards. What no library covers is
//! named and arrives.
#![allow(clippy::disallowed_methods)]

mod common;

use common::agent::{Agent, POSTS, at_work};
use common::mirror::Mirror;
use common::writer::{Kind, Took, Writer, covered};
use driftless_testkit::EVENT_MAX;
use driftless_testkit::scratch::scratch_folder;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A source in memory, so that nobody waits for a disk.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::Builder::new().tempdir_in("/dev/shm");
    let folder = folder.expect("a folder");
    let source = folder.path().join("src");
    fs::create_dir(&source).expect("a directory");
    let source = fs::canonicalize(source).expect("a path");
    (folder, source)
}

/// Nobody has waited: the thread has not slept, but for a lock of the directory, at which the mirror
/// looks, and of a hundred calls at most one has worked for a millisecond. Others may have had the
/// processor meanwhile, but not as long as who waits for an answer in vain.
fn check(took: Took, what: &str) {
    assert!(took.calls > 100, "{what}: {took:?}");
    assert!(took.slow * 100 <= took.calls, "{what}: {took:?}");
    assert!(took.longest_us < 2_000_000, "{what}: {took:?}");
    assert!(took.waits * 20 <= took.calls, "{what}: {took:?}");
}

/// How many messages a program sends that changes so many files: of each that it is written, that it
/// has another name, and of every third that it is gone.
fn messages(files: u64) -> u64 {
    2 * files + files / 3
}

/// Waits until the agent has heard so many messages since it began, and the mirror of all of them.
fn settle(mirror: &Mirror, agent: &Agent, heard: u64, what: &str) {
    agent.wait_for(what, |status| status["messages"].as_u64() >= Some(heard));
    agent.wait_until_told();
    mirror.check_equal(what);
}

#[test]
fn no_program_waits_for_an_agent_and_all_that_it_changes_arrives() {
    let (_folder, source) = place();
    let (mirror, mut agent, _shim) = at_work(&source);
    let mut writer = Writer::beside(&agent, Kind::Usual);
    check(writer.change(&source.join("heard"), 300), "it listens");
    settle(&mirror, &agent, messages(300), "it listens");
    let gaps = agent.gaps();
    agent.freeze(true);
    // More than waits for it.
    check(writer.change(&source.join("frozen"), 3000), "it is frozen");
    agent.freeze(false);
    settle(&mirror, &agent, messages(3300), "it was frozen");
    let socket = agent.map().with_file_name("shim.map.socket");
    fs::remove_file(socket).expect("removed");
    check(writer.change(&source.join("gone"), 300), "without a socket");
    settle(&mirror, &agent, messages(3600), "its socket is gone");
    assert_eq!(agent.gaps(), gaps, "nothing was missed");
    agent.kill();
    check(writer.change(&source.join("killed"), 300), "it was killed");
    fs::remove_dir_all(agent.spool()).expect("removed");
    check(writer.change(&source.join("nowhere"), 300), "no spool");
    agent.start();
    check(writer.change(&source.join("again"), 300), "it is back");
    agent.wait_for("what was not written down", |status| {
        status["trees"][0]["gaps"]["count"].as_u64() > Some(gaps)
    });
    settle(&mirror, &agent, messages(300), "it is back");
}

#[test]
fn no_program_waits_for_a_broker() {
    let (folder, source) = place();
    let password = folder.path().join("password");
    fs::write(&password, "hidden").expect("a file");
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("closed");
    // Nobody listens there.
    let broker = "broker = \"amqp://nobody@127.0.0.1:9/\"\nexchange = \"xs_nobody\"";
    let publish = format!("[publish]\n{broker}\ncredentials = {password:?}\n");
    let agent = Agent::of(&source, folder.path(), &publish);
    agent.wait_for("it has tried", |status| {
        !status["publisher"]["away"].is_null()
    });
    let mut writer = Writer::beside(&agent, Kind::Usual);
    for name in ["a", "b", "c"] {
        check(writer.change(&source.join(name), 1000), "no broker");
    }
    agent.wait_for("all is heard", |status| {
        status["messages"].as_u64() >= Some(3 * messages(1000))
    });
    assert_eq!(agent.status()["dropped"], 0);
}

/// A file system in memory with room for some hundred messages, in the place of the spool's.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn over(folder: &Path) -> SmallDisk {
        fs::create_dir_all(folder).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=0755", "spool"]);
        assert!(mount.arg(folder).status().expect("it starts").success());
        SmallDisk(folder.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        let _it_may_be_gone = unmount.arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_below_the_spool_fails_no_program_and_has_the_tree_compared() {
    let (_folder, source) = place();
    let mirror = Mirror::of(&source, POSTS);
    let mut agent = Agent::not_started(&source, &mirror.runtime_folder(), "");
    let _disk = SmallDisk::over(agent.spool().parent().expect("a folder"));
    agent.start();
    agent.wait_until_told();
    mirror.barrier();
    let gaps = agent.gaps();
    let _its_end = agent.stop();
    let mut writer = Writer::beside(&agent, Kind::Usual);
    check(writer.change(&source.join("f"), 2000), "the disk is full");
    agent.start();
    agent.wait_for("a gap", |status| {
        status["trees"][0]["gaps"]["count"].as_u64() > Some(gaps)
    });
    agent.wait_until_told();
    mirror.check_equal("the disk was full");
    // There is room again.
    let _its_end = agent.stop();
    agent.start();
    let gaps = agent.gaps();
    check(writer.change(&source.join("g"), 300), "it listens");
    settle(&mirror, &agent, messages(300), "there is room");
    assert_eq!(agent.gaps(), gaps);
}

/// It says that it gains no rights (prctl(2), `PR_SET_NO_NEW_PRIVS`), which may forbid system calls.
const CONFINED: &str = "\
import ctypes, os, sys
file = open('left', 'w')
file.write('first'); file.flush()
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
sys.stdin.readline()
file.write(' and last'); file.flush()
os._exit(0)
";

#[test]
fn what_a_program_leaves_that_may_say_no_more_arrives_when_it_has_ended() {
    let (_folder, source) = place();
    let (mirror, agent, _shim) = at_work(&source);
    let gaps = agent.gaps();
    let mut python = covered(Command::new("python3"), &agent.map());
    python.current_dir(&source).args(["-c", CONFINED]);
    let mut python = python.stdin(Stdio::piped()).spawn().expect("it starts");
    agent.wait_for("it is left", |status| status["messages"] == 1);
    agent.wait_until_told();
    mirror.check_equal("it goes on");
    let mut orders = python.stdin.take().expect("a pipe");
    orders.write_all(b"\n").expect("it listens");
    assert!(python.wait().expect("its end").success());
    let copy = mirror.replica.join("left");
    let began = Instant::now();
    while fs::read(&copy).expect("it is there") != b"first and last" {
        assert!(began.elapsed() < EVENT_MAX, "{}", agent.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        (agent.gaps(), &agent.status()["messages"]),
        (gaps, &1.into())
    );
}

#[test]
fn programs_that_no_library_covers_are_named_and_what_they_write_arrives() {
    let folder = scratch_folder();
    let source = folder.path().join("src");
    fs::create_dir(&source).expect("a directory");
    let source = fs::canonicalize(source).expect("a path");
    let mirror = Mirror::of(&source, POSTS);
    let agent = Agent::beside(&mirror, "detect = [\"shim\", \"fanotify\"]\n");
    agent.wait_until_told();
    mirror.barrier();
    let kinds = [Kind::Usual, Kind::Static, Kind::Raw];
    let mut writers = kinds.map(|kind| Writer::beside(&agent, kind));
    for (number, writer) in writers.iter_mut().enumerate() {
        let _took = writer.change(&source.join(format!("f{number}")), 4);
    }
    // They run until they are named.
    agent.wait_for("it has looked at all", |status| {
        let named = status["uncovered"].as_object().map(serde_json::Map::len);
        named == Some(2) && status["covered"].as_u64() >= Some(4)
    });
    let status = agent.status();
    let named = status["uncovered"].as_object().expect("programs");
    let names: Vec<&String> = named.keys().collect();
    assert_eq!(names, ["writer-raw", "writer-static"], "{status}");
    agent.wait_until_told();
    mirror.check_equal("by the kernel");
    assert!(mirror.replica.join("f1.0").exists() && mirror.replica.join("f2.0").exists());
}

/// What the mirror is asked covers what a program has written down and no agent has read.
fn write_down(source: &Path, agent: &Agent, name: &str, content: &str) {
    fs::write(source.join(name), content).expect("a file");
    agent.shim().write('w', &[&source.join(name)]);
}

#[test]
fn barrier_covers_what_a_program_has_announced() {
    let (_folder, source) = place();
    let (mirror, agent, _shim) = at_work(&source);
    for number in 0..20 {
        let name = format!("f{number}");
        let mut shell = covered(Command::new("sh"), &agent.map());
        shell.current_dir(&source);
        shell.args(["-c", &format!("echo {number} > {name}")]);
        assert!(shell.status().expect("it starts").success());
        mirror.barrier();
        let copy = fs::read_to_string(mirror.replica.join(&name));
        assert_eq!(copy.expect("it is there"), format!("{number}\n"));
    }
}

#[test]
fn barrier_covers_what_waits_in_the_spool() {
    let (_folder, source) = place();
    let (mirror, agent, _shim) = at_work(&source);
    for number in 0..5 {
        let name = format!("f{number}");
        write_down(&source, &agent, &name, "1");
        mirror.barrier();
        assert!(mirror.replica.join(&name).exists(), "{name}");
    }
}

#[test]
fn sync_now_waits_for_content_that_only_programs_announce() {
    let (_folder, source) = place();
    let (mirror, agent, _shim) = at_work(&source);
    write_down(&source, &agent, "file", "first");
    mirror.barrier();
    let made = fs::metadata(source.join("file")).and_then(|meta| meta.modified());
    // No comparison of sizes and times finds that.
    write_down(&source, &agent, "file", "other");
    let file = fs::File::options().write(true).open(source.join("file"));
    let set = file.and_then(|file| file.set_modified(made.expect("a time")));
    set.expect("set");
    let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
    let copy = fs::read_to_string(mirror.replica.join("file"));
    assert_eq!(copy.expect("it is there"), "other");
}

#[test]
fn failover_counts_what_waits_in_the_spool() {
    let (_folder, source) = place();
    let (mut mirror, agent, _shim) = at_work(&source);
    fs::write(mirror.replica.join("kept"), "1").expect("a file");
    let _done = mirror.command("pause").run().expect(0);
    write_down(&source, &agent, "lost", "1");
    let over = mirror.command("failover").args(["--yes", "--json"]);
    let told: serde_json::Value =
        serde_json::from_str(&over.run().expect(0).stdout_text()).expect("an object");
    assert_eq!(told["left_paths"], serde_json::json!(["lost"]), "{told}");
    let _its_end = mirror.ended();
}

#[test]
fn frozen_agent_is_neither_equal_nor_within_its_time() {
    let (_folder, source) = place();
    let keys = format!("{POSTS}rpo = \"1s\"\n[live]\nsettle = \"1s\"\n");
    let mirror = Mirror::of(&source, &keys);
    let agent = Agent::beside(&mirror, "");
    agent.wait_until_told();
    mirror.barrier();
    let _in_time = mirror.command("status").arg("--check").run().expect(0);
    agent.freeze(true);
    write_down(&source, &agent, "file", "1");
    let late = mirror.command("status").arg("--check").run();
    let waited = mirror.command("barrier").arg("--timeout=1s").run();
    let is_there = mirror.replica.join("file").exists();
    agent.freeze(false);
    assert!(!is_there);
    let _late = (late.expect(6), waited.expect(6));
    mirror.barrier();
    assert!(mirror.replica.join("file").exists());
}
