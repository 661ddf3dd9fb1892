//! Every system call of a run fails once with every error that it can have: accounts add up,
//! nothing crashes or hangs, exit code 0 is said only when an independent comparison finds both
//! trees equal, and the next run is exact.
//!
//! `strace` makes the call fail in the real binary; a run counts as judged if the failure was
//! really met. `make test` draws a sample on each file system, `make campaign` thousands;
//! `DRIFTLESS_SEED` with the name of the test runs one alone. What no run can see through is left
//! out: calls that lie without failing, such as `ENXIO` of `lseek` (no data), `ENODATA` of an
//! attribute that was listed, `ENOENT` of `unlinkat`.
#![allow(clippy::disallowed_methods)]

mod common;

use common::campaign::{Campaign, count_of};
use common::{LOCK, LOCK_SIGN, check_accounts, check_equal, driftless, leftovers, put};
use driftless_testkit::{
    Driftless, EVENT_MAX, FsKind, Options, Outcome, Profile, Scratch, attrs, build_tree, compare,
    mutate, snapshot_hash,
};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A bug trap, a panic, an abort, a wild access.
const CRASHES: [i32; 5] = [70, 101, 134, 135, 139];
/// The loader could not begin the program (glibc, `elf/dl-minimal.c`).
const NOT_BEGUN: i32 = 127;
const LIMIT: Duration = EVENT_MAX;
const MIB: u64 = 1 << 20;
const MUTATIONS: usize = 20;
/// Of a campaign, on each file system, for each seed that is asked for.
const RUNS_EACH: u64 = 150;

const WRITES: &[&str] = &["EIO", "ENOSPC", "EDQUOT", "EINTR", "EFBIG", "ESTALE"];
const MAKES: &[&str] = &[
    "EIO", "ENOSPC", "EDQUOT", "EACCES", "EPERM", "EROFS", "EMLINK", "EEXIST", "ENOMEM", "ESTALE",
];
const CHANGES: &[&str] = &[
    "EIO", "EPERM", "EACCES", "EROFS", "ENOSPC", "EDQUOT", "ENOMEM", "ESTALE",
];
const LOOKS: &[&str] = &[
    "EIO", "EACCES", "ENOMEM", "ESTALE", "ENOENT", "ELOOP", "ENOTDIR",
];
const FLUSHES: &[&str] = &["EIO", "ENOSPC", "EDQUOT", "ESTALE"];
const ATTRIBUTES: &[&str] = &["EIO", "ENOMEM", "EACCES", "ERANGE", "ESTALE"];
const OPENS: &[&str] = &[
    "EIO", "EACCES", "EPERM", "ENOMEM", "EMFILE", "ENFILE", "ESTALE", "ENOENT", "ELOOP", "ENOSPC",
    "EROFS", "EAGAIN", "EINTR",
];
const COPIES: &[&str] = &[
    "EIO",
    "ENOSPC",
    "EDQUOT",
    "EXDEV",
    "EINVAL",
    "EOPNOTSUPP",
    "EPERM",
    "ETXTBSY",
];

