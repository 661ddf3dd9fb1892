//! What is changed where it stands: only what is this source's alone, and never so that content of
//! another's gains rights by it.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    USER, check_accounts, check_equal, check_settled, leftovers, put, sync, sync_ok, verify,
};
use driftless_testkit::{FsKind, Outcome, Scratch, attrs, snapshot_hash};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];
const OTHER_USER: u32 = 1000;
/// The form of the names of unfinished entries.
const RESERVED: &str = ".driftless-tmp-0123456789abcdef0123456789abcdef";

/// Changes something below a path.
type Touch = fn(&Path);

fn stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Ext4, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (scratch, src, dst)
}

fn link(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a parent")).expect("parents");
    fs::hard_link(from, to).expect("link");
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("stat").mode() & 0o7777
}

/// Gives a file the modification time and, where it can, the owner of another.
fn disguise(path: &Path, of: &Path, uid: u32) {
    let meta = fs::metadata(of).expect("stat");
    attrs::set_owner(path, uid, uid).expect("chown");
    attrs::set_mode(path, meta.mode() & 0o777).expect("chmod");
    attrs::set_mtime(path, meta.mtime(), meta.mtime_nsec() as u32).expect("mtime");
}

/// Another user puts a file of his own, which has the right size and time, in the place of a
/// replica's.
fn replace(path: &Path, content: &str, uid: u32) {
    let copy = path.with_extension("new");
    put(&copy, content);
    disguise(&copy, path, uid);
    fs::rename(&copy, path).expect("rename");
}

fn problems_at(outcome: &Outcome, path: &str) -> usize {
    outcome
        .events_named("problem")
        .iter()
        .filter(|problem| problem["path"] == path)
        .count()
}

#[test]
fn an_earlier_snapshot_is_never_changed_through_a_shared_inode() {
    let cases: [(&str, Touch, Touch); 2] = [
        (
            "a name outside of the tree",
            |src| link(&src.join("a"), &src.with_file_name("outside").join("a")),
            |_| (),
        ),
        (
            "a group that grows",
            |_| (),
            |src| link(&src.join("a"), &src.join("b")),
        ),
    ];
    for (what, before, then) in cases {
        for again in [true, false] {
            let (scratch, src, _) = stage();
            let [monday, tuesday] = ["monday", "tuesday"].map(|day| scratch.path().join(day));
            put(&src.join("a"), "data");
            before(&src);
            let basis = [format!("--link-dest={}", monday.display())];
            let _ = sync_ok(&src, &monday, NONE);
            let _ = sync_ok(&src, &tuesday, &basis);
            let earlier = snapshot_hash(&monday, false);
            then(&src);
            attrs::set_mode(&src.join("a"), 0o600).expect("chmod");
            let _ = if again {
                sync_ok(&src, &tuesday, &basis)
            } else {
                sync_ok(&src, &tuesday, NONE)
            };
            check_equal(&src, &tuesday, what);
            assert_eq!(
                snapshot_hash(&monday, false),
                earlier,
                "{what}: the earlier copy changed"
            );
            check_settled(&src, &tuesday, NONE);
        }
    }
}

#[test]
fn without_hard_links_a_file_of_the_earlier_copy_gets_one_name_at_most() {
    let (scratch, src, _) = stage();
    let [monday, tuesday] = ["monday", "tuesday"].map(|day| scratch.path().join(day));
    put(&src.join("a"), "data");
    link(&src.join("a"), &src.join("b"));
    let _ = sync_ok(&src, &monday, NONE);
    let inode = |path: PathBuf| fs::metadata(path).expect("look").ino();
    assert_eq!(inode(monday.join("a")), inode(monday.join("b")));
    let basis = format!("--link-dest={}", monday.display());
    let _ = sync_ok(&src, &tuesday, ["--no-hard-links", &basis]);
    let (a, b) = (inode(tuesday.join("a")), inode(tuesday.join("b")));
    assert_ne!(a, b, "two names of one file");
    assert!(
        [a, b].contains(&inode(monday.join("a"))),
        "neither is a link into the earlier copy"
    );
    let again = sync_ok(&src, &tuesday, ["--no-hard-links", &basis]);
    assert_eq!(again.count("changed"), 0, "{}", again.describe());
}

#[test]
fn without_hard_links_an_inode_with_several_names_is_changed_by_nobody() {
    let (_scratch, src, dst) = stage();
    for name in ["a", "b"] {
        put(&src.join(name), "x");
        attrs::set_mtime(&src.join(name), 1000, 5).expect("mtime");
    }
    link(&src.join("a"), &src.join("x"));
    link(&src.join("b"), &src.join("y"));
    attrs::set_mode(&src.join("a"), 0o600).expect("chmod");
    // What a program that looks for equal files makes of a replica.
    for (name, further) in [("a", "b"), ("x", "y")] {
        put(&dst.join(name), "x");
        disguise(&dst.join(name), &src.join("b"), 0);
        link(&dst.join(name), &dst.join(further));
    }
    let _ = sync_ok(&src, &dst, ["--no-hard-links"]);
    assert_eq!(
        ["a", "b", "x", "y"].map(|name| mode(&dst.join(name))),
        [0o600, 0o644, 0o600, 0o644]
    );
    check_settled(&src, &dst, ["--no-hard-links"]);
}

