//! From what the user typed for a tree to where it is: here, or on another host that is connected
//! to, and connected to again.

use driftless_engine::Options;
use driftless_model::Side;
use driftless_remote::{May, Reach, ReachError, Root, SshHost, Target, TargetError};
use driftless_tree::{Endpoint, Host};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why the trees of a run cannot be reached.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// What was typed cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// A host was reached, and does not do what the run needs.
    #[error("{0}")]
    Refused(String),
    /// A host was not reached.
    #[error(transparent)]
    Unreached(#[from] ReachError),
}

/// The connections to the hosts of a run's trees.
pub struct Connections {
    /// To the source's host and to the replica's; none to this one.
    hosts: [Option<Arc<SshHost>>; 2],
    /// How long a run tries to make a lost connection again.
    pub(crate) patience: Duration,
}

/// Connects to the hosts of the trees that `options` names as the user typed them, and has
/// `options` name what was found there.
///
/// # Errors
/// A tree's text is no place, a host cannot be reached, or its agent does not do what this run
/// needs.
pub fn connect(
    options: &mut Options,
    reach: &Reach,
    patience: Duration,
) -> Result<Connections, ConnectError> {
    let reach = Reach {
        keep: options.policy.keep,
        ..reach.clone()
    };
    if options.carrier.is_some() {
        [&options.source, &options.replica]
            .into_iter()
            .try_for_each(refuse_host)?;
    }
    let mut connections = Connections {
        hosts: [None, None],
        patience,
    };
    let link_dest = options.link_dest.clone();
    refuse_host_in(link_dest.as_deref())?;
    let (applies, delete) = (options.applies(), options.policy.delete);
    let sides = [
        (&mut options.source, Side::Source, None),
        (&mut options.replica, Side::Replica, link_dest.as_deref()),
    ];
    for ((endpoint, side, more), connection) in sides.into_iter().zip(&mut connections.hosts) {
        let target = Target::parse(endpoint.path.as_os_str())
            .map_err(|error| ConnectError::Usage(error.to_string()))?;
        if let Some(name) = target.host {
            let root = |path: &Path| Root {
                path: path.as_os_str().as_bytes().to_vec(),
                side,
            };
            let roots = std::iter::once(&*target.path)
                .chain(more)
                .map(root)
                .collect();
            let host = SshHost::connect(&name, roots, &reach)?;
            if side == Side::Replica && applies {
                refuse_limited(&host, delete)?;
            }
            *connection = Some(host.clone());
            *endpoint = Endpoint {
                host: Some(host),
                path: target.path,
            };
        }
    }
    Ok(connections)
}

/// `--link-dest` is a path on the replica's host, whichever that is.
fn refuse_host_in(link_dest: Option<&Path>) -> Result<(), ConnectError> {
    let Some(typed) = link_dest else {
        return Ok(());
    };
    let path = match Target::parse(typed.as_os_str()) {
        Ok(Target {
            host: Some(_),
            path,
        }) => path,
        Err(error @ TargetError::Foreign { .. }) => {
            return Err(ConnectError::Usage(format!("--link-dest {error}")));
        }
        _ => return Ok(()),
    };
    let (typed, path) = (driftless_model::quote(typed), driftless_model::quote(&path));
    Err(ConnectError::Usage(format!(
        "--link-dest {typed}: DIR is a path on the replica's host, without the host: {path}"
    )))
}

/// Refuses a run that wants more than the agent on the replica's host lets anybody do.
fn refuse_limited(host: &SshHost, delete: bool) -> Result<(), ConnectError> {
    let why = match host.limits().may {
        May::Read => {
            "only reads (driftless agent --read-only): nothing can be copied there with this login"
        }
        May::Keep if delete => "removes nothing (driftless agent --no-delete): leave --delete out",
        May::Keep | May::Everything => return Ok(()),
    };
    Err(ConnectError::Refused(format!(
        "{}: the agent there {why}",
        host.name()
    )))
}

/// A program on this host cannot be given a path of another.
fn refuse_host(typed: &Endpoint) -> Result<(), ConnectError> {
    let host = Target::parse(typed.path.as_os_str())
        .ok()
        .and_then(|target| target.host);
    let refusal = |host| {
        format!(
            "--copy-with needs both trees as paths of this host, and one is on {host}: mount it here, or leave --copy-with out"
        )
    };
    host.map_or(Ok(()), |host| Err(ConnectError::Usage(refusal(host))))
}

impl Connections {
    /// Whether a lost connection would be made again: there is one, and the run tries at all.
    pub fn may_come_again(&self) -> bool {
        self.hosts.iter().any(Option::is_some) && !self.patience.is_zero()
    }

    /// Tells what the user should know of the connections and was not told yet.
    pub fn tell(&self, note: impl Fn(&str)) {
        self.hosts
            .iter()
            .flatten()
            .flat_map(|host| host.notes())
            .for_each(|text| note(&text));
    }

    /// The name of a host whose connection is lost, if there is one.
    pub fn lost(&self) -> Option<&str> {
        let lost = self
            .hosts
            .iter()
            .flatten()
            .find(|host| host.lost().is_some());
        lost.map(|host| host.name())
    }

    /// Tries once to make the first lost connection again, until `give_up` says so.
    ///
    /// # Errors
    /// The host cannot be reached now, or not at all.
    pub(crate) fn mend(
        &mut self,
        options: &mut Options,
        give_up: &dyn Fn() -> bool,
    ) -> Result<(), ReachError> {
        for (endpoint, connection) in [&mut options.source, &mut options.replica]
            .into_iter()
            .zip(&mut self.hosts)
        {
            if let Some(lost) = connection.as_ref().filter(|host| host.lost().is_some()) {
                let host = lost.connect_again(give_up)?;
                *connection = Some(host.clone());
                endpoint.host = Some(host);
                return Ok(());
            }
        }
        Ok(())
    }
}