/// Each call with the errors that its manual page names and that a run can meet.
const CALLS: [(&str, &[&str]); 68] = [
    ("read", &["EIO", "EINTR", "ESTALE", "ENOMEM"]),
    ("pread64", &["EIO", "EINTR", "ESTALE", "ENOMEM"]),
    (
        "preadv2",
        &["EIO", "EINTR", "ESTALE", "ENOMEM", "EOPNOTSUPP", "EINVAL"],
    ),
    ("write", WRITES),
    ("writev", WRITES),
    (
        "pwritev2",
        &[
            "EIO",
            "ENOSPC",
            "EDQUOT",
            "EINTR",
            "EFBIG",
            "ESTALE",
            "EOPNOTSUPP",
            "EINVAL",
        ],
    ),
    ("pwrite64", WRITES),
    ("open", OPENS),
    ("openat", OPENS),
    ("openat2", OPENS),
    (
        "getdents64",
        &["EIO", "ENOMEM", "ESTALE", "ENOENT", "EINTR"],
    ),
    ("stat", LOOKS),
    ("lstat", LOOKS),
    ("newfstatat", LOOKS),
    ("statx", LOOKS),
    ("fstat", &["EIO", "ENOMEM", "ESTALE"]),
    ("statfs", LOOKS),
    ("fstatfs", &["EIO", "ENOSYS", "ENOMEM", "ESTALE"]),
    ("access", &["EIO", "EACCES", "ENOENT"]),
    ("faccessat2", &["EIO", "EACCES", "ENOENT"]),
    ("readlink", LOOKS),
    (
        "readlinkat",
        &["EIO", "EACCES", "ENOMEM", "ESTALE", "ENOENT"],
    ),
    ("getcwd", &["EACCES", "ENOENT", "ENOMEM"]),
    ("fchown", CHANGES),
    ("fchownat", CHANGES),
    ("fchmod", CHANGES),
    ("chmod", CHANGES),
    ("fchmodat", CHANGES),
    ("utimensat", CHANGES),
    (
        "fsetxattr",
        &[
            "EIO",
            "ENOSPC",
            "EDQUOT",
            "EPERM",
            "EROFS",
            "EOPNOTSUPP",
            "E2BIG",
            "ERANGE",
            "ENOMEM",
        ],
    ),
    (
        "setxattr",
        &[
            "EIO",
            "ENOSPC",
            "EDQUOT",
            "EPERM",
            "EROFS",
            "EOPNOTSUPP",
            "E2BIG",
            "ERANGE",
            "ENOMEM",
        ],
    ),
    (
        "lsetxattr",
        &[
            "EIO",
            "ENOSPC",
            "EDQUOT",
            "EPERM",
            "EROFS",
            "EOPNOTSUPP",
            "E2BIG",
            "ERANGE",
            "ENOMEM",
        ],
    ),
    ("fremovexattr", CHANGES),
    ("removexattr", CHANGES),
    ("lremovexattr", CHANGES),
    ("fgetxattr", ATTRIBUTES),
    ("getxattr", ATTRIBUTES),
    ("lgetxattr", ATTRIBUTES),
    ("flistxattr", ATTRIBUTES),
    ("listxattr", ATTRIBUTES),
    ("llistxattr", ATTRIBUTES),
    (
        "renameat",
        &[
            "EIO", "EACCES", "EPERM", "ENOSPC", "EDQUOT", "EXDEV", "EBUSY", "EROFS", "ESTALE",
            "ENOENT", "EMLINK",
        ],
    ),
    (
        "renameat2",
        &[
            "EIO", "EACCES", "EPERM", "ENOSPC", "EDQUOT", "EXDEV", "EBUSY", "EROFS", "ESTALE",
            "EINVAL", "ENOSYS",
        ],
    ),
    ("rename", &["EIO", "EACCES", "ENOSPC"]),
    ("mkdir", MAKES),
    ("mkdirat", MAKES),
    (
        "linkat",
        &[
            "EIO", "EMLINK", "EPERM", "EACCES", "ENOSPC", "EDQUOT", "EXDEV", "EEXIST", "ENOENT",
            "ESTALE",
        ],
    ),
    ("symlinkat", MAKES),
    ("mknodat", MAKES),
    ("unlink", &["EIO", "EACCES", "EPERM", "EBUSY", "EROFS"]),
    (
        "unlinkat",
        &[
            "EIO", "EACCES", "EPERM", "EBUSY", "EROFS", "ENOMEM", "ESTALE",
        ],
    ),
    ("syncfs", FLUSHES),
    ("fsync", FLUSHES),
    ("fdatasync", FLUSHES),
    ("sync_file_range", FLUSHES),
    ("close", &["EIO", "EINTR", "ENOSPC", "EDQUOT"]),
    ("copy_file_range", COPIES),
    (
        "ioctl",
        &[
            "EIO",
            "ENOSPC",
            "EDQUOT",
            "EXDEV",
            "EINVAL",
            "EOPNOTSUPP",
            "EPERM",
            "ENOTTY",
            "ETXTBSY",
        ],
    ),
    (
        "fallocate",
        &["EIO", "ENOSPC", "EDQUOT", "EOPNOTSUPP", "EINTR", "EFBIG"],
    ),
    (
        "ftruncate",
        &["EIO", "ENOSPC", "EDQUOT", "EINTR", "EFBIG", "EPERM"],
    ),
    ("lseek", &["EIO", "EINVAL"]),
    ("fadvise64", &["EIO", "EINVAL"]),
    ("flock", &["EINTR", "ENOLCK", "EAGAIN", "ENOSYS"]),
    ("fcntl", &["EINVAL", "ENOLCK", "EAGAIN", "EMFILE"]),
    ("clone3", &["EAGAIN", "ENOMEM"]),
    ("getrandom", &["ENOSYS", "EINTR"]),
    ("capget", &["EPERM", "EINVAL"]),
    ("sched_getaffinity", &["EINVAL", "ESRCH"]),
];

