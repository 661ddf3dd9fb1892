//! The one thread on which all that is asynchronous runs.
//!
//! Connections must answer heartbeats while no caller is in a call, so they live on a thread of
//! their own. It is shared by all connections of the process, and ends with it. Calls that block
//! wait on the caller's thread (`Handle::block_on`) and must not be made on this one.

use driftless_lock::Mutex;
use std::future::pending;
use std::io;
use std::thread;
use tokio::runtime::{Builder, Handle};

static RUNNING: Mutex<Option<Handle>> = Mutex::new(None);

/// The runtime; its thread is started if it does not run.
pub(crate) fn handle() -> io::Result<Handle> {
    let mut running = RUNNING.lock();
    if let Some(handle) = running.as_ref() {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("driftless-amqp".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))?;
    *running = Some(handle.clone());
    Ok(handle)
}
