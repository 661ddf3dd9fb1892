//! Replicas that follow snapshots of their source on btrfs: after each cycle the replica is that
//! snapshot, and has one of its own.
//!
//! `DRIFTLESS_SEED` sets the first seed, `DRIFTLESS_SEEDS` how many rounds there are.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use driftless_testkit::{
    FsKind, Options, Profile, Scratch, assert_equal, build_tree, mutate, rsync_oracle,
};
use fastrand::Rng;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 600;
const ROUNDS: u64 = 12;
const KEYS: &str = "detect = [\"btrfs\"]\ndelete = true\n";
const LIMIT: Duration = Duration::from_secs(60);

fn number(name: &str, otherwise: u64) -> u64 {
    let asked = std::env::var(name).ok();
    asked.map_or(otherwise, |text| text.parse().expect("a number"))
}

fn btrfs(words: &[&str], paths: &[&Path]) {
    let status = Command::new("btrfs")
        .args(words)
        .args(paths)
        .stdout(Stdio::null())
        .status();
    assert!(
        status.expect("btrfs").success(),
        "btrfs {words:?} {paths:?}"
    );
}

fn subvolume(scratch: &Scratch, name: &str) -> PathBuf {
    let path = scratch.path().join(name);
    btrfs(&["subvolume", "create"], &[&path]);
    path
}

