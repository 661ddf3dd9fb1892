//! What a file system shows is not always what is there: a directory that lists without an error
//! and shows something else than its content is doubt, and no delete rests on it.
#![allow(clippy::disallowed_methods)]

mod common;

use common::encrypted::Encrypted;
use common::far::{Far, Way, over};
use common::mirror::Mirror;
use common::mounted::Mounted;
use common::movers::sync_on_hosts;
use common::{
    MARK_FILE, check_accounts, check_equal, driftless, names_below, on_trees, only_local, problems,
    put, sync, sync_ok, verify,
};
use driftless_testkit::{Driftless, FsKind, Fuse, Mood, Scratch, attrs, snapshot_hash};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const NONE: [&str; 0] = [];

/// A source with two encrypted directories, and a replica of it that was made with their key.
struct Homes {
    disk: Encrypted,
    src: PathBuf,
    dst: PathBuf,
    _scratch: Scratch,
}

impl Homes {
    fn new() -> Homes {
        let disk = Encrypted::new();
        let src = disk.path().join("homes");
        fill_homes(&disk, "homes");
        let scratch = Scratch::new(FsKind::Tmpfs, 64);
        let dst = scratch.path().join("dst");
        Homes {
            disk,
            src,
            dst,
            _scratch: scratch,
        }
    }
}

/// Fills `alice` with files, `bob` with what no look needs a key for, and `public` in clear text.
fn fill_homes(disk: &Encrypted, below: &str) {
    let alice = disk.dir(&format!("{below}/alice"));
    let bob = disk.dir(&format!("{below}/bob"));
    ["docs/1", "docs/2", "hello"]
        .into_iter()
        .for_each(|name| put(&alice.join(name), name));
    fs::create_dir_all(bob.join("a/b")).expect("directories");
    symlink("target", bob.join("a/link")).expect("a link");
    put(&disk.path().join(below).join("public/file"), "clear");
}

/// A subvolume of btrfs with another one in it, a snapshot of it, and a replica of the first.
struct Nested {
    snapshot: PathBuf,
    dst: PathBuf,
    _scratches: [Scratch; 2],
}

impl Nested {
    fn new() -> Nested {
        let (disk, scratch) = (
            Scratch::new(FsKind::Btrfs, 128),
            Scratch::new(FsKind::Tmpfs, 64),
        );
        let (volume, snapshot) = (disk.path().join("vol"), disk.path().join("snap"));
        let home = volume.join("home");
        btrfs(&["create"], &[&volume]);
        btrfs(&["create"], &[&home]);
        put(&home.join("photos"), "photos");
        put(&volume.join("etc"), "etc");
        let dst = scratch.path().join("dst");
        let _made = sync_ok(&volume, &dst, NONE);
        btrfs(&["snapshot", "-r"], &[&volume, &snapshot]);
        Nested {
            snapshot,
            dst,
            _scratches: [disk, scratch],
        }
    }
}

