//! What the end-to-end tests share: starting `driftless sync` and the checks that follow every run.
//!
//! Each test file is a program of its own and uses only a part of this.
#![allow(dead_code, clippy::disallowed_methods)]

pub mod agent;
pub mod announcing;
pub mod campaign;
pub mod chaos;
pub mod encrypted;
pub mod far;
pub mod flags;
pub mod lease;
pub mod liar;
pub mod marks;
pub mod mirror;
pub mod mounted;
pub mod movers;
pub mod pages;
pub mod places;
pub mod programs;
pub mod published;
pub mod relayed;
pub mod rights;
pub mod sr3;
pub mod victim;
pub mod world;
pub mod writer;

#[allow(unused_imports)]
pub use driftless_testkit::wait_until;
use driftless_testkit::{
    Driftless, FsKind, Options, Outcome, Profile, Scratch, Snapshot, assert_equal, attrs, escape,
    rsync_oracle, snapshot, snapshot_hash,
};
use far::Who;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The ordinary user that tests run as when they do not run as root.
pub const USER: u32 = 65534;
/// How the names of unfinished files begin.
pub const TEMP_PREFIX: &[u8] = b".driftless-tmp-";

/// The mark of a replica where there are no attributes.
pub const MARK_FILE: &str = ".driftless-tmp-00000000000000000000000000000001";
/// The lock of a replica while it is changed.
pub const LOCK_FILE: &str = ".driftless-lock";
/// The sign that tells other users of the lock.
pub const SIGN_FILE: &str = ".driftless-lock-sign";

/// The lock of a replica, which goes when all else is done.
pub const LOCK: &[u8] = LOCK_FILE.as_bytes();
/// What tells others of the lock, where they may write.
pub const LOCK_SIGN: &[u8] = SIGN_FILE.as_bytes();

/// An empty source, and where its replica shall be, on a tmpfs that is as large as any test needs.
pub fn stage() -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 1500);
    let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
    (scratch, src, dst)
}

/// The binary under test without arguments.
pub fn driftless() -> Driftless {
    Driftless::new(env!("CARGO_BIN_EXE_driftless"))
}

/// `driftless COMMAND SRC DST`, ready for more options. With `DRIFTLESS_TEST_OVER=push` or `pull`
/// in the environment, DST or SRC is reached through ssh: what holds for two trees here holds for
/// them there.
pub fn on_trees(command: &str, src: &Path, dst: &Path) -> Driftless {
    match far::over() {
        None => driftless().arg(command).arg(src).arg(dst),
        Some((way, who)) => {
            if who == Who::User {
                dst.parent()
                    .into_iter()
                    .for_each(|parent| attrs::set_owner(parent, USER, USER).expect("chown"));
                [src, dst].into_iter().for_each(far::hand_over);
            }
            far::kept(who).command(command, far::kept(who).ends(way, src, dst))
        }
    }
}

/// The same as [`on_trees`], run by the ordinary user, who is one on the other host, too.
pub fn on_trees_by_user(command: &str, src: &Path, dst: &Path) -> Driftless {
    match far::over() {
        None => on_trees(command, src, dst).as_user(USER, USER),
        Some((way, _)) => {
            far::kept(Who::User).command(command, far::kept(Who::User).ends(way, src, dst))
        }
    }
}

/// `driftless sync --json SRC DST`, over ssh if the environment says so.
pub fn sync(src: &Path, dst: &Path) -> Driftless {
    on_trees("sync", src, dst).arg("--json")
}

/// `driftless sync --json SRC DST` by the ordinary user, over ssh if the environment says so.
pub fn sync_by_user(src: &Path, dst: &Path) -> Driftless {
    on_trees_by_user("sync", src, dst).arg("--json")
}

/// `driftless verify --json SRC DST`, over ssh if the environment says so.
pub fn verify(src: &Path, dst: &Path) -> Driftless {
    on_trees("verify", src, dst).arg("--json")
}

