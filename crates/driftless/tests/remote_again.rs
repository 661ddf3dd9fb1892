//! A line is lost in the middle of a run, is made again, and the run goes on: what comes of it is
//! what a run without the loss would have made, and what the user is told adds up.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{self, Way, cut_after};
use common::programs::signal;
use common::relayed::Stage;
use common::{check_accounts, check_equal, check_equal_twice, leftovers, put, wait_until};
use driftless_testkit::mutate::list_all;
use driftless_testkit::{
    Driftless, EVENT_MAX, Outcome, Profile, Relay, Running, Weather, build_tree, mutate,
    snapshot_hash, write_program,
};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// What a run may take on a busy machine, its losses included.
const RUN_MAX: Duration = EVENT_MAX;
/// Nothing is lost that these tests are about.
const UNSYNCED: &str = "--durability=none";

impl Stage {
    fn sync(&self, way: Way) -> Driftless {
        self.near.sync(way, &self.src, &self.dst).limit(RUN_MAX)
    }

    /// Without a relay, nothing is left to do.
    fn check_settled(&self, way: Way) {
        // What a run without durability has left to the kernel is settled by one that waits for it.
        let _ = self.far.sync_ok(way, &self.src, &self.dst, ["--delete"]);
        let before = snapshot_hash(&self.dst, true);
        let outcome = self.far.sync_ok(way, &self.src, &self.dst, ["--delete"]);
        assert_eq!(
            (outcome.count("changed"), outcome.count("deleted")),
            (0, 0),
            "{way:?}\n{}",
            outcome.describe()
        );
        assert_eq!(snapshot_hash(&self.dst, true), before);
        assert_eq!(leftovers(&self.dst), Vec::<PathBuf>::new());
    }
}

/// Bytes that nothing makes shorter on their way.
fn noise(seed: u64, bytes: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut content = vec![0; bytes as usize];
    rng.fill(&mut content);
    content
}

/// What a run that lost its line and went on says of that.
fn check_told(outcome: &Outcome, lost: Option<u64>) {
    check_accounts(outcome);
    let (lines_lost, made) = (
        outcome.events_named("connection_lost").len() as u64,
        outcome.events_named("connected_again").len() as u64,
    );
    assert_eq!(
        outcome.count("connections_lost"),
        lines_lost,
        "{}",
        outcome.describe()
    );
    // Of two lines, both may be lost at once.
    assert!(
        lines_lost > 0 && made >= lines_lost,
        "{}",
        outcome.describe()
    );
    assert!(
        lost.is_none_or(|lost| lost == lines_lost),
        "{}",
        outcome.describe()
    );
    for (event, fields) in [
        ("connection_lost", ["event", "reason", "seconds"]),
        ("connected_again", ["event", "host", "seconds"]),
    ] {
        let is_as_documented = |object: &Value| {
            object
                .as_object()
                .is_some_and(|object| object.keys().eq(&fields))
        };
        assert!(
            outcome.events_named(event).iter().all(is_as_documented),
            "{}",
            outcome.describe()
        );
    }
    let text = outcome.stderr_text();
    let lines = |words: &str| text.lines().filter(|line| line.contains(words)).count() as u64;
    assert_eq!(
        (lines("the connection was lost: "), lines("connected again")),
        (lines_lost, made),
        "{}",
        outcome.describe()
    );
    let shares: Vec<f64> = outcome
        .events_named("progress")
        .iter()
        .filter_map(|event| event["share"].as_f64())
        .collect();
    assert!(shares.is_sorted(), "progress went backwards: {shares:?}");
}

