//! Copies and verifications as jobs of a real Slurm: movers on the nodes of an allocation, warned
//! and killed jobs that continue when they are requeued. The scripts are those of `docs/slurm.md`.
#![allow(clippy::disallowed_methods)]

mod common;

use common::pages;
use driftless_testkit::accounts::ORDINARY_ID as USER;
use driftless_testkit::{Rabbit, Slurm, wait_slowly_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;
const BIN: &str = env!("CARGO_BIN_EXE_driftless");
/// Files of a tree.
const FILES: u64 = 24;
/// Bytes of each file.
const FILE_BYTES: u64 = MIB;
/// Bytes that a run may have read or copied without a record when it was stopped: the files and
/// pieces that its two threads had begun, on two nodes.
const UNDER_WAY_BYTES_MAX: u64 = 4 * FILE_BYTES;
/// Two threads, and a run of several seconds.
const SLOW: &str = "--jobs=2 --bwlimit=3M";

/// A cluster, two trees that its nodes share, and the output of jobs.
struct Jobs {
    slurm: Slurm,
}

impl Jobs {
    fn start(nodes: usize) -> Jobs {
        let jobs = Jobs {
            slurm: Slurm::start_for_requeues(nodes),
        };
        for name in ["src", "backup", "out", "state"] {
            let path = jobs.path(name);
            fs::create_dir(&path).expect("a folder");
            chown(&path, Some(USER), Some(USER)).expect("chown");
        }
        for number in 0..FILES {
            let folder = jobs.path(&format!("src/dir{}", number % 4));
            fs::create_dir_all(&folder).expect("a folder");
            let file = folder.join(format!("file{number}"));
            fs::write(&file, content(number)).expect("a file");
            for path in [folder, file] {
                chown(&path, Some(USER), Some(USER)).expect("chown");
            }
        }
        jobs
    }

    fn path(&self, name: &str) -> PathBuf {
        self.slurm.shared_dir().join(name)
    }

    /// Submits a script with these options of sbatch(1), and returns the number of the job.
    fn submit(&self, script: &str, options: &[&str]) -> String {
        let path = self.path("job.sh");
        fs::write(&path, script).expect("a script");
        let mut command = self.slurm.command_as(USER, USER, "sbatch");
        command.arg("--parsable").args(options);
        command.arg(format!("--output={}", self.path("out/job.txt").display()));
        command.env("XDG_STATE_HOME", self.path("state")).arg(path);
        command.current_dir(self.path("out"));
        text_of(&mut command).trim().to_owned()
    }

    /// Returns a script of the page, for the trees of the test. The output of a run is in a file
    /// of its own, and in JSON.
    fn script(&self, heading: &str, options: &str) -> String {
        let (src, dst) = (self.path("src"), self.path("backup/dst"));
        let text = script_of_page(heading)
            .replace("/backup/projects", &dst.display().to_string())
            .replace("/projects", &src.display().to_string())
            .replace("~/parts", &self.path("out/parts").display().to_string());
        let mut script = String::new();
        for line in text.lines() {
            let line = match line.strip_prefix("srun ") {
                Some(rest) => {
                    let rest = rest.replace("driftless ", &format!("{BIN} "));
                    let output = self.path("out/run").display().to_string();
                    format!("srun {rest} --json {options} >{output}-${{SLURM_RESTART_COUNT:-0}}")
                }
                None => line.to_owned(),
            };
            script.push_str(&line);
            script.push('\n');
        }
        script
    }

    /// Returns the state of a job in Slurm, empty if it ended.
    fn state_of(&self, job: &str) -> String {
        let mut queue = self.slurm.command("squeue");
        let output = queue.args(["-h", "-j", job, "-o", "%T"]).output();
        let output = output.expect("squeue");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn wait_for_end(&self, job: &str) {
        wait_slowly_until("the job has ended", || {
            let state = self.state_of(job);
            ["", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"].contains(&state.as_str())
        });
    }

    /// Returns the last event of a run of the job, if the run has ended.
    fn summary(&self, run: u32) -> Option<Value> {
        let text = fs::read_to_string(self.path(&format!("out/run-{run}"))).ok()?;
        let last: Value = serde_json::from_str(text.lines().last()?).ok()?;
        last["exit_code"].is_number().then_some(last)
    }

    /// Output of the job and the scheduler, for a test that fails.
    fn describe(&self) -> String {
        let mut text = fs::read_to_string(self.path("out/job.txt")).unwrap_or_default();
        for run in 0..3 {
            let said = fs::read_to_string(self.path(&format!("out/run-{run}")));
            text.push_str(&said.unwrap_or_default());
        }
        text + &self.slurm.log()
    }

    fn field(&self, run: u32, name: &str) -> u64 {
        let summary = self.summary(run);
        let number = summary.as_ref().and_then(|summary| summary[name].as_u64());
        number.unwrap_or_else(|| panic!("run {run} has no {name}: {}", self.describe()))
    }

    /// Waits until the replica has so many whole files.
    fn wait_for_files(&self, count: usize) {
        let dst = self.path("backup/dst");
        wait_slowly_until("the copy has begun", || files_in(&dst) >= count);
    }

    fn check_equal(&self) {
        common::check_equal(
            &self.path("src"),
            &self.path("backup/dst"),
            &self.describe(),
        );
    }
}

fn content(number: u64) -> Vec<u8> {
    let line = format!("{number:07}\n");
    line.repeat(FILE_BYTES as usize / line.len()).into_bytes()
}

fn text_of(command: &mut Command) -> String {
    let output = command.output().expect("an output");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Counts the files with a final name below a directory.
fn files_in(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.path() {
            path if path.is_dir() => files_in(&path),
            path => usize::from(!path.to_string_lossy().contains(".driftless-")),
        })
        .sum()
}

/// Returns the first job script below a heading of the page about batch jobs.
fn script_of_page(heading: &str) -> String {
    let page = pages::read("docs/slurm.md");
    let section = page.split(&format!("\n## {heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("no section {heading}"));
    let script = section
        .split("```sh\n")
        .find(|text| text.starts_with("#!/bin/sh\n"));
    let script = script.and_then(|text| text.split("```").next());
    script.expect("a script").to_owned()
}

/// Warns a copy when it is under way, and checks that the requeued job does the rest.
fn check_warned_copy(heading: &str, nodes: usize) {
    let jobs = Jobs::start(nodes);
    let script = jobs.script(heading, SLOW);
    let job = jobs.submit(&script, &[&format!("--nodes={nodes}")]);
    jobs.wait_for_files(FILES as usize / 2);
    jobs.slurm.run("scancel", &["--signal=USR2", &job]);
    wait_slowly_until("the run has ended", || jobs.summary(0).is_some());
    assert_eq!(jobs.field(0, "exit_code"), 140, "{}", jobs.describe());
    jobs.wait_for_end(&job);
    assert_eq!(jobs.field(1, "exit_code"), 0, "{}", jobs.describe());
    assert_eq!(jobs.summary(2), None, "a job that is done is not requeued");
    let copied = jobs.field(0, "bytes_copied") + jobs.field(1, "bytes_copied");
    let all = FILES * FILE_BYTES;
    assert!(
        copied <= all + UNDER_WAY_BYTES_MAX,
        "{copied} bytes of {all}: {}",
        jobs.describe()
    );
    assert!(jobs.field(0, "bytes_copied") >= all / 3);
    jobs.check_equal();
}

#[test]
fn warned_copy_continues_in_the_requeued_job() {
    check_warned_copy("Copy on one node with Slurm", 1);
}

#[test]
fn warned_movers_continue_in_the_requeued_job() {
    check_warned_copy("Copy on many nodes with Slurm", 2);
}

#[test]
fn movers_work_on_all_nodes_of_a_job() {
    let jobs = Jobs::start(3);
    let wrapper = jobs.path("out/mover");
    driftless_testkit::write_program(
        &wrapper,
        &format!(
            "#!/bin/sh\necho >\"{}/$SLURMD_NODENAME\"\nexec {BIN} \"$@\"\n",
            jobs.path("backup").display()
        ),
    );
    let options = format!("{SLOW} --agent-path={}", wrapper.display());
    let script = jobs.script("Copy on many nodes with Slurm", &options);
    let job = jobs.submit(&script, &["--nodes=3"]);
    jobs.wait_for_end(&job);
    assert_eq!(jobs.field(0, "exit_code"), 0, "{}", jobs.describe());
    jobs.check_equal();
    let entries = fs::read_dir(jobs.path("backup")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names: BTreeSet<String> = names.filter_map(|name| name.into_string().ok()).collect();
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        ["dst", "n1", "n2", "n3"]
    );
}

#[test]
fn crashed_node_does_not_end_the_run() {
    let mut jobs = Jobs::start(3);
    let script = jobs.script("Copy on many nodes with Slurm", "--jobs=2 --bwlimit=1M");
    jobs.submit(&script, &["--nodes=3"]);
    jobs.wait_for_files(3);
    jobs.slurm.crash_node("n3");
    wait_slowly_until("the run has ended", || jobs.summary(0).is_some());
    assert_eq!(jobs.field(0, "exit_code"), 0, "{}", jobs.describe());
    jobs.check_equal();
}

#[test]
fn copy_of_a_crashed_node_continues() {
    let mut jobs = Jobs::start(1);
    let script = jobs.script("Copy on one node with Slurm", SLOW);
    let job = jobs.submit(&script, &[]);
    jobs.wait_for_files(FILES as usize / 2);
    // Slurm puts the job back into the queue.
    jobs.slurm.crash_node("n1");
    jobs.slurm.boot_node("n1");
    jobs.wait_for_end(&job);
    assert_eq!(jobs.summary(0), None, "the first run was killed");
    assert_eq!(jobs.field(1, "exit_code"), 0, "{}", jobs.describe());
    let all = FILES * FILE_BYTES;
    let copied = jobs.field(1, "bytes_copied");
    assert!(copied <= all * 3 / 4, "{copied} bytes of {all}");
    jobs.check_equal();
}

#[test]
fn warned_verification_reads_nothing_again() {
    let jobs = Jobs::start(1);
    let copied = Command::new("cp")
        .args(["-a"])
        .args([jobs.path("src"), jobs.path("backup/dst")])
        .status();
    assert!(copied.expect("cp").success());
    fs::write(jobs.path("out/parts"), "none\n.\n").expect("a list");
    let script = jobs.script("Verify with Slurm", SLOW);
    let job = jobs.submit(&script, &["--array=2", "--cpus-per-task=1"]);
    wait_slowly_until("the record has been written", || {
        let records = fs::read_dir(jobs.path("state/driftless"));
        records.is_ok_and(|mut records| {
            records.any(|record| {
                record
                    .is_ok_and(|record| record.file_name().to_string_lossy().starts_with("verify-"))
            })
        })
    });
    jobs.slurm.run("scancel", &["--signal=USR2", &job]);
    jobs.wait_for_end(&job);
    assert_eq!(jobs.field(0, "exit_code"), 140, "{}", jobs.describe());
    assert_eq!(jobs.field(1, "exit_code"), 0, "{}", jobs.describe());
    let (first, second) = (
        jobs.field(0, "bytes_compared"),
        jobs.field(1, "bytes_compared"),
    );
    let all = FILES * FILE_BYTES;
    assert!(
        first > 0 && first + second <= all + UNDER_WAY_BYTES_MAX,
        "{first} and {second} bytes of {all}: {}",
        jobs.describe()
    );
}

#[test]
fn broker_feeds_movers_of_an_allocation() {
    let jobs = Jobs::start(2);
    let rabbit = Rabbit::start_on(jobs.slurm.host("head"));
    fs::write(jobs.path("out/password"), Rabbit::PASSWORD).expect("a file");
    let secret = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(jobs.path("out/password"), secret).expect("a mode");
    chown(jobs.path("out/password"), Some(USER), Some(USER)).expect("chown");
    let password = jobs.path("out/password").display().to_string();
    let script = script_of_page("Movers of a broker with Slurm")
        .replace("driftless mover", &format!("{BIN} mover"))
        .replace("amqps://driftless@broker/driftless", &rabbit.url())
        .replace("~/.queue", &password);
    assert!(script.contains(&rabbit.url()), "{script}");
    let script = script.replace("--idle 60", "--idle 5");
    let job = jobs.submit(&script, &["--nodes=2"]);
    let mut sync = jobs.slurm.command_as(USER, USER, BIN);
    sync.args(["sync", "--queue", &rabbit.url(), "--job", "nightly"]);
    sync.args(["--queue-credentials", &password]);
    sync.env("XDG_STATE_HOME", jobs.path("state"));
    text_of(sync.args([jobs.path("src"), jobs.path("backup/dst")]));
    jobs.check_equal();
    jobs.wait_for_end(&job);
}

#[test]
fn slurm_option_needs_an_allocation() {
    let (_scratch, src, dst) = common::stage();
    let outcome = common::driftless()
        .args(["sync", "--slurm"])
        .arg(&src)
        .arg(&dst);
    let outcome = outcome.run().expect(2);
    let said = outcome.stderr_text();
    assert!(
        said.contains("SLURM_JOB_NODELIST") && said.contains("sbatch or salloc"),
        "{said}"
    );
    assert!(!dst.exists());
}

#[test]
#[ignore = "takes minutes: make campaign"]
fn time_limit_ends_no_run_hard() {
    let jobs = Jobs::start(1);
    let script = jobs.script("Copy on one node with Slurm", "--jobs=2 --bwlimit=1M");
    let job = jobs.submit(&script, &["--time=1", "--signal=USR2@25"]);
    wait_slowly_until("the first run has ended", || jobs.summary(0).is_some());
    assert_eq!(jobs.field(0, "exit_code"), 140, "{}", jobs.describe());
    jobs.wait_for_end(&job);
    let mut copied = 0;
    for run in 0.. {
        copied += jobs.field(run, "bytes_copied");
        // Two threads had begun a file each when the run was warned.
        let again = u64::from(run) * 2 * FILE_BYTES;
        assert!(copied <= FILES * FILE_BYTES + again, "{copied} in {run}");
        if jobs.field(run, "exit_code") == 0 {
            break;
        }
        assert_eq!(jobs.field(run, "exit_code"), 140, "{}", jobs.describe());
    }
    jobs.check_equal();
}
