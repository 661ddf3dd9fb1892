//! From what the user typed for a tree to where it is: here, or on another host that is connected to.

use crate::cli::ReachArgs;
use crate::exit;
use driftless_engine::Options;
use driftless_model::{Keep, Side};
use driftless_remote::{Reach, Root, SshHost, Target};
use driftless_tree::{Endpoint, Host};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Why a tree cannot be reached: the exit code, and what to say.
pub type Unreached = (u8, String);

/// Connects to the hosts that the run's trees are on.
pub fn connect(options: &mut Options, args: &ReachArgs) -> Result<(), Unreached> {
    let reach = reach(args, options.keep)?;
    if options.carrier.is_some() {
        [&options.source, &options.replica].into_iter().try_for_each(refuse_host)?;
    }
    options.source = endpoint_of(&options.source, &reach, (Side::Source, None))?;
    options.replica = endpoint_of(&options.replica, &reach, (Side::Replica, options.link_dest.as_deref()))?;
    Ok(())
}

/// The command that connects to another host, with its arguments.
pub fn ssh_words(args: &ReachArgs) -> Result<Vec<String>, Unreached> {
    let words = shell_words::split(&args.ssh).map_err(|error| (exit::USAGE, format!("--ssh \"{}\": {error}", args.ssh)))?;
    if words.is_empty() {
        return Err((exit::USAGE, "--ssh names no command".into()));
    }
    Ok(words)
}

/// A program on this host cannot be given a path of another.
fn refuse_host(typed: &Endpoint) -> Result<(), Unreached> {
    let host = Target::parse(typed.path.as_os_str()).ok().and_then(|target| target.host);
    let refusal =
        |host| format!("--copy-with needs both trees as paths of this host, and one is on {host}: mount it here, or leave --copy-with out");
    host.map_or(Ok(()), |host| Err((exit::USAGE, refusal(host))))
}

fn reach(args: &ReachArgs, keep: Keep) -> Result<Reach, Unreached> {
    Ok(Reach { ssh: ssh_words(args)?, agent: args.agent_path.clone(), keep, streams: args.streams.0, squeeze: args.compress })
}

/// Connects, if need be, for what was typed and one more path on the same side.
fn endpoint_of(typed: &Endpoint, reach: &Reach, (side, more): (Side, Option<&Path>)) -> Result<Endpoint, Unreached> {
    let target = Target::parse(typed.path.as_os_str()).map_err(|error| (exit::USAGE, error.to_string()))?;
    let Some(name) = target.host else { return Ok(typed.clone()) };
    let root = |path: &Path| Root { path: path.as_os_str().as_bytes().to_vec(), side };
    let roots = std::iter::once(&*target.path).chain(more).map(root).collect();
    let host: Arc<dyn Host> = SshHost::connect(&name, roots, reach).map_err(|error| (exit::COULD_NOT_RUN, error.to_string()))?;
    Ok(Endpoint { host: Some(host), path: target.path })
}
