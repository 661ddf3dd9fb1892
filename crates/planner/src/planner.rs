//! The planner of one distribution.

use crate::limits::PlanLimits;
use crate::messages::{NodeId, NodeOutcome, PlanEvent, PlanOrder, RootHash};
use crate::topology::Topology;

/// The data set of a distribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// Number of units.
    pub units: u64,
    /// Hash of the manifest. A node that reports another one fails.
    pub root: RootHash,
}

/// Errors in the setup of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanSetupError {
    /// A node has the name of another one, or that of the source.
    #[error("{0}: listed twice; list each node once")]
    Twice(String),
    /// The plan has the maximum number of nodes.
    #[error("{0}: the distribution has 65536 nodes already; start another one")]
    TooMany(String),
}

/// State of a node, for progress reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Name.
    pub name: String,
    /// Whether the node is connected.
    pub is_connected: bool,
    /// Whether the node is a leaf: it is slow, or links to it failed.
    pub is_leaf: bool,
    /// Whether several nodes reported bad units from the node.
    pub is_quarantined: bool,
    /// Units that the node has reported as verified.
    pub units: u64,
    /// Nodes that feed the node.
    pub feeders: Vec<NodeId>,
    /// Outcome, once there is one.
    pub outcome: Option<NodeOutcome>,
}

/// State machine of a distribution.
#[derive(Debug)]
pub struct Planner {
    names: Vec<String>,
}

impl Planner {
    /// Makes a plan for a source and the nodes of `names`, which get the numbers 1, 2, 3 and so on in
    /// this order. The chain follows the rack order of `topology`.
    pub fn new(
        _data: DataSet,
        source: &str,
        names: &[String],
        _topology: Topology,
        _limits: PlanLimits,
    ) -> Result<Self, PlanSetupError> {
        let names = std::iter::once(source.to_owned()).chain(names.iter().cloned());
        Ok(Self {
            names: names.collect(),
        })
    }

    /// Adds a node that was not in the list. Returns its number. The node takes part once it joins.
    pub fn add_node(&mut self, name: &str) -> Result<NodeId, PlanSetupError> {
        let number = u32::try_from(self.names.len());
        let number = number.map_err(|_| PlanSetupError::TooMany(name.to_owned()))?;
        self.names.push(name.to_owned());
        Ok(NodeId(number))
    }

    /// Applies an event and returns the orders that follow. `now_ms` counts from any fixed moment; a
    /// time before that of an earlier event counts as that time. Events that name an unknown node or
    /// stream, or come from a node that is not connected, have no effect.
    pub fn handle(&mut self, _now_ms: u64, _event: PlanEvent) -> Vec<PlanOrder> {
        Vec::new()
    }

    /// Returns the number of the node with this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let at = self.names.iter().position(|known| known == name)?;
        u32::try_from(at).ok().map(NodeId)
    }

    /// Returns the outcome of a node. Returns `None` while it has none, or if the node is unknown.
    pub fn outcome(&self, _node: NodeId) -> Option<&NodeOutcome> {
        None
    }

    /// Tells whether every node has its outcome.
    pub fn is_ended(&self) -> bool {
        false
    }

    /// Returns the state of a node. Returns `None` if the node is unknown.
    pub fn status(&self, _node: NodeId) -> Option<NodeStatus> {
        None
    }
}
