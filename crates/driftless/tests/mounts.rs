//! What is mounted below the source, and is missed when it is not there any more; and what is
//! mounted in the replica, and is left alone.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way};
use common::mounted::Mounted;
use common::movers::sync_on_hosts;
use common::{
    check_accounts, check_equal, names_below, only_local, problems, put, sync, verify, wait_until,
};
use driftless_testkit::{Driftless, FsKind, Scratch, attrs, snapshot_hash};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

fn stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 256);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    (scratch, src, dst)
}

/// A pair of trees whose runs keep their notes in a folder of their own; a file system is mounted
/// at `data/disk` of the source.
struct Pair {
    disk: Option<Mounted>,
    src: PathBuf,
    dst: PathBuf,
    scratch: Scratch,
}

impl Pair {
    fn new() -> Pair {
        let (scratch, src, dst) = stage();
        put(&src.join("top"), "content");
        put(&src.join("data/file"), "content");
        let disk = Some(Mounted::tmpfs(&src.join("data/disk")));
        put(&src.join("data/disk/a/b"), "content");
        Pair {
            scratch,
            src,
            dst,
            disk,
        }
    }

    fn noted(&self, run: Driftless) -> Driftless {
        run.env("XDG_STATE_HOME", self.scratch.path().join("state"))
    }

    fn run(&self, arguments: &[&str]) -> Driftless {
        self.noted(sync(&self.src, &self.dst)).args(arguments)
    }

    fn ok(&self, arguments: &[&str]) {
        check_accounts(&self.run(arguments).run().expect(0));
    }

    /// The file system is missed, whichever way the trees are synced, and the replica of it is left
    /// alone.
    fn check_missed(&self, run: Driftless, path: &str) {
        let before = snapshot_hash(&self.dst.join("data/disk"), true);
        let outcome = run.run().expect(3);
        check_accounts(&outcome);
        assert_eq!(problems(&outcome), [path], "{}", outcome.describe());
        assert!(
            outcome.stderr_text().contains("--forget-mounts"),
            "{}",
            outcome.describe()
        );
        assert_eq!(outcome.count("deleted"), 0, "{}", outcome.describe());
        assert_eq!(
            snapshot_hash(&self.dst.join("data/disk"), true),
            before,
            "{}",
            outcome.describe()
        );
    }
}

#[test]
fn a_file_system_that_was_mounted_in_an_earlier_run_and_is_not_now_is_doubt_and_not_absence() {
    let mut pair = Pair::new();
    let deletes = |pair: &Pair| pair.run(&["--delete"]);
    pair.ok(&[]);
    pair.ok(&["--delete"]);
    drop(pair.disk.take());
    // The file that lies below the mount point is none of the source's that was there.
    put(&pair.src.join("data/disk/beneath"), "content");
    pair.check_missed(pair.run(&[]), "data/disk");
    pair.check_missed(pair.run(&["--delete", "--dry-run"]), "data/disk");
    pair.check_missed(pair.run(&["--delete", "-x"]), "data/disk");
    // A slash at the end says nothing.
    let slashed = [&pair.src, &pair.dst].map(|path| path.join(""));
    pair.check_missed(
        pair.noted(sync(&slashed[0], &slashed[1]).arg("--delete")),
        "data/disk",
    );
    let verify = verify(&pair.src, &pair.dst);
    pair.check_missed(pair.noted(verify), "data/disk");
    fs::remove_dir_all(pair.src.join("data/disk")).expect("remove");
    pair.check_missed(deletes(&pair), "data/disk");
    pair.check_missed(pair.run(&[]), "data/disk");
    fs::remove_dir_all(pair.src.join("data")).expect("remove");
    pair.check_missed(deletes(&pair), "data");
    // What is left out is not missed, and is still there when it is taken again.
    pair.ok(&["--delete", "--exclude=/data"]);
    pair.check_missed(deletes(&pair), "data");
    put(&pair.src.join("data/file"), "content");
    pair.disk = Some(Mounted::tmpfs(&pair.src.join("data/disk")));
    put(&pair.src.join("data/disk/a/c"), "content");
    pair.ok(&["--delete"]);
    check_equal(&pair.src, &pair.dst, "another file system is mounted there");
}

