//! Runs between trees in memory: every call can fail, the source can change at any moment, and what
//! is asked is counted.

use driftless_engine::{Counts, End, Monitor, Options, Progress, Summary, sync};
use driftless_model::DeleteLimit;
use driftless_model::{Meta, Policy, Problem, Receipt, errno};
use driftless_tree::fake::{ANY, Call, FakeTree};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// Keeps what is told.
#[derive(Default)]
struct Told {
    problems: Mutex<Vec<String>>,
}

impl Monitor for Told {
    fn wants_receipts(&self) -> bool {
        false
    }

    fn receipt(&self, _receipt: &Receipt) {}

    fn problem(&self, problem: &Problem) {
        self.problems
            .lock()
            .expect("no panic")
            .push(problem.to_string());
    }

    fn progress(&self, _progress: &Progress) {}
}

/// What [`Trees::filled`] has in it, the root included.
const ENTRIES: u64 = 10;

/// A source and its replica.
struct Trees {
    source: FakeTree,
    replica: FakeTree,
    options: Options,
}

impl Trees {
    fn new() -> Trees {
        let (source, replica) = (FakeTree::new("here"), FakeTree::new("there"));
        let options = Options {
            source: source.endpoint(),
            replica: replica.endpoint(),
            ..Options::default()
        };
        Trees {
            source,
            replica,
            options,
        }
    }

    /// With a bit of everything in the source.
    fn filled() -> Trees {
        let trees = Trees::new();
        trees.source.put("a/file", b"content");
        trees.source.put("a/b/deep", b"deeper");
        trees.source.put("empty", b"");
        trees.source.put_dir("c");
        trees.source.put_symlink("link", "a/file");
        trees.source.put("one", b"of two names");
        trees.source.put_link("a/other", "one");
        trees.source.set_mode("a/b", 0o2750);
        trees
    }

    fn run(&self) -> (Summary, Vec<String>) {
        let told = Told::default();
        let summary = sync(&self.options, &told, &AtomicBool::new(false)).expect("it begins");
        (summary, told.problems.into_inner().expect("no panic"))
    }

    /// A run that ends well and leaves the trees equal.
    fn run_equal(&self) -> Counts {
        let (summary, problems) = self.run();
        assert_eq!((&summary.end, &problems[..]), (&End::Complete, &[][..]));
        self.check_equal("");
        summary.counts
    }

    /// What of two trees has to agree, of all entries.
    fn told(tree: &FakeTree) -> Vec<(String, Option<Vec<u8>>, impl PartialEq + std::fmt::Debug)> {
        let of = |meta: Meta| {
            (
                meta.kind, meta.mode, meta.uid, meta.gid, meta.size, meta.mtime,
            )
        };
        let all = tree.paths().into_iter();
        all.map(|path| {
            let (content, meta) = (tree.content(&path), tree.meta(&path).map(of));
            (path, content, meta)
        })
        .collect()
    }

    fn is_equal(&self) -> bool {
        let links = [&self.source, &self.replica].map(|tree| {
            tree.meta("one")
                .map(|one| Some(one.ino) == tree.meta("a/other").map(|other| other.ino))
        });
        Trees::told(&self.source) == Trees::told(&self.replica) && links[0] == links[1]
    }

    fn check_equal(&self, context: &str) {
        assert!(
            self.is_equal(),
            "{context}: {:#?}\n{:#?}",
            Trees::told(&self.source),
            Trees::told(&self.replica)
        );
    }
}

#[test]
fn a_replica_becomes_equal_and_a_second_run_finds_nothing_to_do() {
    let trees = Trees::filled();
    let first = trees.run_equal();
    assert_eq!((first.seen, first.changed), (ENTRIES, ENTRIES));
    let again = trees.run_equal();
    assert_eq!(
        (again.seen, again.changed, again.same),
        (ENTRIES, 0, ENTRIES)
    );
    let (looks, changes) = (
        trees.replica.calls(Call::Look),
        trees.replica.calls(Call::Set),
    );
    let _third = trees.run_equal();
    assert_eq!(
        trees.replica.calls(Call::Set),
        changes,
        "nothing is set where nothing differs"
    );
    let more = trees.replica.calls(Call::Look) - looks;
    assert!(more <= 3 * ENTRIES, "{more} looks at so few entries");
}

