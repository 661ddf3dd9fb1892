//! What an earlier run did not make durable is known from the replica's mark and compared; and a
//! run's lock is its own.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way};
use common::marks::{
    MIB, is_unsettled, kill, killed, lose, many_files, mark, must_run, noise, says_so,
};
use common::{
    LOCK_FILE, MARK_FILE, USER, check_equal, check_settled, driftless, leftovers, on_trees,
    only_local, put, sync, sync_by_user, sync_ok, verify, wait_until,
};
use driftless_testkit::fuse::{Fuse, Mood};
use driftless_testkit::{FsKind, Outcome, Running, Scratch, attrs, snapshot_hash};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const NONE: [&str; 0] = [];
fn stage(kind: FsKind) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(kind, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (scratch, src, dst)
}

/// A mounted image, unmounted on drop.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: PathBuf, options: &str) -> Mounted {
        fs::create_dir_all(&at).expect("mount point");
        must_run(&["mount", "-o", options], &[image, &at]);
        Mounted(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _it_may_take_the_second_way = Command::new("umount")
            .arg(&self.0)
            .status()
            .is_ok_and(|status| status.success())
            || Command::new("umount")
                .arg("-l")
                .arg(&self.0)
                .status()
                .is_ok();
    }
}

#[test]
fn after_a_flush_that_failed_the_next_run_compares_and_mends() {
    // A disk that is smaller than it says, as a volume that is provisioned thinly.
    let scratch = Scratch::new(FsKind::Tmpfs, 40);
    let source = Scratch::new(FsKind::Tmpfs, 100);
    let (src, image) = (source.dir("src"), scratch.path().join("image"));
    fs::File::create(&image)
        .expect("image")
        .set_len(300 << 20)
        .expect("size");
    must_run(&["mkfs.ext4", "-q", "-O", "^has_journal"], &[&image]);
    let mounted = Mounted::new(&image, source.path().join("fs"), "loop");
    let dst = mounted.0.join("dst");
    for seed in 0..12 {
        put(&src.join(format!("f{seed}")), noise(seed, 5 * MIB));
    }
    let _ = sync(&src, &dst).run().expect(1);
    assert!(is_unsettled(&dst), "{:?}", mark(&dst));
    must_run(&["mount", "-o", "remount,size=400m"], &[scratch.path()]);
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(
        says_so(&outcome) && outcome.count("changed") > 0,
        "{}",
        outcome.describe()
    );
    assert!(!is_unsettled(&dst));
    fs::write("/proc/sys/vm/drop_caches", "1").expect("drop caches");
    check_equal(&src, &dst, "what the disk has kept");
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(!says_so(&outcome), "{}", outcome.describe());
}

