//! What a sync does to a replica: what is kept, what is moved, what is left alone.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    check_equal, check_equal_twice, check_settled, count_entries, is_user, leftovers, on_trees,
    only_local, profile, put, sync, sync_ok,
};
use driftless_testkit::mutate::{Kind, make_any, remove_any};
use driftless_testkit::{
    FsKind, Options, Profile, Scratch, attrs, build_tree, compare, snapshot_hash,
};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const NONE: [&str; 0] = [];
const MIB: usize = 1 << 20;

/// A scratch file system with a source and a replica name that is not there yet.
fn stage(kind: FsKind) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(kind, 400);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (scratch, src, dst)
}

fn hostile(kind: FsKind, seed: u64) -> (Scratch, PathBuf, PathBuf) {
    let (scratch, src, dst) = stage(kind);
    build_tree(
        &src,
        seed,
        &Profile {
            large: false,
            ..profile()
        },
    );
    (scratch, src, dst)
}

#[test]
fn first_copy_makes_the_replica_equal_and_accounts_for_every_entry() {
    let (_scratch, src, dst) = hostile(FsKind::Tmpfs, 1);
    let outcome = sync_ok(&src, &dst, NONE);
    check_equal_twice(&src, &dst, "first copy");
    assert_eq!(outcome.count("seen"), count_entries(&src));
    assert_eq!(outcome.count("changed"), count_entries(&src));
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

#[test]
fn second_run_writes_nothing() {
    for kind in FsKind::ALL {
        let (_scratch, src, dst) = hostile(kind, 2);
        let _ = sync_ok(&src, &dst, NONE);
        check_settled(&src, &dst, NONE);
        check_settled(&src, &dst, ["--delete"]);
    }
}

#[test]
fn source_is_never_touched_not_even_its_access_times() {
    let (_scratch, src, dst) = hostile(FsKind::Ext4, 3);
    put(&src.join("read-me"), vec![5u8; 100_000]);
    attrs::set_atime(&src.join("read-me"), 1000, 7).expect("atime");
    let before = snapshot_hash(&src, true);
    let _ = sync_ok(&src, &dst, ["--delete"]);
    let _ = sync_ok(&src, &dst, ["--checksum"]);
    assert_eq!(snapshot_hash(&src, true), before);
    let meta = fs::metadata(src.join("read-me")).expect("stat");
    assert_eq!((meta.atime(), meta.atime_nsec()), (1000, 7));
}

#[test]
fn access_times_are_kept_when_asked_for() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("file"), "content");
    attrs::set_atime(&src.join("file"), 12_345, 678).expect("atime");
    let _ = sync_ok(&src, &dst, ["--atimes"]);
    let meta = fs::metadata(dst.join("file")).expect("stat");
    assert_eq!((meta.atime(), meta.atime_nsec()), (12_345, 678));
    check_settled(&src, &dst, ["--atimes"]);
}

type Touch = fn(&Path);

#[test]
fn a_property_that_is_not_kept_is_left_as_the_replica_has_it() {
    let cases: [(&str, Touch); 5] = [
        ("--no-mode", |path| {
            attrs::set_mode(path, 0o750).expect("chmod")
        }),
        ("--no-owner", |path| {
            attrs::set_owner(path, 1234, 0).expect("chown")
        }),
        ("--no-group", |path| {
            attrs::set_owner(path, 0, 1234).expect("chgrp")
        }),
        ("--no-xattrs", |path| {
            attrs::set_xattr(path, b"user.new", b"value").expect("xattr")
        }),
        ("--no-acls", |path| {
            let blob = attrs::acl_blob((1000, 7), (1000, 7), 4);
            attrs::set_xattr(path, attrs::ACL_ACCESS.as_bytes(), &blob).expect("acl");
            attrs::set_mode(path, 0o774).expect("chmod");
        }),
    ];
    // An ordinary user cannot copy what belongs to others.
    for (flag, touch) in cases
        .into_iter()
        .filter(|(flag, _)| !is_user() || !["--no-owner", "--no-group"].contains(flag))
    {
        let (_scratch, src, dst) = stage(FsKind::Tmpfs);
        put(&src.join("dir/file"), "content");
        // What the group and others have alike does not depend on the group.
        attrs::set_mode(&src.join("dir/file"), 0o744).expect("chmod");
        attrs::set_mode(&src.join("dir"), 0o744).expect("chmod");
        let _ = sync_ok(&src, &dst, NONE);
        touch(&src.join("dir/file"));
        touch(&src.join("dir"));
        let flags: &[&str] = if flag == "--no-acls" {
            &["--no-acls", "--no-mode"]
        } else {
            &[flag]
        };
        check_settled(&src, &dst, flags);
        let outcome = sync_ok(&src, &dst, NONE);
        assert_eq!(
            (outcome.count("changed"), outcome.count("bytes_copied")),
            (2, 0),
            "{flag}"
        );
        check_equal(&src, &dst, flag);
    }
}

