//! How a replica stands when its mirror does not run: as its state tells.
//!
//! A mirror that does not run hears of nothing, so the replica is behind since the moment until
//! which it is known to have had everything, however little was left to do then.

use crate::ask::Troubles;
use crate::clock::is_past;
use crate::job::Job;
use crate::memory::trouble_of;
use crate::status::{CycleNow, LagNow, Status, Walked};
use driftless_state::StateError;
use driftless_state::mirror::{MirrorView, RunKind, RunRow};
use std::time::Duration;

/// Runs that are looked at for comparisons of all.
const RUNS_LOOKED_AT: u64 = 1000;

/// How the one replica of a job was left.
///
/// # Errors
/// The state cannot be read.
pub fn status(job: &Job, state: &MirrorView, now: Duration) -> Result<Status, StateError> {
    let (held, dirty, problems) = (state.job()?, state.dirty()?, state.problems()?);
    let quarantined = problems.iter().filter(|row| row.is_quarantined);
    let equal_until = held.equal_until.filter(|until| is_past(*until));
    let equal = equal_until.unwrap_or(held.since);
    let oldest = dirty.iter().map(|row| row.since).chain([equal]).min();
    let common = state.common()?.into_iter().rfind(|row| row.is_newest);
    let cycle = job.snapshots().map(|_| CycleNow {
        snapshot: common.as_ref().map(|row| row.name.clone()),
        equal: common.map(|row| row.made).filter(|made| is_past(*made)),
        stage: "stopped".into(),
        ..CycleNow::default()
    });
    let mut status = Status::new(job, held.since);
    (status.process, status.now, status.oldest) = (0, now, oldest);
    status.equal_until = equal_until;
    status.is_unknown = !is_past(equal);
    status.left = dirty.len() as u64;
    status.quarantined = quarantined.count() as u64;
    status.problems = problems.len() as u64;
    status.is_paused = held.paused.is_some();
    status.walk = walked(&state.runs(RUNS_LOOKED_AT)?);
    status.lag = lag(state, now)?;
    status.cycle = cycle;
    Ok(status)
}

/// Which paths had a problem when the mirror of the one replica of a job ended.
///
/// # Errors
/// The state cannot be read.
pub fn troubles(job: &Job, state: &MirrorView) -> Result<Troubles, StateError> {
    let paths = state.problems()?.into_iter().map(trouble_of);
    Ok(Troubles {
        replica: job.replicas[0].clone(),
        paths: paths.collect(),
    })
}

/// What is known of comparisons of all.
fn walked(runs: &[RunRow]) -> Walked {
    let walks = runs.iter().filter(|run| run.kind == RunKind::Walk);
    let ended: Vec<&RunRow> = walks.filter(|run| run.ended.is_some()).collect();
    let Some(last) = ended.first() else {
        return Walked::default();
    };
    let took = last.ended.unwrap_or_default().saturating_sub(last.begun);
    Walked {
        asked: Some(last.begun),
        ended: last.ended,
        took,
        seen: last.counts.seen,
        changed: last.counts.changed + last.counts.deleted,
        count: ended.len() as u64,
        missed: ended.iter().map(|run| run.counts.missed).sum(),
        ..Walked::default()
    }
}

/// How long changes of this hour and the one before took.
fn lag(state: &MirrorView, now: Duration) -> Result<LagNow, StateError> {
    let hour = now.as_secs() / 3600;
    let lag = state.lag_between(hour.saturating_sub(1)..hour + 1)?;
    Ok(LagNow {
        files: lag.count(),
        p50: lag.quantile(0.5),
        p95: lag.quantile(0.95),
        p99: lag.quantile(0.99),
        max: lag.max(),
        ..LagNow::default()
    })
}
