//! The bad day: the source is gone, its replica becomes the active side, people work there, and what
//! they did is brought back. Nothing is lost that was there, and only what differs moves.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, agent};
use common::marks::{must_run, noise};
use common::mirror::Mirror;
use common::{count_entries, wait_until};
use driftless_testkit::{
    Driftless, EVENT_MAX, FsKind, Options, Outcome, Profile, Scratch, assert_equal, build_tree,
    on_terminal, snapshot_hash, write_program,
};
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 400;
const LIVE: &str = "detect = [\"fanotify\", \"walk\"]\ndelete = true\n";
const CYCLES: &str = "detect = [\"btrfs\"]\ndelete = true\n";
const LIMIT: Duration = EVENT_MAX;
/// The clocks of a file system and of a mirror may be so far apart.
const MARGIN: Duration = Duration::from_millis(2100);

/// A tree that can be unmounted: an empty directory stays.
struct Mounted {
    folder: PathBuf,
    path: PathBuf,
}

impl Mounted {
    fn at(folder: &Path, path: &Path) -> Mounted {
        let mounted = Mounted {
            folder: folder.to_owned(),
            path: path.to_owned(),
        };
        mounted.again();
        mounted
    }

    fn again(&self) {
        rustix::mount::mount_bind(&self.folder, &self.path).expect("bound");
    }

    fn gone(&self) {
        rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _it_may_be_gone =
            rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
    }
}

fn subvolume(scratch: &Scratch, name: &str) -> PathBuf {
    let path = scratch.path().join(name);
    let status = Command::new("btrfs")
        .args(["subvolume", "create"])
        .arg(&path)
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("btrfs").success());
    path
}

fn told(outcome: &Outcome) -> Value {
    let text = outcome.stdout_text();
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{}", outcome.describe()))
}

fn done(mirror: &Mirror, words: &[&str]) -> Value {
    told(&asked(mirror, words, 0))
}

fn asked(mirror: &Mirror, words: &[&str], code: i32) -> Outcome {
    let command = mirror.command(words[0]).args(&words[1..]);
    command.run().expect(code)
}