/// Ends a test where all runs go over ssh, for a reason that `CONTRIBUTING.md` lists:
/// `only_local!("makes calls of one process fail")`.
#[allow(unused_macros)]
macro_rules! only_local {
    ($reason:literal) => {
        if $crate::common::far::over().is_some() {
            println!("not over ssh: it {}", $reason);
            return;
        }
    };
}
#[allow(unused_imports)]
pub(crate) use only_local;

/// Whether an ordinary user runs it, who can make no devices and no files of others.
pub fn is_user() -> bool {
    far::over().is_some_and(|(_, who)| who == Who::User)
}

/// A tree that whoever runs it can copy.
pub fn profile() -> Profile {
    if is_user() {
        Profile::user(USER, USER)
    } else {
        Profile::root()
    }
}

/// Runs a sync that must end with exit code 0 and a summary that adds up.
pub fn sync_ok<A: AsRef<OsStr>>(
    src: &Path,
    dst: &Path,
    arguments: impl IntoIterator<Item = A>,
) -> Outcome {
    let outcome = sync(src, dst).args(arguments).run().expect(0);
    check_accounts(&outcome);
    outcome
}

/// Every entry that was seen is the same, changed, skipped or failed.
pub fn check_accounts(outcome: &Outcome) {
    let parts: u64 = ["same", "changed", "skipped", "failed"]
        .iter()
        .map(|field| outcome.count(field))
        .sum();
    assert_eq!(
        outcome.count("seen"),
        parts,
        "seen = same + changed + skipped + failed\n{}",
        outcome.describe()
    );
    let said = outcome.summary()["exit_code"].as_i64();
    assert_eq!(
        said,
        Some(outcome.code().into()),
        "exit code in the summary\n{}",
        outcome.describe()
    );
}

/// Another run finds nothing to do and touches nothing, not even a change time.
pub fn check_settled<A: AsRef<OsStr>>(
    src: &Path,
    dst: &Path,
    arguments: impl IntoIterator<Item = A>,
) {
    let before = snapshot_hash(dst, true);
    let outcome = sync_ok(src, dst, arguments);
    for field in ["changed", "deleted", "bytes_copied", "failed"] {
        assert_eq!(
            outcome.count(field),
            0,
            "{field} of a second run\n{}",
            outcome.describe()
        );
    }
    assert_eq!(
        snapshot_hash(dst, true),
        before,
        "a second run touched the replica\n{}",
        outcome.describe()
    );
}

/// Equal by this project's oracle and by rsync.
pub fn check_equal_twice(src: &Path, dst: &Path, context: &str) {
    assert_equal(src, dst, &Options::default(), context);
    let left = rsync_oracle(src, dst);
    assert!(
        left.is_empty(),
        "{context}: rsync would still change\n{left}"
    );
}

/// Equal by this project's oracle.
pub fn check_equal(src: &Path, dst: &Path, context: &str) {
    assert_equal(src, dst, &Options::default(), context);
}

/// The path that an event is about, as bytes.
pub fn path_of(event: &serde_json::Value) -> Vec<u8> {
    use base64::prelude::{BASE64_STANDARD, Engine};
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    if event["path_base64"].is_null() {
        text("path").into()
    } else {
        BASE64_STANDARD.decode(text("path_base64")).expect("base64")
    }
}

/// The paths that have problems.
pub fn problems(outcome: &Outcome) -> Vec<String> {
    outcome
        .events_named("problem")
        .iter()
        .map(|problem| problem["path"].as_str().expect("a path").to_owned())
        .collect()
}

/// Whether rights are narrower on the replica because its entry belongs to another group, which is
/// counted with the owners.
pub fn is_of_another_group(src: &Path, difference: &driftless_testkit::Difference) -> bool {
    let path = src.join(OsStr::from_bytes(&difference.path));
    let meta = std::fs::symlink_metadata(path).expect("a source entry");
    let bits = |text: &str| u32::from_str_radix(text, 8).expect("an octal number");
    let is_narrower = match difference.kind {
        "mode" => bits(&difference.b) & !bits(&difference.a) == 0,
        kind => kind == "acls",
    };
    meta.gid() != USER && is_narrower
}

