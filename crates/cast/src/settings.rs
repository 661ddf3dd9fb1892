//! Settings of a cast, of a node and of a node daemon.

use driftless_dataplane::{CipherChoice, ExpectedPeer, PeerKey, PortRange, TlsIdentity};
use driftless_model::Keep;
use driftless_planner::{PlanLimits, RackTopology};
use driftless_remote::Reach;
use driftless_store::{CastSources, CopyRights};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

/// Settings of one cast.
#[derive(Clone)]
pub struct CastSettings {
    /// Files and directories to distribute.
    pub sources: CastSources,
    /// Nodes, each name once. [`parse_hostlist`](crate::parse_hostlist) expands lists.
    pub nodes: Vec<CastNode>,
    /// Name of this host in the topology.
    pub source_name: String,
    /// Positions of the nodes. The chain follows their rack order.
    pub topology: RackTopology,
    /// Directory of this host's store, which keeps the catalogue. Made with mode 0711 if missing.
    pub dir: PathBuf,
    /// Place of the data set on each node.
    pub place: CastPlace,
    /// Metadata that the nodes keep.
    pub keep: Keep,
    /// Owners and rights of the entries of copies.
    pub rights: CopyRights,
    /// References and lifetime of the copies.
    pub content: ContentLimits,
    /// Start of nodes through ssh. Needed if a node has [`NodeAccess::Ssh`].
    pub ssh: Option<SshStart>,
    /// Key pair of this coordinator. A new one for each cast if `None`; daemons know a stored one.
    pub identity: Option<TlsIdentity>,
    /// Certificates in PEM of the site's authority, if the identity has a certificate.
    pub authority_pem: Option<Vec<u8>>,
    /// Limits of the data plane.
    pub transfer: TransferSettings,
    /// Limits and times of the plan.
    pub limits: PlanLimits,
    /// Time for which the start waits for more nodes after the first one is ready.
    pub start_wait: Duration,
}

/// A node of a cast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CastNode {
    /// Name, unique in the cast. With [`NodeAccess::Ssh`] also the host that ssh connects to.
    pub name: String,
    /// Way to the node.
    pub access: NodeAccess,
}

/// Way to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAccess {
    /// ssh starts `driftless node --for-one-cast` on the host.
    Ssh,
    /// A daemon runs there already.
    Daemon {
        /// Host name or address; the system resolves a name.
        host: String,
        /// TCP port.
        port: u16,
        /// Key of the daemon, or its name in the certificate of the site's authority.
        peer: ExpectedPeer,
    },
}

/// Start of nodes through ssh.
#[derive(Clone)]
pub struct SshStart {
    /// Connection to the hosts: `--ssh`, `--agent-path`, `--deploy`, time limit.
    pub reach: Reach,
    /// Arguments behind the program, such as `node --for-one-cast --dir DIR`.
    pub arguments: Vec<String>,
}

/// Place of a data set on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CastPlace {
    /// Below this directory, which exists on the node. An absolute path.
    Directory(PathBuf),
    /// In the node's cache, under the hash of the set.
    Cache,
}

/// References and lifetime of the copies of a cast.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentLimits {
    /// Job that needs the copies. A cached copy stays while a job refers to it.
    pub job: Option<String>,
    /// UID of the user of this job, if no other user may open the copies. For the cache alone.
    pub reader: Option<u32>,
    /// Whether each node makes an outbox for the results of this job. For the cache alone.
    pub has_outbox: bool,
    /// Whether cached copies stay until they are purged.
    pub is_pinned: bool,
    /// Seconds after which cached copies may go.
    pub seconds_max: Option<u64>,
}

/// Limits of the data plane of one process.
#[derive(Debug, Clone)]
pub struct TransferSettings {
    /// Bytes a second that each node, and the source, sends at most.
    pub bytes_per_second_max: Option<u64>,
    /// Connections between two nodes, 1 to 16.
    pub connections: u8,
    /// Bytes of verified units that a node keeps in memory for its successor.
    pub window_bytes_max: u64,
    /// Interval of heartbeats.
    pub heartbeat: Duration,
    /// Silence after which a peer counts as dead.
    pub silence_max: Duration,
    /// Cipher suite.
    pub cipher: CipherChoice,
}

impl Default for TransferSettings {
    fn default() -> Self {
        TransferSettings {
            bytes_per_second_max: None,
            connections: 1,
            window_bytes_max: 64 << 20,
            heartbeat: Duration::from_millis(250),
            silence_max: Duration::from_secs(1),
            cipher: CipherChoice::Processor,
        }
    }
}

/// Settings of a node, for one cast or as a daemon.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// Directory of the store. Made with mode 0711 if missing.
    pub dir: PathBuf,
    /// Address to listen on. `::` takes IPv4 connections, too.
    pub listen: IpAddr,
    /// Ports to listen on.
    pub ports: PortRange,
    /// Bytes of cached copies at most.
    pub cache_bytes_max: Option<u64>,
    /// Limits of the data plane. The coordinator can lower the rate.
    pub transfer: TransferSettings,
    /// Program of driftless for the agents that read results. That of this process if `None`.
    pub program: Option<PathBuf>,
}

impl NodeSettings {
    /// Returns the defaults for a store in `dir`: any address, any port, no quota.
    pub fn new(dir: PathBuf) -> Self {
        NodeSettings {
            dir,
            listen: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            ports: PortRange::ANY,
            cache_bytes_max: None,
            transfer: TransferSettings::default(),
            program: None,
        }
    }
}

/// Settings of a node daemon.
#[derive(Debug, Clone)]
pub struct DaemonSettings {
    /// Settings of the node.
    pub node: NodeSettings,
    /// Coordinators that the daemon serves.
    pub trust: DaemonTrust,
    /// Directories of which coordinators may name one, or one below, as a place. Without one,
    /// only the cache is a place.
    pub places: Vec<PathBuf>,
}

/// Coordinators that a daemon serves.
#[derive(Debug, Clone)]
pub enum DaemonTrust {
    /// Owners of these keys. The daemon keeps its own key in `identity.pem` of its directory.
    Keys(Vec<PeerKey>),
    /// Owners of certificates of a site's authority with one of these DNS names.
    Authority {
        /// Certificates of the authority in PEM.
        authority_pem: Vec<u8>,
        /// Certificate and key of the daemon.
        identity: Box<TlsIdentity>,
        /// Names of coordinators in their certificates.
        coordinators: Vec<String>,
    },
}
