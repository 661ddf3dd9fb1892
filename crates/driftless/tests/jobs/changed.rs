//! Data that changes while a job runs: the tasks of one job read one version.

use crate::cluster::must;
use crate::site::USER;
use driftless_testkit::{Slurm, wait_slowly_until};
use std::fs;
use std::path::Path;

type Site = crate::site::Site<Slurm>;

/// Writes the name in the data set, and waits for a file.
const TASK: &str = r#"#!/bin/sh
cat "$SPOOL_DIRECTORY/nr/name" >"$1/$SLURM_ARRAY_TASK_ID" || exit 1
while [ ! -e "$1/../go" ]; do sleep 0.1; done
"#;

/// Puts another directory in the place of the data.
fn exchange(site: &Site, new: &str, old: &str) {
    let path = |name: &str| site.shared().join(name);
    fs::rename(path("nr"), path(old)).expect("moved");
    fs::rename(path(new), path("nr")).expect("moved");
}

fn read_by_tasks(out: &Path) -> Vec<String> {
    let read = |task| fs::read_to_string(out.join(format!("{task}")));
    (1..=3).filter_map(|task| read(task).ok()).collect()
}

fn restart_gateway(site: &mut Site) {
    site.kill_gateway();
    site.start_gateway();
}

/// Takes the data of a job from a node, as an administrator can.
fn purge(site: &Site, node: &str, job: &str) {
    let spool = site.spool_of(job);
    let name = spool.file_name().expect("a name");
    let mut purge = site.cluster.command_in_node(node, crate::site::bin());
    purge.args(["node", "--dir"]).arg(site.store());
    must(purge.args(["purge", "--job"]).arg(name));
}

#[test]
fn job_never_gets_two_versions() {
    let mut site = Site::start(2);
    site.make_data("nr", 1 << 20);
    site.make_data("second", 1 << 20);
    fs::write(site.shared().join("second/name"), "second\n").expect("a file");
    let out = site.make_out("out");
    let script = site.script("task.sh", TASK);
    site.kill_daemon("n2");
    let job = site.submit(USER, &["nr"], &[], |sbatch| {
        sbatch.arg("--array=1-3").arg(&script).arg(&out);
    });
    wait_slowly_until("a task runs", || read_by_tasks(&out) == ["nr\n"]);
    let set = site.job(&job)["set"].clone();

    // A node that comes up late gets no other version.
    exchange(&site, "second", "first");
    site.start_daemon("n2");
    restart_gateway(&mut site);
    site.wait_for_fault(&job, "the data changed after the first nodes got it");
    assert_eq!(site.held_by("n2"), [0, 0]);

    // The only node with the first version loses it.
    purge(&site, "n1", &job);
    restart_gateway(&mut site);
    site.wait_for_fault(&job, "the node lost the data set");
    wait_slowly_until("no node offers the data", || {
        let active = site.cluster.run("sinfo", &["-h", "-N", "-o", "%b"]);
        !active.contains("driftless_")
    });
    site.wait_for_fault(&job, "the data changed after the first nodes got it");
    assert_eq!(["n1", "n2"].map(|node| site.held_by(node)), [[0, 0]; 2]);
    assert_eq!(site.job(&job)["set"], set);

    // The first version is there again: all nodes get it.
    exchange(&site, "first", "second");
    restart_gateway(&mut site);
    fs::write(site.shared().join("go"), "").expect("a file");
    site.wait_until_closed(&job);
    assert_eq!(read_by_tasks(&out), ["nr\n"; 3]);
    site.check_nothing_is_left();
}