#[test]
fn nothing_of_the_source_is_ever_changed() {
    let trees = Trees::filled();
    let before = format!("{:?}", Trees::told(&trees.source));
    let _copied = trees.run_equal();
    for call in [
        Call::Create,
        Call::MakeDir,
        Call::MakeNode,
        Call::Link,
        Call::Write,
        Call::Set,
        Call::Rename,
        Call::Remove,
        Call::Mark,
    ] {
        let reads = if call == Call::Mark { 1 } else { 0 };
        assert!(trees.source.calls(call) <= reads, "{call:?}");
    }
    assert_eq!(format!("{:?}", Trees::told(&trees.source)), before);
}

/// Each call about each entry, of either tree, fails once: what is not equal then is told, and the
/// next run mends it.
#[test]
fn a_call_that_fails_once_is_told_or_made_up_for_and_the_next_run_mends_the_rest() {
    const PATHS: [&str; 10] = [
        "", "a", "a/b", "a/b/deep", "a/file", "a/other", "c", "link", "one", ANY,
    ];
    const SOURCE: [Call; 5] = [Call::Enter, Call::List, Call::Look, Call::Open, Call::Read];
    const REPLICA: [Call; 9] = [
        Call::Enter,
        Call::Look,
        Call::MakeDir,
        Call::Create,
        Call::MakeNode,
        Call::Link,
        Call::Write,
        Call::Set,
        Call::Rename,
    ];
    let mut failed = 0;
    for (of_source, calls) in [(true, &SOURCE[..]), (false, &REPLICA[..])] {
        for (call, path) in calls
            .iter()
            .flat_map(|call| PATHS.map(|path| (*call, path)))
            .filter(|(call, path)| !path.is_empty() || *call == Call::List)
        {
            for (errno, is_first) in [
                (errno::EIO, true),
                (errno::EACCES, true),
                (errno::EIO, false),
            ] {
                let context = format!(
                    "{call:?} of {path:?} on the {}, {errno}, first {is_first}",
                    if of_source { "source" } else { "replica" }
                );
                let trees = Trees::filled();
                if !is_first {
                    let _copied = trees.run_equal();
                    trees.source.put("a/file", b"other content");
                    trees.source.put("a/b/new", b"new");
                }
                let tree = if of_source {
                    &trees.source
                } else {
                    &trees.replica
                };
                tree.fail(call, path, errno, 1);
                let (summary, problems) = trees.run();
                failed += u64::from(!problems.is_empty());
                assert_eq!(summary.end, End::Complete, "{context}");
                assert!(
                    !problems.is_empty() || trees.is_equal(),
                    "{context}: {:#?}",
                    Trees::told(&trees.replica)
                );
                let _mended = trees.run();
                trees.check_equal(&context);
            }
        }
    }
    assert!(
        failed > 60,
        "only {failed} of them were told: the test has lost its grip"
    );
}

