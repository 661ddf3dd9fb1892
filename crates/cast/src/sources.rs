//! Sources of another user: an agent that runs as this user reads them.

use crate::{Error, Reach};
use driftless_remote::{ROOTS_MAX, Root, SshHost};
use driftless_store::{CastSources, Host, OpenSource};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens paths through an agent, which `reach` starts: on another host with ssh, or on this host with a
/// command in the place of ssh. That command gets `--`, the name, and a line for the shell. `name` is
/// the host or the user, for messages.
///
/// An agent serves some paths, so many paths have several agents. An agent ends with the last owner of
/// its sources. It can read with its rights alone, and this
/// process believes nothing that it says of the host.
///
/// # Errors
/// The agent cannot be started, or does not open a path.
pub fn open_through_agent(
    name: &str,
    paths: &[PathBuf],
    reach: &Reach,
) -> Result<CastSources, Error> {
    let mut sources = Vec::new();
    for some in paths.chunks(ROOTS_MAX) {
        sources.extend(open_some(name, some, reach)?);
    }
    Ok(CastSources::Open(sources))
}

/// Opens as many paths as one agent serves.
fn open_some(name: &str, paths: &[PathBuf], reach: &Reach) -> Result<Vec<OpenSource>, Error> {
    let root = |path: &PathBuf| Root {
        path: path.as_os_str().as_bytes().to_vec(),
        side: driftless_model::Side::Source,
    };
    let roots = paths.iter().map(root).collect();
    let host: Arc<dyn Host> = SshHost::connect(name, roots, reach)?;
    let open = |path: &PathBuf| OpenSource::at(&host, Path::new(path));
    let sources: Result<Vec<OpenSource>, _> = paths.iter().map(open).collect();
    Ok(sources?)
}