fn write(tree: &Path, name: &str, content: &str) {
    fs::write(tree.join(name), content).expect("a file");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).map_or_else(|_| Vec::new(), |all| all.flatten().collect());
    let mut names: Vec<String> = entries
        .iter()
        .map(|entry: &fs::DirEntry| entry.file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

fn kept(tree: &Path) -> Vec<String> {
    let mut all = names(&tree.join(".driftless-snapshots"));
    all.retain(|name| name.starts_with("test-kept-"));
    all
}

#[test]
fn a_lost_source_is_replaced_and_gets_back_what_has_changed_alone() {
    let near = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let far = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (data, source, replica) = (near.dir("data"), near.dir("source"), far.dir("replica"));
    build_tree(&data, 5, &Profile::small());
    for name in ["changed", "gone", "late", "renamed"] {
        write(&data, name, name);
    }
    let mounted = Mounted::at(&data, &source);
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    asked(&mirror, &["failback", "--yes"], 13);
    mounted.gone();
    let refused = asked(&mirror, &["failover"], 2).stderr_text();
    assert!(refused.contains("--yes"), "{refused}");
    let over = done(&mirror, &["failover", "--yes", "--json"]);
    assert_eq!(
        (&over["done"], &over["left"]),
        (&true.into(), &0.into()),
        "{over}"
    );
    assert_eq!(mirror.ended().code(), 0, "it was asked to end");
    for refused in ["run", "sync-now", "barrier", "pause", "resume"] {
        let said = asked(&mirror, &[refused], 13).stderr_text();
        assert!(said.contains("failback"), "{refused}: {said}");
    }
    assert_eq!(mirror.status()["role"], "failed over");
    done(&mirror, &["failover", "--yes", "--json"]);

    write(&replica, "changed", "changed on the replica");
    write(&replica, "new", "new on the replica");
    fs::remove_file(replica.join("gone")).expect("removed");
    fs::rename(replica.join("renamed"), replica.join("other name")).expect("renamed");
    let bytes = "changed on the replica".len() + "new on the replica".len() + "renamed".len();

    let said = asked(&mirror, &["failback", "--yes"], 13).stderr_text();
    assert!(said.contains("is its file system mounted"), "{said}");
    assert_eq!(names(&source).len(), 0, "nothing is filled underneath");
    mounted.again();
    std::thread::sleep(Duration::from_millis(20));
    write(&source, "late", "late on the source");
    let before = snapshot_hash(&source, true);
    let told = done(&mirror, &["failback", "--dry-run", "--json"]);
    assert_eq!(told["lost_paths"], serde_json::json!(["late"]), "{told}");
    asked(&mirror, &["failback"], 2);
    assert_eq!(snapshot_hash(&source, true), before, "a rehearsal");

    let back = done(&mirror, &["failback", "--yes", "--json"]);
    let moved = bytes + "late".len();
    assert_eq!(back["bytes_copied"], moved, "{back}");
    assert_eq!(
        (&back["changed"], &back["deleted"]),
        (&5.into(), &2.into()),
        "{back}"
    );
    assert_equal(&replica, &source, &Options::default(), "after the failback");
    assert_eq!(mirror.status()["role"], "failed over");
    let again = done(&mirror, &["failback", "--yes", "--json"]);
    assert_eq!(
        (&again["changed"], &again["lost"]),
        (&0.into(), &0.into()),
        "{again}"
    );

    write(&replica, "last", "the last file");
    let back = done(&mirror, &["failback", "--finish", "--yes", "--json"]);
    assert_eq!(
        (&back["role"], &back["lost"]),
        (&"following".into(), &0.into()),
        "{back}"
    );
    mirror.start();
    write(&source, "forth", "forth again");
    mirror.barrier();
    let _held = mirror.command("pause").run().expect(0);
    assert_equal(&source, &replica, &Options::default(), "it follows again");
    assert_eq!(
        fs::read(source.join("last")).expect("a file"),
        b"the last file"
    );
}

/// Waits until the mirror does nothing any more and has closed its replica.
fn wait_closed(mirror: &Mirror) {
    let began = Instant::now();
    let is_closed = || {
        let mut command = Command::new("btrfs");
        command.args(["property", "get", "-ts"]);
        let told = command.arg(&mirror.replica).arg("ro").output();
        told.expect("btrfs").stdout == b"ro=true\n"
    };
    while !is_closed() {
        assert!(began.elapsed() < LIMIT, "the replica is not closed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = fs::write(mirror.replica.join("probe"), "").map_err(|error| error.raw_os_error());
    assert_eq!(refused, Err(Some(Errno::ROFS.raw_os_error())));
}

/// Waits until the state has the newest snapshot, which is then gone back to; returns its name.
fn wait_common(mirror: &Mirror) -> String {
    let name = mirror.status()["cycle"]["snapshot"]
        .as_str()
        .expect("a name")
        .to_owned();
    let rehearsal = ["promote", "--dry-run", "--to=common", "--json"];
    let began = Instant::now();
    loop {
        let told = mirror.command(rehearsal[0]).args(&rehearsal[1..]).run();
        if told.code() == 0 && self::told(&told)["to"] == name.as_str() {
            return name;
        }
        assert!(began.elapsed() < LIMIT, "{}", told.describe());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn property(tree: &Path, value: &str) {
    let status = Command::new("btrfs")
        .args(["property", "set", "-ts"])
        .arg(tree)
        .args(["ro", value])
        .status();
    assert!(status.expect("btrfs").success());
}

/// A mirror in cycles between two subvolumes, with files in its source.
fn in_cycles(near: &Scratch, far: &Scratch, files: usize) -> Mirror {
    let (source, replica) = (subvolume(near, "source"), subvolume(far, "replica"));
    fs::create_dir(source.join("dir")).expect("a directory");
    for number in 0..files {
        write(
            &source.join("dir"),
            &format!("{number}"),
            &format!("content {number}"),
        );
    }
    let mirror = Mirror::between(&source, &replica, CYCLES);
    mirror.barrier();
    wait_closed(&mirror);
    mirror
}

#[test]
fn a_replica_of_cycles_is_closed_goes_back_to_its_snapshot_and_comes_back() {
    let near = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let mut mirror = in_cycles(&near, &far, 50);
    let (source, replica) = (mirror.source.clone(), mirror.replica.clone());
    write(&source, "second", "cycle");
    mirror.barrier();
    wait_closed(&mirror);
    let common = wait_common(&mirror);
    mirror.kill();
    property(&replica, "false");
    write(&replica, "dir/1", "half a cycle");
    write(&replica, "half", "half a cycle");
    fs::remove_file(replica.join("dir/2")).expect("removed");
    let rehearsal = done(&mirror, &["promote", "--dry-run", "--to=common", "--json"]);
    assert_eq!(
        (&rehearsal["done"], &rehearsal["go"]),
        (&false.into(), &1.into()),
        "{rehearsal}"
    );
    assert!(replica.join("half").exists() && kept(&replica).is_empty());

    let over = done(&mirror, &["failover", "--to=common", "--yes", "--json"]);
    assert_eq!(over["to"], common.as_str(), "{over}");
    let read = source.join(".driftless-snapshots").join(&common);
    assert_equal(&read, &replica, &Options::default(), "its snapshot");
    let [one] = &kept(&replica)[..] else {
        panic!("{:?}", kept(&replica))
    };
    let before = replica.join(".driftless-snapshots").join(one);
    assert!(before.join("half").exists() && !before.join("dir/2").exists());

    write(&replica, "work", "of a bad day");
    write(&source, "late", "never seen by the replica");
    let told = done(&mirror, &["failback", "--dry-run", "--json"]);
    assert_eq!(told["lost_paths"], serde_json::json!(["late"]), "{told}");
    let back = done(&mirror, &["failback", "--finish", "--yes", "--json"]);
    assert_eq!(
        (&back["role"], &back["bytes_copied"]),
        (&"following".into(), &12.into()),
        "{back}"
    );
    let [one] = &kept(&source)[..] else {
        panic!("{:?}", kept(&source))
    };
    assert!(
        source
            .join(".driftless-snapshots")
            .join(one)
            .join("late")
            .exists()
    );
    assert_equal(&replica, &source, &Options::default(), "after the failback");
    mirror.start();
    write(&source, "forth", "again");
    mirror.barrier();
    assert_equal(&source, &replica, &Options::default(), "it follows again");
    wait_closed(&mirror);
    let _closed = mirror.command("pause").run().expect(0);
}

#[test]
fn a_paused_live_mirror_closes_its_replica_unless_the_job_says_no() {
    let near = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let (source, replica) = (near.dir("source"), subvolume(&far, "replica"));
    write(&source, "file", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    let _paused = mirror.command("pause").run().expect(0);
    wait_closed(&mirror);
    write(&source, "file", "more content");
    let _resumed = mirror.command("resume").run().expect(0);
    mirror.barrier();
    // It lets go of its locks.
    let _paused = mirror.command("pause").run().expect(0);
    assert_equal(&source, &replica, &Options::default(), "open again");
    let _resumed = mirror.command("resume").run().expect(0);
    mirror.barrier();
    mirror.kill();
    mirror.change(&format!("read_only = false\n{LIVE}"));
    mirror.start();
    mirror.barrier();
    let _paused = mirror.command("pause").run().expect(0);
    write(&replica, "mine", "it is open");
}

/// Begins a command often, and ends it at once at another moment each time.
fn kill_often(mirror: &Mirror, words: &[&str]) {
    for round in 0..8 {
        let command = mirror.command(words[0]).args(&words[1..]);
        let running = command.spawn();
        if !running.ends_within(Duration::from_millis(25 * round)) {
            running.signal(Signal::KILL);
        }
        let _its_end = running.wait();
    }
}

#[test]
fn killed_at_any_moment_a_failover_and_a_failback_come_to_the_same_end() {
    let near = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let mut mirror = in_cycles(&near, &far, 1500);
    let (source, replica) = (mirror.source.clone(), mirror.replica.clone());
    let _name = wait_common(&mirror);
    mirror.kill();
    property(&replica, "false");
    for number in 0..1200 {
        write(
            &replica.join("dir"),
            &format!("{number}"),
            "not of the snapshot",
        );
    }
    let over = ["failover", "--to=common", "--yes", "--json"];
    kill_often(&mirror, &over);
    done(&mirror, &over);
    assert_equal(&source, &replica, &Options::default(), "it went back");
    for number in 0..1200 {
        write(
            &replica.join("dir"),
            &format!("{number}"),
            "the work of a day",
        );
    }
    let back = ["failback", "--finish", "--yes", "--json"];
    kill_often(&mirror, &back);
    let last = mirror.command("failback").args(&back[1..]).run();
    let is_over = last.stderr_text().contains("the source is the active side");
    assert!(
        last.code() == 0 || last.code() == 13 && is_over,
        "{}",
        last.describe()
    );
    assert_equal(&replica, &source, &Options::default(), "it came back");
    mirror.start();
    write(&source, "forth", "again");
    mirror.barrier();
    assert_equal(&source, &replica, &Options::default(), "it follows again");
}

#[test]
fn a_rehearsal_changes_nothing_and_what_makes_no_sense_is_refused() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    build_tree(&source, 9, &Profile::small());
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.stop();
    let state = mirror.state_file();
    let all = || {
        let state = fs::read(&state).expect("a state");
        (
            state,
            snapshot_hash(&source, true),
            snapshot_hash(&replica, true),
        )
    };
    let before = all();
    let told = done(&mirror, &["promote", "--dry-run", "--json"]);
    assert_eq!(
        (&told["to"], &told["role"]),
        (&"latest".into(), &"following".into())
    );
    assert!(told["equal_until"].as_f64() > Some(0.0), "{told}");
    assert_eq!(
        (&told["has_been_equal"], &told["is_left_all"], &told["left"]),
        (&true.into(), &true.into(), &0.into())
    );
    let said = asked(&mirror, &["promote", "--dry-run"], 0).stdout_text();
    assert!(said.contains("becomes"), "{said}");
    let other = asked(&mirror, &["failover", "--dry-run"], 0).stdout_text();
    assert_eq!(other, said);
    asked(&mirror, &["failover"], 2);
    let said = asked(&mirror, &["failover", "--to=common", "--yes"], 13).stderr_text();
    assert!(said.contains("no snapshot in common"), "{said}");
    asked(&mirror, &["failback", "--yes"], 13);
    assert!(all() == before, "nothing was changed");
    for entry in fs::read_dir(&replica).expect("listed").flatten() {
        let path = entry.path();
        match entry.file_type().expect("kind").is_dir() {
            true => fs::remove_dir_all(path).expect("removed"),
            false => fs::remove_file(path).expect("removed"),
        }
    }
    let said = asked(&mirror, &["failover", "--yes"], 13).stderr_text();
    assert!(said.contains("the replica is empty"), "{said}");
}

#[test]
fn what_others_change_on_the_replica_is_told_from_what_was_missed_and_put_right() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    fs::create_dir_all(source.join("a/b")).expect("directories");
    fs::create_dir(source.join("busy")).expect("a directory");
    for name in ["a/b/file", "a/b/other", "busy/file", "a/renamed"] {
        write(&source, name, name);
    }
    let mirror = Mirror::between(&source, &replica, "detect = [\"walk\"]\ndelete = true\n");
    mirror.barrier();
    std::thread::sleep(MARGIN);
    asked(&mirror, &["sync-now", "--wait"], 0);
    assert_eq!(mirror.status()["foreign"], 0);
    write(&replica, "a/b/file", "tampered with");
    write(&replica, "a/b/intruder", "mine");
    fs::remove_file(replica.join("a/b/other")).expect("removed");
    write(&source, "busy/file", "changed on the source");
    asked(&mirror, &["sync-now", "--wait"], 0);
    let listed = asked(&mirror, &["foreign", "--json"], 0).stdout_text();
    let paths: Vec<Value> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["path"].clone())
        .collect();
    for name in ["a/b/file", "a/b/intruder", "a/b/other"] {
        assert!(paths.contains(&name.into()), "{name}: {listed}");
    }
    assert!(!listed.contains("busy"), "{listed}");
    let status = mirror.status();
    assert_eq!(status["foreign"], paths.len() as u64, "{status}");
    let _held = mirror.command("pause").run().expect(0);
    assert_equal(&source, &replica, &Options::default(), "put right");
}

#[test]
fn two_sites_are_each_active_for_a_fileset_of_their_own() {
    let near = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let far = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let forth = Mirror::between(&near.dir("a"), &far.dir("a"), LIVE);
    let back = Mirror::between(&far.dir("b"), &near.dir("b"), LIVE);
    for round in 0..5 {
        for mirror in [&forth, &back] {
            write(&mirror.source, &format!("{round}"), "content");
            write(&mirror.source, "log", &"line\n".repeat(round + 1));
        }
        forth.barrier();
        back.barrier();
    }
    for mirror in [&forth, &back] {
        let _held = mirror.command("pause").run().expect(0);
        assert_equal(
            &mirror.source,
            &mirror.replica,
            &Options::default(),
            "each its own",
        );
    }
}

#[test]
fn what_stands_at_the_path_of_a_replica_has_to_be_the_replica() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [source, folder, replica] = ["src", "disk", "replica"].map(|name| scratch.dir(name));
    for name in ["1", "2"] {
        write(&source, name, "kept");
    }
    // Under the mount there is something of the same name.
    write(&replica, "1", "underneath");
    let mounted = Mounted::at(&folder, &replica);
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.kill();
    mounted.gone();
    let refused = asked(&mirror, &["failover", "--yes"], 13);
    assert!(refused.stderr_text().contains("is not the replica"));
    mounted.again();
    let _over = done(&mirror, &["failover", "--yes", "--json"]);
    mounted.gone();
    let _refused = asked(&mirror, &["failback", "--yes"], 13);
    assert_eq!(names(&source), ["1", "2"]);
    assert_eq!(fs::read(replica.join("1")).expect("there"), b"underneath");
    mounted.again();
    let _back = done(&mirror, &["failback", "--finish", "--yes", "--json"]);
    assert_eq!(names(&source), ["1", "2"]);
}

#[test]
fn a_failover_right_after_a_barrier_loses_nothing() {
    let near = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let mirror = in_cycles(&near, &far, 5);
    write(&mirror.source, "two", "second cycle");
    mirror.barrier();
    let over = done(&mirror, &["failover", "--to=common", "--yes", "--json"]);
    assert!(mirror.replica.join("two").exists(), "{over}");
    let _back = done(&mirror, &["failback", "--finish", "--yes", "--json"]);
    assert!(mirror.source.join("two").exists());
}

#[test]
fn what_a_barrier_has_waited_for_is_in_no_doubt() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, replica) = (scratch.dir("src"), scratch.dir("dst"));
    write(&source, "one", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    std::thread::sleep(Duration::from_secs(2));
    write(&source, "two", "content");
    mirror.barrier();
    mirror.kill();
    let told = done(&mirror, &["promote", "--dry-run", "--json"]);
    let moment = |key: &str| told[key].as_f64().map(f64::floor);
    assert!(
        moment("doubt_since").is_none_or(|since| Some(since) >= moment("equal_until")),
        "{told}"
    );
}

#[test]
fn what_was_done_after_a_clock_was_ahead_is_told_before_it_goes() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    write(&source, "file", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.stop();
    done(&mirror, &["failover", "--yes", "--json"]);
    let ahead = mirror.changed_state("UPDATE job SET equal_until_ms = equal_until_ms + 3600000");
    assert!(ahead.success());
    write(&source, "late", "late on the source");
    let told = done(&mirror, &["failback", "--dry-run", "--json"]);
    let lost = told["lost_paths"].as_array().expect("a list");
    assert!(lost.contains(&"late".into()), "{told}");
    assert_eq!(told["equal_until"], Value::Null);
}

#[test]
fn failback_names_as_lost_what_failover_named() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    let outside = scratch.dir("outside");
    for name in ["changed", "same"] {
        write(&source, name, "content");
    }
    write(&outside, "old", "older than its place in the source");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    let _paused = mirror.command("pause").run().expect(0);
    write(&source, "changed", "more content");
    fs::rename(&outside, source.join("moved")).expect("renamed");
    mirror.wait_for("left", |left| left >= 2);
    mirror.stop();
    let later = "UPDATE job SET equal_until_ms = CAST(\
        (julianday('now') - 2440587.5) * 86400000 AS INTEGER)";
    assert!(mirror.changed_state(later).success());
    let over = done(&mirror, &["failover", "--yes", "--json"]);
    let told = done(&mirror, &["failback", "--dry-run", "--json"]);
    for (value, key) in [(&over, "left_paths"), (&told, "lost_paths")] {
        let paths = value[key].as_array().expect("a list");
        for name in ["changed", "moved"] {
            assert!(paths.contains(&name.into()), "{key}: {name}: {value}");
        }
    }
}