fn btrfs(words: &[&str], paths: &[&Path]) {
    let mut command = Command::new("btrfs");
    command.arg("subvolume").args(words).args(paths);
    let output = command.output().expect("btrfs runs");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Checks that a run tells these paths as problems, ends with exit code 3 and leaves the replica as
/// it was, but for the change time of its root: the mark there names the source.
fn check_doubted(run: Driftless, dst: &Path, paths: &[&str]) {
    let before = snapshot_hash(dst, false);
    let outcome = run.run().expect(3);
    let mut told = problems(&outcome);
    told.sort();
    assert_eq!(told, paths, "{}", outcome.describe());
    assert_eq!(outcome.count("deleted"), 0, "{}", outcome.describe());
    assert_eq!(snapshot_hash(dst, false), before, "{}", outcome.describe());
}

/// Returns all paths of a tree whose files cannot be opened, with their change times.
fn looks_of(root: &Path) -> Vec<(PathBuf, i64, i64)> {
    let all = driftless_testkit::mutate::list_all(root).expect("list");
    let look = |path: PathBuf| {
        let meta = fs::symlink_metadata(&path).expect("there");
        (path, meta.ctime(), meta.ctime_nsec())
    };
    all.into_iter().map(look).collect()
}

#[test]
fn locked_directory_is_not_taken_for_what_it_shows() {
    let homes = Homes::new();
    let (src, dst) = (&homes.src, &homes.dst);
    let _made = sync_ok(src, dst, NONE);
    check_equal(src, dst, "with the key");
    homes.disk.lock();
    for arguments in [
        &["--delete"][..],
        &["--delete", "--dry-run"],
        &["--delete", "--checksum"],
        &[],
    ] {
        check_doubted(sync(src, dst).args(arguments), dst, &["alice", "bob"]);
    }
    for arguments in [&[][..], &["--repair", "--delete"]] {
        check_doubted(verify(src, dst).args(arguments), dst, &["alice", "bob"]);
    }
    // Neither is a locked directory copied that the replica lacks.
    let new = dst.with_file_name("new");
    let outcome = sync(src, &new).run().expect(3);
    assert_eq!(problems(&outcome).len(), 2, "{}", outcome.describe());
    assert_eq!(names_below(&new), ["public", "public/file"]);
    homes.disk.unlock();
    let again = sync_ok(src, dst, ["--delete"]);
    assert_eq!(again.count("changed"), 0, "{}", again.describe());
}

#[test]
fn files_of_a_list_in_locked_directories_stay() {
    let homes = Homes::new();
    let (src, dst) = (&homes.src, &homes.dst);
    let _made = sync_ok(src, dst, NONE);
    homes.disk.lock();
    let list = dst.with_file_name("list");
    fs::write(&list, "alice/hello\nbob/a\npublic/file\n").expect("a list");
    let run = sync(src, dst)
        .arg("--files-from")
        .arg(&list)
        .arg("--delete");
    check_doubted(run, dst, &["alice", "bob"]);
}

#[test]
fn locked_directory_is_a_problem_of_audit_and_manifest() {
    let homes = Homes::new();
    let _made = sync_ok(&homes.src, &homes.dst, NONE);
    homes.disk.lock();
    let audit =
        on_trees("audit", &homes.src, &homes.dst).args(["--json", "--grace=0", "--samples=100"]);
    let outcome = audit.run().expect(3);
    let mut told = problems(&outcome);
    told.sort();
    assert_eq!(told, ["alice", "bob"], "{}", outcome.describe());
    let manifest = driftless().args(["sum", "--manifest"]).arg(&homes.src);
    let outcome = manifest.run().expect(3);
    let text = outcome.stderr_text();
    assert!(text.contains("its key is not there"), "{text}");
}

#[test]
fn locked_root_is_refused() {
    let homes = Homes::new();
    let (src, dst) = (homes.src.join("alice"), &homes.dst);
    let _made = sync_ok(&src, dst, NONE);
    homes.disk.lock();
    let before = snapshot_hash(dst, true);
    for (from, to) in [(&src, dst), (dst, &src)] {
        let refused = sync(from, to).arg("--delete").run().expect(1);
        let text = refused.stderr_text();
        // An agent confines itself to the roots that it can open.
        let is_told = text.contains("its key is not there") || over().is_some();
        assert!(is_told, "{text}");
    }
    assert_eq!(snapshot_hash(dst, true), before);
}

#[test]
fn locked_directory_of_the_replica_stays_untouched() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, disk) = (scratch.dir("src"), Encrypted::new());
    let dst = disk.path().join("homes");
    fill_homes(&disk, "homes");
    let _read = sync_ok(&dst, &src, NONE);
    disk.lock();
    let before = looks_of(&dst);
    put(&src.join("alice/new"), "new");
    fs::remove_dir_all(src.join("bob")).expect("removed");
    put(&src.join("bob"), "a file in its place");
    let outcome = sync(&src, &dst).arg("--delete").run().expect(3);
    let told = problems(&outcome);
    assert!(told.iter().any(|path| path == "alice"), "{told:?}");
    assert_eq!(outcome.count("deleted"), 0, "{}", outcome.describe());
    assert_eq!(looks_of(&dst), before, "{}", outcome.describe());
    fs::remove_file(src.join("bob")).expect("removed");
    let outcome = sync(&src, &dst).arg("--delete").run().expect(3);
    assert_eq!(outcome.count("deleted"), 0, "{}", outcome.describe());
    disk.unlock();
    assert!(dst.join("bob/a/link").is_symlink() && !dst.join("alice/new").exists());
}

#[test]
fn locked_directory_is_doubt_on_other_hosts() {
    only_local!("goes over ssh anyway");
    let homes = Homes::new();
    let (src, dst, far) = (&homes.src, &homes.dst, Far::root());
    let _made = sync_ok(src, dst, NONE);
    homes.disk.lock();
    for way in Way::ALL {
        let run = far.sync(way, src, dst).arg("--delete");
        check_doubted(run, dst, &["alice", "bob"]);
    }
    let state = snapshot_hash(&dst.join("alice"), true);
    let run = sync_on_hosts("far,far", &far.words(), src, dst).arg("--delete");
    let outcome = run.run().expect(3);
    check_accounts(&outcome);
    assert_eq!(outcome.count("deleted"), 0, "{}", outcome.describe());
    assert_eq!(snapshot_hash(&dst.join("alice"), true), state);
}

