//! The node daemon: serves the casts of several coordinators, and questions of local users.

use crate::{DaemonSettings, Error, PeerKey};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

/// A node daemon that listens.
pub struct NodeDaemon {
    key: PeerKey,
    address: SocketAddr,
}

impl NodeDaemon {
    /// Opens the store, removes unfinished copies that no process needs, and listens for
    /// coordinators and on the Unix socket `node.sock` in the store's directory.
    ///
    /// # Errors
    /// Fails if the store or the key cannot be opened, no port is free, or another daemon serves
    /// this directory.
    pub fn start(_settings: &DaemonSettings) -> Result<Self, Error> {
        Err(Error::Stopped)
    }

    /// Returns the key that coordinators know this daemon by.
    pub fn key(&self) -> PeerKey {
        self.key
    }

    /// Returns the address and port for coordinators.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is set. Casts at work end then, and keep what they have received.
    ///
    /// # Errors
    /// Fails if the kernel refuses a thread.
    pub fn run(self, _stop: &AtomicBool) -> Result<(), Error> {
        Ok(())
    }
}
