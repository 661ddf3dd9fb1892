//! Nobody writes who does not hold the replica: movers whose coordinator is gone, that slept, or
//! that see other trees.
//!
//! "Hosts" are commands on this machine that stand in for ssh, so that a line can fall silent and a
//! mover can sleep.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mounted::Mounted;
use common::movers::{Job, check_output_has, end_mover, in_own_mounts, sync_on_hosts};
use common::{USER, check_equal, driftless, files_below, put, stage, sync, wait_until};
use driftless_engine::Sample;
use driftless_model::Side;
use driftless_testkit::attrs::set_owner;
use driftless_testkit::fuse::{Fuse, Mood, Op, Rule};
use driftless_testkit::{
    Driftless, Outcome, Rabbit, Running, Scratch, Snapshot, snapshot, touched, write_program,
};
use driftless_tree::{DirRef, HandlePool, Place, locate};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILES: usize = 60;
const SMALL_FILES: usize = 4000;
const FILE_BYTES: usize = 200_000;
/// So many bytes a second of a mover: the files take it some seconds.
const SLOWLY: &str = "4M";

/// Files of the same names in each tree, but with other content.
fn fill(root: &Path, version: u8) {
    (0..FILES).for_each(|file| {
        put(
            &root.join(format!("dir-{}/file-{file}", file % 6)),
            vec![version; FILE_BYTES],
        )
    });
}

/// Two sources that have nothing in common but their names, and a replica.
struct Trees {
    scratch: Scratch,
    one: PathBuf,
    other: PathBuf,
    replica: PathBuf,
}

impl Trees {
    fn new() -> Trees {
        let (scratch, one, replica) = stage();
        let other = scratch.dir("other");
        fill(&one, 1);
        fill(&other, 2);
        Trees {
            scratch,
            one,
            other,
            replica,
        }
    }

    fn files(&self) -> usize {
        files_below(&self.replica)
    }

    /// Waits until a mover is in the middle of it.
    fn wait_until_begun(&self) {
        wait_until("a mover is at work", || self.files() >= 3);
        assert!(
            self.files() < FILES,
            "the movers were too fast for this test"
        );
    }

    /// A command in the place of ssh, which takes the command to run as its last word; `wraps` what
    /// it runs.
    fn ssh(&self, wraps: &str) -> String {
        let path = self.scratch.path().join("ssh");
        let folder = self.scratch.path().display();
        write_program(
            &path,
            &format!("#!/bin/bash\ncommand=\"${{@: -1}}\"\ncd {folder}\necho $$ >shell\n{wraps}\n"),
        );
        path.display().to_string()
    }

    /// A command in the place of ssh for a mover of a blind host: it sees the trees as they are
    /// after `mounts`, which are shell commands.
    fn blind_ssh(&self, mounts: &str) -> String {
        self.ssh(&in_own_mounts(mounts))
    }

    fn pid(&self, file: &str) -> Pid {
        let path = self.scratch.path().join(file);
        let read = || {
            fs::read_to_string(&path)
                .ok()?
                .trim()
                .parse()
                .ok()
                .and_then(Pid::from_raw)
        };
        wait_until("a process has begun", || read().is_some());
        read().expect("a number")
    }

    /// Ends a line that was stopped, if it is there.
    fn cut(&self, line: Pid) {
        let _ = kill_process(line, Signal::KILL);
        let shell = self.pid("shell");
        wait_until("the line has ended", || !is_there(shell));
    }

    fn check_other(&self, context: &str) {
        let outcome = driftless()
            .arg("verify")
            .args([&self.other, &self.replica])
            .run();
        assert_eq!(outcome.code(), 0, "{context}\n{}", outcome.describe());
    }
}

/// What `ssh` runs when its line can fall silent: nothing says so to either side.
const SILENT_LINE: &str =
    "{ echo $BASHPID >line; exec setsid cat; } | { echo $BASHPID >mover; exec $command; }";
/// What it runs when the agent can be stopped, and what is on its way to it waits.
const BUFFERED_LINE: &str = "setsid cat | { echo $BASHPID >agent; exec $command; }";
/// What it runs when the mover can be stopped.
const SLEEPER: &str = "echo $$ >mover-$$; ln -sf mover-$$ mover; exec $command";

fn signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).expect("it runs");
}