#[test]
fn mirror_does_not_follow_a_locked_directory() {
    let homes = Homes::new();
    let mut mirror = Mirror::of(&homes.src, "detect = [\"fanotify\"]\ndelete = true\n");
    mirror.barrier();
    // A mirror that runs has handles, and with them the kernel keeps the key of what is open.
    mirror.stop();
    let homes_of = ["alice", "bob"].map(|name| mirror.replica.join(name));
    let before = homes_of.each_ref().map(|home| snapshot_hash(home, true));
    homes.disk.lock();
    mirror.start();
    mirror.wait_for("problems", |problems| problems >= 2);
    let told = mirror.command("problems").run().expect(3).stdout_text();
    assert!(told.contains("its key is not there"), "{told}");
    let after = homes_of.each_ref().map(|home| snapshot_hash(home, true));
    assert_eq!(after, before);
}

#[test]
fn stub_of_a_nested_subvolume_empties_no_replica() {
    let nested = Nested::new();
    let (src, dst) = (&nested.snapshot, &nested.dst);
    for arguments in [&["--delete"][..], &["--delete", "--dry-run"], &[]] {
        check_doubted(sync(src, dst).args(arguments), dst, &["home"]);
    }
    for arguments in [&[][..], &["--repair", "--delete"]] {
        check_doubted(verify(src, dst).args(arguments), dst, &["home"]);
    }
    let told = sync(src, dst).run().expect(3);
    let problem = &told.events_named("problem")[0];
    let cause = problem["cause"].as_str().expect("a cause");
    assert!(cause.contains("in the place of this subvolume"), "{cause}");
    let _equal = sync_ok(src, dst, ["--delete", "--exclude=/home"]);
    assert!(dst.join("home/photos").exists());
}

#[test]
fn stub_of_a_nested_subvolume_is_left_out_with_x() {
    let nested = Nested::new();
    let (src, dst) = (&nested.snapshot, &nested.dst);
    let outcome = sync_ok(src, dst, ["--delete", "--one-file-system"]);
    let skipped = outcome.count("skipped_other_file_system");
    assert_eq!(skipped, 1, "{}", outcome.describe());
    assert!(dst.join("home/photos").exists());
    let _equal = verify(src, dst).arg("--one-file-system").run().expect(0);
    let new = dst.with_file_name("new");
    let _made = sync_ok(src, &new, ["--one-file-system"]);
    if over().is_none() {
        assert_eq!(names_below(&new), ["etc", "home"]);
    }
}

#[test]
fn stub_of_a_nested_subvolume_makes_no_manifest_differ() {
    let nested = Nested::new();
    let (src, dst) = (&nested.snapshot, &nested.dst);
    let manifest = || {
        let run = driftless().args(["sum", "--manifest"]).arg(src);
        run.run().expect(3).stdout_text()
    };
    assert_eq!(manifest(), manifest());
    let audit = on_trees("audit", src, dst).args(["--json", "--grace=0", "--samples=100"]);
    let outcome = audit.run().expect(3);
    assert_eq!(problems(&outcome), ["home"], "{}", outcome.describe());
}

/// Makes a source with a file and a directory, on which a test mounts something, and a replica.
fn with_mount_point() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    put(&src.join("point/kept"), "content");
    let _made = sync_ok(&src, &dst, NONE);
    (scratch, src, dst)
}

/// Checks that what is mounted at `point` is doubt to each command, and is left out with `-x`.
fn check_doubted_point(src: &Path, dst: &Path) {
    for arguments in [&["--delete"][..], &[]] {
        check_doubted(sync(src, dst).args(arguments), dst, &["point"]);
    }
    check_doubted(verify(src, dst), dst, &["point"]);
    let audit = on_trees("audit", src, dst).args(["--json", "--grace=0", "--samples=100"]);
    let outcome = audit.run().expect(3);
    assert_eq!(problems(&outcome), ["point"], "{}", outcome.describe());
    let manifest = driftless().args(["sum", "--manifest"]).arg(src);
    let _told = manifest.run().expect(3);
    let _left_out = sync_ok(src, dst, ["--delete", "--one-file-system"]);
    assert!(dst.join("point/kept").exists());
    let new = dst.with_file_name("new");
    let _made = sync_ok(src, &new, ["--one-file-system"]);
    assert_eq!(names_below(&new), ["file", "point"]);
}

