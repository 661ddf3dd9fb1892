//! A job that cannot run is refused when it is checked.
#![allow(clippy::disallowed_methods)]

mod common;

use common::driftless;
use driftless_testkit::{Driftless, FsKind, Scratch};
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

const SIZE_MIB: u64 = 64;
const POSTS: &str = "detect = [\"announcements\"]\n";

/// Where jobs are checked.
struct Desk {
    scratch: Scratch,
    source: PathBuf,
}

impl Desk {
    fn new() -> Desk {
        let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
        let source = scratch.dir("src");
        Desk { scratch, source }
    }

    /// Checks a job of this replica with further keys.
    fn check(&self, replica: &str, keys: &str) -> Driftless {
        let job = self.scratch.path().join("job.toml");
        let source = &self.source;
        let text = format!("source = {source:?}\nreplica = {replica:?}\n{keys}");
        fs::write(&job, text).expect("a job");
        driftless()
            .args(["mirror", "check"])
            .arg(&job)
            .env("XDG_STATE_HOME", self.scratch.path().join("state"))
    }

    /// These keys come to this exit code, and are told by these words.
    fn check_keys(&self, keys: &str, code: i32, words: &str) {
        let replica = self.scratch.path().join("replica");
        let run = self.check(replica.to_str().expect("text"), keys);
        let run = run.env("DRIFTLESS_RUNTIME_DIR", self.scratch.path().join("run"));
        let told = run.run().expect(code);
        assert!(told.stderr_text().contains(words), "{}", told.describe());
    }
}

#[test]
fn a_port_and_a_program_that_cannot_be_had_are_told_when_a_job_is_checked() {
    let desk = Desk::new();
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = port.local_addr().expect("its address");
    let metrics = format!("[metrics]\nlisten = \"{taken}\"\n");
    desk.check_keys(&metrics, 1, "cannot listen at ");
    drop(port);
    desk.check_keys(&metrics, 0, "");
    let command = |program: &str| format!("on_problem = \"{program} -s mirror\"\n");
    let none = "no such file or directory";
    desk.check_keys(&command("no-such-program"), 1, none);
    desk.check_keys(&command("/etc/passwd"), 1, "permission denied");
    desk.check_keys(&command("cat"), 0, "");
}

#[test]
fn lists_that_cannot_be_read_are_told_when_a_job_is_checked() {
    let desk = Desk::new();
    let at = |name: &str| desk.scratch.path().join(name);
    fs::write(at("file"), "content").expect("a file");
    for (path, code, words) in [
        ("file", 1, "neither a named pipe nor a directory"),
        ("none/pipe", 1, "make a named pipe"),
        ("pipe", 0, ""),
        ("src", 0, ""),
    ] {
        let keys = format!("detect = [\"list\"]\n[list]\npath = {:?}\n", at(path));
        desk.check_keys(&keys, code, words);
    }
    assert!(!at("pipe").exists(), "nothing is made");
}

#[test]
fn mount_that_remembers_is_told_if_others_report() {
    let desk = Desk::new();
    let list = desk.scratch.path().join("mountinfo");
    let keys = format!("detect = [\"list\"]\n[list]\npath = {:?}\n", desk.source);
    let in_place = "mount --bind \"$0\" /proc/$$/mountinfo && exec \"$@\"";
    let told = |options: &str, keys: &str| {
        let at = desk.source.display();
        fs::write(
            &list,
            format!("36 35 0:50 / {at} rw - nfs4 x:/ {options}\n"),
        )
        .expect("a list");
        let words = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            in_place,
            list.to_str().expect("text"),
        ];
        let replica = desk.scratch.path().join("replica");
        let run = desk
            .check(replica.to_str().expect("text"), keys)
            .through(words);
        let outcome = run.run().expect(0);
        outcome
            .stderr_text()
            .contains("mount it with the options actimeo=0")
    };
    assert!(told("rw,vers=4.2", &keys));
    assert!(!told(
        "rw,acregmin=0,acregmax=0,acdirmin=0,acdirmax=0",
        &keys
    ));
    assert!(
        !told("rw,vers=4.2", "detect = [\"walk\"]\n"),
        "only this host reports"
    );
}