#[test]
fn a_failover_whose_snapshot_is_gone_can_come_to_another_end_and_opens_the_replica() {
    let near = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let mut mirror = in_cycles(&near, &far, 5);
    let replica = mirror.replica.clone();
    let common = wait_common(&mirror);
    mirror.kill();
    property(&replica, "false");
    write(&replica, "dir/1", "half a cycle");
    let immutable = |flag: &str| {
        let path = replica.join("dir/1");
        let done = Command::new("chattr").arg(flag).arg(path).status();
        assert!(done.expect("chattr").success());
    };
    immutable("+i");
    let _cut_off = asked(&mirror, &["failover", "--to=common", "--yes"], 3);
    immutable("-i");
    let _refused = asked(&mirror, &["failover", "--to=latest", "--yes"], 13);
    let snapshot = replica.join(".driftless-snapshots").join(common);
    let mut delete = Command::new("btrfs");
    let deleted = delete.args(["subvolume", "delete"]).arg(snapshot).output();
    assert!(deleted.expect("btrfs").status.success());
    let _over = done(&mirror, &["failover", "--to=latest", "--yes", "--json"]);
    // As a last failback leaves it that is cut off.
    for words in [&["failover", "--yes"][..], &["failback", "--yes"]] {
        property(&replica, "true");
        let _done = asked(&mirror, words, 0);
        write(&replica, "work", "goes on");
    }
}

