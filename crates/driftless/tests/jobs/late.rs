//! Arrays whose tasks begin while half of the nodes are late. Each task checks the whole data set that
//! it finds, and notes its node.

use crate::site::USER;
use driftless_testkit::{Slurm, wait_slowly_until, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

type Site = crate::site::Site<Slurm>;

/// Writes the node and the time, or that the data was not whole, and waits for a file.
const TASK: &str = r#"#!/bin/sh
cd "$SPOOL_DIRECTORY/nr" && sha256sum --quiet --check sums && told=whole || told=damaged
echo "$told $SLURMD_NODENAME $(date +%s.%N)" >"$1/.$SLURM_ARRAY_TASK_ID"
mv "$1/.$SLURM_ARRAY_TASK_ID" "$1/$SLURM_ARRAY_TASK_ID"
while [ ! -e "$1/../go" ]; do sleep 0.1; done
"#;
const NODES: usize = 8;

/// Returns the node of each task that began. Its data was whole.
fn nodes_of_tasks(out: &Path) -> BTreeMap<u64, String> {
    let names = fs::read_dir(out).expect("a folder").flatten();
    let index = |name: fs::DirEntry| name.file_name().to_str()?.parse().ok();
    let node = |index: u64| {
        let line = fs::read_to_string(out.join(index.to_string())).expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[0], "whole", "task {index}: {line}");
        (index, words[1].to_owned())
    };
    names.filter_map(index).map(node).collect()
}

fn nodes_at_work(out: &Path) -> BTreeSet<String> {
    nodes_of_tasks(out).into_values().collect()
}

fn names(numbers: std::ops::RangeInclusive<usize>) -> BTreeSet<String> {
    numbers.map(|number| format!("n{number}")).collect()
}

fn make_data(site: &Site) {
    site.make_data("nr", 1 << 20);
    let sums = Command::new("sha256sum")
        .args(["name", "part"])
        .current_dir(site.shared().join("nr"))
        .output();
    let sums = sums.expect("sha256sum").stdout;
    let path = site.shared().join("nr/sums");
    fs::write(&path, sums).expect("a file");
    std::os::unix::fs::chown(path, Some(USER), Some(USER)).expect("given");
}

/// Runs an array. The daemons of half of the nodes start after the release, and so do the slurmd of
/// the last `without_slurmd` nodes.
fn run_array(tasks: u64, without_slurmd: usize) {
    let mut site = Site::start(NODES);
    make_data(&site);
    let late: Vec<String> = names(NODES / 2 + 1..=NODES).into_iter().collect();
    let down = &late[late.len() - without_slurmd..];
    for node in &late {
        site.kill_daemon(node);
    }
    for node in down {
        site.cluster.stop_node(node);
        let name = format!("NodeName={node}");
        let words = ["update", &name, "State=DOWN", "Reason=late"];
        site.cluster.run("scontrol", &words);
    }
    let out = site.make_out("out");
    let script = site.script("task.sh", TASK);
    let job = site.submit(USER, &["nr"], &[], |sbatch| {
        let array = format!("--array=1-{tasks}");
        sbatch.arg(array).arg(&script).arg(&out);
    });
    wait_until("the first nodes work", || {
        nodes_at_work(&out) == names(1..=NODES / 2)
    });
    for node in down {
        site.cluster.boot_node(node);
    }
    for node in &late {
        site.start_daemon(node);
    }
    wait_until("late nodes work, too", || {
        nodes_at_work(&out) == names(1..=NODES)
    });
    fs::write(site.shared().join("go"), "").expect("a file");
    let count = || nodes_of_tasks(&out).len() as u64;
    wait_slowly_until("all tasks ran", || count() == tasks);
    site.wait_until_closed(&job);
    let ran: Vec<u64> = nodes_of_tasks(&out).into_keys().collect();
    assert_eq!(ran, (1..=tasks).collect::<Vec<u64>>());
    site.check_nothing_is_left();
}

#[test]
fn late_nodes_take_part_in_an_array() {
    run_array(200, 0);
}

#[test]
#[ignore = "a node that comes up is found within a minute; make campaign runs it"]
fn nodes_that_come_up_take_part() {
    run_array(200, 2);
}
