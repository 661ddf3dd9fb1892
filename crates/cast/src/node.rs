//! The node: a process that receives, verifies, stores and forwards the units of casts.

mod catalogue;
mod copy;
pub(crate) mod greeting;
mod held;
pub(crate) mod host;
mod inputs;
mod jobs;
mod log;
mod opening;
mod outbox;
pub(crate) mod probe;
mod relay;
pub(crate) mod serve;
mod session;
mod streams;

use crate::{Error, NodeSettings, PeerTrust, TlsIdentity};
use driftless_dataplane::DataEndpoint;
use greeting::{NodeGreeting, read_coordinator, write_greeting};
use host::{CommandRule, NodeHost, PlaceRule, link_settings, open_store};
use serve::NodeServer;
use std::io::{BufRead, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time for which a node waits for its coordinator to connect.
const COORDINATOR_MAX: Duration = Duration::from_secs(60);

/// Serves the cast whose coordinator is at the other end of `input` and `output`, until the cast
/// ends, the coordinator is gone, or `stop` is set.
///
/// Reads the key of the coordinator from `input`, and then writes the greeting with the key and
/// addresses of this node to `output`. Everything else goes over connections of the data plane. A later end of
/// `input` ends the node.
///
/// # Errors
/// Fails if the store cannot be opened, no port is free, or the pipe breaks before the exchange. An
/// error of the cast itself goes to the coordinator.
pub fn serve_one_cast(
    settings: &NodeSettings,
    mut input: impl BufRead + Send + 'static,
    mut output: impl Write,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let store = open_store(&settings.dir)?;
    let identity = TlsIdentity::generate()?;
    let trust = PeerTrust::keys([]);
    let transfer = link_settings(&settings.transfer);
    let endpoint = DataEndpoint::new(identity, trust.clone(), transfer)?;
    let listener = endpoint.listen(settings.listen, settings.ports)?;
    // The coordinator connects as soon as it knows the port, so its key is trusted before. One of
    // another version reads the version of this node.
    let coordinator = read_coordinator(&mut input);
    if let Ok(coordinator) = &coordinator {
        trust.trust(*coordinator);
    }
    let greeting = NodeGreeting::here(endpoint.key(), listener.address());
    write_greeting(&mut output, &greeting)?;
    let coordinator = coordinator?;
    let rules = (CommandRule::Keys(vec![coordinator]), PlaceRule::Any);
    let host = NodeHost::new(store, endpoint, settings.clone(), rules);
    let is_closed = watch(input)?;
    let (begin, was_busy) = (Instant::now(), AtomicBool::new(false));
    NodeServer::new(&host).run(&listener, &|host| {
        let is_busy = host.casts_at_work() > 0;
        was_busy.fetch_or(is_busy, Relaxed);
        let is_done = was_busy.load(Relaxed) && !is_busy;
        let is_alone = !is_busy && begin.elapsed() >= COORDINATOR_MAX;
        let is_ended = stop.load(Relaxed) || is_closed.load(Relaxed);
        is_done || is_alone || is_ended
    });
    Ok(())
}

/// Watches the pipe of the coordinator, which says nothing any more, for its end.
fn watch(mut input: impl Read + Send + 'static) -> Result<Arc<AtomicBool>, Error> {
    let is_closed = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_closed);
    let watching = move || {
        let mut byte = [0; 64];
        while matches!(input.read(&mut byte), Ok(count) if count > 0) {}
        flag.store(true, Relaxed);
    };
    crate::stream::start_thread("pipe", watching).map_err(Error::Thread)?;
    Ok(is_closed)
}

#[cfg(test)]
mod tests;