#[test]
fn one_replica_of_a_job_is_active_at_a_time() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let [source, one, other] = ["src", "one", "other"].map(|name| scratch.dir(name));
    write(&source, "file", "content");
    let mirror = Mirror::several(&source, &[&one, &other], LIVE);
    mirror.barrier();
    let over = |replica: &Path, code| {
        let words = ["failover", "--yes", "--replica"];
        let run = mirror.command(words[0]).args(&words[1..]).arg(replica);
        run.run().expect(code)
    };
    let _over = over(&one, 0);
    let refused = over(&other, 13);
    assert!(refused.stderr_text().contains("active side already"));
    let other = other.to_str().expect("text");
    let said = asked(&mirror, &["failback", "--yes", "--replica", other], 13).stderr_text();
    let back = format!("job.toml --replica {}", one.display());
    assert!(said.contains(&back), "{said}");
    let said = asked(&mirror, &["barrier"], 13).stderr_text();
    // The file that was typed, which need not be where a name is looked for.
    assert!(
        said.contains("driftless mirror failback /") && said.contains("job.toml --replica"),
        "{said}"
    );
}

#[test]
fn rehearsed_failback_says_what_a_guard_refuses() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    for name in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        write(&source, name, "content");
    }
    let mirror = Mirror::between(&source, &replica, &format!("{LIVE}max_delete = 2\n"));
    mirror.barrier();
    asked(&mirror, &["failover", "--yes"], 0);
    for name in ["1", "2", "3"] {
        fs::remove_file(replica.join(name)).expect("removed");
    }
    let said = asked(&mirror, &["failback", "--dry-run"], 13).stdout_text();
    let refused = said.lines().find(|line| line.starts_with("  REFUSED "));
    assert!(refused.is_some_and(|why| !why.contains("--")), "{said}");
    for words in [
        &["failback", "--dry-run", "--json"][..],
        &["failback", "--yes", "--json"],
    ] {
        let told = told(&asked(&mirror, words, 13));
        assert!(told["refused"].is_string(), "{told}");
    }
    assert_eq!(names(&source).len(), 8);
    mirror.change(LIVE);
    let done = done(&mirror, &["failback", "--finish", "--yes", "--json"]);
    assert_eq!(done["refused"], Value::Null, "{done}");
}

#[test]
fn watch_over_mirrors_hears_of_a_failover() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let [source, one, other] = ["src", "one", "other"].map(|name| scratch.dir(name));
    write(&source, "file", "content");
    let mirror = Mirror::several(&source, &[&one, &other], LIVE);
    mirror.barrier();
    let which = other.to_str().expect("text");
    asked(&mirror, &["failover", "--yes", "--replica", which], 0);
    let back = format!("job.toml --replica {which}");
    let told = asked(&mirror, &["status", "--check"], 6).stdout_text();
    assert!(told.contains(&back), "{told}");
    asked(&mirror, &["status"], 0);
    let checked = asked(&mirror, &["check"], 0).stderr_text();
    assert!(checked.contains(&back), "{checked}");
    let listed = |words: &[&str], code| {
        let listed = mirror.without_job(words).run().expect(code);
        listed.stdout_text()
    };
    assert!(listed(&["list"], 0).contains("FAILED OVER SINCE"));
    assert!(listed(&["list", "--json"], 0).contains("\"role\":\"failed over\""));
    listed(&["status", "--check"], 6);
}

#[test]
fn guards_of_failback_name_trees_as_the_job() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let [source, replica, aside] = ["source", "replica", "aside"].map(|name| scratch.dir(name));
    for name in ["1", "2"] {
        write(&source, name, "content");
    }
    let mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    asked(&mirror, &["failover", "--yes"], 0);
    let check = |told: &str| {
        let said = asked(&mirror, &["failback", "--dry-run"], 13).stderr_text();
        assert!(said.contains(told), "{told}: {said}");
    };
    for name in ["1", "2"] {
        fs::rename(replica.join(name), aside.join(name)).expect("renamed");
    }
    check("the replica is empty and the source is not");
    write(&replica, "other", "content");
    check("shares no top-level name with the replica");
    mirror.change(&format!("{LIVE}required = [\"1\"]\n"));
    check("\"1\": missing on the replica");
    fs::remove_dir_all(&source).expect("removed");
    check("the source does not exist");
}

