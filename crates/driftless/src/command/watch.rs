//! `driftless watch`: the agent of a node.

mod announcing;

use crate::args::WatchArgs;
use crate::command::held::{self, Held};
use crate::command::job::no_port;
use crate::command::{job, post, record};
use crate::exit::Exit;
use crate::output::{diagnostics, mirror as say, watch as show};
use crate::{own, service, signals};
use driftless_detect::agents::{Registration, register, unregister};
use driftless_model::{cause, quote};
use driftless_spool::{Depth, SpoolError};
use driftless_state::watch::WatchState;
use driftless_watch::config::{Config, Detect, parse};
use driftless_watch::status::{self, Status};
use driftless_watch::{Agent, BeginError, Pulse, Setup, metrics};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The exit code, and what to say.
type Failure = (Exit, String);

/// Runs the agent, or says how it stands; returns the exit code.
pub fn run(args: &WatchArgs) -> Exit {
    let done = match args {
        WatchArgs { status: true, .. } => tell(args),
        WatchArgs { end: true, .. } => end(args),
        _ => watch(args),
    };
    let code = done.unwrap_or_else(|(code, why)| {
        say::refusal(code, &why);
        code
    });
    say::final_code(code)
}

/// Hears what changes until a signal comes.
fn watch(args: &WatchArgs) -> Result<Exit, Failure> {
    // Whoever is to write to what lies in the spool is let in by its modes alone.
    own::give_up_umask();
    diagnostics::start("watch", &args.log);
    let mut config = read(&args.config)?;
    let signals = signals::watch();
    let _held = hold(&config)?;
    config.trees = resolved(&config)?;
    if config.has(Detect::Shim) {
        for path in [&config.shim.map, &config.shim.spool] {
            own::make_folder_of(path).map_err(|why| failure(&config, why))?;
        }
    }
    let own = own_places(&config)?;
    let state = WatchState::open(&state_file(&config)?);
    let setup = Setup {
        config: config.clone(),
        state: state.map_err(|error| record::refusal(&error))?,
        mirrors: own::runtime_places(),
        posts: posts(&config)?,
        announcing: announcing::of(&config)?,
        own,
        stop: signals.stop.clone(),
    };
    let agent = Agent::begin(setup).map_err(|error| not_begun(&config, &error))?;
    let status = agent.status(&config);
    let served = status::serve(&socket(&config)?, status.clone(), agent.deliverer());
    served.map_err(|error| failure(&config, cause(&error)))?;
    register_with_mirrors(&config)?;
    serve_metrics(&config, status.clone())?;
    let pulse = agent.pulse();
    let service = service::begin(Served { status, pulse }, signals.stop.clone());
    tracing::info!("{}: at work", config.name);
    agent.run();
    if let Some(thread) = service {
        let _its_panic_was_told = thread.join();
    }
    // What programs say until the next agent waits in the spool, and is not delivered.
    if !config.has(Detect::Shim) {
        forget_registration(&config);
    }
    tracing::info!("{}: stopped", config.name);
    Ok(match signals.number() {
        // What hears has ended by itself.
        0 => Exit::CouldNotRun,
        number => Exit::Signal(number),
    })
}

/// Answers who asks for metrics, where the configuration wants that.
fn serve_metrics(
    config: &Config,
    status: impl Fn() -> Status + Send + Sync + 'static,
) -> Result<(), Failure> {
    let Some(address) = config.metrics else {
        return Ok(());
    };
    let listening = metrics::listen(address, status)
        .map_err(|error| failure(config, no_port(address, &error)))?;
    tracing::info!("{}: metrics at http://{listening}/metrics", config.name);
    Ok(())
}

/// What the service manager is told of an agent.
struct Served<S> {
    status: S,
    pulse: Pulse,
}

impl<S: Fn() -> Status + Send + 'static> service::Served for Served<S> {
    fn idle(&self) -> Duration {
        self.pulse.age()
    }

    fn words(&self) -> Option<String> {
        let status = (self.status)();
        let waiting: u64 = status.trees.iter().map(|tree| tree.waiting).sum();
        let gaps: u64 = status.trees.iter().map(|tree| tree.gaps.count).sum();
        let messages = status.counts.messages;
        Some(format!(
            "{messages} messages, {waiting} waiting, {gaps} gaps"
        ))
    }
}

fn failure(config: &Config, why: impl std::fmt::Display) -> Failure {
    (Exit::CouldNotRun, format!("{}: {why}", config.name))
}

fn not_begun(config: &Config, error: &BeginError) -> Failure {
    match error {
        BeginError::State(error) => record::refusal(error),
        BeginError::Shims(error) => unheard(config, error),
        error => failure(config, error),
    }
}

fn unheard(config: &Config, error: &SpoolError) -> Failure {
    let (code, why) = failure(config, error);
    match error {
        SpoolError::Taken(_) | SpoolError::SpoolTaken(_) => (Exit::Locked, why),
        SpoolError::NoMap(_) => (Exit::Refused, why),
        SpoolError::Failed { .. } => (code, why),
    }
}

/// Reads the configuration.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn read(path: &Path) -> Result<Config, Failure> {
    let failed = |why: String| (Exit::Usage, format!("{}: {why}", quote(path)));
    let meta = std::fs::metadata(path).map_err(|error| failed(cause(&error)))?;
    // Whoever opens a pipe waits for somebody who writes.
    if !meta.is_file() {
        return Err(failed("it is no regular file".into()));
    }
    let text = job::text_of(path).map_err(failed)?;
    parse(&text, path).map_err(|errors| (Exit::Usage, errors.to_string()))
}

