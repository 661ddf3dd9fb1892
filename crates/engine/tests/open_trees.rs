//! Trees that are opened once and made equal often, between trees in memory.

use driftless_engine::{
    End, MachineClock, Monitor, Options, Progress, Renamed, RunError, Summary, Trees, now,
};
use driftless_model::{Policy, Problem, Receipt, RelPath, Scope, Selection, Work, errno};
use driftless_tree::fake::{ANY, Call, FakeTree};
use driftless_tree::{stable_temp_name, temp_name};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Keeps what is told.
#[derive(Default)]
struct Told {
    problems: Mutex<Vec<String>>,
    receipts: Mutex<Vec<String>>,
}

impl Monitor for Told {
    fn wants_receipts(&self) -> bool {
        true
    }

    fn receipt(&self, receipt: &Receipt) {
        self.receipts
            .lock()
            .expect("no panic")
            .push(receipt.path.to_string());
    }

    fn problem(&self, problem: &Problem) {
        self.problems
            .lock()
            .expect("no panic")
            .push(problem.to_string());
    }

    fn progress(&self, _progress: &Progress) {}
}

/// Two trees, open and equal.
struct Pair {
    source: FakeTree,
    replica: FakeTree,
    trees: Trees,
}

impl Pair {
    /// With these files and what leads to them.
    fn of(files: &[&str]) -> Pair {
        let (source, replica) = (FakeTree::new("here"), FakeTree::new("there"));
        files
            .iter()
            .for_each(|path| source.put(path, path.as_bytes()));
        let options = Options {
            source: source.endpoint(),
            replica: replica.endpoint(),
            ..Options::default()
        };
        let trees =
            Trees::open(&options, &Told::default(), &MachineClock).expect("they can be opened");
        let pair = Pair {
            source,
            replica,
            trees,
        };
        let summary = pair.reconcile(Selection::all()).expect("the first copy").0;
        assert_eq!(summary.end, End::Complete);
        pair.check_equal();
        pair
    }

    fn reconcile(&self, selection: Selection) -> Result<(Summary, Told), RunError> {
        let told = Told::default();
        let summary = self.trees.reconcile(
            &Arc::new(selection),
            &mirror(),
            &told,
            &AtomicBool::new(false),
        )?;
        Ok((summary, told))
    }

    /// Makes one path equal, without any problem; returns what was changed.
    fn look_at(&self, path: &str, scope: Scope) -> Vec<String> {
        let (summary, told) = self.reconcile(chosen(path, scope)).expect("it goes on");
        assert_eq!(
            (summary.end, &told.problems.lock().expect("no panic")[..]),
            (End::Complete, &[][..]),
            "{path}"
        );
        assert!(summary.counts.adds_up(), "{:?}", summary.counts);
        told.receipts.into_inner().expect("no panic")
    }

    fn contents(tree: &FakeTree) -> Vec<(String, Option<Vec<u8>>, u32)> {
        let of = |path: String| {
            let mode = tree.meta(&path).expect("it is there").mode;
            (path.clone(), tree.content(&path), mode)
        };
        tree.paths().into_iter().map(of).collect()
    }

    fn check_equal(&self) {
        assert_eq!(Pair::contents(&self.source), Pair::contents(&self.replica));
    }
}

fn mirror() -> Policy {
    Policy {
        delete: true,
        ..Policy::default()
    }
}

fn chosen(path: &str, scope: Scope) -> Selection {
    Selection::of(&[Work {
        path: RelPath::parse(path.as_bytes()).expect("a path"),
        scope,
    }])
}

const FILES: [&str; 5] = ["a/one", "a/two", "a/b/three", "c/four", "five"];

