//! Results of jobs: outboxes that users own and change while the store acts on them.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Bench, as_user, bench_of, bytes, cast, names, write};
use driftless_store::{
    Error, NodeStore, OUTBOX_PAGE_NAMES, Placing, SealMove, SealOutcome, SealedPath, SealedPlace,
};
use driftless_testkit::attrs;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const USER: u32 = 65534;
const OTHER: u32 = 65533;

fn to(name: &[u8], path: &[u8]) -> SealMove {
    SealMove {
        name: name.to_vec().try_into().expect("a name"),
        path: SealedPath::parse(path).expect("a path"),
    }
}

fn seal(node: &NodeStore, name: &[u8], path: &[u8]) -> SealOutcome {
    let mut outcomes = node.seal("job", &[to(name, path)]).expect("an outbox");
    outcomes.pop().expect("an outcome")
}

fn discard(node: &NodeStore, path: &[u8]) -> bool {
    let path = SealedPath::parse(path).expect("a path");
    node.discard_sealed("job", &path).expect("discarded")
}

/// Makes an outbox of a job with a cached copy. Returns the outbox.
fn outbox_for(bench: &Bench, node: &NodeStore, user: u32) -> PathBuf {
    write(&bench.path("src/file"), b"content");
    let set = bench.build();
    let copy = cast(node, &set, &Placing::CachedFor(user)).expect("placed");
    node.add_job(copy.copy, "job", Some(user)).expect("added");
    node.make_outbox("job", Some(user)).expect("made");
    bench.path("node/outbox/job")
}

fn rights(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).expect("there");
    (meta.uid(), meta.permissions().mode() & 0o7777)
}

fn is_unused(bench: &Bench) -> bool {
    names(&bench.path("node/outbox")) == [".private", ".sealed"]
        && names(&bench.path("node/outbox/.sealed")).is_empty()
        && names(&bench.path("node/outbox/.private")).is_empty()
}

#[test]
fn results_are_sealed_and_discarded() {
    let bench = bench_of(0);
    let node = bench.node();
    let outbox = outbox_for(&bench, &node, USER);
    assert_eq!(rights(&outbox), (USER, 0o700));
    assert_eq!(rights(&bench.path("node/outbox")), (0, 0o711));
    assert_eq!(rights(&bench.path("node/outbox/.sealed")), (0, 0o711));
    assert_eq!(rights(&bench.path("node/outbox/.private")), (0, 0o700));
    as_user(USER, || {
        write(&outbox.join("1/deep/file"), b"one");
        write(&outbox.join("2"), b"two");
    });
    assert_eq!(node.outbox_names("job", b"").expect("read"), [b"1", b"2"]);
    assert_eq!(node.outbox_names("job", b"1").expect("read"), [b"2"]);
    let staying = node.finish_job("job").expect("not ended").staying;
    assert!(
        staying[0]
            .cause
            .contains("entries, which are not collected"),
        "{staying:?}"
    );

    assert_eq!(seal(&node, b"1", b"n1/x/1"), SealOutcome::Sealed);
    assert_eq!(seal(&node, b"1", b"n1/x/1"), SealOutcome::Sealed, "again");
    assert_eq!(seal(&node, b"3", b"n1/3"), SealOutcome::Missing);
    as_user(USER, || write(&outbox.join("1"), b"new"));
    assert!(matches!(
        seal(&node, b"1", b"n1/x/1"),
        SealOutcome::Refused(_)
    ));
    assert_eq!(seal(&node, b"1", b"new"), SealOutcome::Sealed);
    assert_eq!(seal(&node, b"2", b"n1/2"), SealOutcome::Sealed);
    let sealed = bench.path("node/outbox/.sealed/job");
    for dir in ["", "n1", "n1/x"] {
        assert_eq!(rights(&sealed.join(dir)), (USER, 0o700), "{dir}");
    }
    let place = SealedPlace {
        path: sealed.clone(),
        owner: USER,
    };
    assert_eq!(node.sealed_place("job").expect("there"), place);
    assert_eq!(
        node.sealed_names("job", None, b"").expect("read"),
        [&b"n1"[..], b"new"]
    );
    let staying = node.finish_job("job").expect("not ended").staying;
    assert!(staying[0].cause.contains("sealed results"), "{staying:?}");
    assert_eq!(node.jobs("j", "", 9).expect("read"), ["job"]);

    assert!(
        discard(&node, b"n1/x/1") && !discard(&node, b"n1/x/1") && !sealed.join("n1/x").exists()
    );
    assert!(discard(&node, b"n1/2") && discard(&node, b"new"));
    assert_eq!(node.finish_job("job").expect("ended").copies, 1);
    assert!(is_unused(&bench) && node.jobs("", "", 9).expect("read").is_empty());
    assert!(node.outbox_names("job", b"").expect("read").is_empty());
    assert!(matches!(
        node.sealed_place("job"),
        Err(Error::NoOutbox { .. })
    ));
}