#[test]
fn set_id_bits_and_capabilities_come_with_the_content_of_the_source() {
    let dress: [(&str, Touch); 2] = [
        ("a set-id program of root's", |tool| {
            attrs::set_owner(tool, 0, 0).expect("chown");
            attrs::set_mode(tool, 0o4755).expect("chmod");
        }),
        ("a capability", |tool| {
            attrs::set_xattr(
                tool,
                attrs::CAPABILITY.as_bytes(),
                &attrs::capability_blob(4),
            )
            .expect("cap")
        }),
    ];
    for (what, dress) in dress {
        for flag in [None, Some("--checksum")] {
            let (_scratch, src, dst) = stage();
            put(&src.join("alice/tool"), "GOOD");
            attrs::set_owner(&src.join("alice/tool"), USER, USER).expect("chown");
            let _ = sync_ok(&src, &dst, NONE);
            if flag.is_none() {
                replace(&dst.join("alice/tool"), "EVIL", USER);
            }
            // Held open, as by somebody who goes on writing: its number is not given to another
            // file.
            let held = fs::File::open(dst.join("alice/tool")).expect("open");
            let inode = held.metadata().expect("stat").ino();
            dress(&src.join("alice/tool"));
            let _ = sync_ok(&src, &dst, flag);
            check_equal(&src, &dst, what);
            assert_ne!(
                fs::metadata(dst.join("alice/tool")).expect("stat").ino(),
                inode,
                "{what}: what is open for writing stays so"
            );
            check_settled(&src, &dst, NONE);
        }
    }
}

#[test]
fn set_id_bits_never_lend_the_rights_of_whoever_runs_it() {
    let (_scratch, src, dst) = stage();
    for (name, uid, bits) in [
        ("hers", USER, 0o6755),
        ("ours", 0, 0o6755),
        ("group", USER, 0o2755),
    ] {
        put(&src.join(name), "program");
        attrs::set_owner(&src.join(name), uid, uid).expect("chown");
        attrs::set_mode(&src.join(name), bits).expect("chmod");
    }
    let flags = ["--no-owner", "--no-group"];
    let _ = sync_ok(&src, &dst, flags);
    assert_eq!(
        ["hers", "ours", "group"].map(|name| mode(&dst.join(name))),
        [0o755, 0o6755, 0o755]
    );
    check_settled(&src, &dst, flags);
    attrs::set_mode(&dst.join("hers"), 0o4755).expect("chmod");
    let _ = sync_ok(&src, &dst, flags);
    assert_eq!(
        mode(&dst.join("hers")),
        0o755,
        "a bit that an earlier run had set"
    );
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "with owners");
}

#[test]
fn names_of_unfinished_entries_are_never_copied() {
    let (_scratch, src, dst) = stage();
    put(&src.join("shared/file"), "file");
    let _ = sync_ok(&src, &dst, NONE);
    // What an interrupted run left, of one user, and what another has made of the name that he saw.
    put(&dst.join("shared").join(RESERVED), "secret of 1000");
    attrs::set_mode(&dst.join("shared").join(RESERVED), 0o600).expect("chmod");
    put(&src.join("shared").join(RESERVED), "as long as it.");
    disguise(
        &src.join("shared").join(RESERVED),
        &dst.join("shared").join(RESERVED),
        OTHER_USER,
    );
    fs::create_dir_all(src.join("dir").join(RESERVED)).expect("dir");
    let outcome = sync(&src, &dst).run().expect(3);
    check_accounts(&outcome);
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
    for folder in ["shared", "dir"] {
        assert_eq!(
            problems_at(&outcome, &format!("{folder}/{RESERVED}")),
            1,
            "{}",
            outcome.describe()
        );
    }
    let outcome = verify(&src, &dst).run().expect(3);
    assert_eq!(
        problems_at(&outcome, &format!("shared/{RESERVED}")),
        1,
        "{}",
        outcome.describe()
    );
    // What is left out is no problem.
    let _ = sync_ok(&src, &dst, ["--exclude", ".driftless-tmp-*"]);
}

#[test]
fn a_right_name_never_becomes_a_link_to_content_of_another_user() {
    for (flags, code) in [(&[][..], 0), (&["--no-owner", "--no-group"][..], 3)] {
        let (_scratch, src, dst) = stage();
        put(&src.join("alice/L"), "GOOD");
        attrs::set_owner(&src.join("alice/L"), OTHER_USER, OTHER_USER).expect("chown");
        link(&src.join("alice/L"), &src.join("bob/F"));
        let _ = sync_ok(&src, &dst, flags);
        replace(&dst.join("alice/L"), "EVIL", USER);
        let outcome = sync(&src, &dst)
            .args(flags)
            .args(["--jobs", "1"])
            .run()
            .expect(code);
        assert_eq!(
            fs::read(dst.join("bob/F")).expect("read"),
            b"GOOD",
            "{}",
            outcome.describe()
        );
        if code == 0 {
            check_equal(&src, &dst, "the first name was made anew");
        } else {
            let _ = sync_ok(&src, &dst, flags.iter().chain(&["--checksum"]));
            assert_eq!(fs::read(dst.join("alice/L")).expect("read"), b"GOOD");
        }
    }
}

