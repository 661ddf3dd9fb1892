//! Many renames among few names, told again all at once: what they cost is bounded.

use driftless_mirror::dirty::{Circumstance, Dirty, DirtyPaths, Failed, Lane, Move, Taken};
use driftless_model::{Change, Class, Hint, RelPath, Scope};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Renames that are told.
const RENAMES: usize = 1000;
/// The same, each to a new name.
const BURST: usize = 20_000;
/// Changes that are heard of at once.
const BATCH: usize = 50;
/// What is taken and not done.
const BUSY_MAX: usize = 6;
/// The time for all of it, in a build for tests: ten times what it takes.
const WORK_MAX: Duration = Duration::from_millis(500);
/// Paths that may be left: as many as were told, not what renames make of them.
const LEFT_MAX: usize = 2 * RENAMES;

/// One to three levels of five names.
fn any_path(rng: &mut fastrand::Rng) -> RelPath {
    let depth = rng.usize(1..4);
    let names: Vec<[u8; 1]> = (0..depth).map(|_| [rng.u8(b'a'..b'f')]).collect();
    RelPath::from_names(names.iter().map(|name| &name[..]))
}

fn is_near(one: &RelPath, other: &RelPath) -> bool {
    one.is_within(other) || other.is_within(one)
}

fn any_change(rng: &mut fastrand::Rng) -> (Change, Circumstance) {
    let (path, from) = (any_path(rng), any_path(rng));
    let seen = Circumstance {
        is_written: true,
        ..Circumstance::default()
    };
    let change = Change::entry(path);
    if rng.bool() || is_near(&change.path, &from) {
        return (change, seen);
    }
    let scope = match rng.u8(..4) {
        0 => Scope::Entry,
        _ => Scope::Subtree,
    };
    let hint = Some(Hint::MovedFrom(from));
    (
        Change {
            scope,
            hint,
            ..change
        },
        seen,
    )
}

/// The time that this thread has had, whatever else the machine does.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("it does not run backwards")
}

/// What is told at once, with some that fails where work is done in between. Returns how many paths
/// were left at most.
fn told_again(seed: u64, with_work: bool) -> usize {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut dirty = DirtyPaths::new(Duration::from_secs(2));
    let mut now = Duration::from_secs(1000);
    let (mut renames, mut left_max) = (0, 0);
    let mut busy: VecDeque<Taken> = VecDeque::new();
    while renames < RENAMES {
        for _ in 0..BATCH {
            now += Duration::from_micros(10);
            let (change, seen) = any_change(&mut rng);
            renames += usize::from(change.hint.is_some());
            dirty.add(now, change, seen);
        }
        left_max = left_max.max(dirty.len());
        if with_work {
            let lanes = [Lane::Short, Lane::Long, Lane::Walk];
            busy.extend(lanes.map(|lane| dirty.take(now, lane, 200)));
        }
        while busy.len() > BUSY_MAX {
            let taken = busy.pop_front().expect("one");
            let moves = taken.moves.iter().filter(|_| rng.bool());
            let not_moved: Vec<Move> = moves.cloned().collect();
            dirty.not_moved(&not_moved);
            dirty.done(now, taken, &BTreeMap::new());
        }
    }
    left_max
}

#[test]
fn a_thousand_renames_among_few_names_cost_little() {
    for seed in 0..8 {
        let began = worked();
        let left_max = told_again(seed, seed % 2 == 0);
        let took = worked() - began;
        println!("seed {seed}: {took:?}, {left_max} paths at most");
        assert!(took < WORK_MAX, "seed {seed}: {took:?}");
        assert!(left_max < LEFT_MAX, "seed {seed}: {left_max} paths");
    }
}

