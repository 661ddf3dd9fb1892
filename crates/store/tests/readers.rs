//! Copies for one user: who may open them, and links with the names of jobs.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    Bench, as_user, bench_of, build, build_with, bytes, cast, names, open, put_all, write,
};
use driftless_state::holdings::{CopyState, Holdings};
use driftless_store::{BuiltSet, CopyRights, Error, NodeStore, Placing, PurgeWhat, Receiving};
use driftless_testkit::attrs;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

const USER: u32 = 65_534;
const OTHER: u32 = 65_533;

/// Returns a bench whose folder other users can enter.
fn open_bench() -> Bench {
    let bench = Bench::new();
    attrs::set_mode(bench.folder.path(), 0o755).expect("set");
    bench
}

/// Returns a set with one readable file of this content.
fn set_of(bench: &Bench, content: &[u8]) -> BuiltSet {
    write(&bench.path("src/data/file"), content);
    for (name, mode) in [("src/data/file", 0o444), ("src/data", 0o555)] {
        attrs::set_mode(&bench.path(name), mode).expect("set");
    }
    build(&bench.origin(), &[bench.path("src/data")]).expect("a set")
}

fn cast_for(node: &NodeStore, set: &BuiltSet, job: &str, reader: u32) -> u64 {
    let copy = cast(node, set, &Placing::CachedFor(reader)).expect("placed");
    node.add_job(copy.copy, job, Some(reader)).expect("added");
    copy.copy
}

fn dir_of(bench: &Bench, set: &BuiltSet) -> PathBuf {
    let sets = bench.path("node/sets");
    sets.join(set.catalogue.hash().to_string())
}

fn reads(uid: u32, path: &Path) -> bool {
    as_user(uid, || {
        fs::read(path).is_ok() && fs::read_dir(path.parent().expect("one")).is_ok()
    })
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").mode() & 0o7777
}

fn acl(path: &Path) -> Option<Vec<u8>> {
    attrs::get_xattr(path, b"system.posix_acl_access").expect("read")
}

#[test]
fn only_readers_open_a_closed_copy() {
    let bench = open_bench();
    let (set, node) = (set_of(&bench, b"secret"), bench.node());
    let mut receiver = open(&node, &set, &Placing::CachedFor(USER));
    put_all(&mut receiver, &mut set.source.reader(), 1);
    let dir = dir_of(&bench, &set);
    assert_eq!(mode(&dir), 0o700, "while the copy is received");
    let copy = receiver.finish().expect("placed").copy;
    let file = dir.join("data/file");
    assert!(!reads(USER, &file), "no job has a reader yet");
    node.add_job(copy, "one", Some(USER)).expect("added");
    assert!(reads(USER, &file) && !reads(OTHER, &file));
    assert!(reads(USER, &bench.path("node/jobs/one/data/file")));
    node.add_job(copy, "two", Some(OTHER)).expect("added");
    node.add_job(copy, "three", Some(USER)).expect("added");
    assert!(reads(USER, &file) && reads(OTHER, &file));
    node.end_job("one").expect("ended");
    assert!(reads(USER, &file), "another job of this user needs it");
    node.end_job("three").expect("ended");
    assert!(!reads(USER, &file) && reads(OTHER, &file));
    node.end_job("two").expect("ended");
    assert!(!reads(OTHER, &file));
    assert_eq!((mode(&dir), acl(&dir)), (0o700, None));
    assert!(names(&bench.path("node/jobs")).is_empty());
}