#[test]
fn older_state_brings_nothing_back_to_the_source() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    write(&source, "file", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.stop();
    asked(&mirror, &["failover", "--yes"], 0);
    asked(&mirror, &["failback", "--finish", "--yes"], 0);
    write(&source, "new", "work");
    // As it was before the failback, out of a backup.
    let older = mirror.changed_state("UPDATE job SET role = 'failed over'");
    assert!(older.success());
    for words in [&["failback", "--dry-run"][..], &["failback", "--yes"]] {
        let said = asked(&mirror, words, 13).stderr_text();
        assert!(said.contains("may be out of date"), "{said}");
    }
    assert!(source.join("new").exists());
    asked(&mirror, &["failover", "--yes"], 0);
    asked(&mirror, &["failback", "--finish", "--yes"], 0);
    assert!(
        !source.join("new").exists(),
        "the replica is the active side"
    );
}

#[test]
fn source_of_a_lost_replica_is_active_again() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    write(&source, "file", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.stop();
    asked(&mirror, &["failover", "--yes"], 0);
    let give_up = ["failback", "--give-up", "--yes"];
    let said = asked(&mirror, &give_up, 13).stderr_text();
    assert!(said.contains("cannot give it up"), "{said}");
    fs::remove_dir_all(&replica).expect("removed");
    fs::create_dir(&replica).expect("a new disk");
    let said = asked(&mirror, &["failback", "--yes"], 13).stderr_text();
    assert!(said.contains("--give-up"), "{said}");
    asked(&mirror, &["failback", "--give-up", "--dry-run"], 0);
    asked(&mirror, &give_up[..2], 2);
    assert_eq!(mirror.status()["role"], "failed over");
    for role in ["failed over", "failing over"] {
        let changed = mirror.changed_state(&format!("UPDATE job SET role = '{role}'"));
        assert!(changed.success());
        asked(&mirror, &give_up, 0);
        assert_eq!(mirror.status()["role"], "following");
    }
    assert_eq!(mirror.status()["left"], 1, "all of it");
    mirror.start();
    mirror.barrier();
    assert_eq!(fs::read(replica.join("file")).expect("there"), b"content");
}

#[test]
fn replica_that_lost_its_mark_is_brought_back() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    write(&source, "file", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.stop();
    asked(&mirror, &["failover", "--yes"], 0);
    write(&replica, "file", "work of many");
    must_run(&["setfattr", "-x", "trusted.driftless.mark"], &[&replica]);
    let back = ["failback", "--finish", "--yes"];
    let said = asked(&mirror, &back, 13).stderr_text();
    assert!(said.contains("--new-replica"), "{said}");
    let taken = [&back[..], &["--new-replica"]].concat();
    asked(&mirror, &taken, 0);
    let content = fs::read(source.join("file")).expect("there");
    assert_eq!(content, b"work of many");
    mirror.start();
    write(&source, "forth", "again");
    mirror.barrier();
    assert!(replica.join("forth").exists());
}

#[test]
fn failover_doubts_an_older_copy_of_the_replica() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    let older = scratch.path().join("older");
    write(&source, "file", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.stop();
    let told = done(&mirror, &["promote", "--dry-run", "--json"]);
    assert_eq!(
        (&told["is_as_left"], &told["is_left_all"]),
        (&true.into(), &true.into()),
        "{told}"
    );
    // With its mark, as a clone of its disk has it.
    must_run(&["cp", "-a"], &[&replica, &older]);
    mirror.start();
    write(&source, "file", "more content");
    mirror.barrier();
    mirror.stop();
    fs::rename(&replica, scratch.path().join("newer")).expect("renamed");
    fs::rename(&older, &replica).expect("renamed");
    let told = done(&mirror, &["promote", "--dry-run", "--json"]);
    assert_eq!(
        (&told["is_as_left"], &told["is_left_all"]),
        (&false.into(), &false.into()),
        "{told}"
    );
    let said = asked(&mirror, &["failover", "--dry-run"], 0).stdout_text();
    assert!(said.contains("the replica may be an older copy"), "{said}");
}

#[test]
fn trash_of_a_failback_is_listed_and_restored() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    for name in ["gone", "stays"] {
        write(&source, name, name);
    }
    let mirror = Mirror::between(&source, &replica, &format!("{LIVE}trash = \"30d\"\n"));
    mirror.barrier();
    asked(&mirror, &["failover", "--yes"], 0);
    fs::remove_file(replica.join("gone")).expect("removed");
    asked(&mirror, &["failback", "--finish", "--yes"], 0);
    assert!(!source.join("gone").exists());
    let listed = asked(&mirror, &["trash", "list", "--json"], 0).stdout_text();
    let place = format!("\"replica\":{:?}", source.display().to_string());
    assert!(
        listed.contains("\"path\":\"gone\"") && listed.contains(&place),
        "{listed}"
    );
    asked(&mirror, &["trash", "restore", "gone"], 0);
    assert_eq!(fs::read(source.join("gone")).expect("restored"), b"gone");
    asked(&mirror, &["trash", "purge"], 0);
}

#[test]
fn clocks_of_two_hosts_may_be_apart() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, far) = (scratch.dir("source"), Far::own());
    write(&source, "early", "content");
    let mirror = Mirror::far(&source, &far, LIVE);
    mirror.barrier();
    asked(&mirror, &["failover", "--yes"], 0);
    write(&mirror.replica, "early", "work");
    let told = done(&mirror, &["failback", "--dry-run", "--json"]);
    assert!(told["equal_until"].is_number(), "{told}");
    assert_eq!(told["lost_paths"], serde_json::json!(["early"]), "{told}");
}

#[test]
fn failback_into_a_read_only_source_is_refused() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [data, source, replica] = ["data", "source", "replica"].map(|name| scratch.dir(name));
    write(&data, "file", "content");
    let _mounted = Mounted::at(&data, &source);
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.stop();
    asked(&mirror, &["failover", "--yes"], 0);
    write(&replica, "file", "work of many");
    must_run(&["mount", "-o", "remount,bind,ro"], &[&source]);
    for (words, code) in [
        (&["failback", "--dry-run"][..], 0),
        (&["failback", "--yes"][..], 13),
    ] {
        let said = asked(&mirror, words, code).stderr_text();
        assert!(said.contains("it is read-only"), "{said}");
    }
    assert_eq!(mirror.status()["role"], "failed over");
    must_run(&["mount", "-o", "remount,bind,rw"], &[&source]);
    asked(&mirror, &["failback", "--finish", "--yes"], 0);
    let content = fs::read(data.join("file")).expect("a file");
    assert_eq!(content, b"work of many");
}

