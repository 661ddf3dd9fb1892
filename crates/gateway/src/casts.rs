//! Distribution by casts: the gateway is the coordinator, and reads the sources with the rights of
//! the user.

use crate::collection::{Collection, CollectionWays};
use crate::distribution::{
    CollectGuard, CollectOrder, CollectOutcome, CopyKeeping, Distribution, LoadEvent, LoadOrder,
    NodeAnswer, OutboxState,
};
use crate::places::BusyPlaces;
use crate::tried::TriedResults;
use crate::users::User;
use driftless_cast::{
    CastEvent, CastMonitor, CastNode, CastPlace, CastSettings, CastSources, ContentLimits,
    CopyRights, NodeOutbox, OrderSettings, Pace, PlanLimits, RackTopology, Reach, SshStart,
    TlsIdentity, TransferSettings, cast, end_job, list_jobs, list_outboxes, open_through_agent,
};
use driftless_model::Keep;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Longest wait for the agent of a user: getent(1) and setpriv(1) ask the name service.
const AGENT_MAX: Duration = Duration::from_secs(60);
/// Refusal of a second version of the data of one job.
const OTHER_SET: &str = "the data changed after the first nodes got it; further nodes get no copy: submit the job again for the new data";
/// Takes the words behind `--` and the name, as ssh does, and starts them.
const AS_SSH: &str = r#"while [ "$1" != -- ]; do shift; done; shift 2; exec /bin/sh -c "exec $*""#;

/// Settings of the casts of a gateway.
#[derive(Clone)]
pub struct CastsSettings {
    /// Nodes that the gateway knows, with the ways to them.
    pub nodes: Vec<CastNode>,
    /// Start of nodes through ssh. Needed if a node has no daemon.
    pub ssh: Option<SshStart>,
    /// Key pair of this gateway.
    pub identity: Option<TlsIdentity>,
    /// Certificates in PEM of the site's authority.
    pub authority_pem: Option<Vec<u8>>,
    /// Positions of the nodes.
    pub topology: RackTopology,
    /// Name of this host in the topology.
    pub source_name: String,
    /// Directory of the store of this host, which keeps the catalogues.
    pub dir: PathBuf,
    /// Directory of the store on the nodes, the same on all.
    pub node_dir: PathBuf,
    /// Limits of the data plane.
    pub transfer: TransferSettings,
    /// Program of driftless on this host, for agents and runs of users.
    pub program: String,
    /// Directory of the sockets to which runs of users connect. Users must be able to pass its parents.
    pub relay_dir: PathBuf,
}

/// Casts to the nodes of a cluster.
pub struct Casts {
    settings: CastsSettings,
    nodes: BTreeMap<String, CastNode>,
    /// Limit on the bytes of all collections.
    pace: Option<Arc<Pace>>,
    /// Destinations of collections.
    places: Arc<BusyPlaces>,
    tried: Arc<TriedResults>,
}

impl Casts {
    /// Returns the distribution.
    pub fn new(settings: CastsSettings) -> Self {
        let named = |node: &CastNode| (node.name.clone(), node.clone());
        let nodes = settings.nodes.iter().map(named).collect();
        let pace = Pace::new(settings.transfer.bytes_per_second_max).map(Arc::new);
        Casts {
            settings,
            nodes,
            pace,
            places: Arc::default(),
            tried: Arc::default(),
        }
    }

    fn known(&self, names: &[String]) -> Vec<CastNode> {
        let found = names.iter().filter_map(|name| self.nodes.get(name));
        found.cloned().collect()
    }

    fn orders(&self) -> OrderSettings {
        OrderSettings {
            ssh: self.settings.ssh.clone(),
            identity: self.settings.identity.clone(),
            authority_pem: self.settings.authority_pem.clone(),
            transfer: self.settings.transfer.clone(),
            parallel_max: OrderSettings::PARALLEL,
        }
    }