/// Calls that cannot fail, or only by a mistake in their arguments; those by which a program
/// begins; memory, whose lack ends a program; waiting, also for signals (recvfrom), and telling the
/// time.
const SPARED: [&str; 43] = [
    "arch_prctl",
    "brk",
    "clock_gettime",
    "clock_nanosleep",
    "clone",
    "dup",
    "execve",
    "exit",
    "exit_group",
    "futex",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getpid",
    "gettid",
    "getuid",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "poll",
    "prctl",
    "recvfrom",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_yield",
    "set_robust_list",
    "set_tid_address",
    "sigaltstack",
    "socketpair",
    "sysinfo",
    "umask",
    "uname",
    "wait4",
    "pipe2",
    "prlimit64",
    "eventfd2",
    "epoll_create1",
];
/// `strace` does not know the names of the youngest calls, so none of these can be made to fail.
const NAMELESS: &str = "syscall_0x";

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    First,
    Again,
    Delete,
    Verify,
    Audit,
}

const ACTS: [Act; 5] = [Act::First, Act::Again, Act::Delete, Act::Verify, Act::Audit];

/// A source and what was a replica of it.
struct Stage {
    folder: PathBuf,
    act: Act,
    options: [&'static str; 2],
    /// For acts that only look: whether there is one difference to be seen.
    differs: bool,
}

impl Stage {
    fn new(scratch: &Scratch, act: Act, seed: u64) -> Stage {
        let mut rng = Rng::with_seed(seed);
        let jobs = rng
            .choice(["--jobs=1", "--jobs=2", "--jobs=8"])
            .expect("some");
        let way = rng
            .choice([
                "--cache=keep",
                "--cache=direct",
                "--durability=file",
                "--verify",
                "--checksum",
            ])
            .expect("some");
        let stage = Stage {
            folder: scratch.dir(&format!("{act:?}-{seed}")),
            act,
            options: [jobs, way],
            differs: rng.u8(0..4) > 0,
        };
        fs::create_dir(stage.src()).expect("source");
        build_tree(
            &stage.src(),
            seed,
            &Profile {
                entries: 40,
                ..Profile::small()
            },
        );
        add_own(&stage.src());
        if act != Act::First {
            let _ = stage.copy().run().expect(0);
        }
        match act {
            Act::First => (),
            Act::Again => change_own(&stage.src()),
            Act::Delete => {
                change_own(&stage.src());
                turn(&stage.src());
                mutate(&stage.src(), seed + 1, MUTATIONS);
            }
            Act::Verify | Act::Audit if stage.differs => plant(&stage.dst(), &mut rng),
            Act::Verify | Act::Audit => (),
        }
        stage
    }

    fn src(&self) -> PathBuf {
        self.folder.join("src")
    }

    fn dst(&self) -> PathBuf {
        self.folder.join("dst")
    }

    /// Its notes and the like are its own.
    fn driftless(&self) -> Driftless {
        driftless()
            .env("XDG_STATE_HOME", self.folder.join("state"))
            .env("HOME", &self.folder)
            .limit(LIMIT)
    }

    fn copy(&self) -> Driftless {
        self.driftless()
            .args(["sync", "--json", "--delete"])
            .arg(self.src())
            .arg(self.dst())
    }

