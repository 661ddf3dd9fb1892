//! The store of a node: versions, reuse, jobs, quota, removal and checks.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    Bench, assert_same, bring, build, bytes, cast, is_occupied, names, open, put_all, write,
};
use driftless_store::{
    CopyFinding, CopyState, Error, NodeStore, Placing, PurgeWhat, Receiving, overlaps,
};
use driftless_testkit::{Profile, attrs, build_tree, mutate};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Returns the bytes that a reception has to fetch after the reuse.
fn cast_with_reuse(node: &NodeStore, set: &driftless_store::BuiltSet, to: &Placing) -> u64 {
    let mut receiver = open(node, set, to);
    receiver.reuse(&mut |_| true).expect("reused");
    let lacking = receiver.present().lacking(usize::MAX).into_iter().flatten();
    let fetched = lacking
        .map(|unit| u64::from(set.catalogue.unit_bytes(unit)))
        .sum();
    put_all(&mut receiver, &mut set.source.reader(), 1);
    receiver.finish().expect("placed");
    fetched
}

#[test]
fn newer_version_replaces_the_older_one() {
    let bench = Bench::new();
    build_tree(&bench.path("src"), 11, &Profile::small());
    let node = bench.node();
    let first = cast(&node, &bench.build(), &bench.to()).expect("placed");
    let inode = fs::metadata(bench.path("to/src")).expect("there").ino();
    mutate(&bench.path("src"), 12, 60);
    let second = cast(&node, &bench.build(), &bench.to()).expect("placed");
    assert_same(&bench.path("src"), &bench.path("to/src"), "second version");
    assert_ne!(
        fs::metadata(bench.path("to/src")).expect("there").ino(),
        inode
    );
    assert_eq!(names(&bench.path("to")), ["src"]);
    assert_eq!((second.replaced.copies, second.replaced.kept), (1, 0));
    let copies: Vec<u64> = node
        .copies()
        .expect("read")
        .iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(copies, [second.copy]);
    assert!(matches!(
        node.reader(first.copy),
        Err(Error::UnknownCopy { .. })
    ));
    assert_eq!(names(&bench.path("node/catalogues")).len(), 1);
    assert_eq!(names(&bench.path("node/identities")).len(), 1);
}

#[test]
fn unknown_entry_at_the_final_name_stays() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    write(&bench.path("to/src/users"), b"own");
    let (set, node) = (bench.build(), bench.node());
    assert!(is_occupied(node.receive(&set.catalogue, &bench.to())));
    assert_eq!(fs::read(bench.path("to/src/users")).expect("there"), b"own");
    fs::remove_dir_all(bench.path("to/src")).expect("removed");
    let mut receiver = open(&node, &set, &bench.to());
    put_all(&mut receiver, &mut set.source.reader(), 1);
    write(&bench.path("to/src"), b"late");
    assert!(is_occupied(receiver.finish()));
    assert_eq!(fs::read(bench.path("to/src")).expect("there"), b"late");
}

#[test]
fn same_inode_number_alone_proves_nothing() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    let (set, node) = (bench.build(), bench.node());
    cast(&node, &set, &bench.to()).expect("placed");
    // Many file systems give the number to the next directory.
    fs::rename(bench.path("to/src"), bench.path("moved")).expect("moved");
    fs::create_dir(bench.path("to/src")).expect("made");
    write(&bench.path("src/b"), b"content");
    assert!(is_occupied(
        node.receive(&bench.build().catalogue, &bench.to())
    ));
    let report = node.purge(&PurgeWhat::All).expect("purged");
    assert!(bench.path("to/src").exists() && report.entries == 0);
}

