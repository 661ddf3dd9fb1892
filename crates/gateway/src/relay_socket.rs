//! Socket by which the run of a user reaches the results on a node.
//!
//! Root makes it and gives it to the user (the capability `CAP_CHOWN`). No other user can connect.

use rustix::fs::{Gid, Uid, chown};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Socket to which the run of a user connects.
pub(crate) struct RelaySocket {
    pub listener: UnixListener,
    pub path: PathBuf,
}

impl RelaySocket {
    /// Listens in a directory that users can pass and not list. Only the user can connect.
    #[allow(clippy::disallowed_methods, reason = "a socket of the gateway itself")]
    pub fn new(dir: &Path, uid: u32) -> Result<Self, String> {
        let failed = |error: io::Error| {
            let dir = driftless_model::quote(dir);
            format!("{dir}: cannot listen: {}", driftless_model::cause(&error))
        };
        let made = DirBuilder::new().recursive(true).mode(0o711).create(dir);
        made.map_err(failed)?;
        let meta = rustix::fs::lstat(dir).map_err(|error| failed(error.into()))?;
        if meta.st_uid != rustix::process::geteuid().as_raw() {
            return Err(failed(ErrorKind::PermissionDenied.into()));
        }
        let path = dir.join(format!("{:016x}", fastrand::u64(..)));
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let socket = RelaySocket { listener, path };
        // The process has no umask. No other user may take the place of the run.
        let own = Permissions::from_mode(0o600);
        fs::set_permissions(&socket.path, own).map_err(failed)?;
        let given = chown(&socket.path, Some(Uid::from_raw(uid)), None::<Gid>);
        given.map_err(|error| failed(error.into()))?;
        socket.listener.set_nonblocking(true).map_err(failed)?;
        Ok(socket)
    }
}

#[allow(clippy::disallowed_methods, reason = "a socket of the gateway itself")]
impl Drop for RelaySocket {
    fn drop(&mut self) {
        let _it_is_of_no_use = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a socket of the test")]
mod tests {
    use super::*;

    #[test]
    fn relay_socket_is_closed_to_others() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let own = rustix::process::geteuid().as_raw();
        let socket = RelaySocket::new(&folder.path().join("relay"), own).expect("a socket");
        let meta = fs::metadata(&socket.path).expect("there");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        let path = socket.path.clone();
        drop(socket);
        assert!(fs::metadata(path).is_err());
    }
}
