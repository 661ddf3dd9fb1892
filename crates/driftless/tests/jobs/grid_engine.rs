//! Jobs of a real Grid Engine that start where their data has arrived.

use crate::cluster::Cluster;
use crate::seed::run_seed;
use crate::site::USER;
use driftless_testkit::GridEngine;

type Site = crate::site::Site<GridEngine>;

/// Copies a file of the data set to the folder `out` beside the script.
const TASK: &str = "#!/bin/sh\ncat \"$SPOOL_DIRECTORY/nr/name\" >\"OUT/$SGE_TASK_ID\"\n";

fn script(site: &Site, out: &std::path::Path) -> std::path::PathBuf {
    site.script("task.sh", &TASK.replace("OUT", &out.display().to_string()))
}

#[test]
fn array_runs_where_its_data_is() {
    let site = Site::start(3);
    site.make_data("nr", 1 << 20);
    let out = site.make_out("out");
    let job = site.run_array(&script(&site, &out), &out, &["-t", "1-8"], 8);
    site.wait_until_closed(&job);
    site.check_nothing_is_left();
}

#[test]
fn cancelled_job_leaves_nothing() {
    let site = Site::start(2);
    site.make_data("nr", 16 << 20);
    let out = site.make_out("out");
    let task = script(&site, &out);
    let job = site.submit(USER, &["nr"], &["--release", "all"], |job| {
        job.args(["-t", "1-8"]).arg(&task);
    });
    site.cluster.remove(&job);
    site.wait_until_closed(&job);
    site.check_nothing_is_left();
}

#[test]
fn killed_gateway_goes_on_when_started_again() {
    let mut site = Site::start(2);
    site.make_data("nr", 8 << 20);
    let out = site.make_out("out");
    let task = script(&site, &out);
    let job = site.submit(USER, &["nr"], &[], |job| {
        job.args(["-t", "1-8"]).arg(&task);
    });
    for pause in [200, 1000, 3000] {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        site.kill_gateway();
        site.start_gateway();
    }
    site.wait_until_closed(&job);
    assert_eq!(std::fs::read_dir(&out).expect("a folder").count(), 8);
    site.check_nothing_is_left();
}

#[test]
fn task_file_of_the_seed_runs_unchanged() {
    run_seed::<GridEngine>("SGE_TASK_ID");
}