#[test]
fn outbox_has_one_owner() {
    let bench = bench_of(0);
    let node = bench.node();
    let outbox = outbox_for(&bench, &node, USER);
    node.make_outbox("job", Some(USER)).expect("there already");
    assert!(matches!(
        node.make_outbox("job", Some(OTHER)),
        Err(Error::Foreign { .. })
    ));
    assert!(matches!(
        node.make_outbox(".sealed", None),
        Err(Error::OutboxName { .. })
    ));
    // Links of a user in the place of directories lead nowhere.
    as_user(USER, || write(&outbox.join("1"), b"one"));
    assert_eq!(seal(&node, b"1", b"1"), SealOutcome::Sealed);
    let sealed = bench.path("node/outbox/.sealed/job");
    fs::create_dir(bench.path("outside")).expect("made");
    attrs::set_owner(&bench.path("outside"), USER, USER).expect("given");
    as_user(USER, || {
        symlink(bench.path("outside"), sealed.join("link")).expect("made");
        write(&outbox.join("2"), b"two");
    });
    assert!(matches!(
        seal(&node, b"2", b"link/2"),
        SealOutcome::Refused(_)
    ));
    let path = SealedPath::parse(b"link/2").expect("a path");
    assert!(node.discard_sealed("job", &path).is_err());
    // A directory of another user is refused.
    fs::create_dir(sealed.join("other")).expect("made");
    assert!(matches!(
        seal(&node, b"2", b"other/2"),
        SealOutcome::Refused(_)
    ));
    assert!(names(&bench.path("outside")).is_empty() && outbox.join("2").exists());
}

/// Makes a tree of directories, one in the other.
fn make_deep(path: &Path, depth: usize) {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    fs::create_dir(path).expect("made");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut dir = openat(CWD, path, flags, Mode::empty()).expect("open");
    for _ in 0..depth {
        mkdirat(&dir, c"d", Mode::RWXU).expect("made");
        dir = openat(&dir, c"d", flags, Mode::empty()).expect("open");
    }
}

fn hostile_results(outbox: &Path, outside: &Path) {
    let name = |bytes: &[u8]| outbox.join(OsStr::from_bytes(bytes));
    symlink(outside, name(b"link")).expect("made");
    symlink("/", name(b"root")).expect("made");
    fs::hard_link(outside.join("linked"), name(b"hard")).expect("linked");
    let mode = rustix::fs::Mode::RWXU;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, name(b"fifo"), kind, mode, 0).expect("made");
    for byte in (1..=255u8).filter(|byte| *byte != b'/' && *byte != b'.') {
        fs::write(name(&[byte]), [byte]).expect("written");
    }
    let tree = name(b"tree \xff\n");
    fs::create_dir(&tree).expect("made");
    symlink(outside, tree.join("link")).expect("made");
    fs::hard_link(outside.join("linked"), tree.join("hard")).expect("linked");
    fs::create_dir(tree.join("closed")).expect("made");
    fs::write(tree.join("closed/file"), "file").expect("written");
    fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o500)).expect("set");
    let many = name(b"many");
    fs::create_dir(&many).expect("made");
    (0..100_000).for_each(|at| fs::write(many.join(at.to_string()), "").expect("written"));
    make_deep(&name(b"deep"), 5000);
}

/// Seals and discards everything, in a thread with the stack of a connection.
fn collect_all(node: &NodeStore) {
    let collect = || {
        for name in node.outbox_names("job", b"").expect("read") {
            let path = [&b"n1/"[..], &name].concat();
            assert_eq!(seal(node, &name, &path), SealOutcome::Sealed);
        }
        assert_eq!(node.sealed_names("job", None, b"").expect("read"), [b"n1"]);
        assert!(discard(node, b"n1"));
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(1 << 20);
        thread.spawn_scoped(scope, collect).expect("a thread");
    });
}

fn make_outside(bench: &Bench, user: u32) -> PathBuf {
    let outside = bench.path("outside");
    write(&outside.join("below/file"), b"safe");
    write(&outside.join("linked"), b"linked");
    attrs::set_owner(&outside.join("linked"), user, user).expect("given");
    outside
}