#[test]
fn after_a_power_cut_what_has_its_size_and_not_its_data_is_mended() {
    let scratch = Scratch::new(FsKind::Tmpfs, 900);
    let (src, image, cut) = (
        scratch.dir("src"),
        scratch.path().join("image"),
        scratch.path().join("cut"),
    );
    fs::File::create(&image)
        .expect("image")
        .set_len(200 << 20)
        .expect("size");
    must_run(&["mkfs.ext4", "-q"], &[&image]);
    // A file that ends in a hole has its size in the journal before its data are written out.
    put(&src.join("a"), noise(1, MIB));
    fs::OpenOptions::new()
        .write(true)
        .open(src.join("a"))
        .expect("open")
        .set_len(2 << 20)
        .expect("hole");
    put(&src.join("z"), noise(2, 30 * MIB));
    let mounted = Mounted::new(&image, scratch.path().join("fs"), "loop,commit=1");
    let dst = mounted.0.join("dst");
    let running = sync(&src, &dst).args(["--bwlimit=6M", "--jobs=1"]).spawn();
    wait_until("the power is cut with a file that lacks its data", || {
        must_run(&["cp", "--sparse=always"], &[&image, &cut]);
        let at = Mounted::new(&cut, scratch.path().join("after"), "loop");
        let content = fs::read(at.0.join("dst/a")).unwrap_or_default();
        content.len() == 2 * MIB && content[..MIB].iter().all(|byte| *byte == 0)
    });
    running.signal(Signal::KILL);
    let _ = running.wait();
    let after = Mounted::new(&cut, scratch.path().join("after"), "loop");
    let dst = after.0.join("dst");
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(says_so(&outcome), "{}", outcome.describe());
    check_equal(&src, &dst, "after the cut");
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

#[test]
fn what_a_killed_run_has_written_is_compared_once() {
    for kind in FsKind::ALL {
        let (_scratch, src, dst) = stage(kind);
        many_files(&src);
        killed(&src, &dst, &[]);
        assert!(is_unsettled(&dst), "{kind:?}");
        let copied = (0..12)
            .map(|seed| dst.join(format!("f{seed}")))
            .find(|path| path.exists())
            .expect("one is copied");
        lose(&copied);
        for look in [vec!["sync", "--dry-run"], vec!["verify", "--level=meta"]] {
            let outcome = on_trees(look[0], &src, &dst)
                .arg("--json")
                .args(&look[1..])
                .run();
            assert!(
                says_so(&outcome) && is_unsettled(&dst),
                "{kind:?}\n{}",
                outcome.describe()
            );
        }
        let outcome = sync_ok(&src, &dst, NONE);
        assert!(
            says_so(&outcome) && !is_unsettled(&dst),
            "{kind:?}\n{}",
            outcome.describe()
        );
        check_equal(&src, &dst, "mended");
        check_settled(&src, &dst, NONE);
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new(), "{kind:?}");
    }
}

#[test]
fn a_run_that_does_not_see_all_of_it_does_not_settle_what_another_left() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    many_files(&src);
    killed(&src, &dst, &[]);
    for arguments in [["--exclude=f1"], ["--max-size=1M"]] {
        let outcome = sync_ok(&src, &dst, arguments);
        assert!(
            says_so(&outcome) && is_unsettled(&dst),
            "{}",
            outcome.describe()
        );
    }
    let _ = sync_ok(&src, &dst, NONE);
    assert!(!is_unsettled(&dst));
    // Whoever sees all settles what a run with filters left; so does one with the same filters.
    for arguments in [&[][..], &["--exclude=f1"]] {
        fs::remove_dir_all(&dst).expect("remove");
        killed(&src, &dst, &["--exclude=f1"]);
        let _ = sync_ok(&src, &dst, arguments);
        assert!(!is_unsettled(&dst), "{arguments:?}");
    }
}

#[test]
fn what_is_left_to_the_kernel_is_compared_when_it_has_started_anew() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    many_files(&src);
    let none = ["--durability=none"];
    let _ = sync_ok(&src, &dst, none);
    let text = mark(&dst).expect("a mark");
    assert!(text.contains("left ") && !is_unsettled(&dst), "{text}");
    let outcome = sync_ok(&src, &dst, none);
    assert!(!says_so(&outcome), "{}", outcome.describe());
    lose(&dst.join("f3"));
    // The last word of a line is the boot.
    let other_boot: Vec<String> = text
        .lines()
        .map(|line| match line.rsplit_once(' ') {
            Some((line, _)) if line.starts_with("left") => format!("{line} {:016x}", 7),
            _ => line.to_owned(),
        })
        .collect();
    attrs::set_xattr(
        &dst,
        b"trusted.driftless.mark",
        (other_boot.join("\n") + "\n").as_bytes(),
    )
    .expect("set");
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(says_so(&outcome), "{}", outcome.describe());
    check_equal(&src, &dst, "mended");
    assert!(!mark(&dst).expect("a mark").contains("left "));
}

#[test]
fn a_mark_that_nobody_can_read_is_no_reason_to_trust() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    many_files(&src);
    let _ = sync_ok(&src, &dst, NONE);
    lose(&dst.join("f3"));
    attrs::set_xattr(&dst, b"trusted.driftless.mark", b"driftless mark 99\n").expect("set");
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(says_so(&outcome), "{}", outcome.describe());
    check_equal(&src, &dst, "mended");
    assert!(!is_unsettled(&dst));
}

