//! Paths that change all the time, and paths that fail for good: neither keeps a mirror from the
//! rest, and of neither anything is lost.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use common::mounted::Mounted;
use driftless_testkit::{FsKind, Scratch};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 300;
const KEYS: &str = "detect = [\"fanotify\", \"walk\"]\ndelete = true\n";
const APPENDS: u32 = 10_000;
/// How long a quiet file may take beside a directory that changes all the time. It takes some tens
/// of milliseconds; the machine that tests may be busy.
const QUIET_LAG_MAX: Duration = Duration::from_secs(60);

fn append(path: &Path, text: &str) {
    let file = OpenOptions::new().append(true).create(true).open(path);
    let mut file = file.expect("the log");
    file.write_all(text.as_bytes()).expect("written");
}

#[test]
fn a_file_that_is_appended_to_ten_thousand_times_is_copied_fifty_times_at_most() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = scratch.dir("src");
    append(&source.join("log"), "the first line\n");
    append(&source.join("open"), "the first line\n");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let before = mirror.status()["changed"].as_u64();
    let open = OpenOptions::new().append(true).open(source.join("open"));
    let mut open = open.expect("the log");
    for number in 0..APPENDS {
        // One is closed each time, the other stays open.
        append(&source.join("log"), &format!("line {number}\n"));
        writeln!(open, "line {number}").expect("written");
        if number % 10 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    mirror.check_equal("the last line");
    drop(open);
    let after = mirror.status()["changed"].as_u64();
    let copies = after.zip(before).map(|(after, before)| after - before);
    assert!(copies.is_some_and(|copies| copies <= 2 * 50), "{copies:?}");
    assert!(copies.is_some_and(|copies| copies >= 2), "{copies:?}");
    let log = fs::read_to_string(mirror.replica.join("log")).expect("the log");
    assert_eq!(log.lines().count(), APPENDS as usize + 1);
}

#[test]
fn of_a_large_file_that_is_written_in_places_only_these_are_copied() {
    const BYTES: u64 = 65 << 20;
    // What is compared is cut into pieces of so many bytes.
    const PIECE: u64 = 64 << 10;
    let (scratch, elsewhere) = (
        Scratch::new(FsKind::Ext4, SIZE_MIB),
        Scratch::new(FsKind::Btrfs, SIZE_MIB),
    );
    let (source, replica) = (scratch.dir("src"), elsewhere.dir("dst"));
    let path = source.join("database");
    fs::write(&path, vec![1; BYTES as usize]).expect("a file");
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    let copied = || mirror.status()["bytes_copied"].as_u64().expect("a number");
    let first = copied();
    assert_eq!(first, BYTES);
    let file = OpenOptions::new().write(true).open(&path).expect("opened");
    file.write_all_at(b"one", 5 << 20).expect("written");
    file.write_all_at(b"another", 40 << 20).expect("written");
    file.write_all_at(b"a line\n", BYTES).expect("appended");
    drop(file);
    mirror.check_equal("written in places");
    let more = copied() - first;
    assert!((1..=3 * PIECE).contains(&more), "{more} bytes");
}

/// Ends the heating.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Makes, renames and removes names in one directory until it is to stop; how many times.
fn keep_hot(dir: &Path, stop: &AtomicBool) -> u64 {
    let mut rounds = 0;
    while !stop.load(Relaxed) {
        fs::write(dir.join(".new"), rounds.to_string()).expect("a file");
        fs::rename(dir.join(".new"), dir.join(format!("f{}", rounds % 5))).expect("renamed");
        rounds += 1;
    }
    rounds
}

#[test]
fn a_directory_that_changes_all_the_time_holds_up_nothing_else() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = scratch.dir("src");
    let hot = source.join("hot");
    fs::create_dir(&hot).expect("a directory");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let before = mirror.status()["changed"].as_u64().expect("a number");
    let stop = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let _also_when_it_fails = Stopped(&stop);
        let heating = scope.spawn(|| keep_hot(&hot, &stop));
        for number in 0..10 {
            let quiet = format!("quiet{number}");
            fs::write(source.join(&quiet), b"content").expect("a file");
            let began = Instant::now();
            while !mirror.replica.join(&quiet).exists() {
                assert!(began.elapsed() < QUIET_LAG_MAX, "{}", mirror.status());
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        stop.store(true, Relaxed);
        heating.join().expect("no panic")
    });
    mirror.check_equal("when it is quiet");
    let changed = mirror.status()["changed"].as_u64().expect("a number") - before;
    assert!(
        changed < rounds / 2,
        "{changed} entries for {rounds} rounds"
    );
}

/// Writes files and renames them in place in each of these directories until it is to stop, and
/// now and then renames a directory.
fn keep_renaming(dirs: &[PathBuf], stop: &AtomicBool) {
    for round in 0_usize.. {
        if stop.load(Relaxed) {
            return;
        }
        let dir = &dirs[round % dirs.len()];
        fs::write(dir.join(".new"), round.to_string()).expect("a file");
        fs::rename(dir.join(".new"), dir.join("result")).expect("renamed");
        if round % 100 == 0 && dir.join("one").exists() {
            fs::rename(dir.join("one"), dir.join("other")).expect("renamed");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn renames_during_a_comparison_do_not_repeat_it() {
    // Comparisons that are asked for, and changes that are waited for after each.
    const ASKED: u64 = 3;
    const QUIET: usize = 4;
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = scratch.dir("src");
    let dirs: Vec<PathBuf> = (0..50).map(|dir| source.join(format!("d{dir}"))).collect();
    for dir in &dirs {
        fs::create_dir_all(dir.join("one/below")).expect("directories");
        for file in 0..60 {
            fs::write(dir.join(format!("f{file}")), b"content").expect("a file");
        }
    }
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let walks = || mirror.status()["walks"].as_u64().expect("a number");
    let before = walks();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _also_when_it_fails = Stopped(&stop);
        let _renaming = scope.spawn(|| keep_renaming(&dirs, &stop));
        for asked in 0..ASKED {
            let sync = mirror.command("sync-now").arg("--wait").run();
            let _done = sync.expect(0);
            for number in 0..QUIET {
                fs::write(source.join(format!("q{asked}-{number}")), b"content").expect("a file");
                mirror.barrier();
            }
        }
    });
    let count = walks() - before;
    assert!((ASKED..=2 * ASKED).contains(&count), "{count} comparisons");
    mirror.check_equal("after the renames");
}

#[test]
fn a_path_that_fails_for_good_is_in_quarantine_and_the_rest_goes_on() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::create_dir(source.join("stuck")).expect("a directory");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    // What is mounted there cannot be replaced.
    let mounted = Mounted::tmpfs(&mirror.replica.join("stuck"));
    fs::remove_dir(source.join("stuck")).expect("removed");
    fs::write(source.join("stuck"), b"a file now").expect("a file");
    mirror.wait_for("quarantined", |quarantined| quarantined == 1);
    fs::write(source.join("other"), b"content").expect("a file");
    // It is reached but for what is in quarantine, which is told.
    let reached = mirror.command("barrier").arg("--timeout=300s").run();
    let _with_problems = reached.expect(3);
    assert!(mirror.replica.join("other").exists());
    let told = mirror.command("problems").run().expect(3);
    assert!(
        told.stdout_text().contains("\"stuck\""),
        "{}",
        told.describe()
    );
    drop(mounted);
    let _done = mirror.command("retry").run().expect(0);
    mirror.check_equal("mended");
    assert_eq!(mirror.status()["quarantined"], 0);
}
