//! What a file system answers is heard: attributes that are its own, what it says at close, reads
//! that end too early, leases, bits that it drops, files that their owner may not read.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way, Who};
use common::lease::Lease;
use common::mounted::Mounted;
use common::{
    USER, check_accounts, check_equal, check_settled, driftless, on_trees, on_trees_by_user,
    only_local, put, sync, sync_by_user, sync_ok, verify, wait_until, while_disturbed,
};
use driftless_testkit::fuse::{Fuse, Mood, Op, Rule};
use driftless_testkit::{Driftless, FsKind, Outcome, Scratch, attrs};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const NONE: [&str; 0] = [];
/// A file system's answer that never changes: files with the size of a page and less in them.
const SYSFS: &str = "/sys/kernel/mm/transparent_hugepage";

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        .mode()
        & 0o7777
}

/// The acts of all problems of one path.
fn acts_on(outcome: &Outcome, path: &str) -> Vec<String> {
    let problems = outcome
        .events_named("problem")
        .into_iter()
        .filter(|problem| problem["path"] == path);
    problems
        .map(|problem| problem["act"].as_str().expect("text").to_owned())
        .collect()
}

/// A file with an access ACL, a directory with both kinds.
fn put_acls(root: &Path) {
    put(&root.join("file"), "content");
    fs::create_dir(root.join("dir")).expect("make");
    let blob = attrs::acl_blob((1234, 6), (4321, 0), 0);
    for (name, attribute) in [
        ("file", attrs::ACL_ACCESS),
        ("dir", attrs::ACL_ACCESS),
        ("dir", attrs::ACL_DEFAULT),
    ] {
        attrs::set_xattr(&root.join(name), attribute.as_bytes(), &blob).expect("ACL");
    }
}

#[test]
fn acls_stay_in_every_run_between_two_kinds_of_file_systems() {
    let (ext4, xfs) = (
        Scratch::new(FsKind::Ext4, 64),
        Scratch::new(FsKind::Xfs, 300),
    );
    for (from, to) in [(&ext4, &xfs), (&xfs, &ext4)] {
        let (src, dst) = (from.dir("src"), to.path().join("dst"));
        put_acls(&src);
        for run in ["first", "second", "third"] {
            let _ = sync_ok(&src, &dst, NONE);
            check_equal(&src, &dst, run);
        }
        check_settled(&src, &dst, NONE);
        let _ = verify(&src, &dst).run().expect(0);
        attrs::set_xattr(&src.join("file"), b"user.new", b"value").expect("attribute");
        attrs::set_xattr(&dst.join("file"), b"user.old", b"value").expect("attribute");
        let _ = sync_ok(&src, &dst, NONE);
        check_equal(&src, &dst, "one attribute comes, one goes, the ACL stays");
    }
}

#[test]
fn an_old_acl_does_not_come_back_by_way_of_another_file_system() {
    let (ext4, xfs) = (
        Scratch::new(FsKind::Ext4, 64),
        Scratch::new(FsKind::Xfs, 300),
    );
    let (there, away, back) = (
        xfs.dir("there"),
        ext4.path().join("away"),
        xfs.path().join("back"),
    );
    put_acls(&there);
    let _ = sync_ok(&there, &away, NONE);
    let on_disk = attrs::get_xattr(&away.join("file"), b"trusted.SGI_ACL_FILE").expect("look");
    assert_eq!(
        on_disk, None,
        "the form of another file system's disk is copied"
    );
    attrs::set_xattr(
        &away.join("file"),
        attrs::ACL_ACCESS.as_bytes(),
        &attrs::acl_blob((77, 4), (4321, 0), 0),
    )
    .expect("ACL");
    let _ = sync_ok(&away, &back, NONE);
    check_equal(&away, &back, "back on the first file system");
    let bare = xfs.path().join("bare");
    let _ = sync_ok(&there, &bare, ["--no-acls"]);
    assert_eq!(
        attrs::get_xattr(&bare.join("file"), attrs::ACL_ACCESS.as_bytes()).expect("look"),
        None,
        "--no-acls"
    );
}