#[test]
fn users_entries_survive_a_purge() {
    let bench = Bench::new();
    write(&bench.path("src/a/b/c"), b"content");
    write(&bench.path("src/a/d"), b"content");
    write(&bench.path("src/e"), b"content");
    let node = bench.node();
    cast(&node, &bench.build(), &bench.to()).expect("placed");
    let to = bench.path("to/src");
    write(&to.join("a/b/users"), b"own");
    fs::remove_file(to.join("a/d")).expect("removed");
    write(&to.join("a/d"), b"own");
    write(&bench.path("outside/file"), b"own");
    fs::remove_file(to.join("e")).expect("removed");
    std::os::unix::fs::symlink(bench.path("outside"), to.join("e")).expect("a link");
    let report = node.purge(&PurgeWhat::All).expect("purged");
    assert_eq!((report.copies, report.entries), (1, 1), "{report:?}");
    assert_eq!(fs::read(to.join("a/b/users")).expect("there"), b"own");
    assert_eq!(fs::read(to.join("a/d")).expect("there"), b"own");
    assert_eq!(names(&to.join("a/b")), ["users"]);
    assert_eq!(names(&bench.path("outside")), ["file"]);
    assert!(to.join("e").is_symlink() && node.copies().expect("read").is_empty());
    let cause = |name: &str| {
        let path = to.join(name).into_os_string().into_encoded_bytes();
        let mut kept = report.first_kept.iter();
        kept.find(|kept| kept.path == path).map(|kept| &*kept.cause)
    };
    let foreign = "it holds entries that driftless did not place, such as \"users\"";
    assert_eq!(cause("a/b"), Some(foreign), "{report:?}");
    assert_eq!(cause("a"), Some("it holds entries that stay"));
    assert_eq!(cause("e"), Some("driftless did not place it"));
}

#[test]
fn version_with_users_entries_is_not_replaced() {
    let bench = Bench::new();
    write(&bench.path("src/a/b"), b"content");
    let node = bench.node();
    cast(&node, &bench.build(), &bench.to()).expect("placed");
    write(&bench.path("to/src/a/result"), b"own");
    write(&bench.path("src/a/b"), b"changed");
    match node.receive(&bench.build().catalogue, &bench.to()) {
        Err(Error::Occupied { path }) => assert!(path.ends_with(b"src/a/result")),
        _ => panic!("it is replaced"),
    }
}

#[test]
fn changed_part_of_a_large_file_is_fetched() {
    let bench = Bench::new();
    let mut content = bytes(1, 4_000_000);
    write(&bench.path("src/large"), &content);
    let node = bench.node();
    cast(&node, &bench.build(), &bench.to()).expect("placed");
    content[2_000_000] ^= 1;
    fs::write(bench.path("src/large"), &content).expect("written");
    // Moved content is found, too.
    write(&bench.path("src/moved"), &content[131_072..1_000_000]);
    let fetched = cast_with_reuse(&node, &bench.build(), &bench.to());
    assert!(fetched <= 2 * 65_536, "{fetched} bytes");
    assert_same(&bench.path("src"), &bench.path("to/src"), "second version");
}

#[test]
fn changed_small_files_alone_are_fetched() {
    let bench = Bench::new();
    for number in 0..2000 {
        let path = bench.path("src").join(format!("{}/{number}", number % 20));
        write(&path, &bytes(number, 2000));
        attrs::set_mtime(&path, 1_000_000_000, 0).expect("set");
    }
    let node = bench.node();
    cast(&node, &bench.build(), &bench.to()).expect("placed");
    for number in (0..2000).step_by(100) {
        let path = bench.path("src").join(format!("{}/{number}", number % 20));
        fs::write(path, bytes(number + 9999, 2000)).expect("written");
    }
    let fetched = cast_with_reuse(&node, &bench.build(), &bench.to());
    assert!((40_000..=2 * 65_536).contains(&fetched), "{fetched} bytes");
    assert_same(&bench.path("src"), &bench.path("to/src"), "second version");
}

