//! `driftless verify`: compares, and with `--repair` makes equal what differs.

use crate::args::VerifyArgs;
use crate::command::config;
use crate::command::run::{alone, run as run_engine};
use crate::exit::Exit;
use crate::output::Task;
use clap::ArgMatches;

/// Compares the trees; returns the exit code.
pub fn run(args: &VerifyArgs, matches: &ArgMatches) -> Exit {
    let task = if args.repair {
        Task::Sync
    } else {
        Task::Verify
    };
    run_engine(
        (config::verify(args, matches), &args.reach, &args.guard),
        &args.output,
        task,
        alone,
    )
}