#[test]
fn the_mark_is_no_part_of_the_tree() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs);
    let third = scratch.path().join("third");
    put(&src.join("file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    let identity = |root: &Path| mark(root).and_then(|text| text.lines().nth(1).map(str::to_owned));
    let _ = sync_ok(&dst, &third, NONE);
    assert!(
        identity(&dst).is_some()
            && identity(&third).is_some()
            && identity(&dst) != identity(&third)
    );
    assert_eq!(mark(&src), None);
    let manifest = |root: &Path| {
        driftless()
            .args(["sum", "--manifest"])
            .arg(root)
            .run()
            .expect(0)
            .stdout_text()
            .to_string()
    };
    assert_eq!(
        manifest(&src).lines().last(),
        manifest(&third).lines().last()
    );
    for (a, b) in [(&dst, &third), (&src, &dst)] {
        let _ = verify(a, b).run().expect(0);
        check_settled(a, b, ["--delete"]);
    }
    put(&src.join("more"), "content");
    let before = identity(&dst);
    let _ = sync_ok(&src, &dst, NONE);
    assert_eq!(identity(&dst), before, "it is drawn once");
}

#[test]
fn without_attributes_the_mark_is_a_file_that_no_listing_shows() {
    let (fuse, source) = (Fuse::mount(Mood::bare()), Scratch::new(FsKind::Tmpfs, 300));
    let (src, dst) = (source.dir("src"), fuse.path().join("dst"));
    put(&src.join("dir/file"), "content");
    let args = ["--no-xattrs", "--no-acls"];
    let _ = sync_ok(&src, &dst, args);
    assert!(
        dst.join(MARK_FILE).exists() && !is_unsettled(&dst),
        "{:?}",
        fs::read_dir(&dst).map(Iterator::count)
    );
    check_settled(&src, &dst, ["--no-xattrs", "--no-acls", "--delete"]);
    let outcome = verify(&src, &dst).args(args).run().expect(0);
    assert_eq!(outcome.count("seen"), 3, "{}", outcome.describe());
    // A replica of the replica, and a replica that goes because it lies in another.
    let third = source.path().join("third");
    assert_eq!(sync_ok(&dst, &third, args).count("seen"), 3);
    assert!(!third.join(MARK_FILE).exists());
    put(&src.join("dst/file"), "content");
    let outer = fuse.path().to_owned();
    let _ = sync_ok(&src, &outer, args);
    fs::remove_dir_all(src.join("dst")).expect("remove");
    let _ = sync_ok(&src, &outer, ["--no-xattrs", "--no-acls", "--delete"]);
    assert!(!dst.exists());
}

/// A program that an ordinary user has started.
struct Intruder(Child);

impl Intruder {
    fn holding(path: &Path) -> Intruder {
        let ids = [
            format!("--reuid={USER}"),
            format!("--regid={USER}"),
            "--clear-groups".into(),
        ];
        let mut command = Command::new("setpriv");
        command
            .args(ids)
            .args(["flock", "--no-fork", "-x", "-n"])
            .arg(path)
            .args(["sleep", "600"]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("setpriv");
        Intruder(child)
    }

    fn is_at_work(&mut self) -> bool {
        self.0.try_wait().expect("wait").is_none()
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether somebody holds a lock on an inode (proc_locks(5)).
fn is_locked(path: &Path) -> bool {
    let inode = format!(
        ":{} ",
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).expect("stat"))
    );
    fs::read_to_string("/proc/locks")
        .expect("locks")
        .lines()
        .any(|line| line.contains("FLOCK") && line.contains(&inode))
}

#[test]
fn nobody_else_can_lock_a_run_out() {
    let (scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("file"), "content");
    let _ = sync_ok(&src, &dst, NONE);
    put(&src.join("more"), "content");
    // Of an ordinary user: the root itself, and what he has put where the locks of a replica and of
    // a single file are made.
    attrs::set_mode(&dst, 0o777).expect("chmod");
    let single = scratch.path().join("file");
    attrs::set_mode(scratch.path(), 0o777).expect("chmod");
    let planted = [
        dst.join(LOCK_FILE),
        scratch
            .path()
            .join(".driftless-lock-696a1d3da0757277b806e974d486c47b"),
    ];
    let plant = |path: &Path| {
        put(path, "");
        attrs::set_owner(path, USER, USER).expect("chown");
        attrs::set_mode(path, 0o600).expect("chmod");
    };
    for path in [&dst, &planted[0], &planted[1], &scratch.path().to_owned()] {
        planted.iter().for_each(|path| plant(path));
        let mut intruder = Intruder::holding(path);
        wait_until("he holds it", || is_locked(path));
        assert!(intruder.is_at_work());
        put(&src.join("file"), format!("content {}", path.display()));
        let _ = sync_ok(&src, &dst, NONE);
        let _ = sync_ok(&src.join("file"), &single, NONE);
        assert_eq!(
            fs::read(&single).expect("read"),
            fs::read(src.join("file")).expect("read")
        );
        assert!(
            planted.iter().all(|path| !path.exists()),
            "what he has put there is gone"
        );
    }
    check_equal(&src, &dst, "whoever holds what");
}

fn at_work(src: &Path, dst: &Path) -> Running {
    // There may be other entries already.
    let first = sync(src, dst)
        .args(["--bwlimit=100K", "--copy-into"])
        .spawn();
    let is_written = || fs::read(dst.join(LOCK_FILE)).is_ok_and(|text| text.ends_with(b"\n"));
    wait_until("the first run works", is_written);
    first
}

#[test]
fn whoever_is_turned_away_is_told_by_whom() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("slow"), vec![1u8; 20 * MIB]);
    let first = at_work(&src, &dst);
    let text = fs::read_to_string(dst.join(LOCK_FILE)).expect("read");
    let outcome = sync(&src, &dst).run().expect(11);
    let process = text.split(' ').next().expect("a process");
    assert!(
        outcome
            .stderr_text()
            .contains(&format!("(process {process} on ")),
        "{}",
        outcome.describe()
    );
    // A run that changes nothing is turned away before it has made anything.
    first.signal(Signal::INT);
    let _ = first.wait().expect(130);
    assert!(!dst.join(LOCK_FILE).exists());
}