#[test]
fn attributes_that_belong_to_a_file_system_are_left_alone() {
    let scratch = Scratch::new(FsKind::Ext4, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    attrs::set_xattr(&src.join("file"), b"trusted.lov", b"stripes").expect("attribute");
    attrs::set_xattr(&src.join("file"), b"trusted.mine", b"kept").expect("attribute");
    let _ = sync_ok(&src, &dst, NONE);
    attrs::set_xattr(&dst.join("file"), b"trusted.gfid", b"identity").expect("attribute");
    check_settled(&src, &dst, NONE);
    let _ = verify(&src, &dst).run().expect(0);
    attrs::set_mode(&src.join("file"), 0o600).expect("chmod");
    attrs::set_xattr(&src.join("file"), b"trusted.mine", b"changed").expect("attribute");
    let _ = sync_ok(&src, &dst, NONE);
    let there = |name: &[u8]| attrs::get_xattr(&dst.join("file"), name).expect("look");
    assert_eq!(there(b"trusted.lov"), None);
    assert_eq!(there(b"trusted.gfid").as_deref(), Some(&b"identity"[..]));
    assert_eq!(there(b"trusted.mine").as_deref(), Some(&b"changed"[..]));
}

/// Arguments of `strace` that have the closing of this file fail.
fn failing_close(path: &Path) -> Vec<String> {
    let path = path.to_str().expect("text");
    let words = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        path,
        "-e",
        "trace=close",
        "-e",
        // What lacks room is tried again, under a name that is not traced.
        "inject=close:error=EIO",
        "--",
    ];
    words.map(str::to_owned).to_vec()
}

/// The name under which a large file grows (FNV-1a, 128 bits).
fn unfinished_name(name: &str) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;
    let hash = name.bytes().fold(BASIS, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    });
    format!(".driftless-tmp-{hash:032x}")
}

#[test]
fn a_file_whose_closing_fails_does_not_get_its_name() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let src = scratch.dir("src");
    put(&src.join("small"), "content");
    put(&src.join("other"), "content");
    put(&src.join("large"), vec![7; 65 << 20]);
    for (name, closed) in [
        ("small", "small".to_owned()),
        ("large", unfinished_name("large")),
    ] {
        let dst = scratch.path().join(format!("dst-{name}"));
        let outcome = sync(&src, &dst)
            .through(failing_close(&dst.join(closed)))
            .run()
            .expect(3);
        check_accounts(&outcome);
        assert_eq!(
            acts_on(&outcome, name),
            ["close it"],
            "{}",
            outcome.describe()
        );
        assert!(
            !dst.join(name).exists(),
            "{name} has its name\n{}",
            outcome.describe()
        );
        assert!(
            dst.join("other").exists(),
            "the others are kept from nothing"
        );
        assert_eq!(common::leftovers(&dst), Vec::<std::path::PathBuf>::new());
        let _ = sync_ok(&src, &dst, NONE);
        check_equal(&src, &dst, "after the next run");
    }
}

/// Sizes of files that are moved in different ways: whole, block by block, and in pieces by many
/// threads.
const SIZES: [(&str, usize); 3] = [("small", 5000), ("middle", 2 << 20), ("large", 65 << 20)];

/// Runs of `src` to `dst` on this machine and, by the agent, over a line.
fn near_and_far(far: &Far, src: &Path, dst: &Path) -> [Driftless; 2] {
    [sync(src, dst), far.sync(Way::Push, src, dst)]
}

#[test]
fn a_file_whose_upload_fails_keeps_its_old_content() {
    let (scratch, fuse) = (
        Scratch::new(FsKind::Tmpfs, 200),
        Fuse::mount(Mood::healthy()),
    );
    let (src, dst) = (scratch.dir("src"), fuse.dir("dst"));
    for (name, size) in SIZES {
        put(&src.join(name), vec![1; size]);
        put(&dst.join(name), "old");
    }
    let far = Far::of(Who::Root);
    for run in near_and_far(&far, &src, &dst) {
        fuse.order(Rule::lose_writes());
        fuse.order(Rule::fail(Op::Flush, Errno::DQUOT));
        let outcome = run.run().expect(3);
        check_accounts(&outcome);
        for (name, _) in SIZES {
            assert_eq!(
                acts_on(&outcome, name),
                ["close it"],
                "{}",
                outcome.describe()
            );
            assert_eq!(
                fs::read(fuse.backing().join("dst").join(name)).expect("read"),
                b"old",
                "{name}"
            );
        }
        assert_eq!(common::leftovers(&dst), Vec::<std::path::PathBuf>::new());
        fuse.forgive();
    }
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "when there is room again");
}

