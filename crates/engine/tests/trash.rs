//! What a run removes goes into the trash, between trees in memory: where it is found, what stays
//! when a call fails, and that nothing is ever lost.

use driftless_engine::{
    Bin, Date, DeletionDates, Limits, MachineClock, Monitor, Options, Progress, RestoreError,
    Restored, Sizes, Trees, Wanted, restore,
};
use driftless_model::{Policy, Problem, Receipt, RelPath, Selection, errno};
use driftless_tree::fake::{ANY, Call, FakeTree};
use driftless_tree::stable_temp_name;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

    /// Deletes a path, and has the replica follow.
    fn delete(&self, path: &str) {
        self.source.discard(path);
        assert_eq!(self.run().1, Vec::<String>::new(), "{path}");
    }

    /// Restores all of a path; returns the result and the problems that were reported.
    fn restore_told(&self, path: &str) -> (Result<Restored, RestoreError>, Vec<String>) {
        let (told, wanted) = (Told::default(), wanted(path, DeletionDates::All));
        let options = of(&self.replica, &self.source);
        let restored = restore(&options, &wanted, &told, &AtomicBool::new(false));
        (restored, told.0.into_inner().expect("no panic"))
    }

    fn restore(&self, path: &str) -> Result<u64, RestoreError> {
        self.restore_of(path, DeletionDates::All)
            .map(|restored| restored.entries)
    }

    fn restore_of(&self, path: &str, dates: DeletionDates) -> Result<Restored, RestoreError> {
        let wanted = wanted(path, dates);
        let options = of(&self.replica, &self.source);
        let stop = AtomicBool::new(false);
        restore(&options, &wanted, &Told::default(), &stop)
    }

    /// The dates at which a path went, in order.
    fn dates_of(&self, path: &str) -> Vec<Date> {
        let mut dates = Vec::new();
        let bin = Bin::of(&of(&self.source, &self.replica)).expect("a replica");
        bin.for_each(&mut |one| dates.extend((one.path.to_string() == path).then_some(one.date)))
            .expect("it can be listed");
        dates.sort();
        dates
    }

    /// Content of a file of the source.
    fn content(&self, path: &str) -> Option<String> {
        let content = self.source.content(path)?;
        Some(String::from_utf8(content).expect("text"))
    }

    /// Whether some file of the replica has this content, wherever it is.
    fn has(&self, content: &str) -> bool {
        let paths = self.replica.paths().into_iter();
        let mut contents = paths.filter_map(|path| self.replica.content(&path));
        contents.any(|found| found == content.as_bytes())
    }
}

