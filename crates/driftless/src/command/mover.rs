//! Runs that many hosts share: `sync --queue`, `sync --hosts` and `sync --slurm`, and the command
//! `mover`.

use crate::args::{MoverArgs, MoversArgs, QueueArgs, SyncArgs};
use crate::command::allocation;
use crate::command::broker;
use crate::command::reach::{self, Watching};
use crate::command::record;
use crate::command::run::Ended;
use crate::exit::Exit;
use crate::output::Output;
use crate::output::human::host_name;
use crate::own;
use crate::signals::{self, Signals};
use driftless_engine::{Brief, End, Exchange, Monitor, Options};
use driftless_fleet::{
    BrokerExchange, Executor, HostsExchange, MoverError, MoverLauncher, OWN, PATIENCE, Seat,
    Shared, Starting, Ways, id_maps,
};
use driftless_pool::Concurrency;
use driftless_queue::{Broker, Error};
use driftless_session::Connections;
use driftless_state::{Found, Record};
use driftless_tree::Endpoint;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Whether others share the work.
pub fn are_wanted(args: &MoversArgs) -> bool {
    args.queue.queue.is_some() || args.slurm || !args.hosts.is_empty()
}

/// What cannot be had together with movers, if it is asked for, or nodes that are not there.
pub fn refusal(args: &SyncArgs) -> Option<String> {
    let asked = [
        (
            args.dry_run,
            "--dry-run uses no other hosts: run it without --queue, --hosts and --slurm",
        ),
        (
            args.copy_with.is_some(),
            "--copy-with is a command, and movers take no commands from others: run it without --queue, --hosts and --slurm",
        ),
        (
            args.link_dest.is_some(),
            "--link-dest needs one host that sees all names of a file: run it without --queue, --hosts and --slurm",
        ),
    ];
    asked
        .into_iter()
        .find(|(asked, _)| *asked)
        .map(|(_, why)| why.to_owned())
        .or_else(|| allocated(&args.movers).err())
}

/// Returns the nodes of the allocation, if movers are to run there.
fn allocated(args: &MoversArgs) -> Result<Option<Vec<String>>, String> {
    args.slurm.then(allocation::nodes).transpose()
}

/// Coordinates a run that others share.
pub fn sync(
    args: &SyncArgs,
    (options, connections): (&mut Options, &mut Connections),
    output: &Output,
    signals: &Signals,
) -> Ended {
    (options.source, options.replica) = (absolute(&options.source), absolute(&options.replica));
    let mut brief = Brief::of(options, &args.movers.route, output.wants_receipts());
    // An agent of another host sees owners by the numbers of that host.
    if options.source.host.is_none() || options.replica.host.is_none() {
        brief.set_id_maps(id_maps());
    }
    let shared = Shared {
        options,
        connections,
        brief,
    };
    if args.movers.queue.queue.is_some() {
        with_queue(args, shared, output, signals)
    } else {
        with_hosts(args, shared, output, signals)
    }
}

/// Movers know nothing of the folder that this was typed in.
fn absolute(root: &Endpoint) -> Endpoint {
    if root.host.is_some() {
        root.clone()
    } else {
        root.at(root.plain_path())
    }
}

