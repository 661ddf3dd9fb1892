//! Runs that movers share, under any order of events that a seed can make: the real coordinator,
//! record and lease, and the real way of batches through a mover, on small trees, with queues,
//! movers and a clock that obey the seed ([`common::world`]).
//!
//! Coordinators die between any two of their commits, sleep and wake, and others go on: of the same
//! job, or of another one that has another source for the same replica. In between somebody changes
//! the trees. What must hold: exit code 0 only when both trees are equal, and every entry was
//! looked at in this life of the run; each entry is counted once; who does not hold the replica
//! changes nothing of it; and all runs come to an end.
#![allow(clippy::disallowed_methods)]

mod common;

use common::campaign::{Campaign, count_of};
use common::world::{Crash, JOBS, Life, NOT_HELD, World, WorldClock};
use common::{check_equal, count_entries, leftovers, put};
use driftless_engine::{
    Batch, Brief, By, End, Monitor, Options, Piece, Progress, Route, RunError, Summary, Throttle,
    coordinate, sync_by,
};
use driftless_model::{Policy, Problem, Receipt};
use driftless_pool::Concurrency;
use driftless_state::Record;
use driftless_testkit::{Profile, build_tree, mutate};
use fastrand::Rng;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// Seeds of a sample, and for each seed of a campaign.
const SAMPLE: u64 = 40;
const EACH: u64 = 1000;
/// Lives of a run at most; the last one is not cut short.
const LIVES_MAX: u32 = 5;
/// Runs at a time.
const THREADS: usize = 8;
const DAY: u64 = 24 * 3600 * 1000;
/// Of so many seeds one has a file that movers copy in ranges.
const LARGE: u64 = 6;
/// Bytes of it: with few data, since the rest is a hole.
const LARGE_BYTES: u64 = 70 << 20;

/// Keeps what a run says.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn add(&self, line: String) {
        self.0.lock().expect("nobody panics with it").push(line);
    }

    fn words(&self) -> String {
        self.0.lock().expect("nobody panics with it").join("\n")
    }
}

impl Monitor for Heard {
    fn wants_receipts(&self) -> bool {
        false
    }
    fn receipt(&self, _receipt: &Receipt) {}
    fn problem(&self, problem: &Problem) {
        self.add(format!("problem: {problem:?}"));
    }
    fn note(&self, text: &str) {
        self.add(format!("note: {text}"));
    }
    fn progress(&self, _progress: &Progress) {}
}

/// A source of the replica, and what is known of the run that makes them equal.
struct Job {
    src: PathBuf,
    record: PathBuf,
    options: Options,
    heard: Heard,
}

impl Job {
    fn new(folder: &Path, name: &str) -> Job {
        let (src, dst) = (folder.join(name), folder.join("dst"));
        fs::create_dir(&src).expect("make");
        let options = Options {
            source: src.clone().into(),
            replica: dst.into(),
            policy: Policy {
                delete: true,
                delete_unlike: true,
                ..Policy::default()
            },
            throttle: Throttle {
                jobs: Concurrency::Fixed(1),
                ..Throttle::default()
            },
            ..Options::default()
        };
        Job {
            src,
            record: folder.join(format!("record-{name}")),
            options,
            heard: Heard::default(),
        }
    }
}

/// Runs from their first life to their last.
struct Case {
    rng: Rng,
    dst: PathBuf,
    jobs: [Job; JOBS],
    routes: Vec<Route>,
    /// Coordinators neither die nor sleep.
    is_calm: bool,
}

/// How a life ended.
enum Ended {
    Crashed,
    Stopped,
    Complete(Box<Summary>),
}

impl Case {
    fn new(folder: &Path, seed: u64) -> Case {
        let case = Case::empty(folder, seed);
        let profile = Profile {
            entries: 25,
            catalogue: false,
            large: false,
            ..Profile::root()
        };
        // Of the other job: other content under many of the same names.
        case.jobs
            .iter()
            .for_each(|job| build_tree(&job.src, seed, &profile));
        mutate(&case.jobs[1].src, seed, 12);
        if seed.is_multiple_of(LARGE) {
            case.jobs
                .iter()
                .zip(1..)
                .for_each(|(job, version)| put_large(&job.src.join("large"), version));
        }
        case
    }

