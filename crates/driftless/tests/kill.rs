//! Runs that are killed or interrupted: what stands at a name is always whole, and the next run
//! finishes the work.
//!
//! Every file consists of one repeated word that names the file and its version, and its size
//! follows from both, so any mix of versions and any missing tail shows. `DRIFTLESS_SEEDS` sets the
//! number of kills on each file system.
#![allow(clippy::disallowed_methods)]

mod common;

use common::campaign::count_of;
use common::marks::must_run;
use common::{check_equal, leftovers, only_local, put, sync, sync_ok, wait_until};
use driftless_testkit::{EVENT_MAX, FsKind, Scratch, attrs, snapshot_hash};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const NONE: [&str; 0] = [];
const MIB: usize = 1 << 20;
const SMALL_FILES: u32 = 300;
const NEW_FILES: u32 = 40;
const LARGE: [u32; 2] = [1000, 1001];
const LARGE_BYTES: usize = 66 * MIB;
/// Progress is recorded each 256 MiB.
const LARGEST_BYTES: usize = 640 * MIB;
/// Kills on each file system.
const KILLS: u64 = 16;
const RUNS_TO_THE_END_EACH: u32 = 5;

fn size_of(id: u32, version: u32) -> usize {
    let base = if LARGE.contains(&id) { LARGE_BYTES } else { 0 };
    base + 8 * ((id * 37 + version * 101) % 5000) as usize + 8
}

fn mode_of(id: u32, version: u32) -> u32 {
    [0o600, 0o640, 0o444, 0o755, 0o4711][((id + version) % 5) as usize]
}

fn owner_of(id: u32, version: u32) -> u32 {
    1000 + (id + version) % 3
}

fn word_of(id: u32, version: u32) -> [u8; 8] {
    ((u64::from(id) << 32) | u64::from(version)).to_le_bytes()
}

fn write_version(path: &Path, id: u32, version: u32) {
    put(path, word_of(id, version).repeat(size_of(id, version) / 8));
    attrs::set_owner(path, owner_of(id, version), 0).expect("chown");
    attrs::set_mode(path, mode_of(id, version)).expect("chmod");
}

/// The whole source at a version: files that are always there, large ones in turn, and a directory
/// that is new.
fn write_source(src: &Path, version: u32) {
    for id in 0..SMALL_FILES {
        write_version(&src.join(format!("dir{}/file-{id}", id % 10)), id, version);
    }
    let large = LARGE[(version % 2) as usize];
    write_version(&src.join(format!("large-{large}")), large, version);
    driftless_testkit::remove_deep(&new_folder(src, version - 1)).expect("remove");
    for id in 2000..2000 + NEW_FILES {
        let folder = if id % 2 == 0 {
            new_folder(src, version)
        } else {
            new_folder(src, version).join("sub")
        };
        write_version(&folder.join(format!("file-{id}")), id, version);
    }
}

fn new_folder(root: &Path, version: u32) -> PathBuf {
    root.join(format!("new-{version}"))
}

/// Panics if this file is not exactly one version of itself, with that version's owner and no wider
/// mode.
fn check_whole(path: &Path) {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .expect("plain name");
    let id: u32 = name
        .rsplit('-')
        .next()
        .and_then(|id| id.parse().ok())
        .unwrap_or_else(|| panic!("what is {name}?"));
    assert_eq!(
        check_some_version(path),
        id,
        "{}: the content of another file",
        path.display()
    );
}

/// Panics if this is not exactly one version of any file; returns the number of the file.
fn check_some_version(path: &Path) -> u32 {
    let content = fs::read(path).expect("read");
    let word: [u8; 8] = content
        .get(..8)
        .and_then(|word| word.try_into().ok())
        .unwrap_or_else(|| {
            panic!("{}: torn: {} bytes", path.display(), content.len());
        });
    let word = u64::from_le_bytes(word);
    let (id, version) = ((word >> 32) as u32, word as u32);
    assert_eq!(
        content.len(),
        size_of(id, version),
        "{}: torn, version {version}",
        path.display()
    );
    let repeats = content[8..] == content[..content.len() - 8];
    assert!(repeats, "{}: a mix with version {version}", path.display());
    let meta = fs::symlink_metadata(path).expect("stat");
    let wider = meta.mode() & 0o7777 & !mode_of(id, version);
    assert_eq!(
        wider,
        0,
        "{}: mode {:o} is wider than that of version {version}",
        path.display(),
        meta.mode()
    );
    assert_eq!(
        meta.uid(),
        owner_of(id, version),
        "{}: owner of version {version}",
        path.display()
    );
    id
}

