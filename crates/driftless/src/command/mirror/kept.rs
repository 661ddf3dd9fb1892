//! What is known of the replicas of a job whose mirror does not run.

use super::{Failure, declared};
use crate::command::{job, record};
use crate::exit::Exit;
use driftless_mirror::ask::Troubles;
use driftless_mirror::clock::now;
use driftless_mirror::job::Job;
use driftless_mirror::kept;
use driftless_mirror::status::Status;
use std::path::Path;

/// How each replica was left.
pub fn statuses(typed: &Path) -> Result<Vec<Status>, Failure> {
    let job = idle(typed)?;
    let starting = job::holder(&job.name)?.map(|holder| holder.words);
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

/// Returns a job whose mirror does not run here. What is kept of one that runs on another host may
/// not be read from here, and a replica may say more than is kept.
fn idle(typed: &Path) -> Result<Job, Failure> {
    let job = job::read_idle(typed)?;
    let holder = job::holder(&job.name)?;
    if let Some(holder) = holder.filter(|holder| holder.elsewhere.is_some()) {
        let named = typed.display().to_string();
        return Err((Exit::CouldNotRun, job::silent_words(&named, &holder)));
    }
    declared::refuse_here(&job, typed)?;
    Ok(job)
}