#[test]
fn file_system_of_the_kernel_is_doubt() {
    only_local!("is about mounts of this host");
    for kind in ["proc", "sysfs", "devpts"] {
        let (_scratch, src, dst) = with_mount_point();
        let point = src.join("point");
        let _mounted = Mounted::with(["-t", kind, kind], &point);
        check_doubted_point(&src, &dst);
    }
}

#[test]
fn automount_point_with_nothing_mounted_is_doubt() {
    only_local!("is about mounts of this host");
    let (_scratch, src, dst) = with_mount_point();
    // The daemon of this one is a pipe that hears nothing.
    let mount = "exec 9> >(sleep 600 & echo $! > \"$2\"; wait); mount -t autofs \
        -o fd=9,pgrp=$$,minproto=5,maxproto=5,indirect driftless-auto \"$1\"";
    let daemon = dst.with_file_name("daemon");
    let status = Command::new("bash")
        .args(["-c", mount, "bash"])
        .args([&src.join("point"), &daemon])
        .status();
    assert!(status.expect("bash runs").success());
    let _mounted = Mounted::found(&src.join("point"));
    check_doubted_point(&src, &dst);
}

#[test]
fn whiteout_is_copied_as_a_device() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        src.join("gone"),
        rustix::fs::FileType::CharacterDevice,
        mode,
        0,
    )
    .expect("a whiteout");
    let opaque = src.join("opaque");
    fs::create_dir(&opaque).expect("a directory");
    attrs::set_xattr(&opaque, b"trusted.overlay.opaque", b"y").expect("an attribute");
    let _made = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "as it looks");
}

#[test]
fn file_without_blocks_is_read() {
    let fuse = Fuse::mount(Mood {
        blocks: false,
        ..Mood::healthy()
    });
    let (src, scratch) = (fuse.dir("src"), Scratch::new(FsKind::Tmpfs, 64));
    put(&src.join("small"), "content");
    put(&src.join("large"), vec![7; 9 << 20]);
    let large = fs::metadata(src.join("large")).expect("there");
    assert_eq!((large.blocks(), large.len()), (0, 9 << 20));
    let dst = scratch.path().join("dst");
    let _made = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "its content was fetched");
    let _equal = verify(&src, &dst).run().expect(0);
}

/// A source with links of user 4321 to what lies outside of the replica, and that.
struct Links {
    src: PathBuf,
    victims: [PathBuf; 2],
    _scratch: Scratch,
}

impl Links {
    fn new() -> Links {
        let scratch = Scratch::new(FsKind::Tmpfs, 64);
        let src = scratch.dir("src");
        put(&src.join("target"), "inside");
        let victims = ["victim", "other"].map(|name| {
            let victim = scratch.path().join(name);
            put(&victim, "secret");
            attrs::set_mode(&victim, 0o600).expect("a mode");
            victim
        });
        let links = [
            ("absolute", victims[0].as_path()),
            ("beside", &victims[1]),
            ("dir/inside", Path::new("../target")),
            ("dangling", Path::new("nothing")),
        ];
        for (name, target) in links {
            let link = src.join(name);
            fs::create_dir_all(link.parent().expect("a directory")).expect("a directory");
            symlink(target, &link).expect("a link");
            attrs::set_owner(&link, 4321, 4321).expect("an owner");
            attrs::set_mtime(&link, 1_400_000_000, 0).expect("a time");
        }
        Links {
            src,
            victims,
            _scratch: scratch,
        }
    }

    /// Returns owners and times of what the links lead to outside of the replica.
    fn state(&self) -> Vec<(u32, u32, i64, i64)> {
        let look = |path: &PathBuf| {
            let meta = fs::metadata(path).expect("there");
            (meta.uid(), meta.gid(), meta.mtime(), meta.ctime_nsec())
        };
        self.victims.iter().map(look).collect()
    }