#[test]
fn reused_file_shares_no_inode() {
    let bench = Bench::new();
    write(&bench.path("src/a"), &bytes(1, 200_000));
    write(&bench.path("src/b"), b"small");
    let (set, node) = (bench.build(), bench.node());
    cast(&node, &set, &bench.to()).expect("placed");
    assert_eq!(cast_with_reuse(&node, &set, &Placing::Cached), 0);
    for name in ["a", "b"] {
        let meta = fs::metadata(bench.path("to/src").join(name)).expect("there");
        assert_eq!(meta.nlink(), 1, "{name}");
    }
}

#[test]
fn damaged_copy_is_reported_and_repaired() {
    let bench = Bench::new();
    build_tree(&bench.path("src"), 21, &Profile::small());
    write(&bench.path("src/large"), &bytes(1, 500_000));
    write(&bench.path("src/dir/gone"), b"gone");
    write(&bench.path("src/mode"), b"mode");
    let (set, node) = (bench.build(), bench.node());
    let copy = cast(&node, &set, &bench.to()).expect("placed").copy;
    let to = bench.path("to/src");
    let times = fs::metadata(to.join("large")).expect("there");
    let mut content = fs::read(to.join("large")).expect("read");
    content[200_000] ^= 1;
    fs::write(to.join("large"), content).expect("written");
    attrs::set_mtime(&to.join("large"), times.mtime(), times.mtime_nsec() as u32).expect("set");
    fs::remove_file(to.join("dir/gone")).expect("removed");
    attrs::set_mode(&to.join("mode"), 0o777).expect("set");
    let report = node.verify(copy, &mut |_| true).expect("checked");
    let found = |path: &str| {
        let mut all = report.first.iter();
        all.find(|(found, _)| found == path.as_bytes())
            .map(|(_, finding)| *finding)
    };
    assert_eq!(found("src/large"), Some(CopyFinding::Content), "{report:?}");
    assert_eq!(found("src/dir/gone"), Some(CopyFinding::Missing));
    assert_eq!(found("src/mode"), Some(CopyFinding::Metadata));
    assert!(!report.is_sound() && report.extra == 0);
    assert!(matches!(node.reader(copy), Err(Error::Unusable { .. })));
    let fetched = cast_with_reuse(&node, &set, &bench.to());
    assert!(fetched <= 2 * 65_536, "{fetched} bytes");
    assert_same(&bench.path("src"), &bench.path("to/src"), "repaired");
    assert_eq!(node.copies().expect("read").len(), 1);
}

#[test]
fn extra_entries_are_reported() {
    let bench = Bench::new();
    write(&bench.path("src/a/b"), b"content");
    let node = bench.node();
    let copy = cast(&node, &bench.build(), &bench.to())
        .expect("placed")
        .copy;
    for name in ["a/0", "a/z", "z"] {
        write(&bench.path("to/src").join(name), b"own");
    }
    let report = node.verify(copy, &mut |_| true).expect("checked");
    let extra = |path: &str| report.first.contains(&(path.into(), CopyFinding::Extra));
    assert_eq!(report.extra, 3);
    assert!(
        extra("src/a/0") && extra("src/a/z") && extra("src/z"),
        "{report:?}"
    );
}

#[test]
fn missing_directory_counts_its_entries() {
    let bench = Bench::new();
    for name in ["a/b/c", "a/d", "e"] {
        write(&bench.path("src").join(name), b"content");
    }
    let node = bench.node();
    let copy = cast(&node, &bench.build(), &bench.to())
        .expect("placed")
        .copy;
    fs::remove_dir_all(bench.path("to/src/a")).expect("removed");
    let report = node.verify(copy, &mut |_| true).expect("checked");
    assert_eq!(report.missing, 4, "{report:?}");
    fs::remove_dir_all(bench.path("to")).expect("removed");
    assert!(matches!(
        node.verify(copy, &mut |_| true),
        Err(Error::Unusable { .. })
    ));
}

