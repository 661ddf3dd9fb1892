//! Programs that change a tree at random and announce it, agents and mirrors that are killed
//! meanwhile: in the end the replica is equal, by what was announced alone, on this host or through a
//! broker.
#![allow(clippy::disallowed_methods)]

mod common;

use common::agent::{Agent, POSTS, Shim};
use common::mirror::Mirror;
use common::published::{Stage, settle};
use driftless_testkit::EVENT_MAX;
use driftless_testkit::rabbit::calm;
use driftless_testkit::scratch::scratch_folder;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest that anything may take that is expected to happen.
const LIMIT: Duration = EVENT_MAX;
/// Changes of a round.
const CHANGES: usize = 400;
/// One in so many is an accident.
const ACCIDENTS: usize = 80;

/// Programs at work in a tree.
struct Programs {
    tree: PathBuf,
    rng: fastrand::Rng,
    shim: Shim,
    made: usize,
}

impl Programs {
    /// A path that may be there, one or two levels deep.
    fn any(&mut self) -> PathBuf {
        let mut path = self.tree.clone();
        for _ in 0..self.rng.usize(1..3) {
            path.push(self.rng.choice(["a", "b", "c", "d", "e"]).expect("one"));
        }
        path
    }

    fn announce(&self, kind: char, paths: &[&Path]) {
        if !self.shim.try_send(&Shim::message(kind, paths)) {
            self.shim.write(kind, paths);
        }
    }

    /// Does something that may be possible, and announces it if it was.
    fn change(&mut self) {
        let (path, other) = (self.any(), self.any());
        self.made += 1;
        match self.rng.u8(..12) {
            0..4 => {
                let length = self.rng.usize(..20_000);
                let content = format!("{:>length$}", self.made);
                if !path.is_dir() && fs::write(&path, content).is_ok() {
                    self.announce('w', &[&path]);
                }
            }
            4..6 if fs::create_dir(&path).is_ok() => self.announce('c', &[&path]),
            6..9 if path != other && fs::rename(&path, &other).is_ok() => {
                self.announce('r', &[&path, &other]);
            }
            9 if renameat_with(CWD, &path, CWD, &other, RenameFlags::EXCHANGE).is_ok() => {
                self.announce('x', &[&path, &other]);
            }
            10 if fs::remove_file(&path).is_ok() || fs::remove_dir(&path).is_ok() => {
                self.announce('d', &[&path]);
            }
            11 => {
                let mode = self.rng.choice([0o700, 0o755, 0o711]).expect("one");
                if fs::set_permissions(&path, Permissions::from_mode(mode)).is_ok() {
                    self.announce('m', &[&path]);
                }
            }
            _ => {}
        }
    }
}

/// Kills something, which comes back.
fn accident(rng: &mut fastrand::Rng, agent: &mut Agent, mirror: &mut Mirror) {
    match rng.u8(..4) {
        0 => {
            agent.kill();
            agent.start();
        }
        1 => {
            let _its_end = agent.stop();
            agent.start();
        }
        2 => {
            mirror.kill();
            mirror.start();
        }
        // Nobody reads for a while.
        _ => agent.freeze_for_a_moment(),
    }
}

fn seed() -> u64 {
    let seed = std::env::var("DRIFTLESS_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("DRIFTLESS_SEED={seed}");
    seed
}

/// Changes at random, with an accident now and then, and the last file of a round, which is announced.
fn change(
    programs: &mut Programs,
    round: usize,
    mut accident: impl FnMut(&mut fastrand::Rng),
) -> PathBuf {
    for _ in 0..CHANGES {
        programs.change();
        if programs.rng.usize(..ACCIDENTS) == 0 {
            accident(&mut programs.rng.fork());
        }
        if programs.rng.u8(..4) == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let last = programs.tree.join(format!("last of {round}"));
    fs::write(&last, b"1").expect("a file");
    last
}

#[test]
fn what_is_announced_at_random_ends_equal_whoever_is_killed() {
    let seed = seed();
    let folder = scratch_folder();
    let source = folder.path().join("src");
    fs::create_dir(&source).expect("a directory");
    let source = fs::canonicalize(source).expect("a path");
    let mut mirror = Mirror::of(&source, POSTS);
    let mut agent = Agent::beside(&mirror, "");
    agent.wait_until_told();
    let mut programs = Programs {
        tree: source,
        rng: fastrand::Rng::with_seed(seed),
        shim: agent.shim(),
        made: 0,
    };
    for round in 0..3 {
        let accident = |rng: &mut fastrand::Rng| accident(rng, &mut agent, &mut mirror);
        let last = change(&mut programs, round, accident);
        // A word of a moment ago may still be in the spool.
        agent.wait_for("all is read", |status| status["spool_files"] == 0);
        // What was said before is told before.
        programs.announce('w', &[&last]);
        let copy = mirror.replica.join(last.file_name().expect("a name"));
        agent.wait_for("the last word arrives", |_| copy.exists());
        mirror.check_equal(&format!("DRIFTLESS_SEED={seed}, round {round}"));
    }
}

#[test]
fn what_is_announced_through_a_broker_at_random_ends_equal() {
    let seed = seed();
    let rabbit = calm();
    let stage = Stage::new(&rabbit, "random");
    let mut agent = stage.agent("[\"shim\"]");
    let mut mirror = stage.mirror();
    let mut programs = Programs {
        tree: stage.source.clone(),
        rng: fastrand::Rng::with_seed(seed),
        shim: agent.shim(),
        made: 0,
    };
    for round in 0..4 {
        // Of an agent that was killed all may differ, so the first rounds show what it announces.
        let accident = |rng: &mut fastrand::Rng| {
            match (round, rng.u8(..3)) {
                (0, _) => {}
                (1, 0) => agent.freeze_for_a_moment(),
                (1, 1) => rabbit.close_connections(),
                (_, 0) => agent.kill(),
                (_, 1) => drop(agent.stop()),
                // What it has heard of and not done comes again, all at once.
                _ => {
                    mirror.kill();
                    mirror.start();
                }
            }
            agent.start_if_ended();
        };
        let last = change(&mut programs, round, accident);
        agent.wait_for("all is read", |status| status["spool_files"] == 0);
        programs.announce('w', &[&last]);
        let copy = mirror.replica.join(last.file_name().expect("a name"));
        settle(&agent);
        let began = Instant::now();
        while !copy.exists() {
            let told = (mirror.status(), agent.status());
            assert!(began.elapsed() < LIMIT, "the last word arrives: {told:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        settle(&agent);
        mirror.check_equal(&format!("DRIFTLESS_SEED={seed}, round {round}"));
    }
}
