//! What is left out opens nothing: whoever tries to read or write an entry of the replica may do no
//! more than on the source.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::Far;
use common::movers::sync_on_hosts;
use common::rights::{OWNER, check_rights};
use common::{
    check_settled, is_user, on_trees, only_local, put, sync, sync_ok, verify, wait_until,
};
use driftless_testkit::{FsKind, Scratch, attrs};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];

fn stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 100);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for path in [scratch.path(), &src] {
        attrs::set_mode(path, 0o755).expect("chmod");
    }
    (scratch, src, dst)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("look").permissions().mode() & 0o7777
}

/// A run with a umask.
fn with_umask(umask: &str) -> [String; 4] {
    let script = format!("umask {umask}; exec \"$@\"");
    ["sh".into(), "-c".into(), script, "sh".into()]
}

#[test]
fn modes_that_are_left_out_open_nothing() {
    let (_scratch, src, dst) = stage();
    put(&src.join(".ssh/id"), "key");
    put(&src.join("run.sh"), "#!/bin/sh");
    put(&src.join("shared/file"), "content");
    for (name, mode) in [
        (".ssh", 0o700),
        (".ssh/id", 0o600),
        ("run.sh", 0o4755),
        ("shared", 0o3777),
        ("shared/file", 0o666),
    ] {
        attrs::set_mode(&src.join(name), mode).expect("chmod");
    }
    let run = || sync(&src, &dst).arg("--no-mode");
    let _ = run().through(with_umask("027")).run().expect(0);
    for (name, wanted) in [
        (".ssh", 0o700),
        (".ssh/id", 0o600),
        ("run.sh", 0o750),
        ("shared", 0o750),
        ("shared/file", 0o640),
        ("", 0o750),
    ] {
        assert_eq!(mode(&dst.join(name)), wanted, "{name}");
    }
    if !is_user() {
        check_rights(&src, &dst, "new");
    }
    let again = run().through(with_umask("0")).run().expect(0);
    assert_eq!(again.count("changed"), 0, "{}", again.describe());
    let _ = verify(&src, &dst).arg("--no-mode").run().expect(0);
}

#[test]
fn an_updated_entry_keeps_the_narrower_mode() {
    let (_scratch, src, dst) = stage();
    let files = [
        // On the source, on the replica before, and after its content has changed.
        ("narrow", 0o755, 0o640, 0o640),
        ("program", 0o644, 0o755, 0o744),
        ("private", 0o600, 0o666, 0o600),
        ("lent", 0o4755, 0o4755, 0o755),
    ];
    for (name, source, _, _) in files {
        put(&src.join("dir").join(name), "content");
        attrs::set_mode(&src.join("dir").join(name), source).expect("chmod");
    }
    put(&src.join("still/file"), "content");
    let _ = sync_ok(&src, &dst, ["--no-mode"]);
    for (name, _, before, _) in files {
        attrs::set_mode(&dst.join("dir").join(name), before).expect("chmod");
        put(&src.join("dir").join(name), "more content");
    }
    for (root, mode) in [(&src, 0o750), (&dst, 0o2775)] {
        attrs::set_mode(&root.join("dir"), mode).expect("chmod");
        attrs::set_mode(&root.join("still"), mode).expect("chmod");
        attrs::set_mode(&root.join("still/file"), mode & 0o777).expect("chmod");
    }
    let _ = sync_ok(&src, &dst, ["--no-mode"]);
    for (name, _, _, after) in files {
        assert_eq!(mode(&dst.join("dir").join(name)), after, "{name}");
    }
    assert_eq!(mode(&dst.join("dir")), 0o2750);
    for (name, untouched) in [("still", 0o2775), ("still/file", 0o775)] {
        assert_eq!(mode(&dst.join(name)), untouched, "{name}");
    }
    check_settled(&src, &dst, ["--no-mode"]);
}

