//! The `driftless` command: reads arguments, runs the engine, prints, and turns the end of a run into an exit code.
//!
//! Only this crate prints.

/// Says one line, whatever others have put into it: hosts, brokers, programs, names. The standard library's panics where nobody takes what
/// is said, on a full disk for example, and a run would end in the middle. What was asked for goes to standard output or a log, which are
/// accounted for (`Output::final_code`).
macro_rules! eprintln {
    ($($word:tt)*) => {{
        let line = driftless_model::escape_text(&format!($($word)*));
        let _untold = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
    }};
}

mod again;
mod agent;
mod args;
mod audit;
mod config;
mod documents;
mod earlier;
mod estimate;
mod exit;
mod mounts;
mod movers;
mod output;
mod outputs;
mod own;
mod product;
mod program;
mod reach;
mod signals;
mod standing;
mod sum;
mod units;
mod unkept;

use args::{Cli, Command, GuardArgs, OutputArgs, ReachArgs, SyncArgs, VerifyArgs};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use driftless_engine::{End, Options, RunError, Summary};
use driftless_reconcile::Refusal;
use earlier::Earlier;
use exit::Exit;
use output::{Output, Task};
use reach::Lines;
use signals::Signals;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs the command that the arguments of this process name.
pub fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    end_on_bugs();
    signals::outlive_file_limits();
    signals::hear_questions();
    let code = match &cli.command {
        Command::Sync(args) => sync(args, matches.subcommand_matches("sync").expect("it was parsed")),
        Command::Verify(args) => verify(args, matches.subcommand_matches("verify").expect("it was parsed")),
        Command::Audit(args) => audit::run(args, matches.subcommand_matches("audit").expect("it was parsed")),
        Command::Sum(args) => sum::run(args),
        Command::Agent(args) => agent::run(args),
        Command::Mover(args) => movers::serve(args),
        Command::Generate { what } => documents::print(*what),
    };
    code.into()
}

/// A panic in any thread ends the process, with the exit code of a bug: threads that wait for each other must not wait for ever.
fn end_on_bugs() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        eprintln!("driftless: this is a bug; what was finished is kept, and running again is safe");
        std::process::exit(Exit::Bug.code().into());
    }));
}

fn sync(args: &SyncArgs, matches: &ArgMatches) -> Exit {
    let task = if args.dry_run { Task::DryRun } else { Task::Sync };
    if !movers::are_wanted(&args.movers) {
        return run((config::sync(args, matches), &args.reach, &args.guard), &args.output, task, alone);
    }
    let options = movers::refusal(args).map_or_else(|| config::sync(args, matches), |why| Err(why.to_owned()));
    let shared = |options: &mut Options, lines: &mut Lines, output: &Output, signals: &Signals| {
        movers::sync(args, (options, lines), output, signals)
    };
    run((options, &args.reach, &args.guard), &args.output, task, shared)
}

/// A run that nobody else shares.
fn alone(options: &mut Options, lines: &mut Lines, output: &Output, signals: &Signals) -> Ended {
    again::sync(options, lines, (output, signals)).map_err(|error| refusal(&error, options))
}

/// What a run did, and what it did before a line was lost; or the exit code and the words for why it did not begin.
type Ended = Result<(Summary, Earlier), (Exit, String)>;

fn verify(args: &VerifyArgs, matches: &ArgMatches) -> Exit {
    let task = if args.repair { Task::Sync } else { Task::Verify };
    run((config::verify(args, matches), &args.reach, &args.guard), &args.output, task, alone)
}

