//! Nodes of a cluster, from the arguments of `cast`, `node` and `doctor`: the list, the ways to the
//! nodes, and the keys and certificates of this host.

use crate::args::{NodesArgs, WaysArgs};
use crate::command::daemons::{daemons, warn_of_unused};
use crate::command::reach::{self, Unreached};
use crate::command::site::{read_file, read_text, site, unreadable, usage};
use crate::exit::Exit;
use crate::own;
use crate::signals::Signals;
use driftless_cast::{CastNode, HostlistError, NodeAccess, SshStart, TlsIdentity, parse_hostlist};
use driftless_model::{cause, quote};
use driftless_remote::Deploy;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// File of the key pair of casts, in the directory of their store.
const IDENTITY: &str = "coordinator.pem";
/// Directory of the node that root runs.
pub const NODE_DIR: &str = "/var/lib/driftless/node";
/// Nodes that a message names.
const NAMES_MAX: usize = 20;

/// Nodes and the ways to them.
pub struct ReachedNodes {
    pub nodes: Vec<CastNode>,
    /// Start through ssh. `None` if every node has a daemon.
    pub ssh: Option<SshStart>,
    /// Key pair for daemons. `None` if no node has a daemon.
    pub identity: Option<TlsIdentity>,
    pub authority_pem: Option<Vec<u8>>,
    /// Warnings for the user before the nodes are reached.
    pub warnings: Vec<String>,
}

/// Returns the nodes of the arguments. `dir` is the directory of this host's store.
pub fn nodes(args: &NodesArgs, dir: &Path, signals: &Signals) -> Result<ReachedNodes, Unreached> {
    listed(&args.nodes, &args.ways, dir, signals)
}

/// Returns the nodes of a list.
pub fn listed(
    list: &str,
    args: &WaysArgs,
    dir: &Path,
    signals: &Signals,
) -> Result<ReachedNodes, Unreached> {
    let names = parse_hostlist(list, &mut |path| read_text(Path::new(path)));
    let names = names.map_err(|error| usage(&unlisted(&error)))?;
    let has_authority = args.site.ca.is_some();
    let mut warnings = Vec::new();
    let daemons = match &args.daemons {
        Some(file) => {
            let daemons = daemons(file, has_authority)?;
            warnings.extend(warn_of_unused(file, &daemons, &names));
            daemons
        }
        None => BTreeMap::new(),
    };
    let nodes: Vec<CastNode> = names
        .into_iter()
        .map(|name| CastNode {
            access: daemons.get(&name).cloned().unwrap_or(NodeAccess::Ssh),
            name,
        })
        .collect();
    if has_authority {
        check_daemons(&nodes)?;
    }
    let needs_ssh = nodes.iter().any(|node| node.access == NodeAccess::Ssh);
    let has_daemon = nodes.iter().any(|node| node.access != NodeAccess::Ssh);
    let ssh = needs_ssh.then(|| start(args, signals)).transpose()?;
    let (identity, authority_pem) = match site(&args.site)? {
        Some(site) => {
            warnings.extend(site.warnings);
            (Some(site.identity), Some(site.authority_pem))
        }
        None if has_daemon => (Some(identity(dir)?), None),
        None => (None, None),
    };
    Ok(ReachedNodes {
        nodes,
        ssh,
        identity,
        authority_pem,
        warnings,
    })
}

/// Refuses nodes without a daemon: a node that ssh starts has no certificate.
fn check_daemons(nodes: &[CastNode]) -> Result<(), Unreached> {
    let lacking = nodes.iter().filter(|node| node.access == NodeAccess::Ssh);
    let lacking: Vec<&str> = lacking.map(|node| node.name.as_str()).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let names = some_of(&lacking);
    Err(usage(&format!(
        "--ca: --daemons has no line for {names}, and nodes that ssh starts have no certificate; add the lines, or cast without --ca"
    )))
}