/// Puts three cached sets into a store, the first one used last.
fn three_cached(bench: &Bench, node: &NodeStore) -> Vec<u64> {
    let mut copies = Vec::new();
    for number in 0..3 {
        let path = bench.path(&format!("set{number}"));
        write(&path.join("a"), &bytes(number, 100_000));
        let set = build(&bench.origin(), &[path]).expect("a set");
        bench.seconds.fetch_add(10, Ordering::Relaxed);
        copies.push(cast(node, &set, &Placing::Cached).expect("placed").copy);
    }
    bench.seconds.fetch_add(10, Ordering::Relaxed);
    node.touch(copies[0]).expect("touched");
    copies
}

/// Makes a set that is in no store of a node.
fn other_set(bench: &Bench, size: usize) -> driftless_store::BuiltSet {
    let path = bench.path("other");
    write(&path.join("a"), &bytes(99, size));
    build(&bench.origin(), &[path]).expect("a set")
}

fn held(node: &NodeStore) -> Vec<u64> {
    let mut held: Vec<u64> = node
        .copies()
        .expect("read")
        .iter()
        .map(|row| row.id)
        .collect();
    held.sort_unstable();
    held
}

#[test]
fn least_recently_used_copy_is_evicted() {
    let bench = Bench::new();
    let node = bench.node();
    let copies = three_cached(&bench, &node);
    let evict = |size| {
        let set = other_set(&bench, size);
        node.evict(Some(&set.catalogue), Some(350_000))
    };
    let report = evict(50_000).expect("room");
    assert_eq!(report.copies, 0, "it fits");
    let report = evict(100_000).expect("room");
    assert_eq!((report.copies, report.bytes), (1, 100_000));
    assert_eq!(held(&node), [copies[0], copies[2]]);
    assert_eq!(names(&bench.path("node/sets")).len(), 2);
}

#[test]
fn used_and_pinned_copies_stay() {
    let bench = Bench::new();
    let node = bench.node();
    let copies = three_cached(&bench, &node);
    node.add_job(copies[1], "job", None).expect("added");
    node.pin(copies[2], true).expect("pinned");
    let set = other_set(&bench, 100_000);
    let full = node.evict(Some(&set.catalogue), Some(250_000));
    let text = full.expect_err("no room").to_string();
    let cause = "no room for 97.66 KiB: copies that are pinned, in use, or kept by jobs have \
                 195.31 KiB of its 244.14 KiB";
    assert!(text.contains(cause), "{text}");
    assert_eq!(held(&node), copies);
    assert_eq!(node.end_job("job").expect("ended"), [copies[1]]);
    node.evict(Some(&set.catalogue), Some(250_000))
        .expect("room");
    assert_eq!(held(&node), copies[2..]);
}

#[test]
fn set_that_cannot_fit_evicts_nothing() {
    let bench = Bench::new();
    let node = bench.node();
    let copies = three_cached(&bench, &node);
    let evict = |set: &driftless_store::BuiltSet| {
        let full = node.evict(Some(&set.catalogue), Some(350_000));
        assert!(full.is_err_and(|error| error.is_of_room()));
    };
    evict(&other_set(&bench, 400_000));
    assert_eq!(held(&node), copies, "it is larger than the cache");
    let used = [node.use_copy(copies[0]), node.use_copy(copies[1])];
    evict(&other_set(&bench, 200_000));
    assert_eq!(held(&node), copies, "copies in use leave too little");
    drop(used);
}

#[test]
fn copy_whose_time_is_over_goes() {
    let bench = Bench::new();
    let node = bench.node();
    let copies = three_cached(&bench, &node);
    node.expire(copies[2], Some(Duration::from_secs(60)))
        .expect("set");
    node.evict(None, None).expect("done");
    assert_eq!(held(&node), copies);
    bench.seconds.fetch_add(60, Ordering::Relaxed);
    node.evict(None, None).expect("done");
    assert_eq!(held(&node), copies[..2]);
}