/// Lets the engine do what was asked for.
fn run(
    (options, reach, guard): (Result<Options, String>, &ReachArgs, &GuardArgs),
    output: &OutputArgs,
    task: Task,
    work: impl FnOnce(&mut Options, &mut Lines, &Output, &Signals) -> Ended,
) -> Exit {
    // Modes are set as the source has them; nothing may be taken off them on the way.
    own::give_up_umask();
    let outputs = [("--log", output.log.as_deref())];
    let checked = options.and_then(|options| outputs::refuse_within_trees(&outputs, &options).map(|()| options));
    let mut options = match checked {
        Ok(options) => options,
        Err(error) => {
            eprintln!("driftless: {error}");
            return Exit::Usage;
        }
    };
    let output = match Output::new(output, task) {
        Ok(output) => output,
        Err(error) => {
            eprintln!("driftless: {error}");
            return Exit::CouldNotRun;
        }
    };
    let signals = signals::watch();
    let mut lines = match reach::connect(&mut options, reach, &signals) {
        Ok(lines) => lines,
        Err((code, error)) => {
            output.failed(&error, code);
            return code;
        }
    };
    options.run = driftless_tree::random_id();
    let notes = Arc::new(mounts::Notes::of(&options));
    if let Some(why) = notes.doubt().filter(|_| !guard.forget_mounts) {
        output.failed(&why, Exit::Refused);
        return Exit::Refused;
    }
    options.known_mounts = notes.known();
    if !options.dry_run {
        options.mount_notes = Some(notes.clone());
    }
    if guard.forget_mounts {
        options.known_mounts = Arc::new(driftless_engine::not_gone(&options));
    }
    output.start(&options);
    match work(&mut options, &mut lines, &output, &signals) {
        Ok((summary, earlier)) => {
            if !options.dry_run {
                notes.keep(&summary, &options).unwrap_or_else(|why| output.note(&why));
            }
            let code = exit_code(&summary, (&options, output.is_strict()), signals.number());
            let code = output.end(&summary, &earlier, code);
            // After a run that came to its end there is nothing to go on with.
            let is_interrupted = matches!(summary.end, End::Stopped | End::CutOff(_));
            options.ledger.iter().filter(|_| !is_interrupted).for_each(|notes| own::forget_database(&notes.path));
            code
        }
        Err((code, error)) => {
            output.failed(&error, code);
            code
        }
    }
}

/// The exit code and the words for why a run did not begin.
fn refusal(error: &RunError, options: &Options) -> (Exit, String) {
    let meant = match error {
        RunError::Refused(Refusal::Unlike { meant, .. }) => meant.as_deref().and_then(|meant| instead(options, meant)),
        _ => None,
    };
    let hint = meant.map(|command| format!("; was this meant? {command}")).unwrap_or_default();
    (refusal_code(error), format!("{error}{hint}"))
}

/// The command that was given, with another replica.
fn instead(options: &Options, replica: &[u8]) -> Option<String> {
    let typed = options.replica.to_bytes();
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let word = words.iter_mut().rev().find(|word| word.as_bytes() == typed)?;
    *word = OsStr::from_bytes(replica).to_owned();
    Some(output::command_line(words))
}

fn refusal_code(error: &RunError) -> Exit {
    match error {
        RunError::Locked { .. } | RunError::Unlocked(_) | RunError::Overtaken(_) => Exit::Locked,
        RunError::NoMovers(_) => Exit::NoQueue,
        RunError::Refused(_) => Exit::Refused,
        _ => Exit::CouldNotRun,
    }
}

fn exit_code(summary: &Summary, (options, strict): (&Options, bool), signal: u8) -> Exit {
    let counts = &summary.counts;
    match summary.end {
        End::Stopped => Exit::Signal(signal),
        End::Lost | End::CutOff(_) | End::NoPlan(_) => Exit::CouldNotRun,
        End::Refused(_) => Exit::Refused,
        End::Complete if !counts.adds_up() => Exit::Bug,
        End::Complete if options.report_only && counts.changed + counts.deleted + counts.respelt > 0 => Exit::Different,
        End::Complete if counts.problems() == 0 && counts.failed == 0 && strict && counts.unkept() > 0 => Exit::Problems,
        End::Complete if counts.problems() == 0 && counts.failed == 0 => Exit::Equal,
        End::Complete if counts.problems() == counts.problems_changing => Exit::Changing,
        End::Complete => Exit::Problems,
    }
}
