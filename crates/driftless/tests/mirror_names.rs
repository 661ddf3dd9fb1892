//! Files that are changed through a name that they have no more, that is no name of the source, or
//! that the job leaves out: the kernel tells of that name alone, and a mirror has to find the others.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use driftless_testkit::{FsKind, Scratch};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
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

/// These files are the same on the replica, whatever else the source has.
fn check_taken(mirror: &Mirror, names: &[&str], context: &str) {
    mirror.barrier();
    for name in names {
        let of = |tree: &Path| {
            let path = tree.join(name);
            let meta = fs::metadata(&path).expect("the file");
            (fs::read(path).expect("read"), meta.mode())
        };
        let (source, replica) = (of(&mirror.source), of(&mirror.replica));
        assert!(source.0 == replica.0, "{context}: content of {name}");
        assert_eq!(source.1, replica.1, "{context}: mode of {name}");
    }
}

/// Has another byte, and is as large and as old as before.
fn write_unseen(file: &File) {
    let before = file.metadata().expect("its times");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).expect("read");
    file.write_all_at(&[byte[0] ^ 1], 0).expect("written");
    let modified = before.modified().expect("a time");
    file.set_modified(modified).expect("set back");
}

fn opened(path: &Path) -> File {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.expect("the file")
}

/// How often all was compared.
fn walks(mirror: &Mirror) -> u64 {
    mirror.status()["walks"].as_u64().expect("a number")
}

const LEAVING_OUT: &str =
    "detect = [\"fanotify\"]\ndelete = true\nfilters = [\"- *.tmp\", \"- /cache/\"]\n";

#[test]
fn what_is_written_by_a_name_that_is_left_out_is_copied() {
    on_each(|folder| {
        let source = source_of(folder);
        let name = |name: &str| source.join(name);
        fs::create_dir(name("cache")).expect("a directory");
        for (taken, left_out) in [("a", "a.tmp"), ("b", "cache/b")] {
            drop(appended(&name(taken)));
            fs::hard_link(name(taken), name(left_out)).expect("a link");
        }
        let mirror = Mirror::of(&source, LEAVING_OUT);
        mirror.barrier();
        for left_out in ["a.tmp", "cache/b"] {
            let mut file = appended(&name(left_out));
            check_taken(&mirror, &["a", "b"], &format!("{left_out} was written"));
            write_unseen(&opened(&name(left_out)));
            check_taken(&mirror, &["a", "b"], &format!("{left_out}, unseen"));
            let mode = Permissions::from_mode(0o600);
            fs::set_permissions(name(left_out), mode).expect("the mode");
            check_taken(&mirror, &["a", "b"], &format!("{left_out}: another mode"));
            writeln!(file, "the last line").expect("written");
            drop(file);
            check_taken(&mirror, &["a", "b"], &format!("{left_out} was closed"));
        }

        drop(appended(&name("c")));
        mirror.barrier();
        fs::hard_link(name("c"), name("c.tmp")).expect("a link");
        mirror.barrier();
        drop(appended(&name("c.tmp")));
        check_taken(&mirror, &["c"], "linked while the mirror runs");

        let mut late = appended(&name("x.tmp"));
        fs::hard_link(name("x.tmp"), name("x")).expect("a link");
        check_taken(&mirror, &["x"], "it got a name that is taken");
        writeln!(late, "the next line").expect("written");
        check_taken(&mirror, &["x"], "written by the one that is left out");
        fs::remove_file(name("x.tmp")).expect("removed");
        writeln!(late, "the last line").expect("written");
        check_taken(&mirror, &["x"], "written by the one that is gone");
    });
}

#[test]
fn what_is_left_out_costs_one_comparison_at_most() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = source_of(&scratch.dir("all"));
    let name = |name: &str| source.join(name);
    fs::create_dir(name("cache")).expect("a directory");
    let mirror = Mirror::of(&source, LEAVING_OUT);
    mirror.barrier();
    let before = walks(&mirror);
    for number in 0..100 {
        let mut file = appended(&name(&format!("cache/{number}")));
        writeln!(file, "and more").expect("written");
    }
    fs::rename(name("cache/1"), name("cache/2")).expect("renamed");
    mirror.barrier();
    assert_eq!(walks(&mirror), before, "they have one name each");
    fs::hard_link(name("cache/2"), name("cache/3.tmp")).expect("a link");
    let mut file = appended(&name("cache/2"));
    for _ in 0..3 {
        writeln!(file, "and more").expect("written");
        mirror.barrier();
    }
    assert_eq!(walks(&mirror), before + 1, "all was compared for it once");
}

#[test]
fn what_is_written_by_a_name_that_is_gone_outside_of_the_source_is_copied() {
    on_each(|folder| {
        let source = source_of(folder);
        let outside = folder.join("outside");
        fs::create_dir(&outside).expect("a directory");
        for name in ["removed", "replaced", "in-time"] {
            drop(appended(&source.join(name)));
            fs::hard_link(source.join(name), outside.join(name)).expect("a link");
        }
        drop(appended(&source.join("moved")));
        fs::hard_link(source.join("moved"), source.join("kept/moved")).expect("a link");
        let mirror = Mirror::of(&source, KEYS);
        mirror.check_equal("the first copy");

        let removed = appended(&outside.join("removed"));
        fs::remove_file(outside.join("removed")).expect("removed");
        change(&mirror, removed, "removed outside");

        let replaced = appended(&outside.join("replaced"));
        fs::write(outside.join("new"), "another file").expect("written");
        fs::rename(outside.join("new"), outside.join("replaced")).expect("replaced");
        mirror.check_equal("replaced outside");
        write_unseen(&opened(&source.join("replaced")));
        change(&mirror, replaced, "replaced outside");

        let moved = opened(&source.join("moved"));
        fs::rename(source.join("moved"), outside.join("moved")).expect("moved");
        fs::remove_file(outside.join("moved")).expect("removed");
        mirror.check_equal("moved outside and removed");
        write_unseen(&moved);
        mirror.check_equal("moved outside, removed, and written to");
    });
}

#[test]
fn what_is_written_unseen_by_a_name_that_is_gone_is_copied_after_a_restart() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = source_of(&scratch.dir("all"));
    let mut mirror = Mirror::of(&source, KEYS);
    let name = |name: &str| source.join(name);
    drop(appended(&name("f")));
    fs::hard_link(name("f"), name("g")).expect("a link");
    mirror.check_equal("two names");
    let gone = opened(&name("g"));
    fs::remove_file(name("g")).expect("removed");
    mirror.check_equal("one name");
    for context in ["before", "again"] {
        write_unseen(&gone);
        mirror.check_equal(context);
    }
    mirror.stop();
    mirror.start();
    mirror.barrier();
    for context in ["after a restart", "and again"] {
        write_unseen(&gone);
        mirror.check_equal(context);
    }
}

#[test]
fn what_is_written_by_one_name_is_copied_under_all_where_links_are_not_kept() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = source_of(&scratch.dir("all"));
    drop(appended(&source.join("a")));
    fs::hard_link(source.join("a"), source.join("kept/b")).expect("a link");
    let mirror = Mirror::of(&source, &format!("{KEYS}[keep]\nhard_links = false\n"));
    mirror.barrier();
    for name in ["a", "kept/b"] {
        drop(appended(&source.join(name)));
        check_taken(&mirror, &["a", "kept/b"], &format!("{name} was written"));
        write_unseen(&opened(&source.join(name)));
        check_taken(&mirror, &["a", "kept/b"], &format!("{name}, unseen"));
    }
}
