//! Whole copies: hostile trees arrive identical, in any order of units, and only complete.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Bench, assert_same, build, bytes, cast, names, open, put_all, write};
use driftless_store::{CopyState, Error, Receiving};
use driftless_testkit::{Profile, build_tree};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

#[test]
fn hostile_tree_arrives_identical() {
    for seed in 0..3 {
        let bench = Bench::new();
        build_tree(&bench.path("src"), seed, &Profile::root());
        let (set, node) = (bench.build(), bench.node());
        let placed = cast(&node, &set, &bench.to()).expect("placed");
        assert_eq!(placed.metadata, Default::default(), "seed {seed}");
        let context = format!("seed {seed}");
        assert_same(&bench.path("src"), &bench.path("to/src"), &context);
        assert_eq!(names(&bench.path("to")), ["src"], "{context}");
        let report = node.verify(placed.copy, &mut |_| true).expect("checked");
        assert!(report.is_sound() && report.extra == 0, "{report:?}");
    }
}

#[test]
fn same_tree_has_the_same_hash() {
    let bench = Bench::new();
    build_tree(&bench.path("src"), 4, &Profile::small());
    let hash = bench.build().catalogue.hash();
    assert_eq!(bench.build().catalogue.hash(), hash);
    write(&bench.path("src/new"), b"x");
    assert_ne!(bench.build().catalogue.hash(), hash);
}

#[test]
fn several_sources_stand_side_by_side() {
    let bench = Bench::new();
    write(&bench.path("src/one/a"), &bytes(1, 200_000));
    write(&bench.path("src/two"), b"two");
    symlink("two", bench.path("src/three")).expect("a link");
    let paths = ["two", "one"].map(|name| bench.path("src").join(name));
    let (origin, node) = (bench.origin(), bench.node());
    let set = build(&origin, &paths).expect("a set");
    cast(&node, &set, &bench.to()).expect("placed");
    assert_eq!(names(&bench.path("to")), ["one", "two"]);
    for name in ["one", "two"] {
        assert_same(
            &bench.path("src").join(name),
            &bench.path("to").join(name),
            name,
        );
    }
    let twice = build(
        &origin,
        &[bench.path("src/one"), bench.path("src/one/../one")],
    );
    assert!(matches!(twice.err(), Some(Error::SourceName { .. })));
}

#[test]
fn incomplete_copy_has_no_final_name() {
    let bench = Bench::new();
    write(&bench.path("src/a"), &bytes(1, 300_000));
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    let (mut reader, mut buffer) = (set.source.reader(), Vec::new());
    reader.read(0, &mut buffer).expect("read");
    receiver.put(0, &buffer).expect("put");
    assert!(!receiver.put(0, &buffer).expect("again"), "it is there");
    buffer[9] ^= 1;
    let wrong = receiver.put(1, &buffer);
    assert!(matches!(wrong, Err(Error::WrongUnit { unit: 1 })));
    assert!(matches!(
        receiver.put(99, &buffer),
        Err(Error::NoSuchUnit { .. })
    ));
    let lacking = receiver.finish();
    assert!(matches!(lacking, Err(Error::Incomplete { lacking: 4, .. })));
    assert!(!bench.path("to/src").exists());
}

#[test]
fn killed_receiver_goes_on() {
    let bench = Bench::new();
    build_tree(&bench.path("src"), 7, &Profile::small());
    write(&bench.path("src/large"), &bytes(3, 1_000_000));
    let set = bench.build();
    let mut receiver = open(&bench.node(), &set, &bench.to());
    let (mut reader, mut buffer) = (set.source.reader(), Vec::new());
    for unit in (0..set.catalogue.units()).filter(|unit| unit % 3 == 1) {
        reader.read(unit, &mut buffer).expect("read");
        receiver.put(unit, &buffer).expect("put");
    }
    let count = receiver.present().count();
    drop(receiver);
    let node = bench.node();
    let mut receiver = open(&node, &set, &bench.to());
    assert_eq!(
        receiver.present().count(),
        count,
        "nothing is fetched again"
    );
    put_all(&mut receiver, &mut reader, 5);
    receiver.finish().expect("placed");
    assert_same(&bench.path("src"), &bench.path("to/src"), "resumed");
    assert_eq!(names(&bench.path("to")), ["src"]);
}

/// Makes a complete copy that another entry keeps from its final name.
#[test]
fn resumed_copy_has_no_added_holes() {
    let bench = Bench::new();
    let zeros = vec![0; 300_000];
    let half = [zeros.clone(), bytes(1, 300_000)].concat();
    write(&bench.path("src/zeros"), &zeros);
    write(&bench.path("src/half"), &half);
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    let (mut reader, mut buffer) = (set.source.reader(), Vec::new());
    // The last unit gives the files their length.
    for unit in [0, set.catalogue.units() - 1] {
        reader.read(unit, &mut buffer).expect("a unit");
        receiver.put(unit, &buffer).expect("written");
    }
    drop(receiver);
    cast(&node, &set, &bench.to()).expect("placed");
    assert_same(&bench.path("src"), &bench.path("to/src"), "resumed");
}

fn blocked(bench: &Bench) -> driftless_store::BuiltSet {
    build_tree(&bench.path("src"), 8, &Profile::root());
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    put_all(&mut receiver, &mut set.source.reader(), 1);
    write(&bench.path("to/src"), b"in the way");
    assert!(common::is_occupied(receiver.finish()));
    node.sweep().expect("swept");
    assert!(common::is_occupied(
        node.receive(&set.catalogue, &bench.to())
    ));
    fs::remove_file(bench.path("to/src")).expect("removed");
    set
}

