//! Jobs of a stand-in for PBS.

use crate::arrays::{self, ArrayForm};
use driftless_testkit::Pbs;

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
