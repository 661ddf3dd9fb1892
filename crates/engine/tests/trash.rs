//! What a run removes goes into the trash, between trees in memory: where it is found, what stays
//! when a call fails, and that nothing is ever lost.

use driftless_engine::{
    Bin, Date, Limits, MachineClock, Monitor, Options, Progress, RestoreError, Sizes, Trees,
    Wanted, restore,
};
use driftless_model::{Policy, Problem, Receipt, RelPath, Selection, errno};
use driftless_tree::fake::{Call, FakeTree};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FILES: [&str; 5] = ["a/one", "a/two", "a/b/three", "c/four", "five"];

/// Keeps what is told.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Monitor for Told {
    fn wants_receipts(&self) -> bool {
        false
    }

    fn receipt(&self, _receipt: &Receipt) {}

    fn problem(&self, problem: &Problem) {
        self.0.lock().expect("no panic").push(problem.to_string());
    }

    fn progress(&self, _progress: &Progress) {}
}

/// Two trees that were equal.
struct Pair {
    source: FakeTree,
    replica: FakeTree,
    trees: Trees,
}

impl Pair {
    fn new() -> Pair {
        let (source, replica) = (FakeTree::new("here"), FakeTree::new("there"));
        for path in FILES {
            source.put(path, path.as_bytes());
        }
        let trees = Trees::open(&of(&source, &replica), &Told::default(), &MachineClock);
        let pair = Pair {
            source,
            replica,
            trees: trees.expect("they can be opened"),
        };
        assert_eq!(pair.run(), (0, vec![]));
        pair
    }

    /// Makes all equal; how many entries were deleted, and what went wrong.
    fn run(&self) -> (u64, Vec<String>) {
        let (told, stop) = (Told::default(), AtomicBool::new(false));
        let policy = Policy {
            delete: true,
            trash: true,
            ..Policy::default()
        };
        let all = Arc::new(Selection::all());
        let summary = self.trees.reconcile(&all, &policy, &told, &stop);
        let counts = summary.expect("it goes on").counts;
        assert!(counts.adds_up(), "{counts:?}");
        (counts.deleted, told.0.into_inner().expect("no panic"))
    }

    /// The paths of what is in the trash, with how many entries each is.
    fn gone(&self) -> Vec<(String, u64)> {
        let mut gone = Vec::new();
        let bin = Bin::of(&of(&self.source, &self.replica)).expect("a replica");
        bin.for_each(&mut |one| gone.push((one.path.to_string(), one.size.entries)))
            .expect("it can be listed");
        gone.sort();
        gone
    }

    fn restore(&self, path: &str, date: Option<Date>) -> Result<u64, RestoreError> {
        let path = RelPath::parse(path.as_bytes()).expect("a path");
        let wanted = Wanted {
            to: path.clone(),
            path,
            date,
        };
        let options = of(&self.replica, &self.source);
        let stop = AtomicBool::new(false);
        restore(&options, &wanted, &Told::default(), &stop).map(|counts| counts.changed)
    }

    /// Whether some file of the replica has this content, wherever it is.
    fn has(&self, content: &str) -> bool {
        let paths = self.replica.paths().into_iter();
        let mut contents = paths.filter_map(|path| self.replica.content(&path));
        contents.any(|found| found == content.as_bytes())
    }
}

fn of(source: &FakeTree, replica: &FakeTree) -> Options {
    Options {
        source: source.endpoint(),
        replica: replica.endpoint(),
        ..Options::default()
    }
}

fn told(gone: &[(&str, u64)]) -> Vec<(String, u64)> {
    gone.iter()
        .map(|(path, entries)| ((*path).to_owned(), *entries))
        .collect()
}

