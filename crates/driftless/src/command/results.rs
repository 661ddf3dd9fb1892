//! The command `results`: results of jobs that a gateway collected.

use crate::args::ResultsArgs;
use crate::command::gateway::socket_of;
use crate::command::reach::Unreached;
use crate::exit::Exit;
use crate::output::{jobs as show, mirror as say};
use crate::signals;
use driftless_gateway::JobInfo;
use std::collections::HashSet;
use std::time::Duration;

/// Pause between two questions to the gateway.
const PAUSE: Duration = Duration::from_millis(500);

/// Shows the results, or waits for them; returns the exit code.
pub fn run(args: &ResultsArgs) -> Exit {
    let code = results(args).unwrap_or_else(|(code, why)| {
        say::complaint(&why);
        code
    });
    say::final_code(code)
}

fn results(args: &ResultsArgs) -> Result<Exit, Unreached> {
    let signals = signals::watch();
    let mut told = HashSet::new();
    let mut jobs = selected(args).map_err(unreached)?;
    let jobs = loop {
        if args.wait {
            tell_faults(&jobs, &mut told);
        }
        let is_done = jobs.iter().all(|job| job.stage == "closed");
        match (args.wait && !is_done, signals.number()) {
            (true, 0) => std::thread::sleep(PAUSE),
            (true, signal) => return Ok(Exit::Signal(signal)),
            (false, _) => break jobs,
        }
        jobs = match selected(args) {
            // A gateway that starts again knows its jobs.
            Err(SelectError::Gateway(error)) if error.is_absence() => {
                let why = format!("{error}; waiting for it");
                if told.insert(why.clone()) {
                    say::complaint(&why);
                }
                continue;
            }
            answer => answer.map_err(unreached)?,
        };
    };
    show::results(&jobs, args.json);
    let has_fault = |job: &JobInfo| job.results.iter().any(|one| one.fault.is_some());
    Ok(match jobs.iter().any(has_fault) {
        true => Exit::Problems,
        false => Exit::Equal,
    })
}

/// Prints each fault once, while results are awaited: the user may have to act.
fn tell_faults(jobs: &[JobInfo], told: &mut HashSet<String>) {
    for job in jobs.iter().filter(|job| job.stage != "closed") {
        let faults = job
            .results
            .iter()
            .filter_map(|one| show::fault_line(job, one));
        for fault in faults
            .filter(|fault| !told.contains(fault))
            .collect::<Vec<_>>()
        {
            say::complaint(&fault);
            told.insert(fault);
        }
    }
}

/// Cause for which no jobs were selected.
enum SelectError {
    Gateway(driftless_gateway::Error),
    UnknownJob(String),
}

fn unreached(error: SelectError) -> Unreached {
    match error {
        SelectError::Gateway(error) => (Exit::of_gateway_error(&error), error.to_string()),
        SelectError::UnknownJob(why) => (Exit::Problems, why),
    }
}

/// Returns the jobs with results that the user named.
fn selected(args: &ResultsArgs) -> Result<Vec<JobInfo>, SelectError> {
    let mut jobs =
        driftless_gateway::jobs(&socket_of(&args.socket)).map_err(SelectError::Gateway)?;
    let is_of = |job: &JobInfo, name: &String| job.number.as_ref() == Some(name);
    let unknown = args
        .jobs
        .iter()
        .find(|name| !jobs.iter().any(|job| is_of(job, name)));
    if let Some(name) = unknown {
        let name = driftless_model::escape_text(name);
        let why =
            format!("{name}: the gateway knows no such job; \"driftless jobs --all\" lists them");
        return Err(SelectError::UnknownJob(why));
    }
    let is_named =
        |job: &JobInfo| args.jobs.is_empty() || args.jobs.iter().any(|name| is_of(job, name));
    jobs.retain(|job| job.pattern.is_some() && is_named(job));
    Ok(jobs)
}