#[test]
fn another_group_gets_no_right_by_its_mode() {
    if is_user() {
        return;
    }
    let (_scratch, src, dst) = stage();
    for name in ["dir/file", "dir/other"] {
        put(&src.join(name), "content");
    }
    let _ = sync_ok(&src, &dst, ["--no-mode"]);
    for name in ["dir/file", "dir"] {
        attrs::set_owner(&src.join(name), OWNER.0, OWNER.1).expect("chown");
        attrs::set_mode(&src.join(name), 0o700).expect("chmod");
        attrs::set_mode(&dst.join(name), 0o775).expect("chmod");
    }
    let _ = sync_ok(&src, &dst, ["--no-mode"]);
    check_rights(&src, &dst, "another group");
    check_settled(&src, &dst, ["--no-mode"]);
}

/// Tags of an ACL (linux/posix_acl.h).
const TAGS: [(char, u16); 6] = [
    ('o', 0x01),
    ('u', 0x02),
    ('g', 0x04),
    ('n', 0x08),
    ('m', 0x10),
    ('x', 0x20),
];

/// Sets an ACL on an entry: for each entry of it the letter of its tag (owner, user, group, named
/// group, mask, others), rights, and who is named.
fn set_acl(path: &Path, entries: &[(char, u16, u32)]) {
    let mut blob = 2u32.to_le_bytes().to_vec();
    for (letter, rights, id) in entries {
        let tag = TAGS
            .iter()
            .find(|(known, _)| known == letter)
            .expect("a tag")
            .1;
        blob.extend(tag.to_le_bytes());
        blob.extend(rights.to_le_bytes());
        blob.extend(id.to_le_bytes());
    }
    attrs::set_xattr(path, attrs::ACL_ACCESS.as_bytes(), &blob).expect("acl");
}

const NO_ID: u32 = u32::MAX;
/// One user has rights, and the owning group has none.
const USER_ALONE: [(char, u16, u32); 5] = [
    ('o', 7, NO_ID),
    ('u', 7, 3333),
    ('g', 0, NO_ID),
    ('m', 7, NO_ID),
    ('x', 0, NO_ID),
];
/// One user has none, and all others have some.
const USER_DENIED: [(char, u16, u32); 5] = [
    ('o', 7, NO_ID),
    ('u', 0, 3333),
    ('g', 7, NO_ID),
    ('m', 7, NO_ID),
    ('x', 5, NO_ID),
];
/// One group has none, and all others have some.
const GROUP_DENIED: [(char, u16, u32); 5] = [
    ('o', 7, NO_ID),
    ('g', 7, NO_ID),
    ('n', 0, 4444),
    ('m', 7, NO_ID),
    ('x', 7, NO_ID),
];

/// A source with ACLs on files and directories.
fn plant_acls(src: &Path) {
    for (name, acl) in [
        ("alone", USER_ALONE),
        ("denied", USER_DENIED),
        ("group", GROUP_DENIED),
    ] {
        for (name, is_dir) in [
            (format!("{name}.file"), false),
            (format!("{name}.dir"), true),
        ] {
            let path = src.join(name);
            if is_dir {
                put(&path.join("file"), "content");
                attrs::set_owner(&path.join("file"), OWNER.0, OWNER.1).expect("chown");
            } else {
                put(&path, "content");
            }
            attrs::set_owner(&path, OWNER.0, OWNER.1).expect("chown");
            set_acl(&path, &acl);
        }
    }
    put(&src.join("plain"), "content");
    attrs::set_mode(&src.join("plain"), 0o664).expect("chmod");
    fs::hard_link(src.join("alone.file"), src.join("linked")).expect("link");
}

/// What leaves ACLs out, alone and with others.
const NO_ACLS: [&[&str]; 3] = [
    &["--no-acls"],
    &["--no-acls", "--no-xattrs"],
    &["--no-acls", "--no-mode"],
];

#[test]
fn acls_that_are_left_out_open_nothing() {
    if is_user() {
        return;
    }
    for args in NO_ACLS {
        let (_scratch, src, dst) = stage();
        plant_acls(&src);
        let _ = sync(&src, &dst)
            .args(args)
            .through(with_umask("0"))
            .run()
            .expect(0);
        check_rights(&src, &dst, &format!("{args:?}"));
        let found = ["alone.file", "denied.dir", "plain"].map(|name| mode(&dst.join(name)));
        assert_eq!(found, [0o700, 0o700, 0o664], "{args:?}");
        check_settled(&src, &dst, args);
        let _ = verify(&src, &dst).args(args).run().expect(0);
    }
}