fn go_on(way: Way) {
    let stage = Stage::with_rate(24 * MIB);
    for index in 0..600 {
        put(
            &stage.src.join(format!("dir-{}/file-{index}", index % 20)),
            noise(index, 20_000 + index),
        );
    }
    put(&stage.src.join("large"), noise(1, 40 * MIB));
    put(&stage.dst.join("extra/file"), "only here");
    let running = stage
        .sync(way)
        .args(["--delete", "--delete-unlike", UNSYNCED])
        .spawn();
    let outcome = cut_after(&stage.relay, running, &[2 * MIB, 8 * MIB, 10 * MIB]).expect(0);
    check_told(&outcome, Some(3));
    check_equal_twice(&stage.src, &stage.dst, &outcome.describe());
    let entries = common::count_entries(&stage.src);
    let changed = outcome.count("changed") + outcome.count("changed_before");
    assert_eq!(outcome.count("seen"), entries);
    // What was done, and not heard of before the line was lost, is found to be the same.
    assert!(
        changed > entries / 2 && changed <= entries + 30,
        "{changed} of {entries}\n{}",
        outcome.describe()
    );
    assert_eq!(outcome.count("deleted"), 2, "{}", outcome.describe());
    assert!(
        outcome.count("bytes_copied") > 30 * MIB,
        "{}",
        outcome.describe()
    );
    stage.check_settled(way);
}

#[test]
fn a_push_goes_on_after_each_cut() {
    go_on(Way::Push);
}

#[test]
fn a_pull_goes_on_after_each_cut() {
    go_on(Way::Pull);
}

#[test]
fn a_run_between_two_hosts_goes_on_after_each_cut() {
    go_on(Way::Between);
}

#[test]
fn a_large_file_goes_on_where_it_was() {
    const FILE: u64 = 192 * MIB;
    const CUT: u64 = 160 * MIB;
    for way in [Way::Push, Way::Pull] {
        let stage = Stage::with_rate(60 * MIB);
        put(&stage.src.join("large"), noise(7, FILE));
        let outcome =
            cut_after(&stage.relay, stage.sync(way).arg(UNSYNCED).spawn(), &[CUT]).expect(0);
        check_told(&outcome, Some(1));
        check_equal(&stage.src, &stage.dst, &outcome.describe());
        assert!(
            outcome.count("bytes_resumed") > 0,
            "{way:?}\n{}",
            outcome.describe()
        );
        let passed = stage.relay.passed().both();
        assert!(
            passed < CUT + FILE - 30 * MIB,
            "{way:?}: {passed} bytes: it was copied from its beginning\n{}",
            outcome.describe()
        );
    }
}

const EXTRAS: usize = 2000;

/// A replica with much to delete, on a line where that takes a while, cut when some of it is gone.
fn cut_among_deletes(arguments: &[&str], meanwhile: impl Fn(&Stage)) -> (Stage, Outcome) {
    let stage = Stage::new(Weather {
        delay: Duration::from_millis(1),
        ..Weather::default()
    });
    put(&stage.src.join("dir/file"), "content");
    for index in 0..EXTRAS {
        put(&stage.dst.join(format!("dir/extra-{index}")), "x");
    }
    let running = stage
        .sync(Way::Push)
        .args(["--delete", "--jobs=2"])
        .args(arguments)
        .spawn();
    let left = || fs::read_dir(stage.dst.join("dir")).expect("list").count();
    wait_until("some are deleted", || left() < EXTRAS - 100);
    stage.relay.stall();
    stage.relay.cut();
    assert!(
        left() > 100,
        "the deletes are over before the cut: the test has lost its grip"
    );
    meanwhile(&stage);
    stage.relay.resume();
    let outcome = running.wait();
    (stage, outcome)
}

#[test]
fn deletes_go_on_and_are_counted_in_all_passes() {
    let (stage, outcome) = cut_among_deletes(&[], |_| ());
    assert_eq!(outcome.code(), 0, "{}", outcome.describe());
    check_told(&outcome, Some(1));
    check_equal(&stage.src, &stage.dst, &outcome.describe());
    let deleted = outcome.count("deleted");
    // The answers to the last few did not arrive.
    assert!(
        (EXTRAS as u64 - 4..=EXTRAS as u64).contains(&deleted),
        "{deleted}\n{}",
        outcome.describe()
    );
    stage.check_settled(Way::Push);
}