#[test]
fn copy_for_all_users_stays_open() {
    let bench = open_bench();
    let (set, node) = (set_of(&bench, b"open"), bench.node());
    let copy = cast(&node, &set, &Placing::Cached).expect("placed").copy;
    let dir = dir_of(&bench, &set);
    node.receive(&set.catalogue, &Placing::CachedFor(USER))
        .expect("held");
    node.add_job(copy, "one", Some(USER)).expect("added");
    assert_eq!((mode(&dir), acl(&dir)), (0o711, None));
    node.end_job("one").expect("ended");
    assert_eq!(mode(&dir), 0o711);

    let closed = set_of(&bench, b"closed first");
    cast_for(&node, &closed, "one", USER);
    let dir = dir_of(&bench, &closed);
    assert_eq!(mode(&dir), 0o750);
    node.receive(&closed.catalogue, &Placing::Cached)
        .expect("held");
    assert_eq!((mode(&dir), acl(&dir)), (0o711, None));
    node.sweep().expect("swept");
    assert_eq!(mode(&dir), 0o711);
}

#[test]
fn sweep_repairs_acls_and_links() {
    let bench = open_bench();
    let (set, node) = (set_of(&bench, b"secret"), bench.node());
    cast_for(&node, &set, "one", USER);
    let dir = dir_of(&bench, &set);
    let jobs = bench.path("node/jobs");
    let expected = acl(&dir);
    assert!(expected.is_some() && mode(&jobs) == 0o711);
    attrs::remove_xattr(&dir, b"system.posix_acl_access").expect("removed");
    fs::remove_file(jobs.join("one")).expect("removed");
    symlink("../sets/gone", jobs.join("left")).expect("a link");
    symlink("elsewhere", jobs.join("foreign")).expect("a link");
    bench.node().sweep().expect("swept");
    assert_eq!((acl(&dir), mode(&dir)), (expected, 0o750));
    assert_eq!(names(&jobs), ["foreign", "one"]);
}

#[test]
fn job_name_leads_to_the_newest_set() {
    let bench = open_bench();
    let node = bench.node();
    let link = bench.path("node/jobs/job");
    let content = || fs::read(link.join("data/file")).expect("there");
    let cast_one = |content: &[u8]| {
        let set = set_of(&bench, content);
        (cast_for(&node, &set, "job", USER), set.catalogue.hash())
    };
    let (first, _) = cast_one(b"first");
    let (_, hash) = cast_one(b"other");
    assert_eq!(content(), b"other");
    let target = fs::read_link(&link).expect("a link");
    assert_eq!(target, Path::new("../sets").join(hash.to_string()));
    node.add_job(first, "job", None).expect("added");
    assert_eq!(content(), b"first");
    let report = node.purge(&PurgeWhat::Copy(first)).expect("purged");
    assert_eq!(report.copies, 1, "{report:?}");
    assert_eq!(content(), b"other", "the copy that is left");
    node.purge(&PurgeWhat::All).expect("purged");
    assert!(names(&bench.path("node/jobs")).is_empty());
    assert!(names(&bench.path("node/sets")).is_empty());
}

#[test]
fn entry_at_a_job_name_stays() {
    let bench = open_bench();
    let (set, node) = (set_of(&bench, b"content"), bench.node());
    let copy = cast(&node, &set, &Placing::Cached).expect("placed").copy;
    for job in ["a/b", "..", &"x".repeat(300)] {
        node.add_job(copy, job, None).expect("added");
    }
    write(&bench.path("node/jobs/job"), b"own");
    let refused = node.add_job(copy, "job", None);
    assert!(
        matches!(refused, Err(Error::Occupied { .. })),
        "{refused:?}"
    );
    node.sweep().expect("swept");
    assert_eq!(
        fs::read(bench.path("node/jobs/job")).expect("there"),
        b"own"
    );
    assert_eq!(names(&bench.path("node/jobs")), ["job"]);
}

