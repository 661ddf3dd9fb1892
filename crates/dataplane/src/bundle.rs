//! Several connections to the same peer as one stripe of numbered blocks.
//!
//! One TCP connection uses one processor for encryption and one congestion window. A bundle spreads
//! blocks over its connections: each takes the next block when it has sent the one before, so a slow
//! connection takes fewer. Blocks may therefore overtake each other. Control messages travel on the
//! first connection and keep their order among themselves.

use crate::frame::KIND_BLOCK;
use crate::{
    DataLink, Error, LinkEvent, LinkHandle, LinkMessage, LinkPeer, LinkReceiver, LinkSender,
};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Connections of a bundle at most.
pub const BUNDLE_LINKS_MAX: u8 = 16;
/// Bytes behind the content of a block: its stream and its number.
const TRAILER_BYTES: usize = 12;
/// Blocks that wait between the threads of a bundle and the caller, for each connection.
const QUEUED_PER_LINK: usize = 2;
/// Wait of a call without a limit, after which it waits again.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Stack of a thread in bytes.
pub(crate) const STACK_BYTES: usize = 512 << 10;

/// Connections to one peer that carry numbered blocks.
pub struct LinkBundle {
    links: Vec<DataLink>,
    peer: LinkPeer,
}

/// Content that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleEvent {
    /// A control message, in order among control messages.
    Control(LinkMessage),
    /// A block, in any order.
    Block {
        /// Stream that the sender gave.
        stream: u32,
        /// Number that the sender gave.
        number: u64,
        /// Content.
        bytes: Vec<u8>,
    },
}

/// Result of a wait for content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleWait {
    /// Content arrived.
    Event(BundleEvent),
    /// The peer has finished. Nothing follows.
    End,
    /// The time ran out.
    Timeout,
}

/// A block on its way to a connection.
struct OutgoingBlock {
    stream: u32,
    number: u64,
    bytes: Arc<Vec<u8>>,
}

/// A connection as a bundle of one, without further threads. The listener hands over a bundle of one
/// as a connection.
impl From<DataLink> for LinkBundle {
    fn from(link: DataLink) -> Self {
        let peer = link.peer();
        let links = vec![link];
        LinkBundle { links, peer }
    }
}

impl LinkBundle {
    /// Returns a bundle of connections to the same peer, the first one in front.
    pub(crate) fn new(links: Vec<DataLink>) -> Result<Self, Error> {
        let peer = links.first().map(DataLink::peer);
        let peer = peer.ok_or_else(|| resource("no connection"))?;
        Ok(LinkBundle { links, peer })
    }

    /// Returns the peer, with the address of the first connection.
    pub fn peer(&self) -> &LinkPeer {
        &self.peer
    }

    /// Returns handles of all connections, the first one in front.
    pub fn handles(&self) -> Vec<LinkHandle> {
        self.links.iter().map(DataLink::handle).collect()
    }

    /// Returns the halves, for two threads. Starts two threads for each connection if there are
    /// several.
    ///
    /// # Errors
    /// Fails if the kernel refuses a thread.
    pub fn split(self) -> Result<(BundleSender, BundleReceiver), Error> {
        let handles = self.handles();
        let halves = self.links.into_iter().map(DataLink::split);
        let (senders, receivers): (Vec<_>, Vec<_>) = halves.unzip();
        let sender = BundleSender::start(senders, handles.clone())?;
        Ok((sender, BundleReceiver::start(receivers, handles)?))
    }
}

