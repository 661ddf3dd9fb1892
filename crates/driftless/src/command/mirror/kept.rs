//! What is known of the replicas of a job whose mirror does not run.

use super::{Failure, declared};
use crate::command::{job, record};
use driftless_mirror::ask::Troubles;
use driftless_mirror::clock::now;
use driftless_mirror::job::Job;
use driftless_mirror::kept;
use driftless_mirror::status::Status;
use std::path::Path;

/// How each replica was left.
pub fn statuses(typed: &Path) -> Result<Vec<Status>, Failure> {
    let job = idle(typed)?;
    let starting = job::holder(&job.name)?;
    let replicas = job.apart();
    let statuses = replicas.iter().map(|one| {
        let told = kept::status(one, &job::view(one, typed)?, now());
        let mut status = told.map_err(|error| record::refusal(&error))?;
        status.starting.clone_from(&starting);
        Ok(status)
    });
    statuses.collect()
}

/// Which paths of each replica had a problem.
pub fn troubles(typed: &Path) -> Result<Vec<Troubles>, Failure> {
    let replicas = idle(typed)?.apart();
    let troubles = replicas.iter().map(|one| {
        let told = kept::troubles(one, &job::view(one, typed)?);
        told.map_err(|error| record::refusal(&error))
    });
    troubles.collect()
}

/// Returns a job whose mirror does not run, unless a replica says more than is kept here.
fn idle(typed: &Path) -> Result<Job, Failure> {
    let job = job::read_idle(typed)?;
    declared::refuse_here(&job, typed)?;
    Ok(job)
}
