//! Commands of a real Slurm that fail, are killed or print nothing while jobs run and wait.

use crate::site::USER;
use crate::troubles::Troubles;
use driftless_testkit::{Slurm, wait_slowly_until};
use std::fs;

type Site = crate::site::Site<Slurm>;

/// Notes that it begins, and ends once a file is there.
const TASK: &str = r#"#!/bin/sh
cat "$SPOOL_DIRECTORY/nr/name" >"$1/begun-$SLURM_JOB_ID" || exit 1
while [ ! -e "$1/go" ]; do sleep 0.1; done
cat "$SPOOL_DIRECTORY/nr/part" >/dev/null && echo done >"$1/done-$SLURM_JOB_ID"
"#;
/// Troubles of `squeue`, how many calls each lasts, and what the job tells.
const TROUBLES: [(&str, usize, &str); 4] = [
    ("killed", 1, "signal 9"),
    ("refused", 1, "Invalid whim of a test"),
    // A job that two answers in a row lack counts as ended.
    ("empty", 4, "unknown form"),
    ("slow", 1, ""),
];

fn submit(site: &Site, options: &[&str]) -> String {
    let script = site.shared().join("task.sh");
    let out = site.shared().join("out");
    site.submit(USER, &["nr"], options, |sbatch| {
        sbatch.arg(&script).arg(&out);
    })
}

fn state_of(site: &Site, job: &str) -> String {
    let queue = site.cluster.run("squeue", &["-h", "-j", job, "-o", "%T"]);
    queue.trim().to_owned()
}

/// Checks that one job runs with its data, and that another one is held.
fn check_untouched(site: &Site, running: &str, held: &str, trouble: &str) {
    assert_eq!(site.stage_of(running), "released", "{trouble}");
    assert_eq!(site.stage_of(held), "loading", "{trouble}");
    assert_eq!(state_of(site, running), "RUNNING", "{trouble}");
    assert_eq!(state_of(site, held), "PENDING", "{trouble}");
    let copies = ["n1", "n2"].map(|node| site.held_by(node)[0]);
    assert_eq!(copies, [1, 1], "{trouble}");
}

#[test]
fn failed_commands_end_no_job() {
    let mut site = Site::start(2);
    let troubles = Troubles::start(&mut site, &["squeue", "scontrol"]);
    site.make_data("nr", 1 << 20);
    let out = site.make_out("out");
    site.script("task.sh", TASK);
    let running = submit(&site, &["--release", "all"]);
    wait_slowly_until("the job runs", || state_of(&site, &running) == "RUNNING");
    site.kill_daemon("n2");
    let held = submit(&site, &["--release", "all"]);
    wait_slowly_until("a node lacks the reference", || site.held_by("n1")[1] == 2);
    for (trouble, calls, told) in TROUBLES {
        troubles.begin("squeue", trouble);
        wait_slowly_until("the command misbehaved", || {
            troubles.calls("squeue") >= calls
        });
        if !told.is_empty() {
            site.wait_for_fault(&running, told);
            assert!(site.log().contains(told), "{trouble}: {}", site.log());
        }
        troubles.end("squeue");
        check_untouched(&site, &running, &held, trouble);
    }
    fs::write(out.join("go"), "").expect("a file");

    // The gateway may try to release the job, and cannot.
    troubles.begin("scontrol", "refused");
    site.start_daemon("n2");
    site.kill_gateway();
    site.start_gateway();
    site.wait_for_fault(&held, "Invalid whim of a test");
    assert_eq!(state_of(&site, &held), "PENDING");
    troubles.end("scontrol");
    for job in [running, held] {
        site.wait_until_closed(&job);
        assert!(out.join(format!("done-{job}")).exists(), "{job}");
    }
    site.check_nothing_is_left();
}
