//! From what the user typed for a tree to where it is: here, or on another host that is connected to, and connected to again.

use crate::args::ReachArgs;
use crate::exit::Exit;
use crate::signals::Signals;
use driftless_engine::Options;
use driftless_model::{Keep, Side};
use driftless_remote::{Deploy, May, Reach, ReachError, Root, SshHost, Target};
use driftless_tree::{Endpoint, Host};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Why a tree cannot be reached: the exit code, and what to say.
pub type Unreached = (Exit, String);

/// The lines to the hosts of a run's trees: the source's and the replica's.
pub struct Lines {
    hosts: [Option<Arc<SshHost>>; 2],
    /// How long a line that is lost is tried to be made again, in vain.
    pub patience: Duration,
}

/// Connects to the hosts that the run's trees are on.
pub fn connect(options: &mut Options, args: &ReachArgs, signals: &Signals) -> Result<Lines, Unreached> {
    let reach = reach(args, options.keep, &signals.stop)?;
    if options.carrier.is_some() {
        [&options.source, &options.replica].into_iter().try_for_each(refuse_host)?;
    }
    let mut lines = Lines { hosts: [None, None], patience: Duration::from_secs(args.reconnect) };
    let link_dest = options.link_dest.clone();
    refuse_host_in(link_dest.as_deref())?;
    let (dry_run, delete) = (options.dry_run, options.delete);
    let sides = [(&mut options.source, Side::Source, None), (&mut options.replica, Side::Replica, link_dest.as_deref())];
    for ((endpoint, side, more), line) in sides.into_iter().zip(&mut lines.hosts) {
        let target = Target::parse(endpoint.path.as_os_str()).map_err(|error| (Exit::Usage, error.to_string()))?;
        if let Some(name) = target.host {
            let root = |path: &Path| Root { path: path.as_os_str().as_bytes().to_vec(), side };
            let roots = std::iter::once(&*target.path).chain(more).map(root).collect();
            let host = SshHost::connect(&name, roots, &reach).map_err(|error| unreached(&error, signals))?;
            if side == Side::Replica && !dry_run {
                refuse_limited(&host, delete)?;
            }
            *line = Some(host.clone());
            *endpoint = Endpoint { host: Some(host), path: target.path };
        }
    }
    Ok(lines)
}

/// Nobody asks why a host was not reached who has asked not to wait for it.
fn unreached(error: &ReachError, signals: &Signals) -> Unreached {
    match signals.number() {
        0 => (Exit::CouldNotRun, error.to_string()),
        signal => (Exit::Signal(signal), "stopped before anything was done".into()),
    }
}

/// A command with its arguments, cut into words as a shell does.
fn words_of(option: &str, typed: &str) -> Result<Vec<String>, Unreached> {
    let words = shell_words::split(typed).map_err(|error| (Exit::Usage, format!("{option} \"{typed}\": {error}")))?;
    if words.is_empty() {
        return Err((Exit::Usage, format!("{option} names no command")));
    }
    Ok(words)
}

/// `--link-dest` is a path on the replica's host, whichever that is.
fn refuse_host_in(link_dest: Option<&Path>) -> Result<(), Unreached> {
    let Some(typed) = link_dest else { return Ok(()) };
    let Ok(Target { host: Some(_), path }) = Target::parse(typed.as_os_str()) else { return Ok(()) };
    let (typed, path) = (driftless_model::quote(typed), driftless_model::quote(&path));
    Err((Exit::Usage, format!("--link-dest {typed}: DIR is a path on the replica's host, without the host: {path}")))
}

/// What the agent on the replica's host will not do, whoever asks.
fn refuse_limited(host: &SshHost, delete: bool) -> Result<(), Unreached> {
    let why = match host.limits().may {
        May::Read => "only reads (driftless agent --read-only): nothing can be copied there with this login",
        May::Keep if delete => "removes nothing (driftless agent --no-delete): leave --delete out",
        May::Keep | May::Everything => return Ok(()),
    };
    Err((Exit::Refused, format!("{}: the agent there {why}", host.name())))
}

/// A program on this host cannot be given a path of another.
fn refuse_host(typed: &Endpoint) -> Result<(), Unreached> {
    let host = Target::parse(typed.path.as_os_str()).ok().and_then(|target| target.host);
    let refusal =
        |host| format!("--copy-with needs both trees as paths of this host, and one is on {host}: mount it here, or leave --copy-with out");
    host.map_or(Ok(()), |host| Err((Exit::Usage, refusal(host))))
}

/// How hosts are reached.
pub fn reach(args: &ReachArgs, keep: Keep, stop: &Arc<AtomicBool>) -> Result<Reach, Unreached> {
    let deploy = args.deploy.clone().map(|file| file.map_or(Deploy::Own, Deploy::File));
    let streams = args.streams.0;
    let (ssh, agent) = (words_of("--ssh", &args.ssh)?, words_of("--agent-path", &args.agent_path)?);
    Ok(Reach { ssh, agent, keep, streams, compress: args.compress, deploy, stop: stop.clone() })
}

impl Lines {
    /// Whether there is a line that can be lost.
    pub fn are_there(&self) -> bool {
        self.hosts.iter().any(Option::is_some)
    }

    /// Tells what the user should know of the lines and was not told yet.
    pub fn tell(&self, note: impl Fn(&str)) {
        self.hosts.iter().flatten().flat_map(|host| host.notes()).for_each(|text| note(&text));
    }

    /// The name of a host whose line is lost, if there is one.
    pub fn lost(&self) -> Option<&str> {
        let lost = self.hosts.iter().flatten().find(|host| host.lost().is_some());
        lost.map(|host| host.name())
    }

    /// Tries once to make the first lost line again, until `give_up` says so.
    pub fn mend(&mut self, options: &mut Options, give_up: &dyn Fn() -> bool) -> Result<(), ReachError> {
        for (endpoint, line) in [&mut options.source, &mut options.replica].into_iter().zip(&mut self.hosts) {
            if let Some(lost) = line.as_ref().filter(|host| host.lost().is_some()) {
                let host = lost.connect_again(give_up)?;
                *line = Some(host.clone());
                endpoint.host = Some(host);
                return Ok(());
            }
        }
        Ok(())
    }
}
