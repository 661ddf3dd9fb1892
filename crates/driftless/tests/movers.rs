//! Runs that several movers share, started through ssh or fed by a broker: what they make is what
//! one host makes.
//!
//! All movers run on this machine, which has one set of files, like hosts that mount the same file
//! systems.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way, agent, cut_after};
use common::movers::{Job, LIMIT, check_output_has, end_mover, in_own_mounts, sync_on_hosts};
use common::{
    check_accounts, check_equal, check_equal_twice, driftless, leftovers, put, stage,
    state_but_for_the_mark, sync, wait_until,
};
use driftless_engine::{Batch, Brief, Ends, Known, Options, Piece, Throttle, work_off};
use driftless_model::{Kind, Meta, Stamp};
use driftless_queue::{Broker, Consumer, Control, Credentials, Job as QueueNames, Publisher};
use driftless_testkit::{
    Driftless, Outcome, Profile, Rabbit, Relay, Running, Weather, build_tree, mutate, write_program,
};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const MIB: usize = 1 << 20;
const LARGE_BYTES: usize = 400 * MIB;

fn rabbit() -> &'static Rabbit {
    static RABBIT: OnceLock<Rabbit> = OnceLock::new();
    RABBIT.get_or_init(Rabbit::start)
}

/// How the movers of a test get their work.
enum By {
    Hosts(Far),
    Queue(Job, Vec<Running>),
}

impl By {
    fn hosts() -> By {
        By::Hosts(Far::root())
    }

    fn queue() -> By {
        let job = Job::new(rabbit());
        let movers = (0..3).map(|_| job.start_mover()).collect();
        By::Queue(job, movers)
    }

    fn both() -> [By; 2] {
        [By::hosts(), By::queue()]
    }

    fn sync(&self, src: &Path, dst: &Path) -> Driftless {
        match self {
            By::Hosts(far) => sync_on_hosts("far,far,far", &far.words(), src, dst),
            By::Queue(job, _) => job.sync(src, dst),
        }
    }

    fn sync_ok(&self, src: &Path, dst: &Path, arguments: &[&str]) -> Outcome {
        let outcome = self.sync(src, dst).args(arguments).run().expect(0);
        check_accounts(&outcome);
        outcome
    }

    fn word(&self) -> &'static str {
        if matches!(self, By::Hosts(_)) {
            "hosts"
        } else {
            "queue"
        }
    }
}

impl Drop for By {
    fn drop(&mut self) {
        if let By::Queue(_, movers) = self {
            movers.drain(..).for_each(end_mover);
        }
    }
}

fn check_settled(by: &By, src: &Path, dst: &Path) {
    let before = state_but_for_the_mark(dst);
    let outcome = by.sync_ok(src, dst, &["--delete"]);
    for field in ["changed", "deleted", "bytes_copied", "failed"] {
        assert_eq!(
            outcome.count(field),
            0,
            "{field} of a second run by {}\n{}",
            by.word(),
            outcome.describe()
        );
    }
    assert!(
        state_but_for_the_mark(dst) == before,
        "a second run touched the replica\n{}",
        outcome.describe()
    );
}

#[test]
fn movers_make_the_hostile_tree_and_follow_its_changes() {
    for by in By::both() {
        let (_scratch, src, dst) = stage();
        build_tree(&src, 41, &Profile::root());
        let _ = by.sync_ok(&src, &dst, &[]);
        check_equal_twice(&src, &dst, &format!("first copy by {}", by.word()));
        check_settled(&by, &src, &dst);
        for seed in 0..3 {
            mutate(&src, 42 + seed, 150);
            let _ = by.sync_ok(&src, &dst, &["--delete"]);
            check_equal_twice(&src, &dst, &format!("after mutations, by {}", by.word()));
        }
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
    }
}

#[test]
fn what_movers_count_is_what_one_host_counts() {
    for by in By::both() {
        let (scratch, src, dst) = stage();
        build_tree(
            &src,
            43,
            &Profile {
                large: false,
                ..Profile::root()
            },
        );
        let alone = scratch.path().join("alone");
        for round in 0..3 {
            let expected = sync(&src, &alone).args(["--delete"]).run().expect(0);
            let outcome = by.sync_ok(&src, &dst, &["--delete"]);
            for field in ["seen", "skipped", "failed", "problems", "deleted"] {
                assert_eq!(
                    outcome.count(field),
                    expected.count(field),
                    "{field} by {}, round {round}",
                    by.word()
                );
            }
            check_equal(&src, &dst, "the same");
            mutate(&src, 44 + round, 100);
        }
    }
}