#[test]
fn names_that_were_copied_apart_become_links_after_one_comparison() {
    let (_scratch, src, dst) = stage();
    put(&src.join("a"), vec![b'x'; 50_000]);
    ["b", "c", "d"]
        .iter()
        .for_each(|name| link(&src.join("a"), &src.join(name)));
    let _ = sync_ok(&src, &dst, ["--no-hard-links"]);
    // Two threads may find out the same at the same time.
    let outcome = sync_ok(&src, &dst, ["--jobs=1"]);
    check_equal(&src, &dst, "links");
    assert_eq!(
        (
            outcome.count("bytes_copied"),
            outcome.count("bytes_compared")
        ),
        (0, 50_000),
        "{}",
        outcome.describe()
    );
}

/// A group of three names in two directories, 50 kB, and its replica.
fn group() -> (Scratch, PathBuf, PathBuf) {
    let (scratch, src, dst) = stage();
    put(&src.join("one/a"), vec![b'x'; 50_000]);
    ["one/b", "two/c"]
        .iter()
        .for_each(|name| link(&src.join("one/a"), &src.join(name)));
    let _ = sync_ok(&src, &dst, NONE);
    (scratch, src, dst)
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("stat").ino()
}

#[test]
fn what_changed_of_a_hard_link_group_alone_is_set_in_place() {
    let touch: [(&str, &[&str], Touch); 4] = [
        ("its mode", &[], |file| {
            attrs::set_mode(file, 0o640).expect("chmod")
        }),
        ("its owner", &["--jobs=1"], |file| {
            attrs::set_owner(file, OTHER_USER, OTHER_USER).expect("chown")
        }),
        ("an attribute", &["--jobs=8"], |file| {
            attrs::set_xattr(file, b"user.color", b"red").expect("xattr")
        }),
        ("its time", &["--checksum"], |file| {
            attrs::set_mtime(file, 1_000_000_000, 7).expect("mtime")
        }),
    ];
    for (what, flags, touch) in touch {
        let (_scratch, src, dst) = group();
        let before = inode(&dst.join("one/a"));
        touch(&src.join("one/a"));
        let dry = sync(&src, &dst)
            .args(flags)
            .arg("--dry-run")
            .run()
            .expect(0);
        let outcome = sync_ok(&src, &dst, flags);
        check_equal(&src, &dst, what);
        assert_eq!(
            (outcome.count("bytes_copied"), inode(&dst.join("two/c"))),
            (0, before),
            "{what}: {}",
            outcome.describe()
        );
        for outcome in [dry, outcome] {
            assert_eq!(
                outcome.count("changed"),
                1,
                "{what}: {}",
                outcome.describe()
            );
            check_accounts(&outcome);
        }
        check_settled(&src, &dst, NONE);
    }
}

#[test]
fn names_of_a_group_that_are_left_out_or_new_do_not_have_it_copied() {
    let (_scratch, src, dst) = group();
    link(&src.join("one/a"), &src.join("one/new"));
    link(&src.join("one/a"), &src.join("left-out"));
    attrs::set_mode(&src.join("one/a"), 0o640).expect("chmod");
    let before = inode(&dst.join("one/a"));
    let outcome = sync_ok(&src, &dst, ["--exclude=left-out"]);
    check_accounts(&outcome);
    assert_eq!(
        ["one/a", "one/b", "one/new", "two/c"].map(|name| inode(&dst.join(name))),
        [before; 4],
        "{}",
        outcome.describe()
    );
    assert_eq!(
        (mode(&dst.join("two/c")), outcome.count("bytes_copied")),
        (0o640, 0),
        "{}",
        outcome.describe()
    );
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "with all names");
}

#[test]
fn an_inode_that_has_a_name_elsewhere_is_not_changed_for_a_group_of_as_many() {
    // In both orders of the names: whichever is met first.
    for there in ["one/a", "two/c"] {
        let (_scratch, src, dst) = group();
        ["one/a", "one/b", "two/c"]
            .iter()
            .filter(|name| **name != there)
            .for_each(|name| fs::remove_file(dst.join(name)).expect("rm"));
        let outside = dst.with_file_name("outside");
        ["x", "y"]
            .iter()
            .for_each(|name| link(&dst.join(there), &outside.join(name)));
        attrs::set_mode(&src.join("one/a"), 0o640).expect("chmod");
        let _ = sync_ok(&src, &dst, NONE);
        check_equal(&src, &dst, there);
        assert_eq!(
            mode(&outside.join("x")),
            0o644,
            "{there}: what is outside stays as it was"
        );
        check_settled(&src, &dst, NONE);
    }
}
