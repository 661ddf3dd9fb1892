//! A run with a broker that goes on after an interruption: its record saves copying, and never looking. Whatever became of the trees
//! between its two halves, it ends with exit code 0 only when they are equal.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mounted::Mounted;
use common::movers::{Job, end_mover};
use common::{check_accounts, check_equal_twice, count_entries, files_below, leftovers, put, stage, sync_ok, wait_until};
use driftless_queue::{Broker, Control, Credentials, Job as QueueNames};
use driftless_testkit::{Driftless, FsKind, Outcome, Rabbit, Running, Scratch};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

const DIRS: usize = 16;
const FILES: usize = 20;
const FILE_BYTES: usize = 100 << 10;
/// How long something may take that takes seconds.
const LIMIT: Duration = Duration::from_secs(120);

fn rabbit() -> &'static Rabbit {
    static RABBIT: OnceLock<Rabbit> = OnceLock::new();
    RABBIT.get_or_init(Rabbit::start)
}

/// A run in two halves.
struct Halves {
    job: Job,
    src: PathBuf,
    dst: PathBuf,
    /// Options of both halves.
    options: Vec<&'static str>,
}

impl Halves {
    fn new(src: &Path, dst: &Path) -> Halves {
        for dir in 0..DIRS {
            (0..FILES).for_each(|file| put(&src.join(format!("dir-{dir}/file-{file}")), vec![dir as u8 + 1; FILE_BYTES]));
        }
        Halves { job: Job::new(rabbit()), src: src.to_owned(), dst: dst.to_owned(), options: Vec::new() }
    }

    fn deleting(self) -> Halves {
        Halves { options: vec!["--delete"], ..self }
    }

    fn sync(&self) -> Driftless {
        self.job.sync(&self.src, &self.dst).args(&self.options)
    }

    /// The first half: the coordinator ends when so many files are there. What movers did until then is settled, or waits in the queue as a
    /// result.
    fn begin(&self, files: usize) -> Outcome {
        let movers: Vec<Running> = (0..2).map(|_| self.job.mover().args(["--bwlimit=12M", "--jobs=2"]).spawn()).collect();
        let running = self.sync().spawn();
        wait_until("some files are there", LIMIT, || files_below(&self.dst) >= files);
        running.signal(Signal::INT);
        let outcome = running.wait().expect(130);
        movers.into_iter().for_each(end_mover);
        outcome
    }

    /// The first half, which one mover carries out while the coordinator is dead, as far as it can.
    fn begin_and_die(&self) {
        let mover = self.job.mover().args(["--bwlimit=12M", "--jobs=2"]).spawn();
        let running = self.sync().spawn();
        wait_until("some files are there", LIMIT, || files_below(&self.dst) >= 20);
        running.signal(Signal::KILL);
        let _ = running.wait();
        let broker = Broker::new(self.job.url.parse().expect("a URL"), Credentials::from_value(Rabbit::PASSWORD)).expect("a broker");
        let names = QueueNames::new(&self.job.name, &["work"]).expect("a job");
        let mut control = Control::open(&broker, &names).expect("a connection");
        let idle = names.idle("work").expect("a queue");
        wait_until("the mover has nothing to do", LIMIT, || control.count(&idle).is_ok_and(|count| count.consumers > 0));
        end_mover(mover);
    }

    /// The second half, which must come to a good end.
    fn end(&self, arguments: &[&str]) -> Outcome {
        let mover = self.job.start_mover();
        let outcome = self.sync().args(arguments).run().expect(0);
        end_mover(mover);
        check_accounts(&outcome);
        check_equal_twice(&self.src, &self.dst, &outcome.describe());
        assert_eq!(outcome.count("seen"), count_entries(&self.src), "each entry is counted once\n{}", outcome.describe());
        assert_eq!(leftovers(&self.dst), Vec::<PathBuf>::new());
        outcome
    }

    fn bytes(&self) -> u64 {
        (DIRS * FILES * FILE_BYTES) as u64
    }
}

fn check_said(outcome: &Outcome, words: &[&str]) {
    words.iter().for_each(|word| assert!(outcome.stderr_text().contains(word), "\"{word}\" is missing\n{}", outcome.describe()));
}

