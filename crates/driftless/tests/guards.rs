//! Safe at the first mistake: trees that overlap, replicas of another tree, what must be there on
//! both sides.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{self, Far, Way};
use common::mounted::Mounted;
use common::{
    check_accounts, check_equal, check_settled, names_below, on_trees, only_local, problems, put,
    sync, sync_ok, verify, wait_until,
};
use driftless_testkit::{Driftless, FsKind, Scratch, snapshot_hash};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const NONE: [&str; 0] = [];

fn stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 256);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    (scratch, src, dst)
}

/// Nothing was begun, and nothing below `root` touched.
fn check_refused(run: Driftless, code: i32, root: &Path, words: &[&str]) {
    let before = snapshot_hash(root, true);
    let outcome = run.run().expect(code);
    let text = outcome.stderr_text();
    for word in words {
        assert!(
            text.contains(word),
            "no word of {word:?}\n{}",
            outcome.describe()
        );
    }
    assert_eq!(
        snapshot_hash(root, true),
        before,
        "something was touched\n{}",
        outcome.describe()
    );
}

/// A replica with an earlier copy of the same source in it; returns that copy.
fn with_copy_inside(src: &Path, dst: &Path) -> PathBuf {
    let copy = dst.join(".snap/mon");
    put(&src.join("file"), "content");
    fs::create_dir(dst.join(".snap")).expect("mkdir");
    let _ = sync_ok(src, dst, NONE);
    let _ = sync_ok(src, &copy, NONE);
    copy
}

fn linking(src: &Path, dst: &Path, copy: &Path, options: &[&str]) -> Driftless {
    let run = sync(src, dst).args(options.iter().copied());
    run.arg("--link-dest").arg(copy)
}

#[test]
fn earlier_copy_that_would_change_is_refused() {
    let (scratch, src, dst) = stage();
    let copy = with_copy_inside(&src, &dst);
    let (link, old) = (scratch.path().join("link"), src.join("old"));
    symlink(&copy, &link).expect("symlink");
    let _ = sync_ok(&dst.join(".snap"), &old, NONE);
    let (within, new) = ("lies in the replica", scratch.path().join("new"));
    let rule = "--exclude '/.snap/mon/'";
    let cases: [(&Path, &Path, &[&str], &[&str]); 9] = [
        (&copy, &dst, &["--delete"], &[within, rule]),
        (&link, &dst, &["--delete"], &[within, rule]),
        (&copy, &dst, &["--delete", "--dry-run"], &[within, rule]),
        (
            &copy,
            &dst,
            &["--delete", "--exclude=/.snap/", "--delete-excluded"],
            &[within],
        ),
        (&dst, &dst, &[], &["it is the replica"]),
        (
            &dst.join(".snap"),
            &copy,
            &[],
            &["replica of this run lies in it"],
        ),
        (
            scratch.path(),
            &new,
            &[],
            &["replica of this run lies in it"],
        ),
        (
            &old,
            &dst,
            &[],
            &["lies in the source", "--exclude '/old/'"],
        ),
        (
            &old.join("mon"),
            &new,
            &[],
            &["lies in the source", "--exclude '/old/mon/'"],
        ),
    ];
    for (copy, dst, options, words) in cases {
        let run = linking(&src, dst, copy, options);
        check_refused(run, 1, scratch.path(), &[&["--link-dest"], words].concat());
    }
}

/// A command in the place of ssh that reaches this machine as another one, which shares its file
/// systems.
fn ssh_to_a_sharing_host(scratch: &Scratch) -> PathBuf {
    let [ssh, boot] = ["ssh", "boot"].map(|name| scratch.path().join(name));
    put(&boot, "00000000-0000-4000-8000-000000000000\n");
    let text = format!(
        "#!/bin/bash\nexec unshare --mount bash -c \"mount --bind {} /proc/sys/kernel/random/boot_id; exec ${{@: -1}}\"\n",
        boot.display()
    );
    driftless_testkit::write_program(&ssh, &text);
    ssh
}

