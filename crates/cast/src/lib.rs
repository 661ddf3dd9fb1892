//! Distribution of data sets to the nodes of a cluster (`driftless cast`).
//!
//! [`cast`] is the coordinator: it builds the catalogue, starts the nodes or connects to their
//! daemons, owns the planner, and feeds as the source. [`serve_one_cast`] is a node that ssh starts
//! for one cast, and [`NodeDaemon`] a node that serves many. Both ends authenticate each other
//! before they exchange a byte, and a node forwards a unit only after its hash is verified.
//!
//! What must hold: a data set appears under its final name complete and durable, or not at all. A
//! message of a peer is checked before it has an effect. A node believes no node about a unit.
//! Memory is bounded for each connection and each cast.
//!
//! Nothing here prints or knows of arguments.

mod admin;
mod bits;
mod board;
mod coordinator;
mod daemon;
mod doctor;
mod error;
mod event;
mod feed;
mod intake;
mod message;
mod node;
mod orders;
mod outbox;
mod relay;
mod report;
mod settings;
mod sources;
mod stream;

pub use admin::{
    AdminError, CheckSummary, HeldCopyInfo, KeptEntryInfo, NodeInfo, PurgeSelection, PurgeSummary,
    node_info, purge_node, verify_node,
};
pub use coordinator::{cast, check_sources};
pub use daemon::{NodeDaemon, stored_identity};
pub use doctor::{DoctorSettings, LinkHealth, NodeHealth, examine};
pub use error::Error;
pub use event::{CastEvent, CastMonitor, CastReport, NodeProgress, NodeReport, NodeStage};
#[doc(hidden)]
pub use message::decode_any;
pub use message::is_job_name;
pub use node::serve_one_cast;
pub use orders::{EndedJob, NodeJobs, OrderFault, OrderSettings, end_job, list_jobs};
pub use outbox::{
    EndedRelay, NodeOutbox, NodeResults, OutboxReader, discard_outbox, list_outbox, list_outboxes,
    list_sealed, relay_outbox, seal_outbox, sealed_at_once, sealed_names,
};
pub use report::StayingCopyInfo;
pub use settings::{
    CastNode, CastPlace, CastSettings, ContentLimits, DaemonSettings, DaemonTrust, NodeAccess,
    NodeSettings, SshStart, TransferSettings,
};
pub use sources::open_through_agent;

pub use driftless_dataplane::{
    CertificateFault, ExpectedPeer, PeerKey, PeerTrust, PortRange, TlsIdentity,
};
pub use driftless_planner::{
    FailReason, HostlistError, NodeOutcome, PlanLimits, RackTopology, TopologyError, parse_hostlist,
};
pub use driftless_pool::Pace;
pub use driftless_remote::{Deploy, Reach};
pub use driftless_store::{
    CastSources, CopyRights, Dir, DirRef, OpenSource, SealMove, SealOutcome, SealedPath, TopPlace,
    is_outbox_name,
};
