//! What the extents of a file say of where it differs between two snapshots, against its bytes:
//! random writes of all kinds to files with and without copy-on-write and compression. Needs root
//! and a loop device.
#![allow(clippy::disallowed_methods)]

use driftless_detect::snapshot::btrfs::changed_ranges;
use driftless_model::{RelPath, Stamp};
use driftless_testkit::{FsKind, Scratch};
use fastrand::Rng;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, Metadata, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROUNDS: u64 = 15;
const BYTES: u64 = 2 << 20;
const BLOCK: u64 = 4096;
/// Beside what was written, no more than this is told: extents that were compressed together.
const BESIDE: u64 = 128 << 10;
const KINDS: [(&str, &[&str]); 3] = [
    ("plain", &[]),
    ("written-in-place", &["chattr", "+C"]),
    ("compressed", &["chattr", "+c"]),
];

fn run(words: &[&str], paths: &[&Path]) {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(paths).stdout(Stdio::null());
    assert!(command.status().expect("it runs").success(), "{words:?}");
}

/// A piece of a file.
fn piece(rng: &mut Rng, size: u64) -> Range<u64> {
    let start = rng.u64(..size);
    start..(start + rng.u64(1..40 * BLOCK)).min(size)
}

/// Changes a file in one place or at its end, and returns where.
fn change(file: &File, rng: &mut Rng) -> Range<u64> {
    let size = file.metadata().expect("it is there").len();
    let range = piece(rng, size);
    let len = range.end - range.start;
    match rng.u8(..6) {
        0 => fallocate(
            file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            range.start,
            len,
        )
        .expect("a hole"),
        1 => {
            file.set_len(range.start).expect("it is shortened");
            file.set_len(size).expect("it grows");
            return range.start..size;
        }
        2 => {
            file.set_len(size + len).expect("it grows");
            return size..size + len;
        }
        3 => {
            file.write_at(&vec![rng.u8(..); len as usize], size)
                .expect("appended");
            return size..size + len;
        }
        _ => {
            let words = (0..len.div_ceil(8)).flat_map(|_| rng.u64(..).to_le_bytes());
            let bytes: Vec<u8> = words.take(len as usize).collect();
            file.write_all_at(&bytes, range.start).expect("written");
        }
    }
    range
}

fn take(live: &Path, number: u64) -> PathBuf {
    let path = live.with_file_name(format!("snapshot-{number}"));
    run(&["btrfs", "subvolume", "snapshot", "-r"], &[live, &path]);
    path
}

fn time_of(meta: &Metadata) -> Stamp {
    Stamp {
        sec: meta.mtime(),
        nsec: meta.mtime_nsec() as u32,
    }
}

/// What is told of a file covers each byte that differs, and little else; how many bytes that is.
fn check(older: &Path, newer: &Path, name: &str, written: &[Range<u64>]) -> u64 {
    let (was, is) = (older.join(name), newer.join(name));
    let meta = fs::metadata(&was).expect("it is there");
    let time = time_of(&meta);
    let inode = fs::metadata(&is).expect("it is there").ino();
    let path = RelPath::root().join(name.as_bytes());
    let told = changed_ranges((older, newer), (&path, inode), (meta.len(), time));
    let told = told.unwrap_or_else(|| panic!("nothing is told of {name}"));
    let (was, is) = (fs::read(was).expect("read"), fs::read(is).expect("read"));
    let is_told = |at: u64| told.iter().any(|range| range.contains(&at));
    for (at, byte) in is.iter().enumerate() {
        let differs = was.get(at) != Some(byte);
        assert!(!differs || is_told(at as u64), "{name}: {at} of {told:?}");
    }
    assert!(told.is_sorted_by_key(|range| range.start) && told.iter().all(|one| !one.is_empty()));
    let bytes: u64 = told.iter().map(|range| range.end - range.start).sum();
    let meant: u64 = written
        .iter()
        .map(|range| range.end - range.start + 2 * BESIDE)
        .sum();
    assert!(bytes <= meant, "{name}: {told:?} for {written:?}");
    let other_time = Stamp {
        sec: time.sec + 1,
        ..time
    };
    for other in [(meta.len() + 1, time), (meta.len(), other_time)] {
        assert_eq!(
            changed_ranges((older, newer), (&path, inode), other),
            None,
            "{name}"
        );
    }
    bytes
}