#[test]
fn bytes_that_a_source_does_not_give_do_not_become_zeros() {
    let (scratch, fuse) = (
        Scratch::new(FsKind::Tmpfs, 300),
        Fuse::mount(Mood::healthy()),
    );
    let (src, dst) = (fuse.dir("src"), scratch.path().join("dst"));
    // The kernel fills the last page of a short answer with zeros, so what ends within the first
    // pages cannot be told from zeros.
    for (name, size) in &SIZES[1..] {
        put(&src.join(name), vec![1; *size]);
    }
    let far = Far::of(Who::Root);
    for run in near_and_far(&far, &src, &dst) {
        fuse.order(Rule::end_at(4000));
        let outcome = run.run().expect(3);
        check_accounts(&outcome);
        for (name, _) in &SIZES[1..] {
            assert_eq!(
                acts_on(&outcome, name),
                ["read all of it"],
                "{}",
                outcome.describe()
            );
            assert!(!dst.join(name).exists(), "{name}");
        }
        fuse.forgive();
    }
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "when all of it can be read");
    fuse.order(Rule::end_at(4000));
    let outcome = far
        .sync(Way::Pull, &src, &scratch.path().join("pulled"))
        .run()
        .expect(3);
    SIZES[1..].iter().for_each(|(name, _)| {
        assert_eq!(
            acts_on(&outcome, name),
            ["read all of it"],
            "{}",
            outcome.describe()
        )
    });
}

#[test]
fn a_file_that_becomes_shorter_and_longer_again_is_said_to_change_and_not_to_end_early() {
    let (scratch, fuse) = (
        Scratch::new(FsKind::Tmpfs, 300),
        Fuse::mount(Mood::healthy()),
    );
    let (src, dst) = (fuse.dir("src"), scratch.path().join("dst"));
    SIZES[1..]
        .iter()
        .for_each(|(name, size)| put(&src.join(name), vec![1; *size]));
    let far = Far::of(Who::Root);
    let pulled = far.sync(Way::Pull, &src, &scratch.path().join("pulled"));
    // Slow enough that it changes between being opened and being read.
    fuse.order(Rule::slow(Op::Read, Duration::from_millis(50)));
    fuse.order(Rule::end_at(4000));
    for run in near_and_far(&far, &src, &dst).into_iter().chain([pulled]) {
        let touch = |name: &str, step: u64| {
            attrs::set_mtime(&fuse.backing().join("src").join(name), step as i64, 0).expect("touch")
        };
        let outcome = while_disturbed(
            |step| SIZES[1..].iter().for_each(|(name, _)| touch(name, step)),
            || run.run().expect(5),
        );
        check_accounts(&outcome);
        let told = SIZES[1..].iter().map(|(name, _)| acts_on(&outcome, name));
        assert!(
            told.flatten().all(|act| act != "read all of it"),
            "{}",
            outcome.describe()
        );
    }
    fuse.forgive();
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "at rest");
}

#[test]
fn a_new_replica_does_not_take_over_the_acl_of_the_directory_that_holds_it() {
    let scratch = Scratch::new(FsKind::Ext4, 64);
    let (src, parent) = (scratch.dir("src"), scratch.dir("parent"));
    put(&src.join("file"), "secret");
    put(&src.join("dir/file"), "secret");
    attrs::set_mode(&src.join("file"), 0o640).expect("chmod");
    attrs::set_xattr(
        &parent,
        attrs::ACL_DEFAULT.as_bytes(),
        &attrs::acl_blob((USER, 7), (USER, 7), 0),
    )
    .expect("ACL");
    let (far, dsts) = (
        Far::of(Who::Root),
        ["here", "over-a-line", "by-movers"].map(|name| parent.join(name)),
    );
    let runs = [
        sync(&src, &dsts[0]),
        far.sync(Way::Push, &src, &dsts[1]),
        common::movers::sync_on_hosts("far,far", &far.words(), &src, &dsts[2]),
    ];
    for (run, dst) in runs.into_iter().zip(&dsts) {
        check_accounts(&run.run().expect(0));
        check_equal(&src, dst, "below an ACL that is inherited");
        let _ = verify(&src, dst).run().expect(0);
    }
}

#[test]
fn a_file_that_ends_before_its_size_does_is_a_problem_and_not_zeros() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    for options in [&[][..], &["--no-holes"], &["--cache=drop"], &["--verify"]] {
        let dst = scratch.path().join(format!("dst{}", options.concat()));
        let outcome = sync(Path::new(SYSFS), &dst).args(options).run().expect(3);
        check_accounts(&outcome);
        assert_eq!(
            acts_on(&outcome, "enabled"),
            ["read all of it"],
            "{options:?}\n{}",
            outcome.describe()
        );
        assert!(!dst.join("enabled").exists(), "{options:?}: zeros");
    }
    let outcome = driftless().args(["sum", SYSFS]).run().expect(3);
    assert!(
        outcome
            .describe()
            .contains("fewer bytes than its size says"),
        "{}",
        outcome.describe()
    );
    assert!(
        !outcome.describe().contains("it changed"),
        "nothing has changed\n{}",
        outcome.describe()
    );
}

