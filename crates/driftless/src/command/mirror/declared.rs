//! Replicas whose own mark says that they are the active side, of which the state of this user on
//! this host knows nothing: it was lost, or the failover was noted in another one.

use super::Failure;
use super::alone::{connected, replica_alone};
use super::detectors::own_path;
use crate::command::{job, record};
use crate::exit::Exit;
use driftless_engine::{Options, look_alone};
use driftless_mirror::job::Job;
use driftless_model::moment;
use driftless_remote::Reach;
use driftless_state::mirror::Role;
use std::path::Path;

/// Refuses a job one of whose replicas on this host is the active side, if its state knows no replica
/// yet. Other hosts are not asked: this is for questions that are answered at once. The user names
/// the job so.
pub fn refuse_here(job: &Job, named: &Path) -> Result<(), Failure> {
    for one in job.apart() {
        let is_here = own_path(&one, &one.replicas[0])?.is_some();
        if is_here && knows_no_replica(&one)? {
            refuse_marked((job, &one), named, &replica_alone(&one))?;
        }
    }
    Ok(())
}

/// Returns whether there is no state of one replica, or a new one: that of a mirror that was refused.
fn knows_no_replica(one: &Job) -> Result<bool, Failure> {
    let Some(view) = job::look(&one.own_name())? else {
        return Ok(true);
    };
    let row = view.job().map_err(|error| record::refusal(&error))?;
    Ok(row.mark.is_none() && row.role.role == Role::Following)
}

/// Refuses one replica of a job that is the active side, wherever it is. One that is out of reach
/// says nothing.
pub fn refuse((job, one): (&Job, &Job), named: &Path, reach: &Reach) -> Result<(), Failure> {
    let mut options = replica_alone(one);
    match connected(one, &mut options, reach) {
        Ok(_connections) => refuse_marked((job, one), named, &options),
        Err(_) => Ok(()),
    }
}

/// Refuses a replica whose mark says that it is the active side.
fn refuse_marked((job, one): (&Job, &Job), named: &Path, options: &Options) -> Result<(), Failure> {
    let marked = look_alone(options).ok().and_then(|alone| alone.active);
    let Some(since) = marked.map(moment) else {
        return Ok(());
    };
    let (name, replica) = (&job.name, &one.replicas[0]);
    let command = |command| job::command_words(job, named, command, replica);
    let why = format!(
        "{name}: {replica} is the active side since {since}, as its mark says, and the state of this user on this host knows nothing of that: {} has it know, and {} --finish brings back then what changed there",
        command("failover"),
        command("failback")
    );
    Err((Exit::Refused, why))
}
