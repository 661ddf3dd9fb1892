//! Where a relative root of a client begins: in the directory that the agent was started in, which
//! is the home directory.
//!
//! Unless that cannot be entered: then sshd(8) starts the agent in `/`, and `data` would silently
//! be `/data`.

use crate::agent::objects::OpenDir;
use driftless_model::{Act, Side, errno};
use driftless_tree::{HandlePool, Place, RootError, locate, locate_mut};
use rustix::fs::{Access, access, stat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// What stands at a path that a client has named.
pub fn find(
    (path, side): (&[u8], Side),
    pool: &Arc<HandlePool>,
) -> Result<Place<OpenDir>, RootError> {
    let path = Path::new(OsStr::from_bytes(path));
    match astray().filter(|_| path.is_relative()) {
        Some(errno) => Err(RootError::from_errno(path, Act::BeginAtHome, errno)),
        None if side == Side::Source => Ok(locate(path, side, pool)?.map(OpenDir::Read)),
        None => Ok(locate_mut(path, pool)?.map(OpenDir::Write)),
    }
}

/// Why this process is in `/` although the home directory is another one (errno(3)). Where nothing
/// tells which that is, `/` will do.
fn astray() -> Option<i32> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    let id = |path: &Path| stat(path).map(|st| (st.st_dev, st.st_ino));
    let (here, top) = (id(Path::new(".")), id(Path::new("/")));
    if here != top || id(Path::new(&home)) == top {
        return None;
    }
    Some(
        access(Path::new(&home), Access::EXEC_OK)
            .map_or_else(|errno| errno.raw_os_error(), |()| errno::EINVAL),
    )
}