#[test]
fn times_are_not_kept_when_not_asked_for() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("dir/file"), "content");
    attrs::set_mtime(&src.join("dir/file"), 1000, 5).expect("mtime");
    let _ = sync_ok(&src, &dst, ["--no-times"]);
    let found = compare(
        &src,
        &dst,
        &Options {
            mtime: false,
            ..Options::default()
        },
    );
    assert_eq!(found, Vec::new());
    assert_ne!(
        fs::metadata(dst.join("dir/file")).expect("stat").mtime(),
        1000
    );
}

#[test]
fn hard_links_become_files_of_their_own_when_not_asked_for() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("one"), "content");
    fs::hard_link(src.join("one"), src.join("two")).expect("link");
    let _ = sync_ok(&src, &dst, ["--no-hard-links"]);
    assert_eq!(fs::metadata(dst.join("one")).expect("stat").nlink(), 1);
    assert_eq!(
        compare(
            &src,
            &dst,
            &Options {
                hard_links: false,
                ..Options::default()
            }
        ),
        Vec::new()
    );
}

#[test]
fn holes_are_filled_when_not_asked_for_and_kept_otherwise() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("sparse"), "start");
    fs::OpenOptions::new()
        .write(true)
        .open(src.join("sparse"))
        .expect("open")
        .set_len(8 << 20)
        .expect("grow");
    let _ = sync_ok(&src, &dst, ["--no-holes"]);
    assert_eq!(
        fs::metadata(dst.join("sparse")).expect("stat").blocks() * 512,
        8 << 20
    );
    let other = scratch.path().join("other");
    let _ = sync_ok(&src, &other, NONE);
    assert_eq!(
        fs::metadata(other.join("sparse")).expect("stat").blocks() * 512,
        4096
    );
}

#[test]
fn entries_of_an_unwanted_type_are_skipped_and_counted() {
    let cases: [(&str, &[&str]); 3] = [
        ("--no-symlinks", &["symlink"]),
        ("--no-specials", &["fifo", "socket"]),
        ("--no-devices", &["char", "block"]),
    ];
    for (flag, gone) in cases
        .into_iter()
        .filter(|(flag, _)| !is_user() || *flag != "--no-devices")
    {
        let (_scratch, src, dst) = stage(FsKind::Tmpfs);
        one_of_each(&src);
        let outcome = sync_ok(&src, &dst, [flag]);
        assert_eq!(
            outcome.count("skipped"),
            gone.len() as u64,
            "{flag}\n{}",
            outcome.describe()
        );
        let missing: Vec<String> = compare(&src, &dst, &Options::default())
            .iter()
            .map(|difference| {
                format!(
                    "{} {}",
                    difference.kind,
                    driftless_testkit::escape(&difference.path)
                )
            })
            .collect();
        let mut expected: Vec<String> = gone.iter().map(|name| format!("missing {name}")).collect();
        expected.sort();
        assert_eq!(missing, expected, "{flag}");
    }
}

/// What whoever runs it can make.
fn kinds() -> impl Iterator<Item = Kind> + Clone {
    Kind::ALL
        .into_iter()
        .filter(|kind| !is_user() || !matches!(kind, Kind::Char | Kind::Block))
}

