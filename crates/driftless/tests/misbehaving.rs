//! A file system that misbehaves, as source or as replica: a row for each way, with what must come
//! of it.
//!
//! Whatever a row expects, exit code 0 must mean that the replica is equal, and nothing unfinished
//! may be left.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_accounts, is_temp, leftovers, on_trees, wait_until};
use driftless_testkit::fuse::Op;
use driftless_testkit::{
    EVENT_MAX, FsKind, Fuse, Mood, Options, Outcome, Rule, Scratch, attrs, compare, mutate,
    snapshot, touched,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The modification time of everything that a row puts up, so that contents of one length look
/// equal.
const MTIME: (i64, u32) = (1_000_000_000, 123_456_789);
const LIMIT: Duration = EVENT_MAX;
const FOREVER: Duration = Duration::from_secs(3600);

/// A path and its content; `*N` is N bytes.
type File = (&'static str, &'static str);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Replica,
}

/// One way to misbehave.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    mood: fn() -> Mood,
    side: Side,
    source: &'static [File],
    replica: &'static [File],
    orders: fn(&Fuse),
    command: &'static [&'static str],
    /// What is done while it runs.
    meanwhile: Option<fn(&mut Fuse)>,
    codes: &'static [i32],
    problems: &'static [&'static str],
    /// All files of the replica in the end; none where that is left open.
    after: Option<&'static [File]>,
}

const SYNC: &[&str] = &["sync", "--delete"];
const VERIFY: &[&str] = &["verify"];

const ROW: Row = Row {
    name: "",
    mood: Mood::healthy,
    side: Side::Source,
    source: &[],
    replica: &[],
    orders: |_| (),
    command: SYNC,
    meanwhile: None,
    codes: &[0],
    problems: &[],
    after: None,
};

const VOLUME: Row = Row {
    source: &[("vol2/new", "new"), ("x", "x")],
    replica: &[("vol2/kept", "kept")],
    codes: &[3],
    problems: &["vol2"],
    ..ROW
};
const KEPT: Option<&[File]> = Some(&[("vol2/kept", "kept"), ("x", "x")]);
const SHORT: Row = Row {
    orders: |fuse| fuse.order(Rule::end_at(131_072).named("f")),
    codes: &[3],
    problems: &["f"],
    ..ROW
};
const CLOSED: Row = Row {
    side: Side::Replica,
    source: &[("data", "new content")],
    codes: &[3],
    problems: &["data"],
    ..ROW
};
const EXTRA: Row = Row {
    source: &[("a", "a")],
    replica: &[("a", "a"), ("extra", "extra")],
    orders: |fuse| fuse.order(Rule::fail(Op::Lookup, Errno::IO).named("extra")),
    codes: &[3],
    problems: &["extra"],
    after: Some(&[("a", "a"), ("extra", "extra")]),
    ..ROW
};
const CHANGED: Row = Row {
    source: &[("f", "new content")],
    replica: &[("f", "old")],
    codes: &[3],
    problems: &["f"],
    ..ROW
};
const OLD: Option<&[File]> = Some(&[("f", "old")]);