    fn act(&self) -> Driftless {
        let words: &[&str] = match self.act {
            Act::First | Act::Again => &["sync", "--json"],
            Act::Delete => &["sync", "--json", "--delete"],
            Act::Verify => &["verify", "--json"],
            Act::Audit => &["audit", "--json", "--samples=100000", "--grace=0"],
        };
        let options = if self.only_looks() {
            &self.options[..1]
        } else {
            &self.options
        };
        self.driftless()
            .args(words)
            .args(options)
            .arg(self.src())
            .arg(self.dst())
    }

    fn only_looks(&self) -> bool {
        matches!(self.act, Act::Verify | Act::Audit)
    }

    /// Exit code 0 was said: what must not be.
    fn check_equal_as_said(&self, outcome: &Outcome) {
        // The lock of the run may stay: it keeps nobody out.
        let mut found = compare(
            &self.src(),
            &self.dst(),
            &Options {
                ignore: vec![LOCK.to_vec(), LOCK_SIGN.to_vec()],
                ..Options::default()
            },
        );
        // Without --delete.
        found.retain(|difference| self.act != Act::Again || difference.kind != "extra");
        assert!(
            found.is_empty(),
            "exit code 0, but {found:#?}\n{}",
            outcome.describe()
        );
    }

    /// The same again without a fault.
    fn check_next_run(&self) {
        if self.only_looks() {
            let _ = self.act().run().expect(if self.differs { 4 } else { 0 });
            return;
        }
        check_accounts(&self.copy().run().expect(0));
        check_equal(&self.src(), &self.dst(), "the next run");
        assert_eq!(
            leftovers(&self.dst()),
            Vec::<PathBuf>::new(),
            "the next run"
        );
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            driftless_testkit::remove_deep(&self.folder).expect("remove");
        }
    }
}

/// What random trees seldom have: a large file with holes, a link group in two directories, ACLs, a
/// directory with many names.
fn add_own(src: &Path) {
    let own = src.join("own");
    put(&own.join("plain"), "plain content");
    put(&own.join("deep/a"), vec![1; 20_000]);
    fs::hard_link(own.join("deep/a"), own.join("b")).expect("link");
    fs::hard_link(own.join("deep/a"), own.join("deep/c")).expect("link");
    attrs::set_xattr(
        &own,
        attrs::ACL_DEFAULT.as_bytes(),
        &attrs::acl_blob((7, 7), (8, 5), 0),
    )
    .expect("ACL");
    put(&own.join("listed"), "x");
    attrs::set_xattr(
        &own.join("listed"),
        attrs::ACL_ACCESS.as_bytes(),
        &attrs::acl_blob((7, 6), (8, 4), 0),
    )
    .expect("ACL");
    for name in 0..30 {
        put(&own.join(format!("gone/{name}")), "to be deleted");
    }
    put(&own.join("turns/inside"), "a directory that becomes a file");
    put(&own.join("large"), "");
    let large = fs::OpenOptions::new()
        .write(true)
        .open(own.join("large"))
        .expect("open");
    large.set_len(66 * MIB).expect("size");
    [0, 5 * MIB, 65 * MIB]
        .into_iter()
        .for_each(|at| large.write_all_at(&[9; 100_000], at).expect("write"));
}

/// Changes of each kind to what is there.
fn change_own(src: &Path) {
    let own = src.join("own");
    put(&own.join("plain"), "other content than before");
    put(&own.join("new/file"), vec![2; 30_000]);
    fs::remove_file(own.join("b")).expect("remove");
    fs::hard_link(own.join("plain"), own.join("b")).expect("link");
    fs::hard_link(own.join("deep/a"), own.join("new/d")).expect("link");
    attrs::remove_xattr(&own.join("listed"), attrs::ACL_ACCESS.as_bytes()).expect("ACL");
    attrs::set_xattr(
        &own.join("deep"),
        attrs::ACL_ACCESS.as_bytes(),
        &attrs::acl_blob((9, 5), (9, 5), 0),
    )
    .expect("ACL");
    driftless_testkit::remove_deep(&own.join("gone")).expect("remove");
    let large = fs::OpenOptions::new()
        .write(true)
        .open(own.join("large"))
        .expect("open");
    large.write_all_at(&[8; 50_000], 30 * MIB).expect("write");
}

