//! The command `gateway`: from arguments to a gateway that runs until a signal ends it.

use crate::args::{GatewayArgs, SocketArgs};
use crate::command::cast::topology;
use crate::command::nodes::{self, ReachedNodes};
use crate::command::reach::Unreached;
use crate::command::record;
use crate::command::site::usage;
use crate::exit::Exit;
use crate::output::human::host_name;
use crate::output::{diagnostics, mirror as say};
use crate::signals::{self, Signals};
use crate::{own, service};
use driftless_batch::{BatchKind, BatchSystem, CommandSettings};
use driftless_cast::{NodeAccess, TransferSettings};
use driftless_gateway::{Casts, CastsSettings, Gateway, GatewaySettings};
use driftless_model::{cause, quote};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Directory of the gateways that root runs.
const GATEWAY_DIR: &str = "/var/lib/driftless/gateway";
/// Name of the directory of deposits.
const DEPOSITS: &str = "deposits";
/// Name of the socket in the runtime directory.
const SOCKET: &str = "gateway.sock";

/// Runs the gateway; returns the exit code.
pub fn run(args: &GatewayArgs) -> Exit {
    own::give_up_umask();
    diagnostics::start("gateway", &args.log);
    let signals = signals::watch();
    let code = serve(args, &signals).unwrap_or_else(|(code, why)| {
        say::complaint(&why);
        code
    });
    say::final_code(code)
}

fn serve(args: &GatewayArgs, signals: &Signals) -> Result<Exit, Unreached> {
    let failed = |error: driftless_gateway::Error| match &error {
        driftless_gateway::Error::State(state) => record::refusal(state),
        _ => (Exit::of_gateway_error(&error), error.to_string()),
    };
    let kind = BatchKind::from(args.system);
    if args.without_rights && kind != BatchKind::Slurm {
        let why = format!(
            "--without-rights: {kind} lets no user exclude nodes from a job; only Slurm does"
        );
        return Err(usage(&why));
    }
    let dir = gateway_dir(args.dir.as_deref())?;
    let deposits = deposits_dir(args.deposits.as_deref(), &dir)?;
    own::make_private_folder(&dir).map_err(|why| (Exit::CouldNotRun, why))?;
    let socket = match &args.socket.gateway {
        Some(path) => path.clone(),
        None => own::runtime_folder()
            .map(|folder| folder.join(SOCKET))
            .map_err(|why| usage(&format!("{why}; name a socket with --gateway")))?,
    };
    let casts = Casts::new(casts_settings(args, (&dir, &socket), signals)?);
    let batch: Arc<dyn BatchSystem> =
        Arc::from(driftless_batch::system(kind, CommandSettings::default()));
    let mut settings =
        GatewaySettings::new(dir, socket, args.name.clone().unwrap_or_else(host_name));
    settings.deposits = deposits;
    settings.has_slots = !args.without_rights;
    settings.slots_max = u32::try_from(args.slots).unwrap_or(u32::MAX);
    settings.casts_max = usize::try_from(args.casts).unwrap_or(usize::MAX);
    settings.collections_max = usize::try_from(args.collections).unwrap_or(usize::MAX);
    let gateway = Gateway::start(settings, Arc::clone(&batch), Arc::new(casts)).map_err(failed)?;
    tracing::info!("serves jobs of {kind}");
    warn_of_rights(args, kind);
    ask_once(batch);
    let service = service::begin(ServedGateway, signals.stop.clone());
    let ended = gateway.run(&signals.stop).map_err(failed);
    service::end(&signals.stop, service);
    ended?;
    Ok(Exit::of_mover(signals.number()))
}

/// Warns if this user probably may not change nodes.
fn warn_of_rights(args: &GatewayArgs, kind: BatchKind) {
    let is_root = rustix::process::geteuid().is_root();
    if kind == BatchKind::Slurm && !is_root && !args.without_rights {
        tracing::warn!(
            "this user is not root: only administrators of Slurm may change nodes; without that right, add --without-rights"
        );
    }
}

/// Asks the batch system once, and warns if it gives no answer: without jobs, the gateway would not ask.
/// A controller that starts later delays no client, so the question has a thread of its own.
fn ask_once(batch: Arc<dyn BatchSystem>) {
    let ask = move || {
        if let Err(error) = batch.marked() {
            let system = batch.kind().word();
            tracing::warn!(
                "--system {system}: {error}; check that this is the batch system of this host"
            );
        }
    };
    let thread = std::thread::Builder::new().name("first-question".into());
    let _the_first_job_asks_as_well = thread.spawn(ask);
}

/// State of the gateway for the service manager. The gateway has no turns that could be missed.
struct ServedGateway;