const ROWS: &[Row] = &[
    Row {
        name: "a stale directory is a problem and not absent",
        orders: |fuse| fuse.order(Rule::fail(Op::Opendir, Errno::STALE).named("vol2")),
        after: KEPT,
        ..VOLUME
    },
    Row {
        name: "verify tells a stale directory",
        orders: |fuse| fuse.order(Rule::fail(Op::Opendir, Errno::STALE).named("vol2")),
        command: VERIFY,
        replica: &[("vol2/kept", "kept"), ("x", "x")],
        after: KEPT,
        ..VOLUME
    },
    Row {
        name: "a name that is stale is a problem and not absent",
        orders: |fuse| fuse.order(Rule::fail(Op::Lookup, Errno::STALE).named("vol2")),
        after: KEPT,
        ..VOLUME
    },
    Row {
        name: "a directory that cannot be listed keeps its replica",
        orders: |fuse| fuse.order(Rule::fail(Op::Readdir, Errno::IO).named("vol2")),
        after: KEPT,
        ..VOLUME
    },
    Row {
        name: "a directory that is gone for a moment is entered when it is there again",
        replica: &[("vol2/new", "older")],
        orders: |fuse| fuse.order(Rule::fail(Op::Opendir, Errno::NOENT).named("vol2").times(1)),
        codes: &[0, 5],
        problems: &[],
        after: Some(&[("vol2/new", "new"), ("x", "x")]),
        ..VOLUME
    },
    Row {
        name: "a listing shows all names twice",
        mood: Mood::doubled,
        source: &[("d/e/f", "f"), ("d/g", "g"), ("x", "x")],
        ..ROW
    },
    Row {
        name: "a rule for directories protects them where listings have no kinds",
        mood: Mood::untyped,
        side: Side::Replica,
        source: &[("x", "x")],
        replica: &[("scratch/precious", "keep"), ("gone", "gone"), ("x", "x")],
        command: &["sync", "--delete", "--exclude", "scratch/"],
        after: Some(&[("scratch/precious", "keep"), ("x", "x")]),
        ..ROW
    },
    Row {
        name: "a rule for directories protects them below what is deleted, too",
        mood: Mood::untyped,
        side: Side::Replica,
        source: &[("x", "x")],
        replica: &[
            ("old/scratch/precious", "keep"),
            ("old/gone", "gone"),
            ("x", "x"),
        ],
        command: &["sync", "--delete", "--exclude", "scratch/"],
        after: Some(&[("old/scratch/precious", "keep"), ("x", "x")]),
        ..ROW
    },
    Row {
        name: "an error of close keeps the earlier file",
        replica: &[("data", "old")],
        orders: |fuse| {
            fuse.order(Rule::lose_writes());
            fuse.order(Rule::fail(Op::Flush, Errno::DQUOT).named(".driftless-tmp-*"));
        },
        after: Some(&[("data", "old")]),
        ..CLOSED
    },
    Row {
        name: "an error of close leaves no file in a new directory",
        source: &[("new/data", "new content")],
        orders: |fuse| {
            fuse.order(Rule::lose_writes());
            fuse.order(Rule::fail(Op::Flush, Errno::DQUOT));
        },
        problems: &["new/data"],
        after: Some(&[]),
        ..CLOSED
    },
    Row {
        name: "a new spelling is a rename where case does not count",
        mood: Mood::folded,
        side: Side::Replica,
        source: &[("README", "text"), ("x", "x")],
        replica: &[("readme", "text"), ("x", "x")],
        after: Some(&[("README", "text"), ("x", "x")]),
        ..ROW
    },
    Row {
        name: "a file that ends before its size is a problem",
        source: &[("f", "*300000")],
        replica: &[("f", "old")],
        after: OLD,
        ..SHORT
    },
    Row {
        name: "a new file that ends before its size is not made",
        source: &[("f", "*300000")],
        after: Some(&[]),
        ..SHORT
    },
    Row {
        name: "a larger file that ends before its size is not made",
        source: &[("f", "*9000000")],
        after: Some(&[]),
        ..SHORT
    },
    Row {
        name: "verify tells a file that ends before its size",
        source: &[("f", "*300000")],
        replica: &[("f", "*300000")],
        command: VERIFY,
        codes: &[3, 4],
        problems: &[],
        after: Some(&[("f", "*300000")]),
        ..SHORT
    },
    Row {
        name: "whole seconds on the replica are no difference",
        mood: Mood::whole_seconds,
        side: Side::Replica,
        source: &[("f", "same size A"), ("d/g", "same size A")],
        replica: &[("f", "same size B"), ("d/g", "same size B")],
        after: Some(&[("d/g", "same size B"), ("f", "same size B")]),
        ..ROW
    },
    Row {
        name: "times are set on a file system that passes over one of them alone",
        mood: || Mood {
            both_times: true,
            ..Mood::healthy()
        },
        side: Side::Replica,
        source: &[("f", "content"), ("d/g", "new"), ("d/h", "")],
        replica: &[("d/g", "older")],
        ..ROW
    },
    Row {
        name: "what a lease holds is opened without haste",
        source: &[("f", "content")],
        orders: |fuse| fuse.order(Rule::leased().named("f")),
        after: Some(&[("f", "content")]),
        ..ROW
    },
    Row {
        name: "a file that is changed behind a cache of attributes is noticed",
        // Reading would forget the attributes, but for a mount that nothing can be written to.
        mood: || Mood {
            read_only: true,
            remembers: FOREVER,
            ..Mood::healthy()
        },
        source: &[("f", "this is old")],
        orders: |fuse| fuse.order(Rule::slow(Op::Read, Duration::from_millis(500)).named("f")),
        meanwhile: Some(|fuse| {
            wait_until("the file is read", || fuse.calls(Op::Read) > 0);
            fs::write(fuse.backing().join("src/f"), "this is NEW").expect("write");
        }),
        codes: &[0, 5],
        ..ROW
    },
    Row {
        name: "a look at the source that fails before a delete is a problem",
        ..EXTRA
    },
    Row {
        name: "a look at the replica that fails before a delete is a problem",
        side: Side::Replica,
        ..EXTRA
    },
    Row {
        name: "a name that a listing misses is not deleted",
        source: &[("a", "a"), ("b", "b")],
        replica: &[("a", "a"), ("b", "b")],
        orders: |fuse| fuse.order(Rule::omit("b")),
        codes: &[5],
        problems: &["b"],
        after: Some(&[("a", "a"), ("b", "b")]),
        ..ROW
    },
    Row {
        name: "a changed file that a listing misses is told",
        source: &[("a", "a"), ("b", "newer")],
        replica: &[("a", "a"), ("b", "b")],
        orders: |fuse| fuse.order(Rule::omit("b")),
        codes: &[5],
        problems: &["b"],
        ..ROW
    },
    Row {
        name: "a source that dies while it is read loses nothing on the replica",
        source: &[("d/f", "new content")],
        replica: &[("d/f", "old"), ("d/extra", "extra"), ("gone", "gone")],
        orders: |fuse| fuse.order(Rule::never(Op::Read).named("f")),
        meanwhile: Some(|fuse| {
            wait_until("the file is read", || fuse.calls(Op::Read) > 0);
            fuse.cut();
        }),
        codes: &[3],
        after: Some(&[("d/extra", "extra"), ("d/f", "old"), ("gone", "gone")]),
        ..ROW
    },
    Row {
        name: "a replica that dies ends the run with an error",
        side: Side::Replica,
        source: &[("f", "new content")],
        orders: |fuse| fuse.order(Rule::never(Op::Write)),
        meanwhile: Some(|fuse| {
            wait_until("the file is written", || fuse.calls(Op::Write) > 0);
            fuse.cut();
        }),
        codes: &[1, 3],
        ..ROW
    },
    Row {
        name: "a name that cannot be looked up keeps its replica",
        orders: |fuse| fail_source(fuse, Op::Lookup),
        after: OLD,
        ..CHANGED
    },
    Row {
        name: "a file that cannot be opened keeps its replica",
        orders: |fuse| fail_source(fuse, Op::Open),
        after: OLD,
        ..CHANGED
    },
    Row {
        name: "a file that cannot be read keeps its replica",
        orders: |fuse| fail_source(fuse, Op::Read),
        after: OLD,
        ..CHANGED
    },
    Row {
        name: "a write that fails keeps the earlier file",
        orders: |fuse| fail_replica(fuse, Op::Write),
        after: OLD,
        ..AT_REPLICA
    },
    Row {
        name: "a file that cannot be made keeps the earlier one",
        orders: |fuse| fail_replica(fuse, Op::Create),
        after: OLD,
        ..AT_REPLICA
    },
    Row {
        name: "a rename that fails keeps the earlier file",
        orders: |fuse| {
            [Op::Rename, Op::Rename2]
                .into_iter()
                .for_each(|op| fail_replica(fuse, op))
        },
        after: OLD,
        ..AT_REPLICA
    },
    Row {
        name: "an unlink that fails is a problem",
        side: Side::Replica,
        orders: |fuse| fuse.order(Rule::fail(Op::Unlink, Errno::IO).named("extra")),
        ..EXTRA
    },
    Row {
        name: "slow answers change nothing",
        source: &[("d/f", "content"), ("g", "more")],
        orders: |fuse| fuse.order(Rule::slow(Op::Lookup, Duration::from_millis(20))),
        after: Some(&[("d/f", "content"), ("g", "more")]),
        ..ROW
    },
];