#[test]
fn recast_of_a_damaged_copy_keeps_its_jobs() {
    let bench = open_bench();
    let (set, node) = (set_of(&bench, b"content"), bench.node());
    let first = cast_for(&node, &set, "one", USER);
    node.pin(first, true).expect("pinned");
    node.mark_damaged(first).expect("noted");
    let second = cast_for(&node, &set, "two", OTHER);
    assert_ne!(first, second);
    let rows = node.copies().expect("read");
    assert_eq!((rows.len(), rows[0].is_pinned), (1, true));
    assert_eq!(rows[0].jobs, ["one", "two"]);
    let file = bench.path("node/jobs/one/data/file");
    assert!(reads(USER, &file) && reads(OTHER, &file));
}

#[test]
fn ordinary_node_serves_its_own_user_alone() {
    let bench = bench_of(USER);
    write(&bench.path("src/file"), b"content");
    attrs::set_owner(&bench.path("src/file"), USER, USER).expect("given");
    as_user(USER, || {
        let (set, node) = (bench.build(), bench.node());
        cast_for(&node, &set, "job", USER);
        assert_eq!(mode(&dir_of(&bench, &set)), 0o700);
        assert!(bench.path("node/jobs/job/src/file").exists());
        let refused = node.receive(&set.catalogue, &Placing::CachedFor(OTHER));
        let error = refused.err().expect("refused");
        assert!(matches!(error, Error::OtherReader { .. }), "{error}");
        node.sweep().expect("swept");
        node.end_job("job").expect("ended");
        assert_eq!(mode(&dir_of(&bench, &set)), 0o700);
    });
    assert!(!reads(OTHER, &bench.path("node/sets")));
}

#[test]
fn file_system_without_acls_is_refused() {
    let bench = open_bench();
    let set = set_of(&bench, &bytes(1, 1000));
    let point = bench.path("ramfs");
    fs::create_dir(&point).expect("made");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", &point, "ramfs", flags, None).expect("mounted");
    let store = NodeStore::open(&point.join("node"), bench.clock()).expect("a store");
    let refused = store.receive(&set.catalogue, &Placing::CachedFor(USER));
    let error = refused.err().expect("refused");
    assert!(matches!(error, Error::NoAcls { .. }), "{error}");
    assert!(error.to_string().contains("mount it with ACLs"), "{error}");
    let placed = cast(&store, &set, &Placing::Cached);
    drop(store);
    rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    placed.expect("no ACL is needed");
}

/// Makes a tree with everything that a copy for readers leaves out.
fn hostile_tree(bench: &Bench, owner: u32) {
    let src = bench.path("src");
    for name in ["program", "file", "below/file"] {
        write(&src.join(name), b"content");
    }
    fs::hard_link(src.join("file"), src.join("below/link")).expect("a link");
    symlink("file", src.join("symbolic")).expect("a link");
    attrs::set_xattr(&src.join("file"), b"user.note", b"value").expect("set");
    for name in ["program", "file", "below", "below/file", ""] {
        attrs::set_owner(&src.join(name), owner, owner).expect("given");
    }
    for (name, mode) in [
        ("program", 0o6711),
        ("file", 0o600),
        ("below/file", 0o200),
        ("below", 0o1777),
        ("", 0o2700),
    ] {
        attrs::set_mode(&src.join(name), mode).expect("set");
    }
}

fn read_only(bench: &Bench) -> BuiltSet {
    let set = build_with(&bench.origin(), &[bench.path("src")], CopyRights::ReadOnly);
    set.expect("a set")
}

fn assert_read_only(copy: &Path, owner: u32) {
    for (name, expected) in [
        ("", 0o555),
        ("program", 0o555),
        ("file", 0o444),
        ("below", 0o555),
        ("below/file", 0o444),
    ] {
        let found = fs::metadata(copy.join(name)).expect("there");
        let rights = (found.mode() & 0o7777, found.uid(), found.gid());
        assert_eq!(rights, (expected, owner, owner), "{name}");
    }
    assert_eq!(names(copy), ["below", "file", "program", "symbolic"]);
    let note = attrs::get_xattr(&copy.join("file"), b"user.note").expect("read");
    assert_eq!(note.as_deref(), Some(&b"value"[..]));
}