#[test]
fn overlap_on_shared_file_system_is_refused() {
    only_local!("goes over ssh anyway");
    let (scratch, src, dst) = stage();
    let ssh = ssh_to_a_sharing_host(&scratch);
    put(&src.join("a/x"), "content");
    fs::create_dir(src.join("rep")).expect("mkdir");
    put(&dst.join("deep/source/precious"), "content");
    let far = |path: &Path| PathBuf::from(format!("far:{}", path.display()));
    let over = |from: &Path, to: &Path| {
        let run = sync(from, to).arg("--delete").arg("--ssh").arg(&ssh);
        run.args(["--agent-path", far::agent()])
    };
    let below = dst.join("deep/source");
    let cases: [(PathBuf, PathBuf, &[&str]); 6] = [
        (src.clone(), far(&src.join("rep")), &["--exclude '/rep/'"]),
        (src.clone(), far(&src.join("new")), &["--exclude '/new/'"]),
        (
            src.clone(),
            far(&src.join("a/new")),
            &["--exclude '/a/new/'"],
        ),
        (far(&src), src.join("rep"), &["--exclude '/rep/'"]),
        (below.clone(), far(&dst), &["source"]),
        (far(&below), dst.clone(), &["source"]),
    ];
    for (from, to, words) in cases {
        check_refused(over(&from, &to), 1, scratch.path(), words);
    }
    // Trees beside each other are none, nor is one that the run leaves out.
    let other = scratch.path().join("other");
    let _ = over(&src, &far(&other)).run().expect(0);
    check_equal(&src, &other, "beside each other");
    let run = over(&src, &far(&src.join("rep"))).arg("--exclude=/rep/");
    let _ = run.run().expect(0);
    assert!(src.join("rep/a/x").exists() && !src.join("rep/rep").exists());
}

#[test]
fn excluded_earlier_copy_in_the_replica_stays() {
    let (_scratch, src, dst) = stage();
    let copy = with_copy_inside(&src, &dst);
    let before = snapshot_hash(&copy, false);
    put(&src.join("new"), "new");
    fs::remove_file(dst.join("file")).expect("remove");
    let run = linking(&src, &dst, &copy, &["--delete", "--exclude=/.snap/"]);
    let told = run.run().expect(0);
    assert_eq!(told.count("bytes_copied"), 3, "{}", told.describe());
    fs::remove_file(dst.join("file")).expect("remove");
    // Without deletes, what the source lacks stays.
    let told = linking(&src, &dst, &copy, &[]).run().expect(0);
    assert_eq!(told.count("bytes_copied"), 0, "{}", told.describe());
    assert_eq!(snapshot_hash(&copy, false), before);
    put(&src.join(".snap/mon/file"), "other");
    let run = linking(&src, &dst, &copy, &[]);
    check_refused(run, 1, &dst, &["--link-dest", "lies in the replica"]);
}

#[test]
fn earlier_copy_is_found_through_bind_mounts() {
    only_local!("is about mounts of this host");
    let (scratch, src, dst) = stage();
    let copy = with_copy_inside(&src, &dst);
    let at = |name: &str| scratch.dir(name);
    let (snaps, replica, source) = (at("snaps"), at("replica"), at("source"));
    let _bound = [
        Mounted::bind(&dst.join(".snap"), &snaps),
        Mounted::bind(&dst, &replica),
        Mounted::bind(&src, &source),
    ];
    let mon = snaps.join("mon");
    for (src, dst, copy) in [
        (&src, &dst, &mon),
        (&source, &replica, &mon),
        (&src, &replica, &copy),
        (&src, &mon, &dst),
        (&src, &dst, &replica),
    ] {
        let run = linking(src, dst, copy, &["--delete", "--delete-unlike"]);
        check_refused(run, 1, scratch.path(), &["--link-dest", "replica"]);
    }
}

#[test]
fn no_run_goes_into_its_own_replica_that_is_mounted_below_the_source() {
    let (_scratch, src, dst) = stage();
    put(&src.join("a/file"), "content");
    let _bound = Mounted::bind(&dst, &src.join("a/bk"));
    for _ in 0..2 {
        let outcome = sync(&src, &dst).arg("--delete").run().expect(3);
        check_accounts(&outcome);
        assert_eq!(problems(&outcome), ["a/bk"], "{}", outcome.describe());
        assert_eq!(names_below(&dst), ["a", "a/file"], "{}", outcome.describe());
    }
    let outcome = sync_ok(&src, &dst, ["--delete", "--exclude=/a/bk/"]);
    assert!(problems(&outcome).is_empty());
}

#[test]
fn no_run_goes_into_a_directory_that_holds_its_own_replica_for_ever() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let _bound = Mounted::bind(scratch.path(), &src.join("all"));
    let outcome = sync(&src, &dst).run().expect(3);
    assert_eq!(problems(&outcome), ["all/dst"], "{}", outcome.describe());
    assert_eq!(
        names_below(&dst),
        ["all", "all/src", "all/src/all", "all/src/file", "file"],
        "{}",
        outcome.describe()
    );
}

#[test]
fn no_run_writes_into_its_own_source_that_is_mounted_below_the_replica() {
    let (_scratch, src, dst) = stage();
    put(&src.join("s/file"), "content");
    put(&src.join("kept"), "content");
    let _bound = Mounted::bind(&src, &dst.join("s"));
    let before = snapshot_hash(&src, true);
    for _ in 0..2 {
        let outcome = sync(&src, &dst).run().expect(3);
        check_accounts(&outcome);
        assert_eq!(problems(&outcome), ["s"], "{}", outcome.describe());
        assert_eq!(snapshot_hash(&src, true), before, "{}", outcome.describe());
    }
}