#[test]
fn what_a_run_that_was_killed_had_met_is_missed() {
    only_local!("kills a run of this host");
    let mut pair = Pair::new();
    // Whichever of them is the first, the others keep the run busy for seconds.
    (0..8).for_each(|number| {
        put(
            &pair.src.join(format!("data/disk/slow/{number}")),
            vec![7; 2 << 20],
        )
    });
    let running = pair.run(&["--jobs=1", "--bwlimit=1M"]).spawn();
    let copied =
        || fs::read_dir(pair.dst.join("data/disk/slow")).is_ok_and(|list| list.count() > 0);
    wait_until("it has begun to copy what is mounted", copied);
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code(), 137);
    drop(pair.disk.take());
    let before = snapshot_hash(&pair.dst.join("data/disk"), true);
    let outcome = pair.run(&["--delete"]).run().expect(3);
    assert_eq!(
        (problems(&outcome), outcome.count("deleted")),
        (vec!["data/disk".to_owned()], 0),
        "{}",
        outcome.describe()
    );
    assert_eq!(
        snapshot_hash(&pair.dst.join("data/disk"), true),
        before,
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_file_system_is_missed_whichever_way_the_trees_are_named() {
    let mut pair = Pair::new();
    let link = pair.scratch.path().join("link");
    symlink(pair.scratch.path(), &link).expect("symlink");
    let by_link = |pair: &Pair, dst: &str| pair.noted(sync(&link.join("src"), &link.join(dst)));
    check_accounts(&by_link(&pair, "dst").run().expect(0));
    // A replica that is made by this run is found by its real path, too.
    check_accounts(&by_link(&pair, "new").run().expect(0));
    drop(pair.disk.take());
    pair.check_missed(pair.run(&["--delete"]), "data/disk");
    pair.check_missed(by_link(&pair, "dst").arg("--delete"), "data/disk");
    pair.dst = pair.scratch.path().join("new");
    pair.check_missed(pair.run(&["--delete"]), "data/disk");
}

#[test]
fn a_file_system_that_is_gone_for_good_is_forgotten_when_that_is_said() {
    let mut pair = Pair::new();
    pair.ok(&[]);
    drop(pair.disk.take());
    pair.ok(&["--delete", "--forget-mounts", "--dry-run"]);
    pair.check_missed(pair.run(&["--delete"]), "data/disk");
    pair.ok(&["--delete", "--forget-mounts"]);
    check_equal(&pair.src, &pair.dst, "it is gone");
    assert_eq!(
        fs::read_dir(pair.scratch.path().join("state/driftless"))
            .expect("state")
            .count(),
        0,
        "no note is left"
    );
    pair.ok(&["--delete"]);
}

#[test]
fn only_what_a_run_copied_from_a_mounted_file_system_is_missed() {
    let mut pair = Pair::new();
    pair.ok(&["-x"]);
    let other = pair.scratch.path().join("other");
    let _ = pair.noted(sync(&pair.src, &other)).run().expect(0);
    drop(pair.disk.take());
    pair.ok(&["--delete"]);
    assert_eq!(
        problems(
            &pair
                .noted(sync(&pair.src, &other))
                .arg("--delete")
                .run()
                .expect(3)
        ),
        ["data/disk"]
    );
    let no_folder = sync(&pair.src, &other)
        .arg("--delete")
        .env("XDG_STATE_HOME", "")
        .env("HOME", "");
    check_accounts(&no_folder.run().expect(0));
    assert!(
        !other.join("data/disk/a").exists(),
        "without notes nothing is known"
    );
}

#[test]
fn something_else_in_the_place_of_a_mounted_file_system_does_not_replace_its_copy() {
    let mut pair = Pair::new();
    pair.ok(&[]);
    drop(pair.disk.take());
    fs::remove_dir(pair.src.join("data/disk")).expect("remove");
    symlink("/elsewhere", pair.src.join("data/disk")).expect("symlink");
    pair.check_missed(pair.run(&["--delete"]), "data/disk");
    pair.ok(&["--delete", "--forget-mounts"]);
    check_equal(&pair.src, &pair.dst, "it is a link now");
}

#[test]
fn a_subvolume_that_was_removed_is_absent() {
    let disk = Scratch::new(FsKind::Btrfs, 256);
    let (scratch, _, dst) = stage();
    let subvolume = |act: &str| {
        let done = Command::new("btrfs")
            .args(["-q", "subvolume", act])
            .arg(disk.path().join("a/volume"))
            .output()
            .expect("btrfs starts");
        assert!(done.status.success(), "{done:?}");
    };
    put(&disk.path().join("a/file"), "content");
    subvolume("create");
    put(&disk.path().join("a/volume/file"), "content");
    let run = || {
        sync(disk.path(), &dst)
            .arg("--delete")
            .env("XDG_STATE_HOME", scratch.path().join("state"))
    };
    check_accounts(&run().run().expect(0));
    assert!(dst.join("a/volume/file").exists());
    subvolume("delete");
    check_accounts(&run().run().expect(0));
    assert_eq!(names_below(&dst), ["a", "a/file"]);
}

#[test]
fn a_subvolume_is_copied_as_a_directory_and_left_out_as_another_file_system() {
    let disk = Scratch::new(FsKind::Btrfs, 256);
    let (_scratch, _, dst) = stage();
    let btrfs = |arguments: &[&str]| {
        let done = Command::new("btrfs")
            .args(["-q", "subvolume"])
            .args(arguments)
            .current_dir(disk.path())
            .output()
            .expect("btrfs starts");
        assert!(done.status.success(), "{done:?}");
    };
    btrfs(&["create", "volume"]);
    put(&disk.path().join("volume/file"), "content");
    btrfs(&["snapshot", "-r", "volume", "snapshot"]);
    let left_out = sync(disk.path(), &dst)
        .arg("--one-file-system")
        .run()
        .expect(0);
    check_accounts(&left_out);
    assert_eq!(
        left_out.count("skipped_other_file_system"),
        2,
        "{}",
        left_out.describe()
    );
    assert_eq!(names_below(&dst), ["snapshot", "volume"]);
    check_accounts(&sync(disk.path(), &dst).run().expect(0));
    assert_eq!(
        names_below(&dst),
        ["snapshot", "snapshot/file", "volume", "volume/file"]
    );
    let again = sync(disk.path(), &dst).run().expect(0);
    assert_eq!(again.count("changed"), 0, "{}", again.describe());
}

#[test]
fn mounted_file_systems_are_missed_on_other_hosts_too() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    for way in Way::ALL {
        let mut pair = Pair::new();
        let run = |pair: &Pair| {
            pair.noted(far.sync(way, &pair.src, &pair.dst))
                .arg("--delete")
        };
        check_accounts(&run(&pair).run().expect(0));
        drop(pair.disk.take());
        pair.check_missed(run(&pair), "data/disk");
        fs::remove_dir(pair.src.join("data/disk")).expect("remove");
        pair.check_missed(run(&pair), "data/disk");
    }
}