/// A burst of files of which each takes a name that begins like those before (`log.1`, `log.2` …),
/// below a root that has failed and waits as a whole.
#[test]
fn names_that_begin_alike_cost_little_while_the_root_waits() {
    let mut dirty = DirtyPaths::new(Duration::from_secs(2));
    let mut now = Duration::from_secs(1000);
    dirty.add(
        now,
        Change::subtree(RelPath::root()),
        Circumstance::default(),
    );
    let failed = BTreeMap::from([(RelPath::root(), Failed::Problem(Class::Changing))]);
    for _ in 0..3 {
        now += Duration::from_secs(100);
        let taken = dirty.take(now, Lane::Walk, 1);
        assert!(taken.paths.contains_key(&RelPath::root()));
        dirty.done(now, taken, &failed);
    }
    let began = worked();
    let name = |number: usize| RelPath::from_names([format!("log.{number}").as_bytes()]);
    for number in 0..BURST {
        now += Duration::from_micros(10);
        let moved = Change {
            hint: Some(Hint::MovedFrom(name(number))),
            ..Change::entry(name(number + 1))
        };
        for change in [moved, Change::entry(RelPath::root())] {
            dirty.add(now, change, Circumstance::default());
        }
    }
    let took = worked() - began;
    assert!(took < WORK_MAX, "{took:?}, {} paths", dirty.len());
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

fn rename(dirty: &mut DirtyPaths, now: Duration, from: &str, to: &str, scope: Scope) {
    let moved = Change {
        path: path(to),
        scope,
        hint: Some(Hint::MovedFrom(path(from))),
    };
    dirty.add(now, moved, Circumstance::default());
}

/// Does what is due but for comparisons of the whole tree.
fn do_the_rest(dirty: &mut DirtyPaths, now: Duration) {
    for lane in [Lane::Short, Lane::Long] {
        let taken = dirty.take(now, lane, usize::MAX);
        dirty.done(now, taken, &BTreeMap::new());
    }
}

/// Begins a comparison of the whole tree.
fn begin_walk(dirty: &mut DirtyPaths, now: Duration) -> Taken {
    let whole = Change::subtree(RelPath::root());
    dirty.add(now, whole, Circumstance::default());
    let walk = dirty.take(now, Lane::Walk, 1);
    assert!(walk.paths.contains_key(&RelPath::root()));
    walk
}

/// What is compared after a comparison of the whole tree during which `change` happens.
fn after_a_walk(change: impl FnOnce(&mut DirtyPaths, Duration)) -> BTreeMap<RelPath, Dirty> {
    let mut dirty = DirtyPaths::new(Duration::from_secs(2));
    let mut now = Duration::from_secs(1000);
    let walk = begin_walk(&mut dirty, now);
    now += Duration::from_secs(1);
    change(&mut dirty, now);
    now += Duration::from_secs(60);
    do_the_rest(&mut dirty, now);
    dirty.heard_until(now);
    assert_eq!(dirty.len(), 1, "the comparison alone is left");
    now += Duration::from_secs(60);
    dirty.done(now, walk, &BTreeMap::new());
    dirty.all()
}

/// Names that are compared, with how far below, and whether by their content.
fn told(left: &BTreeMap<RelPath, Dirty>) -> Vec<(RelPath, Scope, bool)> {
    let all = left.iter();
    all.map(|(path, dirty)| (path.clone(), dirty.scope, dirty.is_doubtful))
        .collect()
}

#[test]
fn a_rename_during_a_comparison_concerns_its_names() {
    use Scope::{Entry, Subtree};
    let renames = |renames: &'static [(&str, &str, Scope)]| {
        let left = after_a_walk(|dirty, now| {
            for (from, to, scope) in renames {
                rename(dirty, now, from, to, *scope);
            }
        });
        told(&left)
    };
    let names = |names: &[(&str, Scope, bool)]| -> Vec<(RelPath, Scope, bool)> {
        let names = names.iter();
        names
            .map(|(name, scope, doubt)| (path(name), *scope, *doubt))
            .collect()
    };
    // The comparison may write a copy of the earlier file over that of the later one.
    assert_eq!(
        renames(&[("a/new", "a/file", Entry)]),
        names(&[("a/file", Entry, true), ("a/new", Entry, false)])
    );
    assert_eq!(
        renames(&[("a", "b", Subtree)]),
        names(&[("a", Subtree, true), ("b", Subtree, false)])
    );
    // What stands at a name that has had two entries may look like the other one.
    assert_eq!(
        renames(&[("a", "c", Entry), ("b", "a", Entry), ("c", "b", Entry)]),
        names(&[("a", Entry, true), ("b", Entry, true), ("c", Entry, true)])
    );
    // The doubt goes along with a directory around it.
    let along = renames(&[
        ("a/x", "a/z", Entry),
        ("a/y", "a/x", Entry),
        ("a", "b", Subtree),
    ]);
    for expected in names(&[
        ("b", Subtree, false),
        ("b/x", Entry, true),
        ("b/z", Entry, true),
    ]) {
        assert!(along.contains(&expected), "{expected:?}: {along:?}");
    }
}