/// The trees, without symbolic links, as programs and the kernel name them.
#[allow(
    clippy::disallowed_methods,
    reason = "it is only found out where the trees are"
)]
fn resolved(config: &Config) -> Result<Vec<PathBuf>, Failure> {
    let mut trees: Vec<PathBuf> = Vec::new();
    for tree in &config.trees {
        let failed = |why: &str| failure(config, format!("{}: {why}", quote(tree)));
        let real = std::fs::canonicalize(tree).map_err(|error| failed(&cause(&error)))?;
        if !std::fs::metadata(&real).is_ok_and(|meta| meta.is_dir()) {
            return Err(failed("it is no directory"));
        }
        if trees.contains(&real) {
            return Err(failed("another of the trees leads to the same directory"));
        }
        trees.push(real);
    }
    Ok(trees)
}

/// What the agent keeps for itself: its files have these names, and go on with a dot; below that of
/// the spool is nothing else.
fn own_places(config: &Config) -> Result<Vec<PathBuf>, Failure> {
    let mut places = vec![state_file(config)?.with_extension("")];
    if config.has(Detect::Shim) {
        places.extend([config.shim.map.clone(), config.shim.spool.clone()]);
    }
    let places: Vec<PathBuf> = places.iter().map(|place| own::real_place(place)).collect();
    let mut trees = config.trees.iter();
    match trees.find(|tree| places.iter().any(|place| tree.starts_with(place))) {
        Some(tree) => {
            let why = "the watch daemon keeps its own files there, and reports nothing of them";
            Err((
                Exit::Usage,
                format!("{}: {}: {why}", config.name, quote(tree)),
            ))
        }
        None => Ok(places),
    }
}

fn hold(config: &Config) -> Result<Held, Failure> {
    let lock = format!("watch-{}.lock", config.name);
    held::hold(
        &lock,
        &config.name,
        "has the name: a watch daemon runs already",
    )
}

fn state_file(config: &Config) -> Result<PathBuf, Failure> {
    job::file(&format!("watch-{}.db", config.name))
}

/// Where the agent is asked.
fn socket(config: &Config) -> Result<PathBuf, Failure> {
    let path = job::file(&format!("watch-{}.socket", config.name))?;
    own::socket_path(path, "XDG_STATE_HOME").map_err(|why| failure(config, why))
}

/// Has mirrors that listen in this user's folder ask the agent to deliver. Where there is no such
/// folder, no mirror of this user listens.
fn register_with_mirrors(config: &Config) -> Result<(), Failure> {
    let agent = Registration {
        name: config.name.clone(),
        socket: socket(config)?,
        trees: config.trees.clone(),
    };
    let registered = own::runtime_folder()
        .and_then(|folder| register(&folder, &agent).map_err(|error| cause(&error)));
    if let Err(why) = registered {
        tracing::warn!(
            "{}: cannot register with mirrors, so a barrier does not wait for this watch daemon: {why}",
            config.name
        );
    }
    Ok(())
}

/// Has mirrors wait for the agent no more.
fn forget_registration(config: &Config) {
    let Ok(folder) = own::runtime_place() else {
        return;
    };
    if let Err(error) = unregister(&folder, &config.name) {
        tracing::warn!("{}: cannot unregister: {}", config.name, cause(&error));
    }
}

/// Where the posts of users are heard, if that is asked for: a socket for each tree.
fn posts(config: &Config) -> Result<Vec<PathBuf>, Failure> {
    if !config.has(Detect::Posts) {
        return Ok(Vec::new());
    }
    let numbers = 1..=config.trees.len();
    // No job has a space in its name.
    let name = |number| format!("agent {}.{number}", config.name);
    let sockets = numbers.map(|number| post::socket_of(&name(number)));
    let sockets = sockets.collect::<Result<_, _>>();
    sockets.map_err(|why| failure(config, why))
}

/// Has all programs announce nothing any more.
fn end(args: &WatchArgs) -> Result<Exit, Failure> {
    let config = read(&args.config)?;
    let _held = hold(&config)?;
    let ended = config.shim.end();
    ended.map_err(|error| unheard(&config, &error))?;
    forget_registration(&config);
    Ok(Exit::Equal)
}

/// Says how the agent stands.
fn tell(args: &WatchArgs) -> Result<Exit, Failure> {
    let config = read(&args.config)?;
    let status = match status::ask(&socket(&config)?) {
        Ok(status) => status,
        Err(error) if is_silent(&error) => kept(&config)?,
        Err(error) => return Err(failure(&config, cause(&error))),
    };
    let depth = match config.has(Detect::Shim) {
        true => config.shim.depth(),
        false => Ok(Depth::default()),
    };
    show::status(&status, depth.ok(), args.json);
    Ok(Exit::Equal)
}

/// Whether nobody answers there.
fn is_silent(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset)
}

/// As the last agent has left it.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
fn kept(config: &Config) -> Result<Status, Failure> {
    let path = state_file(config)?;
    if std::fs::metadata(&path).is_err() {
        let name = &config.name;
        let why = format!(
            "{name}: no watch daemon of this user answers, and none has kept anything ({}): it has \
             not run here yet, or runs as another user; ask as that one",
            quote(&path)
        );
        return Err((Exit::CouldNotRun, why));
    }
    let view = WatchState::look(&path).map_err(|error| record::refusal(&error))?;
    Status::kept(&config.name, &view).map_err(|error| record::refusal(&error))
}
