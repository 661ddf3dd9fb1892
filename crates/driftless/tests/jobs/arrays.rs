//! Facts about arrays of tasks that hold for each batch system.

use crate::cluster::Cluster;
use crate::site::{Site, USER};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of a job array, and the variable in which a task finds its index.
pub struct ArrayForm {
    pub options: [&'static str; 2],
    pub variable: &'static str,
}

/// Makes a script that copies a file of the data set to `out`, under the index of the task.
fn script<C: Cluster>(site: &Site<C>, form: &ArrayForm, out: &Path) -> PathBuf {
    let (variable, out) = (form.variable, out.display());
    let text = format!("#!/bin/sh\ncat \"$SPOOL_DIRECTORY/nr/name\" >\"{out}/${variable}\"\n");
    site.script("task.sh", &text)
}

/// Submits the array to a new site.
fn submit<C: Cluster>(site: &Site<C>, form: &ArrayForm, release: &str) -> (String, PathBuf) {
    let out = site.make_out("out");
    let task = script(site, form, &out);
    let job = site.submit(USER, &["nr"], &["--release", release], |job| {
        job.args(form.options).arg(&task);
    });
    (job, out)
}

fn check_ran<C: Cluster>(site: &Site<C>, (job, out): (&str, &Path)) {
    site.wait_until_closed(job);
    let results = fs::read_dir(out).expect("a folder").flatten();
    let texts: Vec<String> = results
        .map(|entry| fs::read_to_string(entry.path()).expect("a result"))
        .collect();
    assert_eq!(texts, ["nr\n"; 8]);
    site.check_nothing_is_left();
}

pub fn array_runs_where_its_data_is<C: Cluster>(form: &ArrayForm) {
    let site: Site<C> = Site::start(3);
    site.make_data("nr", 1 << 20);
    let (job, out) = submit(&site, form, "first");
    check_ran(&site, (&job, &out));
}

pub fn cancelled_job_leaves_nothing<C: Cluster>(form: &ArrayForm) {
    let site: Site<C> = Site::start(2);
    site.make_data("nr", 16 << 20);
    let (job, _) = submit(&site, form, "all");
    site.cluster.remove(&job);
    site.wait_until_closed(&job);
    site.check_nothing_is_left();
}

pub fn killed_gateway_goes_on<C: Cluster>(form: &ArrayForm) {
    let mut site: Site<C> = Site::start(2);
    site.make_data("nr", 8 << 20);
    let (job, out) = submit(&site, form, "first");
    for pause in [200, 1000, 3000] {
        std::thread::sleep(Duration::from_millis(pause));
        site.kill_gateway();
        site.start_gateway();
    }
    check_ran(&site, (&job, &out));
}
