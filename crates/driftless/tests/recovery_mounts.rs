//! What a failover and a failback do not see at first: a part of a tree that is not mounted, and
//! content that differs behind equal sizes and times. Neither is given up.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::Far;
use common::mirror::Mirror;
use common::mounted::Mounted;
use driftless_testkit::{FsKind, Outcome, Scratch};
use std::fs;
use std::path::{Path, PathBuf};

const SIZE_MIB: u64 = 64;
const LIVE: &str = "detect = [\"fanotify\", \"walk\"]\ndelete = true\n";
const BACK: [&str; 2] = ["failback", "--yes"];
const FINISH: [&str; 3] = ["failback", "--finish", "--yes"];

fn asked(mirror: &Mirror, words: &[&str], code: i32) -> Outcome {
    let command = mirror.command(words[0]).args(&words[1..]);
    command.run().expect(code)
}

fn write(tree: &Path, name: &str, content: &str) {
    fs::write(tree.join(name), content).expect("a file");
}

fn read(tree: &Path, name: &str) -> String {
    fs::read_to_string(tree.join(name)).expect("a file")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().into_string().expect("text"));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Two trees, each with a directory `big`, and a folder that is to be mounted on one of these.
fn trees(scratch: &Scratch) -> [PathBuf; 3] {
    let [source, replica, disk] = ["source", "replica", "disk"].map(|name| scratch.dir(name));
    for tree in [&source, &replica] {
        fs::create_dir(tree.join("big")).expect("a directory");
    }
    [source, replica, disk]
}

/// Fills a source with files of which some lie in `big`.
fn fill(source: &Path) {
    for name in ["1", "2", "3", "big/one", "big/two"] {
        write(source, name, "precious");
    }
}

/// Puts another file in the place of one, of the same size and modification time, as `cp -p` does.
fn replace(tree: &Path, name: &str, content: &str) {
    let was = fs::metadata(tree.join(name)).expect("a file");
    assert_eq!(was.len(), content.len() as u64);
    let aside = tree.join("aside");
    fs::write(&aside, content).expect("a file");
    let file = fs::File::options().write(true).open(&aside).expect("open");
    let time = was.modified().expect("a time");
    file.set_modified(time).expect("a time that is set");
    fs::rename(aside, tree.join(name)).expect("renamed");
}

/// A mirror of the source that is equal, and has failed over.
fn failed_over(source: &Path, replica: &Path, keys: &str) -> Mirror {
    let mirror = Mirror::between(source, replica, keys);
    mirror.barrier();
    asked(&mirror, &["failover", "--yes"], 0);
    mirror
}

/// Checks that a command is refused for what is not mounted at `big` below a tree.
fn check_refused(mirror: &Mirror, words: &[&str], tree: &str) {
    let said = asked(mirror, words, 13).stderr_text();
    for text in [tree, "at big", "add --forget-mounts", "nothing was changed"] {
        assert!(said.contains(text), "{text}: {said}");
    }
    assert!(!said.contains("driftless sync"), "{said}");
}

#[test]
fn failback_misses_what_the_replica_had_mounted() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [source, replica, disk] = trees(&scratch);
    let mounted = Mounted::bind(&disk, &replica.join("big"));
    fill(&source);
    let mirror = failed_over(&source, &replica, LIVE);
    assert_eq!(names(&disk), ["one", "two"]);
    drop(mounted);
    write(&replica, "1", "work");
    for words in [&["failback", "--dry-run"][..], &FINISH] {
        check_refused(&mirror, words, "the replica ");
    }
    assert_eq!(names(&source.join("big")), ["one", "two"]);
    assert_eq!(read(&source, "1"), "precious");
    let mounted = Mounted::bind(&disk, &replica.join("big"));
    asked(&mirror, &BACK, 0);
    assert_eq!(names(&source.join("big")), ["one", "two"]);
    assert_eq!(read(&source, "1"), "work");
    drop(mounted);
    check_refused(&mirror, &FINISH, "the replica ");
    let forgotten = [&FINISH[..], &["--forget-mounts"]].concat();
    asked(&mirror, &forgotten, 0);
    assert_eq!(names(&source.join("big")).len(), 0, "it is gone for good");
}

#[test]
fn failback_misses_what_a_far_replica_had_mounted() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let [source, _replica, disk] = trees(&scratch);
    fill(&source);
    let far = Far::own();
    let mirror = Mirror::far(&source, &far, LIVE);
    mirror.barrier();
    let mounted = Mounted::bind(&disk, &mirror.replica.join("big"));
    asked(&mirror, &["sync-now", "--wait"], 0);
    assert_eq!(names(&disk), ["one", "two"]);
    asked(&mirror, &["failover", "--yes"], 0);
    drop(mounted);
    check_refused(&mirror, &FINISH, "the replica ");
}