#[test]
fn movers_open_nothing_where_acls_are_left_out() {
    only_local!("goes over ssh anyway");
    if is_user() {
        return;
    }
    let (_scratch, src, dst) = stage();
    plant_acls(&src);
    let _ = sync_on_hosts("far,far", &Far::root().words(), &src, &dst)
        .arg("--no-acls")
        .run()
        .expect(0);
    check_rights(&src, &dst, "movers");
    check_settled(&src, &dst, ["--no-acls"]);
}

#[test]
fn entries_get_the_rights_that_a_changed_acl_leaves() {
    if is_user() {
        return;
    }
    let (_scratch, src, dst) = stage();
    plant_acls(&src);
    let _ = sync_ok(&src, &dst, ["--no-acls"]);
    for name in ["denied.file", "denied.dir"] {
        attrs::remove_xattr(&src.join(name), attrs::ACL_ACCESS.as_bytes()).expect("no acl");
        attrs::set_mode(&src.join(name), 0o775).expect("chmod");
    }
    set_acl(&src.join("plain"), &USER_DENIED);
    let _ = sync_ok(&src, &dst, ["--no-acls"]);
    check_rights(&src, &dst, "changed");
    let found = ["denied.file", "denied.dir", "plain"].map(|name| mode(&dst.join(name)));
    assert_eq!(found, [0o775, 0o775, 0o700]);
    check_settled(&src, &dst, ["--no-acls"]);
}

/// A source whose group has other rights than others.
fn plant_groups(src: &Path) {
    for (name, mode) in [
        ("dir/readable", 0o640),
        ("dir/shared", 0o664),
        ("dir/denied", 0o604),
        ("dir/lent", 0o2755),
        ("dir/acl", 0o640),
        ("closed/file", 0o666),
        ("open/file", 0o644),
    ] {
        put(&src.join(name), "content");
        attrs::set_owner(&src.join(name), OWNER.0, OWNER.1).expect("chown");
        attrs::set_mode(&src.join(name), mode).expect("chmod");
    }
    for (name, mode) in [
        ("dir", 0o2775),
        ("closed", 0o750),
        ("open", 0o755),
        ("", 0o775),
    ] {
        attrs::set_owner(&src.join(name), OWNER.0, OWNER.1).expect("chown");
        attrs::set_mode(&src.join(name), mode).expect("chmod");
    }
    let acl = [
        ('o', 6, NO_ID),
        ('u', 6, 3333),
        ('g', 6, NO_ID),
        ('m', 6, NO_ID),
        ('x', 4, NO_ID),
    ];
    set_acl(&src.join("dir/acl"), &acl);
}

#[test]
fn group_rights_go_to_no_other_group() {
    if is_user() {
        return;
    }
    for args in [
        &["--no-group"][..],
        &["--no-group", "--no-acls"],
        &["--no-group", "--no-mode"],
    ] {
        let (_scratch, src, dst) = stage();
        plant_groups(&src);
        let _ = sync_ok(&src, &dst, args);
        check_rights(&src, &dst, &format!("{args:?}"));
        assert_eq!(mode(&dst.join("open/file")), 0o644, "{args:?}");
        check_settled(&src, &dst, args);
        let _ = verify(&src, &dst).args(args).run().expect(0);
    }
}

#[test]
fn an_ordinary_user_gives_no_other_group_rights() {
    only_local!("needs two ordinary users");
    let (scratch, src, dst) = stage();
    attrs::set_mode(scratch.path(), 0o777).expect("chmod");
    plant_groups(&src);
    let by_owner = |command: &str| on_trees(command, &src, &dst).as_user(OWNER.0, 100);
    let _ = by_owner("sync").run().expect(0);
    check_rights(&src, &dst, "new");
    let found = ["dir/readable", "dir/denied", "dir", "open"].map(|name| mode(&dst.join(name)));
    assert_eq!(found, [0o600, 0o600, 0o755, 0o755]);
    let again = by_owner("sync").arg("--json").run().expect(0);
    assert_eq!(again.count("changed"), 0, "{}", again.describe());
    let _ = by_owner("verify").run().expect(0);
    // What was wider before is narrowed.
    attrs::set_mode(&dst.join("dir/readable"), 0o640).expect("chmod");
    let _ = by_owner("verify").run().expect(4);
    let _ = by_owner("sync").run().expect(0);
    check_rights(&src, &dst, "again");
}

