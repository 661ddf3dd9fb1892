//! Jobs of two users with accidents at random: cancelled jobs, killed gateways, daemons and servers,
//! commands that fail or whose answer is lost. In the end each job has run once, all results have
//! arrived, and no copy is left.
//!
//! `DRIFTLESS_SEED` sets the first seed, `DRIFTLESS_SEEDS` how many rounds there are.

use crate::cluster::{Cluster, must};
use crate::site::{OTHER, USER};
use crate::troubles::Troubles;
use driftless_testkit::Pbs;
use fastrand::Rng;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

type Site = crate::site::Site<Pbs>;

const USERS: [u32; 2] = [USER, OTHER];
const JOBS: usize = 6;
/// Data sets of each user.
const SETS: usize = 2;
/// Commands of the gateway that change a job or a node.
const CHANGES: [&str; 3] = ["qalter", "qmgr", "qrls"];
/// Commands that only ask.
const QUESTIONS: [&str; 2] = ["pbsnodes", "qstat"];
/// Longest pause between two events.
const PAUSE_MAX: u64 = 700;

/// Compares the data with its source DATA, leaves a result, and notes that it ran in OUT.
const TASK: &str = r#"#!/bin/sh
for path in DATA; do
    cmp "$SPOOL_DIRECTORY/${path##*/}/part" "$path/part" || { echo damaged >>"OUT/$PBS_JOBID"; exit 1; }
done
if [ -n "$RESULTS_DIRECTORY" ]; then
    mkdir -p "$RESULTS_DIRECTORY/$PBS_ARRAY_INDEX" || exit 1
    echo "$PBS_JOBID" >"$RESULTS_DIRECTORY/$PBS_ARRAY_INDEX/result" || exit 1
fi
echo ran >>"OUT/$PBS_JOBID"
"#;

/// A job that was submitted.
struct Submitted {
    number: String,
    user: u32,
    tasks: u32,
    has_results: bool,
    is_cancelled: bool,
}

impl Submitted {
    /// Returns the name of a task: 12[3].server for the job 12[].server.
    fn task(&self, index: u32) -> String {
        self.number.replace("[]", &format!("[{index}]"))
    }

    fn digits(&self) -> &str {
        self.number.split('[').next().expect("a number")
    }
}

struct Round {
    site: Site,
    troubles: Troubles,
    rng: Rng,
    jobs: Vec<Submitted>,
    out: PathBuf,
}

impl Round {
    fn new(seed: u64) -> Round {
        let mut site = Site::start(3);
        let commands = [&CHANGES[..], &QUESTIONS].concat();
        let troubles = Troubles::start(&mut site, &commands);
        for user in USERS {
            for set in 0..SETS {
                site.make_data_of(user, &format!("data-{user}-{set}"), 1 << 18);
            }
            let home = site.make_out(&format!("home-{user}"));
            fs::set_permissions(&home, Permissions::from_mode(0o700)).expect("closed");
            chown(&home, Some(user), Some(user)).expect("given");
        }
        Round {
            out: site.make_out("out"),
            site,
            troubles,
            rng: Rng::with_seed(seed),
            jobs: Vec::new(),
        }
    }

    fn pause(&mut self) {
        let pause = self.rng.u64(0..PAUSE_MAX);
        std::thread::sleep(Duration::from_millis(pause));
    }

    fn home(&self, user: u32) -> PathBuf {
        self.site.shared().join(format!("home-{user}"))
    }