#[test]
fn one_path_is_made_equal_and_nothing_else_is_looked_at() {
    let pair = Pair::of(&FILES);
    pair.source.advance(std::time::Duration::from_secs(5));
    for path in FILES {
        pair.source.put(path, b"changed");
    }
    let lists = pair.source.calls(Call::List) + pair.replica.calls(Call::List);
    assert_eq!(pair.look_at("a/one", Scope::Entry), ["a/one"]);
    assert_eq!(
        pair.replica.content("a/one").as_deref(),
        Some(&b"changed"[..])
    );
    assert_eq!(
        pair.replica.content("a/two").as_deref(),
        Some(&b"a/two"[..]),
        "nobody asked for it"
    );
    assert_eq!(
        pair.source.calls(Call::List) + pair.replica.calls(Call::List),
        lists,
        "no directory is listed for one path"
    );
    assert_eq!(
        pair.look_at("a/one", Scope::Entry),
        Vec::<String>::new(),
        "it is equal"
    );
    let mut below = pair.look_at("a", Scope::Subtree);
    below.sort();
    assert_eq!(below, ["a/b/three", "a/two"]);
    let _rest = pair.reconcile(Selection::all()).expect("it goes on");
    pair.check_equal();
}

#[test]
fn a_directory_alone_is_made_equal_without_what_is_below_it() {
    let pair = Pair::of(&FILES);
    pair.source.set_mode("a", 0o700);
    pair.source.put("a/b/three", b"changed");
    pair.source.put_dir("new");
    pair.source.put("new/file", b"new");
    assert_eq!(pair.look_at("a", Scope::Entry)[0], "a");
    assert_eq!(pair.look_at("new", Scope::Entry)[0], "new");
    assert_eq!(pair.replica.meta("a").map(|meta| meta.mode), Some(0o700));
    assert_eq!(
        pair.replica.content("a/b/three").as_deref(),
        Some(&b"a/b/three"[..])
    );
    assert!(pair.replica.meta("new").is_some() && pair.replica.meta("new/file").is_none());
}

#[test]
fn the_names_of_a_directory_are_made_equal_and_what_both_sides_have_below_is_not_entered() {
    let pair = Pair::of(&[
        "a/one",
        "a/two",
        "a/old/file",
        "a/b/three",
        "a/b/c/x",
        "d/y",
    ]);
    pair.source.advance(std::time::Duration::from_secs(5));
    pair.source.put("a/one", b"changed");
    pair.source.discard("a/two");
    pair.source.discard("a/old");
    pair.source.put("a/b/three", b"nobody asked for it");
    pair.source.discard("a/b/c");
    pair.source.put_dir("a/new");
    pair.source.put("a/new/deep", b"new");
    pair.source.put("d/y", b"nor for this");
    let entered = pair.source.calls(Call::List);
    let (summary, told) = pair
        .reconcile(chosen("a", Scope::Names))
        .expect("it goes on");
    assert_eq!(told.problems.into_inner().expect("no panic"), [""; 0]);
    assert!(summary.counts.adds_up(), "{:?}", summary.counts);
    assert_eq!(
        summary.counts.deleted, 3,
        "a file, and a directory with another"
    );
    assert_eq!(
        pair.source.calls(Call::List) - entered,
        4,
        "\"a\", before something goes the root and \"a\" once more, and \"a/new\""
    );
    let there = |path: &str| pair.replica.content(path);
    assert_eq!(there("a/one").as_deref(), Some(&b"changed"[..]));
    assert_eq!(there("a/new/deep").as_deref(), Some(&b"new"[..]));
    assert_eq!(there("a/b/three").as_deref(), Some(&b"a/b/three"[..]));
    assert!(pair.replica.meta("a/two").is_none() && pair.replica.meta("a/old").is_none());
    assert!(pair.replica.meta("a/b/c/x").is_some());
    // Chosen together: what is chosen by itself below is looked at, too.
    let works = [
        ("", Scope::Names),
        ("a/b", Scope::Names),
        ("d/y", Scope::Entry),
    ];
    let works = works.map(|(path, scope)| Work {
        path: RelPath::parse(path.as_bytes()).expect("a path"),
        scope,
    });
    let (summary, told) = pair.reconcile(Selection::of(&works)).expect("it goes on");
    assert_eq!(told.problems.into_inner().expect("no panic"), [""; 0]);
    assert!(summary.counts.adds_up(), "{:?}", summary.counts);
    pair.check_equal();
}