fn one_of_each(root: &Path) {
    let mut rng = fastrand::Rng::with_seed(1);
    let names = ["file", "dir", "symlink", "fifo", "socket", "char", "block"];
    for (name, kind) in names.into_iter().zip(kinds()) {
        make_any(&root.join(name), kind, &mut rng).expect("make");
    }
}

#[test]
fn a_change_of_metadata_moves_no_data_and_keeps_the_inode() {
    let (_scratch, src, dst) = stage(FsKind::Ext4);
    put(&src.join("big"), vec![1u8; 5 * MIB]);
    let _ = sync_ok(&src, &dst, NONE);
    let inode = fs::metadata(dst.join("big")).expect("stat").ino();
    attrs::set_owner(&src.join("big"), 5, 6).expect("chown");
    attrs::set_mode(&src.join("big"), 0o711).expect("chmod");
    attrs::set_xattr(&src.join("big"), b"user.tag", b"\0\xff").expect("xattr");
    let outcome = sync_ok(&src, &dst, NONE);
    assert_eq!(
        (outcome.count("bytes_copied"), outcome.count("changed")),
        (0, 1),
        "{}",
        outcome.describe()
    );
    assert_eq!(fs::metadata(dst.join("big")).expect("stat").ino(), inode);
    check_equal(&src, &dst, "metadata only");
}

#[test]
fn new_content_is_published_under_a_new_inode_and_open_readers_keep_the_old() {
    let (_scratch, src, dst) = stage(FsKind::Ext4);
    put(&src.join("file"), vec![1u8; 100_000]);
    let _ = sync_ok(&src, &dst, NONE);
    let reader = fs::File::open(dst.join("file")).expect("open");
    put(&src.join("file"), vec![2u8; 100_000]);
    let _ = sync_ok(&src, &dst, NONE);
    let mut seen = vec![0u8; 100_000];
    reader.read_exact_at(&mut seen, 0).expect("read");
    assert!(
        seen.iter().all(|byte| *byte == 1),
        "a reader of the old file sees only the old file"
    );
    check_equal(&src, &dst, "new content");
}

#[test]
fn every_type_is_replaced_by_every_other() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    let mut rng = fastrand::Rng::with_seed(4);
    let pairs = || kinds().flat_map(|from| kinds().map(move |to| (from, to)));
    for (from, to) in pairs() {
        make_any(&src.join(format!("{from:?}-{to:?}")), from, &mut rng).expect("make");
    }
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "before");
    for (from, to) in pairs() {
        let path = src.join(format!("{from:?}-{to:?}"));
        remove_any(&path).expect("remove");
        make_any(&path, to, &mut rng).expect("make");
    }
    let _ = sync_ok(&src, &dst, ["--delete"]);
    check_equal_twice(&src, &dst, "every type by every other");
    check_settled(&src, &dst, ["--delete"]);
}

#[test]
fn a_replaced_directory_is_never_lost_in_silence_without_delete() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("name"), "now a file");
    put(&dst.join("name/kept"), "was a directory");
    let outcome = sync(&src, &dst).run();
    if outcome.code() == 0 {
        check_equal(&src, &dst, "exit 0");
    } else {
        assert_eq!(
            fs::read(dst.join("name/kept")).expect("still there"),
            b"was a directory"
        );
        assert_eq!(outcome.code(), 3, "{}", outcome.describe());
        assert_eq!(
            outcome.events_named("problem").len(),
            1,
            "{}",
            outcome.describe()
        );
    }
}

#[test]
fn a_single_file_is_a_tree_too() {
    let (scratch, _, _) = stage(FsKind::Tmpfs);
    let (src, dst) = (scratch.path().join("one"), scratch.path().join("copy"));
    put(&src, vec![3u8; 70_000]);
    attrs::set_xattr(&src, b"user.a", b"b").expect("xattr");
    let outcome = sync_ok(&src, &dst, NONE);
    assert_eq!((outcome.count("seen"), outcome.count("changed")), (1, 1));
    check_equal(&src, &dst, "single file");
    check_settled(&src, &dst, NONE);
    put(&src, "shorter");
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "single file again");
}

