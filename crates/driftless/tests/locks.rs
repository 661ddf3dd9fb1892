//! Whose lock it is, and until when: what root leaves, what others take away, runs of other hosts
//! and runs that begin together.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way};
use common::marks::{is_unsettled, lose, mark, must_run, says_so};
use common::mounted::Mounted;
use common::{
    LOCK_FILE, SIGN_FILE, USER, check_accounts, check_equal, driftless, leftovers, only_local,
    problems, put, sync, sync_by_user, sync_ok, wait_until,
};
use driftless_engine::{MachineClock, Monitor, Options, Progress, Trees};
use driftless_model::{Policy, Problem, Receipt, Selection};
use driftless_testkit::fuse::{Fuse, Mood};
use driftless_testkit::{Driftless, FsKind, Running, Scratch, attrs};
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const NONE: [&str; 0] = [];
const MIB: usize = 1 << 20;
/// The lock in the root of a replica, and its sign, as earlier versions called them.
const FORMER: [&str; 2] = [
    ".driftless-tmp-00000000000000000000000000000002",
    ".driftless-tmp-00000000000000000000000000000003",
];
/// The same of the single file `single`.
const FORMER_OF_SINGLE: [&str; 2] = [
    ".driftless-tmp-be8d6272de4ff78df734f7b33551b383",
    ".driftless-tmp-3d6a3b4870bd13e28baadf6080a5b0f6",
];
/// Another ordinary user.
const OTHER_USER: u32 = 65533;
/// A run on a host of its own, as far as locks go: where these are kept is not shared.
const OTHER_HOST: [&str; 6] = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount -t tmpfs -o mode=0755 driftless-run /run && exec \"$@\"",
    "sh",
];

/// A tree that takes a while at a megabyte a second, and where a replica may be made; both are the
/// ordinary user's.
fn stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    put(&src.join("slow"), vec![1u8; 60 * MIB]);
    for path in [scratch.path(), &src, &src.join("slow"), &dst] {
        attrs::set_owner(path, USER, USER).expect("chown");
    }
    (scratch, src, dst)
}

/// Waits until the lock of a run that was started is there.
fn at_work(run: Driftless, lock: &Path) -> Running {
    let running = run.arg("--bwlimit=1M").spawn();
    wait_until("the run has its lock", || {
        fs::read(lock).is_ok_and(|text| text.ends_with(b"\n"))
    });
    running
}

fn killed(running: Running) {
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code(), 137);
}

#[test]
fn a_lock_that_root_left_keeps_nobody_out_who_may_write_there() {
    only_local!("needs the lock of a run that was killed");
    let (scratch, src, dst) = stage();
    let single = scratch.path().join("single");
    let lock_of_single = scratch
        .path()
        .join(".driftless-lock-70bcc90d013c64bf6f4fd00641ff7259");
    for (from, to, lock) in [
        (&src, &dst, dst.join(LOCK_FILE)),
        (&src.join("slow"), &single, lock_of_single),
    ] {
        let root = at_work(sync(from, to), &lock);
        let outcome = sync_by_user(from, to).run().expect(11);
        assert!(lock.exists(), "{}", outcome.describe());
        killed(root);
        assert!(lock.exists());
        let outcome = sync_by_user(from, to).run().expect(0);
        check_accounts(&outcome);
        assert!(!lock.exists(), "{}", outcome.describe());
    }
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
    check_equal(&src, &dst, "the owner's own run");
}