    /// Returns the settings of a cast.
    fn cast_settings(&self, order: &LoadOrder, sources: CastSources) -> CastSettings {
        let settings = &self.settings;
        CastSettings {
            sources,
            nodes: self.known(&order.nodes),
            source_name: settings.source_name.clone(),
            topology: settings.topology.clone(),
            dir: settings.dir.clone(),
            place: CastPlace::Cache,
            keep: Keep::default(),
            rights: rights_for(order.uid),
            content: ContentLimits {
                job: Some(order.job.clone()),
                reader: Some(order.uid),
                has_outbox: order.has_results,
                is_pinned: order.keeping == CopyKeeping::Stay,
                seconds_max: match order.keeping {
                    CopyKeeping::Seconds(seconds) => Some(seconds),
                    CopyKeeping::Purge | CopyKeeping::Stay => None,
                },
            },
            ssh: settings.ssh.clone(),
            identity: settings.identity.clone(),
            authority_pem: settings.authority_pem.clone(),
            transfer: settings.transfer.clone(),
            limits: PlanLimits::default(),
            start_wait: Duration::from_secs(2),
        }
    }

    /// Returns the sources, opened with the rights of the user.
    fn sources(&self, order: &LoadOrder) -> Result<CastSources, String> {
        if rustix::process::geteuid().as_raw() == order.uid {
            return Ok(CastSources::Paths(order.sources.clone()));
        }
        let user = User::find(order.uid)?;
        let reach = self.reach_as(&user);
        let opened = open_through_agent(&user.name, &order.sources, &reach);
        opened.map_err(|error| {
            let name = &user.name;
            format!("{error}; the user {name} must be able to read it on the host of the gateway")
        })
    }

    /// Returns the way to an agent on this host that runs as a user, with the groups that the name
    /// service states (setpriv(1)).
    fn reach_as(&self, user: &User) -> Reach {
        let mut ssh = user.words();
        ssh.extend(["/bin/sh", "-c", AS_SSH, "agent"].map(str::to_owned));
        Reach {
            ssh,
            agent: vec![self.settings.program.clone()],
            keep: Keep::default(),
            streams: Some(1),
            compress: None,
            deploy: None,
            connecting: AGENT_MAX,
            stop: Arc::new(AtomicBool::new(false)),
        }
    }
}

