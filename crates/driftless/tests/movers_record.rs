//! A run with a broker that goes on after an interruption: its record saves copying, and never
//! looking. Whatever became of the trees between its two halves, it ends with exit code 0 only when
//! they are equal.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mounted::Mounted;
use common::movers::{Job, end_mover};
use common::{
    check_accounts, check_equal_twice, count_entries, files_below, leftovers, put, stage, sync_ok,
    wait_until,
};
use driftless_queue::{Broker, Control, Credentials, Job as QueueNames};
use driftless_testkit::{Driftless, FsKind, Outcome, Rabbit, Running, Scratch};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const DIRS: usize = 16;
const FILES: usize = 20;
const FILE_BYTES: usize = 100 << 10;

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
            (0..FILES).for_each(|file| {
                put(
                    &src.join(format!("dir-{dir}/file-{file}")),
                    vec![dir as u8 + 1; FILE_BYTES],
                )
            });
        }
        Halves {
            job: Job::new(rabbit()),
            src: src.to_owned(),
            dst: dst.to_owned(),
            options: Vec::new(),
        }
    }

    fn deleting(self) -> Halves {
        Halves {
            options: vec!["--delete"],
            ..self
        }
    }

    fn sync(&self) -> Driftless {
        self.job.sync(&self.src, &self.dst).args(&self.options)
    }

    /// The first half: the coordinator ends when so many files are there. What movers did until
    /// then is settled, or waits in the queue as a result.
    fn begin(&self, files: usize) -> Outcome {
        let movers: Vec<Running> = (0..2)
            .map(|_| self.job.mover().args(["--bwlimit=12M", "--jobs=2"]).spawn())
            .collect();
        let running = self.sync().spawn();
        wait_until("some files are there", || files_below(&self.dst) >= files);
        running.signal(Signal::INT);
        let outcome = running.wait().expect(130);
        movers.into_iter().for_each(end_mover);
        outcome
    }

    /// The first half, which one mover carries out while the coordinator is dead, as far as it can.
    fn begin_and_die(&self) {
        let mover = self.job.mover().args(["--bwlimit=12M", "--jobs=2"]).spawn();
        let running = self.sync().spawn();
        wait_until("some files are there", || files_below(&self.dst) >= 20);
        running.signal(Signal::KILL);
        let _ = running.wait();
        let broker = Broker::new(
            self.job.url.parse().expect("a URL"),
            Credentials::from_value(Rabbit::PASSWORD),
        )
        .expect("a broker");
        let names = QueueNames::new(&self.job.name, &["work"]).expect("a job");
        let mut control = Control::open(&broker, &names).expect("a connection");
        let idle = names.idle("work").expect("a queue");
        wait_until("the mover has nothing to do", || {
            control.count(&idle).is_ok_and(|count| count.consumers > 0)
        });
        end_mover(mover);
    }

    /// The second half, which must come to a good end.
    fn end(&self, arguments: &[&str]) -> Outcome {
        let mover = self.job.start_mover();
        let outcome = self.sync().args(arguments).run().expect(0);
        end_mover(mover);
        check_accounts(&outcome);
        check_equal_twice(&self.src, &self.dst, &outcome.describe());
        assert_eq!(
            outcome.count("seen"),
            count_entries(&self.src),
            "each entry is counted once\n{}",
            outcome.describe()
        );
        assert_eq!(leftovers(&self.dst), Vec::<PathBuf>::new());
        outcome
    }

    fn bytes(&self) -> u64 {
        (DIRS * FILES * FILE_BYTES) as u64
    }
}

fn check_said(outcome: &Outcome, words: &[&str]) {
    words.iter().for_each(|word| {
        assert!(
            outcome.stderr_text().contains(word),
            "\"{word}\" is missing\n{}",
            outcome.describe()
        )
    });
}

