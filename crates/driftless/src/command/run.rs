//! A run of the engine, as `sync` and `verify` have it: from options to the exit code.

use crate::args::{GuardArgs, OutputArgs, ReachArgs};
use crate::command::reach::{self, Watching};
use crate::command::{mounts, record};
use crate::exit::Exit;
use crate::output::human::command_line;
use crate::output::{Output, Task, files};
use crate::own;
use crate::signals::{self, Signals};
use driftless_engine::{End, Options, RunError, Summary};
use driftless_reconcile::Refusal;
use driftless_session::{Connections, Earlier};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// What a run did, and what it did before a connection was lost; or the exit code and the words for
/// why it did not begin.
pub type Ended = Result<(Summary, Earlier), (Exit, String)>;

/// Lets the engine do what was asked for.
pub fn run(
    (options, reach, guard): (Result<Options, String>, &ReachArgs, &GuardArgs),
    output: &OutputArgs,
    task: Task,
    work: impl FnOnce(&mut Options, &mut Connections, &Output, &Signals) -> Ended,
) -> Exit {
    // Modes are set as the source has them; nothing may be taken off them on the way.
    own::give_up_umask();
    let outputs = [("--log", output.log.as_deref())];
    let checked = options
        .map(|mut options| {
            options.policy.keep.umask = own::umask();
            options
        })
        .and_then(|options| files::refuse_within_trees(&outputs, &options).map(|()| options));
    let begun = checked
        .map_err(|error| (Exit::Usage, error))
        .and_then(|options| {
            let output = Output::new(output, task).map_err(|error| (Exit::CouldNotRun, error))?;
            Ok((options, output))
        });
    match begun {
        Ok((mut options, output)) => go((&mut options, reach, guard), &output, work),
        Err((code, error)) => {
            eprintln!("driftless: {error}");
            code
        }
    }
}

/// Connects to the hosts of the trees, lets `work` be done between them, and ends the output.
fn go(
    (options, reach, guard): (&mut Options, &ReachArgs, &GuardArgs),
    output: &Output,
    work: impl FnOnce(&mut Options, &mut Connections, &Output, &Signals) -> Ended,
) -> Exit {
    let failed = |code: Exit, error: &str| {
        output.failed(error, code);
        code
    };
    let signals = signals::watch();
    let mut connections = match reach::connect(options, reach, &signals) {
        Ok(connections) => connections,
        Err((code, error)) => return failed(code, &error),
    };
    options.run = driftless_tree::random_id();
    let notes = Arc::new(mounts::Notes::of(options));
    if let Some(why) = notes.doubt().filter(|_| !guard.forget_mounts) {
        return failed(Exit::Refused, &why);
    }
    options.known_mounts = notes.known();
    if options.applies() {
        options.mount_notes = Some(notes.clone());
    }
    if guard.forget_mounts {
        options.known_mounts = Arc::new(driftless_engine::not_gone(options));
    }
    output.start(options);
    match work(options, &mut connections, output, &signals) {
        Ok(done) => {
            if options.applies() {
                notes
                    .keep(&done.0, options)
                    .unwrap_or_else(|why| output.note(&why));
            }
            end(done, options, output, &signals)
        }
        Err((code, error)) => failed(code, &error),
    }
}

/// Tells what a run did, and lets go of what is of no use after it.
fn end(
    (summary, earlier): (Summary, Earlier),
    options: &Options,
    output: &Output,
    signals: &Signals,
) -> Exit {
    let code = Exit::of_run(&summary, (options, output.is_strict()), signals.number());
    let code = output.end(&summary, &earlier, code);
    // After a run that came to its end there is nothing to go on with.
    let is_interrupted = matches!(summary.end, End::Stopped | End::CutOff(_));
    options
        .ledger
        .iter()
        .filter(|_| !is_interrupted)
        .for_each(|notes| own::forget_database(&notes.path));
    code
}

/// A run that nobody else shares.
pub fn alone(
    options: &mut Options,
    connections: &mut Connections,
    output: &Output,
    signals: &Signals,
) -> Ended {
    if connections.may_come_again() {
        output.remember();
    }
    let watching = Watching { output, signals };
    let done = driftless_session::sync((options, connections), output, &watching, &signals.stop);
    done.map_err(|error| refusal(&error, options))
}

/// The exit code and the words for why a run did not begin.
pub fn refusal(error: &RunError, options: &Options) -> (Exit, String) {
    if let RunError::Record(error) = error {
        return record::refusal(error);
    }
    let meant = match error {
        RunError::Refused(Refusal::Unlike { meant, .. } | Refusal::OtherEntries { meant, .. }) => {
            meant.as_deref().and_then(|meant| instead(options, meant))
        }
        _ => None,
    };
    let hint = meant
        .map(|command| format!("; was this meant? {command}"))
        .unwrap_or_default();
    (Exit::of_error(error), format!("{error}{hint}"))
}

/// The command that was given, with another replica.
fn instead(options: &Options, replica: &[u8]) -> Option<String> {
    let typed = options.replica.to_bytes();
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let word = words
        .iter_mut()
        .rev()
        .find(|word| word.as_bytes() == typed)?;
    *word = OsStr::from_bytes(replica).to_owned();
    Some(command_line(words))
}