#[test]
fn extra_entries_stay_without_delete_and_go_with_it() {
    let (_scratch, src, dst) = hostile(FsKind::Tmpfs, 5);
    build_tree_over(&dst, 6);
    let _ = sync_ok(&src, &dst, NONE);
    let found = compare(&src, &dst, &Options::default());
    assert!(found.iter().any(|difference| difference.kind == "extra"));
    assert_eq!(
        found.iter().find(|difference| difference.kind != "extra"),
        None,
        "all else is equal, mtimes too"
    );
    let outcome = sync_ok(&src, &dst, ["--delete"]);
    assert!(
        outcome.count("deleted") as usize >= found.len(),
        "{}",
        outcome.describe()
    );
    check_equal_twice(&src, &dst, "with --delete");
}

/// A replica that has other things at many of the same names.
fn build_tree_over(dst: &Path, seed: u64) {
    fs::create_dir(dst).expect("replica");
    build_tree(
        dst,
        seed,
        &Profile {
            large: false,
            entries: 100,
            ..profile()
        },
    );
    for folder in ["names", "links", "nodes", "times"] {
        fs::rename(dst.join(folder), dst.join(format!("extra-{folder}"))).expect("rename");
    }
}

#[test]
fn names_move_between_link_groups() {
    let cases: [(&str, Touch); 6] = [
        ("a name joins", |src| {
            fs::hard_link(src.join("a1"), src.join("sub/new")).expect("link")
        }),
        ("a name leaves", |src| {
            fs::remove_file(src.join("a1")).expect("unlink")
        }),
        ("a name becomes a copy", |src| own_copy(&src.join("a1"))),
        ("two groups swap names", |src| {
            attrs::exchange(&src.join("a1"), &src.join("sub/b2")).expect("exchange")
        }),
        ("the content changes through one name", |src| {
            put(&src.join("sub/a2"), "new content of group a")
        }),
        ("two groups become one", |src| {
            for name in ["b1", "sub/b2"] {
                fs::remove_file(src.join(name)).expect("unlink");
                fs::hard_link(src.join("a1"), src.join(name)).expect("link");
            }
        }),
    ];
    for (what, touch) in cases {
        let (_scratch, src, dst) = stage(FsKind::Ext4);
        put(&src.join("a1"), vec![b'a'; 9000]);
        put(&src.join("b1"), vec![b'b'; 9000]);
        fs::create_dir(src.join("sub")).expect("dir");
        fs::hard_link(src.join("a1"), src.join("sub/a2")).expect("link");
        fs::hard_link(src.join("b1"), src.join("sub/b2")).expect("link");
        fs::hard_link(src.join("a1"), src.join("sub/a3")).expect("link");
        let _ = sync_ok(&src, &dst, NONE);
        check_equal(&src, &dst, "before");
        touch(&src);
        let _ = sync_ok(&src, &dst, ["--delete"]);
        check_equal_twice(&src, &dst, what);
        check_settled(&src, &dst, ["--delete"]);
    }
}

/// Replaces a name by a file of its own with the same content and mtime.
fn own_copy(path: &Path) {
    let meta = fs::metadata(path).expect("stat");
    let content = fs::read(path).expect("read");
    fs::remove_file(path).expect("unlink");
    fs::write(path, content).expect("write");
    attrs::set_mtime(path, meta.mtime(), meta.mtime_nsec() as u32).expect("mtime");
}

#[test]
fn a_new_link_to_a_copied_file_moves_no_data() {
    let (_scratch, src, dst) = stage(FsKind::Ext4);
    put(&src.join("file"), vec![1u8; MIB]);
    let _ = sync_ok(&src, &dst, NONE);
    fs::hard_link(src.join("file"), src.join("again")).expect("link");
    let outcome = sync_ok(&src, &dst, NONE);
    assert_eq!(outcome.count("bytes_copied"), 0, "{}", outcome.describe());
    check_equal(&src, &dst, "new link");
}

