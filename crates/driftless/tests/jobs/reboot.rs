//! Nodes of a real Slurm that lose power and boot again: their processes end, and their disk is
//! mounted anew.

use crate::site::USER;
use driftless_testkit::{Slurm, wait_slowly_until, wait_until};
use std::fs;
use std::path::Path;

type Site = crate::site::Site<Slurm>;

/// Notes that it runs on its node, waits for a file, and notes that it read the data and ended.
const TASK: &str = r#"#!/bin/sh
cat "$SPOOL_DIRECTORY/nr/part" >/dev/null || exit 1
echo >"$1/begun-$SLURMD_NODENAME"
while [ ! -e "$1/../go" ]; do sleep 0.1; done
cat "$SPOOL_DIRECTORY/nr/part" >/dev/null && echo >"$1/done-$SLURM_ARRAY_TASK_ID"
"#;

fn reboot(site: &mut Site, node: &str) {
    site.cluster.crash_node(node);
    site.kill_daemon(node);
    site.cluster.boot_node(node);
    site.start_daemon(node);
}

fn has(out: &Path, name: &str) -> bool {
    out.join(name).exists()
}

#[test]
fn job_outlives_reboots_of_its_nodes() {
    let mut site = Site::start(2);
    site.make_data("nr", 64 << 20);
    let out = site.make_out("out");
    let script = site.script("task.sh", TASK);
    let job = site.submit(USER, &["nr"], &["--release", "all"], |sbatch| {
        sbatch.arg("--array=1-3").arg(&script).arg(&out);
    });
    wait_until("a node receives the data", || {
        let store = site.cluster.disk_of("n1").join("store");
        fs::read_dir(store.join("sets")).is_ok_and(|mut names| names.next().is_some())
    });
    reboot(&mut site, "n1");
    wait_until("both nodes work", || {
        has(&out, "begun-n1") && has(&out, "begun-n2")
    });
    reboot(&mut site, "n2");
    fs::write(site.shared().join("go"), "").expect("a file");
    wait_slowly_until("all tasks ran to their end", || {
        (1..=3).all(|task| has(&out, &format!("done-{task}")))
    });
    site.wait_until_closed(&job);
    site.check_nothing_is_left();
}