#[test]
fn read_only_copy_serves_readers() {
    let bench = open_bench();
    hostile_tree(&bench, OTHER);
    let src = bench.path("src");
    let blob = attrs::acl_blob((OTHER, 7), (OTHER, 7), 7);
    attrs::set_xattr(&src.join("below"), b"system.posix_acl_access", &blob).expect("set");
    attrs::set_xattr(&src.join("below"), b"system.posix_acl_default", &blob).expect("set");
    attrs::set_xattr(&src.join("file"), b"trusted.a", b"value").expect("set");
    std::os::unix::net::UnixListener::bind(src.join("socket")).expect("a socket");
    let (set, node) = (read_only(&bench), bench.node());
    let copy = cast_for(&node, &set, "job", USER);
    assert_eq!(node.unkept(copy).expect("read"), Default::default());
    let link = bench.path("node/jobs/job/src");
    assert_read_only(&link, 0);
    assert_eq!(acl(&link.join("below")), None);
    let trusted = attrs::get_xattr(&link.join("file"), b"trusted.a").expect("read");
    assert_eq!(trusted, None);
    assert!(reads(USER, &link.join("below/link")) && !reads(OTHER, &link.join("file")));
    assert!(
        node.verify(copy, &mut |_| true)
            .expect("checked")
            .is_sound()
    );
    assert_eq!(node.finish_job("job").expect("ended").copies, 1);
    assert!(names(&bench.path("node/sets")).is_empty());
}

#[test]
fn ordinary_user_removes_read_only_copies() {
    let bench = bench_of(USER);
    hostile_tree(&bench, USER);
    attrs::set_mode(&bench.path("src/below/file"), 0o600).expect("set");
    as_user(USER, || {
        let (set, node) = (read_only(&bench), bench.node());
        let copy = cast_for(&node, &set, "job", USER);
        assert_read_only(&bench.path("node/jobs/job/src"), USER);
        assert!(
            node.verify(copy, &mut |_| true)
                .expect("checked")
                .is_sound()
        );
        node.mark_damaged(copy).expect("noted");
        cast_for(&node, &set, "job", USER);
        assert_read_only(&bench.path("node/jobs/job/src"), USER);
        assert_eq!(node.finish_job("job").expect("ended").copies, 1);
        cast(&node, &set, &Placing::CachedFor(USER)).expect("placed");
        assert_eq!(node.evict(None, Some(0)).expect("evicted").copies, 1);
        assert!(names(&bench.path("node/sets")).is_empty());
    });
}

#[test]
fn read_only_copy_is_resumed() {
    let bench = bench_of(USER);
    hostile_tree(&bench, USER);
    attrs::set_mode(&bench.path("src/below/file"), 0o600).expect("set");
    as_user(USER, || {
        let (set, node) = (read_only(&bench), bench.node());
        let mut receiver = open(&node, &set, &Placing::CachedFor(USER));
        put_all(&mut receiver, &mut set.source.reader(), 1);
        let copy = receiver.copy();
        let dir = dir_of(&bench, &set);
        write(&dir.join("src"), b"own");
        assert!(receiver.finish().is_err(), "the name is taken");
        fs::remove_file(dir.join("src")).expect("removed");
        // The state of a process that was killed after it had set all modes.
        let mut index = Holdings::open(&bench.path("node/index.db")).expect("open");
        index.set_state(copy, CopyState::Unfinished).expect("set");
        drop(index);
        match node.receive(&set.catalogue, &Placing::CachedFor(USER)) {
            Ok(Receiving::Open(receiver)) => receiver.finish().expect("placed"),
            Ok(Receiving::Held(copy)) => panic!("copy {copy} is held"),
            Err(error) => panic!("{error}"),
        };
        assert_read_only(&dir.join("src"), USER);
        assert_eq!(node.purge(&PurgeWhat::All).expect("purged").copies, 1);
    });
}