#[test]
fn a_wide_directory_and_one_large_file_are_divided() {
    for by in By::both() {
        let (_scratch, src, dst) = stage();
        for index in 0..20_000 {
            put(&src.join(format!("wide/file-{index}")), "x");
        }
        put(&src.join("large"), vec![0x5a; LARGE_BYTES]);
        let file = fs::File::options()
            .write(true)
            .open(src.join("large"))
            .expect("open");
        for at in (0..LARGE_BYTES as u64).step_by(MIB) {
            file.write_all_at(&at.to_le_bytes(), at).expect("write");
        }
        let outcome = by.sync_ok(&src, &dst, &[]);
        assert_eq!(outcome.count("changed"), 20_003, "{}", outcome.describe());
        assert_eq!(outcome.count("bytes_copied"), 20_000 + LARGE_BYTES as u64);
        check_equal_twice(&src, &dst, by.word());
        check_settled(&by, &src, &dst);
    }
}

#[test]
fn a_single_file_is_copied_by_all() {
    for by in By::both() {
        let (_scratch, src, dst) = stage();
        let (source, replica) = (src.join("one"), dst.with_file_name("other"));
        put(&source, vec![7u8; LARGE_BYTES]);
        let _ = by.sync_ok(&source, &replica, &[]);
        assert_eq!(fs::read(&replica).expect("read"), vec![7u8; LARGE_BYTES]);
        assert_eq!(
            replica.metadata().expect("look").mtime_nsec(),
            source.metadata().expect("look").mtime_nsec()
        );
        assert_eq!(by.sync_ok(&source, &replica, &[]).count("changed"), 0);
        assert_eq!(
            leftovers(dst.parent().expect("parent")),
            Vec::<PathBuf>::new()
        );
    }
}

#[test]
fn hard_links_hold_across_movers() {
    for by in By::both() {
        let (_scratch, src, dst) = stage();
        for group in 0..300 {
            let first = src.join(format!("a-{}/file-{group}", group % 7));
            put(&first, format!("content {group}"));
            for name in 0..group % 5 {
                let other = src.join(format!("b-{name}/link-{group}"));
                fs::create_dir_all(other.parent().expect("parent")).expect("make");
                fs::hard_link(&first, other).expect("link");
            }
        }
        let _ = by.sync_ok(&src, &dst, &[]);
        check_equal_twice(&src, &dst, by.word());
        check_settled(&by, &src, &dst);
        // A group is joined, another one split, and two names of the replica that belong to two
        // files are one there.
        fs::remove_file(src.join("b-0/link-1")).expect("remove");
        fs::hard_link(src.join("a-2/file-2"), src.join("b-0/link-1")).expect("link");
        put(&src.join("b-0/link-9"), "its own now");
        fs::remove_file(dst.join("a-5/file-5")).expect("remove");
        fs::hard_link(dst.join("a-3/file-10"), dst.join("a-5/file-5")).expect("link");
        let _ = by.sync_ok(&src, &dst, &["--delete", "--checksum"]);
        check_equal_twice(&src, &dst, &format!("changed groups, {}", by.word()));
        check_settled(&by, &src, &dst);
    }
}

