//! The commands, each in a file, and what they share: from arguments to what the engine is asked to
//! do, how hosts are reached, and what a run remembers of earlier ones.

pub mod agent;
mod allocation;
pub mod audit;
pub mod broker;
pub mod cast;
pub mod config;
mod daemons;
pub mod doctor;
pub mod ftps;
pub mod gateway;
pub mod generate;
mod held;
pub mod job;
pub mod jobs;
mod lists;
pub mod mirror;
pub mod mounts;
pub mod mover;
pub mod node;
mod nodes;
pub mod post;
pub mod program;
pub mod put;
pub mod reach;
pub mod record;
pub mod relay;
pub mod report;
pub mod results;
pub mod run;
pub mod shim;
mod site;
pub mod submit;
pub mod sum;
pub mod sync;
pub mod verify;
pub mod watch;

use crate::args::{Command, Document};
use crate::exit::Exit;
use clap::ArgMatches;

/// Runs a command. `matches` are those of the whole command line.
pub fn run(command: &Command, matches: &ArgMatches) -> Exit {
    let own = || matches.subcommand().expect("it was parsed").1;
    match command {
        Command::Sync(args) => sync::run(args, own()),
        Command::Verify(args) => verify::run(args, own()),
        Command::Audit(args) => audit::run(args, own()),
        Command::Sum(args) => sum::run(args),
        Command::Agent(args) => agent::run(args),
        Command::Mover(args) => mover::serve(args),
        Command::Mirror(args) => mirror::run(args),
        Command::Report(args) => report::run(args),
        Command::Post(args) => post::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Cast(args) => cast::run(args),
        Command::Node(args) => node::run(args),
        Command::Submit(args) => submit::run(args),
        Command::Put(args) => put::run(args),
        Command::Jobs(args) => jobs::run(args),
        Command::Results(args) => results::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Ftps(args) => ftps::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Shim(args) => shim::run(args),
        Command::Relay { socket, words } => relay::run(socket, words),
        Command::ExitCodes => generate::print(Document::ExitCodes, &[]),
        Command::Generate { what, command } => generate::print(*what, command),
    }
}