    fn empty(folder: &Path, seed: u64) -> Case {
        // As the program does: what is made gets its mode from the source.
        let _given_up = rustix::process::umask(rustix::fs::Mode::empty());
        let routes = vec![Route {
            size_min: 1000,
            class: "big".into(),
        }];
        let jobs = [Job::new(folder, "src"), Job::new(folder, "other")];
        Case {
            rng: Rng::with_seed(seed),
            dst: folder.join("dst"),
            jobs,
            routes,
            is_calm: false,
        }
    }

    fn world(&self, seed: u64) -> World {
        World::new(
            seed,
            self.jobs.each_ref().map(|job| job.options.clone()),
            self.dst.clone(),
        )
    }

    /// One life of a coordinator of this job.
    fn live(&mut self, world: &World, job: usize, is_last: bool) -> Ended {
        // Its seat at the broker has to be free.
        let wait = world.state().seat_free_in(job);
        world.pass(wait);
        let (stop, options) = (
            AtomicBool::new(false),
            Options {
                run: self.rng.u128(1..),
                ..self.jobs[job].options.clone()
            },
        );
        let is_calm = self.is_calm;
        let mut at = |batch: u8, calls: u64| {
            (!is_calm && self.rng.u8(0..8) < batch).then(|| self.rng.u64(1..calls))
        };
        let (dies_at, stops_at, sleeps_at) = (at(5, 300), at(2, 300), at(2, 300));
        let (dies_at, stops_at) = (dies_at.filter(|_| !is_last), stops_at.filter(|_| !is_last));
        let others = self.jobs[1 - job].options.clone();
        let meanwhile = || refused(world, &others);
        let mut exchange = Life {
            world,
            job,
            calls: 0,
            dies_at,
            stops_at,
            sleeps_at,
            stop: &stop,
            meanwhile: &meanwhile,
        };
        let mut record = Record::open(&self.jobs[job].record, "model").expect("the record");
        let mut brief = Brief::of(&options, &self.routes, false);
        let clock = WorldClock(world);
        let by = By {
            exchange: &mut exchange,
            record: &mut record,
            clock: &clock,
        };
        let lived = catch_unwind(AssertUnwindSafe(|| {
            coordinate((&options, &mut brief), &self.jobs[job].heard, &stop, by)
        }));
        match lived {
            Ok(Ok(Summary {
                end: End::Stopped, ..
            })) => Ended::Stopped,
            Ok(Ok(summary)) => {
                world.state().lets_go();
                Ended::Complete(Box::new(summary))
            }
            Ok(Err(error)) => panic!("{error}"),
            Err(crash) if crash.is::<Crash>() => Ended::Crashed,
            Err(failure) => resume_unwind(failure),
        }
    }

    /// Somebody does something to the trees while there is no coordinator.
    fn meddle(&mut self, world: &World) {
        let say = |what: &str| world.state().history.push(format!("              {what}"));
        let (seed, count) = (self.rng.u64(..), self.rng.usize(1..12));
        let src = self.jobs[0].src.clone();
        match self.rng.u8(0..10) {
            0 | 1 => {
                say("the source changes");
                mutate(&src, seed, count);
            }
            2 if self.dst.exists() => {
                say("the replica changes");
                mutate(&self.dst, seed, count);
            }
            3 if self.dst.exists() => {
                say("the replica is emptied");
                let all = fs::read_dir(&self.dst)
                    .expect("list")
                    .map(|entry| entry.expect("an entry").path());
                all.for_each(|path| {
                    if path.is_dir() && !path.is_symlink() {
                        fs::remove_dir_all(path)
                    } else {
                        fs::remove_file(path)
                    }
                    .expect("gone")
                });
            }
            4 => {
                say("the replica is removed");
                let _it_may_not_be_there = fs::remove_dir_all(&self.dst);
            }
            5 => {
                say("another run works on the replica, and the source changes");
                let options = Options {
                    run: self.rng.u128(1..),
                    ..self.jobs[0].options.clone()
                };
                sync_by(
                    &WorldClock(world),
                    &options,
                    &Heard::default(),
                    &AtomicBool::new(false),
                )
                .expect("another run");
                world.state().lets_go();
                mutate(&src, seed, count);
            }
            6 => {
                say("days pass");
                world.pass(self.rng.u64(0..10 * DAY));
            }
            7 | 8 => {
                say("another job makes the replica equal to another source");
                let is_whole = self.rng.bool();
                self.live_and_check(world, 1, is_whole);
            }
            _ => {}
        }
    }

