//! What a mount does in each mood and under each rule, seen through the kernel.

use super::*;
use crate::build::{Profile, build_tree};
use crate::compare::{Options, assert_equal};
use crate::scratch::{FsKind, Scratch};
use crate::{attrs, mutate};
use rustix::fs::{AtFlags, CWD, FileType, OFlags};
use rustix::io::Errno;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

fn error_of<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result
        .expect_err("it fails")
        .raw_os_error()
        .expect("an error of the system")
}

fn put(fuse: &Fuse, names: [&str; 2]) {
    names
        .into_iter()
        .for_each(|name| fs::write(fuse.path().join(name), "x").expect("write"));
}

#[test]
fn a_healthy_mount_holds_the_hostile_tree_as_it_really_is() {
    let fuse = Fuse::mount(Mood::healthy());
    let tree = fuse.dir("tree");
    build_tree(&tree, 3, &Profile::root());
    mutate(&tree, 4, 150);
    assert_equal(
        &tree,
        &fuse.backing().join("tree"),
        &Options::default(),
        "seen through the mount and as it is",
    );
    attrs::set_owner(&fuse.dir("user"), 65534, 65534).expect("chown");
    build_tree(&fuse.path().join("user"), 3, &Profile::user(65534, 65534));
}

#[test]
fn a_mount_goes_away_with_the_value_even_after_a_panic() {
    let mount = std::thread::spawn(|| {
        let fuse = Fuse::mount(Mood::healthy());
        let path = fuse.path().to_owned();
        std::panic::resume_unwind(Box::new(path));
    });
    let path = *mount
        .join()
        .expect_err("it panics")
        .downcast::<PathBuf>()
        .expect("the mount");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(
        !mounts.contains(path.to_str().expect("ascii")),
        "still mounted"
    );
    assert!(!path.exists());
}

#[test]
fn coarse_times_are_cut_and_a_range_holds() {
    let fuse = Fuse::mount(Mood {
        seconds: -(1 << 31)..=(1 << 31) - 1,
        ..Mood::folded()
    });
    let file = fuse.path().join("file");
    fs::write(&file, "x").expect("write");
    for (set, kept) in [
        ((1_700_000_001, 5), 1_700_000_000),
        ((9_000_000_000, 5), (1 << 31) - 1),
    ] {
        attrs::set_mtime(&file, set.0, set.1).expect("utimensat");
        let meta = fs::metadata(&file).expect("stat");
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (kept, 0));
    }
}

#[test]
fn names_without_case_are_one_name_and_the_first_spelling_stays() {
    let fuse = Fuse::mount(Mood::folded());
    let at = |name: &str| fuse.path().join(name);
    fs::write(at("Name"), "first").expect("write");
    assert_eq!(fs::read(at("nAME")).expect("read"), b"first");
    let create_new = fs::File::create_new(at("NAME"));
    assert_eq!(
        create_new.expect_err("it is there").kind(),
        ErrorKind::AlreadyExists
    );
    fs::write(at("other"), "second").expect("write");
    fs::rename(at("other"), at("NAME")).expect("rename over it");
    let names = || {
        fs::read_dir(fuse.backing())
            .expect("list")
            .map(|entry| entry.expect("entry").file_name())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (names(), fs::read(at("name")).expect("read")),
        (vec!["Name".into()], b"second".to_vec())
    );
    fs::rename(at("name"), at("NAME")).expect("no change");
    assert_eq!(names(), ["Name"], "the kernel renames no inode to itself");
    fs::rename(at("name"), at("between")).expect("the first of two steps");
    fs::rename(at("between"), at("NAME")).expect("the second");
    assert_eq!(names(), ["NAME"]);
    fs::remove_file(at("name")).expect("unlink");
    assert!(names().is_empty());
}