impl service::Served for ServedGateway {
    fn idle(&self) -> Duration {
        Duration::ZERO
    }

    fn words(&self) -> Option<String> {
        None
    }
}

/// Returns the settings of the casts of a gateway with the directory `dir`.
fn casts_settings(
    args: &GatewayArgs,
    (dir, socket): (&Path, &Path),
    signals: &Signals,
) -> Result<CastsSettings, Unreached> {
    // Gateways of one directory share a key. The index of a store is for one host.
    let shared = dir.join("cast");
    let store = dir.join(format!("store-{}", escape_name(&host_name())));
    let ReachedNodes {
        nodes,
        ssh,
        identity,
        authority_pem,
        warnings,
    } = nodes::nodes(&args.nodes, &shared, signals)?;
    warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
    let needs_dir = nodes.iter().any(|node| node.access == NodeAccess::Ssh);
    let program = program()?;
    Ok(CastsSettings {
        node_dir: node_dir(args, needs_dir)?,
        nodes,
        ssh,
        identity,
        authority_pem,
        topology: topology(args.topology.as_deref())?,
        source_name: host_name(),
        dir: store,
        transfer: TransferSettings {
            bytes_per_second_max: args.bwlimit,
            ..TransferSettings::default()
        },
        program,
        relay_dir: socket.with_file_name("gateway-relay"),
    })
}

/// Returns the path of this program, or of the version that replaced its file.
pub fn program() -> Result<String, Unreached> {
    let failed = |why: String| (Exit::CouldNotRun, format!("the program itself: {why}"));
    let path = std::env::current_exe().map_err(|error| failed(cause(&error)))?;
    let shown = quote(&path);
    let text = path.into_os_string().into_string();
    let text = text.map_err(|_| failed(format!("{shown} is not UTF-8")))?;
    // proc(5), `/proc/PID/exe`: so ends the path of a file that was replaced.
    let path = text.strip_suffix(" (deleted)").unwrap_or(&text);
    Ok(path.to_owned())
}

/// Returns a host name as a part of a file name.
fn escape_name(name: &str) -> String {
    name.replace('/', "_")
}

/// Returns the directory of the stores on the nodes, by which tasks find the data.
fn node_dir(args: &GatewayArgs, is_by_ssh: bool) -> Result<PathBuf, Unreached> {
    match &args.nodes.ways.node_dir {
        Some(dir) => nodes::place("--node-dir", dir),
        None if rustix::process::geteuid().is_root() || !is_by_ssh => Ok(nodes::NODE_DIR.into()),
        None => Err(usage(
            "--node-dir is missing: name a directory that is the same on all nodes, such as /scratch/USER/driftless",
        )),
    }
}

fn gateway_dir(given: Option<&Path>) -> Result<PathBuf, Unreached> {
    match given {
        None if rustix::process::geteuid().is_root() => Ok(GATEWAY_DIR.into()),
        None => own::state_folder()
            .map(|folder| folder.join("gateway"))
            .map_err(|why| (Exit::CouldNotRun, format!("{why}; name one with --dir"))),
        given => nodes::cast_dir(given),
    }
}

/// Returns the directory of deposits. Users pass through the directory above it, so that is created
/// before the private directory of the gateway, which may be beside it.
fn deposits_dir(given: Option<&Path>, dir: &Path) -> Result<PathBuf, Unreached> {
    let deposits = match given {
        Some(given) => std::path::absolute(given)
            .map_err(|error| usage(&format!("--deposits {}: {}", quote(given), cause(&error))))?,
        None if rustix::process::geteuid().is_root() => dir.with_file_name(DEPOSITS),
        None => dir.join(DEPOSITS),
    };
    if let Some(above) = deposits.parent().filter(|above| !above.starts_with(dir)) {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(above).map_err(|error| {
            let why = format!("{}: cannot create it: {}", quote(above), cause(&error));
            (
                Exit::CouldNotRun,
                format!("{why}; name another directory with --deposits"),
            )
        })?;
    }
    Ok(deposits)
}

/// Returns the socket of the gateway that a client asks: the named one, or the first that is there.
#[allow(
    clippy::disallowed_methods,
    reason = "our own socket, no part of a replicated tree"
)]
pub fn socket_of(args: &SocketArgs) -> PathBuf {
    if let Some(path) = &args.gateway {
        return path.clone();
    }
    let mut places = own::runtime_places();
    // The user's own gateway comes first.
    places.reverse();
    let sockets: Vec<PathBuf> = places.iter().map(|place| place.join(SOCKET)).collect();
    let found = sockets.iter().find(|path| path.exists());
    let or_last = found.or(sockets.last());
    or_last.cloned().unwrap_or_else(|| PathBuf::from(SOCKET))
}