/// Whether this is what an ordinary user cannot see (`trusted.*`), or does without: foreign owners
/// and capabilities, which are only counted, and the set-id bits that stand for owners.
pub fn is_roots_alone(difference: &driftless_testkit::Difference) -> bool {
    let without = |mode: &str| u32::from_str_radix(mode, 8).expect("a mode") & !0o6000;
    let is_privilege =
        |item: &&str| item.starts_with("security.capability=") || item.starts_with("trusted.");
    let others = |xattrs: &str| {
        xattrs
            .split(", ")
            .filter(|item| !is_privilege(item))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match difference.kind {
        "uid" | "gid" => true,
        "xattrs" => others(&difference.a) == difference.b,
        "mode" => without(&difference.a) == without(&difference.b),
        _ => false,
    }
}

/// Whether a path leads to an unfinished file, a mark or a lock.
pub fn is_temp(path: &Path) -> bool {
    path.file_name().is_some_and(|name| {
        let name = name.as_bytes();
        name.starts_with(TEMP_PREFIX) || name.starts_with(LOCK)
    })
}

/// Every unfinished file that a run left below `root`; the mark of a replica on a file system
/// without attributes is none.
pub fn leftovers(root: &Path) -> Vec<PathBuf> {
    let all = driftless_testkit::mutate::list_all(root).expect("list the replica");
    all.into_iter()
        .filter(|path| is_temp(path) && *path != root.join(MARK_FILE))
        .collect()
}

/// How many entries a tree has, the root included.
pub fn count_entries(root: &Path) -> u64 {
    driftless_testkit::mutate::list_all(root)
        .expect("list")
        .len() as u64
        + 1
}

/// How many regular files there are below a root, which need not be there.
pub fn files_below(root: &Path) -> usize {
    driftless_testkit::mutate::list_all(root)
        .unwrap_or_default()
        .iter()
        .filter(|path| path.is_file())
        .count()
}

/// Makes a file with its parents, of whoever runs it; writes through no link.
pub fn put(path: &Path, content: impl AsRef<[u8]>) {
    let parents = path
        .ancestors()
        .skip(1)
        .take_while(|parent| !parent.exists());
    let made: Vec<&Path> = std::iter::once(path).chain(parents).collect();
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("parents");
    driftless_testkit::content::write(path, content.as_ref())
        .unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
    if is_user() {
        made.into_iter()
            .for_each(|path| attrs::set_owner(path, USER, USER).expect("chown"));
    }
}

/// All paths below a root, relative and escaped, sorted.
pub fn names_below(root: &Path) -> Vec<String> {
    let all = driftless_testkit::mutate::list_all(root).expect("list");
    let relative = |path: &PathBuf| {
        escape(
            path.strip_prefix(root)
                .expect("below")
                .as_os_str()
                .as_bytes(),
        )
    };
    all.iter().map(relative).collect()
}

/// All of a replica, change times included, but for the root's: the mark that a coordinator sets
/// before it hands out the first batch leaves a trace there.
pub fn state_but_for_the_mark(root: &Path) -> Snapshot {
    let mut all = snapshot(root, true);
    all.get_mut(&b"."[..])
        .expect("the root")
        .retain(|(kind, _)| *kind != "ctime");
    all
}

/// Runs `disturb` over and over in a thread of its own while `work` runs, then stops it.
pub fn while_disturbed<T>(disturb: impl FnMut(u64) + Send, work: impl FnOnce() -> T) -> T {
    /// Ends the thread even when `work` panics.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut disturb = disturb;
        let flag = &stop;
        scope.spawn(move || {
            (0..)
                .take_while(|_| !flag.load(Ordering::Relaxed))
                .for_each(&mut disturb)
        });
        let _stop = Stop(&stop);
        work()
    })
}
