//! The command `cast`: from arguments to the settings of a cast, and from its report to the exit
//! code.

use crate::args::CastArgs;
use crate::command::nodes::{self, ReachedNodes};
use crate::command::reach::Unreached;
use crate::command::site;
use crate::exit::Exit;
use crate::output::cast::CastOutput;
use crate::output::human::host_name;
use crate::own;
use crate::signals::{self, Signals};
use driftless_cast::{
    CastPlace, CastSettings, ContentLimits, CopyRights, PlanLimits, RackTopology, TransferSettings,
};
use driftless_model::{Keep, escape_text, quote};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Distributes the sources; returns the exit code.
pub fn run(args: &CastArgs) -> Exit {
    own::give_up_umask();
    let signals = signals::watch();
    let output = CastOutput::new(&args.output);
    let settings = match settings(args, &output, &signals) {
        Ok(settings) => settings,
        Err((code, why)) => return output.failed(&why, code),
    };
    if let Some(file) = &args.plan.topology {
        warn_of_lacking(&settings, file, &output);
    }
    output.begin(settings.nodes.len(), args.plan.join_wait);
    match driftless_cast::cast(&settings, &output, &signals.stop) {
        Ok(report) => {
            let code = Exit::of_cast(&report, args.output.strict, signals.number());
            output.end(&report, code)
        }
        Err(error) => {
            let code = Exit::of_cast_error(&error, signals.number());
            output.failed(&error.to_string(), code)
        }
    }
}

/// Returns the settings that the arguments ask for.
fn settings(
    args: &CastArgs,
    output: &CastOutput,
    signals: &Signals,
) -> Result<CastSettings, Unreached> {
    let place = match &args.to {
        Some(path) => CastPlace::Directory(nodes::place("--to", path)?),
        None => CastPlace::Cache,
    };
    let topology = topology(args.plan.topology.as_deref())?;
    let dir = nodes::cast_dir(args.dir.as_deref())?;
    let sources = sources(&args.sources)?;
    // Before the key of this host is made in the store.
    driftless_cast::check_sources(&sources, &dir).map_err(|error| {
        let code = Exit::of_cast_error(&error, signals.number());
        (code, error.to_string())
    })?;
    let ReachedNodes {
        nodes,
        ssh,
        identity,
        authority_pem,
        warnings,
    } = nodes::nodes(&args.nodes, &dir, signals)?;
    warnings.iter().for_each(|warning| output.warn(warning));
    Ok(CastSettings {
        sources: sources.into(),
        nodes,
        source_name: args.plan.source_name.clone().unwrap_or_else(host_name),
        topology,
        dir,
        place,
        keep: Keep::default(),
        rights: CopyRights::OfSource,
        content: ContentLimits {
            job: args.copies.job.clone(),
            reader: None,
            has_outbox: false,
            is_pinned: args.copies.pin,
            seconds_max: args.copies.ttl.map(|time| time.as_secs()),
        },
        ssh,
        identity,
        authority_pem,
        transfer: TransferSettings {
            bytes_per_second_max: args.bwlimit,
            connections: args.connections,
            ..TransferSettings::default()
        },
        limits: limits(args),
        start_wait: args.plan.start_wait,
    })
}

/// Returns the limits of the plan. The other ones have the defaults of the planner.
fn limits(args: &CastArgs) -> PlanLimits {
    PlanLimits {
        join_ms: milliseconds(args.plan.join_wait),
        rejoin_ms: milliseconds(args.plan.rejoin_wait),
        ..PlanLimits::default()
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub fn topology(file: Option<&Path>) -> Result<RackTopology, Unreached> {
    let Some(file) = file else {
        return Ok(RackTopology::default());
    };
    let refuse = |why: String| site::usage(&format!("{}: {why}", quote(file)));
    let text = site::read_text(file);
    let text = text.map_err(|why| site::usage(&site::unreadable(file, &why)))?;
    RackTopology::parse(&text).map_err(|error| refuse(error.to_string()))
}

/// Warns of nodes that the file of the topology lacks.
fn warn_of_lacking(settings: &CastSettings, file: &Path, output: &CastOutput) {
    let names = settings.nodes.iter().map(|node| node.name.as_str());
    let lacking: Vec<&str> = names
        .filter(|name| settings.topology.path(name).is_empty())
        .collect();
    if lacking.is_empty() {
        return;
    }
    let shown = nodes::some_of(&lacking);
    output.warn(&format!(
        "--topology {}: it has no switch of {shown}; they are last in the chain",
        quote(file)
    ));
}

/// Returns the sources as absolute paths, so that "." has a last name.
fn sources(given: &[PathBuf]) -> Result<Vec<PathBuf>, Unreached> {
    let resolve = |path: &PathBuf| {
        check_source(path)?;
        let resolved = match path.file_name() {
            Some(_) => std::path::absolute(path),
            None => return Ok(own::real_place(path)),
        };
        let cause = |error| driftless_model::cause(&error);
        resolved.map_err(|error| site::usage(&format!("{}: {}", quote(path), cause(error))))
    };
    given.iter().map(resolve).collect()
}

/// Refuses a source that this host lacks. The store reports other faults.
#[allow(
    clippy::disallowed_methods,
    reason = "the store opens the source itself"
)]
fn check_source(path: &Path) -> Result<(), Unreached> {
    let error = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => error,
        _ => return Ok(()),
    };
    let text = path.to_string_lossy();
    Err(match text.split_once(':') {
        Some((host, _)) if !host.is_empty() && !host.contains('/') => {
            let (path, host) = (escape_text(&text), escape_text(host));
            site::usage(&format!(
                "{path}: a source must be on this host; run the cast on {host}"
            ))
        }
        _ => {
            let (path, cause) = (quote(path), driftless_model::cause(&error));
            let why = format!("{path}: cannot look at it: {cause}; check SRC");
            (Exit::CouldNotRun, why)
        }
    })
}