#[test]
fn a_directory_that_only_the_source_has_is_copied_with_all_below_it_when_its_names_are_asked_for() {
    let pair = Pair::of(&FILES);
    for path in ["new/x/one", "new/two", "c/new/x/one"] {
        pair.source.put(path, path.as_bytes());
    }
    // Both sides have the name, and not the same kind of entry.
    pair.source.discard("five");
    pair.source.put("five/x/y", b"was a file");
    pair.source.discard("a/b");
    pair.source.put("a/b", b"was a directory");
    pair.look_at("new", Scope::Names);
    for path in ["", "a", "c"] {
        pair.look_at(path, Scope::Names);
    }
    pair.check_equal();
    let works = [("later", Scope::Names), ("later/x", Scope::Entry)];
    pair.source.put("later/x/one", b"later");
    let works = works.map(|(path, scope)| Work {
        path: RelPath::parse(path.as_bytes()).expect("a path"),
        scope,
    });
    let _all = pair.reconcile(Selection::of(&works)).expect("it goes on");
    pair.check_equal();
}

#[test]
fn names_of_a_directory_that_cannot_be_listed_are_no_reason_to_delete() {
    let pair = Pair::of(&FILES);
    pair.source.discard("a/one");
    pair.source.fail(Call::List, "a", errno::EIO, 1);
    let (summary, told) = pair
        .reconcile(chosen("a", Scope::Names))
        .expect("it goes on");
    assert_eq!(summary.counts.deleted, 0);
    assert_eq!(told.problems.lock().expect("no panic").len(), 1);
    pair.look_at("a", Scope::Names);
    pair.check_equal();
}

#[test]
fn a_chosen_path_that_is_gone_goes_from_the_replica_and_only_where_the_policy_deletes() {
    let pair = Pair::of(&FILES);
    for path in ["a/one", "a/b", "five"] {
        pair.source.discard(path);
    }
    let keeping = Policy::default();
    let told = Told::default();
    let kept = pair.trees.reconcile(
        &Arc::new(chosen("a/one", Scope::Entry)),
        &keeping,
        &told,
        &AtomicBool::new(false),
    );
    assert!(kept.is_ok() && pair.replica.meta("a/one").is_some());
    for (path, scope, deleted) in [
        ("a/one", Scope::Entry, 1),
        ("a/b", Scope::Subtree, 2),
        ("five", Scope::Entry, 1),
        ("never/was", Scope::Entry, 0),
    ] {
        let (summary, told) = pair.reconcile(chosen(path, scope)).expect("it goes on");
        assert_eq!(
            (
                summary.counts.deleted,
                told.problems.lock().expect("no panic").len()
            ),
            (deleted, 0),
            "{path}"
        );
    }
    pair.check_equal();
}

#[test]
fn nothing_goes_while_it_cannot_be_told_whether_the_source_has_it() {
    let pair = Pair::of(&FILES);
    pair.source.discard("five");
    for errno in [errno::EIO, errno::EACCES, errno::ESTALE] {
        pair.source.fail(Call::Look, "five", errno, 100);
        let (summary, told) = pair
            .reconcile(chosen("five", Scope::Entry))
            .expect("it goes on");
        pair.source.fail(Call::Look, "five", errno, 0);
        assert_eq!(summary.counts.deleted, 0);
        assert_eq!(told.problems.lock().expect("no panic").len(), 1);
        assert!(pair.replica.meta("five").is_some());
    }
}