fn assert_outside(outside: &Path) {
    assert_eq!(
        fs::read(outside.join("below/file")).expect("there"),
        b"safe"
    );
    assert_eq!(fs::read(outside.join("linked")).expect("there"), b"linked");
    assert_eq!(
        fs::metadata(outside.join("linked")).expect("there").nlink(),
        1
    );
    assert_eq!(names(outside), ["below", "linked"]);
}

#[test]
fn hostile_results_touch_nothing_outside() {
    let bench = bench_of(0);
    let outside = make_outside(&bench, USER);
    let node = bench.node();
    let outbox = outbox_for(&bench, &node, USER);
    as_user(USER, || hostile_results(&outbox, &outside));
    collect_all(&node);
    assert_outside(&outside);
    assert!(node.finish_job("job").expect("ended").staying.is_empty());
    assert!(is_unused(&bench));
}

#[test]
fn ordinary_user_collects_hostile_results() {
    let bench = bench_of(USER);
    let outside = make_outside(&bench, USER);
    as_user(USER, || {
        let node = bench.node();
        let outbox = outbox_for(&bench, &node, USER);
        hostile_results(&outbox, &outside);
        let closed = outbox.join("closed");
        write(&closed.join("file"), b"file");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).expect("set");
        assert_eq!(seal(&node, b"closed", b"n1/closed"), SealOutcome::Sealed);
        let sealed = bench.path("node/outbox/.sealed/job/n1/closed");
        assert_eq!(rights(&sealed).1, 0o555);
        collect_all(&node);
        assert!(node.finish_job("job").expect("ended").staying.is_empty());
    });
    assert_outside(&outside);
    assert!(is_unused(&bench));
}

#[test]
fn directories_may_be_exchanged_meanwhile() {
    let bench = bench_of(0);
    let outside = make_outside(&bench, USER);
    let node = bench.node();
    let outbox = outbox_for(&bench, &node, USER);
    let sealed = bench.path("node/outbox/.sealed/job");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            as_user(USER, || {
                while !is_over.load(Relaxed) {
                    let (dir, aside) = (sealed.join("a"), sealed.join("aside"));
                    let _raced = fs::rename(&dir, &aside);
                    let _raced = symlink(&outside, &dir);
                    let _raced = fs::remove_file(&dir);
                    let _raced = fs::rename(&aside, &dir);
                }
            });
        });
        for round in 0..600u32 {
            let name = round.to_string();
            as_user(USER, || write(&outbox.join(&name).join("file"), b"result"));
            let path = format!("a/below/{round}");
            let _refused = seal(&node, name.as_bytes(), path.as_bytes());
            let path = SealedPath::parse(path.as_bytes()).expect("a path");
            let _refused = node.discard_sealed("job", &path);
            for name in ["below", "linked", "below/file"] {
                let path = SealedPath::parse(format!("a/{name}").as_bytes()).expect("a path");
                if name != "below" {
                    let _refused = node.discard_sealed("job", &path);
                }
            }
        }
        is_over.store(true, Relaxed);
    });
    assert_outside(&outside);
}

#[test]
fn long_outboxes_are_listed_in_pages() {
    let bench = bench_of(0);
    let node = bench.node();
    let outbox = outbox_for(&bench, &node, USER);
    let mut expected: Vec<Vec<u8>> = (0..10_000)
        .map(|at: u32| at.to_string().into_bytes())
        .collect();
    for name in &expected {
        fs::write(outbox.join(OsStr::from_bytes(name)), "").expect("written");
    }
    expected.sort();
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        let after = all.last().cloned().unwrap_or_default();
        let page = node.outbox_names("job", &after).expect("read");
        assert!(page.len() <= OUTBOX_PAGE_NAMES);
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    assert_eq!(all, expected);
}

#[test]
fn purged_copies_leave_the_outbox() {
    let bench = bench_of(0);
    let node = bench.node();
    let outbox = outbox_for(&bench, &node, USER);
    write(&outbox.join("1"), &bytes(1, 5000));
    node.purge(&driftless_store::PurgeWhat::All)
        .expect("purged");
    assert_eq!(node.jobs("job", "", 9).expect("read"), ["job"]);
    assert_eq!(node.finish_job("job").expect("not ended").staying.len(), 1);
    assert_eq!(fs::read(outbox.join("1")).expect("there"), bytes(1, 5000));
    assert_eq!(seal(&node, b"1", b"1"), SealOutcome::Sealed);
    assert!(discard(&node, b"1"));
    assert!(node.finish_job("job").expect("ended").staying.is_empty() && is_unused(&bench));
}