/// Checks every visible file of a replica; a directory that is still private hides what is in it.
fn check_visible(dst: &Path) {
    let mut open = vec![dst.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("list") {
            let path = entry.expect("entry").path();
            let meta = fs::symlink_metadata(&path).expect("stat");
            let is_private = meta.is_dir() && meta.mode() & 0o7777 == 0o700;
            let is_temp = common::is_temp(&path);
            if meta.is_dir() && !is_private {
                open.push(path);
            } else if meta.is_file() && !is_temp {
                check_whole(&path);
            } else if meta.is_file()
                && meta.mode() & 0o7077 != 0
                && !path
                    .as_os_str()
                    .as_encoded_bytes()
                    .ends_with(common::LOCK_SIGN)
            {
                // Others may look into an unfinished file only when it lacks nothing but its name.
                // The sign of the lock is for all.
                let _which = check_some_version(&path);
            }
        }
    }
}

/// A directory that this version made is complete as soon as others may look into it.
fn check_new_folder(dst: &Path, version: u32) {
    let folder = new_folder(dst, version);
    let is_open = |folder: &Path| {
        fs::symlink_metadata(folder).is_ok_and(|meta| meta.mode() & 0o7777 != 0o700)
    };
    if is_open(&folder) {
        for id in 2000..2000 + NEW_FILES {
            let within = if id % 2 == 0 {
                folder.clone()
            } else {
                folder.join("sub")
            };
            check_whole(&within.join(format!("file-{id}")));
        }
    }
}

#[test]
fn a_killed_run_leaves_nothing_torn_and_the_next_finishes() {
    only_local!("needs what a killed run has left to stay");
    let seed = std::env::var("DRIFTLESS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    println!("seed {seed}; replay: DRIFTLESS_SEED={seed} cargo test -p driftless --test kill");
    let mut rng = fastrand::Rng::with_seed(seed);
    let kills = u32::try_from(count_of("DRIFTLESS_SEEDS", KILLS)).expect("a small number");
    for kind in [FsKind::Tmpfs, FsKind::Ext4] {
        kill_often(kind, kills, &mut rng);
    }
}

fn kill_often(kind: FsKind, kills: u32, rng: &mut fastrand::Rng) {
    let scratch = Scratch::new(kind, 700);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    for version in 1..3 {
        write_source(&src, version);
    }
    let mut whole_run = sync_ok(&src, &dst, ["--delete"]).elapsed;
    let (mut done, mut version) = (0, 3);
    while done < kills {
        assert!(
            version < kills * 10,
            "runs of {whole_run:?} end before they can be killed"
        );
        write_source(&src, version);
        let running = sync(&src, &dst)
            .args(["--delete", "--durability=none"])
            .spawn();
        let patience = whole_run.mul_f64(rng.f64());
        let is_over = running.ends_within(patience);
        done += u32::from(!is_over);
        // How long a run takes changes with what else the machine does.
        whole_run = whole_run.mul_f64(if is_over { 0.8 } else { 1.05 });
        running.signal(Signal::KILL);
        let _ = running.wait();
        check_visible(&dst);
        check_new_folder(&dst, version);
        if version % RUNS_TO_THE_END_EACH == 0 {
            let _ = sync_ok(&src, &dst, ["--delete"]);
            check_equal(&src, &dst, &format!("after {done} kills on {kind:?}"));
            assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
        }
        version += 1;
    }
}

/// Starts a slow copy of one large file and kills it as soon as a part of it is recorded as done.
fn killed_in_a_large_file(src: &Path, dst: &Path) {
    let running = sync(src, dst).args(["--bwlimit=300M", "--jobs=1"]).spawn();
    let note = |path: &PathBuf| {
        attrs::get_xattr(path, b"user.driftless.resume")
            .ok()
            .flatten()
    };
    let mut first = None;
    wait_until("more of the large file is recorded", || {
        assert!(!dst.join("large").exists(), "it ended before that");
        let now = leftovers_quietly(dst).iter().find_map(note);
        first = first.take().or_else(|| now.clone());
        now.is_some() && now != first
    });
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code(), 137);
}

/// Like `leftovers`, for a tree that changes while it is listed.
fn leftovers_quietly(dst: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dst).map(|entries| {
        entries
            .flatten()
            .map(|entry| entry.path())
            .collect::<Vec<_>>()
    });
    entries
        .unwrap_or_default()
        .into_iter()
        .filter(|path| common::is_temp(path))
        .collect()
}