    fn submit(&mut self) {
        let user = USERS[self.rng.usize(..USERS.len())];
        let (first, count) = (self.rng.usize(..SETS), self.rng.usize(1..=SETS));
        let set = |number: usize| format!("data-{user}-{}", (first + number) % SETS);
        let data: Vec<String> = (0..count).map(set).collect();
        let data: Vec<&str> = data.iter().map(String::as_str).collect();
        let release = ["first", "quorum=50%", "all"][self.rng.usize(..3)];
        let pattern = self.home(user).join("%j/%t").display().to_string();
        let mut options = vec!["--release", release];
        let has_results = self.rng.bool();
        if has_results {
            options.extend(["--results", &pattern]);
        }
        let paths = data.iter().map(|name| self.site.shared().join(name));
        let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
        let text = TASK.replace("DATA", &paths.join(" "));
        let text = text.replace("OUT", &self.out.display().to_string());
        let script = format!("task-{}.sh", self.jobs.len());
        let script = self.site.script(&script, &text);
        let tasks = self.rng.u32(2..6);
        let number = self.site.submit(user, &data, &options, |qsub| {
            qsub.args(["-J", &format!("1-{tasks}")]).arg(&script);
        });
        self.jobs.push(Submitted {
            number,
            user,
            tasks,
            has_results,
            is_cancelled: false,
        });
    }

    /// Lets something happen, and mends it.
    fn accident(&mut self) {
        let kind = self.rng.u32(..6);
        let nodes = self.site.cluster.node_names();
        let node = nodes[self.rng.usize(..nodes.len())].clone();
        match kind {
            0 => self.cancel(),
            1 => {
                self.site.kill_gateway();
                self.pause();
                self.site.start_gateway();
            }
            2 => {
                self.site.kill_daemon(&node);
                self.pause();
                self.site.start_daemon(&node);
            }
            3 => {
                self.site.cluster.stop_server();
                self.pause();
                self.site.cluster.start_server();
            }
            4 => self.trouble(&QUESTIONS, &["empty", "garbage", "killed", "cut"]),
            _ => self.trouble(&CHANGES, &["refused", "killed", "lost"]),
        }
    }

    fn cancel(&mut self) {
        let at = self.rng.usize(..self.jobs.len());
        let job = &mut self.jobs[at];
        let cancelled = self.site.cluster.cancel(&job.number).output();
        // The job may have ended before.
        job.is_cancelled |= cancelled.expect("qdel").status.success();
    }

    fn trouble(&mut self, commands: &[&str], troubles: &[&str]) {
        let command = commands[self.rng.usize(..commands.len())];
        let trouble = troubles[self.rng.usize(..troubles.len())];
        self.troubles.begin(command, trouble);
        for _ in 0..self.rng.u32(1..5) {
            self.pause();
        }
        self.troubles.end(command);
    }

    fn run(&mut self) {
        for _ in 0..JOBS {
            self.submit();
            self.pause();
            self.accident();
        }
        // Pauses after failures grow; a gateway that starts has none.
        self.site.kill_gateway();
        self.site.start_gateway();
        for job in &self.jobs {
            self.site.wait_until_closed(&job.number);
            self.check(job);
        }
        let mut list = self.site.cluster.command("qstat");
        let left = must(list.args(["-f", "-F", "json"])).stdout;
        let left = String::from_utf8_lossy(&left).into_owned();
        assert!(!left.contains("\"Jobs\""), "{left}");
        self.site.check_nothing_is_left();
    }

    /// Checks that each task ran once, or not at all if its job was cancelled, and that its results
    /// have arrived.
    fn check(&self, job: &Submitted) {
        for index in 1..=job.tasks {
            let name = job.task(index);
            let ran = read(&self.out.join(&name));
            let is_unrun = job.is_cancelled && ran.is_empty();
            assert!(is_unrun || ran == "ran\n", "{name}: {ran:?}");
            if job.has_results && !ran.is_empty() {
                let folder = self.home(job.user).join(job.digits());
                let result = folder.join(index.to_string()).join("result");
                assert_eq!(read(&result), format!("{name}\n"), "{}", result.display());
            }
        }
    }
}

/// Returns the text of a file, empty if it is not there.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn jobs_outlive_random_accidents() {
    let first = number_of("DRIFTLESS_SEED", 1);
    for seed in first..first + number_of("DRIFTLESS_SEEDS", 1) {
        println!("DRIFTLESS_SEED={seed}");
        Round::new(seed).run();
    }
}