#[test]
fn runs_on_overlapping_replicas_keep_each_other_out_and_those_side_by_side_do_not() {
    let (scratch, src, backup) = stage(FsKind::Tmpfs);
    put(&src.join("slow"), vec![1u8; 20 * MIB]);
    let other = scratch.dir("other");
    put(&other.join("home/file"), "content");
    let home = backup.join("home");
    fs::create_dir_all(backup.join("var")).expect("mkdir");
    fs::create_dir_all(&home).expect("mkdir");
    let first = at_work(&src, &home);
    let _ = sync(&other, &backup).run().expect(11);
    let _ = sync_ok(&other, &backup.join("var"), NONE);
    let _ = sync_ok(&other.join("home/file"), &backup.join("file"), NONE);
    let _ = sync(&other.join("home/file"), &home.join("file"))
        .run()
        .expect(11);
    first.signal(Signal::KILL);
    let _ = first.wait();
    let first = at_work(&src, &backup);
    for inner in [&home, &backup.join("var")] {
        let _ = sync(&other, inner).run().expect(11);
    }
    first.signal(Signal::KILL);
    let _ = first.wait();
    let _ = sync_ok(&other, &home, NONE);
    let _ = sync_ok(&src, &backup, NONE);
}

#[test]
fn where_the_file_system_has_no_locks_runs_are_possible_and_keep_each_other_out() {
    only_local!("makes calls of one process fail");
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    put(&src.join("slow"), vec![1u8; 20 * MIB]);
    for error in ["ENOSYS", "EOPNOTSUPP", "ENOLCK"] {
        let inject = format!("inject=flock:error={error}");
        let words = [
            "strace",
            "-f",
            "--seccomp-bpf",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=flock",
            "-e",
            &inject,
            "--",
        ];
        let first = sync(&src, &dst)
            .arg("--bwlimit=100K")
            .through(words)
            .spawn();
        wait_until("it works", || mark(&dst).is_some());
        let _ = sync(&src, &dst).through(words).run().expect(11);
        first.signal(Signal::INT);
        let _ = first.wait();
        let outcome = sync(&src, &dst).through(words).run().expect(0);
        assert!(
            outcome
                .stderr_text()
                .contains("runs on other hosts are not kept out"),
            "{error}\n{}",
            outcome.describe()
        );
        check_equal(&src, &dst, error);
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
        fs::remove_dir_all(&dst).expect("remove");
    }
}