#[test]
fn movers_miss_mounted_file_systems_and_count_what_is_kept() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    let mut pair = Pair::new();
    let run =
        |pair: &Pair| pair.noted(sync_on_hosts("far,far", &far.words(), &pair.src, &pair.dst));
    check_accounts(&run(&pair).run().expect(0));
    put(&pair.dst.join("data/old/1"), "content");
    assert_eq!(run(&pair).run().expect(0).count("only_on_replica"), 1);
    let listed = pair.scratch.path().join("list");
    put(&listed, "data\n");
    fs::create_dir(pair.src.join("inner")).expect("dir");
    let inner = sync_on_hosts("far,far", &far.words(), &pair.src, &pair.src.join("inner"))
        .arg("--files-from")
        .arg(&listed);
    check_accounts(&inner.run().expect(0));
    fs::remove_dir_all(pair.src.join("inner")).expect("remove");
    fs::remove_dir_all(pair.dst.join("data/old")).expect("remove");
    drop(pair.disk.take());
    pair.check_missed(run(&pair).arg("--delete"), "data/disk");
    fs::remove_dir(pair.src.join("data/disk")).expect("remove");
    pair.check_missed(run(&pair).arg("--delete"), "data/disk");
}

#[test]
fn movers_miss_what_is_mounted_on_the_host_of_the_coordinator_alone() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    let mut pair = Pair::new();
    drop(pair.disk.take());
    put(&pair.dst.join("data/disk/a"), "content");
    let disk = pair.src.join("data/disk");
    let mounts = r#"mount -t tmpfs driftless-inner "$0" && exec "$@""#;
    let here = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        mounts,
    ]
    .map(OsStr::new)
    .into_iter()
    .chain([disk.as_os_str()]);
    let run = sync_on_hosts("far,far", &far.words(), &pair.src, &pair.dst).through(here);
    pair.check_missed(pair.noted(run).arg("--delete"), "data/disk");
}