#[test]
fn what_was_copied_is_looked_at_and_not_copied_again() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(200);
    let outcome = run.end(&[]);
    check_said(
        &outcome,
        &["going on with the run that was interrupted", "ago"],
    );
    assert_eq!(
        outcome.count("bytes_copied"),
        run.bytes(),
        "all lives of the run together\n{}",
        outcome.describe()
    );
    assert_eq!(
        outcome.count("bytes_compared"),
        0,
        "what is equal costs a look\n{}",
        outcome.describe()
    );
    assert!(
        outcome.count("changed_before") >= 200,
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_replica_that_was_emptied_between_two_halves_is_filled() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(200);
    fs::read_dir(&dst)
        .expect("list")
        .for_each(|entry| fs::remove_dir_all(entry.expect("an entry").path()).expect("remove"));
    check_said(&run.end(&[]), &["going on with"]);
}

#[test]
fn a_replica_that_was_removed_between_two_halves_is_made_anew() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(200);
    fs::remove_dir_all(&dst).expect("remove");
    let outcome = run.end(&[]);
    check_said(
        &outcome,
        &["interrupted", "ago is not gone on with", "replica"],
    );
    assert_eq!(
        outcome.count("changed"),
        outcome.count("seen"),
        "{}",
        outcome.describe()
    );
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
    check_said(
        &outcome,
        &["is not gone on with", "the source is another directory"],
    );
}

/// All was carried out, and the results wait in the queue for a coordinator that was killed.
#[test]
fn results_that_waited_in_the_queue_are_no_looks() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    run.begin_and_die();
    (0..DIRS).for_each(|dir| put(&src.join(format!("dir-{dir}/new")), "new"));
    let copied = driftless_testkit::mutate::list_all(&dst)
        .expect("list")
        .into_iter()
        .find(|path| path.is_file());
    fs::remove_file(copied.expect("a file")).expect("remove");
    let outcome = run.end(&[]);
    check_said(&outcome, &["going on with"]);
    assert!(
        outcome.count("bytes_copied") <= run.bytes() + FILE_BYTES as u64 + 3 * DIRS as u64,
        "{}",
        outcome.describe()
    );
}

/// What another run has made of the files that were begun, the record does not know.
#[test]
fn a_record_is_dropped_when_another_run_has_changed_the_replica_since() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(200);
    let _ = sync_ok(&src, &dst, ["--exclude", "file-3"]);
    let outcome = run.end(&[]);
    check_said(
        &outcome,
        &[
            "is not gone on with",
            "another run has changed the replica since",
        ],
    );
}

#[test]
fn a_record_is_dropped_when_the_user_says_so_or_asks_for_something_else() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(100);
    let outcome = run.end(&["--fresh"]);
    assert!(
        !outcome.stderr_text().contains("going on"),
        "{}",
        outcome.describe()
    );
    check_said(&outcome, &["is not gone on with", "--fresh"]);
    fs::remove_dir_all(&dst).expect("remove");
    let _ = run.begin(100);
    let outcome = run.end(&["--delete"]);
    check_said(&outcome, &["is not gone on with", "options"]);
}