/// The snapshot that the mirror has read last, when it does nothing any more.
fn snapshot(mirror: &Mirror) -> String {
    let began = Instant::now();
    loop {
        let status = mirror.status();
        if status["cycle"]["stage"] == "idle" && status["left"] == 0 {
            return status["cycle"]["snapshot"]
                .as_str()
                .expect("a name")
                .to_owned();
        }
        assert!(began.elapsed() < LIMIT, "{status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn of_tree(tree: &Path, name: &str) -> PathBuf {
    tree.join(".driftless-snapshots").join(name)
}

fn snapshots(tree: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(tree.join(".driftless-snapshots")) else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("listed").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().expect("text"))
        .collect();
    names.sort();
    names
}

/// The replica is the snapshot.
fn check_snapshot(mirror: &Mirror, replica: &Path, context: &str) {
    let source = of_tree(&mirror.source, &snapshot(mirror));
    assert_equal(&source, replica, &Options::default(), context);
    assert_eq!(rsync_oracle(&source, replica), "", "{context}");
}

/// Moves a directory into another one, into the place of another, or makes a new one where it
/// stood.
fn move_directory(live: &Path, rng: &mut Rng) {
    let directories = directories(live);
    let (Some(one), Some(other)) = (rng.choice(&directories), rng.choice(&directories)) else {
        return;
    };
    let into = other.join(format!("moved-{}", rng.u16(..)));
    let aside = live.join("aside");
    match rng.u8(..3) {
        0 => drop(fs::rename(one, into)),
        1 if !one.starts_with(other) && !other.starts_with(one) => {
            fs::rename(one, &aside).expect("out of the way");
            fs::rename(other, one).expect("into its place");
            fs::rename(&aside, other).expect("into the other's");
        }
        _ => {
            if fs::rename(one, into).is_ok() && fs::create_dir(one).is_ok() {
                fs::write(one.join("new"), b"new").expect("in it");
            }
        }
    }
}

fn directories(live: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![live.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).expect("list") {
            let entry = entry.expect("entry");
            let is_ours = entry.file_name() == ".driftless-snapshots";
            if entry.file_type().expect("kind").is_dir() && !is_ours {
                left.push(entry.path());
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Changes of all kinds; the folder of the snapshots is not one of the user's.
fn churn(live: &Path, rng: &mut Rng) {
    for _ in 0..3 {
        mutate(&live.join("data"), rng.u64(..), 15);
        for _ in 0..4 {
            move_directory(&live.join("data"), rng);
        }
    }
}

fn built(scratch: &Scratch, seed: u64) -> PathBuf {
    let source = subvolume(scratch, "source");
    let data = source.join("data");
    fs::create_dir(&data).expect("a directory");
    build_tree(&data, seed, &Profile::small());
    source
}

#[test]
fn after_each_cycle_the_replica_is_the_snapshot_and_has_one() {
    let seed = number("DRIFTLESS_SEED", 1);
    println!("replay: DRIFTLESS_SEED={seed} cargo test -p driftless --test cycles");
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let (source, replica) = (built(&scratch, seed), subvolume(&far, "replica"));
    let mirror = Mirror::between(&source, &replica, &format!("{KEYS}[cycle]\nkeep = 3\n"));
    let mut rng = Rng::with_seed(seed);
    for round in 0..number("DRIFTLESS_SEEDS", ROUNDS) {
        let context = format!("round {round}, DRIFTLESS_SEED={seed}");
        mirror.barrier();
        check_snapshot(&mirror, &replica, &context);
        let name = snapshot(&mirror);
        check_snapshot(&mirror, &of_tree(&replica, &name), &context);
        churn(&source, &mut rng);
    }
    assert_eq!(snapshots(&source).len(), 3);
    assert_eq!(snapshots(&source), snapshots(&replica));
    let status = mirror.status();
    assert_eq!(
        status["walks"], 1,
        "only the first cycle compares all: {status}"
    );
    assert_eq!(status["missed"], 0, "{status}");
}

#[test]
fn what_changes_while_it_is_copied_is_not_in_the_replica_yet() {
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let source = built(&scratch, 7);
    let mirror = Mirror::of(&source, KEYS);
    let mut rng = Rng::with_seed(7);
    for round in 0..3 {
        let asked = mirror.command("sync-now").run();
        assert_eq!(asked.code(), 0, "{}", asked.describe());
        churn(&source, &mut rng);
        check_snapshot(&mirror, &mirror.replica, &format!("round {round}"));
    }
    assert!(
        mirror.status()["behind_seconds"]
            .as_f64()
            .expect("a number")
            > 0.0
    );
}

#[test]
fn killed_at_any_moment_it_goes_on_with_what_was_left() {
    let seed = number("DRIFTLESS_SEED", 21);
    println!("replay: DRIFTLESS_SEED={seed} cargo test -p driftless --test cycles");
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let (source, replica) = (built(&scratch, seed), subvolume(&far, "replica"));
    let keys = format!("{KEYS}[cycle]\nevery = \"back-to-back\"\nkeep = 2\n");
    let mut mirror = Mirror::between(&source, &replica, &keys);
    let mut rng = Rng::with_seed(seed);
    for round in 0..number("DRIFTLESS_SEEDS", 8) {
        churn(&source, &mut rng);
        let _begun = mirror.command("sync-now").run();
        std::thread::sleep(Duration::from_millis(rng.u64(..400)));
        mirror.kill();
        mirror.start();
        if round % 2 == 1 {
            mirror.barrier();
            let options = Options::default();
            let context = format!("round {round}, DRIFTLESS_SEED={seed}");
            assert_equal(&source, &replica, &options, &context);
            assert_eq!(rsync_oracle(&source, &replica), "", "{context}");
        }
    }
}

#[test]
fn what_failed_is_not_forgotten_and_what_came_and_went_is_not_left() {
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let far = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let (source, replica) = (subvolume(&scratch, "source"), subvolume(&far, "replica"));
    for name in ["stubborn", "mode", "old"] {
        fs::write(source.join(name), name).expect("a file");
    }
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    let _read = snapshot(&mirror);
    let before = snapshots(&replica);
    // One path fails, and the others are done; then they are as they were before.
    immutable(&replica.join("stubborn"), "+i");
    let mode = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(source.join("mode"), permissions).expect("a mode");
    };
    fs::write(source.join("stubborn"), "changed").expect("a file");
    mode(0o600);
    fs::rename(source.join("old"), source.join("new")).expect("renamed");
    let _begun = mirror.command("sync-now").run().expect(0);
    mirror.wait_for("problems", |count| count == 1);
    let began = Instant::now();
    while !replica.join("new").exists() {
        assert!(began.elapsed() < LIMIT, "{}", mirror.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        snapshots(&replica),
        before,
        "what is not equal is not in common"
    );
    mode(0o644);
    fs::rename(source.join("new"), source.join("old")).expect("renamed");
    let asked = mirror.status()["cycle"]["snapshot"].clone();
    let _begun = mirror.command("sync-now").run().expect(0);
    let began = Instant::now();
    while mirror.status()["cycle"]["snapshot"] == asked {
        assert!(began.elapsed() < LIMIT, "{}", mirror.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    immutable(&replica.join("stubborn"), "-i");
    let _tried = mirror.command("retry").run().expect(0);
    mirror.barrier();
    check_snapshot(&mirror, &replica, "as it was");
    assert_eq!(
        fs::read(replica.join("stubborn")).expect("a file"),
        b"changed"
    );
}

fn immutable(path: &Path, flag: &str) {
    let status = Command::new("chattr").arg(flag).arg(path).status();
    assert!(status.expect("chattr").success());
}

#[test]
fn renamed_directories_are_renamed_and_only_what_changed_is_copied() {
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let source = subvolume(&scratch, "source");
    fs::create_dir_all(source.join("a/deep")).expect("directories");
    for number in 0..300 {
        fs::write(source.join(format!("a/deep/{number}")), "content").expect("a file");
    }
    for number in 0..4 {
        fs::write(source.join(format!("log.{number}")), format!("{number}")).expect("a file");
    }
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let _first = snapshot(&mirror);
    let inode = |path: &str| {
        fs::metadata(mirror.replica.join(path))
            .expect("there")
            .ino()
    };
    let (file, directory, log) = (inode("a/deep/7"), inode("a/deep"), inode("log.1"));
    let copied = mirror.status()["bytes_copied"].as_u64().expect("a number");
    // Into a new directory, out of one that is renamed as well, and the log files of a day.
    fs::create_dir_all(source.join("new/place")).expect("directories");
    fs::rename(source.join("a/deep"), source.join("new/place/deeper")).expect("renamed");
    fs::rename(source.join("a"), source.join("b")).expect("renamed");
    for number in (0..3).rev() {
        let to = source.join(format!("log.{}", number + 1));
        fs::rename(source.join(format!("log.{number}")), to).expect("renamed");
    }
    fs::write(source.join("log.0"), "12345").expect("a file");
    mirror.barrier();
    check_snapshot(&mirror, &mirror.replica, "renamed");
    assert_eq!(inode("new/place/deeper/7"), file);
    assert_eq!(inode("new/place/deeper"), directory);
    assert_eq!(inode("log.2"), log);
    let now = mirror.status()["bytes_copied"].as_u64().expect("a number");
    assert_eq!(now - copied, 5, "the new log file alone");
}

#[test]
fn what_is_no_subvolume_is_refused_with_what_to_do() {
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let source = subvolume(&scratch, "source");
    let below = source.join("below");
    fs::create_dir(&below).expect("a directory");
    let refused = Mirror::refused(&below, KEYS).stderr_text();
    assert!(refused.contains("subvolume"), "{refused}");
    let memory = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let refused = Mirror::refused(memory.path(), KEYS).stderr_text();
    assert!(refused.contains("is not on btrfs"), "{refused}");
    let both = "rpo = \"2h\"\ndetect = [\"btrfs\", \"fanotify\"]\n";
    let refused = Mirror::refused(&source, both).stderr_text();
    assert!(refused.contains("write a job for each"), "{refused}");
}