#[test]
fn a_directory_of_the_replica_that_is_mounted_on_another_is_made_equal_once_and_told() {
    only_local!("is about mounts of this host");
    let (scratch, src, dst) = stage();
    for name in ["a", "b", "c/d"] {
        put(&src.join(name).join("file"), name);
    }
    let _ = sync_ok(&src, &dst, NONE);
    let bound = Mounted::bind(&dst.join("a"), &dst.join("b"));
    let by_link = scratch.path().join("link");
    symlink(&dst, &by_link).expect("symlink");
    for (to, words) in [
        (&dst, &["--delete"][..]),
        (&by_link, &[]),
        (&dst, &["--dry-run"]),
    ] {
        let outcome = sync(&src, to).args(words.iter().copied()).run().expect(3);
        check_accounts(&outcome);
        assert_eq!(
            (problems(&outcome), outcome.count("changed")),
            (vec!["b".into()], 0),
            "{}",
            outcome.describe()
        );
    }
    let verified = verify(&src, &dst).run().expect(3);
    assert_eq!(problems(&verified), ["b"], "{}", verified.describe());
    let _ = sync_ok(&src, &dst, ["--exclude=/b"]);
    // The source has one of the two only.
    fs::remove_dir_all(src.join("a")).expect("remove");
    put(&src.join("b/file"), "other");
    let _ = sync_ok(&src, &dst, NONE);
    assert_eq!(
        fs::read_to_string(dst.join("a/file")).expect("read"),
        "other"
    );
    drop(bound);
    // The replica itself, below itself.
    let _bound = Mounted::bind(&dst, &dst.join("c/d"));
    let outcome = sync(&src, &dst).run().expect(3);
    assert_eq!(problems(&outcome), ["c/d"], "{}", outcome.describe());
}

#[test]
fn a_replica_on_a_disk_below_the_source_is_left_out_with_one_file_system() {
    let (scratch, src, _) = stage();
    let dst = src.join("mnt/backup");
    put(&src.join("mnt/file"), "content");
    let _disk = Mounted::tmpfs(&dst);
    check_refused(
        sync(&src, &dst),
        1,
        scratch.path(),
        &["--exclude '/mnt/backup/'", "--one-file-system"],
    );
    let _ = sync_ok(&src, &dst, ["-x", "--delete"]);
    assert_eq!(
        names_below(&dst),
        ["mnt", "mnt/backup", "mnt/file"],
        "the directory that it is mounted on, and nothing in it"
    );
    check_settled(&src, &dst, ["-x", "--delete"]);
    fs::remove_file(src.join("mnt/file")).expect("remove");
    let _ = sync_ok(&src, &dst.join("new"), ["-x"]);
    assert_eq!(names_below(&dst.join("new")), ["mnt", "mnt/backup"]);
}

#[test]
fn a_replica_below_the_source_is_taken_where_it_is_excluded_or_not_listed() {
    let (scratch, src, _) = stage();
    put(&src.join("keep/file"), "content");
    fs::create_dir_all(src.join("bk/old")).expect("dirs");
    for (dst, arguments) in [
        ("bk", vec!["--exclude=/bk/"]),
        ("bk/old", vec!["--exclude=old"]),
        ("bk/new", vec!["--exclude=/bk/"]),
        ("new", vec!["--exclude=/new/", "--exclude=/bk"]),
    ] {
        let dst = src.join(dst);
        for more in ["--copy-into", "--delete"] {
            let _ = sync_ok(&src, &dst, arguments.iter().chain([&more]));
            assert!(
                dst.join("keep/file").exists() && !dst.join("bk/old/keep").exists(),
                "{arguments:?}"
            );
        }
        fs::remove_dir_all(&dst).expect("remove");
        fs::create_dir_all(src.join("bk/old")).expect("dirs");
    }
    let list = scratch.path().join("list");
    put(&list, "keep\n");
    let from = format!("--files-from={}", list.display());
    let _ = sync_ok(&src, &src.join("bk"), [from.as_str()]);
    assert_eq!(names_below(&src.join("bk")), ["keep", "keep/file", "old"]);
    put(&list, "keep\nbk\n");
    for arguments in [
        vec![from.as_str()],
        vec!["--exclude=bk/x"],
        vec!["--exclude=/new/"],
        vec!["-x"],
    ] {
        check_refused(
            sync(&src, &src.join("bk")).args(&arguments),
            1,
            scratch.path(),
            &["--exclude '/bk/'"],
        );
        check_refused(
            sync(&src, &src.join("bk/new")).args(&arguments),
            1,
            scratch.path(),
            &["--exclude '/bk/new/'"],
        );
    }
}