/// A directory that is not empty becomes a file, which without `--delete` is a problem.
fn turn(src: &Path) {
    driftless_testkit::remove_deep(&src.join("own/turns")).expect("remove");
    put(&src.join("own/turns"), "a file now");
}

/// One difference, of one kind.
fn plant(dst: &Path, rng: &mut Rng) {
    let plain = dst.join("own/plain");
    let meta = fs::metadata(&plain).expect("stat");
    match rng.u8(0..5) {
        0 => {
            fs::OpenOptions::new()
                .write(true)
                .open(&plain)
                .expect("open")
                .write_all_at(b"P", 0)
                .expect("write");
            let time = std::os::unix::fs::MetadataExt::mtime_nsec(&meta) as u32;
            attrs::set_mtime(&plain, std::os::unix::fs::MetadataExt::mtime(&meta), time)
                .expect("time");
        }
        1 => attrs::set_mode(&plain, 0o4711).expect("mode"),
        2 => attrs::set_xattr(&plain, b"user.planted", b"x").expect("attribute"),
        3 => attrs::set_mtime(&plain, 1000, 0).expect("time"),
        _ => attrs::set_owner(&plain, 4321, 4321).expect("owner"),
    }
}

/// How often a thread makes each call, at most, in a run without a fault.
type Calls = BTreeMap<String, u64>;

fn traced(stage: &Stage) -> Calls {
    let trace = stage.folder.join("trace");
    let words = [
        "strace",
        "-f",
        "-qq",
        "-e",
        "signal=none",
        "-o",
        trace.to_str().expect("text"),
        "--",
    ];
    let outcome = stage.act().through(words).run();
    assert!([0, 4].contains(&outcome.code()), "{}", outcome.describe());
    let text = String::from_utf8_lossy(&fs::read(&trace).expect("trace")).into_owned();
    let mut of_thread: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let calls = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(thread, rest)| (thread, rest.trim_start()));
    for (thread, rest) in
        calls.filter(|(_, rest)| rest.starts_with(|first: char| first.is_ascii_lowercase()))
    {
        *of_thread
            .entry((thread, rest.split('(').next().unwrap_or(rest)))
            .or_default() += 1;
    }
    let mut all = Calls::new();
    for ((_, call), count) in of_thread {
        let most = all.entry(call.to_owned()).or_default();
        *most = count.max(*most);
    }
    all
}

/// The n-th call of a thread, or all from it on, with an error.
struct Fault {
    call: &'static str,
    error: &'static str,
    when: String,
}

impl Fault {
    /// Each call that a run makes is as likely as any other.
    fn draw(calls: &Calls, rng: &mut Rng) -> Fault {
        let made: Vec<_> = CALLS
            .iter()
            .filter(|(call, _)| calls.contains_key(*call))
            .collect();
        let (call, errors) = **rng.choice(&made).expect("calls");
        let number = rng.u64(1..=calls[call]);
        let error = rng.choice(errors).expect("errors");
        // What is tried again for as long as it takes would be tried for ever.
        let lasts = !["EINTR", "EAGAIN"].contains(error);
        Fault {
            call,
            error,
            when: if lasts && rng.u8(0..5) == 0 {
                format!("{number}+")
            } else {
                number.to_string()
            },
        }
    }

    fn words(&self, trace: &Path) -> Vec<String> {
        let Fault { call, error, when } = self;
        let inject = format!("inject={call}:error={error}:when={when}");
        let trace = trace.to_str().expect("text");
        let words = [
            "strace",
            "-f",
            "--seccomp-bpf",
            "-qq",
            "-o",
            trace,
            "-e",
            &format!("trace={call}"),
            "-e",
            &inject,
            "--",
        ];
        words.map(str::to_owned).to_vec()
    }
}

