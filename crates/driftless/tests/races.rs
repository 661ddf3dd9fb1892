//! A user who owns part of a tree swaps its entries for links to a tree outside while root runs:
//! nothing outside is ever read into the replica, written or removed.
//!
//! A race test passes by spending its whole budget, which alone proves nothing. So every scenario
//! first runs against a copier that is careless on purpose: it looks, waits until something was
//! swapped, then acts, each time by path. It must lose within its own budget.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{put, sync};
use driftless_testkit::mutate::remove_any;
use driftless_testkit::{EVENT_MAX, FsKind, Scratch, attrs, snapshot_hash};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BUDGET: Duration = Duration::from_secs(5);
const CONTROL_BUDGET: Duration = Duration::from_secs(20);
const FILES: usize = 12;
const SECRET: &[u8] = b"CANARY: nobody may copy this";
const SECRET_MODE: u32 = 0o2715;

/// Where it happens: the two trees, the attacker's own place, and the tree that must not be
/// touched.
struct Arena {
    _scratch: Scratch,
    src: PathBuf,
    dst: PathBuf,
    attic: PathBuf,
    canary: PathBuf,
}

impl Arena {
    fn new() -> Arena {
        let scratch = Scratch::new(FsKind::Tmpfs, 64);
        let [src, dst, attic, canary] =
            ["src", "dst", "attic", "canary"].map(|name| scratch.path().join(name));
        for folder in ["", "c", "sub"] {
            fill(&canary.join(folder), SECRET, SECRET_MODE);
        }
        attrs::set_mode(&canary, 0o711).expect("chmod");
        Arena {
            _scratch: scratch,
            src,
            dst,
            attic,
            canary,
        }
    }

    /// Sets both trees and the attacker's place up anew.
    fn reset(&self, scenario: &Scenario) {
        for root in [&self.src, &self.dst, &self.attic] {
            remove_any(root).expect("remove");
            fs::create_dir(root).expect("root");
        }
        put(&self.src.join("always"), "here");
        (scenario.plant)(self);
    }

    /// What the attacker has achieved, if anything.
    fn loss(&self, canary_before: u128) -> Option<String> {
        if snapshot_hash(&self.canary, true) != canary_before {
            return Some("the tree outside was changed".to_owned());
        }
        let all = driftless_testkit::mutate::list_all(&self.dst).unwrap_or_default();
        all.iter().find_map(|path| {
            let meta = fs::symlink_metadata(path)
                .ok()
                .filter(fs::Metadata::is_file)?;
            let leaked = meta.mode() & 0o7777 == SECRET_MODE
                || fs::read(path).is_ok_and(|content| content == SECRET);
            leaked.then(|| format!("{} came from outside", path.display()))
        })
    }
}

/// Files `f0` to `f11` in a directory, made if it is not there.
fn fill(folder: &Path, content: &[u8], mode: u32) {
    for index in 0..FILES {
        let path = folder.join(format!("f{index}"));
        put(&path, content);
        attrs::set_mode(&path, mode).expect("chmod");
        attrs::set_mtime(&path, 1_000_000_000, 5).expect("mtime");
    }
}

struct Scenario {
    /// Builds source and replica.
    plant: fn(&Arena),
    /// The name that is swapped, and the path outside that its stand-in links to.
    victim: fn(&Arena) -> (PathBuf, PathBuf),
    arguments: &'static [&'static str],
}

const RUNNING: u8 = 0;
const PAUSE: u8 = 1;
const PAUSED: u8 = 2;
const STOP: u8 = 3;

/// Somebody who swaps a name with a link of his own without rest, unless he is told to pause.
struct Attacker {
    state: AtomicU8,
    swaps: AtomicU64,
}

impl Attacker {
    fn new(state: u8) -> Attacker {
        Attacker {
            state: AtomicU8::new(state),
            swaps: AtomicU64::new(0),
        }
    }

