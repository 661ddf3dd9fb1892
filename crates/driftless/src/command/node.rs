//! The command `node`: the daemon of a node, the node of one cast, and questions about its copies.

use crate::args::{NodeArgs, NodeCommand, PurgeArgs, RemotePurgeArgs};
use crate::command::nodes;
use crate::command::reach::Unreached;
use crate::command::site;
use crate::exit::Exit;
use crate::output::{diagnostics, mirror as say, node as show};
use crate::signals;
use crate::{own, service};
use driftless_cast::{
    DaemonSettings, DaemonTrust, EndedJob, NodeDaemon, NodeSettings, OrderSettings, PurgeSelection,
    TransferSettings,
};
use driftless_model::{cause, escape_text, quote};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs a node, or answers a question about it; returns the exit code.
pub fn run(args: &NodeArgs) -> Exit {
    let done = match &args.command {
        None if args.serve.for_one_cast => serve_one_cast(args),
        None => serve(args),
        Some(command) => answer(args, command),
    };
    let code = done.unwrap_or_else(|(code, why)| {
        say::complaint(&why);
        code
    });
    say::final_code(code)
}

/// Serves the cast of the coordinator at the other end of standard input and output.
fn serve_one_cast(args: &NodeArgs) -> Result<Exit, Unreached> {
    own::give_up_umask();
    diagnostics::start("node", &args.log);
    let signals = signals::watch();
    let settings = settings(args)?;
    let failed = |why: String| (Exit::CouldNotRun, why);
    let pipe = |error: io::Error| failed(format!("standard input and output: {}", cause(&error)));
    // Files, because the lock of the library's standard input stays with one thread.
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(pipe)?;
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(pipe)?;
    let (input, output) = (BufReader::new(File::from(input)), File::from(output));
    match driftless_cast::serve_one_cast(&settings, input, output, &signals.stop) {
        Ok(()) => Ok(Exit::of_mover(signals.number())),
        Err(error) => {
            let code = Exit::of_cast_error(&error, signals.number());
            Err((code, error.to_string()))
        }
    }
}

/// Runs the daemon until a signal ends it.
fn serve(args: &NodeArgs) -> Result<Exit, Unreached> {
    own::give_up_umask();
    diagnostics::start("node", &args.log);
    let signals = signals::watch();
    let settings = DaemonSettings {
        node: settings(args)?,
        trust: trust(args)?,
        places: args
            .serve
            .place
            .iter()
            .map(|path| nodes::place("--place", path))
            .collect::<Result<_, _>>()?,
    };
    args.serve
        .place
        .iter()
        .for_each(|path| warn_if_missing(path));
    let failed = |error: driftless_cast::Error| {
        let code = Exit::of_cast_error(&error, signals.number());
        (code, error.to_string())
    };
    let daemon = NodeDaemon::start(&settings).map_err(failed)?;
    tracing::info!(
        "listens on {} with the key {}",
        daemon.address(),
        daemon.key()
    );
    let service = service::begin(ServedNode, signals.stop.clone());
    let ended = daemon.run(&signals.stop).map_err(failed);
    service::end(&signals.stop, service);
    ended?;
    Ok(Exit::of_mover(signals.number()))
}

/// Warns of a place that does not exist yet.
#[allow(
    clippy::disallowed_methods,
    reason = "a look at a directory that the user names; the store opens it for each cast"
)]
fn warn_if_missing(place: &Path) {
    if std::fs::metadata(place).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        tracing::warn!(
            "--place {}: no such directory; casts to it fail until it exists",
            quote(place)
        );
    }
}

/// State of the daemon for the service manager. The daemon has no turns that could be missed.
struct ServedNode;

impl service::Served for ServedNode {
    fn idle(&self) -> Duration {
        Duration::ZERO
    }

    fn words(&self) -> Option<String> {
        None
    }
}

/// Makes the directory above that of the store if it is missing. Other users may look into it.
#[allow(
    clippy::disallowed_methods,
    reason = "our own directory, no part of a replicated tree"
)]
fn make_folder_of(dir: &Path) -> Result<(), Unreached> {
    match dir.parent() {
        Some(parent) if !parent.exists() => {
            own::make_folder_of(dir).map_err(|why| (Exit::CouldNotRun, why))
        }
        _ => Ok(()),
    }
}

fn settings(args: &NodeArgs) -> Result<NodeSettings, Unreached> {
    let serve = &args.serve;
    let dir = nodes::node_dir(args.dir.as_deref())?;
    make_folder_of(&dir)?;
    Ok(NodeSettings {
        listen: serve.listen,
        ports: serve.ports,
        cache_bytes_max: serve.cache_max,
        transfer: TransferSettings {
            bytes_per_second_max: serve.bwlimit,
            ..TransferSettings::default()
        },
        ..NodeSettings::new(dir)
    })
}

/// Returns the hosts that the daemon serves.
fn trust(args: &NodeArgs) -> Result<DaemonTrust, Unreached> {
    let serve = &args.serve;
    match site::site(&serve.site)? {
        Some(_) if serve.coordinator.is_empty() => Err(site::usage(
            "--ca: no host may cast; name the hosts in their certificates with --coordinator",
        )),
        Some(site) => {
            site.warnings
                .iter()
                .for_each(|warning| tracing::warn!("{warning}"));
            Ok(DaemonTrust::Authority {
                authority_pem: site.authority_pem,
                identity: Box::new(site.identity),
                coordinators: serve.coordinator.clone(),
            })
        }
        None if serve.trust.is_empty() => Err(site::usage(
            "no host may cast; name its key with --trust, or the authority of the site with --ca",
        )),
        None => Ok(DaemonTrust::Keys(serve.trust.clone())),
    }
}

