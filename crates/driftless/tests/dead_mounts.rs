//! File systems whose server is gone (`ENOTCONN`): each is a problem of its path, and never the end
//! of a run.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way};
use common::mounted::Mounted;
use common::movers::{Job, end_mover, sync_on_hosts};
use common::{check_accounts, on_trees, only_local, problems, put, stage, sync, verify};
use driftless_testkit::{Driftless, Outcome, Rabbit, Scratch};
use std::path::PathBuf;

/// What comes before the mount and behind it in any order of a walk.
const FILES: [&str; 4] = ["a/file", "m/before", "m/inner/file", "z/file"];
const MOUNT: &str = "m/dead";

/// A source, and the folder in which its replica will be.
struct Pair {
    src: PathBuf,
    dst: PathBuf,
    _scratch: Scratch,
}

impl Pair {
    fn new() -> Pair {
        let (scratch, src, dst) = stage();
        FILES
            .iter()
            .for_each(|file| put(&src.join(file), "content"));
        Pair {
            src,
            dst,
            _scratch: scratch,
        }
    }

    fn dead_on_source(&self) -> Mounted {
        Mounted::dead(&self.src.join(MOUNT))
    }

    /// All but the mount was made equal, and the mount is named.
    fn check_named(&self, run: Driftless) -> Outcome {
        let outcome = run.run().expect(3);
        check_accounts(&outcome);
        check_words(&outcome);
        for file in FILES {
            assert!(
                self.dst.join(file).exists(),
                "{file}\n{}",
                outcome.describe()
            );
        }
        outcome
    }
}

fn check_words(outcome: &Outcome) {
    assert_eq!(problems(outcome), [MOUNT], "{}", outcome.describe());
    let causes = outcome.events_named("problem");
    assert!(
        causes.iter().all(|event| event["cause"]
            .as_str()
            .is_some_and(|why| why.contains("dead mount"))),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_dead_mount_of_the_source_is_named_and_the_run_goes_on() {
    let pair = Pair::new();
    let _dead = pair.dead_on_source();
    let _ = pair.check_named(sync(&pair.src, &pair.dst));
    put(&pair.dst.join("z/extra"), "only here");
    let outcome = pair.check_named(sync(&pair.src, &pair.dst).arg("--delete"));
    assert_eq!(outcome.count("deleted"), 1, "{}", outcome.describe());
}

#[test]
fn a_dead_mount_of_the_replica_is_named_and_the_run_goes_on() {
    let pair = Pair::new();
    put(&pair.src.join(MOUNT).join("file"), "content");
    let _dead = Mounted::dead(&pair.dst.join(MOUNT));
    let _ = pair.check_named(sync(&pair.src, &pair.dst));
    let _ = pair.check_named(sync(&pair.src, &pair.dst).arg("--delete"));
}

#[test]
fn a_dead_mount_that_would_be_deleted_stays_and_is_named() {
    let pair = Pair::new();
    let _dead = Mounted::dead(&pair.dst.join(MOUNT));
    put(&pair.dst.join("m/extra"), "only here");
    let outcome =
        pair.check_named(sync(&pair.src, &pair.dst).args(["--delete", "--delete-unlike"]));
    assert_eq!(outcome.count("deleted"), 1, "{}", outcome.describe());
}

#[test]
fn a_dead_mount_is_left_alone_by_a_run_of_one_file_system() {
    let pair = Pair::new();
    let _dead = pair.dead_on_source();
    let outcome = sync(&pair.src, &pair.dst)
        .args(["-x", "--delete"])
        .run()
        .expect(0);
    check_accounts(&outcome);
    assert_eq!(
        problems(&outcome),
        Vec::<String>::new(),
        "{}",
        outcome.describe()
    );
    assert_eq!(
        outcome.count("skipped_other_file_system"),
        1,
        "{}",
        outcome.describe()
    );
    let far = Far::root();
    for way in Way::ALL {
        let _ = far
            .sync(way, &pair.src, &pair.dst)
            .args(["-x", "--delete"])
            .run()
            .expect(0);
    }
    for command in [
        &["verify", "-x"][..],
        &["audit", "-x", "--samples=100", "--grace=0"],
    ] {
        let outcome = on_trees(command[0], &pair.src, &pair.dst)
            .args(&command[1..])
            .run()
            .expect(0);
        assert!(
            !outcome.stderr_text().contains("dead mount"),
            "{}",
            outcome.describe()
        );
    }
}

#[test]
fn a_dead_mount_is_named_by_a_verification() {
    let pair = Pair::new();
    let _ = sync(&pair.src, &pair.dst).run().expect(0);
    let dead = pair.dead_on_source();
    let verify = || verify(&pair.src, &pair.dst);
    let outcome = verify().run().expect(4);
    check_words(&outcome);
    assert_eq!(outcome.count("failed"), 1, "{}", outcome.describe());
    drop(dead);
    std::fs::remove_dir(pair.src.join(MOUNT)).expect("remove");
    let _dead = Mounted::dead(&pair.dst.join(MOUNT));
    let outcome = verify().run();
    assert!([3, 4].contains(&outcome.code()), "{}", outcome.describe());
}

#[test]
fn a_dead_mount_keeps_an_audit_from_saying_that_all_was_compared() {
    let pair = Pair::new();
    let _ = sync(&pair.src, &pair.dst).run().expect(0);
    let _dead = pair.dead_on_source();
    for directory in 0..50 {
        put(
            &pair.src.join(format!("t/d{directory}/e/file")),
            "only here",
        );
    }
    let audit = |arguments: &[&str]| {
        on_trees("audit", &pair.src, &pair.dst)
            .args(["--grace", "0"])
            .args(arguments)
            .run()
    };
    for arguments in [
        &["--samples", "5000"][..],
        &["--fraction", "1%", "--jobs", "1"],
    ] {
        let outcome = audit(arguments);
        assert!([3, 4].contains(&outcome.code()), "{}", outcome.describe());
        assert!(
            !outcome.stdout_text().contains("none differs"),
            "{}",
            outcome.describe()
        );
        assert!(
            outcome.stderr_text().contains("dead mount"),
            "{}",
            outcome.describe()
        );
    }
}

#[test]
fn a_dead_mount_on_another_host_is_named_and_the_run_goes_on() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    for way in Way::ALL {
        let pair = Pair::new();
        let dead = pair.dead_on_source();
        let _ = pair.check_named(far.sync(way, &pair.src, &pair.dst));
        drop(dead);
        put(&pair.src.join(MOUNT).join("file"), "content");
        let _dead = Mounted::dead(&pair.dst.join(MOUNT));
        let _ = pair.check_named(far.sync(way, &pair.src, &pair.dst).arg("--delete"));
    }
}

#[test]
fn a_dead_mount_is_named_by_movers_and_all_else_is_made() {
    only_local!("goes over ssh anyway");
    let far = Far::root();
    let pair = Pair::new();
    let _dead = pair.dead_on_source();
    let _ = pair.check_named(sync_on_hosts("far,far", &far.words(), &pair.src, &pair.dst));
    let rabbit = Rabbit::start();
    let job = Job::new(&rabbit);
    let mover = job.start_mover();
    let pair = Pair::new();
    let _dead = pair.dead_on_source();
    let _ = pair.check_named(job.sync(&pair.src, &pair.dst));
    end_mover(mover);
}
