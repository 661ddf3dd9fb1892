//! The streams of a cast at a node, and connections that arrive before their order.
//!
//! A feeder can get its order before the receiver does. So a connection without an order waits for a
//! while. It is refused then, which is no accusation of the feeder.

use crate::intake::{ExpectedStream, PeerLink, refuse};
use crate::node::inputs::CastTrunk;
use crate::stream::{StreamEnd, start_thread};
use driftless_planner::StreamId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which a connection waits for its order.
const PARK_MAX: Duration = Duration::from_secs(10);
/// Connections that wait for their order.
const PARKED_MAX: usize = 64;
/// Streams of a node in each direction.
const STREAMS_MAX: usize = 4096;

/// Streams of a cast at a node.
#[derive(Default)]
pub(crate) struct NodeStreams {
    expected: HashMap<StreamId, ExpectedStream>,
    feeds: HashMap<StreamId, StreamEnd>,
    parked: Vec<ParkedTrunk>,
}

/// A connection that waits for its order.
struct ParkedTrunk {
    trunk: CastTrunk,
    since: Instant,
}

impl NodeStreams {
    /// Notes an order to receive. Returns the connections that wait for it, or `None` if the node has
    /// too many streams.
    pub fn expect(&mut self, expected: ExpectedStream) -> Option<Vec<CastTrunk>> {
        if self.expected.len() >= STREAMS_MAX {
            return None;
        }
        let stream = expected.stream;
        self.expected.insert(stream, expected);
        let waits = |parked: &mut ParkedTrunk| parked.trunk.stream == stream;
        let waiting = self.parked.extract_if(.., waits);
        Some(waiting.map(|parked| parked.trunk).collect())
    }

    /// Notes an order to feed. Returns `None` if the node has too many streams.
    pub fn feed(&mut self, stream: StreamId) -> Option<StreamEnd> {
        if self.feeds.len() >= STREAMS_MAX {
            return None;
        }
        let end = StreamEnd::default();
        self.feeds.insert(stream, end.clone());
        Some(end)
    }

    /// Returns the stream of a connection. Without an order, the connection waits.
    pub fn admit(&mut self, trunk: CastTrunk) -> Option<(ExpectedStream, PeerLink)> {
        match self.expected.get(&trunk.stream) {
            Some(expected) if expected.from == trunk.link.peer.key => {
                return Some((expected.clone(), trunk.link));
            }
            None if self.parked.len() < PARKED_MAX => self.parked.push(ParkedTrunk {
                trunk,
                since: Instant::now(),
            }),
            // A peer that claims the stream of another one is no fault of that one.
            _ => refuse_trunk(trunk),
        }
        None
    }

    /// Ends a stream without a report.
    pub fn stop(&mut self, stream: StreamId) {
        let expected = self.expected.remove(&stream).map(|expected| expected.end);
        let feed = self.feeds.remove(&stream);
        expected.into_iter().chain(feed).for_each(|end| end.stop());
    }

    /// Ends each stream without a report.
    pub fn stop_all(&mut self) {
        let expected = self.expected.drain().map(|(_, expected)| expected.end);
        let feeds = self.feeds.drain().map(|(_, end)| end);
        expected.chain(feeds).for_each(|end| end.stop());
        self.parked.clear();
    }

    /// Forgets a stream that has ended.
    pub fn forget(&mut self, stream: StreamId) {
        self.expected.remove(&stream);
        self.feeds.remove(&stream);
    }

    /// Refuses connections whose order did not come.
    pub fn refuse_late(&mut self) {
        let is_late = |parked: &mut ParkedTrunk| parked.since.elapsed() >= PARK_MAX;
        let late: Vec<ParkedTrunk> = self.parked.extract_if(.., is_late).collect();
        late.into_iter()
            .for_each(|parked| refuse_trunk(parked.trunk));
    }
}

/// Tells a feeder in a thread that the node has no such stream.
pub(crate) fn refuse_trunk(trunk: CastTrunk) {
    let _dropping_it_refuses_too = start_thread("refuse", move || refuse(trunk.link));
}