const AT_REPLICA: Row = Row {
    side: Side::Replica,
    ..CHANGED
};

fn fail_source(fuse: &Fuse, op: Op) {
    fuse.order(Rule::fail(op, Errno::IO).named("f"));
}

fn fail_replica(fuse: &Fuse, op: Op) {
    fuse.order(Rule::fail(op, Errno::IO).named(".driftless-tmp-*"));
}

struct Stage {
    fuse: Fuse,
    other: Scratch,
    side: Side,
}

impl Stage {
    fn new(row: &Row) -> Stage {
        let stage = Stage {
            fuse: Fuse::mount((row.mood)()),
            other: Scratch::new(FsKind::Tmpfs, 64),
            side: row.side,
        };
        put_up(&stage.truth(Side::Source), row.source);
        put_up(&stage.truth(Side::Replica), row.replica);
        stage
    }

    fn root(&self, side: Side) -> PathBuf {
        let mount = if side == self.side {
            self.fuse.path()
        } else {
            self.other.path()
        };
        mount.join(if side == Side::Source { "src" } else { "dst" })
    }

    /// The root as it really is.
    fn truth(&self, side: Side) -> PathBuf {
        let mount = if side == self.side {
            self.fuse.backing()
        } else {
            self.other.path()
        };
        mount.join(if side == Side::Source { "src" } else { "dst" })
    }

