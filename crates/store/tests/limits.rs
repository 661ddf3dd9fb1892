//! Ordinary users, full disks, disks that fail, and masks.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    Bench, as_user, assert_same, bench_of, build, bytes, cast, names, open, put_all, write,
};
use driftless_store::{CopyFinding, Error, NodeStore, Placing, PurgeWhat, Receiving};
use driftless_testkit::{FsKind, Fuse, Mood, Profile, Rule, Scratch, attrs, build_tree};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const USER: u32 = 65_534;
const OTHER: u32 = 65_533;

#[test]
fn ordinary_user_copies_his_tree() {
    for seed in 0..2 {
        let bench = bench_of(USER);
        build_tree(&bench.path("src"), seed, &Profile::user(USER, USER));
        let placed = as_user(USER, || cast(&bench.node(), &bench.build(), &bench.to()));
        let placed = placed.expect("placed");
        assert_eq!(placed.metadata, Default::default(), "seed {seed}");
        assert_same(
            &bench.path("src"),
            &bench.path("to/src"),
            &format!("seed {seed}"),
        );
    }
}

#[test]
fn foreign_owners_are_counted() {
    let bench = bench_of(USER);
    write(&bench.path("src/a"), b"content");
    write(&bench.path("src/b"), b"content");
    attrs::set_mode(&bench.path("src/a"), 0o644).expect("set");
    attrs::set_owner(&bench.path("src/b"), USER, USER).expect("given");
    let placed = as_user(USER, || cast(&bench.node(), &bench.build(), &bench.to()));
    let metadata = placed.expect("placed").metadata;
    let counts = metadata.counts;
    assert_eq!((counts.owners, counts.attributes), (1, 0));
    assert_eq!(
        fs::metadata(bench.path("to/src/a")).expect("there").uid(),
        USER
    );
}

#[test]
fn directories_without_rights_are_replaced_and_removed() {
    let bench = bench_of(USER);
    let set_modes = |mode: u32| {
        for name in ["src/a/b", "src/a", "src"] {
            attrs::set_mode(&bench.path(name), mode).expect("set");
        }
    };
    write(&bench.path("src/a/b/c"), b"content");
    for name in ["src/a", "src/a/b", "src/a/b/c"] {
        attrs::set_owner(&bench.path(name), USER, USER).expect("given");
    }
    set_modes(0o500);
    as_user(USER, || {
        let node = bench.node();
        cast(&node, &bench.build(), &bench.to()).expect("placed");
        assert_same(&bench.path("src"), &bench.path("to/src"), "first version");
        fs::write(bench.path("src/a/b/c"), b"changed").expect("written");
        cast(&node, &bench.build(), &bench.to()).expect("placed");
        assert_same(&bench.path("src"), &bench.path("to/src"), "second version");
        let report = node.purge(&PurgeWhat::All).expect("purged");
        assert_eq!((report.entries, report.kept), (4, 0));
        assert!(names(&bench.path("to")).is_empty());
    });
}

#[test]
fn other_users_see_nothing_unfinished() {
    let bench = bench_of(USER);
    write(&bench.path("src/a"), b"content");
    attrs::set_mode(&bench.path("src/a"), 0o644).expect("set");
    attrs::set_mode(&bench.path("to"), 0o1777).expect("set");
    let receiver = as_user(USER, || {
        let (set, node) = (bench.build(), bench.node());
        let mut receiver = open(&node, &set, &bench.to());
        put_all(&mut receiver, &mut set.source.reader(), 1);
        receiver
    });
    let private = bench.path("to").join(&names(&bench.path("to"))[0]);
    as_user(OTHER, || {
        let denied = |path: &Path| fs::read(path).map_err(|error| error.kind()).err();
        let kind = Some(std::io::ErrorKind::PermissionDenied);
        assert_eq!(denied(&private.join("src/a")), kind);
        assert_eq!(denied(&bench.path("node/index.db")), kind);
        let opened = NodeStore::open(&bench.path("node"), bench.clock());
        assert!(opened.is_err(), "two users have two stores");
    });
    drop(receiver);
    // Another user takes the private name.
    fs::remove_dir_all(&private).expect("removed");
    as_user(OTHER, || fs::create_dir(&private).expect("made"));
    attrs::set_mode(&private, 0o777).expect("set");
    as_user(USER, || {
        cast(&bench.node(), &bench.build(), &bench.to()).expect("placed under another name");
    });
    assert!(names(&private).is_empty());
}