#[test]
fn trees_that_cannot_be_meant_are_told_when_a_job_is_checked() {
    let desk = Desk::new();
    let gone = "\"/no-such-folder\" does not exist now";
    for (replica, code, words) in [
        ("~/r", 2, "no shell reads a job"),
        ("~", 2, "write the whole path"),
        ("/no-such-folder/r", 1, gone),
        ("far:~/r", 0, ""),
    ] {
        let told = desk.check(replica, "").run().expect(code);
        assert!(told.stderr_text().contains(words), "{}", told.describe());
    }
}

#[test]
fn job_and_file_of_one_name_are_refused() {
    let desk = Desk::new();
    let config = desk.scratch.dir("config");
    let folder = config.join("driftless");
    fs::create_dir(&folder).expect("a directory");
    let here = desk.scratch.dir("here");
    let (source, replica) = (&desk.source, desk.scratch.path().join("r"));
    let job = format!("source = {source:?}\nreplica = {replica:?}\n");
    fs::write(folder.join("projects.toml"), &job).expect("a file");
    let check = |name: &str| {
        let words = ["env", "-C", here.to_str().expect("text")];
        let run = driftless().args(["mirror", "check", name]).through(words);
        run.env("XDG_CONFIG_HOME", &config).run()
    };
    let _alone = check("projects").expect(0);
    fs::write(here.join("projects"), &job).expect("a file");
    let told = check("projects").expect(2).stderr_text();
    for words in [
        "projects.toml",
        "\"./projects\"",
        "of a file in the working",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let _file = check("./projects").expect(0);
    let _job = check(folder.join("projects.toml").to_str().expect("text")).expect(0);
}

#[test]
fn who_can_hear_posts_nowhere_is_told_when_a_job_is_checked() {
    let desk = Desk::new();
    desk.check_keys(POSTS, 0, "");
    assert!(!desk.scratch.path().join("run").exists(), "nothing is made");
    let unset = [
        "env",
        "-u",
        "XDG_RUNTIME_DIR",
        "-u",
        "DRIFTLESS_RUNTIME_DIR",
    ];
    let run = desk.check("/dev/shm/none", POSTS).through(unset);
    // An ordinary user may look into neither, but no service has made a folder for him.
    let told = run.as_user(65534, 65534).run().expect(1);
    let words = "names a folder";
    assert!(told.stderr_text().contains(words), "{}", told.describe());
}

#[test]
fn a_source_that_no_snapshot_can_be_made_in_is_told_when_a_job_is_checked() {
    let scratch = Scratch::new(FsKind::Btrfs, 300);
    let btrfs = |words: &[&str]| {
        let done = Command::new("btrfs").args(words).output().expect("btrfs");
        assert!(done.status.success(), "{done:?}");
    };
    let source = scratch.path().join("src");
    let named = source.to_str().expect("text");
    btrfs(&["subvolume", "create", named]);
    let desk = Desk {
        scratch,
        source: source.clone(),
    };
    let keys = "detect = [\"btrfs\"]\n";
    desk.check_keys(keys, 0, "");
    btrfs(&["property", "set", "-ts", named, "ro", "true"]);
    desk.check_keys(keys, 1, "ro=true");
    btrfs(&["property", "set", "-ts", named, "ro", "false"]);
    let folder = source.join(".driftless-snapshots");
    std::os::unix::fs::symlink("/tmp", &folder).expect("a link");
    desk.check_keys(keys, 1, "remove or rename it");
    fs::remove_file(&folder).expect("removed");
    let remount = |how: &str| {
        let done = Command::new("mount")
            .args(["-o", how])
            .arg(desk.scratch.path())
            .status();
        assert!(done.expect("mount").success());
    };
    let (job, state) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir());
    let text = format!(
        "source = {source:?}\nreplica = {:?}\n{keys}",
        job.path().join("r")
    );
    fs::write(job.path().join("job.toml"), text).expect("a job");
    remount("remount,ro");
    let check = driftless()
        .args(["mirror", "check"])
        .arg(job.path().join("job.toml"));
    let check = check.env("XDG_STATE_HOME", state.expect("a folder").path());
    let told = check.run();
    remount("remount,rw");
    assert!(
        told.expect(1)
            .stderr_text()
            .contains("is mounted read-only")
    );
}