#[test]
fn a_source_below_its_replica_is_refused_whatever_is_left_out() {
    let (scratch, src, dst) = stage();
    put(&dst.join("inner/file"), "content");
    put(&src.join("file"), "content");
    for arguments in [vec!["--exclude=/inner/"], vec!["-x"]] {
        check_refused(
            sync(&dst.join("inner"), &dst).args(arguments),
            1,
            scratch.path(),
            &["inside"],
        );
    }
}

#[test]
fn trees_of_one_machine_overlap_by_whatever_way_they_are_reached() {
    only_local!("goes over ssh anyway");
    let (scratch, src, _) = stage();
    let far = Far::root();
    let dst = src.join("a [b]/bk");
    put(&src.join("file"), "content");
    fs::create_dir_all(&dst).expect("dirs");
    for way in Way::ALL {
        check_refused(
            far.sync(way, &src, &dst),
            1,
            scratch.path(),
            &["--exclude '/a \\[b\\]/bk/'"],
        );
        let _ = far.sync_ok(way, &src, &dst, ["--delete", "--exclude=/a \\[b\\]/bk/"]);
        assert_eq!(names_below(&dst), ["a [b]", "file"], "{way:?}");
        let bound = Mounted::bind(&dst, &src.join("bound"));
        let outcome = far
            .sync(way, &src, &dst)
            .arg("--exclude=/a \\[b\\]/bk/")
            .run()
            .expect(3);
        assert_eq!(
            problems(&outcome),
            ["bound"],
            "{way:?}\n{}",
            outcome.describe()
        );
        drop(bound);
        fs::remove_dir(src.join("bound")).expect("remove");
        fs::remove_dir_all(&dst).expect("remove");
        fs::create_dir_all(&dst).expect("dirs");
    }
}

/// `backup` holds copies of projects, and `projA` is another one.
fn projects(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (project, backup) = (scratch.path().join("projA"), scratch.path().join("backup"));
    for name in ["a", "b/c"] {
        put(&project.join(name), "content");
    }
    for name in ["projB/a", "projC/b/c"] {
        put(&backup.join(name), "content");
    }
    (project, backup)
}

#[test]
fn a_replica_that_has_no_name_of_the_source_loses_nothing_and_the_command_that_was_meant_is_named()
{
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (project, backup) = projects(&scratch);
    let [from, to] = far::ends(&project, &backup.join("projA"));
    let meant = format!("{} {}", from.display(), to.display());
    let command = |first: &[&str]| {
        on_trees(first[0], &project, &backup)
            .arg("--delete")
            .args(&first[1..])
    };
    for first in [
        &["sync"][..],
        &["sync", "--dry-run"],
        &["sync", "--max-delete=100"],
        &["verify", "--repair"],
    ] {
        check_refused(
            command(first),
            13,
            scratch.path(),
            &[&meant, "--delete-unlike"],
        );
    }
    let here = format!(
        "cd {} && exec \"$0\" sync --delete . ../backup",
        project.display()
    );
    let from_inside =
        Driftless::new("/bin/sh").args(["-c", &here, env!("CARGO_BIN_EXE_driftless")]);
    check_refused(
        from_inside,
        13,
        scratch.path(),
        &["sync --delete . ../backup/projA"],
    );
    let _ = sync_ok(&project, &backup.join("projA"), ["--delete"]);
    let _ = sync_ok(&project, &backup, ["--delete", "--delete-unlike"]);
    check_equal(&project, &backup, "it was asked for");
}

#[test]
fn an_option_that_makes_a_verification_repair_unlike_trees_is_taken() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (project, backup) = projects(&scratch);
    let run =
        on_trees("verify", &project, &backup).args(["--repair", "--delete", "--delete-unlike"]);
    let _ = run.env("XDG_STATE_HOME", scratch.path()).run().expect(0);
    check_equal(&project, &backup, "it was asked for");
}

#[test]
fn trees_are_taken_for_each_other_as_soon_as_a_name_is_in_both() {
    let (scratch, src, dst) = stage();
    put(&src.join("new"), "content");
    let only = |name: &str| {
        fs::remove_dir_all(&dst).expect("remove");
        put(&dst.join(name), "content");
    };
    let many = (0..40_000).map(|number| src.join(format!("many-{number}")));
    many.for_each(|path| fs::write(path, "").expect("write"));
    only("old");
    check_refused(
        sync(&src, &dst).arg("--delete"),
        13,
        scratch.path(),
        &["--delete-unlike"],
    );
    // Whether names are taken, and of what kind they are, is no matter.
    only("many-39999/below");
    let _ = sync(&src, &dst)
        .args(["--delete", "--exclude=many-*"])
        .run()
        .expect(0);
    only("lost+found/below");
    let _ = sync(&src, &dst)
        .args(["--delete", "--exclude=many-*"])
        .run()
        .expect(0);
    only("old");
    check_refused_beside(
        sync(&src, &dst).arg("--exclude=many-*"),
        scratch.path(),
        &["\"old\""],
    );
    only("many-39999");
    let _ = sync(&src, &dst).arg("--exclude=many-*").run().expect(0);
}

