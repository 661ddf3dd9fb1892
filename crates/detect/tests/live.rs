//! What the kernel that runs the test says of two snapshots, in a stream and by the transactions of
//! inodes: random changes on a btrfs, two snapshots a round, and what the changes say against what
//! two scans see. Needs root and a loop device.
#![allow(clippy::disallowed_methods)]

use driftless_detect::snapshot::btrfs::{changed_between, changes};
use driftless_model::{Change, Hint, RelPath, Scope, escape};
use driftless_testkit::{FsKind, Profile, Scratch, Snapshot, build_tree, mutate, snapshot};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROUNDS: u64 = 20;

/// One side as a map: properties by path.
type Side = Snapshot;

type Properties = Vec<(&'static str, String)>;

struct Round {
    folder: PathBuf,
    older: Side,
    newer: Side,
    changes: Vec<Change>,
    context: String,
}

#[test]
fn what_is_sent_makes_the_older_snapshot_the_newer_whichever_moves_are_followed() {
    let (moved, ranged) = check_rounds(&sent);
    assert!(
        moved > 50 && ranged > 20,
        "{moved} moved, {ranged} with ranges"
    );
}

#[test]
fn what_transactions_tell_makes_the_older_snapshot_the_newer_whichever_moves_are_followed() {
    let (moved, _) = check_rounds(&|older, newer| {
        let told = changed_between(older, newer).expect("the snapshots can be read");
        told.expect("it is told")
    });
    assert!(moved > 50, "{moved} moved");
}

/// How many moves were found, and how many files with ranges.
fn check_rounds(find: &dyn Fn(&Path, &Path) -> Vec<Change>) -> (usize, usize) {
    let base = fastrand::u64(..1 << 32);
    println!("seed {base}");
    let scratch = Scratch::new(FsKind::Btrfs, 512);
    let live = scratch.path().join("live");
    btrfs(&["subvolume", "create"], &[&live]);
    build_tree(
        &live,
        base,
        &Profile {
            large: false,
            ..Profile::root()
        },
    );
    let mut rng = Rng::with_seed(base);
    let mut older = take(&live, 0);
    let mut before = scan(&older);
    let (mut moved, mut ranged) = (0, 0);
    for number in 1..=ROUNDS {
        churn(&live, &mut rng);
        let newer = take(&live, number);
        let round = Round {
            changes: find(&older, &newer),
            older: before,
            newer: scan(&newer),
            folder: scratch.path().to_owned(),
            context: format!("seed {base}, round {number}"),
        };
        round.check(&mut rng, number);
        moved += round
            .changes
            .iter()
            .filter(|one| matches!(one.hint, Some(Hint::MovedFrom(_))))
            .count();
        ranged += round
            .changes
            .iter()
            .filter(|one| matches!(one.hint, Some(Hint::Ranges(_))))
            .count();
        (older, before) = (newer, round.newer);
    }
    (moved, ranged)
}

impl Round {
    fn check(&self, rng: &mut Rng, number: u64) {
        for follow_percent in [0, 50, 100, 50] {
            let followed = self
                .changes
                .iter()
                .map(|_| rng.u8(..100) < follow_percent)
                .collect::<Vec<_>>();
            self.assert_equal(&self.replica(&followed), follow_percent);
        }
        let needless: Vec<&Change> = self
            .changes
            .iter()
            .filter(|one| self.is_needless(one))
            .collect();
        let files = needless
            .iter()
            .filter(|one| !is_directory(&self.newer[one.path.as_bytes()]));
        assert_eq!(
            files.count(),
            0,
            "{}: not changed: {needless:?}",
            self.context
        );
        // The kernel sets the times of directories that entries went through.
        let most = self.changes.len() / 4;
        assert!(
            needless.len() <= most,
            "{}: not changed: {needless:?}",
            self.context
        );
        self.check_ranges(number);
    }

    /// What a replica of the older snapshot becomes, of these moves followed.
    fn replica(&self, followed: &[bool]) -> Side {
        let mut replica = self.older.clone();
        let mut out = BTreeMap::new();
        let mut moves: Vec<(usize, &RelPath)> = Vec::new();
        for (at, change) in self.changes.iter().enumerate() {
            if let (Some(Hint::MovedFrom(from)), true) = (&change.hint, followed[at]) {
                moves.push((at, from));
            }
        }
        moves.sort_by_key(|(_, from)| std::cmp::Reverse(from.as_bytes().len()));
        for (at, from) in moves {
            out.insert(at, cut(&mut replica, from.as_bytes()));
        }
        for (at, change) in self.changes.iter().enumerate() {
            let path = change.path.as_bytes();
            if let Some(below) = out.remove(&at) {
                cut(&mut replica, path);
                replica.extend(
                    below
                        .into_iter()
                        .map(|(rest, one)| ([path, &rest].concat(), one)),
                );
            }
            let is_followed = followed[at] && matches!(change.hint, Some(Hint::MovedFrom(_)));
            let alone = is_followed || change.scope == Scope::Entry;
            self.make_equal(&mut replica, path, alone);
        }
        self.share(&mut replica);
        replica
    }

    /// What becomes of a file by one of its names becomes of it by all; the stream need not name
    /// the others.
    fn share(&self, replica: &mut Side) {
        let told = self
            .changes
            .iter()
            .filter_map(|change| self.newer.get(change.path.as_bytes()));
        let told: BTreeMap<String, &Properties> = told.map(|one| (inode(one), one)).collect();
        for one in replica.values_mut() {
            if let Some(now) = told.get(&inode(one)) {
                one.clone_from(now);
            }
        }
    }

    fn make_equal(&self, replica: &mut Side, path: &[u8], alone: bool) {
        let now = self.newer.get(path);
        let holds = |(other, _): (&Vec<u8>, _)| other != path && rest_below(other, path).is_some();
        if alone && now.is_none() && replica.iter().any(holds) {
            // Asked about alone, a directory that the source lacks stays for what is in it.
            return;
        }
        if !alone || now.is_none_or(|one| !is_directory(one)) {
            cut(replica, path);
        }
        let wanted = |other: &Vec<u8>| {
            if alone {
                other == path
            } else {
                rest_below(other, path).is_some()
            }
        };
        replica.extend(
            self.newer
                .iter()
                .filter(|(other, _)| wanted(other))
                .map(|(other, one)| (other.clone(), one.clone())),
        );
    }

    fn assert_equal(&self, replica: &Side, follow_percent: u8) {
        let without_ctime = |side: &Side| -> Side {
            side.iter()
                .map(|(path, one)| (path.clone(), without_ctime(one)))
                .collect()
        };
        let (replica, newer) = (without_ctime(replica), without_ctime(&self.newer));
        let all = replica.keys().chain(newer.keys());
        let differing = all.filter(|path| replica.get(*path) != newer.get(*path));
        let told: Vec<String> = differing
            .take(3)
            .map(|path| self.told(path, &replica))
            .collect();
        let number = told.len();
        assert_eq!(
            number,
            0,
            "{}, {follow_percent}% of the moves followed:\n{}",
            self.context,
            told.join("\n")
        );
    }

    /// A path that has not become equal, and what the changes say of it and above it.
    fn told(&self, path: &[u8], replica: &Side) -> String {
        let above = |change: &&Change| rest_below(path, change.path.as_bytes()).is_some();
        let changes: Vec<&Change> = self.changes.iter().filter(above).collect();
        let [was, is, wanted] = [&self.older, replica, &self.newer]
            .map(|side| side.get(path).map(|one| one[0].1.clone()));
        format!(
            "\"{}\" was {was:?}, is {is:?}, should be {wanted:?}: {changes:?}",
            escape(path)
        )
    }

    /// Whether nothing differs that a change tells of.
    fn is_needless(&self, change: &Change) -> bool {
        let moved = matches!(change.hint, Some(Hint::MovedFrom(_)));
        let path = change.path.as_bytes();
        !moved && self.older.get(path) == self.newer.get(path) && self.older.contains_key(path)
    }

    /// What lies outside of the ranges is the same in both files of an inode.
    fn check_ranges(&self, number: u64) {
        let older: BTreeMap<_, _> = self
            .older
            .iter()
            .map(|(path, one)| (inode(one), path))
            .collect();
        for change in &self.changes {
            let Some(Hint::Ranges(ranges)) = &change.hint else {
                continue;
            };
            assert!(
                ranges.windows(2).all(|pair| pair[0].end < pair[1].start)
                    && ranges.iter().all(|range| !range.is_empty())
            );
            // Anything may differ; of a directory, below it.
            if change.hint == Some(Hint::content()) {
                continue;
            }
            let path = change.path.as_bytes();
            let before = older[&inode(&self.newer[path])];
            let read = |number, path: &[u8]| {
                fs::read(
                    self.folder
                        .join(format!("snapshot-{number}"))
                        .join(OsStr::from_bytes(path)),
                )
                .expect("read")
            };
            let (was, now) = (read(number - 1, before), read(number, path));
            // A replica's file is given its size first: what it lacks reads as zeros.
            let at = |bytes: &[u8], place: usize| bytes.get(place).copied().unwrap_or(0);
            let wrong = (0..now.len())
                .filter(|place| at(&was, *place) != at(&now, *place))
                .find(|place| !ranges.iter().any(|range| range.contains(&(*place as u64))));
            assert_eq!(
                wrong, None,
                "{}: {} with {ranges:?}",
                self.context, change.path
            );
        }
    }
}

fn inode(one: &Properties) -> String {
    let found = one.iter().find(|(name, _)| *name == "inode");
    found.expect("each has one").1.clone()
}

fn is_directory(one: &Properties) -> bool {
    one[0].1 == "Directory"
}

fn without_ctime(one: &Properties) -> Properties {
    one.iter()
        .filter(|(name, _)| *name != "ctime")
        .cloned()
        .collect()
}

/// What is left of a path behind one that it is, or is below.
fn rest_below<'a>(path: &'a [u8], top: &[u8]) -> Option<&'a [u8]> {
    if top.is_empty() {
        return Some(path);
    }
    path.strip_prefix(top)
        .filter(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Takes a path and all below it out of a side.
fn cut(side: &mut Side, top: &[u8]) -> Side {
    let paths: Vec<Vec<u8>> = side
        .keys()
        .filter(|path| rest_below(path, top).is_some())
        .cloned()
        .collect();
    let taken = paths.into_iter().map(|path| {
        let one = side.remove(&path).expect("it was listed");
        (rest_below(&path, top).expect("below").to_vec(), one)
    });
    taken.collect()
}

/// As the changes name it, the root is empty.
fn scan(root: &Path) -> Side {
    let mut side = snapshot(root, true);
    let one = side.remove(&b"."[..]).expect("the root");
    side.insert(Vec::new(), one);
    side
}

fn take(live: &Path, number: u64) -> PathBuf {
    let path = live.with_file_name(format!("snapshot-{number}"));
    btrfs(&["subvolume", "snapshot", "-r"], &[live, &path]);
    path
}

fn sent(older: &Path, newer: &Path) -> Vec<Change> {
    let output = Command::new("btrfs")
        .args(["send", "-q", "--no-data", "-p"])
        .args([older, newer])
        .stderr(Stdio::inherit())
        .output()
        .expect("btrfs send");
    assert!(output.status.success());
    changes(&output.stdout[..]).unwrap_or_else(|error| panic!("{}: {error}", newer.display()))
}

fn btrfs(words: &[&str], paths: &[&Path]) {
    let status = Command::new("btrfs")
        .args(words)
        .args(paths)
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("btrfs").success(), "btrfs {words:?}");
}