fn with_queue(args: &SyncArgs, shared: Shared<'_>, output: &Output, signals: &Signals) -> Ended {
    let (options, brief) = (&shared.options, &shared.brief);
    let name = args.movers.queue.job.as_deref().unwrap_or_default();
    let broker = broker(&args.movers.queue).map_err(|error| queue_error(&error))?;
    let classes: Vec<String> = brief
        .routes
        .iter()
        .map(|route| route.class.clone())
        .collect();
    let watching = Watching { output, signals };
    let mut exchange = BrokerExchange::open(&broker, name, &classes, &watching, &signals.stop)
        .map_err(|error| queue_error(&error))?;
    let path = own::state_file(&format!("job-{name}"))
        .map_err(|why| (Exit::CouldNotRun, format!("{NO_STATE}: {why}")))?;
    let _lock = lock(&path, name)?;
    // A record is gone on with whether or not receipts are wanted.
    let about = format!(
        "{} {:?} {:?} {:?}",
        env!("CARGO_PKG_VERSION"),
        brief.without_receipts(),
        options.policy.delete_limit,
        options.selection
    );
    let mut record = record::open(&path, &about, (args.movers.fresh, name), output)
        .map_err(|error| record::refusal(&error))?;
    if record.found() == Found::Same {
        // What is told of entries that are looked at twice is told once.
        output.remember();
    }
    let (summary, earlier) = run(shared, output, signals, (&mut exchange, &mut record))?;
    drop(record);
    if !matches!(summary.end, End::Stopped | End::CutOff(_)) {
        // After a run that came to its end there is nothing to go on with; nor after one whose disk
        // did not keep what it was given: what is settled in the record may be what was lost.
        own::forget_database(&path);
    }
    Ok((summary, earlier))
}