#[test]
fn unchanged_files_are_links_into_the_reference_which_never_changes() {
    let (scratch, src, dst) = stage(FsKind::Ext4);
    let reference = scratch.path().join("reference");
    for name in ["same", "new-content", "new-mode", "new-xattr"] {
        put(&src.join("dir").join(name), vec![b'x'; 5000]);
    }
    let _ = sync_ok(&src, &reference, NONE);
    put(&src.join("dir/new-content"), vec![b'y'; 5000]);
    attrs::set_mode(&src.join("dir/new-mode"), 0o600).expect("chmod");
    attrs::set_xattr(&src.join("dir/new-xattr"), b"user.a", b"b").expect("xattr");
    let before = snapshot_hash(&reference, false);
    let basis = format!("--link-dest={}", reference.display());
    let told = |run: Vec<serde_json::Value>| {
        let changes = run
            .into_iter()
            .filter(|event| event["event"] == "change")
            .map(|event| format!("{} {}", event["action"], event["path"]));
        changes.collect::<std::collections::BTreeSet<String>>()
    };
    let dry = told(sync_ok(&src, &dst, [&*basis, "--dry-run"]).events());
    assert_eq!(
        dry,
        told(sync_ok(&src, &dst, [&*basis]).events()),
        "the dry run says the same"
    );
    check_equal(&src, &dst, "with --link-dest");
    let inode = |root: &Path, name: &str| {
        fs::metadata(root.join("dir").join(name))
            .expect("stat")
            .ino()
    };
    assert_eq!(inode(&dst, "same"), inode(&reference, "same"));
    for name in ["new-content", "new-mode", "new-xattr"] {
        assert_ne!(inode(&dst, name), inode(&reference, name), "{name}");
    }
    assert_eq!(
        snapshot_hash(&reference, false),
        before,
        "the reference changed"
    );
}

/// Changes one byte of a file and leaves its size and time as they are, as a disk may.
fn rot(file: &Path, at: u64) {
    let meta = fs::metadata(file).expect("stat");
    let open = fs::OpenOptions::new().write(true).open(file).expect("open");
    open.write_all_at(b"!", at).expect("write");
    attrs::set_mtime(file, meta.mtime(), meta.mtime_nsec() as u32).expect("mtime");
}

#[test]
fn rotten_files_of_earlier_copy_are_not_linked() {
    let (scratch, src, dst) = stage(FsKind::Ext4);
    let earlier = scratch.path().join("earlier");
    let (sound, rotten) = (["sound", "sound-large"], ["rotten", "rotten-large"]);
    for name in sound.iter().chain(&rotten) {
        put(&src.join(name), vec![b'x'; 5000]);
        if name.ends_with("-large") {
            let file = fs::OpenOptions::new().write(true).open(src.join(name));
            file.expect("open")
                .set_len(70 * MIB as u64)
                .expect("extend");
        }
    }
    fs::hard_link(src.join("rotten"), src.join("rotten-too")).expect("link");
    let _ = sync_ok(&src, &earlier, NONE);
    rot(&earlier.join("rotten"), 4000);
    rot(&earlier.join("rotten-large"), 60 * MIB as u64);
    let before = snapshot_hash(&earlier, false);
    let basis = format!("--link-dest={}", earlier.display());
    let is_linked = |dst: &Path, name: &str| {
        let inode = |root: &Path| fs::metadata(root.join(name)).expect("stat").ino();
        inode(dst) == inode(&earlier)
    };
    let linked = |outcome: &driftless_testkit::Outcome| {
        let links = outcome.events_named("change").into_iter();
        // Either of the two names of one file may come first, and the other is linked to it.
        let is_of_two = |event: &serde_json::Value| {
            ["rotten", "rotten-too"]
                .iter()
                .any(|name| event["path"] == *name)
        };
        let links = links.filter(|event| event["action"] == "link" && !is_of_two(event));
        let mut links: Vec<String> = links.map(|event| event["path"].to_string()).collect();
        links.sort_unstable();
        links
    };
    for (at, options) in [
        &["--checksum"][..],
        &["--verify=content"],
        &["--checksum", "--verify=media"],
    ]
    .into_iter()
    .enumerate()
    {
        let dst = dst.with_extension(at.to_string());
        let options = [&[&*basis][..], options].concat();
        let dry = sync_ok(&src, &dst, [&options[..], &["--dry-run"]].concat());
        let outcome = sync_ok(&src, &dst, options.iter().copied());
        check_equal(&src, &dst, &format!("{options:?}"));
        let told = linked(&outcome);
        assert_eq!(told, ["\"sound\"", "\"sound-large\""], "{options:?}");
        assert_eq!(told, linked(&dry), "the dry run of {options:?}");
        for name in sound {
            assert!(is_linked(&dst, name), "{name} {options:?}");
        }
        for name in rotten {
            assert!(!is_linked(&dst, name), "{name} {options:?}");
        }
    }
    let outcome = sync_ok(&src, &dst, [&*basis]);
    assert_eq!(outcome.count("bytes_compared"), 0, "{}", outcome.describe());
    assert!(is_linked(&dst, "rotten"), "nothing was read");
    assert_eq!(snapshot_hash(&earlier, false), before, "the earlier copy");
}