/// Gives the lease up a little after it was asked to.
fn lease_on(path: &Path) -> Lease {
    Lease::on(
        path,
        "sub { select(undef, undef, undef, 0.2); exit }",
        Command::new("perl"),
    )
}

#[test]
fn a_lease_on_a_source_file_is_waited_for() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let lease = lease_on(&src.join("file"));
    let _ = sync_ok(&src, &dst, NONE);
    drop(lease);
    check_equal(&src, &dst, "once the lease was given up");
}

#[test]
fn a_set_gid_bit_that_the_kernel_drops_is_told() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, parent, dst) = (
        scratch.dir("src"),
        scratch.dir("parent"),
        scratch.dir("dst"),
    );
    put(&src.join("file"), "content");
    fs::create_dir(src.join("dir")).expect("make");
    for path in [src.clone(), src.join("file"), src.join("dir")] {
        attrs::set_owner(&path, USER, USER).expect("chown");
        attrs::set_mode(&path, 0o2755).expect("chmod");
    }
    for path in [&parent, &dst] {
        attrs::set_owner(path, USER, 7).expect("chown");
        attrs::set_mode(path, 0o2755).expect("chmod");
    }
    let run = |dst: &Path| {
        let outcome = sync_by_user(&src, dst).arg("--no-group").run().expect(3);
        check_accounts(&outcome);
        outcome
    };
    for times in ["first", "second"] {
        let outcome = run(&dst);
        // A file does not get the bit where its group is another's anyway; on a directory it lends
        // nobody a right.
        for (path, told) in [("file", &[][..]), ("dir", &["set its mode"])] {
            assert_eq!(
                mode(&dst.join(path)),
                0o755,
                "the kernel does not drop it here"
            );
            assert_eq!(
                acts_on(&outcome, path),
                told,
                "{times}: {path}\n{}",
                outcome.describe()
            );
        }
    }
    assert_eq!(acts_on(&run(&parent.join("new")), "."), ["set its mode"]);
    let kept = scratch.path().join("kept");
    let _ = sync_ok(&src, &kept, NONE);
    assert_eq!(mode(&kept.join("file")), 0o2755);
}

#[test]
fn a_replica_file_that_its_owner_may_not_read_differs_and_is_made_anew() {
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    for root in [&src, &dst] {
        attrs::set_owner(root, USER, USER).expect("chown");
    }
    for name in ["file", "large"] {
        put(
            &src.join(name),
            vec![1; if name == "large" { 65 << 20 } else { 100 }],
        );
        attrs::set_owner(&src.join(name), USER, USER).expect("chown");
    }
    let run = |command: &str, options: &[&str]| {
        on_trees_by_user(command, &src, &dst)
            .arg("--json")
            .args(options)
            .run()
    };
    let _ = run("sync", &[]).expect(0);
    for name in ["file", "large"] {
        attrs::set_mode(&dst.join(name), 0).expect("chmod");
    }
    let outcome = run("verify", &[]).expect(4);
    check_accounts(&outcome);
    let changed: Vec<_> = outcome
        .events_named("difference")
        .into_iter()
        .map(|event| event["what"].to_string())
        .collect();
    assert_eq!(changed.len(), 2, "{}", outcome.describe());
    assert!(
        changed
            .iter()
            .all(|what| what.contains("content") && what.contains("mode")),
        "{changed:?}"
    );
    let _ = run("sync", &["--checksum"]).expect(0);
    check_equal(&src, &dst, "it is made anew");
    attrs::set_mode(&dst.join("file"), 0).expect("chmod");
    attrs::set_owner(&dst.join("file"), 0, 0).expect("chown");
    let outcome = run("verify", &["--no-owner", "--no-group"]).expect(3);
    assert_eq!(
        acts_on(&outcome, "file"),
        ["open it"],
        "of files of others nothing is known\n{}",
        outcome.describe()
    );
}