#[test]
fn chosen_paths_filters_and_limits_hold() {
    let by = By::queue();
    let (scratch, src, dst) = stage();
    for dir in ["a", "a/deep/er", "b", "c"] {
        for name in ["keep.c", "leave.o"] {
            put(&src.join(dir).join(name), format!("{dir}/{name}"));
        }
    }
    let list = scratch.path().join("list");
    fs::write(&list, "a/deep\nb/keep.c\nnot/there\n").expect("write");
    let outcome = by
        .sync(&src, &dst)
        .arg("--files-from")
        .arg(&list)
        .run()
        .expect(3);
    check_accounts(&outcome);
    let problems = outcome.events_named("problem");
    assert!(
        problems.len() == 1 && problems[0]["path"] == "not/there",
        "{}",
        outcome.describe()
    );
    assert_eq!(
        common::names_below(&dst),
        [
            "a",
            "a/deep",
            "a/deep/er",
            "a/deep/er/keep.c",
            "a/deep/er/leave.o",
            "b",
            "b/keep.c"
        ]
    );
    let outcome = by.sync_ok(
        &src,
        &dst,
        &["--exclude", "*.o", "--delete", "--delete-excluded"],
    );
    assert_eq!(outcome.count("deleted"), 1, "{}", outcome.describe());
    assert!(!dst.join("a/deep/er/leave.o").exists() && dst.join("c/keep.c").exists());
    fs::remove_dir_all(src.join("a")).expect("remove");
    let outcome = by
        .sync(&src, &dst)
        .args(["--delete", "--max-delete", "1"])
        .run()
        .expect(13);
    assert!(dst.join("a/keep.c").exists(), "{}", outcome.describe());
    let _ = by.sync_ok(&src, &dst, &["--delete", "--max-delete", "90%"]);
    check_equal(&src, &dst, "after deletes");
    fs::remove_dir_all(&src).expect("remove");
    fs::create_dir(&src).expect("make");
    let _ = by.sync(&src, &dst).arg("--delete").run().expect(13);
    assert!(dst.join("b/keep.c").exists());
}

#[test]
fn a_directory_in_the_way_counts_as_deleted() {
    let by = By::hosts();
    let (_scratch, src, dst) = stage();
    put(&src.join("here"), "a file");
    put(&src.join("other"), "a file");
    for index in 0..10 {
        put(&dst.join(format!("here/below-{index}")), "x");
    }
    let outcome = by.sync(&src, &dst).run().expect(3);
    check_accounts(&outcome);
    assert!(
        dst.join("here/below-3").exists() && dst.join("other").is_file(),
        "{}",
        outcome.describe()
    );
    let outcome = by
        .sync(&src, &dst)
        .args(["--delete", "--max-delete", "3"])
        .run()
        .expect(13);
    check_accounts(&outcome);
    assert!(
        dst.join("here/below-3").exists() && dst.join("other").is_file(),
        "{}",
        outcome.describe()
    );
    let _ = by.sync_ok(&src, &dst, &["--delete", "--max-delete", "30"]);
    check_equal(&src, &dst, "replaced");
}

#[test]
fn classes_of_work_go_to_their_movers() {
    let job = Job::new(rabbit());
    let (_scratch, src, dst) = stage();
    for index in 0..50 {
        put(&src.join(format!("dir/small-{index}")), "x");
    }
    put(&src.join("dir/big"), vec![1u8; 3 * MIB]);
    put(&src.join("other/big"), vec![2u8; 100 * MIB]);
    let running = job
        .sync(&src, &dst)
        .args(["--route", "size>=2MiB:big"])
        .spawn();
    let small = job.start_mover();
    wait_until("the small files are there", || {
        dst.join("dir/small-49").exists()
    });
    // Nobody takes the big ones, which the coordinator says sooner or later.
    assert!(!running.ends_within(Duration::from_secs(15)));
    assert!(!dst.join("dir/big").exists() && !dst.join("other/big").exists());
    let big = job.mover().args(["--class", "big"]).spawn();
    let outcome = running.wait().expect(0);
    check_accounts(&outcome);
    assert!(
        outcome
            .stderr_text()
            .contains("no mover takes work of the class \"big\""),
        "{}",
        outcome.describe()
    );
    check_equal_twice(&src, &dst, "by two classes");
    [small, big].into_iter().for_each(end_mover);
}