#[test]
fn a_listing_may_hide_kinds_and_names() {
    let fuse = Fuse::mount(Mood::untyped());
    drop(["a", "b"].map(|name| fuse.dir(name)));
    fuse.order(Rule::omit("a"));
    let fd = rustix::fs::openat(CWD, fuse.path(), OFlags::RDONLY, rustix::fs::Mode::empty())
        .expect("open");
    let listed: Vec<_> = rustix::fs::Dir::read_from(&fd)
        .expect("list")
        .map(|entry| entry.expect("entry"))
        .collect();
    assert_eq!(
        listed
            .iter()
            .filter(|entry| entry.file_name() == c"a")
            .count(),
        0
    );
    assert_eq!(
        listed
            .iter()
            .find(|entry| entry.file_name() == c"b")
            .map(|entry| entry.file_type()),
        Some(FileType::Unknown)
    );
    assert!(fuse.path().join("a").is_dir(), "it can be looked up");
}

#[test]
fn a_bare_mount_keeps_neither_attributes_nor_acls() {
    let fuse = Fuse::mount(Mood::bare());
    let dir = fuse.dir("dir");
    for (name, value) in [
        ("user.x", vec![1]),
        (attrs::ACL_ACCESS, attrs::acl_blob((1, 7), (2, 5), 0)),
    ] {
        assert_eq!(
            error_of(attrs::set_xattr(&dir, name.as_bytes(), &value)),
            Errno::NOTSUP.raw_os_error(),
            "{name}"
        );
        assert_eq!(
            error_of(attrs::get_xattr(&dir, name.as_bytes())),
            Errno::NOTSUP.raw_os_error(),
            "{name}"
        );
    }
}

#[test]
fn a_rule_hits_a_name_at_its_call_and_is_forgiven() {
    let fuse = Fuse::mount(Mood::healthy());
    put(&fuse, ["a", "b"]);
    fuse.order(Rule::fail(Op::Open, Errno::IO).named("a").after(1).times(1));
    let open = |name: &str| fs::read(fuse.path().join(name)).map_err(|error| error.raw_os_error());
    assert!(open("a").is_ok() && open("b").is_ok());
    assert_eq!(open("a"), Err(Some(Errno::IO.raw_os_error())));
    assert!(open("a").is_ok());
    fuse.order(Rule::fail(Op::Opendir, Errno::STALE));
    assert_eq!(
        error_of(fs::read_dir(fuse.path())),
        Errno::STALE.raw_os_error()
    );
    fuse.forgive();
    assert!(fs::read_dir(fuse.path()).is_ok());
    assert!(fuse.calls(Op::Open) >= 4);
}

#[test]
fn what_a_lease_holds_opens_without_nonblock_only() {
    let fuse = Fuse::mount(Mood::healthy());
    fs::write(fuse.path().join("f"), "x").expect("write");
    fuse.order(Rule::leased().named("f"));
    let open = |flags| {
        rustix::fs::openat(
            CWD,
            fuse.path().join("f"),
            OFlags::RDONLY | flags,
            rustix::fs::Mode::empty(),
        )
    };
    assert_eq!(open(OFlags::NONBLOCK).expect_err("leased"), Errno::AGAIN);
    assert!(open(OFlags::empty()).is_ok());
}

#[test]
fn reading_may_end_before_the_size_and_writing_may_be_lost() {
    let fuse = Fuse::mount(Mood::healthy());
    let file = fuse.path().join("f");
    fs::write(&file, vec![7; 300_000]).expect("write");
    fuse.order(Rule::end_at(131_072).named("f"));
    let mut content = Vec::new();
    let mut open = fs::File::open(&file).expect("open");
    open.read_to_end(&mut content).expect("read");
    assert_eq!(
        (content.len(), open.metadata().expect("stat").len()),
        (131_072, 300_000)
    );
    fuse.order(Rule::lose_writes().named("g"));
    fs::write(fuse.path().join("g"), "lost").expect("write");
    assert_eq!(fs::read(fuse.backing().join("g")).expect("read"), b"");
}