#[test]
fn a_lock_that_root_left_keeps_nobody_out_to_whom_the_replica_was_given_at_the_end() {
    only_local!("needs the lock of a run that was killed");
    let (_scratch, src, dst) = stage();
    attrs::set_owner(&dst, 0, 0).expect("chown");
    killed(at_work(sync(&src, &dst), &dst.join(LOCK_FILE)));
    // It was killed in the flush, say, which comes when the root has its attributes.
    attrs::set_owner(&dst, USER, USER).expect("chown");
    check_accounts(&sync_by_user(&src, &dst).run().expect(0));
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

#[test]
fn lock_and_sign_tell_people_what_they_are() {
    let (_scratch, src, dst) = stage();
    let running = at_work(sync(&src, &dst), &dst.join(LOCK_FILE));
    for name in [LOCK_FILE, SIGN_FILE] {
        let text = fs::read_to_string(dst.join(name)).expect("text");
        assert!(
            text.contains("driftless lock") && text.contains("removes this file when it ends"),
            "{name}: {text}"
        );
    }
    killed(running);
}

#[test]
fn lock_of_an_earlier_version_counts_and_then_goes() {
    only_local!("needs the lock of a run that was killed");
    let (scratch, src, dst) = stage();
    let single = scratch.path().join("single");
    for (from, to, folder, names) in [
        (&src, &dst, &*dst, FORMER),
        (&src.join("slow"), &single, scratch.path(), FORMER_OF_SINGLE),
    ] {
        let [lock, sign] = names.map(|name| folder.join(name));
        put(&sign, "");
        put(&lock, "17 elsewhere\n1700000000\n");
        attrs::set_mode(&lock, 0o600).expect("chmod");
        let held = fs::File::options().write(true).open(&lock).expect("open");
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).expect("lock");
        for to in [to.clone(), dst.join("inner")] {
            let outcome = sync(from, &to).run();
            let is_held = to.parent() == Some(folder) || to == folder;
            assert_eq!(outcome.code() == 11, is_held, "{}", outcome.describe());
            let said = outcome.stderr_text();
            assert_eq!(said.contains("(process 17 on elsewhere"), is_held, "{said}");
        }
        assert!(lock.exists() && sign.exists());
        drop(held);
        check_accounts(&sync(from, to).run().expect(0));
        assert!(!lock.exists() && !sign.exists());
    }
    // The sign alone of a run that was killed at its end.
    put(&dst.join(FORMER[1]), "");
    put(&src.join("new"), "content");
    check_accounts(&sync(&src, &dst).arg("--delete").run().expect(0));
    check_equal(&src, &dst, "nothing is left of the earlier version");
}

#[test]
fn ordinary_users_keep_each_other_out_while_they_are_at_work() {
    only_local!("needs two ordinary users");
    for mode in [0o777, 0o1777] {
        let (_scratch, src, dst) = stage();
        attrs::set_owner(&dst, 0, 0).expect("chown");
        fs::set_permissions(&dst, fs::Permissions::from_mode(mode)).expect("chmod");
        let by_other = || sync(&src, &dst).as_user(OTHER_USER, OTHER_USER).run();
        let first = at_work(sync_by_user(&src, &dst), &dst.join(LOCK_FILE));
        let outcome = by_other().expect(11);
        assert!(
            outcome.stderr_text().contains("wait for it to end"),
            "{}",
            outcome.describe()
        );
        killed(first);
        let outcome = by_other();
        if mode & 0o1000 == 0 {
            let outcome = outcome.expect(3);
            assert!(
                problems(&outcome).iter().all(|path| path == "."),
                "the root is not his: {}",
                outcome.describe()
            );
            assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
        } else {
            let outcome = outcome.expect(1);
            let said = outcome.stderr_text();
            assert!(
                said.contains(LOCK_FILE) && said.contains("is over"),
                "{}",
                outcome.describe()
            );
            assert!(
                !dst.join("slow").exists() && dst.join(LOCK_FILE).exists(),
                "{}",
                outcome.describe()
            );
        }
    }
}