#[test]
fn a_replica_with_many_names_is_looked_through_to_its_end() {
    let (scratch, src, dst) = stage();
    put(&src.join("new"), "content");
    (0..40_000)
        .for_each(|number| fs::write(dst.join(format!("many-{number}")), "").expect("write"));
    check_refused(
        sync(&src, &dst).args(["--delete", "-n"]),
        13,
        scratch.path(),
        &["--delete-unlike"],
    );
    put(&src.join("many-17000"), "content");
    let outcome = sync_ok(&src, &dst, ["--delete", "-n"]);
    assert_eq!(outcome.count("deleted"), 39_999);
}

#[test]
fn what_would_not_be_deleted_makes_no_unlike_trees() {
    let (scratch, src, dst) = stage();
    put(&src.join("new"), "content");
    put(&dst.join("old.o"), "content");
    put(&scratch.path().join("list"), "new\n");
    let from = format!("--files-from={}", scratch.path().join("list").display());
    let _ = sync_ok(&src, &dst, ["--delete", "--dry-run", &from]);
    let _ = sync_ok(&src, &dst, ["--delete", "--dry-run", "--exclude=*.o"]);
    check_refused(
        sync(&src, &dst).args(["--delete", "--exclude=*.c"]),
        13,
        scratch.path(),
        &["--delete-unlike"],
    );
    check_refused(
        sync(&src, &dst).args(["--delete", "--delete-excluded", "--exclude=*.o"]),
        13,
        scratch.path(),
        &["--delete-unlike"],
    );
    let _ = sync_ok(&src, &dst, ["--delete", "--exclude=*.o"]);
    assert_eq!(names_below(&dst), ["new", "old.o"]);
}

#[test]
fn a_new_disk_is_no_unlike_tree() {
    let disk = Scratch::new(FsKind::Ext4, 64);
    assert!(disk.path().join("lost+found").exists(), "mkfs makes it");
    let (_scratch, src, _) = stage();
    put(&src.join("new"), "content");
    let _ = sync_ok(&src, disk.path(), ["--delete"]);
    // The same directory on both sides says nothing about what else there is.
    fs::remove_file(disk.path().join("new")).expect("remove");
    forget_mark(disk.path());
    for path in [
        src.join("lost+found/x"),
        disk.path().join("lost+found/x"),
        disk.path().join("old"),
    ] {
        put(&path, "content");
    }
    check_refused(
        sync(&src, disk.path()).arg("--delete"),
        13,
        &src,
        &["--delete-unlike"],
    );
}

/// Removes the mark, so that nothing is known of what filled the replica.
fn forget_mark(replica: &Path) {
    for name in ["trusted.driftless.mark", "user.driftless.mark"] {
        let args = ["-x", name].map(OsStr::new);
        let _one_of_them_is_there = Command::new("setfattr").args(args).arg(replica).output();
    }
}

/// Renames everything at the top of a tree.
fn turn_over(tree: &Path) {
    for entry in fs::read_dir(tree).expect("listed") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        fs::rename(&path, tree.join(format!("new-{name}"))).expect("renamed");
    }
}

#[test]
fn a_source_whose_names_all_changed_is_known() {
    let (_scratch, src, dst) = stage();
    put(&src.join("run-25/out"), "content");
    put(&src.join("file"), "content");
    // It is no matter whether the first run deletes: it leaves nothing else there.
    let _ = sync_ok(&src, &dst, NONE);
    for options in [&["--delete"][..], &["--delete", "--exclude=*.tmp"]] {
        turn_over(&src);
        let _ = sync_ok(&src, &dst, ["--delete", "--dry-run"]);
        let _ = sync_ok(&src, &dst, options);
        check_equal(&src, &dst, "all names are new");
    }
    turn_over(&src);
    let run = on_trees("verify", &src, &dst).args(["--repair", "--delete"]);
    let _ = run.run().expect(0);
    check_equal(&src, &dst, "repaired");
}

#[test]
fn a_single_file_may_be_renamed() {
    let (_scratch, src, dst) = stage();
    put(&src.join("one"), "content");
    let _ = sync_ok(&src, &dst, ["--delete"]);
    turn_over(&src);
    let _ = sync_ok(&src, &dst, ["--delete"]);
    assert_eq!(names_below(&dst), ["new-one"]);
}

