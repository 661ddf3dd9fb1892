//! `driftless sync`: alone, or with movers that share the work.

use crate::args::SyncArgs;
use crate::command::run::{alone, run as run_engine};
use crate::command::{config, mover};
use crate::exit::Exit;
use crate::output::{Output, Task};
use crate::signals::Signals;
use clap::ArgMatches;
use driftless_engine::Options;
use driftless_session::Connections;

/// Makes the replica equal, or says what would be done; returns the exit code.
pub fn run(args: &SyncArgs, matches: &ArgMatches) -> Exit {
    let task = if args.dry_run {
        Task::DryRun
    } else {
        Task::Sync
    };
    if !mover::are_wanted(&args.movers) {
        return run_engine(
            (config::sync(args, matches), &args.reach, &args.guard),
            &args.output,
            task,
            alone,
        );
    }
    let options = mover::refusal(args).map_or_else(|| config::sync(args, matches), Err);
    let shared =
        |options: &mut Options,
         connections: &mut Connections,
         output: &Output,
         signals: &Signals| { mover::sync(args, (options, connections), output, signals) };
    run_engine(
        (options, &args.reach, &args.guard),
        &args.output,
        task,
        shared,
    )
}