#[test]
fn a_batch_that_no_mover_can_work_off_is_parked_and_reported() {
    let job = Job::new(rabbit());
    let (_scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let scratch = src.parent().expect("parent").to_owned();
    let running = job.sync(&src, &dst).spawn();
    // A mover that does not see the trees: their file system is not mounted there. It ends after
    // some failures, and is started again.
    let mover = Driftless::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs none \"$0\"; while \"$@\"; [ $? = 1 ]; do :; done",
        ])
        .arg(&scratch)
        .arg(env!("CARGO_BIN_EXE_driftless"))
        .args([
            "mover", "--idle", "5", "--queue", &job.url, "--job", &job.name,
        ])
        .env("DRIFTLESS_QUEUE_PASSWORD", Rabbit::PASSWORD)
        .limit(common::movers::LIMIT)
        .spawn();
    let outcome = running.wait().expect(3);
    check_accounts(&outcome);
    let problems = outcome.events_named("problem");
    assert!(
        problems.len() == 1
            && problems[0]["cause"]
                .as_str()
                .is_some_and(|why| why.contains("tried 8 times")),
        "{}",
        outcome.describe()
    );
    let said = mover.wait();
    assert!(
        said.stderr_text().contains("a batch is parked"),
        "{}",
        said.describe()
    );
    // It is not lost: a mover that sees the trees does it next time.
    let good = job.start_mover();
    let _ = job.sync(&src, &dst).run().expect(0);
    check_equal(&src, &dst, "after all");
    end_mover(good);
}

#[test]
fn a_mover_that_sees_other_trees_is_not_believed() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    // On that "host", an empty file system stands in the place of the source.
    let ssh = scratch.path().join("ssh");
    write_program(
        &ssh,
        &format!(
            "#!/bin/sh\ncommand=$3\n{}\n",
            in_own_mounts(&format!("mount -t tmpfs none {}", src.display()))
        ),
    );
    let outcome = sync_on_hosts("blind", &ssh.display().to_string(), &src, &dst)
        .run()
        .expect(0);
    let words = [
        "this is not the directory that the coordinator sees",
        "movers cannot carry out a part of the work, so this host does: blind: ",
    ];
    check_output_has(&outcome, &words);
    check_equal(&src, &dst, &outcome.describe());
}

#[test]
fn this_host_goes_on_alone_without_movers() {
    let (_scratch, src, dst) = stage();
    build_tree(&src, 43, &Profile::root());
    let run = sync_on_hosts("nowhere.invalid,a", "false", &src, &dst).arg("--delete");
    let outcome = run.run().expect(0);
    check_accounts(&outcome);
    let notes = outcome.events_named("note");
    let said = |words: &str| {
        let has = |note: &&serde_json::Value| {
            note["message"]
                .as_str()
                .is_some_and(|said| said.contains(words))
        };
        notes.iter().filter(has).count()
    };
    for words in [
        "nowhere.invalid: ",
        "a: ",
        "all movers are gone; this host goes on alone",
    ] {
        assert!(said(words) > 0, "{words}\n{}", outcome.describe());
    }
    assert_eq!(said("goes on alone"), 1, "{}", outcome.describe());
    check_equal_twice(&src, &dst, &outcome.describe());
}

#[test]
fn a_group_with_an_excluded_name_stays() {
    let (scratch, src, dst) = stage();
    put(&src.join("dir/d"), "content");
    fs::hard_link(src.join("dir/d"), src.join("dir/e")).expect("link");
    let ssh = scratch.path().join("ssh");
    write_program(&ssh, "#!/bin/bash\nexec ${@: -1}\n");
    let run = || {
        sync_on_hosts("near", &ssh.display().to_string(), &src, &dst)
            .arg("--exclude=x")
            .run()
            .expect(0)
    };
    let _ = run();
    fs::hard_link(dst.join("dir/d"), dst.join("dir/x")).expect("link");
    let inode = || fs::metadata(dst.join("dir/d")).expect("stat").ino();
    let (before, outcome) = (inode(), run());
    assert_eq!(outcome.count("bytes_copied"), 0, "{}", outcome.describe());
    assert_eq!(inode(), before, "{}", outcome.describe());
    fs::remove_file(dst.join("dir/x")).expect("remove");
    check_equal(&src, &dst, &run().describe());
}