#[test]
fn stray_file_at_empty_mount_point_deletes_nothing() {
    let (_scratch, src, dst) = stage();
    let mounted = Mounted::tmpfs(&src);
    put(&src.join("data/file"), "content");
    let _ = sync_ok(&src, &dst, ["--delete"]);
    drop(mounted);
    put(&src.join("stray"), "content");
    check_refused(
        sync(&src, &dst).arg("--delete"),
        13,
        &dst,
        &["--delete-unlike"],
    );
    assert_eq!(names_below(&dst), ["data", "data/file"]);
}

#[test]
fn a_replica_of_another_source_is_refused() {
    let (scratch, src, dst) = stage();
    put(&src.join("home/file"), "content");
    let _ = sync_ok(&src, &dst, ["--delete"]);
    let other = scratch.dir("other");
    put(&other.join("project"), "content");
    let refused = || {
        let outcome = sync(&other, &dst).arg("--delete").run().expect(13);
        assert_eq!(names_below(&dst), ["home", "home/file"]);
        outcome.stderr_text()
    };
    // Another replica within a replica is never meant, unless it is there.
    assert!(!refused().contains("was this meant"), "{}", refused());
    put(&dst.join("other"), "no directory");
    let told = sync(&other, &dst).arg("--delete").run().expect(13);
    assert!(!told.stderr_text().contains("was this meant"));
    fs::remove_file(dst.join("other")).expect("removed");
    fs::create_dir(dst.join("other")).expect("a directory");
    let told = sync(&other, &dst).arg("--delete").run().expect(13);
    assert!(told.stderr_text().contains("was this meant"));
}

#[test]
fn a_copy_beside_other_entries_makes_no_replica() {
    let (_scratch, src, dst) = stage();
    put(&src.join("a"), "content");
    put(&dst.join("precious"), "content");
    // By mistake, which is cleaned up by hand.
    let _ = sync_ok(&src, &dst, ["--copy-into"]);
    let _ = sync_ok(&src, &dst, ["--delete", "--exclude=*"]);
    fs::remove_file(dst.join("a")).expect("removed");
    check_refused(
        sync(&src, &dst).arg("--delete"),
        13,
        &dst,
        &["--delete-unlike"],
    );
}

/// The first copy of a source beside other entries, which is refused.
fn check_refused_beside(run: Driftless, root: &Path, words: &[&str]) {
    let words = [&["--copy-into", "nothing was touched"], words].concat();
    check_refused(run, 13, root, &words);
}

#[test]
fn first_copy_beside_other_entries_is_refused() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (project, backup) = projects(&scratch);
    let [from, to] = far::ends(&project, &backup.join("projA"));
    let meant = format!("was this meant? {}", env!("CARGO_BIN_EXE_driftless"));
    let ends = format!("{} {}", from.display(), to.display());
    let words = [&meant, &ends, "it holds \"projB\", \"projC\","];
    for options in [
        &[][..],
        &["--dry-run"],
        &["--checksum", "--exclude=/projB/"],
    ] {
        let run = on_trees("sync", &project, &backup).args(options);
        let shown = if options.len() > 1 {
            &words[..2]
        } else {
            &words[..]
        };
        check_refused_beside(run, scratch.path(), shown);
    }
    let here = format!("cd {} && exec \"$0\" sync . ../backup", project.display());
    let from_inside =
        Driftless::new("/bin/sh").args(["-c", &here, env!("CARGO_BIN_EXE_driftless")]);
    check_refused_beside(from_inside, scratch.path(), &["sync . ../backup/projA"]);
    // Only runs that would copy are refused.
    let _ = verify(&project, &backup).run().expect(4);
    let _ = sync_ok(&project, &backup.join("projA"), NONE);
    check_equal(&project, &backup.join("projA"), "it was meant");
    for name in ["projD", "projE", "projF", "proj\nG"] {
        put(&backup.join(name), "content");
    }
    let words = ["it holds \"proj\\nG\", \"projA\", \"projB\" and 4 more,"];
    check_refused_beside(sync(&project, &backup), scratch.path(), &words);
    let empty = scratch.dir("empty");
    check_refused_beside(sync(&empty, &backup), scratch.path(), &["empty"]);
}

#[test]
fn first_copy_beside_entries_of_another_host_is_refused() {
    only_local!("goes over ssh anyway");
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (project, backup) = projects(&scratch);
    let far = Far::root();
    for way in Way::ALL {
        let [_, to] = far.ends(way, &project, &backup.join("projA"));
        let meant = to.display().to_string();
        check_refused_beside(
            far.sync(way, &project, &backup),
            scratch.path(),
            &[&meant, "\"projB\", \"projC\""],
        );
        let copied = scratch.path().join("copied");
        for _ in 0..2 {
            let _ = far.sync_ok(way, &project, &copied, NONE);
        }
        fs::remove_dir_all(&copied).expect("removed");
    }
}