#[test]
fn the_plan_of_deletes_is_made_anew() {
    let (stage, outcome) = cut_among_deletes(&[], |stage| {
        // Now the source has it, too.
        put(
            &stage.src.join(format!("dir/extra-{}", EXTRAS - 1)),
            "longer",
        );
        fs::write(stage.dst.join(format!("dir/extra-{}", EXTRAS - 1)), "x").expect("write");
    });
    assert_eq!(outcome.code(), 0, "{}", outcome.describe());
    check_equal(&stage.src, &stage.dst, &outcome.describe());
}

#[test]
fn the_limit_on_deletes_holds_for_all_passes_together() {
    let limit = format!("--max-delete={}", EXTRAS + 5);
    let (stage, outcome) = cut_among_deletes(&[&limit], |stage| {
        for index in 0..50 {
            put(&stage.dst.join(format!("dir/new-{index}")), "x");
        }
    });
    assert_eq!(outcome.code(), 13, "{}", outcome.describe());
    assert!(
        outcome
            .stderr_text()
            .contains("before the connection was lost"),
        "{}",
        outcome.describe()
    );
    assert_eq!(
        (0..50)
            .filter(|index| stage.dst.join(format!("dir/new-{index}")).exists())
            .count(),
        50
    );
    check_accounts(&outcome);
}

/// The processes that a process has started and that run.
fn children(pid: u32) -> BTreeSet<u32> {
    let numbers = fs::read_dir("/proc")
        .expect("proc")
        .filter_map(|entry| entry.expect("entry").file_name().to_str()?.parse().ok());
    let parent = |number: &u32| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        fields
            .next()
            .filter(|_| state != "Z")
            .map(|parent| parent == pid.to_string())
    };
    numbers
        .filter(|number| parent(number) == Some(true))
        .collect()
}

/// A push that has begun, of a tree that takes a while.
fn begin_push(stage: &Stage, arguments: &[&str]) -> Running {
    for index in 0..200 {
        put(
            &stage.src.join(format!("dir-{}/file-{index}", index % 10)),
            noise(index, 30_000),
        );
    }
    put(&stage.src.join("large"), noise(1, 24 * MIB));
    let running = stage.sync(Way::Push).arg(UNSYNCED).args(arguments).spawn();
    // Of half of the files, so that by then the near end has heard of some.
    let is_finished = |path: &PathBuf| path.to_string_lossy().contains("/file-");
    wait_until("the replica fills", || {
        let all = list_all(&stage.dst).unwrap_or_default();
        all.iter().filter(|path| is_finished(path)).count() > 100
    });
    running
}

#[test]
fn a_network_that_is_silent_for_a_while_is_outlived() {
    let stage = Stage::with_rate(6 * MIB);
    let running = begin_push(&stage, &[]);
    let first = children(running.pid());
    stage.relay.stall();
    wait_until("the silence is noticed", || {
        children(running.pid()).is_disjoint(&first)
    });
    stage.relay.resume();
    let outcome = running.wait().expect(0);
    check_told(&outcome, Some(1));
    check_equal(&stage.src, &stage.dst, &outcome.describe());
    stage.check_settled(Way::Push);
}

/// The server there never notices, so the agent keeps the replica's lock; the next agent of the
/// same run ends it.
#[test]
fn a_lock_that_a_silent_line_still_holds_is_no_obstacle() {
    let stage = Stage::with_rate(6 * MIB);
    let running = begin_push(&stage, &[]);
    let is_server = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("sshd"))
    };
    let servers: Vec<u32> = stage
        .far
        .server
        .sessions()
        .into_iter()
        .filter(is_server)
        .collect();
    assert!(!servers.is_empty());
    servers
        .iter()
        .for_each(|server| signal(*server, Signal::STOP));
    let outcome = running.wait().expect(0);
    check_told(&outcome, Some(1));
    check_equal(&stage.src, &stage.dst, &outcome.describe());
    stage.check_settled(Way::Push);
}