/// One run with one fault; whether it was met.
fn check_fault(stage: &Stage, fault: &Fault) -> bool {
    let before = stage
        .only_looks()
        .then(|| snapshot_hash(&stage.dst(), false));
    let trace = stage.folder.join("trace");
    let outcome = stage.act().through(fault.words(&trace)).run();
    let is_met = fs::read(&trace)
        .expect("trace")
        .windows(10)
        .any(|text| text == b"(INJECTED)");
    if outcome.code() == NOT_BEGUN {
        return false;
    }
    assert!(
        !CRASHES.contains(&outcome.code()) && outcome.code() < 128,
        "a crash\n{}",
        outcome.describe()
    );
    // What could not be written may have torn the output.
    let is_torn = fault.call == "write" && outcome.code() != 0;
    if !is_torn && !stage.only_looks() && outcome.stdout_text().contains("\"end\":\"complete\"") {
        check_accounts(&outcome);
    }
    // An audit that meets a change counts it apart: to it, what a call says to be gone for once has
    // just been removed.
    let is_apart = stage.act == Act::Audit
        && outcome.code() == 0
        && outcome.count("recent") + outcome.count("vanished") > 0;
    if outcome.code() == 0 && !is_apart {
        stage.check_equal_as_said(&outcome);
    }
    if let Some(before) = before {
        assert_eq!(
            snapshot_hash(&stage.dst(), false),
            before,
            "it only looks\n{}",
            outcome.describe()
        );
    }
    stage.check_next_run();
    is_met
}

fn inject(kind: FsKind, test: &str, name: &'static str, seeds: std::ops::Range<u64>) {
    let scratch = Scratch::new(kind, 700);
    let counts: BTreeMap<Act, Calls> = ACTS
        .into_iter()
        .map(|act| (act, traced(&Stage::new(&scratch, act, 1))))
        .collect();
    let mut campaign = Campaign::new(name);
    let one = std::env::var("DRIFTLESS_SEED")
        .ok()
        .map(|_| count_of("DRIFTLESS_SEED", 1));
    for seed in one.map_or(seeds, |seed| seed..seed + 1) {
        let mut rng = Rng::with_seed(seed ^ 0x1417);
        let act = ACTS[rng.usize(..ACTS.len())];
        let fault = Fault::draw(&counts[&act], &mut rng);
        let Fault { call, error, when } = &fault;
        let what = format!(
            "{act:?}: {call} number {when} fails with {error}; DRIFTLESS_SEED={seed} ... --test injected {test}"
        );
        campaign.judge(what, || {
            check_fault(&Stage::new(&scratch, act, seed), &fault)
        });
    }
    campaign.end();
}

macro_rules! on_each {
    ($($sample:ident, $campaign:ident: $kind:ident, $first:literal, $count:literal;)*) => {
        $(#[test]
        fn $sample() {
            inject(FsKind::$kind, stringify!($sample), concat!("sample of injected errors on ", stringify!($kind)), $first..$first + $count);
        }

        #[test]
        #[ignore = "thousands of runs: make campaign"]
        fn $campaign() {
            let runs = RUNS_EACH * count_of("DRIFTLESS_SEEDS", 5);
            inject(FsKind::$kind, stringify!($campaign), concat!("injected errors on ", stringify!($kind)), $first..$first + runs);
        })*
    };
}

on_each! {
    a_call_that_fails_once_is_told_or_made_good_on_tmpfs, every_call_fails_on_tmpfs: Tmpfs, 1_000_000, 45;
    a_call_that_fails_once_is_told_or_made_good_on_ext4, every_call_fails_on_ext4: Ext4, 2_000_000, 45;
    a_call_that_fails_once_is_told_or_made_good_on_xfs, every_call_fails_on_xfs: Xfs, 3_000_000, 30;
    a_call_that_fails_once_is_told_or_made_good_on_btrfs, every_call_fails_on_btrfs: Btrfs, 4_000_000, 45;
}

#[test]
fn every_call_that_a_run_makes_is_in_the_table() {
    let scratch = Scratch::new(FsKind::Ext4, 700);
    for seed in 1..4 {
        for act in ACTS {
            let made = traced(&Stage::new(&scratch, act, seed));
            let is_known = |call: &str| {
                CALLS.iter().any(|row| row.0 == call)
                    || SPARED.contains(&call)
                    || call.starts_with(NAMELESS)
            };
            let unknown: Vec<_> = made.keys().filter(|call| !is_known(call)).collect();
            assert!(
                unknown.is_empty(),
                "{act:?} makes calls that are in no table: {unknown:?}"
            );
        }
    }
}
