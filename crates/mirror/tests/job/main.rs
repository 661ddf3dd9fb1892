//! The file of a job: what each key becomes, what is refused and where, what a hostile text does,
//! and that the page describes it.

mod page;
mod refused;
mod text;
mod values;

use driftless_mirror::job::{Job, parse};
use driftless_settings::FileErrors;
use std::path::Path;
use std::time::Duration;

const TREES: &str = "source = \"/projects\"\nreplica = \"far:/projects\"\n";

fn read(text: &str) -> Result<Job, FileErrors> {
    parse(text, Path::new("jobs/projects.toml"))
}

/// The job of two trees and what is added to them.
fn job(added: &str) -> Job {
    read(&format!("{TREES}{added}")).unwrap_or_else(|errors| panic!("{added}:\n{errors}"))
}

/// What is wrong, as `line:column: key: what`.
fn errors(text: &str) -> Vec<String> {
    let errors = read(text).expect_err(text);
    errors.told().iter().map(ToString::to_string).collect()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