#[test]
fn wanted_copy_beside_other_entries_is_made() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (project, backup) = projects(&scratch);
    let _ = sync_ok(&project, &backup, ["--copy-into", "--dry-run"]);
    let copied = sync_ok(&project, &backup, ["--copy-into"]);
    assert_eq!(copied.count("only_on_replica"), 2);
    assert_eq!(
        names_below(&backup),
        [
            "a",
            "b",
            "b/c",
            "projB",
            "projB/a",
            "projC",
            "projC/b",
            "projC/b/c"
        ]
    );
    // From then on names are shared.
    put(&project.join("new"), "content");
    let _ = sync_ok(&project, &backup, NONE);
    let contradiction = sync(&project, &backup).args(["--copy-into", "--delete"]);
    check_refused(
        contradiction,
        2,
        scratch.path(),
        &["--copy-into", "--delete"],
    );
}

#[test]
fn interrupted_copy_beside_other_entries_goes_on() {
    only_local!("kills a run of this host");
    let (_scratch, src, dst) = stage();
    put(&src.join("large"), vec![1; 8 << 20]);
    put(&dst.join("precious"), "content");
    let running = sync(&src, &dst)
        .args(["--copy-into", "--bwlimit=1M"])
        .spawn();
    let marked = || {
        Command::new("getfattr")
            .args(["-n", "trusted.driftless.mark"])
            .arg(&dst)
            .output()
    };
    wait_until("it has begun", || {
        marked().expect("getfattr").status.success()
    });
    running.signal(Signal::KILL);
    let _killed = running.wait();
    assert!(!dst.join("large").exists(), "no name is shared");
    let _ = sync_ok(&src, &dst, NONE);
    assert_eq!(names_below(&dst), ["large", "precious"]);
}

#[test]
fn names_of_file_systems_are_no_other_entries() {
    let (scratch, src, _) = stage();
    put(&src.join("new"), "content");
    let unfinished = format!(".driftless-tmp-{:032x}/x", 7);
    for (number, name) in [
        "lost+found/x",
        ".Trash-1000/x",
        "$RECYCLE.BIN/x",
        "System Volume Information/x",
        ".snapshots/1/x",
        "aquota.user",
        ".driftless-trash/x",
        ".driftless-snapshots/x",
        &unfinished,
    ]
    .into_iter()
    .enumerate()
    {
        let dst = scratch.dir(&format!("dst-{number}"));
        put(&dst.join(name), "content");
        let _ = sync_ok(&src, &dst, NONE);
        assert!(dst.join("new").exists(), "{name}");
    }
}

#[test]
fn names_beside_a_tree_fail_when_asked() {
    for name in [".driftless-trash", ".driftless-snapshots"] {
        let (_scratch, src, dst) = stage();
        put(&src.join("file"), "content");
        put(&src.join("below").join(name).join("x"), "content");
        fs::create_dir(src.join(name)).expect("a folder");
        put(&src.join(name).join("x"), "content");
        let run = on_trees("sync", &src, &dst).arg("--refuse-set-aside");
        let told = run.run().expect(3).stderr_text();
        assert!(told.contains(name) && told.contains("rename"), "{told}");
        assert!(!dst.join(name).exists() && dst.join("file").exists());
        assert!(dst.join("below").join(name).join("x").exists());
        let _ = sync_ok(&src, &dst, NONE);
    }
}

#[test]
fn entries_that_the_user_leaves_out_refuse_nothing() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (project, backup) = projects(&scratch);
    put(&scratch.path().join("list"), "b\n");
    let list = format!("--files-from={}", scratch.path().join("list").display());
    for options in [&["--exclude=/proj*"][..], &["--exclude=*"], &[&list]] {
        let _ = sync_ok(&project, &backup, options.iter().chain([&"--dry-run"]));
    }
    let _ = sync_ok(&project, &backup, ["--exclude=/proj*"]);
}

#[test]
fn replica_takes_new_names_of_its_source_alone() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    turn_over(&src);
    let _ = sync_ok(&src, &dst, ["--dry-run"]);
    let _ = sync_ok(&src, &dst, NONE);
    assert_eq!(names_below(&dst), ["file", "new-file"]);
    fs::remove_file(src.join("new-file")).expect("removed");
    let _ = sync_ok(&src, &dst, NONE);
    let other = scratch.dir("other");
    put(&other.join("project"), "content");
    check_refused_beside(
        sync(&other, &dst),
        scratch.path(),
        &["\"file\", \"new-file\""],
    );
}