#[test]
fn what_a_mover_says_when_it_ends_is_told() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let ssh = scratch.path().join("ssh");
    let greeting = format!(
        "driftless mover ready, protocol {}",
        driftless_engine::message::VERSION
    );
    write_program(
        &ssh,
        &format!("#!/bin/sh\necho {greeting}\nhead -c 4 >/dev/null\necho 'no luck today' >&2\n"),
    );
    let outcome = sync_on_hosts("brief", &ssh.display().to_string(), &src, &dst).run();
    assert!([3, 10].contains(&outcome.code()), "{}", outcome.describe());
    let said = outcome.stdout_text() + &outcome.stderr_text();
    assert!(
        said.contains("brief: the mover has ended, or the connection to it: no luck today"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_mover_is_heard_behind_noise_without_an_end_of_line() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let ssh = scratch.path().join("ssh");
    let noise = r"printf '\033]0;title\007driftless mover ready'";
    write_program(
        &ssh,
        &format!("#!/bin/sh\nshift 2\n{noise}\nexec sh -c \"$1\"\n"),
    );
    let _ = sync_on_hosts("noisy", &ssh.display().to_string(), &src, &dst)
        .run()
        .expect(0);
    check_equal(&src, &dst, "by a noisy host");
    write_program(&ssh, &format!("#!/bin/sh\n{noise}\n"));
    let outcome = sync_on_hosts("noisy", &ssh.display().to_string(), &src, &dst)
        .run()
        .expect(0);
    let notes = outcome.events_named("note");
    let texts = notes.iter().filter_map(|note| note["message"].as_str());
    let is_escaped = |text: &str| text.contains(r"\x1b]0;title\x07");
    assert!(texts.into_iter().any(is_escaped), "{}", outcome.describe());
}

#[test]
fn a_coordinator_that_is_killed_goes_on_where_it_was() {
    let job = Job::new(rabbit());
    let movers: Vec<Running> = (0..2)
        .map(|_| job.mover().arg("--bwlimit=20M").spawn())
        .collect();
    let (_scratch, src, dst) = stage();
    build_tree(
        &src,
        45,
        &Profile {
            large: false,
            ..Profile::root()
        },
    );
    for index in 0..40 {
        put(&src.join(format!("many/{index}/file")), vec![3u8; 2 * MIB]);
    }
    put(&src.join("large"), vec![4u8; 150 * MIB]);
    for _ in 0..3 {
        let running = job.sync(&src, &dst).arg("--delete").spawn();
        let done = running.ends_within(Duration::from_millis(2500));
        running.signal(Signal::KILL);
        let _ = running.wait();
        if done {
            break;
        }
    }
    let outcome = job.sync(&src, &dst).arg("--delete").run().expect(0);
    check_accounts(&outcome);
    check_equal_twice(&src, &dst, "after three lives");
    // All of them together have copied everything once, but for what was in flight.
    let all: u64 = 40 * 2 * MIB as u64 + 150 * MIB as u64;
    assert!(
        outcome.count("bytes_copied") >= all / 2,
        "the counts of earlier lives are kept\n{}",
        outcome.describe()
    );
    movers.into_iter().for_each(end_mover);
    assert!(
        !job.state()
            .join("driftless")
            .join(format!("job-{}", job.name))
            .exists(),
        "the record is gone with the run"
    );
}

#[test]
fn what_cannot_work_is_told_before_anything_is_touched() {
    let (_scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let job = Job::new(rabbit());
    let refused = |run: Driftless, code: i32, words: &[&str]| {
        let outcome = run.run().expect(code);
        let said = outcome.stderr_text();
        words.iter().for_each(|word| {
            assert!(
                said.contains(word),
                "\"{word}\" is missing\n{}",
                outcome.describe()
            )
        });
        assert!(!dst.join("file").exists(), "{}", outcome.describe());
    };
    refused(
        job.sync(&src, &dst).arg("--dry-run"),
        2,
        &["--dry-run", "without --queue"],
    );
    refused(
        job.sync(&src, &dst).args(["--link-dest", "/nowhere"]),
        2,
        &["--link-dest"],
    );
    let plain = |url: &str| sync(&src, &dst).args(["--queue", url, "--job", "x"]);
    refused(
        plain("amqp://user:secret@host/v"),
        2,
        &[
            "has a password in it",
            "--queue-credentials",
            "DRIFTLESS_QUEUE_PASSWORD",
        ],
    );
    refused(
        plain(&job.url),
        2,
        &["there is no password", "DRIFTLESS_QUEUE_PASSWORD"],
    );
    refused(
        plain(&job.url).env("DRIFTLESS_QUEUE_PASSWORD", "wrong"),
        10,
        &["the broker refuses"],
    );
    refused(sync(&src, &dst).args(["--queue", &job.url]), 2, &["--job"]);
    refused(
        job.sync(&src, &dst).args(["--route", "large:big"]),
        2,
        &["size>=SIZE:CLASS"],
    );
    refused(driftless().arg("mover"), 2, &["--queue"]);
    let open = src.join("password");
    fs::write(&open, "open sesame\n").expect("write");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).expect("mode");
    refused(
        plain(&job.url).arg("--queue-credentials").arg(&open),
        2,
        &["credentials refused", "chmod 600"],
    );
}

#[test]
fn a_password_file_and_a_broker_with_tls_work() {
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let (password, authority) = (
        scratch.path().join("password"),
        scratch.path().join("authority.pem"),
    );
    fs::write(&password, format!("{}\n", Rabbit::PASSWORD)).expect("write");
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("mode");
    fs::write(&authority, rabbit().authority()).expect("write");
    let url = rabbit().url_encrypted("127.0.0.1");
    let with = |run: Driftless| {
        let run = run
            .args(["--queue", &url, "--job", "encrypted"])
            .arg("--queue-credentials")
            .arg(&password);
        run.env("XDG_STATE_HOME", scratch.path())
    };
    let _ = with(sync(&src, &dst)).run().expect(10);
    let mover = with(driftless().arg("mover"))
        .arg("--queue-ca")
        .arg(&authority)
        .spawn();
    let _ = with(sync(&src, &dst))
        .arg("--queue-ca")
        .arg(&authority)
        .run()
        .expect(0);
    check_equal(&src, &dst, "over TLS");
    end_mover(mover);
}

#[test]
fn one_job_has_one_coordinator_and_one_replica_one_run() {
    let job = Job::new(rabbit());
    let (scratch, src, dst) = stage();
    put(&src.join("file"), "content");
    let running = job.sync(&src, &dst).spawn();
    wait_until("the replica is made", || dst.exists());
    let other = scratch.path().join("other");
    let outcome = job.sync(&src, &other).run().expect(11);
    assert!(
        outcome
            .stderr_text()
            .contains("another run coordinates the job"),
        "{}",
        outcome.describe()
    );
    let _ = sync(&src, &dst).run().expect(11);
    running.signal(Signal::INT);
    let outcome = running.wait().expect(130);
    assert!(
        outcome.stderr_text().contains("run again"),
        "{}",
        outcome.describe()
    );
    let mover = job.start_mover();
    let _ = job.sync(&src, &dst).run().expect(0);
    check_equal(&src, &dst, "after all");
    end_mover(mover);
}

#[test]
fn a_mover_without_work_ends_when_it_was_told_to() {
    let job = Job::new(rabbit());
    let outcome = job.mover().args(["--idle", "1"]).run().expect(0);
    assert!(
        outcome.stderr_text().contains("ready"),
        "{}",
        outcome.describe()
    );
}

/// A mover that was thought dead, and the one that its batch was given to, get in each other's way:
/// both make the same entries, and each takes the other's unfinished files for what an earlier run
/// left.
#[test]
fn a_batch_in_two_hands_ends_without_a_problem() {
    for seed in 0..12 {
        let (_scratch, src, dst) = stage();
        build_tree(
            &src,
            seed,
            &Profile {
                large: false,
                ..Profile::root()
            },
        );
        for index in 0..1500 {
            put(
                &src.join(format!("more/{}/{}/file-{index}", index % 3, index % 20)),
                vec![6u8; index * 20],
            );
        }
        if seed % 3 == 0 {
            put(&src.join("large"), vec![7u8; 80 * MIB]);
        }
        fs::create_dir(&dst).expect("make");
        let options = Options {
            source: src.clone().into(),
            replica: dst.clone().into(),
            ..Options::default()
        };
        let mut brief = Brief::of(&options, &[], false);
        brief.set_roots(&root_meta(&src), &root_meta(&dst));
        let batch = Batch {
            pieces: vec![Piece::Root],
            ..Batch::default()
        };
        let never = AtomicBool::new(false);
        let carry_out = || {
            let ends = Ends {
                stop: &never,
                yields: &never,
                leaves: &never,
                lease: None,
            };
            work_off(
                (&options, &mut Known::default()),
                (&brief, &batch),
                &|_| {},
                ends,
            )
            .expect("it can be carried out")
            .0
        };
        let [one, other] = std::thread::scope(|scope| {
            let other = scope.spawn(carry_out);
            [carry_out(), other.join().expect("the other")]
        });
        for outcome in [one, other] {
            assert!(
                outcome.problems.is_empty() && outcome.counts.failed == 0,
                "seed {seed}: {:?}",
                outcome.problems
            );
        }
        let _ = common::sync_ok(&src, &dst, ["--delete"]);
        check_equal(
            &src,
            &dst,
            &format!("seed {seed}, after whoever sees all of it"),
        );
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new(), "seed {seed}");
    }
}