/// Random changes of all kinds, and many moves of directories.
fn churn(live: &Path, rng: &mut Rng) {
    for _ in 0..4 {
        mutate(live, rng.u64(..), 15);
        for _ in 0..6 {
            move_directory(live, rng);
        }
    }
}

/// Moves a directory into another one or over its name, and perhaps makes one where it stood.
fn move_directory(live: &Path, rng: &mut Rng) {
    let directories = directories(live);
    let (Some(one), Some(other)) = (rng.choice(&directories), rng.choice(&directories)) else {
        return;
    };
    let aside = live.join("aside");
    match rng.u8(..3) {
        0 => drop(fs::rename(
            one,
            other.join(format!("moved-{}", rng.u16(..))),
        )),
        1 if !one.starts_with(other) && !other.starts_with(one) => {
            fs::rename(one, &aside).expect("out of the way");
            fs::rename(other, one).expect("into its place");
            fs::rename(&aside, other).expect("into the other's");
        }
        _ => {
            if fs::rename(one, other.join(format!("moved-{}", rng.u16(..)))).is_ok()
                && !one.exists()
                && one.parent().is_some_and(Path::exists)
            {
                fs::create_dir(one).expect("in its place");
                fs::write(one.join("new"), b"new").expect("in it");
            }
        }
    }
}

fn directories(live: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![live.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).expect("list") {
            let entry = entry.expect("entry");
            if entry.file_type().expect("kind").is_dir() {
                left.push(entry.path());
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}