/// Returns names for a message. A long list is cut.
pub fn some_of(names: &[&str]) -> String {
    let shown = names.get(..NAMES_MAX).unwrap_or(names).join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns the message for a list of nodes that cannot be used.
fn unlisted(error: &HostlistError) -> String {
    match error {
        HostlistError::File { path, cause } => {
            let file = quote(Path::new(path));
            format!("--nodes @{path}: cannot read the file {file}: {cause}")
        }
        error => format!("--nodes: {error}"),
    }
}

/// Returns the start of nodes through ssh.
fn start(args: &WaysArgs, signals: &Signals) -> Result<SshStart, Unreached> {
    let mut arguments: Vec<String> = vec!["node".into(), "--for-one-cast".into()];
    arguments.extend(["--ports".into(), args.ports.to_string()]);
    if let Some(dir) = &args.node_dir {
        let text = dir.to_str().filter(|_| dir.is_absolute());
        let text = text.ok_or_else(|| usage("--node-dir: it is not an absolute path in UTF-8"))?;
        arguments.extend(["--dir".into(), text.into()]);
    }
    let reach = reach::start(&args.ssh, &signals.stop)?;
    if let Some(deploy) = &reach.deploy {
        driftless_remote::check_deploy(deploy).map_err(|why| undeployable(deploy, &why))?;
    }
    Ok(SshStart { reach, arguments })
}

/// Returns the error for a program that no node could use. The cause names the program.
fn undeployable(deploy: &Deploy, why: &str) -> Unreached {
    match deploy {
        Deploy::Own => usage(&format!("--deploy: {why}")),
        Deploy::File(_) => usage(&format!("--deploy {why}")),
    }
}

/// Returns the key pair of casts from this host. A new one is made if the file is missing.
pub fn identity(dir: &Path) -> Result<TlsIdentity, Unreached> {
    let path = dir.join(IDENTITY);
    let failed = |why: String| (Exit::CouldNotRun, format!("{}: {why}", quote(&path)));
    own::make_private_folder(dir).map_err(|why| (Exit::CouldNotRun, why))?;
    if let Some(pem) = existing(&path).map_err(failed)? {
        return TlsIdentity::from_pem(&pem).map_err(|error| failed(error.to_string()));
    }
    let identity = TlsIdentity::generate().map_err(|error| failed(error.to_string()))?;
    let written = write_new(&path, identity.to_pem().as_bytes());
    match written {
        Ok(()) => Ok(identity),
        // Another process made the key in the meantime.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let pem = read_file(&path);
            let pem = pem.map_err(|why| (Exit::CouldNotRun, unreadable(&path, &why)))?;
            TlsIdentity::from_pem(&pem).map_err(|error| failed(error.to_string()))
        }
        Err(error) => Err(failed(format!("cannot write: {}", cause(&error)))),
    }
}

/// Returns the content of a file, or `None` if the file is missing.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
fn existing(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read: {}", cause(&error))),
    }
}

/// Writes a file of mode 0600 that appears whole, and replaces no other file.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("/")))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)
        .map_err(|error| error.error)
        .map(drop)
}

/// Returns the directory of the store of casts from this host.
pub fn cast_dir(given: Option<&Path>) -> Result<PathBuf, Unreached> {
    match given {
        Some(dir) => absolute(dir),
        None => own::state_folder()
            .map(|folder| folder.join("cast"))
            .map_err(|why| {
                (
                    Exit::CouldNotRun,
                    format!("{why}; name a directory with --dir"),
                )
            }),
    }
}

/// Returns the directory of the node of this host. Home directories can be shared by hosts, so the
/// name of the host is a part of it.
pub fn node_dir(given: Option<&Path>) -> Result<PathBuf, Unreached> {
    if let Some(dir) = given {
        return absolute(dir);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(NODE_DIR.into());
    }
    let host = crate::output::human::host_name();
    own::state_folder()
        .map(|folder| folder.join(format!("node-{host}")))
        .map_err(|why| {
            (
                Exit::CouldNotRun,
                format!("{why}; name a directory with --dir"),
            )
        })
}

fn absolute(dir: &Path) -> Result<PathBuf, Unreached> {
    std::path::absolute(dir).map_err(|error| usage(&format!("{}: {}", quote(dir), cause(&error))))
}

/// Returns an absolute path on the nodes, or what to change.
pub fn place(option: &str, path: &Path) -> Result<PathBuf, Unreached> {
    if path.is_absolute() && !path.as_os_str().as_bytes().contains(&0) {
        Ok(path.to_owned())
    } else {
        let path = quote(path);
        Err(usage(&format!(
            "{option} {path}: not absolute; write the whole path"
        )))
    }
}