/// Others that have nothing to do would begin it anew, and have it left in turn.
#[test]
fn a_large_file_that_is_compared_is_compared_once_however_idle_others_are() {
    let (_scratch, src, dst) = stage();
    put(&src.join("large"), vec![5u8; 80 * MIB]);
    (0..100).for_each(|index| put(&src.join(format!("small-{index}")), "content"));
    let _ = common::sync_ok(&src, &dst, [""; 0]);
    let by = By::hosts();
    let outcome = by
        .sync(&src, &dst)
        .args(["--checksum", "--bwlimit=30M"])
        .run()
        .expect(0);
    assert!(
        outcome.count("bytes_compared") < 100 * MIB as u64,
        "{}",
        outcome.describe()
    );
    assert_eq!(outcome.count("changed"), 0, "{}", outcome.describe());
}

/// A mover that slept while another one finished its large file writes once more into what has its
/// name by then.
#[test]
fn a_mover_that_stops_late_leaves_no_trace_on_a_finished_file() {
    let (_scratch, src, dst) = stage();
    put(&src.join("large"), vec![8u8; 100 * MIB]);
    let long_ago = fs::FileTimes::new()
        .set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    fs::File::options()
        .write(true)
        .open(src.join("large"))
        .expect("open")
        .set_times(long_ago)
        .expect("times");
    fs::create_dir(&dst).expect("make");
    let fast = Options {
        source: src.clone().into(),
        replica: dst.clone().into(),
        ..Options::default()
    };
    let slow = Options {
        throttle: Throttle {
            bytes_per_second_max: Some(5 * MIB as u64),
            ..Throttle::default()
        },
        ..fast.clone()
    };
    let mut brief = Brief::of(&fast, &[], false);
    brief.set_roots(&root_meta(&src), &root_meta(&dst));
    let batch = Batch {
        pieces: vec![Piece::Root],
        ..Batch::default()
    };
    let (stop, never) = (AtomicBool::new(false), AtomicBool::new(false));
    let ends = |stop| Ends {
        stop,
        yields: &never,
        leaves: &never,
        lease: None,
    };
    let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            work_off(
                (&slow, &mut Known::default()),
                (&brief, &batch),
                &|_| {},
                ends(&stop),
            )
            .expect("it can be carried out")
        });
        wait_until("the copy is begun", || !leftovers(&dst).is_empty());
        let _ = work_off(
            (&fast, &mut Known::default()),
            (&brief, &batch),
            &|_| {},
            ends(&never),
        )
        .expect("it can be carried out");
        assert!(dst.join("large").exists());
        wait_until("the late one has written again", || {
            modified(&dst.join("large")) != modified(&src.join("large"))
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let _dropped = late.join().expect("the late one");
    });
    check_equal(
        &src.join("large"),
        &dst.join("large"),
        "after the late one has ended",
    );
}

