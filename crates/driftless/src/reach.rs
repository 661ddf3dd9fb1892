//! From what the user typed for a tree to where it is: here, or on another host that is connected to.

use crate::cli::ReachArgs;
use crate::exit;
use driftless_engine::Options;
use driftless_model::Keep;
use driftless_remote::{Reach, SshHost, Target};
use driftless_tree::{Endpoint, Host};
use std::sync::Arc;

/// Why a tree cannot be reached: the exit code, and what to say.
pub type Unreached = (u8, String);

/// Connects to the hosts that the run's trees are on.
pub fn connect(options: &mut Options, args: &ReachArgs) -> Result<(), Unreached> {
    let reach = reach(args, options.keep)?;
    if options.carrier.is_some() {
        [&options.source, &options.replica].into_iter().try_for_each(refuse_host)?;
    }
    for endpoint in [&mut options.source, &mut options.replica] {
        *endpoint = endpoint_of(endpoint, &reach)?;
    }
    Ok(())
}

fn reach(args: &ReachArgs, keep: Keep) -> Result<Reach, Unreached> {
    let words = shell_words::split(&args.ssh).map_err(|error| (exit::USAGE, format!("--ssh \"{}\": {error}", args.ssh)))?;
    if words.is_empty() {
        return Err((exit::USAGE, "--ssh names no command".into()));
    }
    Ok(Reach { ssh: words, agent: args.agent_path.clone(), keep, streams: args.streams.0, squeeze: args.compress })
}

/// A program on this host cannot be given a path of another.
fn refuse_host(typed: &Endpoint) -> Result<(), Unreached> {
    let host = Target::parse(typed.path.as_os_str()).ok().and_then(|target| target.host);
    let refusal =
        |host| format!("--copy-with needs both trees as paths of this host, and one is on {host}: mount it here, or leave --copy-with out");
    host.map_or(Ok(()), |host| Err((exit::USAGE, refusal(host))))
}

fn endpoint_of(typed: &Endpoint, reach: &Reach) -> Result<Endpoint, Unreached> {
    let target = Target::parse(typed.path.as_os_str()).map_err(|error| (exit::USAGE, error.to_string()))?;
    let Some(name) = target.host else { return Ok(typed.clone()) };
    let host: Arc<dyn Host> = SshHost::connect(&name, reach).map_err(|error| (exit::COULD_NOT_RUN, error.to_string()))?;
    Ok(Endpoint { host: Some(host), path: target.path })
}
