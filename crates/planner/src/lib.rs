//! The plan of a distribution: which node feeds which other node with which units.
//!
//! [`Planner`] is a state machine. The coordinator passes in events with a time, and carries out the
//! orders that come back. Nothing here does I/O, reads a clock or starts a thread, so a test can
//! replay every accident of a cluster with a seed. An event is a claim of one node: the planner
//! believes a node about that node alone, and two nodes about the link between them.

mod assign;
mod estimate;
mod failure;
mod hostlist;
mod hypercube;
mod limits;
mod member;
mod messages;
mod meter;
mod pace;
mod planner;
mod spread;
mod state;
mod stream;
mod topology;
mod trust;
mod units;

pub use estimate::{LinkModel, PlanShape};
pub use hostlist::{HostlistError, NODE_NAME_BYTES_MAX, NODES_MAX, parse_hostlist};
pub use limits::PlanLimits;
pub use messages::{
    FailReason, NodeId, NodeOutcome, OrderAction, PlanEvent, PlanOrder, RootHash, SOURCE,
    SPARE_UNITS, StreamCause, StreamId,
};
pub use planner::{DataSet, NodeStatus, PlanSetupError, Planner};
pub use spread::{CatalogueFeed, CatalogueSpread};
pub use topology::{RackTopology, TopologyError};
pub use units::{RANGES_MAX, UnitRange, UnitSet, UnitSetError};