fn large_stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 3 * LARGEST_BYTES as u64 / MIB as u64);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(
        &src.join("large"),
        fastrand::Rng::with_seed(5)
            .u64(..)
            .to_le_bytes()
            .repeat(LARGEST_BYTES / 8),
    );
    (scratch, src, dst)
}

#[test]
fn a_large_file_goes_on_where_a_killed_run_stopped() {
    let (_scratch, src, dst) = large_stage();
    killed_in_a_large_file(&src, &dst);
    assert!(
        !dst.join("large").exists(),
        "an unfinished file has no name"
    );
    let outcome = sync_ok(&src, &dst, NONE);
    let (resumed, copied) = (
        outcome.count("bytes_resumed"),
        outcome.count("bytes_copied"),
    );
    assert!(
        resumed > 0 && resumed + copied <= LARGEST_BYTES as u64,
        "{}",
        outcome.describe()
    );
    check_equal(&src, &dst, "resumed");
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

#[test]
fn a_large_file_that_changed_since_the_kill_is_not_stitched_together() {
    let (_scratch, src, dst) = large_stage();
    killed_in_a_large_file(&src, &dst);
    put(&src.join("large"), [7u8; 8].repeat(LARGEST_BYTES / 8));
    let _ = sync_ok(&src, &dst, NONE);
    check_equal(&src, &dst, "changed since");
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

type Plant = fn(temp: &Path, outside: &Path);

#[test]
fn what_is_planted_at_the_name_of_an_unfinished_file_is_not_trusted() {
    let plants: [(&str, Plant); 5] = [
        ("a file of another user with a forged note", |temp, _| {
            let note = attrs::get_xattr(temp, b"user.driftless.resume")
                .expect("read")
                .expect("a note");
            fs::OpenOptions::new()
                .write(true)
                .open(temp)
                .expect("open")
                .write_all_at(&[0xee; MIB], 0)
                .expect("write");
            attrs::set_owner(temp, 1000, 1000).expect("chown");
            attrs::set_xattr(temp, b"user.driftless.resume", &note).expect("note");
        }),
        ("a hard link to a file outside", |temp, outside| {
            fs::hard_link(temp, outside).expect("link")
        }),
        ("a symlink to a file outside", |temp, outside| {
            fs::rename(temp, outside).expect("rename");
            std::os::unix::fs::symlink(outside, temp).expect("symlink");
        }),
        ("a fifo", |temp, _| {
            fs::remove_file(temp).expect("unlink");
            attrs::make_node(temp, rustix::fs::FileType::Fifo, 0, 0).expect("fifo");
        }),
        ("a directory", |temp, _| {
            fs::remove_file(temp).expect("unlink");
            put(&temp.join("inside"), "content");
        }),
    ];
    for (what, plant) in plants {
        let (scratch, src, dst) = large_stage();
        killed_in_a_large_file(&src, &dst);
        let temp = leftovers(&dst).pop().expect("an unfinished file");
        let outside = scratch.path().join("outside");
        plant(&temp, &outside);
        let inode = fs::symlink_metadata(&temp).expect("stat").ino();
        let before = outside.exists().then(|| snapshot_hash(&outside, false));
        let outcome = sync_ok(&src, &dst, NONE);
        assert_eq!(outcome.count("bytes_resumed"), 0, "{what}");
        check_equal(&src, &dst, what);
        assert_ne!(
            fs::metadata(dst.join("large")).expect("stat").ino(),
            inode,
            "{what} became the file"
        );
        assert_eq!(
            outside.exists().then(|| snapshot_hash(&outside, false)),
            before,
            "{what}: changed outside"
        );
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new(), "{what}");
    }
}

#[test]
fn an_interrupted_run_says_how_to_go_on_and_leaves_nothing_torn() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let scratch = Scratch::new(FsKind::Tmpfs, 700);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        for version in 1..3 {
            write_source(&src, version);
        }
        let _ = sync_ok(&src, &dst, NONE);
        write_source(&src, 3);
        let running = sync(&src, &dst).args(["--delete", "--bwlimit=5M"]).spawn();
        wait_until("it works", || !leftovers_quietly(&dst).is_empty());
        running.signal(signal);
        assert!(
            running.ends_within(EVENT_MAX),
            "it ends soon after the signal"
        );
        let outcome = running.wait().expect(code);
        assert!(
            outcome.stderr_text().contains("again"),
            "a hint how to go on\n{}",
            outcome.describe()
        );
        check_visible(&dst);
        let _ = sync_ok(&src, &dst, ["--delete"]);
        check_equal(&src, &dst, "gone on");
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
    }
}