#[test]
fn failback_goes_on_after_lost_lines() {
    const FILES: usize = 60;
    const BYTES: usize = 1_000_000;
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, line) = (scratch.dir("source"), scratch.path().join("line"));
    // A line is lost when so much was sent over it: a fifth of all.
    let pass = "while (sysread(STDIN, $part, 65536) && ($sent += length $part) < 12e6) { syswrite(STDOUT, $part) }";
    let text =
        format!("#!/bin/sh\nfor command; do :; done\nperl -e '{pass}' | sh -c \"$command\"\n");
    write_program(&line, &text);
    let agent = agent();
    let reach = format!("[reach]\nssh = {line:?}\nagent_path = {agent:?}\nstreams = 1\n");
    // One file at a time, so that each line brings some of them to their end.
    let keys = format!("detect = [\"walk\"]\ndelete = true\n[limits]\njobs = 1\n{reach}");
    let name = |file: usize| format!("{file}");
    (0..FILES).for_each(|file| write(&source, &name(file), "content"));
    let far = format!("far:{}", source.display());
    let mut mirror = Mirror::of(Path::new(&far), &keys);
    mirror.barrier();
    mirror.stop();
    asked(&mirror, &["failover", "--yes"], 0);
    for file in 0..FILES {
        fs::write(mirror.replica.join(name(file)), noise(file as u64, BYTES)).expect("work");
    }
    let back = asked(&mirror, &["failback", "--yes", "--json"], 0);
    let said = back.stderr_text();
    assert!(said.contains("connected again"), "{said}");
    // What was done, and not heard of before a line was lost, is found to be the same: on a loaded
    // machine that may be most of it.
    let changed = told(&back)["changed"].as_u64().expect("a number");
    assert!(changed > 0, "{}", back.describe());
    for file in 0..FILES {
        let content = fs::read(source.join(name(file))).expect("a file");
        assert!(content == noise(file as u64, BYTES), "{file}");
    }
}

/// Runs another mirror of the same replica, and checks that a failover is refused until it has ended.
fn check_rival(mirror: &Mirror, rival: &dyn Fn(&str) -> Driftless, code: i32) {
    let running = rival("run").limit(2 * LIMIT).spawn();
    let began = Instant::now();
    while rival("barrier").run().code() != 0 {
        assert!(began.elapsed() < LIMIT, "the rival does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    asked(mirror, &["failover", "--yes"], code);
    assert_eq!(mirror.status()["role"], "following");
    running.signal(Signal::TERM);
    let _its_end = running.wait();
    asked(mirror, &["failover", "--yes"], 0);
    assert_eq!(mirror.status()["role"], "failed over");
    asked(mirror, &["failback", "--finish", "--yes"], 0);
}

#[test]
fn failover_is_refused_while_another_mirror_is_there() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    write(&source, "file", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.stop();
    let job = scratch.path().join("other.toml");
    let text = format!("name = \"other\"\nsource = {source:?}\nreplica = {replica:?}\n{LIVE}");
    fs::write(&job, text).expect("a file");
    check_rival(&mirror, &|word| mirror.command_of(word, &job), 13);
    // The same job, of another state.
    let elsewhere = scratch.dir("elsewhere");
    let there = |word: &str| mirror.command(word).env("XDG_STATE_HOME", &elsewhere);
    check_rival(&mirror, &there, 11);
}

#[test]
fn a_failover_to_an_older_snapshot_comes_to_its_end() {
    let [near, far] = [(); 2].map(|()| Scratch::new(FsKind::Btrfs, SIZE_MIB));
    let mut mirror = in_cycles(&near, &far, 5);
    let first = wait_common(&mirror);
    write(&mirror.source, "two", "second cycle");
    mirror.barrier();
    mirror.stop();
    let begun = format!("UPDATE job SET role = 'failing over', role_to = '{first}'");
    let mut set = Command::new("sqlite3");
    let done_so = set.arg(mirror.state_file()).arg(begun).status();
    assert!(done_so.expect("sqlite3").success());
    done(&mirror, &["failover", "--to=common", "--yes", "--json"]);
    assert!(!mirror.replica.join("two").exists());
    let is_its = "SELECT equal_until_ms = made_ms FROM job, common WHERE common.replica = role_to";
    assert_eq!(mirror.rows(is_its), "1\n");
}

#[test]
fn what_no_snapshot_holds_stays_on_both_sides() {
    let near = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let (source, replica) = (subvolume(&near, "source"), subvolume(&far, "replica"));
    for (scratch, tree) in [(&near, "source"), (&far, "replica")] {
        fs::create_dir(scratch.path().join(tree).join("home")).expect("a directory");
        let _made = subvolume(scratch, &format!("{tree}/home/alice"));
    }
    write(&source.join("home/alice"), "own", "of the source");
    let other = near.dir("other");
    write(&other, "mounted", "elsewhere");
    fs::create_dir(source.join("mnt")).expect("a directory");
    let _mount = Mounted::at(&other, &source.join("mnt"));
    write(&source, "file", "content");
    let mirror = Mirror::between(&source, &replica, CYCLES);
    mirror.barrier();
    wait_closed(&mirror);
    let _name = wait_common(&mirror);
    property(&replica, "false");
    write(&replica.join("home/alice"), "own", "of the replica");
    property(&replica, "true");
    let _over = done(&mirror, &["failover", "--to=common", "--yes", "--json"]);
    let content = |path: PathBuf| fs::read_to_string(path).expect("it stays");
    assert_eq!(content(replica.join("home/alice/own")), "of the replica");
    // What people wrote where the source has another file system cannot be brought back into it.
    let back = asked(&mirror, &["failback", "--yes"], 3).stderr_text();
    assert!(back.contains("has to be moved by hand"), "{back}");
    assert!(back.contains(" on the source: "), "{back}");
    fs::remove_file(replica.join("home/alice/own")).expect("removed");
    write(&replica, "new", "work");
    let _back = done(&mirror, &["failback", "--finish", "--yes", "--json"]);
    assert_eq!(content(source.join("home/alice/own")), "of the source");
    assert_eq!(content(source.join("mnt/mounted")), "elsewhere");
    assert_eq!(content(source.join("new")), "work");
}

#[test]
fn a_replica_says_itself_that_it_is_the_active_side() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("src"), scratch.dir("dst"));
    write(&source, "file", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.kill();
    // Of another host, or another user: another state.
    let elsewhere = scratch.dir("elsewhere");
    let there = |words: &[&str], code| {
        let command = mirror.command(words[0]).args(&words[1..]);
        let command = command.env("XDG_STATE_HOME", &elsewhere);
        command.run().expect(code)
    };
    let _over = there(&["failover", "--yes"], 0);
    write(&replica, "file", "work of many");
    let refused = asked(&mirror, &["run"], 13).stderr_text();
    assert!(refused.contains("active side"), "{refused}");
    assert_eq!(
        fs::read_to_string(replica.join("file")).expect("it stays"),
        "work of many"
    );
    // A state that is lost is no reason either.
    fs::remove_dir_all(mirror.state_file().parent().expect("a folder")).expect("removed");
    let says_so = |command: &str, code| {
        let said = asked(&mirror, &[command], code).stderr_text();
        let words = "driftless mirror failover /";
        assert!(said.contains(words), "{command}: {said}");
    };
    says_so("barrier", 13);
    says_so("status", 13);
    // A mirror that is refused leaves a new one.
    let _refused = asked(&mirror, &["run"], 13);
    for (command, code) in [
        ("status", 13),
        ("problems", 13),
        ("failback", 13),
        ("check", 0),
    ] {
        says_so(command, code);
    }
    let _back = there(&["failback", "--finish", "--yes"], 0);
    assert_eq!(
        fs::read_to_string(source.join("file")).expect("it came back"),
        "work of many"
    );
    mirror.start();
    mirror.barrier();
}

#[test]
fn what_is_written_to_the_source_during_a_failback_is_told_by_the_next() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("src"), scratch.dir("dst"));
    write(&source, "file", "content");
    let keys = format!("{LIVE}[limits]\nbytes_per_second = \"20M\"\n");
    let mirror = Mirror::between(&source, &replica, &keys);
    mirror.barrier();
    let _over = done(&mirror, &["failover", "--yes", "--json"]);
    std::thread::sleep(MARGIN);
    fs::write(replica.join("large"), vec![1; 60 << 20]).expect("a file");
    let back = mirror.command("failback").args(["--yes"]).spawn();
    wait_until("it is brought back", || count_entries(&source) > 2);
    write(&source, "late", "while it was brought back");
    let _done = back.wait().expect(0);
    let told = done(&mirror, &["failback", "--dry-run", "--json"]);
    assert_eq!(told["lost_paths"], serde_json::json!(["late"]), "{told}");
}

