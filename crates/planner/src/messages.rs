//! Events that the planner receives, orders that it returns, and outcomes.
//!
//! Every stream has a number of its own, which no other stream ever gets. A report names the stream,
//! so the planner ignores a report about a stream that it has ended.

use crate::units::UnitSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The source of the distribution. The planner gives the nodes the numbers 1, 2, 3 and so on.
pub const SOURCE: NodeId = NodeId(0);

/// Units of which a leaf gets one while its feeder is busy with the chain: 5 percent of the link.
pub const SPARE_UNITS: u64 = 20;

/// BLAKE3 hash of the manifest of a data set.
pub type RootHash = [u8; 32];

/// Number of a node within one distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// Number of a stream (generation): a later stream has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SOURCE => out.write_str("the source"),
            NodeId(number) => write!(out, "node {number}"),
        }
    }
}

/// An instruction to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOrder {
    /// Node that carries the order out.
    pub node: NodeId,
    /// Action of the node.
    pub action: OrderAction,
}

/// Action of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderAction {
    /// Receive `units` on a stream. The node first reports those of `units` that it holds, and asks
    /// the feeder for the others only.
    Expect {
        /// The stream.
        stream: StreamId,
        /// Node that sends.
        from: NodeId,
        /// Units that the node lacks, as far as the planner knows.
        units: UnitSet,
    },
    /// Send `units` on a stream: first those that the node holds, in ascending order; then the others,
    /// each as soon as the node has verified it. A node with several streams of a class serves them in turn.
    Feed {
        /// The stream.
        stream: StreamId,
        /// Node that receives.
        to: NodeId,
        /// Units to send. The receiver names those that it still lacks.
        units: UnitSet,
        /// Whether the stream has the class of a leaf: while streams of the chain have units to send, the
        /// node sends at most one unit in [`SPARE_UNITS`] on streams of this class.
        is_spare: bool,
    },
    /// End a stream before the receiver holds its units. Unknown streams are ignored.
    Stop {
        /// The stream.
        stream: StreamId,
    },
    /// End the work for this data set. Verified units may stay in the cache.
    GiveUp {
        /// Cause.
        reason: FailReason,
    },
}

/// A report to the planner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanEvent {
    /// Start the distribution among the nodes that have joined. Nodes that join later are fed by the tail.
    Start,
    /// A node connected to the coordinator, and verifies what it holds.
    Connected {
        /// The node.
        node: NodeId,
    },
    /// A connected node is ready: at first, late, or again after a reboot.
    Joined {
        /// The node, or [`SOURCE`] when it is back.
        node: NodeId,
        /// Verified units on its disk.
        holds: UnitSet,
    },
    /// The coordinator has lost the node: its connection closed, or its heartbeats are missing.
    Lost {
        /// The node, or [`SOURCE`] when it is gone.
        node: NodeId,
    },
    /// The operator withdrew the node.
    Left {
        /// The node.
        node: NodeId,
    },
    /// The node verified units of a stream.
    Progress {
        /// Receiver of the stream.
        node: NodeId,
        /// The stream.
        stream: StreamId,
        /// Units verified since the last report. A unit may be reported again.
        verified: UnitSet,
    },
    /// Failure of a stream at one of its ends.
    StreamFailed {
        /// The end that reports.
        node: NodeId,
        /// The stream.
        stream: StreamId,
        /// Cause.
        cause: StreamCause,
    },
    /// The node cannot hold the data set, such as "/scratch: no space left on device".
    NodeFailed {
        /// The node.
        node: NodeId,
        /// Cause, for the report.
        reason: String,
    },
    /// The node has committed the complete, verified data set.
    Finished {
        /// The node.
        node: NodeId,
        /// Hash that the node computed.
        root: RootHash,
    },
    /// Time passes. Send one every [`PlanLimits::tick_ms`](crate::PlanLimits::tick_ms).
    Tick,
}

/// Cause that ended a stream early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamCause {
    /// No connection to the peer could be opened.
    Unreachable,
    /// The connection closed.
    Closed,
    /// The peer sent neither data nor a heartbeat in time, or took no data.
    Stalled,
    /// The peer does not know the stream. Its order may still be on the way.
    Refused,
    /// A unit from the feeder failed its verification. The receiver alone can report this.
    BadUnits,
    /// The feeder lacks units that the planner took for held. The feeder alone can report this.
    Lacks(UnitSet),
}

/// Outcome of a node. Every node gets exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeOutcome {
    /// The node committed the data set.
    Complete,
    /// The node does not have the data set.
    Failed(FailReason),
    /// The operator withdrew the node.
    Left,
}

/// Returns a number of units as the begin of a sentence.
fn counted(units: &u64) -> String {
    match units {
        1 => "1 unit is".to_owned(),
        units => format!("{units} units are"),
    }
}

/// Cause for which a node does not have the data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FailReason {
    /// The node did not join in time.
    #[error("never connected; check that the node is up")]
    NeverJoined,
    /// The coordinator lost the node, and the node did not come back in time.
    #[error("connection lost; check the node and cast again")]
    Lost,
    /// The node reported an error of its own.
    #[error("{0}")]
    Reported(String),
    /// The hash of the committed data set is a different one.
    #[error(
        "root hash differs from the source's; check the node's disk and memory, and cast again"
    )]
    RootDiffers,
    /// Units that no reachable node holds.
    #[error(
        "{} on no reachable node; check the nodes that were lost, and repeat the cast",
        counted(units)
    )]
    Unavailable {
        /// Number of units.
        units: u64,
    },
    /// Several attempts to feed the node failed, and it verified no unit for too long.
    #[error("no progress in spite of several feeders; check the node's network and disk")]
    NoProgress,
    /// The node held all units and did not commit them in time.
    #[error("held all units and did not finish in time; check the node's disk")]
    NotFinished,
}