#[test]
fn a_run_forgets_only_what_it_has_looked_at_and_found_gone() {
    let mut pair = Pair::new();
    let list = pair.scratch.path().join("list");
    put(&list, "top\n");
    let from = format!("--files-from={}", list.to_str().expect("text"));
    let mut kept = vec![Mounted::tmpfs(&pair.src.join("outer"))];
    kept.push(Mounted::tmpfs(&pair.src.join("outer/inner")));
    put(&pair.src.join("outer/inner/file"), "content");
    pair.ok(&[]);
    drop(pair.disk.take());
    for blind in ["--exclude=/data", "--exclude=disk", &from] {
        pair.ok(&["--forget-mounts", blind]);
        pair.check_missed(pair.run(&["--delete"]), "data/disk");
    }
    let inner = kept.pop();
    drop(inner);
    pair.ok(&["--forget-mounts", "--exclude=/outer"]);
    let outcome = pair
        .run(&["--delete", "--forget-mounts", "-x"])
        .run()
        .expect(0);
    assert!(
        !pair.dst.join("data/disk/a").exists(),
        "{}",
        outcome.describe()
    );
    let outcome = pair.run(&["--delete"]).run().expect(3);
    assert_eq!(
        problems(&outcome),
        ["outer/inner"],
        "this run has not looked there\n{}",
        outcome.describe()
    );
    pair.ok(&["--delete", "--forget-mounts"]);
    kept.clear();
    assert_eq!(
        problems(&pair.run(&["--delete"]).run().expect(3)),
        ["outer"],
        "it was there when the others were forgotten"
    );
}

#[test]
fn a_directory_that_was_mounted_at_a_second_place_is_missed_like_a_file_system() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    for (over, arguments) in [
        (None, vec![]),
        (None, vec!["-x"]),
        (Some(Way::Push), vec![]),
        (Some(Way::Pull), vec![]),
    ] {
        let mut pair = Pair::new();
        drop(pair.disk.take());
        let other = pair.scratch.dir("other");
        put(&other.join("a/b"), "content");
        pair.disk = Some(Mounted::bind(&other, &pair.src.join("data/disk")));
        let run = |pair: &Pair| match over {
            None => pair.run(&arguments).arg("--delete"),
            Some(way) => pair
                .noted(far.sync(way, &pair.src, &pair.dst))
                .arg("--delete"),
        };
        check_accounts(&run(&pair).run().expect(0));
        check_accounts(&run(&pair).run().expect(0));
        assert!(pair.dst.join("data/disk/a/b").exists());
        drop(pair.disk.take());
        pair.check_missed(run(&pair), "data/disk");
        pair.check_missed(run(&pair).arg("--dry-run"), "data/disk");
        fs::remove_dir(pair.src.join("data/disk")).expect("remove");
        pair.check_missed(run(&pair), "data/disk");
    }
}

#[test]
fn a_dry_run_ends_as_the_run_would() {
    let mut pair = Pair::new();
    pair.ok(&["--dry-run"]);
    drop(pair.disk.take());
    // A dry run keeps no notes, so what only it has met is not missed.
    pair.ok(&[]);
    pair.disk = Some(Mounted::tmpfs(&pair.src.join("data/disk")));
    put(&pair.src.join("data/disk/a/b"), "content");
    pair.ok(&[]);
    drop(pair.disk.take());
    put(&pair.dst.join("old"), "content");
    for (arguments, code) in [
        (&["--delete", "--max-delete=0"][..], 13),
        (&["--delete"], 3),
        (&["--delete", "--require=old"], 13),
    ] {
        let [dry, real] =
            [&["--dry-run"][..], &[]].map(|more| pair.run(arguments).args(more).run().expect(code));
        assert_eq!(problems(&dry), problems(&real), "{arguments:?}");
        assert_eq!(dry.stderr_text(), real.stderr_text(), "{arguments:?}");
    }
    fs::remove_dir_all(&pair.src).expect("remove");
    fs::create_dir(&pair.src).expect("dir");
    for arguments in [&["--delete", "--dry-run"][..], &["--delete"]] {
        let _ = pair.run(arguments).run().expect(13);
    }
}