    /// No entry of the replica is any more what a run has made it: who does not look at it does not
    /// make it equal.
    fn spoil(&mut self, world: &World) {
        if self.rng.bool() || !self.dst.exists() {
            return;
        }
        world
            .state()
            .history
            .push("              all entries of the replica get other times".into());
        for path in driftless_testkit::mutate::list_all(&self.dst).expect("list") {
            let Ok(meta) = path.symlink_metadata() else {
                continue;
            };
            let time = Timespec {
                tv_sec: meta.mtime() - 1000,
                tv_nsec: 7,
            };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("times");
        }
    }

    fn check(&self, job: usize, summary: &Summary, said: &str) {
        let counts = &summary.counts;
        assert!(counts.adds_up(), "{counts:?}\n{said}");
        if summary.end != End::Complete || counts.problems() > 0 || counts.failed > 0 {
            return;
        }
        let src = &self.jobs[job].src;
        assert_eq!(
            counts.seen,
            count_entries(src),
            "each entry is counted once: {counts:?}\n{said}"
        );
        check_equal(src, &self.dst, said);
        assert_eq!(leftovers(&self.dst), Vec::<PathBuf>::new(), "{said}");
    }

    fn live_and_check(&mut self, world: &World, job: usize, is_last: bool) -> Ended {
        self.spoil(world);
        let ended = self.live(world, job, is_last);
        if let Ended::Complete(summary) = &ended {
            self.check(
                job,
                summary,
                &[self.jobs[job].heard.words(), world.history()].join("\n"),
            );
        }
        ended
    }

    /// Lives until a run has come to its end and nobody has forgotten that; says whether it ended
    /// with exit code 0.
    fn run(&mut self, world: &World) -> bool {
        for life in 1.. {
            let is_last = life >= LIVES_MAX;
            let ended = self.live_and_check(world, 0, is_last);
            // Else it is killed before it has removed its record.
            if let Ended::Complete(summary) = &ended
                && (is_last || self.rng.u8(0..4) > 0)
            {
                self.rest(world);
                return summary.counts.problems() == 0 && summary.counts.failed == 0;
            }
            world.pass(self.rng.u64(0..60_000));
            self.meddle(world);
        }
        unreachable!("the last life comes to its end")
    }

    /// Whoever slept wakes up, and changes nothing.
    fn rest(&self, world: &World) {
        world.state().accidents = 0;
        world.pass(100_000);
    }
}

/// Another run of the same replica does not begin while its coordinator sleeps.
fn refused(world: &World, options: &Options) {
    let done = sync_by(
        &WorldClock(world),
        options,
        &Heard::default(),
        &AtomicBool::new(false),
    );
    assert!(
        matches!(done, Err(RunError::Locked { .. })),
        "{:?}\n{}",
        done.map(|summary| summary.end),
        world.history()
    );
}

/// A large file, most of which is a hole.
fn put_large(path: &Path, version: u8) {
    let file = fs::File::create(path).expect("create");
    // Of the same moment both may be, by a clock that goes in steps.
    file.set_len(LARGE_BYTES + u64::from(version))
        .expect("length");
    for place in (0..LARGE_BYTES).step_by(9 << 20) {
        file.write_all_at(&[version; 4096], place).expect("write");
    }
}

/// Whether leases end, in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leases {
    End,
    Stay,
}

/// What happens in the world of a seed.
fn run_history(seed: u64) -> String {
    let folder = driftless_testkit::scratch::scratch_folder();
    let mut case = Case::new(folder.path(), seed);
    let world = case.world(seed);
    case.run(&world);
    world
        .history()
        .replace(&folder.path().display().to_string(), "")
}

fn run_seed(seed: u64, leases: Leases) -> bool {
    let folder = driftless_testkit::scratch::scratch_folder();
    let mut case = Case::new(folder.path(), seed);
    let world = case.world(seed);
    world.state().breaks_leases = leases == Leases::Stay;
    let outcome = catch_unwind(AssertUnwindSafe(|| case.run(&world)));
    outcome.unwrap_or_else(|failure| {
        if leases == Leases::End {
            println!("{}", world.history());
            println!("seed {seed}; replay: DRIFTLESS_SEED={seed} cargo test -p driftless --test movers_model whatever");
        }
        resume_unwind(failure)
    })
}

/// What became of a seed: whether its run came to a good end, or the words of what did not hold.
type Ran = (u64, Result<bool, String>);

