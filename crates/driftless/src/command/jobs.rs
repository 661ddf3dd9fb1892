//! The command `jobs`: the jobs that a gateway knows.

use crate::args::JobsArgs;
use crate::command::gateway::socket_of;
use crate::exit::Exit;
use crate::output::{jobs as show, mirror as say};

/// Shows the jobs; returns the exit code.
pub fn run(args: &JobsArgs) -> Exit {
    let code = match driftless_gateway::jobs(&socket_of(&args.socket)) {
        Ok(mut jobs) => {
            jobs.retain(|job| args.all || job.stage != "closed");
            show::jobs(&jobs, args.json);
            Exit::Equal
        }
        Err(error) => {
            say::complaint(&error.to_string());
            Exit::of_gateway_error(&error)
        }
    };
    say::final_code(code)
}