#[test]
fn a_link_dest_that_is_not_there_leaves_no_empty_replica() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("file"), "content");
    let outcome = sync(&src, &dst).arg("--link-dest=/nowhere").run().expect(1);
    assert!(
        outcome
            .stderr_text()
            .contains("--link-dest names no directory")
            && !dst.exists(),
        "{}",
        outcome.describe()
    );
}

#[test]
fn dry_run_says_what_the_real_run_does_and_changes_nothing() {
    if is_user() {
        // Changes at random take the right to read files from their owner, too.
        return;
    }
    let (_scratch, src, dst) = hostile(FsKind::Tmpfs, 7);
    let _ = sync_ok(&src, &dst, NONE);
    driftless_testkit::mutate(&src, 8, 80);
    let before = (snapshot_hash(&src, true), snapshot_hash(&dst, true));
    // With one thread the same name leads a group of hard links both times.
    let planned = sync_ok(&src, &dst, ["--delete", "--jobs=1", "--dry-run"]);
    assert_eq!(
        (snapshot_hash(&src, true), snapshot_hash(&dst, true)),
        before,
        "a dry run changed something"
    );
    let done = sync_ok(&src, &dst, ["--delete", "--jobs=1"]);
    check_equal(&src, &dst, "the real run");
    let (planned_changes, done_changes) = (changes(&planned), changes(&done));
    let only = |a: &[String], b: &[String]| {
        a.iter()
            .filter(|c| !b.contains(c))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        only(&planned_changes, &done_changes),
        only(&done_changes, &planned_changes)
    );
    assert_eq!(planned.count("deleted"), done.count("deleted"));
}

/// Checks that a run does what a dry run says; returns its changes.
fn check_told(src: &Path, dst: &Path, option: &str) -> Vec<String> {
    let run = |more: &[&str]| {
        // With one thread the same name comes first both times.
        let outcome = sync_ok(src, dst, [&[option, "--jobs=1"], more].concat());
        let line = |event: &serde_json::Value| {
            format!("{} {} {}", event["path"], event["action"], event["what"])
        };
        let mut all: Vec<String> = outcome.events_named("change").iter().map(line).collect();
        all.sort();
        all
    };
    let said = run(&["--dry-run"]);
    assert_eq!(said, run(&[]), "{option}");
    said
}

/// Makes a file with a mode and one modification time for all.
fn put_with_mode(path: &Path, mode: u32) {
    put(path, "content");
    attrs::set_mode(path, mode).expect("mode");
    attrs::set_mtime(path, 1_000_000_000, 0).expect("mtime");
}

#[test]
fn dry_run_knows_the_last_name_of_a_file() {
    only_local!("needs the number of names that a file has left");
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    for name in ["a", "b", "c"] {
        put_with_mode(&src.join(name), 0o640);
    }
    put_with_mode(&dst.join("a"), 0o644);
    for name in ["b", "c"] {
        fs::hard_link(dst.join("a"), dst.join(name)).expect("a further name");
    }
    let _ = sync_ok(&src, &dst, ["--exclude=*"]);
    let told = check_told(&src, &dst, "--no-hard-links");
    let of = |action: &str| told.iter().filter(|line| line.contains(action)).count();
    assert_eq!((of("\"content\""), of("\"meta\"")), (2, 1), "{told:?}");
}