#[test]
fn failback_misses_what_the_source_had_mounted() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [source, replica, disk] = trees(&scratch);
    let mounted = Mounted::bind(&disk, &source.join("big"));
    fill(&source);
    let mirror = failed_over(&source, &replica, LIVE);
    write(&replica, "big/one", "work of a day");
    drop(mounted);
    for words in [&["failback", "--dry-run"][..], &FINISH] {
        check_refused(&mirror, words, "the source ");
    }
    assert_eq!(names(&source.join("big")).len(), 0, "the mount point");
    let _mounted = Mounted::bind(&disk, &source.join("big"));
    asked(&mirror, &FINISH, 0);
    assert_eq!(read(&disk, "one"), "work of a day");
}

#[test]
fn failover_misses_what_the_replica_had_mounted() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [source, replica, disk] = trees(&scratch);
    let mounted = Mounted::bind(&disk, &replica.join("big"));
    fill(&source);
    let keys = format!("{LIVE}required = [\"1\"]\n");
    let mut mirror = Mirror::idle(&source, "");
    mirror.replica = replica.clone();
    mirror.change(&keys);
    write(&replica, "1", "there before");
    mirror.start();
    mirror.barrier();
    mirror.stop();
    drop(mounted);
    let over = ["failover", "--yes"];
    for words in [&["promote", "--dry-run"][..], &over] {
        check_refused(&mirror, words, "the replica ");
    }
    assert_eq!(mirror.status()["role"], "following");
    let forgotten = [&over[..], &["--forget-mounts"]].concat();
    let one = replica.join("1");
    fs::rename(&one, scratch.path().join("aside")).expect("renamed");
    let said = asked(&mirror, &forgotten, 13).stderr_text();
    assert!(said.contains("(required in the job)"), "{said}");
    assert_eq!(mirror.status()["role"], "following");
    fs::rename(scratch.path().join("aside"), &one).expect("renamed");
    asked(&mirror, &forgotten, 0);
}

#[test]
fn mirror_forgets_what_was_away_during_a_comparison() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [source, replica, disk] = trees(&scratch);
    let mounted = Mounted::bind(&disk, &replica.join("big"));
    fill(&source);
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    mirror.stop();
    drop(mounted);
    mirror.start();
    asked(&mirror, &["sync-now", "--wait"], 0);
    assert_eq!(names(&replica.join("big")), ["one", "two"]);
    asked(&mirror, &["failover", "--yes"], 0);
    asked(&mirror, &FINISH, 0);
    assert_eq!(names(&source.join("big")), ["one", "two"]);
}

#[test]
fn failback_brings_work_of_equal_size_and_time() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [source, replica, _disk] = trees(&scratch);
    fill(&source);
    let mirror = failed_over(&source, &replica, LIVE);
    replace(&replica, "big/one", "workdone");
    asked(&mirror, &FINISH, 0);
    assert_eq!(read(&source, "big/one"), "workdone");
}

#[test]
fn failback_undoes_changes_of_equal_size_and_time() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [source, replica, _disk] = trees(&scratch);
    fill(&source);
    let mut mirror = Mirror::between(&source, &replica, LIVE);
    mirror.barrier();
    asked(&mirror, &["pause"], 0);
    replace(&source, "1", "too late");
    mirror.stop();
    asked(&mirror, &["failover", "--yes"], 0);
    let rehearsed = asked(&mirror, &["failback", "--dry-run", "--json"], 0).stdout_text();
    let lost = "\"lost_paths\":[\"1\"]";
    assert!(rehearsed.contains(lost), "{rehearsed}");
    asked(&mirror, &FINISH, 0);
    assert_eq!(read(&source, "1"), "precious");
}

#[test]
fn failback_leaves_to_do_what_the_replica_lacks() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [source, replica, _disk] = trees(&scratch);
    fill(&source);
    let keys = "detect = [\"fanotify\", \"walk\"]\n";
    let mut mirror = failed_over(&source, &replica, keys);
    // As a replica that had no room for it looks: the times of the directory agree.
    let big = fs::File::open(replica.join("big")).expect("a directory");
    let time = big.metadata().expect("a directory").modified();
    fs::remove_file(replica.join("big/one")).expect("removed");
    big.set_modified(time.expect("a time"))
        .expect("a time that is set");
    asked(&mirror, &BACK, 0);
    asked(&mirror, &FINISH, 0);
    assert_eq!(read(&source, "big/one"), "precious");
    let status = mirror.status();
    assert_eq!(status["left"], 1, "{status}");
    assert_eq!(status["equal_until"], serde_json::Value::Null, "{status}");
    mirror.start();
    mirror.barrier();
    assert_eq!(read(&replica, "big/one"), "precious");
}
