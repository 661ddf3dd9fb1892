//! Whoever asks a mirror that begins, hangs, or has a tree out of reach is told so, and in time.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use driftless_testkit::{FsKind, Outcome, Scratch};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 64;
const KEYS: &str = "detect = [\"fanotify\"]\ndelete = true\n";

fn check_in_time(told: &Outcome, seconds: std::ops::Range<u64>, process: u32) {
    for words in [&format!("process {process}"), "kill -CONT"] {
        assert!(told.stderr_text().contains(words), "{}", told.describe());
    }
    let took = told.elapsed.as_secs();
    assert!(seconds.contains(&took), "{took} s: {}", told.describe());
}

#[test]
fn a_mirror_that_hangs_holds_up_nobody() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = Mirror::of(&scratch.dir("src"), KEYS);
    mirror.barrier();
    mirror.freeze();
    let late = mirror.command("barrier").arg("--timeout=3s").run();
    check_in_time(&late.expect(6), 3..9, mirror.process());
    for command in ["status", "pause"] {
        let told = mirror.command(command).run().expect(1);
        check_in_time(&told, 10..19, mirror.process());
    }
    let waits = mirror.command("barrier").spawn();
    std::thread::sleep(Duration::from_secs(23));
    mirror.thaw();
    let told = waits.wait().expect(0);
    let words = "its mirror does not answer";
    assert!(told.stderr_text().contains(words), "{}", told.describe());
}

/// Has the replica be away until the mirror tries it only every eight seconds.
fn be_away(mirror: &Mirror, aside: &Path) {
    fs::rename(&mirror.replica, aside).expect("renamed");
    let late = mirror.command("barrier").arg("--timeout=8s").run();
    let _late = late.expect(6);
    fs::rename(aside, &mirror.replica).expect("renamed");
}

#[test]
fn trees_that_are_out_of_reach_are_tried_when_somebody_asks_for_it() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("src"), scratch.dir("replica"));
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    for (command, words) in [("retry", "out of reach are tried again"), ("sync-now", "")] {
        be_away(&mirror, &scratch.path().join("aside"));
        fs::write(source.join(command), "content").expect("a file");
        let told = mirror.command(command).run().expect(0).stdout_text();
        assert!(told.contains(words), "{told}");
        let began = Instant::now();
        while !replica.join(command).exists() {
            assert!(began.elapsed() < Duration::from_secs(3), "{command}");
            std::thread::sleep(Duration::from_millis(20));
        }
        mirror.barrier();
    }
}