/// What did not hold, without what happened before.
fn ending(why: &str) -> String {
    let lines: Vec<&str> = why.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// Runs these seeds, many at a time.
fn run_seeds(seeds: Vec<u64>, leases: Leases) -> Vec<Ran> {
    let left = Mutex::new(seeds.into_iter());
    let next = || left.lock().expect("nobody panics with it").next();
    let words = |panic: Box<dyn std::any::Any + Send>| match panic.downcast::<String>() {
        Ok(words) => *words,
        Err(other) => other
            .downcast_ref::<&str>()
            .map_or("?", |words| words)
            .to_owned(),
    };
    let work = || {
        let run = |seed| (seed, catch_unwind(|| run_seed(seed, leases)).map_err(words));
        std::iter::from_fn(next).map(run).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("what panics is caught"))
            .collect()
    })
}

#[test]
fn whatever_happens_exit_code_0_means_equal_and_only_who_holds_the_replica_changes_it() {
    let seeds = match std::env::var("DRIFTLESS_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..SAMPLE).collect::<Vec<u64>>(),
    };
    let ended = run_seeds(seeds, Leases::End);
    let failed: Vec<_> = ended
        .iter()
        .filter_map(|(seed, ran)| ran.as_ref().err().map(|why| (seed, ending(why))))
        .collect();
    assert!(failed.is_empty(), "seeds {failed:#?}");
    let good = ended.iter().filter(|(_, good)| *good == Ok(true)).count();
    assert!(
        good * 2 >= ended.len() || ended.len() == 1,
        "only {good} of {} runs came to a good end",
        ended.len()
    );
}

#[test]
fn a_seed_makes_the_same_events_again() {
    for seed in 0..4 {
        let [first, second] = [run_history(seed), run_history(seed)];
        let pair = first
            .lines()
            .zip(second.lines())
            .find(|(one, other)| one != other);
        assert_eq!(pair, None, "seed {seed}");
        assert_eq!(first.lines().count(), second.lines().count(), "seed {seed}");
    }
}

#[test]
fn movers_whose_leases_do_not_end_are_caught() {
    let ended = run_seeds((0..SAMPLE).collect(), Leases::Stay);
    let caught = ended
        .iter()
        .filter(|(_, ran)| ran.as_ref().is_err_and(|why| why.contains(NOT_HELD)))
        .count();
    assert!(caught > 0, "the judge is blind");
    println!("caught in {caught} of {} seeds", ended.len());
}

/// A run of a directory `dir` with two large files and a small one, which becomes a file of so many
/// bytes once its large files are left to others.
fn replace_divided(seed: u64, bytes: usize) {
    let folder = driftless_testkit::scratch::scratch_folder();
    let mut case = Case::empty(folder.path(), seed);
    case.is_calm = true;
    let dir = case.jobs[0].src.join("dir");
    ["one", "two"]
        .into_iter()
        .for_each(|name| put(&dir.join(name), [1; 2000]));
    put(&dir.join("small"), "small");
    // By what stays in the root, movers know it.
    (0..5).for_each(|name| put(&case.jobs[0].src.join(name.to_string()), "stays"));
    let world = case.world(seed);
    world.state().before = Some(Box::new(move |batch: &Batch| {
        let is_below =
            |piece: &Piece| matches!(piece, Piece::Entries(path, _) if path.as_bytes() == b"dir");
        if dir.is_dir() && batch.class == 1 && batch.pieces.iter().any(is_below) {
            fs::remove_dir_all(&dir).expect("gone");
            put(&dir, vec![2; bytes]);
        }
    }));
    let Ended::Complete(summary) = case.live(&world, 0, true) else {
        panic!("the run does not come to its end")
    };
    let said = format!("seed {seed}\n{}", world.history());
    let src = &case.jobs[0].src;
    assert!(src.join("dir").is_file(), "{said}");
    assert!(summary.counts.adds_up(), "{:?}\n{said}", summary.counts);
    assert_eq!(
        (summary.counts.problems(), summary.counts.failed),
        (0, 0),
        "{said}"
    );
    check_equal(src, &case.dst, &said);
}

#[test]
fn a_directory_that_becomes_a_file_while_movers_share_it_is_made_once() {
    for seed in 0..8 {
        replace_divided(seed, 10);
        replace_divided(seed, 5000);
    }
}

#[test]
#[ignore = "a campaign: make campaign"]
fn campaign() {
    let mut campaign = Campaign::new("movers_model");
    let seeds = (0..count_of("DRIFTLESS_SEEDS", 1) * EACH).map(|seed| 10_000 + seed);
    for (seed, ran) in run_seeds(seeds.collect(), Leases::End) {
        campaign.judge(format!("seed {seed}"), || {
            ran.unwrap_or_else(|why| panic!("{why}"))
        });
    }
    campaign.end();
}
