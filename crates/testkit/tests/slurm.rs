//! A Slurm of the test kit: its nodes and its tasks.
#![allow(clippy::disallowed_methods)]

use driftless_testkit::accounts::ORDINARY_ID;
use driftless_testkit::{Slurm, wait_slowly_until};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

const NODES: usize = 8;
const TASKS: usize = 16;
/// Nodes of a real cluster take so long to become idle, on a loaded machine too.
const START_MAX: Duration = Duration::from_secs(30);

/// Says where a task is, by Slurm, by its host and by its disk, and whose it is.
const TASK: &str = r#"#!/bin/sh
sleep 1
echo "$SLURMD_NODENAME $(hostname) $(cat "$1/name") $(id -u)" >"$2/$SLURM_ARRAY_TASK_ID"
"#;

/// Submits an array of tasks as the ordinary user and returns what they wrote.
fn run_array(slurm: &Slurm, tasks: usize) -> Vec<String> {
    let folder = slurm.shared_dir();
    let script = folder.join("task.sh");
    fs::write(&script, TASK).expect("a script");
    let mut command = slurm.command_as(ORDINARY_ID, ORDINARY_ID, "sbatch");
    command.arg(format!("--array=1-{tasks}")).arg(&script);
    command.arg(slurm.node_dir()).arg(&folder);
    let output = command.current_dir(&folder).output().expect("sbatch");
    assert!(output.status.success(), "{output:?}");
    let written = || {
        let texts = (1..=tasks).map(|task| fs::read_to_string(folder.join(task.to_string())));
        texts
            .filter_map(Result::ok)
            .filter(|text| text.ends_with('\n'))
    };
    wait_slowly_until("all tasks have run", || written().count() == tasks);
    written().collect()
}

#[test]
fn tasks_of_a_user_run_on_all_nodes() {
    let began = Instant::now();
    let slurm = Slurm::start(NODES);
    assert!(began.elapsed() < START_MAX, "{:?}", began.elapsed());
    for name in slurm.node_names() {
        fs::write(slurm.disk_of(&name).join("name"), &name).expect("a file");
    }
    let mut seen = BTreeSet::new();
    for line in run_array(&slurm, TASKS) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, [words[0], words[0], words[0], "65534"]);
        seen.insert(words[0].to_owned());
    }
    assert_eq!(seen, slurm.node_names().into_iter().collect());
}

#[test]
fn clusters_run_beside_each_other() {
    let (mut one, other) = (Slurm::start(1), Slurm::start(2));
    assert_eq!(one.node_names(), ["n1"]);
    assert_eq!(other.node_names(), ["n1", "n2"]);
    one.run(
        "scontrol",
        &["update", "NodeName=n1", "State=DRAIN", "Reason=test"],
    );
    let states = |slurm: &Slurm| slurm.run("sinfo", &["-h", "-N", "-p", "all", "-o", "%N %t"]);
    assert_eq!(states(&one), "n1 drain\n");
    assert_eq!(states(&other), "n1 idle\nn2 idle\n");
    one.kill();
    let ping = one.command("sinfo").output().expect("sinfo");
    assert!(!ping.status.success(), "the controller is dead");
    one.restart();
    assert_eq!(states(&one), "n1 drain\n");
}

#[test]
fn node_is_stopped_and_started() {
    let mut slurm = Slurm::start_limited(1, 10 << 20);
    slurm.stop_node("n1");
    slurm.run(
        "scontrol",
        &["update", "NodeName=n1", "State=DOWN", "Reason=test"],
    );
    slurm.start_node("n1");
    let mut command = slurm.command_in_node("n1", "getent");
    let output = command.args(["hosts", "n1"]).output().expect("getent");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with(&slurm.address("n1").to_string()), "{text}");
}