#[test]
fn a_host_that_stays_away_ends_the_run_when_the_time_is_over() {
    let mut stage = Stage::with_rate(6 * MIB);
    // On a busy machine ssh takes seconds to be refused.
    let running = begin_push(&stage, &["--reconnect=15"]);
    stage.relay = Relay::start(stage.far.server.address());
    let outcome = running.wait().expect(1);
    let text = outcome.stderr_text();
    for words in [
        "did not succeed within 15 s",
        "Connection refused",
        "run again to continue",
    ] {
        assert!(
            text.contains(words),
            "no word of \"{words}\"\n{}",
            outcome.describe()
        );
    }
    let summary = outcome.summary();
    assert_eq!(
        (summary["end"].as_str(), summary["exit_code"].as_u64()),
        (Some("cut_off"), Some(1))
    );
    assert!(
        outcome.count("changed") > 0,
        "what was done is told\n{}",
        outcome.describe()
    );
    wait_until("the replica is free", || {
        stage
            .far
            .sync(Way::Push, &stage.src, &stage.dst)
            .run()
            .code()
            == 0
    });
    check_equal(&stage.src, &stage.dst, "by another run");
}

#[test]
fn a_host_that_does_not_answer_ends_the_run_when_the_time_is_over() {
    let stage = Stage::with_rate(6 * MIB);
    let running = begin_push(&stage, &["--reconnect=3"]);
    stage.relay.stall();
    stage.relay.cut();
    let outcome = running.wait().expect(1);
    assert!(
        outcome.stderr_text().contains("did not succeed within 3 s"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_signal_ends_a_run_that_waits_for_its_host() {
    let stage = Stage::with_rate(6 * MIB);
    let running = begin_push(&stage, &[]);
    let first = children(running.pid());
    stage.relay.stall();
    stage.relay.cut();
    wait_until("the loss is noticed", || {
        children(running.pid()).is_disjoint(&first)
    });
    signal(running.pid(), Signal::INT);
    assert!(running.ends_within(EVENT_MAX), "it waits on");
    let outcome = running.wait().expect(130);
    assert_eq!(
        outcome.summary()["end"],
        "stopped",
        "{}",
        outcome.describe()
    );
}

/// An agent that does `later` from the second time on that it is started.
fn fickle_agent(stage: &Stage, later: &str) -> PathBuf {
    let (path, flag) = (
        stage.scratch.path().join("agent"),
        stage.scratch.path().join("flag"),
    );
    let (agent, flag) = (far::agent(), flag.display());
    let text =
        format!("#!/bin/sh\nif [ -e {flag} ]; then {later}; fi\n: > {flag}\nexec {agent} \"$@\"\n")
            .replace("AGENT", agent);
    write_program(&path, &text);
    path
}

/// A push whose line is cut once, and whose agent does `later` then, has to end with code 1 and
/// these words.
fn end_after_cut(later: &str, arguments: &[&str], words: &[&str]) {
    let stage = Stage::with_rate(6 * MIB);
    let agent = fickle_agent(&stage, later);
    put(&stage.src.join("large"), noise(1, 24 * MIB));
    let ends = stage.near.ends(Way::Push, &stage.src, &stage.dst);
    let running = stage
        .near
        .command_with("sync", agent, ends)
        .args(["--json", "--streams=1"])
        .args(arguments)
        .limit(RUN_MAX)
        .spawn();
    let outcome = cut_after(&stage.relay, running, &[8 * MIB]).expect(1);
    let text = outcome.stderr_text();
    for word in words {
        assert!(
            text.contains(word),
            "no word of \"{word}\"\n{}",
            outcome.describe()
        );
    }
}

#[test]
fn what_does_not_get_better_by_waiting_ends_the_run_at_once() {
    end_after_cut(
        "echo driftless-agent 999 9.9.9; exec cat >/dev/null",
        &[],
        &["999", "the same version"],
    );
    end_after_cut("exit 127", &[], &["install driftless"]);
    // As ssh says it of itself.
    end_after_cut(
        r"printf 'me@far: Permission denied (publickey).\r\n' >&2; exit 255",
        &[],
        &["Permission denied"],
    );
}

#[test]
fn what_a_shell_there_says_is_not_taken_for_a_refused_login() {
    let said = "echo 'bash: /opt/site.sh: Permission denied' >&2; sleep 0.1; exit 255";
    end_after_cut(
        said,
        &["--reconnect=2"],
        &["did not succeed within 2 s", "site.sh"],
    );
}

#[test]
fn a_line_that_is_lost_again_and_again_ends_the_run_when_the_time_is_over() {
    end_after_cut(
        "exec AGENT \"$@\" </dev/null",
        &["--reconnect=4"],
        &["within 4 s", "times", "nothing was done in between"],
    );
    end_after_cut(
        "sleep 0.1; exit 1",
        &["--reconnect=2"],
        &["did not succeed within 2 s"],
    );
}

#[test]
fn an_agent_ends_only_what_was_started_for_the_same_run() {
    use std::process::{Command, Stdio};
    let start = |arguments: &[&str]| {
        Command::new(far::agent())
            .arg("agent")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
    };
    let tokens = [fastrand::u64(..), fastrand::u64(..)].map(|token| format!("test-{token}"));
    let mut others =
        [vec!["--run", &tokens[1]], vec![]].map(|arguments| start(&arguments).expect("an agent"));
    let mut earlier = [vec!["--run", &tokens[0]], vec!["--again", &tokens[0]]]
        .map(|arguments| start(&arguments).expect("an agent"));
    // The second of them has ended the first.
    wait_until("it is ended", || {
        earlier[0]
            .try_wait()
            .expect("its state")
            .is_some_and(|status| !status.success())
    });
    let mut last = start(&["--again", &tokens[0]]).expect("an agent");
    wait_until("it is ended", || {
        earlier[1]
            .try_wait()
            .expect("its state")
            .is_some_and(|status| !status.success())
    });
    drop(last.stdin.take());
    assert!(last.wait().expect("its end").success());
    for other in &mut others {
        drop(other.stdin.take());
        assert!(
            other.wait().expect("its end").success(),
            "another run's agent was ended"
        );
    }
}

/// Two trees that differ here and there, and the source is far.
fn plant_differences(stage: &Stage) {
    for index in 0..400 {
        let name = format!("dir-{}/file-{index}", index % 10);
        put(&stage.src.join(&name), noise(index, 20_000));
        match index % 40 {
            0 => {}
            1 => put(&stage.dst.join(&name), noise(index + 1, 20_000)),
            _ => put(&stage.dst.join(&name), noise(index, 20_000)),
        }
    }
    put(&stage.dst.join("extra"), "only here");
    let copy = Driftless::new(far::agent())
        .args(["sync", "--quiet", "--exclude=*0", "--exclude=*1"])
        .arg(&stage.src)
        .arg(&stage.dst);
    let _ = copy.run().expect(0);
}

/// Lines in order: threads tell in any.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains(" entries: "))
        .collect();
    lines.sort_unstable();
    lines
}

/// A command that changes nothing says the same with cuts and without.
fn report_the_same(command: &[&str], code: i32) {
    let stage = Stage::with_rate(2 * MIB);
    plant_differences(&stage);
    let run = || {
        let run = stage
            .near
            .command(
                command[0],
                stage.near.ends(Way::Pull, &stage.src, &stage.dst),
            )
            .args(&command[1..]);
        run.env("XDG_STATE_HOME", stage.scratch.path().join("state"))
            .limit(RUN_MAX)
    };
    let expected = run().run().expect(code);
    let share = stage.relay.passed().both() / 4;
    let outcome = cut_after(&stage.relay, run().spawn(), &[share, share]).expect(code);
    assert!(
        outcome.stderr_text().contains("connected again"),
        "the test has lost its grip\n{}",
        outcome.describe()
    );
    let (told, wanted) = (outcome.stdout_text(), expected.stdout_text());
    assert_eq!(sorted(&told), sorted(&wanted), "{}", outcome.describe());
    let counts = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.contains(" entries: "))
            .map(str::to_owned)
            .unwrap_or_default();
        line.split(';').next().unwrap_or_default().to_owned()
    };
    assert_eq!(counts(&told), counts(&wanted), "{}", outcome.describe());
}