#[test]
fn an_error_of_flush_is_one_of_close() {
    let fuse = Fuse::mount(Mood::healthy());
    fuse.order(Rule::fail(Op::Flush, Errno::DQUOT));
    let copied = std::process::Command::new("cp")
        .arg("/proc/self/status")
        .arg(fuse.path().join("f"))
        .output()
        .expect("cp");
    assert!(
        String::from_utf8_lossy(&copied.stderr).contains("Disk quota exceeded"),
        "{copied:?}"
    );
}

#[test]
fn a_cache_of_attributes_shows_what_was() {
    let fuse = Fuse::mount(Mood {
        remembers: Duration::from_secs(600),
        ..Mood::healthy()
    });
    fs::write(fuse.path().join("f"), "x").expect("write");
    let size = || fs::metadata(fuse.path().join("f")).expect("stat").len();
    assert_eq!(size(), 1);
    fs::write(fuse.backing().join("f"), "longer").expect("write behind its back");
    assert_eq!(size(), 1);
    let synced = rustix::fs::statx(
        CWD,
        fuse.path().join("f"),
        AtFlags::STATX_FORCE_SYNC,
        rustix::fs::StatxFlags::BASIC_STATS,
    );
    assert_eq!(synced.expect("statx").stx_size, 6);
}

#[test]
fn a_dead_mount_lets_callers_wait_until_it_is_cut() {
    let mut fuse = Fuse::mount(Mood::healthy());
    fs::write(fuse.path().join("f"), "x").expect("write");
    fuse.order(Rule::never(Op::Open).named("f"));
    let path = fuse.path().join("f");
    let caller = std::thread::spawn(move || fs::read(path).map_err(|error| error.raw_os_error()));
    crate::wait_until("the file is opened", || fuse.calls(Op::Open) > 0);
    assert!(!caller.is_finished());
    fuse.cut();
    assert_eq!(
        caller.join().expect("caller"),
        Err(Some(Errno::CONNABORTED.raw_os_error()))
    );
    assert_eq!(
        error_of(fs::metadata(fuse.path().join("f"))),
        Errno::NOTCONN.raw_os_error()
    );
}

#[test]
fn slow_answers_hold_up_nobody_else() {
    let fuse = Fuse::mount(Mood::healthy());
    put(&fuse, ["slow", "fast"]);
    fuse.order(Rule::slow(Op::Open, Duration::from_millis(700)).named("slow"));
    let began = std::time::Instant::now();
    let path = fuse.path().join("slow");
    let caller = std::thread::spawn(move || fs::read(path));
    assert!(fs::read(fuse.path().join("fast")).is_ok());
    assert!(!caller.is_finished());
    assert!(caller.join().expect("caller").is_ok());
    assert!(began.elapsed() >= Duration::from_millis(700));
}

#[test]
fn a_snapshot_is_not_taken_for_a_deleted_one_that_is_still_open() {
    let scratch = Scratch::new(FsKind::Btrfs, 200);
    let (backing, snapshots) = (scratch.path().join("backing"), scratch.dir("snapshots"));
    let mut create = std::process::Command::new("btrfs");
    create.args(["-q", "subvolume", "create"]).arg(&backing);
    assert!(create.status().expect("btrfs").success());
    fs::write(backing.join("file"), "x").expect("a file");
    let mood = Mood {
        ceph: Some(snapshots),
        ..Mood::healthy()
    };
    let fuse = Fuse::over(&backing, mood);
    let names = |path: &Path| fs::read_dir(path).expect("list").count();
    let mut open = Vec::new();
    for number in 0..4 {
        let path = fuse.path().join(format!(".snap/{number}"));
        fs::create_dir(&path).expect("a snapshot");
        assert_eq!(names(&path), 1, "snapshot {number}");
        open.push(fs::File::open(&path).expect("open"));
        fs::remove_dir(&path).expect("deleted");
    }
}
