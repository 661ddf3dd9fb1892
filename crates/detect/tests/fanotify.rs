//! What fanotify tells of real file systems. Needs root.
#![allow(clippy::disallowed_methods)]

use driftless_detect::Seen;
use driftless_detect::fanotify::Watch;
use driftless_model::{Change, Hint, RelPath};
use std::fs;
use std::time::Duration;

/// What was heard until nothing more comes.
fn all(watch: &mut Watch) -> Vec<Seen> {
    let mut seen = Vec::new();
    loop {
        let heard = watch.hear(Duration::ZERO).unwrap();
        assert_eq!(heard.missed, None);
        if heard.events == 0 {
            return seen;
        }
        seen.extend(heard.seen);
    }
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

#[test]
fn names_writes_and_renames_are_told_in_their_order() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (root, out) = (folder.path().join("root"), folder.path().join("out"));
    for dir in [&root, &out] {
        fs::create_dir(dir).unwrap();
    }
    let mut watch = Watch::begin(&root, true).unwrap();
    fs::create_dir(root.join("a")).unwrap();
    fs::write(root.join("a/f (deleted)"), b"12345").unwrap();
    fs::write(out.join("elsewhere"), b"1").unwrap();
    fs::rename(root.join("a"), root.join("b")).unwrap();
    fs::rename(root.join("b"), out.join("b")).unwrap();
    fs::rename(out.join("b"), root.join("c")).unwrap();
    let seen = all(&mut watch);
    let moves: Vec<&Change> = seen
        .iter()
        .map(|seen| &seen.change)
        .filter(|change| change.scope == driftless_model::Scope::Subtree)
        .collect();
    assert_eq!(
        moves,
        [
            &Change::subtree(path("b")).with(Hint::MovedFrom(path("a"))),
            &Change::subtree(path("b")),
            &Change::subtree(path("c")),
        ]
    );
    // The directory has its new name when its events are read.
    let file = seen
        .iter()
        .find(|seen| seen.change.path == path("c/f (deleted)"))
        .unwrap();
    assert_eq!(file.size, 5);
    assert!(
        seen.iter()
            .all(|seen| !seen.change.path.is_root() || seen.size == 0)
    );
    fs::write(root.join("c/f (deleted)"), b"1").unwrap();
    fs::remove_dir_all(root.join("c")).unwrap();
    assert!(
        all(&mut watch)
            .iter()
            .any(|seen| seen.change.path == path("c"))
    );
    assert!(all(&mut watch).is_empty());
}

#[test]
fn a_path_that_is_too_long_to_be_told_is_looked_at_from_above() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let mut watch = Watch::begin(&root, true).unwrap();
    driftless_testkit::deep_path(&root, 50, 200).unwrap();
    let seen = all(&mut watch);
    let is_above = |seen: &Seen| seen.change.scope == driftless_model::Scope::Subtree;
    let above = seen.iter().find(|seen| is_above(seen)).unwrap();
    assert!(above.change.path.as_bytes().len() > 3000, "{above:?}");
    driftless_testkit::remove_deep(&root.join("b".repeat(200))).unwrap();
}

#[test]
fn a_new_name_of_a_file_is_told() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(folder.path().join("old"), b"1").unwrap();
    let mut watch = Watch::begin(folder.path(), true).unwrap();
    fs::hard_link(folder.path().join("old"), folder.path().join("new")).unwrap();
    let seen = all(&mut watch);
    assert!(
        seen.iter().any(|seen| seen.change.path == path("new")),
        "{seen:?}"
    );
}

/// Otherwise a file would be copied while it is being written, and again when it is closed.
#[test]
fn who_makes_a_file_has_it_open_until_it_is_closed() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut watch = Watch::begin(folder.path(), true).unwrap();
    let mut is_open = |name: &str| {
        let seen = all(&mut watch);
        let of_name = seen.iter().filter(|seen| seen.change.path == path(name));
        of_name.map(|seen| seen.is_open).collect::<Vec<_>>()
    };
    let file = fs::File::create(folder.path().join("new")).unwrap();
    assert_eq!(is_open("new"), [true]);
    drop(file);
    assert_eq!(is_open("new"), [false]);
    // What is made by itself is told once or twice, and is never open.
    let is_closed = |told: Vec<bool>| !told.is_empty() && !told.contains(&true);
    fs::hard_link(folder.path().join("new"), folder.path().join("second")).unwrap();
    assert!(is_closed(is_open("second")));
    std::os::unix::fs::symlink("new", folder.path().join("link")).unwrap();
    assert!(is_closed(is_open("link")));
    fs::create_dir(folder.path().join("directory")).unwrap();
    assert!(is_closed(is_open("directory")));
}