#[test]
fn blocked_copy_gets_its_name_later() {
    let bench = Bench::new();
    let set = blocked(&bench);
    let held = bench.node().receive(&set.catalogue, &bench.to());
    assert!(matches!(held, Ok(Receiving::Held(_))));
    assert_same(&bench.path("src"), &bench.path("to/src"), "later");
    assert_eq!(names(&bench.path("to")), ["src"]);
}

#[test]
fn second_attempt_sets_the_same_metadata() {
    use driftless_state::holdings::Holdings;
    let bench = Bench::new();
    let set = blocked(&bench);
    // As if the first attempt had been killed while it set metadata.
    let mut index = Holdings::open(&bench.path("node/index.db")).expect("open");
    let copy = index.copies().expect("read")[0].id;
    index.set_state(copy, CopyState::Unfinished).expect("set");
    let receiver = open(&bench.node(), &set, &bench.to());
    assert!(receiver.present().is_complete());
    let placed = receiver.finish().expect("placed");
    assert_eq!(placed.metadata, Default::default());
    assert_same(&bench.path("src"), &bench.path("to/src"), "second attempt");
}

#[test]
fn damage_of_an_unfinished_copy_is_found() {
    let bench = Bench::new();
    write(&bench.path("src/a"), &bytes(1, 300_000));
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    put_all(&mut receiver, &mut set.source.reader(), 1);
    drop(receiver);
    let private = bench.path("to").join(&names(&bench.path("to"))[0]);
    let mut content = fs::read(private.join("src/a")).expect("read");
    content[70_000] ^= 1;
    fs::write(private.join("src/a"), content).expect("written");
    let mut receiver = open(&node, &set, &bench.to());
    assert_eq!(receiver.present().lacking(9).last(), Some(&(1..2)));
    put_all(&mut receiver, &mut set.source.reader(), 1);
    receiver.finish().expect("placed");
    assert_same(&bench.path("src"), &bench.path("to/src"), "mended");
}

#[test]
fn unfinished_copy_serves_its_units() {
    let bench = Bench::new();
    write(&bench.path("src/a"), &bytes(1, 300_000));
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    let (mut source, mut copy) = (set.source.reader(), receiver.reader().expect("a reader"));
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    source.read(2, &mut wanted).expect("read");
    assert!(copy.read(2, &mut found).is_err() && found.is_empty());
    receiver.put(2, &wanted).expect("put");
    copy.read(2, &mut found).expect("read");
    assert_eq!(found, wanted);
}

#[test]
fn unfinished_copy_is_closed_to_others() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    fs::set_permissions(bench.path("to"), fs::Permissions::from_mode(0o2777)).expect("set");
    let acl = driftless_testkit::attrs::acl_blob((65_534, 7), (65_534, 7), 7);
    let default = b"system.posix_acl_default";
    driftless_testkit::attrs::set_xattr(&bench.path("to"), default, &acl).expect("set");
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    put_all(&mut receiver, &mut set.source.reader(), 1);
    let private = bench.path("to").join(&names(&bench.path("to"))[0]);
    for (path, mode) in [(private.clone(), 0o700), (private.join("src/a"), 0o600)] {
        let found = fs::metadata(&path).expect("there").mode() & 0o7777;
        assert_eq!(found, mode, "{}", path.display());
        for name in [&b"system.posix_acl_access"[..], default] {
            let acl = driftless_testkit::attrs::get_xattr(&path, name).expect("read");
            assert_eq!(acl, None, "{}", path.display());
        }
    }
    receiver.finish().expect("placed");
    assert_same(
        &bench.path("src"),
        &bench.path("to/src"),
        "no ACL from the directory",
    );
}

#[test]
fn deep_tree_arrives() {
    let bench = Bench::new();
    driftless_testkit::deep_path(&bench.path("src"), 3000, 20).expect("made");
    let (set, node) = (bench.build(), bench.node());
    let placed = cast(&node, &set, &bench.to()).expect("placed");
    assert_same(&bench.path("src"), &bench.path("to/src"), "deep");
    let report = node.verify(placed.copy, &mut |_| true).expect("checked");
    assert!(report.is_sound(), "{report:?}");
    node.purge(&driftless_store::PurgeWhat::All)
        .expect("purged");
    assert!(names(&bench.path("to")).is_empty());
    driftless_testkit::remove_deep(&bench.path("src")).expect("removed");
}

#[test]
fn changed_source_is_not_served() {
    let bench = Bench::new();
    write(&bench.path("src/large"), &bytes(1, 200_000));
    write(&bench.path("src/small"), b"small");
    let set = bench.build();
    let (mut reader, mut buffer) = (set.source.reader(), Vec::new());
    fs::write(bench.path("src/small"), b"other").expect("written");
    let last = set.catalogue.units() - 1;
    match reader.read(last, &mut buffer) {
        Err(Error::SourceChanged { path }) => assert_eq!(path, b"src/small"),
        other => panic!("{other:?}"),
    }
    assert!(buffer.is_empty());
    fs::remove_file(bench.path("src/large")).expect("removed");
    let gone = set.source.reader().read(0, &mut buffer);
    assert!(matches!(gone, Err(Error::SourceChanged { .. })));
}

#[test]
fn placed_set_is_held() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    let (set, node) = (bench.build(), bench.node());
    let placed = cast(&node, &set, &bench.to()).expect("placed");
    let held = node.receive(&set.catalogue, &bench.to()).expect("asked");
    assert!(matches!(held, Receiving::Held(copy) if copy == placed.copy));
    let (mut reader, mut buffer) = (node.reader(placed.copy).expect("a reader"), Vec::new());
    reader.read(0, &mut buffer).expect("read");
    assert_eq!(buffer, b"content");
}