#[test]
fn work_of_an_active_replica_is_not_given_up_for_a_snapshot() {
    let near = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let mirror = in_cycles(&near, &far, 5);
    let _name = wait_common(&mirror);
    let _over = done(&mirror, &["failover", "--yes", "--json"]);
    write(&mirror.replica, "work", "of many");
    for role in ["failed over", "failing back"] {
        let changed = mirror.changed_state(&format!("UPDATE job SET role = '{role}'"));
        assert!(changed.success());
        for words in [
            &["promote", "--dry-run", "--to=common"][..],
            &["failover", "--to=common", "--yes"],
        ] {
            let _refused = asked(&mirror, words, 13);
        }
    }
    assert!(mirror.replica.join("work").exists());
}

#[test]
fn the_newest_snapshot_that_both_have_is_found_though_the_mirror_could_not_note_it() {
    let near = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let (source, replica) = (subvolume(&near, "source"), subvolume(&far, "replica"));
    write(&source, "file", "content");
    let keys = format!("{CYCLES}[cycle]\nkeep = 1\n");
    let mut mirror = Mirror::between(&source, &replica, &keys);
    mirror.barrier();
    let _name = wait_common(&mirror);
    write(&source, "precious", "work");
    mirror.barrier();
    let name = mirror.status()["cycle"]["snapshot"].clone();
    let name = name.as_str().expect("a name");
    let (shared, began) = (
        replica.join(".driftless-snapshots").join(name),
        Instant::now(),
    );
    while !shared.exists() {
        assert!(began.elapsed() < LIMIT, "{}", mirror.status());
    }
    // Whatever of it was noted.
    mirror.kill();
    let over = done(&mirror, &["failover", "--to=common", "--yes", "--json"]);
    assert!(replica.join("precious").exists(), "{over}");
}