const NO_STATE: &str = "there is no folder for the record of the run";

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> (Exit, String) {
    let path = driftless_model::escape(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
    (
        Exit::CouldNotRun,
        format!("\"{path}\": cannot keep the record of the run: {error}"),
    )
}

/// Two coordinators of one job would take each other's batches away.
fn lock(path: &Path, name: &str) -> Result<File, (Exit, String)> {
    let mut name_of_lock = path.as_os_str().to_owned();
    name_of_lock.push(".lock");
    let path = PathBuf::from(name_of_lock);
    let file = own::lock_file(&path).map_err(|error| unusable(&path, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => Err((
            Exit::Locked,
            format!(
                "another run coordinates the job \"{name}\"; wait for it to end, or name another job"
            ),
        )),
    }
}

fn with_hosts(args: &SyncArgs, shared: Shared<'_>, output: &Output, signals: &Signals) -> Ended {
    let starting = starting(args, signals)?;
    let nodes = allocated(&args.movers).map_err(|why| (Exit::Usage, why))?;
    let hosts = nodes.as_ref().unwrap_or(&args.movers.hosts);
    let ways = Ways {
        reach: starting.reach.clone(),
        patience: starting.patience,
    };
    let executor = Executor::new(OWN.into(), ways, args.running.throttle.for_engine());
    let folder = tempfile::tempdir().map_err(|error| {
        (
            Exit::CouldNotRun,
            format!("cannot make a temporary folder: {error}"),
        )
    })?;
    let path = folder.path().join("record");
    let mut record = Record::open(&path, "").map_err(|error| record::refusal(&error))?;
    let watching = Watching { output, signals };
    let mut exchange = HostsExchange::start((hosts, starting), executor, &watching);
    run(shared, output, signals, (&mut exchange, &mut record))
}

/// How movers are started on other hosts, as the arguments of `sync` say.
fn starting(args: &SyncArgs, signals: &Signals) -> Result<Starting, (Exit, String)> {
    let (throttle, reach) = (&args.running.throttle, &args.reach);
    let mut words = vec!["mover".to_owned(), "--stdio".into()];
    if let Concurrency::Fixed(jobs) = throttle.jobs {
        words.extend(["--jobs".into(), jobs.to_string()]);
    }
    let limits = [
        ("--bwlimit", throttle.bwlimit.map(|rate| format!("{rate}B"))),
        (
            "--iops-limit",
            throttle.iops_limit.map(|rate| rate.to_string()),
        ),
    ];
    words.extend(
        limits
            .into_iter()
            .flat_map(|(name, limit)| limit.map(|limit| [name.to_owned(), limit]))
            .flatten(),
    );
    words.extend([
        "--ssh".into(),
        reach.start.ssh.clone(),
        "--agent-path".into(),
        reach.start.agent_path.clone(),
    ]);
    words.extend(["--reconnect".into(), reach.reconnect.to_string()]);
    words.extend([
        "--connect-timeout".into(),
        reach.start.connect_timeout.to_string(),
    ]);
    words.extend(reach.compress.map(|level| format!("--compress={level}")));
    words.extend(
        reach
            .streams
            .0
            .map(|streams| format!("--streams={streams}")),
    );
    // A program that was brought to a host can bring itself to the next. A file of this host is no
    // file of that one.
    words.extend(reach.start.deploy.as_ref().map(|_| "--deploy".into()));
    let patience = reach::patience(reach);
    let reach = reach::reach(reach, &signals.stop)?;
    let launcher = if args.movers.slurm {
        MoverLauncher::Srun {
            program: allocation::program(reach.agent.clone()),
        }
    } else {
        MoverLauncher::Ssh
    };
    Ok(Starting {
        launcher,
        reach,
        arguments: words,
        patience,
    })
}

/// Coordinates it; an error is the exit code and the words for why it did not begin.
fn run(
    shared: Shared<'_>,
    output: &Output,
    signals: &Signals,
    by: (&mut dyn Exchange, &mut Record),
) -> Ended {
    let options = shared.options.clone();
    match driftless_fleet::run(
        shared,
        (output, &Watching { output, signals }),
        &signals.stop,
        by,
    ) {
        Ok(done) => Ok(done),
        // What was waited for when the signal came no longer matters.
        Err(_) if signals.number() > 0 => Err((
            Exit::Signal(signals.number()),
            "stopped; run it again to continue".into(),
        )),
        Err(error) => Err(crate::command::run::refusal(&error, &options)),
    }
}

/// The broker that is meant, or what is wrong with the arguments.
fn broker(args: &QueueArgs) -> Result<Broker, Error> {
    let url = args.queue.as_deref().unwrap_or_default();
    let (credentials, ca) = (args.queue_credentials.as_deref(), args.queue_ca.as_deref());
    let broker = broker::of(url, credentials, ca)?;
    Ok(broker.with_patience(PATIENCE))
}

/// The exit code and the words for an error of the queue.
fn queue_error(error: &Error) -> (Exit, String) {
    (Exit::of_queue(error), error.to_string())
}

/// The command `mover`.
pub fn serve(args: &MoverArgs) -> Exit {
    // Modes are set as the source has them; nothing may be taken off them on the way.
    own::give_up_umask();
    crate::output::diagnostics::start("mover", &args.log);
    let signals = signals::watch();
    let done = match (args.stdio, &args.queue.queue) {
        (true, _) => executor(args, &signals).map(|executor| {
            match driftless_fleet::serve_stdio(executor, &signals.stop) {
                Ok(()) => Exit::of_mover(signals.number()),
                Err(driftless_fleet::CoordinatorGone) => Exit::CouldNotRun,
            }
        }),
        (false, Some(_)) => {
            executor(args, &signals).and_then(|executor| serve_queue(args, executor, &signals))
        }
        (false, None) => Err((
            Exit::Usage,
            "name the broker with --queue and the job with --job".into(),
        )),
    };
    done.unwrap_or_else(|(code, why)| {
        tracing::error!("{why}");
        code
    })
}

fn serve_queue(
    args: &MoverArgs,
    executor: Executor,
    signals: &Signals,
) -> Result<Exit, (Exit, String)> {
    let broker = broker(&args.queue).map_err(|error| queue_error(&error))?;
    let seat = Seat {
        job: args.queue.job.as_deref().unwrap_or_default(),
        class: &args.class,
        idle_max: args.idle,
    };
    match driftless_fleet::serve_queue(&broker, &seat, executor, &signals.stop) {
        Ok(()) => Ok(Exit::of_mover(signals.number())),
        Err(MoverError::Queue(error)) => Err(queue_error(&error)),
        Err(error @ MoverError::Failing(_)) => Err((Exit::CouldNotRun, error.to_string())),
    }
}

fn executor(args: &MoverArgs, signals: &Signals) -> Result<Executor, (Exit, String)> {
    let ways = Ways {
        reach: reach::reach(&args.reach, &signals.stop)?,
        patience: reach::patience(&args.reach),
    };
    let throttle = args.throttle.for_engine();
    Ok(Executor::new(
        format!("{}:{}", host_name(), std::process::id()),
        ways,
        throttle,
    ))
}
