//! What a file system answers is heard: attributes that are its own, what it says at close, reads that end too early, leases, bits that
//! it drops, files that their owner may not read.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{USER, check_accounts, check_equal, check_settled, driftless, put, sync, sync_ok};
use driftless_testkit::{FsKind, Outcome, Scratch, attrs};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const NONE: [&str; 0] = [];

fn verify(src: &Path, dst: &Path) -> driftless_testkit::Driftless {
    driftless().args(["verify", "--json"]).arg(src).arg(dst)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).mode() & 0o7777
}

/// The acts of all problems of one path.
fn acts_on(outcome: &Outcome, path: &str) -> Vec<String> {
    let problems = outcome.events_named("problem").into_iter().filter(|problem| problem["path"] == path);
    problems.map(|problem| problem["act"].as_str().expect("text").to_owned()).collect()
}

/// A file with an access ACL, a directory with both kinds.
fn put_acls(root: &Path) {
    put(&root.join("file"), "content");
    fs::create_dir(root.join("dir")).expect("make");
    let blob = attrs::acl_blob((1234, 6), (4321, 0), 0);
    for (name, attribute) in [("file", attrs::ACL_ACCESS), ("dir", attrs::ACL_ACCESS), ("dir", attrs::ACL_DEFAULT)] {
        attrs::set_xattr(&root.join(name), attribute.as_bytes(), &blob).expect("ACL");
    }
}

#[test]
fn acls_stay_in_every_run_between_two_kinds_of_file_systems() {
    let (ext4, xfs) = (Scratch::new(FsKind::Ext4, 64), Scratch::new(FsKind::Xfs, 300));
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
    let (ext4, xfs) = (Scratch::new(FsKind::Ext4, 64), Scratch::new(FsKind::Xfs, 300));
    let (there, away, back) = (xfs.dir("there"), ext4.path().join("away"), xfs.path().join("back"));
    put_acls(&there);
    let _ = sync_ok(&there, &away, NONE);
    let on_disk = attrs::get_xattr(&away.join("file"), b"trusted.SGI_ACL_FILE").expect("look");
    assert_eq!(on_disk, None, "the form of another file system's disk is copied");
    attrs::set_xattr(&away.join("file"), attrs::ACL_ACCESS.as_bytes(), &attrs::acl_blob((77, 4), (4321, 0), 0)).expect("ACL");
    let _ = sync_ok(&away, &back, NONE);
    check_equal(&away, &back, "back on the first file system");
    let bare = xfs.path().join("bare");
    let _ = sync_ok(&there, &bare, ["--no-acls"]);
    assert_eq!(attrs::get_xattr(&bare.join("file"), attrs::ACL_ACCESS.as_bytes()).expect("look"), None, "--no-acls");
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

#[test]
fn a_set_gid_bit_that_the_kernel_drops_is_told() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (src, parent, dst) = (scratch.dir("src"), scratch.dir("parent"), scratch.dir("dst"));
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
        let outcome = sync(&src, dst).arg("--no-group").as_user(USER, USER).run().expect(3);
        check_accounts(&outcome);
        outcome
    };
    for times in ["first", "second"] {
        let outcome = run(&dst);
        for path in ["file", "dir"] {
            assert_eq!(mode(&dst.join(path)), 0o755, "the kernel does not drop it here");
            assert_eq!(acts_on(&outcome, path), ["set mode of"], "{times}: {path}\n{}", outcome.describe());
        }
    }
    assert_eq!(acts_on(&run(&parent.join("new")), "."), ["set mode of"]);
    let kept = scratch.path().join("kept");
    let _ = sync_ok(&src, &kept, NONE);
    assert_eq!(mode(&kept.join("file")), 0o2755);
}