#[test]
fn interrupted_removal_of_an_older_version_continues() {
    let bench = Bench::new();
    write(&bench.path("src/a"), &bytes(1, 100_000));
    let node = bench.node();
    cast(&node, &bench.build(), &bench.to()).expect("placed");
    write(&bench.path("src/a"), &bytes(2, 100_000));
    let set = bench.build();
    let mut receiver = open(&node, &set, &bench.to());
    put_all(&mut receiver, &mut set.source.reader(), 1);
    let (placed, replaced) = receiver.place().expect("placed");
    assert_same(&bench.path("src"), &bench.path("to/src"), "the new version");
    assert_eq!(names(&bench.path("to")).len(), 2, "the older one is there");
    drop(replaced);
    let held = node.receive(&set.catalogue, &bench.to()).expect("held");
    assert!(matches!(held, Receiving::Held(copy) if copy == placed.copy));
    assert_eq!(names(&bench.path("to")).len(), 1);
    assert_eq!(node.copies().expect("read").len(), 1);
    assert_same(&bench.path("src"), &bench.path("to/src"), "it stays");
}

#[test]
fn copy_in_use_is_not_removed() {
    let bench = Bench::new();
    let node = bench.node();
    let copies = three_cached(&bench, &node);
    let (first, second) = (node.use_copy(copies[1]), node.use_copy(copies[1]));
    let (first, second) = (first.expect("used"), second.expect("used"));
    node.expire(copies[1], Some(Duration::ZERO)).expect("set");
    let full = node.evict(None, Some(50_000));
    assert!(full.is_err_and(|error| error.is_of_room()));
    assert_eq!(held(&node), copies[1..2]);
    drop(first);
    let refused = node.purge(&PurgeWhat::All).expect("a report");
    assert!(refused.staying[0].is_busy, "{refused:?}");
    assert_eq!(held(&node), copies[1..2]);
    drop(second);
    node.evict(None, None).expect("done");
    assert!(held(&node).is_empty());
    let gone = node.use_copy(copies[1]);
    assert!(matches!(gone.err(), Some(Error::UnknownCopy { .. })));
}

#[test]
fn purge_reports_copies_that_stay() {
    let bench = Bench::new();
    let node = bench.node();
    let copies = three_cached(&bench, &node);
    let used = node.use_copy(copies[1]).expect("used");
    let report = node.purge(&PurgeWhat::All).expect("a report");
    assert_eq!((report.copies, report.bytes), (2, 200_000));
    let staying: Vec<u64> = report.staying.iter().map(|stays| stays.copy).collect();
    assert_eq!(staying, [copies[1]]);
    assert_eq!(held(&node), [copies[1]]);
    drop(used);
}

#[test]
fn purge_of_a_job_spares_shared_copies() {
    let bench = Bench::new();
    let node = bench.node();
    let copies = three_cached(&bench, &node);
    for (copy, job) in [(0, "one"), (1, "one"), (1, "two")] {
        node.add_job(copies[copy], job, None).expect("added");
    }
    node.purge(&PurgeWhat::Job("one".into())).expect("purged");
    assert_eq!(held(&node), copies[1..]);
    node.purge(&PurgeWhat::Unused).expect("purged");
    assert_eq!(held(&node), copies[1..2]);
}

#[test]
fn source_in_the_directory_of_the_node_overlaps() {
    let bench = Bench::new();
    let node = bench.node();
    write(&bench.path("src/a"), b"content");
    for (path, expected) in [
        ("src", false),
        ("src/a", false),
        ("node", true),
        ("node/sets", true),
        ("node/index.db", true),
        ("", true),
    ] {
        assert_eq!(
            node.overlaps(&bench.path(path)).expect("asked"),
            expected,
            "{path}"
        );
    }
}

#[test]
fn overlap_is_found_before_a_store_exists() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    for (store, expected) in [
        ("src/new", true),
        ("src/new/deep", true),
        ("other/new", false),
    ] {
        let found = overlaps(&bench.path("src"), &bench.path(store));
        assert_eq!(found.expect("asked"), expected, "{store}");
        assert!(!bench.path(store).exists(), "{store}");
    }
}