    fn run(&mut self, row: &Row) -> Outcome {
        let (src, dst) = (self.root(Side::Source), self.root(Side::Replica));
        let running = on_trees(row.command[0], &src, &dst)
            .args(&row.command[1..])
            .args(["--json", "--jobs", "2"])
            .limit(LIMIT)
            .spawn();
        row.meanwhile
            .into_iter()
            .for_each(|act| act(&mut self.fuse));
        running.wait()
    }
}

fn put_up(root: &Path, files: &[File]) {
    fs::create_dir(root).expect("root");
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("parents");
        fs::write(&path, whole(content)).expect("write");
    }
    let all = mutate::list_all(root).expect("list");
    all.iter()
        .chain([&root.to_owned()])
        .for_each(|path| attrs::set_mtime(path, MTIME.0, MTIME.1).expect("utimensat"));
}

fn whole(content: &str) -> String {
    let count = content
        .strip_prefix('*')
        .map(|count| count.parse().expect("a number"));
    count.map_or_else(|| content.to_owned(), |count| "x".repeat(count))
}

/// All files below a root, but for what a run keeps there for itself.
fn files(root: &Path) -> BTreeMap<String, String> {
    let all = mutate::list_all(root).expect("list");
    let files = all
        .into_iter()
        .filter(|path| path.symlink_metadata().expect("stat").is_file());
    let ours = |path: &PathBuf| {
        path.file_name()
            .expect("name")
            .as_bytes()
            .starts_with(b".driftless-")
    };
    let entry = |path: PathBuf| {
        let name = path
            .strip_prefix(root)
            .expect("below")
            .to_str()
            .expect("text")
            .to_owned();
        (name, fs::read_to_string(&path).expect("read"))
    };
    files.filter(|path| !ours(path)).map(entry).collect()
}