    fn work(&self, victim: &Path, decoy: &Path) {
        loop {
            match self.state.load(Ordering::Acquire) {
                RUNNING => {
                    let _ = attrs::exchange(victim, decoy);
                    self.swaps.fetch_add(1, Ordering::AcqRel);
                }
                PAUSE => drop(self.state.compare_exchange(
                    PAUSE,
                    PAUSED,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                )),
                STOP => return,
                _ => std::thread::yield_now(),
            }
        }
    }

    /// Pauses the attack and waits until it has paused.
    fn pause(&self) {
        self.state.store(PAUSE, Ordering::Release);
        while self.state.load(Ordering::Acquire) != PAUSED {
            std::thread::yield_now();
        }
    }

    /// Waits until something was swapped, also where one processor has to do for both.
    fn awaited(&self) {
        let before = self.swaps.load(Ordering::Acquire);
        let until = Instant::now() + Duration::from_millis(50);
        while self.swaps.load(Ordering::Acquire) == before && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

/// Lets `copier` work under attack again and again; the first loss, or `None` when the time is
/// over.
fn contest(
    scenario: &Scenario,
    budget: Duration,
    copier: impl Fn(&Arena, &Attacker),
) -> Option<String> {
    let arena = Arena::new();
    let canary_before = snapshot_hash(&arena.canary, true);
    let (victim, outside) = (scenario.victim)(&arena);
    let decoy = arena.attic.join("decoy");
    let attacker = Attacker::new(PAUSED);
    std::thread::scope(|scope| {
        scope.spawn(|| attacker.work(&victim, &decoy));
        let _stop = StopOnDrop(&attacker.state);
        let deadline = Instant::now() + budget;
        let mut rounds = 0;
        while Instant::now() < deadline {
            arena.reset(scenario);
            symlink(&outside, &decoy).expect("decoy");
            attacker.state.store(RUNNING, Ordering::Release);
            copier(&arena, &attacker);
            attacker.pause();
            rounds += 1;
            if let Some(loss) = arena.loss(canary_before) {
                return Some(format!("round {rounds}: {loss}"));
            }
        }
        println!("{rounds} rounds");
        None
    })
}

/// Ends the attacker even when the test panics.
struct StopOnDrop<'a>(&'a AtomicU8);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(STOP, Ordering::Release);
    }
}

fn check(scenario: &Scenario) {
    let careless = contest(scenario, CONTROL_BUDGET, |arena, attacker| {
        let _ = careless_sync(attacker, &arena.src, &arena.dst);
    });
    let careless = careless.expect("a careless copier loses, or this test proves nothing");
    println!("the careless copier lost: {careless}");
    let loss = contest(scenario, BUDGET, |arena, _| {
        let outcome = sync(&arena.src, &arena.dst).args(scenario.arguments).run();
        assert!(
            [0, 3, 5, 13].contains(&outcome.code()),
            "{}",
            outcome.describe()
        );
    });
    assert_eq!(loss, None, "driftless lost");
    check_calm(scenario);
}

/// Without an attacker the same work is simply done, so the scenario was about something.
fn check_calm(scenario: &Scenario) {
    let arena = Arena::new();
    arena.reset(scenario);
    let outcome = sync(&arena.src, &arena.dst)
        .args(scenario.arguments)
        .run()
        .expect(0);
    assert!(outcome.count("changed") > 0, "{}", outcome.describe());
    common::check_equal(&arena.src, &arena.dst, "without an attacker");
}

/// How a copier must not be written: every step names its target by path, and between a check and
/// its use somebody else has time.
fn careless_sync(attacker: &Attacker, src: &Path, dst: &Path) -> std::io::Result<()> {
    let meta = fs::symlink_metadata(src)?;
    attacker.awaited();
    if meta.is_symlink() {
        return symlink(fs::read_link(src)?, dst);
    }
    if !meta.is_dir() {
        return careless_file(attacker, src, dst);
    }
    if !fs::symlink_metadata(dst).is_ok_and(|meta| meta.is_dir()) {
        let _ = fs::remove_file(dst);
        fs::create_dir(dst)?;
    }
    let names = |root: &Path| {
        fs::read_dir(root).map(|all| {
            all.flatten()
                .map(|entry| entry.file_name())
                .collect::<Vec<_>>()
        })
    };
    attacker.awaited();
    let wanted = names(src)?;
    for name in names(dst)?.iter().filter(|name| !wanted.contains(name)) {
        let _ = careless_remove(attacker, &dst.join(name));
    }
    for name in &wanted {
        let _ = careless_sync(attacker, &src.join(name), &dst.join(name));
    }
    attrs::set_mode(dst, fs::metadata(src)?.mode() & 0o7777)
}