#[test]
fn full_disk_leaves_the_old_version() {
    let scratch = Scratch::new(FsKind::Tmpfs, 8);
    let bench = Bench::new();
    let to = Placing::Directory(scratch.dir("to"));
    write(&bench.path("src/a"), &bytes(1, 1_000_000));
    let node = bench.node();
    cast(&node, &bench.build(), &to).expect("placed");
    assert_same(
        &bench.path("src"),
        &scratch.path().join("to/src"),
        "first version",
    );
    write(&bench.path("src/b"), &bytes(2, 16_000_000));
    match node.receive(&bench.build().catalogue, &to) {
        Err(Error::NoRoom { needed, free, .. }) => {
            assert!(needed >= 16_000_000 && free < 8_000_000, "{needed} {free}");
        }
        _ => panic!("it fits"),
    }
    assert_eq!(names(&scratch.path().join("to")), ["src"]);
    assert_eq!(node.copies().expect("read").len(), 1);
}

#[test]
fn disk_that_fills_up_leaves_the_copy_unfinished() {
    let scratch = Scratch::new(FsKind::Tmpfs, 8);
    let bench = Bench::new();
    let to = Placing::Directory(scratch.dir("to"));
    write(&bench.path("src/a"), &bytes(1, 4_000_000));
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &to);
    let filler = scratch.path().join("filler");
    write(&filler, &vec![1; 6_000_000]);
    let (mut reader, mut buffer) = (set.source.reader(), Vec::new());
    let failed = (0..set.catalogue.units()).find_map(|unit| {
        reader.read(unit, &mut buffer).expect("read");
        receiver.put(unit, &buffer).err()
    });
    assert!(failed.as_ref().is_some_and(Error::is_of_room), "{failed:?}");
    assert!(matches!(failed, Some(Error::NoRoom { .. })));
    drop(receiver);
    assert!(!scratch.path().join("to/src").exists());
    fs::remove_file(filler).expect("removed");
    let mut receiver = open(&node, &set, &to);
    assert!(receiver.present().count() > 0, "what was there stays");
    put_all(&mut receiver, &mut reader, 1);
    receiver.finish().expect("placed");
    assert_same(&bench.path("src"), &scratch.path().join("to/src"), "placed");
}

#[test]
fn unreadable_file_is_fetched_again() {
    let (fuse, bench) = (Fuse::mount(Mood::healthy()), Bench::new());
    let to = Placing::Directory(fuse.dir("to"));
    write(&bench.path("src/a"), &bytes(1, 300_000));
    write(&bench.path("src/b"), &bytes(2, 300_000));
    let (set, node) = (bench.build(), bench.node());
    let copy = cast(&node, &set, &to).expect("placed").copy;
    fuse.order(Rule::fail(driftless_testkit::fuse::Op::Read, Errno::IO).named("a"));
    let report = node.verify(copy, &mut |_| true).expect("checked");
    assert!(
        report
            .first
            .contains(&(b"src/a".to_vec(), CopyFinding::Content)),
        "{report:?}"
    );
    assert_eq!(report.bad_units, 5);
    let mut receiver = open(&node, &set, &to);
    let reused = receiver.reuse(&mut |_| true).expect("reused");
    assert_eq!(reused.units, 5);
    fuse.forgive();
    put_all(&mut receiver, &mut set.source.reader(), 1);
    receiver.finish().expect("placed");
    assert_same(&bench.path("src"), &fuse.path().join("to/src"), "repaired");
    assert_eq!(names(&fuse.path().join("to")), ["src"]);
}

#[test]
fn trees_arrive_on_every_file_system() {
    for kind in FsKind::ALL {
        let (scratch, bench) = (Scratch::new(kind, 400), Bench::new());
        let source = scratch.dir("src");
        let to = Placing::Directory(scratch.dir("to"));
        build_tree(&source, 71, &Profile::root());
        let node = bench.node();
        cast(
            &node,
            &build(&bench.origin(), std::slice::from_ref(&source)).expect("a set"),
            &to,
        )
        .expect("placed");
        let context = format!("{kind:?}");
        assert_same(&source, &scratch.path().join("to/src"), &context);
        driftless_testkit::mutate(&source, 72, 50);
        let set = build(&bench.origin(), std::slice::from_ref(&source)).expect("a set");
        let mut receiver = open(&node, &set, &to);
        receiver.reuse(&mut |_| true).expect("reused");
        put_all(&mut receiver, &mut set.source.reader(), 1);
        receiver.finish().expect("placed");
        assert_same(&source, &scratch.path().join("to/src"), &context);
    }
}

/// Mounts a btrfs that keeps no ACLs.
fn without_acls() -> Scratch {
    Scratch::found("loop,noacl", |image| {
        let file = fs::File::create(image).expect("an image");
        file.set_len(128 << 20).expect("its length");
        let made = std::process::Command::new("mkfs.btrfs")
            .arg("-q")
            .arg(image)
            .status();
        assert!(made.expect("mkfs.btrfs").success());
    })
}