#[test]
fn link_out_of_allowed_directories_is_refused() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    let (set, node) = (bench.build(), bench.node());
    let catalogue = bring(&node, &set.catalogue);
    fs::create_dir_all(bench.path("to/below")).expect("a folder");
    fs::create_dir(bench.path("outside")).expect("a folder");
    symlink(bench.path("outside"), bench.path("to/out")).expect("a link");
    symlink(bench.path("to/below"), bench.path("to/in")).expect("a link");
    let receive = |name: &str| {
        let to = Placing::Below(bench.path(name), vec![bench.path("to")]);
        node.receive(&catalogue, &to).map(drop)
    };
    for name in ["to/out", "outside", "to/../outside"] {
        let refused = matches!(receive(name), Err(Error::Disallowed { .. }));
        assert!(refused, "{name}");
    }
    assert!(matches!(receive("to/none"), Err(Error::NoDirectory { .. })));
    assert!(matches!(receive("node/sets"), Err(Error::InStore { .. })));
    for name in ["to", "to/below", "to/in"] {
        receive(name).expect(name);
    }
}

#[test]
fn changed_owner_is_named() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    let (set, node, to) = (bench.build(), bench.node(), bench.to());
    let copy = cast(&node, &set, &to).expect("placed").copy;
    let file = bench.path("to/src/a");
    if std::os::unix::fs::chown(&file, Some(1234), None).is_err() {
        // An ordinary user cannot give files away.
        return;
    }
    let checked = node.verify(copy, &mut |_| true).expect("verified");
    assert_eq!(
        checked.first.first().map(|found| found.1),
        Some(CopyFinding::Metadata)
    );
    write(&bench.path("src/b"), b"more");
    let other = bring(&node, &bench.build().catalogue);
    let refused = node.receive(&other, &to).err().expect("refused");
    let text = refused.to_string();
    assert!(
        text.contains("to/src/a") && text.contains("owner was changed"),
        "{text}"
    );
}

#[test]
fn unreadable_source_has_the_path_given() {
    let bench = Bench::new();
    let missing = bench.path("deep/missing");
    fs::create_dir(bench.path("deep")).expect("a folder");
    let error = build(&bench.origin(), std::slice::from_ref(&missing))
        .err()
        .expect("refused");
    let text = error.to_string();
    assert!(text.contains(missing.to_str().expect("a path")), "{text}");
}

#[test]
fn directory_of_another_user_is_not_adopted() {
    let bench = Bench::new();
    fs::create_dir(bench.path("node")).expect("made");
    attrs::set_owner(&bench.path("node"), 65_534, 65_534).expect("given");
    let opened = NodeStore::open(&bench.path("node"), bench.clock());
    assert!(matches!(opened.err(), Some(Error::Foreign { .. })));
}

#[test]
fn directory_of_the_node_is_closed() {
    let bench = Bench::new();
    fs::create_dir(bench.path("node")).expect("made");
    attrs::set_mode(&bench.path("node"), 0o755).expect("set");
    drop(bench.node());
    let mode = fs::metadata(bench.path("node")).expect("there").mode() & 0o7777;
    assert_eq!(mode, 0o711);
}

#[test]
fn second_receiver_of_a_copy_waits() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    let (set, node) = (bench.build(), bench.node());
    let receiver = open(&node, &set, &bench.to());
    let second = node.receive(&set.catalogue, &bench.to());
    assert!(matches!(second.err(), Some(Error::Busy { .. })));
    let purged = node.purge(&PurgeWhat::All).expect("a report");
    assert!(purged.staying[0].is_busy, "it is received: {purged:?}");
    drop(receiver);
    assert!(matches!(
        node.receive(&set.catalogue, &bench.to()),
        Ok(Receiving::Open(_))
    ));
}

