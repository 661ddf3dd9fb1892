//! Directories and files that change places within milliseconds, while others are removed and made
//! anew, and files get further names: files that all have the same size and times, so that only
//! their content tells them apart.
//! After each burst the replica has what the source has, wherever it is by then.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use driftless_testkit::{FsKind, Scratch};
use fastrand::Rng;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, FileTimes};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

const SIZE_MIB: u64 = 300;
const KEYS: &str = "detect = [\"fanotify\"]\ndelete = true\n";
const ROUNDS: u64 = 150;

/// A source that is moved about.
struct Source {
    root: PathBuf,
    written: u64,
    rng: Rng,
}

impl Source {
    fn fill(root: &Path, seed: u64) -> Source {
        let rng = Rng::with_seed(seed);
        let mut source = Source {
            root: root.to_owned(),
            written: 0,
            rng,
        };
        for above in ["a", "b", "c"] {
            for below in ["x", "y", "z"] {
                source.make(&root.join(above).join(below));
            }
            source.make(&root.join(above));
        }
        source
    }

    /// Makes a directory with two files, or makes these anew.
    fn make(&mut self, dir: &Path) {
        fs::create_dir_all(dir).expect("a directory");
        for name in ["file", "other"] {
            self.written += 1;
            let path = dir.join(name);
            let _unless_it_is_new = fs::remove_file(&path);
            fs::write(&path, format!("{:8}", self.written)).expect("written");
            let file = fs::File::options().write(true).open(&path).expect("open");
            let then = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            let times = FileTimes::new().set_modified(then);
            file.set_times(times).expect("its time");
        }
    }

    fn dirs(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left = vec![self.root.clone()];
        while let Some(dir) = left.pop() {
            let entries = fs::read_dir(dir).expect("listed");
            let paths = entries.map(|entry| entry.expect("an entry").path());
            let dirs: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
            left.extend(dirs.iter().cloned());
            found.extend(dirs);
        }
        found.sort();
        found
    }

    fn any_dir(&mut self) -> PathBuf {
        let mut dirs = self.dirs();
        dirs.swap_remove(self.rng.usize(..dirs.len()))
    }

    /// Does something, unless it cannot be done with what there is.
    fn change(&mut self) {
        let (one, other) = (self.any_dir(), self.any_dir());
        let aside = self.root.join("aside");
        let names = ["file", "other"].map(|name| self.rng.choice([name, "file"]).expect("one"));
        let files = [one.join(names[0]), other.join(names[1])];
        let is_apart = !one.starts_with(&other) && !other.starts_with(&one);
        match self.rng.u8(0..10) {
            0 | 1 if is_apart => swap([&one, &other], &aside),
            2 if is_apart => exchange([&one, &other]),
            3 if one != other => swap([&files[0], &files[1]], &aside),
            4 if one != other => exchange([&files[0], &files[1]]),
            5 if !other.starts_with(&one) => {
                let name = self.rng.choice(["u", "v", "w"]).expect("one");
                let _there_is_one = fs::rename(&one, other.join(name));
            }
            6 => self.make(&one),
            7 if self.dirs().len() > 9 => {
                fs::remove_dir_all(&one).expect("removed");
                fs::create_dir(&one).expect("made anew");
            }
            8 if files[0].exists() && !aside.exists() => {
                fs::hard_link(&files[0], &aside).expect("a further name");
                fs::rename(&aside, other.join(names[1])).expect("in the place of another file");
                let _unless_both_were_names_of_it = fs::remove_file(&aside);
            }
            _ => {}
        }
    }
}

/// In three steps; what cannot be done is left.
fn swap([one, other]: [&Path; 2], aside: &Path) {
    if one.exists() && other.exists() {
        fs::rename(one, aside).expect("aside");
        fs::rename(other, one).expect("in its place");
        fs::rename(aside, other).expect("in the other's place");
    }
}

fn exchange([one, other]: [&Path; 2]) {
    if one.exists() && other.exists() {
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("exchanged");
    }
}

#[test]
fn what_changes_places_all_the_time_is_where_it_should_be_after_each_burst() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("DRIFTLESS_SEED").unwrap_or(7);
    let rounds = number("DRIFTLESS_SEEDS").map_or(ROUNDS, |seeds: u64| 10 * seeds);
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let root = scratch.dir("src");
    let mut source = Source::fill(&root, seed);
    let mirror = Mirror::of(&root, KEYS);
    mirror.barrier();
    for round in 0..rounds {
        for _ in 0..source.rng.usize(1..15) {
            source.change();
            if source.rng.u8(..) < 25 {
                std::thread::sleep(Duration::from_millis(source.rng.u64(0..30)));
            }
        }
        mirror.check_equal(&format!("seed {seed}, round {round}"));
    }
    assert_eq!(mirror.status()["problems"], 0, "{}", mirror.status());
}