#[test]
fn what_a_killed_mirror_has_left_unfinished_does_not_come_back() {
    const LEFT: &str = ".driftless-tmp-0123456789abcdef0123456789abcdef";
    let near = Scratch::new(FsKind::Tmpfs, 64);
    let (source, replica) = (near.dir("source"), near.dir("replica"));
    fs::create_dir(source.join("d")).expect("a directory");
    write(&source, "d/file", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.kill();
    write(&replica, &format!("d/{LEFT}"), "half of");
    fs::create_dir_all(replica.join(LEFT).join("nested")).expect("a directory");
    done(&mirror, &["failover", "--yes", "--json"]);
    write(&replica, "d/new", "new on the replica");
    let rehearsed = done(&mirror, &["failback", "--dry-run", "--json"]);
    assert_eq!(rehearsed["problems"], 0, "{rehearsed}");
    done(&mirror, &["failback", "--yes", "--json"]);
    assert_eq!(names(&source), ["d"]);
    assert_eq!(names(&source.join("d")), ["file", "new"]);
    done(&mirror, &["failback", "--yes", "--finish", "--json"]);
    mirror.start();
    mirror.check_equal("what was left has gone");
}

fn btrfs(words: &[&str], paths: &[&Path]) {
    let done = Command::new("btrfs").args(words).args(paths).output();
    let done = done.expect("btrfs");
    assert!(done.status.success(), "{words:?} {paths:?}: {done:?}");
}

#[test]
fn a_failover_goes_back_to_no_snapshot_that_somebody_has_changed_or_made_anew() {
    let [near, far] = [(); 2].map(|()| Scratch::new(FsKind::Btrfs, SIZE_MIB));
    let mut mirror = in_cycles(&near, &far, 5);
    let replica = mirror.replica.clone();
    let mut common = vec![wait_common(&mirror)];
    for name in ["two", "three"] {
        write(&mirror.source, name, name);
        mirror.barrier();
        wait_closed(&mirror);
        common.push(wait_common(&mirror));
    }
    mirror.stop();
    let path = |name: &str| replica.join(".driftless-snapshots").join(name);
    let promote = ["promote", "--dry-run", "--to=common", "--json"];
    let doubts = |told: &Value| told["snapshot_doubts"].as_array().expect("a list").clone();

    // Whoever only makes a snapshot of it changes nothing.
    let copy = far.path().join("copy");
    btrfs(
        &["subvolume", "snapshot", "-r"],
        &[&path(&common[2]), &copy],
    );
    let told = done(&mirror, &promote);
    assert_eq!(told["to"], common[2].as_str(), "{told}");
    assert_eq!(doubts(&told), [Value::Null; 0], "{told}");

    // As an older version has left it.
    let rename = |from: &str, to: &str| {
        let sql = format!("UPDATE cursors SET detector = '{to}' WHERE detector = '{from}'");
        assert!(mirror.changed_state(&sql).success());
    };
    rename("snapshots.replica", "aside");
    let told = done(&mirror, &promote);
    assert_eq!(told["to"], common[2].as_str(), "{told}");
    let [doubt] = &doubts(&told)[..] else {
        panic!("{told}")
    };
    let doubt = doubt.as_str().expect("text");
    assert!(doubt.contains("cannot tell whether"), "{doubt}");
    let _not_agreed_to = asked(&mirror, &["failover", "--to=common"], 2);
    rename("aside", "snapshots.replica");

    // The newest is changed, and another one has the name of the one before.
    property(&path(&common[2]), "false");
    write(&path(&common[2]), "three", "planted");
    property(&path(&common[2]), "true");
    property(&replica, "false");
    btrfs(&["subvolume", "delete"], &[&path(&common[1])]);
    btrfs(
        &["subvolume", "snapshot", "-r"],
        &[&copy, &path(&common[1])],
    );
    property(&replica, "true");
    let told = done(&mirror, &promote);
    assert_eq!(told["to"], common[0].as_str(), "{told}");
    let text = doubts(&told);
    assert!(text.len() == 2 && text[0].as_str().expect("text").contains(&common[2]));
    let over = asked(&mirror, &["failover", "--to=common", "--yes"], 0).stdout_text();
    assert!(over.contains("changed or replaced"), "{over}");
    assert!(replica.join("dir/1").exists() && !replica.join("three").exists());
    assert!(!replica.join("two").exists(), "{over}");
}

#[test]
fn a_failover_to_a_snapshot_needs_one_that_is_what_it_was_and_the_state() {
    let [near, far] = [(); 2].map(|()| Scratch::new(FsKind::Btrfs, SIZE_MIB));
    let mut mirror = in_cycles(&near, &far, 5);
    let common = wait_common(&mirror);
    mirror.stop();
    let elsewhere = near.dir("elsewhere");
    let words = ["promote", "--dry-run", "--to=common"];
    let there = mirror.command(words[0]).args(&words[1..]);
    let there = there.env("XDG_STATE_HOME", &elsewhere).run().expect(13);
    let said = there.stderr_text();
    assert!(said.contains("needs the state of its mirror"), "{said}");
    let folder = mirror.replica.join(".driftless-snapshots");
    assert!(folder.join(&common).exists());
    for path in names(&folder).iter().map(|name| folder.join(name)) {
        property(&path, "false");
        fs::create_dir(path.join("planted")).expect("a directory");
        property(&path, "true");
    }
    for words in [&words[..], &["failover", "--to=common", "--yes"]] {
        let said = asked(&mirror, words, 13).stderr_text();
        assert!(said.contains("changed or replaced"), "{said}");
        assert!(said.contains("--to latest"), "{said}");
    }
    let _over = asked(&mirror, &["failover", "--yes"], 0);
    assert!(mirror.replica.join("dir/1").exists());
}

#[test]
fn rehearsal_says_first_that_a_replica_was_never_equal() {
    let (near, far) = (
        Scratch::new(FsKind::Tmpfs, SIZE_MIB),
        Scratch::new(FsKind::Tmpfs, SIZE_MIB),
    );
    let (source, replica) = (near.dir("source"), far.dir("replica"));
    for number in 0..40 {
        fs::write(source.join(number.to_string()), vec![7; 64 << 10]).expect("a file");
    }
    // It takes far longer than the test.
    let keys = "detect = [\"walk\"]\n[limits]\nbytes_per_second = \"64k\"\n";
    let mut mirror = Mirror::between(&source, &replica, keys);
    let began = Instant::now();
    while names(&replica).iter().all(|name| name.starts_with('.')) {
        assert!(began.elapsed() < LIMIT, "nothing is copied");
        std::thread::sleep(Duration::from_millis(20));
    }
    mirror.kill();
    for name in ["promote", "failover"] {
        let said = asked(&mirror, &[name, "--dry-run"], 0).stdout_text();
        let first = said.lines().next().expect("a line");
        assert!(first.contains("HAS NEVER BEEN COMPLETE"), "{said}");
        let unknown = "an unknown number, at least ";
        assert!(first.contains(unknown), "{said}");
        let lost = said.lines().find(|line| line.starts_with("  lost "));
        assert!(lost.expect("a line").contains(unknown), "{said}");
        let told = done(&mirror, &[name, "--dry-run", "--json"]);
        assert_eq!(
            (&told["has_been_equal"], &told["is_left_all"], &told["done"]),
            (&false.into(), &false.into(), &false.into())
        );
    }
    let over = done(&mirror, &["promote", "--yes", "--json"]);
    assert_eq!(
        (&over["done"], &over["role"]),
        (&true.into(), &"failed over".into())
    );
}

/// Presses Ctrl-C where a command of a mirror asks its question at a terminal.
fn interrupt_at_the_question(mirror: &Mirror, command: &str) {
    let run = mirror.runtime_folder();
    let folder = run.parent().expect("the folder of the mirror").display();
    let line = format!(
        "XDG_STATE_HOME={folder}/state DRIFTLESS_RUNTIME_DIR={} exec {} mirror {command} {folder}/job.toml",
        run.display(),
        env!("CARGO_BIN_EXE_driftless")
    );
    let mut terminal = on_terminal(&line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a terminal");
    let (mut typed, mut shown) = (terminal.stdin.take(), terminal.stdout.take());
    let (sender, told) = mpsc::channel();
    let reading = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = shown.as_mut().expect("piped").read(&mut bytes) {
            let _the_test_is_over =
                sender.send(String::from_utf8_lossy(&bytes[..count]).into_owned());
        }
    });
    let mut text = String::new();
    while !text.contains("[y/N]") {
        match told.recv_timeout(LIMIT) {
            Ok(more) => text.push_str(&more),
            Err(error) => {
                let _it_may_have_ended = terminal.kill();
                panic!("no question ({error}): {text}");
            }
        }
    }
    let typing = typed.as_mut().expect("piped");
    typing
        .write_all(b"\x03")
        .and_then(|()| typing.flush())
        .expect("Ctrl-C");
    let began = Instant::now();
    let status = loop {
        match terminal.try_wait().expect("its end") {
            Some(status) => break status,
            None if began.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(5)),
            None => {
                let _it_may_have_ended = terminal.kill();
                panic!("{command} waits for its answer still: {text}");
            }
        }
    };
    drop(typed);
    reading.join().expect("read");
    text.extend(told.iter());
    assert_eq!(status.code(), Some(130), "{text}");
    assert!(text.contains("not done"), "{text}");
}

#[test]
fn interrupt_at_the_question_changes_nothing() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("source"), scratch.dir("replica"));
    write(&source, "file", "content");
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    interrupt_at_the_question(&mirror, "failover");
    write(&source, "late", "copied all the same");
    mirror.barrier();
    assert!(replica.join("late").exists(), "the mirror goes on");
    done(&mirror, &["failover", "--yes", "--json"]);
    assert_eq!(mirror.ended().code(), 0, "it was asked to end");
    write(&replica, "new", "new on the replica");
    let before = snapshot_hash(&source, true);
    interrupt_at_the_question(&mirror, "failback");
    assert_eq!(
        snapshot_hash(&source, true),
        before,
        "nothing is brought back"
    );
    assert_eq!(mirror.status()["role"], "failed over");
    done(&mirror, &["failback", "--finish", "--yes", "--json"]);
    assert!(source.join("new").exists(), "it is brought back");
}