/// The batch of a mover whose connection is lost is given to another one, and the first may be late
/// to hear of it.
#[test]
fn a_run_does_not_end_while_a_second_mover_is_at_work_on_a_batch() {
    let (_scratch, src, dst) = stage();
    put(&src.join("large"), vec![9u8; 200 * MIB]);
    let job = Job::new(rabbit());
    let broker = Broker::new(
        job.url.parse().expect("a URL"),
        Credentials::from_value(Rabbit::PASSWORD),
    )
    .expect("a broker");
    let names = QueueNames::new(&job.name, &["work"]).expect("a job");
    let work = names.work("work").expect("a queue");
    let mut consumer = Consumer::open(&broker, &names, &work, 1).expect("a consumer");
    let mut control = Control::open(&broker, &names).expect("a connection");
    let running = job.sync(&src, &dst).spawn();
    let batch = consumer.next(LIMIT).expect("the broker").expect("a batch");
    let publisher = Publisher::open(&broker, &names).expect("a publisher");
    publisher
        .publish(&work, batch.body(), LIMIT)
        .and_then(|_| publisher.flush(LIMIT))
        .expect("published");
    batch.give_back().expect("the broker");
    drop(consumer);
    let late = job.mover().arg("--bwlimit=20M").spawn();
    wait_until("the late one has begun", || !leftovers(&dst).is_empty());
    let fast = job.start_mover();
    let outcome = running.wait().expect(0);
    let idle = control
        .count(&names.idle("work").expect("a queue"))
        .expect("the broker")
        .consumers;
    assert_eq!(
        idle,
        2,
        "movers that have nothing to do when the run has ended\n{}",
        outcome.describe()
    );
    check_equal(&src, &dst, "when the run has ended");
    [late, fast].into_iter().for_each(end_mover);
}