#[test]
fn dry_run_knows_which_directories_lose_rights() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    for root in [&src, &dst] {
        for dir in ["above/changed", "above/kept"] {
            put_with_mode(&root.join(dir).join("file"), 0o644);
        }
    }
    let _ = sync_ok(&src, &dst, NONE);
    for dir in ["above", "above/changed", "above/kept"] {
        attrs::set_mode(&dst.join(dir), 0o777).expect("mode");
        attrs::set_mode(&src.join(dir), 0o700).expect("mode");
    }
    attrs::set_mode(&src.join("above/changed/file"), 0o600).expect("mode");
    let _ = sync_ok(&src, &dst, ["--no-mode"]);
    put(&src.join("above/changed/new"), "content");
    let told = check_told(&src, &dst, "--no-mode");
    let named = |path: &str| {
        told.iter()
            .any(|line| line.starts_with(&format!("{path:?} ")))
    };
    assert!(named("above") && named("above/changed"), "{told:?}");
    assert!(!named("above/kept"), "{told:?}");
}

#[test]
fn dry_run_to_a_new_replica_does_not_make_it() {
    let (_scratch, src, dst) = hostile(FsKind::Tmpfs, 7);
    let outcome = sync_ok(&src, &dst, ["--dry-run"]);
    assert!(!dst.exists());
    assert_eq!(outcome.count("changed"), count_entries(&src));
}

/// The set of changed paths with their actions.
fn changes(outcome: &driftless_testkit::Outcome) -> Vec<String> {
    let show = |event: &serde_json::Value| {
        format!("{} {} {}", event["path"], event["kind"], event["action"])
    };
    let mut all: Vec<String> = outcome.events_named("change").iter().map(show).collect();
    all.sort();
    all
}

#[test]
fn checksum_finds_what_size_and_mtime_hide() {
    let (_scratch, src, dst) = stage(FsKind::Ext4);
    put(&src.join("rotten"), vec![1u8; 300_000]);
    put(&src.join("fine"), vec![1u8; 300_000]);
    let _ = sync_ok(&src, &dst, NONE);
    let meta = fs::metadata(dst.join("rotten")).expect("stat");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(dst.join("rotten"))
        .expect("open");
    file.write_all_at(&[2], 150_000).expect("write");
    attrs::set_mtime(&dst.join("rotten"), meta.mtime(), meta.mtime_nsec() as u32).expect("mtime");
    assert_eq!(
        sync_ok(&src, &dst, NONE).count("changed"),
        0,
        "size and mtime do not tell"
    );
    let outcome = sync_ok(&src, &dst, ["--checksum"]);
    assert_eq!(outcome.count("changed"), 1, "{}", outcome.describe());
    check_equal(&src, &dst, "after --checksum");
    check_settled(&src, &dst, ["--checksum"]);
}

#[test]
fn no_way_of_copying_changes_the_result() {
    let ways = [
        "--cache=keep",
        "--cache=drop",
        "--cache=direct",
        "--durability=end",
        "--durability=file",
        "--durability=none",
        "--jobs=1",
        "--jobs=32",
        "--jobs=auto",
    ];
    let (scratch, src, _) = stage(FsKind::Ext4);
    build_tree(
        &src,
        9,
        &Profile {
            entries: 50,
            ..profile()
        },
    );
    for way in ways {
        let dst = scratch.path().join(format!("dst{way}"));
        let _ = sync_ok(&src, &dst, [way]);
        check_equal(&src, &dst, way);
        remove_any(&dst).expect("remove");
    }
}