#[test]
fn abandoned_copy_leaves_nothing() {
    let bench = Bench::new();
    build_tree(&bench.path("src"), 31, &Profile::small());
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    put_all(&mut receiver, &mut set.source.reader(), 1);
    receiver.abandon().expect("abandoned");
    assert!(names(&bench.path("to")).is_empty() && node.copies().expect("read").is_empty());
    assert!(names(&bench.path("node/catalogues")).is_empty());
}

#[test]
fn unfinished_copy_is_purged() {
    let bench = Bench::new();
    build_tree(&bench.path("src"), 32, &Profile::small());
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    put_all(&mut receiver, &mut set.source.reader(), 1);
    drop(receiver);
    assert_eq!(node.copies().expect("read")[0].state, CopyState::Unfinished);
    node.purge(&PurgeWhat::All).expect("purged");
    assert!(names(&bench.path("to")).is_empty() && node.copies().expect("read").is_empty());
}

#[test]
fn sweep_removes_no_unknown_directory() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    let (set, node) = (bench.build(), bench.node());
    let receiver = open(&node, &set, &bench.to());
    let own = names(&bench.path("to"))[0].clone();
    let alike = format!("{}{:016x}", &own[..own.len() - 16], 4711);
    write(&bench.path("to").join(&alike).join("src/x"), b"x");
    node.sweep().expect("swept");
    let mut expected = vec![own, alike];
    expected.sort();
    assert_eq!(names(&bench.path("to")), expected);
    drop(receiver);
}

#[test]
fn wrong_parts_of_a_catalogue_are_refused() {
    let bench = Bench::new();
    build_tree(&bench.path("src"), 33, &Profile::small());
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = node.receive_catalogue(set.catalogue.hash()).expect("begun");
    let head = set.catalogue.part(0).expect("read");
    let mut wrong = head.clone();
    wrong[5] ^= 1;
    let is_wrong = |put: driftless_store::Result<()>| matches!(put, Err(Error::WrongPart { .. }));
    assert!(
        is_wrong(receiver.put(1, &set.catalogue.part(1).expect("read"))),
        "no head"
    );
    assert!(is_wrong(receiver.put(0, &wrong)));
    receiver.put(0, &head).expect("the head");
    let mut wrong = set.catalogue.part(1).expect("read");
    wrong[7] ^= 1;
    assert!(is_wrong(receiver.put(1, &wrong)) && is_wrong(receiver.put(999, &wrong)));
    assert_eq!(receiver.lacking().len() + 1, set.catalogue.parts() as usize);
    assert!(receiver.finish().is_err());
    assert_eq!(names(&bench.path("node/catalogues")), [""; 0]);
    assert!(
        node.catalogue(set.catalogue.hash())
            .expect("asked")
            .is_none()
    );
}

#[test]
fn source_that_shows_nothing_is_refused() {
    let bench = Bench::new();
    let link = bench.path("current");
    std::os::unix::fs::symlink(bench.path("unmounted/ds"), &link).expect("a link");
    // The directory of sources is empty as long as nothing is mounted.
    for (source, cause) in [(link, "leads to nothing"), (bench.path("src"), "is empty")] {
        let refused = build(&bench.origin(), &[source])
            .err()
            .map(|error| error.to_string());
        assert!(
            refused.as_ref().is_some_and(|text| text.contains(cause)),
            "{refused:?}"
        );
    }
}

#[test]
fn wanted_set_needs_no_second_room() {
    let (bench, quota) = (Bench::new(), Some(150_000));
    let (set, node) = (other_set(&bench, 100_000), bench.node());
    let evict = || node.evict(Some(&set.catalogue), quota).expect("room");
    evict();
    drop(open(&node, &set, &Placing::Cached));
    evict();
    let copy = cast(&node, &set, &Placing::Cached).expect("placed").copy;
    assert_eq!(evict().copies, 0, "it is there");
    node.add_job(copy, "job", None).expect("added");
    evict();
    write(&bench.path("src/a"), &bytes(5, 100_000));
    let full = node.evict(Some(&bench.build().catalogue), quota);
    assert!(matches!(full, Err(Error::CacheFull { .. })), "{full:?}");
}