#[test]
fn chosen_path_that_vanishes_meanwhile_is_no_problem() {
    let cases = [
        ("five", Scope::Entry, Call::Open, "five"),
        ("a/one", Scope::Entry, Call::Read, "a/one"),
        ("a/b", Scope::Subtree, Call::Enter, "a/b"),
        ("a/b", Scope::Subtree, Call::List, "a/b"),
    ];
    for (path, scope, call, at) in cases {
        let pair = Pair::of(&FILES);
        pair.source.advance(std::time::Duration::from_secs(5));
        pair.source.put("five", b"changed");
        pair.source.put("a/one", b"changed");
        pair.source
            .surprise(call, at, move |tree| tree.discard(path));
        let _changed = pair.look_at(path, scope);
        assert!(pair.replica.meta(path).is_none(), "{call:?} {path}");
    }
}

#[test]
fn replica_that_cannot_show_gone_path_is_told() {
    let pair = Pair::of(&FILES);
    pair.source.discard("five");
    pair.replica.fail(Call::Look, "five", errno::EIO, 100);
    let (summary, told) = pair
        .reconcile(chosen("five", Scope::Entry))
        .expect("it goes on");
    let problems = told.problems.into_inner().expect("no panic");
    assert_eq!((summary.counts.deleted, problems.len()), (0, 1));
    assert!(problems[0].contains("on the replica"), "{problems:?}");
}

#[test]
fn many_are_made_equal_at_the_same_time() {
    let files: Vec<String> = (0..64)
        .map(|index| format!("dir{}/file{index}", index % 5))
        .collect();
    let pair = Pair::of(&files.iter().map(String::as_str).collect::<Vec<_>>());
    pair.source.advance(std::time::Duration::from_secs(5));
    for round in 0..5 {
        files.iter().for_each(|path| {
            pair.source
                .put(path, format!("{round} of {path}").as_bytes())
        });
        std::thread::scope(|scope| {
            for part in files.chunks(16) {
                scope.spawn(|| {
                    part.iter().for_each(|path| {
                        let mut changed = pair.look_at(path, Scope::Entry);
                        // Whoever works beside it touches the directory.
                        changed.retain(|changed| changed.contains("file"));
                        assert_eq!(changed, [path.as_str()]);
                    })
                });
            }
        });
        let (summary, _) = pair.reconcile(Selection::all()).expect("it goes on");
        assert_eq!(
            summary.counts.bytes_copied, 0,
            "all was made equal path by path"
        );
        pair.check_equal();
    }
}

#[test]
fn one_path_by_many_at_the_same_time_is_whole_whoever_is_last() {
    let pair = Pair::of(&FILES);
    for round in 0..20 {
        pair.source
            .put("a/one", format!("content of round {round}").as_bytes());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    pair.reconcile(chosen("a/one", Scope::Entry))
                        .map(drop)
                        .expect("it goes on")
                });
            }
        });
        let _last = pair.look_at("a/one", Scope::Entry);
        pair.check_equal();
    }
}

#[test]
fn a_flush_makes_durable_and_the_next_change_says_that_it_is_not() {
    let pair = Pair::of(&FILES);
    let marks = || pair.replica.calls(Call::Mark);
    let flushes = pair.replica.calls(Call::Flush);
    pair.trees.flush(&Told::default()).expect("it is durable");
    assert!(pair.replica.calls(Call::Flush) > flushes);
    let before = marks();
    assert_eq!(pair.look_at("five", Scope::Entry), Vec::<String>::new());
    assert_eq!(marks(), before, "what changes nothing marks nothing");
    pair.source.put("five", b"changed");
    let _changed = pair.look_at("five", Scope::Entry);
    let marked = marks();
    assert!(marked > before, "the first change after a flush is marked");
    pair.source.put("five", b"changed again");
    let _changed = pair.look_at("five", Scope::Entry);
    assert_eq!(marks(), marked, "and the others are not");
    pair.trees.flush(&Told::default()).expect("it is durable");
    pair.check_equal();
}

