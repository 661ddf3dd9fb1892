//! Snapshots beside live changes: the replica follows the source, and cycles find what no live
//! detector has told of, and count it.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use driftless_testkit::{EVENT_MAX, FsKind, Scratch, mutate};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 600;
const LIMIT: Duration = EVENT_MAX;
const KEYS: &str =
    "detect = [\"fanotify\", \"btrfs\"]\ndelete = true\n[cycle]\nevery = \"2s\"\nkeep = 2\n";

/// Writes into a file through a mapping, and keeps that: the kernel tells of it when it goes.
const WRITER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    int file = open(words[1], O_RDWR);
    char *content = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (count != 3 || file < 0 || content == MAP_FAILED) return 1;
    close(file);
    memcpy(content, words[2], strlen(words[2]));
    msync(content, 4096, MS_SYNC);
    puts("written");
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}
"#;

fn writer(scratch: &Scratch) -> PathBuf {
    let (text, program) = (
        scratch.path().join("writer.c"),
        scratch.path().join("writer"),
    );
    fs::write(&text, WRITER).expect("a program");
    let built = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(&text)
        .status();
    assert!(built.expect("cc").success());
    program
}

fn write_mapped(program: &Path, file: &Path, text: &str) -> Child {
    let mut command = Command::new(program);
    command
        .arg(file)
        .arg(text)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("the writer");
    let mut line = String::new();
    let said = child.stdout.take().expect("it is piped");
    BufReader::new(said).read_line(&mut line).expect("a word");
    assert_eq!(line, "written\n");
    child
}

fn wait(mirror: &Mirror, what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{what}: {}", mirror.status());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until so many more cycles are complete.
fn wait_for_cycles(mirror: &Mirror, more: u64) {
    let count = || {
        mirror.status()["cycle"]["count"]
            .as_u64()
            .expect("a number")
    };
    let before = count();
    wait(mirror, "cycles", || count() >= before + more);
}

#[test]
fn what_was_written_through_a_mapping_is_found_by_a_cycle_and_counted() {
    let (scratch, memory) = (
        Scratch::new(FsKind::Btrfs, SIZE_MIB),
        Scratch::new(FsKind::Tmpfs, 64),
    );
    let (source, program) = (scratch.path(), writer(&memory));
    fs::write(source.join("hidden"), [b'.'; 8192]).expect("a file");
    fs::create_dir_all(source.join("a/b")).expect("directories");
    for number in 0..50 {
        fs::write(source.join(format!("a/b/{number}")), "content").expect("a file");
    }
    let mirror = Mirror::of(source, KEYS);
    mirror.barrier();
    // So that there is a snapshot of the time before.
    wait_for_cycles(&mirror, 2);
    let missed = |mirror: &Mirror| mirror.status()["missed"].as_u64().expect("a number");
    assert_eq!(missed(&mirror), 0, "{}", mirror.status());
    let mut child = write_mapped(&program, &source.join("hidden"), "not told");
    fs::write(source.join("told"), "told").expect("a file");
    fs::rename(source.join("a"), source.join("renamed")).expect("renamed");
    let is_found = || {
        let read = fs::read(mirror.replica.join("hidden")).expect("a file");
        read.starts_with(b"not told")
    };
    wait(&mirror, "it is not found", is_found);
    mirror.barrier();
    wait(&mirror, "it is not counted", || missed(&mirror) > 0);
    wait_for_cycles(&mirror, 2);
    let status = mirror.status();
    assert_eq!(
        (status["missed"].as_u64(), &status["walks"]),
        (Some(1), &1.into()),
        "{status}"
    );
    drop(child.stdin.take());
    assert!(child.wait().expect("its end").success());
    for seed in 0..4 {
        mutate(&source.join("renamed"), seed, 15);
        wait_for_cycles(&mirror, 1);
    }
    mirror.check_equal("at the end");
    let status = mirror.status();
    assert_eq!(
        status["cycle"]["equal"],
        serde_json::Value::Null,
        "{status}"
    );
    assert!(!mirror.replica.join(".driftless-snapshots").exists());
    let kept = fs::read_dir(source.join(".driftless-snapshots")).expect("listed");
    assert!(kept.count() <= 3);
}

#[test]
fn killed_beside_live_changes_it_compares_all_and_goes_on() {
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let source = scratch.path();
    fs::create_dir(source.join("data")).expect("a directory");
    let mut mirror = Mirror::of(source, KEYS);
    for seed in 0..3 {
        mutate(&source.join("data"), seed, 20);
        wait_for_cycles(&mirror, 1);
        mirror.kill();
        mutate(&source.join("data"), seed + 100, 20);
        mirror.start();
        mirror.check_equal(&format!("seed {seed}"));
    }
}

#[test]
fn what_is_no_snapshot_does_not_count_as_one_whatever_its_name() {
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let source = scratch.path();
    let folder = source.join(".driftless-snapshots");
    let foreign = |hour: u32| folder.join(format!("test-2020-01-01T{hour:02}0000.000Z"));
    for hour in 0..5 {
        fs::create_dir_all(foreign(hour)).expect("a directory");
    }
    let mirror = Mirror::of(source, KEYS);
    mirror.barrier();
    wait_for_cycles(&mirror, 4);
    let status = mirror.status();
    assert_eq!(
        status["cycle"]["failed"],
        serde_json::Value::Null,
        "{status}"
    );
    assert!((0..5).all(|hour| foreign(hour).exists()));
    let kept = fs::read_dir(&folder).expect("listed").count() - 5;
    assert!((2..=3).contains(&kept), "{kept}");
}
