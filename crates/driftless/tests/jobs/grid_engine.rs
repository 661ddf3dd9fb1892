//! Jobs of a real Grid Engine.

use crate::arrays::{self, ArrayForm};
use crate::seed::run_seed;
use driftless_testkit::GridEngine;

const FORM: ArrayForm = ArrayForm {
    options: ["-t", "1-8"],
    variable: "SGE_TASK_ID",
};

#[test]
fn array_runs_where_its_data_is() {
    arrays::array_runs_where_its_data_is::<GridEngine>(&FORM);
}

#[test]
fn cancelled_job_leaves_nothing() {
    arrays::cancelled_job_leaves_nothing::<GridEngine>(&FORM);
}

#[test]
fn killed_gateway_goes_on_when_started_again() {
    arrays::killed_gateway_goes_on::<GridEngine>(&FORM);
}

#[test]
fn task_file_of_the_seed_runs_unchanged() {
    run_seed::<GridEngine>("SGE_TASK_ID");
}