fn wanted(path: &str, dates: DeletionDates) -> Wanted {
    let path = RelPath::parse(path.as_bytes()).expect("a path");
    Wanted {
        to: path.clone(),
        path,
        dates,
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
    assert_eq!(pair.restore("a/b").ok(), None, "a is not there");
    assert_eq!(pair.restore("a").ok(), Some(5));
    assert_eq!(
        pair.source.content("a/b/three").as_deref(),
        Some(&b"a/b/three"[..])
    );
    assert!(matches!(pair.restore("a"), Err(RestoreError::Taken(_))));
    assert!(matches!(
        pair.restore("never"),
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

/// Puts a file into the trash twice: first with all of its directory, then alone.
fn delete_twice(pair: &mut Pair, is_reopened: bool) {
    // The folder of the minute gets a directory that only leads to an entry.
    pair.delete("a/two");
    pair.source.put("a/one", b"older");
    pair.source.advance(Duration::from_secs(5));
    assert_eq!(pair.run(), (0, vec![]));
    pair.delete("a");
    pair.source.put("a/one", b"newer");
    assert_eq!(pair.run(), (0, vec![]));
    if is_reopened {
        let options = of(&pair.source, &pair.replica);
        let trees = Trees::open(&options, &Told::default(), &MachineClock);
        pair.trees = trees.expect("they can be opened");
    }
    pair.delete("a/one");
}

#[test]
fn newer_of_two_deletions_comes_back() {
    for is_reopened in [false, true] {
        let mut pair = Pair::new();
        delete_twice(&mut pair, is_reopened);
        let restored = pair.restore_of("a/one", DeletionDates::All);
        let restored = restored.expect("restored");
        assert_eq!((restored.entries, restored.older), (1, 1));
        assert_eq!(pair.content("a/one").as_deref(), Some("newer"));
    }
}

#[test]
fn pieces_of_a_directory_come_back_together() {
    let pair = Pair::new();
    pair.source.set_mode("a", 0o750);
    pair.source.set_mode("a/b", 0o711);
    assert_eq!(pair.run(), (0, vec![]));
    for path in ["a/one", "a/b/three", "a/b", "a/two"] {
        pair.delete(path);
    }
    let time = pair.replica.meta("a").expect("it is there").mtime;
    pair.delete("a");
    let restored = pair.restore_of("a", DeletionDates::All).expect("restored");
    assert_eq!((restored.entries, restored.pieces), (5, 5));
    assert_eq!((restored.stays, restored.older, restored.made), (0, 0, 0));
    assert!(restored.span.is_some_and(|(first, last)| first < last));
    assert!(restored.dates >= 2, "{restored:?}");
    for path in ["a/one", "a/two", "a/b/three"] {
        assert_eq!(pair.content(path).as_deref(), Some(path));
    }
    let [above, below] = ["a", "a/b"].map(|path| pair.source.meta(path).expect("restored"));
    assert_eq!((above.mode, below.mode), (0o750, 0o711));
    assert_eq!(above.mtime, time);
    assert!(matches!(pair.restore("a"), Err(RestoreError::Taken(_))));
    assert_eq!(pair.run(), (0, vec![]));
}

#[test]
fn pieces_go_into_directories_that_exist() {
    let pair = Pair::new();
    for path in ["a/one", "a/two", "a/b"] {
        pair.delete(path);
    }
    pair.source.put("a/two", b"new");
    pair.source.set_mode("a", 0o700);
    assert_eq!(pair.run(), (0, vec![]));
    let restored = pair.restore_of("a", DeletionDates::All).expect("restored");
    assert_eq!((restored.entries, restored.pieces), (3, 2));
    assert_eq!((restored.stays, restored.older, restored.made), (1, 0, 0));
    assert_eq!(pair.content("a/two").as_deref(), Some("new"));
    assert_eq!(pair.content("a/b/three").as_deref(), Some("a/b/three"));
    assert_eq!(pair.source.meta("a").expect("there").mode, 0o700);
}

#[test]
fn dates_limit_what_comes_back() {
    let pair = Pair::new();
    for content in ["first", "second", "third"] {
        pair.source.put("c/four", content.as_bytes());
        pair.source.advance(Duration::from_secs(5));
        assert_eq!(pair.run(), (0, vec![]));
        pair.delete("c/four");
    }
    let dates = pair.dates_of("c/four");
    assert_eq!(dates.len(), 3);
    let contents = ["first", "second", "third"];
    for (date, content) in dates.iter().zip(contents) {
        let restored = pair.restore_of("c/four", DeletionDates::Only(*date));
        let restored = restored.expect("restored");
        assert_eq!((restored.span, restored.older), (Some((*date, *date)), 0));
        assert_eq!(pair.content("c/four").as_deref(), Some(content));
        pair.source.discard("c/four");
    }
    for (newer, date) in dates.iter().rev().enumerate() {
        let restored = pair.restore_of("c", DeletionDates::Since(*date));
        let restored = restored.expect("restored");
        assert_eq!((restored.entries, restored.older), (1, newer as u64));
        assert_eq!(pair.content("c/four").as_deref(), Some("third"));
        pair.source.discard("c/four");
    }
}

#[test]
fn older_piece_gives_a_directory_its_attributes() {
    let pair = Pair::new();
    pair.source.set_mode("a", 0o750);
    assert_eq!(pair.run(), (0, vec![]));
    let time = pair.replica.meta("a").expect("it is there").mtime;
    pair.delete("a");
    pair.source.put("a/new", b"new");
    assert_eq!(pair.run(), (0, vec![]));
    pair.delete("a/new");
    pair.source.discard("a");
    let restored = pair.restore_of("a", DeletionDates::All).expect("restored");
    assert_eq!((restored.entries, restored.pieces), (6, 2));
    assert_eq!((restored.dates, restored.older, restored.made), (2, 0, 0));
    let above = pair.source.meta("a").expect("restored");
    // The rights that it had with the newer file in it are unknown.
    assert_eq!((above.mode, above.mtime), (0o700, time));
    for (path, content) in [("a/new", "new"), ("a/b/three", "a/b/three")] {
        assert_eq!(pair.content(path).as_deref(), Some(content));
    }
}

#[test]
fn directories_that_the_trash_lacks_are_closed() {
    let pair = Pair::new();
    pair.delete("a/b/three");
    pair.source.rename("a", "moved");
    assert_eq!(pair.run().1, Vec::<String>::new());
    let date = pair.dates_of("a/b/three")[0];
    let restored = pair.restore_of("a", DeletionDates::Only(date));
    let restored = restored.expect("restored");
    assert_eq!((restored.entries, restored.made), (1, 2));
    assert_eq!(pair.content("a/b/three").as_deref(), Some("a/b/three"));
    assert_eq!(pair.source.meta("a/b").expect("made").mode & 0o077, 0);
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
fn entry_without_room_is_no_success() {
    let pair = Pair::new();
    pair.delete("a");
    pair.source.fail(Call::Write, ANY, errno::ENOSPC, u64::MAX);
    let (restored, told) = pair.restore_told("a");
    assert!(
        matches!(restored, Err(RestoreError::Incomplete(_))),
        "{restored:?}"
    );
    for path in ["a/one", "a/two", "a/b/three"] {
        assert!(told.iter().any(|line| line.contains(path)), "{told:?}");
    }
    assert_eq!(pair.gone(), [("a".to_owned(), 5)], "the trash keeps all");
    let stays = pair.source.paths();
    assert!(
        stays.iter().all(|path| !path.starts_with('a')),
        "nothing has a name: {stays:?}"
    );
}

#[test]
fn restored_directory_gets_common_rights() {
    for (older, newer, common) in [
        (0o700, 0o755, 0o700),
        (0o755, 0o700, 0o700),
        (0o750, 0o705, 0o700),
        (0o777, 0o1777, 0o1777),
        // The trash has leading directories of this mode.
        (0o777, 0o1700, 0o700),
    ] {
        let pair = Pair::new();
        pair.source.set_mode("a/b", older);
        assert_eq!(pair.run(), (0, vec![]));
        pair.delete("a");
        pair.source.put("a/b/new", b"new");
        pair.source.set_mode("a/b", newer);
        assert_eq!(pair.run(), (0, vec![]));
        pair.delete("a");
        let restored = pair.restore_of("a", DeletionDates::All).expect("restored");
        assert_eq!((restored.entries, restored.pieces), (6, 2));
        let mode = pair.source.meta("a/b").expect("restored").mode;
        assert_eq!(mode, common, "{older:o} {newer:o}: {mode:o}");
    }
}

#[test]
fn older_deletion_never_widens_a_closed_directory() {
    let pair = Pair::new();
    pair.source.set_mode("a", 0o777);
    assert_eq!(pair.run(), (0, vec![]));
    pair.delete("a");
    pair.source.put("a/secret", b"secret");
    // As a leading directory of the trash.
    pair.source.set_mode("a", 0o1700);
    assert_eq!(pair.run(), (0, vec![]));
    pair.delete("a");
    pair.restore("a").expect("restored");
    assert_eq!(pair.content("a/secret").as_deref(), Some("secret"));
    let mode = pair.source.meta("a").expect("restored").mode;
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn older_piece_without_content_narrows_nothing() {
    let pair = Pair::new();
    pair.source.set_mode("c", 0o700);
    assert_eq!(pair.run(), (0, vec![]));
    pair.delete("c");
    pair.source.put("c/four", b"newer");
    pair.source.set_mode("c", 0o755);
    assert_eq!(pair.run(), (0, vec![]));
    pair.delete("c");
    let restored = pair.restore_of("c", DeletionDates::All).expect("restored");
    assert_eq!((restored.entries, restored.older), (2, 1));
    assert_eq!(pair.source.meta("c").expect("restored").mode, 0o755);
}

#[test]
fn each_entry_that_gets_no_name_is_named() {
    let pair = Pair::new();
    for path in ["a/one", "a/two"] {
        pair.delete(path);
    }
    pair.source
        .fail(Call::Rename, "a/one", errno::EIO, u64::MAX);
    let (restored, told) = pair.restore_told("a");
    let restored = restored.expect("some of it");
    assert_eq!((restored.entries, restored.problems), (1, 1));
    assert!(told.iter().any(|line| line.contains("a/one")), "{told:?}");
    assert_eq!(pair.content("a/two").as_deref(), Some("a/two"));
    pair.source.fail(Call::Rename, ANY, errno::EIO, u64::MAX);
    let (restored, _) = pair.restore_told("a/one");
    assert!(restored.is_err(), "{restored:?}");
    let left = |path: &String| path.contains("driftless");
    assert!(!pair.source.paths().iter().any(left));
}

#[test]
fn each_unreadable_directory_is_named() {
    let pair = Pair::new();
    for path in ["a/b/three", "a/one", "c/four"] {
        pair.delete(path);
    }
    let unread = [("a/b", "a/b/three"), ("a", "a/one")].map(|(path, below)| {
        let date = pair.dates_of(below)[0];
        format!(".driftless-trash/{date}/{path}")
    });
    for path in &unread {
        pair.replica.fail(Call::List, path, errno::EIO, u64::MAX);
    }
    let (restored, told) = pair.restore_told("a");
    assert!(
        matches!(restored, Err(RestoreError::Incomplete(_))),
        "{restored:?}"
    );
    assert!(told.iter().any(|line| line.contains("\"a\"")), "{told:?}");
    assert_eq!(pair.content("a/one"), None);
}

/// Gives the folder of the only deletion a date that is long ago; returns the folder.
fn make_old(pair: &Pair, path: &str) -> String {
    let date = pair.dates_of(path)[0];
    let folder = ".driftless-trash/2020-01-01T000000Z".to_owned();
    pair.replica
        .rename(&format!(".driftless-trash/{date}"), &folder);
    folder
}

fn expiry() -> Limits {
    Limits {
        age: Some(Duration::from_secs(86_400)),
        bytes: None,
    }
}

#[test]
fn half_purged_folder_is_no_date() {
    let mut partly = 0;
    for calls in 0..20 {
        let pair = Pair::new();
        pair.delete("a");
        make_old(&pair, "a");
        let bin = Bin::of(&of(&pair.source, &pair.replica)).expect("a replica");
        let asked = AtomicU64::new(0);
        let is_over = || asked.fetch_add(1, Ordering::Relaxed) >= calls;
        let stopped = bin.purge(expiry(), &mut Sizes::default(), &is_over);
        let removed = stopped.expect("it can be listed").removed;
        let is_listed = pair.gone() == told(&[("a", 5)]);
        assert!(is_listed || pair.gone().is_empty(), "{calls}");
        partly += u64::from((1..5).contains(&removed));
        match pair.restore("a") {
            Ok(restored) => assert!(is_listed && restored == 5, "{calls}"),
            Err(RestoreError::NotThere(..)) => assert!(!is_listed, "{calls}"),
            Err(error) => panic!("{calls}: {error}"),
        }
        let purged = bin.purge(expiry(), &mut Sizes::default(), &|| false);
        let purged = purged.expect("it can be listed");
        assert_eq!((removed + purged.removed, purged.left.entries), (5, 0));
        let left = |path: &String| path.starts_with(".driftless-trash/2");
        assert!(!pair.replica.paths().iter().any(left), "{calls}");
    }
    assert!(partly > 0, "no purge ended in the middle");
}

#[test]
fn full_disk_does_not_stop_a_purge() {
    let pair = Pair::new();
    pair.delete("a");
    let folder = make_old(&pair, "a");
    pair.replica
        .fail(Call::Rename, ANY, errno::ENOSPC, u64::MAX);
    let bin = Bin::of(&of(&pair.source, &pair.replica)).expect("a replica");
    let purged = bin.purge(expiry(), &mut Sizes::default(), &|| false);
    assert_eq!(purged.expect("it can be listed").removed, 5);
    assert!(pair.replica.meta(&folder).is_none());
}

#[test]
fn restore_notices_a_purge_that_begins_meanwhile() {
    for is_there in [false, true] {
        let pair = Pair::new();
        pair.delete("a");
        let folder = make_old(&pair, "a");
        if is_there {
            pair.source.put_dir("a/b");
        }
        let listed = format!("{folder}/a/b");
        let expired = format!("{folder}.expired-0");
        pair.replica.surprise(Call::List, &listed, move |tree| {
            tree.rename(&folder, &expired);
            tree.discard(&format!("{expired}/a/b/three"));
        });
        let (restored, told) = pair.restore_told("a");
        assert!(
            matches!(restored, Err(RestoreError::Incomplete(_))),
            "{restored:?}"
        );
        assert!(!told.is_empty());
        assert_eq!(pair.content("a/one"), None);
    }
}

#[test]
fn merged_directories_keep_hard_links() {
    // Deleted as one piece, or each name for itself.
    for pieces in [&["a"][..], &["a/one", "a/b/link"]] {
        let pair = Pair::new();
        pair.source.put_link("a/b/link", "a/one");
        assert_eq!(pair.run(), (0, vec![]));
        for piece in pieces {
            pair.delete(piece);
        }
        pair.source.put_dir("a/b");
        pair.restore("a").expect("restored");
        let [one, link] =
            ["a/one", "a/b/link"].map(|path| pair.source.meta(path).expect("restored"));
        assert_eq!((one.ino, one.nlink), (link.ino, 2), "{pieces:?}");
    }
}

#[test]
fn directory_made_meanwhile_is_not_counted() {
    let pair = Pair::new();
    pair.delete("a");
    let room = stable_temp_name(c"restore");
    let staging = format!(".driftless-trash/{}", room.to_str().expect("text"));
    pair.source.surprise(Call::Flush, &staging, |tree| {
        tree.put_dir("a/b");
        tree.put("a/one", b"newer");
    });
    let restored = pair.restore_of("a", DeletionDates::All).expect("restored");
    assert_eq!((restored.entries, restored.stays), (2, 3));
    assert_eq!(pair.content("a/one").as_deref(), Some("newer"));
}

#[test]
fn interrupted_restore_says_that_it_was() {
    let pair = Pair::new();
    pair.delete("a");
    let (wanted, stop) = (wanted("a", DeletionDates::All), AtomicBool::new(true));
    let options = of(&pair.replica, &pair.source);
    let told = Told::default();
    let restored = restore(&options, &wanted, &told, &stop);
    assert!(
        matches!(restored, Err(RestoreError::Interrupted(_))),
        "{restored:?}"
    );
    assert!(told.0.lock().expect("no panic").is_empty());
}

#[test]
fn next_restore_removes_what_a_killed_one_left() {
    let pair = Pair::new();
    pair.delete("a");
    let room = stable_temp_name(c"restore");
    let room = room.to_str().expect("text");
    let left = format!(".driftless-trash/{room}/a/one");
    pair.source.put(&left, b"half of it");
    assert_eq!(pair.restore("a").ok(), Some(5));
    let is_left = |path: &String| path.contains("driftless");
    assert!(!pair.source.paths().iter().any(is_left));
    assert_eq!(pair.content("a/one").as_deref(), Some("a/one"));
}

#[test]
fn pieces_many_levels_down_come_back() {
    const LEVELS: usize = 150;
    let pair = Pair::new();
    let dirs: Vec<String> = (0..LEVELS)
        .map(|level| vec!["d"; level + 1].join("/"))
        .collect();
    for dir in &dirs {
        pair.source.put(&format!("{dir}/file"), dir.as_bytes());
    }
    assert_eq!(pair.run(), (0, vec![]));
    for dir in &dirs {
        pair.source.discard(&format!("{dir}/file"));
    }
    assert_eq!(pair.run(), (LEVELS as u64, vec![]));
    // Into directories that exist, and without them.
    for is_there in [true, false] {
        let restored = pair.restore_of("d", DeletionDates::All).expect("restored");
        assert_eq!(restored.entries, LEVELS as u64);
        assert_eq!(restored.made > 0, !is_there);
        for dir in &dirs {
            assert_eq!(
                pair.content(&format!("{dir}/file")).as_deref(),
                Some(&**dir)
            );
        }
        pair.source.discard("d");
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