#[test]
fn nothing_is_begun_where_a_required_path_is_missing_on_one_side() {
    let (scratch, src, dst) = stage();
    put(&src.join("data/.mounted"), "");
    put(&src.join("new"), "content");
    put(&src.join("only-there"), "content");
    put(&dst.join("data/.mounted"), "");
    symlink("data", src.join("link")).expect("symlink");
    symlink("data", dst.join("link")).expect("symlink");
    let cases = [
        (vec!["--require=absent"], "the source: no such file"),
        (
            vec!["--require=data", "--require=only-there"],
            "the replica: no such file",
        ),
        (vec!["--require=link/.mounted"], "the source"),
        (vec!["--require=data/.mounted/x", "--dry-run"], "the source"),
    ];
    for (arguments, words) in cases {
        check_refused(
            sync(&src, &dst).args(arguments),
            13,
            scratch.path(),
            &["--require", words],
        );
    }
    check_refused(
        sync(&src, &scratch.path().join("fresh")).arg("--require=data"),
        13,
        scratch.path(),
        &["the replica"],
    );
    check_refused(
        sync(&src.join("new"), &scratch.path().join("fresh")).arg("--require=x"),
        13,
        scratch.path(),
        &["no directory"],
    );
    for outside in ["../dst", "/etc"] {
        check_refused(
            sync(&src, &dst).args(["--require", outside]),
            2,
            scratch.path(),
            &["--require"],
        );
    }
    let verify = |path: &str| {
        verify(&src, &dst)
            .args(["--require", path])
            .env("XDG_STATE_HOME", scratch.path())
    };
    check_refused(verify("absent"), 13, &src, &["--require"]);
    let _ = verify("data/.mounted").run().expect(4);
    let _ = sync_ok(&src, &dst, ["--require=./data/.mounted", "--require=link"]);
    check_equal(&src, &dst, "all was there");
    let _ = sync_ok(&src, &dst, NONE);
}

#[test]
fn what_only_the_replica_has_is_counted_and_kept() {
    let (scratch, src, dst) = stage();
    for path in ["a", "sub/b", "sub/listed/c", "x.o"] {
        put(&src.join(path), "content");
    }
    let run = |arguments: &[&str]| sync_ok(&src, &dst, arguments).count("only_on_replica");
    assert_eq!(run(&[]), 0, "the first copy");
    for path in ["old", "sub/old/1", "sub/old/2", "sub/listed/old", "more.o"] {
        put(&dst.join(path), "content");
    }
    put(&scratch.path().join("list"), "sub/listed\na\n");
    let from = format!("--files-from={}", scratch.path().join("list").display());
    for (arguments, count) in [
        (vec![], 4),
        (vec!["--dry-run"], 4),
        (vec!["--exclude=*.o"], 3),
        (vec!["--exclude=old/"], 3),
        (vec!["--exclude=/sub/"], 2),
        (vec![&from], 1),
        (vec!["--delete", "--dry-run"], 0),
    ] {
        assert_eq!(run(&arguments), count, "{arguments:?}");
    }
    let told = on_trees("sync", &src, &dst).run().expect(0).stdout_text();
    assert!(told.contains("; 4 extra on the replica, kept; "), "{told}");
    assert!(
        ["old", "sub/old/1", "more.o"]
            .iter()
            .all(|path| dst.join(path).exists())
    );
    let far = Far::root();
    for way in Way::ALL {
        assert_eq!(
            far.sync_ok(way, &src, &dst, NONE).count("only_on_replica"),
            4,
            "{way:?}"
        );
    }
    assert_eq!(run(&["--delete"]), 0);
    check_equal(&src, &dst, "all of it is gone");
}

#[test]
fn what_only_the_replica_has_in_a_large_directory_is_counted_without_a_look_at_each_name() {
    only_local!("counts calls of one process");
    const NAMES: usize = 20_000;
    let (scratch, src, dst) = stage();
    (0..NAMES).for_each(|number| fs::write(src.join(format!("name-{number}")), "").expect("write"));
    let _ = sync_ok(&src, &dst, NONE);
    (0..3).for_each(|number| put(&dst.join(format!("old-{number}")), "content"));
    for (arguments, count) in [
        (vec![], 3),
        (vec!["--exclude=old-1"], 2),
        (vec!["--delete"], 0),
    ] {
        let trace = scratch.path().join("trace");
        let strace = [
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=newfstatat,statx",
            "-o",
            trace.to_str().expect("text"),
        ];
        let outcome = sync(&src, &dst)
            .args(&arguments)
            .through(strace)
            .run()
            .expect(0);
        assert_eq!(outcome.count("only_on_replica"), count, "{arguments:?}");
        let looks = fs::read_to_string(&trace)
            .expect("trace")
            .lines()
            .filter(|line| line.contains("name-"))
            .count();
        // The guard of a first copy looks for a few names.
        assert!(
            (2 * NAMES..2 * NAMES + 20).contains(&looks),
            "each name is looked at once on each side, {arguments:?}: {looks}"
        );
    }
    check_equal(&src, &dst, "what was left went with --delete");
}
