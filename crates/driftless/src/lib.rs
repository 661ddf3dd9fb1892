//! The `driftless` command: reads arguments, runs the engine, prints, and turns the end of a run
//! into an exit code.
//!
//! Only this crate prints.

/// Says one line, whatever others have put into it: hosts, brokers, programs, names. The standard
/// library's panics where nobody takes what is said, on a full disk for example, and a run would
/// end in the middle. What was asked for goes to standard output or a log, which are accounted for
/// (`Output::final_code`).
macro_rules! eprintln {
    ($($word:tt)*) => {{
        let line = driftless_model::escape_text(&format!($($word)*));
        let _untold = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
    }};
}

mod args;
mod command;
mod exit;
mod foreign;
mod output;
mod own;
mod service;
mod signals;
mod units;

use args::Cli;
use clap::{CommandFactory, FromArgMatches};
use exit::Exit;
use std::process::ExitCode;

/// Bytes of stack that the first thread needs, which are more than some limits give it (`ulimit -s`,
/// setrlimit(2)); all other threads have stacks of their own size.
const STACK_BYTES: usize = 4 << 20;

/// Runs the command that the arguments of this process name; where the limit for the stack is small,
/// in a thread that has enough.
pub fn main() -> ExitCode {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    if limit.is_none_or(|bytes| bytes >= STACK_BYTES as u64) {
        return run();
    }
    let started = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(run);
    match started.map(std::thread::JoinHandle::join) {
        Ok(ended) => ended.unwrap_or_else(|_| Exit::Bug.into()),
        Err(error) => {
            let cause = driftless_model::cause(&error);
            eprintln!(
                "driftless: cannot start a thread with {STACK_BYTES} bytes of stack: {cause}"
            );
            Exit::CouldNotRun.into()
        }
    }
}

fn run() -> ExitCode {
    let parser = foreign::parser(Cli::command());
    let arguments = foreign::readable(std::env::args_os().collect(), &parser);
    let matches = parser
        .try_get_matches_from(arguments)
        .unwrap_or_else(|error| refuse(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    end_on_bugs();
    signals::outlive_file_limits();
    signals::hear_questions();
    command::run(&cli.command, &matches).into()
}

/// Ends the process for arguments that cannot be read, or because they ask for help.
fn refuse(error: &clap::Error) -> ! {
    match foreign::refusal(error) {
        Some(equivalent) => {
            equivalent
                .lines()
                .for_each(|line| eprintln!("driftless: {line}"));
            std::process::exit(Exit::Usage.code().into())
        }
        None => error.exit(),
    }
}

/// A panic in any thread ends the process, with the exit code of a bug: threads that wait for each
/// other must not wait for ever.
fn end_on_bugs() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        eprintln!(
            "driftless: this is a bug; finished entries are kept, and it is safe to run again"
        );
        std::process::exit(Exit::Bug.code().into());
    }));
}