/// Whether a user that is a member of group 1234 can read the file.
fn is_read_by_the_group(path: &Path, user: u32) -> bool {
    let ids = [
        format!("--reuid={user}"),
        "--regid=1234".to_owned(),
        "--clear-groups".to_owned(),
    ];
    Command::new("setpriv")
        .args(ids)
        .arg("cat")
        .arg(path)
        .output()
        .expect("setpriv starts")
        .status
        .success()
}

/// A run that is killed at each call in turn that sets owner, mode or attributes.
fn killed_at_each(src: &Path, dst: &Path, check: impl Fn(&str)) {
    const CALLS: [&str; 8] = [
        "fchmod",
        "fchmodat",
        "fchmodat2",
        "fchown",
        "fchownat",
        "fsetxattr",
        "fremovexattr",
        "lsetxattr,setxattr,removexattr,lremovexattr",
    ];
    for call in CALLS {
        for number in 1..4 {
            let (trace, inject) = (
                format!("trace={call}"),
                format!("inject={call}:signal=KILL:when={number}"),
            );
            let words = [
                "strace",
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                &trace,
                "-e",
                &inject,
                "--",
            ];
            let _killed_or_not = sync(src, dst).through(words).run();
            check(&inject);
        }
    }
}

#[test]
fn a_change_of_group_or_acl_lets_in_nobody_for_a_moment() {
    only_local!("makes calls of one process fail");
    let acl = |path: &Path| {
        attrs::set_owner(path, 5, 1234).expect("chown");
        attrs::set_mode(path, 0o640).expect("chmod");
        must_run(&["setfacl", "-m", "u:7:r,g::---"], &[path]);
    };
    let group = |path: &Path| {
        attrs::set_owner(path, 5, 6).expect("chown");
        attrs::set_mode(path, 0o640).expect("chmod");
    };
    for before in [&acl as &dyn Fn(&Path), &group] {
        let scratch = Scratch::new(FsKind::Ext4, 64);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        [scratch.path(), &src]
            .into_iter()
            .for_each(|dir| attrs::set_mode(dir, 0o755).expect("chmod"));
        let (file, copy) = (src.join("file"), dst.join("file"));
        let fresh = || {
            put(&file, "secret");
            before(&file);
            let _ = sync_ok(&src, &dst, NONE);
            assert!(!is_read_by_the_group(&copy, 77), "before");
            must_run(&["setfacl", "-b"], &[&file]);
            attrs::set_owner(&file, 5, 1234).expect("chown");
            attrs::set_mode(&file, 0o600).expect("chmod");
        };
        fresh();
        killed_at_each(&src, &dst, |call| {
            assert!(!is_read_by_the_group(&copy, 77), "{call}");
            let _ = sync_ok(&src, &dst, NONE);
            check_equal(&src, &dst, call);
            fresh();
        });
    }
}

#[test]
fn what_a_killed_first_copy_leaves_lets_in_nobody_whom_the_source_keeps_out() {
    for is_listed in [true, false] {
        let scratch = Scratch::new(FsKind::Ext4, 64);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        [scratch.path(), &src]
            .into_iter()
            .for_each(|dir| attrs::set_mode(dir, 0o755).expect("chmod"));
        let (file, copy) = (src.join("sub/file"), dst.join("sub/file"));
        put(&file, vec![7; 8 * MIB]);
        attrs::set_owner(&file, 5, 6).expect("chown");
        attrs::set_mode(&file, if is_listed { 0o644 } else { 0o640 }).expect("chmod");
        if is_listed {
            must_run(&["setfacl", "-m", "u:1234:---"], &[&file]);
        }
        let running = sync(&src, &dst).args(["--bwlimit=2M", "--jobs=1"]).spawn();
        wait_until("some of it is copied", || {
            fs::metadata(&copy).is_ok_and(|meta| meta.len() > 0)
        });
        running.signal(Signal::KILL);
        assert_eq!(running.wait().code(), 137);
        fs::rename(&file, src.join("sub/renamed")).expect("rename");
        wait_until("nobody is at work any more", || {
            sync(&src, &dst).run().code() == 0
        });
        let mode = fs::metadata(&copy).expect("it is kept").mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        assert!(!is_listed || !is_read_by_the_group(&copy, 1234));
        let _ = sync_ok(&src, &dst, ["--delete"]);
        check_equal(&src, &dst, "afterwards");
    }
}