#[test]
fn a_file_that_is_mounted_over_one_of_the_replica_is_left_alone_and_told() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let _ = sync(&src, &dst).run().expect(0);
    let other = scratch.path().join("other");
    let _ = sync(&src.join("file"), &other).run().expect(0);
    let _bound = Mounted::bind(&other, &dst.join("file"));
    attrs::set_mode(&src.join("file"), 0o640).expect("chmod");
    attrs::set_owner(&src.join("file"), 7, 8).expect("chown");
    attrs::set_xattr(&src.join("file"), b"user.new", b"value").expect("set");
    for change in [None, Some("other content")] {
        change
            .into_iter()
            .for_each(|content| put(&src.join("file"), content));
        let before = snapshot_hash(&other, true);
        let outcome = sync(&src, &dst).run().expect(3);
        check_accounts(&outcome);
        assert_eq!(problems(&outcome), ["file"], "{}", outcome.describe());
        assert_eq!(
            snapshot_hash(&other, true),
            before,
            "it belongs to another place\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn a_file_that_is_mounted_over_a_further_name_of_a_hard_link_is_told() {
    let (scratch, src, dst) = stage();
    put(&src.join("a"), "content");
    fs::hard_link(src.join("a"), src.join("b")).expect("link");
    let _ = sync(&src, &dst).run().expect(0);
    let other = scratch.path().join("other");
    put(&other, "something else");
    let _bound = Mounted::bind(&other, &dst.join("b"));
    let far = Far::root();
    for run in [
        sync(&src, &dst),
        sync(&src, &dst).arg("--checksum"),
        far.sync(Way::Push, &src, &dst),
    ] {
        let outcome = run.run().expect(3);
        check_accounts(&outcome);
        assert_eq!(problems(&outcome), ["b"], "{}", outcome.describe());
        assert_eq!(
            fs::read(&other).expect("read"),
            b"something else",
            "it belongs to another place"
        );
    }
}

#[test]
fn notes_that_cannot_be_read_are_doubt_until_they_are_forgotten() {
    let mut pair = Pair::new();
    let state = pair.scratch.path().join("state/driftless");
    pair.ok(&[]);
    drop(pair.disk.take());
    let notes = fs::read_dir(&state)
        .expect("state")
        .next()
        .expect("notes")
        .expect("an entry")
        .path();
    let whole = fs::read(&notes).expect("read");
    let verify = |pair: &Pair| pair.noted(verify(&pair.src, &pair.dst));
    for damaged in [
        &whole[..0],
        &whole[..10],
        &whole[..whole.len() - 3],
        &[0; 100],
    ] {
        fs::write(&notes, damaged).expect("write");
        let before = snapshot_hash(&pair.dst, true);
        for run in [
            pair.run(&["--delete"]),
            pair.run(&["--delete", "--dry-run"]),
            pair.run(&[]),
            verify(&pair),
        ] {
            let refused = run.run().expect(13);
            let text = refused.stderr_text();
            assert!(
                text.contains("mounts-") && text.contains("--forget-mounts"),
                "{}",
                refused.describe()
            );
            assert_eq!(
                snapshot_hash(&pair.dst, true),
                before,
                "{}",
                refused.describe()
            );
            assert_eq!(
                fs::read(&notes).expect("read"),
                damaged,
                "the doubt is kept\n{}",
                refused.describe()
            );
        }
    }
    pair.ok(&["--delete", "--forget-mounts"]);
    check_equal(&pair.src, &pair.dst, "it is gone for good");
    assert_eq!(
        fs::read_dir(&state).expect("state").count(),
        0,
        "no note is left"
    );
}

#[test]
fn what_cannot_be_noted_is_told() {
    let pair = Pair::new();
    // A folder that cannot be made below a file.
    let no_folder = pair.run(&[]).env("XDG_STATE_HOME", pair.src.join("top"));
    let outcome = no_folder.run().expect(0);
    assert!(
        outcome.stderr_text().contains("cannot be noted"),
        "{}",
        outcome.describe()
    );
    let noted = pair.run(&[]).run().expect(0);
    assert!(
        !noted.stderr_text().contains("cannot be noted"),
        "{}",
        noted.describe()
    );
}

#[test]
fn source_shown_within_its_replica_is_not_deleted() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (dst, shown) = (scratch.dir("dst"), scratch.dir("shown"));
    let hidden = dst.join("projects/keep/precious");
    put(&dst.join("projects/a/file"), "content");
    put(&dst.join("a/file"), "content");
    put(&hidden, "excluded, so that no copy exists");
    let _bound = Mounted::bind(&dst.join("projects"), &shown);
    for dry_run in [true, false] {
        let run = sync(&shown, &dst).args(["--delete", "--exclude", "/keep/"]);
        let run = if dry_run { run.arg("--dry-run") } else { run };
        let outcome = run.run().expect(3);
        let text = outcome.describe();
        assert!(text.contains("remove the source of this run"), "{text}");
        assert!(
            hidden.exists() && dst.join("projects/a/file").exists(),
            "{text}"
        );
    }
}