#[test]
fn attributes_that_a_node_lacks_are_counted() {
    let (bench, place) = (Bench::new(), without_acls());
    write(&bench.path("src/a"), b"content");
    let acl = std::process::Command::new("setfacl")
        .args(["-m", "u:65533:rw"])
        .arg(bench.path("src/a"))
        .status();
    assert!(acl.expect("setfacl").success());
    let (node, to) = (bench.node(), Placing::Directory(place.path().into()));
    let placed = cast(&node, &bench.build(), &to).expect("placed");
    assert_eq!(placed.metadata.counts.attributes, 1);
    let first = placed.metadata.first_text().expect("a fault");
    assert!(first.contains("src/a"), "{first}");
    let counts = node.unkept(placed.copy).expect("a copy");
    assert_eq!(counts, placed.metadata.counts, "a later cast knows");
    let report = node.verify(placed.copy, &mut |_| true).expect("checked");
    assert!(report.is_sound() && report.unkept == 1, "{report:?}");
}

#[test]
fn copy_with_coarse_times_is_sound() {
    let (bench, place) = (Bench::new(), Scratch::new(FsKind::Ext4Old, 16));
    write(&bench.path("src/a"), b"content");
    let (node, to) = (bench.node(), Placing::Directory(place.path().into()));
    let set = bench.build();
    let placed = cast(&node, &set, &to).expect("placed");
    let report = node.verify(placed.copy, &mut |_| true).expect("checked");
    assert!(report.is_sound(), "{report:?}");
    write(&bench.path("src/a"), b"changed");
    cast(&node, &bench.build(), &to).expect("replaced");
}

/// Makes a directory whose name is that of the private one of an unfinished copy.
fn plant(bench: &Bench) -> std::path::PathBuf {
    let (set, node) = (bench.build(), bench.node());
    drop(open(&node, &set, &bench.to()));
    let private = bench.path("to").join(&names(&bench.path("to"))[0]);
    fs::rename(&private, bench.path("moved")).expect("moved");
    fs::create_dir_all(private.join("src")).expect("made");
    write(&private.join("src/a"), b"planted");
    private
}

#[test]
fn planted_directory_is_not_used() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    let private = plant(&bench);
    let inode = |path: &Path| fs::metadata(path).expect("there").ino();
    let planted = inode(&private.join("src"));
    cast(&bench.node(), &bench.build(), &bench.to()).expect("placed");
    assert_same(&bench.path("src"), &bench.path("to/src"), "placed");
    assert_ne!(inode(&bench.path("to/src")), planted);
    assert_eq!(fs::read(private.join("src/a")).expect("there"), b"planted");
}

#[test]
fn planted_directory_is_not_removed() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    let private = plant(&bench);
    bench.node().sweep().expect("swept");
    bench.node().purge(&PurgeWhat::All).expect("purged");
    assert_eq!(fs::read(private.join("src/a")).expect("there"), b"planted");
    assert!(bench.node().copies().expect("read").is_empty());
}

#[test]
fn copy_survives_an_unmounted_place() {
    let (bench, place) = (Bench::new(), Scratch::new(FsKind::Ext4, 16));
    write(&bench.path("src/a"), b"content");
    let (set, to) = (bench.build(), Placing::Directory(place.path().into()));
    let copy = cast(&bench.node(), &set, &to).expect("placed").copy;
    let sound = || {
        let report = bench.node().verify(copy, &mut |_| true).expect("checked");
        assert!(report.is_sound(), "{report:?}");
    };
    place.unmount();
    let error = bench.node().verify(copy, &mut |_| true);
    let error = error.expect_err("its place is not there");
    assert!(matches!(error, Error::OtherPlace { .. }), "{error}");
    let report = bench.node().purge(&PurgeWhat::All).expect("a report");
    let stays = &report.staying[0];
    assert!(stays.copy == copy && !stays.is_busy, "{stays:?}");
    assert!(stays.cause.contains("mount its file system"), "{stays:?}");
    place.mount_again();
    sound();
    place.unmount();
    cast(&bench.node(), &set, &to).expect("placed below the mount point");
    place.mount_again();
    sound();
    let held = bench.node().receive(&set.catalogue, &to).expect("there");
    assert!(matches!(held, Receiving::Held(found) if found == copy));
    drop(held);
    place.unmount();
    let report = bench.node().purge(&PurgeWhat::Copy(copy));
    let report = report.expect("forgotten");
    assert_eq!((report.copies, report.kept), (0, 1));
    bench.node().purge(&PurgeWhat::All).expect("purged");
    assert!(names(place.path()).is_empty());
    place.mount_again();
    assert!(place.path().join("src/a").exists(), "its entries stay");
}