fn check(row: &Row) {
    let mut stage = Stage::new(row);
    (row.orders)(&stage.fuse);
    let outcome = stage.run(row);
    let context = format!("{}\n{}", row.name, outcome.describe());
    assert!(
        row.codes.contains(&outcome.code()),
        "exit code, not one of {:?}: {context}",
        row.codes
    );
    // A replica that dies before anything is changed there ends the run with an error, which has no
    // summary.
    if outcome.events_named("error").is_empty() {
        check_accounts(&outcome);
    }
    if !row.problems.is_empty() || row.codes == [0] {
        assert_eq!(told(&outcome), row.problems, "problems: {context}");
    }
    let (src, dst) = (stage.truth(Side::Source), stage.truth(Side::Replica));
    if let Some(after) = row.after {
        let after: BTreeMap<_, _> = after
            .iter()
            .map(|(path, content)| (path.to_string(), whole(content)))
            .collect();
        assert_eq!(files(&dst), after, "{context}");
    }
    // A mount that died keeps what was unfinished, and so do equal sizes and times without a look
    // at content.
    if row.meanwhile.is_none() {
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new(), "{context}");
    }
    if outcome.code() == 0 && row.after.is_none() {
        let options = Options {
            ignore: leftovers_at(&dst),
            ..Options::default()
        };
        assert_eq!(
            compare(&src, &dst, &options),
            Vec::new(),
            "exit code 0, and not equal: {context}"
        );
    }
}

fn leftovers_at(root: &Path) -> Vec<Vec<u8>> {
    let all = mutate::list_all(root)
        .expect("list")
        .into_iter()
        .filter(|path| is_temp(path));
    all.map(|path| {
        path.strip_prefix(root)
            .expect("below")
            .as_os_str()
            .as_bytes()
            .to_vec()
    })
    .collect()
}

/// The paths that have problems, sorted, each as often as it was told.
fn told(outcome: &Outcome) -> Vec<String> {
    let problems = outcome.events_named("problem");
    let mut paths: Vec<String> = problems
        .iter()
        .filter_map(|problem| problem["path"].as_str().map(str::to_owned))
        .collect();
    paths.sort();
    paths
}

#[test]
fn whatever_a_file_system_does_nothing_is_lost_in_silence() {
    let only = std::env::var("DRIFTLESS_ROW").unwrap_or_default();
    let mut failed = Vec::new();
    for row in ROWS.iter().filter(|row| row.name.contains(&only)) {
        if std::panic::catch_unwind(|| check(row)).is_err() {
            failed.push(row.name);
        }
    }
    assert!(failed.is_empty(), "{} rows fail: {failed:#?}", failed.len());
}

#[test]
fn directory_that_contains_itself_is_a_problem() {
    let (fuse, scratch) = (
        Fuse::mount(Mood::healthy()),
        Scratch::new(FsKind::Tmpfs, 16),
    );
    let (src, dst) = (fuse.dir("src"), scratch.path().join("dst"));
    fs::create_dir(src.join("loop")).expect("a directory");
    fs::write(src.join("x"), "x").expect("a file");
    fuse.change(|mood| mood.loops = true);
    let on_both = |command: &str, options: &[&str]| on_trees(command, &src, &dst).args(options);
    for run in [
        on_both("sync", &[]),
        on_both("verify", &[]),
        on_both("audit", &["--samples=10", "--grace=0"]),
        common::driftless().arg("sum").arg(&src),
        common::driftless().args(["sum", "--manifest"]).arg(&src),
    ] {
        let told = run.limit(LIMIT).run();
        // An audit may have drawn the directory, which the replica lacks.
        assert!([3, 4].contains(&told.code()), "{}", told.describe());
        assert!(
            told.stderr_text()
                .contains("it contains itself without end"),
            "{}",
            told.describe()
        );
    }
    assert!(!dst.join("loop").exists());
    assert_eq!(fs::read_to_string(dst.join("x")).expect("read"), "x");
}