#[test]
fn a_source_that_changes_while_it_is_copied_is_copied_as_it_is_at_last() {
    let cases: [(Call, &str, fn(&FakeTree)); 9] = [
        (Call::Read, "a/file", |tree| {
            tree.put("a/file", b"changed while it was read")
        }),
        (Call::Open, "a/b/deep", |tree| {
            tree.put("a/b/deep", b"changed before it was opened")
        }),
        (Call::List, "a", |tree| {
            tree.put("a/late", b"made before the listing")
        }),
        (Call::Open, "one", |tree| {
            tree.put("a/late", b"made after the listing")
        }),
        (Call::Read, "a/file", |tree| tree.discard("a/file")),
        (Call::Open, "a/b/deep", |tree| tree.discard("a/b")),
        (Call::Open, "a/file", |tree| {
            tree.discard("a/file");
            tree.put_dir("a/file");
        }),
        (Call::Read, "link", |tree| {
            tree.discard("link");
            tree.put("link", b"a file now");
        }),
        (Call::Enter, "c", |tree| {
            tree.discard("c");
            tree.put_symlink("c", "elsewhere");
        }),
    ];
    for (number, (call, path, change)) in cases.into_iter().enumerate() {
        let trees = Trees::filled();
        trees.source.surprise(call, path, change);
        let (summary, problems) = trees.run();
        assert_eq!(
            (summary.end, &problems[..]),
            (End::Complete, &[][..]),
            "{number}"
        );
        // What went meanwhile is there still.
        let trees = Trees {
            options: Options {
                policy: Policy {
                    delete: true,
                    ..Policy::default()
                },
                ..trees.options.clone()
            },
            ..trees
        };
        let _gone_now = trees.run_equal();
    }
}

#[test]
fn directory_made_meanwhile_is_compared() {
    let mut trees = Trees::filled();
    trees.options.policy.delete = true;
    trees.replica.surprise(Call::MakeDir, "a", |tree| {
        tree.put("a/file", b"another");
        tree.put("a/b/extraneous", b"");
    });
    let _equal = trees.run_equal();
}

#[test]
fn nothing_is_removed_where_the_source_could_not_be_listed_or_looked_at() {
    for (call, path) in [
        (Call::List, "a"),
        (Call::Enter, "a"),
        (Call::Look, "a"),
        (Call::Look, "a/extra"),
    ] {
        let mut trees = Trees::filled();
        trees.options.policy.delete = true;
        let _copied = trees.run_equal();
        trees.replica.put("a/extra", b"only here");
        trees.source.fail(call, path, errno::EIO, u64::MAX);
        let (_, problems) = trees.run();
        assert!(!problems.is_empty(), "{call:?} {path}");
        assert!(
            trees.replica.content("a/extra").is_some() && trees.replica.content("a/file").is_some(),
            "{call:?} {path}"
        );
    }
}

#[test]
fn what_the_source_lacks_goes_only_when_that_was_asked_for_and_within_the_limit() {
    let cases: [(bool, Option<DeleteLimit>, bool, End); 3] = [
        (false, None, true, End::Complete),
        (true, None, false, End::Complete),
        (
            true,
            Some(DeleteLimit::Count(1)),
            true,
            End::Refused(String::new()),
        ),
    ];
    for (delete, limit, stays, end) in cases {
        let mut trees = Trees::filled();
        let _copied = trees.run_equal();
        (
            trees.options.policy.delete,
            trees.options.policy.delete_limit,
        ) = (delete, limit);
        trees.replica.put("a/extra/within", b"only here");
        let (summary, problems) = trees.run();
        assert_eq!(
            std::mem::discriminant(&summary.end),
            std::mem::discriminant(&end),
            "{:?}",
            summary.end
        );
        assert_eq!(
            (
                trees.replica.content("a/extra/within").is_some(),
                &problems[..]
            ),
            (stays, &[][..])
        );
    }
}

#[test]
fn what_went_from_the_source_between_the_listing_and_the_delete_and_came_back_stays() {
    let mut trees = Trees::filled();
    trees.options.policy.delete = true;
    let _copied = trees.run_equal();
    trees.source.discard("a/file");
    // Nobody looks at a name that was not listed but whoever is about to remove it.
    let source = trees.source.clone();
    trees.source.surprise(Call::Look, "a/file", move |_| {
        source.put("a/file", b"back again")
    });
    let (_, problems) = trees.run();
    assert!(trees.replica.content("a/file").is_some(), "{problems:?}");
    let _looked_at_again = trees.run_equal();
}