#[test]
fn a_replica_directory_that_its_owner_may_not_enter_is_told_as_what_it_is() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("dir/file"), "content");
    for path in [&src, &dst, &src.join("dir"), &src.join("dir/file")] {
        attrs::set_owner(path, USER, USER).expect("chown");
    }
    let run = |command: &str, options: &[&str]| {
        on_trees_by_user(command, &src, &dst)
            .arg("--json")
            .args(options)
            .run()
    };
    let _ = run("sync", &[]).expect(0);
    attrs::set_mode(&dst.join("dir"), 0).expect("chmod");
    for (command, options, code, event) in [
        ("verify", &[][..], 4, "difference"),
        ("sync", &["--dry-run"], 3, "change"),
    ] {
        let outcome = run(command, options).expect(code);
        check_accounts(&outcome);
        let told: Vec<_> = outcome
            .events_named(event)
            .into_iter()
            .filter(|event| event["path"] == "dir")
            .collect();
        assert_eq!(told.len(), 1, "{}", outcome.describe());
        assert_eq!(told[0]["what"][0], "mode", "{}", outcome.describe());
        assert_eq!(
            acts_on(&outcome, "dir"),
            ["open the directory"],
            "what is in it, nobody knows\n{}",
            outcome.describe()
        );
    }
    let _ = run("sync", &[]).expect(0);
    check_equal(&src, &dst, "a run makes it equal");
}

#[test]
fn a_directory_in_the_place_of_something_else_is_told_with_both_kinds() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("entry/file"), "content");
    put(&dst.join("entry"), "a file");
    let outcome = on_trees("verify", &src, &dst).run().expect(4);
    assert!(
        outcome.stdout_text().contains("kind: dir, replica file"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn access_times_of_links_are_not_set_again_because_they_were_read() {
    let scratch = Scratch::new(FsKind::Ext4, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    for index in 0..5 {
        std::os::unix::fs::symlink("file", src.join(format!("link-{index}"))).expect("link");
        attrs::set_atime(&src.join(format!("link-{index}")), 1_000_000_000, 5).expect("time");
    }
    attrs::set_atime(&src.join("file"), 1_000_000_000, 5).expect("time");
    let _ = sync_ok(&src, &dst, ["--atimes"]);
    for _run in 0..2 {
        let outcome = sync_ok(&src, &dst, ["--atimes"]);
        assert_eq!(outcome.count("changed"), 0, "{}", outcome.describe());
    }
    attrs::set_atime(&src.join("file"), 1_100_000_000, 5).expect("time");
    assert_eq!(
        sync_ok(&src, &dst, ["--atimes"]).count("changed"),
        1,
        "those of files are compared"
    );
}

#[test]
fn a_link_group_whose_first_name_cannot_be_looked_at_is_a_problem_and_no_difference() {
    only_local!("makes calls of one process fail");
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("alpha"), "content");
    for name in ["beta", "gamma"] {
        fs::hard_link(src.join("alpha"), src.join(name)).expect("link");
    }
    let _ = sync_ok(&src, &dst, NONE);
    let mut told = 0;
    for name in ["alpha", "beta", "gamma"] {
        for when in 1..=4 {
            let inject = format!("inject=statx:error=EACCES:when={when}");
            let strace = [
                "strace",
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-P",
                name,
                "-e",
                "trace=statx",
                "-e",
                &inject,
                "--",
            ];
            let outcome = verify(&src, &dst).arg("--jobs=1").through(strace).run();
            assert!(
                [0, 3].contains(&outcome.code()),
                "look {when} at {name}\n{}",
                outcome.describe()
            );
            told += i32::from(outcome.code() == 3);
        }
    }
    assert!(told >= 3, "only {told} looks have failed");
}

#[test]
fn an_audit_of_one_file_system_does_not_count_what_is_mounted_in_it_as_equal() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    put(&src.join("mounted/file"), "hidden");
    let _ = sync_ok(&src, &dst, NONE);
    let mounted = Mounted::tmpfs(&src.join("mounted"));
    let outcome = on_trees("audit", &src, &dst)
        .args(["--json", "-x", "--samples", "100"])
        .run();
    drop(mounted);
    let summary = outcome.clone().expect(0).summary();
    assert_eq!(
        (summary["entries"].as_u64(), summary["same"].as_u64()),
        (Some(2), Some(2)),
        "{}",
        outcome.describe()
    );
}

#[test]
fn the_lease_of_a_test_is_a_lease() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let file = scratch.path().join("file");
    put(&file, "content");
    let lease = lease_on(&file);
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let open = || rustix::fs::open(&file, flags, rustix::fs::Mode::empty());
    assert_eq!(open().map(drop), Err(rustix::io::Errno::AGAIN));
    wait_until("the lease is given up", || open().is_ok());
    drop(lease);
}