#[test]
fn what_is_deleted_counts_as_such_and_comes_back() {
    let pair = Pair::new();
    pair.source.discard("a");
    pair.source.discard("five");
    assert_eq!(pair.run(), (6, vec![]));
    assert_eq!(pair.gone(), told(&[("a", 5), ("five", 1)]));
    assert_eq!(pair.run(), (0, vec![]), "the trash is none of the tree");
    assert_eq!(pair.restore("a/b", None).ok(), None, "a is not there");
    assert_eq!(pair.restore("a", None).ok(), Some(5));
    assert_eq!(
        pair.source.content("a/b/three").as_deref(),
        Some(&b"a/b/three"[..])
    );
    assert!(matches!(
        pair.restore("a", None),
        Err(RestoreError::Taken(_))
    ));
    assert!(matches!(
        pair.restore("never", None),
        Err(RestoreError::NotThere(..))
    ));
    assert!(
        !pair
            .source
            .paths()
            .iter()
            .any(|path| path.contains("driftless"))
    );
    assert_eq!(pair.run(), (0, vec![]));
}

#[test]
fn the_same_name_is_kept_each_time() {
    let pair = Pair::new();
    for content in ["first", "second", "third"] {
        pair.source.put("a/b/three", content.as_bytes());
        pair.source.advance(Duration::from_secs(5));
        pair.run();
        pair.source.discard("a/b");
        assert_eq!(pair.run().0, 2);
    }
    pair.source.discard("a");
    assert_eq!(pair.run().0, 3);
    let all = told(&[("a", 3), ("a/b", 2), ("a/b", 2), ("a/b", 2)]);
    assert_eq!(pair.gone(), all);
    assert!(
        ["first", "second", "third", "a/one"]
            .iter()
            .all(|content| pair.has(content))
    );
}

#[test]
fn where_a_call_fails_nothing_is_lost() {
    for (call, path) in [
        (Call::Rename, "five"),
        (Call::Rename, "a"),
        (Call::MakeDir, ".driftless-trash"),
        (Call::Set, ""),
        (Call::Enter, "a"),
        (Call::List, "a/b"),
        (Call::Look, "five"),
    ] {
        for errno in [errno::EXDEV, errno::EACCES, errno::ENOSPC, errno::EIO] {
            let pair = Pair::new();
            pair.source.discard("a");
            pair.source.discard("five");
            pair.replica.fail(call, path, errno, 1);
            let _some_stays = pair.run();
            let lost = FILES.iter().find(|content| !pair.has(content));
            assert_eq!(lost, None, "{call:?} {path} {errno}");
            pair.run();
            let is_there = |path: &str| pair.replica.meta(path).is_some();
            let stays = ["a", "five"].iter().any(|path| is_there(path));
            let lost = FILES.iter().find(|content| !pair.has(content));
            assert!(!stays && lost.is_none(), "{call:?} {path} {errno}");
        }
    }
}

#[test]
fn what_another_kind_takes_the_place_of_is_kept() {
    let pair = Pair::new();
    for path in ["a", "five"] {
        pair.source.discard(path);
    }
    pair.source.put("a", b"now a file");
    pair.source.put("five/in", b"in what was a file");
    let (_, problems) = pair.run();
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(pair.gone(), told(&[("a", 5), ("five", 1)]));
    assert!(FILES.iter().all(|content| pair.has(content)));
    assert_eq!(
        pair.replica.content("a").as_deref(),
        Some(&b"now a file"[..])
    );
    assert_eq!(pair.run(), (0, vec![]));
}

#[test]
fn what_is_young_is_not_purged() {
    let pair = Pair::new();
    pair.source.discard("a");
    pair.run();
    let bin = Bin::of(&of(&pair.source, &pair.replica)).expect("a replica");
    let limits = Limits {
        age: Some(Duration::from_secs(3600)),
        bytes: Some(0),
    };
    let purged = bin.purge(limits, &mut Sizes::default(), &|| false);
    let purged = purged.expect("it can be listed");
    assert_eq!((purged.removed, purged.left.entries), (0, 5));
}