#[test]
fn a_disk_that_lies_ends_it() {
    let pair = Pair::of(&FILES);
    pair.source.put("five", b"changed");
    let _changed = pair.look_at("five", Scope::Entry);
    pair.replica.fail(Call::Flush, ANY, errno::EIO, 1);
    assert!(matches!(
        pair.trees.flush(&Told::default()),
        Err(RunError::DiskLied(_))
    ));
    assert!(
        matches!(
            pair.trees.flush(&Told::default()),
            Err(RunError::DiskLied(_))
        ),
        "it does not tell the truth the second time"
    );
    assert!(matches!(
        pair.reconcile(Selection::all()),
        Err(RunError::DiskLied(_))
    ));
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "what is copied is the test's own"
)]
fn a_single_file_is_not_kept_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "content").expect("a file");
    let options = Options {
        source: file.into(),
        replica: folder.path().join("copy").into(),
        ..Options::default()
    };
    assert!(matches!(
        Trees::open(&options, &Told::default(), &MachineClock),
        Err(RunError::NotTrees(_))
    ));
}

/// Entries that others made a moment ago may be in work, and so may those of another thread.
#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "the unfinished entries are the test's own"
)]
fn own_unfinished_entry_of_earlier_trees_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let [source, replica] = ["source", "replica"].map(|name| folder.path().join(name));
    for tree in [&source, &replica] {
        std::fs::create_dir(tree).expect("a directory");
    }
    let put = |name: &CStr| {
        let path = replica.join(OsStr::from_bytes(name.to_bytes()));
        std::fs::write(&path, "half").expect("a file");
        path
    };
    let (own, of_another) = (put(&temp_name()), put(&stable_temp_name(c"file")));
    let options = Options {
        source: source.into(),
        replica: replica.clone().into(),
        is_among_others: Arc::new(AtomicBool::new(true)),
        ..Options::default()
    };
    let trees = Trees::open(&options, &Told::default(), &MachineClock).expect("they can be opened");
    let (opened, name) = (now(), temp_name());
    // The clock of a file system goes on in steps.
    let in_work = loop {
        let path = put(&name);
        let made = std::fs::metadata(&path).expect("it is there");
        if (made.ctime(), made.ctime_nsec()) > (opened.sec, opened.nsec.into()) {
            break path;
        }
    };
    let (all, stop) = (Arc::new(Selection::all()), AtomicBool::new(false));
    let done = trees.reconcile(&all, &mirror(), &Told::default(), &stop);
    assert_eq!(done.expect("it goes on").end, End::Complete);
    let is_there = [own, of_another, in_work].map(|path| path.exists());
    assert_eq!(is_there, [false, true, true]);
}

/// Has the source rename an entry, and then the replica.
fn rename(pair: &Pair, from: &str, to: &str) -> bool {
    pair.source.rename(from, to);
    relocate(pair, (from, to), &mirror())
}

fn relocate(pair: &Pair, (from, to): (&str, &str), policy: &Policy) -> bool {
    let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
    let renamed = Renamed {
        from: path(from),
        to: path(to),
        is_dir: pair.source.content(to).is_none(),
        goes_on: false,
    };
    pair.trees.relocate(&renamed, policy).expect("it goes on")
}

#[test]
fn a_renamed_directory_is_renamed_and_nothing_is_copied_again() {
    let pair = Pair::of(&FILES);
    let made = pair.replica.calls(Call::Create);
    assert!(rename(&pair, "a", "c/d"));
    assert_eq!(pair.look_at("c/d", Scope::Subtree), ["c"]);
    pair.look_at("a", Scope::Entry);
    pair.look_at("c", Scope::Entry);
    pair.check_equal();
    assert_eq!(pair.replica.calls(Call::Create), made);
}

