//! One replica of a job, without its source, which may be out of reach.

use super::Failure;
use crate::exit::Exit;
use driftless_engine::Options;
use driftless_mirror::job::Job;
use driftless_model::Policy;
use driftless_remote::Reach;
use driftless_session::{Connections, connect};
use std::path::PathBuf;
use std::time::Duration;

/// Returns options that name the replica alone.
pub fn replica_alone(job: &Job) -> Options {
    let replica = PathBuf::from(&job.replicas[0]);
    Options {
        source: replica.clone().into(),
        replica: replica.into(),
        policy: Policy {
            required: job.policy.required.clone(),
            ..Policy::default()
        },
        ..Options::default()
    }
}

/// Connects to the hosts of trees of a job, and has the options name what the trees are there.
pub fn connected(job: &Job, options: &mut Options, reach: &Reach) -> Result<Connections, Failure> {
    connect(options, reach, Duration::ZERO).map_err(|error| {
        let code = Exit::of_connection(&error, 0);
        (code, format!("{}: {error}", job.name))
    })
}
