//! Results of tasks that are killed, of a full destination, and of nodes that fail meanwhile, with a
//! real Slurm. With `DRIFTLESS_SEEDS`, the time limit of the job kills its tasks.

use crate::cluster::must;
use crate::site::USER;
use driftless_testkit::{Slurm, wait_slowly_until};
use std::fs;

/// Leaves a result, says so, and runs until it is killed.
const ENDLESS: &str = r#"#!/bin/sh
out="$RESULTS_DIRECTORY/$SLURM_ARRAY_TASK_ID"
mkdir -p "$out" && echo "$SLURM_ARRAY_TASK_ID" >"$out/first" && echo ready >"$1/$SLURM_ARRAY_TASK_ID"
sleep 600
"#;
/// Leaves a result of 1 MiB.
const LARGE: &str = r#"#!/bin/sh
out="$RESULTS_DIRECTORY/$SLURM_ARRAY_TASK_ID"
mkdir -p "$out" && head -c 1048576 /dev/zero | tr '\0' "$SLURM_ARRAY_TASK_ID" >"$out/large"
"#;

type Site = crate::site::Site<Slurm>;

#[test]
fn killed_tasks_keep_their_results() {
    let site = Site::start(2);
    site.make_data("nr", 1000);
    let (home, out) = (site.make_out("home"), site.make_out("out"));
    let script = site.script("task.sh", ENDLESS);
    let pattern = home.join("%j/%t").display().to_string();
    let has_limit = std::env::var("DRIFTLESS_SEEDS").is_ok();
    let job = site.submit(USER, &["nr"], &["--results", &pattern], |sbatch| {
        if has_limit {
            sbatch.arg("--time=1");
        }
        sbatch.arg("--array=1-2").arg(&script).arg(&out);
    });
    let begun = || fs::read_dir(&out).expect("a folder").count() == 2;
    wait_slowly_until("both tasks run", begun);
    if !has_limit {
        let arguments = ["--signal=KILL", "--full", &job];
        site.cluster.run("scancel", &arguments);
    }
    assert_eq!(site.wait_for_results(&job), Some(0));
    for task in ["1", "2"] {
        let first = home.join(&job).join(task).join("first");
        let text = fs::read_to_string(first).expect("a result");
        assert_eq!(text, format!("{task}\n"));
    }
    site.check_nothing_is_left();
}

#[test]
fn results_wait_for_a_full_destination() {
    let mut site = Site::start(1);
    site.make_data("nr", 1000);
    let home = site.make_out("home");
    let mut mount = site.cluster.command("mount");
    mount.args(["-t", "tmpfs", "-o", "size=256k,mode=1777", "driftless-test"]);
    must(mount.arg(&home));
    let script = site.script("task.sh", LARGE);
    let pattern = home.join("%j/%t").display().to_string();
    let job = site.submit(USER, &["nr"], &["--results", &pattern], |sbatch| {
        sbatch.arg("--array=1-2").arg(&script);
    });
    let has_fault = || site.result_fault(&job).is_some();
    wait_slowly_until("the gateway shows the fault", has_fault);
    let fault = site.result_fault(&job).expect("a fault");
    assert!(fault.contains("no space left"), "{fault}");

    // The node crashes with results that are sealed and not collected.
    site.kill_daemon("n1");
    site.kill_gateway();
    let mut grow = site.cluster.command("mount");
    must(grow.args(["-o", "remount,size=16m"]).arg(&home));
    site.start_daemon("n1");
    site.start_gateway();
    assert_eq!(site.wait_for_results(&job), Some(0));
    for task in ["1", "2"] {
        let mut read = site.cluster.command("cat");
        let large = home.join(&job).join(task).join("large");
        let content = must(read.arg(large)).stdout;
        assert_eq!(content, task.repeat(1 << 20).into_bytes());
    }
    assert_eq!(site.result_fault(&job), None);
    site.check_nothing_is_left();
    must(site.cluster.command("umount").arg(&home));
}