#[test]
fn a_run_that_changes_nothing_writes_nothing() {
    let (_scratch, src, dst) = stage(FsKind::Ext4);
    put(&src.join("file"), "content");
    fs::create_dir(&dst).expect("mkdir");
    must_run(&["cp", "-a"], &[&src.join("."), &dst]);
    let before = snapshot_hash(&dst, true);
    let _ = sync_ok(&src, &dst, ["--delete"]);
    assert_eq!((snapshot_hash(&dst, true), mark(&dst)), (before, None));
}

#[test]
fn an_ordinary_user_marks_what_is_his() {
    let (scratch, src, _) = stage(FsKind::Ext4);
    let home = scratch.dir("home");
    put(&src.join("file"), "content");
    for path in [&src, &src.join("file"), &home] {
        attrs::set_owner(path, USER, USER).expect("chown");
    }
    attrs::set_mode(&src, 0o555).expect("chmod");
    let dst = home.join("dst");
    for content in ["content", "other content"] {
        attrs::set_mode(&src.join("file"), 0o644).expect("chmod");
        put(&src.join("file"), content);
        let outcome = sync_by_user(&src, &dst).run().expect(0);
        assert!(
            !outcome.stderr_text().contains("cannot be noted"),
            "{}",
            outcome.describe()
        );
        let text = attrs::get_xattr(&dst, b"user.driftless.mark")
            .expect("read")
            .expect("a mark");
        assert!(!String::from_utf8_lossy(&text).contains("since "));
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
        assert_eq!(
            fs::metadata(&dst).expect("stat").permissions(),
            fs::metadata(&src).expect("stat").permissions()
        );
    }
}

#[test]
fn a_replica_on_another_host_is_marked_there() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    many_files(&src);
    for way in [Way::Push, Way::Between] {
        kill(far.sync(way, &src, &dst), &dst);
        let copied = (0..12)
            .map(|seed| dst.join(format!("f{seed}")))
            .find(|path| path.exists())
            .expect("one is copied");
        lose(&copied);
        let outcome = far.sync(way, &src, &dst).run().expect(0);
        assert!(
            says_so(&outcome) && !is_unsettled(&dst),
            "{way:?}\n{}",
            outcome.describe()
        );
        check_equal(&src, &dst, "mended over the line");
        let before = snapshot_hash(&dst, true);
        let _ = far.sync(way, &src, &dst).run().expect(0);
        assert_eq!(snapshot_hash(&dst, true), before);
        put(&src.join("f5"), "shorter");
        let _ = far.sync(way, &src, &dst).run().expect(0);
        assert!(!is_unsettled(&dst) && leftovers(&dst).is_empty());
        fs::remove_dir_all(&dst).expect("remove");
        many_files(&src);
    }
}

#[test]
fn a_run_that_movers_share_compares_what_was_not_durable() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    many_files(&src);
    killed(&src, &dst, &[]);
    let copied = (0..12)
        .map(|seed| dst.join(format!("f{seed}")))
        .find(|path| path.exists())
        .expect("one is copied");
    lose(&copied);
    let outcome = common::movers::sync_on_hosts("far,far", &far.words(), &src, &dst)
        .run()
        .expect(0);
    assert!(
        says_so(&outcome) && !is_unsettled(&dst),
        "{}",
        outcome.describe()
    );
    check_equal(&src, &dst, "mended by movers");
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

