//! What is left out opens nothing: whoever tries to read or write an entry of the replica may do no
//! more than on the source.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_settled, is_user, put, sync, sync_ok, verify};
use driftless_testkit::{FsKind, Scratch, attrs};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The source's owner and group.
const OWNER: (u32, u32) = (4321, 2222);
/// Users and groups that try: members of the source's group, of the usual one, of one that an ACL
/// names, a user whom an ACL names, and strangers.
const PERSONS: [(u32, u32); 5] = [
    (5555, 2222),
    (999, 100),
    (998, 4444),
    (3333, 3333),
    (7777, 7777),
];

/// A right that a person has: user, group, what it is, and to what.
type Right = (u32, u32, String);

/// Tells each right that it has: to read and write files, to list, change and enter directories.
/// Files are opened, so that the kernel decides.
const TRY: &str = r#"for f in "$@"; do
    if [ -d "$f" ]; then
        ls "$f" >/dev/null 2>&1 && echo "r $f"
        test -w "$f" && echo "w $f"
        (cd "$f") 2>/dev/null && echo "x $f"
    else
        cat "$f" >/dev/null 2>&1 && echo "r $f"
        (: >>"$f") 2>/dev/null && echo "w $f"
        test -x "$f" && echo "x $f"
    fi
done; true"#;

/// Tries as each person to do something with each entry of a tree.
fn rights(root: &Path) -> BTreeSet<Right> {
    let names = common::names_below(root).into_iter().chain([".".into()]);
    let names: Vec<String> = names.collect();
    let mut found = BTreeSet::new();
    for (uid, gid) in PERSONS {
        let (user, group) = (format!("--reuid={uid}"), format!("--regid={gid}"));
        let tried = Command::new("setpriv")
            .args([&user, &group, "--clear-groups", "sh", "-c", TRY, "sh"])
            .args(&names)
            .current_dir(root)
            .output()
            .expect("setpriv starts");
        assert!(tried.status.success(), "{tried:?}");
        let lines = String::from_utf8(tried.stdout).expect("text");
        found.extend(lines.lines().map(|line| (uid, gid, line.to_owned())));
    }
    found
}

/// Checks that nobody got more than the source gives.
fn check_rights(src: &Path, dst: &Path, context: &str) {
    let (source, replica) = (rights(src), rights(dst));
    let more: Vec<_> = replica.difference(&source).collect();
    assert!(more.is_empty(), "{context}: {more:?}");
}

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