    /// Syncs to a file system that follows links, and looks at what they lead to.
    fn check(&self, dst: &Path, behind: &Path) {
        let before = self.state();
        let outcome = sync_ok(&self.src, dst, NONE);
        assert_eq!(outcome.count("unkept_links"), 4, "{}", outcome.describe());
        assert_eq!(outcome.count("unkept_owners"), 0, "{}", outcome.describe());
        assert_eq!(self.state(), before, "{}", outcome.describe());
        let inside = fs::metadata(behind.join("target")).expect("there");
        let meant = fs::metadata(self.src.join("target")).expect("there");
        assert_eq!((inside.uid(), inside.mtime()), (meant.uid(), meant.mtime()));
        let names = [
            "absolute",
            "beside",
            "dangling",
            "dir",
            "dir/inside",
            "target",
        ];
        let mut all = names_below(behind);
        all.retain(|name| name != MARK_FILE);
        assert_eq!(all, names);
        let demanded = dst.with_file_name("demanded");
        let outcome = sync(&self.src, &demanded).arg("--owner").run().expect(3);
        assert_eq!(problems(&outcome).len(), 4, "{}", outcome.describe());
        assert_eq!(self.state(), before, "{}", outcome.describe());
    }
}

#[test]
fn links_give_their_attributes_to_nothing_outside() {
    let (links, fuse) = (
        Links::new(),
        Fuse::mount(Mood {
            follows_links: true,
            ..Mood::healthy()
        }),
    );
    let dst = fuse.path().join("dst");
    links.check(&dst, &fuse.backing().join("dst"));
    let before = links.state();
    let again = sync_ok(&links.src, &dst, NONE);
    assert_eq!(again.count("unkept_links"), 4, "{}", again.describe());
    assert_eq!(links.state(), before, "{}", again.describe());
}

#[test]
fn links_keep_their_attributes_on_a_good_server() {
    let (links, fuse) = (Links::new(), Fuse::mount(Mood::healthy()));
    let dst = fuse.path().join("dst");
    let outcome = sync_ok(&links.src, &dst, NONE);
    assert_eq!(outcome.count("unkept_links"), 0, "{}", outcome.describe());
    check_equal(&links.src, &dst, "links have their owners and times");
}

/// Mounts a directory of this machine by sshfs.
fn sshfs(far: &Far, backing: &Path, at: &Path) -> Mounted {
    fs::create_dir_all(at).expect("mount point");
    let status = Command::new("sshfs")
        .arg("-o")
        .arg(format!("ssh_command={}", far.words()))
        .arg(far.path(backing))
        .arg(at)
        .status();
    assert!(status.expect("sshfs runs").success());
    Mounted::found(at)
}

#[test]
fn links_on_sshfs_give_their_attributes_to_nothing() {
    only_local!("is about mounts of this host");
    let (links, far) = (Links::new(), Far::root());
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (backing, at) = (scratch.dir("backing"), scratch.path().join("mnt"));
    let _mounted = sshfs(&far, &backing, &at);
    links.check(&at.join("dst"), &backing.join("dst"));
}

#[test]
fn hard_links_on_sshfs_are_told_with_their_cause() {
    only_local!("is about mounts of this host");
    let far = Far::root();
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, backing) = (scratch.dir("src"), scratch.dir("backing"));
    put(&src.join("a"), "content");
    ["b", "c"].into_iter().for_each(|name| {
        fs::hard_link(src.join("a"), src.join(name)).expect("a hard link");
    });
    let at = scratch.path().join("mnt");
    let _mounted = sshfs(&far, &backing, &at);
    let outcome = sync(&src, &at.join("dst")).run().expect(3);
    let told = outcome.events_named("problem");
    assert_eq!(told.len(), 2, "{}", outcome.describe());
    for problem in told {
        let cause = problem["cause"].as_str().expect("a cause");
        assert!(cause.contains("another inode number"), "{cause}");
    }
    let _made = sync_ok(&src, &at.join("new"), ["--no-hard-links"]);
}

/// Checks that each row of the table names a test that is there, or a reason why there is none.
#[test]
fn each_case_of_the_page_has_a_test() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(crate_root.join("../../docs/guards.md")).expect("the page");
    let (_, section) = page
        .split_once("## What a file system shows is not always what is there")
        .expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let rows: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    assert!(rows.len() > 10, "{section}");
    for row in &rows[2..] {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, decided, test] = cells[..] else {
            panic!("three cells: {row}")
        };
        let words = [
            "doubt",
            "problem",
            "read",
            "copied",
            "hidden",
            "the mounted",
        ];
        assert!(words.iter().any(|word| decided.starts_with(word)), "{row}");
        if test
            .strip_prefix("none: ")
            .is_some_and(|why| !why.is_empty())
        {
            continue;
        }
        let names: Vec<&str> = test.split('`').skip(1).step_by(2).collect();
        let [file, name] = names[..] else {
            panic!("a file and a test: {row}")
        };
        let source = fs::read_to_string(crate_root.join("tests").join(file)).expect(file);
        assert!(source.contains(&format!("fn {name}()")), "{row}");
    }
}