/// A way to make a directory of the source private.
type Change = fn(&Path);

/// What others may do in a directory of the replica while it is filled, and after the run was
/// killed.
fn check_private_while_filled(name: &str, change: Change) {
    let (_scratch, src, dst) = stage();
    put(&src.join("top/priv/deep/old"), "old");
    for dir in ["top", "top/priv", "top/priv/deep"] {
        attrs::set_owner(&src.join(dir), 5555, 2222).expect("chown");
        attrs::set_mode(&src.join(dir), 0o775).expect("chmod");
    }
    let _ = sync_ok(&src, &dst, NONE);
    change(&src.join(name));
    put(&src.join("top/priv/deep/secret"), "secret");
    put(&src.join("top/priv/deep/slow"), vec![1u8; 20 << 20]);
    let running = sync(&src, &dst).args(["--bwlimit=1M", "--jobs=8"]).spawn();
    let secret = dst.join("top/priv/deep/secret");
    wait_until("it is in the middle", || secret.exists());
    check_rights(&src, &dst, &format!("{name}, while it is filled"));
    running.signal(Signal::KILL);
    let _ = running.wait();
    check_rights(&src, &dst, &format!("{name}, after the run was killed"));
    fs::remove_file(src.join("top/priv/deep/slow")).expect("remove");
    let _ = sync_ok(&src, &dst, ["--delete"]);
    for dir in ["", "top", "top/priv", "top/priv/deep"] {
        assert_eq!(mode(&dst.join(dir)), mode(&src.join(dir)), "{dir}");
    }
    check_settled(&src, &dst, NONE);
}

#[test]
fn a_directory_that_became_private_is_filled_in_private() {
    only_local!("kills a run of this host");
    let changes: [(&str, Change); 4] = [
        ("top/priv", |dir| {
            attrs::set_mode(dir, 0o700).expect("chmod")
        }),
        ("", |dir| attrs::set_mode(dir, 0o700).expect("chmod")),
        ("top", |dir| {
            attrs::set_owner(dir, OWNER.0, 100).expect("chown");
            attrs::set_mode(dir, 0o770).expect("chmod");
        }),
        ("top/priv", |dir| set_acl(dir, &USER_DENIED)),
    ];
    for (name, change) in changes {
        check_private_while_filled(name, change);
    }
}

#[test]
fn a_directory_is_not_left_open_after_deletes() {
    let (_scratch, src, dst) = stage();
    put(&src.join("dir/file"), "content");
    let _ = sync_ok(&src, &dst, ["--no-mode"]);
    put(&dst.join("dir/extra"), "content");
    attrs::set_mode(&dst.join("dir"), 0o500).expect("chmod");
    let outcome = sync_ok(&src, &dst, ["--no-mode", "--delete"]);
    assert_eq!(outcome.count("deleted"), 1, "{}", outcome.describe());
    assert_eq!(mode(&dst.join("dir")), 0o500);
}

#[test]
fn an_open_file_of_an_earlier_copy_is_not_linked() {
    if is_user() {
        return;
    }
    let (scratch, src, dst) = stage();
    let earlier = scratch.path().join("earlier");
    for name in ["private", "open", "acl"] {
        put(&src.join(name), "content");
        attrs::set_mode(&src.join(name), 0o644).expect("chmod");
    }
    let _ = sync_ok(&src, &earlier, NONE);
    attrs::set_mode(&src.join("private"), 0o600).expect("chmod");
    set_acl(&earlier.join("acl"), &USER_ALONE);
    attrs::set_mode(&earlier.join("acl"), 0o644).expect("chmod");
    let basis = format!("--link-dest={}", earlier.display());
    let args = ["--no-mode", "--no-acls", &basis];
    let _ = sync_ok(&src, &dst, args);
    check_rights(&src, &dst, "linked");
    let names =
        ["private", "open", "acl"].map(|name| fs::metadata(dst.join(name)).expect("look").nlink());
    assert_eq!(names, [1, 2, 1]);
}