#[test]
fn extra_directory_that_contains_itself_stays() {
    let (fuse, scratch) = (
        Fuse::mount(Mood::healthy()),
        Scratch::new(FsKind::Tmpfs, 16),
    );
    let (src, dst) = (scratch.path().join("src"), fuse.dir("dst"));
    fs::create_dir(&src).expect("a directory");
    for path in [&src, &dst] {
        fs::write(path.join("x"), "x").expect("a file");
    }
    fs::create_dir_all(dst.join("extra/loop")).expect("directories");
    fs::write(dst.join("extra/f"), "f").expect("a file");
    fuse.change(|mood| mood.loops = true);
    for options in [&["--delete", "--dry-run"][..], &["--delete"]] {
        let run = on_trees("sync", &src, &dst).args(options);
        let told = run.limit(LIMIT).run().expect(3);
        assert!(
            told.stderr_text()
                .contains("\"extra/loop\": cannot enter it on the replica: it is a directory"),
            "{}",
            told.describe()
        );
    }
    assert!(fuse.backing().join("dst/extra/loop").is_dir());
    assert!(!fuse.backing().join("dst/extra/f").exists());
}

#[test]
fn clock_in_place_of_change_times_is_named() {
    let (fuse, scratch) = (
        Fuse::mount(Mood::healthy()),
        Scratch::new(FsKind::Tmpfs, 16),
    );
    let (src, dst) = (fuse.dir("src"), scratch.path().join("dst"));
    fs::write(src.join("f"), "f").expect("a file");
    fuse.change(|mood| mood.stamps = true);
    let told = on_trees("sync", &src, &dst).limit(LIMIT).run().expect(5);
    let stamped = "source: its file system stamps it with another time of change at each look";
    for path in [".", "f"] {
        let problem =
            format!("\"{path}\": cannot copy a consistent state of it from the {stamped}");
        assert!(told.stderr_text().contains(&problem), "{}", told.describe());
    }
}

#[test]
fn file_longer_than_its_size_is_a_problem() {
    for (hidden_bytes, content) in [(3, 1000), (u64::MAX, 1000), (3, 200_000)] {
        let (fuse, scratch) = (
            Fuse::mount(Mood::healthy()),
            Scratch::new(FsKind::Tmpfs, 16),
        );
        let (src, dst) = (fuse.dir("src"), scratch.path().join("dst"));
        fs::write(src.join("sheet"), vec![b'x'; content]).expect("a file");
        fuse.change(|mood| mood.hidden_bytes = hidden_bytes);
        let told = on_trees("sync", &src, &dst).limit(LIMIT).run().expect(3);
        assert!(
            told.stderr_text().contains("it goes on beyond its size"),
            "{}",
            told.describe()
        );
        assert!(!dst.join("sheet").exists());
    }
}

#[test]
fn names_that_collide_where_case_does_not_count_are_told_and_do_not_alternate() {
    let row = Row {
        mood: Mood::folded,
        side: Side::Replica,
        source: &[("FILE", "one"), ("file", "twos")],
        ..ROW
    };
    let mut stage = Stage::new(&row);
    let mut run = || {
        let outcome = stage.run(&row).expect(3);
        let told = told(&outcome);
        assert!(
            told == ["FILE"] || told == ["file"],
            "{}",
            outcome.describe()
        );
        snapshot(&stage.truth(Side::Replica), false)
    };
    let (first, second) = (run(), run());
    assert_eq!(touched(&first, &second), Vec::<String>::new());
}