/// Answers a question about the node, or changes its copies.
fn answer(args: &NodeArgs, command: &NodeCommand) -> Result<Exit, Unreached> {
    if let NodeCommand::Key { cast_dir, .. } = command {
        let dir = nodes::cast_dir(cast_dir.as_deref())?;
        say::line(&nodes::identity(&dir)?.key().to_string());
        return Ok(Exit::Equal);
    }
    if let NodeCommand::Purge { what, remote, json } = command
        && let Some(list) = &remote.nodes
    {
        // Never the copies of this host instead.
        let job = what.job.as_ref();
        let job = job.ok_or_else(|| site::usage("--nodes: name the job that ends with --job"))?;
        return end_job(list, job, remote, *json);
    }
    let dir = existing(nodes::node_dir(args.dir.as_deref())?, command)?;
    let failed =
        |error: driftless_cast::AdminError| (Exit::of_admin_error(&error), error.to_string());
    match command {
        NodeCommand::Status { json } => {
            let info = driftless_cast::node_info(&dir).map_err(failed)?;
            show::status(&info, *json);
            Ok(Exit::Equal)
        }
        NodeCommand::Purge {
            what: args, json, ..
        } => {
            let summary = driftless_cast::purge_node(&dir, &selection(args)).map_err(failed)?;
            show::purged(&summary, *json);
            let is_found = summary.selected > 0 || args.all;
            if !is_found {
                let what = selected(args);
                let why =
                    format!("no copy of this node {what}; \"driftless node status\" lists them");
                return Err((Exit::Problems, why));
            }
            Ok(match summary.is_complete() {
                true => Exit::Equal,
                false if summary.is_busy() => Exit::Locked,
                false => Exit::Problems,
            })
        }
        NodeCommand::Verify { copy, json } => {
            let checks = driftless_cast::verify_node(&dir, *copy).map_err(failed)?;
            checks.iter().for_each(|check| show::check(check, *json));
            if !*json {
                show::remedy(&checks);
            }
            Ok(Exit::of_checks(&checks))
        }
        NodeCommand::Key { .. } => Ok(Exit::Equal),
    }
}

/// Ends a job at many nodes.
fn end_job(
    list: &str,
    job: &str,
    args: &RemotePurgeArgs,
    is_json: bool,
) -> Result<Exit, Unreached> {
    let signals = signals::watch();
    let dir = nodes::cast_dir(args.cast_dir.as_deref())?;
    let reached = nodes::listed(list, &args.ways, &dir, &signals)?;
    reached
        .warnings
        .iter()
        .for_each(|warning| say::complaint(warning));
    let settings = OrderSettings {
        ssh: reached.ssh,
        identity: reached.identity,
        authority_pem: reached.authority_pem,
        transfer: TransferSettings::default(),
        parallel_max: OrderSettings::PARALLEL,
    };
    let ended = driftless_cast::end_job(&settings, &reached.nodes, job, &signals.stop);
    let ended = ended.map_err(|error| {
        let code = Exit::of_cast_error(&error, signals.number());
        (code, error.to_string())
    })?;
    show::ended(&ended, is_json);
    let lacking: Vec<&EndedJob> = ended.iter().filter(|node| !node.is_ended()).collect();
    Ok(match lacking.as_slice() {
        [] => Exit::Equal,
        all if all.iter().all(|node| node.is_busy()) => Exit::Locked,
        _ => Exit::Problems,
    })
}

/// Returns the directory of a node. A question about a node makes none.
#[allow(
    clippy::disallowed_methods,
    reason = "our own directory, no part of a replicated tree"
)]
fn existing(dir: PathBuf, command: &NodeCommand) -> Result<PathBuf, Unreached> {
    match std::fs::metadata(&dir) {
        Ok(_) => Ok(dir),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                && matches!(command, NodeCommand::Status { .. }) =>
        {
            let dir = quote(&dir);
            let why = format!("no cast has placed anything here (store {dir})");
            Err((Exit::CouldNotRun, why))
        }
        Err(error) => {
            let (dir, cause) = (quote(&dir), cause(&error));
            let why = format!("{dir}: cannot open the store: {cause}; name it with --dir");
            Err((Exit::CouldNotRun, why))
        }
    }
}

/// Returns the selection as the end of a sentence.
fn selected(args: &PurgeArgs) -> String {
    match (args.copy, &args.set, &args.job) {
        (Some(copy), _, _) => format!("has the number {copy}"),
        (_, Some(set), _) => format!("has the hash {}", escape_text(set)),
        (_, _, job) => format!(
            "is kept by the job {}",
            escape_text(job.as_deref().unwrap_or_default())
        ),
    }
}

fn selection(args: &PurgeArgs) -> PurgeSelection {
    match (args.copy, &args.set, &args.job) {
        (Some(copy), _, _) => PurgeSelection::Copy(copy),
        (_, Some(set), _) => PurgeSelection::Set(set.clone()),
        (_, _, Some(job)) => PurgeSelection::Job(job.clone()),
        // The arguments are one of four.
        (None, None, None) => PurgeSelection::All,
    }
}
