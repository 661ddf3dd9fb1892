//! A file that is changed while it is copied: it comes again at its own pace, and is no failure.

use driftless_mirror::dirty::{Circumstance, DirtyPaths, Failed, Lane};
use driftless_model::{Change, Class, RelPath};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a copy takes.
const COPY: Duration = Duration::from_millis(5);
const STEP: Duration = Duration::from_millis(2);
const PATHS_MAX: usize = 100;

fn log() -> RelPath {
    RelPath::parse(b"log").unwrap()
}

fn changing() -> BTreeMap<RelPath, Failed> {
    BTreeMap::from([(log(), Failed::Problem(Class::Changing))])
}

fn add(dirty: &mut DirtyPaths, now: Duration) {
    dirty.add(now, Change::entry(log()), Circumstance::default());
}

#[test]
fn a_log_that_is_written_to_all_the_time_is_copied_a_few_times_and_never_in_quarantine() {
    let mut dirty = DirtyPaths::new(Duration::from_secs(2));
    let (mut now, end) = (Duration::from_secs(1000), Duration::from_secs(1020));
    let mut copies = 0;
    while now < end {
        add(&mut dirty, now);
        let taken = dirty.take(now, Lane::Short, PATHS_MAX);
        if !taken.paths.is_empty() {
            copies += 1;
            add(&mut dirty, now + STEP);
            now += COPY;
            dirty.done(now, taken, &changing());
        }
        assert_eq!(dirty.quarantined().count(), 0);
        now += STEP;
    }
    assert!((5..=15).contains(&copies), "{copies}");
    // Its last state is copied soon after that.
    let due = dirty.next_due().unwrap();
    assert!(due < end + Duration::from_secs(15), "{due:?}");
    let taken = dirty.take(due, Lane::Short, PATHS_MAX);
    let waited = dirty.done(due, taken, &BTreeMap::new());
    assert_eq!(waited.len(), 1);
    assert!(dirty.is_empty());
}

#[test]
fn a_change_that_is_heard_of_after_the_first_failure_explains_it() {
    let mut dirty = DirtyPaths::new(Duration::from_secs(2));
    let now = Duration::from_secs(1000);
    for (times, is_at_once) in [(1, true), (2, false)] {
        add(&mut dirty, now);
        for _ in 0..times {
            let due = dirty.next_due().unwrap();
            let taken = dirty.take(due, Lane::Short, PATHS_MAX);
            dirty.done(due, taken, &changing());
        }
        let failed = dirty.next_due().unwrap();
        let heard = failed - Duration::from_millis(900);
        add(&mut dirty, heard);
        assert_eq!(dirty.next_due() == Some(heard), is_at_once, "{times}");
        let taken = dirty.take(failed, Lane::Short, PATHS_MAX);
        dirty.done(failed, taken, &BTreeMap::new());
        assert!(dirty.is_empty());
    }
}

#[test]
fn somebody_who_waits_has_all_looked_at_but_what_has_failed() {
    let mut dirty = DirtyPaths::new(Duration::from_secs(2));
    let now = Duration::from_secs(1000);
    let open = Circumstance {
        is_open: true,
        ..Circumstance::default()
    };
    for (name, size) in [("a", 0), ("large", 1 << 30)] {
        let path = RelPath::parse(name.as_bytes()).unwrap();
        dirty.add(now, Change::entry(path), Circumstance { size, ..open });
    }
    add(&mut dirty, now);
    let taken = dirty.take(now, Lane::Short, PATHS_MAX);
    dirty.done(now, taken, &changing());
    for lane in [Lane::Short, Lane::Long] {
        assert!(dirty.take(now, lane, PATHS_MAX).is_empty());
    }
    dirty.hurry(now);
    for (lane, name) in [(Lane::Short, &b"a"[..]), (Lane::Long, b"large")] {
        let taken = dirty.take(now, lane, PATHS_MAX);
        let names: Vec<&[u8]> = taken.paths.keys().map(RelPath::as_bytes).collect();
        assert_eq!(names, [name]);
    }
}

#[test]
fn a_file_that_changes_all_the_time_is_paced_and_a_directory_is_not() {
    for is_dir in [false, true] {
        let mut dirty = DirtyPaths::new(Duration::from_secs(2));
        let mut now = Duration::from_secs(1000);
        let mut looks = 0;
        for _ in 0..100 {
            let circumstance = Circumstance {
                is_dir,
                ..Circumstance::default()
            };
            dirty.add(now, Change::entry(log()), circumstance);
            let taken = dirty.take(now, Lane::Short, PATHS_MAX);
            looks += taken.paths.len();
            dirty.done(now, taken, &BTreeMap::new());
            now += STEP * 10;
        }
        assert_eq!(looks == 100, is_dir, "{looks}");
    }
}

#[test]
fn directory_has_failed_while_its_entry_waits() {
    let mut dirty = DirtyPaths::new(Duration::from_secs(2));
    let now = Duration::from_secs(1000);
    let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
    let (dir, entry) = (path("hot"), path("hot/file"));
    dirty.add(now, Change::entry(entry), Circumstance::default());
    assert!(!dirty.has_failed_within(&dir), "it was not tried");
    let failed = BTreeMap::from([(dir.clone(), Failed::Problem(Class::Changing))]);
    let taken = dirty.take(now, Lane::Short, PATHS_MAX);
    dirty.done(now, taken, &failed);
    assert!(dirty.has_failed_within(&dir));
    assert!(
        !dirty.has_failed_within(&path("ho")),
        "a name that begins alike"
    );
    let due = dirty.next_due().unwrap();
    let taken = dirty.take(due, Lane::Short, PATHS_MAX);
    assert!(dirty.has_failed_within(&dir), "it is tried again");
    dirty.done(due, taken, &BTreeMap::new());
    assert!(!dirty.has_failed_within(&dir));
}