#[test]
fn a_verification_that_lost_its_line_reports_the_same() {
    report_the_same(&["verify"], 4);
}

#[test]
fn a_dry_run_that_lost_its_line_reports_the_same() {
    report_the_same(&["sync", "--dry-run", "--delete", "--checksum"], 0);
}

#[test]
fn an_audit_that_lost_its_line_proves_the_same() {
    let stage = Stage::with_rate(MIB);
    plant_differences(&stage);
    let run = |arguments: &[&str]| {
        let run = stage
            .near
            .command("audit", stage.near.ends(Way::Pull, &stage.src, &stage.dst))
            .args(["--json", "--seed=5", "--grace=0"]);
        run.args(["--samples=300"]).args(arguments).limit(RUN_MAX)
    };
    let expected = run(&[]).run().expect(4);
    let share = stage.relay.passed().both() / 3;
    let outcome = cut_after(&stage.relay, run(&[]).spawn(), &[share, share]).expect(4);
    assert_eq!(
        outcome.events_named("connected_again").len(),
        2,
        "{}",
        outcome.describe()
    );
    for field in ["entries", "sampled", "same", "drift", "failed", "problems"] {
        assert_eq!(
            outcome.count(field),
            expected.count(field),
            "{field}\n{}",
            outcome.describe()
        );
    }
    assert_eq!(
        outcome.events_named("difference").len(),
        expected.events_named("difference").len()
    );
    let outcome = cut_after(&stage.relay, run(&["--reconnect=0"]).spawn(), &[share]).expect(1);
    let summary = outcome.summary();
    assert_eq!(
        (summary["end"].as_str(), &summary["bound"]),
        (Some("cut_off"), &Value::Null),
        "{}",
        outcome.describe()
    );
    assert_eq!(
        outcome.events_named("problem").len(),
        0,
        "{}",
        outcome.describe()
    );
}

#[test]
fn random_trees_converge_whenever_the_line_is_cut() {
    for (seed, way) in (1..).zip([Way::Push, Way::Pull, Way::Between, Way::Push]) {
        let stage = Stage::with_rate(4 * MIB);
        build_tree(&stage.src, seed, &Profile::small());
        let mut rng = fastrand::Rng::with_seed(seed);
        for round in 0..2 {
            let context = format!("seed {seed}, round {round}, {way:?}");
            println!("{context}");
            if round > 0 {
                mutate(&stage.src, seed * 100 + round, 60);
                mutate(&stage.dst, seed * 100 + 50 + round, 20);
            }
            // A greeting alone takes some thousand bytes, so that now and then nothing is done
            // between two cuts.
            let marks: Vec<u64> = (0..3).map(|_| rng.u64(5_000..300_000)).collect();
            let outcome = cut_after(
                &stage.relay,
                stage.sync(way).args(["--delete", UNSYNCED]).spawn(),
                &marks,
            );
            assert_eq!(outcome.code(), 0, "{context}\n{}", outcome.describe());
            check_accounts(&outcome);
            check_equal(&stage.src, &stage.dst, &context);
            stage.check_settled(way);
        }
    }
}
