//! How other hosts are reached, as the arguments say it, and what it means for the exit code where
//! one is not.

use crate::args::{ReachArgs, SshArgs};
use crate::exit::Exit;
use crate::output::Output;
use crate::signals::Signals;
use driftless_engine::Options;
use driftless_model::Keep;
use driftless_remote::{Deploy, Reach};
use driftless_session::{ConnectError, Connections, Witness};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Why a tree cannot be reached: the exit code, and what to say.
pub type Unreached = (Exit, String);

/// Connects to the hosts that the run's trees are on.
pub fn connect(
    options: &mut Options,
    args: &ReachArgs,
    signals: &Signals,
) -> Result<Connections, Unreached> {
    let reach = reach(args, &signals.stop)?;
    driftless_session::connect(options, &reach, patience(args))
        .map_err(|error| unreached(&error, signals))
}

/// How long a run tries to make a lost connection again.
pub fn patience(args: &ReachArgs) -> Duration {
    Duration::from_secs(args.reconnect)
}

/// The exit code and the words for a host that was not reached. Nobody asks why who has asked not
/// to wait for it.
fn unreached(error: &ConnectError, signals: &Signals) -> Unreached {
    match Exit::of_connection(error, signals.number()) {
        code @ Exit::Signal(_) => (code, "stopped before anything was done".into()),
        code => (code, error.to_string()),
    }
}

/// A command with its arguments, cut into words as a shell does.
fn words_of(option: &str, typed: &str) -> Result<Vec<String>, Unreached> {
    let words = shell_words::split(typed)
        .map_err(|error| (Exit::Usage, format!("{option} \"{typed}\": {error}")))?;
    if words.is_empty() {
        return Err((Exit::Usage, format!("{option} names no command")));
    }
    Ok(words)
}

/// How hosts are reached; what is kept is known with the run.
pub fn reach(args: &ReachArgs, stop: &Arc<AtomicBool>) -> Result<Reach, Unreached> {
    Ok(Reach {
        streams: args.streams.0,
        compress: args.compress,
        ..start(&args.start, stop)?
    })
}

/// Returns the way in which programs are started on hosts. Each host has one connection.
pub fn start(args: &SshArgs, stop: &Arc<AtomicBool>) -> Result<Reach, Unreached> {
    let deploy = args
        .deploy
        .clone()
        .map(|file| file.map_or(Deploy::Own, Deploy::File));
    Ok(Reach {
        ssh: words_of("--ssh", &args.ssh)?,
        agent: words_of("--agent-path", &args.agent_path)?,
        keep: Keep::default(),
        streams: Some(1),
        compress: None,
        deploy,
        connecting: Duration::from_secs(args.connect_timeout),
        stop: stop.clone(),
    })
}

/// Has the user hear of connections that are lost and made again, and stops with the user's signal.
pub struct Watching<'a> {
    pub output: &'a Output,
    pub signals: &'a Signals,
}

impl Witness for Watching<'_> {
    fn is_stopped(&self) -> bool {
        self.signals.stop.load(Relaxed)
    }

    fn connection_lost(&self, why: &str, elapsed: Duration, patience: Duration) {
        self.output.line_lost(why, (elapsed, patience));
    }

    fn connection_made(&self, host: &str, after: Duration) {
        self.output.line_made(host, after);
    }

    fn note(&self, text: &str) {
        self.output.note(text);
    }

    fn begin_again(&self) {
        self.output.begin_again();
    }
}
