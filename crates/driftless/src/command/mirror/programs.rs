//! What a job asks for beside its trees: a command for problems, and a port for metrics.

use super::Failure;
use crate::command::job;
use crate::exit::Exit;
use driftless_mirror::job::Job;
use driftless_mirror::metrics;
use driftless_model::{cause, escape};
use driftless_remote::check_program;
use std::io;

/// Refuses a command that cannot be started, and a port that somebody else has.
pub fn check(job: &Job) -> Result<(), Failure> {
    let refuse = |why: String| (Exit::CouldNotRun, format!("{}: {why}", job.name));
    if let Some(program) = job.on_problem.as_ref().and_then(|words| words.first()) {
        check_program(program).map_err(|error| refuse(no_program(program, &error)))?;
    }
    // The mirror of the job has the port itself while it runs.
    match job.metrics {
        Some(asked) if job::holder(&job.name)?.is_none() => {
            metrics::check(asked.listen).map_err(|error| refuse(job::no_port(asked.listen, &error)))
        }
        _ => Ok(()),
    }
}

fn no_program(program: &str, error: &io::Error) -> String {
    let program = escape(program.as_bytes());
    format!("on_problem: cannot start \"{program}\": {}", cause(error))
}