fn is_there(pid: Pid) -> bool {
    let stat =
        fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn wait_for_end(pid: Pid) {
    wait_until("the mover has ended", || !is_there(pid));
}

fn slow(run: Driftless) -> Driftless {
    run.args(["--bwlimit", SLOWLY, "--jobs", "1"])
}

/// A mover that is in the middle of copying the first source, and its coordinator.
fn begin(job: &Job, trees: &Trees) -> (Running, Running) {
    let mover = slow(job.mover()).spawn();
    let running = job.sync(&trees.one, &trees.replica).spawn();
    trees.wait_until_begun();
    (mover, running)
}

fn kill(running: Running) {
    running.signal(Signal::KILL);
    let _ = running.wait();
}

/// All that can be seen of a replica but for its root, where the mark leaves a trace.
fn state(root: &Path) -> Snapshot {
    let mut all = snapshot(root, true);
    all.remove(&b"."[..]);
    all
}

#[test]
fn a_mover_whose_coordinator_is_gone_writes_nothing_more() {
    let trees = Trees::new();
    let ssh = trees.ssh(SILENT_LINE);
    let running = slow(sync_on_hosts("far", &ssh, &trees.one, &trees.replica)).spawn();
    trees.wait_until_begun();
    let (line, mover) = (trees.pid("line"), trees.pid("mover"));
    signal(line, Signal::STOP);
    kill(running);
    let _ = sync(&trees.other, &trees.replica)
        .arg("--delete")
        .run()
        .expect(0);
    wait_for_end(mover);
    trees.check_other("after the mover has ended");
    trees.cut(line);
}

#[test]
fn a_mover_stops_by_itself_when_its_coordinator_falls_silent() {
    let trees = Trees::new();
    put(&trees.one.join("dir-0/large"), vec![7u8; 200 << 20]);
    let ssh = trees.ssh(SILENT_LINE);
    let running = slow(sync_on_hosts("far", &ssh, &trees.one, &trees.replica)).spawn();
    trees.wait_until_begun();
    let (line, mover) = (trees.pid("line"), trees.pid("mover"));
    signal(line, Signal::STOP);
    kill(running);
    // Nobody else takes the replica, and its mark is what it was. The file alone would take it most
    // of a minute.
    wait_for_end(mover);
    assert!(!trees.replica.join("dir-0/large").exists());
    assert!(is_there(line), "the line was silent");
    trees.cut(line);
}

#[test]
fn a_coordinator_that_is_stopped_waits_until_its_movers_are_at_rest() {
    let rabbit = Rabbit::start();
    let trees = Trees::new();
    let job = Job::new(&rabbit);
    let (mover, running) = begin(&job, &trees);
    running.signal(Signal::INT);
    let outcome = running.wait().expect(130);
    let before = state(&trees.replica);
    let began = std::time::Instant::now();
    let _ = sync(&trees.other, &trees.replica)
        .args(["--delete", "--dry-run"])
        .run()
        .expect(0);
    std::thread::sleep(Duration::from_secs(1).saturating_sub(began.elapsed()));
    assert_eq!(
        touched(&before, &state(&trees.replica)),
        Vec::<String>::new(),
        "{}",
        outcome.describe()
    );
    let _ = sync(&trees.other, &trees.replica)
        .arg("--delete")
        .run()
        .expect(0);
    end_mover(mover);
    trees.check_other("after the mover has ended");
    // It goes on where it was, with whoever takes part then.
    let mover = job.start_mover();
    let _ = job.sync(&trees.one, &trees.replica).run().expect(0);
    check_equal(&trees.one, &trees.replica, "the first source again");
    end_mover(mover);
}

#[test]
fn interrupted_run_counts_what_movers_did() {
    let trees = Trees::new();
    let ssh = trees.ssh("exec $command");
    let run = || sync_on_hosts("near", &ssh, &trees.one, &trees.replica);
    for signal in [Signal::INT, Signal::TERM] {
        let running = slow(run()).spawn();
        let before = trees.files();
        wait_until("some files are copied", || trees.files() >= before + 10);
        running.signal(signal);
        let outcome = running.wait().expect(128 + signal.as_raw());
        let (copied, seen) = (outcome.count("bytes_copied"), outcome.count("seen"));
        // Some of the files may be in the making, or be finished and not reported yet.
        let least = 5 * FILE_BYTES as u64;
        assert!(copied >= least && seen >= 5, "{}", outcome.describe());
    }
    let outcome = run().run().expect(0);
    let most = ((FILES - 10) * FILE_BYTES) as u64;
    assert!(
        outcome.count("bytes_copied") <= most,
        "{}",
        outcome.describe()
    );
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

#[test]
fn a_run_right_after_a_coordinator_was_killed_is_not_disturbed_by_its_movers() {
    let rabbit = Rabbit::start();
    for batches in [false, true] {
        let trees = Trees::new();
        let (job, next) = (Job::new(&rabbit), Job::new(&rabbit));
        let (mover, running) = begin(&job, &trees);
        let movers = [mover, next.start_mover()];
        kill(running);
        let second = if batches {
            next.sync(&trees.other, &trees.replica)
        } else {
            sync(&trees.other, &trees.replica)
        };
        let outcome = second.arg("--delete").run().expect(0);
        trees.check_other(&outcome.describe());
        movers.into_iter().for_each(end_mover);
        trees.check_other("after the movers have ended");
    }
}

#[test]
fn a_mover_that_slept_until_all_was_done_changes_nothing_when_it_wakes() {
    let rabbit = Rabbit::start();
    let trees = Trees::new();
    let job = Job::new(&rabbit);
    let (sleeper, running) = begin(&job, &trees);
    sleeper.signal(Signal::STOP);
    rabbit.close_connections();
    let other = job.start_mover();
    let outcome = running.wait().expect(0);
    check_equal(&trees.one, &trees.replica, &outcome.describe());
    let before = state(&trees.replica);
    sleeper.signal(Signal::CONT);
    end_mover(sleeper);
    assert_eq!(
        touched(&before, &state(&trees.replica)),
        Vec::<String>::new(),
        "{}",
        outcome.describe()
    );
    end_mover(other);
}

#[test]
fn a_mover_of_a_host_that_slept_until_all_was_done_changes_nothing_when_it_wakes() {
    let trees = Trees::new();
    let ssh = trees.ssh(SLEEPER);
    let running = slow(sync_on_hosts("near,far", &ssh, &trees.one, &trees.replica)).spawn();
    trees.wait_until_begun();
    let sleeper = trees.pid("mover");
    signal(sleeper, Signal::STOP);
    // Silence for long enough is the end of its line, and the other one does its part.
    let outcome = running.wait();
    let before = state(&trees.replica);
    if is_there(sleeper) {
        signal(sleeper, Signal::CONT);
        wait_for_end(sleeper);
    }
    assert_eq!(outcome.code(), 0, "{}", outcome.describe());
    check_equal(&trees.one, &trees.replica, &outcome.describe());
    assert_eq!(
        touched(&before, &state(&trees.replica)),
        Vec::<String>::new(),
        "{}",
        outcome.describe()
    );
}

/// Small files of the same names in each tree, but with other content; the replica is what the
/// other one is.
fn fill_small(trees: &Trees) {
    for (root, version) in [
        (&trees.one, "one"),
        (&trees.other, "another"),
        (&trees.replica, "another"),
    ] {
        (0..SMALL_FILES).for_each(|file| {
            put(
                &root.join(format!("dir-{}/file-{file}", file % 6)),
                format!("{version} {file}"),
            )
        });
    }
}

/// What was posted before is still there to be carried out: in the agent, and on its way to it.
#[test]
fn a_mover_whose_agent_slept_changes_nothing_when_that_wakes() {
    let rabbit = Rabbit::start();
    let trees = Trees::new();
    [&trees.one, &trees.other]
        .into_iter()
        .for_each(|root| fs::remove_dir_all(root).expect("remove"));
    fill_small(&trees);
    let line = trees.scratch.path().join("line.sh");
    fs::write(&line, "eval exec \"${@: -1}\"\n").expect("write");
    let (there, slowly) = (
        format!("far:{}", trees.replica.display()),
        trees.ssh(BUFFERED_LINE),
    );
    let job = Job::new(&rabbit);
    let with = |run: Driftless, ssh: &str| {
        run.args([
            "--ssh",
            ssh,
            "--agent-path",
            common::far::agent(),
            "--streams",
            "1",
        ])
    };
    let mover = with(job.mover(), &slowly)
        .args(["--jobs", "1", "--iops-limit", "400"])
        .spawn();
    let running = with(
        job.sync(&trees.one, Path::new(&there)),
        &format!("bash {}", line.display()),
    )
    .spawn();
    let arrived = || {
        (0..SMALL_FILES)
            .filter(|file| is_of_one(&trees.replica.join(format!("dir-{}/file-{file}", file % 6))))
            .count()
    };
    wait_until("the mover is at work", || arrived() >= 3);
    let agent = trees.pid("agent");
    signal(agent, Signal::STOP);
    let before = arrived();
    assert!(before < SMALL_FILES, "the mover was too fast for this test");
    std::thread::sleep(Duration::from_secs(2));
    kill(running);
    let again = || sync(&trees.other, &trees.replica).arg("--delete").run();
    wait_until("the replica is free", || again().code() == 0);
    trees.check_other("while the agent sleeps");
    signal(agent, Signal::CONT);
    end_mover(mover);
    wait_for_end(agent);
    trees.check_other(&format!(
        "after the agent has woken, with {before} files of the first source at first"
    ));
}

fn is_of_one(file: &Path) -> bool {
    fs::read(file).is_ok_and(|content| content.starts_with(b"one "))
}

/// Trees that are file systems of their own, whose roots have the same inode number, and a mover in
/// whose place others are mounted.
fn sees_other(roots: &[&str]) -> Outcome {
    let trees = Trees::new();
    let [source, replica] = ["source", "replica"].map(|name| trees.scratch.path().join(name));
    let _mounted = [&source, &replica].map(|root| Mounted::tmpfs(root));
    fill(&source, 3);
    let mounts: Vec<String> = roots
        .iter()
        .map(|root| {
            format!(
                "mount -t tmpfs none {}",
                trees.scratch.path().join(root).display()
            )
        })
        .collect();
    let ssh = trees.blind_ssh(&mounts.join("; "));
    let outcome = sync_on_hosts("blind", &ssh, &source, &replica)
        .run()
        .expect(0);
    // This host does what the mover cannot.
    check_equal(&source, &replica, &outcome.describe());
    outcome
}

#[test]
fn a_mover_in_whose_place_other_file_systems_are_mounted_is_not_believed() {
    for roots in [&["source", "replica"][..], &["replica"], &["source"]] {
        let outcome = sees_other(roots);
        let words = "this is not the directory that the coordinator sees";
        check_output_has(&outcome, &[words, "blind"]);
    }
}

/// The roots are those that the coordinator sees; on the mover's host another file system is
/// mounted on a directory of the source, and a file that is mounted on a file here is not there.
#[test]
fn a_mover_that_has_something_else_mounted_below_the_source_touches_nothing_there() {
    let trees = Trees::new();
    let (one, scratch) = (&trees.one, &trees.scratch);
    let (disk, config) = (one.join("dir-0/disk"), one.join("dir-0/config"));
    let _disk = Mounted::tmpfs(&disk);
    put(&disk.join("1"), "right");
    put(&config, "beneath");
    put(&scratch.path().join("real"), "what is mounted here");
    let _config = Mounted::bind(&scratch.path().join("real"), &config);
    let other = scratch.dir("elsewhere");
    put(&other.join("1"), "wrong");
    put(&other.join("2"), "wrong");
    let mounts = format!(
        "umount {}; umount {}; mount --bind {} {}",
        config.display(),
        disk.display(),
        other.display(),
        disk.display()
    );
    let ssh = trees.blind_ssh(&mounts);
    for _ in 0..2 {
        let outcome = sync_on_hosts("blind", &ssh, one, &trees.replica)
            .arg("--delete")
            .run()
            .expect(3);
        let mut told: Vec<String> = outcome
            .events_named("problem")
            .iter()
            .map(|p| p["path"].as_str().expect("a path").to_owned())
            .collect();
        told.sort();
        assert_eq!(
            told,
            ["dir-0/config", "dir-0/disk"],
            "{}",
            outcome.describe()
        );
        let wrong = |path: &str, content: &str| {
            fs::read(trees.replica.join("dir-0").join(path))
                .is_ok_and(|found| found == content.as_bytes())
        };
        assert!(
            ![
                ("disk/1", "wrong"),
                ("disk/2", "wrong"),
                ("config", "beneath")
            ]
            .iter()
            .any(|(path, content)| wrong(path, content))
        );
        // The second time, the replica has all that there is.
        let _ = sync(one, &trees.replica).run().expect(0);
        check_equal(one, &trees.replica, "by a run that sees all of it");
    }
    let outcome = sync_on_hosts("near", &trees.ssh("exec $command"), one, &trees.replica)
        .run()
        .expect(0);
    check_equal(one, &trees.replica, &outcome.describe());
}

/// Has the mover of the host `blind` alone see something else in that directory.
const BLIND_ON_ONE: &str = "case \"$*\" in *blind*) BLIND;; *) exec $command;; esac";

/// A command in the place of ssh for a mover on whose host something else is mounted in one of the
/// replica's directories. It lies in memory, and is the same however often the mover is started.
fn blind_below(trees: &Trees, wraps: &str) -> String {
    // All that there is lies there, so that whatever is looked at does.
    (1..6)
        .for_each(|dir| fs::remove_dir_all(trees.one.join(format!("dir-{dir}"))).expect("remove"));
    let below = trees.replica.join("dir-0");
    fs::create_dir_all(&below).expect("make");
    let hidden = trees.scratch.dir("hidden");
    let mount = format!("mount --bind {} {}", hidden.display(), below.display());
    trees.ssh(&wraps.replace("BLIND", &in_own_mounts(&mount)))
}

/// The roots are those that the coordinator sees; what lies in one of the replica's directories is
/// not.
#[test]
fn a_mover_that_makes_entries_where_nobody_sees_them_is_not_believed() {
    let trees = Trees::new();
    let ssh = blind_below(&trees, "BLIND");
    let outcome = sync_on_hosts("blind", &ssh, &trees.one, &trees.replica)
        .run()
        .expect(0);
    check_output_has(
        &outcome,
        &[
            "blind: it sees \"dir-0\" of the replica with inode",
            "all movers are gone; this host goes on alone",
        ],
    );
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

/// Another file system lies on one of the replica's directories until the mover has begun to fill
/// it. When the batch ends, that host sees what all others see.
#[test]
fn wrong_mount_that_goes_away_is_noticed() {
    let trees = Trees::new();
    let (below, hidden) = (trees.replica.join("dir-0"), trees.scratch.dir("hidden"));
    fs::create_dir_all(&below).expect("make");
    let wait = format!(
        "until [ -e {}/file-0 ]; do sleep 0.01; done",
        hidden.display()
    );
    let mounts = format!(
        "mount --bind {hidden} {below}; ({wait}; umount -l {below}) </dev/null >/dev/null 2>&1 &",
        hidden = hidden.display(),
        below = below.display()
    );
    let ssh = trees.blind_ssh(&format!("{mounts} true"));
    let outcome = slow(sync_on_hosts("blind", &ssh, &trees.one, &trees.replica))
        .run()
        .expect(0);
    assert!(files_below(&hidden) > 0, "{}", outcome.describe());
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

/// A file system over the source that cannot read one of its files.
fn damaged(trees: &Trees) -> Fuse {
    let fuse = Fuse::over(&trees.one, Mood::healthy());
    fuse.order(Rule::fail(Op::Read, Errno::IO).named("file-7"));
    fuse
}

#[test]
fn file_that_one_host_cannot_read_is_copied() {
    let trees = Trees::new();
    let fuse = damaged(&trees);
    let (shown, source) = (fuse.path().display(), trees.one.display());
    let ssh = trees.blind_ssh(&format!("mount --bind {shown} {source}"));
    let outcome = sync_on_hosts("damaged", &ssh, &trees.one, &trees.replica)
        .run()
        .expect(0);
    check_output_has(
        &outcome,
        &[
            "damaged: \"dir-1/file-7\": cannot read",
            "the coordinator can",
        ],
    );
    assert!(outcome.events_named("problem").is_empty());
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

#[test]
fn file_that_no_host_reads_is_an_error() {
    let trees = Trees::new();
    let fuse = damaged(&trees);
    let ssh = trees.ssh("exec $command");
    let outcome = sync_on_hosts("near", &ssh, fuse.path(), &trees.replica)
        .run()
        .expect(3);
    let problems = outcome.events_named("problem");
    let paths: Vec<_> = problems.iter().map(|problem| &problem["path"]).collect();
    assert_eq!(paths, ["dir-1/file-7"], "{}", outcome.describe());
    assert_eq!(trees.files(), FILES - 1, "{}", outcome.describe());
}

/// Whatever the one has said is looked at by the other.
#[test]
fn what_a_mover_made_where_nobody_sees_it_is_made_by_others() {
    let trees = Trees::new();
    let ssh = blind_below(&trees, BLIND_ON_ONE);
    let outcome = sync_on_hosts("near,blind", &ssh, &trees.one, &trees.replica)
        .run()
        .expect(0);
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

/// The replica's directory has other content under the same sizes and times, and what is mounted
/// there on the host `blind` has the right one.
fn equal_where_blind(trees: &Trees, wraps: &str) -> String {
    let ssh = blind_below(trees, wraps);
    let _ = sync(&trees.one, &trees.replica).run().expect(0);
    let (dir, hidden) = (
        trees.replica.join("dir-0"),
        trees.scratch.path().join("hidden"),
    );
    let from = format!("{}/.", dir.display());
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([Path::new(&from), &hidden])
        .status();
    assert!(copied.expect("cp").success());
    for entry in fs::read_dir(dir).expect("list") {
        let path = entry.expect("an entry").path();
        let before = fs::metadata(&path).and_then(|meta| meta.modified());
        fs::write(&path, vec![9; FILE_BYTES]).expect("write");
        let file = fs::File::options().write(true).open(&path).expect("open");
        file.set_modified(before.expect("a time")).expect("time");
    }
    ssh
}

#[test]
fn mover_with_own_mount_is_not_believed() {
    let trees = Trees::new();
    let ssh = equal_where_blind(&trees, "BLIND");
    let outcome = sync_on_hosts("blind", &ssh, &trees.one, &trees.replica)
        .arg("--checksum")
        .run()
        .expect(0);
    check_output_has(
        &outcome,
        &["blind: it sees \"dir-0\" of the replica with inode"],
    );
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

#[test]
fn work_in_own_mount_is_done_again() {
    let trees = Trees::new();
    let ssh = equal_where_blind(&trees, BLIND_ON_ONE);
    let outcome = sync_on_hosts("near,blind", &ssh, &trees.one, &trees.replica)
        .arg("--checksum")
        .run()
        .expect(0);
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

#[test]
fn mount_of_mover_alone_blocks_no_later_run() {
    for options in [&["--delete"][..], &["--delete", "--one-file-system"]] {
        let trees = Trees::new();
        let mount = format!("mount -t tmpfs none {}", trees.one.join("dir-1").display());
        let ssh = trees.blind_ssh(&mount);
        let state = trees.scratch.path().join("state");
        let noted = |run: Driftless| run.args(options).env("XDG_STATE_HOME", &state);
        let shared = sync_on_hosts("blind", &ssh, &trees.one, &trees.replica);
        let outcome = noted(shared).run().expect(0);
        check_output_has(&outcome, &["blind: it sees \"dir-1\" of the source with "]);
        check_equal(&trees.one, &trees.replica, &outcome.describe());
        let alone = noted(sync(&trees.one, &trees.replica)).run().expect(0);
        assert_eq!(alone.count("changed"), 0, "{}", alone.describe());
    }
}

#[test]
fn mover_that_sees_no_acls_is_not_believed() {
    let trees = Trees::new();
    let set = std::process::Command::new("setfacl")
        .args(["-R", "-m", "u:7:r,g::---"])
        .arg(trees.one.join("dir-0"))
        .status();
    assert!(set.expect("setfacl").success());
    let bare = Fuse::over(&trees.one, Mood::bare());
    let mount = format!(
        "mount --bind {} {}",
        bare.path().display(),
        trees.one.display()
    );
    let ssh = trees.blind_ssh(&mount);
    let outcome = sync_on_hosts("blind", &ssh, &trees.one, &trees.replica)
        .run()
        .expect(0);
    check_output_has(
        &outcome,
        &["with other extended attributes or another ACL than the coordinator"],
    );
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

#[test]
fn file_mounted_for_a_mover_alone_excludes_it() {
    /// More than a sample has.
    const MANY: usize = 3000;
    let trees = Trees::new();
    let many = trees.one.join("many");
    (0..MANY).for_each(|number| put(&many.join(format!("f{number}")), "right"));
    let wrong = trees.scratch.path().join("wrong");
    put(&wrong, "wrong");
    let mount = format!(
        "mount --bind {} {}",
        wrong.display(),
        many.join("f7").display()
    );
    let ssh = trees.blind_ssh(&mount);
    let outcome = sync_on_hosts("blind", &ssh, &trees.one, &trees.replica)
        .run()
        .expect(0);
    check_output_has(&outcome, &["blind: it sees \"many/f7\" of the source with"]);
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

#[test]
fn mover_writes_nothing_beneath_replica_mount() {
    let trees = Trees::new();
    let disk = trees.replica.join("dir-0");
    let mounted = Mounted::tmpfs(&disk);
    let blind = trees.blind_ssh(&format!("umount {}", disk.display()));
    let outcome = sync_on_hosts("blind", &blind, &trees.one, &trees.replica)
        .run()
        .expect(0);
    check_output_has(
        &outcome,
        &["\"dir-0\" is not what is mounted there on the coordinator's host"],
    );
    check_equal(&trees.one, &trees.replica, &outcome.describe());
    drop(mounted);
    assert_eq!(files_below(&disk), 0, "{}", outcome.describe());
}

#[test]
fn mover_copies_nothing_from_beneath_a_mount() {
    let trees = Trees::new();
    let disk = trees.one.join("dir-0/disk");
    put(&disk.join("beneath"), "hidden");
    let _disk = Mounted::tmpfs(&disk);
    let blind = trees.blind_ssh(&format!("umount {}", disk.display()));
    let run = |ssh: &str| sync_on_hosts("host", ssh, &trees.one, &trees.replica).arg("-x");
    let outcome = run(&blind).run().expect(3);
    let told = outcome.events_named("problem");
    let paths: Vec<_> = told.iter().map(|problem| &problem["path"]).collect();
    assert_eq!(paths, ["dir-0/disk"], "{}", outcome.describe());
    let copied = trees.replica.join("dir-0/disk/beneath");
    assert!(!copied.exists(), "{}", outcome.describe());
    let outcome = run(&trees.ssh("exec $command")).run().expect(0);
    assert_eq!(trees.files(), FILES, "{}", outcome.describe());
    assert!(
        trees.replica.join("dir-0/disk").is_dir(),
        "{}",
        outcome.describe()
    );
}

/// A source that is a file system, and a clone of that file system in which content was replaced
/// under its size and time, a directory removed, and one replaced by a file.
struct Cloned {
    source: PathBuf,
    clone: PathBuf,
    _mounted: [Mounted; 2],
}

impl Cloned {
    fn of(trees: &Trees) -> Cloned {
        let folder = trees.scratch.path();
        let [image, copy, source, clone] =
            ["image", "copy", "original", "clone"].map(|name| folder.join(name));
        let run = |program: &str, words: &[&OsStr]| {
            let done = std::process::Command::new(program).args(words).status();
            assert!(done.expect(program).success(), "{program} {words:?}");
        };
        run("truncate", &["-s24M".as_ref(), image.as_ref()]);
        run(
            "mkfs.ext4",
            &["-q".as_ref(), "-I256".as_ref(), image.as_ref()],
        );
        let mount = |image: &Path, at: &Path| {
            Mounted::with(["-o".as_ref(), "loop".as_ref(), image.as_os_str()], at)
        };
        let filled = mount(&image, &source);
        for number in 1..=5 {
            put(&source.join(format!("a/f{number}")), "right");
            put(&source.join(format!("a/b/g{number}")), "right");
            put(&source.join(format!("a/c/h{number}")), "right");
        }
        drop(filled);
        fs::copy(&image, &copy).expect("copy");
        let mounted = [mount(&image, &source), mount(&copy, &clone)];
        for number in 1..=5 {
            let name = format!("a/f{number}");
            fs::write(clone.join(&name), "wrong").expect("write");
            let (like, changed) = (source.join(&name), clone.join(&name));
            run("touch", &["-r".as_ref(), like.as_ref(), changed.as_ref()]);
        }
        for dir in ["a/b", "a/c"] {
            fs::remove_dir_all(clone.join(dir)).expect("remove");
        }
        fs::write(clone.join("a/c"), "a file").expect("write");
        Cloned {
            source,
            clone,
            _mounted: mounted,
        }
    }

    /// What a shell runs to have the clone in the place of the source.
    fn mount(&self) -> String {
        format!(
            "mount --bind {} {}",
            self.clone.display(),
            self.source.display()
        )
    }
}

#[test]
fn a_mover_that_sees_a_clone_is_not_believed() {
    let trees = Trees::new();
    let cloned = Cloned::of(&trees);
    let ssh = trees.blind_ssh(&cloned.mount());
    let outcome = sync_on_hosts("clone", &ssh, &cloned.source, &trees.replica)
        .arg("--delete")
        .run()
        .expect(0);
    check_output_has(&outcome, &["clone: it sees \"a", "and the coordinator"]);
    check_equal(&cloned.source, &trees.replica, &outcome.describe());
}

#[test]
fn a_mover_that_sees_a_clone_removes_no_directory() {
    let trees = Trees::new();
    let cloned = Cloned::of(&trees);
    let _ = sync(&cloned.source, &trees.replica).run().expect(0);
    let ssh = trees.blind_ssh(&cloned.mount());
    let outcome = sync_on_hosts("clone", &ssh, &cloned.source, &trees.replica)
        .arg("--delete")
        .run()
        .expect(0);
    for number in 1..=5 {
        for dir in ["a/f", "a/b/g", "a/c/h"] {
            let path = trees.replica.join(format!("{dir}{number}"));
            let found = fs::read(&path).unwrap_or_default();
            assert_eq!(found, b"right", "{path:?}\n{}", outcome.describe());
        }
    }
}

#[test]
fn single_file_of_a_clone_is_copied_again() {
    let trees = Trees::new();
    let cloned = Cloned::of(&trees);
    let ssh = trees.blind_ssh(&cloned.mount());
    let replica = trees.scratch.path().join("single");
    let outcome = sync_on_hosts("clone", &ssh, &cloned.source.join("a/f1"), &replica)
        .run()
        .expect(0);
    check_output_has(&outcome, &["clone: it sees \"", "of the source with ctime"]);
    let found = fs::read(&replica).expect("read");
    assert_eq!(found, b"right", "{}", outcome.describe());
}

#[test]
fn mover_that_reaches_another_machine_copies_nothing() {
    let trees = Trees::new();
    let boot = trees.scratch.path().join("boot");
    put(&boot, "00000000-0000-4000-8000-000000000000\n");
    let elsewhere = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id; mount --bind {} {}",
        boot.display(),
        trees.other.display(),
        trees.one.display()
    );
    let ssh = trees.ssh(&format!(
        "case \"$*\" in *blind*) export ON=blind; exec $command;; esac\n\
         [ \"$ON\" = blind ] || exec $command\n{}",
        in_own_mounts(&elsewhere)
    ));
    let source = format!("far:{}", trees.one.display());
    let outcome = sync_on_hosts("blind", &ssh, Path::new(&source), &trees.replica)
        .run()
        .expect(0);
    check_output_has(&outcome, &["leads to another machine", "so this host does"]);
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

/// The files of the clone change after the run began, those of the source do not.
#[test]
fn clone_in_use_is_not_believed() {
    let trees = Trees::new();
    let cloned = Cloned::of(&trees);
    let later =
        "touch begun; until [ $(date +%s) -gt $(($(stat -c %Y begun) + 1)) ]; do sleep 0.1; done";
    let ssh = trees.ssh(&format!(
        "{later}; chown -R 0 {}; {}",
        cloned.clone.join("a").display(),
        in_own_mounts(&cloned.mount())
    ));
    let outcome = sync_on_hosts("clone", &ssh, &cloned.source, &trees.replica)
        .arg("--delete")
        .run()
        .expect(0);
    check_output_has(&outcome, &["clone: it sees \"a", "and the coordinator"]);
    check_equal(&cloned.source, &trees.replica, &outcome.describe());
}

/// Only the change time says that the content is not that of the source.
#[test]
fn what_was_copied_from_a_clone_is_copied_again() {
    let trees = Trees::new();
    let cloned = Cloned::of(&trees);
    let first = trees.replica.join("a/f1");
    let ssh = trees.ssh(&format!(
        "if [ \"$2\" = near ]; then until [ -e {} ]; do sleep 0.05; done; exec $command; fi\n{}",
        first.display(),
        in_own_mounts(&cloned.mount())
    ));
    let outcome = sync_on_hosts("clone,near", &ssh, &cloned.source, &trees.replica)
        .arg("--delete")
        .run()
        .expect(0);
    check_equal(&cloned.source, &trees.replica, &outcome.describe());
}

#[test]
fn a_mover_of_a_queue_that_sees_a_clone_changes_nothing_lasting() {
    let rabbit = Rabbit::start();
    let (job, trees) = (Job::new(&rabbit), Trees::new());
    let cloned = Cloned::of(&trees);
    let in_place = format!("{}; exec \"$0\" \"$@\"", cloned.mount());
    let blind = job
        .mover()
        .through(["unshare", "--mount", "sh", "-c", &in_place])
        .spawn();
    let running = job
        .sync(&cloned.source, &trees.replica)
        .arg("--delete")
        .spawn();
    let first = trees.replica.join("a/f1");
    wait_until("the clone is copied", || first.exists());
    let good = job.start_mover();
    let outcome = running.wait().expect(0);
    check_equal(&cloned.source, &trees.replica, &outcome.describe());
    end_mover(good);
    blind.signal(Signal::TERM);
    let _ = blind.wait();
}

/// Changes of the source during a run are no sign of another tree.
#[test]
fn a_source_that_changes_excludes_no_mover() {
    let trees = Trees::new();
    let ssh = trees.ssh("exec $command");
    let running = slow(sync_on_hosts("near", &ssh, &trees.one, &trees.replica)).spawn();
    trees.wait_until_begun();
    // Later than the second in which the run began.
    wait_until("half is there", || trees.files() >= FILES / 2);
    let mut changed = 0_u8;
    while trees.files() < FILES && !running.ends_within(Duration::ZERO) {
        changed = changed.wrapping_add(1);
        for file in 0..FILES {
            let path = trees.one.join(format!("dir-{}/file-{file}", file % 6));
            let mode = 0o600 + u32::from(changed % 2) * 0o40;
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
        }
        std::thread::yield_now();
    }
    let outcome = running.wait();
    let said = outcome.stdout_text() + &outcome.stderr_text();
    assert!(!said.contains("it sees"), "{}", outcome.describe());
    assert!([0, 5].contains(&outcome.code()), "{}", outcome.describe());
}

/// A command in the place of ssh: on the host `plain` an ordinary user runs the mover, and the one
/// on `rooty` starts when that one has spoken.
fn plain_and_rooty(trees: &Trees) -> String {
    let plain = format!("setpriv --reuid {USER} --regid {USER} --clear-groups $command | tee said");
    let rooty = "for _ in $(seq 3000); do grep -qs \"coordinator's user\" said && break; sleep 0.1; done; exec $command";
    trees.ssh(&format!(
        "case \"$*\" in *plain*) {plain};; *) {rooty};; esac"
    ))
}

/// Trees that an ordinary user may read and write, with entries of several owners.
fn open_to_all() -> Trees {
    let trees = Trees::new();
    for (index, dir) in fs::read_dir(&trees.one).expect("list").enumerate() {
        let dir = dir.expect("an entry").path();
        let files = fs::read_dir(&dir)
            .expect("list")
            .map(|file| file.expect("an entry").path());
        files
            .chain([dir.clone()])
            .for_each(|path| set_owner(&path, 1000 + index as u32, 2000).expect("chown"));
    }
    fs::create_dir_all(&trees.replica).expect("make");
    set_owner(&trees.replica, USER, USER).expect("chown");
    fs::set_permissions(trees.scratch.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
    trees
}

#[test]
fn a_mover_that_cannot_give_owners_as_its_coordinator_can_gets_no_work() {
    let trees = open_to_all();
    let ssh = plain_and_rooty(&trees);
    let outcome = sync_on_hosts("plain,rooty", &ssh, &trees.one, &trees.replica)
        .run()
        .expect(0);
    check_equal(&trees.one, &trees.replica, &outcome.describe());
    check_output_has(
        &outcome,
        &[
            "plain: ",
            &format!("runs as user {USER}"),
            "run movers as the coordinator's user",
            "goes on without it",
        ],
    );
}

#[test]
fn movers_of_another_user_work_where_owners_are_excluded() {
    let trees = open_to_all();
    let ssh = plain_and_rooty(&trees);
    let mover_words = ["run movers as the coordinator's user", "goes on alone"];
    let run = || sync_on_hosts("plain", &ssh, &trees.one, &trees.replica);
    let all = run().args(["--no-owner", "--no-group"]).run().expect(0);
    assert_eq!(trees.files(), FILES, "{}", all.describe());
    let outcome = run().run().expect(0);
    for (run, is_told) in [(&all, false), (&outcome, true)] {
        let said = run.stdout_text() + &run.stderr_text();
        for words in mover_words {
            assert_eq!(said.contains(words), is_told, "{words}\n{}", run.describe());
        }
    }
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

/// Root of a user namespace may give owners there, and they are others here.
#[test]
fn a_mover_in_a_user_namespace_gets_no_work() {
    let trees = Trees::new();
    let ssh = trees.ssh("exec unshare --user --map-root-user $command");
    let outcome = sync_on_hosts("inner", &ssh, &trees.one, &trees.replica)
        .run()
        .expect(0);
    check_output_has(&outcome, &["in another user namespace", "goes on alone"]);
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

#[test]
fn mover_with_a_read_only_replica_is_idle() {
    let trees = Trees::new();
    fs::create_dir_all(&trees.replica).expect("a replica");
    let replica = trees.replica.display();
    let ssh = trees.blind_ssh(&format!(
        "mount --bind {replica} {replica}; mount -o remount,bind,ro {replica}"
    ));
    let outcome = sync_on_hosts("closed", &ssh, &trees.one, &trees.replica)
        .run()
        .expect(0);
    check_output_has(
        &outcome,
        &["read-only on the mover's host", "goes on alone"],
    );
    check_equal(&trees.one, &trees.replica, &outcome.describe());
}

/// A mover of an ordinary user, and what it has said when that holds `words`.
fn misfit(job: &Job, log: &Path, words: &str) -> Running {
    let user = format!("exec setpriv --reuid {USER} --regid {USER} --clear-groups \"$@\" 2>\"$0\"");
    let mover = job
        .mover()
        .through([
            OsStr::new("sh"),
            OsStr::new("-c"),
            OsStr::new(&user),
            log.as_os_str(),
        ])
        .spawn();
    wait_until("it has said so", || {
        fs::read_to_string(log).is_ok_and(|said| said.contains(words))
    });
    mover
}

#[test]
fn a_batch_is_not_given_up_because_movers_that_do_not_fit_its_run_take_it() {
    /// More than a batch is tried.
    const MISFITS: usize = 9;
    let rabbit = Rabbit::start();
    let (trees, job) = (open_to_all(), Job::new(&rabbit));
    let running = job.sync(&trees.one, &trees.replica).spawn();
    let log = |index: usize| trees.scratch.path().join(format!("log-{index}"));
    let misfits: Vec<Running> = (0..MISFITS)
        .map(|index| misfit(&job, &log(index), "takes no part in this run"))
        .collect();
    let good = job.start_mover();
    let outcome = running.wait().expect(0);
    check_equal(&trees.one, &trees.replica, &outcome.describe());
    let told = |index: usize| {
        fs::read_to_string(log(index))
            .expect("a log")
            .matches("takes no part")
            .count()
    };
    assert!(
        (0..MISFITS).all(|index| told(index) == 1),
        "each takes one batch at most"
    );
    let notes = outcome.events_named("note");
    let of_misfits = notes.iter().filter(|note| {
        note["message"]
            .as_str()
            .is_some_and(|said| said.contains("run movers as the coordinator's user"))
    });
    assert_eq!(of_misfits.count(), MISFITS, "{}", outcome.describe());
    end_mover(good);
    // The next run may be one that they fit.
    fs::remove_dir_all(&trees.replica).expect("remove");
    fs::create_dir(&trees.replica).expect("make");
    set_owner(&trees.replica, USER, USER).expect("chown");
    let next = job
        .sync(&trees.one, &trees.replica)
        .args(["--no-owner", "--no-group"])
        .run()
        .expect(0);
    assert_eq!(trees.files(), FILES, "{}", next.describe());
    misfits.into_iter().for_each(end_mover);
}

#[test]
fn two_hosts_do_not_coordinate_one_job() {
    let rabbit = Rabbit::start();
    let (first, second) = (Trees::new(), Trees::new());
    put(&first.one.join("large"), vec![7u8; 80 << 20]);
    let job = Job::new(&rabbit);
    let mover = slow(job.mover()).spawn();
    let running = job.sync(&first.one, &first.replica).spawn();
    first.wait_until_begun();
    // Another host has another folder for its records.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let run = job
        .coordinate(sync(&second.one, &second.replica))
        .env("XDG_STATE_HOME", elsewhere.path());
    let outcome = run.run().expect(11);
    let (said, process) = (outcome.stderr_text(), format!("process {}", running.pid()));
    for words in ["coordinates the job", &process, "since"] {
        assert!(
            said.contains(words),
            "\"{words}\" is missing\n{}",
            outcome.describe()
        );
    }
    assert_eq!(second.files(), 0);
    let _ = running.wait().expect(0);
    check_equal(&first.one, &first.replica, "undisturbed");
    end_mover(mover);
}

fn open(path: &Path) -> DirRef {
    let Ok(Place::Dir(dir)) = locate(path, Side::Source, &HandlePool::new(8)) else {
        panic!("it is a directory")
    };
    dir
}

#[test]
fn a_source_is_known_again_when_everything_at_its_top_has_changed() {
    let (_scratch, src, _) = stage();
    put(&src.join("incoming/file"), "1");
    put(&src.join("status"), "1");
    let sample = Sample::of(&open(&src)).expect("it can be looked at");
    let changed = |path: &Path| {
        fs::metadata(path)
            .map(|meta| (meta.ctime(), meta.ctime_nsec()))
            .expect("stat")
    };
    let touch =
        |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("chmod");
    // The clock of a file system may go on in steps.
    for path in [&src, &src.join("incoming")] {
        let before = changed(path);
        wait_until("the clock goes on", || {
            touch(path);
            changed(path) != before
        });
    }
    put(&src.join("new"), "2");
    fs::rename(src.join("new"), src.join("status")).expect("rename");
    assert!(sample.is_of(&open(&src)), "the same directory");
    // One in its place, with entries of the same names.
    fs::rename(&src, src.with_file_name("away")).expect("rename");
    put(&src.join("incoming/file"), "1");
    put(&src.join("status"), "2");
    assert!(!sample.is_of(&open(&src)), "another one");
}
