//! Memory does not grow with the number of files.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{driftless, put};
use driftless_testkit::{FsKind, Scratch};
use std::fs;
use std::path::Path;
use std::time::Duration;

const FEW: usize = 10_000;
const MANY: usize = 300_000;
const GROWTH_KIB_MAX: u64 = 64 * 1024;

fn plant(root: &Path, count: usize) {
    for index in 0..count {
        let folder = root.join(format!("d{}", index / 1000));
        if index % 1000 == 0 {
            fs::create_dir(&folder).expect("dir");
        }
        let name = folder.join(format!("file-{index}"));
        if index % 10 == 1 {
            fs::hard_link(folder.join(format!("file-{}", index - 1)), name).expect("link");
        } else {
            put(&name, b"x");
        }
    }
}

/// The largest resident set of a first and a second run in KiB, as `time` reports it.
fn peak_kib(count: usize) -> u64 {
    let scratch = Scratch::new(FsKind::Tmpfs, 6000);
    let src = scratch.dir("src");
    plant(&src, count);
    let run = || {
        let outcome = driftless()
            .args(["sync", "--delete", "--quiet"])
            .arg(&src)
            .arg(scratch.path().join("dst"))
            .through(["/usr/bin/time", "-f", "%M"])
            .limit(Duration::from_secs(300))
            .run()
            .expect(0);
        let text = outcome.stderr_text();
        text.lines().last().and_then(|line| line.trim().parse::<u64>().ok()).unwrap_or_else(|| panic!("no size: {text}"))
    };
    run().max(run())
}

#[test]
fn thirty_times_the_files_take_no_more_memory() {
    let (few, many) = (peak_kib(FEW), peak_kib(MANY));
    println!("peak resident set: {few} KiB for {FEW} entries, {many} KiB for {MANY}");
    assert!(many < few + GROWTH_KIB_MAX, "{few} KiB for {FEW} entries, {many} KiB for {MANY}");
}
