//! The coordinator's end of a relay: bytes between a Unix socket and the agent at a node.
//!
//! Messages are bounded. An end that does not read holds up the other through the connection, which
//! carries heartbeats all the same.

use crate::OrderFault;
use crate::coordinator::asked::{AskedNode, OTHER_ANSWER};
use crate::message::{NodeMessage, RELAY_BYTES_MAX, decode, kind};
use crate::orders::unreachable;
use driftless_dataplane::{BundleEvent, BundleReceiver, BundleSender, BundleWait};
use driftless_pool::Pace;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Longest wait before the flags of the end are looked at.
const TICK: Duration = Duration::from_millis(100);
/// Stack of a thread in bytes.
const STACK_BYTES: usize = 256 << 10;

/// The client of a relay, the limit on its bytes, and the flag that stops it.
pub(crate) struct RelayEnds<'a> {
    pub stream: &'a UnixStream,
    pub pace: Option<&'a Pace>,
    pub stop: &'a AtomicBool,
}

/// Carries bytes until the node reports the end of its agent. Returns the report.
///
/// # Errors
/// The connection fails, or the caller stops.
pub(crate) fn carry(
    node: &mut AskedNode<'_>,
    ends: &RelayEnds<'_>,
) -> Result<NodeMessage, OrderFault> {
    let limited = ends.stream.set_read_timeout(Some(TICK));
    let limited = limited.and_then(|()| ends.stream.set_write_timeout(Some(TICK)));
    limited.map_err(|error| failed(&error))?;
    let is_over = AtomicBool::new(false);
    let (sender, receiver) = (&node.sender, &mut node.receiver);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("relay".into());
        let thread = thread.stack_size(STACK_BYTES);
        let upload = || send_all(ends.stream, sender, &is_over);
        thread
            .spawn_scoped(scope, upload)
            .map_err(|error| failed(&error))?;
        let ended = receive_all(receiver, ends);
        is_over.store(true, Relaxed);
        let _the_client_may_be_gone = ends.stream.shutdown(Shutdown::Both);
        for handle in &node.handles {
            handle.abort("the relay is over");
        }
        ended
    })
}

fn failed(error: &std::io::Error) -> OrderFault {
    let cause = driftless_model::cause(error);
    OrderFault::Failed(format!("relay: {cause}; try again"))
}

fn is_early(error: &std::io::Error) -> bool {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Sends the bytes of the client, and their end.
fn send_all(mut stream: &UnixStream, link: &BundleSender, is_over: &AtomicBool) {
    let mut buffer = vec![0; RELAY_BYTES_MAX];
    while !is_over.load(Relaxed) {
        let sent = match stream.read(&mut buffer) {
            Ok(count @ 1..) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                link.send_control(kind::RELAY, &[bytes])
            }
            Err(error) if is_early(&error) => continue,
            Ok(_) | Err(_) => {
                let _the_node_may_be_gone = link.send_control(kind::RELAY_END, &[]);
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Gives the bytes of the node to the client. Returns the next message of another kind.
fn receive_all(link: &mut BundleReceiver, ends: &RelayEnds<'_>) -> Result<NodeMessage, OrderFault> {
    let mut is_taken = true;
    while !ends.stop.load(Relaxed) {
        let message = match link.recv_within(TICK) {
            Ok(BundleWait::Event(BundleEvent::Control(message))) => message,
            Ok(BundleWait::Timeout) => continue,
            Ok(BundleWait::Event(_)) => return Err(OrderFault::Failed(OTHER_ANSWER.into())),
            Ok(BundleWait::End) => return Err(unreachable("the node ended the relay".into())),
            Err(error) => return Err(unreachable(error.to_string())),
        };
        match message.kind {
            // The agent ends for a client that is gone, and may have more bytes until then.
            kind::RELAY if is_taken => is_taken = give(&message.bytes, ends),
            kind::RELAY => {}
            kind::RELAY_END => {
                let _the_client_may_be_gone = ends.stream.shutdown(Shutdown::Write);
            }
            kind::NODE => {
                let decoded = decode(&message.bytes);
                return decoded.map_err(|_| OrderFault::Failed(OTHER_ANSWER.into()));
            }
            _ => return Err(OrderFault::Failed(OTHER_ANSWER.into())),
        }
    }
    Err(unreachable("stopped".into()))
}

/// Writes bytes to the client. Returns `false` if the client takes no more.
fn give(mut bytes: &[u8], ends: &RelayEnds<'_>) -> bool {
    let mut stream = ends.stream;
    if let Some(pace) = ends.pace {
        pace.take(bytes.len() as u64, &|| ends.stop.load(Relaxed));
    }
    while !bytes.is_empty() && !ends.stop.load(Relaxed) {
        match stream.write(bytes) {
            Ok(count @ 1..) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if is_early(&error) => {}
            Ok(_) | Err(_) => return false,
        }
    }
    true
}
