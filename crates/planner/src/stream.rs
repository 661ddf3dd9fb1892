//! Streams between two nodes.

use crate::messages::NodeId;
use crate::units::UnitSet;

/// Units that a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// Units that the feeder holds or is going to receive. The feeder stands before the receiver in the
    /// chain, or the receiver is a leaf, so no two nodes wait for each other.
    Flow,
    /// Units that the feeder held when the stream began.
    Held,
    /// Units of the schedule of a hypercube.
    Cube,
}

/// Share of the feeder's capacity that a stream takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedSlot {
    /// The successor in the chain.
    Chain,
    /// A slow receiver, or one that repairs.
    Leaf,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct PlannedStream {
    pub from: NodeId,
    pub to: NodeId,
    pub units: UnitSet,
    pub kind: StreamKind,
    pub slot: FeedSlot,
    pub started_ms: u64,
    /// Moment of the last verified unit, or the last one at which the feeder had nothing to send.
    pub moved_ms: u64,
    /// Verified units.
    pub moved: u64,
    /// Moment since which the receiver is slow.
    pub slow_since_ms: Option<u64>,
}

impl PlannedStream {
    pub fn new(from: NodeId, to: NodeId, units: UnitSet, now_ms: u64) -> Self {
        Self {
            from,
            to,
            units,
            kind: StreamKind::Flow,
            slot: FeedSlot::Chain,
            started_ms: now_ms,
            moved_ms: now_ms,
            moved: 0,
            slow_since_ms: None,
        }
    }

    pub fn of_kind(self, kind: StreamKind, slot: FeedSlot) -> Self {
        Self { kind, slot, ..self }
    }

    pub fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.started_ms)
    }
}