#[test]
fn a_hint_that_is_wrong_renames_nothing() {
    let pair = Pair::of(&FILES);
    pair.source.advance(std::time::Duration::from_secs(5));
    pair.source.put("c/new", b"something else");
    pair.source.put_dir("private");
    pair.source.set_mode("private", 0o700);
    let without_deletes = Policy::default();
    for (from, to, policy) in [
        ("five", "c/new", &mirror()),
        ("a", "private", &mirror()),
        ("a", "c/new", &mirror()),
        ("missing", "a", &mirror()),
        ("a", "nowhere", &mirror()),
        ("five", "five", &without_deletes),
    ] {
        assert!(!relocate(&pair, (from, to), policy), "{from} {to}");
    }
    pair.look_at("", Scope::Subtree);
    pair.check_equal();
}

#[test]
fn a_directory_that_is_gone_stays_for_what_is_in_it_until_all_of_it_is_asked_for() {
    let pair = Pair::of(&FILES);
    pair.source.discard("a");
    let (_, told) = pair
        .reconcile(chosen("a/one", Scope::Entry))
        .expect("it goes on");
    let problems = told.problems.into_inner().expect("no panic");
    assert!(
        problems.len() == 1 && problems[0].contains("\"a\""),
        "{problems:?}"
    );
    assert!(pair.replica.content("a/one").is_some());
    pair.look_at("a", Scope::Subtree);
    pair.check_equal();
}

#[test]
fn what_stood_below_what_is_no_directory_any_more_stays_until_all_of_it_is_asked_for() {
    let pair = Pair::of(&FILES);
    pair.source.advance(std::time::Duration::from_secs(5));
    pair.source.discard("a");
    pair.source.put("a", b"a file now");
    let works = ["a/one", "a/b/three", "a"].map(|path| Work {
        path: RelPath::parse(path.as_bytes()).expect("a path"),
        scope: Scope::Entry,
    });
    for selection in [Selection::of(&works[..1]), Selection::of(&works)] {
        let (_, told) = pair.reconcile(selection).expect("it goes on");
        let problems = told.problems.into_inner().expect("no panic");
        assert!(
            problems.len() == 1 && problems[0].contains("\"a\""),
            "{problems:?}"
        );
        assert!(
            pair.replica.content("a/two").is_some(),
            "nobody asked for it"
        );
    }
    pair.look_at("a", Scope::Subtree);
    pair.check_equal();
}

/// A name of a file that has others, where the replica has a directory with something in it.
#[test]
fn a_further_name_of_a_file_takes_the_place_of_a_directory_when_all_of_it_is_asked_for() {
    for told_first in [&["a"][..], &["a", "five"], &["five", "a"], &["five"]] {
        let pair = Pair::of(&FILES);
        pair.source.advance(std::time::Duration::from_secs(5));
        pair.source.discard("a");
        pair.source.put_link("a", "five");
        let works = told_first.iter().map(|path| Work {
            path: RelPath::parse(path.as_bytes()).expect("a path"),
            scope: Scope::Entry,
        });
        let works: Vec<Work> = works.collect();
        let (_, told) = pair.reconcile(Selection::of(&works)).expect("it goes on");
        let problems = told.problems.into_inner().expect("no panic");
        let is_of_directory = |problem: &String| problem.starts_with("\"a\": cannot remove");
        let of_directory = problems.iter().filter(|one| is_of_directory(one)).count();
        let expected = usize::from(told_first.contains(&"a"));
        assert_eq!(of_directory, expected, "{told_first:?} {problems:?}");
        assert!(
            problems.iter().all(|one| !one.contains("keep hold")),
            "{told_first:?} {problems:?}"
        );
        assert!(
            pair.replica.content("a/one").is_some(),
            "nobody asked for it"
        );
        let whole = ["a", "five"].map(|path| Work {
            path: RelPath::parse(path.as_bytes()).expect("a path"),
            scope: Scope::Subtree,
        });
        let (summary, _) = pair.reconcile(Selection::of(&whole)).expect("it goes on");
        assert_eq!(summary.end, End::Complete, "{told_first:?}");
        pair.check_equal();
        let id = |path: &str| pair.replica.meta(path).expect("it is there").id();
        assert_eq!(id("a"), id("five"), "{told_first:?}");
    }
}