#[test]
fn extents_tell_of_each_byte_that_differs_and_of_little_else() {
    let mut rng = Rng::with_seed(7);
    let scratch = Scratch::new(FsKind::Btrfs, 512);
    let live = scratch.path().join("live");
    run(&["btrfs", "subvolume", "create"], &[&live]);
    for (name, words) in KINDS {
        let path = live.join(name);
        let file = File::create(&path).expect("made");
        if !words.is_empty() {
            run(words, &[&path]);
        }
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 100) as u8).collect();
        file.write_all_at(&bytes, 0).expect("written");
    }
    let mut older = take(&live, 0);
    let mut told = 0;
    for round in 1..=ROUNDS {
        let mut written = Vec::new();
        for (name, _) in KINDS {
            let file = OpenOptions::new()
                .write(true)
                .read(true)
                .open(live.join(name));
            let file = file.expect("opened");
            let ranges: Vec<_> = (0..rng.usize(..4))
                .map(|_| change(&file, &mut rng))
                .collect();
            written.push(ranges);
        }
        let newer = take(&live, round);
        for ((name, _), written) in KINDS.iter().zip(&written) {
            told += check(&older, &newer, name, written);
        }
        older = newer;
    }
    assert!(told > 0, "nothing was ever told");
}

#[test]
fn of_another_file_nothing_is_told() {
    let scratch = Scratch::new(FsKind::Btrfs, 512);
    let live = scratch.path().join("live");
    run(&["btrfs", "subvolume", "create"], &[&live]);
    fs::write(live.join("one"), b"some").expect("written");
    let older = take(&live, 0);
    fs::remove_file(live.join("one")).expect("removed");
    fs::write(live.join("one"), b"more").expect("written");
    let newer = take(&live, 1);
    let (was, is) = [&older, &newer]
        .map(|of| fs::metadata(of.join("one")).expect("there"))
        .into();
    let (time, path) = (time_of(&was), RelPath::root().join(b"one"));
    for inode in [was.ino(), is.ino(), 1, u64::MAX] {
        assert_eq!(
            changed_ranges((&older, &newer), (&path, inode), (4, time)),
            None
        );
    }
    // Neither are two that do not follow each other, or what is no btrfs.
    let inode = is.ino();
    assert_eq!(
        changed_ranges((&newer, &older), (&path, inode), (4, time)),
        None
    );
    assert_eq!(
        changed_ranges((Path::new("/proc"), &older), (&path, inode), (4, time)),
        None
    );
}

#[test]
fn of_a_file_that_stood_elsewhere_nothing_is_told() {
    let scratch = Scratch::new(FsKind::Btrfs, 512);
    let live = scratch.path().join("live");
    run(&["btrfs", "subvolume", "create"], &[&live]);
    for dir in ["one", "other"] {
        fs::create_dir(live.join(dir)).expect("made");
        fs::write(live.join(dir).join("file"), dir).expect("written");
    }
    std::os::unix::fs::symlink("other", live.join("link")).expect("made");
    let older = take(&live, 0);
    fs::remove_file(live.join("link")).expect("removed");
    fs::rename(live.join("other"), live.join("link")).expect("renamed");
    fs::rename(live.join("one"), live.join("other")).expect("renamed");
    let newer = take(&live, 1);
    for at in ["other/file", "link/file"] {
        let is = fs::metadata(newer.join(at)).expect("there");
        let (time, path) = (time_of(&is), RelPath::parse(at.as_bytes()).expect("a path"));
        let file = (&path, is.ino());
        assert_eq!(
            changed_ranges((&older, &newer), file, (is.len(), time)),
            None
        );
    }
}
