//! The oracle must see every kind of difference, one at a time, or every test that leans on it
//! proves nothing.
#![allow(clippy::disallowed_methods)]

use driftless_testkit::attrs;
use driftless_testkit::{
    FsKind, Options, Scratch, compare, rsync_oracle, snapshot, snapshot_hash, touched,
};
use rustix::fs::{FallocateFlags, FileType};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

const MTIME: (i64, u32) = (1_600_000_000, 123_456_789);

/// A small tree with one entry of every type, the same each time.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("dir/sub")).expect("directories");
    fs::write(root.join("file"), vec![7u8; 10_000]).expect("file");
    fs::write(root.join("sparse"), vec![7u8; 65_536]).expect("sparse");
    fs::write(root.join("zeros"), vec![0u8; 65_536]).expect("zeros");
    fs::write(root.join("dir/linked"), b"linked").expect("linked");
    fs::hard_link(root.join("dir/linked"), root.join("link")).expect("link");
    fs::write(root.join("dir/alone"), b"linked").expect("alone");
    symlink("target", root.join("symlink")).expect("symlink");
    attrs::make_node(&root.join("fifo"), FileType::Fifo, 0, 0).expect("fifo");
    attrs::make_node(&root.join("char"), FileType::CharacterDevice, 1, 3).expect("char");
    for name in [
        "file",
        "sparse",
        "zeros",
        "dir/linked",
        "dir/alone",
        "symlink",
        "fifo",
        "char",
        "dir/sub",
        "dir",
        ".",
    ] {
        attrs::set_mtime(&root.join(name), MTIME.0, MTIME.1).expect("mtime");
    }
}

fn settle(path: &Path) {
    attrs::set_mtime(path, MTIME.0, MTIME.1).expect("mtime");
}

type Change = (&'static str, &'static str, fn(&Path));

/// Path and kind of the one difference, and what makes it.
const CHANGES: [Change; 23] = [
    ("file", "mode", |root| {
        attrs::set_mode(&root.join("file"), 0o4644).expect("chmod")
    }),
    ("dir", "mode", |root| {
        attrs::set_mode(&root.join("dir"), 0o1755).expect("chmod")
    }),
    ("file", "uid", |root| {
        attrs::set_owner(&root.join("file"), 1, 0).expect("chown")
    }),
    ("symlink", "gid", |root| {
        attrs::set_owner(&root.join("symlink"), 0, 1).expect("chown")
    }),
    ("file", "mtime", |root| {
        attrs::set_mtime(&root.join("file"), MTIME.0, MTIME.1 + 1).expect("mtime")
    }),
    ("dir/sub", "mtime", |root| {
        attrs::set_mtime(&root.join("dir/sub"), 0, 0).expect("mtime")
    }),
    ("symlink", "mtime", |root| {
        attrs::set_mtime(&root.join("symlink"), 1, MTIME.1).expect("mtime")
    }),
    (".", "mtime", |root| {
        attrs::set_mtime(root, 1, MTIME.1).expect("mtime")
    }),
    ("file", "xattrs", |root| {
        attrs::set_xattr(&root.join("file"), b"user.a", b"").expect("xattr")
    }),
    ("symlink", "xattrs", |root| {
        attrs::set_xattr(&root.join("symlink"), b"trusted.a", b"1").expect("xattr")
    }),
    ("fifo", "xattrs", |root| {
        attrs::set_xattr(&root.join("fifo"), b"trusted.a", b"1").expect("xattr")
    }),
    ("file", "xattrs", |root| {
        attrs::set_xattr(
            &root.join("file"),
            b"security.capability",
            &attrs::capability_blob(2),
        )
        .expect("xattr");
    }),
    ("dir", "acls", |root| {
        let blob = attrs::acl_blob((1, 7), (1, 7), 5);
        attrs::set_xattr(&root.join("dir"), attrs::ACL_DEFAULT.as_bytes(), &blob).expect("acl");
    }),
    ("file", "content", |root| {
        let file = OpenOptions::new()
            .write(true)
            .open(root.join("file"))
            .expect("open");
        file.write_all_at(&[8], 9_999).expect("write");
        settle(&root.join("file"));
    }),
    ("zeros", "holes", |root| {
        let file = OpenOptions::new()
            .write(true)
            .open(root.join("zeros"))
            .expect("open");
        rustix::fs::fallocate(
            &file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            8192,
            4096,
        )
        .expect("punch");
        settle(&root.join("zeros"));
    }),
    ("symlink", "target", |root| {
        fs::remove_file(root.join("symlink")).expect("remove");
        symlink("targes", root.join("symlink")).expect("symlink");
        settle(&root.join("symlink"));
        settle(root);
    }),
    ("char", "rdev", |root| {
        fs::remove_file(root.join("char")).expect("remove");
        attrs::make_node(&root.join("char"), FileType::CharacterDevice, 1, 5).expect("char");
        settle(&root.join("char"));
        settle(root);
    }),
    ("fifo", "type", |root| {
        fs::remove_file(root.join("fifo")).expect("remove");
        attrs::make_node(&root.join("fifo"), FileType::Socket, 0, 0).expect("socket");
        settle(&root.join("fifo"));
        settle(root);
    }),
    ("dir/sub", "missing", |root| {
        fs::remove_dir(root.join("dir/sub")).expect("remove");
        settle(&root.join("dir"));
    }),
    ("dir/more", "extra", |root| {
        fs::write(root.join("dir/more"), b"").expect("write");
        settle(&root.join("dir"));
    }),
    ("dir/linked", "hard_link", |root| {
        fs::remove_file(root.join("link")).expect("remove");
        fs::write(root.join("link"), b"linked").expect("write");
        settle(&root.join("link"));
        settle(root);
    }),
    ("dir/alone", "hard_link", |root| {
        fs::remove_file(root.join("dir/alone")).expect("remove");
        fs::hard_link(root.join("link"), root.join("dir/alone")).expect("link");
        settle(&root.join("dir"));
    }),
    ("file", "size", |root| {
        OpenOptions::new()
            .write(true)
            .open(root.join("file"))
            .expect("open")
            .set_len(10_001)
            .expect("grow");
        settle(&root.join("file"));
    }),
];

