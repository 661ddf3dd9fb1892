//! The thread that sends the heartbeats of all connections of an endpoint.
//!
//! A thread of its own, because the threads of the caller may wait for a disk or a slow peer. It
//! never waits for a socket. It ends with the endpoint and its last connection.

use crate::Error;
use driftless_lock::Mutex;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// Stack of the thread in bytes. It calls rustls, which needs a few KiB.
const STACK_BYTES: usize = 256 << 10;

/// A connection that needs heartbeats.
pub(crate) trait HeartbeatSource: Send + Sync {
    /// Sends a heartbeat if this end is idle. Must not wait for the peer.
    fn beat(&self);
}

/// Connections that need heartbeats.
pub(crate) struct Heartbeats {
    links: Mutex<Vec<Weak<dyn HeartbeatSource>>>,
}

impl Heartbeats {
    /// Starts the thread.
    pub(crate) fn start(interval: Duration) -> Result<Arc<Self>, Error> {
        let heartbeats = Arc::new(Heartbeats {
            links: Mutex::new(Vec::new()),
        });
        let watched = Arc::downgrade(&heartbeats);
        let run = move || {
            loop {
                thread::sleep(interval);
                match watched.upgrade() {
                    Some(heartbeats) => heartbeats.beat(),
                    None => return,
                }
            }
        };
        thread::Builder::new()
            .name("heartbeats".into())
            .stack_size(STACK_BYTES)
            .spawn(run)
            .map_err(|error| Error::Resource {
                object: "thread for heartbeats",
                cause: driftless_model::cause(&error),
            })?;
        Ok(heartbeats)
    }

    pub(crate) fn watch(&self, link: Weak<dyn HeartbeatSource>) {
        self.links.lock().push(link);
    }

    fn beat(&self) {
        let mut links = Vec::new();
        self.links.lock().retain(|link| {
            let open = link.upgrade();
            let is_open = open.is_some();
            links.extend(open);
            is_open
        });
        for link in links {
            link.beat();
        }
    }
}