/// As much of it as tells which directory it is.
fn root_meta(root: &Path) -> Meta {
    let (ino, at) = (fs::metadata(root).expect("stat").ino(), Stamp::default());
    Meta {
        kind: Kind::Dir,
        mode: 0,
        uid: 0,
        gid: 0,
        size: 0,
        blocks: 0,
        mtime: at,
        atime: at,
        ctime: at,
        nlink: 0,
        dev: 0,
        ino,
        rdev: 0,
        unkept: driftless_model::Unkept::NONE,
    }
}

#[test]
fn movers_come_and_go_while_it_runs() {
    let job = Job::new(rabbit());
    let (_scratch, src, dst) = stage();
    for index in 0..3000 {
        put(
            &src.join(format!("{}/{}/file-{index}", index % 10, index % 30)),
            vec![5u8; 40_000],
        );
    }
    let running = job.sync(&src, &dst).spawn();
    for _ in 0..6 {
        let mover = job.mover().arg("--iops-limit=400").spawn();
        let over = running.ends_within(Duration::from_millis(1500));
        end_mover(mover);
        if over {
            break;
        }
    }
    let last = job.start_mover();
    let outcome = running.wait().expect(0);
    check_accounts(&outcome);
    assert_eq!(
        outcome.count("bytes_copied"),
        3000 * 40_000,
        "what a mover left was copied once\n{}",
        outcome.describe()
    );
    check_equal_twice(&src, &dst, "by movers that came and went");
    end_mover(last);
}

/// A tree on a host that all movers, and the coordinator, reach through one relay.
fn lines_are_made_again(command: impl FnOnce(&Far, Driftless) -> (Driftless, Vec<Running>)) {
    let (_scratch, src, dst) = stage();
    for index in 0..400 {
        put(
            &src.join(format!("dir-{}/file-{index}", index % 20)),
            vec![9u8; 50_000],
        );
    }
    put(&src.join("large"), vec![10u8; 80 * MIB]);
    let far = Far::own();
    let relay = Relay::with(
        far.server.address(),
        Weather {
            bytes_per_second_max: Some(24 * MIB as u64),
            ..Weather::default()
        },
    );
    let near = far.via(relay.address());
    let (run, movers) = command(
        &near,
        near.sync(Way::Push, &src, &dst)
            .arg("--delete")
            .limit(common::movers::LIMIT),
    );
    let outcome = cut_after(
        &relay,
        run.spawn(),
        &[5 * MIB as u64, 20 * MIB as u64, 20 * MIB as u64],
    )
    .expect(0);
    check_accounts(&outcome);
    assert!(
        outcome.count("connections_lost") >= 1,
        "the coordinator's\n{}",
        outcome.describe()
    );
    check_equal_twice(&src, &dst, &outcome.describe());
    assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
    movers.into_iter().for_each(end_mover);
}

#[test]
fn lines_to_the_trees_of_movers_on_a_queue_are_made_again() {
    let job = Job::new(rabbit());
    lines_are_made_again(|near, run| {
        let mover = || {
            job.mover()
                .args(["--ssh", &near.words(), "--agent-path", agent()])
                .spawn()
        };
        (job.coordinate(run), (0..2).map(|_| mover()).collect())
    });
}

#[test]
fn lines_to_hosts_and_from_there_to_the_trees_are_made_again() {
    lines_are_made_again(|_, run| (run.args(["--hosts", "far,far"]), Vec::new()));
}