/// Asks a database by the program `sqlite3`.
fn ask(file: &Path, sql: &str) -> String {
    answer(file, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// What it answers, or why it does not.
fn answer(file: &Path, sql: &str) -> Result<String, String> {
    let only_reads = sql.starts_with("SELECT").then_some("-readonly");
    let said = Command::new("sqlite3")
        .args(only_reads)
        .arg(file)
        .arg(sql)
        .output()
        .expect("sqlite3 is installed (make test-packages)");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if said.status.success() {
        Ok(text(&said.stdout))
    } else {
        Err(text(&said.stderr))
    }
}

impl Halves {
    fn record(&self) -> PathBuf {
        self.job
            .state()
            .join("driftless")
            .join(format!("job-{}", self.job.name))
    }
}

#[test]
fn a_record_that_cannot_be_used_is_refused_by_name_and_left_alone_and_fresh_drops_it() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(100);
    let (file, anew) = (run.record(), "begin anew with --fresh");
    let good = fs::read(&file).expect("the record");
    type Spoil = fn(&Path, Vec<u8>);
    let write = |file: &Path, bytes: Vec<u8>| fs::write(file, bytes).expect("write");
    let spoils: [(&str, Spoil, [&str; 2]); 5] = [
        (
            "flipped bytes",
            |file, mut good| {
                good.iter_mut()
                    .skip(4096)
                    .step_by(7)
                    .for_each(|byte| *byte ^= 0x55);
                fs::write(file, good).expect("write");
            },
            ["the record of the run is damaged", anew],
        ),
        (
            "half of it",
            |file, good| fs::write(file, &good[..good.len() / 2]).expect("write"),
            ["the record of the run is damaged", anew],
        ),
        (
            "no database",
            |file, _| put(file, "a text"),
            ["the record of the run is damaged", anew],
        ),
        (
            "a newer layout",
            |file, _| drop(ask(file, "PRAGMA user_version = 1000")),
            ["driftless: layout 1000, supported up to ", anew],
        ),
        (
            "of another program",
            |file, _| drop(ask(file, "PRAGMA application_id = 77")),
            ["a database of another program", "move it away"],
        ),
    ];
    for (case, spoil, words) in spoils {
        write(&file, good.clone());
        spoil(&file, good.clone());
        let spoilt = fs::read(&file).expect("the record");
        let outcome = run.sync().run().expect(12);
        check_said(&outcome, &words);
        check_said(&outcome, &[&format!("{}\": ", file.display())]);
        assert!(
            fs::read(&file).expect("the record") == spoilt,
            "{case}: it was written to"
        );
    }
    let outcome = run.sync().arg("--fresh").run().expect(12);
    check_said(&outcome, &["move it away"]);
    write(&file, good[..good.len() / 2].to_vec());
    let outcome = run.end(&["--fresh"]);
    check_said(
        &outcome,
        &[
            "the record of the run is damaged",
            "it is dropped, as --fresh says",
        ],
    );
}

/// As versions wrote it that gave their records no number.
#[test]
fn a_record_of_an_earlier_version_begins_anew_and_says_so() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    let _ = run.begin(100);
    fs::remove_file(run.record()).expect("remove");
    let old = "PRAGMA journal_mode = WAL;
        CREATE TABLE job (id INTEGER PRIMARY KEY CHECK (id = 0), run INTEGER NOT NULL, about BLOB NOT NULL);
        CREATE TABLE items (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
        CREATE TABLE facts (kind INTEGER, key BLOB, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
        INSERT INTO job VALUES (0, 7, 'x'); INSERT INTO items (body) VALUES (x'00'); INSERT INTO facts VALUES (7, '1-begun', x'');";
    let _its_journal = ask(&run.record(), old);
    let outcome = run.end(&[]);
    check_said(
        &outcome,
        &["is not gone on with: it was of an earlier version of driftless"],
    );
}

#[test]
fn what_is_open_what_failed_and_how_far_a_run_is_can_be_asked_with_sqlite3_while_it_goes_on() {
    let (_scratch, src, dst) = stage();
    let run = Halves::new(&src, &dst);
    // What is mounted on the replica cannot be replaced.
    let mounted = Mounted::bind(&src.join("dir-1"), &dst.join("dir-0/file-0"));
    let movers: Vec<Running> = (0..2)
        .map(|_| run.job.mover().args(["--bwlimit=2M", "--jobs=2"]).spawn())
        .collect();
    let running = run.sync().spawn();
    let file = run.record();
    let problems = || answer(&file, "SELECT CAST(path AS TEXT) FROM problems").ok();
    wait_until("a problem is noted", || {
        problems().as_deref() == Some("dir-0/file-0")
    });
    assert_eq!(
        ask(&file, "SELECT stage, source FROM run"),
        format!("walk|{}", src.display())
    );
    assert_ne!(
        ask(
            &file,
            "SELECT count(*) FROM batches WHERE what = 'entries' AND entries > 0"
        ),
        "0"
    );
    assert_ne!(
        ask(&file, "SELECT value FROM counts WHERE name = 'failed'"),
        ""
    );
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/state.md");
    let text = fs::read_to_string(page).expect("the page");
    let of_records = text.split("\n## State of a mirror").next();
    let blocks = of_records
        .expect("the first part")
        .split("```sql\n")
        .skip(1)
        .filter_map(|block| block.split("```").next());
    let answers = blocks
        .filter(|block| block.starts_with("SELECT"))
        .map(|block| ask(&file, block));
    assert_eq!(answers.count(), 3);
    running.signal(Signal::INT);
    let _stopped = running.wait().expect(130);
    movers.into_iter().for_each(end_mover);
    drop(mounted);
    let _ = run.end(&[]);
    assert!(!file.exists(), "nothing is left to go on with");
}