pub(crate) fn resource(cause: impl ToString) -> Error {
    Error::Resource {
        object: "threads of a bundle",
        cause: cause.to_string(),
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let builder = thread::Builder::new().name(name.into());
    builder.stack_size(STACK_BYTES).spawn(run).map_err(resource)
}

fn abort_all(handles: &[LinkHandle], cause: &str) {
    for handle in handles {
        handle.abort(cause);
    }
}

/// Returns the error that made a bundle fail, rather than that of a connection which ended for it.
fn first_error(handles: &[LinkHandle]) -> Option<Error> {
    let own = handles.iter().find_map(LinkHandle::own_error);
    own.or_else(|| handles.iter().find_map(|handle| handle.error()))
}

/// Sends a block whose stream and number stand behind its content, so that the receiver removes
/// them without moving the content.
fn send_block(link: &LinkSender, block: &OutgoingBlock) -> Result<(), Error> {
    let stream = block.stream.to_le_bytes();
    let number = block.number.to_le_bytes();
    link.send_any(KIND_BLOCK, &[&block.bytes, &stream, &number])
}

/// Reads what arrived on a connection of a bundle. Returns `None` if a block is too short.
fn event_of(message: LinkMessage) -> Option<BundleEvent> {
    if message.kind != KIND_BLOCK {
        return Some(BundleEvent::Control(message));
    }
    let mut bytes = message.bytes;
    let content = bytes.len().checked_sub(TRAILER_BYTES)?;
    let (stream, number) = bytes.get(content..)?.split_first_chunk::<4>()?;
    let stream = u32::from_le_bytes(*stream);
    let number = u64::from_le_bytes(*number.first_chunk::<8>()?);
    bytes.truncate(content);
    Some(BundleEvent::Block {
        stream,
        number,
        bytes,
    })
}

/// Sending half of a bundle.
pub struct BundleSender {
    links: Arc<Vec<LinkSender>>,
    handles: Vec<LinkHandle>,
    queue: Option<Sender<OutgoingBlock>>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
}

impl BundleSender {
    fn start(links: Vec<LinkSender>, handles: Vec<LinkHandle>) -> Result<Self, Error> {
        let links = Arc::new(links);
        let mut sender = BundleSender {
            links: Arc::clone(&links),
            handles,
            queue: None,
            threads: Vec::new(),
        };
        // A single connection needs no thread between.
        if links.len() > 1 {
            let (queue, blocks) = bounded(links.len());
            sender.queue = Some(queue);
            for place in 0..links.len() {
                let (links, blocks) = (Arc::clone(&links), blocks.clone());
                let handles = sender.handles.clone();
                let run = move || send_blocks(&links, place, &blocks, &handles);
                sender.threads.push(spawn("bundle sender", run)?);
            }
        }
        Ok(sender)
    }

    /// Sends a control message, in order after earlier ones, on the first connection.
    ///
    /// # Errors
    /// As [`LinkSender::send`].
    pub fn send_control(&self, kind: u8, parts: &[&[u8]]) -> Result<(), Error> {
        let first = self
            .links
            .first()
            .ok_or_else(|| resource("no connection"))?;
        first.send(kind, parts)
    }

    /// Sends a block on the connection that is free first. Waits while all are busy.
    ///
    /// # Errors
    /// Fails if the block and its 12 bytes of place exceed the limit, or a connection has ended.
    pub fn send_block(&self, stream: u32, number: u64, bytes: Arc<Vec<u8>>) -> Result<(), Error> {
        let block = OutgoingBlock {
            stream,
            number,
            bytes,
        };
        let Some(queue) = &self.queue else {
            let first = self
                .links
                .first()
                .ok_or_else(|| resource("no connection"))?;
            return send_block(first, &block);
        };
        queue.send(block).map_err(|_| self.error())
    }

    /// Sends every block that waits, and closes this direction of every connection.
    ///
    /// # Errors
    /// Fails if a connection has ended before.
    pub fn finish(mut self) -> Result<(), Error> {
        drop(self.queue.take());
        for thread in self.threads.drain(..) {
            let result = thread.join().map_err(|_| resource("a thread panicked"))?;
            result.map_err(|error| first_error(&self.handles).unwrap_or(error))?;
        }
        self.links.iter().try_for_each(LinkSender::close)
    }

    /// Returns the error of a bundle whose threads have ended.
    fn error(&self) -> Error {
        first_error(&self.handles).unwrap_or_else(|| resource("the bundle has ended"))
    }
}

impl Drop for BundleSender {
    fn drop(&mut self) {
        // Threads hold the senders, which must not outlive this half.
        if !self.threads.is_empty() {
            drop(self.queue.take());
            abort_all(&self.handles, "the sender was dropped before its end");
            for thread in self.threads.drain(..) {
                let _reported_elsewhere = thread.join();
            }
        }
    }
}

fn send_blocks(
    links: &[LinkSender],
    place: usize,
    blocks: &Receiver<OutgoingBlock>,
    handles: &[LinkHandle],
) -> Result<(), Error> {
    let link = links.get(place).ok_or_else(|| resource("no connection"))?;
    let result = blocks.iter().try_for_each(|block| send_block(link, &block));
    if result.is_err() {
        // A lost block makes the stripe incomplete.
        abort_all(handles, "another connection of the bundle has ended");
    }
    result
}

/// Receiving half of a bundle, for one thread.
pub struct BundleReceiver {
    handles: Vec<LinkHandle>,
    source: BundleSource,
}

/// Origin of the events of a bundle.
enum BundleSource {
    /// The only connection.
    Single(Box<LinkReceiver>),
    /// Threads that receive on several connections.
    Threads {
        events: Option<Receiver<Result<BundleEvent, Error>>>,
        threads: Vec<JoinHandle<()>>,
        is_ended: bool,
    },
}

impl BundleReceiver {
    fn start(mut links: Vec<LinkReceiver>, handles: Vec<LinkHandle>) -> Result<Self, Error> {
        if links.len() == 1
            && let Some(link) = links.pop()
        {
            let source = BundleSource::Single(Box::new(link));
            return Ok(BundleReceiver { handles, source });
        }
        let (queue, events) = bounded(links.len().saturating_mul(QUEUED_PER_LINK));
        let mut threads = Vec::new();
        for link in links {
            let (queue, handles) = (queue.clone(), handles.clone());
            let run = move || receive_blocks(link, &queue, &handles);
            threads.push(spawn("bundle receiver", run)?);
        }
        let source = BundleSource::Threads {
            events: Some(events),
            threads,
            is_ended: false,
        };
        Ok(BundleReceiver { handles, source })
    }

    /// Waits for the next block or control message. Returns `None` if the peer has finished.
    ///
    /// # Errors
    /// Fails if one of the connections has ended otherwise. The others end, too.
    pub fn recv(&mut self) -> Result<Option<BundleEvent>, Error> {
        loop {
            match self.recv_within(WAIT_MAX)? {
                BundleWait::Event(event) => return Ok(Some(event)),
                BundleWait::End => return Ok(None),
                BundleWait::Timeout => {}
            }
        }
    }

    /// Waits for the next block or control message, and no longer than `limit`.
    ///
    /// # Errors
    /// As [`Self::recv`].
    pub fn recv_within(&mut self, limit: Duration) -> Result<BundleWait, Error> {
        match &mut self.source {
            BundleSource::Single(link) => {
                let message = match link.recv_within(limit)? {
                    LinkEvent::Message(message) => message,
                    LinkEvent::End => return Ok(BundleWait::End),
                    LinkEvent::Timeout => return Ok(BundleWait::Timeout),
                };
                let event = event_of(message).map(BundleWait::Event);
                event.ok_or_else(|| refuse_block(&link.handle()))
            }
            BundleSource::Threads {
                events, is_ended, ..
            } => match events.as_ref().map(|events| events.recv_timeout(limit)) {
                Some(Ok(Ok(event))) => Ok(BundleWait::Event(event)),
                Some(Ok(Err(error))) => Err(first_error(&self.handles).unwrap_or(error)),
                Some(Err(RecvTimeoutError::Timeout)) => Ok(BundleWait::Timeout),
                Some(Err(RecvTimeoutError::Disconnected)) | None => {
                    *is_ended = true;
                    first_error(&self.handles).map_or(Ok(BundleWait::End), Err)
                }
            },
        }
    }
}

impl Drop for BundleReceiver {
    fn drop(&mut self) {
        let BundleSource::Threads {
            events,
            threads,
            is_ended,
        } = &mut self.source
        else {
            return;
        };
        drop(events.take());
        if !*is_ended {
            abort_all(&self.handles, "the receiver was dropped before the end");
        }
        for thread in threads.drain(..) {
            let _reported_elsewhere = thread.join();
        }
    }
}

fn refuse_block(link: &LinkHandle) -> Error {
    link.refuse("a block without stream and number")
}

fn receive_blocks(
    mut link: LinkReceiver,
    queue: &Sender<Result<BundleEvent, Error>>,
    handles: &[LinkHandle],
) {
    loop {
        let event = match link.recv() {
            Ok(None) => return,
            Ok(Some(message)) => event_of(message).ok_or_else(|| refuse_block(&link.handle())),
            Err(error) => Err(error),
        };
        let has_failed = event.is_err();
        if has_failed {
            abort_all(handles, "another connection of the bundle has ended");
        }
        if queue.send(event).is_err() || has_failed {
            return;
        }
    }
}