#[test]
fn bandwidth_and_operations_stay_below_their_limits() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("big"), vec![1u8; 8 * MIB]);
    let outcome = sync_ok(&src, &dst, ["--bwlimit=4M"]);
    assert!(
        outcome.elapsed > Duration::from_millis(1200),
        "8 MiB at 4 MiB/s took {:?}",
        outcome.elapsed
    );
    check_equal(&src, &dst, "--bwlimit");
    for index in 0..200 {
        put(&src.join(format!("small-{index}")), "x");
    }
    let other = scratch.path().join("other");
    let outcome = sync_ok(&src, &other, ["--iops-limit=200"]);
    assert!(
        outcome.elapsed > Duration::from_millis(700),
        "200 files at 200/s took {:?}",
        outcome.elapsed
    );
    check_equal(&src, &other, "--iops-limit");
}

#[test]
fn setuid_and_capabilities_survive_a_change_of_owner() {
    let (_scratch, src, dst) = stage(FsKind::Ext4);
    put(&src.join("tool"), "#!/bin/true");
    let dress = |uid| {
        attrs::set_owner(&src.join("tool"), uid, uid).expect("chown");
        attrs::set_mode(&src.join("tool"), 0o6755).expect("chmod");
        attrs::set_xattr(
            &src.join("tool"),
            attrs::CAPABILITY.as_bytes(),
            &attrs::capability_blob(4),
        )
        .expect("cap");
    };
    dress(1000);
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "first");
    dress(2000);
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "new owner");
}

#[test]
fn an_inherited_default_acl_widens_nothing() {
    let (_scratch, src, dst) = stage(FsKind::Ext4);
    put(&src.join("secret/file"), "content");
    attrs::set_mode(&src.join("secret/file"), 0o600).expect("chmod");
    fs::create_dir(&dst).expect("replica");
    let blob = attrs::acl_blob((1000, 7), (1000, 7), 7);
    attrs::set_xattr(&dst, attrs::ACL_DEFAULT.as_bytes(), &blob).expect("acl");
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "default ACL on the replica");
}

#[test]
fn where_modes_are_not_kept_an_acl_is_kept_as_it_is() {
    for is_there in [false, true] {
        let (_scratch, src, dst) = stage(FsKind::Tmpfs);
        put(&src.join("dir/file"), "content");
        put(&src.join("closed/file"), "content");
        if is_there {
            let _ = sync_ok(&src, &dst, NONE);
        }
        for (name, mode) in [
            ("dir", 0o750),
            ("dir/file", 0o674),
            ("closed", 0o700),
            ("closed/file", 0o600),
        ] {
            let blob = attrs::acl_blob((1500, 7), (1000, 7), 5);
            attrs::set_xattr(&src.join(name), attrs::ACL_ACCESS.as_bytes(), &blob).expect("acl");
            // It sets the mask.
            attrs::set_mode(&src.join(name), mode).expect("chmod");
            if is_there {
                attrs::set_mode(&dst.join(name), 0o775).expect("chmod");
            }
        }
        let _ = sync_ok(&src, &dst, ["--no-mode"]);
        for name in ["dir", "dir/file", "closed", "closed/file"] {
            let acl = |root: &Path| {
                attrs::get_xattr(&root.join(name), attrs::ACL_ACCESS.as_bytes()).expect("acl")
            };
            assert_eq!(acl(&dst), acl(&src), "{name}, there before: {is_there}");
        }
        check_settled(&src, &dst, ["--no-mode"]);
        let _ = on_trees("verify", &src, &dst)
            .arg("--no-mode")
            .run()
            .expect(0);
    }
}

#[test]
fn holes_of_reflinked_files_are_not_counted() {
    let (_scratch, src, dst) = stage(FsKind::Xfs);
    for (name, size) in [("small", 32 * MIB), ("large", 1024 * MIB)] {
        put(&src.join(name), vec![b'x'; 256 * 1024]);
        let file = fs::OpenOptions::new().write(true).open(src.join(name));
        file.expect("open").set_len(size as u64).expect("extend");
    }
    let outcome = sync_ok(&src, &dst, NONE);
    let copied = outcome.count("bytes_copied");
    assert!((512 * 1024..8 * MIB as u64).contains(&copied), "{copied}");
    check_equal(&src, &dst, "with holes");
}