#[test]
fn equal_trees_have_no_difference_and_one_snapshot_each() {
    let scratch = Scratch::new(FsKind::Ext4, 64);
    let (a, b) = (scratch.dir("a"), scratch.dir("b"));
    plant(&a);
    plant(&b);
    assert_eq!(compare(&a, &b, &Options::default()), Vec::new());
    assert_eq!(rsync_oracle(&a, &b), "");
    assert_eq!(snapshot_hash(&a, true), snapshot_hash(&a, true));
}

#[test]
fn every_single_change_is_found_under_its_own_name() {
    let scratch = Scratch::new(FsKind::Ext4, 64);
    for (index, (path, kind, change)) in CHANGES.into_iter().enumerate() {
        let (a, b) = (
            scratch.dir(&format!("a{index}")),
            scratch.dir(&format!("b{index}")),
        );
        plant(&a);
        plant(&b);
        let before = snapshot_hash(&b, false);
        change(&b);
        let found = compare(&a, &b, &Options::default());
        assert!(
            found
                .iter()
                .any(|d| d.path == path.as_bytes() && d.kind == kind),
            "{path} {kind}: {found:?}"
        );
        let allowed = |other: &str| {
            other == kind || (kind == "size" && (other == "content" || other == "holes"))
        };
        assert!(
            found.iter().all(|d| allowed(d.kind)),
            "nothing else than {path} {kind}: {found:?}"
        );
        assert_ne!(
            snapshot_hash(&b, false),
            before,
            "the snapshot sees {path} {kind}"
        );
    }
}

#[test]
fn an_option_switches_its_own_property_off() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let (a, b) = (scratch.dir("a"), scratch.dir("b"));
    plant(&a);
    plant(&b);
    attrs::set_mode(&b.join("file"), 0o600).expect("chmod");
    attrs::set_owner(&b.join("dir"), 5, 5).expect("chown");
    let off = Options {
        mode: false,
        owner: false,
        group: false,
        ..Options::default()
    };
    assert_eq!(compare(&a, &b, &off), Vec::new());
    let off = Options {
        mode: false,
        owner: false,
        ..Options::default()
    };
    assert_eq!(compare(&a, &b, &off).len(), 1);
}

#[test]
fn a_metadata_change_that_is_undone_shows_in_the_change_time() {
    let scratch = Scratch::new(FsKind::Ext4, 64);
    let root = scratch.dir("a");
    plant(&root);
    let (plain, timed) = (snapshot_hash(&root, false), snapshot_hash(&root, true));
    attrs::set_mode(&root.join("file"), 0o600).expect("chmod");
    attrs::set_mode(&root.join("file"), 0o644).expect("chmod");
    assert_eq!(snapshot_hash(&root, false), plain);
    assert_ne!(snapshot_hash(&root, true), timed);
}

#[test]
fn what_was_touched_between_two_snapshots_is_named() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let root = scratch.dir("a");
    plant(&root);
    let before = snapshot(&root, true);
    assert_eq!(
        touched(&before, &snapshot(&root, true)),
        Vec::<String>::new()
    );
    std::fs::rename(root.join("file"), root.join("moved")).expect("rename");
    attrs::set_mode(&root.join("dir"), 0o700).expect("chmod");
    let lines = touched(&before, &snapshot(&root, true));
    let line = |words: &str| {
        lines
            .iter()
            .find(|line| line.starts_with(words))
            .unwrap_or_else(|| panic!("{words}: {lines:?}"))
    };
    line("\"file\" is gone");
    line("\"moved\" is new");
    assert!(line("\"dir\": ").contains("0700"), "{lines:?}");
}

#[test]
fn trees_deeper_than_any_path_are_compared() {
    let scratch = Scratch::new(FsKind::Tmpfs, 200);
    let (a, b) = (scratch.dir("a"), scratch.dir("b"));
    driftless_testkit::deep_path(&a, 5000, 30).expect("deep");
    driftless_testkit::deep_path(&b, 4999, 30).expect("deep");
    let options = Options {
        mtime: false,
        ..Options::default()
    };
    let found = compare(&a, &b, &options);
    assert_eq!(found.len(), 2, "one directory and one marker");
    assert!(found.iter().all(|d| d.path.len() > 4999 * 30));
}
