//! Jobs of a stand-in for PBS.

use crate::arrays::{self, ArrayForm};
use crate::cluster::must;
use crate::site::{Site, USER};
use driftless_testkit::Pbs;
use std::fs;
use std::process::Command;

const FORM: ArrayForm = ArrayForm {
    options: ["-J", "1-8"],
    variable: "PBS_ARRAY_INDEX",
};

#[test]
fn array_runs_where_its_data_is() {
    arrays::array_runs_where_its_data_is::<Pbs>(&FORM);
}

#[test]
fn cancelled_job_leaves_nothing() {
    arrays::cancelled_job_leaves_nothing::<Pbs>(&FORM);
}

#[test]
fn killed_gateway_goes_on_when_started_again() {
    arrays::killed_gateway_goes_on::<Pbs>(&FORM);
}

#[test]
fn library_deposits_submits_and_waits() {
    let site: Site<Pbs> = Site::start(2);
    let text = "#!/bin/sh\ncp \"$SPOOL_DIRECTORY/numbers\" \"$RESULTS_DIRECTORY/copy\"\n";
    let job = site.script("job.sh", text);
    let out = site.make_out("out");
    let printed = site.run_example(USER, (&out.join("%j"), &job));
    assert!(printed.ends_with("done\n"), "{printed}");
    let found = must(Command::new("find").arg(&out).args(["-name", "copy"]));
    let found = String::from_utf8(found.stdout).expect("text");
    let copies: Vec<String> = found
        .lines()
        .map(|path| fs::read_to_string(path).expect("a result"))
        .collect();
    assert_eq!(copies, ["1\n2\n3\n"]);
    site.check_nothing_is_left();
}