fn careless_file(attacker: &Attacker, src: &Path, dst: &Path) -> std::io::Result<()> {
    let meta = fs::metadata(src)?;
    let old = fs::symlink_metadata(dst).ok().filter(fs::Metadata::is_file);
    attacker.awaited();
    if old.is_none_or(|old| old.len() != meta.len() || old.mtime() != meta.mtime()) {
        fs::write(dst, fs::read(src)?)?;
    }
    attrs::set_mode(dst, meta.mode() & 0o7777)?;
    if let Some(value) = attrs::get_xattr(src, b"user.tag")? {
        rustix::fs::setxattr(dst, "user.tag", &value, rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}

fn careless_remove(attacker: &Attacker, path: &Path) -> std::io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    attacker.awaited();
    for entry in fs::read_dir(path)?.flatten() {
        let _ = careless_remove(attacker, &entry.path());
    }
    fs::remove_dir(path)
}

#[test]
fn a_source_directory_swapped_for_a_link_leaks_nothing() {
    check(&Scenario {
        plant: |arena| fill(&arena.src.join("d"), b"own", 0o644),
        victim: |arena| (arena.src.join("d"), arena.canary.clone()),
        arguments: &[],
    });
}

#[test]
fn a_source_directory_in_the_middle_swapped_for_a_link_leaks_nothing() {
    check(&Scenario {
        plant: |arena| fill(&arena.src.join("a/b/c"), b"own", 0o644),
        victim: |arena| (arena.src.join("a/b"), arena.canary.clone()),
        arguments: &["--delete"],
    });
}

#[test]
fn a_source_file_swapped_for_a_link_leaks_no_content() {
    check(&Scenario {
        plant: |arena| fill(&arena.src, b"own", 0o644),
        victim: |arena| (arena.src.join("f5"), arena.canary.join("f5")),
        arguments: &["--checksum"],
    });
}

#[test]
fn a_source_file_swapped_for_a_link_leaks_no_metadata() {
    check(&Scenario {
        plant: |arena| {
            fill(&arena.src, SECRET_SIZED_AS_OWN, 0o644);
            fill(&arena.dst, SECRET_SIZED_AS_OWN, 0o600);
        },
        victim: |arena| (arena.src.join("f5"), arena.canary.join("f5")),
        arguments: &[],
    });
}

/// As long as the secret, so that only metadata differs.
const SECRET_SIZED_AS_OWN: &[u8] = &[b'o'; SECRET.len()];

#[test]
fn a_replica_directory_swapped_for_a_link_lets_nothing_be_written_outside() {
    check(&Scenario {
        plant: |arena| {
            fill(&arena.src.join("d"), b"new content", 0o644);
            fs::create_dir(arena.dst.join("d")).expect("dir");
        },
        victim: |arena| (arena.dst.join("d"), arena.canary.clone()),
        arguments: &[],
    });
}

#[test]
fn a_replica_directory_swapped_for_a_link_lets_nothing_be_removed_outside() {
    check(&Scenario {
        plant: |arena| {
            put(&arena.src.join("d/kept"), "kept");
            fill(&arena.dst.join("d"), b"extra", 0o644);
        },
        victim: |arena| (arena.dst.join("d"), arena.canary.clone()),
        arguments: &["--delete"],
    });
}

#[test]
fn a_replica_directory_swapped_for_a_link_lets_no_link_be_made_outside() {
    check(&Scenario {
        plant: |arena| {
            let own = arena.src.join("d");
            put(&own.join("first"), "one file of many names");
            for index in 0..FILES {
                symlink("target", own.join(format!("soft{index}"))).expect("symlink");
                fs::hard_link(own.join("first"), own.join(format!("hard{index}"))).expect("link");
            }
            fs::create_dir(arena.dst.join("d")).expect("dir");
        },
        victim: |arena| (arena.dst.join("d"), arena.canary.clone()),
        arguments: &[],
    });
}

#[test]
fn a_replica_directory_swapped_while_its_tree_is_removed_lets_nothing_be_removed_outside() {
    check(&Scenario {
        plant: |arena| fill(&arena.dst.join("gone/sub"), b"extra", 0o644),
        victim: |arena| (arena.dst.join("gone/sub"), arena.canary.clone()),
        arguments: &["--delete", "--delete-unlike"],
    });
}

#[test]
fn a_replica_file_swapped_for_a_link_lets_no_mode_be_changed_outside() {
    check(&Scenario {
        plant: |arena| {
            fill(&arena.src, b"own", 0o604);
            fill(&arena.dst, b"own", 0o640);
        },
        victim: |arena| (arena.dst.join("f5"), arena.canary.join("f5")),
        arguments: &["--delete"],
    });
}

#[test]
fn a_replica_directory_swapped_for_a_link_lets_no_mode_be_changed_outside() {
    check(&Scenario {
        plant: |arena| {
            for (root, mode) in [(&arena.src, 0o751), (&arena.dst, 0o700)] {
                fs::create_dir(root.join("d")).expect("dir");
                attrs::set_mode(&root.join("d"), mode).expect("chmod");
            }
        },
        victim: |arena| (arena.dst.join("d"), arena.canary.clone()),
        arguments: &[],
    });
}

#[test]
fn a_replica_file_swapped_for_a_link_lets_no_xattr_be_set_outside() {
    check(&Scenario {
        plant: |arena| {
            fill(&arena.src, b"own", 0o644);
            fill(&arena.dst, b"own", 0o644);
            for index in 0..FILES {
                attrs::set_xattr(&arena.src.join(format!("f{index}")), b"user.tag", b"value")
                    .expect("xattr");
            }
        },
        victim: |arena| (arena.dst.join("f5"), arena.canary.join("f5")),
        arguments: &["--delete"],
    });
}

#[test]
fn content_is_never_written_through_a_hard_link_to_a_file_outside() {
    let arena = Arena::new();
    put(&arena.src.join("f"), "new content of the same name");
    fs::create_dir(&arena.dst).expect("replica");
    fs::hard_link(arena.canary.join("f0"), arena.dst.join("f")).expect("link");
    let _ = sync(&arena.src, &arena.dst).run().expect(0);
    assert_eq!(fs::read(arena.canary.join("f0")).expect("read"), SECRET);
    assert_eq!(
        fs::metadata(arena.canary.join("f0")).expect("stat").mode() & 0o7777,
        SECRET_MODE
    );
    assert_eq!(
        fs::read(arena.dst.join("f")).expect("read"),
        b"new content of the same name"
    );
}

#[test]
fn fifos_and_devices_in_place_of_files_are_never_opened() {
    let arena = Arena::new();
    put(&arena.src.join("f"), "content");
    let decoy = arena.src.join("pipe");
    attrs::make_node(&decoy, rustix::fs::FileType::Fifo, 0, 0).expect("fifo");
    let attacker = Attacker::new(RUNNING);
    std::thread::scope(|scope| {
        scope.spawn(|| attacker.work(&arena.src.join("f"), &decoy));
        let _stop = StopOnDrop(&attacker.state);
        let deadline = Instant::now() + BUDGET;
        while Instant::now() < deadline {
            let outcome = sync(&arena.src, &arena.dst).limit(EVENT_MAX).run();
            assert!(
                [0, 3, 5].contains(&outcome.code()),
                "{}",
                outcome.describe()
            );
            remove_any(&arena.dst).expect("remove");
        }
    });
}
