//! Memory does not grow with the number of files.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_accounts, driftless, put};
use driftless_testkit::{FsKind, Outcome, Scratch};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

const FEW: usize = 10_000;
const MANY: usize = 300_000;
const GROWTH_KIB_MAX: u64 = 64 * 1024;
const WAITING_KIB_MAX: u64 = 20 * 1024;

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

/// A run, and its largest resident set in KiB, as `time` reports it.
fn peak_of(src: &Path, dst: &Path, flags: &[&str]) -> (u64, Outcome) {
    let run = driftless()
        .args(["sync", "--json"])
        .args(flags)
        .args([src, dst])
        .through(["/usr/bin/time", "-f", "%M"]);
    let outcome = run.limit(Duration::from_secs(300)).run().expect(0);
    let text = outcome.stderr_text();
    (
        text.lines()
            .last()
            .and_then(|line| line.trim().parse().ok())
            .unwrap_or_else(|| panic!("no size: {text}")),
        outcome,
    )
}

/// That of a first and a second run.
fn peak_kib(count: usize) -> u64 {
    let scratch = Scratch::new(FsKind::Tmpfs, 6000);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    plant(&src, count);
    let run = || peak_of(&src, &dst, &["--delete"]).0;
    run().max(run())
}

#[test]
fn thirty_times_the_files_take_no_more_memory() {
    let (few, many) = (peak_kib(FEW), peak_kib(MANY));
    println!("peak resident set: {few} KiB for {FEW} entries, {many} KiB for {MANY}");
    assert!(
        many < few + GROWTH_KIB_MAX,
        "{few} KiB for {FEW} entries, {many} KiB for {MANY}"
    );
}

/// That of a run which meets so many names of one file while the first of them is still being
/// copied.
fn peak_kib_with_names(count: usize) -> u64 {
    const FOLDERS: usize = 20;
    let scratch = Scratch::new(FsKind::Tmpfs, 200);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    // The limit on bytes holds the first name up for four seconds.
    put(&src.join("first"), vec![b'x'; 16 << 20]);
    for folder in (0..FOLDERS).map(|number| src.join(format!("d{number}"))) {
        fs::create_dir(&folder).expect("dir");
        (0..count / FOLDERS).for_each(|number| {
            fs::hard_link(src.join("first"), folder.join(format!("name-{number}"))).expect("link")
        });
    }
    let (peak, outcome) = peak_of(&src, &dst, &["--bwlimit=4M", "--jobs=4"]);
    check_accounts(&outcome);
    let names = fs::metadata(dst.join("d7/name-3")).expect("stat").nlink();
    assert_eq!(names, count as u64 + 1, "all names are links");
    let again = driftless()
        .args(["sync", "--json"])
        .args([&src, &dst])
        .run()
        .expect(0);
    assert_eq!(
        [outcome.count("changed"), again.count("same")],
        [outcome.count("seen"); 2],
        "{}",
        outcome.describe()
    );
    peak
}

#[test]
fn names_that_wait_for_the_first_of_their_file_take_no_more_memory_than_a_few() {
    let (few, many) = (peak_kib_with_names(20_000), peak_kib_with_names(200_000));
    println!("peak resident set: {few} KiB for 20,000 names, {many} KiB for 200,000");
    assert!(
        many < few + WAITING_KIB_MAX,
        "{few} KiB for 20,000 names, {many} KiB for 200,000"
    );
}