impl Distribution for Casts {
    fn nodes(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    fn reaches(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    fn spool_directory(&self, job: &str) -> String {
        let path = self.settings.node_dir.join("jobs").join(job);
        path.to_string_lossy().into_owned()
    }

    fn results_directory(&self, job: &str) -> String {
        let path = self.settings.node_dir.join("outbox").join(job);
        path.to_string_lossy().into_owned()
    }

    fn outboxes(&self, job: &str, nodes: &[String]) -> Vec<NodeAnswer<OutboxState>> {
        let (stop, known) = (AtomicBool::new(false), self.known(nodes));
        let answer = |own: NodeOutbox| {
            let state = own
                .names
                .map(|(names, has_sealed)| OutboxState { names, has_sealed });
            NodeAnswer {
                node: own.node,
                answer: state.map_err(|fault| fault.to_string()),
            }
        };
        match list_outboxes(&self.orders(), &known, job, &stop) {
            Ok(listed) => listed.into_iter().map(answer).collect(),
            Err(error) => failed(nodes, &error.to_string()),
        }
    }

    fn collect(
        &self,
        order: &CollectOrder,
        guard: &dyn CollectGuard,
        stop: &AtomicBool,
    ) -> CollectOutcome {
        let Some(node) = self.nodes.get(&order.node) else {
            let node = &order.node;
            return CollectOutcome::failed(format!("the gateway does not know {node}"));
        };
        let outboxes = self.settings.node_dir.join("outbox");
        let ways = CollectionWays {
            orders: self.orders(),
            node: node.clone(),
            program: self.settings.program.clone(),
            relay_dir: self.settings.relay_dir.clone(),
            sealed_dir: outboxes.join(".sealed").join(&order.job),
            pace: self.pace.clone(),
            places: Arc::clone(&self.places),
            tried: Arc::clone(&self.tried),
        };
        match Collection::new(ways, order, (guard, stop)) {
            Ok(collection) => collection.run(),
            Err(cause) => CollectOutcome::failed(cause),
        }
    }

    fn load(
        &self,
        order: &LoadOrder,
        report: &(dyn Fn(LoadEvent) + Sync),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let settings = self.cast_settings(order, self.sources(order)?);
        let monitor = LoadMonitor {
            report,
            set: order.set.as_deref(),
            is_other: AtomicBool::new(false),
            stop,
        };
        let ended = cast(&settings, &monitor, stop);
        match monitor.is_other.load(Relaxed) {
            true => Err(OTHER_SET.to_owned()),
            false => ended.map(drop).map_err(|error| error.to_string()),
        }
    }

    fn end_job(&self, job: &str, nodes: &[String]) -> Vec<NodeAnswer<()>> {
        let stop = AtomicBool::new(false);
        let ended = end_job(&self.orders(), &self.known(nodes), job, &stop);
        let answer = |ended: driftless_cast::EndedJob| NodeAnswer {
            answer: match (&ended.fault, ended.staying.first()) {
                (Some(fault), _) => Err(fault.to_string()),
                (None, Some(copy)) => Err(copy.reason.clone()),
                (None, None) => Ok(()),
            },
            node: ended.node,
        };
        match ended {
            Ok(ended) => ended.into_iter().map(answer).collect(),
            Err(error) => failed(nodes, &error.to_string()),
        }
    }

    fn jobs_on(&self, nodes: &[String], prefix: &str) -> Vec<NodeAnswer<Vec<String>>> {
        let stop = AtomicBool::new(false);
        let listed = list_jobs(&self.orders(), &self.known(nodes), prefix, &stop);
        let answer = |listed: driftless_cast::NodeJobs| NodeAnswer {
            node: listed.node,
            answer: listed.jobs.map_err(|fault| fault.to_string()),
        };
        match listed {
            Ok(listed) => listed.into_iter().map(answer).collect(),
            Err(error) => failed(nodes, &error.to_string()),
        }
    }
}

fn failed<T>(nodes: &[String], cause: &str) -> Vec<NodeAnswer<T>> {
    let answer = |node: &String| NodeAnswer {
        node: node.clone(),
        answer: Err(cause.to_owned()),
    };
    nodes.iter().map(answer).collect()
}

/// Returns the rights of copies for a user. A gateway of root believes no owner, ACL or set-user-ID
/// bit that an agent of the user states.
fn rights_for(uid: u32) -> CopyRights {
    let own = rustix::process::geteuid();
    match own.is_root() || own.as_raw() != uid {
        true => CopyRights::ReadOnly,
        false => CopyRights::OfSource,
    }
}

/// Receiver of the events of a cast.
struct LoadMonitor<'a> {
    report: &'a (dyn Fn(LoadEvent) + Sync),
    /// Data set that other nodes have already.
    set: Option<&'a str>,
    /// Whether the sources are another data set now.
    is_other: AtomicBool,
    /// Ends the cast.
    stop: &'a AtomicBool,
}

impl CastMonitor for LoadMonitor<'_> {
    fn event(&self, event: CastEvent) {
        match event {
            CastEvent::Catalogued { set, .. } if self.set.is_some_and(|first| first != set) => {
                self.is_other.store(true, Relaxed);
                self.stop.store(true, Relaxed);
            }
            CastEvent::Catalogued { set, bytes, .. } => {
                (self.report)(LoadEvent::Data { hash: set, bytes });
            }
            // A cast that was stopped says so for each node.
            CastEvent::Ended(_) if self.is_other.load(Relaxed) => {}
            CastEvent::Ended(report) if report.is_complete => {
                (self.report)(LoadEvent::Ready { node: report.node });
            }
            CastEvent::Ended(report) => {
                let unknown = || "the cast ended early".to_owned();
                (self.report)(LoadEvent::Failed {
                    node: report.node,
                    cause: report.reason.unwrap_or_else(unknown),
                });
            }
            CastEvent::Unreachable { node, cause, .. } => {
                (self.report)(LoadEvent::Unreachable { node, cause });
            }
            CastEvent::SourceFailed { cause } => tracing::warn!("{cause}"),
            _ => {}
        }
    }
}