#[test]
fn who_may_not_remove_what_root_left_is_told_what_it_is() {
    only_local!("needs the lock of a run that was killed");
    let (_scratch, src, dst) = stage();
    attrs::set_owner(&dst, 0, 0).expect("chown");
    fs::set_permissions(&dst, fs::Permissions::from_mode(0o1777)).expect("chmod");
    killed(at_work(sync(&src, &dst), &dst.join(LOCK_FILE)));
    // The killed run may have given the root to the user, who may remove all in it.
    attrs::set_owner(&dst, 0, 0).expect("chown");
    fs::set_permissions(&dst, fs::Permissions::from_mode(0o1777)).expect("chmod");
    let outcome = sync_by_user(&src, &dst).run().expect(1);
    let said = outcome.stderr_text();
    assert!(
        said.contains(LOCK_FILE) && said.contains("is over"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_run_whose_lock_was_taken_away_leaves_no_sign_of_it() {
    let (_scratch, src, dst) = stage();
    let root = at_work(sync(&src, &dst), &dst.join(LOCK_FILE));
    assert!(dst.join(SIGN_FILE).exists());
    fs::remove_file(dst.join(LOCK_FILE)).expect("the owner of the directory can");
    let _ = root.wait().expect(11);
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
    // Nor does the next run leave what it finds.
    fs::write(dst.join(SIGN_FILE), "").expect("write");
    check_accounts(&sync_by_user(&src, &dst).run().expect(0));
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

#[test]
fn what_shows_that_root_has_the_lock_is_no_lock_itself() {
    only_local!("needs the lock of a run that was killed");
    let (_scratch, src, dst) = stage();
    killed(at_work(sync(&src, &dst), &dst.join(LOCK_FILE)));
    let outcome = while_locked_by(USER, &dst.join(SIGN_FILE), || sync(&src, &dst).run());
    check_accounts(&outcome.expect(0));
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

#[test]
fn who_may_only_read_the_sign_of_a_lock_keeps_nobody_out() {
    only_local!("needs two ordinary users");
    let (_scratch, src, dst) = stage();
    killed(at_work(sync(&src, &dst), &dst.join(LOCK_FILE)));
    let sign = fs::File::open(dst.join(SIGN_FILE)).expect("open");
    // The other kind of lock that a reader can have.
    rustix::fs::fcntl_lock(&sign, FlockOperation::NonBlockingLockShared).expect("lock");
    let outcome = while_locked_by(OTHER_USER, &dst.join(SIGN_FILE), || {
        sync_by_user(&src, &dst).run()
    });
    check_accounts(&outcome.expect(0));
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

/// Has a user lock a file that he may read (flock(2)) while something is done.
fn while_locked_by<T>(user: u32, file: &Path, act: impl FnOnce() -> T) -> T {
    let ids = [
        format!("--reuid={user}"),
        format!("--regid={user}"),
        "--clear-groups".into(),
    ];
    let mut intruder = Command::new("setpriv");
    intruder
        .args(ids)
        .args(["flock", "--no-fork", "-x", "-n"])
        .arg(file)
        .args(["sleep", "600"]);
    let mut intruder = intruder.stdin(Stdio::null()).spawn().expect("setpriv");
    let inode = format!(
        ":{} ",
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(file).expect("stat"))
    );
    let locks = || fs::read_to_string("/proc/locks").expect("locks");
    wait_until("he holds it", || {
        locks()
            .lines()
            .any(|line| line.contains("FLOCK") && line.contains(&inode))
    });
    let done = act();
    let _ = intruder.kill();
    let _ = intruder.wait();
    done
}

#[test]
fn a_run_whose_lock_was_taken_away_ends_and_leaves_the_lock_of_the_next_alone() {
    only_local!("puts one process into a namespace");
    let far = Far::root();
    for way in [None, Some(Way::Push)] {
        let (_scratch, src, dst) = stage();
        let lock = dst.join(LOCK_FILE);
        let run = || way.map_or_else(|| sync(&src, &dst), |way| far.sync(way, &src, &dst));
        let first = at_work(run(), &lock);
        fs::remove_file(&lock).expect("the owner of the directory can");
        let second = at_work(sync(&src, &dst).through(OTHER_HOST), &lock);
        let text = fs::read(&lock).expect("read");
        let outcome = first.wait().expect(11);
        assert!(
            outcome.stderr_text().contains("was taken away"),
            "{}",
            outcome.describe()
        );
        assert_eq!(
            fs::read(&lock).expect("read"),
            text,
            "it is the second run's"
        );
        let _ = sync(&src, &dst).run().expect(11);
        killed(second);
        let outcome = sync_ok(&src, &dst, NONE);
        assert!(
            outcome
                .stderr_text()
                .contains("an earlier run was not made durable"),
            "{}",
            outcome.describe()
        );
        check_equal(&src, &dst, "after both");
    }
}

#[test]
fn work_of_unlocked_run_is_compared_by_content() {
    only_local!("puts one process into a namespace");
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let (src, dst) = (scratch.dir("src"), scratch.dir("dst"));
    (0..400).for_each(|number| put(&src.join(format!("f{number}")), vec![1; 100_000]));
    let first = at_work(sync(&src, &dst).arg("--jobs=1"), &dst.join(LOCK_FILE));
    wait_until("it copies", || mark(&dst).is_some() && is_unsettled(&dst));
    first.signal(Signal::STOP);
    fs::remove_file(dst.join(LOCK_FILE)).expect("the owner of the directory can");
    let second = sync(&src, &dst).through(OTHER_HOST).run().expect(0);
    assert!(!is_unsettled(&dst), "{}", second.describe());
    first.signal(Signal::CONT);
    let outcome = first.wait().expect(11);
    assert!(is_unsettled(&dst), "{}", outcome.describe());
    let third = sync_ok(&src, &dst, NONE);
    assert!(says_so(&third), "{}", third.describe());
    assert!(!is_unsettled(&dst), "{}", third.describe());
    check_equal(&src, &dst, "after all three");
}

#[test]
fn what_lies_in_a_replica_that_another_host_works_on_is_left_to_it() {
    only_local!("puts one process into a namespace");
    let (scratch, src, dst) = stage();
    let other = scratch.dir("other");
    put(&other.join("file"), "content");
    fs::create_dir(dst.join("home")).expect("dir");
    let run = sync(&src, &dst).arg("--copy-into").through(OTHER_HOST);
    let first = at_work(run, &dst.join(LOCK_FILE));
    for (from, to) in [
        (other.clone(), dst.join("home")),
        (other.join("file"), dst.join("home/file")),
        (other.join("file"), dst.join("file")),
    ] {
        let outcome = sync(&from, &to).run().expect(11);
        assert!(
            outcome.stderr_text().contains("(process "),
            "{}",
            outcome.describe()
        );
        assert!(leftovers(&dst.join("home")).is_empty() && !to.join("file").exists());
    }
    killed(first);
    let _ = sync_ok(&other, &dst.join("home"), NONE);
}

#[test]
fn who_is_turned_away_is_told_since_when_unless_the_lock_is_of_an_earlier_form() {
    only_local!("puts one process into a namespace");
    let (_scratch, src, dst) = stage();
    let first = at_work(sync(&src, &dst).through(OTHER_HOST), &dst.join(LOCK_FILE));
    let told = || sync(&src, &dst).run().expect(11).stderr_text();
    let text = told();
    assert!(
        text.contains("(process ") && text.contains(", since 20"),
        "{text}"
    );
    // It is the same file, which stays locked.
    fs::write(dst.join(LOCK_FILE), "17 elsewhere\n").expect("write");
    let text = told();
    assert!(text.contains("(process 17 on elsewhere)"), "{text}");
    killed(first);
}

#[test]
fn who_only_looks_beside_a_run_is_told_of_it_and_of_no_earlier_one() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    for way in [None, Some(Way::Push)] {
        let (_scratch, src, dst) = stage();
        let sync_by = || way.map_or_else(|| sync(&src, &dst), |way| far.sync(way, &src, &dst));
        let look = || {
            [
                sync_by().arg("--dry-run"),
                driftless().args(["verify", "--json"]).args([&src, &dst]),
            ]
        };
        let running = at_work(sync(&src, &dst), &dst.join(LOCK_FILE));
        for outcome in look().map(Driftless::run) {
            let text = outcome.stderr_text();
            assert!(
                text.contains("another run works on the replica (process "),
                "{}",
                outcome.describe()
            );
            assert!(!text.contains("not made durable"), "{}", outcome.describe());
        }
        killed(running);
        for outcome in look().map(Driftless::run) {
            let text = outcome.stderr_text();
            assert!(
                !text.contains("works on the replica") && text.contains("not made durable"),
                "{}",
                outcome.describe()
            );
        }
    }
}

#[test]
fn who_is_turned_away_makes_no_replica_in_that_of_the_other() {
    let (_scratch, src, dst) = stage();
    let below = src.join("sub");
    put(&below.join("file"), "content");
    let first = at_work(sync(&src, &dst).arg("--jobs=1"), &dst.join(LOCK_FILE));
    // A name that the first run does not make: it may come to its own at any time.
    let inner = dst.join("inner");
    let outcome = sync(&below, &inner).run().expect(11);
    assert!(!inner.exists(), "{}", outcome.describe());
    killed(first);
}

#[test]
fn of_two_runs_that_make_the_same_replica_at_once_one_is_turned_away() {
    only_local!("holds up calls of one process");
    let (scratch, src, _) = stage();
    let far = Far::root();
    for way in [None, Some(Way::Pull)] {
        let dst = scratch.path().join("new");
        attrs::set_owner(scratch.path(), 0, 0).expect("chown");
        let trace = scratch.path().join("trace");
        let words = [
            "strace",
            "-f",
            "-qq",
            "-o",
            trace.to_str().expect("text"),
            "-e",
            "trace=mkdirat",
            "-e",
        ];
        let run = way.map_or_else(|| sync(&src, &dst), |way| far.sync(way, &src, &dst));
        // The call that makes the replica is held up until somebody else has tried to.
        let first = run
            .through(
                words
                    .into_iter()
                    .chain(["inject=mkdirat:delay_enter=4000000:when=1+", "--"]),
            )
            .spawn();
        let is_about_to = || fs::read_to_string(&trace).is_ok_and(|text| text.contains("\"new\""));
        wait_until("it is about to make it", is_about_to);
        let outcome = sync(&src, &dst).run().expect(11);
        assert!(
            outcome.stderr_text().contains("another run") && !dst.exists(),
            "{}",
            outcome.describe()
        );
        check_accounts(&first.wait().expect(0));
        check_equal(&src, &dst, "of the one that was first");
        fs::remove_dir_all(&dst).expect("remove");
        fs::remove_file(&trace).expect("remove");
    }
}

/// A run on this host that is stopped while it compares what is in `a`.
fn stopped_in_a(run: Driftless, src: &Path) -> Running {
    let running = run.args(["--jobs=1", "--iops-limit=40"]).spawn();
    let links = || {
        fs::read_dir(format!("/proc/{}/fd", running.pid()))
            .into_iter()
            .flatten()
            .flatten()
    };
    let is_there =
        || links().any(|link| fs::read_link(link.path()).is_ok_and(|to| to == src.join("a")));
    wait_until("it compares", is_there);
    running.signal(Signal::STOP);
    running
}

/// A run on another host that is killed when it has made an entry, and before it has made durable
/// what it did.
fn killed_elsewhere(src: &Path, dst: &Path, entry: &Path) {
    let run = sync(src, dst)
        .args(["--bwlimit=4M", "--jobs=2"])
        .through(OTHER_HOST)
        .spawn();
    wait_until("it has copied something", || entry.exists());
    killed(run);
}

/// A source with much to compare, and its replica.
fn compared() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 300);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (0..200).for_each(|number| put(&src.join(format!("a/{number}")), "content"));
    let _ = sync_ok(&src, &dst, NONE);
    (scratch, src, dst)
}

#[test]
fn what_another_run_left_unfinished_before_the_first_change_stays_known() {
    only_local!("puts one process into a namespace");
    let (_scratch, src, dst) = compared();
    let late = stopped_in_a(sync(&src, &dst), &src);
    put(&src.join("a/new"), "good");
    put(&src.join("slow"), vec![1u8; 60 * MIB]);
    killed_elsewhere(&src, &dst, &dst.join("a/new"));
    assert!(is_unsettled(&dst));
    lose(&dst.join("a/new"));
    put(&src.join("z"), "new");
    late.signal(Signal::CONT);
    let outcome = late.wait().expect(11);
    assert!(
        outcome.stderr_text().contains("; run again") && is_unsettled(&dst),
        "{}",
        outcome.describe()
    );
    assert!(!dst.join("z").exists());
    let outcome = sync_ok(&src, &dst, NONE);
    assert!(says_so(&outcome), "{}", outcome.describe());
    check_equal(&src, &dst, "mended");
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
}

/// Has a run leave something unsaid on a replica that is equal.
fn left_unsettled(src: &Path, dst: &Path) {
    put(&src.join("slow"), vec![1u8; 60 * MIB]);
    let running = at_work(sync(src, dst).arg("--exclude=/b"), &dst.join(LOCK_FILE));
    // The lock is there first.
    wait_until("it has begun to change something", || {
        mark(dst).is_some() && is_unsettled(dst)
    });
    killed(running);
    fs::remove_file(src.join("slow")).expect("remove");
    leftovers(dst)
        .iter()
        .for_each(|path| fs::remove_file(path).expect("remove"));
    must_run(&["touch", "-r"], &[src, dst]);
    assert!(is_unsettled(dst));
}

#[test]
fn a_run_that_changes_nothing_does_not_settle_what_another_left_meanwhile() {
    only_local!("puts one process into a namespace");
    let (scratch, src, dst) = compared();
    let other = scratch.dir("other");
    (0..9).for_each(|number| put(&other.join(format!("b/{number}")), vec![1u8; 8 * MIB]));
    fs::create_dir(dst.join("b")).expect("dir");
    left_unsettled(&src, &dst);
    // Where nobody comes between, it is settled, and nothing stays behind.
    assert_eq!(sync_ok(&src, &dst, ["--exclude=/b"]).count("changed"), 0);
    assert!(!is_unsettled(&dst) && leftovers(&dst).is_empty());
    left_unsettled(&src, &dst);
    let late = stopped_in_a(sync(&src, &dst).arg("--exclude=/b"), &src);
    killed_elsewhere(&other, &dst, &dst.join("b/0"));
    late.signal(Signal::CONT);
    let outcome = late.wait().expect(0);
    assert!(
        outcome.count("changed") == 0 && is_unsettled(&dst),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_directory_at_the_name_of_the_lock_does_not_open_the_replica_to_other_hosts() {
    only_local!("puts one process into a namespace");
    let (_scratch, src, dst) = stage();
    for name in [LOCK_FILE, SIGN_FILE] {
        put(&dst.join(name).join("x"), "somebody's");
    }
    let first = at_work(sync(&src, &dst), &dst.join(LOCK_FILE));
    assert!(fs::metadata(dst.join(SIGN_FILE)).expect("a sign").is_file());
    let _ = sync(&src, &dst).through(OTHER_HOST).run().expect(11);
    killed(first);
    // What was there is no part of the replica, and stays.
    let outcome = sync(&src, &dst).run().expect(3);
    assert!(
        problems(&outcome).len() == 2
            && problems(&outcome)
                .iter()
                .all(|path| path.starts_with(".driftless-tmp-")),
        "{}",
        outcome.describe()
    );
    assert_eq!(
        leftovers(&dst)
            .iter()
            .filter(|path| path.ends_with("x") || path.join("x").exists())
            .count(),
        2
    );
}

#[test]
fn who_cannot_take_the_lock_between_hosts_says_so() {
    let (_scratch, src, dst) = stage();
    fs::create_dir(dst.join(LOCK_FILE)).expect("dir");
    let _mounted = Mounted::tmpfs(&dst.join(LOCK_FILE));
    let outcome = sync(&src, &dst).run().expect(0);
    assert!(
        outcome
            .stderr_text()
            .contains("runs on other hosts are not kept out"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_lock_whose_file_goes_late_leaves_no_trace_in_the_time_of_the_root() {
    check_time_of_root(Mood {
        hides: true,
        ..Mood::healthy()
    });
}

#[test]
fn a_lock_whose_file_goes_late_and_is_not_counted_leaves_no_trace_in_the_time_of_the_root() {
    check_time_of_root(Mood {
        hides: true,
        hides_count: true,
        ..Mood::healthy()
    });
}

fn check_time_of_root(mood: Mood) {
    let (fuse, source) = (Fuse::mount(mood), Scratch::new(FsKind::Tmpfs, 50));
    let (src, dst) = (source.dir("src"), fuse.path().join("dst"));
    for content in ["content", "other content"] {
        put(&src.join("file"), content);
        must_run(&["touch", "-d", "2001-01-01"], &[&src]);
        let _ = sync_ok(&src, &dst, NONE);
        wait_until("nothing is hidden any more", || {
            fs::read_dir(&dst).expect("list").count() == 1
        });
        check_equal(&src, &dst, "its time, too");
    }
}

#[test]
fn runs_of_a_user_see_each_other_whether_he_is_logged_in_or_not() {
    only_local!("sets the environment of one process");
    let (scratch, src, dst) = stage();
    let (home, session) = (scratch.dir("home"), scratch.dir("session"));
    let inner = dst.join("inner");
    fs::create_dir(&inner).expect("dir");
    for path in [&home, &session, &inner] {
        attrs::set_owner(path, USER, USER).expect("chown");
        attrs::set_mode(path, 0o700).expect("chmod");
    }
    let run = |to: &Path, session: &Path| {
        sync_by_user(&src, to)
            .env("HOME", &home)
            .env("XDG_STATE_HOME", "")
            .env("XDG_RUNTIME_DIR", session)
    };
    let first = at_work(run(&inner, Path::new("")), &inner.join(LOCK_FILE));
    let outcome = run(&dst, &session).run().expect(11);
    assert!(
        outcome.stderr_text().contains("(process "),
        "{}",
        outcome.describe()
    );
    killed(first);
}

/// Does not care.
struct Nobody;

impl Monitor for Nobody {
    fn wants_receipts(&self) -> bool {
        false
    }

    fn receipt(&self, _receipt: &Receipt) {}

    fn problem(&self, problem: &Problem) {
        panic!("{problem}");
    }

    fn progress(&self, _progress: &Progress) {}
}

#[test]
fn trees_that_stay_open_keep_other_runs_out_and_say_what_is_not_durable() {
    only_local!("opens the trees itself");
    let scratch = Scratch::new(FsKind::Ext4, 64);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    put(&src.join("file"), "content");
    let options = Options {
        source: src.clone().into(),
        replica: dst.clone().into(),
        ..Options::default()
    };
    let trees = Trees::open(&options, &Nobody, &MachineClock).expect("they can be opened");
    let reconcile = || {
        let done = trees.reconcile(
            &Arc::new(Selection::all()),
            &Policy::default(),
            &Nobody,
            &AtomicBool::new(false),
        );
        done.expect("it goes on").counts.changed
    };
    for content in ["content", "changed", "once more"] {
        put(&src.join("file"), content);
        assert!(reconcile() > 0);
        assert!(is_unsettled(&dst), "{content}: nothing is durable yet");
        let _refused = sync(&src, &dst).run().expect(11);
        trees.flush(&Nobody).expect("it is durable");
        assert!(!is_unsettled(&dst), "{content}: all is durable");
        let _refused = sync(&src, &dst).run().expect(11);
        check_equal(&src, &dst, content);
    }
    drop(trees);
    let outcome = sync_ok(&src, &dst, NONE);
    assert_eq!(outcome.count("changed"), 0);
}