#[test]
fn names_of_the_mark_and_the_lock_say_nothing_but_in_a_root() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    for name in [LOCK_FILE, MARK_FILE] {
        put(&src.join("p").join(name), "somebody's");
        put(&src.join(name).join("inside"), "somebody's");
        put(&dst.join("gone").join(name).join("x"), "x");
        put(
            &dst.join("stays").join(name),
            "of a replica within this one",
        );
        fs::create_dir_all(src.join("stays")).expect("dir");
    }
    let count = |extra: &[&str]| {
        sync(&src, &dst)
            .args(["--delete", "--delete-unlike"])
            .args(extra)
            .run()
            .expect(3)
    };
    let told = |outcome: &Outcome| {
        let paths = outcome
            .events_named("problem")
            .into_iter()
            .map(|event| event["path"].as_str().expect("text").to_owned());
        paths.collect::<BTreeSet<String>>()
    };
    let dry = count(&["--dry-run"]);
    let done = count(&[]);
    let expected: BTreeSet<String> = [LOCK_FILE, MARK_FILE]
        .iter()
        .flat_map(|name| [format!("p/{name}"), (*name).to_owned()])
        .collect();
    assert_eq!(
        (told(&dry), told(&done)),
        (expected.clone(), expected),
        "{}",
        done.describe()
    );
    assert_eq!(dry.count("deleted"), done.count("deleted"));
    assert!(!dst.join("gone").exists() && dst.join("stays").join(MARK_FILE).exists());
    let verified = verify(&src, &dst).run();
    assert!([3, 4].contains(&verified.code()), "{}", verified.describe());
}

#[test]
fn a_single_file_is_made_durable_whatever_is_left_to_the_kernel() {
    only_local!("counts calls of one process");
    let (scratch, src, dst) = stage(FsKind::Tmpfs);
    fs::create_dir(&dst).expect("dir");
    put(&src.join("small"), "content");
    put(&src.join("large"), noise(1, 40 * MIB));
    for name in ["small", "large"] {
        let trace = scratch.path().join(name);
        let words = [
            "strace",
            "-f",
            "-qq",
            "-o",
            trace.to_str().expect("text"),
            "-e",
            "trace=fsync,fdatasync",
            "--",
        ];
        let outcome = sync(&src.join(name), &dst.join(name))
            .arg("--durability=none")
            .through(words)
            .run()
            .expect(0);
        let calls = fs::read_to_string(&trace).expect("a trace");
        assert!(
            calls.contains("sync("),
            "{name}: nothing in the directory says that it may not be there\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn without_change_times_every_file_is_compared_while_there_is_doubt() {
    let (fuse, source) = (
        Fuse::mount(Mood {
            change_times: false,
            ..Mood::healthy()
        }),
        Scratch::new(FsKind::Tmpfs, 300),
    );
    let (src, dst) = (source.dir("src"), fuse.path().join("dst"));
    many_files(&src);
    let files: Vec<PathBuf> = (0..12).map(|seed| src.join(format!("f{seed}"))).collect();
    must_run(
        &["touch", "-d", "2001-01-01 00:00:00.123456789"],
        &files.iter().map(PathBuf::as_path).collect::<Vec<&Path>>(),
    );
    killed(&src, &dst, &[]);
    let copied = (0..12)
        .map(|seed| dst.join(format!("f{seed}")))
        .find(|path| path.exists())
        .expect("one is copied");
    lose(&copied);
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(
        says_so(&outcome) && !is_unsettled(&dst),
        "{}",
        outcome.describe()
    );
    check_equal(&src, &dst, "mended");
}

#[test]
fn a_mark_of_a_moment_that_is_to_come_is_no_reason_to_trust() {
    let (_scratch, src, dst) = stage(FsKind::Tmpfs);
    many_files(&src);
    killed(&src, &dst, &[]);
    must_run(&["cp", "-a"], &[&src.join("."), &dst]);
    lose(&dst.join("f3"));
    // The clock was ahead when that run began, and was put right.
    let text = mark(&dst).expect("a mark");
    let line = text
        .lines()
        .find(|line| line.starts_with("since "))
        .expect("a line");
    let words: Vec<&str> = line.split(' ').collect();
    let ahead = line.replacen(words[1], "7000000000", 1);
    attrs::set_xattr(
        &dst,
        b"trusted.driftless.mark",
        text.replace(line, &ahead).as_bytes(),
    )
    .expect("set");
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(
        says_so(&outcome) && !is_unsettled(&dst),
        "{}",
        outcome.describe()
    );
    check_equal(&src, &dst, "mended");
}
