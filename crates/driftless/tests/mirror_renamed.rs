//! Directories that were renamed while no detector reported it: the mirror was stopped or killed, or
//! only compares. They are renamed on the replica, and a wrong guess costs a copy alone.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use driftless_testkit::{FsKind, Scratch};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SIZE_MIB: u64 = 300;
const WATCHED: &str = "detect = [\"fanotify\"]\ndelete = true\n";
const COMPARED: &str = "detect = [\"walk\"]\ndelete = true\n[walk]\nevery = \"never\"\n";
const BYTES: u64 = 4096;

/// Fills `dir` with two levels of files.
fn fill(dir: &Path) {
    for number in 0..20 {
        let below = dir.join(format!("below {number}"));
        fs::create_dir_all(&below).expect("directories");
        for name in ["one", "two"] {
            fs::write(below.join(name), vec![b'x'; BYTES as usize]).expect("a file");
        }
    }
}

/// The inode of an entry.
fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("an entry").ino()
}

/// Bytes that the mirror has copied since it started.
fn copied(mirror: &Mirror) -> u64 {
    mirror.status()["bytes_copied"].as_u64().expect("a number")
}

#[test]
fn directory_renamed_while_stopped_is_not_copied() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::Tmpfs] {
        let scratch = Scratch::new(kind, SIZE_MIB);
        let source = scratch.dir("src");
        fill(&source.join("big"));
        fill(&source.join("kept/inner"));
        let mut mirror = Mirror::of(&source, WATCHED);
        mirror.barrier();
        let before = inode(&mirror.replica.join("big"));
        mirror.stop();
        // Into a directory that is new itself, and one of what is below to a third place.
        fs::create_dir(source.join("new")).expect("a directory");
        fs::rename(source.join("big"), source.join("new/renamed")).expect("renamed");
        fs::rename(source.join("new/renamed/below 7"), source.join("seven")).expect("renamed");
        fs::rename(source.join("kept/inner"), source.join("kept/outer")).expect("renamed");
        fs::write(source.join("new/renamed/below 3/one"), b"changed").expect("a file");
        mirror.start();
        mirror.check_equal(&format!("{kind:?}"));
        assert_eq!(
            inode(&mirror.replica.join("new/renamed")),
            before,
            "{kind:?}"
        );
        assert_eq!(copied(&mirror), 7, "{kind:?}: the file that changed");
        mirror.stop();
    }
}

#[test]
fn directory_renamed_between_comparisons_is_not_copied() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fill(&source.join("big"));
    let mirror = Mirror::of(&source, COMPARED);
    let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
    let before = (inode(&mirror.replica.join("big")), copied(&mirror));
    fs::rename(source.join("big"), source.join("renamed")).expect("renamed");
    let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
    assert_eq!(
        (inode(&mirror.replica.join("renamed")), copied(&mirror)),
        before
    );
    mirror.check_equal("renamed");
}

#[test]
fn old_name_with_another_directory_is_copied() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fill(&source.join("big"));
    let mut mirror = Mirror::of(&source, WATCHED);
    mirror.barrier();
    mirror.kill();
    fs::rename(source.join("big"), source.join("renamed")).expect("renamed");
    fs::create_dir(source.join("big")).expect("a directory");
    fs::write(source.join("big/another"), b"content").expect("a file");
    mirror.start();
    mirror.check_equal("both are there");
}

#[test]
fn copy_of_another_directory_is_not_taken() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fill(&source.join("big"));
    let mut mirror = Mirror::of(&source, WATCHED);
    mirror.barrier();
    mirror.kill();
    // Another directory stands at the replica's path by now, with content of the same sizes and times.
    let (replica, times) = (mirror.replica.join("big"), fs::FileTimes::new());
    let (held, below) = (mirror.replica.join("held"), "below 3/one");
    fs::rename(&replica, &held).expect("renamed");
    fill(&replica);
    let then = fs::metadata(source.join("big").join(below)).and_then(|meta| meta.modified());
    fs::write(replica.join(below), vec![b'y'; BYTES as usize]).expect("a file");
    let file = fs::File::options().write(true).open(replica.join(below));
    let set = file.and_then(|file| file.set_times(times.set_modified(then?)));
    set.expect("its time");
    fs::rename(source.join("big"), source.join("renamed")).expect("renamed");
    mirror.start();
    mirror.check_equal("content of the source");
}

#[test]
fn index_that_is_lost_costs_a_copy() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fill(&source.join("big"));
    let mut mirror = Mirror::of(&source, WATCHED);
    mirror.barrier();
    mirror.stop();
    let index = mirror
        .state_file()
        .with_file_name("mirror-test.directories");
    fs::write(&index, [b'x'; 9000]).expect("damaged");
    fs::rename(source.join("big"), source.join("renamed")).expect("renamed");
    mirror.start();
    mirror.check_equal("copied");
    assert_eq!(copied(&mirror), 40 * BYTES);
    mirror.stop();
    fs::rename(source.join("renamed"), source.join("again")).expect("renamed");
    mirror.start();
    mirror.check_equal("renamed");
    assert_eq!(copied(&mirror), 0, "the index was made anew");
}