#[test]
fn unfinished_cached_copy_makes_room() {
    let bench = Bench::new();
    let node = bench.node();
    drop(open(&node, &other_set(&bench, 100_000), &Placing::Cached));
    write(&bench.path("src/a"), &bytes(5, 100_000));
    let set = bench.build();
    let report = node.evict(Some(&set.catalogue), Some(150_000));
    assert_eq!(report.expect("room").copies, 1);
    assert!(names(&bench.path("node/sets")).is_empty());
}

#[test]
fn placed_copy_does_not_expire() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    let node = bench.node();
    let copy = cast(&node, &bench.build(), &bench.to())
        .expect("placed")
        .copy;
    node.expire(copy, Some(Duration::from_secs(1)))
        .expect("set");
    bench.seconds.fetch_add(60, Ordering::Relaxed);
    node.evict(None, None).expect("done");
    assert!(bench.path("to/src/a").exists());
}

#[test]
fn unfinished_copy_gives_its_content() {
    let bench = Bench::new();
    write(&bench.path("src/a"), &bytes(5, 300_000));
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    put_all(&mut receiver, &mut set.source.reader(), 1);
    drop(receiver);
    write(&bench.path("src/b"), b"it has grown");
    let set = bench.build();
    let mut receiver = open(&node, &set, &bench.to());
    let reused = receiver.reuse(&mut |_| true).expect("reused");
    assert_eq!(reused.bytes, 300_000, "{reused:?}");
    put_all(&mut receiver, &mut set.source.reader(), 1);
    receiver.finish().expect("placed");
    assert_eq!(names(&bench.path("to")), ["src"], "the older one is gone");
    assert_eq!(node.copies().expect("read").len(), 1);
}

#[test]
fn abandoned_copy_is_removed() {
    let bench = Bench::new();
    write(&bench.path("src/a"), &bytes(5, 300_000));
    let (set, node) = (bench.build(), bench.node());
    drop(open(&node, &set, &bench.to()));
    node.sweep().expect("swept");
    assert_eq!(names(&bench.path("to")).len(), 1, "it may be used again");
    bench.seconds.fetch_add(8 * 24 * 3600, Ordering::Relaxed);
    node.sweep().expect("swept");
    assert!(names(&bench.path("to")).is_empty());
    assert!(node.copies().expect("read").is_empty());
}

#[test]
fn receiver_notes_that_it_is_at_work() {
    let bench = Bench::new();
    write(&bench.path("src/a"), &bytes(5, 300_000));
    let (set, node) = (bench.build(), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    let hash = set.catalogue.hash();
    let begun = node.last_use(hash).expect("read");
    bench.seconds.fetch_add(60, Ordering::Relaxed);
    let (mut reader, mut buffer) = (set.source.reader(), Vec::new());
    reader.read(0, &mut buffer).expect("read");
    receiver.put(0, &buffer).expect("written");
    let now = node.last_use(hash).expect("read");
    assert_eq!(now, begun.map(|at| at + Duration::from_secs(60)));
}

#[test]
fn other_users_reach_cached_copies_by_name() {
    let bench = Bench::new();
    write(&bench.path("src/a"), b"content");
    let set = bench.build();
    cast(&bench.node(), &set, &Placing::Cached).expect("placed");
    let mode = |name: &str| {
        let meta = fs::metadata(bench.path("node").join(name)).expect("there");
        meta.mode() & 0o7777
    };
    let sets = format!("sets/{}", set.catalogue.hash());
    for passage in ["", "sets", &sets] {
        assert_eq!(mode(passage), 0o711, "{passage}");
    }
    for closed in ["catalogues", "identities"] {
        assert_eq!(mode(closed), 0o700, "{closed}");
    }
    assert_eq!(mode("index.db"), 0o600);
}
