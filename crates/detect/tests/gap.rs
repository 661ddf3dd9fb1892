//! What a scan finds in a gap, on real file systems: their times of change are what all of it
//! stands on. Needs root and loop devices.
#![allow(clippy::disallowed_methods)]

use driftless_detect::gap::{Found, SLACK_SECONDS, scan};
use driftless_detect::place::Place;
use driftless_model::{Change, Scope, Stamp};
use driftless_testkit::{FsKind, Scratch};
use rustix::fd::AsFd;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

const KINDS: [FsKind; 4] = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::Tmpfs];
const SIZE_MIB: u64 = 320;
/// The kernel's coarse clock goes on by now.
const TICKS: Duration = Duration::from_millis(50);

struct Tree {
    _scratch: Scratch,
    root: PathBuf,
    since: Stamp,
}

impl Tree {
    /// Six directories of two levels with some files; from here on begins the gap.
    fn on(kind: FsKind) -> Tree {
        let scratch = Scratch::new(kind, SIZE_MIB);
        let root = scratch.dir("src");
        for dir in ["a/x", "a/y", "b/x", "b/y", "c", "d/only"] {
            fs::create_dir_all(root.join(dir)).expect("a directory");
            for name in ["f", "g", "line\nbreak"] {
                fs::write(root.join(dir).join(name), b"content").expect("a file");
            }
        }
        std::thread::sleep(TICKS);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.expect("after 1970");
        std::thread::sleep(TICKS);
        Tree {
            _scratch: scratch,
            root,
            // What the slack takes off is added.
            since: Stamp {
                sec: now.as_secs().cast_signed() + SLACK_SECONDS,
                nsec: now.subsec_nanos(),
            },
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn scan(&self) -> Found {
        let root = File::open(&self.root).expect("the root");
        scan(root.as_fd(), self.since, &AtomicBool::new(false)).expect("it is there")
    }

    fn found(&self) -> BTreeMap<String, Scope> {
        let Found::Changes(changes) = self.scan() else {
            panic!("all: {:?}", self.root);
        };
        let named = |change: Change| {
            let path = String::from_utf8(change.path.as_bytes().to_vec()).expect("text");
            (path, change.scope)
        };
        changes.into_iter().map(named).collect()
    }

    fn check(&self, kind: FsKind, expected: &[(&str, Scope)]) {
        let expected = expected
            .iter()
            .map(|(path, scope)| ((*path).to_owned(), *scope));
        assert_eq!(self.found(), expected.collect(), "{kind:?}");
    }
}

fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("exchanged");
}

#[test]
fn only_what_changed_is_found() {
    for kind in KINDS {
        let tree = Tree::on(kind);
        tree.check(kind, &[("", Scope::Entry)]);
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(tree.at("a/y/f"), mode).expect("set");
        fs::write(tree.at("b/x/line\nbreak"), b"other").expect("a file");
        fs::remove_file(tree.at("d/only/g")).expect("removed");
        // Another name of a file changes the file, and so both of its names.
        fs::hard_link(tree.at("b/y/g"), tree.at("c/new")).expect("a link");
        tree.check(
            kind,
            &[
                ("", Scope::Entry),
                ("a/y/f", Scope::Entry),
                ("b/x/line\nbreak", Scope::Entry),
                ("d/only", Scope::Names),
                ("b/y/g", Scope::Entry),
                ("c", Scope::Names),
            ],
        );
    }
}

#[test]
fn a_directory_that_was_moved_is_found_with_all_below_it() {
    for kind in KINDS {
        let tree = Tree::on(kind);
        fs::rename(tree.at("a/x"), tree.at("c/moved")).expect("renamed");
        let found = tree.found();
        let of_a = if kind == FsKind::Xfs {
            Scope::Subtree
        } else {
            Scope::Names
        };
        assert_eq!(found.get("a"), Some(&of_a), "{kind:?}: {found:?}");
        let of_c = found.get("c").copied();
        let of_moved = found.get("c/moved").copied();
        let is_found = of_c == Some(Scope::Subtree) || of_moved == Some(Scope::Subtree);
        assert!(is_found, "{kind:?}: {found:?}");
        assert!(!found.contains_key("b"), "{kind:?}: {found:?}");
    }
}

#[test]
fn directories_that_change_places_are_found_whatever_the_file_system_says_of_them() {
    for kind in KINDS {
        let tree = Tree::on(kind);
        exchange(&tree.at("a/x"), &tree.at("a/y"));
        let found = tree.found();
        let covered = |path: &str| {
            let above = found.get("a") == Some(&Scope::Subtree);
            above || found.get(path) == Some(&Scope::Subtree)
        };
        assert!(covered("a/x") && covered("a/y"), "{kind:?}: {found:?}");
        assert!(!found.keys().any(|path| path.starts_with('b')), "{kind:?}");
    }
}

#[test]
fn a_new_directory_in_one_that_has_not_moved_is_found_alone() {
    for kind in KINDS {
        let tree = Tree::on(kind);
        fs::create_dir_all(tree.at("c/new/deep")).expect("a directory");
        fs::write(tree.at("c/new/deep/f"), b"new").expect("a file");
        let found = [
            ("", Scope::Entry),
            ("c", Scope::Names),
            ("c/new", Scope::Subtree),
        ];
        let hidden = [("", Scope::Entry), ("c", Scope::Subtree)];
        match kind {
            FsKind::Xfs => tree.check(kind, &hidden),
            _ => tree.check(kind, &found),
        }
    }
}

#[test]
fn links_are_not_followed_and_other_file_systems_are_compared() {
    let tree = Tree::on(FsKind::Ext4);
    std::os::unix::fs::symlink(tree.at("a"), tree.at("c/link")).expect("a link");
    let before = Place::of(File::open(&tree.root).expect("the root").as_fd()).expect("told");
    let at = tree.at("d/only");
    mount("none", &at, "tmpfs", MountFlags::empty(), None).expect("mounted");
    let found = tree.found();
    let now = Place::of(File::open(&tree.root).expect("the root").as_fd()).expect("told");
    unmount(&at, UnmountFlags::empty()).expect("unmounted");
    let after = Place::of(File::open(&tree.root).expect("the root").as_fd()).expect("told");
    assert_eq!(found.get("d/only"), Some(&Scope::Subtree), "{found:?}");
    assert_eq!(found.get("c"), Some(&Scope::Names), "{found:?}");
    assert!(before != now && before == after);
}

#[test]
fn a_file_system_that_was_unmounted_meanwhile_is_another_place() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let at = scratch.dir("src");
    let image = scratch.path().join("image");
    let file = File::create(&image).expect("a file");
    file.set_len(32 << 20).expect("its size");
    let run = |program: &str, args: &[&Path]| {
        let done = std::process::Command::new(program).args(args).status();
        assert!(done.expect("it runs").success(), "{program}");
    };
    run("mkfs.ext4", &[Path::new("-q"), &image]);
    let place = || Place::of(File::open(&at).expect("the root").as_fd()).expect("told");
    run("mount", &[Path::new("-oloop"), &image, &at]);
    let (first, again) = (place(), place());
    run("umount", &[&at]);
    run("mount", &[Path::new("-oloop"), &image, &at]);
    let other = place();
    run("umount", &[&at]);
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[test]
fn a_scan_can_be_stopped_and_a_file_system_of_unknown_habits_is_compared() {
    let tree = Tree::on(FsKind::Tmpfs);
    for number in 0..320 {
        let dir = tree.at(&format!("c/{number}"));
        fs::create_dir(&dir).expect("a directory");
    }
    assert!(matches!(tree.scan(), Found::Changes(_)));
    let stopped = AtomicBool::new(true);
    let root = File::open(&tree.root).expect("the root");
    assert_eq!(scan(root.as_fd(), tree.since, &stopped), Ok(Found::Stopped));
    let proc = File::open("/proc").expect("it is there");
    let running = AtomicBool::new(false);
    assert_eq!(scan(proc.as_fd(), tree.since, &running), Ok(Found::All));
}