#[test]
fn what_was_copied_is_looked_at_and_not_copied_again() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(200);
    let outcome = run.end(&[]);
    check_said(&outcome, &["going on with the run that was interrupted", "ago"]);
    assert_eq!(outcome.count("bytes_copied"), run.bytes(), "all lives of the run together\n{}", outcome.describe());
    assert_eq!(outcome.count("bytes_compared"), 0, "what is equal costs a look\n{}", outcome.describe());
    assert!(outcome.count("changed_before") >= 200, "{}", outcome.describe());
}

#[test]
fn a_replica_that_was_emptied_between_two_halves_is_filled() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(200);
    fs::read_dir(&dst).expect("list").for_each(|entry| fs::remove_dir_all(entry.expect("an entry").path()).expect("remove"));
    check_said(&run.end(&[]), &["going on with"]);
}

#[test]
fn a_replica_that_was_removed_between_two_halves_is_made_anew() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(200);
    fs::remove_dir_all(&dst).expect("remove");
    let outcome = run.end(&[]);
    check_said(&outcome, &["interrupted", "ago is not gone on with", "replica"]);
    assert_eq!(outcome.count("changed"), outcome.count("seen"), "{}", outcome.describe());
}

#[test]
fn a_replica_that_was_exchanged_between_two_halves_is_made_equal() {
    let (scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(200);
    fs::rename(&dst, scratch.path().join("old")).expect("rename");
    put(&dst.join("dir-0/file-0"), "of another one");
    let outcome = run.end(&[]);
    check_said(&outcome, &["is not gone on with", "replica"]);
}

#[test]
fn a_replica_that_is_not_mounted_in_the_second_half_is_noticed() {
    let (scratch, src, _) = stage();
    let mount = Scratch::new(FsKind::Tmpfs, 100);
    let dst = scratch.path().join("mounted");
    let mounted = Mounted::bind(mount.path(), &dst);
    let run = Halves::new(&src, &dst);
    let _ = run.begin(200);
    drop(mounted);
    let outcome = run.end(&[]);
    check_said(&outcome, &["is not gone on with", "replica"]);
}

#[test]
fn a_source_that_has_changed_between_two_halves_is_looked_at() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst).deleting();
    let _ = run.begin(200);
    for dir in 0..DIRS {
        put(&src.join(format!("dir-{dir}/new")), "new");
        put(&src.join(format!("dir-{dir}/file-1")), "next day");
        fs::remove_file(src.join(format!("dir-{dir}/file-2"))).expect("remove");
    }
    check_said(&run.end(&[]), &["going on with"]);
}

#[test]
fn a_source_that_was_exchanged_between_two_halves_is_noticed() {
    let (scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst).deleting();
    let _ = run.begin(200);
    fs::rename(&src, scratch.path().join("old")).expect("rename");
    (0..DIRS).for_each(|dir| put(&src.join(format!("dir-{dir}/file-3")), "another one"));
    let outcome = run.end(&[]);
    check_said(&outcome, &["is not gone on with", "the source is another directory"]);
}

/// All was carried out, and the results wait in the queue for a coordinator that was killed.
#[test]
fn results_that_waited_in_the_queue_are_no_looks() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    run.begin_and_die();
    (0..DIRS).for_each(|dir| put(&src.join(format!("dir-{dir}/new")), "new"));
    let copied = driftless_testkit::mutate::list_all(&dst).expect("list").into_iter().find(|path| path.is_file());
    fs::remove_file(copied.expect("a file")).expect("remove");
    let outcome = run.end(&[]);
    check_said(&outcome, &["going on with"]);
    assert!(outcome.count("bytes_copied") <= run.bytes() + FILE_BYTES as u64 + 3 * DIRS as u64, "{}", outcome.describe());
}

/// What another run has made of the files that were begun, the record does not know.
#[test]
fn a_record_is_dropped_when_another_run_has_changed_the_replica_since() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(200);
    let _ = sync_ok(&src, &dst, ["--exclude", "file-3"]);
    let outcome = run.end(&[]);
    check_said(&outcome, &["is not gone on with", "another run has changed the replica since"]);
}

#[test]
fn a_record_is_dropped_when_the_user_says_so_or_asks_for_something_else() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(100);
    let outcome = run.end(&["--fresh"]);
    assert!(!outcome.stderr_text().contains("going on"), "{}", outcome.describe());
    check_said(&outcome, &["is not gone on with", "--fresh"]);
    fs::remove_dir_all(&dst).expect("remove");
    let _ = run.begin(100);
    let outcome = run.end(&["--delete"]);
    check_said(&outcome, &["is not gone on with", "options"]);
}
