//! Events of a cast, and its report.

use driftless_planner::NodeOutcome;
use serde::Serialize;

/// Receiver of the events of a cast. Called by several threads.
pub trait CastMonitor: Sync {
    /// Receives an event. Must not block for long.
    fn event(&self, event: CastEvent);
}

/// Event of a cast. A node is named as in the settings.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CastEvent {
    /// Content of the sources was hashed, this many bytes since the last event.
    Hashed {
        /// Bytes.
        bytes: u64,
    },
    /// The catalogue is complete.
    Catalogued {
        /// Root hash of the data set, 64 hexadecimal digits.
        set: String,
        /// Entries.
        entries: u32,
        /// Bytes of content without holes.
        bytes: u64,
        /// Units.
        units: u64,
    },
    /// The coordinator connected to a node.
    Connected {
        /// Node.
        node: String,
    },
    /// The coordinator could not connect to a node, and tries again. Each cause is reported once.
    Unreachable {
        /// Node.
        node: String,
        /// Cause and remedy.
        cause: String,
        /// Whether this is the first attempt that failed, and the node was never connected.
        is_first: bool,
    },
    /// A node has the catalogue, and has verified units that it held already.
    Ready {
        /// Node.
        node: String,
        /// Bytes of content that it holds, about.
        held_bytes: u64,
    },
    /// Distribution began.
    Started {
        /// Nodes that are ready.
        nodes: usize,
    },
    /// Progress of the nodes, 4 times a second at most.
    Progress {
        /// Each node that is connected or has an outcome.
        nodes: Vec<NodeProgress>,
    },
    /// The coordinator lost the connection to a node, and tries to connect again.
    Lost {
        /// Node.
        node: String,
        /// Cause.
        cause: String,
    },
    /// A connection between two nodes failed. The planner finds another one.
    StreamFailed {
        /// Node that reports.
        node: String,
        /// Its peer.
        peer: String,
        /// Cause.
        cause: String,
    },
    /// A slow node became a leaf, so that it holds up no other node.
    Demoted {
        /// Node.
        node: String,
    },
    /// Several nodes received bad units from a node. It feeds no node any more.
    Quarantined {
        /// Node.
        node: String,
    },
    /// Content of the source cannot be read any more. Nodes can hold it already.
    SourceFailed {
        /// Cause and remedy.
        cause: String,
    },
    /// A node has its outcome.
    Ended(NodeReport),
}

/// Stage of a node in a cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeStage {
    /// The node has not connected yet.
    Absent,
    /// The node is connected, fetches the catalogue, and verifies units that it held already.
    Preparing,
    /// The node is connected and ready.
    Receiving,
    /// The connection to the node was lost.
    Lost,
    /// The node does not get the data set.
    Failed,
    /// The node committed the data set.
    Complete,
}

/// Progress of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeProgress {
    /// Node.
    pub node: String,
    /// Verified units, with those that it held at the beginning.
    pub units: u64,
    /// Bytes of these units, about.
    pub bytes: u64,
    /// Stage of its work.
    pub stage: NodeStage,
    /// Whether it is connected, and ready to receive.
    pub is_connected: bool,
    /// Whether it is a leaf: slow, or its connections failed.
    pub is_leaf: bool,
    /// Nodes that feed it.
    pub feeders: Vec<String>,
    /// Whether it committed the data set.
    pub is_complete: bool,
}

/// Outcome of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeReport {
    /// Node.
    pub node: String,
    /// Whether the data set is complete, verified and durable under its final name.
    pub is_complete: bool,
    /// Root hash that the node computed, 64 hexadecimal digits.
    pub set: Option<String>,
    /// Bytes of content that the node received from other nodes. If the node failed, about the bytes
    /// that it reported last.
    pub received_bytes: u64,
    /// Bytes of content that the node held already.
    pub held_bytes: u64,
    /// Seconds from the start of the cast to the outcome.
    pub seconds: f64,
    /// Times that the node became a leaf because it was slow.
    pub demotions: u32,
    /// Entries whose owner or group the node could not keep.
    pub owners_not_kept: u64,
    /// Modes, ACLs, extended attributes and times that the node could not keep.
    pub attributes_not_kept: u64,
    /// The first of these attributes, with its entry and the cause. Absent if the node had placed
    /// the copy for an earlier cast.
    pub first_not_kept: Option<String>,
    /// Cause and remedy, if the data set is not complete.
    pub reason: Option<String>,
}

/// Report of a cast.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CastReport {
    /// Root hash of the data set, 64 hexadecimal digits.
    pub set: String,
    /// Entries.
    pub entries: u32,
    /// Bytes of content without holes.
    pub bytes: u64,
    /// Seconds of the cast, with hashing the sources.
    pub seconds: f64,
    /// Each node, in the order of the settings.
    pub nodes: Vec<NodeReport>,
    /// Whether the caller stopped the cast.
    pub is_stopped: bool,
}

impl NodeReport {
    /// Whether the node kept all metadata of the entries.
    pub fn has_kept_all(&self) -> bool {
        self.owners_not_kept == 0 && self.attributes_not_kept == 0
    }
}

impl CastReport {
    /// Whether each node has the data set.
    pub fn is_complete(&self) -> bool {
        !self.is_stopped && self.nodes.iter().all(|node| node.is_complete)
    }
}

/// Returns the cause of an outcome, or `None` if the data set is complete.
pub(crate) fn reason_of(outcome: &NodeOutcome) -> Option<String> {
    match outcome {
        NodeOutcome::Complete => None,
        NodeOutcome::Failed(reason) => Some(reason.to_string()),
        NodeOutcome::Left => Some("withdrawn by the operator".into()),
    }
}
