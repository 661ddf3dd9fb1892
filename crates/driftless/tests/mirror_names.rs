//! Files that are changed through a name that they have no more, or that is no name of the source:
//! the kernel tells of that name alone, and a mirror has to find the others.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use driftless_testkit::{FsKind, Scratch};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SIZE_MIB: u64 = 300;
const KEYS: &str = "detect = [\"fanotify\"]\ndelete = true\n";

fn on_each(test: impl Fn(&Path)) {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Tmpfs] {
        let scratch = Scratch::new(kind, SIZE_MIB);
        test(&scratch.dir("all"));
    }
}

fn source_of(folder: &Path) -> PathBuf {
    let source = folder.join("src");
    fs::create_dir_all(source.join("kept")).expect("the source");
    source
}

fn appended(path: &Path) -> File {
    let file = OpenOptions::new().append(true).create(true).open(path);
    let mut file = file.expect("the file");
    writeln!(file, "the first line").expect("written");
    file
}

/// Writes and changes the mode through a descriptor, and compares after each.
fn change(mirror: &Mirror, mut file: File, what: &str) {
    writeln!(file, "the next line").expect("written");
    mirror.check_equal(&format!("{what}: written"));
    file.set_permissions(Permissions::from_mode(0o600))
        .expect("the mode");
    mirror.check_equal(&format!("{what}: another mode"));
    writeln!(file, "the last line").expect("written");
    drop(file);
    mirror.check_equal(&format!("{what}: closed"));
}

#[test]
fn what_is_written_by_a_name_that_is_gone_is_found_by_its_other_name() {
    on_each(|folder| {
        let source = source_of(folder);
        let mirror = Mirror::of(&source, KEYS);
        let name = |name: &str| source.join(name);

        let removed = appended(&name("log"));
        fs::hard_link(name("log"), name("log.1")).expect("a link");
        mirror.check_equal("two names");
        fs::remove_file(name("log")).expect("removed");
        mirror.check_equal("one name");
        change(&mirror, removed, "the name was removed");

        let replaced = appended(&name("now"));
        fs::hard_link(name("now"), name("kept/now")).expect("a link");
        fs::write(name("now.new"), "another file").expect("written");
        fs::rename(name("now.new"), name("now")).expect("replaced");
        change(&mirror, replaced, "another file has the name");

        fs::create_dir(name("dir")).expect("a directory");
        let above = appended(&name("dir/x"));
        fs::hard_link(name("dir/x"), name("xx")).expect("a link");
        fs::remove_dir_all(name("dir")).expect("removed");
        change(&mirror, above, "the directory is gone");

        let several = appended(&name("s1"));
        fs::hard_link(name("s1"), name("s2")).expect("a link");
        fs::hard_link(name("s1"), name("kept/s3")).expect("a link");
        mirror.check_equal("three names");
        fs::remove_file(name("s1")).expect("removed");
        change(&mirror, several, "two names are left");
    });
}

#[test]
fn a_file_that_had_no_name_is_followed_under_the_one_it_got() {
    on_each(|folder| {
        let source = source_of(folder);
        let mirror = Mirror::of(&source, KEYS);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let unnamed = open(&source, flags, Mode::from_raw_mode(0o644));
        let mut file = File::from(unnamed.expect("a file without a name"));
        writeln!(file, "the first line").expect("written");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let named = source.join("named");
        linkat(CWD, path, CWD, &named, AtFlags::SYMLINK_FOLLOW).expect("a name");
        mirror.check_equal("named");
        change(&mirror, file, "it has its first name");
    });
}

#[test]
fn what_is_written_by_a_name_outside_of_the_source_is_copied() {
    on_each(|folder| {
        let source = source_of(folder);
        let outside = folder.join("outside");
        fs::create_dir(&outside).expect("a directory");
        drop(appended(&outside.join("before")));
        fs::hard_link(outside.join("before"), source.join("before")).expect("a link");
        let mirror = Mirror::of(&source, KEYS);
        mirror.check_equal("the first copy");
        change(
            &mirror,
            appended(&outside.join("before")),
            "it came from outside",
        );

        drop(appended(&outside.join("later")));
        fs::hard_link(outside.join("later"), source.join("later")).expect("a link");
        mirror.check_equal("linked into the source");
        change(
            &mirror,
            appended(&outside.join("later")),
            "it was linked in",
        );
        // What is no file of the source concerns nobody.
        let before = mirror.status()["changed"].as_u64();
        drop(appended(&outside.join("other")));
        fs::hard_link(outside.join("other"), outside.join("another")).expect("a link");
        drop(appended(&outside.join("another")));
        mirror.check_equal("elsewhere");
        assert_eq!(mirror.status()["changed"].as_u64(), before);
    });
}