#[test]
fn a_file_that_is_written_during_a_comparison_is_compared_by_content() {
    for is_written in [true, false] {
        let left = after_a_walk(|dirty, now| {
            let seen = Circumstance {
                is_written,
                ..Circumstance::default()
            };
            dirty.add(now, Change::entry(path("a/file")), seen);
        });
        assert_eq!(told(&left), [(path("a/file"), Scope::Entry, is_written)]);
    }
}

#[test]
fn a_file_that_is_copied_during_its_rename_is_compared_by_content() {
    let mut dirty = DirtyPaths::new(Duration::from_secs(2));
    let now = Duration::from_secs(1000);
    dirty.add(now, Change::entry(path("file")), Circumstance::default());
    let copied = dirty.take(now, Lane::Short, 1);
    rename(&mut dirty, now, "new", "file", Scope::Entry);
    do_the_rest(&mut dirty, now);
    dirty.done(now, copied, &BTreeMap::new());
    let left = told(&dirty.all());
    assert_eq!(left, [(path("file"), Scope::Entry, true)]);
}

#[test]
fn what_a_rename_takes_out_is_compared_later() {
    let mut dirty = DirtyPaths::new(Duration::from_secs(2));
    let mut now = Duration::from_secs(1000);
    dirty.add(now, Change::subtree(path("a")), Circumstance::default());
    let compared = dirty.take(now, Lane::Long, 1);
    assert!(compared.paths.contains_key(&path("a")));
    for (from, to) in [("a/d", "b/d"), ("b", "c")] {
        rename(&mut dirty, now, from, to, Scope::Subtree);
    }
    now += Duration::from_secs(60);
    do_the_rest(&mut dirty, now);
    dirty.heard_until(now);
    assert_eq!(dirty.len(), 1, "the comparison alone is left");
    dirty.done(now, compared, &BTreeMap::new());
    let left = dirty.all();
    assert!(left.contains_key(&path("c")), "{left:?}");
    assert!(!left.contains_key(&path("a")), "{left:?}");
}

#[test]
fn any_number_of_renames_repeats_a_comparison_once() {
    const RENAMED: usize = 60_000;
    let mut walks = 0;
    let mut dirty = DirtyPaths::new(Duration::from_secs(2));
    let mut now = Duration::from_secs(1000);
    let mut walk = begin_walk(&mut dirty, now);
    for number in 0..RENAMED {
        now += Duration::from_millis(1);
        // Each in a directory of its own.
        let names = ["new", "file"].map(|name| format!("d{number}/{name}"));
        rename(&mut dirty, now, &names[0], &names[1], Scope::Entry);
        if number % 10_000 == 0 {
            dirty.heard_until(now);
            do_the_rest(&mut dirty, now);
        }
    }
    loop {
        now += Duration::from_secs(60);
        do_the_rest(&mut dirty, now);
        dirty.heard_until(now);
        dirty.done(now, walk, &BTreeMap::new());
        walk = dirty.take(now, Lane::Walk, 1);
        walks += 1;
        if walk.is_empty() {
            break;
        }
    }
    assert_eq!(walks, 2, "one comparison and the one that follows");
    do_the_rest(&mut dirty, now);
    assert!(dirty.is_empty(), "{:?}", dirty.all());
}

#[test]
fn names_of_few_directories_are_compared_by_directory() {
    const RENAMED: usize = 52_000;
    let left = after_a_walk(|dirty, now| {
        for number in 0..RENAMED {
            let names = ["new", "file"].map(|name| format!("d{}/{name}{number}", number % 10));
            rename(dirty, now, &names[0], &names[1], Scope::Entry);
            if number % 10_000 == 0 {
                dirty.heard_until(now);
                do_the_rest(dirty, now + Duration::from_secs(2));
            }
        }
    });
    assert!(left.len() < RENAMED, "{} names", left.len());
    assert!(!left.contains_key(&RelPath::root()));
    for number in 0..10 {
        let dir = &left[&path(&format!("d{number}"))];
        assert_eq!(dir.scope, Scope::Names);
    }
}
