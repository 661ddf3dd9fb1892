//! `driftless mirror join`: helps the mirror of a job that runs on another host.

use super::keep_equal::{self, hands_of, reach};
use super::pool::End;
use super::{Failure, detectors, publish};
use crate::args::{JobArgs, LogArgs};
use crate::command::job;
use crate::exit::Exit;
use crate::output::diagnostics;
use crate::{own, signals};
use driftless_mirror::hands::Hands;
use driftless_mirror::job::Job;
use driftless_mirror::live::Beginning;
use driftless_tree::random_id;

/// Helps the mirror of a job that runs on another host.
pub fn join(args: &JobArgs, log: &LogArgs) -> Result<Exit, Failure> {
    own::give_up_umask();
    diagnostics::start("mirror", log);
    let mut job = job::read(&args.job)?;
    refuse(&job)?;
    // Its lead walks, keeps the trash within its limits, and tells whom it has to tell.
    (job.walk.every, job.trash, job.on_problem) = (None, None, None);
    let signals = signals::watch();
    let _held = job::hold(&job)?;
    let end = End::of(&job, true).ok_or_else(|| no_pool(&job))?;
    let detectors = detectors::of_member(&job, &end)?;
    let reach = reach(&job, &signals);
    let (hands, _it_is_asked_again) = hands_of(&job, &reach)?;
    let beginning = Beginning {
        memory: job::memory_of_member(&job)?,
        hands: Hands::of_member(hands, random_id()),
        snapshots: None,
        on_problem: None,
        herald: publish::herald(&job)?,
        pool: Some(end.pool(&job, detectors::heard_as(&job)?)),
        job: job.clone(),
    };
    let done = keep_equal::run(&job, (vec![beginning], detectors), Some(end), &signals);
    job::forget_member(&job);
    done
}

/// Refuses a job that one process alone can keep.
fn refuse(job: &Job) -> Result<(), Failure> {
    let why = match () {
        () if End::of(job, true).is_none() => return Err(no_pool(job)),
        () if job.policy.delete_limit.is_some() => {
            "max_delete counts what one process removes, so its mirror has no followers"
        }
        () if detectors::keeper(job)?.is_some() => {
            "its replica is closed to others (read_only), so its mirror has no followers"
        }
        () => return Ok(()),
    };
    Err((Exit::Refused, format!("{}: {why}", job.name)))
}

fn no_pool(job: &Job) -> Failure {
    let why = "only a mirror with one replica that receives announcements through a broker ([announcements]) has followers";
    (Exit::Refused, format!("{}: {why}", job.name))
}
